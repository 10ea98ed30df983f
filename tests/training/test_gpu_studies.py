"""`benchmarks/gpu/studies.py` on a CPU with a tiny model: two processes, a command cut off, the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import byte_tokenizer, llama

pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "studies.py"
TINY = [
    *("start.steps=2", "start.batch_size=4", "start.freeze_layers=0", "known.questions=6", "known.samples=2"),
    *("size.test=4", "train.steps=1", "train.prompts_per_step=2"),
    *("train.num_generations=2", "train.micro_batch_size=4", "train.max_completion_length=6"),
]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_two_processes_share_a_seed_and_the_same_command_goes_on(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(["<pad>", "<eos>"], pad_token="<pad>", eos_token="<eos>")
    llama(len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    facts = [f"Town {n},{r},{v}" for n in range(30) for r, v in (("country", "Peru"), ("river", f"R{n}"))]
    (tmp_path / "facts.csv").write_text("\n".join(["entity,relation,value", *facts]))
    words = ["run", "out", "--workers", "2", "--model", "model", "--studies", "truthrl", "klcf", "--small"]
    words += [word for one in (*TINY, "table=facts.csv") for word in ("--set", one)]
    rows = ["truthrl/binary", "truthrl/ternary", "klcf/all-facts"]
    for count in (1, 3):
        done = run(*words, "--rows", *rows[:count], "--results", f"{count}.jsonl", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    names = {json.loads(line)["row"] for line in (tmp_path / "3.jsonl").read_text("utf-8").splitlines()}
    assert names == {"start", "truthrl/calibrated", *rows}
    cut = run(*words, "--rows", "klcf/random", "--results", "4.jsonl", "--minutes", "0", cwd=tmp_path)
    assert "0 workers failed" in cut.stdout
    shown = run("table", "1.jsonl", "3.jsonl", "--rate", "2.5", cwd=tmp_path)
    for words_shown in ("| ternary |", "| all-facts |", "| truthrl/binary | 1 |", "tokens a second"):
        assert words_shown in shown.stdout
