"""Which of two systems' answers is preferred, asked in both orders.

A judge favours a place, the first or the last, as much as an answer, so each pair is shown in both orders and
a win is one in both.  When the orders disagree the pair is a tie, and how often the judge stuck to the first
place and how often to the second is reported: a win rate over many such pairs says little.

The win rate is the mean score of the second system, 1 for a win and 0.5 for a tie, with an interval by
resampling prompts.  Tie counts half, as in the "both orders, averaged" of KLCF (arXiv 2509.23765, section 4).

Both answers were written by policies that may have learned to talk to a judge.  One that says nothing, or is
too long to be read, loses unasked against one that does not; one that imitates a verdict or a chat template
has to lose under a request that it was not written for (`factrl.rewards.preference.guarded`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from factrl.errors import ConfigError, Unscored
from factrl.evals.metrics import Interval, bootstrap, summed
from factrl.evals.prompts import final_part
from factrl.evals.samples import by_question
from factrl.evals.suite import Output
from factrl.llm import LLM, Reply
from factrl.llm.quoting import forges, quoted_message
from factrl.llm.store import Store
from factrl.llm.stored import kept, readable
from factrl.rewards.grading import read_verdict
from factrl.rewards.preference import PAIR_PROMPT, guarded
from factrl.text import MAX_PAYLOAD
from factrl.text.answers import is_contentless
from factrl.types import Example

if TYPE_CHECKING:
    from rich.table import Table

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
        disagreement: share of pairs whose two orders disagree.
    """

    duels: Sequence[Duel]
    wins: int
    ties: int
    losses: int
    first_place: int
    second_place: int
    masked: Mapping[str, int]
    rate: Interval | None
    disagreement: Interval | None

    def table(self) -> Table:
        """For a terminal."""
        from rich.table import Table
        from rich.text import Text

        n = self.wins + self.ties + self.losses
        table = Table("second against first", "value", "interval", "pairs")
        for name, found in (("win rate", self.rate), ("orders disagree", self.disagreement)):
            value, _, limits = str(found or "–").partition(" ")
            table.add_row(name, value, limits, str(n))
        for name in ("wins", "ties", "losses"):
            table.add_row(name, "", "", str(getattr(self, name)))
        kept = f"the first {self.first_place}, the second {self.second_place}"
        table.add_row("stuck to a place", "", kept, str(self.first_place + self.second_place))
        told = ", ".join(f"{cause} {count}" for cause, count in self.masked.items())
        table.add_row("masked", "", Text(told), str(sum(self.masked.values())))
        return table

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
    first: Sequence[str | None],
    second: Sequence[str | None],
    prefer: Prefer,
    *,
    workers: int = 16,
    on_done: Callable[[int], None] = lambda count: None,
) -> WinRate:
    """Compare two systems' answers to the same prompts.

    Args:
        examples: the prompts.
        first, second: an answer of each system to each prompt; None is masked.
        prefer: compares two answers.
        workers: how many pairs are compared at the same time.
        on_done: called with 1 after each pair, in this thread.

    Raises:
        ConfigError: lists of different lengths.
    """
    if not len(examples) == len(first) == len(second):
        raise ConfigError(
            f"a win rate needs two answers to each prompt; there are {len(examples)} prompts and "
            f"{len(first)} and {len(second)} answers"
        )
    pool = ThreadPoolExecutor(max(workers, 1))
    try:
        duels = []
        for one in pool.map(duel, examples, first, second, [prefer] * len(examples)):
            duels.append(one)
            on_done(1)
    finally:
        pool.shutdown(cancel_futures=True)
    return summarise_duels(duels)


def duel(example: Example, first: str | None, second: str | None, prefer: Prefer) -> Duel:
    """Compare one pair in both orders."""
    name = example.id or example.question
    if first is None or second is None:
        return Duel(name, None, None, "no_completion", "one of the answers is missing")
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


def summarise_duels(duels: Sequence[Duel]) -> WinRate:
    """What pairs come to."""
    known = [(one.id, one.score, one.favoured) for one in duels if one.score is not None]
    found = {_FIRST: 0, _SECOND: 0, **Counter(favoured for *_, favoured in known if favoured)}
    rates: list[Interval | None] = [None, None]
    if known:
        columns = np.array([[1.0, score, float(favoured is not None)] for _, score, favoured in known])
        _, sums = summed([name for name, *_ in known], columns)
        rates = [bootstrap(sums, lambda m, column=column: m[:, column] / m[:, 0]) for column in (1, 2)]
    return WinRate(
        duels,
        wins=sum(score > 0.5 for _, score, _ in known),
        ties=sum(score == 0.5 for _, score, _ in known),
        losses=sum(score < 0.5 for _, score, _ in known),
        first_place=found[_FIRST],
        second_place=found[_SECOND],
        masked=dict(Counter(one.cause or "" for one in duels if one.score is None).most_common()),
        rate=rates[0],
        disagreement=rates[1],
    )


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
