"""The tables of the lab: which arms, in which world, and which way the papers say that each one goes.

A paper's `STUDY` says its arms and its published changes, each against the model that the paper starts from;
a change smaller than the column's `least` is called none, as ours are.  Where a paper shows a result only as
a curve, there is no number and so no direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from factrl.errors import ConfigError, nearest
from factrl.papers import Study, declared, load_paper, load_reward, paper_names, rewards_of, split_spec

if TYPE_CHECKING:
    from .world import World

Direction = Literal["up", "down", "none"]
DEFAULT = "default"
BASE = "base"  # the pretrained model, which every arm starts from
METHODS = ("sft", "rft", "r-tuning", "dpo", "iterative-dpo")  # offline, without a reward


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of the world, as a table shows it.

    Attributes:
        metric: its name in `World.measure`.
        judged: whether it is held against the papers.
        title: its name in the table; the metric's own by default.
        scale: what it is multiplied by: 100 makes points of a share.
        least: the smallest change that is called up or down, after scaling.
    """

    metric: str
    judged: bool = False
    title: str = ""
    scale: float = 100.0
    least: float = 2.0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return self.title or self.metric.replace("/", ": ")


@dataclass(frozen=True, slots=True)
class Row:
    """An arm and what its paper reports.

    Attributes:
        arm: a reward such as `truthrl:ternary` or `my.py:mine`, or one of `METHODS`.
        paper: metric -> the paper's change against the model that it starts from, in the column's units.
    """

    arm: str
    paper: Mapping[str, float] = field(default_factory=dict)

    def reported(self, column: Column) -> Direction | None:
        """Which way the paper reports that the metric goes; None where it has no number."""
        change = self.paper.get(column.metric)
        return None if change is None else direction_of(change, column.least)


@dataclass(frozen=True, slots=True)
class Table:
    """What `factrl lab --table NAME` runs and shows.

    Attributes:
        world: `people`, `steps` or `longform`.
        about: what the table asks, in one line.
        source: what the papers' numbers are of.
        picture: metrics of the picture: across and up in its left panel, over the steps in its right one.
        steps: optimizer steps of each arm.
        order: the metric by which the paper's ranking is held against ours; empty for none.
        notes: what a reader must know, among it what this world cannot express.
        seeds: how many, by default.
    """

    name: str
    world: str
    about: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    picture: tuple[str, str, str]
    steps: int = 48
    order: str = ""
    notes: tuple[str, ...] = ()
    seeds: int = 1


def direction_of(change: float, least: float) -> Direction:
    """`up` or `down` for a change of at least `least`."""
    if abs(change) < least:
        return "none"
    return "up" if change > 0 else "down"


def make_world(name: str, seed: int) -> World:
    """A world of the tables' size."""
    return getattr(importlib.import_module(f"factrl.lab.{name}"), name.capitalize())(seed=seed)


# What each world shows

