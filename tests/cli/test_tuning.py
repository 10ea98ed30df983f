"""What a model learns from, and the settings and the plan of `factrl tune`."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import tune as cli
from factrl.errors import ConfigError, DataError
from factrl.job import Job
from factrl.runs.config import flat, load_settings
from factrl.runs.resume import settings_text
from factrl.runs.settings import AskSettings, RunSettings
from factrl.train.tuning.plan import plan_tuning
from factrl.train.tuning.rules import RULES, UNDECIDED, Candidate, TargetFormat
from factrl.train.tuning.samples import grading, measure_samples
from factrl.train.tuning.settings import TuneSettings, completion_for, read_tuning_job
from factrl.types import Example, Label

KNOWN = Example("Who wrote Emma?", ("Jane Austen", "Austen"), id="1", ook=False)
UNKNOWN = Example("Who wrote Emma?", ("Jane Austen",), id="1", ook=True)
UNPROBED = Example("Who wrote Emma?", ("Jane Austen",), id="1")
RIGHT, WRONG = Candidate("Austen", label="correct"), Candidate("Dickens", label="incorrect")
IDK, MASKED = Candidate("no idea", label="abstained"), Candidate("Austen?", cause="timeout")
Samples = tuple[Candidate, ...]
NLI = "nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"


def learnt(
    rule: str, example: Example, samples: Sequence[Candidate], target: TargetFormat | None = None
) -> Any:
    """The completion, the pairs better than worse, or the reason why there is neither."""
    found = RULES[rule].rows(example, samples, target or TargetFormat())
    if isinstance(found, str):
        return f"none: {found}"
    if "completion" in found[0]:
        return found[0]["completion"]
    return [(row["chosen"], row["rejected"]) for row in found]


@pytest.mark.parametrize(
    ("rule", "example", "samples", "expected"),
    [
        ("sft", KNOWN, (), "Jane Austen"),
        ("sft", Example("When did it end?", false_premise=True), (), "invalid question"),
        ("sft", Example("When did it end?"), (), "none: no accepted answer"),
        ("r-tuning", UNKNOWN, (), "I don't know"),
        ("r-tuning", UNPROBED, (), f"none: {UNDECIDED}"),
        ("rft", KNOWN, (WRONG, MASKED, RIGHT, IDK), "Austen"),
        ("rft", UNKNOWN, (WRONG, MASKED, RIGHT, IDK), "no idea"),
        ("rft", KNOWN, (WRONG, IDK), "none: no right sample"),
        ("correctness", KNOWN, (IDK, RIGHT, MASKED, WRONG), [("Austen", "Dickens")]),
        ("correctness", UNKNOWN, (IDK, RIGHT, MASKED, WRONG), [("I don't know", "Dickens")]),
        ("correctness", KNOWN, (RIGHT, RIGHT), "none: no wrong sample"),
        ("correctness", KNOWN, (WRONG, WRONG), "none: no right sample"),
    ],
)
def test_what_is_learnt(rule: str, example: Example, samples: Samples, expected: object) -> None:
    assert learnt(rule, example, samples) == expected


def test_an_answer_is_written_in_the_form_that_is_read() -> None:
    target = TargetFormat(write=lambda answer: rf"\boxed{{{answer}}}", abstention="unsure")
    assert learnt("sft", KNOWN, (), target) == r"\boxed{Jane Austen}"
    assert learnt("r-tuning", UNKNOWN, (), target) == r"\boxed{unsure}"
    assert learnt("correctness", UNKNOWN, [WRONG], target) == [(r"\boxed{unsure}", "Dickens")]
    assert learnt("rft", KNOWN, [RIGHT], target) == "Austen"  # its own text stays as it is


def test_chance_depends_on_the_seed_alone() -> None:
    labels: list[Label] = [*["correct"] * 9, *["incorrect"] * 9]  # type: ignore[list-item]
    samples = [Candidate(str(n), label=label) for n, label in enumerate(labels)]
    pairs = [
        learnt("correctness", KNOWN, samples, TargetFormat(draw=random.Random(seed))) for seed in (1, 1, 2, 3)
    ]
    assert pairs[0] == pairs[1]
    assert len({str(pair) for pair in pairs}) > 1


def test_a_sample_without_a_measure_is_in_no_row_of_any_rule() -> None:
    """Masked is never learnt from."""
    masked = [Candidate("masked", length=10, cause="timeout")] * 2
    good = Candidate("a", 10, label="correct")
    samples = [*masked, good, replace(good, label="incorrect"), replace(good, label="abstained")]
    for rule, example in [(rule, example) for rule in RULES for example in (KNOWN, UNKNOWN)]:
        assert "masked" not in str(learnt(rule, example, samples))
        if RULES[rule].samples:
            assert str(learnt(rule, example, masked)).startswith("none: ")


# Settings


def job(*overrides: str) -> Job[TuneSettings]:
    return read_tuning_job(None, ["model.name=m", "data.train=q.jsonl", *overrides])


def settings(*overrides: str) -> TuneSettings:
    return job(*overrides).settings


@pytest.mark.parametrize(
    ("overrides", "rate", "rows", "samples"),
    [
        (["tune.method=dpo", "tune.rule=correctness"], 3e-6, 32, 32),
        (["tune.method=dpo", "tune.rule=given"], 3e-6, 32, 1),
        (["tune.method=rft", "train.learning_rate=1e-4", "sampling.num_samples=8"], 1e-4, 16, 8),
    ],
)
def test_a_method_comes_with_the_values_of_its_paper(
    overrides: list[str], rate: float, rows: int, samples: int
) -> None:
    told = settings(*overrides)
    assert (told.train.learning_rate, told.train.prompts_per_step) == (rate, rows)
    assert told.sampling.num_samples == samples


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([], "tune.method is required"),
        (["tune.method=dpo"], "'dpo' needs tune.rule, one of correctness, given"),
        (["tune.method=sft", "tune.rule=given"], "'given' makes pairs, and 'sft' learns from none"),
        (["tune.method=sft", "tune.target=x"], "must hold {answer} once"),
        (["tune.method=sft", "model.name=local"], "'local' cannot be trained"),
        (["tune.method=sft", "train.micro_batch_size=5"], "micro_batch_size = 5 does not divide"),
    ],
)
def test_wrong_settings_are_named(overrides: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*overrides)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("dpo", "tune.rule=given", "paper=knowrl"), {"model.lora": True}),
        (
            ("sft", "paper=knowrl", "model.lora_rank=256"),
            {
                **{"model.lora": True, "model.lora_rank": 256, "model.lora_alpha": 256},
                **{"train.learning_rate": 5e-6, "train.steps": None, "train.max_completion_length": 1024},
            },
        ),
        (("sft", "paper=truthrl"), {"verifier.preset": "local", "model.lora": False, "train.beta": 0.0}),
        (("sft", "paper=knowrl", "model.lora=false"), {"model.lora": False}),
    ],
)
def test_a_stage_takes_what_its_paper_says_of_all_stages(
    words: tuple[str, ...], expected: dict[str, Any]
) -> None:
    told = flat(settings(f"tune.method={words[0]}", *words[1:]).model_dump())
    assert {key: told[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("sft", "model.lora_rank=8"),
            "model.lora_rank = 8 is not used: all weights are trained without model.lora",
        ),
        (("sft", "train.beta=0.1"), "train.beta = 0.1 is not used: it is for training with a reward"),
        (("rft", "train.temperature=0.6"), "train.temperature = 0.6 is not used"),
        (("rft", "tune.beta=0.2"), "tune.beta = 0.2 is not used: rft learns from no pairs"),
        (("rft", "tune.target={answer}"), "tune.target = '{answer}' is not used: no completion"),
        (("sft", "sampling.top_p=0.5"), "sampling.top_p = 0.5 is not used: sft writes no samples"),
        (("sft", "judge.url=http://h/v1#m"), "judge.url = 'http://h/v1#m' is not used: it is for grade"),
        (("rft", "verifier.index=w"), "verifier.index = 'w' is not used: it is for verify"),
        (("dpo", "tune.rule=given", "tune.abstention=no"), "tune.abstention = 'no' is not used"),
        (
            ("rft", "run.max_cost=1", "judge.url=http://h/v1#m", "judge.price_in=1", "judge.price_out=1"),
            "run.max_cost = 1 is not used: factrl tune has no limit of cost",
        ),
    ],
)
def test_a_setting_that_the_method_does_not_read_is_refused(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        settings(f"tune.method={words[0]}", *words[1:])


@pytest.mark.parametrize(
    ("words", "extract", "written"),
    [
        (("sft",), "text", "Rome"),
        (("sft", "paper=truthrl"), "boxed", r"\boxed{Rome}"),
        (("sft", "paper=factreason"), "answer", "<answer>Rome</answer>"),
        (("sft", "paper=truthrl", "reward.answer=text", "tune.target= {answer}."), "text", " Rome."),
    ],
)
def test_the_form_of_answers_is_that_of_the_reward(
    words: tuple[str, ...], extract: str, written: str
) -> None:
    one = job(f"tune.method={words[0]}", *words[1:])
    assert (one.extract, completion_for(one, "Rome")) == (extract, written)


@pytest.mark.parametrize(
    ("spec", "knobs", "extract"),
    [
        ("knowrl", {}, "answer"),
        ("robust:text", {"answer": "tags"}, "answer"),
        ("truthrl", {"answer": "text"}, "text"),
        ("own.py:mine", {"answer": "boxed"}, "boxed"),
    ],
)
def test_what_is_the_answer_follows_the_reward(spec: str, knobs: dict[str, Any], extract: str) -> None:
    assert Job(AskSettings.model_construct(paper=spec, reward=knobs)).extract == extract


def test_given_answers_after_an_opened_reasoning_need_a_target(tmp_path: Path) -> None:
    file = write(tmp_path / "q.jsonl", {"question": "Capital?", "answers": ["Rome"], "evidence": ["x"]})
    words = ("tune.method=sft", "paper=fspo", f"data.train={file}")
    with pytest.raises(ConfigError, match=r"tune\.target .*<think>"):
        plan_tuning(job(*words))
    told = job(*words, "tune.target=I recall.</think><answer>{answer}</answer>")
    assert completion_for(told, "Rome") == "I recall.</think><answer>Rome</answer>"
    write(tmp_path / "q.jsonl", {"prompt": "Capital?", "completion": "So.</think><answer>Rome</answer>"})
    assert plan_tuning(job(*words)).given, "what is given is as it is"


def test_how_the_model_is_asked_is_read_by_other_verbs(tmp_path: Path) -> None:
    told = settings("tune.method=dpo", "tune.rule=given", "paper=truthrl", "train.max_completion_length=7")
    (tmp_path / "config.toml").write_text(told.asking(), "utf-8")
    for kind in (RunSettings, AskSettings):
        found = load_settings(kind, tmp_path / "config.toml", knobs={"reward": told.reward})
        assert (found.data, found.train, found.reward) == (told.data, told.train, told.reward)


# The plan


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [{"id": str(n), "question": f"{n}?", "answers": [str(n)]} for n in range(3)]
    return write(tmp_path / "q.jsonl", *rows)


def test_questions_that_were_never_probed_are_refused(questions: Path) -> None:
    with pytest.raises(DataError, match=r"`ook`; .*factrl eval"):
        plan_tuning(job(f"data.train={questions}", "tune.method=rft"))


def test_a_probe_gives_flags_and_samples(questions: Path, tmp_path: Path) -> None:
    sample = {"text": "0 it is", "label": "correct", "answer": "0", "cause": None, "truncated": True}
    rows = [
        {"id": "0", "ook": False, "samples": [{**sample, "tokens": 5}, {"text": None, "cause": "timeout"}]},
        {"id": "1", "ook": True, "samples": [{**sample, "label": None, "cause": "judge_unreadable"}]},
        {"id": "2", "ook": None, "samples": []},
    ]
    file = write(tmp_path / "p.jsonl", *rows)
    plan = plan_tuning(job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}"))
    assert [example.ook for example in plan.examples] == [False, True, None]
    assert plan.probed["0"] == [
        Candidate("0 it is", length=5, truncated=True, label="correct"),
        Candidate("", cause="timeout"),
    ]
    assert plan.probed["1"] == [Candidate("0 it is", length=3, truncated=True, cause="judge_unreadable")]
    assert plan.samples == 0


def test_a_probe_of_other_questions_is_refused(questions: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", {"id": "0", "ook": False})
    with pytest.raises(DataError, match="2 of 3 questions, first '1'"):
        plan_tuning(job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}"))
    file = write(tmp_path / "p.jsonl", {"id": "0", "question": "0?"})
    with pytest.raises(ConfigError, match="output of factrl eval"):
        plan_tuning(job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}"))


def test_a_probe_is_read_as_questions_are(questions: Path, tmp_path: Path) -> None:
    """Text of a .csv, and ids as data frames write numbers."""
    samples = json.dumps([{"text": "0", "label": "correct", "tokens": 1}])
    rows = [{"id": float(n), "ook": word, "samples": samples} for n, word in enumerate(("False", "true", ""))]
    file = write(tmp_path / "p.jsonl", *rows)
    plan = plan_tuning(job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}"))
    assert [example.ook for example in plan.examples] == [False, True, None]
    assert plan.probed["0"] == [Candidate("0", length=1, label="correct")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"ook": "maybe"}, "p.jsonl, row 2: ook is 'maybe', not true or false"),
        ({"question": "Who?"}, "something else under 1 of 3 ids, first '1': 'Who?', and here it is '1?'"),
        ({"samples": ["a", "b"]}, "row 2: samples holds 'a', not a table with a text"),
        ({"samples": 3}, "row 2: samples is '3', not a list of tables"),
        ({"samples": "[1]"}, "row 2: samples is '[1]', not a list of tables"),
        ({"id": 0, "question": ""}, "row 2 has the id '0' of an earlier row; leave one of them out"),
        ({"samples": [{"text": 5}]}, "row 2: samples holds \"{'text': 5}\", not a table with a text"),
    ],
)
def test_a_row_of_a_probe_that_cannot_be_read_is_named(
    questions: Path, tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    rows = [{"id": str(n), "question": f" {n}?", "ook": False, **(row if n == 1 else {})} for n in range(3)]
    file = write(tmp_path / "p.jsonl", *rows)
    with pytest.raises(DataError) as caught:
        plan_tuning(job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}"))
    assert message in str(caught.value)


def test_a_probe_that_asked_otherwise_is_refused(questions: Path, tmp_path: Path) -> None:
    rows = [{"id": str(n), "ook": False, "samples": [{"text": "x", "label": "correct"}]} for n in range(3)]
    file = write(tmp_path / "p.jsonl", *rows)
    told = job("tune.method=rft", f"data.train={questions}", f"tune.probe={file}")
    [note] = plan_tuning(told).notes
    assert "p.about.json is not there" in note
    same = {"prompt": "{question}", "system": None, "prefill": "", "chat": True, "extract": "text"}
    about = tmp_path / "p.about.json"
    about.write_text(json.dumps({"about": {**same, "policy": "m"}}), "utf-8")
    assert plan_tuning(told).notes == []
    about.write_text(json.dumps({"about": {**same, "policy": "other"}}), "utf-8")
    assert plan_tuning(told).notes == [f"tune.probe={file}: it asked the model other, and m is trained"]
    for other in ({"prompt": "Q: {question}"}, {"extract": "boxed"}):
        about.write_text(json.dumps({"about": {**same, **other}}), "utf-8")
        with pytest.raises(ConfigError, match=f"was made with {next(iter(other))} = "):
            plan_tuning(told)


def test_grades_are_not_kept_for_other_accepted_answers(questions: Path, tmp_path: Path) -> None:
    plan = plan_tuning(job("tune.method=sft", f"data.train={questions}"))
    measure, about = grading(plan.job)
    samples = [[Candidate("0")] for _ in plan.examples]
    told: dict[str, Any] = {"path": tmp_path / "m.jsonl", "prefill": ""}
    found = measure_samples(measure, about, plan.examples, samples, **told)
    assert [group[0].label for group in found] == ["correct", "incorrect", "incorrect"]
    others = [replace(example, answers=("0",)) for example in plan.examples]
    with pytest.raises(ConfigError, match="holds another job: its questions is"):
        measure_samples(measure, about, others, samples, **told)


# Rows that are given

SAID = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "y"}]


def given(tmp_path: Path, *rows: dict[str, Any], pairs: bool = False, more: Sequence[str] = ()) -> Any:
    """What is learned of each row: its prompt, then its texts; and the notes."""
    file = write(tmp_path / "rows.jsonl", *rows)
    words = ("tune.method=dpo", "tune.rule=given") if pairs else ("tune.method=sft",)
    plan = plan_tuning(job(*words, f"data.train={file}", *more))
    assert plan.samples == 0
    return [(one.prompt, *one.texts.values()) for one in plan.given], plan.notes


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "Q: Why?\nA:", "completion": " y"}, "Q: Why?\nA:"),
        ({"prompt": SAID[:1], "completion": SAID[1:]}, SAID[:1]),
        ({"prompt": json.dumps(SAID[:1]), "completion": json.dumps(SAID[1:])}, SAID[:1]),  # of a .csv
        ({"messages": SAID}, SAID[:1]),
        ({"question": "Why?", "completion": '["#### y"]'}, None),
    ],
)
def test_rows_are_learned_as_they_stand(tmp_path: Path, row: dict[str, Any], prompt: object) -> None:
    [found], notes = given(tmp_path, row)
    assert found[0] == prompt
    assert found[1].strip() == ('["#### y"]' if "question" in row else "y")
    assert notes == []


def test_pairs_are_learned_as_they_stand(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "Why?", "chosen": "<think>a</think>x", "rejected": [*SAID]},
        {"prompt": "Who?", "chosen": "x"},
        {"prompt": "Who?", "chosen": "x", "rejected": " x "},
    ]
    found, notes = given(tmp_path, *rows, pairs=True)
    assert found == [("Why?", "<think>a</think>x", "y")]
    assert notes == ["1 rows left out: no rejected", "1 rows left out: both completions equal"]
    named = [{"p": "Why?", "better": "x", "worse": '{"a": 1}'}]
    columns = ("data.columns.question=p", "data.columns.answers=better", "data.columns.rejected=worse")
    found, _ = given(tmp_path, *named, pairs=True, more=columns)
    assert found == [(None, "x", '{"a": 1}')]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"prompt": "Why?", "chosen": "x"}, r"data\.columns\.rejected"),
        ({"prompt": "Why?", "rejected": "x"}, r"data\.columns\.answers"),
        ({"prompt": "Why?", "chosen": "x", "rejected": 5}, "row 1: rejected"),
        ({"prompt": "Why?", "chosen": "x", "rejected": ["y"]}, "row 1: rejected"),
        ({"prompt": 5, "chosen": "x", "rejected": "y"}, "row 1: prompt"),
        ({"prompt": "Why?", "chosen": "x", "rejected": "x"}, "both completions equal"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, row: dict[str, Any], name: str) -> None:
    with pytest.raises(DataError, match=name):
        given(tmp_path, row, pairs=True)


# The command line


def run(*words: str) -> int:
    verbs = argparse.ArgumentParser().add_subparsers()
    cli.add_verbs(verbs)
    args = verbs.choices["tune"].parse_intermixed_args(words)
    return args.run(args)


def test_a_dry_run_needs_no_model(questions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sft", str(questions), "--model", "m", "--dry-run", "train.steps=3") == 0
    told = capsys.readouterr()
    assert "3 to learn from" in told.err
    found = {line for line in told.out.splitlines() if "=" in line}
    assert {'method = "sft"', "steps = 3", "learning_rate = 5e-06"} <= found


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("stf", "q.jsonl"), "did you mean 'sft'"),
        (("sft", "q.jsonl", "--resume", "runs/x"), "leave out 'sft'"),
    ],
)
def test_wrong_words_are_named(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*words)
    assert problem in str(caught.value)


def test_a_run_goes_on_with_its_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = settings("tune.method=dpo", "tune.rule=correctness", f"data.train={tmp_path / 'none.jsonl'}")
    (tmp_path / "tune.toml").write_text(settings_text(told), "utf-8")
    for words, name in (
        (("--model", "n"), r"model\.name"),
        (("tune.rule=given",), r"tune\.rule"),
    ):
        with pytest.raises(ConfigError, match=name):
            run("--resume", str(tmp_path), *words)
    with pytest.raises(DataError, match=r"none\.jsonl"):
        run("--resume", str(tmp_path), "--steps", "7", "--dry-run")
    (tmp_path / "done.json").write_text('{"steps": 7}')
    (tmp_path / "model").mkdir()
    assert run("--resume", str(tmp_path)) == 0
    assert "7 of 7 steps" in capsys.readouterr().err
