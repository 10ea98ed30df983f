"""An evaluation as one HTML page: every number with its interval, what was not graded, and answers to read.

It runs no script and needs no network, and every text in it, whoever wrote it, is escaped
(`factrl.evals.report`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.evals.changes import BADGES, as_points, fill
from factrl.evals.numbers import Bin, Number
from factrl.evals.report import facts_list, html_page
from factrl.evals.results import PAGE, Output
from factrl.evals.samples import Sample
from factrl.text.escape import attribute, markup
from factrl.types import Label

_SHOWN: Mapping[Label | None, int] = {"incorrect": 4, "abstained": 2, "correct": 2, None: 2}
_TALL = 600
STYLE = (
    "<style>.numbers, .paired { margin-top: 12px; } .numbers th.metric { width: 19rem; max-width: 19rem; }"
    " @media (max-width: 900px) { .numbers .drawn, .paired .drawn { display: none; }"
    " .numbers th.metric { width: auto; } .paired .ci, .numbers .ci { display: block; } }"
    " section > h3 { font-size: 1rem; margin: 18px 0 6px; }"
    " @media (max-width: 760px) { .paired { font-size: 0.82rem; }"
    " .paired th, .paired td { padding-right: 6px; } .paired .value { min-width: 0; } }</style>"
)
_FOOTER = (
    "<footer><p>Numbers are percentages with 95 % intervals in brackets: Wilson for rates of questions that "
    "were answered once, bootstrap over questions for the rest. What could not be graded is in no number. "
    "The questions are worded and asked as this page says; published tables ask differently.</p></footer>"
)


def write_eval_page(output: Output) -> Path:
    """Write `report.html` into the folder of the evaluation.

    Raises:
        ConfigError: it cannot be written.
    """
    title = f"{output.about.get('model')} on {_listed(list(output.benchmarks))}"
    body = [
        f'<p class="eyebrow">factrl evaluation</p><h1>{markup(title)}</h1>{facts_list(_facts(output))}',
        _overview(output),
        *(_benchmark(output, name) for name in output.benchmarks),
        STYLE + _FOOTER,
    ]
    path = output.folder / PAGE
    try:
        path.write_text(html_page(title, body), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} benchmarks"


def _facts(output: Output) -> dict[str, str]:
    about = output.about
    sampling = about.get("sampling") or {}
    told = {
        "judge": about.get("judge"),
        "samples per question": sampling.get("num_samples"),
        "temperature": sampling.get("temperature"),
        "seed": about.get("seed"),
        "worked examples": about.get("shots"),
        "documents shown": "yes" if about.get("evidence") else None,
        "first questions only": about.get("limit"),
        "factrl": about.get("factrl"),
    }
    return {name: str(value) for name, value in told.items() if value is not None}


# -- Overview -----------------------------------------------------------------------------------------


def _overview(output: Output) -> str:
    keys = "".join(
        f'<span><i class="{fill(label)}">{BADGES[label][0]}</i>{BADGES[label][1]}</span>'
        for label in ("correct", "abstained", "incorrect")
    )
    head = (
        f'<div class="arm head"><span>benchmark</span><span class="key">{keys}</span><span>main</span></div>'
    )
    rows = "".join(_row(output, name) for name in output.benchmarks)
    return (
        "<section><h2>At a glance</h2><p>Shares of the graded answers, and the number that each benchmark is "
        f"usually quoted by.</p>{head}{rows}</section>"
    )


def _row(output: Output, name: str) -> str:
    numbers = output.numbers(name)
    main = main_number(numbers)
    labels: list[Label] = [one.label for one in output.samples.get(name, ()) if one.label is not None]
    claims = output.benchmarks[name]["kind"] == "long"
    score = "<span></span>"
    if main is not None:
        number = numbers[main]
        limits = str(number).partition(" ")[2]
        score = (
            f'<div class="score"><strong>{_value(number)}</strong>'
            f'<small>{_words(main)} <span class="ci">{limits.replace("-", "−")}</span></small></div>'
        )
    return f'<div class="arm"><b>{_breakable(name)}</b>{_bar(labels, claims)}{score}</div>'


def main_number(numbers: Mapping[str, Number]) -> str | None:
    """The number that a benchmark is quoted by."""
    usual = ("mc2", "factscore", "truthfulness", "accuracy")
    found = [name for name in numbers if name.startswith("f1@") and "/" not in name]
    return next((name for name in (*usual[:1], *found, *usual[1:]) if name in numbers), None)


def _bar(labels: Sequence[Label], claims: bool) -> str:
    if not labels:
        told = "claims are counted, not answers" if claims else "nothing could be graded"
        return f'<span class="muted">{told}</span>'
    spans, told = [], []
    for label in ("correct", "abstained", "incorrect"):
        share = labels.count(label) / len(labels)
        letter, word = BADGES[label]
        told.append(f"{word} {as_points(share)} %")
        number = f"<b>{as_points(share)}</b>" if share >= 0.09 else ""
        inside = f"<i>{letter}</i>{number}" if share >= 0.04 else ""
        width = f'style="width:{100 * share:.2f}%" title="{told[-1]}"'
        spans.append(f'<span class="{fill(label)}" {width}>{inside}</span>' if share else "")
    return f'<div class="bar" role="img" aria-label="{", ".join(told)}">{"".join(spans)}</div>'


# -- One benchmark ------------------------------------------------------------------------------------


def _benchmark(output: Output, name: str) -> str:
    row = output.benchmarks[name]
    samples = output.samples.get(name, ())
    facts = {
        "questions": str(row["questions"]),
        "answers": str(row["answers"]),
        "from": str(row["source"]),
        "asked for": str(row["asked_for"]),
        "graded by": str(row["judge"]),
        "licence": str(row["licence"]),
    }
    if row["answers"] == row["questions"]:
        del facts["answers"]
    prompt = f"<details><summary>How it is asked</summary>{_pre(row['prompt'])}</details>"
    return (
        f"<section><h2>{markup(name)}</h2><p>{markup(row['about'])}</p>{facts_list(facts)}"
        f"{_table(output.numbers(name))}{_bins(row['confidence_bins'])}{_causes(row)}{prompt}"
        f"{_examples(samples)}</section>"
    )


def _table(numbers: Mapping[str, Number]) -> str:
    lines = "".join(
        f'<tr><th class="metric" scope="row">{_words(name)}<small>{markup(number.about)}</small></th>'
        f'<td><span class="value">{_value(number)}</span> <span class="ci">{_limits(number)}</span></td>'
        f'<td class="muted">{markup(str(number.n))}</td><td class="drawn">{_drawn(number)}</td></tr>'
        for name, number in numbers.items()
    )
    scale = "0 to 100, or −100 to 100 about a line"
    head = f'<th>metric</th><th>value</th><th>of</th><th class="drawn">{scale}</th>'
    return (
        f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'
        if numbers
        else "<p>Nothing could be graded.</p>"
    )


def _drawn(number: Number) -> str:
    """The estimate as a dot on its interval, between 0 and 1."""
    if not number.percent:
        return ""

    def x(value: float) -> float:
        return 6 + 288 * min(max(value, 0.0), 1.0)

    whole = number.low >= 0
    ends = (x(number.low), x(number.high), x(number.value))
    if not whole:  # truthfulness goes from -1 to 1
        ends = (x((number.low + 1) / 2), x((number.high + 1) / 2), x((number.value + 1) / 2))
    middle = "" if whole else '<line class="zero" x1="150" y1="2" x2="150" y2="18"/>'
    return (
        '<svg class="whisker" viewBox="0 0 300 20" aria-hidden="true">'
        f'<line class="grid" x1="6" y1="10" x2="294" y2="10"/>{middle}'
        f'<line class="bar" x1="{ends[0]:.1f}" y1="10" x2="{ends[1]:.1f}" y2="10"/>'
        f'<circle cx="{ends[2]:.1f}" cy="10" r="4.5"/></svg>'
    )


def _bins(bins: Sequence[Mapping[str, Any]]) -> str:
    if not bins:
        return ""
    lines = "".join(
        f'<tr><th scope="row">{100 * one.low:.0f} to {100 * one.high:.0f}</th><td>{one.n}</td>'
        f"<td>{as_points(one.stated)}</td><td>{as_points(one.right)} "
        f'<span class="ci">[{as_points(one.right_low)}, {as_points(one.right_high)}]</span></td></tr>'
        for one in (Bin(**row) for row in bins)
    )
    head = "<th>confidence</th><th>answers</th><th>stated</th><th>right</th>"
    return (
        '<h3 class="muted">As sure as right?</h3><div class="scroll"><table><thead><tr>'
        f"{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _causes(row: Mapping[str, Any]) -> str:
    told = []
    for name, about in (("masked", "not graded, in no number"), ("floored", "wrong for their form")):
        if row[name]:
            causes = ", ".join(f"{cause.replace('_', ' ')} {n}" for cause, n in row[name].items())
            told.append(f"<li>{about}: {markup(causes)}</li>")
    return f'<ul class="notes">{"".join(told)}</ul>' if told else ""


# -- Answers ------------------------------------------------------------------------------------------


def _examples(samples: Sequence[Sample]) -> str:
    shown: list[Sample] = []
    for label, count in _SHOWN.items():
        shown += [one for one in samples if one.label == label][:count]
    if not shown:
        return ""
    return f"<details><summary>Some answers</summary>{''.join(map(answer_card, shown))}</details>"


def answer_card(sample: Sample) -> str:
    """One question with what was answered."""
    gold = " · ".join(map(markup, sample.answers[:6])) or "none"
    more = f" and {len(sample.answers) - 6} more" if len(sample.answers) > 6 else ""
    return (
        f'<article class="example"><h3 dir="auto">{markup(sample.question)}</h3>'
        f'<p class="gold">accepted: <span dir="auto">{gold}</span>{more}</p>'
        f'<div class="answers">{answer_box("", sample)}</div></article>'
    )


def answer_box(title: str, sample: Sample) -> str:
    """What was answered, with its grade."""
    letter, word = BADGES[sample.label]
    style = fill(sample.label)
    text = sample.completion if sample.completion is not None else sample.answer
    tall = len(text) > _TALL
    scrolls = f' tabindex="0" role="region" aria-label="answer {attribute(title)}"' if tall else ""
    how = sample.floored or sample.cause or sample.how
    shown = markup(text) or '<span class="muted">(empty)</span>'
    if sample.label is None and sample.cause is None:
        word, letter = sample.answer, "–"
    return (
        f'<div class="answer edge-{style[-1]}"><header><span>{markup(title)}</span>'
        f'<span class="badge"><i class="{style}">{letter}</i>{markup(word)}</span>'
        f'<span class="muted">{markup(how.replace("_", " "))}</span></header>'
        f'<div class="text{" tall" if tall else ""}" dir="auto"{scrolls}>{shown}</div></div>'
    )


def _pre(text: str) -> str:
    return f'<pre class="text tall" dir="auto">{markup(text)}</pre>'


def _breakable(name: str) -> str:
    return markup(name).replace("_", "_<wbr>")


def _words(name: str) -> str:
    return markup(name.replace("_", " "))


def _value(number: Number) -> str:
    return str(number).partition(" ")[0].replace("-", "−")


def _limits(number: Number) -> str:
    return str(number).partition(" ")[2].replace("-", "−")
