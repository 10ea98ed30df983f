"""Telling "I don't know" from an answer, by a small learnt detector and one rule.

**The rule: whoever names something has answered.**  A name, a number, a date, a quotation, a sign or, in a
short text, any word that is neither the question's nor one that abstentions are made of: a text with one of
these never abstains under a reward.  So no form of words is right with one name and an abstention with
another.  Evaluation holds short texts to it alone, as long ones name whom to ask.

The detector is three logistic regressions on hashed n-grams of characters and of words, in which the words of
the question, unknown words and names are masked (`factrl.text.masking`): it sees that something is named, and
never what.  They say whether a sentence declines, whether it answers and whether the whole declines.
`abstention.npy` holds their weights in 8 bits and the words that abstentions are made of, and
`benchmarks/abstention_train.py` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from factrl.text import MAX_PAYLOAD, clean
from factrl.text.answers import (
    equals,
    final_answer,
    is_contentless,
    normalize_answer,
    normalize_released,
)
from factrl.text.masking import (
    ASKED,
    BARE,
    BUCKETS,
    DASH,
    IS_RUN,
    LINE,
    MASKS,
    NEW,
    Part,
    hashed,
    parts_of,
    tables,
    visible,
    words_of,
)

_SIZES = (2, 3, 4, 5)  # characters of an n-gram

# -- Scores

_P = np.uint32(0x01000193)


def grams(units: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of all n-grams of characters and words in several masked texts, and whose each is."""
    texts = [" " + " ".join(words) + " " for words in units]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    hashes, owners = [], []
    rolled = np.zeros(len(codes), np.uint32)
    for size in range(1, max(_SIZES) + 1):
        rolled = rolled[: len(codes) - size + 1] * _P + codes[size - 1 :] + np.uint32(size)
        if size in _SIZES:
            inside = owner[: len(rolled)] == owner[size - 1 :]
            hashes.append(rolled[inside])
            owners.append(owner[: len(rolled)][inside])
    said = np.array([hashed(word) for words in units for word in ("^", *words, "$")], np.uint32)
    owner = np.repeat(np.arange(len(units)), [len(words) + 2 for words in units])
    rolled = said * np.uint32(1)
    for size in (1, 2, 3):
        inside = owner[: len(rolled)] == owner[size - 1 :]
        hashes.append(rolled[inside] + np.uint32(size))
        owners.append(owner[: len(rolled)][inside])
        rolled = rolled[:-1] * _P + said[size:]
    every = np.concatenate(hashes)
    every ^= every >> np.uint32(15)
    every *= np.uint32(0x2C1B3C6D)
    every ^= every >> np.uint32(12)
    return every & np.uint32(BUCKETS - 1), np.concatenate(owners)


def _scored(units: Sequence[Sequence[str]]) -> np.ndarray:
    """The log odds of the three regressions for each masked text, `(3, units)`."""
    table = tables()
    found, owner = grams(units)
    sizes = np.bincount(owner, minlength=len(units))
    sums = [np.bincount(owner, weights=head[found], minlength=len(units)) for head in table.weights]
    return np.array(sums) / np.sqrt(np.maximum(sizes, 1)) + table.bias[:, None]


def sentences_of(parts: Sequence[Part]) -> list[list[str]]:
    """The masked words of each sentence, with a comma between its clauses; those without words left out."""
    found: list[list[str]] = [[]]
    for part in parts:
        found[-1] += part.words
        if part.ends:
            found.append([])
        elif found[-1]:
            found[-1].append(",")
    return [words for words in found if words and words != [","]] or [[""]]


def joined(sentences: Sequence[Sequence[str]]) -> list[str]:
    """The masked words of a whole text."""
    return [word for words in sentences for word in (*words, "|")]


MOST = 6.0
"""Log odds of a sentence beyond which nothing is gained."""


