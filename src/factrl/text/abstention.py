"""Telling "I don't know" from an answer, by a small learnt detector and one rule.

**The rule: a text that names something has answered.**  A name, a number, a date, a quotation, a sign or, in
a short text, any word that is neither the question's nor one that abstentions are made of: a text with one of
these never abstains under a reward.  So the same wording is never an
abstention with one name and a right answer with another.  Evaluation applies this rule to short texts only,
as long ones also name whom to ask.

The detector is three logistic regressions on hashed n-grams of characters and of words, in which the words of
the question, unknown words and names are masked: they see that something is named, but not what.  They score
whether a sentence declines, whether it answers, and whether the whole text declines.  A word is known when
abstentions are made of it, in one of its endings.  What is neither known nor the question's is a name: a
number, a quotation, a sign that is no punctuation, a word with a capital that grammar does not require; and
in a short text any other new word.  `abstention.npy` holds the weights in 8 bits and the hashes of known
words, and `benchmarks/abstention_train.py` makes it.
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
    equals,
    final_answer,
    is_contentless,
    normalize_answer,
    normalize_released,
)
from factrl.text.words import CARDINALS, MONTHS, ORDINALS, fold

# -- Clauses with what they name masked

BUCKETS = 1 << 16
"""Weights of each of the three regressions."""
BARE = 200
"""In a text of up to this many characters, any new word counts as a name."""
_COUNTS = frozenset(
    (*[*CARDINALS][2:20], *[*ORDINALS][1:12], "hundred", "thousand", "million", "billion", "dozen")
)
"""Words for numbers: they are answers, although abstentions have some of them too."""
LINE, DASH = "¶", "‖"
"""A line end and a dash, which survive cleaning."""
OF_QUESTION, NEW, TITLE = "\x01", "\x02", "\x03"
"""Masks: of a word of the question; of a name, a number or a word that no abstention has; and what is put
before a word with a capital that grammar does not require."""


# Scripts without spaces, whose words are pairs of characters.
_RUN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
IS_RUN = re.compile(f"[{_RUN}]")
"""A character of such a script."""


@cache
def tokens() -> re.Pattern[str]:
    """Quotations, numbers, runs without spaces, words and single signs."""
    marks = "".join(chr(c) for c in range(0x300, 0x11000) if unicodedata.category(chr(c))[0] == "M")
    letters = f"[^\\W\\d_{_RUN}]+[{marks}]*"
    return re.compile(
        rf"(?P<quote>\"[^\"]{{1,200}}\"|[「『《][^」』》]{{1,80}}[」』》])|(?P<number>\d[\d.,/:]*\d|\d)"
        rf"|(?P<run>[{_RUN}]+)|(?P<word>(?:{letters})+)|(?P<sign>\S)"
    )


class Tables(NamedTuple):
    """What was learnt: weights of whether a sentence declines, a sentence answers and a text declines."""

    weights: np.ndarray  # (3, BUCKETS)
    bias: np.ndarray  # (3,)
    mix: np.ndarray  # (10,): of the nine numbers of `mixed`, and the bias
    words: frozenset[int]  # hashes of words, of beginnings and of pairs of characters


@cache
def tables() -> Tables:
    """The tables in `abstention.npy`, read once: scales, biases, mix, weights, then hashes."""
    raw = np.load(Path(__file__).with_suffix(".npy"))
    head, size = raw[:64].view(np.float32), 64 + 3 * BUCKETS
    weights = raw[64:size].view(np.int8).reshape(3, BUCKETS) * head[:3, None]
    return Tables(weights, head[3:6], head[6:], frozenset(raw[size:].view(np.uint32).tolist()))


def hashed(word: str) -> int:
    """A word's hash, the same on every machine."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


LEAST = 5
"""A beginning of fewer letters takes endings of at most two letters."""
_ENDING = 6  # letters of the longest ending


