"""Compares short answers by rules, and finds answers without content before a judge sees them.

The rules accept only what is certainly the same answer, since a policy exploits whatever is accepted too
easily.  They compare whole answers, never substrings, overlaps or lists that contain the answer.  What they
do not accept may still be right; a judge decides that.
"""

from __future__ import annotations

import html
import math
import re
import string
import unicodedata
from collections.abc import Collection, Iterable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from factrl.text import MAX_PAYLOAD, clean, unwrap_latex
from factrl.text.words import (
    CARDINALS,
    IDLE,
    MAX_NUMBER,
    MONTH_NUMBERS,
    ORDINALS,
    ROMAN,
    TOKEN,
    UMLAUTS,
    WEEKDAYS,
    Amount,
    Reading,
    fold,
    in_tokens,
    parse_number,
    plain_letters,
    read,
    stems,
    unit_asked,
    unit_named,
)

MASTER_KEYS = frozenset(
    {
        # The keys of "One Token to Fool LLM-as-a-Judge" (arXiv 2507.08794) that hold a word.
        *("thought process", "let's solve this problem step by step", "solution", "解"),
        *("かいせつ", "respuesta"),
        # Announcements of an answer that does not follow, as policies write them.
        *("answer", "the answer", "my answer", "final answer", "the answer is", "the final answer is", "n/a"),
        *("here is the answer", "here is the solution", "the solution", "explanation", "reasoning", "step 1"),
        *("let's think step by step", "let us think step by step", "let's think about this step by step"),
        *("to solve this problem", "let me think", "let's begin", "let's start", "thinking process"),
        *("答案", "答案是", "答", "解答", "解説", "答え", "réponse", "la réponse", "antwort", "lösung"),
        *("respuesta final", "solución", "risposta", "soluzione", "resposta", "solução", "ответ", "решение"),
        *("정답", "الجواب", "odpověď", "řešení"),
    }
)
"""Texts without content that model judges often accept, in the form that `is_contentless` compares."""

MAX_ANSWER = 1_024
"""The rules compare answers of up to this many characters; a longer one equals nothing."""

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_released(text: str) -> str:
    """TruthRL's released normalisation: lower case, no ASCII punctuation, no English articles, one space.

    It works on the raw text, so a curly apostrophe stays (arXiv 2509.25760, code; the order is SQuAD's).
    Reads `MAX_PAYLOAD` characters.
    """
    text = text[:MAX_PAYLOAD].lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def normalize_answer(text: str) -> str:
    """SQuAD's normalisation of the cleaned text, so that typography makes no difference."""
    return normalize_released(clean(text))


# -- Numbers and dates

_DATE_FILLERS = frozenset({"st", "nd", "rd", "th", "of", "the"})
_DATE_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\s,.]")
_SLASHED_DATE = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})")


_RATIO = re.compile(r"([+-]?)(?:(\d{1,9}) )?(\d{1,9})/(\d{1,9})")
_POWER = re.compile(r"(\d{1,4})\^([+-]?\d{1,2})")
_SPELLING_MATTERS = re.compile(r"\+.*|-?0\d+(?:\.\d+)?|-?\d+\.(?=\d*[1-9])\d*0|-?\d{1,3}\.000")


class _Quantity(NamedTuple):
    value: Decimal | Fraction
    percent: bool
    code: str  # the text, if numbers of equal value may differ by their spelling: +44, 007, version 3.10


def _quantity(text: str) -> _Quantity | None:
    """A number, a percentage, a power, or a fraction in lowest terms (2/4 may be a time signature)."""
    text = "0" if text.lower() in ("none", "none.") else text.removesuffix(".")
    for spelling in (" per cent", " percent", " %"):
        text = text[: -len(spelling)] + "%" if text.endswith(spelling) else text
    number = parse_number(text.removesuffix("%"))
    if number is not None:
        return _Quantity(number, text.endswith("%"), text if _SPELLING_MATTERS.fullmatch(text) else "")
    power, ratio = _POWER.fullmatch(text), _RATIO.fullmatch(text)
    if power:
        return _Quantity(Fraction(int(power[1])) ** int(power[2]), False, "") if int(power[1]) else None
    if not ratio:
        return None
    whole, top, bottom = (int(part or 0) for part in ratio.groups()[1:])
    if bottom < 2 or math.gcd(top, bottom) > 1 or (ratio[2] and top > bottom):
        return None
    return _Quantity((whole + Fraction(top, bottom)) * (-1 if ratio[1] == "-" else 1), False, "")


