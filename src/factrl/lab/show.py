"""What a lab run shows: a table with means and deviations over seeds, and the papers' signs beside ours.

This module makes tables and lines of text and writes the files; `factrl.cli.lab` prints.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table as Grid
from rich.text import Text

from factrl import __version__
from factrl.runs.progress import clock

from .outcome import ArmRuns, Outcome
from .page import write_page
from .picture import write_picture
from .tables import Column

LEGEND = (
    "Effect against base, the paper's and ours: “up = up” agrees, “up ≠ none” does not, “–” where the paper "
    "has no number."
)
_CAREFUL = "which way a reward pushes and what it costs, never how far a real model goes"


def write(outcome: Outcome, folder: Path) -> Path:
    """`lab.png`, `lab.csv`, `lab.json` and `lab.html`; returns the path of the last."""
    picture = folder / "lab.png"
    write_picture(outcome, picture, f"A model world: {outcome.table.about}")
    text = json.dumps(document(outcome), indent=2)
    (folder / "lab.json").write_text(f"{text}\n", encoding="utf-8")
    return write_page(
        folder / "lab.html",
        headline=headline(outcome),
        outcome=outcome,
        cells=[[value_cell(arm, column) for column in outcome.table.columns] for arm in _arms(outcome)],
        signs=[[sign_cell(outcome, arm, column) for column in outcome.judged] for arm in outcome.arms],
        agreements=[agreement_cell(outcome, arm) for arm in outcome.arms],
        picture=picture,
        notes=remarks(outcome),
        made=_made(outcome),
    )


def headline(outcome: Outcome) -> tuple[str, str]:
    """That this is a model world, first of all, and what was run."""
    seeds = f"seed {outcome.seeds[0]}" if len(outcome.seeds) == 1 else f"{len(outcome.seeds)} seeds"
    return (
        f"This is a model world (“{outcome.table.world}”, made-up facts and a two-layer model): it shows "
        f"{_CAREFUL}.",
        f"Table {outcome.table.name}: {outcome.table.about} {outcome.steps} steps, {seeds}, "
        "greedy answers to held-out questions, in %, means"
        + (" ± standard deviations over seeds." if len(outcome.seeds) > 1 else "."),
    )


def results_table(outcome: Outcome) -> Grid:
    """One line per arm: every metric after training."""
    grid = _grid("arm", *(column.name for column in outcome.table.columns))
    for arm in _arms(outcome):
        grid.add_row(arm.row.arm, *(value_cell(arm, column) for column in outcome.table.columns))
    return grid


def signs_table(outcome: Outcome) -> Grid:
    """One line per arm: the paper's direction and ours, by metric, and how many agree."""
    grid = _grid("paper = here", *(column.name for column in outcome.judged), "agrees")
    for arm in outcome.arms:
        cells = [sign_cell(outcome, arm, column) for column in outcome.judged]
        styled = [Text(cell, style="bold red" if "≠" in cell else "") for cell in cells]
        grid.add_row(arm.row.arm, *styled, agreement_cell(outcome, arm))
    return grid


def value_cell(arm: ArmRuns, column: Column) -> str:
    """`27.3 ± 2.1`, or the mean alone for one seed."""
    digits = 1 if column.scale == 100 else 2
    mean, deviation = arm.mean(column), arm.deviation(column)
    shown = f"{mean:.{digits}f}" if deviation is None else f"{mean:.{digits}f} ± {deviation:.{digits}f}"
    return shown.replace("-", "−")


def sign_cell(outcome: Outcome, arm: ArmRuns, column: Column) -> str:
    """The paper's direction and ours, with the sign that says whether they are the same."""
    paper, here = arm.row.reported(column), outcome.effect(arm, column)
    if paper is None:
        return f"–   {here}"
    return f"{paper} {'=' if paper == here else '≠'} {here}"


def agreement_cell(outcome: Outcome, arm: ArmRuns) -> str:
    """`3 of 4`, empty where the paper has no number."""
    found, known = outcome.agreement(arm)
    return f"{found} of {known}" if known else "–"


def remarks(outcome: Outcome) -> list[str]:
    """How to read the signs, what the papers' numbers are of, and both orders where the table has one."""
    return [LEGEND, f"The papers' numbers are of {outcome.table.source}.", *ranking_lines(outcome)]


def ranking_lines(outcome: Outcome) -> list[str]:
    """The paper's order of the arms beside ours, where the table has one."""
    ranking = outcome.ranking()
    if ranking is None:
        return []
    column = next(column for column in outcome.table.columns if column.metric == outcome.table.order)
    means = {arm.row.arm: arm.mean(column) for arm in outcome.arms}
    paper, here = ranking
    parts = [here[0]]
    for before, after in pairwise(here):
        parts.append(f"{'<' if means[after] - means[before] >= column.least else '≈'} {after}")
    name = column.name
    return [f"Order by {name}, paper: {' < '.join(paper)}", f"Order by {name}, here:  {' '.join(parts)}"]


def took(outcome: Outcome) -> str:
    """The wall time of everything, and what was spent where."""
    cpu = sum(arm.cpu_seconds for arm in _arms(outcome))
    made = f"{outcome.made} of {len(outcome.seeds)} pretrained now" if outcome.made else "all from the cache"
    return (
        f"{clock(outcome.seconds)} minutes in all: {clock(outcome.pretraining)} for pretrained models "
        f"({made}), {cpu:.0f} CPU seconds for the arms"
    )


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything for programs; metrics in the units of the world (shares or counts), by seed and by step."""
    arms = {}
    for arm in _arms(outcome):
        judged = () if arm is outcome.base else outcome.judged
        arms[arm.row.arm] = {
            "seeds": [dict(run.metrics) for run in arm.runs],
            "curves": [[{"step": p.step, **p.metrics} for p in run.curve] for run in arm.runs],
            "effects": {
                column.metric: {"paper": arm.row.reported(column), "here": outcome.effect(arm, column)}
                for column in judged
            },
            "cpu_seconds": round(arm.cpu_seconds, 1),
        }
    ranking = outcome.ranking()
    return {
        "model_world": headline(outcome)[0],
        "table": outcome.table.name,
        "world": outcome.table.world,
        "steps": outcome.steps,
        "seeds": list(outcome.seeds),
        "arms": arms,
        "order": {"by": outcome.table.order, "paper": ranking[0], "here": ranking[1]} if ranking else None,
        "source": outcome.table.source,
        "seconds": round(outcome.seconds, 1),
        "pretraining_seconds": round(outcome.pretraining, 1),
        **_made(outcome),
    }


def _arms(outcome: Outcome) -> tuple[ArmRuns, ...]:
    return (outcome.base, *outcome.arms)


def _made(outcome: Outcome) -> dict[str, str]:
    return {
        "took": took(outcome),
        "factrl": __version__,
        "platform": f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores",
        "command": shlex.join(["factrl", *sys.argv[1:]]),
    }


def _grid(first: str, *others: str) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(first, no_wrap=True, max_width=30)
    for name in others:
        longest = max(map(len, name.split()))
        grid.add_column(name, justify="right" if first == "arm" else "left", min_width=longest)
    return grid