@lru_cache(maxsize=16_384)
def is_known(word: str, exact: bool = False) -> bool:
    """Whether a casefolded word is one that abstentions are made of; `exact` takes no other ending."""
    known = tables().words
    if hashed(word) in known:
        return True
    if exact:
        return False
    sizes = range(max(3, len(word) - _ENDING), len(word) + 1)
    return any(hashed(f"{word[:size]}-") in known for size in sizes if size >= LEAST or len(word) - size < 3)


@lru_cache(maxsize=256)
def question_words(question: str) -> frozenset[str]:
    """The beginnings of a question's words, and its pairs of characters without case."""
    words = words_in(clean(question))
    runs = (run for run in words if IS_RUN.match(run))
    return frozenset(
        {word[:5] for word in words} | {run[i : i + 2] for run in runs for i in range(len(run) - 1)}
    )


_QUOTES = re.compile('["「」『』《》]')


def words_in(text: str) -> list[str]:
    """The words, numbers, signs and runs without spaces of a text, folded."""
    matches = tokens().finditer(_QUOTES.sub(" ", fold(text)))
    return [token[0] for token in matches if token.lastgroup != "sign" or _is_sign(token[0])]


def _is_sign(char: str) -> bool:
    """Whether a character is no punctuation: an emoji, Braille, a sign of mathematics or money."""
    return unicodedata.category(char)[0] in "SN" and char not in "`´¨^~|\ufffd"


_TAG = re.compile(  # of markup, whole where it is one of HTML's for a stretch of words, and "<unknown>"
    r"</?(?:b|i|u|p|em|strong|span|mark|small|code|h[1-6]|li|ul|ol|td|th|tr|br|div|answer|think|response)\b[^<>]{0,40}>"
    r"|<\|\w{1,20}\|>|</?[a-z]{1,12}_[a-z_]{1,20}>|</?(?=[A-Za-z])|(?<=[A-Za-z])>"
)


def in_question(word: str, question: frozenset[str]) -> bool:
    """Whether the question has a folded word with the same first five letters, or all pairs of a run."""
    return word[:5] in question or (
        len(word) > 1 and all(word[i : i + 2] in question for i in range(len(word) - 1))
    )


MASKS = frozenset({OF_QUESTION, NEW})
"""Masks that are written once where several follow each other."""


class Clause(NamedTuple):
    """A clause as the detector sees it."""

    text: str  # with the sign that ends it
    words: tuple[str, ...]  # masked, a run of one mask once
    named: str  # the first thing that it names
    new: str  # its first word that no abstention has
    ends: bool  # whether it is the last of its sentence


def unwrapped(text: str) -> str:
    """A text without markup and quotation marks around the whole; line ends and dashes are single signs."""
    text = unwrap_latex(clean(text.replace("\n", LINE).replace("—", DASH)))
    text = text.replace("*", "").replace("`", "").strip(f" {LINE}{DASH}")
    whole = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if whole else text


