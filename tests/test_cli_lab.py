"""`factrl lab`: which arms in which world, what is said of them, and no training for a mistake."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from factrl.cli import lab as verb
from factrl.cli import main
from factrl.lab import ABSTENTION, Column, make_world, parted
from factrl.lab.rewards import judge_calls, rewards_table
from factrl.lab.tables import (
    BASE,
    METHODS,
    Curve,
    Outcome,
    Row,
    Table,
    document,
    find_table,
    headline,
    results_table,
    sign_cell,
    signs_table,
    table_names,
    table_of,
    value_cell,
)
from factrl.papers import load_reward, paper_names

OWN = """
from factrl import reward

@reward
def mine(example, completion, *, grade):
    return {"right": float(grade(example.question, completion, example.answers).label == "correct")}

@reward
def greedy(example, completion, *, moon):
    return {"moon": 1.0}
"""


def outcome(table: Table, ends: Mapping[str, Sequence[Mapping[str, float]]]) -> Outcome:
    """An outcome in which each arm ends where `ends` says, by seed; other metrics stay at 0.5."""
    start = {column.metric: 0.5 for column in table.columns}

    def runs(row: Row, seeds: Sequence[Mapping[str, float]]) -> Row:
        curves: list[Curve] = [[(0, start), (48, {**start, **end})] for end in seeds]
        return replace(row, curves=curves)

    rows = {row.arm: row for row in table.rows}
    arms = tuple(runs(rows.get(arm, Row(arm)), seeds) for arm, seeds in ends.items())
    count = len(next(iter(ends.values()), [{}]))
    return Outcome(table, tuple(range(count)), 48, runs(Row(BASE), [{}] * count), arms, 75.0)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)


def test_a_table_names_arms_and_metrics_that_its_world_has() -> None:
    for name in table_names():
        table = find_table(name)
        world = make_world(table.world, 0)
        said = ("", ABSTENTION, "Oakford 70")  # what no text has is left out
        measured = {metric for text in said for metric in world.measure([(e, text) for e in world.test])}
        assert {column.metric for column in table.columns} <= measured, name
        judged = {column.metric for column in table.judged}
        assert bool(judged) == any(row.paper for row in table.rows), name
        for row in table.rows:
            assert {*row.paper} <= judged, row.arm
            if row.arm not in METHODS:
                spec, way = parted(row.arm)
                assert {*load_reward(spec).missing} <= {*world.resources()}, row.arm
                assert way in ("", *world.ways)
        arms = [row.arm for row in table.rows]
        assert table_of(arms, name).rows == table.rows
        assert len({*arms}) == len(arms)


def test_the_page_on_the_lab_has_the_papers_signs_as_they_are() -> None:
    """docs/lab.md, a row for each arm of the two tables."""
    page = (Path(__file__).parents[1] / "docs" / "lab.md").read_text("utf-8")
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    shown = {row[0]: row[1:] for row in cells if len(row) == 5}
    for name in ("truthrl", "knowrl"):
        columns = find_table("truthrl").columns[:4]
        for row in find_table(name).rows:
            assert shown[row.arm] == [row.reported(column) or "" for column in columns]
    for name in table_names():
        assert f"`{name}`" in page
    # 100 - 44.4 - 18.8, against 100 - 37.7 - 54.1 of prompting
    row = next(row for row in find_table("truthrl").rows if row.arm == "truthrl:ternary")
    assert row.paper["abstention"] == pytest.approx(36.8 - 8.2)


def test_the_arms_choose_the_world_and_bring_their_papers_signs() -> None:
    for specs, name, world in (
        (["truthrl", "sft", "knowrl:no-refusal"], None, "people"),
        (["fspo"], None, "steps"),
        (["klcf:truth-only", "factreason"], None, "longform"),
        (["own.py:mine"], None, "people"),
        (["own.py:mine"], "fspo", "steps"),
    ):
        assert table_of(specs, name).world == world
    named = {row.arm: row.paper for row in find_table("default").rows}
    rows = table_of(["truthrl", "knowrl", "own.py:mine", "r-tuning"]).rows
    papers = [named["truthrl:ternary"], named["knowrl:paper"], {}, named["r-tuning"]]
    assert [row.paper for row in rows] == papers


def test_a_paper_on_the_shelf_is_a_row_among_the_rewards_or_a_reason_why_not() -> None:
    table = rewards_table(["own.py:mine"])
    rows = {row.arm.partition(":")[0]: row.arm for row in table.rows}
    left_out = {note.split()[1].rstrip(":") for note in table.notes if note.startswith("no ")}
    assert {*rows, *left_out} == {*paper_names(), "own.py"}
    assert not {*rows} & left_out
    assert (rows["truthrl"], rows["knowrl"]) == ("truthrl:ternary", "knowrl:paper")
    assert "klcf" in left_out
    world = make_world(table.world, 0)
    one = [(world.train[0], f"{text} 50") for text in (world.train[0].answers[0], "I don't know")]
    assert judge_calls(world, rows["truthrl"], one) == 1.0
    assert judge_calls(world, rows["knowrl"], one) == 1.5, "a grade, and a claim unless it declines"


def test_what_is_told_of_a_reward_stands_behind_its_metrics() -> None:
    found = outcome(find_table("truthrl"), {"truthrl:ternary": [{}]})
    arm = replace(found.arms[0], facts={"hacks held": "45 of 53"})
    grid = results_table(replace(found, arms=(arm,)))
    assert [*grid.columns[-1].cells] == ["–", "45 of 53"]
    assert document(replace(found, arms=(arm,)))["arms"]["truthrl:ternary"]["facts"] == arm.facts


MISTAKES = [
    ("--table truthr", "unknown table 'truthr'; did you mean 'truthrl'? (there are: default, "),
    ("r-tunning", "unknown paper 'r-tunning'"),
    ("sft truthrl sft", "sft truthrl sft: name each arm once, and not 'base', which is in every table"),
    ("fspo sft", "sft learns from short answers that are right or wrong, so it is an arm in the world 'peop"),
    ("own.py:greedy", "the world 'people' has no 'moon', which own.py:greedy asks for"),
    ("klcf", "klcf needs reward.alpha: the weights of the paper's main configuration are lost"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_line_before_torch_is_loaded(
    words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*words: Any) -> Any:
        raise AssertionError(f"{words} was loaded")

    monkeypatch.setattr(verb, "needs_extra", never)
    assert main(["lab", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"factrl: {said}")) == ("", True), err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("changes", "direction"),
    [
        ([0.03], "up"),
        ([-0.03, -0.02], "down"),
        ([0.01], "none"),  # one point
        ([0.10, 0.08, -0.001], "none"),  # not in every seed
    ],
)
def test_a_direction_needs_size_and_the_same_sign_in_every_seed(changes: list[float], direction: str) -> None:
    found = outcome(find_table("truthrl"), {"sft": [{"accuracy": 0.5 + change} for change in changes]})
    assert found.effect(found.arms[0], Column("accuracy")) == direction


def test_cells() -> None:
    ends = {"truthrl:ternary": (0.7, 0.05), "own.py:mine": (0.4, 0.4)}
    found = outcome(
        find_table("truthrl"),
        {
            arm: [{"abstention": a + shift, "hallucination": h - shift} for shift in (-0.01, 0.0, 0.01)]
            for arm, (a, h) in ends.items()
        },
    )
    ternary, own = found.arms
    accuracy, abstention, hallucination, _ = found.table.judged
    assert value_cell(ternary, abstention) == "70.0 ± 1.0"
    missing = [[(step, {**values, "abstention": math.nan}) for step, values in ternary.curves[0]]]
    half = replace(ternary, curves=[*missing, ternary.curves[1]])
    assert value_cell(half, abstention) == "70.0 (1 of 2 seeds)"
    assert value_cell(replace(ternary, curves=missing * 2), abstention) == "–"
    assert sign_cell(found, ternary, hallucination) == "down = down"
    assert sign_cell(found, ternary, accuracy) == "up ≠ none"
    assert sign_cell(found, own, hallucination) == "–   down"
    undefined = replace(found, arms=(replace(ternary, curves=missing * 2),))
    assert sign_cell(undefined, *undefined.arms, abstention).endswith("   undefined")
    assert [*signs_table(undefined).columns[-1].cells] == ["1 of 3"]  # of those that there are
    assert document(undefined)["arms"]["truthrl:ternary"]["effects"]["abstention"]["here"] is None


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be trained; nothing is."""
    calls: list[Any] = []

    def run_table(table: Table, seeds: Sequence[int], steps: int | None) -> Outcome:
        calls.append((table, [*seeds], steps))
        return outcome(table, {row.arm: [{"hallucination": 0.1} for _ in seeds] for row in table.rows})

    parts = argparse.Namespace(run_table=run_table, for_command_line=lambda: None)
    monkeypatch.setattr(verb, "needs_extra", lambda name, extra: parts)
    return calls


