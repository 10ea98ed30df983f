"""Whether words hold a value, which a document could confirm, or only name a source."""

from __future__ import annotations

import re

from factrl.text.words import CARDINALS, SCALES

_NUMBERS = "|".join([*[*CARDINALS][2:], *SCALES, "dozen", "twice"])
_NUMBER = re.compile(rf"\d|\b(?:{_NUMBERS})\b", re.IGNORECASE)
_NAME = re.compile(
    r"(?<=[\w,;:)\"”'’] )[\"“'‘(]?(?!AI\b|I\b|[A-Z]{2,}\b[ A-Z.!]*$)[A-ZÀ-ÞĀ-ŽΑ-ΩА-Я][\w'’-]*"  # no shouting
)
PAST = (
    r"won|wrote|became|began|made|took|gave|found|led|held|built|fought|fell|knew|met|ran|saw|sold|spoke|taught"
    r"|told|went|came|left|lost|rose|paid|said|kept|brought|bought|\w{1,20}[^\We]ed"
)


def has_value(text: str) -> bool:
    """Whether a sentence holds a number or a name, that is a capital that does not begin it.

    >>> has_value("You can choose between seven temperatures."), has_value("You can choose.")
    (True, False)
    """
    return _NUMBER.search(text) is not None or _NAME.search(text) is not None


_VERB = re.compile(
    r"(?<=[\w)\"”,] )(?:is|are|was|were|has|have|had|does|did|can|will|costs?|ist|war|hat|est|fue"
    rf"|{PAST})\b(?! by\b)(?= ?\w)",
    re.IGNORECASE,
)


def has_predicate(text: str) -> bool:
    """Whether words have a verb, of a few common ones, behind what can be its subject.

    >>> has_predicate("She won five prizes"), has_predicate("Prizes and awards")
    (True, False)
    """
    return _VERB.search(text) is not None


_SOURCES = re.compile(
    r"\W*(?:\d{1,2}\W{1,3})?(?:list of )?"
    r"(?:references|sources|citations|bibliography|works cited|literature|notes and references"
    r"|further reading|external links|see also|footnotes|learn more|read more|quellen(?:angaben|verzeichnis)?"
    r"|literatur(?:verzeichnis|angaben)?|einzelnachweise|weblinks|fußnoten|références|bibliographie|referencias"
    r"|bibliografía|fuentes|riferimenti|bibliografia|fonti|referências|fontes|bronnen|источники|литература"
    r"|参考文献|参考资料|来源|引用|出典|脚注|참고 ?문헌|출처|المراجع|المصادر|संदर्भ)\W*",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"https?://\S*|\bwww\.\S*|\bdoi(?:\.org|:)\S*|\b10\.\d{4,9}/\S*|\bIS[BS]N\b|\barXiv:\S*",
    re.IGNORECASE,
)
_CITES = re.compile(
    r"\W*(?:sources?|references?|see|via|quellen?|retrieved from|available at)\b", re.IGNORECASE
)
_NOTE = re.compile(r"\s*\[\^?\d{1,3}\]:\s")  # "[^1]: Smith, Life of Curie, 1999."
_TITLED = re.compile(r"[\"“][^\"“”]{1,300}[\"”]|\*[^*]{1,300}\*")
_FEW = 4  # words beside an address, with which it still says nothing


def heads_sources(text: str) -> bool:
    """Whether a line is the heading of a list of sources, such as "References:"."""
    return len(text) <= 60 and _SOURCES.fullmatch(text) is not None


def names_source(line: str, *, listed: bool) -> bool:
    """Whether a line only names a source: an address, or what has no verb in a list of sources.

    Args:
        line: as it is written.
        listed: it stands under the heading of a list of sources.
    """
    line = line[:2_000]
    if (listed or _NOTE.match(line)) and not has_predicate(_TITLED.sub(" ", _ADDRESS.sub(" ", line))):
        return True
    if not _ADDRESS.search(line):
        return False
    rest = len(re.findall(r"\w+", _ADDRESS.sub(" ", line)))
    return rest <= _FEW or (_CITES.match(line) is not None and rest <= 2 * _FEW)