_CITED = re.compile(r"\[\d{1,2}(?:, ?\d{1,2}){0,5}\]|(?:^|(?<=[¶ ]))\d{1,2}[.)](?= )")
# Of a short text "[41]" and "41." at the front may be the answer.
_CITED_BEHIND = re.compile(r"(?<=\w )\[\d{1,2}(?:, ?\d{1,2}){0,5}\]")
# A choice or a number in a script without spaces, where nothing but "the answer is" stands before it.
_CHOSEN = re.compile(
    r"(?:答案是|答案为|答えは|一?共有)?(?:是的?|不是?|有|没有|沒有|否|对|對|错|錯|はい|いいえ|[一二两兩三四五六七八九十百千万萬零〇]+[个個人名つ年]?)"
)
_ENDS = frozenset(f".!?。！？।؟۔…{LINE}")
_BREAKS = frozenset(f",;:()[]，；：、،{DASH}")
_ABBREVIATED = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Ms|Dr|St|Mrs|Prof|ca|bzw))$")
_FEW = 4  # words of a sentence whose first word is taken for a name
# A date near one of these words is about the model (its training data) and no answer.
_DATED = re.compile(
    r"cut-?off|knowledge|train|updat|wissen|\bstand\b|aktualis|connaiss|entra|donnees|mise a jour|conoc|datos"
    r"|cion llega|actualiz|addestr|aggiorn|conhec|trein|atualiz|dados|截止|截至|训练|知识|学習|データ|更新"
)
_DAY = re.compile(r"(?:19|20)\d\d|[123]?\d")
_GERMAN = re.compile(r"\b(?:ich|nicht|der|die|das|keine?n?|ist|und|leider|mir)\b")
_NOUN_COMES = re.compile(
    r"(?:.*(?:e|en|er|es|em)|.?.?ein|ihr|und|oder|als|ohne|per|zum|zur|im|am|vom|beim|das|ans|ins)"
)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def clauses_of(text: str, question: frozenset[str]) -> list[Clause]:
    """The clauses of a text, masked, with what they name.

    Args:
        text: as `unwrapped` gives it.
        question: the question's words, by `question_words`.
    """
    cites = _CITED if len(text) > BARE else _CITED_BEHIND
    bare = _TAG.sub(_blank, cites.sub(_blank, text))
    head = fold(bare[:BARE])
    dated, german = _DATED.search(head) is not None, len(_GERMAN.findall(head)) > 1
    clauses: list[Clause] = []
    words: list[str] = []
    named = new = before = lead = ""
    start = count = 0  # of the clause; of the sentence's words
    leading = 0  # the clause that begins the sentence

    def close(end: int, ends: bool) -> None:
        nonlocal words, named, new, start, count, lead, leading, before
        if end > start:
            once = [w for w, last in zip(words, ["", *words], strict=False) if w != last or w not in MASKS]
            clauses.append(Clause(text[start:end], tuple(once), named, new, ends))
        if ends:
            if lead and count <= _FEW and not clauses[leading].named:
                clauses[leading] = clauses[leading]._replace(named=lead)
            leading, count, lead, before = len(clauses), 0, "", ""
        words, named, new, start = [], "", "", end

    for match in tokens().finditer(bare):
        raw, kind = match[0], match.lastgroup
        word = fold(raw)
        if kind == "sign" and not _is_sign(raw):
            if raw in "?!…":
                words.append(raw)
            if raw in _ENDS and not (raw == "." and _is_no_end(bare, match.start())):
                close(match.end(), True)
            elif raw in _BREAKS or (raw == "-" and bare[match.start() - 1 : match.end() + 1] == " - "):
                close(match.end(), False)
            continue
        if kind == "run":
            pieces = _pieces(raw, question)
            words += pieces
            new = new or (raw if NEW in pieces else "")
            named = named or (raw if _CHOSEN.fullmatch(raw) else "")
        elif kind == "word":
            titled = raw[0].isupper() and count > 0
            if word in _COUNTS and not in_question(word, question):
                named = named or raw
            if is_known(word, exact=titled):
                words += [TITLE, word] if titled and not german and len(word) > 2 else [word]
            elif in_question(word, question):
                words.append(OF_QUESTION)
            else:
                words.append(NEW)
                new = new or raw
                by_grammar = (german and _NOUN_COMES.fullmatch(before)) or (dated and word in MONTHS)
                if titled and not by_grammar:
                    named = named or raw
                elif raw[0].isupper() and not count:
                    lead = raw
        elif all(in_question(part, question) for part in words_in(raw)):
            words.append(OF_QUESTION)
        else:
            words.append(NEW)
            named = named or ("" if dated and _DAY.fullmatch(word) else raw)
        before, count = word, count + 1
    close(len(text), True)
    return clauses


def _is_no_end(text: str, at: int) -> bool:
    """Whether a full stop ends no sentence: in "3.5", or behind an initial or a title."""
    return text[at + 1 : at + 2].isalnum() or _ABBREVIATED.search(text, max(0, at - 5), at) is not None


