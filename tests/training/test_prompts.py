from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from factrl.errors import ConfigError, ModelError
from factrl.runs.settings import DataSettings, ModelSettings
from factrl.train.model import check_model, load_policy
from factrl.train.prompts import encode, render_prompts
from factrl.types import Example

ASKED = [Example("where is ada from ?"), Example("where is bo from ?")]


def _data(**values: object) -> DataSettings:
    return DataSettings.model_validate({"train": "x", **values})


def test_a_prompt_is_template_chat_markup_and_prefill(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    data = _data(prompt="know {question}", system="i don't", prefill="rome")
    [prompt, _] = render_prompts(ASKED, tokenizer, data)
    assert prompt == "system i don't user know where is ada from ? is rome"
    [plain, _] = render_prompts(ASKED, tokenizer, _data(chat=False, system="i don't"))
    assert plain == "i don't\n\nwhere is ada from ?"


def test_a_model_without_chat_template_says_what_to_do(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match=r"data\.chat=false"):
        render_prompts(ASKED, tokenizer, _data())
    assert render_prompts(ASKED, tokenizer, _data(chat=False)) == [e.question for e in ASKED]


def test_every_prompt_is_encoded_on_its_own(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    prompts = render_prompts(ASKED, tokenizer, _data())
    together = encode(prompts, tokenizer, chat=True)
    assert together == [encode([prompt], tokenizer, chat=True)[0] for prompt in prompts]


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/place", "a/b/c"])
def test_a_folder_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError, match="there is no such folder"):
        check_model(name)


def test_a_folder_without_a_model_names_the_one_inside(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tiny_model)
    with pytest.raises(ModelError, match=r"without a config\.json; did you mean .*model"):
        check_model(str(tmp_path))
    check_model(str(tiny_model))
    check_model("some/hub-id")


def test_full_training_loads_float32_whatever_the_checkpoint_holds(tiny_model: Path, tmp_path: Path) -> None:
    import torch

    model, tokenizer = load_policy(ModelSettings(name=str(tiny_model)))
    model.bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, _ = load_policy(ModelSettings(name=str(tmp_path)))
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    base, _ = load_policy(ModelSettings(name=str(tmp_path), lora=True))
    assert {p.dtype for p in base.parameters()} == {torch.bfloat16}


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"cannot be loaded: .*; check the name"):
        load_policy(ModelSettings(name=str(tmp_path)))
