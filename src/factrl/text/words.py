"""The words, numbers and dates of a text in one spelling each, so that two wordings can be compared.

A number is one word whatever its spelling (`1,000`, `one thousand` and `1k` are `#1000`), units and dates are
read beside the words, and endings that grammar adds are cut.  Everything is linear in the text: one pass over
its tokens, and no pattern repeats anything without bound inside another repetition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from factrl.text import clean
from factrl.text.answers import MAX_ANSWER, MONTH_NUMBERS, SCALES, fold, parse_number

Day = tuple[int, int, int]
"""(year, month, day); 0 is unsaid."""


_STOP = """
    a an the of in on at to for by from with and or as is are was were be been being it its his her their he
    she they we you i this that these those which who whom whose what when where why how do does did s t has
    have had not no into than then also about around approximately circa roughly nearly almost over typically
    usually during some there
    """.split()  # noqa: SIM905  (a hundred quoted words would be no clearer)
_UNITS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen
    """.split()  # noqa: SIM905
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()  # noqa: SIM905
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_SPELLED = {
    **{word: value for value, word in enumerate(_UNITS)},
    **{word: value for value, word in enumerate(_ORDINALS, 1)},
    **{f"{word}th": value for value, word in enumerate(_UNITS) if value > 12},
    **{word: 10 * value for value, word in enumerate(_TENS, 2)},
    **{f"{word[:-1]}ieth": 10 * value for value, word in enumerate(_TENS, 2)},
    **{"once": 1, "twice": 2},
}
_ROMAN = {"II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "XI": 11, "XII": 12}
_SHORT_SCALES = {"k": 3, "bn": 9, "mn": 6, "万": 4, "萬": 4, "亿": 8, "億": 8}

# (what is measured, size in the first unit of its kind); sizes of None are only ever equal to themselves.
_MEASURES: dict[str, tuple[str, Decimal | None]] = {
    name: (kind, Decimal(size) if size else None)
    for kind, units in {
        "length": "m metre meter=1|km kilometre kilometer=1000|cm centimetre centimeter=0.01|"
        "mm millimetre millimeter=0.001|mi mile=1609.344|ft foot feet=0.3048|yd yard=0.9144|inch=0.0254",
        "mass": "kg kilogram kilo=1|g gram=0.001|lb lbs pound=0.45359237|oz ounce=0.028349523|tonne=1000",
        "time": "second sec=1|minute min=60|hour hr hrs=3600|day=86400|week=604800",
        "area": "acre=1|hectare ha=2.4710538",
        "speed": "mph=1|kph kmh=0.62137119",
        "volume": "litre liter=1|millilitre milliliter ml=0.001|gallon=",
        "percent": "percent %=",
        "celsius": "celsius °c=",
        "fahrenheit": "fahrenheit °f=",
        "dollar": "dollar $=",
        "sterling": "£=",
        "euro": "euro €=",
        "yen": "yen ¥=",
    }.items()
    for unit in units.split("|")
    for names, _, size in (unit.partition("="),)
    for name in names.split()
}

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,32})?|\d{1,64}(?:\.\d{1,32})?)"
    r"(?P<suffix>(?:st|nd|rd|th|k|bn|mn|%|万|萬|亿|億)(?![^\W\d_]))?"
    r"|(?P<word>[^\W\d_]{1,64}(?:'[^\W\d_]{1,16})?)|(?P<sign>°[CF]\b|[%$£€¥°])|(?P<stop>[.!?;:,\n。，、；])"
)
_ISO = re.compile(r"\b(\d{4})[-/.年](\d{1,2})(?:[-/.月](\d{1,2}))?(?![\d/.-]\d)")
_SLASHED = re.compile(r"\b(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b")
_BETWEEN = frozenset({"of", "the", "in", ",", "."})
_WEEKDAYS = frozenset(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])


