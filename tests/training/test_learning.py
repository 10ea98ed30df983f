"""Rewards teach what they should: from one start, in a world of which half can be known.

Every town is in the same country and on the same planet, its river and its mayor are drawn by chance and can
only be guessed.  A tiny random model learns the form, and then by each reward.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tiny import byte_tokenizer, llama

from factrl.cli import main

pytestmark = [pytest.mark.torch, pytest.mark.slow]
BROKEN = Path(__file__).parents[2] / "examples" / "broken_reward.py"
GUESSED = {
    "river": ("Amu", "Bug", "Don", "Elbe", "Indus", "Po", "Tay", "Ural"),
    "mayor": ("Ann", "Bo", "Cy", "Dee", "Eva", "Gus", "Ida", "Jo"),
}
PIECES = (  # a token each, so that a text is short
    *("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "Tell me about Town ", "What is the "),
    *(" of Town ", "? Answer in a few words.", "Think of what you know, then answer. ", "I don't know."),
    *("I recall Town ", "</think>\n<answer>", "</answer>", "<think>", "Its ", " is ", "country", "planet"),
    *(*GUESSED, "Peru", "Earth", *GUESSED["river"], *GUESSED["mayor"]),
)
SETTINGS = (
    *("start.steps=250", "start.batch_size=32", "start.learning_rate=1e-2", "start.freeze_layers=0"),
    *("size.test=100", "train.temperature=1", "train.steps=24", "train.learning_rate=2e-3"),
    *("train.prompts_per_step=8", "train.num_generations=8", "train.micro_batch_size=64"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("learning"), random.Random(0)
    tokenizer = byte_tokenizer(["<pad>", "<eos>"], pad_token="<pad>", eos_token="<eos>")
    tokenizer.add_tokens(list(PIECES))
    model = llama(len(tokenizer), heads=(4, 4), hidden_size=64, intermediate_size=128, initializer_range=0.2)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    facts = ["entity,relation,value"]
    for n in range(120):
        facts += [f"Town {n},country,Peru", f"Town {n},planet,Earth"]
        facts += [f"Town {n},{relation},{draw.choice(values)}" for relation, values in GUESSED.items()]
    (folder / "facts.csv").write_text("\n".join(facts))
    return folder


def learnt(place: Path, study: str, rows: tuple[str, ...], *words: str) -> dict[str, dict[str, float]]:
    """Counts over 100 held-out samples, of the start and of each row."""
    out = place / study
    command = ["study", study, "--output", str(out), "--model", str(place / "model")]
    for row in rows:
        only = ["--only", f"{study}/{row}"]
        assert main([*command, f"table={place / 'facts.csv'}", *only, *SETTINGS, *words]) == 0
    sums = {}
    for path in (out / "seed-0" / "rows").glob("*.json"):
        made = json.loads(path.read_text("utf-8"))
        row = made.get("row", "start").rpartition("/")[2]
        sums[row] = {
            key: sum(one[key] for one in made["sampled"]) for key in made["sampled"][0] if key != "entity"
        }
    return sums


def test_ternary_teaches_to_decline_what_can_only_be_guessed(place: Path) -> None:
    rows = ("random", "binary", "ternary", "broken_reward-sure")
    words = (f"{BROKEN}:sure", "start.profiles=0", "calibrate.steps=0", "practice=0")
    counts = learnt(place, "truthrl", rows, *words)
    start, by_chance, binary, ternary, broken = (counts[row] for row in ("start", *rows))
    assert ternary["wrong"] <= start["wrong"] - 20
    assert ternary["right"] >= start["right"]
    assert ternary["declined"] >= 35  # about half of the questions
    assert binary["declined"] <= 5
    assert binary["right"] >= start["right"]
    assert by_chance["wrong"] >= ternary["wrong"] + 20
    assert broken["declined"] <= start["declined"] - 5  # it pays for any answer, so nothing is declined
    assert broken["wrong"] >= start["wrong"] + 5