def test_lab_prints_both_tables_and_where_the_files_are(
    ran: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--table", "knowrl", "--seeds", "3", "--steps", "7", "--output", "out"]) == 0
    (table, seeds, steps), out = ran[0], capsys.readouterr().out
    assert (table.name, seeds, steps) == ("knowrl", [0, 1, 2], 7)
    assert out.splitlines()[0] == headline(outcome(table, {}))[0]
    for arm in (BASE, *(row.arm for row in table.rows)):  # no number is cut off in a pipe
        line = next(line for line in out.splitlines() if line.startswith(f"{arm} "))
        assert len(re.findall(r"\d\.\d ± \d\.\d(?= |$)", line)) == len(table.columns), line
    assert "1:15 minutes in all" in out
    path = Path(re.findall(r"^every number and curve   (.*)$", out, re.M)[0])
    assert (path.name, path.parent.parent) == ("lab.json", Path("out"))
    assert max(map(len, out.splitlines()[3:12])) <= 120


def test_lab_prints_json(ran: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "truthrl:ternary", "own.py:mine", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert [*numbers["arms"]] == ["base", "truthrl:ternary", "own.py:mine"]
    assert numbers["arms"]["truthrl:ternary"]["effects"]["hallucination"] == {"paper": "down", "here": "down"}
    assert numbers["arms"]["base"]["effects"] == {}
    folder = Path(numbers.pop("folder"))
    assert json.loads((folder / "lab.json").read_text("utf-8")) == numbers
    assert ran[0][1:] == ([0, 1], None)
