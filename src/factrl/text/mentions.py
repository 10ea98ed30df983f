"""Whether a sentence gives an accepted answer: rules for free-form answers, where equality says too little.

A model that answers in sentences says "The first Test victory came against England, in Madras, in 1952" and
never "1952" alone.  Here an answer counts when what it adds to the question is said: at least half of its
words and a word of each item of a list, every number of it (`one thousand` is `1,000`, `29,029 ft` is
`8,848 m`), its date at least to the year, the surname of a person under no other first name.  It does not
count when another word stands in the place of a missing one (`North Korea` for `South Korea`), when it is
denied, when it is offered as one of several candidates, or when the text is too long to be an answer.

These rules agree with people far more often than equality does, but they can be exploited: a policy that is
rewarded by them learns to name many things.  They are for measuring; rewards grade with
`factrl.text.answers.matches`. The share of an answer's words is recall as in SQuAD's F1 (arXiv 1606.05250,
section 5), which agrees with people better than F1 on long answers (arXiv 2307.16877, section 4); leaving
out the question's words, and what is said of numbers, dates and names, is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from factrl.text import boxed, clean
from factrl.text.answers import LOOSENINGS, MAX_ANSWER, Loosen, matches, telling_marks
from factrl.text.retractions import (
    BRIEF,
    FEW,
    alternatives,
    lists_candidates,
    several_numbers,
    without_retracted,
)
from factrl.text.words import (
    IDLE,
    STOP_STEMS,
    UMLAUTS,
    Amount,
    Day,
    Reading,
    below_zero,
    beside,
    fold,
    initials,
    is_date,
    read,
    stem,
    stems,
    unit_asked,
)

MAX_MENTIONS = 4_000
"""Characters of the longest text that the rules read; a longer one gives no answer."""
MIN_SHARE = 0.5
"""The share of an answer's informative words that a reply must have."""


_TITLES = stems("sir dame lord lady mr mrs ms dr prof justice st saint jr sr obe esq president king queen")
_SURNAMES = stems("king queen president lord")
_FIRMS = stems("inc ltd limited company corporation corp co llc plc group resources studios pictures")
_WHO = stems("who whose whom actor actress singer author")
_DENIALS = stems(
    "not never nor neither cannot unlike except isn't wasn't aren't weren't don't doesn't didn't can't"
    " couldn't won't wouldn't hasn't haven't hadn't shouldn't"
    " nicht nie niemals keinesfalls keineswegs jamais pas não nunca değil नहीं не není"
)
# These deny only the words next to them; the others deny a whole clause.
_BESIDE_ONLY = stems("nor neither unlike except keinesfalls keineswegs")
_NEGATED = _DENIALS | stems("no non without nicht kein keine pas не нет ne není")
_RESUMES = frozenset(
    "but although however rather | only just nur sondern seulement mais sino только а".split()  # noqa: SIM905
)
_JOINS = _RESUMES | frozenset(["and", "that", "who", "which", "because", "und", "et", "y", "и"])
_YES, _NO = stems("yes true correct"), stems("no false incorrect")
# Words that turn the name of a place into that of another: an answer with such a word needs it, and any other
# answer must not have it.
_QUALIFIERS = stems("new north south east west papua equatorial")
_STATES = stems("democratic people's")  # of the Congo, of Korea: part of a name, but seldom needed
_NEEDED = stems("northern southern eastern western upper lower left right minor major san santa los las")
_FUNCTIONS = frozenset({"log", "ln", "sin", "cos", "tan", "exp", "sqrt", "lim"})
_QUANTIFIERS = stems("all every some most few no none always never both")
# What grammar adds to a word of six letters or more: Colombian, Zoroastrianism, detective.
_ENDINGS = frozenset({"", *stems("n an ian ism ist e er or l al ic ive ion ity m ve on")})
_ROOT = 5
_SMALL = 3  # an answer of up to this many words needs all of them
_OPPOSITE = "a un in im ir il non dis anti counter hyper hypo sub super".split()  # noqa: SIM905
_LONG = 9  # letters of a name that is recognised without its spaces
_FACTORIAL = re.compile(r"(?:\d{1,9}|\w)!|\|[^|]{1,40}\|")  # or a value without its sign
_BOUNDS = frozenset("<>≤≥±")
_BOUNDED = re.compile(r"[<>≤≥±]=? ?[\d.,]{1,20}|(?<![\w.,])\d[\d.,]{0,20}\+(?!\d)")
_CHANCE = re.compile(r"(\d{1,3})(?:\.\d{1,9})? ?%")
_GLUE_FREE = 12  # a text of up to this many characters has no footnotes
_MAX_SIGNED = 80  # characters of an answer whose signs are compared

