"""Questions as TRL, verl and OpenRLHF read them, with the prompt of a recipe and nothing lost.

trl       `prompt`, a conversation or a text, beside our columns, which `factrl.bridges.trl` reads back
verl      `data_source, prompt, ability, reward_model{style, ground_truth}, extra_info{index, split, …}`.
          The ground truth has TruthRL's layout (weizhepei/TruthRL: `problem, target, out_of_knowledge`);
          all our columns are in `extra_info`, and `VERL_COLUMNS` reads them back
openrlhf  `input, label, datasource`; the label is all that a reward function is handed there, so it is JSON
          with all our columns

Columns that are not ours are one JSON text, `meta`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from factrl.errors import ConfigError, DataError
from factrl.runs.data import ColumnName, render_prompt
from factrl.runs.disk import whole_file
from factrl.runs.settings import DataSettings
from factrl.types import Example

from .dataset import write_rows

Target = Literal["trl", "verl", "openrlhf"]
Prompt = str | list[dict[str, str]]

ABILITY = "fact-reasoning"  # TruthRL's word
VERL_COLUMNS: Mapping[ColumnName, str] = {name: f"extra_info.{name}" for name in get_args(ColumnName)}
"""`data.columns` of a file that was converted for verl."""


def convert(examples: Sequence[Example], to: Target, data: DataSettings, path: Path) -> None:
    """Write the examples for another trainer.

    Args:
        data: prompt, system message, prefill and whether the trainer applies the chat template.
        path: `.parquet`, with the same types in every file, or `.jsonl`.

    Raises:
        ConfigError: the trainer cannot ask as `data` says.
        DataError: the file cannot be written.
    """
    _check(to, data)
    make = _MAKERS[to]
    rows = [make(example, number, prompt_of(example, data), data) for number, example in enumerate(examples)]
    try:
        if path.suffix == ".parquet":
            _write_parquet(rows, to, data.chat, path)
        else:
            write_rows(path, rows)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


def prompt_of(example: Example, data: DataSettings) -> Prompt:
    """What the model is given: messages for the trainer's chat template, or the whole text without one."""
    text = render_prompt(example, data.prompt)
    if not data.chat:
        return (f"{data.system}\n\n" if data.system else "") + text + data.prefill
    system = [{"role": "system", "content": data.system}] if data.system else []
    return [*system, {"role": "user", "content": text}]


def columns_of(example: Example) -> dict[str, Any]:
    """An example as one row of plain values."""
    return {
        "id": example.id,
        "question": example.question,
        "answers": [*example.answers],
        "topic": example.topic,
        "ook": example.ook,
        "false_premise": example.false_premise,
        "evidence": [{"text": p.text, "title": p.title, "source": p.source} for p in example.evidence],
        "checklist": [*example.checklist],
        "meta": json.dumps(dict(example.meta), ensure_ascii=False, default=str),
    }


def _check(to: Target, data: DataSettings) -> None:
    if to == "verl" and not data.chat:
        raise ConfigError("verl applies the chat template to every prompt; leave out data.chat=false")
    if data.prefill and data.chat:
        raise ConfigError(
            f"data.prefill = {data.prefill!r}: {to} opens the assistant's turn itself, and would close one "
            "that has begun; leave it out, or write the whole prompt with data.chat=false (not for verl)"
        )


def _trl(example: Example, number: int, prompt: Prompt, data: DataSettings) -> dict[str, Any]:
    return {"prompt": prompt, **columns_of(example)}


def _verl(example: Example, number: int, prompt: Prompt, data: DataSettings) -> dict[str, Any]:
    truth = {"problem": example.question, "target": [*example.answers], "out_of_knowledge": example.ook}
    return {
        "data_source": _source(example),
        "prompt": prompt,
        "ability": ABILITY,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": number, "split": data.split, **columns_of(example)},
    }


def _openrlhf(example: Example, number: int, prompt: Prompt, data: DataSettings) -> dict[str, Any]:
    label = json.dumps(columns_of(example), ensure_ascii=False)
    return {"input": prompt, "label": label, "datasource": _source(example)}


_MAKERS: Mapping[Target, Callable[[Example, int, Prompt, DataSettings], dict[str, Any]]] = {
    "trl": _trl,
    "verl": _verl,
    "openrlhf": _openrlhf,
}


def _source(example: Example) -> str:
    """The dataset by which a trainer groups its metrics."""
    told = (example.meta.get(name) for name in ("data_source", "dataset"))
    return next((name for name in told if isinstance(name, str) and name), "factrl")


def _write_parquet(rows: Sequence[Mapping[str, Any]], to: Target, chat: bool, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pa.Table.from_pylist(rows, schema=_schema(to, chat))
    except (UnicodeEncodeError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: a row cannot be written as parquet: {error}; write .jsonl instead"
        ) from error
    with whole_file(path) as unfinished:
        pq.write_table(table, unfinished)


def _schema(to: Target, chat: bool) -> Any:
    """Types that do not depend on what the first rows hold."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    passage = pa.struct([("text", text), ("title", text), ("source", text)])
    ours = [("id", text), ("question", text), ("answers", texts), ("topic", text), ("ook", pa.bool_())]
    ours += [("false_premise", pa.bool_()), ("evidence", pa.list_(passage))]
    ours += [("checklist", texts), ("meta", text)]
    prompt = pa.list_(pa.struct([("role", text), ("content", text)])) if chat else text
    if to == "trl":
        return pa.schema([("prompt", prompt), *ours])
    if to == "openrlhf":
        return pa.schema([("input", prompt), ("label", text), ("datasource", text)])
    truth = pa.struct([("problem", text), ("target", texts), ("out_of_knowledge", pa.bool_())])
    model = pa.struct([("style", text), ("ground_truth", truth)])
    extra = pa.struct([("index", pa.int64()), ("split", text), *ours])
    names = ("data_source", "prompt", "ability", "reward_model", "extra_info")
    return pa.schema([*zip(names, (text, prompt, text, model, extra), strict=True)])
