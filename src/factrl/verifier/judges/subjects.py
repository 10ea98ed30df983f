"""Finds the passages about the subject of a claim, and sentences that differ from it in one value.

A claim is compared with one passage at a time, because what a document says about its own subject says
nothing about another subject.  A passage's subject is its title, or the name that its first sentence begins
with.  Names are compared whole, so that "Solis 7" is not "Solis 7 Pro" and "Württemberg" not
"Baden-Württemberg".

A sentence without a name inherits the subject of its heading or of an earlier sentence: "It has a five-year
warranty" under the heading "Auron H1" is compared with passages about the Auron H1, and "Born in Soria in
1922" after "Ana Ruiz was a chemist" with passages about Ana Ruiz.  If no passage is about that subject,
nothing supports the sentence.  Words that are not clearly a name ("Construction began in 1995", "## Early
life") are no subject.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from factrl.text.sentences import Sentence, sentences
from factrl.text.words import CARDINALS, ROMAN, SCALES, STOP_WORDS, Amount, read
from factrl.types import Claim, Passage
from factrl.verifier.judges.overlap import MAX_EVIDENCE, Piece, pieces_of, words_of

ASKED = 2
"""Number of passages that a claim is compared with, one at a time."""

_SENTENCES_BACK = 20  # sentences before a claim in which a subject is searched
_LONGEST = 1_000  # characters of a sentence that are read
_EARLY = 6  # the subject is among this many first words of a sentence
_NEAR = 3  # tokens that one value may have
_SENTENCE_SIGNS = ".!?:;\"'“”„«»"  # signs after which a function word may have a capital letter

# -- Words

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|\d[\d.,]*\d(?![^\W_])"
    r"|[^\W_]+(?:(?:[.'’]|[-‐‑](?!(?<=[^\W\d_].)[^\W\d_]{0,9}\d))[^\W_]+)*"  # but "H1" apart in "Auron-H1"
)
_ENDING = re.compile(r"(?<=...)(?:['’]s?|(?:e[nmr]?)?s?['’]?)$")
_PRONOUNS = frozenset(
    """
    he her hers him his it its she their theirs them they this these that those
    dessen deren dies diese dieser dieses er es ihm ihn ihr ihre ihrem ihren ihrer sein seine seinem seinen
    seiner sie elle elles il ils sa ses son leur leurs ella ellas ellos su sus lei lui loro suo sua
    hij zij haar zijn ze он она оно они его её их
    """.split()  # noqa: SIM905
)
_ARTICLES = frozenset("the der die das dem den des le la les l' el los las il lo gli de het".split())  # noqa: SIM905
_SMALL = (
    _PRONOUNS
    | _ARTICLES
    | frozenset(
        """
        a an and as at between but by for from if in into of on or since than to under until upon when while
        with after also although before both during each every however in-between later most only some then
        there though what which who ab als am an auf aus bei bis durch ein eine einem einen einer eines für
        gegen hier im in mit nach nur ob oder seit trotz um und unter vom von vor während weil wenn zu zum zur
        zwischen über au aux avec d' dans de du en et par pour sur un une al con del di do da dos das e o per
        por y z na aan op te ter van voor в и на с из
        """.split()  # noqa: SIM905
    )
)
_HONORIFICS = frozenset("dr prof mr mrs ms sir dame lady frau herr dra don doña mme".split())  # noqa: SIM905


class _Token(NamedTuple):
    word: str
    start: int
    end: int
    low: str
    key: str  # without its case endings, yet long enough that two names seldom share one
    small: bool  # a function word, such as an article, a pronoun or a preposition
    named: bool  # may be a name: has a capital letter, letters and digits, or a script without capitals
    value: bool  # a name, or a number in digits or in words

    @property
    def bare(self) -> str:
        """The key, without the "v" of a version ("v1.2")."""
        return re.sub(r"^v(?=\d)", "", self.key)


def _read_tokens(text: str) -> Sequence[_Token]:
    tokens: list[_Token] = []
    for match in _WORD.finditer(text):
        word = match[0]
        low = word.casefold().replace("’", "'")
        digits = any(one.isdigit() for one in word)
        letters = any(one.isalpha() for one in word)
        before = text[max(0, match.start() - 3) : match.start()].rstrip()[-1:]
        opens = not before or before in _SENTENCE_SIGNS
        small = low in _SMALL and (word.islower() or opens) and not (word.isupper() and len(word) > 1)
        named = not small and letters and (digits or word.lower() == word.upper() or not word.islower())
        value = named or digits or low in CARDINALS or low.removesuffix("s") in SCALES
        key = low if digits else _ENDING.sub("", low)
        if named and tokens and tokens[-1].named and not text[tokens[-1].end : match.start()].strip(" -‐‑"):
            key = str(ROMAN.get(word) or CARDINALS.get(low, key))  # "World War II", "World War Two"
        tokens.append(_Token(word, *match.span(), low, key, small, named, value))
    return tuple(tokens)


_sentence_tokens = lru_cache(maxsize=4_096)(_read_tokens)


def _tokens(text: str) -> Sequence[_Token]:
    """The words of a text; those of a sentence are kept, as each claim is read some ten times."""
    return _sentence_tokens(text) if len(text) <= _LONGEST else _read_tokens(text)


def _capitalised(text: str) -> list[_Token]:
    return [one for one in _tokens(text) if not one.small]


@lru_cache(maxsize=2_048)
def _keys(text: str) -> tuple[str, ...]:
    """The keys of a name, by which names are compared."""
    return tuple(one.bare for one in _capitalised(text) if one.low.rstrip(".") not in _HONORIFICS)


def _uncased(text: str) -> bool:
    """Whether a text is in a script without capital letters."""
    letters = [one for one in text[:40] if one.isalpha()]
    return bool(letters) and 2 * sum(one.lower() == one.upper() for one in letters) > len(letters)


# -- The name that a text opens with

_IS_A = re.compile(
    r"^[^\W\d_][\w'’-]+ (?:is|was|ist|war|est|était|es|fue|era|è|was een|is een) "
    r"(?:an?|the|eine?|une?|una|uno|der|die|das)?\b"
)
_PLACES = frozenset("in at on by from with to into since for as en em a à au aus mit bei в на с из".split())  # noqa: SIM905
_UNIT = re.compile(r"^\W{0,2}[^\W\d_]{1,3}\b")
_NOUN = re.compile(
    r"(?:[^s]s|ung|tion|ción|ment|ing|ity|tät|ness|ance|ence|age|heit|keit|ism|cy|dose|ty|ship)$"
)
# Sentences that begin like this have no subject: those about nobody or everybody, and the greeting of a
# letter, which ends with a comma ("Madame Tussauds is in London." does have one).
_NO_NAME = re.compile(
    r"(?:(?:no|every|some|any)(?: ?one|body)|niemand|jemand|jedermann|personne|nadie|nessuno|ninguém"
    r"|iedereen|nikt|никто)\b"
    r"|(?:dear|hello|hi|hey|sehr geehrte[rs]?|liebe[rs]?|hallo|ch[eè]re?s?|bonjour|madame|monsieur"
    r"|estimad[oa]s?|querid[oa]s?|hola|gentile|egregio|prezad[oa]|beste|geachte)\b[^.!?,\n]{0,60},$",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"(?!(?:(?:every|some|any|no)(?:one|body|thing|where|times?)?|none|today|here(?:by|after)?"
    r"|(?:what|who|how)(?:ever)?)\b)([^\W\d_][\w-]{3,30}) "
    r"(?:[a-z]{2,12}s|is|was|has|ist|war|hat|est|a|es|fue|era)\b",
    re.IGNORECASE,
)


def _opening(tokens: Sequence[_Token], text: str) -> tuple[str, ...]:
    """The keys of the name that a text begins with: its first capitalised words, without function words."""
    run: list[str] = []
    last = 0
    for token in tokens:
        if run and re.search(r"[,;:!?()\n]|\. ", text[last : token.start]):
            break
        last = token.end
        if token.small:
            continue
        if not (token.named or (run and token.value)):
            break
        run.append(token.key)
    return tuple(run)


def subject_of(text: str) -> tuple[str, bool]:
    """The name that a sentence begins with, as written, and whether the sentence has its own subject.

    It has none of its own if it refers back: it has a pronoun before any name ("In 1911 she"), or begins with
    an article without a name ("The company"), or with an article and one German noun, which may or may not be
    a name ("Die Firma", "Die Elbe").
    """
    text = text[:_LONGEST]
    tokens = _tokens(text)
    if not tokens:
        return "", True
    first = tokens[0]
    article = first.low in _ARTICLES
    for token in tokens[:_EARLY]:
        if token.low in _PRONOUNS:
            return "", False
        if token.named and (article or first.low not in _SMALL):
            break
    if first.small and not article:
        return "", True  # "In Bergen …": the first name is not the subject
    name = _opening(tokens, text)
    german = first.low in ("der", "die", "das", "den", "dem", "des") and len(name) == 1
    return " ".join(one.word for one in tokens if one.key in name), not german and bool(name or not article)


def lead(text: str) -> str:
    """The name that a text begins with; empty for "Founded in Bergen", "Weighs 6 kg" and "The company"."""
    if _NO_NAME.match(text.lstrip()):
        return ""
    text = re.split(r"\n|(?<=[.!?])\s", text, maxsplit=1)[0]
    name, own = ("", False) if _uncased(text) else subject_of(text)
    words = name.split()
    if not own or not words:
        return ""
    rest = text[text.find(words[-1]) + len(words[-1]) :]
    after = _WORD.search(rest)
    if after and len(words) == 1 and after[0].islower() and after[0] in _SMALL:
        return ""
    second = _WORD.findall(text)[1:2]
    if second and second[0] in _PLACES and not any(map(str.isdigit, words[0])):
        return ""  # "Born in Soria"
    unit = _UNIT.match(rest) and after and after[0] not in STOP_WORDS
    return " ".join(words[:-1] if words[1:] and words[-1].isdigit() and unit else words)


def _names_in(text: str, titles: Collection[str] = ()) -> str:
    """The names in a sentence with their numbers, as written, and words of `titles`; its first word is left
    out."""
    steps = pairwise(_tokens(text[:_LONGEST]))
    return " ".join(
        one.word for last, one in steps if one.named or (one.value and last.named) or one.key in titles
    )


# -- Passages

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
_FILE = re.compile(r"\S*[\d.]\S*$")  # a title that is a number or a file name, which is no subject


class _Known(NamedTuple):
    """What the comparisons need of a passage."""

    title: tuple[str, ...]
    opening: tuple[str, ...]
    unnamed: bool  # no title and no name in its first sentence, which refers back to an earlier one
    keys: frozenset[str]
    stems: frozenset[str]
    names: tuple[tuple[str, ...], ...]  # of its subject: its title, and the name that it begins with
    words: frozenset[str]  # all words, in the form that names are compared in
    lower: frozenset[str]  # keys of the words in small letters
    named: str  # its words in order, as `_in_order` writes them, and what its title names at its end
    sections: tuple[tuple[int, int, str], ...]  # every heading: its place, level and words
    headings: tuple[tuple[str, ...], ...]  # headings that are names of at least two words


@lru_cache(maxsize=512)
def _known(title: str, text: str) -> _Known:
    text = text[:MAX_EVIDENCE]
    of_title, of_text = _tokens(title), _tokens(text)
    tokens = [*of_title, *of_text]
    bare = re.sub(r"\([^()]*\)", " ", title).strip()
    heading = tuple(one.key for one in _capitalised(bare))
    first = re.split(r"(?<=[.!?])\s", text[:300], maxsplit=1)[0]
    of_first = _tokens(first)
    unnamed = not heading and not any(one.named for one in of_first[1:]) and subject_of(first) == ("", False)
    names = [() if " " not in bare and _FILE.match(bare) else _keys(bare)]
    names.append(_keys(lead(text[:300].lstrip("#* \n"))))
    sections = []
    for match in _HEADING.finditer(text):
        words = _DASH.split(match[2] or match[3] or match[4] or match[5])[0]
        sections.append((match.start(), len(match[1] or "1234567"), _MARKS.sub("", words).strip()))
    named = [words for *_, words in sections if all(one.value for one in _capitalised(words))]
    headings = [_keys(words) for words in named if len(_capitalised(words)) > 1]
    of_bare = _tokens(bare)
    ends = [of_bare[at:] for at in range(1, len(of_bare)) if of_bare[at - 1].small]  # "The history of Paris"
    parts = [[one.key for one in part if not one.small] for part in (*ends, of_text)]
    return _Known(
        heading,
        _opening(of_first, first),
        unnamed,
        frozenset(one.key for one in tokens if not one.small),
        frozenset({*words_of(text).stems, *words_of(title).stems}),
        tuple(filter(None, names)),
        frozenset(one.bare for one in tokens),
        frozenset(one.key for one in tokens if one.word.islower()),
        "".join(_in_order(part, heading) for part in parts),
        tuple(sections),
        tuple(one for one in headings if _TOPICS.isdisjoint(one)),
    )


def _in_order(keys: Sequence[str], title: Collection[str]) -> str:
    """Keys as one text, where neighbours that are both in a title are one word.

    So "Oxford University" is not found in "Oxford Brookes University", nor "York" in "New York".
    """
    held = frozenset(title)
    steps = zip(("", *keys), keys)  # noqa: B905
    return "".join(f"{'+' if key in held and last in held else ' '}{key}" for last, key in steps) + " "


def _known_of(passages: Sequence[Passage]) -> list[_Known]:
    return [_known(one.title, one.text) for one in passages]


def _has_name(name: Sequence[str], keys: Collection[str], named: Collection[str]) -> bool:
    """Whether a sentence has all words of a name; a name of one word must be written as a name there."""
    return all(one in keys for one in name) and (len(name) > 1 or any(one in named for one in name))


def _titled(tokens: Sequence[_Token], known: Sequence[_Known]) -> set[str]:
    """The keys of the words that are titles of one word, however they are written: "ibuprofen"."""
    titles = {one.title[0] for one in known if len(one.title) == 1 and _TOPICS.isdisjoint(one.title)}
    return titles & {token.key for token in tokens if not token.small}


def about(claim: str, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the passages about the claim's own subject; those with most of its words come first.

    If the claim names the subject of a passage (its title, or the name that it begins with), these are the
    passages with that subject and those of other subjects that name it.  Otherwise they are the passages with
    most of the claim's names, where rare names weigh more.  For a claim without names they are all passages.
    """
    known = _known_of(passages)
    if len(known) < 2:
        return [*range(len(known))]
    claim = claim[:_LONGEST]
    tokens = _tokens(claim)
    keys = {token.key for token in tokens if not token.small}
    names = {token.key for token in tokens if token.named} | _titled(tokens, known)
    titles = [one.title if _has_name(one.title, keys, names) else () for one in known]
    subjects = [
        title or (one.opening if _has_name(one.opening, keys, names) else ())
        for title, one in zip(titles, known, strict=True)
    ]
    whole, named = ({*filter(None, phrases)} for phrases in (titles, subjects))
    longer = {one for one in named for other in named if one != other and other[: len(one)] == one}
    longer |= {one for one in whole for other in whole if {*one} < {*other}}
    kept = [number for number, subject in enumerate(subjects) if subject and subject not in longer]
    chosen = {subjects[number] for number in kept}
    kept += [  # passages with another subject that name it
        number
        for number, one in enumerate(known)
        if not subjects[number]
        and any(_in_order(name, one.title) in one.named and one.title[: len(name)] != name for name in chosen)
    ]
    if not kept:
        held = [{name for name in names if name in one.keys} for one in known]
        weight = {name: _weight(sum(name in own for own in held), len(known)) for name in names}
        first = {*_opening(tokens, claim)}
        scores = [sum(weight[name] * (1 + (name in first)) for name in own) for own in held]
        kept = [number for number, score in enumerate(scores) if 2 * score > max(scores) or not any(scores)]
    kept += [number for number, one in enumerate(known) if one.unnamed and number not in kept]
    stems = {*words_of(claim).stems}
    weight = {stem: _weight(sum(stem in one.stems for one in known), len(known)) for stem in stems}
    return sorted(kept, key=lambda number: -sum(weight[stem] for stem in stems & known[number].stems))


