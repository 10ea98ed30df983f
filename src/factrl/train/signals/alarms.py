"""Alarms in a run folder: `alarms.jsonl`, one line each with its worst samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from factrl.runs.folder import Run, read_metrics
from factrl.runs.rows import whole_lines
from factrl.runs.whole_file import write_whole
from factrl.train.signals.watch import Alarm, Watch

FILE = "alarms.jsonl"
_LONGEST = 4_000  # characters of a completion in the table


def append_alarms(folder: Path, alarms: Sequence[Alarm]) -> Path:
    """Write alarms to the folder of a run; returns the path of the file."""
    path = folder / FILE
    lines = "".join(json.dumps(_row(alarm), allow_nan=False) + "\n" for alarm in alarms)
    if lines:
        with path.open("ab", buffering=0) as file:
            file.write(lines.encode("ascii"))
    return path


def read_alarms(folder: str | Path) -> list[dict[str, Any]]:
    """The alarms of a run, in the order in which they were raised; a torn last line is left out."""
    return [json.loads(line) for line in whole_lines(Path(folder) / FILE)]


def open_watch(run: Run, already: int = 0) -> Watch:
    """The watch over a run; of one that goes on after `already` steps, later alarms are forgotten."""
    folder = run.path
    alarms = [row for row in read_alarms(folder) if row["step"] <= already]
    if (folder / FILE).exists():
        write_whole(folder / FILE, "".join(json.dumps(row) + "\n" for row in alarms).encode("ascii"))
    watch = Watch()
    if already:
        rows = [row for row in read_metrics(folder) if row["step"] <= already]
        watch.remember(rows, [(row["metric"], row["kind"]) for row in alarms])
    return watch


def _row(alarm: Alarm) -> dict[str, Any]:
    return {
        "step": alarm.step,
        "metric": alarm.rule.metric,
        "kind": alarm.rule.kind,
        "limit": alarm.rule.limit,
        "value": alarm.value,
        "start": alarm.start,
        "group": alarm.group,
        "told": str(alarm),
        "worst": [
            {
                "step": worst.step,
                "number": worst.number,
                "id": worst.sample.example.id,
                "question": worst.sample.example.question,
                "completion": worst.sample.text[:_LONGEST],
                "characters": len(worst.sample.text),
                "state": worst.sample.result.state,
                "cause": worst.sample.result.cause,
                "reward": worst.sample.result.value,
            }
            for worst in alarm.samples
        ],
    }
