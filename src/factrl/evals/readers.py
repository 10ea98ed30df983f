"""Rows of published benchmarks as examples: one small function per shape of row.

An upstream row becomes an `Example` whose `meta` holds, in one spelling for all benchmarks:

    answerable     False where the right reply is to decline (SelfAware, MuSiQue)
    choices        the options of a multiple choice, with `right`, 1 or 0 per option

Rows that follow the plain schema `question, answers, answerable, false_premise, evidence, meta` are read by
`plain`, whatever the benchmark.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factrl.errors import DataError
from factrl.runs.data import ColumnName, to_example
from factrl.runs.rows import Row
from factrl.types import Example, Passage

Reader = Callable[[Row], Example]


def plain(row: Row) -> Example:
    """A row of the plain schema; a `prompt` stands for the question where there is one."""
    given = row.get("meta")
    nested: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    return with_meta(to_example(row), **{**nested, "answerable": row.get("answerable") is not False})


def plain_choice(part: str) -> Reader:
    """A row of the plain schema whose options are in `mc1` or `mc2`."""

    def read(row: Row) -> Example:
        given = row.get(part)
        if not isinstance(given, Mapping):
            raise DataError(f"row {row.get('id')!r} has no column {part!r} with choices and labels")
        labels = given.get("labels")
        if labels is None:
            labels = [int(number == given.get("label")) for number in range(len(given["choices"]))]
        return with_choices(plain(row), given["choices"], labels)

    return read


def plain_pair(row: Row) -> Example:
    """A row of the plain schema with one right and one hallucinated answer (HaluEval QA)."""
    example = plain(row)
    return with_choices(example, [example.answers[0], str(row.get("hallucinated_answer") or "")], [1, 0])


def columns(**named: str) -> Reader:
    """A reader for rows that only call their columns something else: `columns(question="problem")`."""
    chosen: dict[ColumnName, str] = dict(named)  # type: ignore[arg-type]
    return lambda row: with_meta(to_example(row, chosen), answerable=True)


same = columns()
"""A reader for rows whose columns have the usual names."""


def trivia_qa(row: Row) -> Example:
    """TriviaQA: the value and its aliases are accepted."""
    answer = row["answer"]
    accepted = dict.fromkeys([answer["value"], *answer["aliases"]])
    return _made(row["question"], accepted, row["question_id"])


def hotpot(row: Row) -> Example:
    """HotpotQA and 2WikiMultiHopQA: paragraphs as `{title, sentences}` lists or as `[title, sentences]`."""
    context = row.get("context") or {}
    if isinstance(context, Mapping):
        titles, bodies = context.get("title") or [], context.get("sentences") or context.get("content") or []
    else:
        titles, bodies = [pair[0] for pair in context], [pair[1] for pair in context]
    evidence = [Passage("".join(body).strip(), title) for title, body in zip(titles, bodies, strict=True)]
    return _made(row["question"], [row["answer"]], row.get("id") or row.get("_id"), evidence=evidence)


def musique(row: Row) -> Example:
    """MuSiQue: aliases are accepted; in the full set some questions cannot be answered."""
    evidence = [Passage(part["paragraph_text"], part["title"]) for part in row.get("paragraphs") or []]
    answerable = row.get("answerable") is not False
    accepted = [row["answer"], *(row.get("answer_aliases") or [])] if answerable else []
    return _made(row["question"], accepted, row["id"], evidence=evidence, answerable=answerable)


def crag(row: Row) -> Example:
    """CRAG as TruthRL released it: `query`, `answer`, `alt_ans`, and chunks that were retrieved."""
    chunks = [chunk if isinstance(chunk, Mapping) else {"text": chunk} for chunk in row["retrieved_chunks"]]
    texts = [str(chunk.get("text") or chunk.get("chunk") or chunk.get("content") or "") for chunk in chunks]
    example = _made(
        row["query"],
        [row["answer"], *_texts(row.get("alt_ans"))],
        row["interaction_id"],
        evidence=[Passage(text) for text in texts if text.strip()],
        query_time=row.get("query_time"),
    )
    return dataclasses.replace(example, false_premise=row.get("question_type") == "false_premise")


def self_aware(row: Row) -> Example:
    """SelfAware: half of the questions have no answer that anybody knows."""
    answerable = bool(row["answerable"])
    accepted = _texts(row.get("answer")) if answerable else []
    return _made(row["question"], accepted, row["question_id"], answerable=answerable)


def fresh_qa(row: Row) -> Example:
    """FreshQA's sheet: `answer_0` to `answer_9`, and TRUE or FALSE in `false_premise`."""
    accepted = [row.get(f"answer_{number}") for number in range(10)]
    example = _made(row["question"], _texts(accepted), row["id"])
    return dataclasses.replace(example, false_premise=str(row.get("false_premise")).lower() == "true")