_CITED = re.compile(r"\[\^?\d{1,3}\^?\]|【[^】]{1,40}】|(?<=[^\W\d_]{3})\^\d{1,2}")
# Numbers of footnotes directly after a word or a year, as New Bing writes them: "Ramones1", "in 19521."
_GLUED = re.compile(
    r"(?<=[^\W\d_]{3})\d{1,2}(?=[.,;]|\s[A-Z]|\s?$)|(?<=\b1[5-9]\d\d|\b20[0-2]\d)\d{1,2}(?=\s?[.,;]|\s?$)"
)
_THAN = re.compile(r"\bthan (?:the )?[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,3}")  # what is less so
_RUN_ON = re.compile(r"\b([oi]n)(?=[A-Z][a-z]{2,8} \d)")
_ASIDE = re.compile(r"(?<!\w)\([^()]{0,200}\)|, (?:who|which|when|where|whose) .{0,400}$")
_OR = re.compile(r",? or ")
_FINAL = re.compile(
    r"(?:\*\*final answer:?\*\*:?|^final answer:|^####) (?!.{0,4000}(?:final answer|####))",
    re.I | re.M | re.S,
)
_NONE = re.compile(r"\bnone\b(?! (?:of|but|other)\b)", re.I)
_ABOUT = re.compile(r"(?:about|around|approximately|approx\.?|almost|nearly|roughly|circa|c\.|~|≈)", re.I)
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")

_NOT_BEFORE = (
    *("不是", "并非", "並非", "不叫", "而非", "ではなく"),
    *("还是", "或", "或者", "または", "もしくは", "それとも"),
)
_RELATED = stems(
    "sister brother mother father wife husband son daughter cousin niece nephew uncle aunt friend rival enemy"
    " student pupil teacher assistant secretary successor predecessor widow widower lover partner"
    " parent child grandson granddaughter suburb outskirts neighbour neighbor neighborhood near outside"
    " north south east west opposite"
    " frau mann sohn tochter vater mutter bruder schwester freund schüler lehrer"
    " femme épouse mari fils fille père mère frère ami élève esposa esposo hijo hija padre madre hermano"
    " hermana amigo moglie marito figlio figlia"
)
_OF = frozenset(["de", "von", "di", "des", "du"])
_RELATED_ZH = re.compile(
    r"[的の](?:学生|學生|弟子|老师|老師|先生|妻|丈夫|夫|父|母|儿子|兒子|息子|女儿|女兒|娘|兄|弟|姐|妹"
    r"|朋友|友人)"
)
_DENIED_ZH = re.compile(
    r"[并並]?(?:没|沒|不是|不会|不會|并非|並非)|[从從]未|未曾|(?:では|じゃ)(?:な|あ)"
    r"|[はが].{0,8}(?:ません|ない|なかった)"
)
# Questions that ask for things in an order, or for who did something to whom.
_ORDERED = re.compile(
    r"\bfrom (?:the )?(?:\w+ )?(?:top|bottom|left|right|hoist|\w+est)\b"
    r"|\b(?:in|what|which) (?:\w+ )?order\b(?! to\b)|\bwhom\b|\bwhich\b.{1,40}\bwhich\b"
    r"|\brespectively\b|\bfirst and (?:the )?second\b|^wh\w+ (?:is|are|was|were) the .{1,60} and the\b",
    re.I,
)
# An expression without words; of another one the answer may be a part.
_COMMAND, _EXPRESSED = re.compile(r"\\[A-Za-z]{1,20}"), re.compile(r"[=+≠^√±\\]|(?<![^\W_])[ixyzπ](?!\w)")
_DAY_ASKED = stems("day month date")
_NAMED_VALUE = re.compile(r"\W{0,3}[A-Za-z](?:\([a-z]\))? ?= ?")


@dataclass(frozen=True, slots=True)
class _Reply:
    """The text that is graded, in the forms that the rules compare."""

    reading: Reading
    places: dict[str, list[int]]  # of each word; what is denied or one of several candidates is left out
    roots: dict[str, list[str]]  # the words of `places` by their first letters
    compact: str  # its letters and digits without spaces
    starts: frozenset[int]  # where words begin in it


