"""Whether words state something: a value, a predicate, a label with its value; or only name a source.

A title, "I hope this helps" and a bibliography state nothing.  Nothing false hides in their form: a sentence
with a value is a claim whatever it begins with, and so is a heading with a predicate.  These are word lists,
of English first, then of German, French, Spanish and Chinese; reading takes linear time.
"""

from __future__ import annotations

import re

from factrl.text.words import CARDINALS, SCALES

_NUMBERS = "|".join([*[*CARDINALS][2:], *SCALES, "dozen", "twice"])
_NUMBER = re.compile(rf"\d|\b(?:{_NUMBERS})\b", re.IGNORECASE)
_NAME = re.compile(
    r"(?<=[\w,;:)\"”'’] )[\"“'‘(]?(?!AI\b|I\b|[A-Z]{2,}\b[ A-Z.!]*$)[A-ZÀ-ÞĀ-ŽΑ-ΩА-Я][\w'’-]*"  # no shouting
)
# Verbs that are finite, those that may be participles ("awards received by her"), those that may be nouns.
_FINITE = (
    r"(?:is|are|was|were|has|have|had|do|does|did|can|could|would|wo)n['’]t|is|are|was|were|has|have|had|does"
    r"|did|never|costs?|lasts|lies|weighs|lives|contains|holds|opens|begins|includes|needs|makes|takes|gives"
    r"|becomes|says|provides|serves|occurs|happens|produces|sells|employs|melts|requires|consists"
    r"|exceeds|grows|eats|speaks|keeps|knows|writes"
    r"|runs|stands|measures|belongs|means|(?-i:can|cannot|could|will|would|must)"
    r"|ist|sind|waren|wurden?|wird|werden|gewann|starb|liegt|lag|kostet|heißt|erhielt|bekam|schrieb"
    r"|(?:war|hat|hatte)(?= (?:nie|nicht|kein|ein|der|die|das|den|im|in|am|von|bis|\d))"
    r"|est|sont|était|naquit|mourut|coûte|fue|fueron|tiene|nació|murió|ganó|está"
)
PAST = (
    r"won|wrote|became|began|made|took|gave|found|led|held|built|fought|fell|knew|met|ran|saw|sold|spoke|taught"
    r"|told|went|came|left|lost|rose|paid|said|kept|brought|bought|drew|flew|grew|sat|stood|wore|beat|broke"
    r"|chose|ate|stole|fled|drove|threw|hid|struck|lebte|\w{1,20}[^\We]ed(?<!hundred)(?<!sacred)(?<!united)"
)
_NOUNS = (
    r"closes|starts|ends|comes|goes|works|covers|offers|reads|stays|remains"
    r"|rises|falls|flows|plays|orbits|boils|freezes|causes|supports"
    r"|equals|spans|sits|houses|dates|marks|ranks|features|forms|moves|leads|reaches|kills"
    r"|uses|shows|gets|helps|wins"
)
_VERB = re.compile(
    rf"(?<=[\w)\"”,] )(?:(?P<finite>{_FINITE})|(?P<past>{PAST})|{_NOUNS})\b(?! by\b)(?= ?[\"“‘(]?\w)",
    re.IGNORECASE,
)
_SPACELESS = re.compile(r"[\u3400-\u9fff][是了有為为於于在获獲][\u3400-\u9fff\d]|でした|ました|である|です")
_BEFORE_NOUN = re.compile(
    r"\b(?:the|an?|of|to|its|his|her|their|most|best|well|newly|in|for|with) $", re.IGNORECASE
)


def has_number(text: str) -> bool:
    """Whether a text holds a number, in digits or in English words from two on."""
    return _NUMBER.search(text) is not None


def has_value(text: str) -> bool:
    """Whether a sentence holds a number or a name, that is a capital that does not begin it.

    >>> has_value("You can choose between seven temperatures."), has_value("You can choose.")
    (True, False)
    """
    return has_number(text) or _NAME.search(text) is not None


