"""The folder of a training run as one HTML page: its curves by step, and what the policy wrote on the way.

It is made from the folder alone, also while the run goes on.  Of held-out questions it has those that the
run asked on its way.  Like every page of factrl it runs no script, and every text in it is escaped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.evals.charts import MOST, series_chart
from factrl.evals.plots import Point
from factrl.evals.report import curves_section, facts_list, html_page
from factrl.runs.config import read_toml
from factrl.runs.folder import count_states, read_metrics
from factrl.text.escape import attribute, markup
from factrl.train.signals.alarms import alarms_section

PAGE = "report.html"
_SHOWN_STEPS, _SHOWN_GROUPS = 3, 2
_LAST_STEPS, _ENDS = 10, 3  # where the worst and the best are looked for, and how many of each are shown
_SIGNS = {1: ("S", "supported"), -1: ("C", "contradicted"), 0: ("N", "neutral")}


@dataclass(frozen=True, slots=True)
class Chart:
    """Which metrics one chart shows.

    Attributes:
        names: metric -> what its line is called; `rewards/*/mean` stands for every term.
        share: the values are shares, shown in percent.
    """

    title: str
    names: Mapping[str, str]
    share: bool = False


CHARTS = (
    Chart("reward and its terms", {"rewards/sum/mean": "sum", "rewards/*/mean": ""}),
    Chart("states, %", {"reward/masked_frac": "masked", "reward/floored_frac": "floored"}, share=True),
    Chart(
        "answers, %",
        {"abstain/rate": "abstained", "answer/correct_given_attempt": "right if tried"},
        share=True,
    ),
    Chart(
        "tokens by step, %",
        {f"credit/{name}": name for name in ("supported", "contradicted", "flipped")},
        share=True,
    ),
    Chart("tokens of a completion", {"completions/mean_length": "mean"}),
    Chart("entropy and KL", {"entropy": "entropy", "kl": "KL"}),
)


@dataclass(frozen=True)
class LoggedRun:
    """What the folder of a run holds.

    Attributes:
        settings: its `config.toml`.
        logged: every logged row.
        metrics: those of training steps, at least one.
        rollouts: what was written, a file for a step, in order.
    """

    folder: Path
    settings: Mapping[str, Any]
    logged: Sequence[Mapping[str, Any]]
    metrics: Sequence[Mapping[str, Any]]
    rollouts: Sequence[Path]


def read_run(folder: str | Path) -> LoggedRun:
    """The folder of a run.

    Raises:
        DataError: the folder holds no run, or no step of it was logged yet.
    """
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise DataError(f"{folder} is not a run folder (no config.toml); give one that factrl train made")
    logged = read_metrics(folder)
    metrics = [row for row in logged if "reward" in row]
    if not metrics:
        raise DataError(f"{folder}: no step was logged yet; come back when the run has done one")
    rollouts = sorted((folder / "rollouts").glob("step_*.parquet"))
    return LoggedRun(folder, read_toml(folder / "config.toml"), logged, metrics, rollouts)


def write_run_page(folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page of a run.

    Args:
        folder: the run folder.
        path: where to; by default `report.html` in the folder.

    Returns:
        The path of the page.

    Raises:
        DataError: the folder holds no run, or no step of it was logged yet, or it is damaged.
    """
    run = read_run(folder)
    told = markup((run.folder / "config.toml").read_text("utf-8"))
    try:
        title = f"{run.settings['paper']} on {run.settings['model']['name']}"
        body = [
            f'<p class="eyebrow">factrl run report</p><h1>{markup(title)}</h1>',
            facts_list(_facts(run.settings, run.metrics)),
            _curves(run.metrics),
            _held_out(str(run.settings["paper"]), run.logged),
            alarms_section(run.folder, run.metrics),
            _masked(run.folder),
            _ends(run.rollouts),
            *(_step(file) for file in _first_middle_last(run.rollouts)),
            f'<section><h2>Settings</h2><pre class="text tall" tabindex="0" role="region" '
            f'aria-label="settings">{told}</pre></section>',
        ]
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise damaged(run.folder, error) from error
    target = Path(path) if path is not None else run.folder / PAGE
    target.write_text(html_page(title, body), encoding="utf-8")
    return target


def damaged(folder: Path, error: Exception) -> DataError:
    """What is said of a folder whose files do not hold what they must."""
    return DataError(f"{folder} is damaged, or not what factrl train wrote: {error!r}")


