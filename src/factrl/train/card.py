"""The model card of a run: `README.md` in the folder of the saved model, with the hub's header.

What was learnt from what, who judged it, what changed on held-out questions, what could not be graded, and
what the judge cost.  It is made from the plan and the run folder once the model is in place, and replaces
what a library left there.

A card is meant to be shown, so nothing here names an address of a server or a key, and of a path only the
last part is left; every text that is not ours is escaped.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl import __version__
from factrl.evals.metrics import Interval, short_form
from factrl.llm import models
from factrl.llm.spending import read_account
from factrl.llm.writers import digest_of
from factrl.papers import load_paper, split_spec
from factrl.runs.disk import write_whole
from factrl.runs.folder import count_states, read_metrics, redact
from factrl.runs.settings import LOCAL, RunSettings
from factrl.text.escape import markdown
from factrl.train.plan import Plan
from factrl.train.tuning.outcome import Outcome
from factrl.train.tuning.plan import TunePlan
from factrl.types import Example, Grade, Label

CARD = "README.md"
_LABELS: Mapping[str, Label] = {
    "accuracy": "correct",
    "abstention": "abstained",
    "hallucination": "incorrect",
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")


def write_training_card(plan: Plan, run: Path) -> Path:
    """The card of `factrl train`, into `model` of its run folder; returns its path."""
    told, train, metrics = plan.settings, plan.settings.train, read_metrics(run)
    steps = max((row["step"] for row in metrics), default=0)
    seconds = sum(row.get("step_time") or 0.0 for row in metrics)
    reinforce = train.loss_type == "reinforce++"
    facts = {
        "method": "REINFORCE++" if reinforce else f"GRPO ({train.loss_type} loss)",
        "steps": f"{steps} of {train.prompts_per_step} questions with {train.num_generations} completions",
        "learning rate": f"{train.learning_rate:g}",
        "time in steps": f"{seconds / 60:.1f} min",
        "judge": _judge(told, plan.judge, grades="grade" in plan.reward.resources),
    }
    if "verify" in plan.reward.resources:
        facts["claims"] = f"verifier {told.verifier.preset}, judge {shown(told.verifier.judge or 'as usual')}"
    spent, price = read_account(run).total, told.judge.price
    cost = "" if price is None else f", ${spent.cost(price):.4g}"
    tokens = f"{spent.calls:,}; {spent.tokens_in:,} + {spent.tokens_out:,} tokens"
    facts["judge calls"] = tokens + cost if spent.calls else "none to a server"
    rest = [*_evaluated(metrics, len(plan.held_out), told), *_states(run)]
    return _write(run, told, "reinforce" if reinforce else "grpo", plan.examples, facts, rest)


def write_tuning_card(plan: TunePlan, run: Path, outcome: Outcome | None) -> Path:
    """The card of `factrl tune`, into `model` of its run folder; returns its path.

    Args:
        outcome: the held-out questions before and after; None without any.
    """
    told, tune = plan.settings, plan.settings.tune
    about = [json.loads(file.read_text("utf-8")) for file in sorted(run.glob("data/**/left_out.json"))]
    facts = {
        "method": tune.method + (f", rule {tune.rule}" if tune.rule else ""),
        "rounds": str(tune.rounds),
        "rows": str(sum(one["rows"] for one in about)),
        "learning rate": f"{told.train.learning_rate:g}",
        "judge": _judge(told, plan.judge, grades=told.measure == "grade" or bool(plan.held_out)),
    }
    rest = [*_changed(outcome, told), *_left_out(about)]
    return _write(run, told, "sft" if tune.rule is None else "dpo", plan.examples, facts, rest)


def _write(
    run: Path,
    told: RunSettings,
    family: str,
    examples: Sequence[Example],
    facts: Mapping[str, str],
    rest: Sequence[str],
) -> Path:
    """Header, title and recipe, and what is particular to a kind of run.

    Args:
        family: tag of the method on the hub, such as `grpo`.
        examples: what was learnt from.
        facts: more of the recipe; its `method` is in the title.
    """
    folder = run / "model"
    model, paper = markdown(shown(told.model.name)), markdown(shown_spec(told.paper))
    number = _arxiv(told.paper)
    source = f", [arXiv:{number}](https://arxiv.org/abs/{number})" if number else ""
    fingerprint = digest_of(*((e.id, e.question, tuple(e.answers)) for e in examples))
    recipe = {
        "model": model + (f", LoRA of rank {told.model.lora_rank}" if told.model.lora else ""),
        "reward": f"{paper}{source}" if paper else "none",
        "questions": f"{markdown(shown(told.data.train))}: {len(examples)}, fingerprint {fingerprint}",
        **{name: markdown(value) for name, value in facts.items()},
        "seed": str(told.run.seed),
        "factrl": markdown(__version__),
    }
    lines = [
        *_header(told, family, adapter=(folder / "adapter_config.json").exists()),
        f"# {model}, trained by {markdown(facts['method'])}" + (f" for {paper}" if paper else ""),
        "",
        *_table(("recipe", ""), recipe.items()),
        "",
        "The fingerprint is of ids, questions and accepted answers. All settings are in the run folder.",
        "",
        *rest,
    ]
    write_whole(folder / CARD, ("\n".join(lines).rstrip() + "\n").encode())
    return folder / CARD


def _header(told: RunSettings, family: str, *, adapter: bool) -> list[str]:
    """The hub's header; its texts are JSON strings, which YAML takes as they are."""
    data, paper = _on_hub(told.data.train), split_spec(told.paper)[0]
    values = {
        "base_model": _on_hub(told.model.name),
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "datasets": [data] if data else None,
        "tags": ["factrl", "trl", family, *([paper] if paper and not paper.endswith(".py") else [])],
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items() if value]
    return ["---", *lines, "---", ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, of cells that are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


# -- Names --------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """A text of the settings without what belongs to one machine: paths, addresses and keys."""
    if re.match(r"\w+://", text):
        return "a server"
    kind = re.match(r"\w+:(?=[.~/])(?!//)", text)  # nli:FOLDER
    if kind and _is_path(text[kind.end() :]):
        return f"{kind[0]}{Path(text).name}"
    return Path(text).name if _is_path(text) else redact([text])[0]


def shown_spec(spec: str) -> str:
    """The same of a reward such as `folder/my.py:mine`."""
    name, part = split_spec(spec)
    return f"{shown(name)}:{part}" if name.endswith(".py") and part else shown(spec)


def _is_path(text: str) -> bool:
    named = text.startswith(("/", "./", "../", "~")) or bool(re.match(r"[A-Za-z]:[\\/]", text))
    return "\n" not in text and (named or (os.sep in text and os.path.exists(text)))


def _on_hub(name: str) -> str | None:
    """The hub id that a name stands for; None for a file or folder of this machine."""
    known = [model.repository for model in models.known() if model.name == name]
    if known:
        return known[0]
    return name if _HUB_ID.fullmatch(name) and not os.path.exists(name) else None


def _arxiv(spec: str) -> str:
    """The number of the paper behind a reward; empty for your own."""
    name = split_spec(spec)[0]
    if not name or name.endswith(".py"):
        return ""
    found = _ARXIV.search(load_paper(name).__doc__ or "")
    return found[1] if found else ""


def _judge(told: RunSettings, judge: Any, *, grades: bool) -> str:
    """The name of the model that judged, never where it is."""
    if told.judge.url == LOCAL:
        return f"{getattr(judge, 'name', LOCAL)}, in the process"
    if told.judge.url:
        address, _, name = told.judge.url.partition("#")
        return shown(getattr(judge, "model", None) or name or address)
    return "none: rules alone compare answers" if grades else "none"


# -- Held-out questions -------------------------------------------------------------------------------


def _evaluated(metrics: Sequence[Mapping[str, Any]], questions: int, told: RunSettings) -> list[str]:
    """The first and the last evaluation of a run, with the intervals that their counts give."""
    rows = [row for row in metrics if row.get("eval/masked") is not None]
    if not rows or not questions:
        return _held_out(told, 0)
    ends = rows[:1] if len(rows) == 1 else [rows[0], rows[-1]]
    found = [short_form(_grades(row, questions)) for row in ends]
    lines: list[tuple[str, ...]] = [
        (name.replace("_", " "), *(_interval(one.metrics[name]) for one in found))
        for name in found[0].metrics
    ]
    lines += [("graded", *(str(one.n) for one in found)), ("masked", *(str(one.masked) for one in found))]
    table = _table(("metric", *(f"step {row['step']}" for row in ends)), lines)
    return _held_out(told, questions, table, "The model that it started from was not asked.")


def _grades(row: Mapping[str, Any], questions: int) -> list[Grade | None]:
    """The grades that these shares are of."""
    masked = round(questions * row["eval/masked"])
    grades: list[Grade | None] = [None] * masked
    for name, label in _LABELS.items():
        count = round((questions - masked) * (row.get(f"eval/{name}") or 0.0))
        grades += [Grade(label, "", "")] * count
    return grades


def _changed(outcome: Outcome | None, told: RunSettings) -> list[str]:
    """Before and after, and the paired difference."""
    if outcome is None:
        return _held_out(told, 0)
    about = outcome.to_json()
    before, after = about["before"], about["after"]
    lines: list[tuple[str, ...]] = []
    for name, difference in about["differences"].items():
        sides = (_interval(side[name] and Interval(**side[name])) for side in (before, after))
        paired = "–" if difference is None else Interval(**difference).signed()
        lines.append((name.replace("_", " "), *sides, paired))
    lines.append(("graded", str(before["n"]), str(after["n"]), str(about["compared"])))
    lines.append(("masked", str(before["masked"]), str(after["masked"]), str(about["left_out"])))
    table = _table(("metric", "before", "after", "paired difference"), lines)
    return _held_out(told, len(outcome.examples), table)


def _held_out(told: RunSettings, questions: int, table: Sequence[str] = (), more: str = "") -> list[str]:
    if not questions:
        return ["## Held-out questions", "", "None were asked of this model.", ""]
    file = markdown(shown(told.data.eval or ""))
    about = f"{questions} of {file}, one greedy answer each; in points, with 95 % intervals. {more}"
    return ["## Held-out questions", "", about.rstrip(), "", *table, ""]


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else str(interval)


# -- What was not scored ------------------------------------------------------------------------------


def _states(run: Path) -> list[str]:
    """What was masked or floored of all completions that it was trained on."""
    states = count_states(run)
    total = states.total()
    odd = [(key, count) for key, count in states.most_common() if key[0] != "scored"]
    head = ["## Not scored while training", ""]
    if not odd:
        return [*head, f"All {total} completions were scored.", ""]
    for state in ("floored", "masked"):
        odd.insert(0, ((state, "all causes"), sum(count for key, count in odd if key[0] == state)))
    rows = ((state, markdown(cause), str(n), f"{n / total:.1%}") for (state, cause), n in odd)
    return [
        *head,
        f"Of {total} completions. Masked: our side failed, and the completion took no part in the update. "
        "Floored: its own text was ungradable.",
        "",
        *_table(("state", "cause", "completions", "share"), rows),
        "",
    ]


def _left_out(about: Sequence[Mapping[str, Any]]) -> list[str]:
    """What gave no row to learn from, over all rounds."""
    kinds = {
        "left_out": "questions without a row",
        "unmeasured_samples": "samples that could not be measured",
        "floored_samples": "samples that were ungradable",
    }
    counts: Counter[tuple[str, str]] = Counter()
    for one in about:
        for key, kind in kinds.items():
            counts.update({(kind, why): count for why, count in one.get(key, {}).items()})
    if not counts:
        return []
    rows = ((kind, markdown(why), str(count)) for (kind, why), count in counts.most_common())
    return ["## Left out", "", *_table(("what", "why", "how many"), rows), ""]