def loosened(question: str, loosen: Loosen = LOOSENINGS) -> frozenset[str]:
    """The `loosen` of a question: without "order" if it asks for an order."""
    return frozenset(loosen) - {"order" if _ORDERED.search(question) else ""}


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
    loosen = loosened(question)
    exact = matches(text, answers, loosen, question)
    if exact is not None:
        return exact
    bare = _COMMAND.sub(" ", text)
    if re.search(r"\d", bare) and not _LONG_WORDS.search(bare) and _EXPRESSED.search(text):
        return matches(_NAMED_VALUE.sub("", text, count=1).strip("$ "), answers)
    box = boxed(text) if text.count("\\boxed") == 1 else None
    if (final := _FINAL.search(text)) or box:
        text = box.text if box else text[final.end() :] if final else text
        if exact := matches(text, answers, loosen):
            return exact
    query = read(question)
    query_words = frozenset(query.words)
    if {"how", "many"} <= query_words:
        text = _NONE.sub("zero", text)
    accepted = [(answer, one, read(one)) for answer in answers for one in _spellings(answer)]
    known = query_words.union(*(wanted.words for *_, wanted in accepted))
    signs = "".join([question, *answers])
    if lists_candidates(text, known) or _FACTORIAL.fullmatch(text.strip()):
        return None
    chances = {f"#{chance}" for chance in _CHANCE.findall(text)}
    if len(text) <= BRIEF and text.count("%") > 1 and known.isdisjoint(chances):
        return None  # a chance for each candidate
    if _BOUNDS.isdisjoint(signs):
        text = _BOUNDED.sub(" ", text)
    raw = _CITED.sub("", _RUN_ON.sub(r"\1 ", below_zero(clean(text))))
    raw = raw if " than " in question else _THAN.sub("than", raw)
    raw = without_retracted(_GLUED.sub("", raw) if len(raw) > _GLUE_FREE else raw, known)
    if lists_candidates(raw, known):
        return None
    reply = _reply_of(raw, known)
    if several_numbers(reply.reading, known):
        return None
    for answer, spelling, wanted in accepted:
        gives = _gives_answer(reply, wanted, query) and _signed(raw, spelling)
        if (gives and not _disordered(reply, wanted, "order" not in loosen)) or _spaceless(raw, answer):
            return answer
    return None


def _signed(raw: str, answer: str) -> bool:
    """Whether a text has the signs and single letters that distinguish an answer from others.

    C++, O-, x^2, [0, 1), 007; CO2, which is not C2O; the letter of Vitamin C and of A minor; and an answer of
    one or two letters stands alone in its own case: C, Co, US.
    """
    if len(answer) <= 2 and answer.isalpha() and answer.isascii() and not answer.islower() and answer != "No":
        raw = _LETTERS.sub(" ", raw) if len(raw) <= BRIEF else raw  # "A and B" are two candidates
        return _found_whole(answer, raw.replace("U.S", "US")) is not None
    letters, digits = _FORMULA.fullmatch(answer), _CODE.fullmatch(answer)
    if answer.isalpha() and not _unprefixed(answer, raw):
        return False
    lettered = _LETTERED.fullmatch(answer)
    if letters:
        match = _found_whole(f"{letters[1]}[ -]?{letters[2]}", raw, re.I)
        return match is not None and (
            match[0].islower() or answer.islower() or match[0] == answer or "-" in match[0]
        )
    if lettered:
        phrase = r"\W{1,2}".join(map(re.escape, filter(None, lettered.groups())))
        return _found_whole(phrase, raw, re.I) is not None
    apart = _SIGN_APART.search(answer) and _LONG_WORD.search(answer)  # the symbol ×
    if digits or (telling_marks(answer) and not apart):
        squeezed = answer.replace(" ", "")[:_MAX_SIGNED]
        return _found_whole(" ?".join(map(re.escape, squeezed)), raw, re.I) is not None
    return True


def _unprefixed(answer: str, raw: str) -> bool:
    """Whether a word stands anywhere without a hyphen that makes it another: not in Guinea-Bissau."""
    cased = raw if answer[0].isupper() else raw.casefold()
    matches = list(re.finditer(re.escape(answer), cased)) if "-" in raw else []
    return not matches or any(
        not _PREFIX.search(cased[max(match.start() - 12, 0) : match.start()])
        and not (answer[0].isupper() and _COMPOUND.match(cased[match.end() : match.end() + 2]))
        for match in matches
    )


