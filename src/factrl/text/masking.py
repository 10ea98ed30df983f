"""Clauses with what they name masked: what the detector of abstentions sees, and what it may not see.

A word is known when abstentions are made of it, in one of its endings; `abstention.npy` has hashes of such
words.  What is neither known nor the question's is a name: a number, a quotation, a sign that is no
punctuation, a word with a capital that grammar does not ask for; and in a short text any other new word.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from factrl.text import clean, unwrap_latex
from factrl.text.answers import MONTHS, NUMBER_WORDS, ORDINALS, fold

BUCKETS = 1 << 16
"""Weights of each of the three regressions."""
BARE = 200
"""Characters of the longest text in which any new word is a name."""
_COUNTS = frozenset((*NUMBER_WORDS[2:], *ORDINALS[1:], "hundred", "thousand", "million", "billion", "dozen"))
"""Words that are a number, and so an answer, though abstentions have some of them."""
LINE, DASH = "¶", "‖"
"""A line end and a dash, which survive cleaning."""
ASKED, NEW, TITLE = "\x01", "\x02", "\x03"
"""What stands for a word of the question, for a name, a number or a word that no abstention has, and before a
word with a capital that grammar does not ask for."""


@cache
def _marks() -> str:
    """Combining marks, which are parts of words, as a class of a regular expression."""
    return "".join(chr(c) for c in range(0x300, 0x11000) if unicodedata.category(chr(c))[0] == "M")


# Scripts without spaces, whose words are pairs of characters.
_RUN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
IS_RUN = re.compile(f"[{_RUN}]")
"""A character of a script without spaces."""


@cache
def tokens() -> re.Pattern[str]:
    """Quotations, numbers, runs without spaces, words and single signs."""
    letters = f"[^\\W\\d_{_RUN}]+[{_marks()}]*"
    return re.compile(
        rf"(?P<quote>\"[^\"]{{1,200}}\"|[「『《][^」』》]{{1,80}}[」』》])|(?P<number>\d[\d.,/:]*\d|\d)"
        rf"|(?P<run>[{_RUN}]+)|(?P<word>(?:{letters})+)|(?P<sign>\S)"
    )


class Tables(NamedTuple):
    """What was learnt."""

    weights: (
        np.ndarray
    )  # (3, BUCKETS): whether a sentence declines, whether it answers, whether a text declines
    bias: np.ndarray  # (3,)
    mix: np.ndarray  # (10,): of the nine numbers of `_mixed`, and the bias
    words: frozenset[int]  # hashes of words, of beginnings and of pairs of characters


@cache
def tables() -> Tables:
    """The tables in `abstention.npy`, read once."""
    return unpacked(np.load(Path(__file__).with_name("abstention.npy")))


def unpacked(raw: np.ndarray) -> Tables:
    """The tables of the bytes in `abstention.npy`: scales, biases, mix, weights, then hashes."""
    head, size = raw[:64].view(np.float32), 64 + 3 * BUCKETS
    weights = raw[64:size].view(np.int8).reshape(3, BUCKETS) * head[:3, None]
    return Tables(weights, head[3:6], head[6:], frozenset(raw[size:].view(np.uint32).tolist()))


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
    known = tables().words
    if hashed(word) in known:
        return True
    if exact:
        return False
    sizes = range(max(3, len(word) - _ENDING), len(word) + 1)
    return any(hashed(f"{word[:size]}-") in known for size in sizes if size >= _LEAST or len(word) - size < 3)


@lru_cache(maxsize=256)
def words_of(question: str) -> frozenset[str]:
    """The beginnings of a question's words, and its pairs of characters without case."""
    said = words_in(clean(question))
    runs = (run for run in said if IS_RUN.match(run))
    return frozenset(
        {word[:5] for word in said} | {run[i : i + 2] for run in runs for i in range(len(run) - 1)}
    )


_QUOTES = re.compile('["「」『』《》]')


def words_in(text: str) -> list[str]:
    """The words, numbers, signs and runs without spaces of a text, folded."""
    found = tokens().finditer(_QUOTES.sub(" ", fold(text)))
    return [token[0] for token in found if token.lastgroup != "sign" or _is_sign(token[0])]


def _is_sign(char: str) -> bool:
    """Whether a character is no punctuation: an emoji, Braille, a sign of mathematics or money."""
    return unicodedata.category(char)[0] in "SN" and char not in "`´¨^~|\ufffd"


_TAG = re.compile(  # of markup, whole where it is one of HTML's for a stretch of words, and "<unknown>"
    r"</?(?:b|i|u|p|em|strong|span|mark|small|code|h[1-6]|li|ul|ol|td|th|tr|br|div|answer|think|response)\b[^<>]{0,40}>"
    r"|<\|\w{1,20}\|>|</?[a-z]{1,12}_[a-z_]{1,20}>|</?(?=[A-Za-z])|(?<=[A-Za-z])>"
)


def is_asked(word: str, asked: frozenset[str]) -> bool:
    """Whether the question has a folded word with the same first five letters, or all pairs of a run."""
    return word[:5] in asked or (
        len(word) > 1 and all(word[i : i + 2] in asked for i in range(len(word) - 1))
    )


MASKS = frozenset({ASKED, NEW})
"""What a run of is one."""


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
    cites = _CITED if len(text) > BARE else _CITED_BEHIND
    cited = _TAG.sub(lambda found: " " * len(found[0]), cites.sub(lambda found: " " * len(found[0]), text))
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
            once = [w for w, last in zip(words, ["", *words], strict=False) if w != last or w not in MASKS]
            found.append(Part(text[start:end], tuple(once), named, new, ends))
        if ends:
            if lead and count <= _FEW and not found[leading].named:
                found[leading] = found[leading]._replace(named=lead)
            leading, count, lead, before = len(found), 0, "", ""
        words, named, new, start = [], "", "", end

    for token in tokens().finditer(cited):
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
            named = named or (said if _CHOSEN.fullmatch(said) else "")
        elif kind == "word":
            titled = said[0].isupper() and count > 0
            if word in _COUNTS and not is_asked(word, asked):
                named = named or said
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


_KANA = re.compile("[\u3041-\u309f]")
KATAKANA = re.compile("[\u30a1-\u30fa\u30fc]{2,}")


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
    pieces = [
        run[at]
        if piece == NEW and (len(run) == 1 or _KANA.match(run[at])) and is_known(low[at], True)
        else piece
        for at, piece in enumerate(pieces)
    ]
    for name in KATAKANA.finditer(low):  # a word of its own
        if not is_known(name[0], exact=True) and ASKED not in pieces[name.start() : name.end()]:
            pieces[name.start() : name.end()] = [NEW] * len(name[0])
    return pieces
