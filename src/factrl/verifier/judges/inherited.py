"""The subject that a sentence has from its heading or from the sentences before it, and what of the evidence
is about that subject.

"It has a five-year warranty" under the heading "Auron H1" is held against what is said of the Auron H1, and
so is "Born in Soria in 1922" after "Ana Ruiz was a chemist".  Where nothing is said of that subject, nothing
supports the sentence.  What is no certain name ("Construction began in 1995", "## Early life") is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from factrl.text.sentences import Sentence, sentences
from factrl.types import Passage
from factrl.verifier.judges.overlap import MAX_EVIDENCE
from factrl.verifier.judges.subjects import _LONGEST, _SMALL, _WORD, _tokens, subject_of

BACK = 20  # sentences that are looked through for the last name
_HONORIFICS = frozenset("dr prof mr mrs ms sir dame lady frau herr dra don doña mme".split())  # noqa: SIM905
_TOPICS = frozenset(
    """
    about abstract achievements act address allergies allgemeines answer anwendung appendix aufbewahrung
    ausstattung auszeichnungen awards background battery bildung biografie biographie biography
    breakfast camera career case chapter childhood children climate color colour comparison conclusion
    conclusión conservación contents contraindications cost costs culture day death description design
    details dimensions display dosage early economy education efectos effects einleitung equipment
    example facts family fazit features figure final food general geography geschichte hinweise histoire
    historia history honors honours impact influence information ingredients installation interactions
    introducción introduction key lage lagerung later leben legacy level life location main marriage
    menu month nebenwirkungen notes option overview part personal phase population posología pregnancy
    preis preise price pricing prix problem professional précio publications question quick rating
    reception references release results rooms rules scene season section services side sources
    specifications specs step storage summary table technical technische tips usage use uses vida vie
    warnings warranty wechselwirkungen week weight werk wirkung work works year years zimmer
    zusammenfassung überblick übersicht œuvre
    """.split()  # noqa: SIM905
)
_IS_A = re.compile(
    r"^[^\W\d_][\w'’-]+ (?:is|was|ist|war|est|était|es|fue|era|è|was een|is een) "
    r"(?:an?|the|eine?|une?|una|uno|der|die|das)?\b"
)
_PLACES = frozenset("in at on by from with to into since for as en em a à au aus mit bei в на с из".split())  # noqa: SIM905
_UNIT = re.compile(r"^\W{0,2}[^\W\d_]{1,3}\b")
_VERB = re.compile(
    r"(?!every|some|any|no(?:body|thing)|today|here|what|who|how)([^\W\d_][\w-]{3,30}) "
    r"(?:[a-z]{2,12}s|is|was|has|ist|war|hat|est|a|es|fue|era)\b",
    re.IGNORECASE,
)
_NOUN = re.compile(
    r"(?:[^s]s|ung|tion|ción|ment|ing|ity|tät|ness|ance|ence|age|heit|keit|ism|cy|dose|ty|ship)$"
)
# What begins so names no subject: a sentence about nobody or everybody, and the greeting of a letter, a line
# that ends in a comma ("Madame Tussauds is in London." has a name).
_NO_NAME = re.compile(
    r"(?:(?:no|every|some|any)(?: ?one|body)|niemand|jemand|jedermann|personne|nadie|nessuno|ninguém"
    r"|iedereen|nikt|никто)\b"
    r"|(?:dear|hello|hi|hey|sehr geehrte[rs]?|liebe[rs]?|hallo|ch[eè]re?s?|bonjour|madame|monsieur"
    r"|estimad[oa]s?|querid[oa]s?|hola|gentile|egregio|prezad[oa]|beste|geachte)\b[^.!?,\n]{0,60},$",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d\.\d")
_DATE = re.compile(r" +(?:[-–—|] +|\()\d{4}\W.{0,20}$")
_NUMBERED = re.compile(r"^\d{1,2}[.)] +")
_DASH = re.compile(r"\s[-–—|]\s|[(:：]")
_MARKS = re.compile(r"[*_#\[\]`]+")
_HEADING = re.compile(
    r"^ {0,3}(#{1,6}) +(.{1,200}?)[ #]{0,20}$|^ {0,3}(?:\*\*|__)(.{1,200}?):?(?:\*\*|__):? {0,20}$"
    r"|^(\S.{0,80})\n(?:=|-){3,200}$|^(\[?v?\d+\.\d[\w.]{0,20}\]?)(?: +[-–—(].{1,40})?$",
    re.MULTILINE,
)
_FILE = re.compile(r"\S*[\d.]\S*$")  # a title that numbers or names a file, and no subject


def headed(text: str) -> list[tuple[int, int, str]]:
    """The headings of a text: where each stands, its level (7 for a bold or a plain line) and its words."""
    found = []
    for unit in sentences(text):
        words = text[unit.start : unit.end]
        line = text.rfind("\n", 0, unit.start) + 1
        if unit.kind == "heading" or _is_title(text, unit, line):
            marks = text[line : unit.start].strip()
            level = len(marks) if marks and not marks.strip("#") else 7
            found.append(
                (
                    unit.start,
                    level,
                    _NUMBERED.sub("", _MARKS.sub("", _DATE.sub("", words)).strip()).rstrip(":："),
                )
            )
    return found


def _is_title(text: str, unit: Sentence, line: int) -> bool:
    """Whether a line is one name alone."""
    words = text[unit.start : unit.end]
    if unit.kind != "prose" or len(words) > 60 or text[line : unit.start].strip() or "\n" in words:
        return False
    after = text[unit.end : unit.end + 200]
    tokens = [one for one in _tokens(words.rstrip(":")) if not one.small]
    alone = after.lstrip(" ").startswith("\n") and bool(after.strip()) and words[-1] not in ".!?。"
    return alone and not _uncased(words) and bool(tokens) and all(one.value for one in tokens)


def _uncased(text: str) -> bool:
    letters = [one for one in text[:40] if one.isalpha()]
    return bool(letters) and 2 * sum(one.lower() == one.upper() for one in letters) > len(letters)


@lru_cache(maxsize=2_048)
def _keys(text: str) -> tuple[str, ...]:
    return tuple(
        re.sub(r"^v(?=\d)", "", one.key)
        for one in _tokens(text)
        if not one.small and one.low.rstrip(".") not in _HONORIFICS
    )


@lru_cache(maxsize=512)
def _own(title: str, text: str) -> tuple[tuple[str, ...], ...]:
    """What a passage is about: its title, and the name that it opens with; nothing where it names nobody."""
    bare = re.sub(r"\([^()]*\)", " ", title).strip()
    names = [] if not bare or (" " not in bare and _FILE.match(bare)) else [_keys(bare)]
    for name in (lead(text[:300].lstrip("#* \n")),):
        names += [_keys(name)] if name else []
    return tuple(name for name in names if name)


def lead(text: str) -> str:
    """The name that a text opens with; none of "Founded in Bergen", "Weighs 6 kg" and "The company"."""
    if _NO_NAME.match(text.lstrip()):
        return ""
    text = re.split(r"\n|(?<=[.!?])\s", text, maxsplit=1)[0]
    if _uncased(text):
        return ""
    name, own = subject_of(text)
    words = name.split()
    if not own or not words:
        return ""
    rest = text[text.find(words[-1]) + len(words[-1]) :]
    if len(words) == 1:
        after = _WORD.search(rest)
        if after and after[0].lower() in _SMALL and after[0].islower():
            return ""
    second = _WORD.findall(text)[1:2]
    if second and second[0] in _PLACES and not any(map(str.isdigit, words[0])):
        return ""  # "Born in Soria"
    return " ".join(words[:-1] if words[1:] and words[-1].isdigit() and _UNIT.match(rest) else words)


@lru_cache(maxsize=512)
def _held(title: str, text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The words of a passage: all, those in lower case, and those with a capital within a sentence."""
    text = f"{title}\n{text[:MAX_EVIDENCE]}"
    tokens = _tokens(text)
    lower, inner = set(), set()
    for token, match in zip(tokens, _WORD.finditer(text), strict=True):
        if match[0].islower():
            lower.add(token.key)
        elif (
            token.named
            and text[max(0, match.start() - 2) : match.start()].strip(" \n") == ""
            and match.start()
        ):
            inner.update({token.key} if text[match.start() - 1] == " " else ())
    return frozenset({re.sub(r"^v(?=\d)", "", one.key) for one in tokens}), frozenset(lower), frozenset(inner)


