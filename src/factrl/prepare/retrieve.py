"""Passages beside questions, as a policy is shown them: helpful ones, others, and none that helps.

A policy that always finds the answer among its documents never learns to decline.  So passages of other
questions can be mixed in, and a share of the questions can lose every passage that holds an accepted answer,
where others of the index move up.  A passage *helps* where an accepted answer stands in it word for word
(`factrl.text.answers.contains`): a rule, which takes a name in another context for help and misses a
paraphrase.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factrl.errors import DataError
from factrl.llm.background import wait_for
from factrl.text.answers import contains
from factrl.types import Example, Passage
from factrl.verifier.search import Search

_DEEPER = 4  # times k that are looked through for passages without an answer
_TRIES = 20  # draws for a distractor, of which most can be taken


def retrieve(
    pairs: Sequence[tuple[Mapping[str, Any], Example]],
    search: Search | None,
    k: int,
    *,
    distractors: int = 0,
    withhold: float = 0.0,
    seed: int = 0,
    column: str = "evidence",
    on_done: Callable[[], object] = lambda: None,
) -> tuple[list[Mapping[str, Any]], Counter[str]]:
    """Rows with their passages in `column` and in `helps` whether one of them holds an accepted answer.

    Passages that a question brings along are kept.  `helps` is null where there is no accepted answer.

    Args:
        pairs: a row of the data and the example read from it.
        k: passages of a question that brings none.
        distractors: passages of other questions for each, none with an accepted answer of this one, at random
            places among the others.
        withhold: share of the questions that lose every passage with an accepted answer; which ones depends
            on the seed and their ids alone.

    Returns:
        The rows and how many are `own` (brought passages), `none` (have none), `withheld`, and `helps`.

    Raises:
        DataError: passages must be searched for, and there is no search.
        Unscored: the search failed.
    """
    bare = [example.id for _, example in pairs if not example.evidence]
    if bare and search is None:
        raise DataError(
            f"{len(bare)} of {len(pairs)} questions bring no passages, first {bare[0]!r}; give --index"
        )
    shown_passages, counts = list[tuple[Passage, ...]](), Counter[str]()
    for _, example in pairs:
        passages = example.evidence or _search(search, example, k)
        counts["own"] += bool(example.evidence)
        if example.answers and random.Random(f"withhold {seed} {example.id}").random() < withhold:
            counts["withheld"] += _helps(passages, example)
            more = passages if example.evidence else _search(search, example, _DEEPER * k)
            passages = tuple(passage for passage in more if not _helps([passage], example))[
                : max(k, len(passages))
            ]
        shown_passages.append(passages)
        on_done()
    pool = [passage for passages in shown_passages for passage in passages]
    rows = list[Mapping[str, Any]]()
    for (row, example), passages in zip(pairs, shown_passages, strict=True):
        shown = _mixed(passages, example, pool, distractors, random.Random(f"mix {seed} {example.id}"))
        helps = _helps(shown, example) if example.answers else None
        counts.update(none=not shown, helps=bool(helps))
        if not example.evidence or shown != example.evidence:
            evidence = [{"title": one.title, "text": one.text, "source": one.source} for one in shown]
            row = {**row, column: evidence}
        rows.append({**row, "helps": helps})
    return rows, counts


def _search(search: Any, example: Example, k: int) -> tuple[Passage, ...]:
    passages = search.search(example.question, k)
    return tuple(passages if isinstance(passages, list) else wait_for(passages))


def _helps(passages: Sequence[Passage], example: Example) -> bool:
    return any(contains(f"{one.title}\n{one.text}", example.answers) is not None for one in passages)


def _mixed(
    passages: Sequence[Passage], example: Example, pool: Sequence[Passage], count: int, draw: random.Random
) -> tuple[Passage, ...]:
    """The passages in their order with `count` of the pool between them; fewer where too few can be taken."""
    shown, own = list(passages), {passage.text for passage in passages}
    for _ in range(count * _TRIES if pool else 0):
        other = draw.choice(pool)
        if len(shown) == len(passages) + count:
            break
        if other.text not in own and not _helps([other], example):
            own.add(other.text)
            shown.insert(draw.randint(0, len(shown)), other)
    return tuple(shown)
