"""The tables of the lab: which arms, in which world, which way they go, and which way the papers say they do.

A paper's `STUDY` says its arms and its published changes, each against the model that the paper starts from;
a change smaller than the column's `least` is called none, as ours are.  Where a paper shows a result only as
a curve, there is no number and so no direction.

Each seed has a world and a pretrained model of its own.  An effect is the change against the pretrained
model of the same seed: `up` or `down` when its mean is at least as large as the column asks and it has the
same sign in every seed, otherwise `none`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from factrl import __version__
from factrl.errors import ConfigError, nearest
from factrl.papers import Study, declared, form_of, load_paper, paper_names, rewards_of, split_spec
from factrl.runs.progress import clock

from . import Column, Direction, direction_of, make_world, parted, supplied, worlds

if TYPE_CHECKING:
    from rich.table import Table as Grid

DEFAULT = "default"
BASE = "base"  # the pretrained model, which every arm starts from
_UNDEFINED = "undefined"
METHODS = ("sft", "rft", "r-tuning", "dpo")  # offline, without a reward

Curve = Sequence[tuple[int, Mapping[str, float]]]
"""Steps, and what `World.measure` says of the held-out questions after so many; the first are 0."""


@dataclass(frozen=True, slots=True)
class Row:
    """An arm, what its paper reports, and what became of it.

    Attributes:
        arm: a reward such as `truthrl:ternary` or `my.py:mine`, or one of `METHODS`.
        paper: metric -> the paper's change against the model that it starts from, in the column's units.
        curves: one for each seed, once it has run.
        facts: what else is told of it.
    """

    arm: str
    paper: Mapping[str, float] = field(default_factory=dict)
    curves: Sequence[Curve] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def reported(self, column: Column) -> Direction | None:
        """Which way the paper reports that the metric goes; None where it has no number."""
        change = self.paper.get(column.metric)
        return None if change is None else direction_of(change, column.least)

    def values(self, column: Column) -> list[float]:
        """The metric after training, by seed, in the column's units; NaN where it is undefined."""
        return [column.scale * curve[-1][1].get(column.metric, math.nan) for curve in self.curves]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What `factrl lab --table NAME` runs and shows; `judged` columns are held against the papers."""

    name: str
    world: str
    about: str
    source: str
    columns: tuple[Column, ...]
    judged: tuple[Column, ...]
    rows: tuple[Row, ...]
    steps: int
    notes: tuple[str, ...]
    seeds: int
    facts: bool = False  # arms say more than their metrics (`factrl.lab.rewards`)


# Which table


def table_names() -> tuple[str, ...]:
    """What `--table` takes: the first page, the papers that have a study, and the worlds."""
    return (DEFAULT, *_studies(), *worlds())


def find_table(name: str) -> Table:
    """The table of a paper, of all papers in a world, or of the arms that tell the story on one page.

    Raises:
        ConfigError: there is none of that name.
    """
    studies = _studies()
    if name in studies:
        return _table(name, studies[name].world, {name: studies[name]})
    if name in worlds():
        return _table(
            name, name, {paper: s[name] for paper in paper_names() if name in (s := _by_world(paper))}
        )
    if name == DEFAULT:
        table = _table(name, "people", studies, first=True)
        # The methods first, as the papers have their baselines.
        return replace(table, seeds=2, rows=tuple(sorted(table.rows, key=lambda row: row.arm not in METHODS)))
    names = table_names()
    raise ConfigError(f"unknown table {name!r}{nearest(name, names)} (there are: {', '.join(names)})")


def _studies() -> Mapping[str, Study]:
    found = {name: declared(name, "STUDY") for name in paper_names()}
    return {name: study for name, study in found.items() if study is not None}


def _by_world(spec: str) -> Mapping[str, Study]:
    """The studies of a reward's file, by world."""
    every = (declared(spec, "STUDY"), *declared(spec, "STUDIES", ()))
    return {study.world: study for study in every if study is not None}


def _table(name: str, world: str, studies: Mapping[str, Study], *, first: bool = False) -> Table:
    """The arms of the studies in a world, or those of the first page, with what the studies say."""
    here = {paper: s for paper, s in studies.items() if s.world == world and (s.first or not first)}
    rows = tuple(
        Row(arm if arm in METHODS else f"{paper}:{arm}", changes)
        for paper, study in here.items()
        for arm, changes in study.arms.items()
        if not first or arm in study.first
    )
    alone, known = next(iter(here.values())) if len(here) == 1 else None, worlds()[world]
    return Table(
        name=name,
        world=world,
        about=(alone.about if alone else "") or known.about,
        source=". ".join(study.source for study in here.values() if study.source),
        columns=known.columns,
        judged=tuple(c for c in known.columns if any(c.metric in row.paper for row in rows)),
        rows=rows,
        steps=known.steps,
        notes=tuple(note for study in here.values() for note in study.notes),
        seeds=known.seeds,
    )


