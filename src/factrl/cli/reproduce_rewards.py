"""Which pipeline `factrl reproduce` runs; `rewards` is that of every short-answer reward on the shelf.

All of them start from one model, which learns four ways to be asked: for an answer, for an answer behind a
reasoning, with a confidence, and at a threshold.  Each reward trains with the words of its own form, on the
same questions, steps and seed, and is held against the start asked in the same words.  It is the small scale
alone: a paper's own values are in its own pipeline.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from factrl.errors import ConfigError, nearest
from factrl.papers import (
    EVALUATED,
    OUTCOMES,
    SMALL_HELD_OUT,
    SMALL_SFT,
    Pipeline,
    Stage,
    declared,
    form_of,
    length_of,
    load_paper,
    load_reward,
    paper_names,
    rewards_of,
    split_spec,
)

FORMS: dict[str, str] = {}

REWARDS = "rewards"  # what stands in the place of a paper's name
_TOKENS = {"text": 12, "threshold": 12, "confidence": 20, "tags": 48}
_EXTRACT = {"tags": "answer"}
_SUPPLIED = frozenset({"grade", "verify", "extract", "group"})  # by rules, the small scale's only judges
_SAMPLES = 16
_LIMIT = f"--limit {SMALL_HELD_OUT['short']}"
_QUESTIONS = (
    Stage("train", "prepare thresholds {train} --output {out}/thresholds/train.jsonl"),
    Stage(
        "each",
        f"prepare thresholds {{held_out}} --each {_LIMIT} --output {{out}}/thresholds/each/held_out.jsonl",
    ),
    Stage("held_out", f"prepare thresholds {{held_out}} {_LIMIT} --output {{out}}/thresholds/held_out.jsonl"),
)


def find_pipeline(spec: str) -> Pipeline:
    """The pipeline of a paper, or of a paper's setting: `truthrl`, `truthrl:retrieval`; or of all rewards.

    Raises:
        ConfigError: there is none.
    """
    if spec == REWARDS:
        return rewards_pipeline()
    name, setting = split_spec(spec)
    more: Mapping[str, Pipeline] = declared(spec, "PIPELINES", {})
    pipeline: Pipeline | None = more.get(setting) if setting else declared(name, "PIPELINE")
    if pipeline is None:
        names = [name for name in paper_names() if declared(name, "PIPELINE")]
        names += [f"{name}:{setting}" for name in names for setting in declared(name, "PIPELINES", {})]
        names.append(REWARDS)
        raise ConfigError(
            f"{spec!r} declares no PIPELINE{nearest(spec, names)} (there are: {', '.join(names)})"
        )
    return pipeline


def rewards_pipeline() -> Pipeline:
    """Of each paper the main variant, or the first other that rules alone can judge at the small scale."""
    specs, notes = _fitting()
    rows = {spec.replace(":", "-"): spec for spec in specs}
    forms = {name: _asked_as(spec) for name, spec in rows.items()}
    used = dict.fromkeys(("text", *forms.values()))
    start = f"tune sft {{warm}} --config {{recipe}} --model {{start}} tune.target={{{{answer}}}} {SMALL_SFT}"
    steps = [*_QUESTIONS, Stage("base", f"{start} train.steps=60")]
    sampled = f"--samples {_SAMPLES} --agreement"
    steps += [_evaluated("base" if form == "text" else f"base-{form}", "base", form) for form in used]
    steps.append(_evaluated("base-sampled", "base", "text", sampled))
    for name, spec in rows.items():
        steps += [_trained(name, spec, forms[name]), _evaluated(name, name, forms[name])]
        if forms[name] == "threshold":
            steps.append(_evaluated(f"{name}-each", name, "threshold", "--by threshold", on="each"))
    folders = " ".join(
        f"{{eval {step.name.removeprefix('eval ')}}}" for step in steps if step.words.startswith("eval ")
    )
    steps.append(Stage("picture", f"report {folders} --output {{out}}/risk.html"))
    return Pipeline(
        steps=tuple(steps),
        small=_SMALL,
        model="",
        asks={},
        metrics={name: name for name in (*OUTCOMES, "ece", "aurc")},
        warm="forms",
        notes=(
            "A row is asked in the words of its reward's form; base-tags, base-confidence and base-threshold "
            "are the start asked in those words, base-sampled is thresholded sampling: "
            f"the answer that most of {_SAMPLES} samples give.",
            *notes,
            "Risk against coverage of all rows is risk.html.",
        ),
    )


def _fitting() -> tuple[list[str], list[str]]:
    """Of each paper the first reward that fits, and a note where that is not the main one."""
    specs, notes = [], []
    for paper in paper_names():
        known = rewards_of(load_paper(paper))
        pipeline: Pipeline | None = declared(paper, "PIPELINE")
        rows = [next(iter(known)), *(step.row for step in (pipeline.steps if pipeline else ()))]
        reasons = {f"{paper}:{row}": _unfit(f"{paper}:{row}") for row in rows if row in known}
        main, why = next(iter(reasons.items()))
        fit = next((spec for spec, reason in reasons.items() if not reason), None)
        specs += [fit] if fit else []
        if why:
            notes.append(f"{f'{fit} in place of {main}' if fit else f'no {paper}'}: {why}.")
    return specs, notes


def _unfit(spec: str) -> str:
    """Why the small scale cannot train with a reward; empty where it can."""
    paper, variant = split_spec(spec)
    reward, pipeline = load_reward(spec), declared(paper, "PIPELINE")
    if length_of(spec, reward) == "long":
        return "it reads long answers"
    if asked := [name for name in reward.missing if name not in _SUPPLIED]:
        return f"it asks for {', '.join(asked)}, which rules do not supply"
    if any(step.row == variant and step.small is None for step in (pipeline.steps if pipeline else ())):
        return "its paper leaves it out at the small scale"
    known = ("tags", "text") if "answer" not in reward.knobs else None
    form = form_of(spec, reward)
    return "" if known is None or form in known else f"it reads the form {form!r}, which the start has not"


def _asked_as(spec: str) -> str:
    """The form of a reward, one of `FORMS`, from the small scale of its paper."""
    pipeline: Pipeline | None = declared(spec, "PIPELINE")
    small = pipeline.small if pipeline else {}
    if "{threshold}" in small.get("data", {}).get("prompt", ""):
        return "threshold"
    if pipeline and "--confidence" in pipeline.evaluate:
        return "confidence"
    return "tags" if form_of(spec, load_reward(spec).with_(**small.get("reward", {}))) == "tags" else "text"


def _trained(name: str, spec: str, form: str) -> Stage:
    """The training of a row, with what its paper sets at the small scale besides prompts and steps."""
    pipeline: Pipeline | None = declared(spec, "PIPELINE")
    small: dict[str, Any] = {"reward": {}, **(pipeline.small if pipeline else {})}
    if "answer" in load_reward(spec).knobs and "answer" not in small["reward"]:
        small["reward"] = {**small["reward"], "answer": "tags" if form == "tags" else "text"}
    told = [
        f"{section}.{key}={str(value).lower() if isinstance(value, bool) else value}"
        for section, values in small.items()
        for key, value in values.items()
        if section != "train" and key not in ("prompt", "prefill")
    ]
    words = f"train --config {{recipe}} --model {{base}} --data {{train}} paper={spec} {_words(form)}"
    return Stage(name, f"{words} {shlex.join(told).replace('{', '{{').replace('}', '}}')}".rstrip())


def _evaluated(row: str, model: str, form: str, more: str = "", on: str = "held_out") -> Stage:
    """The evaluation of a row; what is asked `on` each threshold is for the picture, and no row."""
    more = f"{more} --confidence" if form == "confidence" else more
    place = EVALUATED.replace("{trained}", f"{{{model}}}").replace("{row}", row)
    words = f"eval {{{on}}} {place} --extract {_EXTRACT.get(form, 'text')} {more} {_words(form)}"
    return Stage(f"eval {row}", words, row=row if on == "held_out" else "")


def _words(form: str) -> str:
    """How a question of this form is asked, as settings."""
    prompt = shlex.quote(f"data.prompt=Question: {{question}}{FORMS[form]} Answer:")
    return f"{prompt.replace('{', '{{').replace('}', '}}')} train.max_completion_length={_TOKENS[form]}"


_SMALL: Mapping[str, Any] = {
    "data": {"prompt": "Question: {question} Answer:"},
    "verifier": {"preset": "local", "judge": "weak", "embedder": ""},
    "train": {
        "prompts_per_step": 8,
        "micro_batch_size": 64,
        "lr_scheduler_type": "linear",
        "scale_rewards": "none",
        "loss_type": "dr_grpo",
        "weight_decay": 0.0,
    },
}