def mixed(declines: np.ndarray, answers: np.ndarray, whole: float) -> np.ndarray:
    """What the score of a text is mixed from, given the log odds of its sentences and of the whole."""
    best = int(np.argmax(declines))
    others = np.delete(answers, best)
    numbers = [
        *(declines[best], answers[best], others.max() if len(others) else -4.0),
        *(declines.mean(), whole, declines[0], declines[-1], answers[0]),
    ]
    return np.clip([*numbers, np.log(len(declines))], -MOST, MOST)


# -- What a text does

PAID, MEASURED, SENTENCE = 0.5, 0.65, 0.5
"""Scores from which on a text declines: under a reward, in evaluation; and a sentence of a long text does
(docs/evaluation.md)."""
_SURE = 0.75  # score of a short text with a word that no abstention has; below it that word may be the answer
_ALONE = 1.0  # log odds from which on a clause of such a text declines, whatever word it has
_OTHER = -2.0  # log odds below which a clause says something else
_UNLIKE = 0.3  # score up to which a text without a question is no abstention whatever it is about
_ABOUT = -1.0  # log odds from which on a clause says what is not known
# What a sentence ends with behind an "and".
_CLOSES = re.compile(
    r" (?:and|or|und|oder|et|ou|y|o|e) ((?:is|was|ist|war|est|était|es|era|é|è) [^,;.!?]{1,40})[.!]*$", re.I
)
_BRIEF = 5  # words of a clause that may be all of an answer
_CHOICES = frozenset(
    (
        *("yes", "no", "true", "false", "both", "neither", "none", "nobody", "nothing", "everything", "one"),
        *("two", "first", "second", "third", "left", "right"),
    )
)


_REPEATED = re.compile(r"([^\w.])(?=\1)")

# It asks for a text about somebody and not for a name, a date or a number.
_OPEN = re.compile(
    r"\b(?:bio|bios|biograph\w+|tell me about|who is|who was|describe|introduc\w+|summar\w+|overview)\b"
)
# What follows is about somebody else, whom a search has found in place of the one who is asked for.
_OTHERS = re.compile(
    r"\b(?:instead|(?:other|another|different|several) (?:\w+ ){0,3}(?:named|called|with|by)"
    r"|(?:similar|same) (?:\w+ )?names?|different (?:person|individual)"
    r"|the only (?:\w+ )?(?:mention|reference|result|information|person|one)"
    r"|(?:search )?results? (?:\w+ ){0,2}"
    r"(?:is|are|mentions?|provides?|refers?|shows?|includes?|relates?|contains?|about))\b"
)


@dataclass(frozen=True, slots=True)
class Stance:
    """What a text does with the question it replies to."""

    declines: bool  # by its form, whatever it names.  Such a text is never a right answer
    names: str  # the first thing that it names although it declines and the question did not
    asserted: str  # what is left once the declining clauses are taken out; the cleaned text if none declines
    brief: bool = False  # a clause of a few words answers
    score: float = 0.0  # how much it declines, 0 to 1

    @property
    def abstains(self) -> bool:
        """Whether it declines and names nothing."""
        return self.declines and not self.names


class _Read(NamedTuple):
    parts: list[Part]
    odds: np.ndarray  # (parts,): log odds that each declines
    score: float


def _sigmoid(odds: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(odds, -30, 30))))


def _read(said: str, asked: frozenset[str]) -> _Read:
    parts = parts_of(said, asked)
    sentences = sentences_of(parts)
    odds = _scored([*sentences, joined(sentences), *(part.words for part in parts)])
    count = len(sentences)
    mix = tables().mix
    score = _sigmoid(mixed(odds[0, :count], odds[1, :count], odds[2, count]) @ mix[:-1] + mix[-1])
    return _Read(parts, odds[0, count + 1 :], score)


