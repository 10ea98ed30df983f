"""The claims that a text makes, each with its place in the text.

An extractor is a callable that takes a text.  There are two: `SentenceClaims` takes every sentence as a
claim, and `LLMClaims` (`factrl.verifier.claims.llm`) asks a language model for atomic claims.

A claim with `skip` is not judged, because it says what the question says, repeats an earlier claim, speaks of
the text itself, names a source, or cannot be checked.  It stays in the list, so that a report can show it and
a guard can count it.  In doubt a claim is judged: judging it needlessly costs a call, but skipping it wrongly
could hide a false statement.  The skip `self` also protects the judge (reliability, C1 rule 4 and D36):
instructions to a grader and verdicts about "all claims" never reach a judge as claims.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from factrl.llm.quoting import forges
from factrl.text import CHAT_TOKEN, MAX_PAYLOAD, clean
from factrl.text.abstention import stance
from factrl.text.answers import is_contentless
from factrl.text.sentences import sentences
from factrl.text.words import CARDINALS, STOP_WORDS, stem
from factrl.types import Claim, Skip
from factrl.verifier.pieces import cells, in_words, plain

from .stating import (
    PAST,
    asks,
    has_number,
    has_predicate,
    has_value,
    heads_sources,
    is_bare,
    is_stated,
    names_source,
)

__all__ = ["Extractor", "SentenceClaims", "content_words", "hedges", "mark", "normalised", "statements"]


Extractor: TypeAlias = "Callable[..., list[Claim] | Awaitable[list[Claim]]]"
"""Takes (text, question, topic) and returns the claims in order.  An unknown question or topic is empty, and
an empty text has no claims.  If it fails it raises `Unscored`; it never returns a part of the claims."""


class SentenceClaims:
    """Takes every sentence, list item and table row as one claim, and headings that state something ("She won
    five prizes", "Birthplace: Paris").

    The words stay as they are.  Only markup and citation marks are removed, and phrases that say vaguely who
    claims it: "Some people say that X", "I think X" and "Note that X" all claim X.  A list item gets the line
    that introduces its list ("Her books were:"), and a bare value gets its label ("Birthplace:" before
    "Paris" on the next line).

    Attributes:
        identity: changes with whatever changes the claims.
    """

    identity = "sentences/8"

    def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        claims = []
        for unit in statements(text):
            start = unwrapped(unit.text)
            words = unit.text[start:]
            words = words[:1].upper() + words[1:] if start else words
            claim = f"{unit.context} {words}".strip()
            claims.append(Claim(claim, unit.start, unit.end, unit.sentence, unit.skip))
        return mark(claims, question)


# -- Statements


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence, list item, table row or heading of a text that may state something."""

    text: str  # on one line, without markup
    start: int  # its place in the whole text; the end is exclusive
    end: int
    sentence: int  # its number among the sentences of the text
    context: str = ""  # the line that introduces its list, or the label of a bare value
    skip: Skip | None = None  # `unverifiable` where it names a source


def statements(text: str) -> list[Statement]:
    """The parts of `text` that may state something, in order.

    Code and reasoning are left out, and headings without a predicate that are not a label with its value.
    """
    units: list[Statement] = []
    introduction, label = "", (-1, "")  # a line that ends with a colon; the start and the words of a label
    line, line_end, sources = "", -1, False
    columns: list[str] = []  # of the table that a row stands in
    for number, unit in enumerate(sentences(text)):
        seen = plain(text[unit.start : unit.end])
        if unit.start >= line_end:
            line_end = text.find("\n", unit.end)
            line_end = len(text) if line_end < 0 else line_end
            line = text[text.rfind("\n", 0, unit.start) + 1 : line_end]
        if unit.kind == "row":
            seen = _labelled(seen, columns)
        else:
            columns = cells(seen) if unit.kind == "heading" and " | " in seen else []
        if heads_sources(seen):
            sources = True
        elif unit.kind == "heading":
            sources = False
        valued = unit.kind not in ("code", "reasoning") and _is_value_of(label[1], seen)
        titles = (
            unit.kind == "heading" and not is_stated(seen) and not (valued and label[1][-1] in _AWAITS_VALUE)
        )
        if not seen or unit.kind in ("code", "reasoning") or titles:
            introduction, label = "", (unit.start, seen if titles else "")
            continue
        cited = names_source(line, listed=sources) or (not sources and names_source(seen, listed=False))
        skip = "unverifiable" if heads_sources(seen) or cited else None
        context, start = introduction if unit.kind == "item" else "", unit.start
        if valued and skip is None:
            context, start = label[1].rstrip(":： ") + ("" if label[1][-1] in "?？؟" else ":"), label[0]
        units.append(Statement(seen, start, unit.end, number, context, skip))
        if unit.kind != "item" or seen[-1] in _AWAITS_VALUE:
            label = (unit.start, seen) if seen[-1] in _AWAITS_VALUE else (-1, "")
        if unit.kind == "prose":
            introduction = _introducing(seen) if seen.endswith((":", "：")) else ""
    return units


_AWAITS_VALUE = ":：?？؟"  # a line that ends with one of these may be answered by the next line
_YES_OR_NO = re.compile(
    r"(?:(?:a|answer|antwort) ?[:：.)] ?)?"
    r"(?:absolutely|definitely|certainly|of course|exactly|not at all|by no means|never|nope|sure|surely"
    r"|yes|no|yep|yeah|indeed|correct|true|false|right|wrong|ja|nein|doch|oui|non|si|sí|sì|sim|não|nee|tak|nie"
    r"|да|нет|はい|いいえ|是的?|不是|نعم|لا|हाँ|नहीं)(?!\w)",
    re.IGNORECASE,
)
_ECHO = re.compile(  # "Of course she was.", "She did not."
    rf"(?:{_YES_OR_NO.pattern}[,.!]? )?(?:he|she|it|they|there)"
    r"(?: (?:certainly|definitely|indeed|really|surely))? "
    r"(?:is|are|was|were|has|have|had|do|does|did|can|could|will|would)(?:n['’]t| not| never| indeed)?[.!]?",
    re.IGNORECASE,
)
_YOU_AND_I = re.compile(r"\b(?:you|i|we|me|this|that|sie|du|vous|tu|usted|ready|clear)\b", re.IGNORECASE)
_HERE = re.compile(r"^(?:\w+[,!] )?here(?:'s|’s| is| are) ", re.IGNORECASE)


def _labelled(row: str, columns: list[str]) -> str:
    """A row with the names of its columns, unless they do not fit or make it a remark on the text."""
    own = cells(row)
    labelled = in_words(zip(columns, own, strict=False)) if len(own) == len(columns) else ""
    return row if not labelled or speaks_of_itself(labelled) else labelled


def _introducing(line: str) -> str:
    """The line that introduces a list, shortened: "Here are the causes:" becomes "The causes:"."""
    opening = _HERE.sub("", line[:-1]).rstrip() + ":"
    return opening[:1].upper() + opening[1:]


def _is_value_of(label: str, seen: str) -> bool:
    """Whether `seen` is the value of the label before it: "Birthplace:" and "Paris", "Where?" and "Paris"."""
    echo = _ECHO.fullmatch(seen) is not None
    if not label or not seen or seen[-1] in _AWAITS_VALUE or " | " in seen or not (echo or is_bare(seen)):
        return False
    if label[-1] in "?？؟":
        certain = has_value(label) or not (
            _YOU_AND_I.search(label) or (len(label.split()) < 4 and label.isascii())
        )
        return len(label) <= 200 and (certain if echo or _YES_OR_NO.match(seen) else asks(label))
    return is_bare(label) and (label.endswith((":", "：")) or (has_value(seen) and " | " not in label))


# -- Wrappers: openings that name nobody or only the writer.  "Some people say that the Moon is made of
# -- cheese" is true whatever the Moon is made of, so a policy could wrap false claims that way and never be
# -- wrong (reliability, D15 and R8).  A named source is kept ("According to NASA, …"), and so is a wrapper
# -- that denies what follows ("Some people wrongly believe …").

_THAT = r"(?: that)?,? "
_ADVERB = (
    r"(?:(?:also|often|sometimes|commonly|generally|widely|frequently|usually|now|strongly|really|firmly) )?"
)
_WRAPPERS = re.compile(
    r"(?:"
    rf"(?:some|others|many|most|several|certain|other|various|a few|a lot of|lots of|numerous)"
    rf"(?: (?:people|scholars|sources|experts|historians|scientists|researchers|critics|observers|reports))?"
    rf"(?: (?:would|might|may|will))? {_ADVERB}"
    rf"(?:say|claim|believe|think|argue|suggest|hold|report|state|maintain|assert){_THAT}"
    rf"|(?:people|sources|reports|rumou?rs|legends?|experts) {_ADVERB}"
    rf"(?:say|claim|believe|think|suggest|have it){_THAT}"
    rf"|(?:it is|it's|it has been) {_ADVERB}"
    rf"(?:said|believed|claimed|thought|reported|rumou?red|known|accepted|considered|assumed|alleged|held|stated){_THAT}"
    r"|(?:reportedly|allegedly|supposedly|apparently|purportedly|seemingly),? "
    r"|(?:according to|as) (?:some|many|several|various|certain|most|unnamed)"
    r"(?: (?:people|sources|experts|reports|accounts|scholars|historians|scientists|say|claim)){1,2}, "
    rf"|(?:i|we) {_ADVERB}(?:think|believe|guess|suppose|feel|assume|reckon|know|recall|remember"
    rf"|am sure|am certain|am confident|would say|can say|can confirm){_THAT}"
    r"|(?:in my (?:view|opinion)|to my knowledge|as far as i know|from what i (?:know|recall|remember)), "
    rf"|(?:please )?(?:note|remember|recall|keep in mind|bear in mind|be aware) that "
    rf"|it is (?:important|worth|interesting|essential|useful|also worth)"
    rf" (?:to (?:note|mention|remember|know|add|say)|noting|mentioning|remembering|adding){_THAT}"
    rf"|it should be (?:noted|mentioned|remembered|added){_THAT}"
    r"|(?:sure|certainly|of course|absolutely|yes|well|okay|indeed|to be clear|to be honest)[,!:] "
    r"){1,3}",
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\b(?:but|however|although|though|myth|false|falsely|wrongly|mistakenly|incorrectly|erroneously|untrue"
    r"|misconception|not true|in reality|in fact|actually|while others)\b",
    re.IGNORECASE,
)


def unwrapped(text: str) -> int:
    """The place in a sentence at which its claim begins, after its wrappers.

    0 if there is no wrapper, if the sentence denies what it wraps, or if the rest is too short for a
    sentence.
    """
    match = None if _TURNS.search(text) else _WRAPPERS.match(text)
    start = match.end() if match else 0
    return start if text[start:].count(" ") > 1 and text[start : start + 1].isalnum() else 0


# -- Words

ARTICLES = frozenset({"a", "an", "the"})
_CAPITALS = STOP_WORDS | {"us"}  # words that are names if written in capitals: "US", "IT", "WHO"
_PIECE = re.compile(r"(?<!\w)[-+](?=\d)|\d[\d.,]*|[^\W\d_](?:[^\W_]|')*|[#%$€£¥^<>=+]")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3}){1,9}")
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@lru_cache(maxsize=1_024)
def normalised(text: str) -> str:
    """The claim in a normal spelling, by which repeats are found: equal results mean the same words.

    Typography is unified (NFKC); case, punctuation and articles are removed.  Numbers keep their value
    (`1,000` is `1000`, but `1.5`, `-5` and `50%` keep their signs), short names in capitals keep their case
    (`US` is not `us`), and a letter that is a name stays (`Vitamin A`).  Reads `MAX_PAYLOAD` characters.
    """
    return " ".join(_pieces(text)) or clean(text).casefold()


