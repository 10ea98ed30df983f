"""The dates of a life in brackets after a name: "(7 November 1867 – 4 July 1934)", "(born 1950 in Rome)"."""

from __future__ import annotations

import re

_MONTH = r"[A-Z][a-z]{2,8}\.?"
_DATE = (
    rf"(?:\d{{1,2}} {_MONTH},? \d{{3,4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{3,4}}"
    rf"|{_MONTH} \d{{4}}|\d{{3,4}})(?: BCE?| AD| CE)?"
)
_SPAN = re.compile(
    rf"(?:born )?(?:c\. ?|circa )?(?P<born>{_DATE}) ?(?:–|—|-|to|until) ?"
    rf"(?:c\. ?|circa |died )?(?P<died>{_DATE})"
)
_BORN = re.compile(
    rf"(?:born|b\.) (?:(?P<called>[A-Z][^\d,;()]{{1,60}}) (?=on |in |c\.))?"
    rf"(?:on |in |c\. ?)?(?P<born>{_DATE})"
    r"(?:,? in (?P<place>[A-Z][^;()\d]{1,60}))?"
)
_DIED = re.compile(rf"(?:died|d\.) (?:on |in |c\. ?)?(?P<died>{_DATE})")


_DAY = re.compile(r"\b\d{1,2}\b.*\b\d{3}")
_LIFE = (("called", "was born"), ("born", "was born"), ("place", "was born in"), ("died", "died"))


def life_dates(inside: str) -> list[tuple[str, int, int]]:
    """What brackets after a name say of a life: ("was born on 7 November 1867", start, end), offsets into
    `inside`.

    A lone year says nothing: it may be when a film came out.
    """
    for part in re.finditer(r"[^;,]*(?:,[^;,]*)?(?:,[^;,]*)?(?:,[^;]*)?", inside):
        words = part[0].strip()
        if not words:
            continue
        shift = part.start() + part[0].index(words)
        for pattern in (_SPAN, _BORN, _DIED):
            match = pattern.fullmatch(words)
            if match is None:
                continue
            said = []
            for name, verb in _LIFE:
                if match.groupdict().get(name):
                    dated = _DAY.search(match[name]) is not None
                    words = f"{verb} {'on' if dated else 'in'}" if name in ("born", "died") else verb
                    begin, stop = match.span(name)
                    said.append((f"{words} {match[name]}", shift + begin, shift + stop))
            return said
    return []
