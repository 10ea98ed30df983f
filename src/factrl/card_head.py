"""The head of a model card: the hub's header, the recipe, and the settings that are not the usual ones.

A card is meant to be shown, so nothing here names an address of a server or a key, and of a path only the
last part is left; every text that is not ours is escaped.  The header's texts are JSON strings, which YAML
takes as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import __version__, models
from .config import flat
from .errors import ConfigError
from .escape import markdown, one_line
from .papers import load_paper, split_spec
from .plan import run_settings
from .run import redact
from .settings import RunSettings
from .tuning.settings import TuneSettings, tune_settings
from .types import Example
from .writers import digest_of

# Said elsewhere in the card, of this machine alone, or where a server is.
_LEFT_OUT = {
    *("paper", "model.name", "data.train", "data.eval", "data.limit", "judge.url", "judge.second"),
    *("verifier.web", "train.vllm_server_base_url", "train.report_to", "tune.method", "tune.rule"),
}
_LONGEST = 200  # characters of a setting
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")


def card_head(
    told: RunSettings, family: str, examples: Sequence[Example], facts: Mapping[str, str], *, adapter: bool
) -> list[str]:
    """Header, title, recipe and settings, as lines.

    Args:
        family: tag of the method on the hub, such as `grpo`.
        examples: what was learnt from.
        facts: more of the recipe; its `method` is in the title.
        adapter: the folder holds a LoRA adapter, and not the whole model.
    """
    model, paper = markdown(shown(told.model.name)), markdown(shown_spec(told.paper))
    number = _arxiv(told.paper)
    source = f", [arXiv:{number}](https://arxiv.org/abs/{number})" if number else ""
    fingerprint = digest_of(*((e.id, e.question, tuple(e.answers)) for e in examples))
    rows = {
        "model": model + (f", LoRA of rank {told.model.lora_rank}" if told.model.lora else ""),
        "reward": f"{paper}{source}" if paper else "none",
        "questions": f"{markdown(shown(told.data.train))}: {len(examples)}, fingerprint {fingerprint}",
        **{name: markdown(value) for name, value in facts.items()},
        "seed": str(told.run.seed),
        "factrl": markdown(__version__),
    }
    return [
        *_front_matter(told, family, adapter),
        f"# {model}, trained by {markdown(facts['method'])}" + (f" for {paper}" if paper else ""),
        "",
        *table(("recipe", ""), rows.items()),
        "",
        "The fingerprint is of ids, questions and accepted answers.",
        "",
        *_settings(told),
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, of cells that are Markdown already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


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


def _front_matter(told: RunSettings, family: str, adapter: bool) -> list[str]:
    data, paper = _on_hub(told.data.train), split_spec(told.paper)[0]
    values = {
        "base_model": _on_hub(told.model.name),
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "datasets": [data] if data else None,
        "tags": ["factrl", "trl", family, *([paper] if paper and not paper.endswith(".py") else [])],
    }
    return ["---", *(f"{name}: {_yaml(value)}" for name, value in values.items() if value), "---", ""]


def _yaml(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return json.dumps(one_line(value), ensure_ascii=False)
    return f"[{', '.join(map(_yaml, value))}]"


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


# -- Settings -----------------------------------------------------------------------------------------


def _settings(told: RunSettings) -> list[str]:
    usual = _usual(told)
    if usual is None:
        return ["All settings are in `config.toml` of the run folder.", ""]
    changed = {
        name: value
        for name, value in flat(told.model_dump()).items()
        if name not in _LEFT_OUT and not name.startswith("run.") and value != usual.get(name)
    }
    if not changed:
        return ["Every other setting is the usual one.", ""]
    rows = ((f"`{name}`", _value(usual.get(name)), _value(value)) for name, value in changed.items())
    return ["Settings that are not the usual ones:", "", *table(("setting", "usual", "here"), rows), ""]


def _usual(told: RunSettings) -> Mapping[str, Any] | None:
    """Name -> value of a run of which only reward and method are known; None where there can be none."""
    words = [f"paper={told.paper}", "model.name=m", "data.train=d"]
    try:
        if not isinstance(told, TuneSettings):
            return flat(run_settings(None, words).model_dump())
        tune = told.tune
        words += [f"tune.method={tune.method}"]
        words += [f"tune.rule={tune.rule}"] * (tune.rule is not None)
        words += ["tune.target={answer}"] * (tune.target is not None)
        return {**flat(tune_settings(None, words).model_dump()), "tune.target": None}
    except ConfigError:  # a reward of your own that has gone, or settings that need others beside them
        return None


def _value(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = ", ".join(shown(str(one)) for one in (value if isinstance(value, list) else [value]))
    return markdown(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
