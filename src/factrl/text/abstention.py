"""Telling "I don't know" from an answer, blind to the accepted answers.

Nothing here sees an accepted answer, so no text is right with one name and an abstention with another because
it was compared with them.

A *refusal* is one of the forms in `refusals.txt`, whole: under a reward it abstains, and nothing else does
without a judge.  The *score* is learnt, for what is longer: three logistic regressions on hashed n-grams of
characters and of words, in which the words of the question, unknown words, names, numbers, single letters and
spelt words are masked: they see that something is named, but not what.  They score whether a sentence
declines, whether it answers, and whether the whole text declines.  A reward with a judge asks it about what
the score does not call an answer (`factrl.rewards.grading`); an evaluation without one takes the score.

`abstention.npy` holds the weights in 8 bits and the hashes of the words that abstentions are made of, and
`benchmarks/abstention_train.py` makes it.
"""

from __future__ import annotations

import os
import re
import threading
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from factrl.text import MAX_PAYLOAD, clean, unwrap_latex
from factrl.text.answers import final_answer, is_contentless, normalize_answer, without_markup
from factrl.text.words import fold

T = TypeVar("T")
_LOCKS: dict[int, threading.RLock] = {}  # by process: a lock that another thread held at a fork stays locked


def _once(make: Callable[[], T]) -> Callable[[], T]:
    """Made when first asked for, by one of the threads that grade a batch, for all of them."""
    made: list[T] = []

    @wraps(make)
    def get() -> T:
        if not made:
            with _LOCKS.setdefault(os.getpid(), threading.RLock()):
                if not made:
                    made.append(make())
        return made[0]

    return get


# -- Refusals

_LONGEST = 160  # characters of a text that may be a refusal


def is_refusal(text: str, more: Iterable[str] = ()) -> bool:
    """Whether a text is, as a whole, one of the refusals in `refusals.txt` or of `more`.

    Case, accents, punctuation, apostrophes and markup make no difference; where words end does.

    >>> [is_refusal(text) for text in ("I don't know.", "**Je ne sais pas**", "I don't know, maybe Austen")]
    [True, True, False]

    Args:
        more: further forms, such as the one that a prompt asks for.
    """
    if len(text) > _LONGEST:
        return False
    form = _bare(text)
    return bool(_refusals().fullmatch(form)) or any(form == _bare(one) for one in more)


@_once
def _refusals() -> re.Pattern[str]:
    """The letters of every form: a list of all that the choices can say has 48,000, and takes a second."""
    lines = Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").split("\n")
    forms = [re.split(r"([()|])", line) for line in lines if line and line[0] != "#"]
    return re.compile("|".join("".join(map(_part, form)) for form in forms))


def _part(part: str) -> str:
    return {"(": "(?:", "|": "|", ")": ")"}.get(part) or re.escape(_letters(part))


def _bare(text: str) -> str:
    return _letters(without_markup(unwrapped(text))).strip()


def _letters(text: str) -> str:
    """The words and signs of a text, in small letters and without accents: "Na" is not "n/a"."""
    kept = (
        char if char.isalnum() or _is_sign(char) else " " for char in fold(text) if char not in _APOSTROPHES
    )
    return re.sub(" +", " ", "".join(kept))


_APOSTROPHES = frozenset("'’ʼ`´")


# -- Sentences with what they name masked

BUCKETS = 1 << 16
"""Weights of each of the three regressions."""
LINE, DASH = "¶", "‖"
"""A line end and a dash, which survive cleaning."""
OF_QUESTION, NEW, TITLE = "\x01", "\x02", "\x03"
"""Masks: of a word of the question; of a name, a number or a word that no abstention has; and what is put
before a word with a capital that grammar does not require."""

# Scripts without spaces, whose words are pairs of characters.
_RUN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
IS_RUN = re.compile(f"[{_RUN}]")
"""A character of such a script."""


@_once
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


@_once
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


def unwrapped(text: str) -> str:
    """A text without markup and quotation marks around the whole; line ends and dashes are single signs."""
    text = unwrap_latex(clean(text.replace("\n", LINE).replace("—", DASH)))
    text = text.replace("*", "").replace("`", "").strip(f" {LINE}{DASH}")
    whole = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if whole else text


