"""Writing with vLLM, against a stand-in of the shapes that vLLM 0.11 takes and gives; no GPU takes part."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from factrl.errors import ConfigError, ModelError
from factrl.evals.asking import NamedModel
from factrl.llm.writers import open_writer, seed_of
from factrl.runs.data import load_examples
from factrl.runs.settings import AskSettings


class Engine:
    """`vllm.LLM`: writes a word that its seed chooses; with an odd seed it is cut at its limit."""

    asked: list[tuple[Any, Any]]

    def __init__(self, model: str, dtype: str, revision: str | None, trust_remote_code: bool) -> None:
        if not Path(model).is_dir():
            raise ValueError("Invalid repository ID or local directory\nmore")
        self.tokenizer, self.asked = AutoTokenizer.from_pretrained(model), []

    def generate(self, prompts: list[dict[str, list[int]]], params: list[Any], use_tqdm: bool) -> list[Any]:
        assert len(prompts) == len(params)
        assert not use_tqdm
        self.asked += zip([prompt["prompt_token_ids"] for prompt in prompts], params, strict=True)
        return [SimpleNamespace(outputs=[self._one(told)]) for told in params]

    def _one(self, told: Any) -> Any:
        ids = [chosen(self.tokenizer, told.seed or 0)]
        if (told.seed or 0) % 2:
            return SimpleNamespace(token_ids=ids, finish_reason="length")
        return SimpleNamespace(token_ids=[*ids, self.tokenizer.eos_token_id], finish_reason="stop")


def chosen(tokenizer: Any, seed: int) -> int:
    words = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    return words[seed % len(words)]


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("vllm")
    module.__spec__ = SimpleNamespace(name="vllm")
    module.__version__, module.LLM = "0", Engine
    module.SamplingParams = lambda **told: SimpleNamespace(**told)
    monkeypatch.setitem(sys.modules, "vllm", module)


def settings(model: str | Path, **train: Any) -> AskSettings:
    told = {"use_vllm": True, "max_completion_length": 9, **train}
    return AskSettings.model_validate({"model": {"name": str(model)}, "data": {"train": "-"}, "train": told})


def test_each_sample_has_a_seed_of_its_own(tiny_model: Path, questions: Path) -> None:
    writer, examples = open_writer(settings(tiny_model)), load_examples(questions)[:3]
    done: list[int] = []
    groups = writer.write(
        examples, (0, 3), temperature=0.7, top_p=0.9, seed=5, on_done=lambda: done.append(1)
    )
    seeds = [[seed_of(5, example.id, number) for number in (0, 3)] for example in examples]
    tokenizer: Any = writer.tokenizer  # type: ignore[attr-defined]
    words = [[tokenizer.decode([chosen(tokenizer, s)]) for s in group] for group in seeds]
    assert [[str(text) for text in group] for group in groups] == words
    assert [[text.truncated for text in group] for group in groups] == [  # type: ignore[union-attr]
        [bool(s % 2) for s in group] for group in seeds
    ]
    assert len(done) == 3
    ((ids, told), *_) = writer.engine.asked  # type: ignore[attr-defined]
    assert examples[0].question in tokenizer.decode(ids)
    assert (told.temperature, told.top_p, told.top_k, told.min_p, told.max_tokens) == (0.7, 0.9, 0, 0.0, 9)
    again = open_writer(settings(tiny_model)).write(examples[2:], (3,), temperature=0.7, top_p=0.9, seed=5)
    assert again[0][0] == groups[2][1]


def test_greedy_has_no_seed(tiny_model: Path, questions: Path) -> None:
    writer: Any = open_writer(settings(tiny_model))
    (group,) = writer.write(load_examples(questions)[:1])
    assert [str(text) for text in group] == [writer.tokenizer.decode([chosen(writer.tokenizer, 0)])]
    assert (group[0].tokens, group[0].truncated) == (1, False)
    assert writer.engine.asked[0][1].top_p == 1.0


def test_an_evaluation_loads_it_once_and_asks_letters(tiny_model: Path) -> None:
    model = NamedModel()
    first: Any = model.writer(settings(tiny_model))
    second: Any = model.writer(settings(tiny_model, max_completion_length=4))
    assert first.engine is second.engine
    assert first.identity != second.identity
    assert model.scorer(settings(tiny_model)) is None


def test_other_weights_have_another_identity(tiny_model: Path, tmp_path: Path) -> None:
    before = open_writer(settings(tiny_model)).identity
    copy = tmp_path / tiny_model.name
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert open_writer(settings(copy)).identity.split()[1] != before.split()[1]


def test_mistakes(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.vllm_mode = 'server' is for training"):
        open_writer(settings(tiny_model, vllm_mode="server"))
    with pytest.raises(ModelError, match="there is no such folder"):
        open_writer(settings("./nowhere"))
