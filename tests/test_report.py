from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from factrl.evals.metrics import Interval
from factrl.evals.plots import Point
from factrl.evals.report import Answer, MetricRow, SideBySide, metric_rows, write_training_report
from factrl.types import Grade

C, A, W = (Grade(label, "", "exact") for label in ("correct", "abstained", "incorrect"))
BEFORE = [C] * 40 + [A] * 10 + [W] * 50
AFTER = [C] * 35 + [A] * 55 + [W] * 10
CURVE = [Point(0, 0.4, 0.1, 0.5), Point(60, 0.35, 0.55, 0.1)]
PAYLOADS = [
    "<script>document.documentElement.dataset.pwned=1</script>",
    '"><img src=x onerror="document.documentElement.dataset.pwned=1">',
    "'><svg onload='document.documentElement.dataset.pwned=1'>",
    "javascript:alert(1)",
    "</style><script>document.documentElement.dataset.pwned=1</script>",
    "</title></head><body onload=document.documentElement.dataset.pwned=1>",
    "<!-- --!> <b>x</b>",
    "]]><a href='javascript:1'>x</a>",
    "&lt;script&gt; &#60;script&#62;",
    "{title} ${title} %s",
    "a\u202eevil\u2066 \u200b\x1b[31m\x00\ud800\U000e0041",
    "",
]
VOID = {"meta", "input"}


