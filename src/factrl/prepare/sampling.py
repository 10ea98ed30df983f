"""What a base model is asked before its answers become a dataset, and which part of its text is the answer.

KLCF samples its base model with a few demonstrations (arXiv:2509.23765, section 2.2); prompt, demonstrations,
number of samples and temperature are lost, so all of them are settings here and the defaults are ours.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from factrl.errors import DataError
from factrl.runs.data import load_examples, render_prompt
from factrl.text.sentences import sentences
from factrl.types import Completion, Example
from factrl.verifier.judges.replies import after_thinking

ZERO_SHOT = (
    "{question}\n\nAnswer in detail. State as many facts as you know, in full sentences, and only facts that "
    "you are sure of."
)
FEW_SHOT = "Question: {question}\nAnswer:"
"""The default templates, both ours: without demonstrations, and for each of them."""

_ENDS = (".", "!", "?", "。", "！", "？", '."', ".”", ".)")


def read_demonstrations(path: str) -> list[Example]:
    """Questions, each with the answer to show.

    Raises:
        DataError: a row without one of them.
    """
    shown = load_examples(path)
    bare = [example.id for example in shown if not example.answers]
    if bare:
        raise DataError(f"{path}: {len(bare)} demonstrations have no answer, first {bare[0]!r}")
    return shown


def few_shot(template: str, shown: Sequence[Example]) -> str:
    """`template` after the demonstrations, each of them rendered by it and followed by its answer."""
    if not shown:
        return template
    gap = "" if template[-1:].isspace() else " "
    turns = [f"{render_prompt(example, template)}{gap}{example.answers[0]}\n\n" for example in shown]
    return "".join(turns).replace("{", "{{").replace("}", "}}") + template


def answer_part(written: Completion, template: str = "") -> str:
    """What of a sample is the answer, ready to be taken apart into claims.

    Thoughts are left out, and the last sentence of an answer that was cut off before its end.  A base model
    that goes on with a question of its own, as in the demonstrations, has answered before that.

    Args:
        template: the template of demonstrations; empty where there were none.
    """
    text = after_thinking(written)
    opening = next((literal.strip() for literal, *_ in string.Formatter().parse(template)), "")
    text, goes_on, _ = text.partition(f"\n{opening}") if opening else (text, "", "")
    text = text.strip()
    if goes_on or not written.truncated:
        return text
    parts = sentences(text)
    whole = parts if text.endswith(_ENDS) else parts[:-1]
    return text[: whole[-1].end] if whole else ""
