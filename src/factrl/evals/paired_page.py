"""Two evaluations as one HTML page: differences with intervals, and the answers that changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from factrl.errors import ConfigError
from factrl.evals import charts
from factrl.evals.changes import BADGES
from factrl.evals.eval_page import STYLE, answer_box, main_number
from factrl.evals.metrics import Interval
from factrl.evals.numbers import Number
from factrl.evals.paired import Paired
from factrl.evals.report import facts_list, html_page
from factrl.evals.results import Output
from factrl.evals.samples import Sample
from factrl.evals.winrate import WinRate
from factrl.text.escape import markup

_SHOWN = 12  # changed answers of a benchmark
_COUNTED = ("detail", "claims")
_FOOTER = (
    "<footer><p>Differences are after minus before in points, on the questions that were graded in both, "
    "with 95 % intervals from a bootstrap that draws both answers of a question together. A change is called "
    "better or worse only when its interval leaves out zero. McNemar's test asks whether as many questions "
    "went from right to not right as the other way round.</p></footer>"
)


def write_paired_page(
    path: Path,
    before: Output,
    after: Output,
    pairs: Sequence[Paired],
    rates: Mapping[str, WinRate] = MappingProxyType({}),
) -> Path:
    """Write the page.

    Args:
        rates: by benchmark, how often a judge prefers the later answers.

    Raises:
        ConfigError: it cannot be written.
    """
    names = side_names(before, after)
    title = f"{names[0]} → {names[1]}"
    body = [
        f'<p class="eyebrow">factrl comparison</p><h1>{markup(title)}</h1>',
        facts_list({"before": str(before.folder), "after": str(after.folder)}),
        *(_benchmark(pair, before, after, rates.get(pair.name)) for pair in pairs),
        STYLE + _FOOTER,
    ]
    try:
        path.write_text(html_page(title, body), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def side_names(before: Output, after: Output) -> tuple[str, str]:
    """What to call the two: their models, or their folders where these are the same."""
    models = [str(side.about.get("completions") or side.about.get("model")) for side in (before, after)]
    if models[0] == models[1]:
        models = [str(side.folder) for side in (before, after)]
    return models[0], models[1]


def _benchmark(pair: Paired, before: Output, after: Output, rate: WinRate | None) -> str:
    test = ""
    if pair.p is not None:
        test = f"{pair.fixed} became right and {pair.broken} stopped being right (McNemar p = {_p(pair.p)}). "
    notes = "".join(f"<li>{markup(note)}</li>" for note in pair.notes)
    warned = f'<ul class="notes">{notes}</ul>' if notes else ""
    told = f"{pair.n} questions in both, {pair.left_out} left out. {test}"
    numbers = before.numbers(pair.name), after.numbers(pair.name)
    return (
        f"<section><h2>{markup(pair.name)}</h2><p>{told}</p>{warned}{_preference(rate)}"
        f"{_table(pair.differences, *numbers)}{_changed(pair.changed)}</section>"
    )


def _preference(rate: WinRate | None) -> str:
    if rate is None or rate.rate is None:
        return ""
    masked = sum(rate.masked.values())
    return (
        f"<p>The judge prefers the answers of <b>after</b> in {markup(str(rate.rate))} % of "
        f"{rate.wins + rate.ties + rate.losses} questions: {rate.wins} wins, {rate.ties} ties, {rate.losses} "
        f"losses, asked in both orders; {rate.first_place + rate.second_place} of the ties because it stuck "
        f"to a place. {masked} without a verdict.</p>"
    )


def _table(
    differences: Mapping[str, Interval | None], first: Mapping[str, Number], second: Mapping[str, Number]
) -> str:
    known = {name: one for name, one in differences.items() if one is not None and name not in _COUNTED}
    if not known:
        return ""
    reach = max([0.1, *(-one.low for one in known.values()), *(one.high for one in known.values())])
    reach = math.ceil(10 * reach) / 10
    main = main_number(second)
    lines = "".join(_line(name, one, reach, first, second, main) for name, one in known.items())
    scale = f"−{100 * reach:.0f} to +{100 * reach:.0f}"
    head = f'<th>metric</th><th>before → after</th><th>change</th><th></th><th class="drawn">{scale}</th>'
    return f'<table class="paired"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>'


def _line(
    name: str,
    change: Interval,
    reach: float,
    first: Mapping[str, Number],
    second: Mapping[str, Number],
    main: str | None,
) -> str:
    ends = [str(side[name]).partition(" ")[0] if name in side else "–" for side in (first, second)]
    value, limits = change.signed().split(" ", 1)
    tone, verdict = _verdict(change, second.get(name) or first.get(name))
    shown = f"<b>{_words(name)}</b>" if name == main else _words(name)
    return (
        f'<tr><th scope="row">{shown}</th><td>{_minus(ends[0])} → {_minus(ends[1])}</td>'
        f'<td><span class="value">{_minus(value)}</span> <span class="ci">{_minus(limits)}</span></td>'
        f'<td class="{tone}">{verdict}</td><td class="drawn">{charts.whisker(change, reach, tone)}</td></tr>'
    )


def _verdict(change: Interval, number: Number | None) -> tuple[str, str]:
    if not change.excludes_zero:
        return "none", "no clear change"
    up = change.value > 0
    better = number.better if number else "neither"
    if better == "neither":
        return "none", "▲ more" if up else "▼ less"
    good = up == (better == "higher")
    return ("good" if good else "bad"), f"{'▲' if up else '▼'} {'better' if good else 'worse'}"


def _changed(pairs: Sequence[tuple[Sample, Sample]]) -> str:
    if not pairs:
        return ""
    cards = "".join(_card(*pair) for pair in pairs[:_SHOWN])
    more = len(pairs) - _SHOWN
    rest = f'<p class="muted">and {more} more</p>' if more > 0 else ""
    return f"<h3>Changed answers: {len(pairs)}</h3>{cards}{rest}"


def _card(before: Sample, after: Sample) -> str:
    gold = " · ".join(map(markup, after.answers[:6])) or "none"
    moved = f"{BADGES[before.label][1]} → {BADGES[after.label][1]}"
    return (
        f'<article class="example"><h3 dir="auto">{markup(after.question)}</h3>'
        f'<p class="gold">{moved}; accepted: <span dir="auto">{gold}</span></p>'
        f'<div class="answers">{answer_box("before", before)}{answer_box("after", after)}</div></article>'
    )


def _p(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.3f}"


def _minus(text: str) -> str:
    return markup(text.replace("-", "−"))


def _words(name: str) -> str:
    return markup(name.replace("_", " "))