_LETTERS = re.compile(r"(?<![\w.])[A-HJ-Z](?:(?:, (?:and )?| and | & )[A-HJ-Z](?![\w.]))+")
_PREFIX = re.compile(r"(?:(?:^|\W)(?:counter|anti|non|un|pre|post|semi|sub|super|ex)|[A-Z]\w{1,10})-$", re.A)
_COMPOUND = re.compile(r"-[A-Z]")


def _found_whole(pattern: str, raw: str, flags: int = 0) -> re.Match[str] | None:
    """The first match of a pattern in a text that is not part of a longer word, number or expression."""
    return re.search(rf"(?<![\w+#*^/&√-]){pattern}(?![\w+#*^/&]|-(?!\w{{2}})|\.\w)", raw, flags)


_FORMULA = re.compile(r"([A-Z][A-Za-z]{0,3})-?(\d{1,4}[A-Za-z]{0,3}\d{0,3})")
_LONG_WORDS = re.compile(r"[^\W\d_]{2}")
_SIGN_APART, _LONG_WORD = re.compile(r"(?:^| )[^\w\s]$"), re.compile(r"[^\W\d_]{4}")
# 007, 2x and names of files
_CODE = re.compile(
    r"0\d{1,9}|\d{1,6}['\"]|\d{1,3},\d{1,2}|\d{1,4}[abnxyz]|\w{1,40}\.(?:py|js|ts|c|h|cpp|rs|go|java|txt|md|json|csv|sh|exe|html)"
)
_LETTERED = re.compile(
    r"(?:.{0,80} )?([^\W\d_]{2,30})[ -]([A-Z])|([A-H][♭♯#]?) (minor|major|flat|sharp)", re.I
)


def _reply_of(raw: str, known: frozenset[str]) -> _Reply:
    reading = read(raw)
    left_out = alternatives(reading, known)
    if known.isdisjoint(_DENIALS):  # "Which Games did it not attend?" asks for what is denied
        left_out |= _denied(reading, known)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(reading.words):
        if place not in left_out:
            places.setdefault(word, []).append(place)
    roots: dict[str, list[str]] = {}
    for word in places:
        roots.setdefault(word[:_ROOT], []).append(word)
    kept = [_compact(name) for place, name in enumerate(reading.spelt) if place not in left_out]
    starts = frozenset(accumulate((len(name) for name in kept), initial=0))
    return _Reply(reading, places, roots, "".join(kept), starts)


def _has_compact(compact: str, reply: _Reply) -> bool:
    """Whether a text has an answer, spaces aside, without a prefix such as the one of `asymmetric`."""
    place = reply.compact.find(compact)
    while place >= 0 and any(
        place - len(prefix) in reply.starts and reply.compact.startswith(prefix, place - len(prefix))
        for prefix in _OPPOSITE
        if len(prefix) <= place
    ):
        place = reply.compact.find(compact, place + 1)
    return place >= 0


def _compact(text: str) -> str:
    return "".join(filter(str.isalnum, fold(text)))


def _spellings(answer: str) -> list[str]:
    """An answer without asides, and each side of its `or`."""
    answer = clean(answer)[:MAX_ANSWER].replace(" & ", " and ")
    bare = " ".join(_ASIDE.sub("", answer).split()) or answer
    none = ["0"] if bare.lower() == "none" else []
    umlauts = [bare.translate(UMLAUTS)] if bare[:1].isupper() else []  # Mueller
    return list(dict.fromkeys([bare, *umlauts, *none, *_OR.split(bare)]))


def _denied(reading: Reading, known: frozenset[str]) -> set[int]:
    """The places of up to five words after a denial in its clause, and of a subject of what it denies.

    "X did not write it" denies X; "X did not publish it under her name" adds to the question, and does not.
    """
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
            denied.update(_subject(reading, place, known) if word not in _BESIDE_ONLY else ())
    return denied


def _subject(reading: Reading, place: int, known: frozenset[str]) -> range:
    """The places before a denial in its clause, if no more than the question and a verb follows it."""
    words, spelt = reading.words, reading.spelt
    new: list[str] = []
    for at in range(place + 1, len(words)):
        if words[at] in _JOINS:
            break
        if at - place > 12:
            return range(0)
        if not any(words[at] in one for one in (known, STOP_STEMS, _DENIALS)):
            new.append(spelt[at])
    if len(new) > 1 or not all(word.isalpha() and word[0] == word[0].lower() for word in new):
        return range(0)
    start = place
    while start and place - start < 12 and words[start - 1] not in _JOINS:
        start -= 1
    return range(start, place)


