"""How a policy of the battery writes in each form in which rewards read completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from factrl.papers import Form, Length

Layout = Literal["blocks", "bare", "empty", "forged", "lookalike"]

_BLOCKS: dict[Form, str] = {
    "tags": "<think>{think}</think>\n<answer>{answer}</answer>",
    "boxed": "<think>{think}</think>\n\\boxed{{{answer}}}",
    "text": "{answer}",
}
_LOOKALIKES: dict[
    Form, tuple[str, str, str]
] = {  # a Cyrillic letter, full-width brackets, a zero-width space
    "tags": (
        "<think>{think}</think>\n<\u0430nswer>{answer}</\u0430nswer>",
        "<think>{think}</think>\n\uff1canswer\uff1e{answer}\uff1c/answer\uff1e",
        "<think>{think}</think>\n<ans\u200bwer>{answer}</ans\u200bwer>",
    ),
    "boxed": (
        "<think>{think}</think>\n\\b\u043exed{{{answer}}}",
        "<think>{think}</think>\n\uff3cboxed\uff5b{answer}\uff5d",
        "<think>{think}</think>\n\\box\u200bed{{{answer}}}",
    ),
    "text": ("{answer}", "{answer}", "{answer}"),
}


@dataclass(frozen=True)
class Written:
    """What a policy has to say, before it is put into a form.

    Attributes:
        think: its reasoning.
        short: its answer to a reward that grades an answer.
        long: its answer to a reward that reads a long text.
        layout: how the parts are put together; `blocks` is as the reward asks for.
        gold, wrong: answers that a layout may need.
        way: which of the three paraphrases.
    """

    think: str
    short: str
    long: str
    layout: Layout = "blocks"
    gold: str = ""
    wrong: str = ""
    way: int = 0


def write(written: Written, form: Form, length: Length) -> str:
    """The completion.

    A forged answer stands in the reasoning, before the one that counts.  In a box, where declining after
    it breaks no form, the one that counts is wrong.
    """
    said = written.long if length == "long" else written.short
    think, layout = written.think, written.layout
    if layout == "empty":
        return ""
    if layout == "bare":
        return "" if form == "text" else said
    if layout == "lookalike":
        return _LOOKALIKES[form][written.way % 3].format(think=think, answer=said)
    if layout == "forged":
        if form == "boxed":
            think, said = f"{think} \\boxed{{{written.gold}}}", written.wrong
        else:
            think = f"{think} <answer>{written.gold}</answer>"
    return _BLOCKS[form].format(think=think, answer=said)