def _whole(text: str, passages: Sequence[Passage]) -> str:
    """The longest name of a passage's subject that a sentence has whole; empty without one."""
    keys, names = {*_keys(text)}, {one.key for one in _tokens(text) if one.named}
    found = [
        phrase
        for passage in passages
        for phrase in (*_own(passage.title, passage.text), *_section_names(passage.text))
        if keys.issuperset(phrase)
        and (phrase[1:] or phrase[0] in names)
        and _keys(" ".join(phrase))  # of "Here" without its ending a pronoun is left
    ]
    return " ".join(max(found, key=len, default=()))


def _run(one: str, other: str) -> int:
    """How much two texts begin alike: words, and characters in a script without spaces."""
    parts = [re.findall(r"\S+", text[:60].lstrip("#* \n")) for text in (one, other)]
    if len(parts[0]) < 3:  # no spaces
        parts = [[*"".join(own)] for own in parts]
    count = 0
    for first, second in zip(*parts):  # noqa: B905
        if first != second:
            break
        count += 1
    return count if count > 1 else 0


def _spaceless(text: str, passages: Sequence[Passage]) -> str:
    """The passage's title that a sentence without capital letters has, or how it and a passage begin."""
    titles = [one.title.strip() for one in passages if one.title.strip() and one.title.strip() in text]
    if titles:
        return max(titles, key=len)
    count = max((_run(text, one.text) for one in passages), default=0)
    words = text.split()
    return "" if not count else " ".join(words[:count]) if len(words) > 2 else text.strip()[:count]