def _gives_answer(reply: _Reply, wanted: Reading, query: Reading) -> bool:
    query_words = frozenset(query.words)
    informative = [word for word in wanted.words if word not in IDLE]
    pairs = zip(wanted.words[1:], wanted.spelt[1:], strict=True)
    titled = [word for word, spelt in pairs if word in STOP_STEMS and spelt[0].isupper()]
    if len(titled) > len(informative) and not all(word in reply.places for word in titled):
        return False  # "Let It Go" for "Let It Be"
    polarity = (_YES | _NO).intersection(wanted.words)
    if polarity and set(informative) <= polarity:
        return _agrees(reply, query, not polarity.isdisjoint(_YES))
    if not informative:
        return False
    if not _NEGATED.isdisjoint(set(wanted.words) - query_words) and _NEGATED.isdisjoint(reply.reading.words):
        return False  # "guilty" for "not guilty"
    if is_date(wanted):
        return _dated(wanted, reply.reading, query)
    informative = [word for word in informative if word not in query_words] or informative
    titles = (_TITLES | _FIRMS) - ({wanted.words[-1]} & _SURNAMES)
    informative = [word for word in informative if len(word) > 1 and word not in titles] or informative
    if not _numbered(wanted, reply, informative, query) or _other_quantifier(wanted, reply, query_words):
        return False
    if _lacks_an_item(wanted, reply, informative):
        return False
    compact = _compact(" ".join(wanted.spelt))
    if _related(reply, wanted, query_words) or _qualified(reply, wanted, query_words):
        return False
    if not _WHO.isdisjoint(query_words) and _longer(reply, wanted, query_words):
        return False
    if len(compact) >= _LONG and not compact.isdigit() and _has_compact(compact, reply):
        return True  # `seashells` for `sea shells`
    if _other_initials(reply, wanted):
        return False
    missing = {word for word in informative if word[0] != "#" and not _places(word, reply)}
    missing |= {word for word in informative if word not in missing and _accented(word, wanted, reply)}
    names = _names(wanted, informative) if not _WHO.isdisjoint(query_words) else []
    if names and missing:
        return "the" not in wanted.words and _named(reply, names)  # Peter the Great
    if _reversed(reply, wanted):
        return False
    share = sum(word not in missing for word in informative) / len(informative)
    return share >= MIN_SHARE and not (missing and _replaced(reply, wanted, missing, query_words))


def _lacks_an_item(wanted: Reading, reply: _Reply, informative: list[str]) -> bool:
    """Whether nothing is said of one item of a list: `red and blue` for `red, white and blue`.

    Two names with a comma are none, as they may be a place and where it lies: Portland, Oregon; nor is a text
    with little words such as "of".  Of people with one surname the surname is enough, but not one of them:
    Wilbur and Orville Wright.  An item may be abbreviated: Vince, US.
    """
    items: list[list[str]] = [[]]
    for word, spelt in zip(wanted.words, wanted.spelt, strict=True):
        if word == "and" or spelt in (",", ";"):
            items.append([])
        elif word in STOP_STEMS and word != "the":
            return False
        elif word in informative and not spelt.isupper():
            items[-1].append(word)
    items = [item for item in items if item]
    pair = len(items) == 2 and "and" not in wanted.words and ";" not in wanted.spelt
    if len(items) < 2 or pair or max(map(len, items)) > _SMALL:
        return False
    surname = len(items[0]) == 1 < len(items[-1]) and not any(_places(item[0], reply) for item in items)
    starts = {fold(name)[:3] for name in reply.reading.spelt if name[:1].isupper()}
    return not surname and not all(
        any(word[:3] in starts or _places(word, reply) for word in item) for item in items
    )


def _places(word: str, reply: _Reply) -> list[int]:
    """The places in a reply of a word of the answer, in any grammatical form."""
    if word in reply.places or len(word) <= _ROOT:
        return reply.places.get(word, [])
    for other in reply.roots.get(word[:_ROOT], ()):
        short, long = sorted((word, other), key=len)
        for cut in (len(short), len(short) - 1):
            if cut >= _ROOT and long.startswith(short[:cut]) and {short[cut:], long[cut:]} <= _ENDINGS:
                return reply.places[other]
    return []


