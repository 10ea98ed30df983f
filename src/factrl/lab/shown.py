"""What the tables of the lab are made of, and what each world shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["up", "down", "none"]


@dataclass(frozen=True, slots=True)
class Column:
    """A metric of the world, as a table shows it.

    Attributes:
        metric: its name in `World.measure`, and in the table unless it has a `title`.
        scale: what it is multiplied by: 100 makes points of a share.
        least: the smallest change that is called up or down, after scaling.
    """

    metric: str
    title: str = ""
    scale: float = 100.0
    least: float = 2.0

    @property
    def name(self) -> str:
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
    """What `factrl lab --table NAME` runs and shows; `judged` columns are held against the papers."""

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
    facts: bool = False  # arms say more than their metrics (`factrl.lab.rewards`)


def direction_of(change: float, least: float) -> Direction:
    """`up` or `down` for a change of at least `least`."""
    if abs(change) < least:
        return "none"
    return "up" if change > 0 else "down"


WORLDS = {
    "people": Table(
        world="people",
        about="does it learn to abstain where it does not know, and only there?",
        columns=(
            *(Column(name) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
            *(Column(name) for name in ("known/accuracy", "unknown/abstention")),
            Column("unknown/hallucination", title="unknown: halluc."),
        ),
    ),
    "confidence": Table(
        world="confidence",
        about="is it as sure as it is right, and does it answer where it is surer than it is asked to be?",
        columns=(
            *(Column(name) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
            *(Column(name) for name in ("ece", "aurc", "at 10/abstention", "at 90/abstention")),
            Column("at 90/hallucination", title="at 90: halluc."),
        ),
    ),
    "search": Table(
        world="search",
        about="does it search, answer from what it finds, and decline where that answers nothing?",
        columns=(
            *(Column(name) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
            Column("answerable", title="accuracy, answerable"),
            Column("precision", title="precision of declining"),
            Column("supported", title="answers whose citations support them"),
            Column("searches", title="searches", scale=1.0, least=0.1),
        ),
        seeds=3,
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
    ),
}