class Page(HTMLParser):
    """Elements with their attributes, the text, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text, self.comments = "", 0
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice in {tag}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID and "/" not in (self.get_starttag_text() or "")[-2:]:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1

    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """What the page is made of, without the marks for unseen characters."""
        return [(tag, tuple(attrs)) for tag, attrs in self.elements if attrs.get("class") != "mark"]

    def by_class(self, name: str) -> list[dict[str, str]]:
        return [attrs for _, attrs in self.elements if name in attrs.get("class", "").split()]


def content(text: str = "text", **changed: Any) -> dict[str, Any]:
    """Everything that a report takes, with `text` in every place that holds text."""
    interval = Interval(0.4, 0.3, 0.5)
    given = {
        "title": f"title {text}",
        "facts": {f"fact {text}": f"value {text}", "command": f"factrl train {text} " + "x" * 60},
        "table": [
            *metric_rows(BEFORE, {f"arm {text}": AFTER}),
            MetricRow(f"own {text}", interval, {f"arm {text}": None}, {}, about=f"about {text}"),
        ],
        "curves": {f"arm {text}": CURVE},
        "examples": [
            SideBySide(
                f"question {text}",
                (f"gold {text}", f"other {text}"),
                Answer(f"before {text}", "incorrect"),
                {f"arm {text}": Answer(f"after {text}", "abstained")},
            ),
            SideBySide(
                "q", (), Answer(text * 100, "correct"), {f"arm {text}": Answer(f"long {text} " * 80, None)}
            ),
        ],
        "masked": {f"cause_{text}": 3},
        "notes": [f"note {text}"],
    }
    return given | changed


@pytest.fixture
def render(tmp_path: Path) -> Callable[..., Page]:
    def render(text: str = "text", **changed: Any) -> Page:
        path = write_training_report(tmp_path / "report.html", **content(text, **changed))
        return Page(path.read_text(encoding="utf-8"))

    return render


# --- safety ------------------------------------------------------------------------------------


def test_every_text_field_reaches_the_page(render: Callable[..., Page]) -> None:
    page = render("⁂")
    for place in (
        *("title", "fact", "value", "factrl train", "own", "about", "arm", "question", "gold", "other"),
        *("before", "after", "long", "note"),
    ):
        assert f"{place} ⁂" in page.text, place
    assert "cause ⁂" in page.text
    for badge in ("Wwrong", "Aabstained", "Ccorrect", "–not graded"):
        assert badge in page.text
    tall = render().by_class("tall")
    assert tall
    assert all(attrs["tabindex"] == "0" and attrs["role"] == "region" for attrs in tall)
    assert "Not graded: 3" in page.text
    assert page.text.index("fact ⁂") < page.text.index("What changed") < page.text.index("factrl train ⁂")


def test_an_empty_report_is_a_page(render: Callable[..., Page]) -> None:
    page = render(facts={}, table=[], curves={}, examples=[], masked={}, notes=[])
    assert "title text" in page.text
    assert "Every question was graded." in page.text
    assert not page.by_class("chart")
    with pytest.raises(ValueError, match="needs points"):
        render(curves={"a": []})


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "change", "words", "tone"),
    [
        ("higher", Interval(0.2, 0.1, 0.3), "▲ better", "good"),
        ("higher", Interval(-0.2, -0.3, -0.1), "▼ worse", "bad"),
        ("lower", Interval(-0.2, -0.3, -0.1), "▼ better", "good"),
        ("lower", Interval(0.2, 0.1, 0.3), "▲ worse", "bad"),
        ("neither", Interval(0.2, 0.1, 0.3), "▲ more", "none"),
        ("neither", Interval(-0.2, -0.3, -0.1), "▼ less", "none"),
        ("higher", Interval(0.2, -0.1, 0.3), "no clear change", "none"),
        ("higher", Interval(0.0, 0.0, 0.0), "no clear change", "none"),
    ],
)
def test_a_change_is_named_only_when_it_is_clear(
    render: Callable[..., Page], better: Any, change: Interval, words: str, tone: str
) -> None:
    before, after = Interval(0.5, 0.4, 0.6), Interval(0.7, 0.6, 0.8)
    row = MetricRow("claim precision", before, {"arm": after}, {"arm": change}, better)
    page = render(table=[row], curves={}, examples=[])
    assert words in page.text
    assert [mark["class"] for mark in page.by_class("whisker")] == [f"whisker {tone}"]
    assert change.signed().split()[0].replace("-", "−") in page.text


def test_overview_shows_every_arm_as_a_whole(render: Callable[..., Page]) -> None:
    page = render(table=metric_rows(BEFORE, {"binary": BEFORE, "ternary": AFTER}))
    bars = page.by_class("bar")
    assert [bar["aria-label"] for bar in bars if "aria-label" in bar] == [
        *["correct 40.0 %, abstained 10.0 %, wrong 50.0 %"] * 2,
        "correct 35.0 %, abstained 55.0 %, wrong 10.0 %",
    ]
    widths = [
        float(m[1]) for _, a in page.elements if (m := re.match(r"width:([\d.]+)%", a.get("style", "")))
    ]
    assert len(widths) == 9
    assert all(sum(widths[i : i + 3]) == pytest.approx(100, abs=0.05) for i in (0, 3, 6))
    assert "▲ better by 35.0" in page.text


def test_an_undefined_value_is_a_dash(render: Callable[..., Page]) -> None:
    page = render(table=metric_rows([A, A], {"arm": [A, None]}), examples=[])
    assert "–" in page.text
    assert not re.search(r"\bnan\b|None", page.text)
    assert render(table=metric_rows([None], {"arm": [None]}), examples=[]).text.count("–") > 12


def test_examples_are_filtered_by_what_became_of_them(render: Callable[..., Page]) -> None:
    def example(before: Any, *after: Any) -> SideBySide:
        return SideBySide(
            "q", ("a",), Answer("x", before), {str(i): Answer("y", a) for i, a in enumerate(after)}
        )

    page = render(
        examples=[
            example("incorrect", "abstained"),
            example("incorrect", "incorrect", "correct"),
            example("incorrect", None),
            example("correct", "correct", "abstained"),
            example("correct", "correct"),
            example("abstained", "incorrect"),
        ]
    )
    assert [len(page.by_class(name)) for name in ("example", "fixed", "lost")] == [6, 2, 1]
    assert "all 6" in page.text
    assert "no longer wrong 2" in page.text
    assert "no longer right 1" in page.text


# --- style -------------------------------------------------------------------------------------


def colours(dark: bool) -> Mapping[str, str]:
    css = "".join(
        files("factrl.text").joinpath(f"{name}.css").read_text("utf-8") for name in ("chart", "page")
    )
    light, _, rest = css.partition("@media screen and (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rest)) if dark else {})


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_the_contrast_of_wcag_aa(dark: bool) -> None:
    colour = colours(dark)
    text = ("ink", "muted", "good", "bad", "accuracy", "abstention", "hallucination", "truthfulness")
    pairs = [(name, ground) for name in (*text, "a0", "a1", "a2", "a3", "a4") for ground in ("card", "page")]
    pairs += [
        ("on-fill", "fill-c"),
        ("on-fill", "fill-a"),
        ("on-fill", "fill-w"),
        ("mark-ink", "mark"),
        ("ink", "faint"),
    ]
    weak = {pair: contrast(colour[pair[0]], colour[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01)
