"""Whether a sentence gives an accepted answer: rules for free-form answers, where equality says too little.

A model that answers in sentences says "The first Test victory came against England, in Madras, in 1952" and
never "1952" alone.  Here an answer counts when what it adds to the question is said: at least half of its
words, every number of it (`one thousand` is `1,000`), its date at least to the
year, the surname of a person under no other first name.  It does not count when another word stands in the
place of a missing one (`North Korea` for `South Korea`), when it is denied, or when it is one of several
candidates joined by "or".

These rules guess.  They agree with people far more often than equality does (`benchmarks/ablate.py` has each
rule's share), and they can be exploited: a policy that is rewarded by them learns to name many things.  They
are for measuring where there is no judge; rewards grade with `factrl.text.answers.equals`.  The share of an
answer's words is recall as in SQuAD's F1 (arXiv 1606.05250, section 5), which agrees with people better than
F1 on long answers (arXiv 2307.16877, section 4); leaving out the question's words, and what is said of
numbers, dates and names, is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from factrl.text import clean
from factrl.text.answers import CLOSED, MAX_ANSWER, equals, is_spaceless
from factrl.text.words import (
    IDLE,
    STOP_STEMS,
    UMLAUTS,
    Amount,
    Day,
    Reading,
    fold,
    read,
    stem,
    stems,
)

MAX_MENTIONS = 4_000
"""Characters of the longest text that the rules read; a longer one gives no answer."""
MIN_SHARE = 0.5
"""The share of an answer's informative words that a reply must have."""

_TITLES = stems("sir dame lord lady mr mrs ms dr prof justice st saint jr sr obe esq president king queen")
_FIRMS = stems("inc ltd limited company corporation corp co llc plc group resources studios pictures")
_WHO = stems("who whose whom actor actress singer author")
_DENIALS = stems(
    "not never nor neither cannot unlike except isn't wasn't aren't weren't don't doesn't didn't can't"
    " couldn't won't wouldn't hasn't haven't hadn't shouldn't nicht nie niemals jamais pas não nunca değil"
    " नहीं не není"
)
_NEGATED = _DENIALS | stems("no non without kein keine ne нет")
_RESUMES = frozenset(
    "but although however rather | only just nur sondern seulement mais sino только а".split()  # noqa: SIM905
)
_SMALL = 3  # an answer of up to this many words needs all of them
_LONG = 9  # letters of a name that is recognised without its spaces
_GLUE_FREE = 12  # a text of up to this many characters has no footnotes
# Numbers of footnotes directly after a word or a year, as New Bing writes them: "Ramones1", "in 19521."
_GLUED = re.compile(
    r"(?<=[^\W\d_]{3})\d{1,2}(?=[.,;]|\s[A-Z]|\s?$)|(?<=\b1[5-9]\d\d|\b20[0-2]\d)\d{1,2}(?=\s?[.,;]|\s?$)"
)
_DENYING = ("不是", "并非", "並非", "而非", "绝非")
_DENIED_BEHIND = re.compile(r"[はが]?(?:では|じゃ)(?:な|あり)")
_ASIDE = re.compile(r"(?<!\w)\([^()]{0,200}\)|, (?:who|which|when|where|whose) .{0,400}$")
_OR = re.compile(r",? or ")
_DAY_ASKED = stems("day month date")


@dataclass(frozen=True, slots=True)
class _Reply:
    """The text that is graded, in the forms that the rules compare."""

    reading: Reading
    places: dict[str, list[int]]  # of each word; what is denied or one of several candidates is left out
    compact: str  # its letters and digits without spaces


