"""Questions of several sources as one training set: FSPO's, and unanswerable questions among others.

FSPO (arXiv:2505.24630) trains on HotpotQA and 2WikiMultiHopQA with their gold paragraphs, and on mathematics.
Its release (nusnlp/FSPO 7f5e4f9) has 1,112 questions of HotpotQA and 888 of 2Wiki, which R1-Searcher chose,
and 8,523 of MATH, which SimpleRL chose.  Here those of the first two are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.evals.catalogue import is_hopeless, paragraphs
from factrl.prepare import Sieve
from factrl.runs.data import to_example, unpacked
from factrl.runs.rows import Row
from factrl.text.abstention import abstains
from factrl.types import Example

FACTS = (1112, 888)
"""Questions of HotpotQA and of 2Wiki in the release."""
MATHEMATICS = "mathematics"
DECLINES = ("I don't know", "I do not know")
"""The accepted answers of a question that nobody can answer."""


def mix_fspo(
    sources: Mapping[str, tuple[str, Iterable[Row]]], facts: int, seed: int, sieve: Sieve
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows of all sources in an order that is drawn, and how many each has; none is in an evaluation set.

    Args:
        sources: where they are from, for an error, and the rows of HotpotQA and of 2Wiki, as released or with
            `evidence`, and of mathematics, all of which is taken.
        facts: questions of the first two together, in the release's proportion.

    Raises:
        DataError: a row without question or answer, or one of the first two without evidence.
    """
    draw, mixed, counts = random.Random(seed), list[dict[str, Any]](), dict[str, int]()
    first = round(facts * FACTS[0] / sum(FACTS))
    for (name, source), wanted in zip(sources.items(), (first, facts - first, None), strict=False):
        chosen = [row for row in _read(name, *source) if sieve.found_in(row["question"]) is None]
        chosen = chosen if wanted is None else draw.sample(chosen, min(wanted, len(chosen)))
        counts[name] = len(chosen)
        mixed += chosen
    draw.shuffle(mixed)
    return mixed, counts


def _read(name: str, file: str, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows, start=1):
        at = f"{file}, row {number}"
        example = to_example(row if name == MATHEMATICS else _gold(row, at), at=at)
        evidence = [{"title": one.title, "text": one.text} for one in example.evidence]
        lacks = [
            what for what, there in (("question", example.question), ("answer", example.answers)) if not there
        ]
        lacks += ["evidence"] if name != MATHEMATICS and not evidence else []
        if lacks:
            raise DataError(f"{at} has no {' and no '.join(lacks)}; columns: {', '.join(row)}")
        columns = {"id": f"{name}-{example.id or number}", "data_source": name, "question": example.question}
        yield {**columns, "answers": [*example.answers], **({"evidence": evidence} if evidence else {})}


def _gold(row: Row, at: str) -> Row:
    """The row with the paragraphs alone that its answer needs, where it says which."""
    row = paragraphs(row, at) if "context" in row else row
    passages = unpacked(row.get("evidence"))
    if not isinstance(passages, list):
        return row
    left_out = [isinstance(one, Mapping) and one.get("is_supporting") is False for one in passages]
    return {**row, "evidence": [one for one, out in zip(passages, left_out, strict=True) if not out]}


def unanswerable(examples: Iterable[Example], *, every: bool = False) -> list[Example]:
    """Those that nobody can answer, with `DECLINES` as their accepted answers and `answerable` false.

    Args:
        every: take all that do not say whether they are `answerable`; else those of them without an answer.
    """
    return [
        replace(
            one,
            id=f"unanswerable-{one.id}",
            answers=DECLINES,
            ook=None,
            meta={**one.meta, "answerable": False},
        )
        for one in examples
        if is_hopeless(one)
        or (one.meta.get("answerable") is None and (every or all(map(abstains, one.answers))))
    ]


def mix_unanswerable(
    examples: Sequence[Example], pool: Sequence[Example], share: float, seed: int, source: str
) -> tuple[list[Example], int]:
    """All examples and so many of the pool that they are this share, in an order that is drawn.

    Args:
        source: where the pool is from, for the error.

    Returns:
        The mix and how many of it are of the pool.

    Raises:
        ConfigError: the pool is too small.
    """
    count = max(1, round(len(examples) * share / (1 - share)))
    if count > len(pool):
        raise ConfigError(
            f"--share {share:g} beside {len(examples)} questions takes {count} unanswerable ones, and "
            f"{source} has {len(pool)}: give more, fewer questions (--limit), or a lower share"
        )
    draw = random.Random(seed)
    mixed = [*examples, *draw.sample(pool, count)]
    draw.shuffle(mixed)
    return mixed, count
