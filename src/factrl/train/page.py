"""Run folders as pages: the curves by step and what the policy wrote, of one run or of several side by side.

They are made from the folders alone, also while a run goes on.  Of held-out questions they have those that
the run asked on its way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.evals.charts import MOST, series_chart
from factrl.evals.plots import Point
from factrl.evals.report import curves_section
from factrl.runs.config import flat, read_toml
from factrl.runs.folder import count_states, read_metrics
from factrl.text.html import page, write_page

PAGE, RUNS_PAGE = "report.html", "runs.html"
_SHOWN_STEPS, _SHOWN_GROUPS = 3, 2
_LAST_STEPS, _ENDS = 10, 3  # where the worst and the best are looked for, and how many of each are shown
_COMMON = 4  # questions whose completions stand side by side
_PROMPT = 300  # characters of the end of a prompt
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
        ConfigError: the page cannot be written.
    """
    run = read_run(folder)
    with _damage(run.folder):
        points, files = _held_out(run.logged), run.rollouts
        paper = str(run.settings["paper"])
        shown = files if len(files) <= _SHOWN_STEPS else [files[0], files[len(files) // 2], files[-1]]
        keys = dict.fromkeys(key for row in run.metrics for key in row if key != "step")
        html = page(
            "train/run.html",
            title=f"{paper} on {run.settings['model']['name']}",
            facts=_facts(run.settings, run.metrics),
            thinned=len(run.metrics) > MOST,
            charts=[series_chart(chart.title, lines) for chart in CHARTS if (lines := lines_of(chart, run))],
            columns=["step", *keys],
            numbers=[[row["step"], *(number(row.get(key)) for key in keys)] for row in run.metrics],
            curves=curves_section({paper: points}) if points else "",
            states=_states(run.folder),
            last=len(files[-_LAST_STEPS:]),
            ends=_ends(files),
            steps=[_step(file) for file in shown],
            settings=(run.folder / "config.toml").read_text("utf-8"),
        )
    return write_page(path if path is not None else run.folder / PAGE, html)


def write_run_comparison(folders: Sequence[str | Path], path: str | Path | None = None) -> Path:
    """Write the page that compares runs, called A, B and so on in the order in which they are named.

    Args:
        folders: two or more run folders; what is compared comes last, as its outcomes are drawn by step.
        path: where to; by default `runs.html` in the last folder.

    Returns:
        The path of the page.

    Raises:
        ConfigError: a folder is named twice, or the page cannot be written.
        DataError: a folder holds no run, or no step of it was logged yet, or it is damaged.
    """
    paths = [Path(folder) for folder in folders]
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a run is compared with itself; name different run folders")
    names = [f"{ascii_uppercase[place % 26]}{place // 26 or ''}" for place in range(len(paths))]
    runs = {name: read_run(path) for name, path in zip(names, paths, strict=True)}
    with _damage(Path(", ".join(map(str, paths)))):
        curves = {name: points for name, run in runs.items() if (points := _held_out(run.logged))}
        charts = _charts(runs)
        html = page(
            "train/runs.html",
            title="runs compared",
            runs={name: str(run.folder) for name, run in runs.items()},
            different=_different([*runs.values()]),
            charts=[series_chart(title, lines) for title, lines in charts.items()],
            last=[
                [title, *(number(lines[name][-1][1]) if name in lines else "-" for name in names)]
                for title, lines in charts.items()
            ],
            curves=curves_section(curves) if curves else "",
            states=_shares([count_states(run.folder) for run in runs.values()]),
            written=_written(runs),
        )
    return write_page(path if path is not None else paths[-1] / RUNS_PAGE, html)


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """What is said of a folder whose files do not hold what they must."""
    try:
        yield
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{folder} is damaged, or not what factrl train wrote: {error!r}") from error


def _facts(settings: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    train = settings.get("train", {})
    seconds = sum(row.get("step_time") or 0.0 for row in metrics)
    return {
        "reward": str(settings["paper"]),
        "model": str(settings["model"]["name"]),
        "questions": str(settings["data"]["train"]),
        "steps": str(metrics[-1]["step"]),
        "completions per step": f"{train.get('prompts_per_step')} × {train.get('num_generations')}",
        "learning rate": f"{train.get('learning_rate'):g}",
        "loss": str(train.get("loss_type")),
        "seed": str(settings.get("run", {}).get("seed", 0)),
        "time in steps": f"{seconds / 60:.1f} min",
    }


# -- Numbers ------------------------------------------------------------------------------------------


def lines_of(chart: Chart, run: LoggedRun) -> dict[str, list[tuple[float, float]]]:
    """The (step, value) points of every line that a chart has of a run, by its name."""
    keys, lines = dict.fromkeys(key for row in run.metrics for key in row), {}
    for name, called in chart.names.items():
        before, star, after = name.partition("*")
        for key in [key for key in keys if key.startswith(before) and key.endswith(after)]:
            label = called or key[len(before) : len(key) - len(after)]
            scale = 100.0 if chart.share else 1.0
            points = [(row["step"], scale * row[key]) for row in run.metrics if row.get(key) is not None]
            if points and (key == name or (star and label != "sum")):
                lines[label] = points
    return lines


def number(value: Any) -> str:
    """A logged value as a table cell."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _held_out(logged: Sequence[Mapping[str, Any]]) -> list[Point]:
    """What the run asked on its way; empty where it asked nothing."""
    shares = ("accuracy", "abstention", "hallucination")
    rows = [row for row in logged if all(row.get(f"eval/{share}") is not None for share in shares)]
    return [Point(row["step"], *(row[f"eval/{share}"] for share in shares)) for row in rows]


def _states(folder: Path) -> Mapping[str, Any]:
    states = count_states(folder)
    odd = [(*key, count) for key, count in states.most_common() if key[0] != "scored"]
    return {"total": states.total(), "odd": odd, "count": sum(count for *_, count in odd)}


def _different(runs: Sequence[LoggedRun]) -> list[list[str]]:
    """The settings that are not the same in all runs, and their last steps."""
    settings = [flat(run.settings) for run in runs]
    keys = dict.fromkeys(key for one in settings for key in one if key != "run.dir")
    rows = [[key, *(one.get(key) for one in settings)] for key in keys]
    rows = [row for row in rows if any(value != row[1] for value in row[1:])]
    rows.append(["steps done", *(run.metrics[-1]["step"] for run in runs)])
    return [["-" if value is None else str(value) for value in row] for row in rows]


def _charts(runs: Mapping[str, LoggedRun]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """A chart for each quantity that a run has, with a line for every run that has it."""
    charts = {}
    for chart in CHARTS:
        lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for name, run in runs.items():
            for label, points in lines_of(chart, run).items():
                lines.setdefault(label, {})[name] = points
        for label, of in lines.items():
            alone = len(lines) == 1 and label in chart.title
            charts[chart.title if alone else f"{chart.title}: {label}"] = of
    return charts


def _shares(counts: Sequence[Counter[tuple[str, str]]]) -> list[list[str]]:
    """States of completions in percent, by run; empty where a run kept none."""
    if not all(of.total() for of in counts):
        return []
    return [
        [": ".join(filter(None, key)), *(f"{100 * of[key] / of.total():.1f}" for of in counts)]
        for key, _ in sum(counts, Counter()).most_common()
    ]


# -- Texts --------------------------------------------------------------------------------------------


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The completions of a step."""
    import pyarrow.parquet

    return pyarrow.parquet.read_table(file).to_pylist()


def _ends(rollouts: Sequence[Path]) -> list[Any]:
    """The completions that earned least and most towards the end of the run."""
    rows = [row for file in rollouts[-_LAST_STEPS:] for row in rows_of(file) if row["value"] is not None]
    ranked = sorted(
        {(row["id"], row["completion"]): row for row in rows}.values(), key=lambda row: row["value"]
    )
    if len({row["value"] for row in ranked}) < 2:
        return []
    count = min(_ENDS, len(ranked) // 2)
    return [[_group([row]) for row in part] for part in (ranked[:count], ranked[: -count - 1 : -1])]


def _step(file: Path) -> Mapping[str, Any]:
    rows = rows_of(file)
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row["id"])]
    more = max(0, len(groups) - _SHOWN_GROUPS)
    shown = [_group(group) for group in groups[:_SHOWN_GROUPS]]
    return {"step": rows[0]["step"], "groups": shown, "more": more, "file": file.name}


def _group(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """A prompt, the end of a long one, and what was written to it."""
    prompt = rows[0]["prompt"]
    short = prompt if len(prompt) <= _PROMPT else f"…{prompt[-_PROMPT:]}"
    return short, [_completion(row) for row in rows]


def _written(runs: Mapping[str, LoggedRun]) -> list[Any]:
    """What each run wrote last to questions that all of them were asked."""
    last: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        rows = last[name] = {}
        for file in run.rollouts:
            for row in rows_of(file):
                rows.pop(row["id"], None)  # so that the last ones come last
                rows[row["id"]] = row
    first, *others = last.values()
    common = [id_ for id_ in first if all(id_ in other for other in others)][-_COMMON:]
    return [
        (
            _group([first[id_]])[0],
            [(name, rows[id_]["step"], _completion(rows[id_])) for name, rows in last.items()],
        )
        for id_ in common
    ]


def _completion(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """One completion with what it earned, its judged steps and its checked claims."""
    terms = ", ".join(
        f"{key.removeprefix('term/')} {value:+.3g}"
        for key, value in row.items()
        if key.startswith("term/") and value is not None
    )
    facts, text = json.loads(row.get("facts") or "{}"), row["completion"]
    checked = facts.get("checked")
    pieces, position = [], 0
    for start, end, sign in json.loads(row.get("spans") or "[]"):
        pieces += [(text[position:start], None), (text[start:end], (f"s{sign + 1}", *_SIGNS[sign]))]
        position = end
    return {
        "edge": {"scored": "c", "floored": "w"}.get(row["state"], "m"),
        "state": ", ".join(filter(None, (row["state"], row["cause"]))),
        "value": "no reward" if row["value"] is None else f"{row['value']:+.3g}",
        "terms": terms,
        "advantage": "" if row["advantage"] is None else f"advantage {row['advantage']:+.2f}",
        "facts": ", ".join(f"{name} {number(fact)}" for name, fact in facts.items() if _is_short(fact)),
        "text": text,
        "pieces": [*pieces, (text[position:], None)],
        "claims": [one for one in checked if isinstance(one, dict)] if isinstance(checked, list) else [],
    }


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and 0 < len(value) <= 60)
