from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import small_run
from transformers import AutoTokenizer

from factrl.errors import ConfigError, ModelError
from factrl.job import read_job
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.runs.folder import read_metrics
from factrl.runs.settings import DataSettings, ModelSettings, TrainSettings
from factrl.train.model import beginning, check_model, load_policy, render_prompts, uses_bf16
from factrl.train.online import train
from factrl.train.plan import make_plan
from factrl.train.writing import PolicyWriter
from factrl.types import Completion, Example, Passage
from factrl.verifier import open_verifier

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


# ---------------------------------------------------------------- templates that open the reasoning


@pytest.fixture
def thinking_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with a template that ends like DeepSeek-R1-Distill-Qwen's."""
    folder = tmp_path / "thinking"
    shutil.copytree(tiny_model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_a_perfect_completion_of_a_reasoning_model_earns_all_of_knowrl(thinking_model: Path) -> None:
    """It began inside the block that the template opens, counted as malformed, and earned 1."""
    begun = beginning(AutoTokenizer.from_pretrained(thinking_model), "")
    assert begun == "<think>\n"
    evidence = (Passage("Marie Curie was born in Warsaw."),)
    example = Example("Where was Marie Curie born?", ("Warsaw",), evidence=evidence)
    text = "Marie Curie was born in Warsaw.\n</think>\n<answer>Warsaw</answer>"
    reward = load_reward("knowrl").with_(grade=Grader(), verify=open_verifier(judge="weak"))
    assert reward(example, Completion(text, prefill=begun)).value == 1 + 2 + 1
    assert reward(example, Completion(text)).value < 4


def test_every_verb_knows_the_block_that_the_template_opens(
    thinking_model: Path, questions: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import factrl as fx\n@fx.reward\ndef told(example, completion):\n"
        "    return {'opened': float(completion.prefill == '<think>\\n'), 'length': len(completion) / 100}\n",
        encoding="utf-8",
    )
    words = [f"paper={own}:told", f"model.name={thinking_model}", f"data.train={questions}"]
    words += [f"run.dir={tmp_path / 'runs'}", *small_run(steps=1)]
    job = read_job(None, words)
    run = train(make_plan(job))
    assert read_metrics(run)[0]["rewards/opened/mean"] == 1.0
    [[written]] = PolicyWriter.load(job.settings).write(ASKED[:1])
    assert isinstance(written, Completion)
    assert written.prefill == "<think>\n"


def test_a_reasoning_is_not_opened_twice(thinking_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(thinking_model)
    with pytest.raises(ConfigError, match=r"data\.prefill = '<think>'"):
        render_prompts(ASKED, tokenizer, _data(prefill="<think>"))
    [prompt, _] = render_prompts(ASKED, tokenizer, _data(prefill="rome"))
    assert prompt.endswith("<think>\nrome")
    assert beginning(tokenizer, "rome") == "<think>\nrome"
    assert beginning(tokenizer, "<think>", chat=False) == "<think>"


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


@pytest.mark.parametrize(("generation", "used"), [(7, False), (8, True), (9, True)])
def test_bfloat16_is_used_where_the_card_has_it(
    monkeypatch: pytest.MonkeyPatch, generation: int, used: bool
) -> None:
    # Older cards emulate it: torch says yes, and a step takes far longer than in float32.
    monkeypatch.delenv("FACTRL_BF16")
    card = {"current_device": 0, "is_available": True, "_check_bf16_tensor_supported": True}
    for name, says in {**card, "get_device_properties": SimpleNamespace(major=generation)}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, says=says: says)
    assert uses_bf16(TrainSettings()) is used
    assert uses_bf16(TrainSettings(bf16=True)) is True
