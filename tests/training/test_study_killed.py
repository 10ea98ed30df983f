"""`factrl study --full`, killed in the middle of a step of each kind, ends as it would have undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from commands import write
from factrl.runs.rows import read_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]

REWARD = """
from factrl import reward

@reward
def mine(example, completion):
    return {"right": float(completion.strip().startswith(example.answers[0]))}
"""
STUDY = """
title = "made up"

[full]
model = "a/large-model"
asks = { warm = "rows to learn first", train = "questions", held_out = "questions to evaluate on" }

[full.recipe]
paper = "own.py:mine"
data = { prompt = "{question}", chat = true }

[full.recipe.train]
steps = 40
prompts_per_step = 2
num_generations = 4
micro_batch_size = 2
max_completion_length = 4
save_steps = 5

[full.steps]
base = "tune sft {warm} --config {recipe} --model {start} train.steps=40"
probe = "probe {train} --config {recipe} --model {base} --full --samples 4 --output {out}/probed.jsonl"
dpo = '''tune dpo {train} --config {recipe} --model {base} --rule max-min train.steps=40
    sampling.num_samples=4 sampling.temperature=1.0'''
mine = "train --data {train} --config {recipe} --model {base} train.learning_rate=1e-3"

[full.rows]
dpo = {}
mine = { accuracy = 10.0 }
"""
# What a step leaves behind when it is in its middle.
MIDDLE = {
    "base": "runs/base/*/checkpoints/checkpoint-*",
    "probe": "probed.journal.jsonl",
    "dpo": "runs/dpo/*/checkpoints/checkpoint-*",
    "mine": "runs/mine/*/checkpoints/checkpoint-*",
    "eval mine": "evaluations/mine/answers/questions.jsonl",
}


def words(folder: Path, model: Path) -> list[str]:
    given = [word for name in ("warm", "train", "held-out") for word in (f"--{name}", "questions.jsonl")]
    called = ["study", "own.toml", "--full", "--model", str(model), *given, "--output", str(folder)]
    return [sys.executable, "-m", "factrl", *called]


def killed(command: list[str], out: Path, pattern: str) -> bool:
    """Start the command and kill it and its step once the step is in its middle; whether it was."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None:
        if any(path.is_dir() or path.read_bytes().count(b"\n") > 1 for path in out.glob(pattern)):
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait() == -signal.SIGKILL
        time.sleep(0.01)
    return False


def weights(out: Path, step: str) -> dict[str, list[float]]:
    found = load_file(out / "runs" / step / "model" / "model.safetensors")
    return {name: tensor.flatten().tolist() for name, tensor in found.items()}


def test_a_killed_pipeline_ends_as_an_undisturbed_one(
    tiny_model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(REWARD, encoding="utf-8")
    (tmp_path / "own.toml").write_text(STUDY, encoding="utf-8")
    rows = [{**row, "id": f"{row['id']}{n}"} for n in range(16) for row in read_rows(str(questions))]
    write(tmp_path / "questions.jsonl", *rows)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(words(whole, tiny_model), check=True)
    for step, pattern in MIDDLE.items():
        assert killed(words(broken, tiny_model), broken, pattern), step
    subprocess.run(words(broken, tiny_model), check=True)
    for step in ("base", "dpo", "mine"):
        assert weights(broken, step) == weights(whole, step), step
    assert not list(broken.glob("runs/*/*/checkpoints"))  # three models' worth each
    for name in ("base", "dpo", "mine"):
        first, last = ((out / f"evaluations/{name}/samples.jsonl").read_text() for out in (whole, broken))
        assert first == last, name
    assert (whole / "probed.jsonl").read_text() == (broken / "probed.jsonl").read_text()
    tables = [(out / "table.md").read_text().partition("| step |")[0] for out in (whole, broken)]
    assert tables[0].replace(str(whole), "") == tables[1].replace(str(broken), "")
