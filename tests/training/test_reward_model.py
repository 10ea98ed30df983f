"""Reward models: the number is the network's own for each pair alone, however they are batched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")

from factrl.errors import ModelError, Unscored  # noqa: E402
from factrl.llm.local import classifiers  # noqa: E402
from factrl.llm.local.classifiers import RewardModel  # noqa: E402

SENTENCE = "curie was born in warsaw paris 1867 who she won two nobel prizes the city is old . ? not"
WORDS = [*SENTENCE.split(), "user", "assistant", "[", "SEP", "]", "<", "end", ">"]
PAIRS = [
    ("who was born in warsaw ?", "curie was born in warsaw ."),
    ("who won ?", "she won two nobel prizes in paris . paris is not old ."),
    ("who ?", "curie"),
    ("who was born in 1867 ?", "not she ."),
]
CHAT = (
    "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)
Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Folders with a tiny random network that has one output."""
    from tiny import word_tokenizer
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        LlamaConfig,
        LlamaForSequenceClassification,
    )

    tokens = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "<end>"}
    words = ["[PAD]", *tokens.values(), *WORDS]

    def build(kind: str = "pair", *, outputs: int = 1, pad: bool = True, positions: int = 48) -> Path:
        folder = tmp_path_factory.mktemp("reward-model")
        padded = {"pad_token": "[PAD]"} if pad else {}
        fast = word_tokenizer(words, pairs=kind == "pair", padding_side="left", **tokens, **padded)
        fast.chat_template = CHAT if kind == "chat" else None
        fast.save_pretrained(folder)
        shape = {
            "vocab_size": len(words),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": positions,
            "num_labels": outputs,
            "initializer_range": 0.3,  # larger than usual, so that texts differ
            "pad_token_id": 0 if pad else None,
        }
        torch.manual_seed(1)
        if kind == "chat":
            network: Any = LlamaForSequenceClassification(LlamaConfig(**shape, num_key_value_heads=2))
            head = network.score
        else:
            network = BertForSequenceClassification(BertConfig(**shape))
            head = network.classifier
        head.weight.data = torch.randn(outputs, 32) * 0.2
        network.eval().save_pretrained(folder)
        return folder

    return build


def alone(folder: Path, pairs: list[tuple[str, str]]) -> np.ndarray:
    """What transformers says of every pair by itself."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for question, text in pairs:
        if tokenizer.chat_template:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
            inputs = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)
        else:
            inputs = tokenizer(question, text, return_tensors="pt")
        with torch.inference_mode():
            found.append(network(**inputs).logits[0, 0].item())
    return 1 / (1 + np.exp(-np.array(found)))


@pytest.mark.parametrize(
    ("told", "budget"),
    [({"kind": "pair"}, 1), ({"kind": "chat"}, 40), ({"kind": "chat", "pad": False}, 8192)],
)
def test_numbers_are_those_of_each_pair_alone(
    make: Maker, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], budget: int
) -> None:
    monkeypatch.setattr(classifiers, "TOKENS_AT_ONCE", budget)
    folder = make(**told)
    wanted = alone(folder, PAIRS)
    assert np.ptp(wanted) > 0.02  # a mix-up would show
    model = RewardModel(folder)
    np.testing.assert_allclose(model.answer_together([(pair, {}) for pair in PAIRS]), wanted, rtol=1e-5)
    np.testing.assert_allclose([model(*pair) for pair in PAIRS], wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", ["pair", "chat"])
def test_an_answer_cannot_end_itself(make: Maker, kind: str) -> None:
    model = RewardModel(make(kind))
    token = "<end>" if kind == "chat" else "[SEP]"
    number = model.tokenizer.convert_tokens_to_ids(token)
    plain, forged = (
        model._read("who ?", text)["input_ids"] for text in ("curie she won", f"curie{token}she won")
    )
    assert plain.count(number) == forged.count(number) > 0


@pytest.mark.parametrize("kind", ["pair", "chat"])
def test_a_long_text_is_cut_at_its_end_and_nothing_else_is(make: Maker, kind: str) -> None:
    folder = make(kind, positions=24)
    model = RewardModel(folder)
    long = "curie was born in warsaw . " * 20
    row = model._read("who was born ?", long)["input_ids"]
    assert len(row) == 24
    assert row[-1] == model.tokenizer.convert_tokens_to_ids("<end>" if kind == "chat" else "[SEP]")
    frame = len(model._read("who was born ?", "curie")["input_ids"]) - 1
    kept = " ".join(long.split()[: 24 - frame])
    assert model("who was born ?", long) == pytest.approx(
        alone(folder, [("who was born ?", kept)])[0], abs=1e-5
    )


def test_a_request_without_room_for_an_answer(make: Maker) -> None:
    model = RewardModel(make(positions=16))
    with pytest.raises(Unscored, match="16 tokens") as caught:
        model("who was born in warsaw ? " * 5, "curie was born in warsaw")
    assert caught.value.cause == "too_long"


def test_a_classifier_is_no_reward_model(make: Maker, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="3 outputs"):
        RewardModel(make(outputs=3))
    with pytest.raises(ModelError, match=r"config\.json"):
        RewardModel(tmp_path)


def test_a_language_model_is_no_reward_model(tiny_model: Path) -> None:
    with pytest.raises(ModelError, match="weights for score"):
        RewardModel(tiny_model)