def _named(text: str, passages: Sequence[Passage]) -> str:
    """The subject that a sentence names for certain; else empty."""
    if _uncased(text):
        return _spaceless(text, passages)
    if whole := _whole(text, passages):
        return whole
    name, own = subject_of(text)
    name = lead(text) if own else ""
    if not name or not _tokens(name)[0].named:
        return ""
    tokens = [one for one in _tokens(name) if one.low not in _HONORIFICS]
    lettered = [one for one in tokens if one.named]
    if not lettered:
        return ""
    held = [_held(one.title, one.text) for one in passages]
    if all(any(one.key in lower for _, lower, _ in held) for one in lettered):
        return ""  # ordinary words
    first = lettered[0]
    title = any(first.key in _keys(one.title) for one in passages)
    certain = (
        len(lettered) > 1
        or any(map(str.isdigit, first.low))
        or title
        or _IS_A.match(text) is not None
        or any(first.key in inner for _, _, inner in held)
        or (subject_of(text)[0] != name and len(tokens) == 1)  # "Ibuprofen 500 mg"
    )
    return name if certain else ""


def subject_from(
    claim: str, before: Sequence[str], headings: Sequence[tuple[str, int]], passages: Sequence[Passage]
) -> str:
    """The subject that a claim has from what stands before it; empty where it names its own, or none does.

    Args:
        before: the claims before it, in their order.
        headings: those that it stands under, the outer first, and how many claims are between.
        passages: they tell a name from another word.
    """
    passages = tuple(passages)
    named = [(name, count) for words, count in headings if (name := _heading(words, passages))]
    inherited, count = named[-1] if named else ("", BACK)
    own = _subject(claim, passages, bool(inherited))
    if own and not (inherited and {*_keys(own)} <= {*_keys(inherited)}):
        return ""
    between = before[max(0, len(before) - count) :]
    found = (_subject(text, passages, bool(inherited)) for text in reversed(between))
    return next(filter(None, found), inherited) or _opener(before, headings, passages)


