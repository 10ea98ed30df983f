"""Rows that teach a model to answer as `factrl.rewards.checklist` and `factrl.verifier.claims.llm` read it.

What a row asks is recorded from the reader itself, so a tuned model is asked in training exactly what it will
be asked in use, and a reply that the reader could not read is no lesson.

    checklist-verifier   {question, response, items: [...], labels: [...]}, a label is consistent,
                         contradictory or missing (KLCF, arXiv:2509.23765, section 3)
    extractor            {question, response, claims: [...]}, no claims where the response has none to verify
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from factrl.errors import DataError, LLMError, Unscored
from factrl.llm import Message, Reply
from factrl.llm.background import wait_for
from factrl.rewards.checklist import MAX_ITEMS, Checklist, Item, read_checklist
from factrl.runs.rows import read_rows
from factrl.train.tuning.claim_rows import group_of, names_of
from factrl.verifier.claims import LLMClaims
from factrl.verifier.claims.marks import normalised
from factrl.verifier.claims.replies import read_facts

Style = Literal["factscore", "veriscore"]
_NONE = {"factscore": "NO FACTS", "veriscore": "No verifiable claim."}
_LABELS: tuple[str, ...] = get_args(Item)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One prompt with the reply that a reader takes.

    Attributes:
        id: unique among all files.
        asked: the user's message.
        reply: what the model should answer.
        question, response: what the reader is given.
        told: the items, or the claims.
        labels: one for each item; empty for an extractor.
        group, source: the document it is from, and its file.
    """

    id: str
    asked: str
    reply: str
    question: str
    response: str
    told: tuple[str, ...]
    labels: tuple[str, ...]
    group: str
    source: str

    @property
    def words(self) -> str:
        """What it says, for finding the same again."""
        return f"{normalised(self.question)}\n{normalised(self.response)}"


def checklist_lessons(files: Sequence[str]) -> tuple[list[Lesson], Counter[str]]:
    """Lessons for a checklist verifier, and how many rows were left out, by reason.

    Raises:
        DataError: a row without a response, items and as many labels, or with a label that is none.
    """
    return _lessons(files, _checked)


def extractor_lessons(files: Sequence[str], style: Style) -> tuple[list[Lesson], Counter[str]]:
    """Lessons for an extractor that is asked once per response, and how many rows were left out, by reason.

    Raises:
        DataError: a row without a response or a list of claims, or with a claim that no line can hold.
    """
    return _lessons(files, lambda row, where: _extracted(row, where, style))


def _lessons(files: Sequence[str], make: Any) -> tuple[list[Lesson], Counter[str]]:
    found: list[Lesson] = []
    left_out: Counter[str] = Counter()
    for source in names_of(files):
        for number, row in enumerate(read_rows(source), start=1):
            where = f"{source}, row {number}"
            made = make(row, where)
            if isinstance(made, str):
                left_out[made] += 1
                continue
            id_ = f"{source}:{number}"
            found.append(Lesson(id=id_, group=group_of(row, id_), source=source, **made))
    if not found:
        raise DataError(f"{', '.join(map(str, files))}: no row can be learnt from ({dict(left_out)})")
    return found, left_out


def _checked(row: Mapping[str, Any], where: str) -> dict[str, Any] | str:
    question, response = _texts(row, where)
    items, labels = (_list_of(row.get(name)) for name in ("items", "labels"))
    if not items or len(items) != len(labels):
        raise DataError(f"{where} needs `items`, a list of texts, and `labels`, one for each")
    labels = [label.strip().lower() for label in labels]
    wrong = next((label for label in labels if label not in _LABELS), None)
    meant = dict(zip(items, labels, strict=True))
    if wrong is not None or any(meant[i] != label for i, label in zip(items, labels, strict=True)):
        problem = f"has the label {wrong!r}" if wrong else "has two labels for the same item"
        raise DataError(f"{where} {problem}; one of {', '.join(_LABELS)} for each item")
    recorder = _Recorder()
    asked = recorder.of(lambda: Checklist(recorder)(question, response, items))
    if len(meant) > MAX_ITEMS or asked is None:
        return f"nothing in it, or over {MAX_ITEMS} items"
    data = json.loads(asked.rsplit("\n", 2)[1])["items"]
    # A made-up item that the reader adds is last, and no response says it.
    words = [*(meant[item] for item in meant), *["missing"] * (len(data) - len(meant))]
    ids = [one["id"] for one in data]
    reply = "\n".join(json.dumps({"id": i, "verdict": w}) for i, w in zip(ids, words, strict=True))
    read_checklist(reply, ids)
    told, labels = tuple(meant), tuple(meant.values())
    return _row(asked, reply, question, response, told, labels)


def _extracted(row: Mapping[str, Any], where: str, style: Style) -> dict[str, Any] | str:
    question, response = _texts(row, where)
    claims = row.get("claims")
    if not isinstance(claims, (list, tuple)) or not all(isinstance(claim, str) for claim in claims):
        raise DataError(f"{where} needs `claims`, a list of texts, which may be empty")
    claims = [" ".join(claim.split()) for claim in claims if claim.strip()]
    recorder = _Recorder()
    reader = LLMClaims(recorder, style, "response")
    asked = recorder.of(lambda: wait_for(reader(response, question)))
    if asked is None:
        return "nothing in it"
    reply = "\n".join(f"- {claim}" for claim in claims) or _NONE[style]
    try:
        read = read_facts(reply)
    except Unscored as error:
        raise DataError(f"{where}: its claims make no list that can be read: {error.detail}") from error
    if len(read) != len(claims):
        raise DataError(
            f"{where}: {len(claims)} claims are read as {len(read)}; a claim must not end in a colon"
        )
    return _row(asked, reply, question, response, tuple(claims), ())


def _row(
    asked: str, reply: str, question: str, response: str, told: tuple[str, ...], labels: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "asked": asked,
        "reply": reply,
        "question": question,
        "response": response,
        "told": told,
        "labels": labels,
    }


def _texts(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    question, response = (row.get(name) for name in ("question", "response"))
    question = question or row.get("prompt") or row.get("query") or ""
    if not isinstance(response, str) or not response.strip() or not isinstance(question, str):
        raise DataError(f"{where} needs a `response`, and its `question` as text")
    return question, response


def _list_of(value: Any) -> list[str]:
    """The list, empty where it is none of texts."""
    sound = isinstance(value, (list, tuple)) and all(isinstance(one, str) and one.strip() for one in value)
    return list(value) if sound else []


class _Recorder:
    """An LLM that keeps the first message that it is asked, and answers nothing."""

    identity = "recorder"

    def __init__(self) -> None:
        self._asked: list[str] = []

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        self._asked.append(messages[-1]["content"])
        raise LLMError(self.identity)

    def of(self, call: Any) -> str | None:
        """What `call` asks; None when it asks nothing."""
        try:
            call()
        except LLMError as error:
            if error.cause != self.identity:
                raise
        return self._asked[0] if self._asked else None