_KANA = re.compile("[\u3041-\u309f]")
KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{2,}")


def _pieces(run: str, question: frozenset[str]) -> list[str]:
    """The characters of a run without spaces, masked where they are the question's or in no known pair."""
    low = fold(run)
    low = low if len(low) == len(run) else run
    pieces = [NEW] * len(run)
    for at in range(len(run) - 1):
        pair = low[at : at + 2]
        if is_known(pair, exact=True):
            pieces[at : at + 2] = run[at : at + 2]
        elif pair in question:
            pieces[at : at + 2] = [OF_QUESTION if piece == NEW else piece for piece in pieces[at : at + 2]]
    pieces = [
        run[at]
        if piece == NEW and (len(run) == 1 or _KANA.match(run[at])) and is_known(low[at], True)
        else piece
        for at, piece in enumerate(pieces)
    ]
    for name in KATAKANA.finditer(low):  # a word of its own
        if not is_known(name[0], exact=True) and OF_QUESTION not in pieces[name.start() : name.end()]:
            pieces[name.start() : name.end()] = [NEW] * len(name[0])
    return pieces


# -- Scores

_SIZES = (2, 3, 4, 5)  # characters of an n-gram

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
    codes = np.array([hashed(word) for words in units for word in ("^", *words, "$")], np.uint32)
    owner = np.repeat(np.arange(len(units)), [len(words) + 2 for words in units])
    rolled = codes * np.uint32(1)
    for size in (1, 2, 3):
        inside = owner[: len(rolled)] == owner[size - 1 :]
        hashes.append(rolled[inside] + np.uint32(size))
        owners.append(owner[: len(rolled)][inside])
        rolled = rolled[:-1] * _P + codes[size:]
    every = np.concatenate(hashes)
    every ^= every >> np.uint32(15)
    every *= np.uint32(0x2C1B3C6D)
    every ^= every >> np.uint32(12)
    return every & np.uint32(BUCKETS - 1), np.concatenate(owners)


def _scored(units: Sequence[Sequence[str]]) -> np.ndarray:
    """The log odds of the three regressions for each masked text, `(3, units)`."""
    table = tables()
    buckets, owner = grams(units)
    sizes = np.bincount(owner, minlength=len(units))
    sums = [np.bincount(owner, weights=head[buckets], minlength=len(units)) for head in table.weights]
    return np.array(sums) / np.sqrt(np.maximum(sizes, 1)) + table.bias[:, None]


def sentences_of(clauses: Sequence[Clause]) -> list[list[str]]:
    """The masked words of each sentence, with a comma between its clauses; those without words left out."""
    sentences: list[list[str]] = [[]]
    for clause in clauses:
        sentences[-1] += clause.words
        if clause.ends:
            sentences.append([])
        elif sentences[-1]:
            sentences[-1].append(",")
    return [words for words in sentences if words and words != [","]] or [[""]]


def joined(sentences: Sequence[Sequence[str]]) -> list[str]:
    """The masked words of a whole text."""
    return [word for words in sentences for word in (*words, "|")]


MOST = 6.0
"""Log odds are clipped to this size."""


def mixed(declines: np.ndarray, answers: np.ndarray, whole: float) -> np.ndarray:
    """The nine inputs of the score of a text, from the log odds of its sentences and of the whole."""
    best = int(np.argmax(declines))
    others = np.delete(answers, best)
    numbers = [
        *(declines[best], answers[best], others.max() if len(others) else -4.0),
        *(declines.mean(), whole, declines[0], declines[-1], answers[0]),
    ]
    return np.clip([*numbers, np.log(len(declines))], -MOST, MOST)


# -- What a text does