def _weight(count: int, size: int) -> float:
    """The weight of a word that `count` of `size` passages have; 0 if all have it."""
    return math.log(size / count) if count else 0.0


def apart(claim: str, passages: Sequence[Passage]) -> list[list[Piece]]:
    """The sentences of each passage that a claim is compared with, at most `ASKED` passages.

    Those with most of its words come first.  A passage without any of its words is used only if no passage
    has one, and then it is the first.
    """
    stems = {*words_of(claim).stems}
    pieces = pieces_of(passages)
    own = [[piece for piece in pieces if piece.passage == number] for number in about(claim, passages)]
    own = [one for one in own if one]
    bear = [one for one in own if any(not stems.isdisjoint(piece.words.stems) for piece in one)]
    return (bear or own[:1])[:ASKED]


# -- The subject that a claim inherits from the text before it


class Context(NamedTuple):
    """What comes before a claim in its text.

    Attributes:
        subject: what "she" refers to, as far as the text tells: the name that an earlier claim begins with.
        before: the last `_SENTENCES_BACK` claims before it.
        headings: the headings above it, the outermost first, each with the number of claims in between.
        named: how many names the text has begun a sentence or heading with so far, and the last of them.  It
            differs where equal words may be about another subject; empty if the claim names its own.
        query: the topic, or the question without its first word.
    """

    subject: str = ""
    before: Sequence[str] = ()
    headings: Sequence[tuple[str, int]] = ()
    named: tuple[int, str] = (0, "")
    query: str = ""


