"""The knowledge boundary: the same labels for fewer samples, whatever fails or is killed on the way."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import main
from factrl.errors import ConfigError, TooManyMasked, Unscored
from factrl.evals.probe import (
    Probed,
    ProbeSample,
    Stopping,
    majority_curve,
    probe,
    summary,
    write_probed,
)
from factrl.llm.writers import Written, seed_of
from factrl.papers import load_reward
from factrl.runs.data import load_examples
from factrl.runs.disk import Journal
from factrl.types import Completion, Example, Grade, Label
from fault_server import FaultServer, completion

RIGHT, WRONG, IDK, ODD = "right", "wrong", "I don't know", "?"


class World:
    """A model that gets each question right at a rate of its own; a sample depends on its number alone."""

    identity = "world"

    def __init__(self, rates: Mapping[str, float], odd: float = 0.0) -> None:
        self.rates, self.odd = rates, odd  # odd: chance that an answer cannot be graded
        self.asked: list[tuple[str, int]] = []
        self.calls = 0

    def write(self, examples: Sequence[Example], numbers: Sequence[int] = (0,), **told: Any) -> Any:
        self.calls += 1
        self.asked += [(example.id, number) for example in examples for number in numbers]
        seed = told.get("seed", 0)
        return [[self.sample(example, number, seed) for number in numbers] for example in examples]

    def sample(self, example: Example, number: int, seed: int) -> Written:
        draw = random.Random(seed_of(seed, example.id, number))
        if draw.random() < self.odd:
            return Completion(ODD, tokens=1)
        if draw.random() < self.rates[example.id]:
            return Completion(RIGHT, tokens=1)
        return Completion(draw.choice((WRONG, IDK)), tokens=1)


def grade(
    question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
) -> Grade:
    if prediction == ODD:
        raise Unscored("judge_unreadable", "no verdict")
    label: Label = "abstained" if prediction == IDK else "correct" if prediction == RIGHT else "incorrect"
    return Grade(label, prediction, "exact")


def refusing(refuses: Callable[[str], bool], cause: str) -> Any:
    """A grader that fails on some questions."""

    def picky(question: str, prediction: str, answers: Sequence[str], **told: Any) -> Grade:
        if refuses(question):
            raise Unscored(cause, "")
        return grade(question, prediction, answers)

    return picky


def questions(n: int) -> list[Example]:
    return [Example(f"Question {i}?", (RIGHT,), id=f"q{i}") for i in range(n)]


def rates(asked: Sequence[Example], seed: int = 0) -> dict[str, float]:
    """A third never right, a third hardly ever, a third often."""
    draw = random.Random(seed)
    kinds = (lambda: 0.0, lambda: 10 ** -draw.uniform(1, 3), lambda: draw.uniform(0.1, 1.0))
    return {example.id: draw.choice(kinds)() for example in asked}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Probed]]:
    count = itertools.count()

    def run(writer: Any, asked: Sequence[Example], name: str = "", **told: Any) -> list[Probed]:
        told.setdefault("stopping", Stopping(64))
        path = tmp_path / (name or f"journal-{next(count)}.jsonl")
        head = {"model": writer.identity, "seed": told.get("seed", 0)}
        with Journal(path, head) as journal:
            return probe(asked, writer, told.pop("grader", grade), journal, **told)

    return run


Run = Callable[..., list[Probed]]


def test_stopping_at_the_first_correct_answer_gives_the_labels_of_all_samples(run: Run) -> None:
    asked = questions(300)
    truth = rates(asked)
    full, adaptive = World(truth), World(truth)
    all_samples = run(full, asked, stopping=Stopping(64, first_correct=False))
    found = run(adaptive, asked, stopping=Stopping(64))
    assert [f.ook for f in found] == [f.ook for f in all_samples]
    assert 60 < sum(bool(f.ook) for f in found) < 240
    assert {f.ook for f in found if not truth[f.example.id]} == {True}
    for short, long in zip(found, all_samples, strict=True):
        assert short.samples == long.samples[: len(short.samples)]
    assert len(full.asked) == len({*full.asked}) == 300 * 64
    told = summary(found, Stopping(64))
    assert told["samples"] == len(adaptive.asked) == len({*adaptive.asked})
    assert told["saved"] == pytest.approx(1 - len(adaptive.asked) / (300 * 64))
    assert 0.3 < told["saved"] < 0.7
    assert told["out_of_knowledge"] + told["known"] == 300
    assert summary(all_samples, Stopping(64))["saved"] == 0


def test_what_could_not_be_graded_is_not_wrong(run: Run) -> None:
    asked = questions(4)
    world = World({"q0": 0.0, "q1": 0.5, "q2": 0.0, "q3": 0.0})
    plain = world.sample

    def sample(example: Example, number: int, seed: int) -> Written:
        if example.id in ("q0", "q1") and number % 2:
            return Completion(ODD)
        if example.id == "q2" and number % 20 == 0:
            return Unscored("timeout")
        return plain(example, number, seed)

    world.sample = sample
    found = run(world, asked, stopping=Stopping(64))
    assert [f.ook for f in found] == [None, False, True, True]
    assert [f.cause for f in found] == ["judge_unreadable", None, None, None]
    assert (found[0].graded, found[0].pass_rate) == (32, 0.0)
    assert [s.text for s in found[2].samples if s.cause] == [None] * 4
    told = summary(found, Stopping(64))
    assert (told["undecided"], told["out_of_knowledge"], told["known"]) == ({"judge_unreadable": 1}, 2, 1)
    assert told["ungraded"] == {
        "judge_unreadable": 32 + sum(s.cause is not None for s in found[1].samples),
        "timeout": 4,
    }
    assert told["ook_share"]["value"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("cause", "part"), [("timeout", 512), ("breaker_open", 1)])
def test_a_judge_that_is_gone_stops_the_probe_and_costs_no_label(
    run: Run, monkeypatch: pytest.MonkeyPatch, cause: str, part: int
) -> None:
    monkeypatch.setattr("factrl.evals.probe.AT_ONCE", part)
    asked = questions(40)
    truth = rates(asked)
    calls, world = itertools.count(), World(truth)
    failing = refusing(lambda _: next(calls) >= 40, cause)  # within the first round
    with pytest.raises(TooManyMasked, match=rf"\d+ {cause}\)"):
        run(world, asked, "j.jsonl", grader=failing)
    found = run(world, asked, "j.jsonl")
    assert found == run(World(truth), asked)
    assert all(sample.cause is None for f in found for sample in f.samples)


def test_questions_that_always_fail_do_not_keep_a_probe_from_its_end(run: Run) -> None:
    asked, cause = questions(80), "http_400"
    picky = refusing(lambda question: int(question.split()[1].rstrip("?")) % 3 == 0, cause)
    world = World({e.id: 1.0 for e in asked})
    for _ in range(2):  # also when only these are asked again
        found = run(world, asked, "j.jsonl", grader=picky, stopping=Stopping(16))
        assert [f.cause for f in found].count(cause) == 27
    assert world.asked[-27 * 8] == ("q0", 8)


def test_what_has_no_label_is_asked_again_also_after_a_kill(run: Run) -> None:
    asked, stopping = questions(6), Stopping(16)
    truth = dict.fromkeys((e.id for e in asked), 0.0)
    picky = refusing(("Question 2?", "Question 4?").__contains__, "judge_unreadable")

    class Killed(World):
        def write(self, *args: Any, **told: Any) -> Any:
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().write(*args, **told)

    first = run(World(truth), asked, "j.jsonl", grader=picky, stopping=stopping)
    assert [f.ook for f in first] == [True, True, None, True, None, True]
    killed, last, none = Killed(truth), World(truth), World(truth)
    with pytest.raises(KeyboardInterrupt):
        run(killed, asked, "j.jsonl", stopping=stopping)
    found = run(last, asked, "j.jsonl", stopping=stopping)
    assert [f.ook for f in found] == [True] * 6
    assert {*killed.asked} == {(id_, number) for id_ in ("q2", "q4") for number in range(8)}
    assert {*last.asked} == {(id_, number) for id_ in ("q2", "q4") for number in range(8, 16)}
    assert run(none, asked, "j.jsonl", stopping=stopping) == found
    assert none.asked == []
    last.identity = "another"
    with pytest.raises(ConfigError, match=r'its model is "world", not "another"'):
        run(last, asked, "j.jsonl", stopping=stopping)
    with pytest.raises(ConfigError, match=r"its seed is 0, not 1"):
        run(none, asked, "j.jsonl", stopping=stopping, seed=1)


def test_more_samples_and_more_questions_add_to_what_is_there(run: Run) -> None:
    asked = questions(20)
    truth = rates(asked)
    run(World(truth), asked[:12], "j.jsonl", stopping=Stopping(24))
    more = World(truth)
    found = run(more, asked, "j.jsonl", stopping=Stopping(64, first_correct=False))
    assert found == run(World(truth), asked, stopping=Stopping(64, first_correct=False))
    assert len(more.asked) == len({*more.asked}) < 20 * 64
    fewer = World(truth)
    assert run(fewer, asked, "j.jsonl", stopping=Stopping(16)) == run(
        World(truth), asked, stopping=Stopping(16)
    )
    assert fewer.asked == []


def test_the_majority_is_that_of_every_subset_and_of_those_that_were_graded() -> None:
    def answered(*told: tuple[str, Label | None]) -> Probed:
        samples = [ProbeSample(text, label, text) for text, label in told]
        return Probed(Example("?"), samples, Stopping(len(samples), first_correct=False), 1.0)

    lima: tuple[str, Label] = ("Lima", "correct")
    cusco: tuple[str, Label] = ("Cusco", "incorrect")
    votes = majority_curve([answered(lima, lima, cusco), answered((IDK, "abstained"), cusco, ("", None))])
    names = ("k", "accuracy", "abstention", "hallucination")
    shares = [tuple(one[name] for name in names) for one in votes]
    # Of two of the first, Lima leads in one draw of three and shares two; in the second, both always share.
    assert shares == [
        (k, pytest.approx(right / 2), 0.25, pytest.approx(0.75 - right / 2))
        for k, right in ((1, 2 / 3), (2, 2 / 3), (3, 1))
    ]
    with pytest.raises(ValueError, match="full probe"):
        majority_curve([answered(lima, cusco), answered(lima)])


def test_the_dataset_keeps_its_columns_and_is_read_back_with_its_labels(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "new" / "out.jsonl"
    rows: list[dict[str, Any]] = [
        {"query": f"Question {i}?", "answer": RIGHT, "alt_ans": ["r"], "domain": "x", "ook": 1}
        for i in range(3)
    ]
    write(source, *rows)
    asked = load_examples(source)
    world = World({e.id: rate for e, rate in zip(asked, (1.0, 0.0, 0.0), strict=True)})
    plain = world.sample

    def sample(example: Example, number: int, seed: int) -> Written:
        return Unscored("timeout") if example is asked[2] else plain(example, number, seed)

    world.sample = sample
    found = run(world, asked, stopping=Stopping(4))
    write_probed(target, rows, found)
    again = load_examples(target)
    assert [example.ook for example in again] == [False, True, None]
    assert [(e.id, e.question, e.answers) for e in again] == [(e.id, e.question, e.answers) for e in asked]
    assert again[0].meta["domain"] == "x"
    assert [example.meta["pass_rate"] for example in again] == [1.0, 0.0, None]
    assert again[1].meta["samples"][0]["label"] in ("incorrect", "abstained")
    assert {*again[1].meta["samples"][0]} == {"text", "label", "answer", "cause", "truncated", "tokens"}
    assert not [*tmp_path.glob("new/*.tmp")]
    load_reward("truthrl:knowledge-ternary").check_examples(again[:2])


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """Knows the capital of Peru about half the time, of Chile never; says when it does not know Norway's."""

    def play(handler: Any) -> None:
        body = handler.server.requests[-1].body  # one request at a time
        asked, seed = body["messages"][-1]["content"], body.get("seed", 0)
        text = ("Lima" if seed % 2 else "Cusco") if "Peru" in asked else "Bern" if "Chile" in asked else IDK
        handler.send(200, json.dumps(completion(text)).encode())

    server = FaultServer(play)
    yield server
    server.close()