def _date(text: str) -> tuple[int, int, int] | None:
    """(year, month, day) of `13 March 2018`, `March 13th, 2018`, `2018-03-13`, `March 2018`.

    A part that is not given is 0.
    """
    if len(text) > MAX_NUMBER:
        return None
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        year, month, day = map(int, text.split("-"))
        return year, month, day
    slashed = _SLASHED_DATE.fullmatch(text)
    if slashed:
        day, month, year = int(slashed[1]), int(slashed[3]), int(slashed[4])
        day, month = (month, day) if month > 12 >= day else (day, month)
        # 3/4/1889 is ambiguous: the third of April or the fourth of March.
        return (year, month, day) if month <= 12 and (day > 12 or day == month) and day <= 31 else None
    tokens = [token for token in _DATE_TOKEN.findall(text.lower()) if token not in _DATE_FILLERS]
    if tokens[:1] and tokens[0] in WEEKDAYS:
        year, month, day = _date(text.lower().partition(tokens[0])[2].strip(" ,")) or (0, 0, 0)
        plain = year and day and 1 <= month <= 12
        right = plain and WEEKDAYS[(date(year, month, 1).weekday() + day - 1) % 7] == tokens[0]
        return (year, month, day) if right else None
    months = [MONTH_NUMBERS[token] for token in tokens if token in MONTH_NUMBERS]
    years = [int(token) for token in tokens if token.isdecimal() and len(token) == 4]
    days = [int(token) for token in tokens if token.isdecimal() and len(token) <= 2]
    if len(months) != 1 or len(years) > 1 or len(days) > 1 or len(tokens) != 1 + len(years) + len(days):
        return None
    if len(tokens) == 1:
        return None
    return (years or [0])[0], months[0], (days or [0])[0]


# -- Equality

LOOSENINGS = {
    "case": "capitals come from the place of a word; they count in K, Co, mJ and MJ, CO2 and Co2",
    "punctuation": "stops, commas, quotation marks, brackets and hyphens between words are a matter of taste",
    "articles": "a, an and the name nothing before a word: The Beatles; they count at the end: Vitamin A",
    "accents": "names are typed without them: São Paulo, Mueller; in small letters they count: año, ano",
    "markup": "LaTeX and HTML write one text in many ways: \\frac12, 10^{6}, New~York, AT&amp;T",
    "initials": "J. R. R. Tolkien, J.R.R. Tolkien and JRR Tolkien are one spelling",
    "abbreviations": "Mt. Everest is Mount Everest, & is and, 44 BCE is 44 BC",
    "numerals": "World War II, 2 and Two; Henry VIII and Henry the Eighth; but 8 is not the eighth",
    "values": "1,000 is 1000, 12.0 is 12, 50% is 50 percent, none is 0, 1/2 is 0.5, 10^6 is 1,000,000",
    "dates": "13 March 2018, Tuesday, March 13th, 2018 and 2018-03-13 are one day; 2018 alone is less",
    "order": "Austen, Jane is Jane Austen, and a list of names is one in any order",
    "units": "5 km is 5,000 m, and 8849 is 8,849 m where metres are asked for",
}
"""The differences that two equal short answers may have, and why; `Grader(loosen=...)` chooses among them.

Every other sign in an answer counts: -5, 50%, $5, C++, n!, a/b, [0, 1), O-, x^2, √2.
"""
Loosen = Collection[str]


class _Variant(NamedTuple):
    """One spelling of an answer: its words, and the signs by which answers of the same words differ."""

    words: tuple[str, ...]
    bare: tuple[str, ...]  # without articles
    marks: tuple[Decimal | str, ...]


class _Form(NamedTuple):
    """An answer in all forms that are compared."""

    text: str
    quantity: _Quantity | None
    date: tuple[int, int, int] | None
    variants: tuple[_Variant, ...]


