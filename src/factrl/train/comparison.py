"""Training runs side by side on one HTML page: what they were told, how they went, what they wrote.

Made from the folders alone, as the page of one run is (`run_page`), with a line for each run in every chart;
the runs are called A, B and so on in the order in which they are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from factrl.errors import ConfigError
from factrl.evals.charts import series_chart
from factrl.evals.report import curves_section, facts_list, html_page
from factrl.runs.config import flat
from factrl.runs.folder import count_states
from factrl.text.escape import markup
from factrl.train.page import (
    CHARTS,
    LoggedRun,
    article_of,
    completion_of,
    damaged,
    held_out_points,
    lines_of,
    number,
    read_run,
    rows_of,
)

PAGE = "runs.html"
_SHOWN = 4  # questions whose completions stand side by side


def write_run_comparison(folders: Sequence[str | Path], path: str | Path | None = None) -> Path:
    """Write the page that compares runs.

    Args:
        folders: two or more run folders; what is compared comes last, as its outcomes are drawn by step.
        path: where to; by default `runs.html` in the last folder.

    Returns:
        The path of the page.

    Raises:
        ConfigError: a folder is named twice.
        DataError: a folder holds no run, or no step of it was logged yet, or it is damaged.
    """
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a run is compared with itself; name different run folders")
    runs = {_letter(place): read_run(path) for place, path in enumerate(paths)}
    try:
        body = [
            '<p class="eyebrow">factrl runs compared</p>',
            f"<h1>{len(runs)} runs</h1>",
            facts_list({letter: str(run.folder) for letter, run in runs.items()}),
            _told_apart(runs),
            _charts(runs),
            _on_the_way(runs),
            _states(runs),
            _written(runs),
        ]
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise damaged(Path(", ".join(map(str, paths))), error) from error
    target = Path(path) if path is not None else paths[-1] / PAGE
    target.write_text(html_page("runs compared", body), encoding="utf-8")
    return target


def _letter(place: int) -> str:
    """A short name for the charts: A to Z, then A1 and so on."""
    return f"{ascii_uppercase[place % 26]}{place // 26 or ''}"


def _told_apart(runs: Mapping[str, LoggedRun]) -> str:
    """The settings that are not the same in all runs, and their last steps."""
    settings = [flat(run.settings) for run in runs.values()]
    keys = dict.fromkeys(key for told in settings for key in told if key != "run.dir")
    rows = [(key, [told.get(key) for told in settings]) for key in keys]
    rows = [(key, values) for key, values in rows if any(value != values[0] for value in values)]
    rows.append(("steps done", [run.metrics[-1]["step"] for run in runs.values()]))
    shown = [(key, ["-" if value is None else str(value) for value in values]) for key, values in rows]
    return f"<section><h2>What is different</h2>{_table('setting', runs, shown)}</section>"


def _charts(runs: Mapping[str, LoggedRun]) -> str:
    """One chart for each quantity that a run has, with a line for every run that has it."""
    drawn, last = [], []
    for chart in CHARTS:
        lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for name, run in runs.items():
            for label, points in lines_of(chart, run.metrics):
                lines.setdefault(label, {})[name] = points
        for label, of in lines.items():
            title = chart.title if len(lines) == 1 and label in chart.title else f"{chart.title}: {label}"
            drawn.append(f"<div>{series_chart(title, of)}</div>")
            last.append((title, [number(of[name][-1][1]) if name in of else "-" for name in runs]))
    return (
        "<section><h2>By step</h2><p>Means over the completions of a step, on what each run trained on.</p>"
        f'<div class="charts">{"".join(drawn)}</div><details><summary>The last step of each</summary>'
        f"{_table('', runs, last)}</details></section>"
    )


def _on_the_way(runs: Mapping[str, LoggedRun]) -> str:
    curves = {name: points for name, run in runs.items() if (points := held_out_points(run.logged))}
    return curves_section(curves, [*curves][-1]) if curves else ""


def _states(runs: Mapping[str, LoggedRun]) -> str:
    counts = [count_states(run.folder) for run in runs.values()]
    if not all(of.total() for of in counts):
        return ""
    rows = [
        (": ".join(filter(None, key)), [f"{100 * of[key] / of.total():.1f}" for of in counts])
        for key, _ in sum(counts, Counter()).most_common()
    ]
    return f"<section><h2>States of completions, %</h2>{_table('state', runs, rows)}</section>"


def _written(runs: Mapping[str, LoggedRun]) -> str:
    """What each run wrote last to questions that all of them were asked."""
    last = {name: _last_written(run.rollouts) for name, run in runs.items()}
    first, *others = last.values()
    common = [id_ for id_ in first if all(id_ in other for other in others)][-_SHOWN:]
    if not common:
        return "<section><h2>What they wrote</h2><p>No question was put to all of them.</p></section>"
    articles = []
    for id_ in common:
        answers = "".join(
            f'<div><p class="muted">{name}, step {rows[id_]["step"]}</p>{completion_of(rows[id_])}</div>'
            for name, rows in last.items()
        )
        articles.append(article_of(first[id_]["prompt"], answers))
    return (
        "<section><h2>What they wrote</h2><p>The last of each run to questions that all were asked.</p>"
        f"{''.join(articles)}</section>"
    )


def _last_written(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """The last completion to each question, in the order of the steps."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in rows_of(file):
            found.pop(row["id"], None)
            found[row["id"]] = row
    return found


def _table(first: str, runs: Mapping[str, LoggedRun], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = "".join(f"<th>{markup(name)}</th>" for name in (first, *runs))
    body = "".join(
        f'<tr><th scope="row">{markup(name)}</th>{"".join(f"<td>{markup(cell)}</td>" for cell in cells)}</tr>'
        for name, cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{markup(first) or "numbers"}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
