"""Odds by products of 8-bit integers, beside transformers in float32 and beside llama.cpp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra `train`")
gguf = pytest.importorskip("gguf", reason="needs the extra `demo`")

from factrl.errors import ModelError  # noqa: E402
from factrl.llm import models  # noqa: E402
from factrl.llm.local import int8  # noqa: E402

PREFIX = "<|im_start|>user\nSay yes or no.<|im_end|>\n"
LETTERS = ("Y", "N", "U")
PROMPTS = ["Is it warm?", "Is it cold?", "Is it", "Was it so, and for how long was it so?"]
ENDS = "<|im_end|>\n"
WIDTH, HEADS, PAIRS, WIDER, LAYERS = 64, 4, 2, 128, 2


def written(path: Path, kind: str) -> Path:
    """A random network of some kind with a tokenizer of bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    words = [*sorted(ByteLevel.alphabet()), "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    file = gguf.GGUFWriter(path, kind)
    file.add_block_count(LAYERS)
    file.add_context_length(256)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(WIDER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(PAIRS)
    file.add_layer_norm_rms_eps(1e-6)
    file.add_rope_freq_base(10_000.0)
    file.add_vocab_size(len(words))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("qwen2")
    file.add_token_list(words)
    file.add_token_types([1] * 257 + [3] * 3)
    file.add_token_merges(["a b"])
    file.add_eos_token_id(257)
    file.add_bos_token_id(257)
    rng = np.random.default_rng(0)

    def add(name: str, *size: int, mean: float = 0.0) -> None:
        scale = 1.0 if len(size) == 1 else 1.2 / size[-1] ** 0.5
        file.add_tensor(name, (mean + scale * rng.normal(size=size) * (0.1 if mean else 1)).astype("float32"))

    add("token_embd.weight", len(words), WIDTH)
    add("output_norm.weight", WIDTH, mean=1.0)
    size = WIDTH // HEADS
    for n in range(LAYERS):
        for name, out in (("q", HEADS * size), ("k", PAIRS * size), ("v", PAIRS * size)):
            add(f"blk.{n}.attn_{name}.weight", out, WIDTH)
            if kind == "qwen2":
                add(f"blk.{n}.attn_{name}.bias", out)
        add(f"blk.{n}.attn_output.weight", WIDTH, HEADS * size)
        add(f"blk.{n}.ffn_gate.weight", WIDER, WIDTH)
        add(f"blk.{n}.ffn_up.weight", WIDER, WIDTH)
        add(f"blk.{n}.ffn_down.weight", WIDTH, WIDER)
        add(f"blk.{n}.attn_norm.weight", WIDTH, mean=1.0)
        add(f"blk.{n}.ffn_norm.weight", WIDTH, mean=1.0)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path_factory.getbasetemp() / "int8"))


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp(request.param) / "tiny.gguf", request.param)


# The judge's verdicts are those of its weights: a wrong rotation, mask or scale would still look like odds.
def test_the_odds_are_those_of_transformers(weights: Path) -> None:
    import transformers

    model = int8.Int8Model(weights, PREFIX)
    network = transformers.AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype="float32"
    )
    found = model.letter_logprobs(PREFIX, PROMPTS, LETTERS, suffix=ENDS)
    firsts = [model._letter(letter) for letter in LETTERS]
    for prompt, row in zip(PROMPTS, found, strict=True):
        first, last = (model._tokens(text, special=True) for text in (PREFIX, ENDS))
        ids = [*first, *model._tokens(prompt, special=False), *last]
        with torch.inference_mode():
            logits = network(torch.tensor([ids])).logits[0, -1, firsts].double()
        assert abs(logits.std()) > 0.2  # else any numbers would do
        np.testing.assert_allclose(row, logits.log_softmax(-1).numpy(), atol=0.1)


def test_a_prompt_has_the_same_odds_beside_others_and_in_a_new_process(weights: Path) -> None:
    model = int8.Int8Model(weights, PREFIX)
    together = model.letter_logprobs(PREFIX, PROMPTS, LETTERS, suffix=ENDS)
    again = int8.Int8Model(weights, PREFIX)
    alone = [again.letter_logprobs(PREFIX, [prompt], LETTERS, suffix=ENDS)[0] for prompt in PROMPTS]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_a_prompt_cannot_forge_a_role_and_may_be_too_long_or_strange(weights: Path) -> None:
    model = int8.Int8Model(weights, PREFIX, n_ctx=120)
    assert len(model._tokens("<|im_end|>", special=True)) == 1
    assert len(model._tokens("<|im_end|>", special=False)) > 1
    odds = model.letter_logprobs(PREFIX, ["x" * 500, "\ud800 and 🙂", ""], LETTERS)
    assert [np.isnan(row).any() for row in odds] == [True, False, True]
    assert model.letter_logprobs(PREFIX, [], LETTERS).shape == (0, 3)


def test_what_it_cannot_do_is_said(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = int8.Int8Model(weights, PREFIX)
    with pytest.raises(ValueError, match="'maybe' is 5 tokens"):
        model.letter_logprobs(PREFIX, ["x"], ("maybe",))
    with pytest.raises(ValueError, match="another prefix"):
        model.letter_logprobs("Hello", ["x"], LETTERS)
    (tmp_path / "no.gguf").write_bytes(b"no model at all")
    with pytest.raises(ModelError, match="as a GGUF model"):
        int8.Int8Model(tmp_path / "no.gguf", PREFIX)
    with pytest.raises(ModelError, match=r"gpt2; .*qwen2 and llama"):
        int8.Int8Model(written(tmp_path / "other.gguf", "gpt2"), PREFIX)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(int8, "save_file", full)
    with pytest.raises(ModelError, match="No space left on device; FACTRL_CACHE"):
        int8.Int8Model(weights, "another prefix")
    assert not [*(models.cache_folder() / "int8").glob(".new-*")]


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8), st.integers(4, 12))
def test_rows_spell_their_prompts(read: list[list[int]], room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "ROWS", 16)
        done = [*int8.batches(read, room)]
    for batch in done:
        places = batch.places()
        end = 0
        for row, own, new in zip(batch.rows, batch.own, batch.new, strict=True):
            assert [batch.tokens[place] for place in own] == read[row]
            assert [places[place] for place in own] == [*range(len(own))]
            assert own[-new:] == [*range(end, end + new)]
            end += new
    wanted = [number for number, ids in enumerate(read) if 0 < len(ids) <= room]
    assert sorted(row for batch in done for row in batch.rows) == wanted


@pytest.mark.model
def test_a_real_model_says_what_llama_cpp_says() -> None:
    llama = pytest.importorskip("factrl.llm.local.llama")
    pytest.importorskip("xllamacpp", reason="needs the extra `local`")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FACTRL_CACHE")
        found = models.cached("SmolLM2-135M-Instruct")
    if found is None:
        pytest.skip("run: factrl doctor --get SmolLM2-135M-Instruct")
    prefix = "".join(f"{n} is {'even' if n % 2 == 0 else 'odd'}.\n" for n in range(20))
    asked = [f"{n} is" for n in range(20, 30)]
    ours = int8.Int8Model(found, prefix).letter_logprobs(prefix, asked, (" even", " odd"))
    model = llama.LlamaModel(found, n_ctx=1024, threads=1)
    theirs = model.letter_logprobs(prefix, asked, (" even", " odd"))
    theirs -= np.logaddexp(theirs[:, :1], theirs[:, 1:])
    np.testing.assert_allclose(np.exp(ours), np.exp(theirs), atol=0.05)
