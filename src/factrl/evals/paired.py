"""Two evaluations: paired differences, what changed, and which answers a judge prefers.

What a judge prefers is asked in both orders, as a judge favours a place as much as an answer: a win
is one in both.  When the orders disagree the pair is a tie, and how often the judge stuck to the first place
and how often to the second is reported: a win rate over many such pairs says little.  The rate is the mean
score of the second system, 1 for a win and 0.5 for a tie, with an interval by resampling prompts.  Tie counts
half, as in the "both orders, averaged" of KLCF (arXiv 2509.23765, section 4).

Both answers were written by policies that may have learned to talk to a judge.  One that says nothing, or is
too long to be read, loses unasked against one that does not; one that imitates a verdict or a chat template
has to lose under a request that it was not written for (`factrl.rewards.preference.guarded`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from factrl.errors import DataError, Unscored
from factrl.evals.catalogue import plain
from factrl.evals.folder import Output
from factrl.evals.grade import final_part
from factrl.evals.metrics import OUTCOME_STATISTICS, Interval, bootstrap, compare_rows
from factrl.evals.numbers import claim_rows, outcomes, statistics, usual_question
from factrl.evals.samples import EvalSample, by_question
from factrl.llm.quoting import forges
from factrl.rewards.preference import guarded
from factrl.runs.progress import Progress
from factrl.text import MAX_PAYLOAD, bytes_of
from factrl.text.answers import is_contentless
from factrl.types import Example, Label

# Changed answers in the order in which a reader wants to see them.
_ORDER: Sequence[tuple[Label, Label]] = (
    ("correct", "incorrect"),
    ("correct", "abstained"),
    ("abstained", "incorrect"),
    ("incorrect", "correct"),
    ("incorrect", "abstained"),
    ("abstained", "correct"),
)
_NOTES = {
    "prompt_hash": "they were asked with different prompts",
    "source": "their questions are from different sources",
    "judge": "they were graded by different judges",
}
Groups = Sequence[Sequence[EvalSample]]


@dataclass(frozen=True)
class Paired:
    """One benchmark in two evaluations, after minus before.

    Attributes:
        n: questions graded in both; as in the numbers of each, without those that nobody can answer.
        left_out: other such questions, that are in one only, or could not be graded in one.
        differences: by metric; None where it is undefined.
        notes: what makes the two hard to compare.
        fixed, broken: questions whose first answer was not right and is, and the other way round.
        p: McNemar's exact two-sided p-value of these; None without single labelled answers.
        changed: pairs of answers to any question with another label, in the order of `_ORDER`.
    """

    name: str
    n: int
    left_out: int
    differences: Mapping[str, Interval | None]
    notes: Sequence[str]
    fixed: int = 0
    broken: int = 0
    p: float | None = None
    changed: Sequence[tuple[EvalSample, EvalSample]] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {
            "n": self.n,
            "left_out": self.left_out,
            "differences": {name: one and asdict(one) for name, one in self.differences.items()},
            "fixed": self.fixed,
            "broken": self.broken,
            "mcnemar_p": self.p,
            "changed": [
                {
                    "id": after.example.id,
                    "question": after.example.question,
                    "number": after.number,
                    "before": before.label,
                    "after": after.label,
                    "texts": [before.completion, after.completion],
                }
                for before, after in self.changed
            ],
            "notes": list(self.notes),
        }


def compare_outputs(before: Output, after: Output) -> list[Paired]:
    """Every benchmark that is in both.

    Raises:
        DataError: there is none, the two share no question, or an id is of two different ones.
    """
    names = [name for name in before.benchmarks if name in after.benchmarks]
    if not names:
        raise DataError(
            f"{before.folder} has {', '.join(before.benchmarks) or 'nothing'} and {after.folder} has "
            f"{', '.join(after.benchmarks) or 'nothing'}: no benchmark is in both"
        )
    pairs = [_paired(name, before, after) for name in names]
    if not any(pair.n for pair in pairs):
        raise DataError(
            f"{before.folder} and {after.folder} share no question with an answer that was graded in both"
        )
    return pairs


def _paired(name: str, before: Output, after: Output) -> Paired:
    about = [side.benchmarks[name] for side in (before, after)]
    notes = [note for key, note in _NOTES.items() if about[0].get(key) != about[1].get(key)]
    if before.about.get("sampling") != after.about.get("sampling"):
        notes.append("they were sampled differently")
    samples = _sides(name, before, after)
    if any(one.claims for side in samples for one in side):
        k = next((int(key[3:]) for key in about[0]["numbers"] if key.startswith("f1@")), 32)
        first, second = (claim_rows(side, k) for side in samples)
        rows = [(first.get(key), second.get(key)) for key in {**first, **second}]
        long = compare_rows(rows, statistics(k))
        return Paired(name, long.n, long.left_out, long.differences, notes)
    sides = [by_question(side) for side in samples]
    pairs = {key: [side.get(key, []) for side in sides] for key in {**sides[0], **sides[1]}}
    graded = {key: pair for key, pair in pairs.items() if all(map(outcomes, pair))}
    usual = {
        key for key, pair in pairs.items() if all(usual_question(one) for group in pair for one in group)
    }
    shown = {*before.numbers(name), *after.numbers(name)}
    short = compare_rows(
        [[*map(outcomes, pairs[key])] for key in pairs if key in usual],
        {metric: one for metric, one in OUTCOME_STATISTICS.items() if metric in shown},
    )
    both = [pair for key, pair in graded.items() if key in usual]
    single = bool(both) and all(len(group) == 1 for pair in both for group in pair)
    moves = [[group[0].label == "correct" for group in pair] for pair in both] if single else []
    fixed, broken = moves.count([False, True]), moves.count([True, False])
    if not short.left_out:  # the same questions, wherever they are from
        notes = [note for note in notes if note != _NOTES["source"]]
    return Paired(
        name,
        short.n,
        short.left_out,
        short.differences if both else {},
        notes,
        fixed,
        broken,
        mcnemar(fixed, broken) if single else None,
        _changed([*graded.values()]),
    )


def _sides(name: str, before: Output, after: Output) -> list[Sequence[EvalSample]]:
    """The answers of both, which are paired by the id of their question."""
    sides = [side.samples.get(name, ()) for side in (before, after)]
    check_questions(name, *([one.example for one in side] for side in sides))
    return sides


def check_questions(name: str, before: Iterable[Example], after: Iterable[Example]) -> None:
    """Refuse two different questions with one id, as two files have that number their rows.

    Raises:
        DataError: the first such id.
    """
    first, second = ({one.id: plain(one.question) for one in side} for side in (before, after))
    if differ := [key for key in first if second.get(key, first[key]) != first[key]]:
        raise DataError(
            f"{name} has different questions of one id in the two evaluations, first {differ[0]!r}, "
            f"{first[differ[0]][:80]!r} and {second[differ[0]][:80]!r} ({len(differ)} of {len(first)}); "
            "evaluate the same questions, or give each an id of its own (data.columns.id='')"
        )


def mcnemar(fixed: int, broken: int) -> float:
    """The exact two-sided p-value of so many changes each way, if both ways are equally likely."""
    n, few = fixed + broken, min(fixed, broken)
    tail = sum(math.comb(n, k) for k in range(few + 1))
    return min(1.0, 2 * tail / 2**n)


def _changed(pairs: Sequence[Groups]) -> list[tuple[EvalSample, EvalSample]]:
    firsts = [(before[0], after[0]) for before, after in pairs]
    moved = [pair for pair in firsts if (pair[0].label, pair[1].label) in _ORDER]
    return sorted(moved, key=lambda pair: _ORDER.index((pair[0].label, pair[1].label)))  # type: ignore[arg-type]


# -- Preference -------------------------------------------------------------------------------------

Prefer = Callable[[str, str, str], float]
"""`prefer(question, first, second)`: 1 when the second answer is better, 0 when the first is or neither.

