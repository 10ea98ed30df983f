"""The page of a checked text: nothing in it runs, everything in it can be checked by a reader."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from factrl.errors import Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.report import Check, Report, page
from pages import Page

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


def test_every_letter_has_the_lines_of_its_claims() -> None:
    """Where claims overlap there is a line for each verdict, the gravest nearest to the letters."""
    checks = [
        Check(Claim("c", start, end), (), Verdict(label, "j", cause="x"))  # type: ignore[arg-type]
        for start, end, label in (
            (0, 6, "supported"),
            (3, 9, "refuted"),
            (3, 99, "unknown"),
            (4, 4, "refuted"),
        )
    ]
    body = (
        page(Report("abcdefghi<j", checks=tuple(checks))).partition('class="body"')[2].partition("</div>")[0]
    )
    pieces = re.findall(r'<a class="piece" href="#claim-(\d)"[^>]*>(.*?)</a>', body)
    assert [
        (first, re.findall(r'"line (\w+)', piece), re.sub("<[^>]*>", "", piece)) for first, piece in pieces
    ] == [
        ("1", ["supported"], "abc"),
        ("2", ["supported", "unknown", "refuted"], "def"),
        ("2", ["unknown", "refuted"], "ghi"),
        ("3", ["unknown"], "&lt;j"),
    ]
    assert re.findall(r'href="#claim-\d" aria-label="claim (\d), (\w+)"', body) == [
        ("1", "supported"),
        ("2", "refuted"),
        ("3", "unknown"),
    ]


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
    checks = [check(TEXT, "supported", p=0.6), *(check(TEXT, label) for label in labels)]
    order = re.findall(r'<article class="claim (\w+)"', page(report(checks=tuple(checks))))
    assert order == ["refuted", "unsure", "unknown", "supported"]


# The score


@pytest.mark.parametrize(
    ("one", "title", "line"),
    [
        (report("supported", None), "The claim is supported", "claims1 and 1 not counted"),
        (
            report("supported", "unjudged"),
            "1 without a verdict of 2 claims",
            "between 0.50 and 1.00 (1 without a verdict)",
        ),
        (report(), "No claim to check", "no claim to check"),
        (report(abstained=True), "The text declines to answer", "declines to answer: no claims"),
        (report(floored="oversize"), "The text was not checked", "not checked: oversize"),
        (
            report(failure=Unscored("connection", "refused")),
            "The text could not be checked",
            "could not be checked: connection: refused",
        ),
    ],
)
def test_every_state_is_said(one: Report, title: str, line: str) -> None:
    shown = Page(page(one))
    assert f"factrl: {title}" in shown.text
    assert line in shown.text


def test_a_weak_report_says_so_loudly() -> None:
    weak = Page(page(report("supported", weak=True)))
    assert [box["role"] for box in weak.by_class("weak")] == ["note"]
    assert "Weak: this is not a verification." in weak.text
    assert "verif" not in weak.text.replace("Weak: this is not a verification.", "")
    assert "supported by the evidence" not in weak.text
    assert not Page(page(report("supported"))).by_class("weak")