def truthful_qa(row: Row) -> Example:
    """TruthfulQA `generation`: true answers, the best first."""
    accepted = dict.fromkeys([row["best_answer"], *row["correct_answers"]])
    return _made(row["question"], accepted, "")


def truthful_qa_choice(part: str) -> Reader:
    """TruthfulQA `multiple_choice`: `mc1_targets` has one true option, `mc2_targets` several."""

    def read(row: Row) -> Example:
        targets = row[f"{part}_targets"]
        true = [text for text, right in zip(targets["choices"], targets["labels"], strict=True) if right]
        return with_choices(_made(row["question"], true, ""), targets["choices"], targets["labels"])

    return read


def halu_eval(row: Row) -> Example:
    """HaluEval `qa`: a right and a hallucinated answer, and the knowledge that both are about."""
    evidence = [Passage(row["knowledge"])] if row.get("knowledge") else []
    example = _made(row["question"], [row["right_answer"]], "", evidence=evidence)
    return with_choices(example, [row["right_answer"], row["hallucinated_answer"]], [1, 0])


def hallu_qa(row: Row) -> Example:
    """HalluQA's `HalluQA.json`: `Best Answer1` to `Best Answer4`."""
    best = _texts([row.get(f"Best Answer{n}") for n in range(1, 10)])
    return _made(row["Question"], best, row["question_id"])


def hallu_qa_choice(row: Row) -> Example:
    """HalluQA's `HalluQA_mc.json`: the options stand after the question, one per letter."""
    question, *rest = re.split(r"\s+(?=[A-E]\s*[:：])", re.sub(r"^\s*Question:\s*", "", row["question"]))
    options = [re.sub(r"^[A-E]\s*[:：]\s*", "", text).strip() for text in rest]
    letter = re.sub(r"^\s*Choice\s*", "", str(row["answer"])).strip()[:1].upper()
    labels = [int(letter == chr(ord("A") + number)) for number in range(len(options))]
    accepted = [text for text, right in zip(options, labels, strict=True) if right]
    return with_choices(_made(question.strip(), accepted, row.get("question_id", "")), options, labels)


def gsm8k(row: Row) -> Example:
    """GSM8K: the number after `####` at the end of the worked answer."""
    return _made(row["question"], [row["answer"].rpartition("####")[2].strip()], "")


def olympiad(row: Row) -> Example:
    """OlympiadBench, open-ended: `final_answer` is a list of one text, which may hold several values."""
    return _made(row["question"], _texts(row["final_answer"])[:1], str(row["id"]))


def article(row: Row) -> Example:
    """GoodWiki: an article that a long answer about its title is held against."""
    return _made(row["title"], [], str(row["pageid"]), evidence=[Passage(row["markdown"], row["title"])])


def with_choices(example: Example, choices: Sequence[str], labels: Sequence[int]) -> Example:
    """The example with the options of a multiple choice.

    Raises:
        DataError: fewer than two options, an empty one, or none that is right.
    """
    right = [int(bool(label)) for label in labels]
    if len(choices) < 2 or len(choices) != len(right) or not any(right) or not all(map(str.strip, choices)):
        raise DataError(f"{example.question[:80]!r} needs at least two options, one of them right")
    return with_meta(example, choices=list(choices), right=right)


def with_meta(example: Example, **more: Any) -> Example:
    """The example with more columns."""
    return dataclasses.replace(example, meta={**example.meta, **more})


def _made(
    question: str,
    answers: Any,
    name: Any,
    *,
    evidence: Sequence[Passage] = (),
    answerable: bool = True,
    **meta: Any,
) -> Example:
    accepted = tuple(dict.fromkeys(text.strip() for text in map(str, answers) if text.strip()))
    return Example(
        question.strip(),
        accepted,
        str(name or ""),
        evidence=tuple(evidence),
        meta={"answerable": answerable, **meta},
    )


def _texts(cells: Any) -> list[str]:
    cells = cells if isinstance(cells, (list, tuple)) else [cells]
    return [str(cell).strip() for cell in cells if cell is not None and str(cell).strip()]