def _opener(before: Sequence[str], headings: Sequence[tuple[str, int]], passages: Sequence[Passage]) -> str:
    """The one word that a text opens with, where it is no word of the evidence and looks like a name."""
    if len(before) == BACK:
        return ""
    if before and _uncased(before[0]):
        words = before[0].split()
        name = " ".join(words[:2]) if len(words) > 2 else before[0][:2]
        parts = [name] if len(words) < 3 else words[:2]
        known = any(part in f"{one.title} {one.text}" for one in passages for part in parts)
        return "" if known or name[:1] in "这那它他她其该本此この그이저" else name
    title = headings[0][0] if headings and headings[0][1] == len(before) else ""
    found = re.fullmatch(r"(\w[\w-]{3,30})", title) or (_VERB.match(before[0]) if before else None)
    word = found[1] if found else ""
    tokens = _tokens(word)
    if len(tokens) != 1 or not tokens[0].named or _uncased(word) or _NOUN.search(word):
        return ""
    known = any(tokens[0].key in _held(one.title, one.text)[0] for one in passages)
    return "" if known or word.lower() in _TOPICS else word


@lru_cache(maxsize=512)
def _subject(text: str, passages: tuple[Passage, ...], under: bool) -> str:
    """The subject that a sentence names; `under` a heading only that of a passage is one."""
    text = text[:_LONGEST]
    if _NO_NAME.match(text.lstrip()):
        return ""
    return _whole(text, passages) if under and not _uncased(text) else _named(text, passages)


def _heading(words: str, passages: Sequence[Passage]) -> str:
    """A heading where it is a name, else empty."""
    keys = {*_keys(words)}
    if not keys or len(words) > 120 or _NO_NAME.match(words):
        return ""
    if _uncased(words):
        heads = {sign for one in passages for sign in one.title or one.text[:10]}
        return words if sum(sign in heads for sign in words) > 1 else ""
    if _whole(words, passages):
        return words
    if not _TOPICS.isdisjoint(keys) or not _TOPICS.isdisjoint(words.lower().split()):
        return ""
    own = [_keys(cut) for one in passages for _, _, cut in _sections(one.text)]
    own = [name for name in own if own.count(name) == 1][:BACK]  # "Added" and "Fixed" stand in every version
    if any(keys <= {*name} for one in passages for name in _own(one.title, one.text)) or any(
        _same(_keys(words), name) for name in own
    ):
        return words
    name = lead(words) or (words if _VERSION.search(words) else "")
    tokens = [one for one in _tokens(name) if not one.small]
    held = [_held(one.title, one.text) for one in passages]
    ordinary = all(any(one.key in lower for _, lower, _ in held) for one in tokens)
    mixed = any(map(str.isdigit, words))
    lettered = [one for one in tokens if one.named]
    return name if name and not ordinary and (mixed or len(lettered) > 1) else ""