@lru_cache(maxsize=1_024)
def content_words(text: str) -> frozenset[str]:
    """The words that carry the meaning, in their base form: names, numbers, nouns, verbs, negations.

    Chinese and Japanese text gives pairs of characters, since nothing marks where a word ends.

    >>> sorted(content_words("She won the prizes")), sorted(content_words("win a prize"))
    (['priz', 'win'], ['priz', 'win'])
    """
    words: set[str] = set()
    for piece in _pieces(text.replace("-", " ").replace("’s ", " ").replace("'s ", " ")):
        if _SPACELESS.search(piece):
            words.update(piece[i : i + 2] for i in range(max(1, len(piece) - 1)))
        elif piece.lower() not in STOP_WORDS:
            word = piece.lower()
            words.add(str(CARDINALS[word]) if word in CARDINALS else stem(word))
    return frozenset(words)


def _pieces(text: str) -> list[str]:
    text = clean(text)
    shouting = text.isupper()
    pieces: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece[0].isdigit():
            piece = "".join(str(unicodedata.decimal(char, char)) for char in piece).rstrip(".,")
            if _THOUSANDS.fullmatch(piece):
                piece = piece.replace(",", "")
        elif piece.isupper() and not shouting and len(piece) > 1 and piece.lower() in _CAPITALS:
            pass
        elif piece.lower() in ARTICLES and (piece != "A" or not pieces):
            continue
        else:
            piece = piece.replace("'", "").casefold()
        pieces.append(piece)
    return pieces