_CITED = re.compile(r"(?<=\w )\[\d{1,2}(?:, ?\d{1,2}){0,5}\]")
# A word spelt letter by letter: P-a-r-i-s, p. a. r. i. s.
_SPELT = re.compile(
    r"(?<![\w'’])(?:[^\W\d][\W_]{1,2}){2,40}[^\W\d](?!\w)|(?<![^\W_])(?:[^\W\d_]_){2,40}[^\W\d_](?![^\W_])"
)
_ENDS = frozenset(f".!?。！？।؟۔…{LINE}")
_BREAKS = frozenset(f",;:()[]，；：、،{DASH}")
_ABBREVIATED = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Ms|Dr|St|Mrs|Prof|ca|bzw))$")
_GERMAN = re.compile(r"\b(?:ich|nicht|der|die|das|keine?n?|ist|und|leider|mir)\b")
_HEAD = 200  # characters in which the language is looked for


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def masked(text: str, question: frozenset[str]) -> list[list[str]]:
    """The masked words of each sentence of a text, with a comma between its clauses.

    Args:
        text: as `unwrapped` gives it.
        question: the question's words, by `question_words`.
    """
    bare = _SPELT.sub("Xqxqx", _TAG.sub(_blank, _CITED.sub(_blank, text)))
    german = len(_GERMAN.findall(fold(bare[:_HEAD]))) > 1  # nouns have capitals
    sentences: list[list[str]] = [[]]
    count = 0  # of the words of a sentence
    named = -1  # where a name of several words ends
    for match in tokens().finditer(bare):
        raw, kind = match[0], match.lastgroup
        words = sentences[-1]
        if match.start() < named:
            continue
        if kind == "sign" and not _is_sign(raw):
            if raw in "?!…":
                words.append(raw)
            if raw in _ENDS and not (raw == "." and _is_no_end(bare, match.start())):
                sentences.append([])
                count = 0
            elif words and (raw in _BREAKS or bare[match.start() - 1 : match.end() + 1] == " - "):
                words.append(",")
            continue
        word = fold(raw)
        if kind == "run":
            found = _pieces(raw, question)
        elif kind == "word" and not german and (name := _capitals(bare, match.start())):
            named = match.start() + len(name)
            found = [OF_QUESTION if all(in_question(one, question) for one in words_in(name)) else NEW]
        elif kind == "word" and len(word) == 1 and raw.isupper() and raw not in "IA":
            found = [NEW]  # a letter names something
        elif kind == "word" and is_known(word, exact=raw[0].isupper() and count > 0):
            titled = raw[0].isupper() and count > 0 and not german and len(word) > 2
            found = [TITLE, word] if titled else [word]
        elif kind == "word":
            found = [OF_QUESTION if in_question(word, question) else NEW]
        else:
            found = [OF_QUESTION if all(in_question(one, question) for one in words_in(raw)) else NEW]
        for one in found:
            if one not in MASKS or words[-1:] != [one]:
                words.append(one)
        count += 1
    for words in sentences:
        while words[-1:] == [","]:
            words.pop()
    return [words for words in sentences if words] or [[""]]


_CAPITALS = re.compile(r"(?:(?!I\b)[^\W\d_]+(?:[.-][^\W\d_]+)*\.?[ -]){1,5}(?!I\b)[^\W\d_]+")


_PARTICLES = frozenset("da de del della den der di do du la le ten van von of the".split())  # noqa: SIM905


def _capitals(text: str, start: int) -> str:
    """The name of several words, all with a capital, that begins at a place; empty where none does."""
    found = _CAPITALS.match(text, start) if text[start].isupper() else None
    words = found[0].replace("-", " ").split(" ") if found else []
    names = [*takewhile(lambda word: word[:1].isupper() or word in _PARTICLES, words)]
    while names and names[-1] in _PARTICLES:
        names.pop()
    return " ".join(names) if len(names) > 1 else ""


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

MEASURED = 0.78
"""The score from which on a text abstains where there is no judge (docs/evaluation.md)."""
SURELY_ANSWERS = 0.03
"""The score below which a text is an answer, and no judge is asked whether it is."""


_WORD = 24  # characters of a text of one word
_SENTENCE = re.compile(r"[.!?。！？\n]+")


def surely_answers(text: str, question: str) -> bool:
    """Whether a text is an answer without a doubt: no sentence of it is a refusal, and its score is low."""
    if any(map(is_refusal, _SENTENCE.split(text[:MAX_PAYLOAD]))):
        return False
    words = [token for token in tokens().finditer(unwrapped(text[:_LONGEST])) if token.lastgroup != "sign"]
    if len(words) == 1 and len(text) <= _WORD:
        return True  # one word that is no refusal
    return abstention_score(text, question) < SURELY_ANSWERS


_BARE = MASKS | {",", ""}


def abstention_score(text: str, question: str | None = None) -> float:
    """How much a text declines to answer, from 0 to 1.

    >>> abstention_score("I have no information about who wrote it.", "Who wrote Emma?") > MEASURED
    True

    Args:
        text: over `MAX_PAYLOAD` characters, and without content, it does not.
        question: what it replies to.
    """
    if len(text) > MAX_PAYLOAD or is_contentless(text):
        return 0.0
    sentences = masked(unwrapped(text), question_words(question) if question else frozenset())
    if all(word in _BARE for words in sentences for word in words):
        return 0.0  # nothing but names
    count = len(sentences)
    odds = _scored([*sentences, joined(sentences)])
    mix = tables().mix
    whole = mixed(odds[0, :count], odds[1, :count], odds[2, count]) @ mix[:-1] + mix[-1]
    return float(1 / (1 + np.exp(-np.clip(whole, -30, 30))))


def abstains(text: str, question: str | None = None) -> bool:
    """Whether a text declines to answer, by the list and the learnt score: a guess, as no judge is asked.

    >>> abstains("I don't know who wrote Emma.", "Who wrote Emma?"), abstains("I don't know, maybe Austen")
    (True, False)

    "I'm not sure, but I think it's Paris" does not, nor does "invalid question", which is a class of its
    own, a question back or a refusal on other grounds ("That would be illegal").  It reads the languages it
    was taught, twenty-five (docs/evaluation.md).
    """
    return is_refusal(text) or abstention_score(text, question) >= MEASURED


# In the form of `normalize_answer`, which has no articles.
_INVALID = re.compile(
    r"(?:(?:this|it|that) is )?(?:invalid question|not valid question|false premise)|invalid premise"
    r"|(?:this )?question (?:is (?:invalid|not valid|based on false premise)"
    r"|(?:has|contains|rests on) false premise)"
)


def says_invalid_question(text: str) -> bool:
    """Whether the complete answer is that the question is invalid or rests on a false premise.

    The exact counterpart of TruthRL's substring test for "invalid question": a text with an explanation or
    an answer beside it is an answer.
    """
    text = clean(text)
    forms = (text, final_answer(text)) if len(text) <= 400 else ()
    return any(_INVALID.fullmatch(normalize_answer(form)) for form in forms)
