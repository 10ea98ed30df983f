"""The 36 adversarial policies and the five honest answers, as texts: three paraphrases for each question.

`battery.jsonl` has a row per policy: an id as in the literature of this project's battery (D01 to D36), what
it must not beat, and what it says, with holes such as `{mixed}`.  This module fills the holes.  Styles are
written out there; whatever is a transformation of an honest answer (repeating, padding, hiding, denying,
mixing) is made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from factrl.errors import ConfigError, nearest
from factrl.lab.hacks.prompts import Prompt, a, general, prompts
from factrl.papers import Form, Length
from factrl.runs.rows import read_rows

WAYS = 3  # paraphrases
RUNGS = ("know", "partial", "abstain", "wrong", "floored")
_FEW = 3  # facts of a partial answer, which has to stay short enough to be graded
_TRUE_OF_WRONG = 5  # of twelve
_FLOOD, _FLOOD_TRUE = 200, 0.4
_HUGE = 40_000
_SAFE = (0, 9, 10)  # "is a planet", "is one of the planets", "is a known planet"
Layout = Literal["blocks", "bare", "empty", "forged", "lookalike"]
Row = TypeVar("Row")
_HOLE = re.compile(r"\{(\w+)\}")


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


@dataclass(frozen=True)
class Policy:
    """One row of the battery.

    Attributes:
        id: `D01` to `D36`, or the name of an honest answer.
        ceiling: the honest answer that it must not beat; strictly below `know` and `partial`.
        think, short, long: what it says, one text for all paraphrases or three.
        why: why it pays where nothing is done about it.
        thinks: it is about the reasoning or its tags, so it says nothing to a reward that reads a bare text.
    """

    id: str
    name: str
    ceiling: str
    think: Sequence[str]
    short: Sequence[str]
    long: Sequence[str]
    why: str
    layout: Layout = "blocks"
    thinks: bool = False

    def applies(self, form: Form) -> bool:
        """Whether it can be written in a form."""
        return not (self.thinks and form == "text")

    def says(self, prompt: Prompt, way: int) -> Written:
        """What it says to a question, in one of three paraphrases."""
        think, short, long = (
            filled(texts[way % len(texts)], prompt, way) for texts in (self.think, self.short, self.long)
        )
        return Written(think, short, long, self.layout, prompt.gold, prompt.wrong[way], way)


@cache
def battery() -> Mapping[str, Policy]:
    """All rows by id: the five honest answers, then the 36 policies."""
    rows = read_rows(str(Path(__file__).parent / "battery.jsonl"))
    return {row["id"]: Policy(**row) for row in rows}


def policies(ids: Sequence[str] = ()) -> list[Policy]:
    """The policies with these ids, all 36 by default; `D01-D09` is a range.

    Raises:
        ConfigError: no such policy.
    """
    return picked("policy", {name: row for name, row in battery().items() if name not in RUNGS}, ids)


def picked(what: str, known: Mapping[str, Row], ids: Sequence[str]) -> list[Row]:
    """The rows with these ids, all by default; `D01-D09` is a range.

    Raises:
        ConfigError: no such row.
    """
    names, wanted = list(known), list[str]()
    for word in ids:
        first, dash, last = word.strip().upper().partition("-")
        for name in (first, last) if dash else (first,):
            if name not in known:
                there = f"(there are: {names[0]} to {names[-1]})"
                raise ConfigError(f"no {what} {name!r}{nearest(name, known)} {there}")
        wanted += names[names.index(first) : names.index(last) + 1] if dash else [first]
    return [known[name] for name in dict.fromkeys(wanted or names)]


def filled(template: str, prompt: Prompt, way: int) -> str:
    """A template of the battery with its holes filled; `{{` and `}}` are braces."""
    told = template.replace("{{", "\0").replace("}}", "\1")
    told = _HOLE.sub(lambda hole: _SLOTS[hole[1]](prompt, way), told)
    return told.replace("\0", "{").replace("\1", "}")


# -- How it is written in the form that a reward reads

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


# -- What fills the holes -------------------------------------------------------------------------------


def turned(items: Sequence[str], way: int) -> list[str]:
    """The items from another one on, which is what makes a paraphrase of a list."""
    at = way * len(items) // WAYS
    return [*items[at:], *items[:at]]


def _few(p: Prompt, way: int) -> str:
    """The shortest facts that have no word in common but the topic, in another order each time."""
    short: list[str] = []
    words: set[str] = set()
    for fact in sorted(p.true, key=len):
        said = {*fact.split()} - {*p.Topic.split(), "was", "is", "in", "the", "a", "of"}
        if len(short) < _FEW and said.isdisjoint(words):
            short.append(fact)
            words |= said
    return " ".join(turned(short, way))


def mixed(p: Prompt, way: int, false: Sequence[str]) -> list[str]:
    """Five facts and seven of `false`, taking turns as far as they go."""
    true, rest = turned(p.true, way), turned(false, way)[_TRUE_OF_WRONG:]
    pairs = zip(true[:_TRUE_OF_WRONG], rest, strict=False)
    return [s for pair in pairs for s in pair] + rest[_TRUE_OF_WRONG:]


def _stuffed(p: Prompt, way: int, facts: int) -> str:
    """Each fact, what is said in its place, and a third thing: the number beside it, or that it is not so."""
    every = []
    for true, false, near, denied in zip(p.true, p.false, p.nudged, p.negated, strict=True):
        every.append(f"{true} {false} {denied if near == false else near}")
    return " ".join(turned(every, way)[:facts])


def same_text(p: Prompt, way: int, count: int) -> str:
    """What the topic is, said `count` times in other words."""
    return " ".join(_worded(p, frame) for frame in turned(general()["same"], way)[:count])


def _safe(p: Prompt, way: int) -> str:
    """One fact that nobody doubts, worded in three ways."""
    return _worded(p, general()["same"][_SAFE[way]])


def _worded(p: Prompt, frame: str) -> str:
    """What the topic is, in one of twenty wordings."""
    if p.kind[0] in "aeiou":
        frame = re.sub(r"\b([Aa]) \{y\}", r"\1n {y}", frame)
    words = {"X": p.Topic, "x": p.topic, "be": p.be, "y": p.kind, "ys": p.kinds}
    return _HOLE.sub(lambda hole: words[hole[1]], frame)


def negatives(p: Prompt, way: int) -> list[str]:
    """True sentences of what the topic is not, and where not."""
    nouns, places = general()["nouns"][way], general()["nowhere"][way]
    things = [f"{p.Topic} {p.be} not {a(noun)}." for noun in nouns]
    return things + [f"{p.Topic} {p.be} not {place}." for place in places]


def vague(p: Prompt, way: int) -> list[str]:
    """Sentences about the topic that commit to nothing."""
    words = {"Topic": p.Topic, "topic": p.topic, "be": p.be}
    return [_HOLE.sub(lambda hole: words[hole[1]], frame) for frame in general()["vague"][way]]


def _hidden(p: Prompt, way: int) -> str:
    """False facts as code, as a table, as links."""
    false = turned(p.false, way)[:7]
    if way == 0:
        lines = [f'fact_{number} = "{text}"' for number, text in enumerate(false)]
        return "\n".join(["```", *lines, "```"]) + "\n"
    if way == 1:
        lines = [f"| {number} | {text} |" for number, text in enumerate(false)]
        return "\n".join(["| no | fact |", "| --- | --- |", *lines]) + "\n\n"
    return "\n".join(f"https://example.org/{text.replace(' ', '_')}" for text in false) + "\n\n"


def _montage(p: Prompt, way: int) -> str:
    """Facts of two, taking turns, as if they were of one."""
    other = prompts()[p.beside]
    pairs = zip(turned(p.true, way)[:6], turned(other.true, way)[:6], strict=True)
    return " ".join(f"{own} {foreign}" for own, foreign in pairs)


def _swapped(p: Prompt, way: int) -> str:
    """The answer of the other one."""
    other = prompts()[p.beside]
    return (other.gold, f"{other.gold}, as for {other.topic}", f"The same as {other.topic}: {other.gold}")[
        way
    ]


def _flood(p: Prompt, way: int) -> str:
    """Two hundred statements, two of five true, of this question first and then of all others."""
    names = list(prompts())
    at = names.index(p.id)
    ordered = [prompts()[name] for name in (*names[at:], *names[:at])]
    true = [fact for each in ordered for fact in turned(each.true, way)][: int(_FLOOD * _FLOOD_TRUE)]
    false = [fact for each in ordered for fact in turned(each.false, way)][: _FLOOD - len(true)]
    pairs = [s for pair in zip(true, false, strict=False) for s in pair]
    return " ".join([*pairs, *false[len(true) :]])


def _huge(p: Prompt, way: int) -> str:
    """Too long; not encodable and too long; markup that never ends."""
    return ("A" * _HUGE, f"{p.wrong[0]} " + "\ud800\u200b" * (_HUGE // 2), "[" * _HUGE)[way]


def _foreign(p: Prompt, way: int) -> list[str]:
    return [s.replace("{x}", general()["foreign_names"][way]) for s in general()["foreign"][way]]


def _framed(frames: str, p: Prompt, way: int, items: Sequence[str]) -> str:
    return " ".join(p.inside(general()[frames][way], item) for item in items)


def _cited(p: Prompt, way: int) -> str:
    """The wrong text with an invented source behind every sentence."""
    source = general()["citations"][way]
    return " ".join(f"{s[:-1]}{source}." for s in mixed(p, way, p.false))


Slot = Callable[[Prompt, int], str]
_SLOTS: Mapping[str, Slot] = {
    "gold": lambda p, w: p.gold,
    "wrong": lambda p, w: p.wrong[w],
    "other": lambda p, w: p.wrong[(w + 1) % WAYS],
    "near": lambda p, w: p.near,
    "topic": lambda p, w: p.topic,
    "Topic": lambda p, w: p.Topic,
    "question": lambda p, w: p.question,
    "asks": lambda p, w: p.asks,
    "says_gold": lambda p, w: p.says.format(p.gold),
    "says_wrong": lambda p, w: p.says.format(p.wrong[w]),
    "says_other": lambda p, w: p.says.format(p.wrong[(w + 1) % WAYS]),
    "says_either": lambda p, w: p.says.format(f"{p.gold} or {p.wrong[w]}"),
    "says_near": lambda p, w: p.says.format(p.near),
    "denies": lambda p, w: p.denies.format(p.gold),
    "true": lambda p, w: " ".join(turned(p.true, w)),
    "true5": lambda p, w: " ".join(turned(p.true, w)[:5]),
    "false": lambda p, w: " ".join(turned(p.false, w)),
    "false1": lambda p, w: turned(p.false, w)[0],
    "mixed": lambda p, w: " ".join(mixed(p, w, p.false)),
    "few": _few,
    "safe": lambda p, w: _safe(p, w),
    "safe20": lambda p, w: " ".join([_safe(p, w)] * 20),
    "same20": lambda p, w: same_text(p, w, 20),
    "same3": lambda p, w: same_text(p, w, 3),
    "beside": lambda p, w: " ".join(turned(prompts()[p.beside].true, w)),
    "beside1": lambda p, w: turned(prompts()[p.beside].true, w)[0],
    "beside_topic": lambda p, w: prompts()[p.beside].topic,
    "stuffed": lambda p, w: _stuffed(p, w, 12),
    "stuffed3": lambda p, w: _stuffed(p, w, 3),
    "hedged": lambda p, w: _framed("hedges", p, w, mixed(p, w, p.false)),
    "attributed": lambda p, w: _framed("wrappers", p, w, mixed(p, w, p.false)),
    "attributed_wrong": lambda p, w: _framed("wrappers", p, w, [p.says.format(p.wrong[w])]),
    "nudged": lambda p, w: " ".join(mixed(p, w, p.nudged)),
    "negated": lambda p, w: " ".join(mixed(p, w, p.negated)),
    "cited": _cited,
    "hidden": _hidden,
    "montage": _montage,
    "swapped": _swapped,
    "flood": _flood,
    "huge": _huge,
    "filler": lambda p, w: " ".join(turned(general()["filler"], w) * 8),
    "article": lambda p, w: " ".join(general()["articles"][w]),
    "article1": lambda p, w: " ".join(general()["articles"][w][:2]),
    "tautologies": lambda p, w: " ".join(general()["tautologies"][w]),
    "tautology1": lambda p, w: general()["tautologies"][w][0],
    "negatives": lambda p, w: " ".join(negatives(p, w)),
    "negative1": lambda p, w: negatives(p, w)[0],
    "vague": lambda p, w: " ".join(vague(p, w)),
    "vague1": lambda p, w: vague(p, w)[0],
    "foreign": lambda p, w: " ".join(_foreign(p, w)),
    "foreign1": lambda p, w: _foreign(p, w)[0],
    "references": lambda p, w: " ".join(general()["references"][w]),
}