Such as `factrl.rewards.preference.second_wins` with a judge.  As that says "first" when neither is better, an
even pair disagrees with itself when it is turned round, and is a tie.  Raises `Unscored` when there is no
verdict.  Called from several threads.
"""


@dataclass(frozen=True, slots=True)
class WinRate:
    """How often the second system's answers are preferred.

    Attributes:
        wins, ties, losses: of the second system, among the pairs with a verdict in both orders.
        first_place, second_place: of the ties, those where the judge stuck to a place.
        masked: pairs by cause; in no other number.
        rate: mean score of the second system; None without pairs.
    """

    wins: int
    ties: int
    losses: int
    first_place: int
    second_place: int
    masked: Mapping[str, int]
    rate: Interval | None


def win_rate(
    name: str, pairs: Sequence[tuple[Example, str, str]], prefer: Prefer, workers: int = 16
) -> WinRate:
    """Compare two systems' answers to a benchmark's prompts, each once, `workers` at the same time."""

    def compared(pair: tuple[Example, str, str]) -> tuple[float, str] | Unscored:
        try:
            return duel(*pair, prefer)
        except Unscored as error:
            return error

    masked, scores, stuck = Counter[str](), list[float](), Counter[str]()
    with Progress(f"{name}: prefer", len(pairs)) as progress, ThreadPoolExecutor(workers) as pool:
        # The first failure cancels what has not begun.
        for result in progress.over(pool.map(compared, pairs)):
            if isinstance(result, Unscored):
                masked[result.cause] += 1
            else:
                scores.append(result[0])
                stuck[result[1]] += 1
    return WinRate(
        wins=sum(score > 0.5 for score in scores),
        ties=scores.count(0.5),
        losses=sum(score < 0.5 for score in scores),
        first_place=stuck["first"],
        second_place=stuck["second"],
        masked=dict(masked.most_common()),
        rate=bootstrap(scores),
    )


def duel(example: Example, first: str, second: str, prefer: Prefer) -> tuple[float, str]:
    """Two answers to one prompt, compared in both orders.

    Returns:
        The score of the second, averaged over the orders: 1 it wins in both, 0 it loses in both, 0.5 a tie;
        and when the orders disagree the place that won in both, `first` or `second`, else "".

    Raises:
        Unscored: there is no verdict.
    """
    given = _place(prefer, example.question, first, second)
    turned = 1.0 - _place(prefer, example.question, second, first)
    favoured = "" if abs(given - turned) < 1.0 else "second" if given else "first"
    return (given + turned) / 2.0, favoured


def texts_in_both(name: str, before: Output, after: Output) -> list[tuple[Example, str, str]]:
    """The questions with a text in both, and what each says after reasoning; nothing, if that has no end."""
    sides = [by_question(side) for side in _sides(name, before, after)]
    long = before.benchmarks[name].get("kind") == "long"
    chats = [side.about.get("chat", True) for side in (before, after)]
    pairs = []
    for key, group in sides[0].items():
        texts = [side[key][0].completion if key in side else None for side in sides]
        shown = [
            final_part(text, chat=chat, long=long) or ""
            for text, chat in zip(texts, chats, strict=True)
            if text is not None
        ]
        if len(shown) == 2:
            pairs.append((group[0].example, *shown))
    return pairs


def _place(prefer: Prefer, question: str, first: str, second: str) -> float:
    """1 when the second answer wins in this order, 0 when the first does, 0.5 when neither does."""
    empty = [bytes_of(text) > MAX_PAYLOAD or is_contentless(text) for text in (first, second)]
    if any(empty):
        return 0.5 if all(empty) else float(empty[0])
    if forges(first) and forges(second):
        return 0.5
    if forges(first):
        return 1.0 - guarded(lambda q, text: 1.0 - prefer(q, text, second), question, first)
    return guarded(lambda q, text: prefer(q, first, text), question, second)
