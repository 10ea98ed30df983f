"""The words, numbers and dates of a text in one spelling each, so that two wordings can be compared.

A number is one word whatever its spelling (`1,000`, `one thousand` and `1k` are `#1000`), a unit has one
name, dates are read beside the words, and endings that English grammar adds are cut.  Nothing is converted:
`5 km` and `5,000 m` are two amounts.  Everything is linear in the text: one pass over its tokens, and no
pattern repeats anything without bound inside another repetition.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from factrl.text import clean, few_marks

# -- Letters


def fold(text: str) -> str:
    """A text in lower case, without the accents of Latin letters."""
    return _without_accents(text.casefold())


def plain_letters(text: str) -> str:
    """A text without the accents and strokes of Latin letters; joined letters are two."""
    return _without_accents(text).translate(_STROKES)


def unaccented(text: str) -> str:
    """The cleaned text, casefolded, without accents and strokes: to look whether texts share a word."""
    letters = unicodedata.normalize("NFD", clean(text).casefold())
    bare = "".join(char for char in letters if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", bare).translate(_STROKES)


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    kept: list[str] = []
    latin = False
    for char in unicodedata.normalize("NFD", few_marks(text)):
        # An accent on a Latin letter is often dropped; が without its mark is another word.
        if unicodedata.combining(char):
            if latin:
                continue
        else:
            latin = char.isascii()
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept))


UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
"""The spelling of German umlauts in names without them: Mueller."""
# Letters with a stroke or joined letters, which Unicode does not decompose.
_STROKES = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)


# -- Numbers

MAX_NUMBER = 64
"""Characters of the longest number or date that is read alone."""
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
"""Words that multiply a number by a power of ten, and the power."""
CARDINALS = {
    word: value
    for value, word in enumerate(
        """
        zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen
        """.split()  # noqa: SIM905  (a hundred quoted words would be no clearer)
    )
}
CARDINALS |= {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)  # noqa: SIM905
}
"""The numbers that are one word, and their values."""
_FIRST = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()  # noqa: SIM905
ORDINALS = {word: value for value, word in enumerate(_FIRST, 1)} | {
    (f"{word}th" if value < 20 else f"{word[:-1]}ieth"): value
    for word, value in CARDINALS.items()
    if value > 12
}
# Every quantifier is bounded, and so is the text it sees.
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d{1,3}(?:,\d{3}){1,9}|\d{1,3}(?: \d{3}){1,9}|\d{0,64})(?P<part>\.\d{1,64})?"
    r"(?:e(?P<exponent>[+-]?\d{1,3})| ?[x×*] ?10\^(?P<power>[+-]?\d{1,3}))?"
    rf"(?: ?(?P<scale>{'|'.join(SCALES)}))?",
    re.IGNORECASE,
)


def parse_number(text: str) -> Decimal | None:
    """The value of a text that is one plain number, exactly; None for everything else.

    Understood: a sign, decimals with a point, thousands in groups of three after `,` or a space, `1e6`,
    `3 x 10^8`, `1.5 million`, and the decimal digits of every script (`٣` is 3); `-0` is 0.  Refused:
    percentages and every other unit, fractions (`10/10`, `½`), a comma that groups no three digits
    (`1,5`), NaN, infinity, values beyond 1e308 and texts over 64 characters.

    >>> parse_number("1.5 million"), parse_number("50%")
    (Decimal('1.5E+6'), None)
    """
    text = "".join(str(unicodedata.decimal(char, char)) for char in clean(text)[: MAX_NUMBER + 1])
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_NUMBER else None
    if match is None or not (match["whole"] or match["part"]):
        return None
    digits = match["whole"].replace(",", "").replace(" ", "") + (match["part"] or "")
    exponent = int(match["exponent"] or match["power"] or 0) + SCALES.get((match["scale"] or "").lower(), 0)
    # Built as text, because arithmetic would round to 28 digits.
    value = Decimal(f"{match['sign']}{digits}e{exponent}")
    if not value:
        return Decimal(0)
    return value if abs(value.adjusted()) <= 307 else None


def canonical(number: str) -> str:
    """A number in one spelling, unless its spelling tells something: 007, 3.10, 1.000.

    >>> canonical("1,200.0"), canonical("1e3"), canonical("3.10")
    ('1200', '1000', '3.10')
    """
    number = number.rstrip(".,")
    value = None if _SPELLING_MATTERS.fullmatch(number) else parse_number(number)
    if value is None or abs(value.adjusted()) > MAX_NUMBER:
        return number
    plain = f"{value:f}"  # exactly; `normalize` would round to 28 digits
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


_TENS = ("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX")
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = {
    tens + ones: 10 * i + j
    for i, tens in enumerate(_TENS)
    for j, ones in enumerate(_ONES)
    if tens + ones not in ("", "X", "L", "XL")
}
"""Roman numerals in capitals from I to LXXXIX, without X, L and XL, which are more often something else."""
_SPELLING_MATTERS = re.compile(r"0\d+(?:\.\d+)?|\d+\.(?=\d*[1-9])\d*0|\d{1,3}\.000")


# -- Units

_UNITS = {
    name: unit
    for unit, names in {
        **{"kilometre": "kms", "kilogram": "kgs", "mile": "mi mile", "foot": "ft foot feet"},
        **{"inch": "inch inches", "lb": "lb lbs", "ounce": "oz ounce", "tonne": "tonne", "ton": "ton"},
        **{"second": "sec second", "minute": "min minute", "hour": "h hr hrs hour", "day": "day"},
        **{"week": "week", "month": "month", "year": "yr yrs year", "percent": "% percent percentage"},
        **{"celsius": "celsius", "fahrenheit": "fahrenheit", "dollar": "$ usd dollar", "cent": "cent"},
        **{"pound": "£ pound gbp", "euro": "€ euro", "yen": "¥ yen", "mph": "mph", "km/h": "kmh kph"},
        **{"am": "am", "pm": "pm", "bc": "bc bce", "degree": "° deg degree"},
    }.items()
    for name in names.split()
}
_PREFIXES = {
    **{"": "", "n": "nano", "µ": "micro", "μ": "micro", "m": "milli", "c": "centi"},
    **{"k": "kilo", "M": "mega", "G": "giga", "T": "tera"},
}
_BASES = {
    **{"m": "metre meter", "g": "gram", "l": "litre liter", "L": "litre liter", "J": "joule", "W": "watt"},
    **{"V": "volt", "A": "ampere amp", "N": "newton", "Hz": "hertz", "Pa": "pascal", "B": "byte", "Ω": "ohm"},
}
_UNITS |= {
    name: long + names.split()[0]
    for prefix, long in _PREFIXES.items()
    for base, names in _BASES.items()
    for name in (f"{prefix}{base}", *(long + name for name in names.split()))
    if name not in ("TV", "MA", "GA") and (len(name) > 1 or name in "mglL")  # two are states
}  # a capital tells mJ from MJ
_TWO_WORDS = re.compile(r"(?:°|\bdegrees?) ?(?:(c(?:elsius)?)|(f(?:ahrenheit)?))\b|\bper cent\b", re.I)
_SHAPES = {"square": "square", "sq": "square", "cubic": "cubic"}


def unit_of(word: str) -> str:
    """The name of the unit that a word is; empty for another word.

    >>> unit_of("km"), unit_of("Kilometres"), unit_of("Mm")
    ('kilometre', 'kilometre', 'megametre')
    """
    if word in _UNITS or len(word) < 2 or (len(word) == 2 and not word.isupper()):
        return _UNITS.get(word, "")
    low = word.lower()
    return _UNITS.get(low) or _UNITS.get(low.removesuffix("s"), "")


def _unit_at(spelt: Sequence[str], place: int) -> str:
    """The unit whose name begins at a word: km, square miles, degrees Celsius."""
    one, two = (spelt[at] if at < len(spelt) else "" for at in (place, place + 1))
    shape = _SHAPES.get(one.lower())
    return f"{shape} {unit_of(two)}" if shape else unit_of(one)


# -- Dates

Day = tuple[int, int, int]
"""(year, month, day); 0 is unsaid."""
_ENGLISH = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTHS = {name[:size]: i for i, name in enumerate(_ENGLISH, 1) for size in (3, len(name))} | {"sept": 9}
_MONTHS_ELSEWHERE = {
    name: number
    for names in (
        "januar februar märz april mai juni juli august september oktober november dezember",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
        "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
        "ledna února března dubna května června července srpna září října listopadu prosince",
    )
    for number, name in enumerate(names.split(), 1)
}
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
_ISO = re.compile(r"\b(\d{4})[-/.年](\d{1,2})(?:[-/.月](\d{1,2}))?(?![\d/.-]\d)")
_NUMERIC = re.compile(r"(?<![\d./-])(\d{1,2})(/|-|\. ?)(\d{1,2})\2(\d{4})(?![\d/]|[.-]\d)")
_BETWEEN = frozenset({"of", "the", "in", ",", ".", "de", "del"})


# -- A text as words

STOP_WORDS = frozenset(
    """
    a about after all almost also an and any approximately are around as at be been before being but by can
    circa could did do does during for from had has have he her hers him his how i if in into is it its itself
    me more most my nearly of on or other our over own roughly s same she should so some such t than that the
    their them then there these they this those through to too typically under until up usually was we were
    what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905
)
"""English words that say nothing about what a text is about; negations are none of them."""
_SPELLED = CARDINALS | ORDINALS | {"once": 1, "twice": 2}
_COUNTING = frozenset({*_SPELLED, *SCALES})  # words that begin a number
_SHORT_SCALES = {"k": 3, "M": 6, "bn": 9, "mn": 6, "万": 4, "萬": 4, "亿": 8, "億": 8}
# Letters, and the signs of vowels of Indic and Arabic scripts, which are no letters to `re`.
_LETTER = "(?:[^\\W\\d_]|[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u109f])"
TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:(?:,\d{3}){1,9}|(?: \d{3}){1,9}(?!\d))(?:\.\d{1,32})?"
    r"|\d{1,64}(?:\.\d{1,32})?(?:[eE][+-]?\d{1,2}(?!\w))?)"
    r"(?P<suffix>(?:st|nd|rd|th|k|bn|mn|%|万|萬|亿|億|(?<=\d0)'?s)(?![^\W\d_]))?"
    rf"|(?P<word>[^\W\d_]{_LETTER}{{0,64}}(?:'[^\W\d_]{{1,16}})?)"
    r"|(?P<sign>[%$£€¥°])|(?P<stop>[.!?;:,\n。，、；])"
)
"""A word, number, sign or end of a clause."""


