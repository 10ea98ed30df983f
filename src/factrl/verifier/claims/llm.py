"""Atomic claims by a language model, in the manner of FActScore, VeriScore and KnowRL.

The prompts are files beside this one, in words of our own.  What differs from the originals: the text is
quoted as JSON, sentences that address a grader are not shown to the model, replies are read strictly, and a
claim whose words are not in the text gives way to the sentence that it is nearest to.

- `factscore` (arXiv 2305.14251): every atomic fact, sentence by sentence; here in one call, there one call
  each.
- `veriscore` (arXiv 2406.19276, section 3): verifiable claims only, one call per sentence with the question,
  three sentences before and one after; or the whole text in one call.
- `knowrl` (arXiv 2506.19807, code): explicit statements of a train of thought, its last version where it
  corrects itself, in one call.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from factrl.errors import LLMError, PolicyFault, Unscored
from factrl.llm import LLM, ask
from factrl.llm.quoting import quoted_message
from factrl.llm.replies import bare
from factrl.types import Claim
from factrl.verifier.claims import Statement, content_words, mark, normalised, speaks_of_itself, statements
from factrl.verifier.claims.stating import has_value

Style = Literal["factscore", "veriscore", "veriscore_response", "knowrl"]

BEFORE, AFTER = 3, 1
"""Sentences shown around the one that is taken apart; VeriScore's window."""
_ROOM, _ROOM_OF_ONE = 4096, 1024  # tokens of a reply about a text, and about a sentence
_MANY = 64  # facts: as many as a verifier judges of one text


