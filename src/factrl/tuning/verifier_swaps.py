"""Hard negatives: a true claim with another number, date, name, a negation, or its two roles exchanged.

Each swap is drawn from a random stream of the caller's, and its new value does not occur in the evidence, so
the same seed makes the same rows.  A number, a date, a negation or an exchange of roles contradicts the
evidence; another name often only lacks support, so its label is `unsupported`, which stands for either.

The idea of swapping entities, numbers and negations is FactCC's (Kryscinski et al. 2020, arXiv:1910.12840,
section 3.1).  Editing the evidence instead of the claim, so that neither shows by itself what is false, is
VitaminC's (Schuster et al. 2021, arXiv:2103.08541).
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Kind = Literal["number", "date", "entity", "negation", "role"]
KINDS: tuple[Kind, ...] = ("number", "date", "entity", "negation", "role")
Label = Literal["supported", "refuted", "unknown", "unsupported"]


def _list(words: str) -> list[str]:
    return words.split()


_MONTHS = _list("January February March April May June July August September October November December")
_DAYS = _list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_COUNTS = _list("two three four five six seven eight nine ten eleven twelve")
_NUMBER = re.compile(
    r"(?<![\w.,-])\d{1,3}(?:,\d{3}){1,9}(?![\w-])|(?<![\w.,-])\d{1,30}(?:\.\d{1,30})?(?![\w-]|[.,]\d)"
)
_COUNT = re.compile(rf"\b(?:{'|'.join(_COUNTS)})\b")
_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b")
_BESIDE_MONTH = re.compile(rf"(?:{'|'.join(_MONTHS)}) $|^ (?:{'|'.join(_MONTHS)})\b")
_NAME = re.compile(r"\b[A-Z][\w'’-]+(?: (?:(?:of|the|de|van|von|der|la) )*[A-Z][\w'’-]+)*")
_NO_NAMES = {*_MONTHS, *_DAYS, *_list("The A An He She It They His Her Its In On At This That These And")}
_VERBS = _list("is was are were has had can could will would did does")
_VERB = re.compile(rf"\b(?:{'|'.join(_VERBS)})\b(?! not\b)(?!n't)")
_NEGATED = re.compile(rf"\b({'|'.join(_VERBS)}) not\b")
_ONE_WAY = re.compile(
    r"\b(?:defeated|beat|succeeded|replaced|founded|led|wrote|directed|produced|composed|painted|discovered|"
    r"invented|conquered|invaded|killed|taught|influenced|commissioned|appointed|acquired|bought|owns|"
    r"preceded|followed|by|in|(?:part|capital|son|daughter|mother|father|student|north|south|east|west) of|"
    r"named after|(?:larger|smaller|older|younger|bigger|taller|longer|shorter) than)\b"
)
_TRIED = 50  # values of a claim that are looked for in the evidence; a sentence has a few
_BEFORE = 100  # characters before a name in which the word before it is looked for


@dataclass(frozen=True, slots=True)
class Swap:
    """A claim that the evidence of the original does not support.

    Attributes:
        claim: what it says now.
        label: `refuted`, or `unsupported` where it may also be unknown.
        old, new: what was replaced by what; empty for a negation and for roles.
    """

    kind: Kind
    claim: str
    label: Label
    old: str = ""
    new: str = ""


class Names:
    """Names by the word before them and their length, so that a city is replaced by a place."""

    def __init__(self, texts: Iterable[str]) -> None:
        found: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        for text in texts:
            for name in names_in(text):
                for key in (_place(text, name), ("", 0)):
                    found[key][name[0]] = None
        self._by: Mapping[tuple[str, int], Sequence[str]] = {key: list(some) for key, some in found.items()}

    def like(self, text: str, name: re.Match[str]) -> Sequence[str]:
        """Names that stand behind the same word and have as many words, or else all."""
        alike = self._by.get(_place(text, name), ())
        return alike if len(alike) >= 20 else self._by.get(("", 0), ())


def _place(text: str, name: re.Match[str]) -> tuple[str, int]:
    """The word before a name, and how many words the name has."""
    before = text[max(name.start() - _BEFORE, 0) : name.start()].split()[-1:]
    return before[0].lower() if before else "", len(name[0].split())


def names_in(text: str) -> list[re.Match[str]]:
    """The capitalised names of a text, but months, days and what only opens it."""
    return [name for name in _NAME.finditer(text) if name[0].split()[0] not in _NO_NAMES]


def swaps(claim: str, evidence: str, names: Names, stream: random.Random) -> dict[Kind, Swap]:
    """One swap of every kind that the claim allows, in the order of `KINDS`.

    Args:
        claim: what the evidence supports.
        evidence: no new value occurs in it.
        names: where new names are drawn from; half of the time it is another name of the evidence.
    """
    makers = {"number": _number, "date": _date, "negation": _negation, "role": _role}
    found: dict[Kind, Swap] = {}
    for kind in KINDS:
        made = (
            _entity(claim, evidence, names, stream)
            if kind == "entity"
            else makers[kind](claim, evidence, stream)
        )
        if made is not None and made.claim != claim:
            found[kind] = made
    return found


def edited(evidence: str, swap: Swap) -> str | None:
    """The evidence as it would be if the swapped claim were true; None where that is not known."""
    if not swap.old:
        return None
    changed = re.sub(rf"(?<!\w){re.escape(swap.old)}(?!\w)", lambda _: swap.new, evidence)
    return None if changed == evidence else changed


def negated(sentence: str) -> str | None:
    """The sentence with its first negation taken out, or else with one put in; None without a verb for it."""
    if _NEGATED.search(sentence):
        return _NEGATED.sub(r"\1", sentence, count=1)
    verb = _VERB.search(sentence, 1)
    return f"{sentence[: verb.end()]} not{sentence[verb.end() :]}" if verb else None


def _number(claim: str, evidence: str, stream: random.Random) -> Swap | None:
    places = [one for one in _NUMBER.finditer(claim) if not _dates(claim, one)]
    places += list(_COUNT.finditer(claim))
    held = [one for one in places[:_TRIED] if _within(one[0], evidence)]
    return _replaced("number", claim, evidence, held, stream)


def _date(claim: str, evidence: str, stream: random.Random) -> Swap | None:
    places = [one for one in _NUMBER.finditer(claim) if _dates(claim, one)]
    places += list(_MONTH.finditer(claim))
    held = [one for one in places[:_TRIED] if _within(one[0], evidence)]
    return _replaced("date", claim, evidence, held, stream)


def _replaced(
    kind: Kind, claim: str, evidence: str, places: Sequence[re.Match[str]], stream: random.Random
) -> Swap | None:
    if not places:
        return None
    place = stream.choice(places)
    for _ in range(10):
        new = _other(place[0], kind, stream)
        if new != place[0] and not _within(new, evidence) and not _within(new, claim):
            return Swap(kind, _put(claim, place, new), "refuted", place[0], new)
    return None


def _other(value: str, kind: Kind, stream: random.Random) -> str:
    """Another value of the same shape."""
    for words in (_COUNTS, _MONTHS):
        if value in words:
            return stream.choice(words)
    plain = value.replace(",", "")
    if "." in plain:
        whole, _, rest = plain.partition(".")
        return f"{max(int(whole) + stream.choice((-3, -2, -1, 1, 2, 3)), 0)}.{rest}"
    number = int(plain)
    if kind == "date":
        far = 30 if number > 31 else 6
        moved = number + stream.choice((-1, 1)) * stream.randint(1, far)
        return str(moved if number > 31 else 1 + moved % 28)
    if number <= 20:
        return str(stream.randint(1, 2 * number + 3))
    moved = round(number * stream.choice((0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.7, 2.5)))
    return f"{moved:,}" if "," in value else str(moved)


def _entity(claim: str, evidence: str, names: Names, stream: random.Random) -> Swap | None:
    tried = [name for name in names_in(claim) if name.start()][:_TRIED]
    places = [name for name in tried if _within(name[0], evidence)]
    if not places:
        return None
    place = stream.choice(places)
    own = {*claim.split()}
    near = [name[0] for name in names_in(evidence) if own.isdisjoint(name[0].split())]
    if near and stream.random() < 0.5:
        # Both names already stand in the evidence: to edit it would say something else of the other one too.
        return Swap("entity", _put(claim, place, stream.choice(near)), "unsupported")
    alike = names.like(claim, place)
    for _ in range(10 if alike else 0):
        new = stream.choice(alike)
        if not _within(new, evidence) and new not in claim:
            return Swap("entity", _put(claim, place, new), "unsupported", place[0], new)
    return None


def _put(claim: str, place: re.Match[str], new: str) -> str:
    return claim[: place.start()] + new + claim[place.end() :]


def _negation(claim: str, evidence: str, stream: random.Random) -> Swap | None:
    told = negated(claim)
    return Swap("negation", told, "refuted") if told else None


def _role(claim: str, evidence: str, stream: random.Random) -> Swap | None:
    names = names_in(claim)
    for a, b in pairwise(names):
        between = claim[a.end() : b.start()]
        if _ONE_WAY.search(between) and not re.search(r"[,;:]| and ", between) and a[0] != b[0]:
            told = claim[: a.start()] + b[0] + between + a[0] + claim[b.end() :]
            return Swap("role", told, "refuted")
    return None


def _dates(claim: str, number: re.Match[str]) -> bool:
    """Whether a number is a year or the day of a month."""
    if re.fullmatch(r"1\d{3}|20[0-4]\d", number[0]):
        return True
    around = (claim[max(number.start() - 12, 0) : number.start()], claim[number.end() : number.end() + 12])
    return any(_BESIDE_MONTH.search(text) for text in around)


def _within(value: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None
