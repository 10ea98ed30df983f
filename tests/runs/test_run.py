"""The run folder: its name, its lock, what it never holds, and what is left of it after a crash."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pyarrow.parquet
import pytest

from factrl.errors import ConfigError, DataError
from factrl.runs.folder import Rollout, Run, read_metrics
from factrl.types import Result

TOML = 'paper = "truthrl"\n'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs", "truthrl", TOML)


def in_another_process(code: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    program = [
        sys.executable,
        "-c",
        f"import os, sys\nfrom factrl.runs.folder import Run\n{code}",
        *map(str, arguments),
    ]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options)


# The folder


def test_a_new_run_has_its_settings_and_environment(run: Run) -> None:
    assert Run.create(run.path.parent, "truthrl", TOML).path != run.path  # of the same second
    assert re.fullmatch(r"truthrl-\d{8}-\d{6}", run.path.name)
    assert (run.path / "config.toml").read_text() == TOML
    environment = json.loads((run.path / "env.json").read_text())
    assert environment["python"].count(".") == 2
    assert re.fullmatch(r"\d+\.\d+.*", environment["packages"]["pyarrow"])
    assert read_metrics(run.path) == []
    assert {file.name for file in run.path.iterdir()} == {"config.toml", "env.json", "lock", "rollouts"}


def test_opening_what_is_no_run(run: Run) -> None:
    run.close()
    with pytest.raises(ConfigError, match=f"'{run.path.name}'"):
        Run.open(f"{run.path}9")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        Run.open(run.path.parent)


# Metrics


def test_metrics_are_lines_of_json_with_a_step(run: Run) -> None:
    run.log(1, {"loss": 0.5, "lr": numpy.float32(0.25), "n": numpy.int64(3), "note": "é\u2028", "none": None})
    run.log(2, {"loss": float("nan"), "grad": float("-inf"), "nested": {"a": [float("inf"), 1]}})
    text = run.metrics.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert [json.loads(line) for line in text.splitlines()] == [
        {"step": 1, "loss": 0.5, "lr": 0.25, "n": 3, "note": "é\u2028", "none": None},
        {"step": 2, "loss": None, "grad": None, "nested": {"a": [None, 1]}},
    ]
    assert read_metrics(run.path)[1]["step"] == 2


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on the size of files")
def test_a_full_disk_leaves_no_torn_line(run: Run) -> None:
    run.close()
    code = (
        "import resource\n"
        "with Run.open(sys.argv[1]) as run:\n"
        "    run.log(1, {})\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "    try: run.log(2, {'loss': 2.0})\n"
        "    except OSError as error: print(error)"
    )
    output, _ = in_another_process(code, run.path).communicate(timeout=60)
    assert output.endswith("metrics.jsonl: the disk is full\n")
    assert run.metrics.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b'{"step": 3}', b"\xff"])
def test_a_torn_last_line_is_dropped(run: Run, torn: bytes) -> None:
    run.log(1, {"loss": 1.0})
    run.log(2, {"loss": 2.0})
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole + torn)
    assert [line["step"] for line in read_metrics(run.path)] == [1, 2]
    run.close()
    with Run.open(run.path) as again:
        assert again.metrics.read_bytes() == whole
        again.log(3, {"loss": 3.0})
    assert [line["step"] for line in read_metrics(run.path)] == [1, 2, 3]


@pytest.mark.parametrize("broken", ["{", "[]", '{"step": "1"}'])
def test_damage_in_the_middle_is_named_and_lets_the_lock_go(run: Run, broken: str) -> None:
    run.metrics.write_text(f'{{"step": 1}}\n{broken}\n{{"step": 3}}\n')
    run.close()
    for _ in range(2):
        with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is not a JSON object with a step"):
            Run.open(run.path)


def test_a_killed_process_loses_at_most_its_last_line(run: Run) -> None:
    run.close()
    code = (
        "with Run.open(sys.argv[1]) as run:\n"
        "    for step in range(1_000_000):\n"
        "        run.log(step, {'padding': 'x' * 2000})\n"
        "        if step == 20: print('going', flush=True)"
    )
    process = in_another_process(code, run.path)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        process.kill()
    with Run.open(run.path) as again:
        steps = [line["step"] for line in read_metrics(again.path)]
    assert steps == list(range(len(steps)))
    assert len(steps) > 20


# Rollouts


def rollout(value: float | None = 1.0, **more: Any) -> Rollout:
    result = Result("masked" if value is None else "scored", value, **more)
    return Rollout("q1", "Q", "A", result, advantage=None if value is None else 0.5)


def read(path: Path) -> list[dict[str, Any]]:
    return pyarrow.parquet.read_table(path).to_pylist()


def test_rollouts_are_parquet_with_one_column_per_term(run: Run) -> None:
    path = run.write_rollouts(
        7,
        [
            rollout(1.5, terms={"outcome": 1.0, "format": 0.5}, facts={"answer": "A", "p": float("nan")}),
            rollout(None, cause="judge_timeout", detail="late"),
        ],
    )
    assert path.name == "step_000007.parquet"
    scored, masked = read(path)
    text = {"step": 7, "id": "q1", "prompt": "Q", "completion": "A", "state": "scored", "cause": None}
    assert {key: scored[key] for key in text} == text
    numbers = {"value": 1.5, "advantage": 0.5, "term/format": 0.5, "term/outcome": 1.0}
    assert {key: scored[key] for key in numbers} == numbers
    assert {key: masked[key] for key in numbers} == dict.fromkeys(numbers)
    assert scored["facts"] == '{"answer": "A", "p": null}'
    assert (masked["state"], masked["cause"], masked["detail"]) == ("masked", "judge_timeout", "late")


@pytest.mark.parametrize("text", ["half a pair: \ud800", "zero \0"])
def test_any_text_can_be_kept(run: Run, text: str) -> None:
    path = run.write_rollouts(1, [Rollout("i", text, text, Result("scored", 0.0), float("nan"))])
    (row,) = read(path)
    assert row["prompt"] == text.replace("\ud800", "\\ud800")
    assert row["advantage"] is None


def test_writing_a_step_again_replaces_it_and_a_failure_leaves_the_old(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run.write_rollouts(1, [rollout(1.0)])
    run.write_rollouts(1, [rollout(2.0)])
    assert [row["value"] for row in read(path)] == [2.0]

    def fail(*_: object) -> None:
        raise OSError("killed here")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="killed here"):
        run.write_rollouts(1, [rollout(3.0)])
    monkeypatch.undo()
    assert [row["value"] for row in read(path)] == [2.0]
    run.close()
    with Run.open(run.path):
        assert [file.name for file in run.rollouts.iterdir()] == ["step_000001.parquet"]


def test_resuming_forgets_what_came_after_the_checkpoint(run: Run) -> None:
    for step in (1, 2, 2, 3, 10):
        run.log(step, {"loss": float(step)})
        run.write_rollouts(step, [rollout()])
    (run.rollouts / "notes.txt").touch()
    run.truncate_after(2)
    run.log(3, {"loss": 30.0})
    assert [(line["step"], line["loss"]) for line in read_metrics(run.path)] == [
        (1, 1),
        (2, 2),
        (2, 2),
        (3, 30),
    ]
    left = sorted(file.name for file in run.rollouts.iterdir())
    assert left == ["notes.txt", "step_000001.parquet", "step_000002.parquet"]
    run.truncate_after(0)
    assert read_metrics(run.path) == []


# The lock


def test_a_run_has_one_writer(run: Run) -> None:
    with pytest.raises(ConfigError, match=f"is being written by process {os.getpid()} on "):
        Run.open(run.path)
    run.close()
    run.close()
    with Run.open(run.path), pytest.raises(ConfigError, match="is being written by process"):
        Run.open(run.path)
    assert not (run.path / "lock").exists()
