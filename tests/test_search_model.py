"""Search by meaning with the real embedding model, where it is in the cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tantivy")

from factrl.verifier.search import Index


@pytest.mark.model
def test_meaning_finds_what_words_do_not(tmp_path: Path) -> None:
    for package in ("tokenizers", "safetensors"):
        pytest.importorskip(package, reason="needs the extra `local`")
    from factrl.llm import models
    from factrl.llm.local.embed import POTION, Potion

    if models.cached(POTION) is None:
        pytest.skip(f"run: factrl models get {POTION}")
    texts = ["The physician prescribed medication.", "The stock market fell.", "A cat slept on the sofa."]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    index = Index.build(tmp_path / "kb", [tmp_path / "x.jsonl"], embedder=Potion())
    query = "A doctor gave her drugs"
    assert index.search(query, 1, how="bm25") == []
    assert index.search(query, 1)[0].text == texts[0]
    assert [p.text for p in Index.open(tmp_path / "kb", embedder=Potion()).search(query, 1)] == [texts[0]]
