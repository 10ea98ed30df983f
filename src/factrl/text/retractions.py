"""What a text names but does not give as its answer: struck out, taken back, doubted, limited, one of two."""

from __future__ import annotations

import re

from factrl.text import boxed, unwrap_latex
from factrl.text.words import CARDINALS, IDLE, MONTHS, STOP_STEMS, Reading, read, stem, stems, unit_named

_MONTHS = rf"(?:{'|'.join(month[:3] for month in MONTHS)})[a-z]{{0,6}}"
_DATE = (
    rf"(?:the |about |around |approximately |in |on |year |[$£€])*(?:{_MONTHS}\.? )?\d[\d.,/:-]{{0,30}}"
    rf"(?:st|nd|rd|th)?(?: of)?(?: {_MONTHS},?(?: \d{{4}})?)?(?: \d{{4}}\b)?"
)
_INNER = re.compile(r"\\(?:boxed|fbox)\{([^{}]{0,400})\}")
_STRUCK = re.compile(
    r"~~[^~]{1,400}~~|<(s|del|strike)>[^<]{1,400}</\1>|\\(?:sout|st|cancel|xcancel|bcancel)\{[^{}]{1,400}\}"
    r"|(?:\w[\u0335-\u0338])+|(?:!|[¬≠✗✘❌] ?)(?=\w)[\w '-]{1,200}",
    re.I,
)
_TAKEN_BACK = re.compile(
    r"\b(?:no,? wait|wait,? no|oh wait|hold on|scratch that|strike that|correction:|let me correct that"
    r"|i take that back|(?:sorry, )?i (?:mean|meant)\b|my mistake|on second thought"
    r"|je me corrige|je rectifie|(?:ich )?(?:korrigiere|berichtige)(?: mich)?\b"
    r"|korrektur:|me corrijo|mi correggo"
    r"|corrijo|поправка:|更正|(?<=\? )i doubt (?:it|that|so)\b)|(?:^|(?<=[\s.;!?…]))wait[,:.!…]"
    r"|(?<=[.;!?…] )(?:pardon|sorry|perdón|entschuldigung|scusa|desculpe)[,:]"
    r" (?!i\b|but|for|if|that|there|no\b)|\? (?:no|never|hardly|no way|not at all)\b[,.:]?"
    r"|(?<=\w), no, |(?<=[.;!?] )actually\b,?",
    re.I,
)
_LIMIT = (
    "before|after|prior to|until|at least|at most|more than|less than|fewer than|up to|no later than"
    "|no earlier than"
)
_LIMITS = stems(_LIMIT.replace("|", " ")) - STOP_STEMS
_LIMITED = re.compile(rf"\b(?:{_LIMIT}) {_DATE}", re.I)
# Of other languages: not, before and after.
_FOREIGN = (
    "не|до|после|nicht|vor|nach|pas|avant|après|antes de|después de|non|prima del?|dopo il|não|depois de"
)
# Before a name these say something of another; in a text of a few words it is all that is said.
_BESIDE = (
    rf"{_LIMIT}|{_FOREIGN}|prima di|dopo|over|under|above|below|beyond|short of|near|next to|close to|hardly"
    "|barely|no|anything|sans|ohne|keine?|niet|inte|ikke|nie|nem|ei|nu|değil|someone like|somebody like"
    "|不是|لا|ليس|नहीं|לא"
)
_BESIDE_IT = re.compile(rf"(?:^|(?<=[ (]))({_BESIDE}) [\w' -]{{1,80}}", re.I)
_OWN_VERB = re.compile(
    r"(?i:nicht|pas|не|não|नहीं|değil) [^\W\d_A-ZÄÖÜА-Я]"
)  # what denies a verb denies its subject
BRIEF = 60
"""Characters of a text in which what is named is all that is said."""
_NOT_DATED = re.compile(rf"\b(?:not|isn't|wasn't|never|{_FOREIGN}) {_DATE}", re.I)
_NEGATIONS = stems("not never isn't wasn't don't didn't")
_PARTS = stems("half third quarter twice double triple")
_NO_DOUBT = re.compile(
    r"\b(?:do not|don't|does not|doesn't|cannot|can't|no one|nobody) doubts?\b|\bno doubt\b", re.I
)
_ITEM = re.compile(r", (?:and |or )?|; ?| or | / |/| - |\s?[•·|、；] ?")
_DATE_OR = re.compile(rf"{_DATE},? or {_DATE}", re.I)
_DOUBTED = re.compile(
    r"(?:^|(?<=[.;!?,]))[^.;!?,]{0,80}\b(?:(?<!no )(?<!not )(?<!n't )(?<!without a )(?<!without )"
    r"doubt(?:ful)?\b"
    r"|(?:impossible|unlikely|improbable) that\b|(?:nobody|no one) (?:believes|thinks|says)\b"
    r"|(?:worst|wrong|bad|false|incorrect|unlikeliest) (?:\w+ )?(?:answer|guess|choice|response|option)\b"
    r"|(?:anything|anyone|anybody|anywhere|everything|everyone|all|any \w+) (?:but|except)\b)[^.;!?]{0,200}"
    r"|(?:^|(?<=[.;!?]))[^.;!?]{1,80}\b(?:is|was|would be) (?:simply |just |definitely )?"
    r"(?:wrong|false|incorrect|untrue|not (?:right|correct|true|it|the answer|the one))\b[^.;!?]{0,40}",
    re.I,
)


