"""The claims that a text makes, each with its place in the text.

An extractor is a callable that takes a text.  There are two: `SentenceClaims` takes every sentence as a
claim, and `LLMClaims` (`factrl.verifier.claims.llm`) asks a language model for atomic claims.

In doubt a claim is judged: judging it needlessly costs a call, but skipping it wrongly could hide a false
statement.  What is not judged has a `skip`, stays in the list, and is shown by a report:

- a title, or a heading of up to four words: it names what follows, and no document could say it; it is left
  out of the list, and a report shows it among what was not read;
- `unverifiable`: a question that ends in "?", as it asserts nothing; a line that ends in ":", as what follows
  says it; one word alone, such as "Hello!"; talk with the reader ("I hope this helps") without a name,
  a number or a clause about somebody else; a sentence that opens with "perhaps" and has no other clause, as
  it commits to nothing; what only names a source, as a link or a line of a list of references does;
- `question`: every content word of it is in the question, unless that asks whether something is so;
- `repeat`: the words of an earlier claim, as one falsehood is not two;
- `self`: instructions to a grader, and verdicts about "all claims" ("As an AI language model, …"): they must
  never reach a judge as claims (reliability, C1 rule 4 and D36).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from factrl.llm.quoting import forges
from factrl.text import CHAT_TOKEN, MAX_PAYLOAD, clean
from factrl.text.abstention import abstention_score
from factrl.text.sentences import sentences
from factrl.text.words import CARDINALS, STOP_WORDS, stem
from factrl.types import Claim, Skip
from factrl.verifier.pieces import cells, in_words, level_of, plain

from .stating import PAST, has_predicate, has_value, heads_sources, names_source

__all__ = ["Extractor", "SentenceClaims", "content_words", "hedges", "mark", "normalised", "statements"]


Extractor: TypeAlias = "Callable[..., list[Claim] | Awaitable[list[Claim]]]"
"""Takes (text, question, topic) and returns the claims in order.  An unknown question or topic is empty, and
an empty text has no claims.  If it fails it raises `Unscored`; it never returns a part of the claims."""


class SentenceClaims:
    """Takes every sentence, list item and table row as one claim, and headings of more than four words.

    The words stay as they are.  Only markup and citation marks are removed, and phrases that say vaguely who
    claims it: "Some people say that X", "I think X" and "Note that X" all claim X.  A list item gets the line
    that introduces its list ("Her books were:"), and a bare value gets its label ("Birthplace:" before
    "Paris" on the next line).

    Attributes:
        identity: changes with whatever changes the claims.
    """

    identity = "sentences/9"

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


_TITLE = 4  # words of a heading that is no claim


def statements(text: str) -> list[Statement]:
    """The parts of `text` that may state something, in order.

    Code and reasoning are left out, and headings of up to `_TITLE` words.
    """
    units: list[Statement] = []
    lead, label = "", (-1, "")  # the line that introduces a list, or a bare value and where that begins
    sources = False
    columns: list[str] = []  # of the table that a row stands in
    parts = sentences(text)
    for number, (unit, below) in enumerate(zip(parts, [*parts[1:], None])):  # noqa: B905
        seen = plain(text[unit.start : unit.end])
        heading = unit.kind == "heading" or level_of(text, unit, below, first=number == 0) > 0
        if unit.kind == "row":
            seen = _labelled(seen, columns)
        else:
            columns = cells(seen) if unit.kind == "heading" and " | " in seen else []
        sources = heads_sources(seen) or (sources and not heading)
        value = (
            label[1] and unit.kind != "row" and len(seen.split()) <= _BARE and seen[-1:] not in _AWAITS_VALUE
        )
        words = len(seen.split()) + len(_SPACELESS.findall(seen)) // 2
        titles = heading and words <= _TITLE and not value
        if not seen or unit.kind in ("code", "reasoning") or titles or (heading and " | " in seen):
            lead, label = "", ((unit.start, seen) if titles and seen[-1:] in _AWAITS_VALUE else (-1, ""))
            continue
        skip: Skip | None = (
            "unverifiable" if heads_sources(seen) or names_source(seen, listed=sources) else None
        )
        context, start = lead if unit.kind == "item" else "", unit.start
        if value and not context and skip is None:
            start, context = label[0], label[1].rstrip(":： ") + ("" if label[1][-1] in "?？؟" else ":")
        units.append(Statement(seen, start, unit.end, number, context, skip))
        if seen[-1] in _AWAITS_VALUE:
            label = unit.start, seen
            lead = _introducing(seen) if seen[-1] in ":：" and unit.kind != "item" else ""
        else:
            label = -1, ""
            lead = lead if unit.kind == "item" else ""
    return units


_AWAITS_VALUE = ":：?？؟"  # a line that ends with one of these may be answered by the next line
_BARE = 4  # words of a value that says something only beside its label
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
    return frozenset(_content(text))


def _content(text: str) -> Iterator[str]:
    for piece in _pieces(text.replace("-", " ").replace("’s ", " ").replace("'s ", " ")):
        if _SPACELESS.search(piece):
            yield from (piece[i : i + 2] for i in range(max(1, len(piece) - 1)))
        elif (word := piece.lower()) not in STOP_WORDS:
            yield str(CARDINALS[word]) if word in CARDINALS else stem(word)


def _pieces(text: str) -> Iterator[str]:
    text = clean(text)
    shouting, opens = text.isupper(), True
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece[0].isdigit():
            piece = "".join(str(unicodedata.decimal(char, char)) for char in piece).rstrip(".,")
            if _THOUSANDS.fullmatch(piece):
                piece = piece.replace(",", "")
        elif piece.isupper() and not shouting and len(piece) > 1 and piece.lower() in _CAPITALS:
            pass
        elif piece.lower() in ARTICLES and (piece != "A" or opens):
            continue
        else:
            piece = piece.replace("'", "").casefold()
        opens = False
        yield piece


# -- Which claims are skipped


def mark(claims: Iterable[Claim], question: str = "") -> list[Claim]:
    """The claims in order, with `skip` set on those that are not to be judged; an earlier `skip` stays.

    A repeat is judged by a verifier nevertheless where a name in between may have given it another subject.
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
        if skip is None and given and all(word in given for word in _content(claim.text)):
            skip = "question" if len(content_words(claim.text)) > 1 else None
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
    return has_value(rest) and has_predicate(rest)