def _accented(word: str, wanted: Reading, reply: _Reply) -> bool:
    """Whether a word in small letters is only said with other accents: `ano` for `año`."""
    own = wanted.spelt[wanted.words.index(word)]
    spelt = {reply.reading.spelt[place] for place in _places(word, reply)}
    if own[:1].isupper() or not spelt or (own.isascii() and all(map(str.isascii, spelt))):
        return False
    return not any(one[:1].isupper() or _same_letters(own.casefold(), one.casefold()) for one in spelt)


def _same_letters(one: str, other: str) -> bool:
    """Whether two forms of a word have the same letters before their endings."""
    size = min(len(one), len(other))
    size -= size > 4
    return one[:size] == other[:size]


def _replaced(reply: _Reply, wanted: Reading, missing: set[str], query_words: frozenset[str]) -> bool:
    """Whether another word replaces a missing word of the answer: `North` for `South` Korea."""
    small = len(wanted.words) <= _SMALL
    pairs = zip(wanted.words, wanted.spelt, strict=True)
    needed = {word for word, name in pairs if small or name[:1].isupper()}
    if not _QUALIFIERS.isdisjoint(missing) or not _NEEDED.isdisjoint(missing & needed):
        return True
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
    in_small = small and not any(names.values()) and bool(names)
    if brief and foreign and (in_small or (any(names.values()) and any(foreign.values()))):
        return True
    cased = any(name[:1].isupper() for name in spelt)
    for place, name in names.items():
        for step in (-1, 1):
            side, hops = beside(wanted.words, place, step)
            kept = wanted.words[side] if 0 <= side < len(wanted.words) else "#"
            places = [] if kept[0] == "#" else _places(kept, reply)
            slots = [beside(words, at, -step, hops)[0] for at in places]
            any_case = (brief and not name) or not cased
            if slots and all(slot in foreign and (foreign[slot] or any_case) for slot in slots):
                return True
    return False


def _abbreviates(name: str, word: str) -> bool:
    """Whether a word as written may stand for another: `J`, `US` or `Dave` for `david`."""
    folded = fold(name)
    same = 1 if len(name) == 1 or name.isupper() else 3
    return folded[:same] == word[:same]


def _qualified(reply: _Reply, wanted: Reading, query_words: frozenset[str]) -> bool:
    """Whether the name occurs only as a part of another name: `New York` for `York`."""
    first = next((i for i, name in enumerate(wanted.words) if name not in STOP_STEMS), 0)
    if not wanted.spelt[first][:1].isupper():
        return False
    before = [
        reply.reading.words[place - 1] if place else "" for place in _places(wanted.words[first], reply)
    ]
    others = (_QUALIFIERS | _STATES) - query_words - {*wanted.words}
    return bool(before) and all(word in others for word in before)


def _related(reply: _Reply, wanted: Reading, query_words: frozenset[str]) -> bool:
    """Whether a reply names only somebody or something related: `Austen's sister`, `a suburb of Paris`."""
    own = [place for place, word in enumerate(wanted.words) if word not in IDLE]
    if not own or not wanted.spelt[own[0]][:1].isupper() or not _RELATED.isdisjoint(wanted.words):
        return False
    words, spelt = reply.reading.words, reply.reading.spelt
    related: list[bool] = []
    for place in _places(wanted.words[own[-1]], reply):
        genitive = spelt[place].endswith("'s") or spelt[place] == f"{wanted.spelt[own[-1]]}s"
        after = genitive and words[place + 1 : place + 2]
        before, _ = beside(words, place - (own[-1] - own[0]), -1, 2)
        before -= before > 0 and words[before] in _OF
        related.append(
            bool(after and after[0] in _RELATED - query_words)
            or words[max(before, 0)] in _RELATED - query_words
        )
    return bool(related) and all(related)


def _other_initials(reply: _Reply, wanted: Reading) -> bool:
    """Whether the surname is only said under other initials: `George W. Bush` for `George H. W. Bush`."""
    own = initials(wanted, len(wanted.words) - 1)
    places = reply.places.get(wanted.words[-1], []) if own else []
    others = [other for place in places if (other := initials(reply.reading, place))]
    return bool(others) and not any(own.startswith(other) or other.startswith(own) for other in others)


