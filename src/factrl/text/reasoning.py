"""Finding the answer in what a model wrote: its reasoning is taken off, then a box or an announcement read.

Rewards and evaluations find the answer by these functions, so that what is paid is what is measured.
Reasoning stands between marks, which differ from model to model (`MARKS`).  Reasoning that does not end
leaves no answer, and nothing that stands inside of reasoning is one.
"""

from __future__ import annotations

import re
from typing import Literal

from factrl.text import boxed, strip_end_tokens, tag
from factrl.text.answers import LABEL

MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),  # gpt-oss: the channels before `final`
    ("<|channel|>commentary<|message|>", "<|end|>"),
)
"""What opens and what closes reasoning; capitals make no difference."""
_CLOSING = {opening.lower(): closing for opening, closing in MARKS}
_ANY = re.compile("|".join(re.escape(mark) for pair in MARKS for mark in pair), re.IGNORECASE)
_CLOSE = {closing: re.compile(re.escape(closing), re.IGNORECASE) for _, closing in MARKS}
_FINAL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|^<\|start\|>assistant", re.IGNORECASE
)
# The same without special tokens, as decoders leave it.
_BARE_CHANNELS = re.compile(r"\s*analysis(?=\S).{0,100000}?assistantfinal", re.DOTALL)

Extract = Literal["text", "boxed", "answer"]
"""Where an answer stands: the text without its reasoning, its last box, or its last `<answer>` tag."""


def without_reasoning(text: str, prefill: str = "") -> str | None:
    """What a text says besides its reasoning; None where reasoning does not end.

    What stands before a closing mark that was never opened is reasoning too, as chat templates open it; where
    nothing follows such a mark, the text before it is the answer.

    >>> without_reasoning("<think>Poland?</think>Warsaw"), without_reasoning("[THINK]Poland")
    ('Warsaw', None)

    Args:
        prefill: what the prompt already put at the start of the text; it may have opened the reasoning.
    """
    whole = prefill + strip_end_tokens(text)
    if bare := _BARE_CHANNELS.match(whole):
        return whole[bare.end() :]
    kept, at, start = [], 0, 0
    last = ""  # what a closing mark without an opening one took off
    while found := _ANY.search(whole, at):
        mark = found[0].lower()
        if mark in _CLOSING:
            kept.append(whole[start : found.start()])
            end = _CLOSE[_CLOSING[mark]].search(whole, found.end())
            if end is None:
                return None
            at = start = end.end()
            last = ""
        else:
            last = "".join([*kept, whole[start : found.start()]])
            kept, at, start = [], found.end(), found.end()
    rest = _FINAL.sub("", "".join([*kept, whole[start:]]))
    return rest if rest.strip() or not last else last


_ANNOUNCED = re.compile(
    rf"(?:^|(?<=[.!?。！？:\n] )|(?<=[\n。！？]))[*_#>\s]{{0,4}}{LABEL}[*_ ]{{0,4}}(?=\S)", re.IGNORECASE
)
_ENDS = re.compile(r"(?<=[^\W\d_][^\W_])[.!?](?=\s)|(?<=\d)\.(?=\s)|[。！？]|\n")


def find_answer(text: str, extract: Extract = "text", prefill: str = "") -> str | None:
    r"""The answer in a completion; None where it holds none.

    With `text` it is the last box, else the sentence that announces it last ("Answer: …", "The answer is
    …"), else all that is said besides the reasoning.

    >>> find_answer("<think>Maybe \\boxed{Lyon}.</think> \\boxed{Paris}", "boxed")
    'Paris'
    >>> find_answer("I first thought of Lyon. The final answer is Paris. I checked it twice.")
    'Paris'
    >>> find_answer("<think>Easy.</think> <answer>Rome</answer>", "answer")
    'Rome'
    """
    said = without_reasoning(text, prefill)
    if said is None:
        return None
    if extract == "answer":
        span = tag(said, "answer")
        return None if span is None else span.text
    span = boxed(said)
    if span is not None or extract == "boxed":
        return None if span is None else span.text
    return announced(said)


def announced(text: str) -> str:
    """The sentence that the last "Answer:" or "The answer is" of a text announces; without one the text."""
    starts = [match.end() for match in _ANNOUNCED.finditer(text)]
    if not starts:
        return text
    rest = text[starts[-1] :]
    end = _ENDS.search(rest)
    return rest[: end.start()] if end and end.start() else rest