# What was said before, or by others, and is replaced by what follows.
_ANSWERED = "thought|guess|answer|idea|instinct|impression|choice|assumption|reply"
_SAY = "say|said|think|thought|believed?|claim|assumed?|guess|guessed|argue|write|wrote|answer|answered"
_FOLLOWED = (
    r"(?=,? (?:but|yet|though|however)\b|[;.,!?] ?(?:but|in (?:truth|fact|reality)|actually|really|that)\b)"
)
_REPLACED = re.compile(
    r"(?:^|(?<=[.;!?]))[^.;!?]{1,80}? (?:is|was|were) (?:(?:my|the|our) (?:first|initial|original|earlier"
    rf"|previous) (?:{_ANSWERED})"
    rf"|what i (?:first |earlier |originally )?(?:{_SAY})\b)[^.;!?,]{{0,40}}{_FOLLOWED}"
    rf"|\b(?:i|we) (?:first|initially|originally|earlier|at first) (?:{_SAY})\b[^.;!?]{{1,80}}?{_FOLLOWED}"
    rf"|\b(?:at first|initially|originally),? (?:i|we) (?:{_SAY})\b[^.;!?]{{1,80}}?{_FOLLOWED}"
    r"|\b(?:many|most|some|people|others)(?: people)?(?: (?:would|might|may|often|still|mistakenly"
    rf"|wrongly))? (?:{_SAY})\b[^.;!?]{{1,80}}?{_FOLLOWED}"
    rf"|\((?:some|many|most|others|people)(?: people)?(?: (?:would|might|may))? (?:{_SAY})\b[^()]{{1,80}}\)",
    re.I,
)
_POSSIBLE = re.compile(
    r"\b(?:(?:possible|potential|plausible|likely|conceivable) \w{1,30}|candidates|possibilities|contenders)"
    r" (?:include|are|would be|could be|might be)\b([^.;!?]{1,200})",
    re.I,
)
_TWO_VALUES = re.compile(r"\b((?:answer|result|value|number) is:? [\d.,]{1,20}),? (?:and|&) (?=\d)", re.I)
_PART_OF = re.compile(
    r"\b(?:half|a third|a quarter|two thirds|a fifth|a tenth|twice|double|triple|thrice|treble)(?: of)?"
    rf" (?:\d[\d.,]{{0,30}}|(?:{'|'.join([*CARDINALS][:20])}|hundred|thousand)\b)",
    re.I,
)

