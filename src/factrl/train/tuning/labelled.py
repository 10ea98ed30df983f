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

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from factrl.errors import DataError, LLMError, Unscored
from factrl.llm import FakeLLM
from factrl.llm.background import wait_for
from factrl.rewards.checklist import MAX_ITEMS, Checklist, Item, read_checklist
from factrl.rewards.truthfulness import TUNED_PROMPT, shown_claim
from factrl.runs.rows import read_rows
from factrl.text import encodable
from factrl.types import Example
from factrl.verifier.claims.llm import LLMClaims, read_facts

Labelled = Literal["truthfulness", "checklist-verifier", "extractor"]
LABELLED: tuple[str, ...] = get_args(Labelled)
_TRUE, _FALSE = ("supported", "true", "1", "1.0"), ("refuted", "unsupported", "false", "0", "0.0")


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("holds no text")
    return text


_RECORDED = "recorded"  # a cause that nobody sees
_Text = Annotated[str, AfterValidator(_not_empty)]
_Word = Annotated[str, BeforeValidator(lambda value: str(value).strip().lower())]
_ItemWord = Annotated[Item, BeforeValidator(lambda value: str(value).strip().lower())]
_Row = TypeVar("_Row", bound=BaseModel)
Lesson = tuple[str, str]
"""A prompt with the reply to learn."""


class _Claim(BaseModel):
    claim: _Text
    label: _Word


class _Response(BaseModel):
    question: str = Field(default="", validation_alias=AliasChoices("question", "prompt", "query"))
    response: _Text


class _Items(_Response):
    items: list[_Text] = Field(min_length=1)
    labels: list[_ItemWord]


class _Claims(_Response):
    claims: list[str]


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
    if len({lesson.answers for lesson in lessons}) < (2 if method == "truthfulness" else 1):
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.most_common()) or "none left out"
        needed = f"; true and false claims are needed, labels {', '.join(_TRUE)} and {', '.join(_FALSE)}"
        raise DataError(
            f"{source}: {len(lessons)} rows can be learnt from ({reasons})"
            + (needed if method == "truthfulness" else "")
        )
    return lessons, left_out


def _claim(row: Mapping[str, Any], where: str) -> Lesson | str:
    fields = _read(_Claim, row, where)
    if fields.label not in (*_TRUE, *_FALSE):
        return f"label {fields.label}"
    prompt = TUNED_PROMPT.replace("{claim}", shown_claim(fields.claim), 1)
    return encodable(prompt), "True" if fields.label in _TRUE else "False"


def _checklist(row: Mapping[str, Any], where: str) -> Lesson | str:
    fields = _read(_Items, row, where)
    if len(fields.items) != len(fields.labels):
        raise DataError(f"{where} needs as many `labels` as `items`")
    meant = dict(zip(fields.items, fields.labels, strict=True))
    if any(meant[item] != label for item, label in zip(fields.items, fields.labels, strict=True)):
        raise DataError(f"{where} has two labels for the same item")
    prompt = _first_prompt(lambda llm: Checklist(llm)(fields.question, fields.response, fields.items))
    if len(meant) > MAX_ITEMS or prompt is None:
        return f"nothing in it, or over {MAX_ITEMS} items"
    ids = [one["id"] for one in json.loads(prompt.rsplit("\n", 2)[1])["items"]]
    # A made-up item that the reader adds is last, and no response says it.
    words = [*meant.values(), *["missing"] * (len(ids) - len(meant))]
    reply = "\n".join(json.dumps({"id": i, "verdict": w}) for i, w in zip(ids, words, strict=True))
    read_checklist(reply, ids)
    return prompt, reply


def _extraction(row: Mapping[str, Any], where: str) -> Lesson | str:
    fields = _read(_Claims, row, where)
    claims = [" ".join(claim.split()) for claim in fields.claims if claim.strip()]
    prompt = _first_prompt(
        lambda llm: wait_for(LLMClaims(llm, "veriscore_response")(fields.response, fields.question))
    )
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


def _read(kind: type[_Row], row: Mapping[str, Any], where: str) -> _Row:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise DataError(f"{where}: `{field}`: {problem}") from error


def _first_prompt(read: Callable[[FakeLLM], Any]) -> str | None:
    """What a reader asks a model first; None when it asks nothing."""
    llm = FakeLLM(lambda messages: LLMError(_RECORDED))
    with contextlib.suppress(LLMError):
        read(llm)
    return llm.calls[0][-1]["content"] if llm.calls else None
