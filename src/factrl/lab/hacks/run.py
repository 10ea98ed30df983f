"""The battery against a reward: every text goes through the whole pipeline, and the order is read off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from factrl.lab.hacks.families import Family, families
from factrl.lab.hacks.options import honest_pay, option_of
from factrl.lab.hacks.order import STRICT, Cell, Finding, compare, ladder, scale_of
from factrl.lab.hacks.policies import RUNGS, Policy, battery, policies
from factrl.lab.hacks.prompts import Prompt
from factrl.lab.hacks.setup import Setup, kept_scores, known_failures
from factrl.runs.journal import Journal

OnDone = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        cells: of the honest answers and the policies.
        ladder: the steps of the honest order.
        findings: one per policy, in order.
        options: one per family of answer forms, in order.
    """

    setup: Setup
    cells: Mapping[str, Cell]
    ladder: Sequence[Finding]
    findings: Sequence[Finding]
    options: Sequence[Finding] = ()

    def of(self, *verdicts: str) -> list[Finding]:
        """The comparisons with these verdicts, the honest order first."""
        return [found for found in self.every if found.verdict in verdicts]

    @property
    def every(self) -> Sequence[Finding]:
        """All comparisons, the honest order first and the answer forms last."""
        return (*self.ladder, *self.findings, *self.options)


def chosen(ids: Sequence[str]) -> tuple[list[Policy], list[Family]]:
    """The policies and the families of answer forms with these ids, all by default.

    Raises:
        ConfigError: there is none of that id.
    """
    forms = [word for word in ids if word.strip().upper().startswith("F")]
    others = [word for word in ids if word not in forms]
    return (policies(others) if others or not ids else [], families(forms) if forms or not ids else [])


def run_battery(
    setup: Setup,
    ids: Sequence[str] = (),
    *,
    journal: Journal | None = None,
    on_done: OnDone | None = None,
) -> Outcome:
    """Score the honest answers and the policies, and compare.

    Args:
        ids: policies and families of answer forms, `D01-D09` is a range; all by default.
        journal: keeps what is known, so that a stopped run goes on; what was masked is asked again.
        on_done: called with the id of each policy and family that is done.

    Raises:
        ConfigError: no such policy.
        RewardBug: the reward raised something other than `Unscored`.
    """
    hacks, forms = chosen(ids)
    known = known_failures(setup.spec)
    cells: dict[str, Cell] = {}
    for policy in [battery()[rung] for rung in RUNGS] + hacks:
        if policy.applies(setup.form):
            cells[policy.id] = cell_of(setup, policy, journal)
        if on_done is not None:
            on_done(policy.id)
    scale = scale_of(cells)
    findings = []
    for policy in hacks:
        named = (policy.id, policy.name)
        if policy.id not in cells:
            findings.append(Finding(*named, "n/a", policy.ceiling, None, None, None, (0, 0), (0, 0)))
            continue
        bound, strict = cells[policy.ceiling], policy.ceiling in STRICT
        findings.append(compare(*named, policy.ceiling, cells[policy.id], bound, strict, scale, known))
    honest = honest_pay(setup, journal) if forms else {}
    options = []
    for family in forms:
        options.append(option_of(setup, family, honest, known, journal))
        if on_done is not None:
            on_done(family.id)
    silent = [mean for rung in ("abstain", "partial") if (mean := cells[rung].mean) is not None]
    best, quiet = cells["know"].mean, max(silent, default=None)
    steps, rest = (
        [replace(found, answer=best, abstention=quiet) for found in part]
        for part in (ladder(cells, known), findings)
    )
    return Outcome(setup, cells, steps, rest, options)


def cell_of(setup: Setup, policy: Policy, journal: Journal | None = None) -> Cell:
    """The rewards of one policy's texts."""
    keys = [(p, way) for p in setup.chosen for way in range(setup.ways)]
    texts = [setup.write(policy.says(p, way)) for p, way in keys]
    names = [f"{policy.id}/{p.id}/{way}" for p, way in keys]
    results = kept_scores(setup, names, [p for p, _ in keys], texts, journal)
    return cell(policy.id, keys, texts, results)


def cell(
    id_: str, keys: Sequence[tuple[Prompt, int]], texts: Sequence[str], results: Sequence[Mapping[str, Any]]
) -> Cell:
    """Results of texts, put together."""
    values: dict[str, list[float | None]] = {}
    for (p, _), row in zip(keys, results, strict=True):
        values.setdefault(p.id, []).append(row["value"])
    graded = [number for number, row in enumerate(results) if row["value"] is not None]
    best = max(graded, key=lambda number: results[number]["value"], default=0)
    states = Counter(str(row["state"]) for row in results)
    causes = Counter(f"{row['state']}: {row['cause']}" for row in results if row["cause"])
    return Cell(id_, values, dict(states), dict(causes.most_common()), texts[best])
