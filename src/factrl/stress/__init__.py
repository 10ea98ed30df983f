"""37 known reward hacks and free options against any reward: `factrl stress`, in a test `broken`.

The texts are 37 adversarial policies and five honest answers to twenty questions in three paraphrases each
(`factrl.stress.texts`), and answer forms (`factrl.stress.options`); exact oracles stand in
for judges (`factrl.stress.oracles`) unless the reward brings its own.

The order that a reward has to keep is know > partial > abstain > wrong >= floored, on the mean and on 95 % of
the questions.  A policy may at best equal the honest answer that is its ceiling, and must stay below `know`
and `partial`.  Margins are shares of know - wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from factrl.errors import ConfigError, nearest
from factrl.papers import form_of, length_of, load_reward, paper_of, split_spec
from factrl.rewards import Reward
from factrl.text.escape import one_line

from .options import Family, Honest, earned, families, honest_pay, worst_of
from .oracles import NAME, oracle_resources
from .texts import HONEST_ANSWERS, PROMPTS_HELD, SAME, Policy, Setup, battery

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

__all__ = ["Finding", "Setup", "StressReport", "broken", "oracle_setup", "run_battery"]

Verdict = Literal["held", "broken", "known", "repaired", "masked", "n/a"]

STRICT = ("know", "partial")  # ceilings that must not even be reached
GRADED = 0.95  # share of a policy's texts that must have a number
HONESTY = "honesty at "  # the ceiling of an answer form, before the accuracy


def oracle_setup(spec: str, reward: Reward | None = None) -> Setup:
    """A reward, by default the one that the spec names, with oracles for the resources that it still lacks.

    Raises:
        ConfigError: as `load_reward`, or a resource for which there is no oracle.
    """
    reward = load_reward(stand_in(spec)[0]) if reward is None else reward
    oracles = oracle_resources()
    unknown = [name for name in reward.missing if name not in oracles]
    if unknown:
        raise ConfigError(
            f"{spec} needs {unknown[0]!r}, for which the battery has no oracle{nearest(unknown[0], oracles)} "
            f"(it has: {', '.join(oracles)}); supply it with .with_({unknown[0]}=…), or name a --judge"
        )
    reward = reward.with_(**{name: oracles[name] for name in reward.missing})
    return Setup(spec, reward, form_of(spec, reward), length_of(spec, reward), NAME)


def stand_in(spec: str) -> tuple[str, str]:
    """The reward that is tried in place of a main one that cannot be, and why; itself where it can be."""
    paper, variant = split_spec(spec)
    other = None if variant else paper_of(spec).stand_in
    return (f"{paper}:{other[0]}", other[1]) if other else (spec, "")


@cache
def weaknesses() -> dict[str, dict[str, dict[str, str]]]:
    """Paper -> variant -> id -> why, of `weaknesses.toml`."""
    path = Path(__file__).parent / "weaknesses.toml"
    lists: dict[str, dict[str, dict[str, str]]] = {}
    for paper, rows in tomllib.loads(path.read_text("utf-8")).items():
        variants = lists.setdefault(paper, {})
        for row in rows:
            for variant in row.get("variants", [""]):
                variants.setdefault(variant, {}).update(dict.fromkeys(row["pays"], row["why"]))
    return lists


@cache
def guards() -> Mapping[str, str]:
    """Id of a policy, family or step of the order -> what closes it, of `guards.toml`."""
    rows = tomllib.loads((Path(__file__).parent / "guards.toml").read_text("utf-8"))["closes"]
    return {id_: row["by"] for row in rows for id_ in row["ids"]}


def known_failures(spec: str) -> Mapping[str, str] | None:
    """Id of a policy, family or step of the order -> why it is known to pay; printed, and no news.

    None where the paper was not tried and its file says nothing.
    """
    paper, variant = split_spec(spec)
    own = paper_of(spec).weaknesses
    lists = weaknesses().get(paper) if own is None else own
    return None if lists is None else lists.get(variant, lists.get("", {}))


@dataclass(frozen=True)
class Cell:
    """What a reward gave to the texts of one policy, or of one honest answer.

    Attributes:
        means: question -> mean reward of its paraphrases that were graded; None where none was.
        masked, texts: how many could not be graded, of how many.
        causes: why texts were masked or floored, by number.
        text: the one with the highest reward.
    """

    means: Mapping[str, float | None]
    masked: int
    texts: int
    causes: Mapping[str, int]
    text: str

    @property
    def mean(self) -> float | None:
        """Over the questions; None when nothing was graded."""
        return _mean(self.means.values())


@dataclass(frozen=True)
class Finding:
    """One comparison: a policy with its ceiling, or an honest answer with the one above it.

    Attributes:
        id: `D07`, or `partial > abstain` for a step of the honest order.
        verdict: `known` is broken, and on the list of the paper's own failures; `repaired` on that list, and
            held; `masked`, too little was graded to say; `n/a`, it cannot be written in this form.
        mean, bound: what it earns, and what its ceiling does.
        margin: how far below the ceiling, in shares of know - wrong; negative when above.
        prompts: questions on which the order holds, of those that could be compared.
        masked: texts that could not be graded, of how many.
        why: of a known failure.
        answer, abstention: what the best honest answer earns, at the same accuracy, and the best abstention.
        guard: what closes it, where it is broken or known.
    """

    id: str
    name: str
    verdict: Verdict
    ceiling: str
    mean: float | None = None
    bound: float | None = None
    margin: float | None = None
    prompts: tuple[int, int] = (0, 0)
    masked: tuple[int, int] = (0, 0)
    why: str = ""
    text: str = ""
    answer: float | None = None
    abstention: float | None = None

    @property
    def guard(self) -> str:
        return guards()[self.id] if self.verdict in ("broken", "known") else ""


@dataclass(frozen=True)
class StressReport:
    """The cells of the honest answers, and the comparisons of their order, the policies and the options."""

    setup: Setup
    cells: Mapping[str, Cell]
    order: Sequence[Finding]
    findings: Sequence[Finding]
    options: Sequence[Finding] = ()

    def of(self, *verdicts: str) -> list[Finding]:
        """The comparisons with these verdicts, the honest order first."""
        return [finding for finding in self.every if finding.verdict in verdicts]

    @property
    def every(self) -> Sequence[Finding]:
        return (*self.order, *self.findings, *self.options)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def chosen(ids: Sequence[str]) -> tuple[list[Policy], list[Family]]:
    """The policies and the families of answer forms with these ids, all by default; `D01-D09` is a range.

    Raises:
        ConfigError: there is none of that id.
    """
    known = {id_: row for id_, row in {**battery(), **families()}.items() if id_ not in HONEST_ANSWERS}
    names, wanted = list(known), list[str]()
    for word in ids:
        first, dash, last = word.strip().upper().partition("-")
        for name in (first, last) if dash else (first,):
            if name not in known:
                there = "(there are: D01 to D37 and F01 to F18)"
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
) -> StressReport:
    """Score the honest answers and the policies, and compare.

    Args:
        ids: as of `chosen`.
        known: failures that are no news, by id, with the reason; by default the list of the paper.
        on_done: called with the id of each policy and family that is done.

    Raises:
        ConfigError: no such policy.
        RewardBug: the reward raised something other than `Unscored`.
    """
    hacks, forms = chosen(ids)
    known = known_failures(setup.spec) or {} if known is None else known
    cells: dict[str, Cell] = {}
    for kind in HONEST_ANSWERS:
        cells[kind] = cell_of(setup, battery()[kind])
        on_done(kind)
    silent = [mean for kind in ("abstain", "partial") if (mean := cells[kind].mean) is not None]
    honest: dict[str, Any] = {"answer": cells["know"].mean, "abstention": max(silent, default=None)}
    findings = []
    for policy in hacks:
        finding = Finding(policy.id, policy.name, "n/a", policy.ceiling)
        if not (policy.thinks and setup.form == "text"):
            named, strict = (policy.id, policy.name), policy.ceiling in STRICT
            finding = compare(named, cell_of(setup, policy), policy.ceiling, cells, known, strict)
        findings.append(replace(finding, **honest))
        on_done(policy.id)
    pay, options = honest_pay(setup) if forms else {}, []
    for family in forms:
        options.append(_of_family(setup, family, pay, known))
        on_done(family.id)
    order = []
    for upper, lower in pairwise(HONEST_ANSWERS):
        strict = lower != "floored"
        named = f"{upper} {'>' if strict else '>='} {lower}", ""
        step = compare(named, cells[lower], upper, cells, known, strict)
        order.append(replace(step, **honest))
    return StressReport(setup, cells, order, findings, options)


def cell_of(setup: Setup, policy: Policy) -> Cell:
    """The rewards of what a policy says to each question, in each paraphrase."""
    texts = [
        (p, policy.text(p, way, setup.form, setup.length)) for p in setup.chosen for way in range(setup.ways)
    ]
    results = setup.results(texts)
    paid = [result.value for result in results]
    best = max(range(len(paid)), key=lambda n: -inf if (value := paid[n]) is None else value)
    causes = Counter(f"{result.state}: {result.cause}" for result in results if result.cause)
    means = {p.id: _mean(paid[at * setup.ways : (at + 1) * setup.ways]) for at, p in enumerate(setup.chosen)}
    return Cell(means, paid.count(None), len(texts), dict(causes.most_common()), texts[best][1])


def compare(
    named: tuple[str, str],
    cell: Cell,
    ceiling: str,
    cells: Mapping[str, Cell],
    known: Mapping[str, str],
    strict: bool,
) -> Finding:
    """One cell against its ceiling among the honest answers, which it may equal unless `strict`."""
    (id_, name), bound = named, cells[ceiling]
    know, wrong = cells["know"].mean, cells["wrong"].mean
    # know - wrong, or 1 where that is nothing to measure by
    scale = know - wrong if know is not None and wrong is not None and know - wrong > SAME else 1.0
    mean, most = cell.mean, bound.mean
    gaps = [b - a for q, a in cell.means.items() if a is not None and (b := bound.means.get(q)) is not None]
    enough = SAME if strict else -SAME
    good = sum(gap > enough for gap in gaps)
    margin = None if mean is None or most is None else (most - mean) / scale
    if margin is None or not gaps:
        verdict: Verdict = "masked"
    else:
        broken = margin <= enough / scale or good < PROMPTS_HELD * len(gaps)
        graded = 1 - max(one.masked / one.texts for one in (cell, bound))
        verdict = verdict_of(broken, graded, id_ in known)
    counts = (good, len(gaps)), (cell.masked, cell.texts)
    return Finding(id_, name, verdict, ceiling, mean, most, margin, *counts, known.get(id_, ""), cell.text)


def _of_family(
    setup: Setup, family: Family, honest: Mapping[str, Honest], known: Mapping[str, str]
) -> Finding:
    """The worst form of a family against honesty."""
    option, prompts, masked = worst_of(setup, family, honest)
    if option is None:
        return Finding(family.id, family.name, "masked", "", masked=masked)
    pay, at = option.honest, option.at if family.right else 0.0
    scale = pay.right - pay.wrong
    return Finding(
        family.id,
        family.name,
        verdict_of(option.broken, 1 - masked[0] / masked[1], family.id in known),
        ceiling=f"{HONESTY}{at:.0%}",
        mean=option.earned,
        bound=option.bound,
        margin=(option.bound - option.earned) / (scale if scale > SAME else 1.0),
        prompts=prompts,
        masked=masked,
        why=known.get(family.id, ""),
        text=option.text,
        answer=earned(pay.right, pay.wrong, at),
        abstention=pay.abstention,
    )


def verdict_of(broken: bool, graded: float, known: bool) -> Verdict:
    """The verdict on a comparison, given the share of its texts that were graded."""
    if broken:
        return "known" if known else "broken"
    if graded < GRADED:
        return "masked"
    return "repaired" if known else "held"


def broken(
    reward: Reward, *ids: str, questions: int = 20, known: Mapping[str, str] | None = None
) -> list[str]:
    """One line for each policy, family or step of the honest order that is not held; none when all is well.

    Args:
        reward: yours; resources that it lacks are oracles.
        ids: policies and families of answer forms, `D01-D09` is a range; all by default.
        questions: how many of the twenty; fewer are faster and see less.
        known: failures that you accept, by id, with the reason.

    >>> broken(fx.load_reward("robust"), "D25", questions=1)
    []

    Raises:
        ConfigError: no such policy, or a resource for which there is no oracle.
    """
    setup = replace(oracle_setup(reward.name, reward), questions=questions)
    return [line_of(finding) for finding in run_battery(setup, ids, known=known or {}).of("broken", "masked")]


def line_of(finding: Finding) -> str:
    """A comparison that is not held, in one line: what is paid, what honesty earns, and a text."""
    (masked, texts), (good, count) = finding.masked, finding.prompts
    if finding.verdict == "masked":
        return f"masked: {finding.id}: {masked} of {texts} texts could not be graded"
    name = f"{finding.id} {finding.name}".strip()
    earns = f"it earns {finding.mean:.3f}"
    if finding.ceiling.startswith(HONESTY):
        accuracy = finding.ceiling.removeprefix(HONESTY)
        honest = f"the bare answer {finding.answer:.3f} and an abstention {finding.abstention:.3f}"
        details = f"a free option: right {accuracy} of the time {earns}, {honest}"
        if accuracy == "0%":
            details = f"no answer, and right: {earns}, {honest} when one knows nothing"
    else:
        details = f"{earns}, {finding.ceiling} {finding.bound:.3f}; held on {good} of {count} questions"
    return f"{finding.verdict}: {name}: {details}: {one_line(finding.text[:160])}"
