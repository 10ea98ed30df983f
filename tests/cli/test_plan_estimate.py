"""`factrl train --dry-run`: what the run will write and need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import write
from factrl.cli import main
from factrl.job import read_job
from factrl.train.plan import Plan, make_plan

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
PRICES = ["judge.price_in=1.0", "judge.price_out=2.0"]
SERVER = "judge.url=http://localhost:1/v1#judge"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"Who wrote book {n}?", "answers": ["Ada"], "evidence": ["x"]} for n in range(10)]
    write("q.jsonl", *rows)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(QWEN), encoding="utf-8")
    return tmp_path


def plan(*words: str, paper: str = "truthrl") -> Plan:
    told = [f"paper={paper}", "model.name=model", "data.train=q.jsonl", "train.prompts_per_step=2"]
    sizes = ["train.num_generations=4", "train.max_completion_length=50", "data.prompt={question}"]
    return make_plan(read_job(None, [*told, *sizes, *words]))


def test_both_sets_are_read_in_the_subset_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def rows(source: str, split: str, subset: str | None) -> Iterator[dict[str, object]]:
        asked.append((source, split, subset))
        yield from ({"question": f"Who wrote book {n}?", "answers": ["Ada"]} for n in range(10))

    monkeypatch.setattr("factrl.runs.data.read_rows", rows)
    plan("data.train=mandarjoshi/trivia_qa", "data.eval=mandarjoshi/trivia_qa", "data.subset=rc.nocontext")
    name, subset = "mandarjoshi/trivia_qa", "rc.nocontext"
    assert asked == [(name, "train", subset), (name, "test", subset)]


def test_a_dry_run_prints_it_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    words = ["truthrl", "--model", "model", "--data", "q.jsonl", "train.prompts_per_step=2", SERVER]
    assert main(["train", *words, *PRICES, "run.max_cost=2.5", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    told = dict(line.split(maxsplit=1) for line in err.splitlines())
    assert told["cost"] == "the run stops before the judge has cost $2.5"
    Path("again.toml").write_text(out, encoding="utf-8")
    assert read_job("again.toml", []).settings.run.max_cost == 2.5
    Path("again.toml").unlink()
    assert sorted(folder.rglob("*")) == before


def test_vllm_that_is_not_there_is_told_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl", reason="needs the extra `train`")
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "vllm" else found(name, *a)
    )
    words = ["truthrl", "--model", "model", "--data", "q.jsonl", "train.prompts_per_step=2"]
    assert main(["train", *words, "train.use_vllm=true"]) == 2
    err = capsys.readouterr().err
    assert "train.use_vllm = true needs vLLM" in err
    assert not Path("runs").exists()


def test_where_the_vllm_server_is_needs_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["truthrl", "--model", "model", "--data", "q.jsonl", "train.prompts_per_step=2", "--dry-run"]
    url = "train.vllm_server_base_url=http://gpu2:8000"
    assert main(["train", *words, url, "train.use_vllm=true"]) == 2
    assert "train.vllm_server_base_url is used only with" in capsys.readouterr().err
    assert main(["train", *words, url, "train.use_vllm=true", "train.vllm_mode=server"]) == 0
