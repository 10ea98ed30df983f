"""Two evaluations of the same questions side by side: what changed, and whether that is more than chance.

Only questions that were graded in both count; the same ones carry every difference (paired bootstrap), and
McNemar's exact test says how likely the changes between right and not right are if neither side is better.

Whose answers a judge prefers is asked in both orders, as a judge favours a place as much as an answer: a win
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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from factrl.errors import DataError, Unscored
from factrl.evals.longform import compare_long, rows_of
from factrl.evals.metrics import OUTCOME_STATISTICS, Interval, bootstrap, bootstraps
from factrl.evals.numbers import mean_value, shares, usual_question
from factrl.evals.prompts import final_part
from factrl.evals.samples import Row, by_question
from factrl.evals.suite import Output
from factrl.llm import LLM, Reply
from factrl.llm.quoting import forges, quoted_message
from factrl.llm.store import Store, kept, readable
from factrl.rewards.grading import read_verdict
from factrl.rewards.preference import PAIR_PROMPT, guarded
from factrl.text import MAX_PAYLOAD
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


@dataclass(frozen=True)
class Paired:
    """One benchmark in two evaluations, after minus before.

    Attributes:
        n: questions graded in both; as in the numbers of each, without those that rest on a false premise
            or that nobody can answer.
        left_out: other such questions, that are in one only, or could not be graded in one.
        differences: by metric; None where it is undefined.
        fixed, broken: questions whose first answer was not right and is, and the other way round.
        p: McNemar's exact two-sided p-value of these two; None without single labelled answers.
        changed: pairs of answers to any question with another label, in the order of `_ORDER`.
        notes: what makes the two hard to compare.
    """

    name: str
    n: int
    left_out: int
    differences: Mapping[str, Interval | None]
    fixed: int
    broken: int
    p: float | None
    changed: Sequence[tuple[Row, Row]]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        found = {
            name: None if one is None else {"value": one.value, "low": one.low, "high": one.high}
            for name, one in self.differences.items()
        }
        return {
            "n": self.n,
            "left_out": self.left_out,
            "differences": found,
            "fixed": self.fixed,
            "broken": self.broken,
            "mcnemar_p": self.p,
            "changed": [
                {"id": after.example.id, "number": after.number, "before": before.label, "after": after.label}
                for before, after in self.changed
            ],
            "notes": list(self.notes),
        }


def compare_outputs(before: Output, after: Output) -> list[Paired]:
    """Every benchmark that is in both.

    Raises:
        DataError: there is none, or the two share no question.
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


def mcnemar(fixed: int, broken: int) -> float:
    """The exact two-sided p-value of so many changes each way, if both ways are equally likely."""
    n, few = fixed + broken, min(fixed, broken)
    tail = sum(math.comb(n, k) for k in range(few + 1))
    return min(1.0, 2 * tail / 2**n)


def _paired(name: str, before: Output, after: Output) -> Paired:
    sides = [by_question(side.samples.get(name, ())) for side in (before, after)]
    if any(one.claims for side in sides for group in side.values() for one in group):
        return _long(name, before, after)
    graded = [
        key for key in sides[0] if key in sides[1] and all(any(s.label for s in side[key]) for side in sides)
    ]
    odd = {key for side in sides for key, group in side.items() if not all(map(usual_question, group))}
    every = [key for key in {**sides[0], **sides[1]} if key not in odd]
    both = [key for key in graded if key not in odd]
    first, second = ([side[key] for key in both] for side in sides)
    firsts, seconds = ([side[key] for key in graded] for side in sides)
    differences: dict[str, Interval | None] = {}
    if both:
        shown = {*before.numbers(name), *after.numbers(name)}
        statistics = {metric: one for metric, one in OUTCOME_STATISTICS.items() if metric in shown}
        differences = bootstraps(shares(second), statistics, before=shares(first))
    differences |= _values(firsts, seconds)
    single = bool(both) and all(len(group) == 1 for group in (*first, *second))
    right = [[group[0].label == "correct" for group in side] for side in (first, second)]
    moves = list(zip(*right, strict=True)) if single else []
    fixed, broken = moves.count((False, True)), moves.count((True, False))
    return Paired(
        name,
        len(both),
        len(every) - len(both),
        differences,
        fixed,
        broken,
        mcnemar(fixed, broken) if single else None,
        _changed(firsts, seconds),
        _notes(name, before, after),
    )