def _other_quantifier(wanted: Reading, reply: _Reply, query_words: frozenset[str]) -> bool:
    """Whether another quantifier is said, `some` for `all`, or one of two for both."""
    own, other = (_QUANTIFIERS.intersection(one.words) - query_words for one in (wanted, reply.reading))
    either = "or" in reply.reading.words and "and" in wanted.words and len(reply.reading.words) <= FEW
    junior = [
        {"jr", "junior"}.isdisjoint(one) - {"sr", "senior"}.isdisjoint(one)
        for one in (wanted.words, reply.places)
    ]
    function = _FUNCTIONS.intersection(wanted.words) - {*reply.reading.words}
    if junior in ([1, -1], [-1, 1]) or function:
        return True
    return bool(own and other and own.isdisjoint(other)) or (
        either and "or" not in {*wanted.words, *query_words}
    )


def _numbered(wanted: Reading, reply: _Reply, informative: list[str], query: Reading) -> bool:
    """Whether every number that tells something is said; "about 2.45" may be rounded.

    A number without a unit has the one that the question asks for.  Where it asks how many, the fifth is not
    five; nor is five the fifth where nothing else is said.
    """
    query_unit = unit_asked(query)
    words = {*query.words}
    many = {"how", "many"} <= words
    counts = many or {"how", "much"} <= words
    alone = all(word[0] == "#" or word in IDLE for word in (*wanted.words, *reply.reading.words))
    bare = many and not query_unit and words - IDLE - {"many"}  # 3 points are not 3 minutes
    loose = any(_ABOUT.fullmatch(word) for word in wanted.spelt)
    several = len(wanted.amounts) > 1 and all(word[0] == "#" or word in IDLE for word in wanted.words)
    others = iter(reply.reading.amounts)  # of a score or a range in their order
    if (
        several
        and not loose
        and not all(any(one.equals(other) for other in others) for one in wanted.amounts)
    ):
        return False
    return all(
        any(
            (
                other.word in reply.places
                and not (bare and other.unit and not amount.unit)
                and replace(amount, unit=amount.unit or query_unit).equals(other)
                and (amount.nth == other.nth or (not alone and (amount.nth or not counts)))
            )
            or (loose and _rounds_to(amount, other))
            for other in reply.reading.amounts
        )
        for amount in wanted.amounts
        if amount.word in informative
    )


def _rounds_to(amount: Amount, other: Amount) -> bool:
    off = abs(amount.value - other.value)
    return amount.unit == other.unit and off <= min(other.step, abs(amount.value) / 40)


def _is_name(word: str) -> bool:
    return word[:1].isupper() and word.isalpha()


def _names(wanted: Reading, informative: list[str]) -> list[str]:
    """First, middle and last names; empty when the answer is not plainly a person's name."""
    pairs = zip(wanted.spelt, wanted.words, strict=True)
    names = [name for name, word in pairs if (len(name) == 1 and name.isalpha()) or word in informative]
    is_person = (
        all(map(_is_name, names))
        and 2 <= len(names) <= 5
        and len(names[-1]) > 1
        and _FIRMS.isdisjoint(wanted.words)
    )
    return names if is_person else []


_FULL_NAMES = {"jim": "james", "jimmy": "james", "jack": "john", "harry": "henry"}


def _named(reply: _Reply, names: list[str]) -> bool:
    """Whether the surname is said, and not with the first name of somebody else."""
    first = [_first_name(name) for name in names[:-1]]
    starts = {name[:size] for name in first for size in (1, 2)}  # Dave, David and D., but not Jane and John
    for place in reply.places.get(stem(fold(names[-1])), ()):
        before = [_first_name(name) for name in _names_before(reply.reading.spelt, place)]
        if not before or any(name[:2] in starts or name[0] in first for name in before):
            return True
    return False


def _first_name(name: str) -> str:
    return _FULL_NAMES.get(fold(name), fold(name))


def _names_before(spelt: tuple[str, ...], place: int) -> list[str]:
    """The capitalised words directly before a surname, at most three, without titles."""
    names: list[str] = []
    for name in reversed(spelt[max(place - 3, 0) : place]):
        word = stem(fold(name))
        if not _is_name(name) or word in STOP_STEMS:
            break
        if word not in _TITLES:
            names.append(name)
    return names