_COMMA = re.compile(r"(?<=\d),(?=\d{1,2}(?![\d,]))")  # of a decimal number in other languages
_RANGE = re.compile(r"\b(1\d|20)(\d\d)-(?=\d\d\b(?!-))")  # 1979-80
_HALF = re.compile(r"(?<=\d) ?([ap])\.? ?m\b\.?")  # of a day: 9 p.m.


class Amount(NamedTuple):
    """A number as one word of a `Reading`, and its unit: "th" of an ordinal, empty without one."""

    word: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as words."""

    words: tuple[str, ...]  # stems in order; `#12` is a number, `|` an end of a clause
    spelt: tuple[str, ...]  # the same places as written, in lower or upper case
    amounts: tuple[Amount, ...]  # every number with its unit
    dates: frozenset[Day]  # every day, month of a year, or day of a month
    years: frozenset[int]  # four-digit numbers that stand in no longer date
    is_date: bool  # nothing but a date or dates


# Verbs of which questions have one form and answers another.
_PAST = {
    **{"won": "win", "wrote": "write", "written": "write", "became": "become", "began": "begin"},
    **{"made": "make", "took": "take", "taken": "take", "gave": "give", "found": "find", "led": "lead"},
    **{"held": "hold", "sang": "sing", "built": "build", "fought": "fight", "fell": "fall", "knew": "know"},
    **{"met": "meet", "ran": "run", "saw": "see", "sold": "sell", "spoke": "speak", "taught": "teach"},
    **{"told": "tell", "went": "go", "came": "come", "left": "leave", "lost": "lose", "rose": "rise"},
}
_ENDINGS = (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("s", ""))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word in small letters without the endings that English grammar adds.

    >>> [stem(word) for word in ("prizes", "prize", "winning", "won", "bus")]
    ['priz', 'priz', 'win', 'win', 'bus']
    """
    word = word.removesuffix("'s").replace("'", "")
    word = _PAST.get(word, word)
    for ending, instead in _ENDINGS:
        rest = word[: -len(ending)]
        if word.endswith(ending) and len(rest) >= 3 and not word.endswith(("ss", "us", "is")):
            doubled = ending in ("ing", "ed") and rest[-1] == rest[-2] and rest[-1] not in "lsfz"
            word = rest[:-1] if doubled else rest + instead
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