def has_predicate(text: str, *, title: bool = False, past: bool = True) -> bool:
    """Whether words have a verb behind what can be its subject, and something after it.

    Args:
        title: verbs that may be nouns are none, as in titles.
        past: verbs that may be participles are some.

    >>> has_predicate("She won five prizes"), has_predicate("Prizes and awards")
    (True, False)
    """

    def is_verb(match: re.Match[str]) -> bool:
        if match["past"]:
            return past and not _BEFORE_NOUN.search(text, max(0, match.start() - 9), match.start())
        return bool(match["finite"]) or not title

    return _SPACELESS.search(text) is not None or any(map(is_verb, _VERB.finditer(text)))


# -- Headings and labels

_ASKS = re.compile(
    r"(?:q(?:uestion)?(?: ?\d{1,3})?[:.)])?\W*"
    r"(?:how|why|what|when|where|who|whose|whom|which|whether|things|ways|tips|wie|warum|was|wer|wo|wann)\b",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"(?:she|he|it|they|we|sie|er|es|elle|il)\b", re.IGNORECASE)
_BEGUN = re.compile(
    r"(?:born|died|founded|established|won|awarded|built|discovered|invented|opened)"
    r" (?:in|by|on|at|to|for|the)\b",
    re.IGNORECASE,
)
# Verbs of headlines, which may end one: "Mayor resigns", "Maire condamné pour fraude".
_HEADLINE = re.compile(
    r"(?<=[^\W_] )(?:resigns|dies|quits|retires|wins|loses|steals|kills|admits|denies|confesses|becomes|says"
    r"|joins|sells|buys|builds|discovers|invents|marries|divorces|defeats|collapses|explodes|fails|arrests|elects"
    r"|bans|cures|prevents|convicted|jailed|arrested|sentenced|killed|sacked|fired|charged|indicted"
    r"|impeached|elected|murdered|injured|banned|bankrupt|guilty|dead"
    r"|(?:causes|recalls)(?= (?!(?:of|and|or|in|for|to|by|explained)\b)[^\W\d_])"
    r"|(?-i:[^\W\dA-ZÀ-Þ]{2,20}[óò](?= \w))"  # "inventó el teléfono"
    r"|(?-i:(?!(?:und|oder|für|durch|gegen|ohne|über|auf|aus|bei|mit|nach|seit|von|vor|hinter|neben|unter|als|wie"
    r"|zwischen|während|wegen|trotz|bis|sowie|statt|außer)\b)[a-zäöüß]{3,20}"
    r"(?= (?:das|den|die|dem|eine[nmr]?|ein) [A-ZÄÖÜ]))"  # "erfand das Telefon"
    r"|stirbt|gewinnt|verliert|stiehlt|stahl|tötet|tritt|heiratet|tot|zurückgetreten"
    r"|(?-i:(?:ge|ver|be|er|ent|zer)\w{0,12}(?:ilt|ählt|ftet|tet|det|rben|etzt|ossen|aut|agt|ört))"
    r"|(?:condamn|arrêt|tu|élu)ée?s?|mort|meurt|démissionne|gagne|perd|remporte|vole"
    r"|(?:condenad|arrestad|detenid|elegid)[oa]s?|muere|dimite|gana|pierde|mata|roba"
    r"|(?:condannat|arrestat|elett|uccis)[oaie]|muore|vince|uccide|ruba)\b(?! (?:poets|languages?|sea)\b)",
    re.IGNORECASE,
)
# "How she stole the election" says that she did; "How does it work" asks.
_TELLS_HOW = re.compile(
    r"\W*(?:how|why|what|when|where|who|which)"
    r"(?! (?:to|do|does|did|is|are|was|were|has|have|had|can|could|will|would|should|must|many|much)\b) ",
    re.IGNORECASE,
)
# "5 ways to save", and a number that belongs to a name or a time: "Apollo 11", "May 2020", "1867–1891".
_COUNTS = re.compile(
    r"\W*\d+ (?:\w+ ){0,2}(?:ways|tips|things|facts|reasons|steps|examples|types|kinds|questions|ideas)\b",
    re.IGNORECASE,
)
_NUMBERED_NAME = re.compile(
    r"[\d\W_]*(?:s\b\W*)?|(?:[A-Z][\w.]*[ -]){1,3}\d{1,3}[a-z]?"
    r"|(?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Spring|Summer|Autumn|Winter|Fall|Q[1-4])[\d\W]*"
)
# Behind a colon or a dash a mere subtitle: "Marie Curie: A Life of Science".
_SUBTITLE = re.compile(
    r"\b(?:life|guide|overview|introduction|history|story|biography|summary|legacy|journey|career|background|basics"
    r"|facts|tips|conclusion|definition|examples?|comparison|analysis|review|explained|steps?|part)\b",
    re.IGNORECASE,
)
_BEST = re.compile(r"(?:the )?(?:\w{2,12}est|most|least|first|last|only)\b", re.IGNORECASE)
_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
_FOREIGN = re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff]")
_FIRST = re.compile(r"(?:the )?(?:first|only|youngest|oldest) [\w ]{1,40} to \w+ \w", re.IGNORECASE)
_LISTS = re.compile(
    r"(?:\d+ )?(?:top|best|worst|list|trends|events|key|major|main|part|chapter|step|day|week|phase|option"
    r"|tip|lesson|unit|figure|table|appendix)\b",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"\b(?:answer|born|birth(?:place|date|day)?|died|death|capital|population|height|weight|length|area|speed|age"
    r"|founde[rd]|author|director|composer|inventor|architect|owner|ceo|president|spouse|husband|wife|children"
    r"|father|mother|name|nationality|profession|occupation|country|city|location|place|price|cost|date|year"
    r"|released?|opened|built|language|currency|winner|manufacturer|developer|publisher|religion|verdict"
    r"|antwort|geburtsort|geboren|gestorben|hauptstadt|einwohner|höhe|preis|gründer|autor)\b",
    re.IGNORECASE,
)