def _longer(reply: _Reply, wanted: Reading, query_words: frozenset[str]) -> bool:
    """Whether a person is only said with another name behind: `Mary Wollstonecraft Shelley`."""
    names = wanted.spelt
    if len(names) < 2 or "the" in wanted.words or not all(map(_is_name, names)):
        return False
    words, spelt = reply.reading.words, reply.reading.spelt
    size = len(names)
    ends = [
        at + 1
        for at in reply.places.get(wanted.words[-1], ())
        if at + 1 >= size and words[at + 1 - size : at + 1] == wanted.words
    ]
    return bool(ends) and all(
        at < len(words)
        and _is_name(spelt[at])
        and any(map(str.islower, spelt[at]))
        and words[at] not in STOP_STEMS | query_words | _FIRMS - {"jr", "sr"}
        for at in ends
    )


def _disordered(reply: _Reply, wanted: Reading, ordered: bool) -> bool:
    """Whether the words of an answer whose order counts are in another order.

    The order counts if the question asks for one, or if a verb stands between two names: "France beat Italy".
    """
    informative = [place for place, word in enumerate(wanted.words) if word not in IDLE]
    names = [place for place in informative if wanted.spelt[place][:1].isupper()]
    if {"by"}.isdisjoint(wanted.words) != {"by"}.isdisjoint(reply.reading.words):  # the passive voice
        return False
    verbs = [
        wanted.words[place]
        for place in informative
        if len(names) > 1
        and names[0] < place < names[-1]
        and wanted.spelt[place].islower()
        and len(wanted.spelt[place]) > 3
    ]
    kept = names if names else informative
    places = [at[0] for place in kept if (at := _places(wanted.words[place], reply))]
    if len(places) < 2 or places == sorted(places):
        return False
    between = reply.reading.words[min(places) : max(places)]
    return ordered or (places[0] > places[-1] and any(word in between for word in verbs))


def _reversed(reply: _Reply, wanted: Reading) -> bool:
    """Whether a name of two words is only said the other way round, without the comma of a list of names."""
    if len(wanted.words) != 2 or not all(map(_is_name, wanted.spelt)):
        return False
    pairs = set(pairwise(reply.reading.words))
    return wanted.words[::-1] in pairs and wanted.words not in pairs and len(set(wanted.words)) == 2


def _dated(wanted: Reading, reply: Reading, query: Reading) -> bool:
    """Whether a reply has every date of the answer, as precisely; the question may give a part of a date."""

    def same(day: Day, other: Day) -> bool:
        pairs = list(zip(day, other, strict=True))
        known = [False, *(any(a == date[at] for date in query.dates) for at, a in enumerate(day[1:], 1))]
        known[0] = day[0] in query.years or any(day[0] == date[0] for date in query.dates)
        return all(a == b or not a or (not b and given) for (a, b), given in zip(pairs, known, strict=True))

    return all(
        any(same(day, other) for other in reply.dates)
        or (
            day[0] in reply.years
            and (not day[1] or ("year" in query.words and _DAY_ASKED.isdisjoint(query.words)))
        )
        for day in wanted.dates
    )


def _agrees(reply: _Reply, query: Reading, yes: bool) -> bool:
    """Whether the first clause says yes, or no; a repetition of what was asked says yes."""
    words = reply.reading.words
    if words[:1] and words[0] in _YES | _NO:
        return (words[0] in _YES) == yes
    first = words[: words.index("|") if "|" in words else len(words)]
    if not (_DENIALS | _NO).isdisjoint(first):
        return not yes
    return yes and (not _YES.isdisjoint(first) or _repeats(first, reply.reading.spelt, query.words))


def _repeats(words: tuple[str, ...], spelt: tuple[str, ...], query_words: tuple[str, ...]) -> bool:
    """Whether a clause repeats the question in its order, nothing added, and more of it than names."""
    informative = [place for place, word in enumerate(words) if word not in STOP_STEMS]
    rest = iter(query_words)
    return all(words[place] in rest for place in informative) and any(
        spelt[place].islower() for place in informative
    )


def _spaceless(raw: str, answer: str) -> bool:
    """For scripts without spaces: the answer stands in the text and is not denied directly before."""
    compact, text = _compact(answer), _compact(raw)
    if len(compact) < 2 or not _SPACELESS.search(compact):
        return False
    place = text.find(compact)
    while place >= 0:
        rest = text[place + len(compact) :]
        if not (text[:place].endswith(_NOT_BEFORE) or _RELATED_ZH.match(rest) or _DENIED_ZH.match(rest)):
            return not rest.startswith(("还是", "或", "または", "もしくは", "それとも"))
        place = text.find(compact, place + 1)
    return False