@lru_cache(maxsize=16_384)
def _stemmed(word: str) -> str:
    return stem(fold(word))


def stems(words: str) -> frozenset[str]:
    """The stems of several words, as `read` spells them."""
    return frozenset(stem(fold(word)) for word in words.split())


STOP_STEMS = frozenset(map(stem, STOP_WORDS | {"no", "not"}))
"""Words that tell nothing, as `read` spells them; what is denied is looked for apart."""
IDLE = STOP_STEMS | {"|"}
"""The same, and ends of clauses."""
_DATE_WORDS = stems(" ".join((*_MONTHS, *_MONTHS_ELSEWHERE, _WEEKDAYS))) | {
    *(*IDLE, "st", "nd", "rd", "th", "de", "le", "el", "am", "年", "月", "日"),
}


def read(text: str) -> Reading:
    """The words, amounts and dates of a text; `MAX_PAYLOAD` characters are read.

    Short ones are kept: a question and its answers are read with every completion.
    """
    return _reading(text) if len(text) <= _KEPT else _reading.__wrapped__(text)


_KEPT = 1_000  # characters


@lru_cache(maxsize=4_096)
def _reading(text: str) -> Reading:
    text = clean(text)
    if any(map(str.isdecimal, text)):
        text = _HALF.sub(r" \1m", _RANGE.sub(r"\1\2-\1", _COMMA.sub(".", text)))
    if "°" in text or "egree" in text or "er cent" in text:
        text = _TWO_WORDS.sub(lambda of: " celsius" if of[1] else " fahrenheit" if of[2] else "percent", text)
    tokens = list(TOKEN.finditer(text))
    spelt = [match[0] for match in tokens]
    low = [word.lower() for word in spelt]
    words: list[str] = []
    kept: list[str] = []
    amounts: list[Amount] = []
    place = 0
    while place < len(tokens):
        kind = tokens[place].lastgroup
        counts = kind in ("number", "suffix") or low[place] in _COUNTING
        number, end = _number_at(tokens, low, place) if counts else ("", place)
        if not counts and len(spelt[place]) > 1 and spelt[place] in ROMAN:
            number, end = f"#{ROMAN[spelt[place]]}", place + 1
        if number:
            amounts.append(Amount(number, _unit(tokens, spelt, place, end)))
            words.append(number)
            kept.append(" ".join(spelt[place:end]))
            place = end
            continue
        if kind != "sign":
            words.append("|" if kind == "stop" else _stemmed(spelt[place]))
            kept.append(spelt[place])
        place += 1
    dates, dated = _dates(text, spelt, low)
    years = {
        int(word) for i, word in enumerate(spelt) if len(word) == 4 and word.isdecimal() and i not in dated
    }
    rest = (word for word in words if word not in _DATE_WORDS and not word.lstrip("#-")[:1].isdigit())
    is_date = bool(dates) and next(rest, None) is None
    return Reading(tuple(words), tuple(kept), tuple(amounts), frozenset(dates), frozenset(years), is_date)