# -- Which claims are skipped


def mark(claims: Iterable[Claim], question: str = "") -> list[Claim]:
    """The claims in order, with `skip` set on those that are not to be judged; an earlier `skip` stays.

    - `self`: it speaks of this text, its author, its grader or its instructions, and says nothing else.
    - `unverifiable`: a question, an announcement, a sentence about "I", or a greeting, if it has no value;
      or a sentence that begins with "perhaps" and has no other clause.
    - `question`: every content word of it is in the question.  A question that asks whether something is so,
      or which of several, does not count, as it asserts nothing.
    - `repeat`: an earlier claim is equal after `normalised`.  A verifier judges it nevertheless where a name
      in between may have given it another subject.
    """
    given = content_words(question) if question and not _LEAVES_OPEN.search(question) else frozenset()
    seen: set[str] = set()
    marked: list[Claim] = []
    for claim in claims:
        skip = claim.skip
        if skip is None and speaks_of_itself(claim.text, question) and not _says_more(claim.text):
            skip = "self"
        if skip is None and _is_unverifiable(clean(claim.text).lstrip("\"'([")):
            skip = "unverifiable"
        if skip is None and given and len(words := content_words(claim.text)) > 1 and words <= given:
            skip = "question"
        if skip is None and len(claim.text) <= MAX_PAYLOAD:
            spelling = normalised(claim.text)
            skip = "repeat" if spelling in seen else None
            seen.add(spelling)
        marked.append(claim if skip == claim.skip else replace(claim, skip=skip))
    return marked


