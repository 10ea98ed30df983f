"""Claims that people have labelled, with evidence, and what a judge says of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factrl.errors import DataError
from factrl.llm.background import wait_for
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges import Judge

_TRUTH = {
    "supported": True,
    "refuted": False,
    "unsupported": False,
    "not_enough_info": False,
    "partially_supported": False,
}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A claim with its evidence and what people said.

    Attributes:
        supported: whether the evidence supports the claim.
        group: the document, prompt or person that it is from; claims of one are not independent.
    """

    id: str
    claim: str
    passages: tuple[Passage, ...]
    supported: bool
    group: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """What people and the judge say of one claim.

    Attributes:
        truth: people say that it is supported.
        said: the judge says so; None when it gave no verdict.
        group: as of `Labelled`; empty when the claim is on its own.
        cause: why there is no verdict.
    """

    truth: bool
    said: bool | None
    group: str = ""
    cause: str | None = None


def labelled(rows: Iterable[Mapping[str, Any]]) -> list[Labelled]:
    """Labelled claims of a verification set.

    Args:
        rows: with `claim`, `evidence` (a list of `title`, `text` and `source`), `label` and maybe `id` and
            `group_id`.  Rows without evidence or with a label that is neither for nor against, such as
            `irrelevant`, are left out.

    Raises:
        DataError: a column is missing, or nothing is left.
    """
    found = []
    for number, row in enumerate(rows, start=1):
        missing = [name for name in ("claim", "evidence", "label") if name not in row]
        if missing:
            raise DataError(f"row {number} has no {', '.join(missing)}; it has {', '.join(row)}")
        if row["label"] in _TRUTH and row["evidence"]:
            passages = tuple(
                Passage(part["text"], part.get("title") or "", part.get("source") or "")
                for part in row["evidence"]
            )
            name, group = row.get("id"), row.get("group_id")
            found.append(
                Labelled(
                    str(number if name is None else name),
                    row["claim"],
                    passages,
                    _TRUTH[row["label"]],
                    "" if group is None else str(group),
                )
            )
    if not found:
        raise DataError(f"no row has both evidence and a label such as {', '.join(_TRUTH)}")
    return found


def ask_judge(
    judge: Judge, rows: Sequence[Labelled], *, on_done: Callable[[int], None] | None = None
) -> list[Judged]:
    """What a judge says of labelled claims, each held against its own evidence.

    Args:
        on_done: called with the number of claims that are newly judged.
    """
    judged: list[Judged] = []
    for start in range(0, len(rows), judge.per_call):
        part = rows[start : start + judge.per_call]
        pairs = [(Claim(row.claim, 0, len(row.claim)), row.passages) for row in part]
        said = judge.judge(pairs)
        verdicts = wait_for(_result(said)) if inspect.isawaitable(said) else said
        for row, verdict in zip(part, verdicts, strict=True):
            known = None if verdict.label == "unjudged" else verdict.label == "supported"
            judged.append(
                Judged(row.supported, known, row.group, None if known is not None else verdict.cause)
            )
        if on_done is not None:
            on_done(len(part))
    return judged


async def _result(waiting: Awaitable[list[Verdict]]) -> list[Verdict]:
    return await waiting