def stance(
    text: str, question: str | None = None, *, strict: bool = False, answers: Iterable[str] = ()
) -> Stance:
    """Whether a text declines to answer a question, what it names all the same, and what it asserts.

    Args:
        text: over `MAX_PAYLOAD` characters it never declines.
        question: what it replies to.  None takes the names of declining sentences for the question's ("I
            know nothing about Jane Doe").
        strict: as rewards read it.  Evaluation, which pays nobody, takes a long text that declines for an
            abstention although it names something, such as whom to ask.
        answers: accepted ones; a text that equals one of them answers, whatever it says ("Unknown").
    """
    right = [*answers]
    if len(text) > MAX_PAYLOAD or is_contentless(text) or (right and equals(text, right) is not None):
        return Stance(False, "", clean(text))
    said = visible(text)
    asked = words_of(question) if question else frozenset()
    read = _read(said, asked)
    if question is None and read.score > _UNLIKE and any(part.named or part.new for part in read.parts):
        about = [part.text for part, odds in zip(read.parts, read.odds, strict=True) if odds > _ABOUT]
        if about:
            asked = words_of(" ".join(about))
            read = _read(said, asked)
    each = [*zip(read.parts, read.odds, strict=True)]
    size = len(_REPEATED.sub("", said))
    few = [one for one in each if size <= BARE and _is_brief(one[0])]
    brief = any(_answers(*one, strict, alone=len(each) == 1) for one in few)
    if strict and (tail := _CLOSES.search(said)):  # "The answer remains unclear and is water"
        brief = brief or _read(tail[1], asked).odds[0] < _ALONE
    kept = [part for part, declines in each if declines <= 0.5]
    asserted = (_kept(kept) if 0 < len(kept) < len(each) else "") or clean(text)
    if sum(bool(part.named) for part in read.parts) > max(2, len(each) / 2):
        return Stance(False, "", asserted, brief, read.score)
    if (question is None or _OPEN.search(question.casefold())) and _goes_on_about_others(each):
        return Stance(True, "", "", score=read.score)
    if read.score >= (PAID if strict else MEASURED) and not brief:
        # Of a short text any word that abstentions do not have may be the answer.  In a long one that nobody
        # is paid for, advice names whom to ask.
        names = [part.named for part in read.parts if part.named and (strict or size <= BARE // 2)]
        names += [
            part.new
            for part, declines in each
            if part.new
            and (
                (strict and size <= BARE and (read.score < _SURE or declines < _ALONE))
                or (size <= BARE // 2 and declines < _OTHER)
            )
        ]
        return Stance(True, next(iter(names), ""), "", score=read.score)
    return Stance(False, "", asserted, brief, read.score)


def _goes_on_about_others(each: Sequence[tuple[Part, float]]) -> bool:
    """Whether a text declines first and then says what was found of somebody else."""
    declined, said = False, ""
    for part, odds in each:
        said += part.text.casefold()
        if part.ends:
            if declined and _OTHERS.search(said):
                return True
            declined, said = declined or odds > 0, ""
        else:
            declined = declined or odds > 0
    return False


def _is_brief(part: Part) -> bool:
    return 0 < sum(word[0].isalpha() or word in MASKS for word in part.words) <= _BRIEF


def _answers(part: Part, declines: float, strict: bool, alone: bool) -> bool:
    """Whether a clause of a few words may be all of an answer, given the log odds that it declines.

    Where nobody is paid, only a clause that is nothing but a name, or a choice such as "yes", is one beside
    others.
    """
    words = [word for word in part.words if word[0].isalpha() or word in MASKS]
    if _CHOICES.issuperset(words) or (NEW in words and MASKS.issuperset(words)):
        return True
    if not strict:
        return alone and declines < 0
    if ASKED in words and len(words) > 3:  # a sentence about who is asked for says something else
        return False
    return bool(part.named) or declines < 0 or (declines < 2 and NEW in words)


def _kept(parts: Sequence[Part]) -> str:
    kept = " ".join("".join(part.text for part in parts).replace(LINE, " ").replace(DASH, " - ").split())
    kept = kept.lstrip("-,:; ").rstrip("-,:;([ ")
    for conjunction in ("but ", "however, ", "though ", "although ", "because ", "and "):
        if kept.lower().startswith(conjunction):
            kept = kept[len(conjunction) :]
    return kept


def score(text: str, question: str | None = None) -> float:
    """How much a text declines to answer, 0 to 1: 0 where it names something, whatever it says beside it.

    >>> score("I do not know.") > 0.9
    True
    """
    found = stance(text, question)
    return 0.0 if found.names or found.brief else found.score


def abstains(
    text: str, question: str | None = None, answers: Iterable[str] = (), *, strict: bool = False
) -> bool:
    """Whether a text declines to answer and names nothing that the question did not give.

    "I'm not sure, but I think it's Paris" does not, nor does "invalid question", which is a class of its
    own, a question back or a refusal on other grounds ("That would be illegal").  It reads the languages it
    was taught, twenty-five (docs/evaluation.md).  A text over `MAX_PAYLOAD` characters never abstains.

    Args:
        question: what it replies to; without one, the names in declining sentences are the question's.
        answers: accepted ones; a text that equals one of them is an answer.
        strict: as rewards read it.
    """
    return stance(text, question, strict=strict, answers=answers).abstains


def asserted(text: str, question: str | None = None) -> str:
    """What a text asserts once the declining clauses are taken out; the cleaned text if none declines.

    "I'm not sure, but I think it's Paris." gives "I think it's Paris."; an abstention gives "".
    """
    return stance(text, question).asserted


def declining_share(text: str, question: str | None = None) -> float:
    """The share of a long answer's characters that stand in sentences which decline and name nothing, 0 to 1.

    A sentence declines from a score of `SENTENCE` on.
    """
    said = visible(text[:MAX_PAYLOAD])
    asked = words_of(question) if question else frozenset()
    sentences: list[list[Part]] = [[]]
    for part in parts_of(said, asked):
        sentences[-1].append(part)
        if part.ends:
            sentences.append([])
    sizes = [sum(len(part.text) for part in one) for one in sentences]
    odds = _scored([sentences_of(one)[0] for one in sentences])[0]
    declines = [
        _sigmoid(chance) >= SENTENCE and not any(part.named for part in one)
        for one, chance in zip(sentences, odds, strict=True)
    ]
    return sum(size for size, one in zip(sizes, declines, strict=True) if one) / max(sum(sizes), 1)


def names_nothing(text: str, question: str, *, strict: bool) -> bool:
    """Whether a text names no candidate answer; `strict` takes any word for one that abstentions do not have.

    What a question offers is an answer to it, and so are yes and no, and a clause of two characters.
    """
    parts = parts_of(visible(text), frozenset() if strict else words_of(question))
    if any(part.named for part in parts):
        return False
    bare = (len(part.words) <= 2 and IS_RUN.search(part.text) for part in parts if part.words)
    words = {word for part in parts for word in part.words}
    return not strict or not (any(part.new for part in parts) or words & _CHOICES or any(bare))


def abstains_released(text: str) -> bool:
    """TruthRL's released test, one substring: "I do not know" fails it, "I don't know, maybe X" passes.

    arXiv 2509.25760, code: `"i dont know"` in the normalised prediction.
    """
    return "i dont know" in normalize_released(text)


# In the form of `normalize_answer`, which has no articles.
_INVALID = re.compile(
    r"(?:(?:this|it|that) is )?(?:invalid question|not valid question|false premise)|invalid premise"
    r"|(?:this )?question (?:is (?:invalid|not valid|based on false premise)"
    r"|(?:has|contains|rests on) false premise)"
)
_LONGEST = 400  # characters


def says_invalid_question(text: str) -> bool:
    """Whether the complete answer is that the question is invalid or rests on a false premise.

    The exact counterpart of TruthRL's substring test for "invalid question": a text with an explanation or
    an answer beside it is an answer.
    """
    text = clean(text)
    forms = (text, final_answer(text)) if len(text) <= _LONGEST else ()
    return any(_INVALID.fullmatch(normalize_answer(form)) for form in forms)