def _form(text: str, loosen: Loosen = LOOSENINGS) -> _Form:
    """The form of a text; cached, as an accepted answer is compared with every completion of its question."""
    kept = frozenset(loosen)
    return _formed(text, kept) if len(text) <= MAX_ANSWER else _formed.__wrapped__(text, kept)


@lru_cache(maxsize=4_096)
def _formed(text: str, loosen: frozenset[str]) -> _Form:
    text = clean(text)
    if len(text) > MAX_ANSWER:
        text = ""
    if "punctuation" in loosen:
        text = _QUOTES.sub(r"\2", text)
    if "markup" in loosen and not _PLAIN.fullmatch(text):
        text = _without_markup(text)
    spelt = _respelt(text, loosen)
    return _Form(
        text,
        _quantity(text) if "values" in loosen else None,
        _date(text) if "dates" in loosen else None,
        tuple(_variant(one, loosen) for one in dict.fromkeys((text, spelt))),
    )


_QUOTES = re.compile(r"""(?<!\w)(["'])(?=\S)([^"']{1,400})(?<=\S)\1(?!\w)""")
_PLAIN = re.compile(r"[\w .,'-]*")
_LATEX = (
    (re.compile(r"(?<=\d) ?(?=\\[dt]?frac)"), " "),
    (re.compile(r"\\[dt]?frac ?\{([+-]?\w{1,40})\} ?\{(\w{1,40})\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac ?\{([^{}]{1,99})\} ?\{([^{}]{1,99})\}"), r"(\1)/(\2)"),
    (re.compile(r"\\[dt]?frac ?(\w) ?(\w)"), r"\1/\2"),
    (re.compile(r"\\sqrt ?\{([^{}]{1,99})\}|\\sqrt ?(\w)"), r"√\1\2"),
    (re.compile(r"\^ ?(?:\\circ\b|\{\\circ\})"), "°"),
    (re.compile(r"\^\{([+-]?\d{1,9}|\w)\}"), r"^\1"),
    (re.compile(r"_\{?(\d{1,9})\}?(?!\d)"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-z]) ?"), ""),
    (re.compile(r"(?<=\w)\.?~(?=\w)"), " "),
    (re.compile(r"<br ?/?>|\\(?:quad|qquad|newline)\b"), " "),
    (re.compile(r"<(/?)(?:b|i|em|strong|u|span|p|sub|code)>"), ""),
)


def _without_markup(text: str) -> str:
    """A text on one line, without the markup of LaTeX, HTML and Markdown."""
    text = unwrap_latex(clean(html.unescape(text)))
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.split())


_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|`)(?=\S)([^*`]{1,400})(?<=\S)\1(?![\w*])")


# -- One spelling for initials, abbreviations and numerals

_COUNTED = {word: f"{value}" for word, value in CARDINALS.items() if value <= 20} | {
    word: f"{value}th" for word, value in ORDINALS.items() if value <= 20
}
_NTH = re.compile(r"(\d{1,4})(?:st|nd|rd|th)", re.I)
_ABBREVIATED = {
    **{"mt": "mount", "ft": "fort", "jr": "junior", "sr": "senior", "dr": "doctor", "vs": "versus"},
    **{"bce": "bc", "st": "saint", "prof": "professor", "gov": "governor", "sen": "senator"},
    "bros": "brothers",
}
_SHORT_FOR = re.compile(r"([A-Za-z]{2,4})\.?")
_INITIALS = re.compile(r"(?:[A-Z]\.){1,5}[A-Z]?|[A-Z]|[A-Z](?:\.[A-Z]){1,5}")
_AROUND = ".,;:!?\"'()[]"
# Spaces that do not matter: beside operators, and inside an interval (`_ENDS`).
_SPACED = re.compile(
    r"(?<=\d{4}) - (?=\d{4})|(?<=\S) ?([+*^=<>≤≥×·±]) ?(?=[\w(√\[-])|(?<![^\W_])(\w) ([-/]) (?=\w(?!\w))"
)
_ENDS = re.compile(r"[(\[{]([^()\[\]{}]{1,80})[)\]}]")
_LONG_WORD = re.compile(r"[^\W\d_]{2}")