def _number_at(tokens: list[re.Match[str]], low: list[str], place: int) -> tuple[str, int]:
    """The number that begins at a token, as one word, and the token after it; an empty word for none."""
    match, sign = tokens[place], ""
    if match["number"]:
        text, start = match["number"], match.start()
        if start and match.string[start - 1] == "-" and not match.string[max(start - 2, 0)].isalnum():
            sign = "-"
        power, end = _SHORT_SCALES.get(match["suffix"] or "", 0), place + 1
    else:
        value, end = _spelled(low, place)
        text, power = str(value), 0
        if end == place:
            return "", place
    while (
        end < len(low)
        and power <= 30
        and (scale := SCALES.get(low[end]) or _SHORT_SCALES.get(tokens[end][0]))
    ):
        power += scale
        end += 1
    if power and (scaled := parse_number(f"{text}e{power}")) is not None:
        text = f"{scaled:f}"
    elif match["suffix"] in ("s", "'s"):
        text += "s"  # a decade
    return f"#{sign}{canonical(text)}", end


def _spelled(low: list[str], place: int) -> tuple[int, int]:
    """`one hundred and twenty-three thousand` and the token after it; `(0, place)` if no number begins."""
    total = group = 0
    end = place
    last = 1_000
    while end < len(low) and end - place < 12:
        word = low[end]
        value = _SPELLED.get(word)
        if value is not None and (value < 10 <= last or end == place or last >= 100):
            group += value
            last = value if value else 1
        elif word == "hundred" and (end == place or last < 100):
            group = max(group, 1) * 100
            last = 100
        elif word in SCALES and word != "hundred" and end > place:
            total += max(group, 1) * 10 ** SCALES[word]
            group, last = 0, 1_000
        elif not (word == "and" and last >= 100 and end > place and _SPELLED.get(_at(low, end + 1))):
            break
        end += 1
    if end == place and low[place] in SCALES and _at(low, place - 1) in ("a", "one"):
        return 10 ** SCALES[low[place]], place + 1
    return total + group, end