# Questions that ask whether something is so, or which of several: they assert nothing.
_LEAVES_OPEN = re.compile(
    r"(?:^|[.!?:;,]\s{1,4})(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must)\b"
    r"|\b(?:or|whether|true|false|correct|verify|check|which of|which one|among|between|either)\b"
    r"|吗|嗎|是否|还是|還是|是不是|哪一|か[?？]|でしょうか",
    re.IGNORECASE,
)

_REPLY = (
    r"(?:answers?|responses?|reply|replies|texts?|completions?|outputs?|messages?|essay|summary|explanation)"
)
_SAYINGS = r"(?:claims?|statements?|facts?|answers?|responses?|assertions?|sentences?|information|details)"
_TRUE = (
    r"(?:true|correct|accurate|verified|supported|factual|reliable|right|false|incorrect|wrong|unsupported)"
)
# Where the claims of a text itself stand: "in this text", "of the answer above".
_OWN = (
    rf"(?:(?:the|this|these|that|my|our|your|its) )?(?:\w+ )?(?:above|below|following|{_REPLY}|{_SAYINGS}"
    r"|list|context|passages?|paragraphs?|documents?|evidence|page|assistant|author|me|mine|us|this|it|them|here)\b"
)
# What stands before an order: not whoever does it, as in "Teachers grade each essay".
_ORDERED = (
    r"(?:^|[^\w\s'’] ?|\b(?:please|just|kindly|simply|now|then|and|or|to|not|never|always|only|let us"
    r"|(?:you|judges?|judging) (?:must|should|shall|will|can|may|have to|need to)) )"
)
_SELF = re.compile(
    "|".join(
        (
            rf"\b(?:this|my|our|the above|the present|the preceding) (?:whole |entire |final |own )?{_REPLY}"
            rf" (?!(?:is|was|would be|will be|{PAST}) (?!(?:\w+ ){{0,2}}{_TRUE}))\w",
            rf"\b(?:all|every|each|both|these|the|any|following|above)(?: of)?"
            rf"(?: the| these| those| my| your)? (?:\w+ ){{0,3}}{_SAYINGS} (?!that )"
            rf"(?!(?:of|by|from|against|in|on|at) (?!{_OWN}))(?:\w+ ){{0,4}}"
            rf"(?:is|are|was|were|be|been) (?:\w+ ){{0,2}}{_TRUE}\b",
            r"\bthe only (?:\w+ ){0,2}(?:claim|fact|statement)s?\b.{0,40}\b(?:is|are)\b",
            rf"{_ORDERED}(?:ignore|disregard|forget|override|bypass) (?:\w+ ){{0,4}}"
            r"(?:instructions?|rubrics?|rules|prompts?|guidelines|evidence|claims?|criteria)\b",
            rf"(?:{_ORDERED}|\b(?=\w+ (?:\w+ ){{1,4}}as (?:\w+ )?{_TRUE}\b))"
            r"(?:mark|rate|label|score|grade|classify|count|treat|accept|judge|report|extract|output|verify)"
            rf" (?:this|these|it|them|all|no|only|(?:every|each)(?= one| of| (?:\w+ ){{0,2}}{_SAYINGS})"
            r"|the (?:following|above|answer|response|claims?|text))\b",
            r"\b(?:dear|attention|note to(?: the)?|hey|hello)"
            r" (?:judge|grader|evaluator|reviewer|examiner|verifier)\b",
            rf"\bjudges? (?:should|must|shall|will|has to|have to|is asked|is told|are asked)\b.{{0,60}}"
            rf"\b(?:{_SAYINGS}|{_TRUE}|(?:this|it|full|maximum|top|high|highest)\b.{{0,30}}\b(?:scores?|points))\b",
            rf"\bverdict\b.{{0,20}}\b{_TRUE}\b",
            r"\b(?:I am|I'm|as) (?:only |just )?an? "
            r"(?:AI|artificial intelligence|large language|language) ?(?:model|assistant|system)?\b",
            r"^\W*no (?:verifiable |atomic )?(?:claims?|facts?)(?: found)?\W*$",
            r"忽略.{0,12}(?:指令|指示|规则|提示)|(?:所有|以上|全部).{0,6}(?:陈述|声明|事实|说法|内容).{0,6}(?:正确|属实|真实)|评分(?:员|者|标准)",
        )
    ),
    re.IGNORECASE,
)  # fmt: skip
_GRADERS = re.compile(
    r"\b(?:graders?|evaluators?|rubrics?|fact[- ]?checkers?|(?:AI|LLM) judges?|verifiers?|system prompt"
    r"|(?:grading|scoring|evaluation) (?:criteria|instructions|guidelines|scheme|prompt))\b",
    re.IGNORECASE,
)


