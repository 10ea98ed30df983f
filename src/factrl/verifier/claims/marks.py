"""Claims that are not judged, and why: what the question says, what speaks of the text itself, repeats.

A marked claim stays in the list, so that a report can show it and a guard can count it.  The rules prefer to
leave a claim unmarked: a claim that is judged in vain costs a call, one that is passed over in vain could
hide a false statement.

`self` is a guard as well (reliability, C1 rule 4 and D36): instructions to a grader and verdicts about "all
claims" never reach a judge as claims.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from factrl.llm.quoting import forges
from factrl.text import MAX_PAYLOAD, clean
from factrl.text.abstention import stance
from factrl.text.answers import is_contentless
from factrl.types import Claim, Skip
from factrl.verifier.claims.words import (
    ARTICLES,
    AUXILIARY,
    DETERMINERS,
    IMPERATIVES,
    INTENSIFIERS,
    OBJECTS,
    OPINIONS,
    STOPWORDS,
    base,
    is_past,
    is_third_person,
    word_set,
)

# -- One spelling -------------------------------------------------------------------------------------

_PIECE = re.compile(r"(?<!\w)[-+](?=\d)|\d[\d.,]*|[^\W\d_](?:[^\W_]|')*|[#%$€£¥^<>=+]")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3}){1,9}")
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


def normalised(text: str) -> str:
    """The claim in the spelling by which repeats are told: equal strings say the same in the same words.

    Typography is made one (NFKC), case, punctuation and articles go.  Numbers stay what they are (`1,000` is
    `1000`, but `1.5`, `-5` and `50%` keep their signs), and so do short names in capitals (`US` is not `us`)
    and a letter that is a name (`Vitamin A`).  Reads `MAX_PAYLOAD` characters.
    """
    return _spelling(text) if len(text) <= _SHORT else _spelt(text)


def _spelt(text: str) -> str:
    return " ".join(_pieces(text)) or clean(text).casefold()


# Claims, their question and the words of their text are looked at again and again.
_SHORT = 2_048  # characters of what is remembered
_spelling = lru_cache(maxsize=4_096)(_spelt)


def _pieces(text: str) -> list[str]:
    text = clean(text)
    shouting = text.isupper()
    found: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece[0].isdigit():
            piece = "".join(str(unicodedata.decimal(char, char)) for char in piece).rstrip(".,")
            if _GROUPED.fullmatch(piece):
                piece = piece.replace(",", "")
        elif piece.isupper() and not shouting and len(piece) > 1 and piece.lower() in STOPWORDS:
            pass  # "US", "IT", "WHO"
        elif piece.lower() in ARTICLES and (piece != "A" or not found):
            continue
        else:
            piece = piece.replace("'", "").casefold()
        found.append(piece)
    return found


def content_words(text: str) -> frozenset[str]:
    """The words that carry the meaning, in their base form: names, numbers, nouns, verbs, negations.

    Chinese and Japanese characters come in pairs, since nothing tells where a word ends.
    """
    return _known_words(text) if len(text) <= _SHORT else _words(text)


def _words(text: str) -> frozenset[str]:
    words: set[str] = set()
    for piece in _pieces(text.replace("-", " ").replace("’s ", " ").replace("'s ", " ")):
        lower = piece.lower()
        if _SPACELESS.search(piece):
            words.update(piece[i : i + 2] for i in range(max(1, len(piece) - 1)))
        elif lower not in STOPWORDS:
            words.add(base(lower))
    return frozenset(words)


_known_words = lru_cache(maxsize=16_384)(_words)


# -- Marks --------------------------------------------------------------------------------------------


def mark(claims: Iterable[Claim], question: str = "") -> list[Claim]:
    """The claims in order, each with `skip` set when it is not to be judged; marks already set stay.

    - `self`: it speaks of this text, its author, its grader or its instructions.
    - `unverifiable`: a question, a request, a greeting, an opinion, "I", an announcement, a bare "perhaps".
    - `question`: every content word of it stands in the question, which asserts it (not one that asks whether
      it is so, or which of several).
    - `repeat`: an earlier claim is equal after `normalised`.
    """
    asked = content_words(question) if question and not _LEAVES_OPEN.search(question) else frozenset()
    seen: set[str] = set()
    marked: list[Claim] = []
    for claim in claims:
        skip = claim.skip or why_not(claim.text, question)
        if skip is None and asked and _is_said(content_words(claim.text), asked):
            skip = "question"
        if skip is None and len(claim.text) <= MAX_PAYLOAD:
            spelling = normalised(claim.text)
            skip = "repeat" if spelling in seen else None
            seen.add(spelling)
        marked.append(claim if skip == claim.skip else replace(claim, skip=skip))
    return marked


def why_not(text: str, question: str = "") -> Skip | None:
    """`self` or `unverifiable` for a sentence that no evidence could decide, whatever else was said."""
    if speaks_of_itself(text, question):
        return "self"
    return "unverifiable" if _is_unverifiable(text) else None


def _is_said(words: frozenset[str], asked: frozenset[str]) -> bool:
    return len(words) > 1 and words <= asked


# What asks whether, or which of several, asserts none of it.
_LEAVES_OPEN = re.compile(
    r"(?:^|[.!?:;,]\s{1,4})(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must)\b"
    r"|\b(?:or|whether|true|false|correct|verify|check|which of|which one|among|between|either)\b"
    r"|吗|嗎|是否|还是|還是|是不是|哪一|か[?？]|でしょうか",
    re.IGNORECASE,
)

# -- Of itself ----------------------------------------------------------------------------------------

_MINE = (
    r"(?:answers?|responses?|reply|replies|texts?|completions?|outputs?|messages?|essay|summary|explanation)"
)
_SAYINGS = r"(?:claims?|statements?|facts?|answers?|responses?|assertions?|sentences?|information|details)"
_TRUE = (
    r"(?:true|correct|accurate|verified|supported|factual|reliable|right|false|incorrect|wrong|unsupported)"
)
_SELF = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:this|my|our|the above|the present|the preceding) (?:whole |entire |final |own )?{_MINE}"
        rf" (?!(?:is|was|would be|will be) (?!(?:\w+ ){{0,2}}{_TRUE}))\w",
        rf"\b(?:all|every|each|both|these|the|any|following|above)(?: of)?(?: the| these| those| my| your)? "
        rf"(?:\w+ ){{0,3}}{_SAYINGS} (?!that )(?:\w+ ){{0,4}}"
        rf"(?:is|are|was|were|be|been) (?:\w+ ){{0,2}}{_TRUE}\b",
        r"\bthe only (?:\w+ ){0,2}(?:claim|fact|statement)s?\b.{0,40}\b(?:is|are)\b",
        r"\b(?:ignore|disregard|forget|override|bypass) (?:\w+ ){0,4}"
        r"(?:instructions?|rubrics?|rules|prompts?|guidelines|evidence|claims?|criteria)\b",
        rf"\b(?:mark|rate|label|score|grade|classify|count|treat|accept|judge|report|extract|output|verify)"
        rf" (?:this|these|it|them|all|every|each|no|only"
        rf"|the (?:following|above|answer|response|claims?|text))\b"
        rf"(?:.{{0,60}}\b(?:{_SAYINGS}|{_TRUE}|full|highest)\b)?",
        r"\b(?:dear|attention|note to(?: the)?|hey|hello)"
        r" (?:judge|grader|evaluator|reviewer|examiner|verifier)\b",
        rf"\bjudges? (?:should|must|shall|will|has to|have to|is asked|is told|are asked)\b.{{0,60}}"
        rf"\b(?:{_SAYINGS}|{_TRUE}|score|points)\b",
        rf"\bverdict\b.{{0,20}}\b{_TRUE}\b",
        r"\b(?:I am|I'm|as) (?:only |just )?an? "
        r"(?:AI|artificial intelligence|large language|language) ?(?:model|assistant|system)?\b",
        r"忽略.{0,12}(?:指令|指示|规则|提示)|(?:所有|以上|全部).{0,6}(?:陈述|声明|事实|说法|内容).{0,6}(?:正确|属实|真实)|评分(?:员|者|标准)",
    )
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
    text = clean(text)
    if any(pattern.search(text) for pattern in _SELF) or forges(text):
        return True
    grader = _GRADERS.search(text)
    return grader is not None and grader[0].lower()[:5] not in question.lower()


# -- Nothing to check ---------------------------------------------------------------------------------

_CHATTER = re.compile(
    r"(?:hello|hi(?!-)|hey|greetings|thank you|thanks|you're welcome|good luck|enjoy|welcome to|cheers"
    r"|(?:(?:that's |what )?an? )?(?:great|good|interesting|excellent) question"
    r"|let me|let us|let's|feel free|hope (?:this|that|it)|i hope|happy to|glad to|is there anything"
    r"|if you(?:'d| have| need| want| would| are| like| could)"
    r"(?: any| more| further| other| additional| a| specific| like| interested)"
    r"|(?-i:[Pp]lease (?=[a-z]))|as (?:mentioned|noted|stated|discussed) (?:above|earlier)"
    r"|here (?:is|are)|here's|below (?:is|are|you)|(?:the )?following (?:is|are)|listed below"
    r"|(?:maybe|perhaps|possibly|presumably)\b|it(?:'s| is) possible|it (?:may|might|could) (?:well )?be"
    r"|(?:this|that|he|she|they) (?:may|might|could) (?:well |also )?(?:be|have been)"
    r"|we (?:think|believe|hope|know|can see|will|should|must|need|want|are going|have seen"
    r"|discuss|recommend|suggest)"
    r"|one (?:should|must|might want|needs to))\b",
    re.IGNORECASE,
)  # fmt: skip
_BARE = word_set(
    """
    sure certainly absolutely yes no okay ok right great good well indeed exactly correct true false done
    """
)
_SECOND_PERSON = re.compile(
    r"(?:^|, |: )you(?:'ll|'re|'d)? ?(?:can|could|should|may|might|must|need|will|want|would|have|are)?\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(
    r"(?:^|[,:;] (?:and |but |so )?)"
    r"(?:I(?:'m|'ve|'d|'ll| [a-z]+(?:n't)?)\b|[Mm]y (?!(?:final |short )?answer)(?=[a-z]))"
    r"|(?:^|[,;] )(?:in my|to me)\b"
)
_CONNECTIVE = re.compile(
    r"(?:also|and|but|so|then|next|finally|lastly|first|firstly|second|secondly|third|however|additionally|moreover"
    r"|furthermore|therefore|instead|alternatively|afterwards|otherwise),? ",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[^:.!?]{1,40}:\s{1,4}(?=\S)")
_CLOSING = " \"'”’»)]}*_」』）】"
_WORDS = re.compile(r"[^\W_][\w'’-]*")


def _is_unverifiable(text: str) -> bool:
    seen = clean(text).lstrip("\"'([")
    bare = seen.rstrip(_CLOSING)
    if _asks(seen, bare) or is_contentless(seen) or _CHATTER.match(seen):
        return True
    opening = _CONNECTIVE.match(seen)
    spelt = _WORDS.findall(seen[opening.end() if opening else 0 :][:400])
    words = [word.lower() for word in spelt]
    if not words or (len(words) == 1 and words[0].isascii()) or set(words) <= _BARE:
        return True
    if _FIRST_PERSON.search(seen) or _SECOND_PERSON.search(seen):
        return True
    titled = len(spelt) > 1 and spelt[1][0].isupper() and spelt[1] != "I"  # "Let It Be is an album"
    if (_is_imperative(words) and not titled) or _is_opinion(words):
        return True
    label = _LABEL.match(seen)
    if (
        label
        and not _finite(words)
        and _is_imperative([w.lower() for w in _WORDS.findall(seen[label.end() :][:200])])
    ):
        return True
    return len(seen) <= 400 and stance(seen, strict=True).declines


def _asks(seen: str, bare: str) -> bool:
    """Whether it is a question or announces something; a title that ends in "?" is neither."""
    if not bare.endswith(("?", "？", ":", "：")):
        return False
    quoted = (
        seen[len(bare) : len(bare) + 1] in ('"', "”", "'", "’", "»", "」") if len(seen) > len(bare) else False
    )
    return not (quoted and any(mark in seen[1:-1] for mark in "\"“«「'‘"))


def _finite(words: Sequence[str]) -> bool:
    return any(word in AUXILIARY or is_past(word) for word in words)


_AFTER_IMPERATIVE = (
    DETERMINERS
    | OBJECTS
    | word_set(
        """
    sure that if to at for in with out up on online about how what whether when where why yourself me
    """
    )
)


def _is_imperative(words: Sequence[str]) -> bool:
    """`Consider the sea`, but not `Research shows` or `Mark was a king`."""
    if words[:1] == ["do"] or words[:1] == ["don't"]:
        return True
    if not words or words[0] not in IMPERATIVES:
        return False
    if len(words) == 1:
        return True
    if words[1] in AUXILIARY or is_past(words[1]) or is_third_person(words[1]) or words[1] in ("of", "and"):
        return False
    return words[1] in _AFTER_IMPERATIVE or not _finite(words)


def _is_opinion(words: Sequence[str]) -> bool:
    """`It is really nice`: nothing but an opinion stands after the verb."""
    for at, word in enumerate(words[:12]):
        if word in ("is", "was", "are", "were", "it's", "that's", "he's", "she's"):
            rest = [later for later in words[at + 1 :] if later not in INTENSIFIERS and later not in ARTICLES]
            return bool(rest) and rest[0] in OPINIONS and len(rest) <= 2 and (
                len(rest) == 1 or rest[1] in _THINGS or rest[1] in OPINIONS
            )  # fmt: skip
    return False


_THINGS = word_set(
    """
    person place thing one man woman guy day time idea question topic story
    """
)
