"""Telling "I don't know" from an answer, by a small learnt detector and one rule.

**The rule: whoever names something has answered.**  A name, a number, a date, a quotation, a sign or, in a
short text, any word that is neither the question's nor one that abstentions are made of: a text with one of
these never abstains.  So no form of words is right with one name and an abstention with another.

The detector is two logistic regressions on hashed n-grams of characters and of words, in which the question's
words, unknown words and names are masked; it sees that something is named, never what.  One says whether a
text declines, the other whether a clause answers.  `abstention.npy` holds their weights in 8 bits and the
words that abstentions are made of; `benchmarks/abstention_train.py` makes it.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from factrl.text import MAX_PAYLOAD, clean, unwrap_latex
from factrl.text.answers import (
    MONTHS,
    equals,
    final_answer,
    fold,
    is_contentless,
    normalize_answer,
    normalize_released,
)

BUCKETS = 1 << 16
"""Weights of each of the two regressions."""
BARE = 200
"""Characters of the longest text in which any new word is a name."""
_SIZES = (2, 3, 4, 5)  # characters of an n-gram
LINE, DASH = "¶", "‖"  # a line end and a dash, which survive cleaning
ASKED, NEW, TITLE = "\x01", "\x02", "\x03"
"""What stands for a word of the question, for a name, a number or a word that no abstention has, and before a
word with a capital that grammar does not ask for."""


# -- Words


@cache
def _marks() -> str:
    """Combining marks, which are parts of words, as a class of a regular expression."""
    return "".join(chr(c) for c in range(0x300, 0x11000) if unicodedata.category(chr(c))[0] == "M")


# Scripts without spaces, whose words are pairs of characters.
_RUN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_IS_RUN = re.compile(f"[{_RUN}]")


@cache
def _tokens() -> re.Pattern[str]:
    letters = f"[^\\W\\d_{_RUN}]+[{_marks()}]*"
    return re.compile(
        rf"(?P<quote>\"[^\"]{{1,200}}\"|[「『《][^」』》]{{1,80}}[」』》])|(?P<number>\d[\d.,/:]*\d|\d)"
        rf"|(?P<run>[{_RUN}]+)|(?P<word>(?:{letters})+)|(?P<sign>\S)"
    )


class _Tables(NamedTuple):
    weights: (
        np.ndarray
    )  # (3, BUCKETS): whether a sentence declines, whether it answers, whether a text declines
    bias: np.ndarray  # (3,)
    mix: np.ndarray  # (8,): of the seven numbers of `_mixed`, and the bias
    words: frozenset[int]  # hashes of words, of beginnings and of pairs of characters


@cache
def _tables() -> _Tables:
    return unpacked(np.load(Path(__file__).with_suffix(".npy")))


def unpacked(raw: np.ndarray) -> _Tables:
    """The tables of the bytes in `abstention.npy`: scales, biases, mix, weights, then hashes."""
    head, size = raw[:56].view(np.float32), 56 + 3 * BUCKETS
    weights = raw[56:size].view(np.int8).reshape(3, BUCKETS) * head[:3, None]
    return _Tables(weights, head[3:6], head[6:], frozenset(raw[size:].view(np.uint32).tolist()))


@lru_cache(maxsize=16_384)
def hashed(word: str) -> int:
    """A word's hash, the same on every machine."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


_LEAST = 5  # letters of a beginning that has endings of more than two letters
_ENDING = 6


def beginning(word: str) -> str:
    """The part of a longer word that its endings share."""
    return f"{word[: max(_LEAST, (2 * len(word) + 2) // 3)]}-" if len(word) > _LEAST else ""


@lru_cache(maxsize=16_384)
def is_known(word: str, exact: bool = False) -> bool:
    """Whether a casefolded word is one that abstentions are made of; `exact` takes no other ending."""
    known = _tables().words
    if hashed(word) in known:
        return True
    if exact:
        return False
    sizes = range(max(2, len(word) - _ENDING), len(word) + 1)
    return any(hashed(f"{word[:size]}-") in known for size in sizes if size >= _LEAST or len(word) - size < 3)


