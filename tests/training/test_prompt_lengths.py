"""No prompt that is too long is left out in silence: documents are cut, and what is left out is counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import small_run

from commands import write
from factrl.cli import main
from factrl.errors import DataError, Unscored
from factrl.runs.folder import read_metrics
from factrl.runs.rows import read_lines
from factrl.runs.settings import AskSettings, ModelSettings
from factrl.train import vllm_writing
from factrl.train.model import encode, fit_prompts, load_tokenizer
from factrl.train.writing import PolicyWriter
from factrl.types import Example, Passage

SHOWS = "{evidence} {question}"
LONG = " ".join(["where is ada from ?"] * 4)


def asking(model: Path, limit: int | None, **more: Any) -> AskSettings:
    told = {"max_prompt_length": limit, "max_completion_length": 3, "bf16": False, "max_long_share": 1.0}
    data = {"train": "unused", "prompt": more.pop("prompt", "{question}")}
    settings = {"model": {"name": str(model)}, "data": data, "train": {**told, **more}}
    return AskSettings.model_validate(settings)


def shown(prompt: str | None) -> list[int]:
    """How many words each document of a prompt has."""
    blocks = (prompt or "").split("Document [")[1:]
    return [block.split("]:")[1].split("<")[0].split().count("rome") for block in blocks]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_documents_are_cut_until_the_prompt_fits_exactly(tiny_model: Path, count: int) -> None:
    tokenizer = load_tokenizer(ModelSettings(name=str(tiny_model)))
    documents = tuple(Passage(" ".join(["rome"] * 20)) for _ in range(count))
    example = Example("where ?", ("rome",), evidence=documents)
    whole = fit_prompts([example], tokenizer, asking(tiny_model, None, prompt=SHOWS))
    assert (shown(whole.prompts[0]), whole.cut) == ([20] * count, 0)
    [ids] = encode([str(whole.prompts[0])], tokenizer, chat=True)
    for limit in (len(ids), len(ids) - 1, 60, 40, 25):
        if limit > len(ids):
            continue
        fitted = fit_prompts([example], tokenizer, asking(tiny_model, limit, prompt=SHOWS))
        [size] = map(len, encode([str(fitted.prompts[0])], tokenizer, chat=True))
        words = shown(fitted.prompts[0])
        assert size <= limit
        assert words[:-1] == [20] * (len(words) - 1), "the first ones are shown whole"
        assert "where ?" in str(fitted.prompts[0])
        assert (fitted.cut, fitted.too_long) == (int(limit < len(ids)), 0)
        if limit < len(ids) and words[-1] < 20:
            assert size == limit, "and no word is lost that has room"
    nothing = fit_prompts([example], tokenizer, asking(tiny_model, 5, prompt=SHOWS))
    assert (nothing.prompts, nothing.too_long) == ([None], 1)


def test_who_is_asked_too_much_is_unscored(tiny_model: Path) -> None:
    writer = PolicyWriter.load(asking(tiny_model, 12))
    short = [Example(f"where is {who} ?", ("rome",), id=who) for who in ("ada", "bo")]
    groups = writer.write([short[0], Example(LONG, ("rome",), id="long"), short[1]])
    assert [isinstance(group[0], Unscored) for group in groups] == [False, True, False]
    assert groups[1][0].cause == "prompt_too_long"  # type: ignore[union-attr]
    alone = PolicyWriter.load(asking(tiny_model, 12)).write(short)
    assert [groups[0], groups[2]] == alone
    strict = PolicyWriter.load(asking(tiny_model, 12, max_long_share=0.1))
    with pytest.raises(DataError, match=r"1 of 3 .*max_prompt_length = 12 .*max_long_share"):
        strict.write([*short, Example(LONG, ("rome",), id="long")])


@pytest.fixture
def words(tiny_model: Path, questions: Path, tmp_path: Path) -> Sequence[str]:
    rows = [*read_lines(questions), {"id": "long", "question": LONG, "answers": ["rome"]}]
    file = write(tmp_path / "q.jsonl", *rows)
    return ["--model", str(tiny_model), f"data.train={file}", "train.max_prompt_length=12", "--steps", "1"]


def test_train_counts_them_on_the_terminal_in_the_metrics_and_on_the_page(
    words: Sequence[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", "truthrl", *words, "--output", str(out), "reward.answer=text", *small_run()]
    words += ["data.prompt={question}"]
    assert main([*words, "--dry-run"]) == 0
    assert "12 tokens (train.max_prompt_length)" in capfd.readouterr().err
    assert main(words) == 2
    assert "1 of 9 prompts have more than train.max_prompt_length = 12 tokens" in capfd.readouterr().err
    assert not out.exists()
    assert main([*words, "train.max_long_share=0.2"]) == 0
    assert "1 of 9 prompts are left out: more than" in capfd.readouterr().err
    assert read_metrics(out)[0] == {"step": 0, "prompts/too_long": 1, "prompts/cut": 0}
    assert "prompts too long, left out" in (out / "report.html").read_text("utf-8")


def test_tune_counts_them_too(
    words: Sequence[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "run", words[2].partition("=")[2]
    more = [
        *words[:2],
        *words[3:],
        "train.prompts_per_step=2",
        "train.micro_batch_size=2",
        "train.bf16=false",
    ]
    words = ["tune", "sft", file, *more, "--output", str(out), "train.gradient_checkpointing=false"]
    assert main([*words, "--dry-run"]) == 0
    assert "12 tokens (train.max_prompt_length)" in capfd.readouterr().err
    assert main([*words, "train.max_long_share=0.2"]) == 0
    err = capfd.readouterr().err
    assert "1 of 9 prompts are left out: more than" in err
    assert "8 rows from 9 questions; 1 left out: prompt too long" in err
    about = json.loads((out / "data" / "left_out.json").read_text("utf-8"))
    assert (about["prompts_too_long"], about["prompts_cut"]) == (1, 0)
    assert main([*words, "--output", str(tmp_path / "other")]) == 2
    assert "1 of 9 prompts have more than train.max_prompt_length = 12" in capfd.readouterr().err


def test_vllm_writes_what_a_policy_in_this_process_is_asked(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for vLLM, which needs a GPU: what it is told, and what becomes of a text."""
    told: list[Any] = []

    class Engine:
        def __init__(self, **options: Any) -> None:
            told.append(options["model"])

        def generate(self, prompts: Any, params: Any, **_: Any) -> list[Any]:
            told.extend(zip([one["prompt_token_ids"] for one in prompts], params, strict=True))
            ends = SimpleNamespace(text="rome", token_ids=[7, 2], finish_reason="stop")
            cut = SimpleNamespace(text="rome oslo", token_ids=[7, 8], finish_reason="length")
            return [SimpleNamespace(outputs=[ends if n % 2 else cut]) for n in range(len(prompts))]

    settings = asking(tiny_model, 12, use_vllm=True)
    assert not vllm_writing.takes_vllm(settings), "it is not installed, or there is no GPU"
    stub = SimpleNamespace(LLM=Engine, SamplingParams=dict)
    monkeypatch.setitem(sys.modules, "vllm", stub)
    writer = vllm_writing.VLLMWriter(settings)
    asked = [Example(who, ("rome",), id=who) for who in ("where is ada ?", LONG)]
    written: Any = writer.write(asked, (0, 1), temperature=0.5, top_p=0.9, seed=3)
    [group, [none, _]] = written
    assert [(str(text), text.truncated, text.tokens) for text in group] == [
        ("rome oslo", True, 2),
        ("rome", False, 1),
    ]
    assert isinstance(none, Unscored)
    assert told[0] == str(tiny_model)
    ids = encode(
        [str(fit_prompts(asked[:1], writer.tokenizer, settings).prompts[0])], writer.tokenizer, chat=True
    )
    assert [tokens for tokens, _ in told[1:]] == ids * 2
    first, second = (params for _, params in told[1:])
    assert first == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 3, "seed": first["seed"]}
    assert first["seed"] != second["seed"]
