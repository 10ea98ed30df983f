"""Rows that teach the three models of KLCF (arXiv:2509.23765) to answer as factrl reads them.

    truthfulness         {claim, label}
    checklist-verifier   {question, response, items: [...], labels: [...]}, a label is consistent,
                         contradictory or missing
    extractor            {question, response, claims: [...]}, no claims where the response has none to verify

What a row asks is recorded from the reader itself, so a tuned model is asked in training exactly what it will
be asked in use, and a reply that the reader could not read is no lesson.  Rows of one document (`group_id`)
resemble each other, so a document is either learnt from or held out, never both.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from factrl.errors import DataError, LLMError, Unscored
from factrl.llm import Message, Reply
from factrl.llm.background import wait_for
from factrl.rewards.checklist import MAX_ITEMS, Checklist, Item, read_checklist
from factrl.rewards.truthfulness import TUNED_PROMPT, shown_claim
from factrl.runs.rows import read_rows
from factrl.train.tuning.labelled_settings import LabelledData, Method
from factrl.verifier.claims import LLMClaims
from factrl.verifier.claims.llm import read_facts
from factrl.verifier.claims.marks import normalised

ANSWERS = (" True", " False")
_NONE = {"factscore": "NO FACTS", "veriscore": "No verifiable claim."}
_LABELS: tuple[str, ...] = get_args(Item)
_WORDS = {
    **dict.fromkeys(("true", "1", "1.0"), "supported"),
    **dict.fromkeys(("false", "0", "0.0"), "refuted"),
}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One prompt with the reply that a reader takes.

    Attributes:
        id: unique among all files.
        prompt: the user's message; for a claim the text that the answer follows.
        reply: what the model should answer.
        question, response: what the reader is given; for a claim the claim alone.
        told: the items, or the claims.
        labels: one for each item; empty for an extractor.
        group, source: the document it is from, and its file.
    """

    id: str
    prompt: str
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


@dataclass(frozen=True)
class Split:
    """Lessons to learn from, to calibrate on and to report on; no document is in two of them.

    Attributes:
        left_out: rows of the last two whose words stand in another part or twice in their own.
    """

    train: Sequence[Lesson]
    calibrate: Sequence[Lesson]
    report: Sequence[Lesson]
    left_out: int

    @property
    def digest(self) -> str:
        """A fingerprint of the rows and of the parts they are in, without the folders of their files."""
        digest = hashlib.sha256()
        for part in (self.train, self.calibrate, self.report):
            for row in part:
                digest.update(repr(row).replace(row.source, Path(row.source).name).encode("utf-8", "replace"))
            digest.update(b"--")
        return digest.hexdigest()[:16]


def load_lessons(method: Method, data: LabelledData) -> tuple[list[Lesson], Counter[str]]:
    """The lessons of all files in their order, and how many rows were left out, by reason.

    Raises:
        DataError: no file, a row that is none of the method's, or no row (for claims: class) to learn from.
    """
    make = {"truthfulness": _claim, "checklist-verifier": _checklist, "extractor": _extraction}[method]
    if both := {*map(_label, data.positive)} & {*map(_label, data.negative)}:
        raise DataError(
            f"data.positive={list(data.positive)} and data.negative={list(data.negative)} both mean "
            f"{', '.join(both)}"
        )
    lessons: list[Lesson] = []
    left_out: Counter[str] = Counter()
    for source in dict.fromkeys(data.files):
        for number, row in enumerate(read_rows(source), start=1):
            made = make(row, f"{source}, row {number}", data)
            if isinstance(made, str):
                left_out[made] += 1
            else:
                id_ = f"{source}:{number}"
                lessons.append(Lesson(id=id_, group=_group(row, id_), source=source, **made))
    if not lessons or (method == "truthfulness" and len({lesson.reply for lesson in lessons}) < 2):
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.most_common()) or "none left out"
        needed = (
            f"; two classes are needed: data.positive={list(data.positive)} and "
            f"data.negative={list(data.negative)}"
        )
        raise DataError(
            f"{', '.join(data.files) or 'data.files'}: {len(lessons)} rows can be learnt from ({reasons})"
            + (needed if method == "truthfulness" else "")
        )
    return lessons, left_out


