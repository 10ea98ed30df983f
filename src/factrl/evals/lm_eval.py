"""Benchmarks as task files for lm-evaluation-harness, so that others can ask the same questions.

The files say which dataset, which prompt and which reference answers; scoring there is lm-eval's exact match
(or the likelihood of the options), not ours: declining is wrong there, and there is no judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.evals.benchmark import Benchmark
from factrl.evals.loading import local_path

_VERSION = "1.0"
_NUMBER = r"(-?[0-9][0-9,]*(?:\.[0-9]+)?)"


def export_tasks(benchmarks: Sequence[Benchmark], folder: str | Path) -> list[Path]:
    """Write one YAML file per benchmark, `factrl_NAME.yaml`.

    Raises:
        ConfigError: a benchmark that lm-eval cannot score from a file alone, or a folder that cannot be
            written; nothing is written then.
    """
    tasks = {benchmark.name: task_of(benchmark) for benchmark in benchmarks}
    folder = Path(folder)
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, task in tasks.items():
            path = folder / f"factrl_{name}.yaml"
            path.write_text(as_yaml(task), encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    return paths


def task_of(benchmark: Benchmark) -> dict[str, Any]:
    """The task as plain data.

    Raises:
        ConfigError: lm-eval cannot score it from a file alone, or its questions are nowhere to be had.
    """
    if benchmark.kind == "long" or benchmark.several:
        raise ConfigError(
            f"{benchmark.name} cannot be exported to lm-eval: its score is not one of lm-eval's metrics"
        )
    dataset, columns = _dataset(benchmark)
    task = {"task": f"factrl_{benchmark.name}", "tag": ["factrl"], **dataset}
    if "choices" in columns:
        task |= {
            "output_type": "multiple_choice",
            "doc_to_text": f"Question: {columns['question']}\nAnswer:",
            "doc_to_choice": columns["choices"],
            "doc_to_target": int(columns["answer"]),
            "metric_list": [_metric("acc")],
        }
    else:
        template = benchmark.prompt.replace("{question}", columns["question"])
        exact = {"ignore_case": True, "ignore_punctuation": benchmark.kind == "short"}
        task |= {
            "output_type": "generate_until",
            "doc_to_text": template.replace("\\boxed{{}}", "\\boxed{}"),
            "doc_to_target": columns["answer"],
            "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": benchmark.max_tokens},
            "metric_list": [_metric("exact_match") | exact],
        }
        if benchmark.kind == "reasoning":
            task["filter_list"] = [_last_number()]
    return task | {"metadata": {"version": _VERSION}}


def as_yaml(value: dict[str, Any]) -> str:
    """Nested plain data as YAML; every text is quoted as JSON, which YAML reads."""
    head = "# Written by `factrl eval --export-lm-eval`; run with lm_eval --include_path FOLDER\n"
    return head + "".join(f"{line}\n" for line in _lines(value, ""))


def _lines(value: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines += [f"{indent}{key}:", *_lines(inner, indent + "  ")]
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            lines.append(f"{indent}{key}:")
            for item in inner:
                first, *rest = _lines(item, indent + "    ")
                lines += [f"{indent}  - {first.strip()}", *rest]
        else:
            lines.append(f"{indent}{key}: {_scalar(inner)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[a-z][a-z_]*", value) and value not in ("true", "false"):
        return value
    return json.dumps(value, ensure_ascii=True)


def _dataset(benchmark: Benchmark) -> tuple[dict[str, Any], dict[str, str]]:
    """Where lm-eval finds the rows, and the columns as Jinja."""
    source, path = benchmark.test, local_path(benchmark.test)
    if source.hub and benchmark.lm_eval:
        told: dict[str, Any] = {"dataset_path": source.hub}
        if source.subset is not None:
            told["dataset_name"] = source.subset
        if benchmark.demos is not None:
            told["fewshot_split"] = benchmark.demos.split
        return told | {"test_split": source.split}, dict(benchmark.lm_eval)
    if path is None or benchmark.kind == "choice":
        raise ConfigError(
            f"{benchmark.name} cannot be exported to lm-eval: its questions are no dataset on the hub, and "
            f"{source.local or 'no file'} of the plain schema is not under FACTRL_DATA"
        )
    files = {"data_files": {source.split: str(path.resolve())}}
    told = {"dataset_path": "json", "dataset_kwargs": files, "test_split": source.split}
    return told, {"question": "{{question}}", "answer": "{{answers}}"}


def _metric(name: str) -> dict[str, Any]:
    return {"metric": name, "aggregation": "mean", "higher_is_better": True}


def _last_number() -> dict[str, Any]:
    """The last box, else the last number; formulas are compared as text there."""
    pattern = rf"\\boxed\{{([^{{}}]*)\}}|{_NUMBER}"
    steps = [{"function": "regex", "group_select": -1, "regex_pattern": pattern}, {"function": "take_first"}]
    return {"name": "last", "filter": steps}
