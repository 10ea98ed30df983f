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

_THINKS = (
    r"(?:\w{1,20}[_:])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad|internal)"
)
MARKS = (
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|channel>thought", r"<channel\|>"),
    (rf"<\|?{_THINKS}\|?>", rf"</\|?{_THINKS}\|?>|<\|/{_THINKS}\|>"),  # <think>, <seed:think>, <thinking>
    # gpt-oss: the channels before `final`.
    (r"<\|channel\|>(?:analysis|commentary)<\|message\|>", r"<\|end\|>"),
)
"""Patterns of what opens and what closes reasoning; capitals make no difference."""
_ANY = re.compile(
    "|".join(f"(?P<open{n}>{opens})|(?P<close{n}>{closes})" for n, (opens, closes) in enumerate(MARKS)),
    re.IGNORECASE,
)
_CLOSE = [re.compile(closes, re.IGNORECASE) for _, closes in MARKS]
_AROUND = re.compile(r"<\|(?:(?:begin|end)_of_solution|(?:START|END)_RESPONSE)\|>", re.IGNORECASE)
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
        kind, number = str(found.lastgroup)[:-1], int(str(found.lastgroup)[-1])
        if kind == "open":
            kept.append(whole[start : found.start()])
            end = _CLOSE[number].search(whole, found.end())
            if end is None:
                return None
            at = start = end.end()
            last = ""
        else:
            last = "".join([*kept, whole[start : found.start()]])
            kept, at, start = [], found.end(), found.end()
    rest = _AROUND.sub("", _FINAL.sub("", "".join([*kept, whole[start:]])))
    return rest if rest.strip() or not last else last


_ANNOUNCED = re.compile(
    rf"(?:^|(?<=[.!?。！？:\n] )|(?<=[\n。！？]))[*_#>\s]{{0,4}}{LABEL}[*_ ]{{0,4}}(?=\S)", re.IGNORECASE
)
_ENDS = re.compile(r"(?<=[^\W\d_][^\W_])[.!?](?=\s)|(?<=\d)\.(?=\s)|[。！？]|\n")


def find_answer(
    text: str, extract: Extract = "text", prefill: str = "", *, whole: bool = False
) -> str | None:
    r"""The answer in a completion; None where it holds none.

    With `text` it is the last box, else the last `<answer>`, else the sentence that announces it last
    ("Answer: …", "The answer is …"), else all that is said besides the reasoning.

    >>> find_answer("<think>Maybe \\boxed{Lyon}.</think> \\boxed{Paris}", "boxed")
    'Paris'
    >>> find_answer("I first thought of Lyon. The final answer is Paris. I checked it twice.")
    'Paris'
    >>> find_answer("<think>Easy.</think> <answer>Rome</answer>", "answer")
    'Rome'

    Args:
        whole: an announcement holds up to the text's end, as rewards read it: what stands behind an answer
            may take it back.
    """
    said = without_reasoning(text, prefill)
    if said is None:
        return None
    if extract == "answer":
        span = tag(said, "answer")
        return None if span is None else span.text
    span = boxed(said)
    if extract == "text":
        span = span or tag(said, "answer")
    if span is not None or extract == "boxed":
        return None if span is None else span.text
    return announced(said, whole=whole)


def announced(text: str, *, whole: bool = False) -> str:
    """The sentence that the last "Answer:" or "The answer is" of a text announces; without one the text."""
    starts = [match.end() for match in _ANNOUNCED.finditer(text)]
    if not starts:
        return text
    rest = text[starts[-1] :]
    end = None if whole else _ENDS.search(rest)
    if end and end.start() and end[0] != "?":  # what is asked is not announced
        rest = rest[: end.start()]
    return rest if rest.count("**") % 2 == 0 else rest.replace("**", "", 1)