def table_of(specs: Sequence[str], name: str | None = None) -> Table:
    """A table with these arms, in the world and with the columns of a named one.

    What does not fit is refused here, before torch is loaded.

    Args:
        specs: rewards and methods.
        name: of the table; by default that of the world that the arms' files name, else `default`.

    Raises:
        ConfigError: an arm does not exist or is given twice, or does not fit into the world.
    """
    if len({*specs, BASE}) <= len(specs):
        raise ConfigError(f"{' '.join(specs)}: name each arm once, and not {BASE!r}, which is in every table")
    own = Study("people", "", {})
    studies = {spec: declared(parted(spec)[0], "STUDY") or own for spec in specs if spec not in METHODS}
    for spec, study in studies.items():
        if study.world not in worlds():
            raise ConfigError(f"{spec}: the world {study.world!r} of its STUDY is not {', '.join(worlds())}")
    homes = {DEFAULT if s.world == "people" else s.world: spec for spec, s in studies.items()}
    if name is None and len(homes) > 1:
        raise ConfigError(
            f"{' and '.join(homes.values())} are shown in different worlds; choose one with "
            f"--table {' or --table '.join(homes)}"
        )
    table = find_table(name or next(iter(homes), DEFAULT))
    _check_fit(specs, table)
    rows = tuple(_row(spec, table.world, studies.get(spec)) for spec in specs)
    reported = {metric for row in rows for metric in row.paper}
    judged = tuple(c for c in table.columns if c in table.judged or c.metric in reported)
    return replace(table, name=f"own choice of arms ({table.name})", rows=rows, judged=judged)


def _row(spec: str, world: str, study: Study | None) -> Row:
    """An arm with what is published of it, which says nothing in another world than the paper's own."""
    if study is None:
        return next((row for row in find_table(world).rows if row.arm == spec), Row(spec))
    (reward, way), known = parted(spec), _by_world(parted(spec)[0])
    name, variant = split_spec(reward)
    arm = (variant or next(iter(rewards_of(load_paper(name))))) + (f"@{way}" if way else "")
    return Row(spec, known[world].arms.get(arm, {}) if world in known else {})


