"""The numbered programs in `examples/` run as they stand, and print what they promise."""

from __future__ import annotations

import importlib.util
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.types import Example, Passage, TrainingState
from factrl.verifier import open_verifier
from factrl.verifier.search import Given, Index

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTS = {
    "01_verify": ("Marie Curie was born in Warsaw", "of 2 claims are supported"),
    "02_evaluate": (
        "hallucination",
        "-40.0 [-70.0, -10.0]",
        "wrong: What is the capital of Australia? Sydney",
    ),
    "03_reward": (
        "right, true reasoning     +4.00  scored",
        "wrong                     +1.00  scored",
        "no answer block           -1.00  floored",
        "anything else is masked, its reward is None: connection",
    ),
    "04_trl": ("step  reward  floored  masked  abstains", "   1", "   2"),
    "05_serve": (
        r"\boxed{Warsaw}          +1  scored",
        r"\boxed{Paris}           -1  scored",
        "floored no_box",
    ),
    "06_own_reward": (
        "answering pays above a confidence of 60%",
        "D09                   true facts next to the topic",
    ),
}
# The weights and the packages without which an example is skipped.
NEEDS = {
    "01_verify": ("Qwen2.5-Coder-1.5B-Instruct", ("xllamacpp",)),
    "04_trl": ("SmolLM2-135M-Instruct", ("torch", "trl", "gguf")),
    "05_serve": ("", ("fastapi", "uvicorn")),
}
# TRL's trainer with factrl's rewards trains in every run on a tiny model (`test_the_example_runs`).
MARKS = {
    "01_verify": [pytest.mark.model],
    "04_trl": [pytest.mark.model, pytest.mark.torch, pytest.mark.slow],
}


def asked(name: str, question: Example, said: str, **values: object) -> tuple[object, ...]:
    """The state of a completion and what it earns by a reward that is loaded by its path."""
    result = load_reward(str(EXAMPLES / "rewards" / f"{name}.py:{name}")).with_(**values)(question, said)
    return (result.state, *(round(value, 3) for value in (result.terms or {}).values()))


CURIE = Example(
    "In which city was Marie Curie born?",
    ("Warsaw",),
    evidence=(Passage("Marie Curie was born in Warsaw in 1867."),),
)


@pytest.mark.parametrize(
    ("others", "said", "wanted"),
    [
        (["Paris", "Paris", "Paris"], "I don't know", ("scored", 0.0, 0.5)),
        (["Warsaw", "Paris", "Paris"], "I don't know", ("scored", 0.0, 0.0)),  # one of the group is right
        (["Paris", "Rome", "Oslo"], "I don't know", ("scored", 0.0, 0.0)),  # it still explores
        (["Paris"] * 3, "Warsaw", ("scored", 1.0, 0.0)),
    ],
)
def test_bapo_pays_declining_where_no_completion_is_right(
    others: list[str], said: str, wanted: tuple[object, ...]
) -> None:
    form = "<think>Hm.</think><answer>{}</answer>".format
    group = [form(text) for text in (said, *others)]
    assert asked("bapo", CURIE, form(said), group=lambda _: group, stage="plateau") == wanted
    assert asked("bapo", CURIE, said, group=lambda _: group, stage="plateau") == ("floored", -1.0, 0.0)
    early = TrainingState(tuple(group), stalled=0)
    assert asked("bapo", CURIE, form(said), group=lambda _: group, course=lambda _: early)[2] == 0


def test_rar_pays_what_no_evidence_contradicts() -> None:
    verify = open_verifier(judge="weak")
    said = {
        "Marie Curie was born in 1867.": 1.0,
        "Marie Curie was born in 1868.": 0.0,
        "I don't know.": 1.0,
    }
    for text, value in said.items():
        assert asked("rar", CURIE, text, verify=verify) == ("scored", value)
    assert asked("rar", CURIE, "<think>Hm", verify=verify) == ("floored", 0.0)
    verify.search = Given([])
    assert asked("rar", replace(CURIE, evidence=()), "Marie Curie was born in Paris.", verify=verify) == (
        "masked",
    )


def test_corver_counts_where_two_names_stand_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Marie Curie was born in Warsaw. Pierre Curie worked in Paris.")
    Index.build(tmp_path / "kb", [tmp_path / "a.txt"])
    told = {"grade": Grader(), "index": str(tmp_path / "kb")}
    said = "<think>Marie Curie came from {}.</think><answer>{}</answer>".format
    rare, unseen = -0.1 * 29 / 67, -0.2 * 27 / 65
    assert asked("corver", CURIE, said("Warsaw", "Warsaw"), **told) == ("scored", 4, 1, 0, round(rare, 3))
    assert asked("corver", CURIE, said("Oslo", "Warsaw"), **told) == ("scored", 4, 1, 0, round(unseen, 3))
    assert asked("corver", CURIE, said("Warsaw", "I don't know"), **told)[1] == -2
    assert asked("corver", CURIE, "Warsaw", **told) == ("floored", -2, -1, 0, 0)


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("[0-9]*.py"))


def test_each_example_says_what_it_prints() -> None:
    assert names() == sorted(PRINTS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in names()])
def test_an_example_prints_what_a_person_wants_to_see(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from factrl.llm import models

    model, packages = NEEDS.get(name, ("", ()))
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if model and models.cached(model) is None:
        pytest.skip(f"{model} is not downloaded")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for line in PRINTS[name]:
        assert line in printed, printed
    if name == "01_verify":
        assert "no model judged" not in printed
