"""The model card of a run: `README.md` in the folder of the saved model, with the hub's header.

What was learnt from what, who judged it, what changed on held-out questions, what could not be graded, which
ways to cheat the reward is known to pay for, and what the judge cost.  It is made from the plan and the run
folder once the model is in place, and replaces what a library left there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.evals.metrics import Interval, short_form
from factrl.llm.spending import Spent, read_account
from factrl.llm.usage import Price
from factrl.papers import load_reward, split_spec
from factrl.runs.folder import count_states, read_metrics
from factrl.runs.settings import LOCAL, RunSettings
from factrl.runs.whole_file import write_whole
from factrl.text.escape import markdown
from factrl.train.card_head import card_head, shown, shown_spec, table
from factrl.train.plan import Plan
from factrl.train.tuning.outcome import Outcome
from factrl.train.tuning.plan import TunePlan
from factrl.types import Grade, Label

CARD = "README.md"
_LABELS: Mapping[str, Label] = {
    "accuracy": "correct",
    "abstention": "abstained",
    "hallucination": "incorrect",
}


def write_training_card(plan: Plan, run: Path) -> Path:
    """The card of `factrl train`, into `model` of its run folder; returns its path."""
    told, train, metrics = plan.settings, plan.settings.train, read_metrics(run)
    steps = max((row["step"] for row in metrics), default=0)
    seconds = sum(row.get("step_time") or 0.0 for row in metrics)
    reinforce = train.loss_type == "reinforce++"
    facts = {
        "method": "REINFORCE++" if reinforce else f"GRPO ({train.loss_type} loss)",
        "steps": f"{steps} of {train.prompts_per_step} questions with {train.num_generations} completions",
        "time in steps": f"{seconds / 60:.1f} min",
        "judge": _judge(told, plan.judge, grades="grade" in plan.reward.resources),
    }
    if "verify" in plan.reward.resources:
        facts["claims"] = f"verifier {told.verifier.preset}, judge {shown(told.verifier.judge or 'as usual')}"
    facts["judge calls"] = _spent(read_account(run).total, told.judge.price)
    family = "reinforce" if reinforce else "grpo"
    lines = [
        *card_head(told, family, plan.examples, facts, adapter=_adapter(run / "model")),
        *_evaluated(metrics, len(plan.held_out), told),
        *_states(run),
        *_hacks(told.paper),
        *_again("train", "config.toml"),
    ]
    return _write(run / "model", lines)


def write_tuning_cards(plan: TunePlan, run: Path, outcome: Outcome | None) -> list[Path]:
    """The cards of `factrl tune`: into `model`, and into `iterates/N` of each round before the last.

    Args:
        outcome: the held-out questions before and after; None without any.
    """
    told, tune = plan.settings, plan.settings.tune
    about = [json.loads(file.read_text("utf-8")) for file in sorted(run.glob("data/**/left_out.json"))]
    facts = {
        "method": tune.method + (f", rule {tune.rule}" if tune.rule else ""),
        "rows": str(sum(one["rows"] for one in about)),
        "judge": _judge(told, plan.judge, grades=told.measure == "grade" or bool(plan.held_out)),
    }
    rest = [*_left_out(about), *_hacks(told.paper), *_again("tune", "tune.toml")]
    family = "sft" if tune.rule is None else "dpo"
    written: list[Path] = []
    for folder in [*sorted(run.glob("iterates/[0-9]*")), run / "model"]:
        last = folder.name == "model"
        number = tune.rounds if last else int(folder.name)
        rounds = {"round": f"{number} of {tune.rounds}"} if tune.rounds > 1 else {}
        head = card_head(told, family, plan.examples, {**facts, **rounds}, adapter=_adapter(folder))
        changed = _changed(outcome, told) if last and outcome is not None else _not_evaluated()
        written.append(_write(folder, [*head, *changed, *rest]))
    return written


def _write(folder: Path, lines: Iterable[str]) -> Path:
    write_whole(folder / CARD, ("\n".join(lines) + "\n").encode())
    return folder / CARD


def _adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").exists()


def _judge(told: RunSettings, judge: Any, *, grades: bool) -> str:
    """The name of the model that judged, never where it is."""
    if told.judge.url == LOCAL:
        return f"{getattr(judge, 'name', LOCAL)}, in the process"
    if told.judge.url:
        address, _, name = told.judge.url.partition("#")
        name = getattr(judge, "model", None) or name or address
        return shown(name)
    return "none: rules alone compare answers" if grades else "none"


def _spent(spent: Spent, price: Price | None) -> str:
    if not spent.calls:
        return "none to a server"
    told = f"{spent.calls:,}; {spent.tokens_in:,} + {spent.tokens_out:,} tokens"
    return told if price is None else f"{told}, ${spent.cost(price):.4g}"


# -- Held-out questions -------------------------------------------------------------------------------


def _evaluated(metrics: Sequence[Mapping[str, Any]], questions: int, told: RunSettings) -> list[str]:
    """The first and the last evaluation of a run, with the intervals that their counts give."""
    rows = [row for row in metrics if row.get("eval/masked") is not None]
    if not rows or not questions:
        return _not_evaluated()
    ends = rows[:1] if len(rows) == 1 else [rows[0], rows[-1]]
    found = [short_form(_grades(row, questions)) for row in ends]
    lines: list[tuple[str, ...]] = [
        (_words(name), *(_interval(one.metrics[name]) for one in found)) for name in found[0].metrics
    ]
    lines += [("graded", *(str(one.n) for one in found)), ("masked", *(str(one.masked) for one in found))]
    head = _held_out(told, questions, "The model that it started from was not asked.")
    return [*head, *table(("metric", *(f"step {row['step']}" for row in ends)), lines), ""]


def _grades(row: Mapping[str, Any], questions: int) -> list[Grade | None]:
    """The grades that these shares are of."""
    masked = round(questions * row["eval/masked"])
    grades: list[Grade | None] = [None] * masked
    for name, label in _LABELS.items():
        count = round((questions - masked) * (row.get(f"eval/{name}") or 0.0))
        grades += [Grade(label, "", "")] * count
    return grades


def _changed(outcome: Outcome, told: RunSettings) -> list[str]:
    """Before and after, and the paired difference."""
    about = outcome.to_json()
    before, after = about["before"], about["after"]
    lines: list[tuple[str, ...]] = []
    for name, difference in about["differences"].items():
        sides = (_interval(side[name] and Interval(**side[name])) for side in (before, after))
        paired = "–" if difference is None else Interval(**difference).signed()
        lines.append((_words(name), *sides, paired))
    lines.append(("graded", str(before["n"]), str(after["n"]), str(about["compared"])))
    lines.append(("masked", str(before["masked"]), str(after["masked"]), str(about["left_out"])))
    head = _held_out(told, len(outcome.examples))
    return [*head, *table(("metric", "before", "after", "paired difference"), lines), ""]


def _held_out(told: RunSettings, questions: int, more: str = "") -> list[str]:
    file = markdown(shown(told.data.eval or ""))
    about = f"{questions} of {file}, one greedy answer each; in points, with 95 % intervals. {more}"
    return ["## Held-out questions", "", about.rstrip(), ""]


def _not_evaluated() -> list[str]:
    return ["## Held-out questions", "", "None were asked of this model.", ""]


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else str(interval)


def _words(name: str) -> str:
    return name.replace("_", " ")


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
        *table(("state", "cause", "completions", "share"), rows),
        "",
    ]


def _left_out(about: Sequence[Mapping[str, Any]]) -> list[str]:
    """What gave no row to learn from, over all rounds."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in about:
        for key in ("left_out", "unmeasured_samples", "floored_samples"):
            counts.update({(key, why): count for why, count in one.get(key, {}).items()})
    if not counts:
        return []
    told = {
        "left_out": "questions without a row",
        "unmeasured_samples": "samples that could not be measured",
        "floored_samples": "samples that were ungradable",
    }
    rows = ((told[key], markdown(why), str(count)) for (key, why), count in counts.most_common())
    return ["## Left out", "", *table(("what", "why", "how many"), rows), ""]