_WORLDS = {
    "people": Table(
        name="people",
        world="people",
        about="does it learn to abstain where it does not know, and only there?",
        source="",
        columns=(
            *(Column(name) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
            *(Column(name) for name in ("known/accuracy", "unknown/abstention")),
            Column("unknown/hallucination", title="unknown: halluc."),
        ),
        rows=(),
        picture=("abstention", "hallucination", "truthfulness"),
        notes=(
            "Abstention starts at a few percent, by design without a hint when, so it has next to no room to "
            "fall: read how near to 0 it comes, not its sign.",
            "Past the steps shown, arms that pay for abstention go on to decline what the model knows: read "
            "the curve, and stop by held-out truthfulness.",
        ),
    ),
    "steps": Table(
        name="steps",
        world="steps",
        about="do the steps become right, or the answer alone?",
        source="",
        columns=(
            Column("accuracy"),
            Column("contradicted", title="steps contradicted"),
            Column("entailed", title="steps entailed"),
            Column("sound", title="all steps right"),
            Column("lucky", title="right answers with a wrong step"),
        ),
        rows=(),
        picture=("contradicted", "entailed", "sound"),
        steps=60,
        notes=(
            "Accuracy has no room to rise: the pretrained model has learnt nearly every answer by heart, "
            "whatever its steps say. That is the case in which an outcome reward cannot tell good steps from "
            "bad ones.",
            "Facts that are asked of the model here are those that it has read, if noisily: what improves is "
            "which of them it writes, not what it knows.",
        ),
    ),
    "longform": Table(
        name="longform",
        world="longform",
        about="does it say more of what is true, or only less, or only what is safe?",
        source="",
        columns=(
            *(Column(name) for name in ("recall", "precision", "verified")),
            Column("detail", title="detail (facts)", scale=1.0, least=0.2),
            *(Column(name) for name in ("preferred", "padding", "vague", "silence")),
        ),
        rows=(),
        picture=("detail", "verified", "recall"),
        steps=60,
        notes=(
            "`verified` is what a verifier supports, statements without content (“has parents”) among "
            "them; `precision` leaves those out. Where the two part, the reward is being gamed.",
            "The judges are exact: a reward can be gamed here only by what it asks for, never by a judge's "
            "mistake. `preferred` stands for a judge of quality that is told to ignore truth.",
        ),
    ),
}


# Which table


def table_names() -> tuple[str, ...]:
    """What `--table` takes: the first page, the papers that have a study, and the worlds."""
    return (DEFAULT, *_studies(), *_WORLDS)


def find_table(name: str) -> Table:
    """The table of a paper, of all papers in a world, or of the arms that tell the story on one page.

    Raises:
        ConfigError: there is none of that name.
    """
    studies = _studies()
    if name == DEFAULT:
        table = _table(name, "people", studies, first=True)
        # The methods first, as the papers have their baselines.
        return replace(table, seeds=2, rows=tuple(sorted(table.rows, key=lambda row: row.arm not in METHODS)))
    if name in _WORLDS:
        return _table(name, name, studies)
    if name in studies:
        return _table(name, studies[name].world, {name: studies[name]})
    names = table_names()
    raise ConfigError(f"unknown table {name!r}{nearest(name, names)} (there are: {', '.join(names)})")


def home_of(spec: str) -> str:
    """The table in whose world an arm is shown; that of the first page where its file does not say."""
    world = _study_of(spec).world
    return DEFAULT if world == "people" else world


def row_of(spec: str, world: str) -> Row:
    """An arm with what is published of it, which says nothing in another world than the paper's own."""
    if spec in METHODS:
        return next((row for row in find_table(world).rows if row.arm == spec), Row(spec))
    study, (name, variant) = _study_of(spec), split_spec(spec)
    arm = variant or next(iter(rewards_of(load_paper(name))))
    return Row(spec, study.arms.get(arm, {}) if study.world == world else {})


def judged(columns: Iterable[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """The columns, those judged for which any row has a number."""
    return tuple(replace(c, judged=c.judged or any(c.metric in row.paper for row in rows)) for c in columns)


def _studies() -> Mapping[str, Study]:
    found = {name: declared(name, "STUDY") for name in paper_names()}
    return {name: study for name, study in found.items() if study is not None}


def _study_of(spec: str) -> Study:
    study = declared(spec, "STUDY") or Study("people", "", {})
    if study.world not in _WORLDS:
        raise ConfigError(f"{spec}: the world {study.world!r} of its STUDY is not {', '.join(_WORLDS)}")
    return study


def _table(name: str, world: str, studies: Mapping[str, Study], *, first: bool = False) -> Table:
    """The arms of the studies in a world, or those of the first page, with what the studies say."""
    here = {paper: s for paper, s in studies.items() if s.world == world and (s.first or not first)}
    rows = tuple(
        Row(arm if arm in METHODS else f"{paper}:{arm}", changes)
        for paper, study in here.items()
        for arm, changes in study.arms.items()
        if not first or arm in study.first
    )
    shown, alone = _WORLDS[world], next(iter(here.values())) if len(here) == 1 else None
    return replace(
        shown,
        name=name,
        rows=rows,
        columns=judged(shown.columns, rows),
        source=". ".join(study.source for study in here.values()),
        notes=(*(note for study in here.values() for note in study.notes), *shown.notes),
        about=(alone.about if alone else "") or shown.about,
        order=alone.order if alone else "",
    )


# Arms of the user's choice, which are refused before torch is loaded where they do not fit


def table_of(specs: Sequence[str], name: str | None = None) -> Table:
    """A table with these arms, in the world and with the columns of a named one.

    Args:
        specs: rewards and methods.
        name: of the table; by default that of the world that the arms' files name, else `default`.

    Raises:
        ConfigError: an arm does not exist or is given twice, or the arms are shown in different worlds.
    """
    for number, spec in enumerate(specs):
        check_arm(spec)
        if spec in specs[:number]:
            raise ConfigError(f"the arm {spec!r} is given twice")
    homes = {home_of(spec): spec for spec in specs if spec not in METHODS}
    if name is None and len(homes) > 1:
        raise ConfigError(
            f"{' and '.join(homes.values())} are shown in different worlds; choose one with "
            f"--table {' or --table '.join(homes)}"
        )
    table = find_table(name or next(iter(homes), DEFAULT))
    rows = tuple(row_of(spec, table.world) for spec in specs)
    for row in rows:
        _check_fit(row.arm, table)
    columns = judged(table.columns, rows)
    return replace(table, name=f"own choice of arms ({table.name})", rows=rows, columns=columns, order="")


def check_arm(spec: str) -> None:
    """Refuse what is no arm, before torch is loaded.

    Raises:
        ConfigError: no such method, paper, variant or file.
    """
    if spec == BASE:
        raise ConfigError(f"{BASE!r} is what every arm starts from and is in every table; leave it out")
    if spec in METHODS:
        return
    name, variant = split_spec(spec)
    if not variant and not name.endswith(".py") and name not in paper_names():
        known = (*METHODS, *paper_names())
        raise ConfigError(
            f"unknown arm {spec!r}{nearest(spec, known)} (methods: {', '.join(METHODS)}; rewards: "
            f"{', '.join(paper_names())}, each with :VARIANT, or my_file.py:function)"
        )
    load_reward(spec)


def _check_fit(spec: str, table: Table) -> None:
    """Refuse an arm that asks for what the world does not have, or a reward that lacks a knob."""
    if spec in METHODS:
        if table.world != "people":
            raise ConfigError(
                f"{spec} learns from short answers that are right or wrong, so it is an arm in the world "
                f"'people' only, and the table {table.name!r} is in {table.world!r}; leave it out"
            )
        return
    world = make_world(table.world, 0)
    reward = load_reward(spec)
    missing = [name for name in reward.missing if name not in world.resources()]
    if missing:
        raise ConfigError(f"the world {table.world!r} has no {missing[0]!r}, which {spec} asks for")
    probed = replace(world.train[0], ook=True)  # an arm that needs to know asks the model itself
    problem = reward.requires(probed, reward.knobs) if reward.requires else None
    if problem:
        raise ConfigError(f"{spec} cannot be an arm in the world {table.world!r}: {problem}")