@pytest.fixture
def factrl(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    monkeypatch.chdir(tmp_path)
    lands = {"Peru": "Lima", "Chile": "Santiago", "Norway": "Oslo"}
    rows = [{"id": k, "question": f"Capital of {k}?", "answers": [v]} for k, v in lands.items()]
    write("questions.jsonl", *rows)

    def factrl(*words: str) -> tuple[str, str]:
        told = ["--model", f"{server.url}#m", "--output", "out.jsonl", "judge.max_concurrency=1"]
        assert main(["probe", "questions.jsonl", *told, *words]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return factrl


Command = Callable[..., tuple[str, str]]


def test_the_verb_writes_questions_numbers_and_where_they_are_from(
    factrl: Command, server: FaultServer
) -> None:
    out, err = factrl("--samples", "16", "train.max_completion_length=8")
    assert "out of knowledge" in out
    assert "66.7% [" in out
    assert "No --judge" in err
    assert [example.ook for example in load_examples("out.jsonl")] == [False, True, True]
    about = json.loads(Path("out.about.json").read_text())
    assert (about["known"], about["out_of_knowledge"], about["undecided"]) == (1, 2, {})
    assert about["about"]["temperature"] == 1.0
    assert about["about"]["prompt"] == "{question}"
    assert about["about"]["max_completion_length"] == 8
    assert "#m " in about["about"]["model"]
    assert about["samples"] < about["samples_of_a_full_probe"] == 48
    assert about["majority"] == []
    before, written = len(server.requests), Path("out.jsonl").read_bytes()
    _, err = factrl("--samples", "16", "train.max_completion_length=8")
    assert "rows of an earlier probe are not asked again" in err
    assert len(server.requests) == before + 1, "whether it is there is asked"
    assert Path("out.jsonl").read_bytes() == written


def test_a_full_probe_has_its_majority(factrl: Command) -> None:
    assert "majority of 8" in factrl("--samples", "8", "--full")[0]
    told = json.loads(factrl("--samples", "8", "--full", "--json")[0])
    assert [vote["k"] for vote in told["majority"]] == [1, 2, 4, 8]
    assert all(vote["abstention"] == pytest.approx(1 / 3) for vote in told["majority"])
    assert told["saved"] == 0


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("--output=out.json", "--output out.json must end in .jsonl"),
        ("sampling.temperature=0.0", "sampling.num_samples = 256 with sampling.temperature = 0 is the same"),
        ("data.columns.ook=known", "data.columns.ook = 'known' would be read in place"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text('{"question": "q", "answers": ["a"]}\n')
    assert main(["probe", "q.jsonl", "--model", "m", "--output", "out.jsonl", word]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("out.jsonl").exists()


def test_the_extraction_is_that_of_the_recipe(factrl: Command, server: FaultServer) -> None:
    Path("recipe.toml").write_text('paper = "truthrl"\n[sampling]\nnum_samples = 2\n')
    told = json.loads(factrl("--config", "recipe.toml", "--json")[0])
    assert told["about"]["extract"] == "boxed"
    assert "\\boxed" in server.requests[-1].body["messages"][-1]["content"]
    assert told["out_of_knowledge"] == 3, "no answer is in a box"


# --- kill -9 ---------------------------------------------------------------------------------------

SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_probe import World, grade, questions, rates
from factrl.evals import probe as module
from factrl.runs.disk import Journal

module.AT_ONCE = 16
asked = questions(80)

class Slow(World):
    def write(self, examples, numbers, **told):
        written = super().write(examples, numbers, **told)
        with open(sys.argv[2], "a") as calls:
            calls.write("".join(f"{{e.id}} {{n}}\\n" for e in examples for n in numbers))
        time.sleep(0.02)
        return written

world = Slow(rates(asked), odd=0.02)
with Journal(sys.argv[1], {{"model": world.identity}}) as journal:
    found = module.probe(asked, world, grade, journal, stopping=module.Stopping(32))
module.write_probed(Path(sys.argv[3]), [{{}} for _ in asked], found)
"""


@pytest.mark.fault("F20")
def test_killed_in_the_middle_it_repeats_one_part_at_most_and_finds_the_same(tmp_path: Path) -> None:
    def start(name: str) -> subprocess.Popen[bytes]:
        paths = [str(tmp_path / f"{name}.{end}") for end in ("journal", "calls", "jsonl")]
        command = [sys.executable, "-c", SLOW.format(tests=str(Path(__file__).parent)), *paths]
        with (tmp_path / f"{name}.err").open("wb") as said:
            return subprocess.Popen(command, stderr=said)

    def calls(name: str) -> list[str]:
        path = tmp_path / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    whole, process = start("whole"), start("torn")
    while process.poll() is None and len(calls("torn")) < 100:
        time.sleep(0.001)
    process.kill()
    killed = process.wait() == -signal.SIGKILL
    for name, process in {"whole": whole, "torn": start("torn")}.items():
        assert process.wait() == 0, (tmp_path / f"{name}.err").read_text()
    assert killed
    assert (tmp_path / "torn.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    once, again = calls("whole"), calls("torn")
    assert {*once} == {*again}
    assert len(once) == len({*once})
    assert len(again) - len(once) <= 16, "a part of at most 16 samples"