@lru_cache(maxsize=256)
def words_of(question: str) -> frozenset[str]:
    """The beginnings of a question's words, and its pairs of characters without case."""
    said = words_in(clean(question))
    runs = (run for run in said if _IS_RUN.match(run))
    return frozenset(
        {word[:5] for word in said} | {run[i : i + 2] for run in runs for i in range(len(run) - 1)}
    )


_QUOTES = re.compile('["「」『』《》]')


def words_in(text: str) -> list[str]:
    """The words, numbers, signs and runs without spaces of a text, folded."""
    tokens = _tokens().finditer(_QUOTES.sub(" ", fold(text)))
    return [token[0] for token in tokens if token.lastgroup != "sign" or _is_sign(token[0])]


def _is_sign(char: str) -> bool:
    """Whether a character is no punctuation: an emoji, Braille, a sign of mathematics or money."""
    return unicodedata.category(char)[0] in "SN" and char not in "`´¨^~|\ufffd"


_TAG = re.compile(r"</?(?=[A-Za-z])|(?<=[A-Za-z])>")  # of markup, and "<unknown>"


def is_asked(word: str, asked: frozenset[str]) -> bool:
    """Whether the question has a folded word with the same first five letters, or all pairs of a run."""
    return word[:5] in asked or (
        len(word) > 1 and all(word[i : i + 2] in asked for i in range(len(word) - 1))
    )


_MASKS = frozenset({ASKED, NEW})


class Part(NamedTuple):
    """A clause as the detector sees it."""

    text: str  # with the sign that ends it
    words: tuple[str, ...]  # masked, a run of one mask once
    named: str  # the first thing that it names
    new: str  # the first word of it that no abstention has
    ends: bool  # a sentence ends with it


def visible(text: str) -> str:
    """A text without markup and quotation marks around the whole; line ends and dashes are single signs."""
    text = unwrap_latex(clean(text.replace("\n", LINE).replace("—", DASH)))
    text = text.replace("*", "").replace("`", "").strip(f" {LINE}{DASH}")
    whole = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if whole else text


_CITED = re.compile(r"\[\d{1,2}(?:, ?\d{1,2}){0,5}\]|(?:^|(?<=[¶ ]))\d{1,2}[.)](?= )")
_ENDS = frozenset(f".!?。！？।؟۔…{LINE}")
_BREAKS = frozenset(f",;:()[]，；：、،{DASH}")
_ABBREVIATED = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Ms|Dr|St|Mrs|Prof|ca|bzw))$")
_FEW = 4  # words of a sentence whose first word is taken for a name
# A date beside one of these is the model's and no answer.
_DATED = re.compile(
    r"cut-?off|knowledge|train|updat|wissen|\bstand\b|aktualis|connaiss|entra|donnees|mise a jour|conoc|datos"
    r"|cion llega|actualiz|addestr|aggiorn|conhec|trein|atualiz|dados|截止|截至|训练|知识|学習|データ|更新"
)
_DAY = re.compile(r"(?:19|20)\d\d|[123]?\d")
_GERMAN = re.compile(r"\b(?:ich|nicht|der|die|das|keine?n?|ist|und|leider|mir)\b")
_NOUN_COMES = re.compile(
    r"(?:.*(?:e|en|er|es|em)|.?.?ein|ihr|und|oder|als|ohne|per|zum|zur|im|am|vom|beim|das|ans|ins)"
)