# What stands between candidates beside each other; each is put as "X or Y".
_OR_ELSEWHERE = (
    "oder|ou|или|або|nebo|albo|lub|czy|eller|vagy|veya|tai|sau|ή|या|أو|או|또는|혹은|বা|அல்லது|หรือ|یا|and/or"
)
_MAYBE = (
    "maybe|perhaps|possibly|potentially|alternatively|otherwise|conceivably|if not|failing that|else"
    "|it (?:could|might|may)(?: also)? be|vielleicht|peut-être|quizás?|forse|talvez|možná"
    "|(?:my )?(?:second|other|next) (?:guess|choice|option|answer|candidate)(?: is| would be|:)?"
)
_BESIDE_EACH_OTHER = re.compile(
    r" ?(?:→|⇒|⟶|➔|➜|⟷|↔|<?[-=]{1,2}>|\|+|::) ?|\b(?:vs\b\.?|versus\b)|(?:それとも|もしくは|または)"
    r"|(?<=[^\W\d_]{2}) ?/ ?(?=[^\W\d_]{2})|(?<=[^\W\d_]{2}) / (?=\w)"
    r"|(?<=[^\W\d_]) [<>=≠+] (?=[^\W\d_]{2})"
    rf"|,? (?:{_OR_ELSEWHERE})(?= )|(?<=[^\W\d_]) o (?=[^\W\d_]{{2}})"
    r"| or it (?:could|might|may) (?:also )?be\b"
    rf"|[,;(?!.] ?(?:or |and |but )?(?:{_MAYBE})\b,?",
    re.I,
)
_BETWEEN = re.compile(
    r"\b(?:between|zwischen|entre|tra|fra|między|mezi|между|mellan|mellem|tussen)\b"
    r"([^.;!?]{1,60}?) (?:and|und|et|y|e|i|a|и|och|og|en|&) ",
    re.I,
)
_TRAILING = re.compile(r" ?\.{2,3} ?(?=[A-Z])")
_NUMBERS = re.compile(r"\bbetween [\d,.]{1,20} and \d")
_IF_NOT = re.compile(r"\bif (?:it(?:'s| is) )?not ([^.,;!?]{1,60}),? (?:then )?", re.I)
_OTHERS = re.compile(
    r"\bsome\b([^.;!?]{1,60}?)[,;.]? (?:and |while |but )?\bothers\b(?: (?:say|claim|think|believe))?", re.I
)
_TICKED = re.compile(r"[✓✔✅☑🗸]")
_CROSSED = re.compile(r"[✗✘❌✖☒❎]")


def without_retracted(raw: str, known: frozenset[str]) -> str:
    """A text without what it strikes out, takes back, doubts, limits or offers beside another date.

    Args:
        known: stems of the question's and the accepted answers' words; what they say themselves is left.
    """
    box = boxed(raw) if raw.count("\\boxed") > 1 else None
    inner = _INNER.search(box.text) if box else None
    if box and inner and unwrap_latex(box.text) != unwrap_latex(inner[1]):
        return ""
    if _TICKED.search(raw) and _CROSSED.search(raw):
        return ""
    raw = _STRUCK.sub(" ", raw)
    backs = list(_TAKEN_BACK.finditer(raw))
    raw = raw[backs[-1].end() :] if backs else raw
    raw = _REPLACED.sub(" ", raw)
    if known.isdisjoint(_PARTS):
        raw = _PART_OF.sub(" ", raw)
    raw = _DOUBTED.sub(" ", _NO_DOUBT.sub(" ", raw))
    if "or" not in known:
        raw = _DATE_OR.sub(
            lambda match: " " if len(set(re.split(r",? or ", match[0].lower()))) > 1 else match[0], raw
        )
    if known.isdisjoint(_LIMITS):
        raw = _LIMITED.sub(" ", raw)
    if len(raw) <= BRIEF:
        raw = _BESIDE_IT.sub(
            lambda match: match[0] if _asked_for(match[1], known) or _OWN_VERB.match(match[0]) else " ", raw
        )
    if "or" not in known:
        raw = _POSSIBLE.sub(lambda match: re.sub(r",? and |, ", " or ", match[1]), raw)
        raw = _TWO_VALUES.sub(r"\1 or ", raw) if "and" not in known else raw
        raw = _OTHERS.sub(r"\1 or ", _IF_NOT.sub(r"\1 or ", raw))
        if len(raw) <= BRIEF or _NUMBERS.search(raw):
            raw = raw if "between" in known else _BETWEEN.sub(r"\1 or ", raw)
        raw = _BESIDE_EACH_OTHER.sub(" or ", raw)
        if len(raw) <= BRIEF:
            raw = _TRAILING.sub(" or ", raw)
            raw = (raw.replace("?", " or ") if raw.count("?") > 1 else raw).replace(" & ", " and ")
    return _NOT_DATED.sub(" ", raw) if _NEGATIONS.isdisjoint(known) else raw


def _asked_for(words: str, known: frozenset[str]) -> bool:
    return not known.isdisjoint(set(map(stem, words.lower().split())) - STOP_STEMS)


