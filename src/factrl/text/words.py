"""The words, numbers and dates of a text in one spelling each, so that two wordings can be compared.

A number is one word whatever its spelling (`1,000`, `one thousand` and `1k` are `#1000`), units and dates are
read beside the words, and endings that grammar adds are cut.  Everything is linear in the text: one pass over
its tokens, and no pattern repeats anything without bound inside another repetition.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

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
_TENS = ("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX")
_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = {
    tens + ones: 10 * i + j
    for i, tens in enumerate(_TENS)
    for j, ones in enumerate(_ONES)
    if tens + ones not in ("", "X", "L", "XL")
}
"""Roman numerals in capitals from I to LXXXIX, without X, L and XL, which are more often something else."""


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


# -- Dates

Day = tuple[int, int, int]
"""(year, month, day); 0 is unsaid."""
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
MONTH_NUMBERS = {name[:size]: i for i, name in enumerate(MONTHS, 1) for size in (3, len(name))} | {"sept": 9}
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


# -- A text as words

STOP_WORDS = frozenset(
    """
    a about after all almost also an and any approximately are around as at be been before being but by can
    circa could did do does during for from had has have he her hers him his how i if in into is it its itself
    me more most my nearly of on or other our over own roughly s same she should so some such t than that the
    their them then there these they this those through to too typically under until up usually was we were
    what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905  (a hundred quoted words would be no clearer)
)
"""English words that say nothing about what a text is about; negations are none of them."""
_SPELLED = CARDINALS | ORDINALS | {"once": 1, "twice": 2}
_SHORT_SCALES = {"k": 3, "M": 6, "bn": 9, "mn": 6, "万": 4, "萬": 4, "亿": 8, "億": 8}
# Of other languages; a Billion in German is none.
_SHORT_SCALES |= {
    word: power
    for power, names in {
        3: "tausend Tausend mille тысяч тысячи tisíc",
        6: "Millionen millions millones milioni milione milhões milion miliony milionů mln Mio"
        " миллион миллионов миллиона",
        9: "Milliarde Milliarden milliard milliards miliardi miliardo miliarda miliardy miliard миллиард"
        " миллиардов миллиарда Mrd",
    }.items()
    for word in names.split()
}

