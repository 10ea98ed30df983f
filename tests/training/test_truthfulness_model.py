"""A tuned truthfulness model in torch: a tiny random one, whose probabilities can be had another way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")

from tiny import byte_tokenizer, llama  # noqa: E402

from factrl.errors import ConfigError, ModelError  # noqa: E402
from factrl.llm import local  # noqa: E402
from factrl.llm.local import CausalModel  # noqa: E402
from factrl.rewards.truthfulness import TUNED_PROMPT, TruthfulnessModel  # noqa: E402

CLAIMS = [
    "Curie was born in Warsaw.",
    "Paris.",
    "The chemical symbol of tungsten is W, and it melts at 3422 degrees Celsius, the highest of all metals.",
    "中文 works too 😀",
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with rotary and one with learned positions, on a byte-level tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    texts = ["Answer: True", "Answer: False", TUNED_PROMPT] * 3
    made = byte_tokenizer(["<|end|>"], texts, 300, eos_token="<|end|>")
    path = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(path)
    torch.manual_seed(3)
    size = len(made)
    if request.param == "llama":
        network = llama(size, 3, (2, 2), max_position_embeddings=2048, tie_word_embeddings=False)
    else:
        network = GPT2LMHeadModel(
            GPT2Config(vocab_size=size, n_positions=2048, n_embd=32, n_layer=2, n_head=2)
        )
    for weight in network.parameters():  # larger logits than the usual start's
        weight.data *= 4
    network.save_pretrained(path)
    return path


def by_hand(folder: Path, claims: list[str]) -> list[float]:
    """By transformers alone, one claim at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    found = []
    for claim in claims:
        prompt = TUNED_PROMPT.replace("{claim}", claim)
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        true, false = (tokenizer(prompt + word).input_ids[ids.shape[1]] for word in (" True", " False"))
        with torch.inference_mode():
            odds = network(ids).logits[0, -1].double().softmax(-1)
        found.append(float(odds[true] / (odds[true] + odds[false])))
    return found


def test_probabilities_are_those_of_the_two_first_tokens(folder: Path) -> None:
    wanted = by_hand(folder, CLAIMS)
    assert np.ptp(wanted) > 0.01  # the claims differ, so a mix-up would show
    truthfulness = TruthfulnessModel(folder)
    np.testing.assert_allclose(truthfulness(CLAIMS), wanted, atol=1e-5)
    np.testing.assert_allclose(truthfulness(CLAIMS[::-1]), wanted[::-1], atol=1e-5)
    turned = TruthfulnessModel(folder, answers=(" False", " True"))
    np.testing.assert_allclose(turned(CLAIMS), [1 - p for p in wanted], atol=1e-5)


def test_batches_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truthfulness = TruthfulnessModel(folder)
    together = truthfulness(CLAIMS)
    assert truthfulness.answer_together([((CLAIMS[:1],), {}), ((CLAIMS[1:],), {})]) == [
        pytest.approx(together[:1], abs=1e-6),
        pytest.approx(together[1:], abs=1e-6),
    ]
    monkeypatch.setattr(local, "TOKENS_AT_ONCE", 1)
    np.testing.assert_allclose(truthfulness(CLAIMS), together, atol=1e-5)


def test_log_probabilities_are_over_the_whole_vocabulary(folder: Path) -> None:
    model = CausalModel(folder)
    words = [*"ABCDEGHIJKLMNOPQRSUVWXYZ"]
    odds = model.letter_logprobs("Claim: ", CLAIMS, words, suffix="\nAnswer:\n")
    assert odds.shape == (4, len(words))
    assert odds.dtype == np.float64
    assert (np.exp(odds).sum(axis=1) < 1).all()
    assert model.letter_logprobs("", [], words).shape == (0, len(words))
    assert model.identity.startswith(folder.name)


def test_what_is_too_long_for_the_model_is_told(folder: Path) -> None:
    model = CausalModel(folder)
    rows = model.letter_logprobs("", ["a b " * 2_000, "a b"], (" True", " False"))
    assert np.isnan(rows[0]).all()
    assert not np.isnan(rows[1]).any()
    crowded = TruthfulnessModel(folder, prompt="so " * 3_000 + TUNED_PROMPT)
    with pytest.raises(ModelError, match="does not fit into the context"):
        crowded(["Paris."])


def test_answers_that_cannot_be_told_apart_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"' True' *, *' True story' begin with the same token"):
        TruthfulnessModel(folder, answers=(" True", " True story"))(CLAIMS)
    with pytest.raises(ConfigError, match=r"the answer '' merges with the end of the prompt"):
        TruthfulnessModel(folder, answers=("", " False"))(CLAIMS)


def test_a_model_that_is_none_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="could not be loaded as a causal language model"):
        TruthfulnessModel(tmp_path)
    with pytest.raises(ModelError):
        TruthfulnessModel("org/model@0123abc")
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    first = sorted(weights)[0]
    kept = {name: value for name, value in weights.items() if name != first}
    save_file(kept, tmp_path / "cut" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="it has no weights for"):
        TruthfulnessModel(tmp_path / "cut")