def is_stated(title: str) -> bool:
    """Whether a heading is more than a bare title: it has a number, a predicate, or words about a name.

    A title in a script whose verbs are not known here is more than bare when it is longer than a few words.

    >>> is_stated("She won five Nobel Prizes"), is_stated("Birthplace: Paris"), is_stated("Nobel Prizes")
    (True, True, False)
    >>> is_stated("Bridge (1950)"), is_stated("Mayor resigns"), is_stated("Chapter 3")
    (True, True, False)
    """
    title = re.sub(r"^(?:\d{1,3}[.)]?|[IVX]{1,4}[.)]) ", "", title)
    if " | " in title or title.endswith((":", "：", "?", "？", "؟")):
        return False
    if asks(title):
        how = _TELLS_HOW.match(title)
        rest = title[how.end() :] if how else ""
        return has_value(f"x {rest}") and has_predicate(rest, title=True)
    if foreign := len(_FOREIGN.findall(title)):
        characters = len(_HAN.findall(title))
        if characters > 6 and not re.search("的.{1,5}$", title):
            return True
        if foreign > len(title) // 2 and not characters and len(title.split()) > 3:
            return True
    name, *values = re.split(r": ?| [—–-] ", title, maxsplit=1)
    if _LISTS.match(title) or _COUNTS.match(title):
        return False
    if values and values[0].strip() and not asks(values[0]):
        value = values[0].strip()
        if _ATTRIBUTE.search(title) or _BEST.match(value) or value[0].isdigit():
            return True
        if not _SUBTITLE.search(value) and (value[0].islower() or not _SUBTITLE.search(name)):
            return True
    if _HEADLINE.search(title) or _FIRST.match(title):
        return True
    if re.search(r"\d", title) and not _NUMBERED_NAME.fullmatch(title):
        return True
    named = has_value(title) or _PRONOUN.match(title) is not None
    return has_predicate(title, title=True, past=named) or (named and _BEGUN.match(title) is not None)


def asks(line: str) -> bool:
    """Whether a line begins with a question word, or asks for what somebody has: "Curie's birthplace?"."""
    return _ASKS.match(line) is not None or (line.endswith("?") and re.search(r"['’]s\b", line) is not None)


def is_bare(text: str) -> bool:
    """Whether a line is short and has no predicate, so that it says something only beside its label."""
    words = text.split()
    sentence = len(words) > 3 and text.endswith((".", "!", "?"))
    return len(text) <= 80 and len(words) <= 8 and not sentence and not has_predicate(text)


# -- Sources

