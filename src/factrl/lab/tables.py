"""The tables of the lab: which arms, in which world, and which way the papers say that each one goes.

A paper's `STUDY` says its arms and its published changes, each against the model that the paper starts from;
a change smaller than the column's `least` is called none, as ours are.  Where a paper shows a result only as
a curve, there is no number and so no direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from factrl.errors import ConfigError, nearest
from factrl.papers import Study, declared, load_paper, paper_names, rewards_of, split_spec

from . import make_world, supplied

Direction = Literal["up", "down", "none"]
DEFAULT = "default"
BASE = "base"  # the pretrained model, which every arm starts from
METHODS = ("sft", "rft", "r-tuning", "dpo")  # offline, without a reward


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of the world, as a table shows it.

    Attributes:
        metric: its name in `World.measure`.
        title: its name in the table; the metric's own by default.
        scale: what it is multiplied by: 100 makes points of a share.
        least: the smallest change that is called up or down, after scaling.
    """

    metric: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What `factrl lab --table NAME` runs and shows.

    Attributes:
        world: `people`, `steps` or `longform`.
        about: what the table asks, in one line.
        source: what the papers' numbers are of.
        judged: the columns that are held against the papers.
        steps: optimizer steps of each arm.
        notes: what a reader must know, among it what this world cannot express.
        seeds: how many, by default.
    """

    name: str = ""
    world: str
    about: str
    source: str = ""
    columns: tuple[Column, ...]
    judged: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    steps: int = 48
    notes: tuple[str, ...] = ()
    seeds: int = 1


def direction_of(change: float, least: float) -> Direction:
    """`up` or `down` for a change of at least `least`."""
    if abs(change) < least:
        return "none"
    return "up" if change > 0 else "down"


# What each world shows

_WORLDS = {
    "people": Table(
        world="people",
        about="does it learn to abstain where it does not know, and only there?",
        columns=(
            *(Column(name) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
            *(Column(name) for name in ("known/accuracy", "unknown/abstention")),
            Column("unknown/hallucination", title="unknown: halluc."),
        ),
        notes=(
            "Abstention starts at a few percent, by design without a hint when, so it has next to no room to "
            "fall: read how near to 0 it comes, not its sign.",
            "Past the steps shown, arms that pay for abstention go on to decline what the model knows: read "
            "the curves in lab.json, and stop by held-out truthfulness.",
        ),
    ),
    "steps": Table(
        world="steps",
        about="do the steps become right, or the answer alone?",
        columns=(
            Column("accuracy"),
            Column("contradicted", title="steps contradicted"),
            Column("entailed", title="steps entailed"),
            Column("sound", title="all steps right"),
            Column("lucky", title="right answers with a wrong step"),
        ),
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
        world="longform",
        about="does it say more of what is true, or only less, or only what is safe?",
        columns=(
            *(Column(name) for name in ("recall", "precision", "verified")),
            Column("detail", title="detail (facts)", scale=1.0, least=0.2),
            *(Column(name) for name in ("preferred", "padding", "vague", "silence")),
        ),
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


def _studies() -> Mapping[str, Study]:
    found = {name: declared(name, "STUDY") for name in paper_names()}
    return {name: study for name, study in found.items() if study is not None}


def _table(name: str, world: str, studies: Mapping[str, Study], *, first: bool = False) -> Table:
    """The arms of the studies in a world, or those of the first page, with what the studies say."""
    here = {paper: s for paper, s in studies.items() if s.world == world and (s.first or not first)}
    rows = tuple(
        Row(arm if arm in METHODS else f"{paper}:{arm}", changes)
        for paper, study in here.items()
        for arm, changes in study.arms.items()
        if not first or arm in study.first
    )
    alone = next(iter(here.values())) if len(here) == 1 else None
    return replace(
        _WORLDS[world],
        name=name,
        rows=rows,
        judged=_judged(_WORLDS[world].columns, rows),
        source=". ".join(study.source for study in here.values()),
        notes=(*(note for study in here.values() for note in study.notes), *_WORLDS[world].notes),
        about=(alone.about if alone else "") or _WORLDS[world].about,
    )


def _judged(columns: Iterable[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """The columns for which any row has a number of its paper."""
    return tuple(c for c in columns if any(c.metric in row.paper for row in rows))


# Arms of the user's choice, which are refused before torch is loaded where they do not fit


def table_of(specs: Sequence[str], name: str | None = None) -> Table:
    """A table with these arms, in the world and with the columns of a named one.

    Args:
        specs: rewards and methods.
        name: of the table; by default that of the world that the arms' files name, else `default`.

    Raises:
        ConfigError: an arm does not exist or is given twice, or does not fit into the world.
    """
    if len({*specs, BASE}) <= len(specs):
        raise ConfigError(f"{' '.join(specs)}: name each arm once, and not {BASE!r}, which is in every table")
    studies = {spec: _study_of(spec) for spec in specs if spec not in METHODS}
    homes = {DEFAULT if s.world == "people" else s.world: spec for spec, s in studies.items()}
    if name is None and len(homes) > 1:
        raise ConfigError(
            f"{' and '.join(homes.values())} are shown in different worlds; choose one with "
            f"--table {' or --table '.join(homes)}"
        )
    table = find_table(name or next(iter(homes), DEFAULT))
    _check_fit(specs, table)
    rows = tuple(_row(spec, table.world, studies.get(spec)) for spec in specs)
    judged = tuple(c for c in table.columns if c in {*table.judged, *_judged(table.columns, rows)})
    return replace(table, name=f"own choice of arms ({table.name})", rows=rows, judged=judged)


def _study_of(spec: str) -> Study:
    study = declared(spec, "STUDY") or Study("people", "", {})
    if study.world not in _WORLDS:
        raise ConfigError(f"{spec}: the world {study.world!r} of its STUDY is not {', '.join(_WORLDS)}")
    return study


def _row(spec: str, world: str, study: Study | None) -> Row:
    """An arm with what is published of it, which says nothing in another world than the paper's own."""
    if study is None:
        return next((row for row in find_table(world).rows if row.arm == spec), Row(spec))
    name, variant = split_spec(spec)
    arm = variant or next(iter(rewards_of(load_paper(name))))
    return Row(spec, study.arms.get(arm, {}) if study.world == world else {})


def _check_fit(specs: Iterable[str], table: Table) -> None:
    """Refuse an arm that asks for what the world does not have, or a reward that lacks a knob."""
    world = make_world(table.world, 0)
    for spec in specs:
        if spec in METHODS and table.world != "people":
            raise ConfigError(
                f"{spec} learns from short answers that are right or wrong, so it is an arm in the world "
                f"'people' only, and the table {table.name!r} is in {table.world!r}; leave it out"
            )
        if spec in METHODS:
            continue
        reward = supplied(world, spec)
        probed = replace(world.train[0], ook=True)  # an arm that needs to know asks the model itself
        problem = reward.requires(probed, reward.knobs) if reward.requires else None
        if problem:
            raise ConfigError(f"{spec} cannot be an arm in the world {table.world!r}: {problem}")