def alternatives(reading: Reading, known: frozenset[str]) -> set[int]:
    """The places of names joined by `or`, when some of them are accepted or asked for and some are not."""
    chosen: set[int] = set()
    if "or" in known:
        return chosen
    words, spelt = reading.words, reading.spelt
    only = all(
        spelt[place][:1].isupper() or word in ("and", "both", ",") or word in _ARTICLES or word == "|"
        for place, word in enumerate(words)
    )
    for place, word in enumerate(words):
        listed = only and (word == "and" or (spelt[place] == "," and "who" in known and "and" not in words))
        if word != "or" and not (listed and len(words) <= FEW and "and" not in known):
            continue
        left, right = (_names_from(words, spelt, place, step) for step in (-1, 1))
        sides = [{words[side] in known for side in one} for one in (left, right)]
        # "A and B" are two only where nothing of one is accepted: Joel and Ethan Coen.
        if len(set().union(*sides)) == 2 and (word == "or" or {False} in sides):
            chosen |= {*left, *right}
    return chosen


_HEDGES = stems("either maybe possibly perhaps probably likely less more else even also rather")
_ARTICLES = stems("the a an in by it is was of city town")
_PARTICLES = frozenset("da de di du von van der den del della bin ibn al".split())  # noqa: SIM905
FEW = 8
"""Words of a brief text, in which a candidate may be in small letters."""


def _names_from(words: tuple[str, ...], spelt: tuple[str, ...], place: int, step: int) -> list[int]:
    """The capitalised words and numbers beside a place, over commas to the left, at most 40."""
    few = len(words) <= FEW
    skipped = _HEDGES | _ARTICLES if few else _HEDGES
    sides: list[int] = []
    side = place + step
    while 0 <= side < len(words) and abs(side - place) <= 40:
        named = spelt[side][:1].isupper() and spelt[side] != "I" and words[side] not in skipped
        if named or words[side][0] == "#" or (sides and spelt[side] in _PARTICLES):
            sides.append(side)
        elif not (spelt[side] == "," and step < 0) and (
            sides or (words[side] not in skipped and spelt[side] not in ".;:")
        ):
            break
        side += step
    near = place + step
    if not sides and few and 0 <= near < len(words) and words[near][0] not in "#|":
        return [near] if words[near] not in STOP_STEMS else []
    return sides


_CLAUSAL = stems(  # of which no candidate is made
    "i i'm i've it it's he she you we they please is was are were be may might could can would should will do"
    " don't did this that so but however if which who not no though although note sorry correct sure verify"
)
_NAMES = re.compile(r"[A-Z\d]|[^\x00-\x7f]")
_BROKEN = re.compile(
    r"\n+|; ?|(?<=[\"'”’])\s*,\s*(?=[\"'“‘])|(?:^|\s)(?:[-•·*]|\(?(?:\d{1,2}[.)]|[A-Ea-e]\)|[A-E]:))\s"
)


def lists_candidates(raw: str, known: frozenset[str]) -> bool:
    """Whether a text is nothing but short items, too few of them accepted.

    They are three or more between commas, or two to four on lines, behind numbers or in quotation marks, as
    more are a survey.
    """
    text = raw.strip(" .\n")
    for pattern, least in ((_BROKEN, 2), (_ITEM, 3)):
        items = [item.strip(" .") for item in pattern.split(text) if item and item.strip(" .")]
        if (
            len(items) < least
            or (least == 2 and len(items) > 4)
            or max(item.count(" ") for item in items) > 3
        ):
            continue
        named = [(item, {*read(item).words}) for item in items]
        named = [(item, words - IDLE) for item, words in named if _CLAUSAL.isdisjoint(words)]
        right = [item for item, words in named if not known.isdisjoint(words)]
        # Beside a name what is no name is no candidate: "Paris; no guarantee".
        if least == 2 and any(map(_NAMES.search, right)):
            named = [one for one in named if _NAMES.search(one[0])]
        named = [one for one in named if one[1]]
        accepted = sum(not known.isdisjoint(words) for _, words in named)
        if len(named) >= least and accepted * 2 < len(named) + (least == 2):
            return True
    return False


def several_numbers(reading: Reading, known: frozenset[str]) -> bool:
    """Whether a text is nothing but numbers, some of which are accepted or asked for and some not."""
    pairs = zip(reading.words, reading.spelt, strict=True)
    if any(w[0] != "#" and w not in IDLE | _HEDGES and not unit_named(spelt) for w, spelt in pairs):
        return False
    if reading.dates:
        return len(reading.dates) > 1
    units = {amount.unit for amount in reading.amounts} - {""}
    return len(units) <= 1 and len({amount.word in known for amount in reading.amounts}) == 2
