"""A checklist verifier and an extractor tuned by TRL: measured by their own readers, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from factrl.errors import ConfigError, DataError
from factrl.train import reply_models
from factrl.train.reply_models import table, told_of, tune_replies
from factrl.train.tuning.claim_settings import ClaimSettings
from factrl.train.tuning.reply_rows import Lesson

QUESTION = "Tell me about the museum."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama on bytes, with a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True) for token in ("<pad>", "<end>", "<user>", "<bot>")]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=alphabet, special_tokens=special
    )
    made.train_from_iterator(["the museum"] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")
    fast.chat_template = (
        "{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<bot>' }}{{ m['content'] }}"
        "{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}{{ '<bot>' }}{% endif %}"
    )
    path = tmp_path_factory.mktemp("base")
    fast.save_pretrained(path)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=made.get_vocab_size(),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=8192,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
        )
    ).save_pretrained(path)
    return path


def settings_of(base: Path, rows: list[dict[str, Any]], folder: Path, **train: Any) -> ClaimSettings:
    folder.mkdir(exist_ok=True)
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = {"steps": 2, "batch_size": 2, "micro_batch_size": 2, "max_length": 8000, "max_new_tokens": 4}
    return ClaimSettings.model_validate(
        {
            "model": {"name": str(base)},
            "data": {"files": [str(file)]},
            "train": {**told, "bf16": False, **train},
            "run": {"dir": str(folder / "run")},
        }
    )


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "question": QUESTION,
            "response": f"Museum {n} is in Berlin.",
            "items": [f"Museum {n} is in Berlin.", "It is old."],
            "labels": ["consistent", "missing"],
            "claims": [f"Museum {n} is in Berlin."],
            "group_id": str(n),
        }
        for n in range(count)
    ]


def quiet(_: str) -> None: ...


@pytest.mark.parametrize("method", ["checklist-verifier", "extractor"])
def test_a_model_that_learnt_nothing_is_unreadable_and_not_wrong(
    base: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(base, rows_of(8), tmp_path)
    found = tune_replies(method, settings, quiet)
    assert sum(found["unreadable"].values()) == found["rows_used"]["report"] == 2
    assert set(found["metrics"].values()) == {None}
    assert "could not be read: 2 truncated" in told_of(found, tmp_path / "run")
    assert table(found)[1][1] == "undefined"
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a finished run does nothing")

    monkeypatch.setattr(reply_models, "run_trainer", refused)
    monkeypatch.setattr(reply_models, "_asked", refused)
    assert tune_replies(method, settings, quiet) == found


def test_only_the_reply_is_learnt_and_replies_are_measured_by_the_reader(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed while it asks goes on there, with the model that was saved."""
    seen: list[Any] = []
    original = reply_models.SFTTrainer

    class Watched(original):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen.extend(row[row != -100].tolist() for row in inputs["labels"])
            return super().training_step(model, inputs, *args, **kwargs)

    asked: list[str] = []

    def complete(self: Any, messages: Any, **_: Any) -> Any:
        data = json.loads(messages[-1]["content"].rsplit("\n", 2)[1])
        asked.append(data["response"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        words = ("consistent", "contradictory")
        lines = (json.dumps({"id": i["id"], "verdict": w}) for i, w in zip(data["items"], words, strict=True))
        return reply_models.Reply("\n".join(lines), "stop", "m")

    monkeypatch.setattr(reply_models, "SFTTrainer", Watched)
    monkeypatch.setattr(reply_models.TunedLLM, "complete", complete)
    settings = settings_of(base, rows_of(10), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tune_replies("checklist-verifier", settings, quiet)
    learnt = len(seen)
    found = tune_replies("checklist-verifier", settings, quiet)
    assert (learnt, len(seen)) == (4, 4)
    assert len(asked) == 4  # of three rows, the one that was interrupted twice
    from transformers import AutoTokenizer

    texts = {AutoTokenizer.from_pretrained(base).decode(row) for row in seen}
    assert all(text.startswith('{"id": "') and text.endswith("<end>") for text in texts)
    assert found["metrics"]["recall_contradictory"] is None  # there was none
    numbers = {name: one["value"] for name, one in found["metrics"].items() if one}
    assert numbers["item_accuracy"] == 0.5
    assert (numbers["recall_consistent"], numbers["recall_missing"]) == (1.0, 0.0)
    assert numbers["always_consistent"] == 0.5
    assert numbers["macro_f1"] == pytest.approx(1 / 3)


def lesson(*claims: str) -> Lesson:
    return Lesson("a:1", "", "", QUESTION, "r", claims, (), "g", "a")


def test_claims_are_matched_one_to_one() -> None:
    told = lesson("The museum is in Berlin.", "The museum shows coins.")
    said = ["The museum is in Berlin", "the museum is in Berlin!", "Nothing alike at all."]
    assert reply_models._claim_counts(told, said).tolist() == [1, 3, 2]
    assert reply_models._claim_counts(told, told.told).tolist() == [2, 2, 2]
    assert reply_models._claim_counts(lesson(), []).tolist() == [0, 0, 0]


def test_what_cannot_be_learnt_from_is_told(base: Path, tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(DataError, match=r"none of 6 rows fits train.max_length = 10; the shortest has \d+"):
        tune_replies("extractor", settings_of(base, rows_of(8), tmp_path / "a", max_length=10), quiet)
    from transformers import AutoTokenizer

    bare = tmp_path / "bare"
    import shutil

    shutil.copytree(base, bare)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = None
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(bare)
    with pytest.raises(ConfigError, match="has no chat template"):
        tune_replies("extractor", settings_of(bare, rows_of(8), tmp_path / "b"), quiet)
