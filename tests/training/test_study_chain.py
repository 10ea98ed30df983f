"""A pipeline with a stage of every kind, from a cold start on: which verifier judged which stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

import factrl.verifier.claims.llm as claims
import factrl.verifier.judges.llm as judges
from commands import write
from factrl.cli import main
from factrl.rewards.grading import GRADE_PROMPT
from factrl.runs.config import read_toml
from fault_server import FaultServer, replies

pytestmark = pytest.mark.slow

STUDY = """
title = "made up"

[full]
model = "a/large-model"
asks = { train = "questions", held_out = "questions to evaluate on", judge = "what grades and verifies" }
evaluate = "eval --long {held_out} --model {trained} --config {recipe} --output {out}/evaluations/{row}"
columns = { verified = "precision" }

[full.recipe]
paper = "knowrl"
verifier = { embedder = "", cache = false }

[full.recipe.train]
steps = 1
prompts_per_step = 2
num_generations = 8
micro_batch_size = 2
learning_rate = 1e-9
max_completion_length = 2
gradient_checkpointing = false
bf16 = false

[full.steps]
base = "tune sft {train} --config {recipe} --model {start} model.lora_rank=4"
probe = "probe {train} --config {recipe} --model {base} --full --samples 8 --output {out}/probed.jsonl"
rft = "tune rft {train} --config {recipe} --model {base} --probe {probe}"
dpo = "tune dpo {train} --config {recipe} --model {base} --rule max-min"
rounds = "tune iterative-dpo {train} --config {recipe} --model {base} --rule factscore tune.rounds=2"
seed = "tune sft-seed {train} --config {recipe} --model {base} paper=factreason"
paper = "train --config {recipe} --model {base} --data {train}"

[full.rows]
paper = {}
"""
JUDGED: Mapping[str, set[str]] = {  # step -> what the judge was asked
    "base": set(),
    "eval base": {"claims by knowrl", "verdict by factscore"},
    "probe": {"grade"},
    "rft": set(),
    "dpo": {"grade", "claims by knowrl", "verdict by factscore"},
    "rounds": {"claims by knowrl", "verdict by factscore"},
    "seed": {"claims by veriscore", "verdict by veriscore"},
    "paper": {"grade", "claims by knowrl", "verdict by factscore"},
    "eval paper": {"claims by knowrl", "verdict by factscore"},
}
ROME, OSLO = "Rome is in Italy.", "Oslo is in Italy."
PROMPTS = {
    **{
        f"claims by {p.stem}": p.read_text() for p in (Path(claims.__file__).parent / "prompts").glob("*.txt")
    },
    **{
        f"verdict by {p.stem}": p.read_text()
        for p in (Path(judges.__file__).parent / "prompts").glob("*.txt")
    },
    "grade": GRADE_PROMPT,
}


def kind(message: str) -> str:
    """Whose prompt a message is."""
    return next((name for name, prompt in PROMPTS.items() if message.startswith(prompt[:60])), "")


def judge(message: str) -> str:
    """Facts, verdicts and grades of what the policy says, of which what is said of Rome is right."""
    name, told = kind(message), message.rpartition("DATA")[2]
    if name.startswith("claims"):
        return "\n".join(f"- {one}" for one in (ROME, OSLO) if one in told)
    right = f'claim": "{ROME}' in told
    if name == "verdict by veriscore":
        return f"###{'Supported' if right else 'Not Supported'}.###"
    return str(right) if name == "verdict by factscore" else "It says another city.\nVERDICT: incorrect"


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    """A model that, whatever it is asked, says one of two texts and ends."""
    said = [f"<think>{text}</think><answer>{text}</answer>" for text in (ROME, OSLO)]
    tokens: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    tokenizer = word_tokenizer([*tokens.values(), *said], **tokens)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "speaker")
    config = LlamaConfig(
        vocab_size=5,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()  # a layer adds nothing: the next token depends on the last one alone
        model.get_input_embeddings().weight.copy_(torch.eye(5, 8))
        head = torch.zeros(5, 8)
        head[3:, :3] = 10  # after anything else one of the texts,
        head[2, 3:] = 10  # and after a text the end
        model.get_output_embeddings().weight.copy_(head)
    model.save_pretrained(tmp_path / "speaker")
    return tmp_path / "speaker"


def test_each_stage_is_judged_by_the_papers_verifier(
    speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(STUDY, "utf-8")
    row = {"question": "Which city is in Italy?", "answers": [ROME], "evidence": ["Rome is a city in Italy."]}
    rows = [{**row, "id": str(number)} for number in range(4)]
    write(tmp_path / "q.jsonl", *rows)
    words = ["study", "own.toml", "--full", "--output", "out", "--model", str(speaker)]
    words += ["--train", "q.jsonl", "--held-out", "q.jsonl"]
    with FaultServer(replies(judge)) as server:
        for step, asked in JUDGED.items():
            before = len(server.requests)
            assert main([*words, "--judge", f"{server.url}#judge", "--only", step]) == 0, (
                capfd.readouterr().err
            )
            messages = [one.body["messages"][-1]["content"] for one in server.requests[before:] if one.body]
            assert {kind(message) for message in messages} - {""} == asked, step
    for step in ("base", "rft", "dpo", "rounds"):
        [told] = (tmp_path / "out" / "runs" / step).glob("*/tune.toml")
        model = read_toml(told)["model"]
        assert (model["lora"], model["lora_rank"]) == (True, 4 if step == "base" else 128), step
        assert (told.parent / "model" / "config.json").is_file(), "the next stage starts from a whole model"
