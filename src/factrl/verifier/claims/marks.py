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


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


ARTICLES = word_set("a an the")
# Without meaning of their own: they do not count when two texts are compared.
STOPWORDS = word_set(
    """
    a about above across against along alongside also am amid among amongst an and are around as at be
    been behind being below beside besides between beyond but by can could despite did do does during etc
    following for from had has have having he her here herself him himself his how i if in including
    inside into is it it's its itself just like may me might must my myself near of on onto or our outside
    over own per s same shall she should since so such t than that the their them themselves then there
    these they this those through throughout till to too toward towards under unlike until upon us versus
    very via was we were what when where which who whom whose why will with within would you your yours
    """
)

# Irregular verbs: base, past, participle.
_IRREGULAR = """
arise arose arisen | bear bore borne | beat beat beaten | become became become | begin began begun | bid bid
bid | bind bound bound | break broke broken | breed bred bred | bring brought brought | build built built |
buy bought bought | catch caught caught | choose chose chosen | come came come | deal dealt dealt | dig dug
dug | draw drew drawn | drink drank drunk | drive drove driven | eat ate eaten | fall fell fallen | feed fed
fed | feel felt felt | fight fought fought | find found found | flee fled fled | fly flew flown | forbid
forbade forbidden | forget forgot forgotten | freeze froze frozen | get got gotten | give gave given | go
went gone | grow grew grown | hang hung hung | hear heard heard | hide hid hidden | hit hit hit | hold held
held | keep kept kept | know knew known | lay laid laid | lead led led | learn learnt learnt | leave left
left | lend lent lent | lie lay lain | lose lost lost | make made made | mean meant meant | meet met met |
oversee oversaw overseen | overtake overtook overtaken | pay paid paid | put put put | read read read |
rebuild rebuilt rebuilt | retell retold retold | rewrite rewrote rewritten | ride rode ridden | ring rang
rung | rise rose risen | run ran run | say said said | see saw seen | seek sought sought | sell sold sold |
send sent sent | set set set | shake shook shaken | shine shone shone | shoot shot shot | show showed shown |
sing sang sung | sink sank sunk | sit sat sat | slay slew slain | sleep slept slept | speak spoke spoken |
spend spent spent | spin spun spun | split split split | spread spread spread | stand stood stood | steal
stole stolen | strike struck struck | swear swore sworn | swim swam swum | take took taken | teach taught
taught | tell told told | think thought thought | throw threw thrown | undergo underwent undergone |
understand understood understood | undertake undertook undertaken | win won won | withdraw withdrew withdrawn
| write wrote written | co-write co-wrote co-written | outlive outlived outlived | bear bore born
| go goes gone | use used used | add added added | age aged aged | die died died | tie tied tied
"""

_BASES = {
    form: base
    for verb in " ".join(_IRREGULAR.split()).split("|")
    for base, *forms in (verb.split(),)
    for form in forms
} | dict.fromkeys(("is", "are", "was", "were", "been", "being", "am"), "be")
_BASES |= {"has": "have", "had": "have", "does": "do", "did": "do", "done": "do"}
_BASES |= dict.fromkeys(("note", "notes", "noted", "noting"), "notice")  # else `noted` is `not`
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty"
)
NUMBERS = {word: str(number) for number, word in enumerate(_UNITS.split())} | {
    word: str(10 * number)
    for number, word in enumerate(["thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 3)
}
_ENDINGS = (
    *(("ies", "y"), ("ied", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")),
    *(("ing", ""), ("ed", ""), ("s", "")),
)


def base(word: str) -> str:
    """A word in small letters without what grammar adds, so that its forms are equal.

    >>> [base(word) for word in ("won", "planned", "plans", "prizes", "prize", "cities", "two")]
    ['win', 'plan', 'plan', 'priz', 'priz', 'city', '2']
    """
    word = NUMBERS.get(word) or _BASES.get(word, word)
    for ending, instead in _ENDINGS:
        stem = word[: -len(ending)]
        if word.endswith(ending) and len(stem) >= 3 and not word.endswith(("ss", "us", "is")):
            doubled = ending in ("ing", "ed") and stem[-1] == stem[-2] and stem[-1] not in "lsfz"
            word = stem[:-1] if doubled else stem + instead
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


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
    r"|(?:wait, )?let me|let us|let's|feel free"
    r"|hope (?:this|that|it)|i hope|happy to|glad to|is there anything"
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
    if _is_imperative(words) and not titled:
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


_IMPERATIVES = word_set(
    """
    consider remember imagine please let check see visit try note ensure make use avoid keep take ask call
    contact read look think choose select add remove click go start begin follow write provide give tell
    explain describe find discuss compare consult seek feel be don't do stay get learn explore enjoy join
    ignore mark rate accept treat extract output print return say repeat assume suppose trust believe verify
    score grade label stop wait evaluate gather adjust prepare combine measure serve research shortlist
    determine identify set create apply mix stir cook bake pour place turn
    """
)
_AFTER_IMPERATIVE = word_set(
    """
    a about all an another any at both each eight eleven every few fifty five for forty four her him his
    how hundred if in it its many me most multiple my nine no numerous on one online other our out seven
    several six some sure ten that the their them these thirteen thirty this those thousand three to
    twelve twenty two up various what when where whether whose why with your yourself
    """
)


def _is_imperative(words: Sequence[str]) -> bool:
    """`Consider the sea`, but not `Research shows` or `Mark was a king`."""
    if words[0] in ("do", "don't"):
        return True
    return words[0] in _IMPERATIVES and (len(words) == 1 or words[1] in _AFTER_IMPERATIVE)
