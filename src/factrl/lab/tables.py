"""The named tables of the lab: which arms, in which world, and which way the papers say that each one goes.

The papers' directions come from their published numbers (`PUBLISHED` of a paper's module), each against the
model that the paper starts from; a change smaller than the column's `least` is called none, as ours are.
Where a paper shows a result only as a curve, there is no number and so no direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError, nearest
from ..papers import load_paper

if TYPE_CHECKING:
    from .world import World

Direction = Literal["up", "down", "none"]
BASE = "base"  # the pretrained model, which every arm starts from
METHODS = ("sft", "rft", "r-tuning", "dpo", "iterative-dpo")  # offline, without a reward
_WORLDS = {"people": ("people", "People"), "steps": ("steps", "Steps"), "longform": ("longform", "Longform")}


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
    module, kind = _WORLDS[name]
    return getattr(importlib.import_module(f"factrl.lab.{module}"), kind)(seed=seed)


# Which table


def table_names() -> tuple[str, ...]:
    """What `--table` takes."""
    return tuple(_TABLES)


def find_table(name: str) -> Table:
    """A named table.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in _TABLES:
        raise ConfigError(f"unknown table {name!r}{nearest(name, _TABLES)} (there are: {', '.join(_TABLES)})")
    return _TABLES[name]()


# What the papers report


def _published(paper: str, where: str, row: str) -> dict[str, float]:
    """Metric -> value of one row of a paper's published numbers."""
    numbers = load_paper(paper).PUBLISHED
    return {metric: value for (at, name, metric), value in numbers.items() if (at, name) == (where, row)}


def _outcomes(row: str) -> dict[str, float]:
    """All four of TruthRL's outcomes; the paper has two or three, which determine the others."""
    found = _published("truthrl", "average", f"Llama-3.1-8B {row}")
    found.setdefault("accuracy", found["truthfulness"] + found["hallucination"])
    found["abstention"] = 100 - found["accuracy"] - found["hallucination"]
    return found


def _truthrl(arm: str, row: str) -> Row:
    before, after = _outcomes("prompting"), _outcomes(row)
    return Row(arm, {metric: after[metric] - before[metric] for metric in before})


def _knowrl(variant: str) -> Row:
    """KnowRL's ablation has wrong answers in SimpleQA, against 78.00 of the model that it starts from."""
    before = _published("knowrl", "results", "DeepSeek-R1-Distill-Qwen-7B")["SimpleQA"]
    after = _published("knowrl", "ablation", variant)["SimpleQA"]
    return Row(f"knowrl:{variant}", {"hallucination": after - before})


def _fspo() -> dict[str, float]:
    before, after = (_published("fspo", "results", f"Qwen2.5-7B-Base{end}") for end in ("", " FSPO"))
    return {
        "accuracy": after["GSM8K"] - before["GSM8K"],
        "contradicted": before["HaluEval-QA"] - after["HaluEval-QA"],
    }


def _factreason(variant: str, where: str, row: str) -> Row:
    before, after = _published("factreason", "results", "base"), _published("factreason", where, row)
    paper = {"verified": after["precision"] - before["precision"]}
    paper |= {"detail": after["detail"] - before["detail"], "preferred": after["win rate"] - 50}
    return Row(f"factreason:{variant}", paper)


def _klcf(variant: str, where: str, row: str) -> Row:
    before, after = _published("klcf", "main results", "base"), _published("klcf", where, row)
    paper = {"verified": after["FActScore"] - before["FActScore"]}
    if "LongFact win rate" in after:
        paper["preferred"] = after["LongFact win rate"] - 50
    return Row(f"klcf:{variant}", paper)


# The tables

_PEOPLE = (
    *(Column(name, judged=True) for name in ("accuracy", "abstention", "hallucination", "truthfulness")),
    *(Column(name) for name in ("known/accuracy", "unknown/abstention")),
    Column("unknown/hallucination", title="unknown: halluc."),
)
_PEOPLE_PICTURE = ("abstention", "hallucination", "truthfulness")
_TRUTHRL_SOURCE = (
    "TruthRL: Llama-3.1-8B, average of four sets with retrieval, against prompting; abstention is the rest"
)
_KNOWRL_SOURCE = "KnowRL: DeepSeek-R1-Distill-Qwen-7B, wrong answers in SimpleQA, against the model untrained"
_NO_READING = (
    "Accuracy cannot rise here: the test asks about people that no training question is about, so an "
    "unknown fact stays unknown. In TruthRL's setting the model also learns to read retrieved documents, and "
    "accuracy rises with every reward."
)
_NO_ROOM = (
    "Abstention starts at a few percent, by design without a hint when, so it has next to no room to fall: "
    "read how near to 0 it comes, not its sign."
)
_EASY = (
    "R-Tuning, RFT and iterative DPO come close to ternary RL here, or level with it, where the question "
    "itself gives away whether its answer was ever read; that they stand below it in the papers comes from "
    "richer tasks."
)
_LONGER = (
    "Past the steps shown, arms that pay for abstention go on to decline what the model knows: read the "
    "curve, and stop by held-out truthfulness."
)