def about_inherited(subject: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages about a subject, else those that name it, and those that name nobody; often none."""
    owns = [_own(one.title, one.text) for one in passages]
    keys = _keys(subject)
    if _uncased(subject):
        named = [subject in f"{one.title} {one.text}" for one in passages]
        whole = [
            subject == one.title.strip()
            or one.text.startswith(subject)
            or bool(one.title.strip() in subject and one.title)
            for one in passages
        ]
    else:
        tokens = [one for one in _tokens(subject) if not one.small and one.low not in _HONORIFICS]
        needed = [one.key for one in tokens if one.named or any(map(str.isdigit, one.low))][-2:] or [*keys]
        needed = [re.sub(r"^v(?=\d)", "", one) for one in needed]
        exact = {name for own in owns for name in own if {*name} <= {*keys}}
        exact -= {one for one in exact for other in exact if {*one} < {*other} and other[: len(one)] == one}
        holds = [_held(one.title, one.text)[0].issuperset(needed) for one in passages]
        suffix = [any(name[-1] == keys[-1] and name in exact for name in own) for own in owns]
        named = [held or ends for held, ends in zip(holds, suffix, strict=True)]
        whole = [ok and any(name in exact for name in own) for ok, own in zip(named, owns, strict=True)]
        if not any(whole):
            whole = [
                ok and any({*keys} <= {*name} for name in own) for ok, own in zip(named, owns, strict=True)
            ]
    chosen = whole if any(whole) else named
    if not any(chosen) and not _uncased(subject):
        chosen = [any(_short(keys, name) for name in own) for own in owns]
    return tuple(
        one
        for one, ok, own in zip(passages, chosen, owns, strict=True)
        if ok or (not own and not _uncased(one.text))
    )


def _short(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two names of a person may be one: "Dan Stearns" and "Daniel Eckford Stearns"."""
    same = len(one) > 1 and len(other) > 1 and one[-1] == other[-1] and one[-1].isalpha()
    return same and (one[0].startswith(other[0]) or other[0].startswith(one[0]))


# -- Sections of one document


@lru_cache(maxsize=512)
def _sections(text: str) -> tuple[tuple[int, int, str], ...]:
    found = []
    for match in _HEADING.finditer(text[:MAX_EVIDENCE]):
        words = _DASH.split(match[2] or match[3] or match[4] or match[5])[0]
        found.append((match.start(), len(match[1] or "1234567"), _MARKS.sub("", words).strip()))
    return tuple(found)


@lru_cache(maxsize=512)
def _section_names(text: str) -> tuple[tuple[str, ...], ...]:
    """The headings that are names of two words or more."""
    found = []
    for _, _, words in _sections(text):
        tokens = [one for one in _tokens(words) if not one.small]
        keys = _keys(words)
        if len(tokens) > 1 and all(one.value for one in tokens) and _TOPICS.isdisjoint(keys):
            found.append(keys)
    return tuple(found)


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    drop = ("version", "release")
    return bool(one) and [key for key in one if key not in drop] == [key for key in other if key not in drop]


def in_sections(claim: str, subject: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages without the sections that are about another subject than the claim's: where one section
    has the claim's subject for its heading, those beside it are blank, and every place stays where it was."""
    return tuple(_without_others(claim, subject, one) for one in passages)


def _without_others(claim: str, subject: str, passage: Passage) -> Passage:
    text = passage.text
    sections = _sections(text)
    if len(sections) < 2:
        return passage
    said = _keys(claim)

    def means(words: str) -> bool:
        keys = _keys(words)
        if not keys or not _TOPICS.isdisjoint(keys):
            return False
        if subject:
            return _same(_keys(subject), keys)
        tokens = [one for one in _tokens(words) if not one.small]
        names = {one.key for one in _tokens(claim) if one.named}
        certain = any(map(str.isdigit, words)) or (len(tokens) > 1 and names.issuperset(keys))
        keys = tuple(key for key in keys if key not in ("version", "release"))
        return certain and any(said[at : at + len(keys)] == keys for at in range(len(said)))

    own = [number for number, (_, _, words) in enumerate(sections) if means(words)]
    if not own:
        return passage
    levels = {sections[number][1] for number in own}
    blank = False
    for number, (start, level, _) in enumerate(sections):
        end = sections[number + 1][0] if number + 1 < len(sections) else len(text)
        if level <= max(levels):
            blank = level in levels and number not in own
        if blank:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return replace(passage, text=text) if text != passage.text else passage
