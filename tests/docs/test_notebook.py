"""What a notebook shows of a report, a result and an evaluation: small tables of escaped text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_verify_html import failed, hostile

import factrl as fx
from factrl.evals.folder import Output
from factrl.types import Result
from pages import PAYLOADS, Page

HOSTILE = " ".join(PAYLOADS)
ELEMENTS = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "span"}
GRADES = [fx.Grade("correct", HOSTILE, "exact"), None, fx.Grade("incorrect", HOSTILE, "rules")]
NUMBER = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 4}
ROW = {
    "numbers": {"accuracy": NUMBER},
    "absent": {HOSTILE: HOSTILE},
    "masked": {HOSTILE: 1},
    "floored": {},
    "by": {HOSTILE: {"accuracy": NUMBER}},
}
SHOWN: list[tuple[Any, str]] = [
    (hostile(HOSTILE), "refuted"),
    (failed(HOSTILE), "could not be checked"),
    (Result("scored", 1.5, {HOSTILE: 2.0, "b": -0.5}), "reward +1.5"),
    (Result("masked", None, cause=HOSTILE, detail=HOSTILE), "masked: no reward"),
    (fx.short_form(GRADES), "50.0 ["),
    (fx.compare(GRADES, GRADES), "+0.0 [+0.0, +0.0]"),
    (Output(Path(), {"model": HOSTILE}, {HOSTILE: ROW}, {}), "50.0"),
]


@pytest.mark.parametrize(("one", "words"), SHOWN, ids=lambda value: type(value).__name__)
def test_a_notebook_shows_a_small_table_of_escaped_text(one: Any, words: str) -> None:
    html = one._repr_html_()
    page = Page(html)
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    assert {name for _, told in page.elements for name in told} <= {"class", "title", "scope"}
    assert words in page.text
    assert html.startswith('<div class="tex2jax_ignore mathjax_ignore">')  # "$5 and $6" is no formula


def test_a_table_is_cut_and_says_so() -> None:
    many = fx.verify(" ".join(f"Town {n} is in Peru." for n in range(60)), evidence=["x"], judge="weak")
    page = Page(many._repr_html_())
    assert [tag for tag, _ in page.elements].count("tr") == 41
    assert "and 20 more" in page.text
    long = Result("masked", None, cause="down", detail="x" * 9_000)
    assert len(long._repr_html_()) < 1_000