def speaks_of_itself(text: str, question: str = "") -> bool:
    """Whether a sentence is about this text, about whoever grades it or about their instructions.

    A grader may be mentioned when the question is about graders.
    """
    text, whole = CHAT_TOKEN.sub(" ", clean(text)), clean(text)
    if _SELF.search(text) or forges(text) or (text != whole and not any(map(str.isalnum, text))):
        return True
    grader = _GRADERS.search(text)
    return grader is not None and grader[0].lower()[:5] not in question.lower()


def _says_more(text: str) -> bool:
    """Whether a sentence that speaks of the text itself also states something about the world."""
    rest = " ".join(_SELF.sub(" ", CHAT_TOKEN.sub(" ", clean(text))).split())
    if has_value(rest) and has_predicate(rest):
        return True
    return _SAYS_THAT.search(rest) is not None and not re.search(rf"\b{_TRUE}\b", rest, re.IGNORECASE)


# A clause with a subject and a predicate that follows talk: "I'm not sure, but the mayor is in jail."
_ABOUT = (
    rf"(?:question|topic|{_REPLY}|{_SAYINGS}|context|passages?|documents?|evidence|sources?|data|above|following"
    r"|search|results?|graders?|judges?|rubrics?|best|next|key)\b"
)
_CLAUSE = (
    rf"(?:(?!I['’]|You\b|We\b)(?-i:[A-ZÀ-Þ][\w'’-]+)"
    rf"|(?:the|an?|his|her|its|their|these|those|our) (?!(?:\w+ ){{0,2}}{_ABOUT}))"
    r"(?:[\w'’-]+ ){0,6}?"
)
_IS = (
    r"(?:is|are|was|were|has|had|(?:is|are|was|were|has|had|do|does|did)n['’]t|never|can|will|\w{2,20}ed|won|wrote"
    r"|stole|took|left|lost|died|runs|owns|lives|costs)\b(?! (?:unclear|clear|possible|available|unknown)\b)"
)
_ADVISES = (
    r"(?:good|great|my|your|not|hard|best|better|important|essential|crucial|vital|necessary|recommended"
    r"|advisable|helpful|useful|worth|possible|likely|always|also|okay|ok|wise|difficult)\b"
)
_SAYS_THAT = re.compile(rf"\bthat {_CLAUSE} ?{_IS}", re.IGNORECASE)
_SAYS = re.compile(
    rf"(?:[,!;:—-] ?(?:but |and |so |as |because |since )?|\b(?:but|because) ){_CLAUSE} ?{_IS}"
    rf"|[,!;:—-] ?(?:but |and |so )?(?:he|she|they|it) (?!(?:is|was) (?:an? )?{_ADVISES}){_IS}"
    r"|^(?!not\b)[^,;:]{0,12}\b(?<!not )(?:sorry|afraid|glad|happy|pleased|sad|sure|remember|recall|note"
    rf"|forget|repeat|say|add|tell you|assure you|confirm)(?: that)? {_CLAUSE} ?{_IS}",
    re.IGNORECASE,
)


