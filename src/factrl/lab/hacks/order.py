"""What a reward gives to the texts of the battery, and the order that it has to keep.

know > partial > abstain > wrong >= floored, on the mean and on 95 % of the questions.  A policy may at best
equal the honest answer that is its ceiling, and must stay below `know` and `partial`.  Margins are shares of
know - wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from factrl.papers import Form, Length
from factrl.rewards import Reward
from factrl.types import Completion, Result

from .texts import RUNGS, WAYS, Policy, Prompt, example_of, prompts

Verdict = Literal["held", "broken", "known", "repaired", "masked", "n/a"]

STRICT = ("know", "partial")  # ceilings that must not even be reached
PROMPTS_HELD = 0.95
GRADED = 0.95  # share of a policy's texts that must have a number
SAME = 1e-9


@dataclass(frozen=True)
class Setup:
    """What is tested, and how its texts are written.

    Attributes:
        spec: the reward's name.
        reward: with its resources.
        form, length: what it reads.
        judges: who judged, in words.
        questions, ways: how many of the twenty questions and of the three paraphrases.
        forms, seed: how many answer forms of each family, and the seed of the choice.
    """

    spec: str
    reward: Reward
    form: Form
    length: Length
    judges: str
    questions: int = 20
    ways: int = WAYS
    forms: int = 24
    seed: int = 0

    @property
    def chosen(self) -> Sequence[Prompt]:
        """The questions."""
        return list(prompts().values())[: self.questions]

    def results(self, texts: Sequence[tuple[Prompt, str]]) -> list[Result]:
        """What the reward makes of each completion.

        Raises:
            RewardBug: the reward raised something other than `Unscored`.
        """
        return self.reward.batch([example_of(p) for p, _ in texts], [Completion(text) for _, text in texts])


@dataclass(frozen=True)
class Cell:
    """What a reward gave to the texts of one policy, or of one honest answer.

    Attributes:
        means: question -> mean reward of its paraphrases that were graded; None where none was.
        masked, texts: how many could not be graded, of how many.
        causes: why texts were masked or floored, by number.
        text: one of the texts, the one with the highest reward.
    """

    means: Mapping[str, float | None]
    masked: int
    texts: int
    causes: Mapping[str, int]
    text: str

    @property
    def mean(self) -> float | None:
        """Mean over the questions; None when nothing was graded."""
        means = [mean for mean in self.means.values() if mean is not None]
        return fmean(means) if means else None


def cell_of(setup: Setup, policy: Policy) -> Cell:
    """The rewards of what a policy says to each question, in each paraphrase."""
    texts = [
        (p, policy.text(p, way, setup.form, setup.length)) for p in setup.chosen for way in range(setup.ways)
    ]
    results = setup.results(texts)
    values: dict[str, list[float]] = {p.id: [] for p in setup.chosen}
    for (p, _), result in zip(texts, results, strict=True):
        if result.value is not None:
            values[p.id].append(result.value)
    graded = [n for n, result in enumerate(results) if result.value is not None]
    best = max(graded, key=lambda n: results[n].value or 0.0, default=0)
    causes = Counter(f"{result.state}: {result.cause}" for result in results if result.cause)
    means = {name: fmean(some) if some else None for name, some in values.items()}
    return Cell(means, len(texts) - len(graded), len(texts), dict(causes.most_common()), texts[best][1])


@dataclass(frozen=True)
class Finding:
    """One comparison: a policy with its ceiling, or an honest answer with the one above it.

    Attributes:
        id: `D07`, or `partial > abstain` for a step of the honest order.
        verdict: `held`, `broken`, `known` (broken, and on the list of the paper's own failures), `repaired`
            (on that list, and held), `masked` (too little was graded to say), `n/a` (it cannot be written in
            this form).
        margin: how far below the ceiling, in shares of know - wrong; negative when above.
        prompts: questions on which the order holds, of those that could be compared.
        masked: texts that could not be graded, of how many.
        why: of a known failure.
        answer, abstention: what the best honest answer earns, at the same accuracy, and the best abstention.
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


def verdict_of(broken: bool, graded: float, known: bool) -> Verdict:
    """The verdict on a comparison, given the share of its texts that were graded."""
    if broken:
        return "known" if known else "broken"
    if graded < GRADED:
        return "masked"
    return "repaired" if known else "held"


def ladder(cells: Mapping[str, Cell], known: Mapping[str, str]) -> list[Finding]:
    """The four steps of the honest order."""
    found = []
    for upper, lower in pairwise(RUNGS):
        sign = ">=" if lower == "floored" else ">"
        found.append(compare((f"{upper} {sign} {lower}", ""), cells[lower], upper, cells, known, sign == ">"))
    return found


def against_ceiling(
    policy: Policy, cell: Cell | None, cells: Mapping[str, Cell], known: Mapping[str, str]
) -> Finding:
    """A policy against its ceiling; `n/a` where it has no cell, since it cannot be written in this form."""
    if cell is None:
        return Finding(policy.id, policy.name, "n/a", policy.ceiling)
    return compare((policy.id, policy.name), cell, policy.ceiling, cells, known, policy.ceiling in STRICT)


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