# (what is measured, size in the first unit of its kind); sizes of None are only ever equal to themselves.
_MEASURES: dict[str, tuple[str, Decimal | None]] = {
    name: (kind, Decimal(size) if size else None)
    for kind, units in {
        "length": "mi mile=1609.344|ft foot feet=0.3048|yd yard=0.9144|inch inches=0.0254|nmi=1852",
        "mass": "kilo=1000|lb lbs pound=453.59237|oz ounce=28.349523|tonne=1000000",
        "time": "sec=1|minute min=60|hour hr hrs h=3600|day=86400|week=604800|month=2629800"
        "|year yr yrs=31557600",
        "area": "acre=1|hectare ha=2.4710538",
        "speed": "mph=1|kph kmh km/h=0.62137119|m/s=2.23693629",
        "volume": "gallon=",
        "angle": "degree=",
        "percent": "percent percentage %=",
        "celsius": "celsius °c=",
        "fahrenheit": "fahrenheit °f=",
        "points": "percentage-point=100|basis-point=1",
        "dollar": "dollar $ usd=",
        **{f"dollar {code}": f"{code}$=" for code in ("A", "C", "S", "R", "HK", "NZ", "AU", "CA")},
        "sterling": "£=",
        "euro": "euro €=",
        "yen": "yen ¥=",
        **{name: f"{name}=" for name in ("cent", "rupee", "peso", "ruble", "franc", "ton")},
        "morning": "am=",
        "afternoon": "pm=",
        "before Christ": "bc=",
        "decade": "ten-years=",
        **{f"degrees {side}": f"°{side[0]}=" for side in ("south", "east")},
    }.items()
    for unit in units.split("|")
    for names, _, size in (unit.partition("="),)
    for name in names.split()
}
_PREFIXES = {
    **{("", ""): 0, ("n", "nano"): -9, ("µ", "micro"): -6, ("μ", "micro"): -6, ("m", "milli"): -3},
    **{("c", "centi"): -2, ("k", "kilo"): 3, ("M", "mega"): 6, ("G", "giga"): 9, ("T", "tera"): 12},
}
_BASES = {
    **{("m", "metre meter"): "length", ("g", "gram"): "mass", ("s", "second"): "time", ("L", ""): "volume"},
    **{("l", "litre liter"): "volume", ("J", "joule"): "energy", ("W", "watt"): "power"},
    **{("V", "volt"): "voltage", ("A", "ampere amp"): "current", ("N", "newton"): "force"},
    **{("Hz", "hertz"): "frequency", ("Pa", "pascal"): "pressure", ("eV", ""): "electronvolt"},
    **{("Wh", ""): "watt-hour", ("cal", "calorie"): "calorie", ("mol", "mole"): "amount"},
    **{("B", "byte"): "byte", ("bit", "bit"): "bit", ("b", ""): "bit", ("bps", ""): "bit"},
    ("Ω", "ohm"): "resistance",
}
_SYMBOLS = {
    f"{prefix}{symbol}": (kind, Decimal(1).scaleb(power))
    for (prefix, _), power in _PREFIXES.items()
    for (symbol, _), kind in _BASES.items()
    if f"{prefix}{symbol}" not in ("TV", "MA", "GA")  # television and two states
}
_SYMBOLS |= {"KB": _SYMBOLS["kB"], "K": ("kelvin", Decimal(1))}
"""Symbols of units, in which a capital tells mJ from MJ; nothing may be one in small letters alone."""
_MEASURES |= {
    f"{prefix}{name}": (kind, Decimal(1).scaleb(power))
    for (_, prefix), power in _PREFIXES.items()
    for (_, names), kind in _BASES.items()
    for name in names.split()
}
# Vowel signs are no letters to `re`; a block of an Indic script is letters and signs up to its 100th place.
_SIGNS = (
    "\u0300-\u036f\u0591-\u05bd\u064b-\u0652\u0e31-\u0e4e\u0eb1-\u0ecd\u0f71-\u0fbc\u102b-\u103e\u17b4-\u17d3"
)
_SIGNS += "".join(f"{chr(block)}-{chr(block + 0x63)}" for block in range(0x900, 0xE00, 0x80))
TOKEN = re.compile(
    r"(?P<number>(?<![\d/])(?:\d{1,3} )?\d{1,3}/\d{1,3}(?![\d/])|(?<!\d)\d{1,3}\^-?\d{1,2}(?!\d)"
    r"|\d{1,3}(?:\.\d{3}){0,9},\d{1,2}(?![\d,])|\d{1,3}(?:\.\d{3}){2,9}(?!\d)"
    r"|\d{1,3}(?:(?:,\d{3}){1,9}|(?: \d{3}){1,9}(?!\d))(?:\.\d{1,32})?"
    r"|\d{1,64}(?:\.\d{1,32})?(?:[eE][+-]?\d{1,2}(?!\w))?)(?![xyzn](?!\w))"
    r"(?P<suffix>(?:st|nd|rd|th|k|bn|mn|%|万|萬|亿|億|(?<=[12]\d\d0)'?s)(?![^\W\d_]))?"
    r"|(?P<word>(?:[kcmµ]?(?:m|g|[lL]|mol)/(?:[kcmd]?[mglL]|[hs]|min|mol)|[kcm]?m\^?[23])(?!\w)|(?<![\w-])[A-Z]{1,2}-(?![\w-])|√\w{1,64}"
    rf"|[^\W\d_]{{1,64}}(?:[{_SIGNS}][^\W\d_]{{0,64}}){{0,64}}(?:'[^\W\d_]{{1,16}})?(?:\+\+?|[#♯♭](?!\w))?)"
    r"|(?P<sign>°[CF]\b|[%$£€¥°])|(?P<stop>[.!?;:,\n。，、；])"
)
"""A word, number, sign or end of a clause."""
# Forms of the day's halves and of the era before Christ, in one spelling each; AD is not said.
_O_CLOCK = re.compile(r"(?<=\d):00(?= ?[ap]\.?m)", re.I)
_HALF = re.compile(r"(?<=\d) ?([ap])\.? ?m\b\.?", re.I)
_BEFORE_CHRIST = re.compile(
    r"(?<=[\dyст.]) ?(?:\bB\.? ?C\.?(?: ?E\b\.?)?(?![\w.])|\bv\. ?Chr\.?|\bav(?:ant|\.)? ?J\.?-?C\.?"
    r"|\ba\. ?C\.(?:, ?n\.)?|\bpř\. ?n\. ?l\.|\bдо н\. ?э\.)"
)
_AFTER_CHRIST = re.compile(
    r"\bA\.?D\.? (?=\d)|(?<=\d) ?(?:\bA\.?D\b\.?|\bC\.?E\b\.?|\bn\. ?Chr\.?|\bap(?:r|rès|\.)? ?J\.?-?C\.?"
    r"|\bd\. ?C\.|\bн\. ?э\.|\bn\. ?l\.)"
)
_BELOW_ZERO = re.compile(
    r"(?<![\w.,-])([\w.,-]{1,40} ?(?:°|degrees?)? ?(?:[CF]|Celsius|Fahrenheit)?) below zero\b", re.I
)
_BEFORE_CHRIST_ZH = re.compile(r"公元前 ?(\d{1,4})")
_ISO = re.compile(r"\b(\d{4})[-/.年](\d{1,2})(?:[-/.月](\d{1,2}))?(?![\d/.-]\d)")
_SLASHED = re.compile(r"\b(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b")
_BETWEEN = frozenset({"of", "the", "in", ",", ".", "de", "del"})
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class Amount:
    """A number as it was given: `value` in `unit` ("" without one), precise to the place `step`."""

    value: Decimal
    unit: str
    step: Decimal
    nth: bool = False  # an ordinal: the fifth

    @property
    def word(self) -> str:
        """The number as one word of a `Reading`."""
        return f"#{self.value.normalize():f}" if abs(self.value.adjusted()) < 40 else f"#{self.value}"

    def equals(self, other: Amount) -> bool:
        """Whether two amounts are the same, converted within rounding when their units differ."""
        kind, size = _measure(self.unit)
        other_kind, other_size = _measure(other.unit)
        if (self.unit in _SAID and not other_kind) or (other.unit in _SAID_ALONE and not kind):
            return False
        if not kind or not other_kind or self.unit == other.unit or (kind == other_kind and not size):
            return self.value == other.value and bool(kind or other_kind or self._as_precise(other))
        if kind != other_kind or size is None or other_size is None:
            return False
        own, others = self.value * size, other.value * other_size
        if size == other_size:
            return own == others
        rounding = max(self.step * size, other.step * other_size) / 2
        return abs(own - others) <= min(rounding, abs(own) / 50)

    def same_in(self, other: Amount, query_unit: str = "") -> bool:
        """Whether two amounts are one, exactly, where a number without a unit has the unit `query_unit`."""
        kind, size = _measure(self.unit or query_unit)
        other_kind, other_size = _measure(other.unit or query_unit)
        if kind != other_kind or self.nth != other.nth:
            return False
        if not kind:
            return self.value == other.value and self._as_precise(other)
        return self.value * (size or 1) == other.value * (other_size or 1)

    def _as_precise(self, other: Amount) -> bool:
        """Whether two numbers have as many decimals, unless they are whole: 3.10 and 3.1 may be versions."""
        whole = self.value == self.value.to_integral_value() and _THOUSANDTH not in (self.step, other.step)
        return whole or self.step == other.step