# Openings of talk with the reader; the sentence may still state something.  After the first kind it needs a
# predicate and a value to count as a claim, after the second (`number`) a number is enough, and after the
# third (`value`) any value.
_TALK = re.compile(
    r"(?:hello|hi(?!-)|hey|thank you|thanks|you're welcome|good luck|of course|no problem|my pleasure"
    r"|(?:i'm )?(?:happy|glad) to|you got it|sounds good|best of luck|take care|have an? (?:great|nice|good)"
    r"|(?:that's |what )?an? (?:great|good|interesting|excellent) question|(?:great|good) question"
    r"|sure thing|(?:(?:wait|ok|okay|alright|so|now|well|first|next|finally),? )?(?:let me|let us|let's)"
    r"|feel free|here (?:is|are)|here's"
    r"|(?:i )?hope (?:this|that|it|these|you|the|my)"
    r"(?:[^,;:]{0,40} (?:helps?|gives?|answers?|clears?|is|was|finds?))?|i hope"
    r"|(?:if )?you(?:'d| would) (?:like|want|prefer))\b"
    r"|(?P<number>(?-i:[Pp]lease (?=[a-z]))|(?:consider|try to|remember to|make sure)\b"
    r"|(?-i:I(?:'m|'ve|'d|'ll| [a-z]+(?:n't)?)\b|[Mm]y (?!(?:final |short )?answer)(?=[a-z]))"
    r"|we (?:hope|will|should|must|need|want|discuss|recommend|suggest)\b"
    r"|(?:if )?you (?:may|might|should|could|can|will) (?:also )?"
    r"(?:want|wish|like|prefer|check|consult|contact|visit|see|try|consider|refer|read|ask|look|search|find)\b)"
    r"|(?P<value>(?:if )?you(?:'ll|'re|'d)? ?"
    r"(?:can|could|should|may|might|must|need|will|want|would|have|are)\b|we (?:think|believe|know))\b",
    re.IGNORECASE,
)
# Openings of a sentence that commits to nothing: as a claim it could not be wrong.
_HEDGES = re.compile(
    r"(?:(?:maybe|perhaps|possibly|presumably)\b|it(?:'s| is) possible\b"
    r"|it (?:may|might|could) (?:well )?be\b"
    r"|(?:this|that|he|she|they) (?:may|might|could) (?:well |also )?(?:be|have been)\b)",
    re.IGNORECASE,
)


def hedges(sentence: str) -> bool:
    """Whether a sentence begins by committing to nothing; it is no claim, and `verify --strict` fails on it.

    >>> hedges("Perhaps she was born in 1868."), hedges("She was born in 1868, perhaps.")
    (True, False)
    """
    return _HEDGES.match(sentence) is not None