_SOURCES = re.compile(
    r"\W*(?:\d{1,2}\W{1,3})?(?:(?:list of )?"
    r"(?:refs?|reference list|learn more|read more|(?:for )?more information(?:,? see)?"
    r"|works consulted|useful links"
    r"|references|sources|citations|bibliography|works cited|literature|notes and references"
    r"|further reading|external links|see also|footnotes)"
    r"(?: (?:cited|used|and (?:notes|further reading)))?"
    r"|quellen(?:angaben|verzeichnis)?|literatur(?:verzeichnis|angaben)?|einzelnachweise|weblinks|fußnoten"
    r"|références|bibliographie|liens externes|referencias|bibliografía|fuentes|enlaces externos"
    r"|riferimenti|bibliografia|fonti|referências|fontes|bronnen|referenties|источники|литература|ссылки"
    r"|参考文献|参考资料|来源|引用|出典|脚注|참고 ?문헌|출처|المراجع|المصادر|संदर्भ|स्रोत)\W*",
    re.IGNORECASE,
)
_NUMBERED = r"\W*(?:\d{1,3}\W{1,4})?"
_CITES = re.compile(
    r"\W*(?:(?:data |image |photo )?(?:sources?|credits?)|references?|refs?|works consulted"
    r"|see also|further reading|read more|learn more|more info(?:rmation)?"
    r"|retrieved from|available at|quellen?|literatur|fuentes?|fontes?|来源|出典) ?[:：] ?(?=\S)",
    re.IGNORECASE,
)
_POINTS = re.compile(r"\W*(?:see|visit|check out|via|read|retrieved|accessed|available)\b", re.IGNORECASE)
_ADDRESS = re.compile(
    r"https?://|\bwww\.|\bdoi(?:\.org|:)|\b10\.\d{4,9}/|\bISBN\b|\bISSN\b|\barXiv:", re.IGNORECASE
)
_ONLY_ADDRESS = re.compile(rf"{_NUMBERED}(?:https?://|www\.)\S{{1,2000}}\W*")
_ONLY_LINK = re.compile(rf"{_NUMBERED}\[?[^\[\]\n]{{1,200}}\]\(https?://[^()\s]{{1,500}}\)\W*")
_NOTE = re.compile(r"\s*\[\^?\d{1,3}\]:\s")  # "[^1]: Smith, Life of Curie, 1999."
_AUTHORS = re.compile(  # "Smith, J." or "A. Cole," or "Smith J, Doe A."
    rf"{_NUMBERED}(?:[^\W\d_][\w'’-]{{1,40}}, ?[A-ZÀ-Þ]\.|(?:[A-ZÀ-Þ]\. ?){{1,3}}[A-ZÀ-Þ][\w'’-]{{1,40}},"
    r"|[A-ZÀ-Þ][\w'’-]{1,40} [A-ZÀ-Þ]{1,2}[,.] )"
)
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b")
_TITLED = re.compile(r"[\"“][^\"“”]{1,300}[\"”]|\*[^*]{1,300}\*")


def heads_sources(text: str) -> bool:
    """Whether a line is the heading of a list of sources, such as "References:"."""
    return len(text) <= 60 and _SOURCES.fullmatch(text) is not None


def names_source(line: str, *, listed: bool) -> bool:
    """Whether a line only names a source: an address, a book, "Source: Wikipedia", a footnote.

    Args:
        line: as it is written.
        listed: it stands under the heading of a list of sources, where only a sentence is none.
    """
    line = line[:2_000]
    if _ONLY_ADDRESS.fullmatch(line):
        return True
    address = _ADDRESS.search(line) is not None
    by = _AUTHORS.match(line) is not None and _YEAR.search(line) is not None
    rest = _TITLED.sub(" ", line) if listed else line
    silent = not has_predicate(rest, title=True) and (address or any(map(str.isalnum, rest)))
    if listed:
        return by or silent
    if cites := _CITES.match(line):
        return not has_predicate(line[cites.end() :])
    return (silent and any((by, _NOTE.match(line), _ONLY_LINK.fullmatch(line)))) or (
        address and (by or (_POINTS.match(line) is not None and not has_predicate(line)))
    )