def _respelt(text: str, loosen: Loosen) -> str:
    """A text with its initials, abbreviations and numerals in one spelling, word by word."""
    if "abbreviations" in loosen:
        text = re.sub(r" ?& ?", " and ", text)
        text = re.sub(r"(?<=\d) ?([AaPp])\. ?([Mm])\b\.?", r" \1\2", text)
        text = re.sub(r"\bA\.?D\.? (\d{1,4})\b", r"\1 AD", re.sub(r"(?<=\d) C\.?E\b\.?", " AD", text))
        text = re.sub(r"(?<=\d)(?=(?:am|pm|AM|PM|BC|AD|BCE)\b)", " ", text)
    if "punctuation" in loosen:
        text = _HYPHEN.sub(" ", _SPACED.sub(lambda match: match[0].replace(" ", ""), text))
        text = _ENDS.sub(
            lambda ends: ends[0] if _LONG_WORD.search(ends[1]) else ends[0].replace(" ", ""), text
        )
    tokens: list[str] = []
    joined = False
    for token in text.split():
        initial = "initials" in loosen and _INITIALS.fullmatch(token) is not None
        letters = token.replace(".", "") if initial else token
        if initial and joined:
            tokens[-1] += letters
        else:
            tokens.append(letters)
        joined = initial
    last = len(tokens) - 1
    for place, token in enumerate(tokens):
        core = token.strip(_AROUND)
        known = _SHORT_FOR.fullmatch(token) if "abbreviations" in loosen else None
        if known and (full := _ABBREVIATED.get(known[1].lower())):
            tokens[place] = "street" if full == "saint" and place == last else full
        elif "numerals" in loosen and core:
            tokens[place] = token.replace(core, _in_digits(core, tokens[place - 1] if place else ""))
    return _THE_NTH.sub(r" \1", " ".join(tokens)) if "numerals" in loosen else " ".join(tokens)


_HYPHEN = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2}|\d)")
_THE_NTH = re.compile(r"(?<=[^\W\d_]) the (\d{1,2})th$", re.I)


def _in_digits(word: str, before: str) -> str:
    """A Roman numeral after a name, a number word or an ordinal, in digits; any other word as it is."""
    numeral = word.upper() if len(word) > 1 and word.islower() else word
    value = ROMAN.get(numeral, 0)
    if value and before[:1].isalpha() and (len(word) > 1 or before[:1].isupper()):
        return str(value)
    nth = _NTH.fullmatch(word)
    return f"{nth[1]}th" if nth else _COUNTED.get(word.lower(), word)


def _words(text: str) -> str:
    """The words, casefolded, without punctuation, articles and (on Latin letters) accents."""
    words = normalize_released(text).casefold() or text.casefold()
    if words.isascii():
        return words
    spaceless = any(map(_spaceless, words))
    folded = "".join(
        char for char in plain_letters(fold(words)) if unicodedata.category(char)[0] != "P"
    ).split()
    return ("" if spaceless else " ").join(folded) or text.casefold()


def _spaceless(char: str) -> bool:
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char >= "\U00020000"


# Signs that make no difference between words.  Every other sign is a mark (`_MARK`).
_DROPPED = str.maketrans("", "", string.punctuation.replace("\\", "") + "¿¡…、。・「」『』《》〈〉【】")
_OPERATORS = r"[+*^=<>%#$@&|\\~°√∞±×÷·≤≥≠∈∉∪∩∧∨⊂⊃⊆⊇∀∃→⇒↔⇔⊕⊗∝≡≅‰§¬∂∇∑∫′″€£¥]"
_MARK = re.compile(
    r"-?\d[\d.,]*"
    rf"|{_OPERATORS}"
    r"|!=|_{2,}|!(?=\w)|(?<=[\d)\]}])!|(?<![^\W\d_])[^\W\d_]!"  # negations and factorials, but not "Wow!"
    r"|(?<![^\W\d_]{3})(?<=\w)-(?![\w-])|(?<![\w.])-(?=[^\W\d_])"  # O-, -x
    r"|(?<![^\W\d_'-])[^\W\d_]-(?=[^\W\d_](?![\w-]))"  # a-b
    r"|(?<=[\d)])/|/(?=[\d(])|(?<![^\W_])\w/|/\w(?!\w)"  # 10/10, a/b; not AC/DC
    r"|(?<=\d)['\"]{1,2}(?![\w])|(?<![^\W\d_'])[a-zA-Z]'{1,3}(?!\w)"  # 5', f'
    r"|(?<!\S)\.(?=[A-Z])|(?<=\w)[(\[{]"  # .NET, f(x)
    r"|[(\[{](?=[^()\[\]{}]{0,80}[-+*/^=,√∞\d][^()\[\]{}]{0,80}[)\]}])|(?<=[\w∞+*/^!°'])[)\]}](?=[\w+*/^=!'(-])|(?<=[\d∞])[)\]}]"
)


