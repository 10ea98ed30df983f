"""Every reward of the shelf beside the others: `factrl lab --table rewards`.

One arm per paper, in the world `confidence`, where a question says how sure an answer has to be and an answer
says how sure the model is; a reward that reads neither is measured all the same.  An arm is the paper's main
variant, or where this world cannot run that one, the first other of its file that it can.  Nothing is listed
here: a paper that is one more file is one more row, or one more line that says why it is none.

Beside the metrics stands what needs no training: how many of the hacks of `factrl stress` do not pay, and how
often a judge is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from factrl.errors import ConfigError
from factrl.papers import (
    Study,
    declared,
    form_of,
    length_of,
    load_paper,
    load_reward,
    paper_names,
    rewards_of,
)
from factrl.verifier.report import Report

from . import OUTCOMES, Column, Rows, World, supplied
from .hacks import oracle_setup, run_battery, stand_in
from .tables import Table, table_of

REWARDS = "rewards"  # the name of the table
WORLD = "confidence"
ASKED = 64  # training questions, `SAMPLES` completions of each, of which the judge's calls are counted
SAMPLES = 4
_COLUMNS = (
    *OUTCOMES,
    *(Column(name, least=1.0) for name in ("ece", "aurc")),
)
_NO_JUDGE = frozenset({"certainty", "course", "extract", "group", "together"})  # resources that ask nobody


def rewards_table(own: Sequence[str] = ()) -> Table:
    """The table of all papers, and behind them of rewards of your own.

    Raises:
        ConfigError: one of `own` does not exist or does not fit into the world.
    """
    specs, notes = fitting(_unfit)
    table = table_of([*specs, *own], WORLD)
    shown = {column.metric for column in _COLUMNS}
    return replace(
        table,
        name=REWARDS,
        about="what does each reward teach, from one start?",
        columns=_COLUMNS,
        judged=tuple(column for column in table.judged if column.metric in shown),
        notes=(*notes, *table.notes),
        facts=True,
    )


def facts_of(world: World, spec: str, rows: Rows) -> dict[str, str]:
    """What a row says beside its metrics.

    Args:
        rows: questions with completions of the pretrained model, on which the judge's calls are counted.
    """
    return {"hacks held": _held(spec), "judge calls": f"{judge_calls(world, spec, rows):.1f}"}


def judge_calls(world: World, spec: str, rows: Rows) -> float:
    """How often a reward asks a judge of one completion: once where it grades, rates or compares, and once
    for each claim that it verifies.  Where rules decide an answer, a real run asks less."""
    calls: list[int] = []

    def counted(resource: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any, **named: Any) -> Any:
            found = resource(*given, **named)
            many = (
                sum(check.verdict is not None for check in found.checks) if isinstance(found, Report) else 1
            )
            calls.append(many)
            return found

        return ask

    reward = supplied(world, spec)
    judges = {
        name: one for name, one in reward.resources.items() if one is not None and name not in _NO_JUDGE
    }
    reward = reward.with_(**{name: counted(one) for name, one in judges.items()})
    form = form_of(spec, reward)
    examples = [replace(example, ook=False) for example, _ in rows]
    reward.batch(examples, [world.wrap(example, text, form).text for example, text in rows])
    return sum(calls) / len(rows)


def _held(spec: str) -> str:
    """How many policies and families of answer forms hold, of those that could be tried."""
    try:
        outcome = run_battery(oracle_setup(spec))
    except ConfigError:  # it asks for something that the battery has no oracle for
        return "–"
    tried = [found.verdict for found in (*outcome.findings, *outcome.options)]
    tried = [verdict for verdict in tried if verdict not in ("n/a", "masked")]
    return f"{sum(verdict in ('held', 'repaired') for verdict in tried)} of {len(tried)}"


def _unfit(spec: str) -> str:
    """Why this world cannot run a reward; empty where it can."""
    if length_of(spec, load_reward(spec)) == "long":
        return "it reads long answers, and here one is a word"
    try:
        table_of([spec], WORLD)
    except ConfigError as error:
        return str(error)
    return ""


def fitting(unfit: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Of each paper the main variant or the first other that fits, and a note where that is not the main one.

    Args:
        unfit: why a reward does not fit; empty where it does.
    """
    specs, notes = [], []
    for paper in paper_names():
        reasons = {spec: unfit(spec) for spec in _candidates(paper)}
        main, why = next(iter(reasons.items()))
        fit = next((spec for spec, reason in reasons.items() if not reason), None)
        specs += [fit] if fit else []
        if why:
            notes.append(f"{f'{fit} in place of {main}' if fit else f'no {paper}'}: {why}.")
    return specs, notes


def _candidates(paper: str) -> list[str]:
    """The main variant of a paper, and which of the others to take where that one cannot be run."""
    known = rewards_of(load_paper(paper))
    study: Study | None = declared(paper, "STUDY")
    others = [stand_in(paper)[0].partition(":")[2], *(study.arms if study else ())]
    return [f"{paper}:{name}" for name in dict.fromkeys([next(iter(known)), *others]) if name in known]
