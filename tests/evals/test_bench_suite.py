"""Benchmarks from end to end with a scripted writer: resuming, masking, files, pages, comparison."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import evaluate as eval_verb
from factrl.cli import report
from factrl.errors import ConfigError, DataError, Unscored
from factrl.evals.ask import BLOCK, EvalConfig, evaluate
from factrl.evals.catalogue import benchmarks, load_questions
from factrl.evals.folder import Output, read_output
from factrl.evals.grade import Tools
from factrl.evals.paired import compare_outputs
from factrl.evals.report import write_eval_page
from factrl.rewards.grading import Grader
from factrl.runs.config import load_settings
from factrl.runs.settings import AskSettings
from factrl.types import Claim, Completion, Example, Passage
from factrl.verifier import Verifier
from judging import JudgeBy

Say = Callable[[Example, int], str | Unscored]


class Scripted:
    """A model whose texts are a function of the question and the sample's number."""

    def __init__(self, say: Say, name: str = "scripted") -> None:
        self.say, self.identity = say, name
        self.calls: list[list[str]] = []
        self.left = 10**9  # blocks until the process is "killed"

    def __call__(self, settings: AskSettings) -> Any:
        self.settings = settings
        return self

    def write(self, examples: Sequence[Example], numbers: Sequence[int] = (0,), **named: Any) -> Any:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        self.calls.append([example.id for example in examples])
        said = [[self.say(example, number) for number in numbers] for example in examples]
        return [[Completion(s, tokens=3) if isinstance(s, str) else s for s in group] for group in said]


SETTINGS = load_settings(AskSettings, None, ["data.train=-", "model.name=m"])


def sampled(k: int) -> AskSettings:
    update = {"num_samples": k, "temperature": 1.0}
    return SETTINGS.model_copy(update={"sampling": SETTINGS.sampling.model_copy(update=update)})


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """80 questions of SimpleQA, 6 of MuSiQue, some without an answer, 3 biographies."""
    folder = tmp_path / "data"
    monkeypatch.setenv("FACTRL_DATA", str(folder))
    rows: Mapping[str, list[dict[str, Any]]] = {
        "simpleqa/test.jsonl": [
            {"id": f"s{n}", "question": f"What is number {n}?", "answers": [f"word{n}"]} for n in range(80)
        ],
        "musique_100/train.jsonl": [
            {"id": f"a{n}", "question": f"Who is {n}?", "answers": ["x"] * (n % 2), "answerable": n % 2 > 0}
            for n in range(6)
        ],
        "factscore_entities/unlabelled.jsonl": [
            {"id": f"f{n}", "prompt": f"Tell me a bio of Ann {n}."} for n in range(3)
        ],
    }
    for name, lines in rows.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, *lines)
    return folder


def right(example: Example, number: int) -> str:
    """Right for even questions, declined for every seventh, else wrong."""
    place = int("".join(filter(str.isdigit, example.id)))
    if place % 7 == 3:
        return "I don't know."
    return example.answers[0] if place % 2 == 0 and example.answers else "Zanzibar"


def run(
    model: Any, folder: Path, name: str = "simpleqa", how: EvalConfig | None = None, **named: Any
) -> Output:
    """The evaluation of one benchmark, not written yet."""
    how, benchmark = how or EvalConfig(SETTINGS), benchmarks()[name]
    questions = load_questions(benchmark, limit=how.limit)
    given = (benchmark, *questions, how, folder, Tools(Grader()), "rules")
    row, samples = evaluate(*given, open_writer=model, **named)
    about = {"factrl": "0", "model": row["model"], "judge": "rules", "seed": 0, "sampling": {}}
    return Output(folder, about, {name: row}, {name: samples})


def values(found: Output) -> dict[str, float]:
    (name,) = found.benchmarks
    return {metric: number.value for metric, number in found.numbers(name).items()}


@pytest.mark.parametrize("chat", [True, False])
def test_a_policy_is_asked_in_its_own_words_and_nothing_is_added(tmp_path: Path, chat: bool) -> None:
    told = {"data.prompt": "user: {question}\nbot:\n", "data.chat": str(chat).lower()}
    words = ["model.name=m", "data.train=-", *(f"{name}={value}" for name, value in told.items())]
    model = Scripted(right)
    run(
        model,
        tmp_path / "own",
        how=EvalConfig(load_settings(AskSettings, None, words), own_prompt=True, limit=2),
    )
    assert model.settings.data.prompt == "user: {question}\nbot:\n"
    run(model, tmp_path / "ours", how=EvalConfig(load_settings(AskSettings, None, words), limit=2))
    assert model.settings.data.prompt.endswith("\nAnswer:") == (not chat)


