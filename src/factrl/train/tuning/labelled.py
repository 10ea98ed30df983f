"""Rows that teach the three models of KLCF (arXiv:2509.23765) to answer as factrl reads them.

    truthfulness         {claim, label}
    checklist-verifier   {question, response, items: [...], labels: [...]}, a label is consistent,
                         contradictory or missing
    extractor            {question, response, claims: [...]}, no claims where the response has none to verify

Each row becomes a question, the whole prompt of the reader, with one accepted answer, the reply that the
reader takes; what is left is `sft`.  The prompt is recorded from the reader itself, so a tuned model is asked
in training exactly what it will be asked in use, and a reply that the reader could not read is no lesson.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, get_args

from factrl.errors import DataError, LLMError, Unscored
from factrl.llm import Message, Reply
from factrl.llm.background import wait_for
from factrl.rewards.checklist import MAX_ITEMS, Checklist, Item, read_checklist
from factrl.rewards.truthfulness import TUNED_PROMPT, shown_claim
from factrl.runs.rows import read_rows
from factrl.types import Example
from factrl.verifier.claims.llm import LLMClaims, read_facts

Labelled = Literal["truthfulness", "checklist-verifier", "extractor"]
LABELLED: tuple[str, ...] = get_args(Labelled)
_TRUE, _FALSE = ("supported", "true", "1", "1.0"), ("refuted", "unsupported", "false", "0", "0.0")
_ITEM_LABELS: tuple[str, ...] = get_args(Item)

Lesson = tuple[str, str]
"""A prompt with the reply to learn."""


def load_lessons(method: str, source: str, limit: int | None = None) -> tuple[list[Example], Counter[str]]:
    """The rows of a file as questions with one answer, and how many were left out, by reason.

    Args:
        method: one of `LABELLED`.
        limit: read no more rows.

    Raises:
        DataError: no file, a row that is none of the method's, or no row (for claims: class) to learn from.
    """
    make = {"truthfulness": _claim, "checklist-verifier": _checklist, "extractor": _extraction}[method]
    lessons: list[Example] = []
    left_out: Counter[str] = Counter()
    for number, row in enumerate(islice(read_rows(source), limit), start=1):
        made = make(row, f"{source}, row {number}")
        if isinstance(made, str):
            left_out[made] += 1
        else:
            lessons.append(Example(made[0], (made[1],), id=str(number)))
    classes = {lesson.answers for lesson in lessons}
    if not lessons or (method == "truthfulness" and len(classes) < 2):
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.most_common()) or "none left out"
        needed = f"; true and false claims are needed, labels {', '.join(_TRUE)} and {', '.join(_FALSE)}"
        raise DataError(
            f"{source}: {len(lessons)} rows can be learnt from ({reasons})"
            + (needed if method == "truthfulness" else "")
        )
    return lessons, left_out


def _claim(row: Mapping[str, Any], where: str) -> Lesson | str:
    claim = row.get("claim")
    if not isinstance(claim, str) or not claim.strip() or "label" not in row:
        raise DataError(f"{where} has no `claim` with a `label`")
    label = str(row["label"]).strip().lower()
    if label not in (*_TRUE, *_FALSE):
        return f"label {label}"
    prompt = TUNED_PROMPT.replace("{claim}", shown_claim(claim), 1)
    return prompt.encode("utf-8", "replace").decode(), "True" if label in _TRUE else "False"


def _checklist(row: Mapping[str, Any], where: str) -> Lesson | str:
    question, response = _texts(row, where)
    items, labels = (_list_of(row.get(name)) for name in ("items", "labels"))
    if not items or len(items) != len(labels):
        raise DataError(f"{where} needs `items`, a list of texts, and `labels`, one for each")
    labels = [label.strip().lower() for label in labels]
    wrong = next((label for label in labels if label not in _ITEM_LABELS), None)
    meant = dict(zip(items, labels, strict=True))
    if wrong is not None or any(meant[i] != label for i, label in zip(items, labels, strict=True)):
        problem = f"has the label {wrong!r}" if wrong else "has two labels for the same item"
        raise DataError(f"{where} {problem}; one of {', '.join(_ITEM_LABELS)} for each item")
    recorder = _Recorder()
    prompt = recorder.of(lambda: Checklist(recorder)(question, response, items))
    if len(meant) > MAX_ITEMS or prompt is None:
        return f"nothing in it, or over {MAX_ITEMS} items"
    shown = json.loads(prompt.rsplit("\n", 2)[1])["items"]
    # A made-up item that the reader adds is last, and no response says it.
    words = [*(meant[item] for item in meant), *["missing"] * (len(shown) - len(meant))]
    ids = [one["id"] for one in shown]
    reply = "\n".join(json.dumps({"id": i, "verdict": w}) for i, w in zip(ids, words, strict=True))
    read_checklist(reply, ids)
    return prompt, reply


def _extraction(row: Mapping[str, Any], where: str) -> Lesson | str:
    question, response = _texts(row, where)
    claims = row.get("claims")
    if not isinstance(claims, (list, tuple)) or not all(isinstance(claim, str) for claim in claims):
        raise DataError(f"{where} needs `claims`, a list of texts, which may be empty")
    claims = [" ".join(claim.split()) for claim in claims if claim.strip()]
    recorder = _Recorder()
    reader = LLMClaims(recorder, "veriscore_response")
    prompt = recorder.of(lambda: wait_for(reader(response, question)))
    if prompt is None:
        return "nothing in it"
    reply = "\n".join(f"- {claim}" for claim in claims) or "No verifiable claim."
    try:
        read = read_facts(reply)
    except Unscored as error:
        raise DataError(f"{where}: its claims make no list that can be read: {error.detail}") from error
    if len(read) != len(claims):
        raise DataError(
            f"{where}: {len(claims)} claims are read as {len(read)}; a claim must not end in a colon"
        )
    return prompt, reply


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
        self._prompts: list[str] = []

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        self._prompts.append(messages[-1]["content"])
        raise LLMError(self.identity)

    def of(self, call: Callable[[], Any]) -> str | None:
        """What `call` asks; None when it asks nothing."""
        try:
            call()
        except LLMError as error:
            if error.cause != self.identity:
                raise
        return self._prompts[0] if self._prompts else None
