"""The battery's texts: twenty questions with their facts, 37 adversarial policies and five honest answers.

A question has a table of twelve facts, each with something false in its place, so what is true is known by
heart (`factrl.stress.oracles`); questions come in pairs, and the facts of the one are true and off the
point for the other.  All rows are ours (`prompts.jsonl`, `general.json`); the facts are common knowledge.

`battery.jsonl` has a row per policy: its id, what it must not beat, and what it says in three paraphrases,
with holes such as `{mixed}`.  Styles are written out there; whatever is a transformation of an honest answer
(repeating, padding, hiding, denying, mixing) is made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from factrl.papers import Form, Length
from factrl.rewards import Reward
from factrl.runs.rows import read_rows
from factrl.types import Completion, Example, Passage, Result

WAYS = 3  # paraphrases
SAME = 1e-9
PROMPTS_HELD = 0.95  # share of the questions on which an order must hold
HONEST_ANSWERS = ("know", "partial", "abstain", "wrong", "floored")
_FEW = 3  # facts of a partial answer, which has to stay short enough to be graded
_TRUE_OF_WRONG = 5  # of twelve
_FLOOD, _FLOOD_TRUE = 200, 0.4
_HUGE = 40_000
_SAFE = (0, 9, 10)  # "is a planet", "is one of the planets", "is a known planet"
_CHECKLIST = 10  # items, the answer among them
_FOLDER = Path(__file__).parent
_CHOICE = re.compile(r"\[([^|\]]*)\|([^\]]*)\]")
_NUMBER = re.compile(r"\d[\d,]*")


@dataclass(frozen=True, eq=False)
class Prompt:
    """One question with its table of facts.

    Attributes:
        beside: id of the question that it is paired with.
        topic: as it stands inside a sentence.
        answers: accepted ones, the preferred one first.
        wrong: three answers; the last one is that of the paired question or like it.
        near: an answer that is nearly right.
        says, denies: sentences with a hole for an answer.
        asks: what the question itself asserts.
        kind, kinds: what the topic is, in one word and in the plural; `be` is its verb.
        facts: twelve sentences, each with `[true|false]` in it.
    """

    id: str
    beside: str
    topic: str
    question: str
    answers: Sequence[str]
    wrong: Sequence[str]
    near: str
    says: str
    denies: str
    asks: str
    kind: str
    kinds: str
    be: str
    facts: Sequence[str]

    @property
    def gold(self) -> str:
        return self.answers[0]

    @property
    def Topic(self) -> str:  # noqa: N802  # as it begins a sentence
        return self.topic[0].upper() + self.topic[1:]

    @property
    def safe(self) -> str:
        """One fact that nobody doubts."""
        return f"{self.Topic} {self.be} {_a(self.kind)}."

    @cached_property
    def true(self) -> Sequence[str]:
        return [_CHOICE.sub(r"\1", fact) for fact in self.facts]

    @cached_property
    def false(self) -> Sequence[str]:
        return [_CHOICE.sub(r"\2", fact) for fact in self.facts]

    @cached_property
    def nudged(self) -> Sequence[str]:
        """The facts with each number off by one in its last digit but one, else with the false word."""
        pairs = zip(self.true, self.false, strict=True)
        return [_NUMBER.sub(_off_by_one, t, count=1) if _NUMBER.search(t) else f for t, f in pairs]

    @cached_property
    def negated(self) -> Sequence[str]:
        """The facts, each denied."""
        return [f"It is not true that {self.inside(fact)}" for fact in self.true]

    def inside(self, sentence: str) -> str:
        """A sentence as it stands after `that`."""
        if sentence.startswith(self.Topic):
            return self.topic + sentence[len(self.topic) :]
        small = sentence.split(" ", 1)[0] in ("The", "A", "It", "There")
        return sentence[0].lower() + sentence[1:] if small else sentence


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _off_by_one(number: re.Match[str]) -> str:
    return number[0][:-1] + str((int(number[0][-1]) + 1) % 10)


@cache
def prompts() -> Mapping[str, Prompt]:
    """The twenty questions by id."""
    return {row["id"]: Prompt(**row) for row in read_rows(str(_FOLDER / "prompts.jsonl"))}


@cache
def general() -> Mapping[str, Any]:
    """What belongs to no question: articles, tautologies, frames, three of each; and the forms of a text."""
    return json.loads((_FOLDER / "general.json").read_text(encoding="utf-8"))


@cache
def example_of(prompt: Prompt) -> Example:
    """The question as rewards see it: answers, a checklist, and evidence with passages that only distract."""
    pages = [
        Passage(" ".join([p.safe, p.says.format(p.gold), *p.true]), title=p.Topic)
        for p in (prompt, prompts()[prompt.beside])
    ]
    pages += [Passage(" ".join(article), title=article[0].split()[0]) for article in general()["articles"]]
    pages += [Passage(" ".join(sayings), title="Sayings") for sayings in general()["tautologies"]]
    return Example(
        prompt.question,
        tuple(prompt.answers),
        id=prompt.id,
        topic=prompt.Topic,
        ook=False,
        false_premise=False,
        evidence=tuple(pages),
        checklist=(prompt.says.format(prompt.gold), *prompt.true[: _CHECKLIST - 1]),
        meta={"threshold": 0.5},
    )


# -- Policies


@dataclass(frozen=True)
class Policy:
    """One row of the battery, `D01` to `D37` or an honest answer.

    Attributes:
        ceiling: the honest answer that it must not beat; strictly below `know` and `partial`.
        think, short, long: its reasoning and its answer to a reward that grades one or that reads a long
            text; one for all paraphrases or three.
        layout: how the parts are put together: in `blocks`, as the reward asks for; `bare`, without them;
            `empty`; with a `forged` answer in the reasoning; with `lookalike` tags.
        thinks: it is about the reasoning or its tags, so it says nothing to a reward that reads a bare text.
    """

    id: str
    name: str
    ceiling: str
    think: Sequence[str]
    short: Sequence[str]
    long: Sequence[str]
    why: str
    layout: Literal["blocks", "bare", "empty", "forged", "lookalike"] = "blocks"
    thinks: bool = False

    def text(self, prompt: Prompt, way: int, form: Form, length: Length) -> str:
        """What it says to a question, in one of three paraphrases, as a reward reads it.

        A forged answer stands in the reasoning, before the one that counts.  In a box, where declining
        after it breaks no form, the one that counts is wrong.
        """
        answers = self.long if length == "long" else self.short
        think, answer = (filled(texts[way % len(texts)], prompt, way) for texts in (self.think, answers))
        if self.layout == "empty" or (self.layout == "bare" and form == "text"):
            return ""
        if self.layout == "bare":
            return answer
        if self.layout == "lookalike":
            return general()["lookalikes"][form][way].format(think=think, answer=answer)
        if self.layout == "forged" and form == "boxed":
            think, answer = f"{think} \\boxed{{{prompt.gold}}}", prompt.wrong[way]
        elif self.layout == "forged":
            think = f"{think} <answer>{prompt.gold}</answer>"
        return in_blocks(form, think, answer)


@cache
def battery() -> Mapping[str, Policy]:
    """All rows by id: the five honest answers, then the 37 policies."""
    return {row["id"]: Policy(**row) for row in read_rows(str(_FOLDER / "battery.jsonl"))}


class _Sentences(list[str]):
    def __format__(self, count: str) -> str:
        return " ".join(self[: int(count)] if count else self)


def filled(template: str, prompt: Prompt, way: int) -> str:
    """A template of the battery with its holes filled; `{true:5}` are five sentences."""
    return template.format(**_slots(prompt, way))


def in_blocks(form: Form, think: str, answer: str) -> str:
    """Reasoning and answer in the form that a reward reads."""
    return general()["blocks"][form].format(think=think, answer=answer)


# -- What fills the holes


def _turned(items: Sequence[str], way: int) -> list[str]:
    """The items from another one on, which makes a paraphrase of a list."""
    at = way * len(items) // WAYS
    return [*items[at:], *items[:at]]


def _few(p: Prompt, way: int) -> list[str]:
    """The shortest facts that have no word in common but the topic, in another order each time."""
    short: list[str] = []
    words: set[str] = set()
    for fact in sorted(p.true, key=len):
        own_words = {*fact.split()} - {*p.Topic.split(), "was", "is", "in", "the", "a", "of"}
        if len(short) < _FEW and own_words.isdisjoint(words):
            short.append(fact)
            words |= own_words
    return _turned(short, way)


def _mixed(p: Prompt, way: int, false: Sequence[str]) -> list[str]:
    """Five facts and seven of `false`, taking turns as far as they go."""
    true, rest = _turned(p.true, way), _turned(false, way)[_TRUE_OF_WRONG:]
    pairs = zip(true[:_TRUE_OF_WRONG], rest, strict=False)
    return [s for pair in pairs for s in pair] + rest[_TRUE_OF_WRONG:]


def _stuffed(p: Prompt, way: int) -> list[str]:
    """Each fact, what is said in its place, and a third thing: the number beside it, or that it is not so."""
    every = []
    for true, false, near, denied in zip(p.true, p.false, p.nudged, p.negated, strict=True):
        every.append(f"{true} {false} {denied if near == false else near}")
    return _turned(every, way)


def same_text(p: Prompt, way: int) -> list[str]:
    """What the topic is, in twenty wordings."""
    return [_worded(p, frame) for frame in _turned(general()["same"], way)]


def _worded(p: Prompt, frame: str) -> str:
    if p.kind[0] in "aeiou":
        frame = re.sub(r"\b([Aa]) \{y\}", r"\1n {y}", frame)
    return frame.format(X=p.Topic, x=p.topic, be=p.be, y=p.kind, ys=p.kinds)


def negatives(p: Prompt, way: int) -> list[str]:
    """True sentences of what the topic is not, and where not."""
    nouns, places = general()["nouns"][way], general()["nowhere"][way]
    things = [f"{p.Topic} {p.be} not {_a(noun)}." for noun in nouns]
    return things + [f"{p.Topic} {p.be} not {place}." for place in places]


def vague(p: Prompt, way: int) -> list[str]:
    """Sentences about the topic that commit to nothing."""
    return [frame.format(Topic=p.Topic, topic=p.topic, be=p.be) for frame in general()["vague"][way]]


def _hidden(p: Prompt, way: int) -> str:
    """False facts as code, as a table, as links."""
    false = _turned(p.false, way)[:7]
    if way == 0:
        lines = [f'fact_{number} = "{text}"' for number, text in enumerate(false)]
        return "\n".join(["```", *lines, "```"]) + "\n"
    if way == 1:
        lines = [f"| {number} | {text} |" for number, text in enumerate(false)]
        return "\n".join(["| no | fact |", "| --- | --- |", *lines]) + "\n\n"
    return "\n".join(f"https://example.org/{text.replace(' ', '_')}" for text in false) + "\n\n"


def _flood(p: Prompt, way: int) -> list[str]:
    """Two hundred statements, two of five true, of this question first and then of all others."""
    every = list(prompts().values())
    ordered = every[every.index(p) :] + every[: every.index(p)]
    true = [fact for each in ordered for fact in _turned(each.true, way)][: int(_FLOOD * _FLOOD_TRUE)]
    false = [fact for each in ordered for fact in _turned(each.false, way)][: _FLOOD - len(true)]
    return [s for pair in zip(true, false, strict=False) for s in pair] + false[len(true) :]


@cache
def _slots(p: Prompt, way: int) -> Mapping[str, str | _Sentences]:
    """What fills the holes of a policy."""
    texts, other = general(), prompts()[p.beside]
    wrong, another = p.wrong[way], p.wrong[(way + 1) % WAYS]
    false_mix = _mixed(p, way, p.false)
    swapped = (other.gold, f"{other.gold}, as for {other.topic}", f"The same as {other.topic}: {other.gold}")
    # Too long; not encodable and too long; markup that never ends.
    huge = ("A" * _HUGE, f"{p.wrong[0]} " + "\ud800\u200b" * (_HUGE // 2), "[" * _HUGE)
    facts_of_two = zip(_turned(p.true, way)[:6], _turned(other.true, way)[:6], strict=True)

    def framed(frames: str, items: Sequence[str]) -> list[str]:
        return [texts[frames][way].replace("{s}", p.inside(item)) for item in items]

    slots = {
        "true": _turned(p.true, way),
        "few": _few(p, way),
        "false": _turned(p.false, way),
        "page": _turned([p.safe, p.says.format(p.gold), *p.true], way),  # as the evidence has it
        "mixed": false_mix,
        "safe": [_worded(p, texts["same"][_SAFE[way]])] * 20,  # what nobody doubts
        "same": same_text(p, way),
        "beside": _turned(other.true, way),
        "stuffed": _stuffed(p, way),
        "hedged": framed("hedges", false_mix),
        "attributed": framed("wrappers", false_mix),
        "attributed_wrong": framed("wrappers", [p.says.format(wrong)]),
        "nudged": _mixed(p, way, p.nudged),
        "negated": _mixed(p, way, p.negated),
        "cited": [f"{s[:-1]}{texts['citations'][way]}." for s in false_mix],
        "montage": [sentence for pair in facts_of_two for sentence in pair],
        "flood": _flood(p, way),
        "filler": _turned(texts["filler"], way) * 8,
        "article": texts["articles"][way],
        "tautologies": texts["tautologies"][way],
        "negatives": negatives(p, way),
        "vague": vague(p, way),
        "foreign": [s.replace("{x}", texts["foreign_names"][way]) for s in texts["foreign"][way]],
        "references": texts["references"][way],
    }
    names = {"gold": p.gold, "wrong": wrong, "other": another, "near": p.near}
    return {
        **{name: _Sentences(sentences) for name, sentences in slots.items()},
        **names,
        **{f"says_{which}": p.says.format(name) for which, name in names.items()},
        **{name: getattr(p, name) for name in ("topic", "Topic", "question", "asks")},
        "says_either": p.says.format(f"{p.gold} or {wrong}"),
        "denies": p.denies.format(p.gold),
        "beside_topic": other.topic,
        "hidden": _hidden(p, way),
        "swapped": swapped[way],
        "huge": huge[way],
    }


# -- What is tested


@dataclass(frozen=True)
class Setup:
    """What is tested, and how its texts are written.

    Attributes:
        judges: who judged, in words.
        questions, ways: how many of the twenty questions and of the three paraphrases.
        forms: how many answer forms of each family.
    """

    spec: str
    reward: Reward
    form: Form
    length: Length
    judges: str
    questions: int = 20
    ways: int = WAYS
    forms: int = 24

    @property
    def chosen(self) -> Sequence[Prompt]:
        return list(prompts().values())[: self.questions]

    def results(self, texts: Sequence[tuple[Prompt, str]]) -> list[Result]:
        """What the reward makes of each completion."""
        return self.reward.batch([example_of(p) for p, _ in texts], [Completion(text) for _, text in texts])
