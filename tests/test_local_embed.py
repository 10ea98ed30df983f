"""Embedders without torch: tiny models made here, and the real ones where they are in the cache."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from factrl.errors import MissingExtra, ModelError
from factrl.llm import models
from factrl.llm.local.embed import MiniLM, Potion

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "rome", "is", "old", "not", "a", "city"]
Embedder = Callable[[], Potion | MiniLM]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A static model whose word number n has a one at n, and three in the last place."""
    save_file = pytest.importorskip("safetensors.numpy", reason="needs the extra `local`").save_file
    pytest.importorskip("tokenizers", reason="needs the extra `local`")
    from tokenizers import Tokenizer, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    tokenizer = Tokenizer(WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(2)  # as some published files have it
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    table = np.hstack([np.eye(len(WORDS)), np.full((len(WORDS), 1), 3.0)]).astype(np.float32)
    save_file({"embeddings": table}, tmp_path / "model.safetensors")
    return tmp_path


def test_a_text_has_the_mean_of_its_words(tiny: Path) -> None:
    model = Potion(tiny)
    rows = model.encode(["rome is old", "old", "", "zzz", "rome zzz is \ud800 old", "rome " * 5000])
    expected = np.zeros(11)
    expected[[4, 5, 6]], expected[10] = 1 / 3, 3
    np.testing.assert_allclose(rows[0], expected / np.linalg.norm(expected), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1, 0, 0, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(rows[4], rows[0], rtol=1e-6)  # what is no word says nothing
    assert rows.dtype == np.float32
    assert model.encode([]).shape == (0, 11)
    assert model.dimension == 11
    assert model.identity.startswith(f"{tiny.name}@")


def test_many_texts_keep_their_order(tiny: Path) -> None:
    texts = ["rome" if number % 3 else "old city" for number in range(2500)]
    rows = Potion(tiny).encode(texts)
    np.testing.assert_allclose(rows[[1, 1999, 2498]], np.repeat(rows[1:2], 3, axis=0))
    np.testing.assert_allclose(rows[[0, 1998, 2499]], np.repeat(rows[:1], 3, axis=0))


def test_a_static_model_that_is_none(tiny: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weights": np.ones((2, 2), np.float32)}, tiny / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors is no static embedding model"):
        Potion(tiny).encode(["rome"])
    (tiny / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(ModelError, match=r"model\.safetensors is no static embedding model"):
        Potion(tiny).encode(["rome"])
    (tiny / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        Potion(tiny).encode(["rome"])


def test_a_folder_without_one_onnx_file(tiny: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `local`")
    with pytest.raises(ModelError, match=r"holds 0 \.onnx files"):
        MiniLM(tiny).encode(["rome"])


@pytest.mark.parametrize(
    ("make", "package"), [(Potion, "safetensors"), (Potion, "tokenizers"), (MiniLM, "onnxruntime")]
)
def test_without_its_packages_the_extra_is_named(
    tiny: Path, make: Callable[[Path], Potion | MiniLM], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(tiny)  # nothing is loaded before it is used
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtra, match=rf"{package} is not installed; run: pip install 'factrl\[local\]'"
    ):
        model.encode(["rome"])


def test_a_model_that_is_not_here_is_not_missed_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path))
    model = Potion("no-such-model")
    with pytest.raises(ModelError, match="no model is called 'no-such-model'"):
        _ = model.identity


# --- the real ones -----------------------------------------------------------------------------------


@pytest.fixture(params=[Potion, MiniLM])
def real(request: pytest.FixtureRequest) -> Potion | MiniLM:
    for package in ("tokenizers", "safetensors", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `local`")
    model = request.param()
    if models.cached(model._model) is None:
        pytest.skip(f"run: factrl models get {model._model}")
    return model


@pytest.mark.model
def test_like_sentences_are_close(real: Potion | MiniLM) -> None:
    eats, food, market = real.encode(["A man is eating pasta", "Someone eats food", "The stock market fell"])
    assert eats @ food > 0.5
    assert abs(eats @ market) < 0.15
    assert len(eats) == real.dimension == {Potion: 256, MiniLM: 384}[type(real)]


@pytest.mark.model
def test_a_text_has_one_vector_whatever_stands_beside_it(real: Potion | MiniLM) -> None:
    texts = ["Rome", "", "Marie Curie was born in Warsaw.", "word " * 3000, "\x00\ud800", "你好", " \n"]
    rows = real.encode(texts)
    assert np.isfinite(rows).all()
    norms = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(norms[[0, 2, 3]], 1, rtol=1e-5)
    assert norms[1] == norms[6] == 0
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(real.encode([text])[0], row, atol=1e-6)


@pytest.mark.model
def test_threads_get_the_same_vectors(real: Potion | MiniLM) -> None:
    texts = [f"Sentence number {number} is about Rome." for number in range(40)]
    expected = real.encode(texts)
    got: list[np.ndarray] = []
    running = [threading.Thread(target=lambda: got.append(real.encode(texts))) for _ in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(got) == 4
    for rows in got:
        np.testing.assert_allclose(rows, expected, atol=1e-6)


@pytest.mark.model
def test_potion_is_what_its_own_library_computes() -> None:
    library = pytest.importorskip("model2vec", reason="its reference implementation")
    folder = models.cached("potion-base-8M")
    if folder is None:
        pytest.skip("run: factrl models get potion-base-8M")
    texts = ["Rome is old.", "naïve café, 1867!", "你好 world", "x" * 300]
    theirs = library.StaticModel.from_pretrained(folder).encode(texts)
    np.testing.assert_allclose(Potion().encode(texts), theirs, atol=1e-6)


@pytest.mark.model
def test_minilm_is_close_to_its_full_precision() -> None:
    """The published 8-bit file against the same model's own weights, by transformers."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    from transformers import AutoModel, AutoTokenizer

    folder = models.cached("all-MiniLM-L6-v2")
    if folder is None or models.cached("all-MiniLM-L6-v2-int8") is None:
        pytest.skip("run: factrl models get all-MiniLM-L6-v2, and all-MiniLM-L6-v2-int8")
    texts = ["Rome is old.", "Marie Curie was born in Warsaw in 1867 and won two Nobel Prizes.", "naïve café"]
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    for text, row in zip(texts, MiniLM().encode(texts), strict=True):
        hidden = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        full = hidden.detach().numpy()
        assert row @ full / np.linalg.norm(full) > 0.97


def test_settings_of_the_tokenizer_file_do_not_cut_potion(tiny: Path) -> None:
    told = json.loads((tiny / "tokenizer.json").read_text("utf-8"))
    assert told["truncation"]["max_length"] == 2
    rows = Potion(tiny).encode(["rome is old city"])
    assert (rows[0, [4, 5, 6, 9]] > 0).all()