def test_options_are_a_part_of_the_question(tmp_path: Path, data: Path) -> None:
    rows = [
        {"id": str(n), "question": f"Q{n}?", "answers": ["Bern"], "hallucinated_answer": "Rome"}
        for n in range(9)
    ]
    (data / "halueval_qa").mkdir()
    write(data / "halueval_qa/all.jsonl", *rows)
    words = ["model.name=m", "data.train=-", "data.prompt=User: {question}\nBot: ", "data.chat=false"]
    told = load_settings(AskSettings, None, words)

    def letter(example: Example, number: int) -> str:
        return f"\\boxed{{{'AB'[example.meta['right'].index(1)]}}}"

    for how, end in ((EvalConfig(told, own_prompt=True), "\nBot: "), (EvalConfig(SETTINGS), "{options}")):
        model = Scripted(letter)
        found = run(model, tmp_path / end.strip(), "halueval", how)
        assert values(found)["accuracy"] == 1.0
        assert "{options}" in model.settings.data.prompt
        assert model.settings.data.prompt.endswith(end)


def test_a_killed_evaluation_goes_on_with_the_same_blocks(tmp_path: Path) -> None:
    run(Scripted(right), tmp_path / "whole").write()
    killed = Scripted(right)
    killed.left = 2
    with pytest.raises(KeyboardInterrupt):
        run(killed, tmp_path / "out")
    path = tmp_path / "out" / "answers" / "simpleqa.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * BLOCK
    path.write_text("".join(lines[:-5]) + lines[-5][:9])  # killed while it wrote
    second = Scripted(right)
    run(second, tmp_path / "out").write()
    assert [len(call) for call in second.calls] == [BLOCK, 80 - 2 * BLOCK]
    assert second.calls[0][0] == f"s{BLOCK}"  # the torn block as a whole, the first not at all
    for name in ("results.json", "samples.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    third = Scripted(right)
    run(third, tmp_path / "out")
    assert third.calls == []
    with pytest.raises(ConfigError, match=r"answers/simpleqa.jsonl holds another job: its model is"):
        run(Scripted(right, "another"), tmp_path / "out")


def test_what_failed_is_masked_and_tried_again(tmp_path: Path) -> None:
    def fails(example: Example, number: int) -> str | Unscored:
        return Unscored("http_500", "down") if example.id == "s4" else right(example, number)

    found = run(Scripted(fails), tmp_path, how=EvalConfig(SETTINGS, limit=BLOCK))
    assert found.benchmarks["simpleqa"]["masked"] == {"http_500": 1}
    assert found.numbers("simpleqa")["accuracy"].n == BLOCK - 1
    more = Scripted(right)
    found = run(more, tmp_path)
    assert [len(call) for call in more.calls] == [BLOCK, BLOCK, 80 - 2 * BLOCK], "a block is asked as a whole"
    labels = [one.label for one in found.samples["simpleqa"]]
    for name, label in (("accuracy", "correct"), ("abstention", "abstained")):
        assert values(found)[name] == labels.count(label) / 80
    assert (found.benchmarks["simpleqa"]["masked"], values(found)["invalid"]) == ({}, 0)


def test_several_samples(tmp_path: Path) -> None:
    def say(example: Example, number: int) -> str:
        return example.answers[0] if number < 3 else f"Town {number}"

    found = run(Scripted(say), tmp_path, how=EvalConfig(sampled(5), limit=10))
    assert len(found.samples["simpleqa"]) == 50
    assert values(found)["accuracy"] == pytest.approx(0.6)
    assert (values(found)["majority@5"], found.numbers("simpleqa")["accuracy"].n) == (1.0, 10)
    more = Scripted(say)
    run(more, tmp_path, how=EvalConfig(sampled(7), limit=10))
    assert len(more.calls) == 1


def test_many_samples_tell_what_a_model_knows(
    verbs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TruthRL's flag: none of a question's samples is right; what cannot be graded decides nothing."""
    rates = {"never": 0, "once": 1, "often": 6, "lost": 0}

    def say(example: Example, number: int) -> str | Unscored:
        if example.id == "lost" and number > 3:
            return Unscored("http_500", "down")
        return "Oslo" if number < rates[example.id] else "Rome"

    rows = [{"id": name, "question": f"{name}?", "answers": ["Oslo"], "year": 1} for name in rates]
    write(tmp_path / "q.jsonl", *rows)
    monkeypatch.setattr(eval_verb, "NamedModel", lambda _: Scripted(say))
    out = tmp_path / "out"
    words = ["--model", "m", "--samples", "8", "sampling.temperature=1", "data.prompt=Q: {question}"]
    assert verbs("eval", str(tmp_path / "q.jsonl"), *words, "--output", str(out)) == 0
    found = [json.loads(line) for line in (out / "questions.jsonl").read_text().splitlines()]
    assert [(row["id"], row["year"], row["ook"], row["pass_rate"]) for row in found] == [
        ("never", 1, True, 0.0),
        ("once", 1, False, 1 / 8),
        ("often", 1, False, 6 / 8),
        ("lost", 1, None, 0.0),
    ]
    assert [len(row["samples"]) for row in found] == [8] * 4
    assert found[1]["samples"][0] == {
        **{"text": "Oslo", "label": "correct", "answer": "Oslo", "cause": None},
        **{"truncated": False, "tokens": 3},
    }
    about = json.loads((out / "questions.about.json").read_text())["about"]
    assert (about["prompt"], about["policy"], about["extract"]) == ("Q: {question}", "m", "text")
    number = json.loads((out / "results.json").read_text())["benchmarks"]["q"]["numbers"]["ook"]
    assert (number["value"], number["n"]) == (1 / 3, 3)


def test_declining_what_nobody_knows(tmp_path: Path) -> None:
    say: Say = lambda example, n: "I don't know." if example.id in ("a0", "a2", "a1") else "Zanzibar"  # noqa: E731
    numbers = run(Scripted(say), tmp_path, "musique").numbers("musique")
    for name, value in (("abstention_recall", 2 / 3), ("abstention_precision", 2 / 3), ("abstention", 1 / 3)):
        assert (numbers[name].value, numbers[name].n) == (value, 3)


def test_a_length_of_ones_own_and_what_makes_two_hard_to_compare(tmp_path: Path) -> None:
    model = Scripted(right)
    found = run(model, tmp_path / "a")
    assert model.settings.train.max_completion_length == 48
    asked = SETTINGS.model_copy(update={"data": SETTINGS.data.model_copy(update={"prompt": "{question}!"})})
    other = run(model, tmp_path / "b", how=EvalConfig(asked, own_prompt=True, own_length=True, limit=79))
    assert model.settings.train.max_completion_length == SETTINGS.train.max_completion_length != 48
    (pair,) = compare_outputs(other, found)
    assert pair.notes == ["they were asked with different prompts"]
    assert (pair.n, pair.left_out, pair.fixed, pair.p) == (79, 1, 0, 1.0)


def test_long_answers(tmp_path: Path) -> None:
    def ten(text: str, question: str = "", topic: str = "") -> list[Claim]:
        return [Claim(f"No {n}", 0, 1) for n in range(10)]

    search: Any = type("One", (), {"search": lambda *_, **__: [Passage("All of it.")]})()
    verifier = Verifier(
        ten, search, JudgeBy(lambda said: "refuted" if said in ("No 8", "No 9") else "supported")
    )
    model = Scripted(lambda example, n: "A life.")
    found = run(model, tmp_path, "factscore", verifier=verifier)
    assert (values(found)["factscore"], values(found)["detail"]) == pytest.approx((0.8, 8))
    assert values(found)["f1@32"] == pytest.approx(2 * 0.8 * 0.25 / 1.05)
    found.write()
    assert run(model, tmp_path, "factscore", verifier=verifier).samples == found.samples
    assert "8 of 10 claims supported" in write_eval_page(found).read_text("utf-8")
    (pair,) = compare_outputs(found, read_output(tmp_path))
    assert (pair.n, pair.p) == (3, None)
    with pytest.raises(ConfigError, match="factscore needs a verifier"):
        run(model, tmp_path, "factscore")


def test_two_evaluations_side_by_side(tmp_path: Path) -> None:
    def better(example: Example, number: int) -> str:
        return "Lost" if example.id in ("s0", "s1") else example.answers[0]

    before = run(Scripted(right, "<b>one</b>"), tmp_path / "a")
    after = run(Scripted(better, "two"), tmp_path / "b")
    before.write()
    (pair,) = compare_outputs(read_output(tmp_path / "a"), after)
    was, now = ([one.label == "correct" for one in side.samples["simpleqa"]] for side in (before, after))
    moves = list(zip(was, now, strict=True))
    assert (pair.n, pair.broken, pair.fixed) == (80, 1, moves.count((False, True)))
    assert moves.count((True, False)) == 1
    assert (pair.p or 1) < 1e-6
    change = pair.differences["accuracy"]
    assert change is not None
    assert change.value == pytest.approx((sum(now) - sum(was)) / 80)
    assert change.excludes_zero
    labels = [(one.label, other.label) for one, other in pair.changed]
    assert labels[0] == ("correct", "incorrect")
    assert labels == sorted(labels, key=labels.index)
    told = pair.to_json()["changed"][0]
    assert (told["question"], told["texts"]) == ("What is number 0?", ["word0", "Lost"])
    with pytest.raises(DataError, match="no benchmark is in both"):
        compare_outputs(before, run(Scripted(right), tmp_path / "d", "musique"))


# The command line


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`factrl` with these two verbs, and a scripted model under every name."""
    monkeypatch.setattr(eval_verb, "NamedModel", lambda _: Scripted(right))
    monkeypatch.setattr(eval_verb, "quiet_policy", lambda name: None)

    def main(*words: str) -> int:
        chosen = argparse.ArgumentParser().add_subparsers()
        for module in (eval_verb, report):
            module.add_verbs(chosen)
        verb, *rest = words
        args = chosen.choices[verb].parse_intermixed_args(rest)
        return args.run(args)

    return main


def test_eval_and_report(verbs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    words = ["eval", "simpleqa", "musique", "--model", "m", "--limit", "6"]
    assert verbs(*words, "--output", a) == 0
    out, err = capsys.readouterr()
    assert "simpleqa" in out
    assert "page: " in err
    kept = {"answers", "report.html", "results.json", "samples.jsonl"}
    assert {path.name for path in Path(a).iterdir()} == kept
    assert verbs(*words, "--output", b, "--json", "data.system=Be brief.") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["system"] == "Be brief."
    first = document["benchmarks"]["simpleqa"]["numbers"]
    assert first["accuracy"]["n"] == 6
    assert verbs("report", a, b) == 0
    assert "McNemar" in capsys.readouterr().out
    assert verbs("report", a, b, "--json") == 0
    assert json.loads(capsys.readouterr().out)["simpleqa"]["fixed"] == 0
    for side in "xy":  # answers of one's own: each is named after its file
        row = {"question": "Which?", "answers": ["x"], "completion": side}
        (tmp_path / f"{side}.jsonl").write_text(json.dumps(row), encoding="utf-8")
        assert verbs("eval", str(tmp_path / f"{side}.jsonl"), "--output", str(tmp_path / f"of-{side}")) == 0
    capsys.readouterr()
    assert verbs("report", str(tmp_path / "of-x"), str(tmp_path / "of-y"), "--json") == 0
    (pair,) = json.loads(capsys.readouterr().out).values()
    assert (pair["n"], pair["broken"], pair["notes"]) == (1, 1, [])
    with pytest.raises(ConfigError, match=r"report.html"):
        verbs("report", a)
    for sides in ([a, str(tmp_path / "x.jsonl")], [str(tmp_path / "x.jsonl"), a]):
        with pytest.raises(DataError, match=r"x\.jsonl holds no evaluation"):
            verbs("report", *sides)
    with pytest.raises(DataError, match="holds no evaluation"):
        read_output(tmp_path)
    whole = (Path(a) / "samples.jsonl").read_text(encoding="utf-8")
    (Path(a) / "samples.jsonl").write_text(whole.partition("\n")[0], encoding="utf-8")
    with pytest.raises(DataError, match=r"samples\.jsonl holds 1 "):
        verbs("report", a, b)
    (Path(a) / "samples.jsonl").write_text(whole, encoding="utf-8")
    stored = ["--completions", f"{b}/samples.jsonl", "--output", c, "--limit", "6", "--json"]
    assert verbs("eval", "simpleqa", *stored) == 0
    again = json.loads(capsys.readouterr().out)["benchmarks"]["simpleqa"]["numbers"]
    assert again == first


def test_a_recipe_asks_in_its_own_way(verbs: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'paper = "truthrl"\n[model]\nname = "m"\n[data]\ntrain = "x.jsonl"\nprompt = "Box it: {question}"\n'
        '[reward]\nanswer = "boxed"\n'
    )
    folder = tmp_path / "o"
    assert verbs("eval", "simpleqa", "--config", str(recipe), "--output", str(folder)) == 0
    document = json.loads((folder / "results.json").read_text())
    found = document["benchmarks"]["simpleqa"]
    assert (found["prompt"], document["extract"]) == ("Box it: {question}", "boxed")
    assert found["floored"] == {"no_box": 80}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("simpleqa --output o", "needs either --model NAME"),
        ("simpleqa --model m", "a model needs --output FOLDER"),
        ("simpleqa --model m --completions f --output o", "leave --model and --config out"),
        ("simpleqa --model m --output o grade.column=c", r"grade\.column names stored answers, but a model"),
        ("a/answers.jsonl b/answers.jsonl", "two of a/answers.jsonl, b/answers.jsonl have one name"),
        ("answers.jsonl --samples 3", "--samples is for answers that are given now"),
        ("data.prompt=x", "name a FILE or a BENCH first"),
    ],
)
def test_mistakes(verbs: Any, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verbs("eval", *line.split())