PAID, MEASURED = 0.5, 0.65
"""Scores from which on a text declines: under a reward, in evaluation (docs/evaluation.md)."""
_SURE = 0.75  # score of a short text with a word that no abstention has; below it that word may be the answer
_DECLINES_ANYWAY = 1.0  # log odds from which on a clause of such a text declines, whatever word it has
_SAYS_OTHER = -2.0  # log odds below which a clause says something else
_NO_ABSTENTION = 0.3  # score up to which a text without a question is no abstention whatever it is about
_ABOUT = -1.0  # log odds from which on a clause says what is not known
# An answer after "and" at the end of a sentence.
_ANSWER_AT_END = re.compile(
    r" (?:and|or|und|oder|et|ou|y|o|e) ((?:is|was|ist|war|est|était|es|era|é|è) [^,;.!?]{1,40})[.!]*$", re.I
)
_BRIEF = 5  # words of a clause that may be all of an answer
_CHOICES = frozenset(
    """
    yes no true false both neither none nobody nothing everything one two first second third left right
    """.split()  # noqa: SIM905
)
_REPEATED = re.compile(r"([^\w.])(?=\1)")

# Questions that ask for a text about somebody, not for a name, a date or a number.
_OPEN = re.compile(
    r"\b(?:bio|bios|biograph\w+|tell me about|who is|who was|describe|introduc\w+|summar\w+|overview)\b"
)
# Words that announce somebody else, whom a search found instead of the one who is asked for.
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
    clauses: list[Clause]
    odds: np.ndarray  # (clauses,): log odds that each declines
    score: float


def _read(text: str, question: frozenset[str]) -> _Read:
    clauses = clauses_of(text, question)
    sentences = sentences_of(clauses)
    odds = _scored([*sentences, joined(sentences), *(clause.words for clause in clauses)])
    count = len(sentences)
    mix = tables().mix
    whole = mixed(odds[0, :count], odds[1, :count], odds[2, count]) @ mix[:-1] + mix[-1]
    score = float(1 / (1 + np.exp(-np.clip(whole, -30, 30))))
    return _Read(clauses, odds[0, count + 1 :], score)


