"""The battery against a reward: every text goes through the whole pipeline, and the order is read off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..forms import Form, form_of
from ..journal import Journal
from ..papers import load_reward
from ..rewards import Reward
from ..types import Completion, Result
from .forms import Length, Written, length_of, write
from .known import known_failures
from .oracles import NAME, oracle_resources
from .order import STRICT, Cell, Finding, compare, ladder, scale_of
from .policies import RUNGS, WAYS, Policy, battery, policies
from .prompts import Prompt, example_of, prompts

STAND_INS = {
    "klcf": (
        "klcf:table-2-row",
        "klcf's own weights are lost: alpha=0.4 beta=0.2 gamma=0.4, a row of its Table 2",
    )
}
OnDone = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """What is tested, and how its texts are written.

    Attributes:
        spec: the reward's name.
        reward: with its resources.
        form, length: what it reads.
        judges: who judged, in words.
        questions, ways: how many of the twenty questions and of the three paraphrases.
    """

    spec: str
    reward: Reward
    form: Form
    length: Length
    judges: str = NAME
    questions: int = 20
    ways: int = WAYS

    @property
    def chosen(self) -> Sequence[Prompt]:
        """The questions."""
        return list(prompts().values())[: self.questions]

    def write(self, written: Written) -> str:
        """A completion in the form that the reward reads."""
        return write(written, self.form, self.length)


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        cells: of the honest answers and the policies.
        ladder: the steps of the honest order.
        findings: one per policy, in order.
    """

    setup: Setup
    cells: Mapping[str, Cell]
    ladder: Sequence[Finding]
    findings: Sequence[Finding]

    def of(self, *verdicts: str) -> list[Finding]:
        """The comparisons with these verdicts, the honest order first."""
        return [found for found in (*self.ladder, *self.findings) if found.verdict in verdicts]


def oracle_setup(
    spec: str, reward: Reward | None = None, *, form: Form | None = None, length: Length | None = None
) -> Setup:
    """A reward with the battery's oracles for whatever it still lacks.

    Args:
        spec: `truthrl`, `truthrl:binary` or `my_file.py:function`.
        reward: with knobs or resources of your own; by default the one that the spec names.
        form, length: how it reads completions, where the spec does not say.

    Raises:
        ConfigError: as `load_reward`, or a resource for which there is no oracle.
    """
    reward = load_reward(STAND_INS.get(spec, (spec,))[0]) if reward is None else reward
    oracles = oracle_resources()
    unknown = [name for name in reward.missing if name not in oracles]
    if unknown:
        raise ConfigError(
            f"{spec} needs {unknown[0]!r}, for which the battery has no oracle (it has: "
            f"{', '.join(oracles)}); supply it with .with_({unknown[0]}=…), or take --live"
        )
    reward = reward.with_(**{name: oracles[name] for name in reward.missing})
    return Setup(spec, reward, form or form_of(spec, reward), length or length_of(spec, reward))


def run_battery(
    setup: Setup,
    ids: Sequence[str] = (),
    *,
    journal: Journal | None = None,
    on_done: OnDone | None = None,
) -> Outcome:
    """Score the honest answers and the policies, and compare.

    Args:
        ids: policies, `D01-D09` is a range; all 36 by default.
        journal: keeps what is known, so that a stopped run goes on; what was masked is asked again.
        on_done: called with the id of each policy that is done.

    Raises:
        ConfigError: no such policy.
        RewardBug: the reward raised something other than `Unscored`.
    """
    chosen, known = policies(ids), known_failures(setup.spec)
    cells: dict[str, Cell] = {}
    for policy in [battery()[rung] for rung in RUNGS] + chosen:
        if policy.applies(setup.form):
            cells[policy.id] = cell_of(setup, policy, journal)
        if on_done is not None:
            on_done(policy.id)
    scale = scale_of(cells)
    findings = []
    for policy in chosen:
        if policy.id not in cells:
            none = (0, 0)
            findings.append(
                Finding(policy.id, policy.name, "n/a", policy.ceiling, None, None, None, none, none)
            )
            continue
        bound, strict = cells[policy.ceiling], policy.ceiling in STRICT
        told = (policy.id, policy.name, policy.ceiling)
        findings.append(compare(*told, cells[policy.id], bound, strict, scale, known))
    return Outcome(setup, cells, ladder(cells, known), findings)


def cell_of(setup: Setup, policy: Policy, journal: Journal | None = None) -> Cell:
    """The rewards of one policy's texts."""
    keys = [(p, way) for p in setup.chosen for way in range(setup.ways)]
    texts = [setup.write(policy.says(p, way)) for p, way in keys]
    results = _scored(setup, policy.id, keys, texts, journal)
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


def _scored(
    setup: Setup,
    id_: str,
    keys: Sequence[tuple[Prompt, int]],
    texts: Sequence[str],
    journal: Journal | None,
) -> list[Mapping[str, Any]]:
    names = [f"{id_}/{p.id}/{way}" for p, way in keys]
    rows: dict[str, Mapping[str, Any]] = {
        name: journal[name] for name in names if journal is not None and name in journal
    }
    todo = [number for number, name in enumerate(names) if name not in rows]
    results = score_texts(setup, [keys[number] for number in todo], [texts[number] for number in todo])
    for number, row in zip(todo, results, strict=True):
        rows[names[number]] = row
        if journal is not None and row["state"] != "masked":
            journal.add(names[number], dict(row))
    return [rows[name] for name in names]


def score_texts(
    setup: Setup, keys: Sequence[tuple[Prompt, int]], texts: Sequence[str]
) -> list[Mapping[str, Any]]:
    """State, value and cause of each text.

    Raises:
        RewardBug: as `run_battery`.
    """
    examples = [example_of(p) for p, _ in keys]
    return [_row(result) for result in setup.reward.batch(examples, [Completion(text) for text in texts])]


def _row(result: Result) -> Mapping[str, Any]:
    return {"state": result.state, "value": result.value, "cause": result.cause or ""}
