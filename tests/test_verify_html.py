"""The page of a checked text: nothing in it runs, everything in it can be checked by a reader."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.errors import Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.report import KINDS, Check, Report, page
from test_report import Page

TEXT = "Marie Curie was born in Warsaw in 1868. She won two Nobel Prizes."
BORN = "She was born in Warsaw on 7 November 1867."
CURIE = Passage(
    f"Marie Curie was a physicist. {BORN} She moved to Paris.", "Marie Curie", "https://example.org/c"
)
OTHER = Passage("Pierre Curie was a physicist.", "Pierre Curie", "pierre.txt")


def check(text: str, label: str | None, passages: Any = (CURIE, OTHER), **verdict: Any) -> Check:
    """A claim about the stretch of `TEXT` that it begins with."""
    start = max(0, TEXT.find(text))
    claim = Claim(text, start, start + len(text) if text in TEXT else start, skip=None if label else "repeat")
    if label is None:
        return Check(claim)
    given = {"cause": "timeout"} if label == "unjudged" else {}
    return Check(claim, tuple(passages), Verdict(label, by="judge", **(given | verdict)))  # type: ignore[arg-type]


def quote(passage: Passage = CURIE, sentence: str = BORN, number: int = 0) -> tuple[int, int, int]:
    start = passage.text.index(sentence)
    return number, start, start + len(sentence)


def report(*labels: str | None, **changed: Any) -> Report:
    """A report of claims about all of `TEXT`, one per label."""
    checks = tuple(check(TEXT, label) for label in labels)
    return replace(Report(TEXT, checks=checks, judge="judge", seconds=1.26), **changed)


def hostile(text: str) -> Report:
    """`text` in every place that holds text of somebody else."""
    passage = Passage(f"passage {text} end", f"title {text}", f"source {text}")
    long = Passage(f"long {text} " * 90, f"second {text}", text)
    claim = Claim(f"claim {text}", 2, len(text) + 3)
    ends = (0, 0, len(passage.text))
    checks = [
        Check(claim, (passage, long), Verdict("refuted", f"by {text}", 0.2, ends, f"why {text}")),
        Check(claim, (long,), Verdict("supported", "j", 0.9, (0, 700, 800))),
        Check(
            claim,
            (passage,),
            Verdict("unjudged", "j", cause=f"cause_{text}", facts={"detail": f"detail {text}"}),
        ),
        Check(Claim(f"claim {text}", 0, 4, skip=f"skip {text}")),  # type: ignore[arg-type]
    ]
    return Report(f"text {text} end", f"question {text}", tuple(checks), judge=f"judge {text}")


def failed(text: str) -> Report:
    return Report(f"text {text}", failure=Unscored(f"cause {text}", f"failure {text}"))


# Safety


def test_every_text_field_reaches_the_page() -> None:
    text = Page(page(hostile("⁂"))).text
    for place in (
        *("question", "judge", "claim", "skip", "why", "cause", "detail"),
        *("passage", "title", "source", "long", "second"),
    ):
        assert f"{place} ⁂" in text, place
    text = Page(page(failed("⁂"))).text
    assert "text ⁂" in text
    assert "cause ⁂: failure ⁂" in text
    assert "not checked: floored ⁂" in Page(page(Report("t", floored="floored ⁂"))).text


# The text


class Lines(HTMLParser):
    """The characters with the lines beneath them, and the links at the ends."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.letters: list[tuple[str, list[str]]] = []
        self.ends: list[tuple[int, str]] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.open.append(given.get("class") or tag)
        if self.open[-1] == "piece":
            self.pieces.append(given["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "sup" in self.open:
            self.ends.append((len(self.letters), data))
        else:
            kinds = [name.split()[1] for name in self.open if name.startswith("line ")]
            self.letters += [(char, kinds[::-1]) for char in data]


MARKS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 14), st.sampled_from(list(KINDS))), max_size=6)