@dataclass(frozen=True, slots=True)
class Amount:
    """A number as it was given: `value` in `unit` ("" without one), precise to the place `step`."""

    value: Decimal
    unit: str
    step: Decimal

    @property
    def word(self) -> str:
        """The number as one word of a `Reading`."""
        return f"#{self.value.normalize():f}" if abs(self.value.adjusted()) < 40 else f"#{self.value}"

    def equals(self, other: Amount) -> bool:
        """Whether two amounts are the same, converted within rounding when their units differ."""
        kind, size = _MEASURES.get(self.unit, ("", None))
        other_kind, other_size = _MEASURES.get(other.unit, ("", None))
        if not kind or not other_kind or self.unit == other.unit or (kind == other_kind and not size):
            return self.value == other.value
        if kind != other_kind or size is None or other_size is None:
            return False
        mine, others = self.value * size, other.value * other_size
        if size == other_size:
            return mine == others
        rounding = max(self.step * size, other.step * other_size) / 2
        return abs(mine - others) <= min(rounding, abs(mine) / 50)

    def same_in(self, other: Amount, query_unit: str = "") -> bool:
        """Whether two amounts are one, exactly, where a number without a unit has the unit `query_unit`."""
        kind, size = _MEASURES.get(self.unit or query_unit, ("", None))
        other_kind, other_size = _MEASURES.get(other.unit or query_unit, ("", None))
        if not kind or kind != other_kind:
            return kind == other_kind and self.value == other.value
        return self.value * (size or 1) == other.value * (other_size or 1)


UNITS = {
    f"{name}{ending}": name for name in _MEASURES for ending in ("s", "") if name.isalpha() or not ending
}
"""Names of units as they are written, and each in its singular."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as words."""

    words: tuple[str, ...]  # stems in order; `#12` is a number, `|` an end of a clause
    spelt: tuple[str, ...]  # the same places as written, in lower or upper case
    amounts: tuple[Amount, ...]  # every number with its unit
    dates: frozenset[Day]  # every day, month of a year, or day of a month
    years: frozenset[int]  # four-digit numbers that stand in no longer date