def _at(words: Sequence[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def _unit(tokens: list[re.Match[str]], spelt: list[str], start: int, end: int) -> str:
    """The unit of the number between two tokens: behind it, or a currency before it."""
    suffix = tokens[start]["suffix"] or ""
    if suffix == "%":
        return "percent"
    last = spelt[end - 1].lower()
    lone = last == "second" and end - start > 1  # "five second" is a time
    if suffix in ("st", "nd", "rd", "th") or (last in ORDINALS and not lone):
        return "th"
    before = _at(spelt, start - 1)
    return _unit_at(spelt, end) or (unit_of(before) if before in tuple("$£€¥") else "")


# -- Dates in a text


def _dates(text: str, spelt: list[str], low: list[str]) -> tuple[set[Day], set[int]]:
    """The dates of a text, and the tokens that belong to one with a month."""
    days = {(int(match[1]), int(match[2]), int(match[3] or 0)) for match in _ISO.finditer(text)}
    for match in _NUMERIC.finditer(text):
        month, day = sorted((int(match[1]), int(match[3])))
        if day > 12 or day == month:  # 3/4/1889 has two readings, and is no date
            days.add((int(match[4]), month, day))
    dated: set[int] = set()
    for place, word in enumerate(low):
        month = _MONTHS.get(word, 0) if spelt[place][0].isupper() else 0
        if month := month or _MONTHS_ELSEWHERE.get(word, 0):
            dated |= _named(low, place, month, days)
    return {day for day in days if 1 <= day[1] <= 12 and day[2] <= 31}, dated


def _named(low: list[str], place: int, month: int, days: set[Day]) -> set[int]:
    """Adds the date around the name of a month; returns its tokens."""
    before = place - 1
    while _at(low, before) in _BETWEEN and place - before < 3:
        before -= 1
    day = _day(_at(low, before))
    used = {before} if day else set()
    after = place + 1
    after += _at(low, after) == "."
    if not day and (day := _day(_at(low, after))):
        used.add(after)
        after += 1
    while _at(low, after) in _BETWEEN and after - place < 5:
        after += 1
    year = _at(low, after)
    if len(year) == 4 and year.isdecimal():
        used.add(after)
        days.add((int(year), month, day))
    elif day:
        days.add((0, month, day))
    return used


def _day(word: str) -> int:
    digits = word[:-2] if word[-2:] in ("st", "nd", "rd", "th") else word
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 2
    return int(digits) if plain and int(digits) <= 31 else 0