@given(st.text("ab <&\n", max_size=12), MARKS)
def test_every_letter_has_the_lines_of_its_claims(text: str, stretches: list[tuple[int, int, str]]) -> None:
    marks = [(start, max(start, end), kind) for start, end, kind in stretches]
    checks = [
        Check(Claim("c", start, end), (), None if kind == "skipped" else Verdict(kind, "j", cause="x"))  # type: ignore[arg-type]
        for start, end, kind in marks
    ]
    body = page(Report(text, checks=tuple(checks))).partition('class="body"')[2].partition("</div>")[0]
    seen = Lines(body.partition(">")[2])
    assert "".join(char for char, _ in seen.letters) == (text or "(empty)")
    for at in range(len(text)):
        over = {kind for start, end, kind in marks if start <= at < end}
        assert seen.letters[at][1] == [kind for kind in KINDS if kind in over]
    ends = [
        (min(end, len(text)), f"{KINDS[kind][0]}{number}")
        for number, (start, end, kind) in enumerate(marks, 1)
        if start < min(end, len(text))
    ]
    assert sorted(seen.ends) == sorted(ends)


def test_every_link_leads_somewhere() -> None:
    one = report(
        checks=(
            check("Marie Curie was born in Warsaw", "supported", quote=quote()),
            check(TEXT, "refuted", quote=quote()),
            check("Nobody said this.", "unknown", [OTHER]),
            check(TEXT, None),
        )
    )
    elements = Page(page(one)).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for _, attrs in elements if attrs.get("href", "")[:1] == "#"} <= set(ids)
    assert "claim-3" in ids


# Claims and evidence


def test_a_claim_says_what_it_rests_on() -> None:
    shown = page(
        report(checks=(check(TEXT, "refuted", p=0.034, quote=quote(), why="1867, not 1868."),), judge="j")
    )
    text = Page(shown).text
    assert "Rrefutedp = 0.03claim 1" in text
    assert "1867, not 1868." in text
    assert f"Marie Curie was a physicist. <mark>{BORN}</mark> She moved to Paris." in shown
    assert "rank 1Marie Curie https://example.org/c" in text
    assert "1 more passage read" in text


def test_the_suspects_come_first() -> None:
    labels = ("supported", "unknown", "refuted")
    checks = [check(TEXT, "supported", p=0.7), *(check(TEXT, label) for label in labels)]
    order = re.findall(r'<article class="claim (\w+)"', page(report(checks=tuple(checks))))
    assert order == ["refuted", "unsure", "unknown", "supported"]


# The score


@pytest.mark.parametrize(
    ("one", "title", "told"),
    [
        (report("supported", "refuted"), "1 refuted of 2 claims", "took1.3 s"),
        (report("supported", None), "The claim is supported", "claims1 and 1 not counted"),
        (
            report("supported", "unjudged"),
            "1 without a verdict of 2 claims",
            "between 0.50 and 1.00 (1 without a verdict)",
        ),
        (report("supported"), "The claim is supported", "precision 1/1 = 1.00"),
        (report(), "No claim to check", "no claim to check"),
        (report(abstained=True), "The text declines to answer", "declines to answer: no claims"),
        (report(floored="oversize"), "The text was not checked", "not checked: oversize"),
        (
            report(failure=Unscored("connection", "refused")),
            "The text could not be checked",
            "could not be checked: connection: refused",
        ),
        (Report(""), "No claim to check", "(empty)"),
    ],
)
def test_every_state_is_said(one: Report, title: str, told: str) -> None:
    shown = Page(page(one))
    assert f"factrl: {title}" in shown.text
    assert told in shown.text


def test_a_weak_report_says_so_loudly() -> None:
    weak = Page(page(report("supported", weak=True)))
    assert [box["role"] for box in weak.by_class("weak")] == ["note"]
    assert "Weak: this is not a verification." in weak.text
    assert "verif" not in weak.text.replace("Weak: this is not a verification.", "")
    assert "supported by the evidence" not in weak.text
    assert not Page(page(report("supported"))).by_class("weak")


# Size, time and looks


def test_every_class_has_a_style() -> None:
    css = "".join(
        files("factrl.text").joinpath(f"{name}.css").read_text("utf-8") for name in ("chart", "page")
    )
    styled = set(re.findall(r"\.([a-z][\w-]*)", css))
    one = replace(hostile("x"), weak=True)
    used = {name for _, attrs in Page(page(one)).elements for name in attrs.get("class", "").split()}
    assert used - styled == set()
