"""What a judge of one or two billion parameters needs: fewer questions, and short ones.

Such a model says `correct` of nearly everything to a long prompt.  So rules take from it what people would
refuse in six cases of seven, and what is left is asked in a few lines and answered with one letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from factrl.errors import Unscored
from factrl.llm import LLM, Reply
from factrl.llm.quoting import broken
from factrl.llm.replies import bare
from factrl.text.answers import SCALES, matches, parse_number, unaccented
from factrl.verifier.claims import content_words

BRIEF_PROMPT = """\
Compare the predicted answer with the gold target and grade it. Reply A when the predicted answer is \
correct, B when it is incorrect, C when it is not attempted.

Question: {question}
Gold target: {gold}
Predicted answer: {answer}

Grade (A, B or C):"""
_LETTERS = {"a": "correct", "b": "incorrect", "c": "not_attempted"}
_OR = re.compile(r",?\s+or\s+|\s*(?:/|或者|还是|或)\s*", re.I)


def names_no_answer(question: str, answer: str, gold: Sequence[str]) -> bool:
    """Whether an answer is wrong without asking a small judge: it names nothing accepted, or hedges."""
    if not _near(question, answer, gold):
        return True
    right = [matches(part, gold) is not None for part in _OR.split(answer) if part.strip()]
    return any(right) and not all(right)


def _near(question: str, answer: str, gold: Sequence[str]) -> bool:
    """Whether an answer shares a word with an accepted one; true where that is made of little words only.

    Accents make no difference, `5 million` is `5,000,000`, and a word outside of ASCII may be a part of a
    longer one: Korean, for one, writes endings right behind it.
    """
    asked, said, text = _content(question), _content(answer), unaccented(answer)
    for one in map(_content, gold):
        own = one - asked or one
        if not own or own & said or any(not word.isascii() and word in text for word in own):
            return True
    return False


_SCALED = re.compile(rf"\d[\d.,]{{0,63}} (?:{'|'.join(SCALES)})")


def _content(text: str) -> frozenset[str]:
    text = unaccented(text)
    numbers = (parse_number(match[0]) for match in _SCALED.finditer(text))
    return content_words(text) | {f"{number:f}" for number in numbers if number is not None}


def ask_briefly(judge: LLM, question: str, answer: str, gold: Sequence[str]) -> tuple[str, str]:
    """`correct`, `incorrect` or `not_attempted`, and no reason; every text is shown as one JSON string.

    Raises:
        Unscored: `judge_unreadable`.
        LLMError: the judge could not be asked.
    """
    texts = {"question": question, "gold": " or ".join(gold), "answer": answer}
    quoted = {name: json.dumps(broken(text), ensure_ascii=False) for name, text in texts.items()}
    prompt = BRIEF_PROMPT.format(**quoted)
    reply = judge.complete([{"role": "user", "content": prompt}], temperature=0.0)
    word = _LETTERS.get(_letter(reply))
    if word is None:
        problem = f"the judge's reply is not one of the letters A, B and C but {reply.text[-200:]!r}"
        raise Unscored("judge_unreadable", problem, stage="judge", status=200, **reply.facts)
    return word, ""


def is_letter(reply: Reply) -> bool:
    """Whether a reply to `BRIEF_PROMPT` can be read."""
    return _letter(reply) in _LETTERS


def _letter(reply: Reply) -> str:
    return bare(reply.text.rpartition("</think>")[2]).strip(" \n.*`\"'").lower()