def parts_of(text: str, asked: frozenset[str]) -> list[Part]:
    """The clauses of a visible text, masked, with what they name.

    Args:
        asked: the question's words, by `words_of`.
    """
    cited = _TAG.sub(lambda found: " " * len(found[0]), _CITED.sub(lambda found: " " * len(found[0]), text))
    head = fold(cited[:BARE])
    dated, german = _DATED.search(head) is not None, len(_GERMAN.findall(head)) > 1
    found: list[Part] = []
    words: list[str] = []
    named = new = before = lead = ""
    start = count = 0  # of the clause; of the sentence's words
    leading = 0  # the part that begins the sentence

    def close(end: int, ends: bool) -> None:
        nonlocal words, named, new, start, count, lead, leading, before
        if end > start:
            once = [w for w, last in zip(words, ["", *words], strict=False) if w != last or w not in _MASKS]
            found.append(Part(text[start:end], tuple(once), named, new, ends))
        if ends:
            if lead and count <= _FEW and not found[leading].named:
                found[leading] = found[leading]._replace(named=lead)
            leading, count, lead, before = len(found), 0, "", ""
        words, named, new, start = [], "", "", end

    for token in _tokens().finditer(cited):
        said, kind = token[0], token.lastgroup
        word = fold(said)
        if kind == "sign" and not _is_sign(said):
            if said in "?!…":
                words.append(said)
            if said in _ENDS and not (said == "." and _goes_on(cited, token.start())):
                close(token.end(), True)
            elif said in _BREAKS or (said == "-" and cited[token.start() - 1 : token.end() + 1] == " - "):
                close(token.end(), False)
            continue
        if kind == "run":
            pieces = _pieces(said, asked)
            words += pieces
            new = new or (said if NEW in pieces else "")
        elif kind == "word":
            titled = said[0].isupper() and count > 0
            if is_known(word, exact=titled):
                words += [TITLE, word] if titled and not german and len(word) > 2 else [word]
            elif is_asked(word, asked):
                words.append(ASKED)
            else:
                words.append(NEW)
                new = new or said
                by_grammar = (german and _NOUN_COMES.fullmatch(before)) or (dated and word in MONTHS)
                if titled and not by_grammar:
                    named = named or said
                elif said[0].isupper() and not count:
                    lead = said
        elif all(is_asked(one, asked) for one in words_in(said)):
            words.append(ASKED)
        else:
            words.append(NEW)
            named = named or ("" if dated and _DAY.fullmatch(word) else said)
        before, count = word, count + 1
    close(len(text), True)
    return found


def _goes_on(text: str, at: int) -> bool:
    """Whether a full stop ends no sentence: in "3.5", or behind an initial or a title."""
    return text[at + 1 : at + 2].isalnum() or _ABBREVIATED.search(text, max(0, at - 5), at) is not None


def _pieces(run: str, asked: frozenset[str]) -> list[str]:
    """The characters of a run without spaces, masked where they are the question's or in no known pair."""
    low = fold(run)
    low = low if len(low) == len(run) else run
    pieces = [NEW] * len(run)
    for at in range(len(run) - 1):
        pair = low[at : at + 2]
        if is_known(pair, exact=True):
            pieces[at : at + 2] = run[at : at + 2]
        elif pair in asked:
            pieces[at : at + 2] = [ASKED if one == NEW else one for one in pieces[at : at + 2]]
    return [
        run[at] if piece == NEW and is_known(low[at], exact=True) else piece
        for at, piece in enumerate(pieces)
    ]


# -- Scores

_P = np.uint32(0x01000193)


