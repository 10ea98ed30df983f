"""What a model learns from, and the settings and the plan of `factrl tune`."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import tune as cli
from factrl.errors import ConfigError, DataError
from factrl.job import Job
from factrl.papers import load_reward
from factrl.rewards.needs import supply
from factrl.runs.config import dump_toml, flat, load_settings
from factrl.runs.data import render_prompt
from factrl.runs.rows import read_lines
from factrl.runs.settings import AskSettings, RunSettings
from factrl.text import think_answer
from factrl.train.tuning.plan import demonstrated, plan_tuning
from factrl.train.tuning.rules import RULES, UNDECIDED, Candidate, TargetFormat
from factrl.train.tuning.samples import TuningResult, grading, measure_samples, measurement
from factrl.train.tuning.settings import TuneSettings, completion_for, read_tuning_job
from factrl.types import Completion, Example, Label

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
        (
            "sft-seed",
            KNOWN,
            (Candidate("a", value=0.5), Candidate("b", value=0.9), Candidate("c", value=0.9)),
            "b",
        ),
        ("sft-seed", KNOWN, (MASKED, Candidate("d", cause="declines")), "none: nothing measured"),
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


def valued(*values: float | None, lengths: Sequence[int] = ()) -> list[Candidate]:
    lengths = lengths or [10] * len(values)
    return [
        Candidate(str(n), length=length, value=value, cause=None if value is not None else "timeout")
        for n, (value, length) in enumerate(zip(values, lengths, strict=True))
    ]


FEW, EQUAL = "none: fewer than two samples measured", "none: all samples equal"


@pytest.mark.parametrize(
    ("rules", "values", "expected"),
    [
        (("max-min", "klc", "factscore-ends"), (0.5, -1.0, None, 2.0, 2.0, -1.0), [("3", "1")]),
        (("max-min", "klc", "factscore"), (1.0, 1.0, None), EQUAL),
        (("max-min", "klc", "factscore"), (0.3, 0.1 + 0.2), EQUAL),
        (("max-min", "klc", "factscore", "margin-length"), (1.0, None), FEW),
        (("factscore",), (0.5, 1.0, 0.5, None), [("1", "0"), ("1", "2")]),
    ],
)
def test_pairs_by_value(rules: tuple[str, ...], values: tuple[float | None, ...], expected: object) -> None:
    for rule in rules:
        assert learnt(rule, KNOWN, valued(*values)) == expected


@pytest.mark.parametrize("rule", ["max-min", "klc", "factscore-ends"])
@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("R1's", (0.5, None, -1.0, 2.0), [("R1's", "2")]),
        ("R1's", (1.0,), [("R1's", "0")]),  # one sample is enough
        ("R1's", (None,), "none: nothing measured"),
        ("", (0.5, 1.0), "none: no chosen text"),
    ],
)
def test_a_given_text_is_preferred_to_the_worst_sample(
    rule: str, text: str, values: tuple[float | None, ...], expected: object
) -> None:
    assert learnt(rule, KNOWN, valued(*values), TargetFormat(chosen=text)) == expected


@pytest.mark.parametrize(
    ("values", "lengths", "pair"),
    [
        # 0 against 1 differs most, but in length too; 0 against 3 is next.
        ((1.0, 0.0, 0.9, 0.4, 0.6), (100, 50, 100, 95, 100), ("0", "3")),
        ((0.4, 0.3), (10, 10), None),  # the margin itself is not over it, nor by rounding
        ((0.61, 0.5), (10, 10), ("0", "1")),
        ((1.0, 0.0), (11, 10), ("0", "1")),  # 1.1 is within 0.1 of 1
        ((1.0, 0.0), (10, 11), ("0", "1")),  # the better one is the numerator: 1 - 10/11 = 0.091
        ((1.0, 0.0), (89, 100), None),
        ((1.0, 0.0), (0, 0), None),
    ],
)
def test_margin_and_length(
    values: Sequence[float], lengths: Sequence[int], pair: tuple[str, str] | None
) -> None:
    found = learnt("margin-length", KNOWN, valued(*values, lengths=lengths))
    assert found == ([pair] if pair else "none: no pair within margin and length")


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
    good = Candidate("a", 10, label="correct", value=1.0)
    samples = [*masked, good, replace(good, label="incorrect", value=0.0), replace(good, label="abstained")]
    for rule, example in [(rule, example) for rule in RULES for example in (KNOWN, UNKNOWN)]:
        assert "masked" not in str(learnt(rule, example, samples))
        if RULES[rule].measure is not None:
            assert str(learnt(rule, example, masked)).startswith("none: ")


# Settings


def job(*overrides: str) -> Job[TuneSettings]:
    return read_tuning_job(None, ["model.name=m", "data.train=q.jsonl", *overrides])


def settings(*overrides: str) -> TuneSettings:
    return job(*overrides).settings


@pytest.mark.parametrize(
    ("overrides", "rate", "rows", "samples", "rounds"),
    [
        (["tune.method=dpo", "rule=margin-length"], 1e-6, 16, 10, 1),
        (["tune.method=iterative-dpo", "rule=max-min"], 3e-6, 32, 32, 4),
        (["tune.method=rft", "learning_rate=1e-4", "num_samples=8"], 1e-4, 16, 8, 1),
    ],
)
def test_a_method_comes_with_the_values_of_its_paper(
    overrides: list[str], rate: float, rows: int, samples: int, rounds: int
) -> None:
    told = settings(*overrides)
    assert (told.train.learning_rate, told.train.prompts_per_step) == (rate, rows)
    assert (told.sampling.num_samples, told.tune.rounds) == (samples, rounds)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([], "tune.method is required"),
        (["tune.method=dpo"], "'dpo' needs tune.rule, one of correctness, max-min"),
        (["tune.method=sft", "rule=klc"], "'klc' makes pairs, and 'sft' learns from none"),
        (["tune.method=iterative-dpo", "rule=given"], "the same pairs in every round; it is for dpo"),
        (["tune.method=rft", "rounds=2"], "rounds = 2 is for iterative-dpo"),
        (["tune.method=dpo", "rule=klc", "paper=truthrl"], "KLCF's Eq. 11, not by 'truthrl'"),
        (["tune.method=sft", "tune.target=x"], "must hold {answer} once"),
        (["tune.method=dpo", "rule=factscore", "tune.chosen=r1"], "max-min, factscore-ends and klc, not for"),
        (["tune.method=sft", "tune.chosen=r1"], "'r1' is for the rules max-min"),
        (["tune.method=sft", "model.name=local"], "'local' cannot be trained"),
        (["tune.method=sft", "micro_batch_size=5"], "micro_batch_size = 5 does not divide"),
    ],
)
def test_wrong_settings_are_named(overrides: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*overrides)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sft-seed", "paper=factreason"), {"verifier.preset": "veriscore", "train.learning_rate": 5.5e-6}),
        (("dpo", "rule=margin-length", "paper=factreason"), {"verifier.preset": "veriscore"}),
        (("dpo", "rule=factscore", "paper=knowrl"), {"verifier.preset": "knowrl", "verifier.judge": "llm"}),
        (
            ("iterative-dpo", "rule=max-min", "paper=knowrl"),
            {"verifier.preset": "knowrl", "model.lora": True},
        ),
        (
            ("sft", "paper=knowrl", "lora_rank=256"),
            {
                **{"model.lora": True, "model.lora_rank": 256, "model.lora_alpha": 256},
                **{"train.learning_rate": 5e-6, "train.steps": None, "train.max_completion_length": 1024},
            },
        ),
        (("sft", "paper=truthrl"), {"verifier.preset": "local", "model.lora": False, "train.beta": 0.0}),
        (("sft", "paper=knowrl", "model.lora=false"), {"model.lora": False}),
        (
            ("truthfulness", "paper=knowrl"),
            {"data.system": None, "model.lora": False, "train.max_completion_length": 4},
        ),
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
            ("sft", "lora_rank=8"),
            "model.lora_rank = 8 is not used: all weights are trained without model.lora",
        ),
        (("sft", "train.beta=0.1"), "train.beta = 0.1 is not used: it is for training with a reward"),
        (("rft", "train.temperature=0.6"), "train.temperature = 0.6 is not used"),
        (("rft", "tune.beta=0.2"), "tune.beta = 0.2 is not used: rft learns from no pairs"),
        (("rft", "tune.target={answer}"), "tune.target = '{answer}' is not used: all completions are"),
        (("sft", "sampling.top_p=0.5"), "sampling.top_p = 0.5 is not used: sft writes no samples"),
        (("sft", "tune.demonstrations=d.jsonl"), "tune.demonstrations = 'd.jsonl' is not used"),
        (("sft", "judge.url=http://h/v1#m"), "judge.url = 'http://h/v1#m' is not used: it is for grade"),
        (("rft", "verifier.index=w"), "verifier.index = 'w' is not used: it is for verify"),
        (("dpo", "rule=klc", "judge.reward_model=m"), "judge.reward_model = 'm' is not used: it is for rate"),
        (("dpo", "rule=factscore", "judge.checklist_model=m"), "judge.checklist_model = 'm' is not used"),
        (("sft", "tune.rounds=1"), "tune.rounds = 1 is not used: sft has one round"),
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
        (("sft-seed", "paper=factreason"), "answer", "<answer>Rome</answer>"),
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


def test_given_answers_after_an_opened_reasoning_need_a_target() -> None:
    with pytest.raises(ConfigError, match=r"tune\.target .*<think>"):
        settings("tune.method=sft", "paper=fspo")
    told = job("tune.method=sft", "paper=fspo", "tune.target=I recall.</think><answer>{answer}</answer>")
    assert completion_for(told, "Rome") == "I recall.</think><answer>Rome</answer>"
    assert job("tune.method=rft", "paper=fspo").extract == "answer", "its own texts are as they are"


def test_how_the_model_is_asked_is_read_by_other_verbs(tmp_path: Path) -> None:
    told = settings("tune.method=dpo", "rule=max-min", "max_completion_length=7")
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
    with pytest.raises(DataError, match=r"`ook`; .*factrl probe"):
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
    with pytest.raises(ConfigError, match="output of factrl probe"):
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
    assert plan_tuning(told).notes == [f"--probe {file}: it asked the model other, and m is trained"]
    for other in ({"prompt": "Q: {question}"}, {"extract": "boxed"}):
        about.write_text(json.dumps({"about": {**same, **other}}), "utf-8")
        with pytest.raises(ConfigError, match=f"was made with {next(iter(other))} = "):
            plan_tuning(told)


def test_grades_are_not_kept_for_other_accepted_answers(questions: Path, tmp_path: Path) -> None:
    plan = plan_tuning(job("tune.method=sft", f"data.train={questions}"))
    measure, about = grading(plan.job)
    samples = [[Candidate("0")] for _ in plan.examples]
    told: dict[str, Any] = {"path": tmp_path / "m.jsonl", "prefill": "", "label": "grade"}
    found = measure_samples(measure, about, plan.examples, samples, **told)
    assert [group[0].label for group in found] == ["correct", "incorrect", "incorrect"]
    others = [replace(example, answers=("0",)) for example in plan.examples]
    with pytest.raises(ConfigError, match="holds another job: its known is"):
        measure_samples(measure, about, others, samples, **told)


def test_a_malformed_text_is_no_seed(questions: Path, tmp_path: Path) -> None:
    rows = (row | {"evidence": ["Rome is in Italy."]} for row in [*read_lines(questions)])
    file = write(tmp_path / "evidence.jsonl", *rows)
    words = ("tune.method=sft-seed", f"data.train={file}", "paper=factreason", "verifier.cache=false")
    plan = plan_tuning(job(*words, "verifier.preset=local", "verifier.judge=weak"))
    measure, _ = measurement(plan.job)
    said = ("<think>I know.</think><answer>Rome is in Italy.</answer>", "<answer>Rome is in Italy.</answer>")
    good, bad = measure(plan.examples[:2], [Completion(text) for text in said])
    assert good == {"value": 1.0, "cause": None}
    assert bad == {"cause": "no_think"}


@pytest.mark.parametrize(
    ("claims_of", "values"), [("answer", [1.0, None, 0.0]), ("reasoning", [0.5, None, 1.0])]
)
def test_facttune_scores_the_facts_of_the_reasoning_where_it_is_told(
    questions: Path, tmp_path: Path, claims_of: str, values: list[float | None]
) -> None:
    """As the fact term of `knowrl:format+fact` has them; a short answer alone is one claim or none."""
    facts = ["Marie Curie was born in Warsaw.", "Rome is in Italy."]
    rows = [row | {"evidence": facts} for row in [*read_lines(questions)]]
    file = write(tmp_path / "evidence.jsonl", *rows)
    words = ("rule=factscore", f"data.train={file}", "paper=knowrl", f"claims_of={claims_of}")
    weak = ("verifier.preset=local", "verifier.judge=weak", "verifier.embedder=", "verifier.cache=false")
    plan = plan_tuning(job("tune.method=dpo", *words, *weak))
    measure, _ = measurement(plan.job)
    said = (
        "<think>Marie Curie was born in Warsaw. Rome is in France.</think><answer>Rome is in Italy.</answer>",
        "<answer>Rome is in Italy.</answer>",
        "<think>Marie Curie was born in Warsaw.</think><answer>Rome is in France.</answer>",
    )
    measured = measure(plan.examples, [Completion(text) for text in said])
    assert [row.get("value") for row in measured] == values
    if claims_of == "reasoning":
        reward = supply(load_reward("knowrl:format+fact"), supplier=plan.job.supplier)
        terms = [reward(plan.examples[0], said[n]).terms["fact"] for n in (0, 2)]
        assert terms == [values[0], values[2]]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("tune.method=sft-seed",), "3 of 3 questions come without evidence"),
        (("tune.method=dpo", "rule=margin-length"), "come without evidence"),
        (("tune.method=dpo", "rule=klc"), "klcf needs reward.alpha"),
        (("tune.method=dpo", "rule=klc", "paper=klcf:table-2-row"), "has no checklist"),
        (
            ("tune.method=dpo", "rule=max-min", "paper=truthrl", "tune.demonstrations=nowhere.jsonl"),
            "nowhere.jsonl",
        ),
        (("tune.method=dpo", "rule=max-min", "paper=truthrl:ternary-ook"), "ook"),
        (("tune.method=dpo", "rule=max-min", "tune.chosen=r1"), "'r1': none of 3 rows of "),
        (("tune.method=dpo", "rule=max-min", "claims_of=reasoning"), "a rule that measures precision"),
        (("tune.method=dpo", "rule=factscore", "claims_of=reasoning"), "such as paper=knowrl"),
    ],
)
def test_questions_without_what_measuring_needs_are_refused(
    questions: Path, words: tuple[str, ...], problem: str
) -> None:
    with pytest.raises((DataError, ConfigError)) as caught:
        plan_tuning(job(f"data.train={questions}", *words))
    assert problem in str(caught.value)


def test_demonstrations_come_before_the_question(tmp_path: Path) -> None:
    file = write(tmp_path / "d.jsonl", *({"prompt": f"P{n}", "response": f"{{R{n}}}"} for n in range(3)))
    told = settings("tune.method=sft-seed", "data.prompt=Q: {question}", f"tune.demonstrations={file}")
    prompt = demonstrated(told).data.prompt
    assert prompt.format(question="P9") == "Q: P0\n{R0}\n\nQ: P1\n{R1}\n\nQ: P9"
    assert demonstrated(settings("tune.method=sft")).data.prompt == "{question}"
    with pytest.raises(DataError, match=r"3 rows, fewer than tune\.shots = 4"):
        demonstrated(settings("tune.method=sft-seed", f"tune.demonstrations={file}", "shots=4"))
    asked = write(tmp_path / "q.jsonl", {"question": "P9?", "answers": ["R9"], "evidence": ["x"]})
    words = ("tune.method=sft-seed", f"data.train={asked}", "verifier.preset=local", "verifier.judge=weak")
    [note] = plan_tuning(job(*words, "data.prompt=Q: {question}")).notes
    assert "tune.demonstrations" in note
    assert plan_tuning(job(*words, f"tune.demonstrations={file}")).notes == []


@pytest.mark.parametrize("words", [("tune.method=sft-seed",), ("tune.method=dpo", "rule=margin-length")])
def test_factreasons_samples_are_asked_for_with_two_worked_examples(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    asked = write(tmp_path / "q.jsonl", {"question": "What is a {cave}?", "evidence": ["x"]})
    told = job(*words, f"data.train={asked}", "verifier.preset=local", "verifier.judge=weak")
    assert (told.settings.paper, told.extract) == ("factreason", "answer")
    assert plan_tuning(told).notes == []
    shown = demonstrated(told.settings)
    text = render_prompt(Example("What is a {cave}?"), shown.data.prompt)
    *examples, last = text.split("Request: ")[1:]
    assert last == "What is a {cave}?"
    assert ["Fire" in examples[0], "Cave" in examples[1]] == [True, True]
    for example in examples:
        blocks = think_answer(example.partition("\n\n")[2].strip())
        assert blocks.think is not None
        assert blocks.answer is not None
        assert "Let me check" in blocks.think.text
        assert "leave that out" in blocks.think.text
    assert shown.data.prompt != told.settings.data.prompt, "it is trained without them"
    file = write(tmp_path / "d.jsonl", *({"prompt": f"P{n}", "response": "R"} for n in range(2)))
    assert "Great Fire" not in demonstrated(settings(*words, f"tune.demonstrations={file}")).data.prompt


def test_given_pairs_are_learnt_as_they_stand(tmp_path: Path) -> None:
    rows = [{"p": "Why?", "better": "<think>a</think>x", "worse": "y"}, {"p": "Who?", "better": "x"}]
    file = write(tmp_path / "pairs.jsonl", *rows)
    columns = ("data.columns.question=p", "data.columns.answers=better", "data.columns.rejected=worse")
    words = ("tune.method=dpo", "rule=given", f"data.train={file}", "paper=factreason")
    plan = plan_tuning(job(*words, *columns))
    assert plan.samples == 0
    target = TargetFormat(partial(completion_for, plan.job))
    [first] = (learnt("given", example, (), target) for example in plan.examples)
    assert (first, plan.notes) == ([("<think>a</think>x", "y")], ["1 rows left out: no given pair"])
    with pytest.raises(DataError, match=r"data\.columns\.rejected=…, and .* data\.columns\.answers=…"):
        plan_tuning(job(*words, *columns[:2]))


SAID = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "y"}]


@pytest.mark.parametrize(
    ("worse", "text"),
    [(SAID, "y"), (json.dumps(SAID), "y"), ('{"a": 1}', '{"a": 1}')],  # as TRL has it, in a .csv, and JSON
)
def test_a_worse_completion_is_a_text_or_a_conversation(worse: object, text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", {"question": "Why?", "answer": "x", "rejected": worse})
    [example] = plan_tuning(job("tune.method=dpo", "rule=given", f"data.train={file}")).examples
    assert learnt("given", example, ()) == [("x", text)]


@pytest.mark.parametrize(
    ("worse", "message"),
    [
        (" x ", "no row has a pair to learn from; 1 rows left out: both completions equal"),
        ('["y"]', "row 1: the worse completion is \"['y']\", not text or null"),
        (["y"], "row 1: the worse completion is \"['y']\", not text"),
        (
            5,
            "row 1: the worse completion is '5', not text or null; write the text, or messages with role and",
        ),
    ],
)
def test_a_worse_completion_that_is_none_is_refused(worse: object, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", {"question": "Why?", "answer": "x", "rejected": worse})
    with pytest.raises(DataError) as caught:
        plan_tuning(job("tune.method=dpo", "rule=given", f"data.train={file}"))
    assert message in str(caught.value)


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


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--model", "n"), r"model\.name was 'm', not 'n'"),
        (("rule=factscore",), r"tune\.rule was 'correctness', not 'factscore'"),
    ],
)
def test_a_resumed_run_keeps_its_settings(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    told = settings("tune.method=dpo", "rule=correctness", f"data.train={tmp_path / 'none.jsonl'}")
    (tmp_path / "tune.toml").write_text(dump_toml(told), "utf-8")
    with pytest.raises(ConfigError, match=problem):
        run("--resume", str(tmp_path), *words)
    with pytest.raises(DataError, match=r"none\.jsonl"):  # and other ones may change
        run("--resume", str(tmp_path), "--steps", "7", "--evaluate", "e.jsonl", "--dry-run")


# Before and after


def test_an_outcome_compares_the_same_questions_and_shows_what_is_masked() -> None:
    examples = [Example(f"{n}?", ("x",), id=str(n)) for n in range(4)]
    examples.append(Example("odd?", id="4", false_premise=True))
    outcome = TuningResult(
        examples,
        before=[WRONG, WRONG, RIGHT, MASKED, WRONG],
        after=[RIGHT, IDK, RIGHT, RIGHT, RIGHT],
    )
    document = outcome.to_json()
    assert document["before"]["accuracy"]["value"] == pytest.approx(1 / 3)
    assert document["after"]["accuracy"]["value"] == pytest.approx(3 / 4)
    assert document["differences"]["accuracy"]["value"] == pytest.approx(1 / 3)
    assert (document["compared"], document["left_out"]) == (3, 1)
    assert document["before"]["masked"] == 1
    assert document["rows"][3]["before"] == {"completion": "Austen?", "label": None, "cause": "timeout"}
    json.dumps(document, allow_nan=False)
