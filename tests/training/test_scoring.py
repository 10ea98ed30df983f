"""Log-probabilities of continuations against the model's own forward pass, row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import llama
from transformers import GraniteConfig, GraniteForCausalLM

from factrl.evals.numbers import answers_of
from factrl.evals.samples import EvalSample
from factrl.evals.suite import with_likelihood
from factrl.runs.config import load_settings
from factrl.runs.settings import AskSettings
from factrl.train.writing import PolicyWriter
from factrl.types import Completion, Example, Grade


class Letters:
    """A tokenizer whose tokens are bytes."""

    chat_template = None
    eos_token_id = 0

    def __call__(self, text: Any, add_special_tokens: bool = True) -> dict[str, Any]:
        if isinstance(text, str):
            return {"input_ids": list(text.encode())}
        return {"input_ids": [list(one.encode()) for one in text]}


@pytest.fixture(scope="module")
def writer() -> PolicyWriter:
    return PolicyWriter(llama(256), Letters(), settings("{question}"), "weights")


def settings(prompt: str) -> AskSettings:
    words = ["data.train=-", "model.name=m", "data.chat=false", "train.bf16=false"]
    loaded = load_settings(AskSettings, None, words)
    return loaded.model_copy(update={"data": loaded.data.model_copy(update={"prompt": prompt})})


def alone(model: Any, prompt: str, text: str) -> float:
    ids = list(prompt.encode()) + list(text.encode())
    logs = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits.float(), dim=-1)[0]
    start = len(prompt.encode())
    return float(sum(logs[place - 1, ids[place]] for place in range(start, len(ids))))


def test_every_row_is_what_it_is_alone(writer: PolicyWriter) -> None:
    texts = [["yes", "n", "a longer one, by far"], ["b", "c"]]
    examples = [Example("Is it?", id="1"), Example("Or not:", id="2")]
    found = writer.with_settings(settings("Q: {question}")).score(examples, texts)
    with torch.no_grad():
        for example, options, sums in zip(examples, texts, found, strict=True):
            wanted = [alone(writer.model, f"Q: {example.question}", f" {text}") for text in options]
            assert sums == pytest.approx(wanted, abs=1e-4)


def test_the_likelihood_of_an_answer_is_the_mean_of_its_tokens(writer: PolicyWriter) -> None:
    told = [Completion("yes", tokens=3), Completion("", tokens=0), Completion("no", tokens=2)]
    rows = [
        EvalSample(Example("Is it?", id=str(number)), text, Grade(label, "", ""))
        for number, (text, label) in enumerate(zip(told, ("correct", "incorrect", "incorrect"), strict=True))
    ]
    found = with_likelihood(rows, writer.with_settings(settings("Q: {question}\n")))
    with torch.no_grad():
        sure = math.exp(alone(writer.model, "Q: Is it?\n", "yes") / 3)
    assert found[0].values["likelihood"] == pytest.approx(sure, rel=1e-4)
    assert "likelihood" not in found[1].values  # nothing was written, so nothing is known
    ((first, _),), ((second, _),), ((third, _),) = answers_of(found, "likelihood")
    assert (first, second) == (found[0].values["likelihood"], None)
    assert 0 < (third or 0) < 1


def test_a_head_that_scales_its_logits() -> None:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
    }
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = GraniteForCausalLM(GraniteConfig(**shape, **heads, logits_scaling=0.02))
    scorer = PolicyWriter(model, Letters(), settings("{question}"), "w")
    ((found,),) = scorer.score([Example("Is it?", id="1")], [["yes"]])
    with torch.no_grad():
        assert found == pytest.approx(alone(model, "Is it?", " yes"), abs=1e-3)