def _check_fit(specs: Sequence[str], table: Table) -> None:
    """Refuse an arm that asks for what the world does not have, or a reward that lacks a knob."""
    world = make_world(table.world, 0)
    for spec in specs:
        if spec in METHODS:
            if table.world == "people":
                continue
            raise ConfigError(
                f"{spec} learns from short answers that are right or wrong, so it is an arm in the world "
                f"'people' only, and the table {table.name!r} is in {table.world!r}; leave it out"
            )
        reward = supplied(world, spec)
        if form_of(parted(spec)[0], reward) == "confidence" and table.world != "confidence":
            raise ConfigError(
                f"{spec} reads a confidence, which nobody states in the world {table.world!r}; take "
                "--table confidence"
            )
        probed = replace(world.train[0], ook=True)  # an arm that needs to know asks the model itself
        problem = reward.requires(probed, reward.knobs) if reward.requires else None
        if problem:
            raise ConfigError(f"{spec} cannot be an arm in the world {table.world!r}: {problem}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a table measured in so many steps of each arm; `seconds` has pretraining in it."""

    table: Table
    seeds: tuple[int, ...]
    steps: int
    base: Row
    arms: tuple[Row, ...]
    seconds: float

    def effect(self, arm: Row, column: Column) -> Direction | None:
        """Which way the arm moved the metric; None where it is undefined before or after, in any seed."""
        changes = [
            column.scale * (c[-1][1].get(column.metric, math.nan) - c[0][1].get(column.metric, math.nan))
            for c in arm.curves
        ]
        if any(map(math.isnan, changes)):
            return None
        same = all(change > 0 for change in changes) or all(change < 0 for change in changes)
        return direction_of(statistics.fmean(changes), column.least) if same else "none"


def headline(outcome: Outcome) -> tuple[str, str]:
    """That this is a model world, first of all, and what was run."""
    table, many = outcome.table, len(outcome.seeds) > 1
    seeds = f"{len(outcome.seeds)} seeds" if many else f"seed {outcome.seeds[0]}"
    return (
        f"This is a model world (“{table.world}”, made-up facts and a two-layer model): it shows which way a "
        "reward pushes and what it costs, never how far a real model goes.",
        f"Table {table.name}: {table.about} {outcome.steps} steps, {seeds}, greedy answers to held-out "
        f"questions, in %, means{' ± standard deviations over seeds' if many else ''}.",
    )


def results_table(outcome: Outcome) -> Grid:
    """One line per arm: every metric after training, and what else is told."""
    facts = [*dict.fromkeys(name for arm in outcome.arms for name in arm.facts)]
    grid = _grid("arm", *(column.name for column in outcome.table.columns), *facts)
    for arm in (outcome.base, *outcome.arms):
        cells = [value_cell(arm, column) for column in outcome.table.columns]
        grid.add_row(arm.arm, *cells, *(arm.facts.get(name, "–") for name in facts))
    return grid


def signs_table(outcome: Outcome) -> Grid:
    """One line per arm: the paper's direction and ours, by metric, and how many agree."""
    from rich.text import Text

    grid = _grid("paper = here", *(column.name for column in outcome.table.judged), "agrees")
    for arm in outcome.arms:
        cells = [sign_cell(outcome, arm, column) for column in outcome.table.judged]
        known = [cell for cell in cells if "=" in cell or "≠" in cell]
        agrees = f"{sum('=' in cell for cell in known)} of {len(known)}" if known else "–"
        styled = [Text(cell, style="bold red" if "≠" in cell else "") for cell in cells]
        grid.add_row(arm.arm, *styled, agrees)
    return grid


def value_cell(arm: Row, column: Column) -> str:
    """`27.3 ± 2.1`, or the mean alone for one seed."""
    every, digits = arm.values(column), 1 if column.scale == 100 else 2
    values = [value for value in every if not math.isnan(value)]  # where nothing was declined, say
    if not values:
        return "–"
    shown = [statistics.fmean(values), *([statistics.stdev(values)] if len(values) > 1 else [])]
    told = " ± ".join(f"{value:.{digits}f}" for value in shown).replace("-", "−")
    return told if len(values) == len(every) else f"{told} ({len(values)} of {len(every)} seeds)"


def sign_cell(outcome: Outcome, arm: Row, column: Column) -> str:
    """The paper's direction and ours, with the sign that says whether they are the same."""
    paper, here = arm.reported(column), outcome.effect(arm, column)
    if paper is None or here is None:
        return f"{paper or '–'}   {here or _UNDEFINED}"
    return f"{paper} {'=' if paper == here else '≠'} {here}"


def remarks(outcome: Outcome) -> list[str]:
    """How to read the signs, what the papers' numbers are of, and what their studies say of the world."""
    return [
        "Effect against base, the paper's and ours: “up = up” agrees, “up ≠ none” does not, “–” where the "
        f"paper has no number; “{_UNDEFINED}” where we have none, such as a calibration without answers.",
        f"The papers' numbers: {outcome.table.source}."
        if outcome.table.source
        else "No paper has a number here.",
        "",
        *outcome.table.notes,
        "",
        f"{clock(outcome.seconds)} minutes in all",
    ]


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything for programs; metrics in the units of the world (shares or counts), by seed and by step."""
    arms = {}
    for arm in (outcome.base, *outcome.arms):
        judged = () if arm is outcome.base else outcome.table.judged
        arms[arm.arm] = {
            "seeds": [dict(curve[-1][1]) for curve in arm.curves],
            "facts": dict(arm.facts),
            "curves": [[{"step": step, **metrics} for step, metrics in curve] for curve in arm.curves],
            "effects": {
                column.metric: {"paper": arm.reported(column), "here": outcome.effect(arm, column)}
                for column in judged
            },
        }
    return {
        "model_world": headline(outcome)[0],
        "table": outcome.table.name,
        "world": outcome.table.world,
        "steps": outcome.steps,
        "seeds": list(outcome.seeds),
        "arms": arms,
        "source": outcome.table.source,
        "seconds": round(outcome.seconds, 1),
        "factrl": __version__,
    }


def _grid(first: str, *others: str) -> Grid:
    from rich.table import Table as Grid

    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(first, no_wrap=True, max_width=30)
    for name in others:
        longest = max(map(len, name.split()))
        grid.add_column(name, justify="right" if first == "arm" else "left", min_width=longest)
    return grid