def grams(units: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of all n-grams, of characters and of words, in several masked texts, and whose each one is."""
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
    table = _tables()
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
        *(declines.mean(), whole, declines[0]),
    ]
    return np.clip([*numbers, np.log(len(declines))], -MOST, MOST)


# -- What a text does

SHORT, TEXT, SENTENCE = 0.55, 0.6, 0.9
"""Scores from which on a text declines: an answer under a reward, an answer that is measured, and a sentence of a
long answer (docs/evaluation.md says how they were chosen)."""
_SURE = 0.75  # score of a short text with a word that no abstention has
_ABOUT = -1.0  # log odds from which on a clause says what is not known
_BRIEF = 5  # words of a clause that may be all of an answer
_CHOICES = frozenset(
    "yes no true false both neither none nobody nothing everything one two first second third left right".split()
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
    odds: np.ndarray  # (2, parts): log odds that each declines, and that it answers
    score: float


def _sigmoid(odds: float) -> float:
    return float(1 / (1 + np.exp(-np.clip(odds, -30, 30))))


def _read(said: str, asked: frozenset[str]) -> _Read:
    parts = parts_of(said, asked)
    sentences = sentences_of(parts)
    odds = _scored([*sentences, joined(sentences), *(part.words for part in parts)])
    count = len(sentences)
    mix = _tables().mix
    score = _sigmoid(mixed(odds[0, :count], odds[1, :count], odds[2, count]) @ mix[:-1] + mix[-1])
    return _Read(parts, odds[:2, count + 1 :], score)


def stance(
    text: str, question: str | None = None, *, strict: bool = False, answers: Iterable[str] = ()
) -> Stance:
    """Whether a text declines to answer a question, what it names all the same, and what it asserts.

    Args:
        text: over `MAX_PAYLOAD` characters it never declines.
        question: what it replies to.  None takes the names of declining sentences for the question's ("I
            know nothing about Jane Doe").
        strict: by the threshold of rewards (`SHORT`) and not by that of evaluation (`TEXT`).
        answers: accepted ones; a text that equals one of them answers, whatever it says ("Unknown").
    """
    right = [*answers]
    if len(text) > MAX_PAYLOAD or is_contentless(text) or (right and equals(text, right) is not None):
        return Stance(False, "", clean(text))
    said = visible(text)
    asked = words_of(question) if question else frozenset()
    read = _read(said, asked)
    if question is None and any(part.named or part.new for part in read.parts):
        about = [part.text for part, odds in zip(read.parts, read.odds[0], strict=True) if odds > _ABOUT]
        if about:
            asked = words_of(" ".join(about))
            read = _read(said, asked)
    each = [*zip(read.parts, *read.odds, strict=True)]
    brief = len(said) <= BARE and any(_is_brief(part) and no < -1 and yes > 1 for part, no, yes in each)
    if read.score >= (SHORT if strict else TEXT) and not brief:
        new = next((part.new for part in read.parts if part.new), "")
        unsure = len(said) <= BARE and read.score < _SURE
        names = next((part.named for part in read.parts if part.named), new if unsure else "")
        return Stance(True, names, "", score=read.score)
    kept = [part for part, declines, _ in each if declines <= 0]
    asserted = _kept(kept) if 0 < len(kept) < len(each) else ""
    return Stance(False, "", asserted or clean(text), brief, read.score)


def _is_brief(part: Part) -> bool:
    return 0 < sum(word[0].isalpha() or word in _MASKS for word in part.words) <= _BRIEF


def _kept(parts: Sequence[Part]) -> str:
    kept = " ".join("".join(part.text for part in parts).replace(LINE, " ").replace(DASH, " - ").split())
    kept = kept.lstrip("-,:; ").rstrip("-,:;([ ")
    for conjunction in ("but ", "however, ", "though ", "although ", "because ", "and "):
        if kept.lower().startswith(conjunction):
            kept = kept[len(conjunction) :]
    return kept


def score(text: str, question: str | None = None) -> float:
    """How much a text declines to answer, 0 to 1: 0 where it names something, whatever it says beside it.

    >>> score("No name comes to mind.") > 0.9
    True
    """
    found = stance(text, question)
    return 0.0 if found.names or found.brief else found.score


def abstains(text: str, question: str | None = None, answers: Iterable[str] = ()) -> bool:
    """Whether a text declines to answer and names nothing that the question did not give.

    "I'm not sure, but I think it's Paris" does not, nor does "invalid question", which is a class of its
    own, a question back or a refusal on other grounds ("That would be illegal").  It reads the languages it
    was taught, twenty-five (docs/evaluation.md).  A text over `MAX_PAYLOAD` characters never abstains.

    Args:
        question: what it replies to; without one, the names in declining sentences are the question's.
        answers: accepted ones; a text that equals one of them is an answer.
    """
    return stance(text, question, answers=answers).abstains


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
    bare = (len(part.words) <= 2 and _IS_RUN.search(part.text) for part in parts if part.words)
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