class LLMClaims:
    """Claims that a language model finds; the calls about one text run side by side.

    Args:
        llm: any LLM.
        style: whose definition of a claim: `factscore`, `veriscore` (one call per sentence),
            `veriscore_response` (one call) or `knowrl`.

    """

    def __init__(self, llm: LLM, style: Style = "factscore") -> None:
        self.llm, self.style = llm, style
        self.per_sentence = style == "veriscore"
        self.prompt = (Path(__file__).parent / "prompts" / f"{style}.txt").read_text("utf-8").strip()

    @property
    def identity(self) -> str:
        """Style, prompt and model: everything that changes the claims."""
        digest = hashlib.sha256(self.prompt.encode()).hexdigest()[:12]
        model = (
            getattr(self.llm, "identity", None) or getattr(self.llm, "model", None) or type(self.llm).__name__
        )
        return f"{self.style}/{digest}/{model}"

    async def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """The claims of `text` in the order of its sentences, marked by `factrl.verifier.claims.mark`.

        Raises:
            Unscored: `extract_unreadable` or `truncated`: a reply that cannot be read.
            PolicyFault: `oversize`: the list was cut off, with more facts of the text in it than are judged.
            LLMError: the model could not be asked.
        """
        shown: list[Statement] = []
        claims: list[Claim] = []
        for unit in statements(text):
            # What addresses a grader could address the extractor too, so the model does not see it.
            if unit.skip is not None or speaks_of_itself(unit.text, question):
                claims.append(Claim(unit.text, unit.start, unit.end, unit.sentence, unit.skip))
            else:
                shown.append(unit)
        if shown:
            places = Places(text, shown, f"{question} {topic}")
            requests = list(self._requests(shown, question, topic))
            replies = await asyncio.gather(*(self._facts(data) for _, data in requests))
            found: list[Claim] = []
            reworded: set[int | None] = set()
            for (number, _), (facts, cut) in zip(requests, replies, strict=True):
                kept: list[Claim] = []
                for fact in facts:
                    if claim := places.claim(fact, number):
                        kept.append(claim)
                    else:
                        reworded.add(places.nearest(fact) if number is None else number)
                if cut is not None:  # a model that repeats itself has no more facts to list
                    if len({normalised(claim.text) for claim in kept}) <= _MANY:
                        raise cut
                    raise PolicyFault("oversize", f"more than {_MANY} facts, and {cut.detail}", **cut.facts)
                found += kept
            claims += _whole(shown, found, reworded)
        return mark(sorted(claims, key=lambda claim: claim.sentence), question)

    def _requests(
        self, shown: Sequence[Statement], question: str, topic: str
    ) -> Iterator[tuple[int | None, dict[str, Any]]]:
        """The data of every call, with the number of the statement that it is about."""
        words = [f"{unit.context} {unit.text}".strip() for unit in shown]
        opening = {"question": question} if self.style.startswith("veriscore") else {"topic": topic}
        if not self.per_sentence:
            yield None, {**opening, "sentences": words}
            return
        first = {sentence: number for number, sentence in reversed([*enumerate(words)])}
        for sentence, number in sorted(first.items(), key=lambda one: one[1]):  # a repeat says nothing more
            before, after = words[max(0, number - BEFORE) : number], words[number + 1 : number + 1 + AFTER]
            yield number, {**opening, "before": before, "sentence": sentence, "after": after}

    async def _facts(self, data: Mapping[str, Any]) -> tuple[list[str], Unscored | None]:
        """The facts of one reply, and the error that it is where it was cut off."""
        messages = quoted_message(self.prompt, data)
        length = len(messages[0]["content"]) - len(self.prompt)
        # A wordy text could hide behind a list that is cut off, so a long one gets a longer list.
        usual = _ROOM_OF_ONE if self.per_sentence else _ROOM
        room = max(usual, length // 2)
        try:
            try:
                reply = await ask(self.llm, messages, temperature=0.0, max_tokens=room)
            except LLMError as error:
                if error.cause != "context_length" or room <= usual:
                    raise
                reply = await ask(self.llm, messages, temperature=0.0, max_tokens=usual)
        except LLMError as error:
            if error.cause != "truncated":
                raise
            return _whole_facts(error.facts.get("text", "")), error
        facts = {"stage": "extract", "attempts": reply.attempts, "request_id": reply.request_id}
        if reply.finish_reason == "length":
            cut = Unscored("truncated", f"the list of facts is longer than {room} tokens", **facts)
            return _whole_facts(reply.text), cut
        return read_facts(reply.text, **facts), None


def _whole(
    shown: Sequence[Statement], found: Sequence[Claim], reworded: Collection[int | None]
) -> Iterator[Claim]:
    """The claims, where a statement whose facts are not in its own words (`reworded`) stands for itself.

    Without a place, None, a fact may be of any statement that has no claim, and a value.
    """
    own = {claim.sentence for claim in found}
    whole = {
        unit.sentence: Claim(f"{unit.context} {unit.text}".strip(), unit.start, unit.end, unit.sentence)
        for number, unit in enumerate(shown)
        if number in reworded or (None in reworded and unit.sentence not in own and has_value(unit.text))
    }
    yield from (claim for claim in found if claim.sentence not in whole)
    yield from whole.values()


def _whole_facts(reply: str) -> list[str]:
    """The facts of a reply that was cut off, but for its last line."""
    try:
        return read_facts(reply.rpartition("\n")[0])
    except Unscored:
        return []


# -- Replies: the list of facts, read as a person would read it, or not at all.  A list mark is a bullet, or a
# -- number that counts; everything else on a line belongs to the fact.  Patterns that strip what looks like a
# -- number have turned "1984 is a novel" into "is a novel" (peers, 2.6).

_BULLET = re.compile(r"[-*•‣◦▪●·–—]\s{1,8}|[•‣◦▪●]")
_NUMBER = re.compile(r"\(?(\d{1,3})[.):]\s{1,8}|\((\d{1,3})\)\s{0,8}")
_EMPHASIS = re.compile(r"\*\*|__|`")
_FENCE = re.compile(r"(?:```|~~~)[\w-]{0,20}\s{0,8}")
_SPACES = re.compile(r"\s+")
NONE = frozenset(
    {
        *("no verifiable claim", "no verifiable claims", "no verifiable claims found", "no claim"),
        *("no claims", "no facts", "no fact", "no atomic facts", "no facts found", "no factual statements"),
        *("none", "there are no facts", "there are no verifiable claims", "the text states no facts"),
        "the sentence states no facts",
    }
)
"""Replies that say plainly that there is nothing, in small letters and without signs."""


def read_facts(reply: str, **facts: Any) -> list[str]:
    """The facts of a reply, in order; an empty list when it says plainly that there are none.

    Only lines with a list mark are facts.  Lines before and between them ("Here are the facts:") are not,
    and a marked line that ends in a colon is a heading.  Of a reasoning model's reply only what follows
    `</think>` is read.  What is known about the call is kept with the error.

    Raises:
        Unscored: `extract_unreadable`: an empty reply, a refusal, prose, or a list of nothing.
    """
    _, closed, text = reply.rpartition("</think>")
    if not closed and "<think>" in reply:
        raise Unscored("extract_unreadable", "the reply is a thought that never ends", **facts)
    text = bare(text)
    lines = [line for line in map(str.strip, text.split("\n")) if line and not _FENCE.fullmatch(line)]
    listed: list[str] = []
    marked = none = False
    count = 0
    for line in lines:
        words, count, has_mark = _unmarked(line, count)
        if _plain(words) in NONE:
            none = True
        elif has_mark:
            marked = True
            words = _SPACES.sub(" ", _EMPHASIS.sub("", words)).strip()
            if any(map(str.isalnum, words)) and not words.endswith((":", "：")):
                listed.append(words)
    if listed or (none and not marked and (len(lines) == 1 or _plain(" ".join(lines)) in NONE)):
        return listed
    start = " ".join(text.split())[:200]
    problem = f"the reply is neither a list of facts nor the words for none: {start!r}"
    raise Unscored("extract_unreadable", problem if start else "the reply is empty", **facts)


def _unmarked(line: str, count: int) -> tuple[str, int, bool]:
    """A line without its list marks, the number it counted to, and whether it had a mark.

    A number is a mark only when it counts: 1, or one more than the number before.
    """
    has_mark = False
    for _ in range(3):
        bullet = _BULLET.match(line)
        number = None if bullet else _NUMBER.match(line)
        if bullet:
            line = line[bullet.end() :]
        elif number and (value := int(number[1] or number[2])) in (1, count + 1) and not (has_mark and count):
            count = value
            line = line[number.end() :]
        else:
            break
        has_mark = True
    if has_mark or line.strip("-*•‣◦▪●·–—"):
        return line, count, has_mark
    return "", count, True  # a bullet with nothing behind it


def _plain(words: str) -> str:
    return " ".join(re.sub(r"[^\w\s]|_", " ", words.casefold()).split())


# -- Places in the text: a claim counts only when its words are there, so that neither the text nor the model
# -- can smuggle one past the judge (reliability, C1 rule 4).

_WORD = re.compile(r"\d[\w.,:%°'’–/-]*|[^\W\d_][\w.'’/&-]*|\S")
_PLACES = 100  # units; a word that stands in more tells no place from another
_SHARE = 0.5
"""Share of the content words of a claim that must stand in the text or in what was asked."""


class Places:
    """The content words of a text and where they stand; claims may take words from what is `given` too."""

    def __init__(self, text: str, units: Sequence[Statement], given: str = "") -> None:
        self._units = units
        self._spans = [_first_to_last(text, unit) for unit in units]
        self._rarity = Counter(word for spans in self._spans for word in spans)
        self._where: dict[str, list[int]] = {}
        for number, spans in enumerate(self._spans):
            for word in spans:
                if self._rarity[word] <= _PLACES:
                    self._where.setdefault(word, []).append(number)
        self._given = content_words(given)

    def claim(self, fact: str, only: int | None = None) -> Claim | None:
        """The claim with the stretch that shares most of its rare words; None when the text does not say it.

        The text must hold at least one of its content words and every number; half of all content words must
        stand in the text or in what was given.  With `only` it must come from the unit of this number.
        """
        words = content_words(fact)
        known = words & (self._rarity.keys() | self._given)
        if not words or len(known) < _SHARE * len(words):
            return None
        if any(word[0].isdigit() for word in words - known):
            return None
        best = (self.nearest(fact) or 0) if only is None else only
        shared = [self._spans[best][word] for word in words if word in self._spans[best]]
        if not shared:
            return None
        start, end = min(start for start, _ in shared), max(end for _, end in shared)
        return Claim(fact, start, end, self._units[best].sentence)

    def nearest(self, fact: str) -> int | None:
        """The number of the unit that shares most of the fact's rare words; None where none has any."""
        shares = Counter[int]()
        for word in content_words(fact):
            for number in self._where.get(word, ()):
                shares[number] += 1.0 / self._rarity[word]  # pyright: ignore[reportArgumentType]
        return max(shares, key=lambda number: (shares[number], -number), default=None)


def _first_to_last(text: str, unit: Statement) -> dict[str, tuple[int, int]]:
    """For each content word of a statement where it first begins and where it last ends in the text."""
    spans: dict[str, tuple[int, int]] = {}
    for match in _WORD.finditer(text, unit.start, unit.end):
        token = match[0].rstrip(".,:;'’–-/&") or match[0]
        start, end = match.start(), match.start() + len(token)
        for word in content_words(token):
            spans[word] = spans.get(word, (start,))[0], end
    return spans
