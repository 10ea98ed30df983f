"""The page of a run, made from its folder: curves by step, and what the policy wrote, also on the way."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.evals.plots import MOST, Point, series_chart
from factrl.evals.report import curves_section
from factrl.runs.config import read_toml
from factrl.runs.disk import write_page
from factrl.runs.folder import count_states, read_metrics
from factrl.text.html import page
from factrl.types import Label

PAGE = "report.html"
_SHOWN_STEPS, _SHOWN_GROUPS = 3, 2
_LAST_STEPS, _ENDS = 10, 3  # where the worst and the best are looked for, and how many of each are shown
_UNLISTED = 8  # texts that are shown of those that read like a refusal and were paid as wrong
_PROMPT = 300  # characters of the end of a prompt
_SIGNS = {1: ("S", "supported"), -1: ("C", "contradicted"), 0: ("N", "neutral")}
_LABELS: Mapping[str, Label] = {
    "accuracy": "correct",
    "abstention": "abstained",
    "hallucination": "incorrect",
}
# A chart's title, and what its lines are called by metric; shares, shown in percent, end in a sign.
_CHARTS: Mapping[str, Mapping[str, str]] = {
    "reward and its terms": {"rewards/sum/mean": "sum", "rewards/*/mean": ""},
    "states, %": {"reward/masked_frac": "masked", "reward/floored_frac": "floored"},
    "answers, %": {
        "abstain/rate": "abstained",
        "answer/correct_given_attempt": "right if tried",
        "abstain/unlisted": "refused in other words",
    },
    "tokens by step, %": {f"credit/{name}": name for name in ("supported", "contradicted", "flipped")},
    "tokens of a completion": {"completions/mean_length": "mean"},
    "entropy and KL": {"entropy": "entropy", "kl": "KL"},
}


def write_run_page(folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page of a run folder, by default into it; returns its path.

    Raises:
        DataError: the folder holds no run, or no step of it was logged yet, or it is damaged.
    """
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise DataError(f"{folder} is not a run folder (no config.toml); give one that factrl train made")
    logged = read_metrics(folder)
    metrics = [row for row in logged if "reward" in row]
    if not metrics:
        raise DataError(f"{folder}: no step was logged yet; come back when the run has done one")
    rollouts = sorted((folder / "rollouts").glob("step_*.parquet"))
    with _damage(folder):
        settings, keys = read_toml(folder / "config.toml"), dict.fromkeys(k for row in metrics for k in row)
        paper, train = str(settings["paper"]), settings.get("train", {})
        evaluated = [row for row in logged if all(row.get(f"eval/{name}") is not None for name in _LABELS)]
        points = [Point(row["step"], *(row[f"eval/{name}"] for name in _LABELS)) for row in evaluated]
        middle = [rollouts[0], rollouts[len(rollouts) // 2], rollouts[-1]] if rollouts else []
        html = page(
            "train/run.html",
            title=f"{paper} on {settings['model']['name']}",
            facts={
                "reward": paper,
                "model": str(settings["model"]["name"]),
                "questions": str(settings["data"]["train"]),
                "steps": str(metrics[-1]["step"]),
                "completions per step": f"{train.get('prompts_per_step')} × {train.get('num_generations')}",
                "learning rate": f"{train.get('learning_rate'):g}",
                "loss": str(train.get("loss_type")),
                "seed": str(settings.get("run", {}).get("seed", 0)),
                "time in steps": _minutes(metrics),
                **_prompts(logged),
            },
            outcome=_outcome(points, metrics),
            thinned=len(metrics) > MOST,
            charts=[series_chart(title, lines) for title in _CHARTS if (lines := _lines(title, metrics))],
            columns=list(keys),
            numbers=[[_number(row.get(key)) for key in keys] for row in metrics],
            curves=curves_section(points) if points else "",
            states=_states(folder),
            last=len(rollouts[-_LAST_STEPS:]),
            ends=_ends(rollouts),
            unlisted=_unlisted(rollouts),
            steps=[_step(file) for file in (rollouts if len(rollouts) <= _SHOWN_STEPS else middle)],
            settings=(folder / "config.toml").read_text("utf-8"),
        )
    return write_page(path if path is not None else folder / PAGE, html)


def _prompts(logged: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What became of prompts that were too long; nothing where none was."""
    counts = next((row for row in logged if "prompts/too_long" in row), {})
    shown = {"prompts too long, left out": "too_long", "prompts with documents cut": "cut"}
    return {name: str(n) for name, key in shown.items() if (n := counts.get(f"prompts/{key}"))}


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """Reports files that do not hold what they should as damage of the folder."""
    try:
        yield
    except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{folder} is damaged, or not what factrl train wrote: {error!r}") from error


def _outcome(points: Sequence[Point], metrics: Sequence[Mapping[str, Any]]) -> str:
    """The result of the run in one line: on held-out questions, else the reward."""
    if not points:
        paid = [row for row in metrics if row["reward"] is not None]
        if not paid:
            return "no completion could be graded, so there is no reward; no question was held out"
        ends = [f"{row['reward']:.2f} at step {row['step']}" for row in (paid[0], paid[-1])]
        return f"reward {' → '.join(ends)}; no question was held out"
    first, last = points[0], points[-1]
    changes = [
        f"{name} {100 * getattr(first, name):.1f} → {100 * getattr(last, name):.1f} %"
        for name in ("hallucination", "abstention", "accuracy")
    ]
    when = f"step {first.step} → {last.step}" if len(points) > 1 else f"step {last.step}"
    return f"held-out questions, {when}: {', '.join(changes)}"


def _minutes(metrics: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(row.get('step_time') or 0.0 for row in metrics) / 60:.1f} min"


def _lines(title: str, metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """The (step, value) points of every line that a chart has, by its name."""
    keys, lines = dict.fromkeys(key for row in metrics for key in row), {}
    scale = 100.0 if title.endswith("%") else 1.0
    for name, called in _CHARTS[title].items():
        before, star, after = name.partition("*")
        for key in [key for key in keys if key.startswith(before) and key.endswith(after)]:
            label = called or key[len(before) : len(key) - len(after)]
            points = [(row["step"], scale * row[key]) for row in metrics if row.get(key) is not None]
            if points and (key == name or (star and label != "sum")):
                lines[label] = points
    # A reward of one term is that term.
    return {name: points for name, points in lines.items() if name == "sum" or points != lines.get("sum")}


def _number(value: Any) -> str:
    """A logged value as a table cell."""
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _states(folder: Path) -> Mapping[str, Any]:
    """The number of a run's completions, and of those that were not scored, by state and cause."""
    states = count_states(folder)
    odd = [(*key, count) for key, count in states.most_common() if key[0] != "scored"]
    return {"total": states.total(), "odd": odd, "count": sum(count for *_, count in odd)}


def _rows_of(file: Path) -> list[dict[str, Any]]:
    """The completions of a step."""
    import pyarrow.parquet

    return pyarrow.parquet.read_table(file).to_pylist()


def _ends(rollouts: Sequence[Path]) -> list[Any]:
    """The completions that earned least and most towards the end of the run."""
    rows = [row for file in rollouts[-_LAST_STEPS:] for row in _rows_of(file) if row["value"] is not None]
    each = {(row["id"], row["completion"]): row for row in rows}
    ranked = sorted(each.values(), key=lambda row: row["value"])
    if len({row["value"] for row in ranked}) < 2:
        return []
    count = min(_ENDS, len(ranked) // 2)
    return [[_group([row]) for row in part] for part in (ranked[:count], ranked[: -count - 1 : -1])]


def _unlisted(rollouts: Sequence[Path]) -> Mapping[str, Any]:
    """What read like a refusal and was paid as wrong, towards the end of the run."""
    rows = [row for file in rollouts[-_LAST_STEPS:] for row in _rows_of(file)]
    those = [row for row in rows if json.loads(row.get("facts") or "{}").get("how") == "unlisted"]
    each = {(row["id"], row["completion"]): row for row in those}
    groups = [_group([row]) for row in [*each.values()][:_UNLISTED]]
    return {"count": len(those), "total": len(rows), "groups": groups}


def _step(file: Path) -> Mapping[str, Any]:
    rows = _rows_of(file)
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row["id"])]
    more = max(0, len(groups) - _SHOWN_GROUPS)
    shown = [_group(group) for group in groups[:_SHOWN_GROUPS]]
    return {"step": rows[0]["step"], "groups": shown, "more": more, "file": file.name}


def _group(rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """A question, or the end of a long prompt, and its completions; equal ones are counted."""
    question = rows[0].get("question") or rows[0]["prompt"]
    short = question if len(question) <= _PROMPT else f"…{question[-_PROMPT:]}"
    alike = defaultdict[tuple[Any, ...], list[Mapping[str, Any]]](list)
    for row in rows:
        alike[row["completion"], row["state"], row["cause"], row["value"]].append(row)
    return short, [_completion(same[0], len(same)) for same in alike.values()]


def _completion(row: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """A completion with its count, reward, judged steps and checked claims."""
    facts, text = json.loads(row.get("facts") or "{}"), row["completion"]
    checked = facts.get("checked")
    pieces, position = [], 0
    for start, end, sign in json.loads(row.get("spans") or "[]"):
        pieces += [(text[position:start], None), (text[start:end], (f"s{sign + 1}", *_SIGNS[sign]))]
        position = end
    terms = {key.removeprefix("term/"): n for key, n in row.items() if key.startswith("term/")}
    return {
        "edge": {"scored": "c", "floored": "w"}.get(row["state"], "m"),
        "state": f"{count} × " * (count > 1) + ", ".join(filter(None, (row["state"], row["cause"]))),
        "value": "no reward" if row["value"] is None else f"{row['value']:+.3g}",
        "terms": ", ".join(f"{name} {n:+.3g}" for name, n in terms.items() if n is not None),
        "advantage": "" if row["advantage"] is None else f"advantage {row['advantage']:+.2f}",
        "facts": ", ".join(f"{name} {_number(one)}" for name, one in facts.items() if _is_short(one)),
        "text": text,
        "pieces": [*pieces, (text[position:], None)],
        "claims": [one for one in checked if isinstance(one, dict)] if isinstance(checked, list) else [],
    }


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and 0 < len(value) <= 60)