def _facts(settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    told = settings.get("train", {})
    seconds = sum(row.get("step_time") or 0.0 for row in metrics)
    return {
        "reward": str(settings["paper"]),
        "model": str(settings["model"]["name"]),
        "questions": str(settings["data"]["train"]),
        "steps": str(metrics[-1]["step"]),
        "completions per step": f"{told.get('prompts_per_step')} × {told.get('num_generations')}",
        "learning rate": f"{told.get('learning_rate'):g}",
        "loss": str(told.get("loss_type")),
        "seed": str(settings.get("run", {}).get("seed", 0)),
        "time in steps": f"{seconds / 60:.1f} min",
    }


# -- Curves -------------------------------------------------------------------------------------------


def _curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    drawn: list[str] = []
    for chart in CHARTS:
        lines = dict(lines_of(chart, metrics))
        if lines:
            drawn.append(f"<div>{series_chart(chart.title, lines)}</div>")
    few = " Points of a long run are means of neighbouring steps." if len(metrics) > MOST else ""
    names = [name for name in dict.fromkeys(key for row in metrics for key in row) if name != "step"]
    head = "".join(f"<th>{markup(name)}</th>" for name in ("step", *names))
    rows = "".join(
        f"<tr><th>{row['step']}</th>{''.join(f'<td>{number(row.get(name))}</td>' for name in names)}</tr>"
        for row in metrics
    )
    return (
        f"<section><h2>By step</h2><p>Means over the completions of a step, on what it trained on.{few}</p>"
        f'<div class="charts">{"".join(drawn)}</div><details><summary>Every logged number</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="numbers"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details></section>"
    )


def lines_of(
    chart: Chart, metrics: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The name and the (step, value) points of every line that a chart has of a run."""
    for name, called in chart.names.items():
        before, star, after = name.partition("*")
        for key in [key for key in _keys(metrics) if key.startswith(before) and key.endswith(after)]:
            label = called or key[len(before) : len(key) - len(after)]
            scale = 100.0 if chart.share else 1.0
            points = [(row["step"], scale * row[key]) for row in metrics if row.get(key) is not None]
            if points and (key == name or (star and label != "sum")):
                yield label, points


def _keys(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in metrics for key in row))


def number(value: Any) -> str:
    """A logged value as a table cell."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else markup(str(value))


def _held_out(name: str, logged: Sequence[Mapping[str, Any]]) -> str:
    points = held_out_points(logged)
    return curves_section({name: points}, name) if points else ""


def held_out_points(logged: Sequence[Mapping[str, Any]]) -> list[Point]:
    """What the run asked on its way; empty where it asked nothing."""
    shares = ("accuracy", "abstention", "hallucination")
    rows = [row for row in logged if all(row.get(f"eval/{share}") is not None for share in shares)]
    return [Point(row["step"], *(row[f"eval/{share}"] for share in shares)) for row in rows]


# -- Rollouts -----------------------------------------------------------------------------------------


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The completions of a step."""
    import pyarrow.parquet

    return pyarrow.parquet.read_table(file).to_pylist()


def _masked(folder: Path) -> str:
    states = count_states(folder)
    causes = Counter({key: count for key, count in states.items() if key[0] != "scored"})
    if not causes:
        return f"<section><h2>Not scored</h2><p>All {states.total()} completions were scored.</p></section>"
    lines = "".join(
        f'<tr><th scope="row">{markup(state)}</th><td>{markup(cause)}</td><td>{count}</td></tr>'
        for (state, cause), count in causes.most_common()
    )
    return (
        f"<section><h2>Not scored: {causes.total()} of {states.total()} completions</h2><p>Masked: our side "
        "failed, and the completion took no part in the update. Floored: its own text was ungradable.</p>"
        '<table class="causes"><thead><tr><th>state</th><th>cause</th><th>completions</th></tr></thead>'
        f"<tbody>{lines}</tbody></table></section>"
    )


def _ends(rollouts: Sequence[Path]) -> str:
    """The completions that earned least and most towards the end of the run."""
    rows = [row for file in rollouts[-_LAST_STEPS:] for row in rows_of(file) if row["value"] is not None]
    ranked = sorted(
        {(row["id"], row["completion"]): row for row in rows}.values(), key=lambda row: row["value"]
    )
    if len({row["value"] for row in ranked}) < 2:
        return ""
    count = min(_ENDS, len(ranked) // 2)
    worst, best = (
        "".join(_group([row]) for row in part) for part in (ranked[:count], ranked[: -count - 1 : -1])
    )
    return (
        f"<section><h2>Worst and best</h2><p>Of the last {len(rollouts[-_LAST_STEPS:])} steps, by reward.</p>"
        f"<details open><summary>earned least</summary>{worst}</details>"
        f"<details><summary>earned most</summary>{best}</details></section>"
    )


def _first_middle_last(files: Sequence[Path]) -> list[Path]:
    if len(files) <= _SHOWN_STEPS:
        return list(files)
    return [files[0], files[len(files) // 2], files[-1]]


def _step(file: Path) -> str:
    rows = rows_of(file)
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row["id"])]
    shown = "".join(map(_group, groups[:_SHOWN_GROUPS]))
    more = len(groups) - _SHOWN_GROUPS
    rest = f'<p class="muted">and {more} more questions in {markup(file.name)}</p>' if more > 0 else ""
    return f"<section><h2>What it wrote at step {markup(str(rows[0]['step']))}</h2>{shown}{rest}</section>"


def _group(rows: Sequence[Mapping[str, Any]]) -> str:
    return article_of(rows[0]["prompt"], "".join(map(completion_of, rows)))


def article_of(prompt: str, answers: str) -> str:
    """A prompt, the end of a long one, over the markup of what was written to it."""
    short = prompt if len(prompt) <= 300 else f"…{prompt[-300:]}"
    head = f'<h3 dir="auto">{markup(short)}</h3>'
    return f'<article class="example">{head}<div class="answers">{answers}</div></article>'


def completion_of(row: Mapping[str, Any]) -> str:
    """One completion with what it earned, its judged steps and its checked claims."""
    terms = ", ".join(
        f"{key.removeprefix('term/')} {value:+.3g}"
        for key, value in row.items()
        if key.startswith("term/") and value is not None
    )
    edge = {"scored": "c", "floored": "w"}.get(row["state"], "m")
    value = "no reward" if row["value"] is None else f"{row['value']:+.3g}"
    advantage = "" if row["advantage"] is None else f"advantage {row['advantage']:+.2f}"
    told = ", ".join(filter(None, (row["state"], row["cause"])))
    tall = len(row["completion"]) > 600
    scrolls = ' tabindex="0" role="region" aria-label="completion"' if tall else ""
    facts = json.loads(row.get("facts") or "{}")
    found = ", ".join(f"{markup(name)} {number(fact)}" for name, fact in facts.items() if _is_short(fact))
    return (
        f'<div class="answer edge-{edge}"><header><span>{markup(told)}</span><b>{value}</b>'
        f"<span>{markup(terms)}</span><span>{advantage}</span>"
        f'<span class="muted">{found}</span></header>'
        f'<div class="text{" tall" if tall else ""}" dir="auto"{scrolls}>{_credited(row)}</div>'
        f"{_claims(facts.get('checked'))}</div>"
    )


def _claims(checked: Any) -> str:
    """What was found of a completion's claims, where the reward kept it (`Report.checked`)."""
    claims = [claim for claim in checked if isinstance(claim, Mapping)] if isinstance(checked, list) else []
    if not claims:
        return ""

    def cells(claim: Mapping[str, Any]) -> str:
        verdict, said, quote, source = (
            markup(str(claim.get(name) or "")) for name in ("verdict", "claim", "quote", "source")
        )
        evidence = f"“{quote}”" + (f" ({source})" if source else "") if quote else ""
        head = f'<td>{verdict}</td><th scope="row" dir="auto">{said}</th>'
        return f'<tr>{head}<td dir="auto">{evidence}</td></tr>'

    return (
        f"<details><summary>claims that were checked: {len(claims)}</summary>"
        '<table class="claims"><thead><tr><th>verdict</th><th>claim</th><th>evidence</th></tr></thead>'
        f"<tbody>{''.join(map(cells, claims))}</tbody></table></details>"
    )


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and 0 < len(value) <= 60)


def _credited(row: Mapping[str, Any]) -> str:
    """The completion with every judged step marked by a letter and a line, never by colour alone."""
    text, parts, position = row["completion"], [], 0
    for start, end, sign in json.loads(row.get("spans") or "[]"):
        letter, word = _SIGNS[sign]
        parts.append(markup(text[position:start]))
        inside = markup(text[start:end])
        parts.append(
            f'<span class="step s{sign + 1}" title="{attribute(word)}"><i>{letter}</i>{inside}</span>'
        )
        position = end
    parts.append(markup(text[position:]))
    return "".join(parts) or '<span class="muted">(empty)</span>'
