"""What a run shows: the page of its folder, and the card of the model that it made.

Both are made from the folder.  The page has the curves by step and what the policy wrote, also while the run
goes on.  The card, `README.md` in the folder of the model with the hub's header, says what was learnt from
what, who judged it, what changed on held-out questions, what could not be graded and what the judge cost; it
replaces what a library left there.

A card is meant to be shown, so nothing in it names an address of a server or a key, and of a path only the
last part is left; every text that is not ours is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from factrl import __version__
from factrl.errors import DataError
from factrl.evals.metrics import short_form
from factrl.evals.plots import MOST, Point, series_chart
from factrl.evals.report import curves_section
from factrl.job import Job
from factrl.llm import models
from factrl.llm.spending import read_account
from factrl.llm.writers import digest_of
from factrl.papers import load_paper, split_spec
from factrl.runs.config import read_toml
from factrl.runs.disk import write_page, write_whole
from factrl.runs.folder import count_states, read_metrics, redact
from factrl.runs.settings import LOCAL, RunSettings
from factrl.text.escape import markdown
from factrl.text.html import page
from factrl.train.plan import Plan
from factrl.train.tuning.plan import TunePlan
from factrl.train.tuning.samples import TuningResult
from factrl.types import Example, Grade, Label

PAGE, CARD = "report.html", "README.md"
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
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")


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
            },
            outcome=_outcome(points, metrics),
            thinned=len(metrics) > MOST,
            charts=[series_chart(title, lines) for title in _CHARTS if (lines := _lines(title, metrics))],
            columns=list(keys),
            numbers=[[_number(row.get(key)) for key in keys] for row in metrics],
            curves=curves_section({paper: points}) if points else "",
            states=_states(folder),
            last=len(rollouts[-_LAST_STEPS:]),
            ends=_ends(rollouts),
            unlisted=_unlisted(rollouts),
            steps=[_step(file) for file in (rollouts if len(rollouts) <= _SHOWN_STEPS else middle)],
            settings=(folder / "config.toml").read_text("utf-8"),
        )
    return write_page(path if path is not None else folder / PAGE, html)


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
        ends = [f"{row['reward']:.2f} at step {row['step']}" for row in (metrics[0], metrics[-1])]
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


# -- The card of a model ------------------------------------------------------------------------------


def write_training_card(plan: Plan, run: Path) -> Path:
    """The card of `factrl train`, into `model` of its run folder; returns its path."""
    settings, train, metrics = plan.settings, plan.settings.train, read_metrics(run)
    needed = plan.job.reward.missing
    steps = max((row["step"] for row in metrics), default=0)
    reinforce = train.loss_type == "reinforce++"
    spent, price = read_account(run).total, settings.judge.price
    tokens = f"{spent.calls:,}; {spent.tokens_in:,} + {spent.tokens_out:,} tokens"
    cost = "" if price is None else f", ${spent.cost(price):.4g}"
    facts = {
        "steps": f"{steps} of {train.prompts_per_step} questions with {train.num_generations} completions",
        "learning rate": f"{train.learning_rate:g}",
        "time in steps": _minutes(metrics),
        "judge": _judge(plan.job, grades="grade" in needed),
        "judge calls": tokens + cost if spent.calls else "none to a server",
    }
    if "verify" in needed:
        facts["claims"] = (
            f"verifier {settings.verifier.preset}, judge {shown(settings.verifier.judge or 'as usual')}"
        )
    rows = [row for row in metrics if row.get("eval/masked") is not None and plan.held_out]
    ends = [*rows[:1], *rows[1:][-1:]]
    summaries = [short_form(_grades(row, len(plan.held_out))) for row in ends]
    lines = [
        (
            name.replace("_", " "),
            *("–" if one.metrics[name] is None else str(one.metrics[name]) for one in summaries),
        )
        for name in (summaries[0].metrics if summaries else ())
    ]
    lines += [
        ("graded", *(str(one.n) for one in summaries)),
        ("masked", *(str(one.masked) for one in summaries)),
    ]
    return _write_card(
        run,
        settings,
        ("REINFORCE++", "reinforce") if reinforce else (f"GRPO ({train.loss_type} loss)", "grpo"),
        plan.examples,
        facts,
        questions=len(plan.held_out) if summaries else 0,
        columns=[f"step {row['step']}" for row in ends],
        lines=lines,
        states=_states(run),
    )


def write_tuning_card(plan: TunePlan, run: Path, outcome: TuningResult | None) -> Path:
    """The card of `factrl tune`, into `model` of its run folder; returns its path."""
    settings, tune = plan.settings, plan.settings.tune
    rounds = [json.loads(file.read_text("utf-8")) for file in run.glob("data/**/left_out.json")]
    facts = {
        "rounds": str(tune.rounds),
        "rows": str(sum(one["rows"] for one in rounds)),
        "learning rate": f"{settings.train.learning_rate:g}",
        "judge": _judge(plan.job, grades=settings.measure == "grade" or bool(plan.held_out)),
    }
    return _write_card(
        run,
        settings,
        (tune.method + (f", rule {tune.rule}" if tune.rule else ""), "dpo" if tune.rule else "sft"),
        plan.examples,
        facts,
        questions=len(outcome.examples) if outcome else 0,
        columns=["before", "after", "paired difference"],
        lines=outcome.lines() if outcome else [],
    )


def _write_card(
    run: Path,
    settings: RunSettings,
    method: tuple[str, str],
    examples: Sequence[Example],
    facts: Mapping[str, str],
    **values: Any,
) -> Path:
    """The card: header, title and recipe, and the `values` of this kind of run.

    Args:
        method: in words, and its tag on the hub, such as `grpo`.
        examples: what was learnt from.
    """
    folder, (paper, part) = run / "model", split_spec(settings.paper)
    own, data = paper.endswith(".py"), _on_hub(settings.data.train)
    header = {
        "base_model": _on_hub(settings.model.name),
        "library_name": "peft" if (folder / "adapter_config.json").exists() else "transformers",
        "pipeline_tag": "text-generation",
        "datasets": [data] if data else None,
        "tags": ["factrl", "trl", method[1], *([paper] if paper and not own else [])],
    }
    arxiv = _ARXIV.search(load_paper(paper).__doc__ or "") if paper and not own else None
    fingerprint = digest_of(*((e.id, e.question, tuple(e.answers)) for e in examples))
    engine = Environment(finalize=_escaped, undefined=StrictUndefined, trim_blocks=True)  # noqa: S701 - Markdown
    card = engine.from_string(files("factrl").joinpath("train/card.md").read_text("utf-8")).render(
        {"states": None, **values},
        header={name: json.dumps(value) for name, value in header.items() if value},
        model=shown(settings.model.name),
        rank=settings.model.lora_rank if settings.model.lora else None,
        method=method[0],
        paper=f"{shown(paper)}:{part}" if own and part else shown(settings.paper),
        arxiv=arxiv[1] if arxiv else "",
        questions_of=f"{shown(settings.data.train)}: {len(examples)}, fingerprint {fingerprint}",
        facts={**facts, "seed": settings.run.seed, "factrl": __version__},
        file=shown(settings.data.eval or ""),
    )
    write_whole(folder / CARD, (card.rstrip() + "\n").encode())
    return folder / CARD


def _escaped(value: object) -> object:
    """Text that is not ours, inside a line of Markdown; what a template marks as `safe` is."""
    return value if isinstance(value, Markup) else markdown(str(value))


def shown(text: str) -> str:
    """A text of the settings without what belongs to one machine: paths, addresses and keys."""
    if re.match(r"\w+://", text):
        return "a server"
    kind = re.match(r"[\w.-]+:(?=[.~/])(?!//)", text)  # nli:FOLDER
    if kind and _is_path(text[kind.end() :]):
        return f"{kind[0]}{Path(text).name}"
    return Path(text).name if _is_path(text) else redact(text)


def _is_path(text: str) -> bool:
    named = text.startswith(("/", "./", "../", "~")) or bool(re.match(r"[A-Za-z]:[\\/]", text))
    return "\n" not in text and (named or (os.sep in text and os.path.exists(text)))


def _on_hub(name: str) -> str | None:
    """The hub id that a name stands for; None for a file or folder of this machine."""
    known = [model.repository for model in models.MODELS if model.name == name]
    if known:
        return known[0]
    return name if _HUB_ID.fullmatch(name) and not os.path.exists(name) else None


def _judge(job: Job, *, grades: bool) -> str:
    """The name of the model that judged, never where it is."""
    url = job.settings.judge.url
    if url == LOCAL:
        return f"{getattr(job.judge, 'name', LOCAL)}, in the process"
    if url:
        address, _, name = url.partition("#")
        return shown(getattr(job.judge, "model", None) or name or address)
    return "none: rules alone compare answers" if grades else "none"


def _grades(row: Mapping[str, Any], questions: int) -> list[Grade | None]:
    """The grades that the shares of an evaluation are of."""
    masked = round(questions * row["eval/masked"])
    grades: list[Grade | None] = [None] * masked
    for name, label in _LABELS.items():
        count = round((questions - masked) * (row.get(f"eval/{name}") or 0.0))
        grades += [Grade(label, "", "")] * count
    return grades