def _marks(text: str) -> tuple[Decimal | str, ...]:
    marks: list[Decimal | str] = []
    for match in _MARK.finditer(text):
        mark = match[0]
        if not mark.lstrip("-")[:1].isdecimal():
            marks.append(mark)
            continue
        mark = mark.rstrip(".,")
        if mark.startswith("-") and match.start() and text[match.start() - 1].isalnum():
            mark = mark[1:]
        number = None if _SPELLING_MATTERS.fullmatch(mark) else parse_number(mark)
        marks.append(mark if number is None else number)
    return tuple(marks)


_IN_AMOUNTS = frozenset("$£€¥%°&'\"0123456789.,")


def telling_marks(text: str) -> tuple[str, ...]:
    """The signs by which texts with the same words differ, without numbers, currencies and units."""
    signs = (
        mark
        for mark in _marks(text)
        if isinstance(mark, str) and (mark == "." or not set(mark) <= _IN_AMOUNTS)
    )
    return tuple(sign for sign in signs if not (sign[-1] == "-" and len(sign) > 1))


def _variant(text: str, loosen: Loosen) -> _Variant:
    words = (text.translate(_DROPPED) if "punctuation" in loosen else text).split() or text.split()
    if any(map(_spaceless, text)):
        words = ["".join(words)]
    bare = [word for place, word in enumerate(words) if not _is_article(words, place)]
    return _Variant(
        tuple(words), tuple(bare if "articles" in loosen else words) or tuple(words), _marks(text)
    )


_AFTER_LETTER = frozenset("minor major flat sharp positive negative level levels cappella".split())  # noqa: SIM905


def _is_article(words: list[str], place: int) -> bool:
    """Whether a word is an article.  Its place decides about `a`: it is none in "Vitamin A" and "A minor"."""
    word = words[place]
    if place + 1 == len(words) or word.lower() not in ("a", "an", "the"):
        return False
    return word.lower() == "the" or (
        (word.islower() or not place) and words[place + 1].lower() not in _AFTER_LETTER
    )


def _same(prediction: _Form, answer: _Form, loosen: Loosen = LOOSENINGS) -> bool:
    if not prediction.text or not answer.text:
        return False
    # `K`, `Co`, `US`: only case distinguishes them from words; "No" is read as the word.
    if len(answer.text) <= 2 and answer.text.isalpha() and answer.text not in ("No", answer.text.lower()):
        return _without_signs(prediction.text) == answer.text
    if answer.text.isalpha() and answer.text.islower() and len(answer.text) == 2:
        core = _without_signs(prediction.text)
        if core.isupper() and core != "NO":
            return False
    if prediction.quantity and answer.quantity:
        one, other = prediction.quantity, answer.quantity
        equal = one.value == other.value or Fraction(one.value) == Fraction(other.value)
        return equal and one[1:] == other[1:]
    if prediction.date and answer.date:
        return prediction.date == answer.date
    pairs = zip(prediction.variants * 2, answer.variants * 2, strict=False)
    if any(one.marks == other.marks and _alike(one, other, loosen) for one, other in pairs):
        return True
    return "order" in loosen and _reordered(prediction, answer)


def _without_signs(text: str) -> str:
    return text.replace(".", "").strip(" \"'()[],;:!?")


def _alike(one: _Variant, other: _Variant, loosen: Loosen) -> bool:
    for words, wanted in ((one.words, other.words), (one.bare, other.bare)):
        if len(words) == len(wanted) and all(
            word == want or _same_word(words, wanted, place, loosen)
            for place, (word, want) in enumerate(zip(words, wanted, strict=True))
        ):
            return True
    return False