def stem(word: str) -> str:
    """An English word without the endings that grammar adds; short words stay as they are."""
    word = word.removesuffix("'s").replace("'", "")
    for ending in ("ing", "ies", "ed", "es", "s", "ly", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


STOP_WORDS = frozenset(map(stem, _STOP))
"""Words that tell nothing, as `read` spells them."""


def read(text: str) -> Reading:
    """The words, amounts and dates of a text; `MAX_PAYLOAD` characters are read."""
    text = clean(text)
    tokens = list(_TOKEN.finditer(text))
    spelt = [match[0] for match in tokens]
    words: list[str] = []
    kept: list[str] = []
    amounts: list[Amount] = []
    place = 0
    while place < len(tokens):
        parsed = _amount(tokens, spelt, place)
        if parsed is None:
            match = tokens[place]
            if match["word"] or match["stop"]:
                words.append(stem(fold(match[0])) if match["word"] else "|")
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
    return Reading(tuple(words), tuple(kept), tuple(amounts), frozenset(dates), frozenset(years))


def beside(words: tuple[str, ...], place: int, step: int, most: int = 3) -> tuple[int, int]:
    """The next place to the left or right over at most so many words that tell nothing, and their number."""
    hops = 0
    place += step
    while hops < most and 0 <= place < len(words) and (words[place] in STOP_WORDS or len(words[place]) == 1):
        place += step
        hops += 1
    return place, hops


def initials(reading: Reading, place: int) -> str:
    """The initials between a first name and the surname at a place; empty without a first name."""
    name_so_far = ""
    for name in reversed(reading.spelt[max(place - 10, 0) : place]):
        if len(name) == 1 and name.isupper():
            name_so_far = name + name_so_far
        elif name != ".":
            return name_so_far if name[:1].isupper() else ""
    return ""


# -- Numbers ------------------------------------------------------------------------------------------


def _amount(tokens: list[re.Match[str]], spelt: list[str], place: int) -> tuple[Amount, int] | None:
    """The number that begins at a token, and the token after it."""
    match = tokens[place]
    if match["number"]:
        value = parse_number(match["number"])
        if value is None:
            return None
        start = match.start()
        before = match.string[max(start - 6, 0) : start]
        if len(match[0]) == 2 and re.fullmatch(r"\D?\d{4}-", before):
            value += int(before[-5:-3]) * 100  # the second year of `1939-45`
        if start and match.string[start - 1] == "-" and not match.string[max(start - 2, 0)].isalnum():
            value = -value
        step = Decimal(1).scaleb(int(value.normalize().as_tuple().exponent)) if value else Decimal(1)
        power = _SHORT_SCALES.get((match["suffix"] or "").lower(), 0)
        end = place + 1
    elif match["word"]:
        if match[0] in _ROMAN:
            return Amount(Decimal(_ROMAN[match[0]]), "", Decimal(1)), place + 1
        value, end = _spelled(spelt, place)
        if end == place:
            return None
        step, power = Decimal(1), 0
    else:
        return None
    while end < len(spelt) and (spelt[end].lower() in SCALES or spelt[end] in _SHORT_SCALES):
        word = spelt[end].lower()
        power += SCALES.get(word) or _SHORT_SCALES.get(word, 0)
        end += 1
        if power > 30:
            break
    return Amount(value.scaleb(power), "", step.scaleb(power)), end


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


def _with_unit(amount: Amount, spelt: list[str], start: int, end: int) -> Amount:
    degree = _at(spelt, end) in ("°", "degree", "degrees")
    for word in (_at(spelt, end), _at(spelt, end + 1) if degree else ""):
        for name in (word, word.removesuffix("s")):
            if name in _MEASURES and (len(name) > 1 or name in "%$£€¥mg"):
                return Amount(amount.value, name, amount.step)
    before = _at(spelt, start - 1)
    if before in _MEASURES and before in "$£€¥":
        return Amount(amount.value, before, amount.step)
    if spelt[end - 1].endswith("%"):
        return Amount(amount.value, "%", amount.step)
    return amount


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
        month = MONTH_NUMBERS.get(word.lower(), 0)
        if month and word[:1].isupper():
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


def is_date(reading: Reading) -> bool:
    """Whether a text is nothing but a date or dates."""
    rest = {word for word in reading.words if word[0] not in "#|"}
    named = {stem(name) for name in MONTH_NUMBERS} | {stem(name) for name in _WEEKDAYS}
    return bool(reading.dates) and rest <= named | STOP_WORDS


# -- Amounts

_SIGNED = re.compile(r"[!¬≠✗✘❌~<>=≈±]")  # not, about, or a limit


def same_amount(question: str, text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that a text is, when both are one amount and nothing more.

    "8849 metres" is "8,849 m", and "8849" too where the question asks for metres; "12 goals" is "12" where it
    asks for goals.  A number without a unit that the question does not name either is only equal to itself.
    """
    if _SIGNED.search(text):
        return None
    query, said = read(question), read(text[:MAX_ANSWER])
    query_unit = unit_asked(query)
    if not _only_amount(said, query):
        return None
    for answer in answers:
        wanted = read(answer[:MAX_ANSWER])
        if _only_amount(wanted, query) and said.amounts[0].same_in(wanted.amounts[0], query_unit):
            return answer
    return None


def unit_asked(query: Reading) -> str:
    """The last unit that a question names."""
    named = (word.lower() for word in reversed(query.spelt) if len(word) > 1)
    return next((UNITS[word] for word in named if word in UNITS), "")


def _only_amount(reading: Reading, query: Reading) -> bool:
    """Whether a text is one number with its unit, or with what the question asks for."""
    rest = {
        word
        for word, spelt in zip(reading.words, reading.spelt, strict=True)
        if word[0] != "#" and word not in query.words and spelt.lower() not in UNITS and word != "|"
    }
    return len(reading.amounts) == 1 and not reading.dates and not rest
