"""Passages ranked by a model of sentence-transformers, here one of random weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from factrl import open_verifier
from factrl.errors import ModelError
from factrl.types import Passage
from factrl.verifier.search import Dense, Given
from factrl.verifier.search.index import Index

pytest.importorskip("sentence_transformers")
TEXTS = ("warsaw is a city", "ada was a poet", "paris is in france", "bohr was a dane")
PREFIXES = ("query", "passage")  # those of E5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    bert = tmp_path_factory.mktemp("bert")
    words = sorted({word for text in (*TEXTS, *PREFIXES) for word in text.split()})
    vocab = {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    }
    BertTokenizerFast(vocab=vocab).save_pretrained(bert)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(bert)
    folder = tmp_path_factory.mktemp("embedder")
    transformer = Transformer(str(bert))
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(folder))
    return folder


def test_passages_stand_by_inner_product(model: Path) -> None:
    """Also those that share no word with the claim; the score is the model's own."""
    from sentence_transformers import SentenceTransformer

    search = Dense(Given(TEXTS), model)
    found = search.search("ada was in warsaw", k=3)
    encode = SentenceTransformer(str(model), device="cpu").encode
    products = encode(list(TEXTS)) @ encode("ada was in warsaw")
    assert [one.text for one in found] == [TEXTS[at] for at in np.argsort(-products)[:3]]
    assert [one.score for one in found] == pytest.approx(sorted(products, reverse=True)[:3], abs=1e-5)
    assert search.search("ada was in warsaw", k=3) == found  # passages that are known by now


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("e5-base-v2", "query: ", "passage: "),
        ("multilingual-e5-large", "query: ", "passage: "),
        ("e5-mistral-7b-instruct", "", ""),  # it has prompts of its own
        ("gtr-t5-large", "", ""),
    ],
)
def test_e5_reads_the_prefixes_that_it_was_trained_with(
    model: Path, tmp_path: Path, name: str, query: str, passage: str
) -> None:
    from sentence_transformers import SentenceTransformer

    shutil.copytree(model, tmp_path / name)
    encode = SentenceTransformer(str(model), device="cpu").encode
    products = encode([passage + text for text in TEXTS]) @ encode(f"{query}ada was in warsaw")
    found = Dense(Given(TEXTS), tmp_path / name).search("ada was in warsaw", k=4)
    assert {one.text: one.score for one in found} == pytest.approx(
        dict(zip(TEXTS, map(float, products), strict=True)), abs=1e-5
    )


def test_a_title_confines_the_search_to_its_pages(model: Path, tmp_path: Path) -> None:
    """KnowRL's search: the passages of the question's own pages, all of them, and none of another's."""
    rows = [Passage(text, title) for text, title in zip(TEXTS, ("Ada", "Ada", "Paris", "Bohr"), strict=True)]
    (tmp_path / "pages.jsonl").write_text(
        "".join(f'{{"title": "{row.title}", "text": "{row.text}"}}\n' for row in rows), encoding="utf-8"
    )
    index = Index.build(tmp_path / "index", [tmp_path / "pages.jsonl"])
    verifier = open_verifier(index=index, embedder=str(model), judge="weak")
    assert isinstance(verifier.search, Dense)
    found = verifier.search.search("bohr was a dane", topic="Ada;Nobody")
    assert {one.title for one in found} == {"Ada"}
    assert " ".join(one.text for one in found).count("a city") == 1
    assert verifier.search.search("bohr was a dane", topic="Nobody") == []
    report = verifier("Bohr was a Dane.", topic="Bohr")
    assert [check.verdict.label for check in report.checks] == ["supported"]


def test_a_folder_without_such_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="sentence-transformers"):
        Dense(Given(TEXTS), tmp_path)