_CASE_MATTERS = re.compile(
    r"\d*(?:[A-Za-z]|[mp](?:[gmsajwvnlbctk]|pa|hz|ev|bq|sv|wh|bit|ol|cal|bps)|[kgt]i?b(?:ps)?)", re.I
)
_FORMULA = re.compile(r"(?:[A-Z][a-z]?\d*){1,20}")


def _same_word(words: tuple[str, ...], wanted: tuple[str, ...], place: int, loosen: Loosen) -> bool:
    """Whether two words differ only in case or accents that do not matter."""
    word, want = words[place], wanted[place]
    folded, other = (word.casefold(), want.casefold()) if "case" in loosen else (word, want)
    # In an answer of one short word an accent can be the only difference: Bär, bar.
    names = (word[0].isupper() or want[0].isupper()) and (len(words) > 1 or min(len(word), len(want)) > 3)
    if "accents" in loosen and names:
        if folded != other and folded.translate(UMLAUTS) == other.translate(UMLAUTS):
            return True
        folded, other = (plain_letters(text.replace("ё", "е")) for text in (folded, other))
    if folded != other:
        return False
    # In a unit after its number and in a formula, case matters.
    after = word[0].isdigit() or (place and words[place - 1][-1].isdigit())
    if after and _CASE_MATTERS.fullmatch(word) and word.lower() not in ("am", "pm"):
        return word.lstrip("0123456789")[0] == want.lstrip("0123456789")[0] and word[-1] == want[-1]
    return not (
        any(map(str.isdigit, word)) and _FORMULA.fullmatch(word) and _FORMULA.fullmatch(want) and word != want
    )


_LISTED = re.compile(r", and |, |; | and | & ")


def _reordered(prediction: _Form, answer: _Form) -> bool:
    """Whether two texts are the same list in another order, or a name and its form "Surname, First name"."""
    texts = prediction.text, answer.text
    one, other = (_LISTED.split(text.strip(" .")) for text in texts)
    if len(one) == len(other) == 1 or any(char.isdigit() for char in texts[0]):
        return False
    marks, wanted = (sorted(form.variants[0].marks, key=str) for form in (prediction, answer))
    if marks != wanted:
        return False
    if len(one) == len(other):
        return sorted(map(_words, one)) == sorted(map(_words, other))
    named, plain = texts if len(one) > len(other) else texts[::-1]
    parts = named.split(", ")
    if len(parts) != 2 or len(_LISTED.split(named)) != 2:
        return False
    surname, names = parts
    return _same(_form(f"{names} {surname}"), _form(plain))


def same_answer(prediction: str, answer: str, loosen: Loosen = LOOSENINGS) -> bool:
    """Whether two short answers are certainly the same one.

    They are the same if they differ only in what `LOOSENINGS` lists, each with its reason.  Every sign that
    can change the value counts: -5, 1.5, 50%, $5, C++, n!, a/b, [0, 1), O-, +44, 3.10.  Numbers must be
    equal; close is not enough.  A list of candidates is never the same as one of them.

        >>> same_answer("J.R.R. Tolkien", "JRR Tolkien"), same_answer("n!", "n")
        (True, False)

    Args:
        loosen: the differences that do not count, by their names in `LOOSENINGS`.
    """
    return _same(_form(prediction, loosen), _form(answer, loosen), loosen)


def equals(prediction: str, answers: Iterable[str], loosen: Loosen = LOOSENINGS) -> str | None:
    """The first accepted answer that the prediction equals as it is written."""
    return _accepted([prediction], answers, loosen)


def matches(
    prediction: str, answers: Iterable[str], loosen: Loosen = LOOSENINGS, question: str = ""
) -> str | None:
    """The first accepted answer that the prediction equals, as written or as `final_answer` reads it."""
    text = clean(prediction)
    spellings = dict.fromkeys((text, final_answer(text, question)))
    return _accepted(spellings, answers, loosen) if len(text) <= MAX_ANSWER else None