def contexts(claims: Sequence[Claim], text: str, topic: str, question: str) -> list[Context]:
    """The context of each claim of a text.

    A claim about "she", "it" or "the company" gets as its subject the names in the last heading or claim that
    begins with a name, and all names since.  Before the first of these it gets the topic, or the names in
    the question.
    """
    last = topic or _names_in(question)
    rest, above = _headings(text), list[tuple[int, str, int]]()
    texts = [claim.text for claim in claims]
    query = topic or question.strip().partition(" ")[2]
    names_so_far: set[str] = set()
    latest = ""
    result = []
    for number, claim in enumerate(claims):
        while rest and rest[0][0] < claim.start:
            _, level, title = rest.pop(0)
            above = [one for one in above if one[0] < level] + [(level, title, number)]
            last = title if lead(title) else last
            if _TOPICS.isdisjoint(_keys(title)):
                names_so_far.add(latest := title)
        name, own = subject_of(claim.text)
        leading = lead(claim.text)
        own = own and (not name or bool(leading))
        if marker := _marker(claim.text, leading):
            names_so_far.add(latest := marker)
        named = (0, "") if _is_whole(leading) else (len(names_so_far), latest)
        headings = [(title, number - count) for _, title, count in above]
        result.append(
            Context(
                "" if own else last, texts[max(0, number - _SENTENCES_BACK) : number], headings, named, query
            )
        )
        names = f"{name} {_names_in(claim.text)}".strip()
        last = names if own and name else f"{last} {names}".strip()
    return result