# -- Cheating -----------------------------------------------------------------------------------------


def _hacks(paper: str) -> list[str]:
    """The policies of the battery that this reward is known to pay too well."""
    if not paper:
        return []
    head, name = ["## Known ways to cheat", ""], markdown(shown_spec(paper))
    if split_spec(paper)[0].endswith(".py"):
        return [*head, f"Nobody has looked at {name}; `factrl stress` tries 36 of them on it.", ""]
    if "certainty" in load_reward(paper).resources:
        return [
            *head,
            f"`factrl stress` cannot try {name}, which looks at the model and not at what it says.",
            "",
        ]
    # The battery is of a later wing, which trains with this one.
    from factrl.lab.hacks.policies import battery
    from factrl.lab.hacks.run import known_failures

    known = {key: why for key, why in known_failures(paper).items() if key in battery()}
    if not known:
        return [*head, f"None of the 36 that `factrl stress` tries is known to work on {name}.", ""]
    rows = ((key, markdown(battery()[key].name), markdown(why)) for key, why in known.items())
    return [
        *head,
        f"{len(known)} of the 36 that `factrl stress` tries earn more under {name} than they should, with "
        "the paper's own settings and judges that make no mistake. Whether this model uses one is another "
        "question.",
        "",
        *table(("id", "what it does", "why it pays"), rows),
        "",
    ]


def _again(verb: str, file: str) -> list[str]:
    return [
        "## Again",
        "",
        f"`factrl {verb} --config {file}`, with `{file}` of the run folder, starts the same run.",
    ]