def _truthrl_table() -> Table:
    return Table(
        name="truthrl",
        world="people",
        about="does it learn to abstain where it does not know, and only there?",
        source=_TRUTHRL_SOURCE,
        columns=_PEOPLE,
        rows=(
            _truthrl("sft", "SFT"),
            _truthrl("rft", "RFT"),
            _truthrl("r-tuning", "R-Tuning"),
            _truthrl("dpo", "DPO"),
            *(_truthrl(f"truthrl:{row}", row) for row in ("binary", "knowledge-binary", "knowledge-ternary")),
            _truthrl("truthrl:ternary", "TruthRL"),
        ),
        picture=_PEOPLE_PICTURE,
        notes=(_NO_READING, _NO_ROOM, _EASY, _LONGER),
    )


def _knowrl_table() -> Table:
    variants = ("format", "format+fact", "format+correct", "paper", "no-refusal")
    return Table(
        name="knowrl",
        world="people",
        about="which part of KnowRL's reward lowers hallucination?",
        source=_KNOWRL_SOURCE,
        columns=tuple(replace(c, judged=c.metric == "hallucination") for c in _PEOPLE),
        rows=tuple(_knowrl(variant) for variant in variants),
        picture=_PEOPLE_PICTURE,
        order="hallucination",
        notes=(
            "The world cannot express the format reward: the lab writes the tags, so nearly every completion "
            "has the right form and `format` alone has nothing to teach.",
            "Nor can it tell facts from answers: the reasoning is the answer said as a sentence, so "
            "`format+fact` pays for right answers (+1) and for neither wrong ones nor refusals. In the paper "
            "the reasoning has several facts, some of them right where the answer is wrong.",
            _LONGER,
        ),
    )


def _fspo_table() -> Table:
    return Table(
        name="fspo",
        world="steps",
        about="do the steps become right, or the answer alone?",
        source="FSPO: Qwen2.5-7B-Base; accuracy is GSM8K, contradicted steps stand for wrong choices in "
        "HaluEval; its ablations are curves without numbers",
        columns=(
            Column("accuracy", judged=True),
            Column("contradicted", judged=True, title="steps contradicted"),
            Column("entailed", title="steps entailed"),
            Column("sound", title="all steps right"),
            Column("lucky", title="right answers with a wrong step"),
        ),
        rows=(
            *(Row(f"fspo:{variant}") for variant in ("outcome", "outcome+fact", "signs")),
            Row("fspo:fspo", _fspo()),
        ),
        picture=("contradicted", "entailed", "sound"),
        steps=60,
        notes=(
            "Accuracy has no room to rise: the pretrained model has learnt nearly every answer by heart, "
            "whatever its steps say. That is the case in which an outcome reward cannot tell good steps from "
            "bad ones.",
            "Facts that are asked of the model here are those that it has read, if noisily: what improves is "
            "which of them it writes, not what it knows.",
            "The paper shows its ablations as curves only, so the last row alone has signs to agree with.",
        ),
    )


def _longform_table() -> Table:
    return Table(
        name="longform",
        world="longform",
        about="does it say more of what is true, or only less, or only what is safe?",
        source="Learning to Reason for Factuality: average of six sets against the base model, win rate "
        "against 50; KLCF-zero 14B: FActScore and LongFact win rate against its base; verified is their "
        "precision",
        columns=(
            Column("recall"),
            Column("precision"),
            Column("verified", judged=True),
            Column("detail", judged=True, title="detail (facts)", scale=1.0, least=0.2),
            Column("preferred", judged=True),
            Column("padding"),
            Column("vague"),
            Column("silence"),
        ),
        rows=(
            _factreason("paper", "results", "SFT + GRPO"),
            _factreason("fact-only", "ablation", "fact-only"),
            _factreason("detail-0.1", "ablation", "detail-0.1"),
            _klcf("table-2-row", "main results", "KLCF-zero"),
            _klcf("truth-only", "Table 2", "truth only"),
        ),
        picture=("detail", "verified", "recall"),
        steps=60,
        notes=(
            "`verified` is what a verifier supports, statements without content (“has parents”) among "
            "them; `precision` leaves those out. Where the two part, the reward is being gamed.",
            "The judges are exact: a reward can be gamed here only by what it asks for, never by a judge's "
            "mistake. `preferred` stands for a judge of quality that is told to ignore truth.",
            "KLCF's main weights are lost, so its numbers stand beside the row of its Table 2 that is "
            "readable (0.4, 0.2, 0.4).",
        ),
    )


def _default_table() -> Table:
    """The arms that tell the story on one page."""
    table = _truthrl_table()
    arms = ("knowrl:no-refusal", "knowrl:paper")
    return replace(
        table,
        name="default",
        rows=(*table.rows, *(row for row in _knowrl_table().rows if row.arm in arms)),
        source=f"{_TRUTHRL_SOURCE}. {_KNOWRL_SOURCE}",
        seeds=2,
    )


_TABLES: Mapping[str, Callable[[], Table]] = {
    "default": _default_table,
    "truthrl": _truthrl_table,
    "knowrl": _knowrl_table,
    "fspo": _fspo_table,
    "longform": _longform_table,
}