_THOUSANDTH = Decimal("0.001")  # 1.000 may be a thousand
_SAID = frozenset({"am", "pm", "bc", "ten-years"})  # what an amount must be said with
_SAID_ALONE = frozenset({"bc", "%", "percent", "ten-years"})  # and what none without it is


def _measure(unit: str) -> tuple[str, Decimal | None]:
    """What a unit measures, and its size; empty for what is none."""
    shape, _, name = unit.rpartition(" ")
    if shape:
        kind, size = _measure(name)
        return f"{shape} {kind}", size and size ** (3 if shape == "cubic" else 2)
    ratio = (unit, None) if "/" in unit else None
    return _SYMBOLS.get(unit) or _MEASURES.get(unit) or ratio or ("", None)


_SHAPES = {"square": "square", "sq": "square", "cubic": "cubic"}
_POWERED = re.compile(r"([kcm]?m)\^?([23])")


def unit_named(word: str) -> str:
    """The unit that a word is, by its name in the singular or its symbol; empty for another word."""
    powered = _POWERED.fullmatch(word)
    if powered:
        return f"{'square' if powered[2] == '2' else 'cubic'} {powered[1]}"
    if word in _SYMBOLS or ("/" in word and word[0] in "kcmµglL"):
        return word
    low = word.lower()
    for name in (low, low.removesuffix("s")):
        if name in _MEASURES and (name == low or len(name) > 2):
            return name
    if low in ("kms", "kgs"):
        return low[:-1]
    # KM and Kg, but no symbol that another one with a capital is told from.
    return low if len(low) > 1 and low[0] not in "mp" and low[-1] != "b" and low in _SYMBOLS else ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as words."""

    words: tuple[str, ...]  # stems in order; `#12` is a number, `|` an end of a clause
    spelt: tuple[str, ...]  # the same places as written, in lower or upper case
    amounts: tuple[Amount, ...]  # every number with its unit
    dates: frozenset[Day]  # every day, month of a year, or day of a month
    years: frozenset[int]  # four-digit numbers that stand in no longer date
    is_date: bool  # nothing but a date or dates


_COUNTING = frozenset({*_SPELLED, *SCALES, "minus", "negative"})  # words that begin a number
# Verbs of which questions have one form and answers another.
_PAST = {
    **{"won": "win", "wrote": "write", "written": "write", "became": "become", "began": "begin"},
    **{"made": "make", "took": "take", "taken": "take", "gave": "give", "found": "find", "led": "lead"},
    **{"held": "hold", "sang": "sing", "built": "build", "fought": "fight", "fell": "fall", "knew": "know"},
    **{"met": "meet", "ran": "run", "saw": "see", "sold": "sell", "spoke": "speak", "taught": "teach"},
    **{"told": "tell", "went": "go", "came": "come", "left": "leave", "lost": "lose", "rose": "rise"},
}
_ENDINGS = (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("s", ""))


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


@lru_cache(maxsize=65_536)
def _stemmed(word: str) -> str:
    return stem(fold(word))


def stems(words: str) -> frozenset[str]:
    """The stems of several words, as `read` spells them."""
    return frozenset(stem(fold(word)) for word in words.split())


STOP_STEMS = frozenset(map(stem, STOP_WORDS | {"no", "not"}))
"""Words that tell nothing, as `read` spells them; what is denied is looked for apart."""
IDLE = STOP_STEMS | {"|"}
"""The same, and ends of clauses."""
_DATE_WORDS = stems(" ".join((*MONTH_NUMBERS, *_MONTHS_ELSEWHERE, *WEEKDAYS))) | {
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
    text = in_tokens(_era(below_zero(clean(text))))
    tokens = list(TOKEN.finditer(text))
    spelt = [match[0] for match in tokens]
    words: list[str] = []
    kept: list[str] = []
    amounts: list[Amount] = []
    place = 0
    while place < len(tokens):
        raw = spelt[place]
        counts = tokens[place]["number"] or raw in ROMAN or raw == "X" or raw.lower() in _COUNTING
        parsed = _amount(tokens, spelt, place) if counts else None
        if parsed is None:
            match = tokens[place]
            if match["word"] or match["stop"] or match["number"]:
                words.append("|" if match["stop"] else _stemmed(match[0]))
                kept.append(match[0])
            place += 1
            continue
        amount, end = parsed
        amounts.append(_with_unit(amount, spelt, place, end))
        words.append(amount.word)
        kept.append(" ".join(spelt[place:end]))
        place = end
    dates, dated = _dates(text, spelt)
    years = {
        int(word) for i, word in enumerate(spelt) if i not in dated and len(word) == 4 and word.isdecimal()
    }
    rest = (word for word in words if word not in _DATE_WORDS and not word.lstrip("#-")[:1].isdigit())
    is_date = bool(dates) and next(rest, None) is None
    return Reading(tuple(words), tuple(kept), tuple(amounts), frozenset(dates), frozenset(years), is_date)


# Amounts in words that no token holds, in a spelling that one does.
_RESPELT = (
    (re.compile(r"\bmiles? (?:per|an) hour\b", re.I), "mph"),
    (re.compile(r"\bkilomet(?:re|er)s? (?:per|an) hour\b", re.I), "km/h"),
    (re.compile(r"\bmet(?:re|er)s? (?:per|a) second\b", re.I), "m/s"),
    (re.compile(r"\bnautical miles?\b", re.I), "nmi"),
    (re.compile(r"\bhalf a (?=[mbt]r?illion\b)", re.I), "0.5 "),
    (re.compile(r"\ba quarter of a (?=[mbt]r?illion\b)", re.I), "0.25 "),
    (re.compile(r"(?<=\d) ?[x×*] ?10\^(?=-?\d)"), "e"),
    (re.compile(r"\bUSD? ?(?=\$)|\bUSD ?(?=\d)"), "$"),
    (re.compile(r"\$\$(?=\d)"), "$"),
    *(
        # Of money, but not of formulas: $3k$.
        (re.compile(rf"(?<=[$£€¥])( ?\d[\d.,]{{0,20}})(?:{sign}| ?{sign.upper()})\b(?!\$)"), rf"\1 {scale}")
        for sign, scale in (("k", "thousand"), ("m", "million"), ("b", "billion"), ("t", "trillion"))
    ),
)


def in_tokens(text: str) -> str:
    """A text whose amounts are spelt as `TOKEN` reads them: 60 mph, 3e8, $5 million.

    >>> in_tokens("60 miles per hour, US$5M"), in_tokens("3 × 10^8")
    ('60 mph, $5 million', '3e8')
    """
    if any(map(str.isdecimal, text)) or " per " in text or "illion" in text:
        for pattern, spelling in _RESPELT:
            text = pattern.sub(spelling, text)
    return text


def below_zero(text: str) -> str:
    """A text with "minus 5 degrees" for "5 degrees below zero"."""
    return _BELOW_ZERO.sub(r"minus \1", text) if "below zero" in text else text


def _era(text: str) -> str:
    if not any(map(str.isdecimal, text)):
        return text
    text = _BEFORE_CHRIST_ZH.sub(r"\1 BC ", _BEFORE_CHRIST.sub(" BC", text))
    return _HALF.sub(r" \1m", _O_CLOCK.sub("", _AFTER_CHRIST.sub("", text)))


def beside(words: tuple[str, ...], place: int, step: int, most: int = 3) -> tuple[int, int]:
    """The next place to the left or right over at most so many words that tell nothing, and their number."""
    hops = 0
    place += step
    while hops < most and 0 <= place < len(words) and (words[place] in STOP_STEMS or len(words[place]) == 1):
        place += step
        hops += 1
    return place, hops


# -- Numbers ------------------------------------------------------------------------------------------


def _amount(tokens: list[re.Match[str]], spelt: list[str], place: int) -> tuple[Amount, int] | None:
    """The number that begins at a token, and the token after it."""
    match = tokens[place]
    if match["number"]:
        value = _value(match["number"])
        if value is None:
            return None
        if "." in match[0] and _VERSION.match(match.string, match.end()):
            return None  # the 3.1 of version 3.1.2
        start = match.start()
        before = match.string[max(start - 6, 0) : start]
        if len(match[0]) == 2 and re.fullmatch(r"\D?\d{4}-", before):
            value += int(before[-5:-3]) * 100  # the second year of `1939-45`
        if start and match.string[start - 1] == "-" and not match.string[max(start - 2, 0)].isalnum():
            value = -value
        exponent = int((value if "." in match[0] else value.normalize()).as_tuple().exponent)
        step = Decimal(1).scaleb(exponent) if value else Decimal(1)
        nth = (match["suffix"] or "").lower() in ("st", "nd", "rd", "th")
        power = _SHORT_SCALES.get((match["suffix"] or "").lower(), 0)
        end = place + 1
    elif match["word"]:
        if numeral := _numeral(spelt, place):
            return Amount(Decimal(numeral), "", Decimal(1)), place + 1
        if match[0].lower() in _MINUS and not _is_operand(_at(spelt, place - 1)):
            known = _at(spelt, place + 1) not in ("", *_MINUS)
            below = _amount(tokens, spelt, place + 1) if known else None
            return below and (replace(below[0], value=-below[0].value), below[1])
        value, end = _spelled(spelt, place)
        if end == place:
            return None
        last = _at(spelt, end - 1)
        lone = last == "second" and end - place > 1  # "five second" is a time
        step, power, nth = Decimal(1), 0, last in ORDINALS and not lone
    else:
        return None
    while end < len(spelt) and (spelt[end].lower() in SCALES or spelt[end] in _SHORT_SCALES):
        word = spelt[end].lower()
        power += SCALES.get(word) or _SHORT_SCALES.get(spelt[end], 0)
        end += 1
        if power > 30:
            break
    return Amount(value.scaleb(power), "", step.scaleb(power), nth), end


_VERSION = re.compile(r"\.\d{1,3}(?!\d)")
_MINUS = ("minus", "negative")


def _is_operand(word: str) -> bool:
    """Whether `minus` behind a word is no sign: "x minus 5", "ten minus 5"."""
    return (len(word) == 1 and word.isalpha()) or word[:1].isdigit() or word in _SPELLED or word in SCALES


def _value(number: str) -> Decimal | None:
    """The value of a number, with a decimal comma, as a fraction or as a power too."""
    if "/" in number:
        whole, _, ratio = number.rpartition(" ")
        top, bottom = map(int, ratio.split("/"))
        lowest = bottom > 1 and math.gcd(top, bottom) == 1  # 10/10 is a score, and 2/4 a time
        return Decimal(whole or 0) + Decimal(top) / Decimal(bottom) if lowest else None
    if "^" in number:
        base, _, power = number.partition("^")
        return Decimal(base) ** int(power) if len(base) <= 6 and int(base) else None
    if re.fullmatch(r"[\d.]+,\d{1,2}", number):
        return parse_number(number.replace(".", "").replace(",", "."))
    return parse_number(number.replace(".", "") if number.count(".") > 1 else number)


def _numeral(spelt: list[str], place: int) -> int:
    """The value of a Roman numeral; one letter is one behind a name alone, as in Charles V."""
    word, before = spelt[place], spelt[place - 1] if place else ""
    if len(word) > 1:
        return ROMAN.get(word, 0)
    if word == "I" and _at(spelt, place + 1) in _SPEAKS:
        return 0
    named = len(before) > 1 and before[0].isupper() and before.isalpha() and before.lower() not in STOP_WORDS
    return (10 if word == "X" else ROMAN.get(word, 0)) if word in ("I", "V", "X") and named else 0


_SPEAKS = frozenset(
    "think believe know guess am have had do don't would can cannot can't could feel assume recall".split()  # noqa: SIM905
)
"""Words behind an I that is no numeral: Actually I think."""


def _spelled(spelt: list[str], place: int) -> tuple[Decimal, int]:
    """`one hundred and twenty-three thousand` and the token after it; `(0, place)` if no number begins."""
    total = group = 0
    end = place
    last = 1_000
    while end < len(spelt) and end - place < 12:
        word = spelt[end].lower()
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
        elif not (word == "and" and last >= 100 and end > place and _SPELLED.get(_at(spelt, end + 1))):
            break
        end += 1
    if end == place and spelt[place].lower() in SCALES and _at(spelt, place - 1) in ("a", "one"):
        return Decimal(10 ** SCALES[spelt[place].lower()]), place + 1
    return Decimal(total + group), end


def _at(spelt: list[str], place: int) -> str:
    return spelt[place].lower() if 0 <= place < len(spelt) else ""


def _unit_at(spelt: Sequence[str], place: int) -> str:
    """The unit whose name begins at a word: km, square miles, degrees Celsius, percentage points."""
    one, two = (spelt[at] if at < len(spelt) else "" for at in (place, place + 1))
    degree, shape = one.lower() in ("°", "degree", "degrees"), _SHAPES.get(one.lower())
    if one.lower() in ("percentage", "percent", "basis") and two.lower() in ("point", "points"):
        return "basis-point" if one.lower() == "basis" else "percentage-point"
    if degree and (side := _SIDES.get(two.lower())):
        return side
    unit = unit_named(two if degree or shape else one) or ("degree" if degree else "")
    return f"{shape} {unit}" if shape and unit else unit


def _with_unit(amount: Amount, spelt: list[str], start: int, end: int) -> Amount:
    unit = _unit_at(spelt, end)
    if not unit and "BC" in spelt[end : end + 4] and _dated_before(spelt[end : spelt.index("BC", end)]):
        unit = "bc"
    if not unit and _at(spelt, start - 1) in ("$", "£", "€", "¥"):
        unit = _at(spelt, start - 1)
        country = f"{spelt[start - 2]}$" if start > 1 and unit == "$" else ""
        unit = country if country in _MEASURES else unit
    if spelt[end - 1].endswith(("0s", "0's")):
        unit = "ten-years"
    if not unit and spelt[end - 1].endswith("%"):
        unit = "%"
    return replace(amount, unit=unit) if unit else amount


# 40°N, 40 degrees north and 40 N are one, so north and west have the symbols of newton and watt.
_SIDES = {"n": "N", "north": "N", "w": "W", "west": "W", "s": "°s", "south": "°s", "e": "°e", "east": "°e"}


def _dated_before(between: list[str]) -> bool:
    """Whether what stands between a number and BC leaves it a year or a century: "300 to 200 BC"."""
    return all(
        word.isdigit() or word.lower() in ("to", "and", "century", "centuries", "or") for word in between
    )


# -- Dates --------------------------------------------------------------------------------------------


def _dates(text: str, spelt: list[str]) -> tuple[set[Day], set[int]]:
    """The dates of a text, and the tokens that belong to one with a month."""
    days: set[Day] = set()
    for match in _ISO.finditer(text):
        days.add((int(match[1]), int(match[2]), int(match[3] or 0)))
    for match in _SLASHED.finditer(text):
        day, month, year = int(match[1]), int(match[2]), int(match[3])
        days |= {(year, month, day)} if month <= 12 else set()
        days |= {(year, day, month)} if day <= 12 else set()
    dated: set[int] = set()
    for place, word in enumerate(spelt):
        low = word.lower()
        month = MONTH_NUMBERS.get(low, 0) if word[:1].isupper() else 0
        if month := month or _MONTHS_ELSEWHERE.get(low, 0):
            dated |= _named(spelt, place, month, days)
    return {day for day in days if 1 <= day[1] <= 12 and day[2] <= 31}, dated


def _named(spelt: list[str], place: int, month: int, days: set[Day]) -> set[int]:
    """Adds the date around the name of a month; returns its tokens."""
    before = place - 1
    while _at(spelt, before) in _BETWEEN and place - before < 3:
        before -= 1
    day = _day(_at(spelt, before))
    used = {before} if day else set()
    after = place + 1
    after += _at(spelt, after) == "."
    if not day and (day := _day(_at(spelt, after))):
        used.add(after)
        after += 1
    while _at(spelt, after) in _BETWEEN and after - place < 5:
        after += 1
    year = _at(spelt, after)
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


def unit_asked(query: Reading) -> str:
    """The unit that a question asks for: how many metres, (in) km, what percentage, how old."""
    spelt = query.spelt
    low = [word.lower() for word in spelt]
    for place, word in enumerate(low):
        before = low[max(place - 2, 0) : place]
        leads = before[-1:] == ["in"] or before in (["how", "many"], ["how", "much"])
        if leads or word in ("percent", "percentage"):
            while low[place : place + 1] and low[place].removesuffix("s") in (*SCALES, "of", "u"):
                place += 1
            if unit := _plural(spelt, place):
                return unit
        if before[-1:] == ["how"] and word == "old":
            return "year"
    end = len(spelt) - 1 - (spelt[-1:] == ("?",))
    ends = end > 0 and low[end - 1] not in ("per", "a", "an", "each") and query.words[end - 1][0] != "#"
    return _plural(spelt, end) if ends else ""


def _plural(spelt: Sequence[str], place: int) -> str:
    """The unit at a word that means nothing else: in metres, but not in second place."""
    unit = _unit_at(spelt, place)
    word = spelt[place].lower() if place < len(spelt) else ""
    name = word == unit.rpartition(" ")[2] and word.isalpha() and word not in _SYMBOLS
    return "" if unit in _SAID or (name and word not in _NEVER_ELSE) else unit


_NEVER_ELSE = frozenset(
    "feet inches percent percentage celsius fahrenheit usd mph kph kmh lb lbs oz hrs yrs nmi".split()  # noqa: SIM905
)