def _long(name: str, before: Output, after: Output) -> Paired:
    numbers = before.numbers(name)
    ks = [int(key.removeprefix("f1@")) for key in numbers if key.startswith("f1@") and "/" not in key]
    found = compare_long(rows_of(before.samples[name]), rows_of(after.samples[name]), ks[0] if ks else 32)
    notes = _notes(name, before, after)
    return Paired(name, found.n, found.left_out, found.differences, 0, 0, None, (), notes)


def _values(first: Sequence[Sequence[Row]], second: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Differences of the numbers that single answers have, on the questions where both have them."""
    found: dict[str, Interval | None] = {}
    every = (one for groups in (first, second) for group in groups for one in group)
    for metric in dict.fromkeys(name for one in every for name in one.values if name != "mc1"):
        means = [
            (mean_value(one, metric), mean_value(other, metric))
            for one, other in zip(first, second, strict=True)
        ]
        known = np.array([pair for pair in means if None not in pair], dtype=float).reshape(-1, 2)
        found[metric] = bootstrap(known[:, 1], before=known[:, 0]) if len(known) else None
    return found


def _changed(first: Sequence[Sequence[Row]], second: Sequence[Sequence[Row]]) -> list[tuple[Row, Row]]:
    pairs = [(one[0], other[0]) for one, other in zip(first, second, strict=True)]
    rank: Callable[[tuple[Row, Row]], int] = lambda pair: _ORDER.index(_move(pair))  # noqa: E731
    return sorted((pair for pair in pairs if _move(pair) in _ORDER), key=rank)


def _move(pair: tuple[Row, Row]) -> Any:
    return pair[0].label, pair[1].label


def _notes(name: str, before: Output, after: Output) -> list[str]:
    """What differs between the two beside the model."""
    told = {
        "prompt_hash": "they were asked with different prompts",
        "asked_for": "one chose by likelihood, the other by letter",
        "source": "their questions are from different sources",
        "judge": "they were graded by different judges",
    }
    first, second = before.benchmarks[name], after.benchmarks[name]
    notes = [about for key, about in told.items() if first.get(key) != second.get(key)]
    if before.about.get("sampling") != after.about.get("sampling"):
        notes.append("they were sampled differently")
    return notes


# -- Preference -------------------------------------------------------------------------------------

Prefer = Callable[[str, str, str], float]
"""`prefer(question, first, second)`: above 0.5 when the second answer is better, below when the first is.

Raises `Unscored` when there is no verdict.  Called from several threads.
"""

_WORDS = {"second": 1.0, "first": 0.0}
_FIRST, _SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class Duel:
    """Two answers to one prompt.

    Attributes:
        score: of the second system, averaged over the orders: 1 it wins in both, 0 it loses in both, 0.5 a
            tie; None when masked.
        favoured: when the orders disagree, the place that won in both: `first` or `second`; else None.
        cause, detail: why it is masked.
    """

    id: str
    score: float | None
    favoured: str | None = None
    cause: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WinRate:
    """How often the second system's answers are preferred.

    Attributes:
        wins, ties, losses: of the second system, among the pairs with a verdict in both orders.
        first_place, second_place: of the ties, those where the judge stuck to a place.
        masked: pairs by cause; in no other number.
        rate: mean score of the second system; None without pairs.
    """

    duels: Sequence[Duel]
    wins: int
    ties: int
    losses: int
    first_place: int
    second_place: int
    masked: Mapping[str, int]
    rate: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return {**asdict(self), "masked": dict(self.masked)}


def llm_preference(llm: LLM, *, max_tokens: int = 512, store: Store | None = None) -> Prefer:
    """A language model as the judge of two answers, told to leave facts and length out of it.

    It says "first" when neither is better, so an even pair disagrees with itself when it is turned round, and
    is a tie.

    Args:
        store: where readable replies are kept, so that none is paid for twice.

    Returns:
        A function that raises `Unscored` (`judge_unreadable`) or `LLMError` when there is no verdict.
    """

    def read(reply: Reply) -> float:
        return _WORDS[read_verdict(reply.text, _WORDS, stage="judge", request_id=reply.request_id)]

    asked = kept(llm, store, readable(read))

    def prefer(question: str, first: str, second: str) -> float:
        data = {"request": question, "first_answer": first, "second_answer": second}
        return read(asked.complete(quoted_message(PAIR_PROMPT, data), temperature=0.0, max_tokens=max_tokens))

    return prefer


def win_rate(
    examples: Sequence[Example],
    first: Sequence[str],
    second: Sequence[str],
    prefer: Prefer,
    *,
    workers: int = 16,
    on_done: Callable[[int], None] = lambda count: None,
) -> WinRate:
    """Compare two systems' answers to the same prompts.

    Args:
        examples: the prompts, each once.
        first, second: an answer of each system to each prompt, as many as prompts.
        prefer: compares two answers.
        workers: how many pairs are compared at the same time.
        on_done: called with 1 after each pair, in this thread.
    """
    pool = ThreadPoolExecutor(max(workers, 1))
    try:
        duels = []
        for one in pool.map(duel, examples, first, second, [prefer] * len(examples)):
            duels.append(one)
            on_done(1)
    finally:
        pool.shutdown(cancel_futures=True)
    scores = [one.score for one in duels if one.score is not None]
    stuck = Counter(one.favoured for one in duels)
    return WinRate(
        duels,
        wins=sum(score > 0.5 for score in scores),
        ties=scores.count(0.5),
        losses=sum(score < 0.5 for score in scores),
        first_place=stuck[_FIRST],
        second_place=stuck[_SECOND],
        masked=dict(Counter(one.cause or "" for one in duels if one.score is None).most_common()),
        rate=bootstrap(scores) if scores else None,
    )


def duel(example: Example, first: str, second: str, prefer: Prefer) -> Duel:
    """Compare one pair in both orders."""
    name = example.id or example.question
    try:
        given = _place(prefer, example.question, first, second)
        turned = 1.0 - _place(prefer, example.question, second, first)
    except Unscored as error:
        return Duel(name, None, None, error.cause, error.detail)
    favoured = None if abs(given - turned) < 1.0 else _SECOND if given else _FIRST
    return Duel(name, (given + turned) / 2.0, favoured)


def written_in_both(name: str, before: Output, after: Output) -> list[tuple[Example, str, str]]:
    """The questions with a text in both, and what each says after reasoning; nothing, if that has no end."""
    sides = [by_question(side.samples.get(name, ())) for side in (before, after)]
    found = []
    for key, group in sides[0].items():
        first, second = (side[key][0].completion if key in side else None for side in sides)
        if first is not None and second is not None:
            found.append((group[0].example, final_part(first) or "", final_part(second) or ""))
    return found


def _place(prefer: Prefer, question: str, first: str, second: str) -> float:
    """1 when the second answer wins in this order, 0 when the first does, 0.5 when neither does."""
    empty = tuple(_unreadable(text) for text in (first, second))
    if any(empty):
        return 0.5 if all(empty) else float(empty[0])
    forged = tuple(forges(text) for text in (first, second))
    if all(forged):
        return 0.5
    if forged[0]:
        value = 1.0 - guarded(lambda q, text: 1.0 - prefer(q, text, second), question, first)
    else:
        value = guarded(lambda q, text: prefer(q, first, text), question, second)
    return 0.5 if value == 0.5 else float(value > 0.5)


def _unreadable(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) > MAX_PAYLOAD or is_contentless(text)