def _marker(text: str, leading: str) -> str:
    """What tells a sentence that may name a new subject from others: its name, or all of a question."""
    if text.rstrip().endswith(("?", "？", "؟")):
        return text
    return text.split()[0][:4] if _uncased(text) else leading


def _is_whole(name: str) -> bool:
    """Whether a name is one beyond doubt: it has two words that are names, or digits ("H1", not "Price")."""
    tokens = [one for one in _tokens(name) if one.named]
    return len(tokens) > 1 or any(map(str.isdigit, tokens[0].word if tokens else ""))


def _headings(text: str) -> list[tuple[int, int, str]]:
    """The headings of a text: where each stands, its level (7 for a bold or a plain line) and its words."""
    headings = []
    for unit in sentences(text):
        line = text.rfind("\n", 0, unit.start) + 1
        if unit.kind == "heading" or _is_title(text, unit, line):
            marks = text[line : unit.start].strip()
            words = _MARKS.sub("", _DATE.sub("", text[unit.start : unit.end])).strip()
            level = len(marks) if marks and not marks.strip("#") else 7
            headings.append((unit.start, level, _NUMBERED.sub("", words).rstrip(":：")))
    return headings


def _is_title(text: str, unit: Sentence, line: int) -> bool:
    """Whether a line consists of one name."""
    words = text[unit.start : unit.end]
    if unit.kind != "prose" or len(words) > 60 or text[line : unit.start].strip() or "\n" in words:
        return False
    after = text[unit.end : unit.end + 200]
    tokens = _capitalised(words.rstrip(":"))
    alone = after.lstrip(" ").startswith("\n") and bool(after.strip()) and words[-1] not in ".!?。"
    return alone and not _uncased(words) and bool(tokens) and all(one.value for one in tokens)


