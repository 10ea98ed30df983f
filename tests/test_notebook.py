"""What a notebook shows: a report without style sheets, ids and links, and objects in a line."""

from __future__ import annotations

import re

import pytest
from test_verify_html import failed, hostile

import factrl as fx
from factrl.verifier import Check, Report
from test_report import PAYLOADS, Page

SOURCE = fx.Passage("She was born in Warsaw.", title="curie")
CHECKS = (
    Check(
        fx.Claim("Marie Curie was born in Warsaw", 0, 3),
        (SOURCE,),
        fx.Verdict("supported", "judge", 0.9, quote=(0, 0, 23)),
    ),
    Check(
        fx.Claim("She was born in 1868", 4, 8), (SOURCE,), fx.Verdict("unjudged", "judge", cause="timeout")
    ),
    Check(fx.Claim("This text is right", 9, 12, skip="self")),
)


def shown(report: Report) -> Page:
    return Page(report._repr_html_())


def test_a_report_shows_its_score_and_every_claim() -> None:
    text = re.sub(r"\s+", " ", shown(Report("text", checks=CHECKS, judge="the judge")).text)
    assert "1 of 2 claims supported by the evidence" in text
    assert "between 0.50 and 1.00 (1 without a verdict)" in text
    assert "S supported" in text
    assert "“She was born in Warsaw.” (curie)" in text
    assert "? no verdict" in text
    assert "She was born in 1868 (timeout)" in text
    assert "– not counted" in text
    assert "This text is right (self)" in text
    assert "judged by the judge" in text


def test_a_weak_report_and_an_empty_one_say_so() -> None:
    assert "this is not a verification" in shown(Report("text", checks=CHECKS, weak=True)).text
    assert "The text declines to answer" in shown(Report("no", abstained=True)).text
    assert "The text could not be checked" in shown(failed("x")).text


def test_a_long_report_says_where_the_rest_is() -> None:
    page = shown(Report("text", checks=CHECKS[:1] * 45))
    assert len([1 for tag, _ in page.elements if tag == "tr"]) == 40
    assert "and 5 more claims: report.to_html(PATH)" in page.text


@pytest.mark.security("S41")
@pytest.mark.parametrize("bad", [text for text in PAYLOADS if text])
def test_nothing_reaches_beyond_its_output(bad: str) -> None:
    page, plain = shown(hostile(bad)), shown(hostile("plain"))
    assert page.shape() == plain.shape()
    assert {tag for tag, _ in page.elements} <= {
        *("div", "p", "strong", "br", "table", "tbody", "tr", "td", "b", "span", "small", "code")
    }
    assert {name for _, attrs in page.elements for name in attrs} <= {"style", "dir"}
    assert not set("\u202e\u2066\u200b\x1b\x00\U000e0041") & set(page.text)


def test_objects_are_short_lines() -> None:
    report = Report("text", checks=CHECKS[:1], judge="the judge")
    assert repr(report) == "<Report: 1 supported: precision 1/1 = 1.00; judge the judge>"
    assert repr(fx.load_reward("truthrl:binary")).startswith("<Reward truthrl(")
    assert repr(fx.load_reward("truthrl")).endswith("; needs grade>")
    assert "needs" not in repr(fx.load_reward("truthrl").with_(grade=fx.Grader()))
    result = fx.load_reward("truthrl").with_(grade=fx.Grader())(fx.Example("Where?", ("Rome",)), "Rome")
    assert repr(result).startswith("Result('floored', -1.0, terms={'outcome': -1.0}, cause='no_box'")
    assert repr(fx.Result("masked", None, cause="timeout")) == "Result('masked', None, cause='timeout')"
    assert repr(fx.Result("scored", 0.0, terms={"x": 0.0})) == "Result('scored', 0.0, terms={'x': 0.0})"
