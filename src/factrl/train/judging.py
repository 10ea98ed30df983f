"""Rewards of one step's completions, worked out while the trainer does something else.

A completion is handed in when its text exists; its reward is asked for when an advantage needs it.  What
happens in between, the rest of the generation and forward passes, costs a remote judge's time nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby

from ..rewards import THREADS, Reward
from ..types import Completion, Example, Result


def can_judge_early(reward: Reward) -> bool:
    """Whether `reward` can be asked about one prompt's completions before the others are written.

    Not when it looks at all of them together, or at how certain the policy was, for which the policy runs.
    """
    return type(reward).batch is Reward.batch and "certainty" not in reward.resources


class Judging:
    """The rewards of one generation batch.

    A reward that asks a resource with `answer_together`, such as a `Verifier`, gets the completions of a
    prompt as one batch, when the last of them is there: that is what such a resource shares and asks once.
    Any other reward gets each completion at once.

    Args:
        reward: its resources supplied.
        examples: what each row answers; rows of one prompt are neighbours.

    Attributes:
        order: rows as they were handed in.
    """

    def __init__(self, reward: Reward, examples: Sequence[Example]) -> None:
        self.order: list[int] = []
        self._reward, self._examples = reward, examples
        together = any(hasattr(one, "answer_together") for one in reward.resources.values())
        self._mates = [mates if together else [row] for mates in neighbours(examples) for row in mates]
        self._written: dict[int, Completion] = {}
        self._answers: dict[int, Future[list[Result]]] = {}
        threads = max(1, THREADS // max(map(len, self._mates)))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="factrl-judging")

    def hand_in(self, row: int, completion: Completion) -> None:
        """The text of a row, which nothing waits for."""
        self._written[row] = completion
        self.order.append(row)
        mates = self._mates[row]
        if all(mate in self._written for mate in mates):
            self._answers[mates[0]] = self._pool.submit(self._ask, mates)

    def written(self, row: int) -> bool:
        """Whether the row was handed in."""
        return row in self._written

    def results(self, rows: Sequence[int]) -> list[Result]:
        """The results of these rows, in their order, as soon as they are all there.

        Raises:
            RewardBug: the reward's, which ends all the others.
        """
        try:
            answers = [(self._answers[self._mates[row][0]].result(), row) for row in rows]
        except BaseException:
            self.close()
            raise
        return [results[self._mates[row].index(row)] for results, row in answers]

    def close(self) -> None:
        """What was not begun is not asked any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, rows: Sequence[int]) -> list[Result]:
        pairs = [(self._examples[row], self._written[row]) for row in rows]
        if len(pairs) == 1:
            return [self._reward(*pairs[0])]
        examples, completions = zip(*pairs, strict=True)
        return self._reward.batch(examples, completions)


def neighbours(examples: Sequence[Example]) -> list[list[int]]:
    """Rows that answer the same example, one after the other, as lists of their numbers."""
    runs = groupby(range(len(examples)), key=lambda row: id(examples[row]))
    return [list(run) for _, run in runs]