def contains(text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer whose words follow each other in a passage, as in DPR (arXiv 2004.04906).

    Case, punctuation, English articles and accents make no difference.  It is for sorting passages, never for
    grading: many passages have "yes" and "one".  Reads `MAX_PAYLOAD` characters.
    """
    passage = f" {_words(clean(text))} "
    for answer in answers:
        words = _words(clean(answer)).strip()
        if words and (words if any(map(_spaceless, words)) else f" {words} ") in passage:
            return answer
    return None


def _accepted(spellings: Iterable[str], answers: Iterable[str], loosen: Loosen) -> str | None:
    forms = [_form(spelling, loosen) for spelling in spellings]
    for answer in answers:
        accepted = _form(answer, loosen)
        if any(_same(form, accepted, loosen) for form in forms):
            return answer
    return None


# -- Amounts

_SIGNED = re.compile(r"[!¬≠✗✘❌~<>=≈±]|\d ?['\"]")  # signs for "not", "about", limits, minutes and inches
_AMOUNT_SIGNS = frozenset(" -'()°")  # signs in an amount besides those of the tokens of `read`
_AROUND_AMOUNT = stems("square sq cubic degrees it there has have had is are was were he she they a old aged")
_LIMITS = stems(
    "more less fewer than least most over under above below at up to minus plus not never no nor neither"
    " none or half without except other another"
)
_CODED = re.compile(r"\D?0\d|\(?\d{1,9},\d{1,2}\)?$")  # 007, and a pair: (2,3)


def same_amount(question: str, text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that is the same amount as a text; both must be an amount and nothing more.

    "8849 metres" is "8,849 m", and "8849" too where the question asks for metres; "12 goals" is "12" where it
    asks for goals.  If neither the text nor the question gives a unit, a number equals only a number without
    a unit.

    >>> [same_amount("How high is it?", text, ["8,849 m"]) for text in ("8.849 km", "8849")]
    ['8,849 m', None]
    """
    amounts = {answer: one for answer in answers if (one := _only_amount(answer, question)) is not None}
    amount = _only_amount(text, question) if amounts else None  # accepted answers are read once, texts differ
    if amount is None:
        return None
    query_unit = unit_asked(read(question))
    return next((answer for answer, one in amounts.items() if amount.same_in(one, query_unit)), None)


def _only_amount(text: str, question: str) -> Amount | None:
    """The amount of a text that is a number with its unit, or with words of the question; else None.

    Before the number no word of the question may limit or deny it; behind it stands what is counted.
    """
    text = in_tokens(_QUOTES.sub(r"\2", clean(text[:MAX_ANSWER])))
    if _SIGNED.search(text) or _CODED.match(text) or not _AMOUNT_SIGNS.issuperset(TOKEN.sub("", text)):
        return None
    reading, query = read(text), read(question)
    if len(reading.amounts) != 1 or reading.dates:
        return None
    words = [word for word in reading.words if word != "|"]
    spelt = [name for word, name in zip(reading.words, reading.spelt, strict=True) if word != "|"]
    at = words.index(reading.amounts[0].word)
    behind = at + 1
    while behind < len(words) and (unit_named(spelt[behind]) or words[behind] in _AROUND_AMOUNT):
        behind += 1
    if behind == at + 1 < len(words) and words[behind] not in _counted(query):
        return None
    rest = [*words[:at], *words[behind:]]
    known = {word for word in query.words if word not in _LIMITS} | _AROUND_AMOUNT
    return reading.amounts[0] if known.issuperset(rest) else None


def _counted(query: Reading) -> frozenset[str]:
    """The words behind "how many" in a question, up to a little word: what is counted."""
    counted: list[str] = []
    for place, pair in enumerate(pairwise(query.words), 2):
        if pair in (("how", "many"), ("how", "much")):
            counted += takewhile(lambda word: word not in IDLE, query.words[place : place + 4])
    return frozenset(counted)


# -- Around the answer

_WRAPPERS = ("**", "__", "``", '""', "''", "「」", "『』", "《》")
_LABELS = re.compile(
    r"(?:(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:final |correct |right |short )?"
    r"(?:answer|option|choice)(?::| is:?| would be)"
    r"|respuesta:|réponse:|antwort:|risposta:|resposta:|ответ:|答案:|答案是:?|答え:|答:) ?",
    re.IGNORECASE,
)
# Only verbs in lower case, and "It's" only in a sentence: "It Is Written" and "It's Complicated" are titles.
_OPENERS = re.compile(
    r"(?:(?:[Ii] (?:think|believe|would say)|[Ii]'d say)(?: that)?,? |(?:[Pp]robably|[Mm]aybe|[Pp]erhaps),? "
    r"|(?:[Ii]t|[Tt]his|[Tt]hat|[Hh]e|[Ss]he|[Tt]hey) (?:is|was|are|were) |it's |It's (?=.*\.$))"
)
_COPULA = re.compile(r" (?:is|was|are|were) (?:called |named |known as )?")
_MAX_SUBJECT = 12
_ROOT = 5  # letters: the director is who directed
_ANY_SUBJECT = stems("name number year date total title person place")
_TURNS = frozenset(
    """
    not never no nor neither either or but unlike than who whom whose which that what why how whether if when
    where before after other
    """.split()  # noqa: SIM905
)


def final_answer(text: str, question: str = "") -> str:
    """The answer without a few clear wrappings; if there are none, the cleaned text.

    Removed, from the outside in: LaTeX markup, bold and quotes around the whole, a label (`Answer:`, `The
    final answer is`), an opener (`It is`, `I think`, `Maybe`), one definite subject (`The capital of France
    is Paris`: begins with "The", at most 12 words, all of them of the question, one verb form of "to be"),
    and the final period.  Other sentences stay as they are: "The runner-up was Germany" is not who won.

    >>> final_answer("The final answer is: **Paris**."), final_answer("Paris is the capital of France")
    ('Paris', 'Paris is the capital of France')
    >>> final_answer("The capital of France is Paris.", "What is the capital of France?")
    'Paris'
    """
    text = unwrap_latex(clean(text))
    if text.count("**") % 2 == 0:
        text = text.replace("**", "")
    for _ in range(4):
        before = text
        inner = text[1:-1]
        if inner and text[0] + text[-1] in _WRAPPERS and set(inner).isdisjoint(text[0] + text[-1]):
            text = inner
        for opening in (_LABELS, _OPENERS):
            match = opening.match(text)
            text = (text[match.end() :] if match else text) or text
        # The period of "U.S." belongs to the word.
        ends = text.endswith("。") or (text.endswith(".") and text.rsplit(" ", 1)[-1].count(".") == 1)
        text = _without_subject((text[:-1] if ends else text).strip(), question)
        if text == before:
            break
    return text


def _without_subject(text: str, question: str) -> str:
    if not question or not text.startswith(("The ", "the ")):
        return text
    parts = _COPULA.split(text, maxsplit=2)
    if len(parts) != 2:
        return text
    words = parts[0].lower().split()
    if len(words) > _MAX_SUBJECT or "," in parts[0] or not _TURNS.isdisjoint(words) or not parts[1]:
        return text
    query_roots = tuple(word[:_ROOT] for word in read(question).words if word not in IDLE)
    subject = [word for word in read(parts[0]).words if word not in IDLE | _ANY_SUBJECT]
    same = bool(query_roots) and all(word[:_ROOT].startswith(query_roots) for word in subject)
    return parts[1] if same else text


# Tags, comments and commands that produce no visible text.
_INVISIBLE = re.compile(
    r"<!--[^<>]{0,400}-->|</?[a-z]{1,10} ?/?>"
    r"|\\(?:q?quad|newline|null|relax|[hv]?phantom\{[^{}]{0,400}\}|[hv]space\{[^{}]{0,40}\})"
    r"|\\[,;!: ]|(?<!\w)~(?!\w)",
    re.I,
)


def is_contentless(text: str) -> bool:
    """Whether a text holds nothing a judge could grade: no letter, digit or sign, or only a master key.

    It is a fixed rule, so no text can persuade it.  Call it before any judge, and after `matches`, because a
    word such as "Solution" can be the right answer.  Short answers (`0`, `K`, `C++`, `π`, `中`, `No`, `A`)
    pass.

    >>> is_contentless("**Solution:**"), is_contentless("…"), is_contentless("C++")
    (True, True, False)
    """
    text = clean(_INVISIBLE.sub(" ", html.unescape(text[:MAX_PAYLOAD]))).casefold()
    signs = (char for char in text if not char.isascii() and char != "\ufffd")
    if not any(map(str.isalnum, text)) and all(unicodedata.category(char)[0] != "S" for char in signs):
        return True
    return text.strip(" .:,;!?*_#\"'`-()[]{}<>。、") in MASTER_KEYS