_TALK = re.compile(
    r"(?:(?:wait|ok|okay|so|now|well|first|next|finally),? (?=let))?"
    r"(?:i|i'm|i've|i'd|i'll|my|let me|let us|let's|thank you|thanks|hello|hi|hey|feel free|good luck"
    r"|(?:what a |that's a )?(?:great|good) question|here (?:is|are)|here's|(?:happy|glad) to|hope|sorry|sure"
    r"|of course|(?:unfortunately|however|but|so|well),? i|please (?:let|ask|feel|contact|provide|note)"
    r"|(?:if )?you (?:have|need|want|would like|may want|can ask)|we hope|ich|je)\b(?!-)",
    re.IGNORECASE,
)
# The single words that are values: "$99", "95%", "1950-2001", "gluten-free".
_ONE_VALUE = re.compile(
    r"[$€£¥]\d|\d[\d.,]*(?:-\d|[%°€$£]|(?:k?m|kg|[ap]m)\b)|\d{3,}\W?$|([a-z]{3,20})-(?!\1)[a-z]{3,20}\W?$",
    re.IGNORECASE,
)
_DECLINES = 0.85  # from this abstention score on a sentence is no claim
# A question that asserts: "Did you know that …?", "…, right?"
_ASSERTS = re.compile(
    r"^(?:did you know|isn't it|what if i told you|who knew|can you believe)\b(?=\W+\w)"
    r"(?! (?:how|why|what|when|where|who|if))"
    r"|^\W{0,3}(?:wuss?ten? sie|wusstest du|saviez[- ]vous|savais[- ]tu|sab[ií]as?|sapev[ai]|você sabia"
    r"|wist je)\b(?=\W+\w)|, (?:right|correct|yes|no|ok(?:ay)?|oder|nicht wahr|n'est-ce pas"
    r"|(?:is|was|are|were|do|does|did|has|have)n't (?:it|he|she|they|you|we))\?$",
    re.IGNORECASE,
)


# Openings of a sentence that commits to nothing: as a claim it could not be wrong.
_HEDGES = re.compile(
    r"(?:(?:maybe|perhaps|possibly|presumably)\b|it(?:'s| is) possible\b"
    r"|it (?:may|might|could) (?:well )?be\b"
    r"|(?:this|that|he|she|they) (?:may|might|could) (?:well |also )?(?:be|have been)\b)[^,;:]*$",
    re.IGNORECASE,
)


def hedges(sentence: str) -> bool:
    """Whether a sentence of one clause begins by committing to nothing; `verify --strict` fails on it.

    >>> hedges("Perhaps she was born in 1868."), hedges("She was born in 1868, perhaps.")
    (True, False)
    """
    return _HEDGES.match(sentence) is not None


def _is_unverifiable(seen: str) -> bool:
    """Whether a sentence asserts nothing that a document could say."""
    bare = seen.rstrip(" \"'”’»)]}*_」』）】")
    quoted = '"' in seen[:-1] and seen[-1:] in "\"'”’»」"  # a title may end in "?"
    if bare.endswith(("?", "？", "؟")) and not quoted:
        return not _ASSERTS.search(bare)
    if seen.rstrip(" *_").endswith((":", "：")):
        return not (has_value(bare[:-1]) and has_predicate(bare))
    words = re.findall(r"[^\W_][\w'’-]*", seen[:400])
    if len(words) <= 1 and seen.isascii() and not _ONE_VALUE.match(seen):
        return True
    if hedges(seen):
        return True
    if talk := _TALK.match(seen):
        rest = f"x{seen[talk.end() :]}"
        return not has_value(rest) and (not has_predicate(rest) or abstention_score(seen) >= _DECLINES)
    return False
