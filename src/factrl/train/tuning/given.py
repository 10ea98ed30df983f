"""Rows that say themselves what is learned: a prompt with its completion, or with a better and a worse one.

    {"prompt": …, "completion": …}, {"messages": […]}                       for `factrl tune sft`
    {"prompt": …, "chosen": …, "rejected": …}               for `factrl tune dpo tune.rule=given`

As in TRL, a `prompt` that is a text is read by the model as it stands, and one that is a conversation through
the chat template; of `messages` the last one is learned.  A `question` in place of `prompt`, or the column
that `data.columns.question` names, is asked as `[data]` says.  A completion is a text, or a conversation, of
which it is the last message; the end token is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from factrl.errors import DataError
from factrl.llm import Message
from factrl.runs.data import ColumnName, read_completion, to_example, unpacked
from factrl.runs.rows import read_rows
from factrl.runs.settings import DataSettings
from factrl.text.messages import is_conversation
from factrl.types import Example

_SETTING = {"chosen": "answers", "rejected": "rejected"}


@dataclass(frozen=True)
class Given:
    """One row.

    Attributes:
        example: its id and, where it has no `prompt`, its question.
        prompt: a text, a conversation, or None where the question is asked.
        texts: `completion`, or `chosen` and `rejected`.
    """

    example: Example
    prompt: str | Sequence[Message] | None
    texts: Mapping[str, str]


def load_given(data: DataSettings, *, pairs: bool) -> tuple[list[Given], Counter[str]] | None:
    """The rows of `data.train`, and how many were left out, by reason; None where they give no completions.

    Args:
        pairs: of a better and a worse completion; `data.columns.answers` and `data.columns.rejected` name
            their columns, by default `chosen` and `rejected`.

    Raises:
        DataError: a row without one of the columns, or with something else than text in it.
    """
    rows = [*islice(read_rows(data.train, data.split, data.subset), data.limit)]
    first = {column: None for row in rows for column in row}
    columns = {"completion": "completion"}
    if pairs:
        columns = {"chosen": data.columns.get("answers", "chosen")}
        columns |= {"rejected": data.columns.get("rejected", "rejected")}
    elif "messages" in first and "completion" not in first:
        columns = {"completion": "messages"}
    elif "completion" not in first:
        return None
    for name, column in columns.items():
        if column not in first:
            hint = f"; say which one it is with data.columns.{_SETTING[name]}=…" if pairs else ""
            raise DataError(f"{data.train} has no column {column!r}; columns: {', '.join(first)}{hint}")
    given, left_out = list[Given](), Counter[str]()
    for number, row in enumerate(rows, start=1):
        one = _read(row, columns, data, number)
        if isinstance(one, str):
            left_out[one] += 1
        else:
            given.append(one)
    if not given:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "it is empty"
        raise DataError(f"{data.train}: no row can be learned from ({why})")
    return given, left_out


def _read(row: Mapping[str, Any], columns: Mapping[str, str], data: DataSettings, number: int) -> Given | str:
    at, texts = f"{data.train}, row {number}", dict[str, str]()
    for name, column in columns.items():
        text = read_completion(row.get(column), f"{at}: {column}", spelled=True)
        if not text or not text.strip():
            return f"no {name}"
        texts[name] = text
    if len(texts) == 2 and texts["chosen"].strip() == texts["rejected"].strip():
        return "both completions equal"
    whole = columns.get("completion") == "messages"
    name, prompt = str(row.get("id") or number), row.get("messages" if whole else "prompt")
    prompt = None if "question" in data.columns else prompt
    if prompt is None:
        own: dict[ColumnName, str] = {**data.columns, "answers": "", "rejected": ""}
        return Given(to_example({"id": name, **row}, own, at), None, texts)
    turns = unpacked(prompt)
    if is_conversation(turns):
        turns = turns[:-1] if whole else turns
        if not turns:
            return "no prompt"
        return Given(Example("", id=name), turns, texts)
    if not isinstance(prompt, str):
        raise DataError(f"{at}: prompt is {str(prompt)[:80]!r}, not text or messages with role and content")
    return Given(Example(prompt, id=name), prompt, texts)
