"""`benchmarks/gpu/studies.py` on a CPU with a tiny model: two processes, a command cut off, the table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import TOWN_STUDY, save_towns

from factrl.runs.rows import read_lines

pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "studies.py"


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_two_processes_share_a_seed_and_the_same_command_goes_on(tmp_path: Path) -> None:
    save_towns(tmp_path)
    words = ["run", "out", "--workers", "2", "--model", "model", "--studies", "truthrl", "klcf", "--small"]
    words += [word for one in (*TOWN_STUDY, "table=facts.csv") for word in ("--set", one)]
    rows = ["truthrl/binary", "truthrl/ternary", "klcf/all-facts"]
    for count in (1, 3):
        done = run(*words, "--rows", *rows[:count], "--results", f"{count}.jsonl", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    names = {one["row"] for one in [*read_lines(tmp_path / "3.jsonl")]}
    assert names == {"start", "truthrl/calibrated", *rows}
    cut = run(*words, "--rows", "klcf/random", "--results", "4.jsonl", "--minutes", "0", cwd=tmp_path)
    assert "0 workers failed" in cut.stdout
    shown = run("table", "1.jsonl", "3.jsonl", "--rate", "2.5", cwd=tmp_path)
    for words_shown in ("| ternary |", "| all-facts |", "| truthrl/binary | 1 |", "tokens a second"):
        assert words_shown in shown.stdout