def stance(
    text: str, question: str | None = None, *, strict: bool = False, answers: Iterable[str] = ()
) -> Stance:
    """Whether a text declines to answer a question, what it names all the same, and what it asserts.

    >>> stance("I'm not sure, but I think it's Paris.", "What is the capital of France?").asserted
    "I think it's Paris."

    Args:
        text: over `MAX_PAYLOAD` characters it never declines.
        question: what it replies to.  None takes the names of declining sentences for the question's ("I
            know nothing about Jane Doe").
        strict: as rewards read it.  Evaluation, which pays nobody, takes a long text that declines for an
            abstention although it names something, such as whom to ask.
        answers: accepted ones; a text that equals one of them answers, whatever it says ("Unknown").
    """
    accepted = [*answers]
    if len(text) > MAX_PAYLOAD or is_contentless(text) or (accepted and equals(text, accepted) is not None):
        return Stance(False, "", clean(text))
    bare = unwrapped(text)
    words = question_words(question) if question else frozenset()
    read = _read(bare, words)
    if question is None and read.score > _NO_ABSTENTION and any(one.named or one.new for one in read.clauses):
        about = [clause.text for clause, odds in zip(read.clauses, read.odds, strict=True) if odds > _ABOUT]
        if about:
            words = question_words(" ".join(about))
            read = _read(bare, words)
    each = [*zip(read.clauses, read.odds, strict=True)]
    size = len(_REPEATED.sub("", bare))
    brief = size <= BARE and any(_answers(*one, strict, alone=len(each) == 1) for one in each)
    if strict and (tail := _ANSWER_AT_END.search(bare)):  # "The answer remains unclear and is water"
        brief = brief or _read(tail[1], words).odds[0] < _DECLINES_ANYWAY
    kept = [clause for clause, declines in each if declines <= 0.5]
    asserted = (_kept(kept) if 0 < len(kept) < len(each) else "") or clean(text)
    if sum(bool(clause.named) for clause in read.clauses) > max(2, len(each) / 2):
        return Stance(False, "", asserted, brief, read.score)
    if (question is None or _OPEN.search(question.casefold())) and _goes_on_about_others(each):
        return Stance(True, "", "", score=read.score)
    if read.score >= (PAID if strict else MEASURED) and not brief:
        # Of a short text any word that abstentions do not have may be the answer.  In a long one that nobody
        # is paid for, advice names whom to ask.
        names = [clause.named for clause in read.clauses if clause.named and (strict or size <= BARE // 2)]
        names += [
            clause.new
            for clause, declines in each
            if clause.new
            and (
                (strict and size <= BARE and (read.score < _SURE or declines < _DECLINES_ANYWAY))
                or (size <= BARE // 2 and declines < _SAYS_OTHER)
            )
        ]
        return Stance(True, next(iter(names), ""), "", score=read.score)
    return Stance(False, "", asserted, brief, read.score)


def _goes_on_about_others(each: Sequence[tuple[Clause, float]]) -> bool:
    """Whether a text declines first and then tells about somebody else whom a search found."""
    declined, sentence = False, ""
    for clause, odds in each:
        sentence += clause.text.casefold()
        if clause.ends and declined and _OTHERS.search(sentence):
            return True
        declined, sentence = declined or odds > 0, "" if clause.ends else sentence
    return False


def _answers(clause: Clause, declines: float, strict: bool, alone: bool) -> bool:
    """Whether a clause of a few words may be all of an answer, given the log odds that it declines.

    In evaluation, a clause next to others is one only if it is just a name or a choice such as "yes".
    """
    words = [word for word in clause.words if word[0].isalpha() or word in MASKS]
    if not 0 < len(words) <= _BRIEF:
        return False
    if _CHOICES.issuperset(words) or (NEW in words and MASKS.issuperset(words)):
        return True
    if not strict:
        return alone and declines < 0
    if OF_QUESTION in words and len(words) > 3:  # a sentence about who is asked for says something else
        return False
    return bool(clause.named) or declines < 0 or (declines < 2 and NEW in words)


def _kept(clauses: Sequence[Clause]) -> str:
    kept = " ".join(
        "".join(clause.text for clause in clauses).replace(LINE, " ").replace(DASH, " - ").split()
    )
    kept = kept.lstrip("-,:; ").rstrip("-,:;([ ")
    for conjunction in ("but ", "however, ", "though ", "although ", "because ", "and "):
        if kept.lower().startswith(conjunction):
            kept = kept[len(conjunction) :]
    return kept


def abstains(
    text: str, question: str | None = None, answers: Iterable[str] = (), *, strict: bool = False
) -> bool:
    """Whether a text declines to answer and names nothing that the question did not give.

    >>> abstains("I don't know who wrote Emma.", "Who wrote Emma?"), abstains("I don't know, maybe Austen")
    (True, False)

    "I'm not sure, but I think it's Paris" does not, nor does "invalid question", which is a class of its
    own, a question back or a refusal on other grounds ("That would be illegal").  It reads the languages it
    was taught, twenty-five (docs/evaluation.md).  A text over `MAX_PAYLOAD` characters never abstains.

    Args:
        question: what it replies to; without one, the names in declining sentences are the question's.
        answers: accepted ones; a text that equals one of them is an answer.
        strict: as rewards read it.
    """
    return stance(text, question, strict=strict, answers=answers).abstains


def names_nothing(text: str, question: str, *, strict: bool) -> bool:
    """Whether a text names no candidate answer.

    With `strict` the question's words, any word that abstentions do not have, yes and no, and a clause of two
    characters in a script without spaces are candidates too.
    """
    clauses = clauses_of(unwrapped(text), frozenset() if strict else question_words(question))
    if any(clause.named for clause in clauses):
        return False
    bare = (len(clause.words) <= 2 and IS_RUN.search(clause.text) for clause in clauses if clause.words)
    words = {word for clause in clauses for word in clause.words}
    return not strict or not (any(clause.new for clause in clauses) or words & _CHOICES or any(bare))


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