def own_passages(claim: str, context: Context, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages about a claim's subject, which is its own or inherited from the text before it.

    Sections about another subject are overwritten with spaces, so that all offsets stay valid.
    """
    subject = _inherited(claim, context, tuple(passages))
    if subject:
        passages = _about_inherited(subject, passages)
    else:
        own = context.subject or _subject(claim, tuple(passages), under=False)
        before = context.subject if own else _names_of_query(context.query, passages)
        passages = _about_its_own(f"{before} {claim}".lstrip(), passages)
    return tuple(_without_others(claim, subject, one) for one in passages)


def _names_of_query(query: str, passages: Sequence[Passage]) -> str:
    """The names in a topic or question, if the title of a passage has one of them; else empty."""
    known, tokens = _known_of(passages), _tokens(query[:_LONGEST])
    names = "" if _uncased(query) else _names_in(f"of {query}", _titled(tokens, known))
    keys = {*_keys(names)}
    return names if any(not keys.isdisjoint(one.title) for one in known) else ""


def _about_its_own(claim: str, passages: Sequence[Passage]) -> Sequence[Passage]:
    """The passages about a claim's own subject, and those whose title one of them names, in their order.

    A passage about Edwin Carrow is needed for "the author of The Salt Road" if that novel's page names him.
    """
    own, known = about(claim, passages), _known_of(passages)
    held = frozenset[str]().union(*(known[number].keys for number in own))
    return [
        passage
        for number, (passage, one) in enumerate(zip(passages, known, strict=True))
        if number in own or (len(one.title) > 1 and held.issuperset(one.title))
    ]


def _inherited(claim: str, context: Context, passages: tuple[Passage, ...]) -> str:
    """The subject that a claim inherits from the text before it; empty if it names its own, or there is none.

    The passages help to tell names from other words.
    """
    before, headings = context.before, context.headings
    named = [(name, count) for words, count in headings if (name := _heading(words, passages))]
    inherited, count = named[-1] if named else ("", _SENTENCES_BACK)
    own = _subject(claim, passages, bool(inherited))
    if own and not (inherited and {*_keys(own)} <= {*_keys(inherited)}):
        return ""
    between = before[max(0, len(before) - count) :]
    subjects = (_subject(text, passages, bool(inherited)) for text in reversed(between))
    return next(filter(None, subjects), inherited) or _first_word_as_name(before, headings, passages)


@lru_cache(maxsize=512)
def _subject(text: str, passages: tuple[Passage, ...], under: bool) -> str:
    """The subject that a sentence names; with `under` (a heading) only the subject of a passage counts."""
    text = text[:_LONGEST]
    if _NO_NAME.match(text.lstrip()):
        return ""
    return _known_name(text, passages) if under and not _uncased(text) else _clear_name(text, passages)


def _known_name(text: str, passages: Sequence[Passage]) -> str:
    """The longest name of a passage's subject all of whose words are in a sentence; empty without one."""
    tokens, known = _tokens(text), _known_of(passages)
    keys, named = {*_keys(text)}, {one.key for one in tokens if one.named} | _titled(tokens[:1], known)
    names = [name for one in known for name in (*one.names, *one.headings)]
    found = [" ".join(name) for name in sorted(names, key=len, reverse=True) if _has_name(name, keys, named)]
    # A name without keys is only a pronoun: "Here" without its ending is "her".
    return next(filter(_keys, found), "")


def _clear_name(text: str, passages: Sequence[Passage]) -> str:
    """The subject that a sentence clearly names, else empty."""
    if _uncased(text):
        return _spaceless(text, passages)
    if whole := _known_name(text, passages):
        return whole
    name, full = lead(text), subject_of(text)[0]
    if not name or not _tokens(name)[0].named:
        return ""
    tokens = [one for one in _tokens(name) if one.low not in _HONORIFICS]
    lettered = [one for one in tokens if one.named]
    known = _known_of(passages)
    if not lettered or all(any(one.key in passage.lower for passage in known) for one in lettered):
        return ""  # ordinary words
    certain = (
        len(lettered) > 1
        or any(map(str.isdigit, lettered[0].low))
        or any(lettered[0].key in _keys(one.title) for one in passages)
        or _IS_A.match(text) is not None
        or (full != name and len(tokens) == 1)  # "Ibuprofen 500 mg"
    )
    return name if certain else ""


def _spaceless(text: str, passages: Sequence[Passage]) -> str:
    """The subject of a sentence in a script without capital letters.

    It is the longest title of a passage that the sentence has, or the beginning that it shares with a
    passage.
    """
    titles = [one.title.strip() for one in passages if one.title.strip() and one.title.strip() in text]
    if titles:
        return max(titles, key=len)
    count = max((_common_beginning(text, one.text) for one in passages), default=0)
    words = text.split()
    return "" if not count else " ".join(words[:count]) if len(words) > 2 else text.strip()[:count]


def _common_beginning(one: str, other: str) -> int:
    """The length of the common beginning of two texts: in words, or characters in a script without spaces."""
    parts = [re.findall(r"\S+", text[:60].lstrip("#* \n")) for text in (one, other)]
    if len(parts[0]) < 3:  # no spaces
        parts = [[*"".join(own)] for own in parts]
    count = 0
    for first, second in zip(*parts):  # noqa: B905
        if first != second:
            break
        count += 1
    return count if count > 1 else 0


def _first_word_as_name(
    before: Sequence[str], headings: Sequence[tuple[str, int]], passages: Sequence[Passage]
) -> str:
    """The first word of a text, if it looks like a name and the evidence does not have it."""
    if len(before) == _SENTENCES_BACK:
        return ""
    if before and _uncased(before[0]):
        words = before[0].split()
        name = " ".join(words[:2]) if len(words) > 2 else before[0][:2]
        parts = [name] if len(words) < 3 else words[:2]
        known = any(part in f"{one.title} {one.text}" for one in passages for part in parts)
        return "" if known or name[:1] in "这那它他她其该本此この그이저" else name
    title = headings[0][0] if headings and headings[0][1] == len(before) else ""
    match = re.fullmatch(r"(\w[\w-]{3,30})", title) or (_VERB.match(before[0]) if before else None)
    word = match[1] if match else ""
    tokens = _tokens(word)
    if len(tokens) != 1 or not tokens[0].named or _uncased(word) or _NOUN.search(word):
        return ""
    known = any(tokens[0].key in one.words for one in _known_of(passages))
    return "" if known or word.lower() in _TOPICS else word


def _heading(words: str, passages: Sequence[Passage]) -> str:
    """A heading that is a name, else empty."""
    keys = _keys(words)
    if not keys or len(words) > 120 or _NO_NAME.match(words):
        return ""
    if _uncased(words):
        heads = {sign for one in passages for sign in one.title or one.text[:10]}
        return words if sum(sign in heads for sign in words) > 1 else ""
    if _known_name(words, passages):
        return words
    if not _TOPICS.isdisjoint(keys) or not _TOPICS.isdisjoint(words.lower().split()):
        return ""
    known = _known_of(passages)
    cuts = [_keys(cut) for one in known for *_, cut in one.sections]
    cuts = [name for name in cuts if cuts.count(name) == 1]  # "Added" and "Fixed" occur in every version
    if any({*keys} <= {*name} for one in known for name in one.names) or any(
        _same_name(keys, name) for name in cuts[:_SENTENCES_BACK]
    ):
        return words
    name = lead(words) or (words if _VERSION.search(words) else "")
    tokens = _capitalised(name)
    ordinary = all(any(one.key in passage.lower for passage in known) for one in tokens)
    certain = any(map(str.isdigit, words)) or sum(one.named for one in tokens) > 1
    return name if name and not ordinary and certain else ""


def _about_inherited(subject: str, passages: Sequence[Passage]) -> Sequence[Passage]:
    """The passages about a subject, or else those that name it; in both cases also those that name nobody."""
    known, keys, uncased = _known_of(passages), _keys(subject), _uncased(subject)
    if uncased:
        named = [subject in f"{one.title} {one.text}" for one in passages]
        titles = [one.title.strip() for one in passages]
        whole = [
            one.text.startswith(subject) or bool(title and title in subject)
            for one, title in zip(passages, titles, strict=True)
        ]
    else:
        tokens = [one for one in _capitalised(subject) if one.low not in _HONORIFICS]
        needed = [one.bare for one in tokens if one.named or any(map(str.isdigit, one.low))][-2:] or [*keys]
        exact = {name for own in known for name in own.names if {*name} <= {*keys}}
        exact -= {one for one in exact for other in exact if {*one} < {*other} and other[: len(one)] == one}
        named = [
            own.words.issuperset(needed) or any(name[-1] == keys[-1] and name in exact for name in own.names)
            for own in known
        ]
        whole = [ok and not exact.isdisjoint(own.names) for ok, own in zip(named, known, strict=True)]
        if not any(whole):
            holds = [any({*keys} <= {*name} for name in own.names) for own in known]
            whole = [ok and held for ok, held in zip(named, holds, strict=True)]
    chosen = whole if any(whole) else named
    if not any(chosen) and not uncased:
        chosen = [any(_maybe_same_person(keys, name) for name in own.names) for own in known]
    return [
        one
        for one, ok, own in zip(passages, chosen, known, strict=True)
        if ok or (not own.names and not _uncased(one.text))
    ]


def _maybe_same_person(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two names may be those of one person: "Dan Stearns" and "Daniel Eckford Stearns"."""
    same = len(one) > 1 and len(other) > 1 and one[-1] == other[-1] and one[-1].isalpha()
    return same and (one[0].startswith(other[0]) or other[0].startswith(one[0]))


# -- Sections of one document


def _unversioned(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(key for key in keys if key not in ("version", "release"))


def _same_name(one: Sequence[str], other: Sequence[str]) -> bool:
    return bool(one) and _unversioned(one) == _unversioned(other)


def _without_others(claim: str, subject: str, passage: Passage) -> Passage:
    """The passage without the sections next to the one whose heading is the claim's subject."""
    text = passage.text
    sections = _known(passage.title, text).sections
    if len(sections) < 2:
        return passage
    claimed = _keys(claim)
    names = {one.key for one in _tokens(claim) if one.named}

    def means(words: str) -> bool:
        keys = _keys(words)
        if not keys or not _TOPICS.isdisjoint(keys):
            return False
        if subject:
            return _same_name(_keys(subject), keys)
        certain = any(map(str.isdigit, words)) or (len(_capitalised(words)) > 1 and names.issuperset(keys))
        keys = _unversioned(keys)
        return certain and any(claimed[at : at + len(keys)] == keys for at in range(len(claimed)))

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


# -- Sentences of the evidence that differ from a claim in one value

_ORDINALS = re.compile(
    r"(?:second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|next"
    r"|zweit|dritt|viert|fünft|sechst|siebt|acht|neunt|zehnt|vorletzt|nächst|tweed|derd|vierd|vijfd"
    r"|deuxi[eè]m|troisi[eè]m|quatri[eè]m|cinqui[eè]m|segund|tercer|cuart|quint|terceir|second|terz|quart"
    r"|втор|трет|четв[её]рт|пят)\w{0,4}$|\d+(?:st|nd|rd|th|\.|º|ª|e|ème)?$"
)
_GRADED = re.compile(
    r"(?:\w{2,}(?:er|est|ste[nmrs]?|ere[nmrs]?|st)|more|most|less|least|fewer|fewest|mehr|plus|moins|más|menos)$"
)
_LABELLED = re.compile(r"^[^\W\d_][^:\n]{0,30}: *(.{3,60})$|^((?:Prof|Dr|Mr|Mrs|Ms|Frau|Herr)\b.{3,60})$")


def differs(claim: str, passage: Passage, start: int, end: int) -> str:
    """Why a sentence of a passage with nearly the words of a claim does not say the claim; else empty.

    It has another name or number in the same place ("in Bayern" and "in Baden-Württemberg"), its number with
    another unit ("99 euros" and "99 dollars"), another degree or rank ("the largest" and "the
    second-largest", "more than" and "fewer than"), or it is about another person, who is named in a line
    above it ("Referee: Prof. Karl Maier").
    """
    sentence = passage.text[start:end]
    return (
        _other_unit(claim, sentence)
        or _other_value(claim, sentence, passage)
        or _under_another(claim, passage, start)
    )


# Units that no factor converts into each other.
_APART = frozenset("dollar $ usd euro € £ yen ¥ celsius °c fahrenheit °f".split())  # noqa: SIM905


def _other_unit(claim: str, sentence: str) -> str:
    held = read(sentence[:_LONGEST]).amounts
    for one in read(claim[:_LONGEST]).amounts:
        same = [other for other in held if one.unit and one.value == other.value]
        if same and all(_comparable(one, other) and not one.equals(other) for other in same):
            return "the evidence has the number with another unit"
    return ""


def _comparable(one: Amount, other: Amount) -> bool:
    """Whether two units measure the same, as kg and lb do; miles and mph do not."""
    units = {one.unit, other.unit}
    zero, other_zero = (replace(each, value=Decimal(0)) for each in (one, other))  # equal if of one kind
    return units <= _APART or ("" not in units and zero.equals(other_zero))


def _other_value(claim: str, sentence: str, passage: Passage) -> str:
    # The time of the comparison grows with the product of their lengths.
    if len(claim) > _LONGEST or len(sentence) > _LONGEST:
        return ""
    known = _known(passage.title, passage.text)
    claimed, read = _capitalised(claim), _capitalised(sentence)
    keys, read_keys = [token.key for token in claimed], [token.key for token in read]
    here = {*read_keys, *known.title, *known.opening}
    steps = SequenceMatcher(None, keys, read_keys, autojunk=False).get_opcodes()
    shared = sum(end - start for kind, start, end, *_ in steps if kind == "equal")
    if 2 * shared < len(keys):
        return ""
    for kind, start, end, low, high in steps:
        gone, new = claimed[start:end], read[low:high]
        if kind == "insert" and end < len(claimed):
            if _ORDINALS.match(new[-1].low) and _GRADED.match(claimed[end].low):
                return "the evidence has another rank"
        elif kind == "replace" and len(gone) <= _NEAR and len(new) <= _NEAR:
            gone = [one for one in gone if one.key not in (known.keys if one.named else here)]
            new = [one for one in new if one.key not in keys]
            if any(_other_degree(one.low, another.low) for one in gone for another in new):
                return "the evidence has another degree or rank"
            if any(one.value for one in gone) and any(one.value for one in new):
                return "the evidence has another name or number in its place"
    return ""


def _other_degree(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    before = long.removesuffix(short)
    ranked = len(short) > 3 and before != long and (before.endswith("-") or _ORDINALS.match(before))
    return bool(ranked) or any(all(map(kind.match, (one, other))) for kind in (_GRADED, _ORDINALS))


def _under_another(claim: str, passage: Passage, start: int) -> str:
    """Why a sentence is about another person, whom a line above it in the same block names; else empty.

    It is not if the sentence, or a line in between, has a word of the name that the claim begins with.
    """
    text, claim = passage.text[:MAX_EVIDENCE], claim[:_LONGEST]
    line = text.rfind("\n", 0, start) + 1
    own = text[line : (text.find("\n", start) + 1 or len(text) + 1) - 1]
    tokens = _tokens(claim)
    keys, opening = {one.key for one in tokens}, {*_opening(tokens, claim)}
    if not opening or not opening.isdisjoint(one.key for one in _tokens(own)) or _LABELLED.match(own.strip()):
        return ""
    why = ""
    for above in text[max(0, line - _LONGEST) : line].split("\n\n")[-1].split("\n"):
        if not opening.isdisjoint(one.key for one in _tokens(above)):
            return ""
        label = _LABELLED.match(above.strip("-*•# \t"))
        name = _capitalised((label[1] or label[2]).split(",")[0]) if label else []
        if 1 < len(name) < 5 and all(one.named for one in name) and keys.isdisjoint(t.key for t in name):
            why = "the evidence says it under another name"
    return why