_CONDITION = re.compile(
    r"\b(?:(?:if|whether|when|whenever|that) (?:you|there|i|any\w*)"
    r"|(?:know|sure|certain|say|tell you|confirm|determine)"
    r" (?:if|whether|when|where|who|what|which|how|why))\b[^,.;:]{0,200}",
    re.IGNORECASE,
)
# A question that asserts: "Did you know that …?", "…, right?"
_ASSERTS = re.compile(
    r"^(?:did you know|isn't it|what if i told you|who knew|who would have thought|can you believe)"
    r" (?!(?:how|why|what|when|where|who|which|whether)\b).{0,60}\b(?:that|is|are|was|were|has|had|have)\b"
    r"|^\W{0,3}(?:(?:a|а) )?(?:wussten sie|wusstest du|wusstet ihr|saviez[- ]vous|savais[- ]tu|tu savais"
    r"|vous saviez|sab[ií](?:as?|an|ais)|(?:lo )?sapev(?:[ai]|ate)|você sabia|vocês sabiam|wist (?:je|u)"
    r"|visste du|vidste du|(?:вы )?знали(?: ли вы)?|знаете ли вы|czy wiesz)(?: usted(?:es)?| schon)?,? "
    r"?(?:dass|que|qu['’]|che|dat|att|at|что|że)"
    r"|, (?:right|correct|yes|no|ok(?:ay)?|oder|nicht wahr|n'est-ce pas"
    r"|(?:is|was|are|were|do|does|did|has|have|had|can|could|would|wo)n't (?:it|he|she|they|you|we))\?$",
    re.IGNORECASE,
)


_DECLINES = 0.85  # from this abstention score on a sentence is no claim


_SMILEY = re.compile(r"\s[:;=]['’]?-?[)(\]DPpOo|/*3]{1,5}$")  # such a colon introduces nothing
# The single words that are values: "$99", "95%", "1950-2001", "gluten-free".
_ONE_VALUE = re.compile(
    r"[$€£¥]\d|\d[\d.,]*(?:-\d|[%°€$£]|(?:k?m|kg|[ap]m)\b)|\d{3,}\W?$|([a-z]{3,20})-(?!\1)[a-z]{3,20}\W?$",
    re.IGNORECASE,
)


def _is_unverifiable(seen: str) -> bool:
    seen = _SMILEY.sub("", seen)
    bare = seen.rstrip(" \"'”’»)]}*_」』）】")
    quoted = '"' in seen[:-1] and seen[-1:] in "\"'”’»」"  # a title may end in "?"
    if bare.endswith(("?", "？", "؟")) and not quoted and not _ASSERTS.search(bare):
        return True
    talk = _TALK.match(seen)
    if bare.endswith((":", "：")) and not quoted:
        return talk is not None or _LEADS_IN.search(bare) is not None or not _has_statement(bare[:-1])
    if hedged := _HEDGES.match(seen):
        return _SAYS.search(seen[hedged.end() :].lstrip(" ,")) is None
    if talk is not None:
        rest = _CONDITION.sub("", seen[talk.end() :])
        denied = "not" if talk[0].endswith(("n't", "not")) or rest.startswith("'t ") else ""
        if not _has_statement(rest, talk) and not _SAYS.search(denied + rest):
            return True
    if is_contentless(seen):
        return True
    words = re.findall(r"[^\W_][\w'’-]*", seen[:400])
    if len(words) <= 1 and seen.isascii() and not _ONE_VALUE.match(seen):
        return True
    stated = stance(seen, strict=True) if len(seen) <= 400 else None
    return stated is not None and stated.abstains and stated.score >= _DECLINES


# A line that ends with a colon and leads to what is below it.
_LEADS_IN = re.compile(
    r"\b(?:i|we|you|let|here|now|follow(?:s|ing)?|below|these|those|include|includes|including|equation)\b"
    r"|\b(?:are|is|were|was|as|so|thus|that|get|with|by|of|in|for)\W*$",
    re.IGNORECASE,
)


def _has_statement(rest: str, talk: re.Match[str] | None = None) -> bool:
    """Whether the words have a value and a predicate; after some kinds of talk a value is enough."""
    rest = f"x{rest}"  # the x stands for a subject, so that a capital after it is a name
    if not has_value(rest) or len(rest.split()) < 3:
        return False
    enough = talk is not None and (talk["value"] or (talk["number"] and has_number(rest)))
    return bool(enough) or has_predicate(rest) or re.search(r"[:：] ?\S", rest) is not None