def mentions(question: str, text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that a free-form text gives; None when it gives none.

    >>> mentions("When did it open?", "It opened in Oslo in 1952.", ["1952"])
    '1952'
    >>> mentions("When did it open?", "It did not open in 1952 but in 1953.", ["1952"])

    Args:
        question: the words that an answer repeats from it do not count.
        text: what the model wrote, without its reasoning; over `MAX_MENTIONS` characters it gives nothing.
    """
    answers = list(answers)
    if len(text) > MAX_MENTIONS:
        return None
    if (exact := equals(text, answers, question)) is not None:
        return exact
    query = read(question)
    raw = clean(text)
    raw = _GLUED.sub("", raw) if len(raw) > _GLUE_FREE else raw
    accepted = [(answer, read(one)) for answer in answers for one in _spellings(answer)]
    known = frozenset(query.words).union(*(wanted.words for _, wanted in accepted))
    reply = _reply_of(raw, known)
    for answer, wanted in accepted:
        if _gives_answer(reply, wanted, query) or _stands(raw, answer):
            return answer
    return None


def _reply_of(raw: str, known: frozenset[str]) -> _Reply:
    reading = read(raw)
    left_out = _alternatives(reading, known) if "or" not in known else set()
    if known.isdisjoint(_DENIALS):  # "Which Games did it not attend?" asks for what is denied
        left_out |= _denied(reading)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(reading.words):
        if place not in left_out:
            places.setdefault(word, []).append(place)
    kept = (_compact(name) for place, name in enumerate(reading.spelt) if place not in left_out)
    return _Reply(reading, places, "".join(kept))


def _alternatives(reading: Reading, known: frozenset[str]) -> set[int]:
    """The places of names and numbers around an "or" of which some are accepted or asked for and some not."""
    chosen: set[int] = set()
    for place, word in enumerate(reading.words):
        if word == "or":
            sides = [_named_from(reading, place, step) for step in (-1, 1)]
            if len({reading.words[side] in known for one in sides for side in one}) == 2:
                chosen.update(*sides)
    return chosen


def _named_from(reading: Reading, place: int, step: int) -> list[int]:
    """The places of the capitalised words and numbers next to a place; without one the word itself."""
    places = []
    at = place + step
    while 0 <= at < len(reading.words) and len(places) < 9:
        if not (reading.spelt[at][:1].isupper() or reading.words[at][0] == "#"):
            break
        places.append(at)
        at += step
    return places


def _denied(reading: Reading) -> set[int]:
    """The places of up to five words after a denial in its clause."""
    denied: set[int] = set()
    left = 0
    for place, word in enumerate(reading.words):
        if word in _RESUMES:
            left = 0
        elif left:
            denied.add(place)
            left -= 1
        if word in _DENIALS:
            left = 5
    return denied


def _compact(text: str) -> str:
    return "".join(filter(str.isalnum, fold(text)))


def _spellings(answer: str) -> list[str]:
    """An answer without asides, and each side of its `or`."""
    answer = clean(answer)[:MAX_ANSWER].replace(" & ", " and ")
    bare = " ".join(_ASIDE.sub("", answer).split()) or answer
    umlauts = [bare.translate(UMLAUTS)] if bare[:1].isupper() else []  # Mueller
    return list(dict.fromkeys([bare, *umlauts, *_OR.split(bare)]))


def _gives_answer(reply: _Reply, wanted: Reading, query: Reading) -> bool:
    query_words = frozenset(query.words)
    clauses = " ".join(wanted.words).split("|")
    polarity = CLOSED.intersection(clause.strip() for clause in clauses)
    if polarity:
        return _agrees(reply.reading, polarity, query_words)
    informative = [word for word in wanted.words if word not in IDLE]
    if not informative:
        return False
    if not _NEGATED.isdisjoint(set(wanted.words) - query_words) and _NEGATED.isdisjoint(reply.reading.words):
        return False  # "guilty" for "not guilty"
    if wanted.is_date:
        return _dated(wanted, reply.reading, query)
    informative = [word for word in informative if word not in query_words] or informative
    informative = [w for w in informative if len(w) > 1 and w not in _TITLES | _FIRMS] or informative
    if not all(_counted(amount, reply) for amount in wanted.amounts if amount.word in informative):
        return False
    compact = _compact(" ".join(wanted.spelt))
    if len(compact) >= _LONG and not compact.isdigit() and compact in reply.compact:
        return True  # `seashells` for `sea shells`
    missing = {word for word in informative if word[0] != "#" and word not in reply.places}
    names = _names(wanted, informative) if not _WHO.isdisjoint(query_words) else []
    if names and missing:
        return _named(reply, names)
    share = sum(word not in missing for word in informative) / len(informative)
    return share >= MIN_SHARE and not (missing and _replaced(reply, wanted, missing, query_words))


def _stands(raw: str, answer: str) -> bool:
    """For scripts without spaces: whether an answer stands in a text and is not denied beside it."""
    wanted, text = "".join(answer.split()), "".join(raw.split())
    if len(wanted) < 2 or not any(map(is_spaceless, wanted)):
        return False
    return any(
        not text.endswith(_DENYING, 0, match.start()) and not _DENIED_BEHIND.match(text, match.end())
        for match in re.finditer(re.escape(wanted), text)
    )


def _agrees(reply: Reading, polarity: frozenset[str], query_words: frozenset[str]) -> bool:
    """Whether the first clause says yes, or no; one that only repeats the question says yes."""
    first = reply.words[: reply.words.index("|")] if "|" in reply.words else reply.words
    no = not _NEGATED.union(["fals"]).isdisjoint(first)
    yes = not no and (not {"yes", "tru"}.isdisjoint(first) or query_words.issuperset({*first} - STOP_STEMS))
    return (no or yes) and yes == (not {"yes", "tru"}.isdisjoint(polarity))


def _counted(amount: Amount, reply: _Reply) -> bool:
    """Whether a number of the answer is said, in its own unit or without one."""
    return amount.word in reply.places and any(
        other.word == amount.word and (not amount.unit or not other.unit or other.unit == amount.unit)
        for other in reply.reading.amounts
    )


def _replaced(reply: _Reply, wanted: Reading, missing: set[str], query_words: frozenset[str]) -> bool:
    """Whether another word replaces a missing word of the answer: `North` for `South` Korea."""
    own = IDLE | _TITLES | _FIRMS | {*wanted.words}
    if missing.isdisjoint(query_words):  # else the question offers what the answer chooses from
        own |= query_words
    words, spelt = reply.reading.words, reply.reading.spelt
    foreign = {
        place: spelt[place][:1].isupper()
        for place, word in enumerate(words)
        if word not in own and word[0] != "#" and not any(_abbreviates(spelt[place], of) for of in missing)
    }
    brief = len({*words} - IDLE - query_words) <= len({*wanted.words} - IDLE)
    names = {
        place: wanted.spelt[place][:1].isupper()
        for place, word in enumerate(wanted.words)
        if word in missing and (not place or wanted.words[place - 1][0] != "#")  # units have many spellings
    }
    in_small = len(wanted.words) <= _SMALL and bool(names) and not any(names.values())
    if brief and foreign and (in_small or (any(names.values()) and any(foreign.values()))):
        return True
    cased = any(name[:1].isupper() for name in spelt)
    for place, name in names.items():
        for step in (-1, 1):
            side, hops = _beside(wanted.words, place, step)
            kept = wanted.words[side] if 0 <= side < len(wanted.words) else "#"
            places = [] if kept[0] == "#" else reply.places.get(kept, [])
            slots = [_beside(words, at, -step, hops)[0] for at in places]
            any_case = (brief and not name) or not cased
            if slots and all(slot in foreign and (foreign[slot] or any_case) for slot in slots):
                return True
    return False


def _beside(words: tuple[str, ...], place: int, step: int, most: int = 3) -> tuple[int, int]:
    """The next place to the left or right over at most so many words that tell nothing, and their number."""
    hops = 0
    place += step
    while hops < most and 0 <= place < len(words) and (words[place] in STOP_STEMS or len(words[place]) == 1):
        place += step
        hops += 1
    return place, hops


def _abbreviates(name: str, word: str) -> bool:
    """Whether a word as written may stand for another: `J`, `US` or `Dave` for `david`."""
    folded = fold(name)
    same = 1 if len(name) == 1 or name.isupper() else 3
    return folded[:same] == word[:same]


def _is_name(word: str) -> bool:
    return word[:1].isupper() and word.isalpha()


def _names(wanted: Reading, informative: list[str]) -> list[str]:
    """First, middle and last names; empty when the answer is not plainly a person's name."""
    pairs = zip(wanted.spelt, wanted.words, strict=True)
    names = [name for name, word in pairs if (len(name) == 1 and name.isalpha()) or word in informative]
    plain = all(map(_is_name, names)) and 2 <= len(names) <= 5 and len(names[-1]) > 1
    return names if plain and (_FIRMS | {"the"}).isdisjoint(wanted.words) else []


def _named(reply: _Reply, names: list[str]) -> bool:
    """Whether the surname is said, and not with the first name of somebody else."""
    starts = {fold(name)[:size] for name in names[:-1] for size in (1, 2)}  # Dave, David and D.
    for place in reply.places.get(stem(fold(names[-1])), ()):
        before = reply.reading.spelt[place - 1] if place else ""
        word = stem(fold(before))
        if not _is_name(before) or word in STOP_STEMS | _TITLES or word[:2] in starts:
            return True
    return False


def _dated(wanted: Reading, reply: Reading, query: Reading) -> bool:
    """Whether a reply has every date of the answer, as precisely; the question may give a part of a date."""

    def same(day: Day, other: Day) -> bool:
        pairs = list(zip(day, other, strict=True))
        known = [False, *(any(a == date[at] for date in query.dates) for at, a in enumerate(day[1:], 1))]
        known[0] = day[0] in query.years or any(day[0] == date[0] for date in query.dates)
        return all(a == b or not a or (not b and given) for (a, b), given in zip(pairs, known, strict=True))

    return all(
        any(same(day, other) for other in reply.dates)
        or (day[0] in reply.years and (not day[1] or _DAY_ASKED.isdisjoint(query.words)))
        for day in wanted.dates
    )
