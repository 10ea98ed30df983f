"""How a benchmark's question is asked: templates, documents and a stated confidence.

The wording is ours, not the benchmarks' own, so that every short question is asked in the same way and
declining is always allowed; numbers are comparable between models asked alike, not with published tables.
"""

from __future__ import annotations

import re

from factrl.types import Completion

BARE = "{question}"
SHORT = (
    "Answer the question with a name, a number, a date or a few words, and nothing else. "
    "If you do not know the answer, say: I don't know.\n\nQuestion: {question}"
)
SHORT_ZH = (
    "请用一个名称、数字、日期或几个词回答问题，不要写别的内容。如果不知道答案，就说：我不知道。\n\n"
    "问题：{question}"
)
PREMISE = (
    "Answer the question with a name, a number, a date or a few words, and nothing else. "
    "If you do not know the answer, or nobody can know it, say: I don't know. "
    "If the question takes something for granted that is not true, say: invalid question.\n\n"
    "Question: {question}"
)
SENTENCE = (
    "Answer the question in one sentence. If you do not know the answer, say: I don't know.\n\n"
    "Question: {question}"
)
SENTENCE_ZH = "请用一句话回答问题。如果不知道答案，就说：我不知道。\n\n问题：{question}"
LETTER = (
    "Choose the right answer to the question. Reply with its letter and nothing else.\n\n"
    "Question: {question}\n{options}"
)
PAIR = (
    "One of two answers to a question is right, and the other is made up. "
    "Reply with the letter of the right one and nothing else.\n\nQuestion: {question}\n{options}"
)
REASON = (
    "Solve the problem step by step. Put the final answer, and nothing else, in \\boxed{{}}.\n\n"
    "Problem: {question}"
)
ARTICLE = "Write an article about {question}: state as many facts as you are sure of, and no others."

_DOCUMENTS = "Documents that may help:\n\n{evidence}\n\n"
_CONFIDENCE = (
    "\n\nThen write, on a line of its own, how sure you are that your answer is right, from 0 to 100, "
    "as: Confidence: 75"
)
_SURE = re.compile(
    r"(?:confidence|置信度|信心)[*_\s]{0,4}[:：][*_\s]{0,4}(\d{1,3})(\.\d{1,4})?(?:\s{0,2}%|\s{0,2}/\s{0,2}(100|10|1)\b)?",
    re.I,
)

_NEXT = r"\n(?:(?:Question|Problem|问题)\s*[:：]|Write an article about )"


def compose(prompt: str, *, evidence: bool = False, confidence: bool = False, chat: bool = True) -> str:
    """A template for `data.prompt` with everything around the question.

    Args:
        prompt: the benchmark's own.
        evidence: the question's documents come first.
        confidence: ask how sure the model is.
        chat: false for a model that only continues text: the question ends with a cue for the answer.
    """
    asked = prompt + (_CONFIDENCE if confidence else "")
    return (_DOCUMENTS if evidence else "") + asked + ("" if chat else "\nAnswer:")


def continued(text: str, *, long: bool = False) -> str:
    """What a model that only continues text answers before it goes on with questions of its own.

    Args:
        long: the answer may have several paragraphs; a short one ends with its own.
    """
    ends = _NEXT if long else rf"\n\s*\n|{_NEXT}"
    return re.split(ends, text.lstrip("\n"), maxsplit=1)[0].strip()


def final_part(text: str, *, chat: bool = True, long: bool = False) -> str | None:
    """What a text says after its reasoning, None when the reasoning does not end.

    Args:
        text: a `Completion` whose prefill may have begun the reasoning, or a plain text.
        chat, long: as in `compose` and `continued`.
    """
    _, closed, said = text.rpartition("</think>")
    prefill = text.prefill if isinstance(text, Completion) and not closed else ""
    if "<think>" in said or "<think>" in prefill.rpartition("</think>")[2]:
        return None
    return said if chat else continued(said, long=long)


def stated_confidence(text: str) -> tuple[str, float | None]:
    """The text without its last stated confidence, and that as a share from 0 to 1, None without one.

    It is read from 0 to 100, or to what follows a slash; 0.9 and other fractions up to 1 are shares already.
    """
    found = list(_SURE.finditer(text))
    if not found:
        return text, None
    last = found[-1]
    number = float(last[1] + (last[2] or ""))
    share = last[2] is not None and number <= 1 and last[0].endswith(last[2])
    sure = number / (1 if share else float(last[3] or 100))
    return ((text[: last.start()] + text[last.end() :]).strip(), sure) if sure <= 1 else (text, None)