def split_by_group(lessons: Sequence[Lesson], held_out: float, calibrate: float, seed: int) -> Split:
    """Each file's documents, in an order drawn from `seed`, into the three parts.

    A document that is in two files is in the part that the first of them puts it into.

    Args:
        held_out: share of each file's documents that is not learnt from.
        calibrate: share of those that the temperature is fitted on.

    Raises:
        DataError: a part would be empty.
    """
    part: dict[str, int] = {}
    for source in dict.fromkeys(row.source for row in lessons):
        groups = {row.group for row in lessons if row.source == source} - part.keys()
        order = sorted(groups, key=lambda group: hashlib.sha256(f"{seed}\n{group}".encode()).digest())
        held = round(len(order) * held_out)
        fitted = round(held * calibrate)
        part |= {group: 1 if n < fitted else 2 if n < held else 0 for n, group in enumerate(order)}
    parts: list[list[Lesson]] = [[], [], []]
    seen = {row.words for row in lessons if part[row.group] == 0}
    left_out = 0
    for row in lessons:
        number = part[row.group]
        if number and row.words in seen:
            left_out += 1
            continue
        seen.add(row.words)
        parts[number].append(row)
    if not all(part for part, share in zip(parts, (1.0, calibrate, 1.0), strict=True) if share):
        count = len({row.group for row in lessons})
        raise DataError(
            f"{count} documents ({len(lessons)} rows) do not make three parts with data.held_out = "
            f"{held_out:g} and data.calibrate = {calibrate:g}; give more rows, or a `group_id` of its own to "
            "each document"
        )
    return Split(*parts, left_out=left_out)


def drawn(lessons: Sequence[Lesson], limit: int | None, seed: int) -> list[Lesson]:
    """At most `limit` of the rows, in their order; which ones depends on the seed and their words."""
    if limit is None:
        return list(lessons)
    keys = [hashlib.sha256(f"{seed}\n{row.words}\n{n}".encode()).digest() for n, row in enumerate(lessons)]
    kept = {*sorted(range(len(lessons)), key=keys.__getitem__)[:limit]}
    return [row for number, row in enumerate(lessons) if number in kept]


def _group(row: Mapping[str, Any], alone: str) -> str:
    """The document that a row is about; one of its own where it does not say."""
    for column in ("group_id", "group", "question", "prompt", "query"):
        value = row.get(column)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value).strip()
    return alone


def _claim(row: Mapping[str, Any], where: str, data: LabelledData) -> dict[str, Any] | str:
    claim = row.get("claim")
    if not isinstance(claim, str) or not claim.strip() or "label" not in row:
        raise DataError(f"{where} has no `claim` with a `label`")
    label, true, false = _label(row["label"]), {*map(_label, data.positive)}, {*map(_label, data.negative)}
    if label not in true | false:
        return f"label {label}"
    claim = shown_claim(claim)
    prompt = TUNED_PROMPT.replace("{claim}", claim, 1).encode("utf-8", "replace").decode()
    return _fields(prompt, ANSWERS[label not in true], "", claim, (), ())


def _label(value: object) -> str:
    word = str(value).strip().lower()
    return _WORDS.get(word, word)


def _checklist(row: Mapping[str, Any], where: str, data: LabelledData) -> dict[str, Any] | str:
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
    prompt = recorder.of(lambda: Checklist(recorder)(question, response, items))
    if len(meant) > MAX_ITEMS or prompt is None:
        return f"nothing in it, or over {MAX_ITEMS} items"
    shown = json.loads(prompt.rsplit("\n", 2)[1])["items"]
    # A made-up item that the reader adds is last, and no response says it.
    words = [*(meant[item] for item in meant), *["missing"] * (len(shown) - len(meant))]
    ids = [one["id"] for one in shown]
    reply = "\n".join(json.dumps({"id": i, "verdict": w}) for i, w in zip(ids, words, strict=True))
    read_checklist(reply, ids)
    return _fields(prompt, reply, question, response, tuple(meant), tuple(meant.values()))


def _extraction(row: Mapping[str, Any], where: str, data: LabelledData) -> dict[str, Any] | str:
    question, response = _texts(row, where)
    claims = row.get("claims")
    if not isinstance(claims, (list, tuple)) or not all(isinstance(claim, str) for claim in claims):
        raise DataError(f"{where} needs `claims`, a list of texts, which may be empty")
    claims = [" ".join(claim.split()) for claim in claims if claim.strip()]
    recorder = _Recorder()
    reader = LLMClaims(recorder, data.style, "response")
    prompt = recorder.of(lambda: wait_for(reader(response, question)))
    if prompt is None:
        return "nothing in it"
    reply = "\n".join(f"- {claim}" for claim in claims) or _NONE[data.style]
    try:
        read = read_facts(reply)
    except Unscored as error:
        raise DataError(f"{where}: its claims make no list that can be read: {error.detail}") from error
    if len(read) != len(claims):
        raise DataError(
            f"{where}: {len(claims)} claims are read as {len(read)}; a claim must not end in a colon"
        )
    return _fields(prompt, reply, question, response, tuple(claims), ())


def _fields(prompt: str, reply: str, question: str, response: str, told: Any, labels: Any) -> dict[str, Any]:
    return {
        "prompt": prompt,
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
