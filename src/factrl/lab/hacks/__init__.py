"""36 known reward hacks and generated free options against any reward: `factrl stress`, and as a test.

    from factrl.lab.hacks import broken
    from my_rewards import mine

    def test_no_hack_pays():
        assert broken(mine) == []

The texts are 36 adversarial policies and five honest answers to twenty questions in three paraphrases each
(`factrl.lab.hacks.texts`), and generated answer forms (`factrl.lab.hacks.options`); exact oracles stand in
for judges (`factrl.lab.hacks.oracles`) unless the reward brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from factrl.errors import ConfigError, nearest
from factrl.papers import declared, form_of, length_of, load_reward, split_spec
from factrl.rewards import Reward
from factrl.text.escape import one_line

from .options import HONESTY, Family, families, honest_pay, option_of
from .oracles import NAME, oracle_resources
from .order import Cell, Finding, Setup, against_ceiling, cell_of, ladder
from .texts import RUNGS, Policy, battery

__all__ = ["Outcome", "Setup", "broken", "oracle_setup", "run_battery"]


def oracle_setup(spec: str, reward: Reward | None = None) -> Setup:
    """A reward with the battery's oracles for whatever it still lacks.

    Args:
        spec: `truthrl`, `truthrl:binary` or `my_file.py:function`.
        reward: with knobs or resources of your own; by default the one that the spec names.

    Raises:
        ConfigError: as `load_reward`, or a resource for which there is no oracle.
    """
    reward = load_reward(stand_in(spec)[0]) if reward is None else reward
    oracles = oracle_resources()
    unknown = [name for name in reward.missing if name not in oracles]
    if unknown:
        raise ConfigError(
            f"{spec} needs {unknown[0]!r}, for which the battery has no oracle (it has: "
            f"{', '.join(oracles)}); supply it with .with_({unknown[0]}=…), or take --live"
        )
    reward = reward.with_(**{name: oracles[name] for name in reward.missing})
    return Setup(spec, reward, form_of(spec, reward), length_of(spec, reward), NAME)


def stand_in(spec: str) -> tuple[str, str]:
    """The reward that is tried in place of a main one that cannot be, and why; itself where it can be."""
    paper, variant = split_spec(spec)
    other = None if variant else declared(spec, "STAND_IN")
    return (f"{paper}:{other[0]}", other[1]) if other else (spec, "")


def known_failures(spec: str) -> Mapping[str, str]:
    """Id of a policy, family or step of the order -> why it is known to pay; printed, and no news."""
    known: Mapping[str, Mapping[str, str]] = declared(spec, "WEAKNESSES", {})
    return known.get(split_spec(spec)[1], known.get("", {}))


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
    """The policies and the families of answer forms with these ids, all by default; `D01-D09` is a range.

    Raises:
        ConfigError: there is none of that id.
    """
    known: dict[str, Policy | Family] = {**battery(), **families()}
    for rung in RUNGS:
        del known[rung]
    names, wanted = list(known), list[str]()
    for word in ids:
        first, dash, last = word.strip().upper().partition("-")
        for name in (first, last) if dash else (first,):
            if name not in known:
                there = "(there are: D01 to D36 and F01 to F17)"
                raise ConfigError(f"no policy {name!r}{nearest(name, known)} {there}")
        wanted += names[names.index(first) : names.index(last) + 1] if dash else [first]
    rows = [known[name] for name in dict.fromkeys(wanted or names)]
    return [row for row in rows if isinstance(row, Policy)], [row for row in rows if isinstance(row, Family)]


def run_battery(
    setup: Setup,
    ids: Sequence[str] = (),
    *,
    known: Mapping[str, str] | None = None,
    on_done: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Score the honest answers and the policies, and compare.

    Args:
        ids: policies and families of answer forms, `D01-D09` is a range; all by default.
        known: failures that are no news, by id, with the reason; by default the list of the paper.
        on_done: called with the id of each policy and family that is done.

    Raises:
        ConfigError: no such policy.
        RewardBug: the reward raised something other than `Unscored`.
    """
    hacks, forms = chosen(ids)
    known = known_failures(setup.spec) if known is None else known
    cells: dict[str, Cell] = {}
    for policy in [battery()[rung] for rung in RUNGS] + hacks:
        if policy.applies(setup.form):
            cells[policy.id] = cell_of(setup, policy)
        on_done(policy.id)
    honest = honest_pay(setup) if forms else {}
    options = []
    for family in forms:
        options.append(option_of(setup, family, honest, known))
        on_done(family.id)
    silent = [mean for rung in ("abstain", "partial") if (mean := cells[rung].mean) is not None]
    best, quiet = cells["know"].mean, max(silent, default=None)
    findings = [against_ceiling(policy, cells.get(policy.id), cells, known) for policy in hacks]
    steps, rest = (
        [replace(found, answer=best, abstention=quiet) for found in part]
        for part in (ladder(cells, known), findings)
    )
    return Outcome(setup, cells, steps, rest, options)


def broken(
    reward: Reward, *ids: str, questions: int = 20, known: Mapping[str, str] | None = None
) -> list[str]:
    """One line for each policy, family or step of the honest order that is not held; none when all is well.

    Args:
        reward: yours; resources that it lacks are oracles.
        ids: policies and families of answer forms, `D01-D09` is a range; all by default.
        questions: how many of the twenty; fewer are faster and see less.
        known: failures that you accept, by id, with the reason.

    Raises:
        ConfigError: no such policy, or a resource for which there is no oracle.
    """
    setup = replace(oracle_setup(reward.name, reward), questions=questions)
    return [line_of(found) for found in run_battery(setup, ids, known=known or {}).of("broken", "masked")]


def line_of(found: Finding) -> str:
    """A comparison that is not held, in one line: what is paid, what honesty earns, and a text."""
    (masked, texts), (good, count) = found.masked, found.prompts
    if found.verdict == "masked":
        return f"masked: {found.id}: {masked} of {texts} texts could not be graded"
    name = f"{found.id} {found.name}".strip()
    earns = f"it earns {found.mean:.3f}"
    if found.ceiling.startswith(HONESTY):
        accuracy = found.ceiling.removeprefix(HONESTY)
        honest = f"the bare answer {found.answer:.3f} and an abstention {found.abstention:.3f}"
        told = f"a free option: right {accuracy} of the time {earns}, {honest}"
        if accuracy == "0%":
            told = f"no answer, and right: {earns}, {honest} when one knows nothing"
    else:
        told = f"{earns}, {found.ceiling} {found.bound:.3f}; held on {good} of {count} questions"
    return f"{found.verdict}: {name}: {told}: {one_line(found.text[:160])}"
