"""A sample of the policy in this process depends on its own number alone, and its tokens on the model."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from factrl.runs.data import load_examples
from factrl.runs.settings import AskSettings
from factrl.train import sampling, writing
from factrl.train.sampling import _chosen
from factrl.train.writing import PolicyWriter, _fingerprint
from factrl.types import Completion, Example

LIMIT = 6


def settings(model: Path, **data: object) -> AskSettings:
    return AskSettings.model_validate(
        {
            "model": {"name": str(model)},
            "data": {"train": "unused", **data},
            "train": {"max_completion_length": LIMIT, "bf16": False},
        }
    )


@pytest.fixture(scope="module")
def writer(tiny_model: Path) -> PolicyWriter:
    return PolicyWriter.load(settings(tiny_model))


@pytest.fixture(scope="module")
def asked(questions: Path) -> list[Example]:
    return load_examples(questions)


def texts(
    writer: PolicyWriter, asked: list[Example], numbers: tuple[int, ...], seed: int = 0
) -> dict[tuple[str, int], tuple[str, bool, int]]:
    groups = writer.write(asked, numbers, temperature=1.0, top_p=0.95, seed=seed)
    return {
        (example.id, number): _plain(text)
        for example, group in zip(asked, groups, strict=True)
        for number, text in zip(numbers, group, strict=True)
    }


def _plain(text: object) -> tuple[str, bool, int]:
    assert isinstance(text, Completion)
    assert text.tokens is not None
    return str(text), text.truncated, text.tokens


# --- what a sample depends on ----------------------------------------------------------------------


def test_a_sample_depends_on_its_number_and_not_on_its_neighbours(
    writer: PolicyWriter, asked: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = texts(writer, asked, tuple(range(8)))
    assert len({text for text, _, _ in whole.values()}) > 40, "a random model hardly ever repeats itself"
    apart = {
        **texts(writer, asked[:3], (0,)),
        **texts(writer, asked[::-1], (5, 2)),
        **texts(writer, asked[6:], (7,)),
    }
    assert apart == {key: whole[key] for key in apart}
    torch.manual_seed(1)  # another state of torch's own generator
    monkeypatch.setattr(writing, "AT_ONCE", 4)
    assert texts(writer, asked, tuple(range(8))) == whole
    assert texts(writer, asked, tuple(range(8)), seed=1) != whole


def test_in_bfloat16_a_cpu_reads_the_prompt_and_writes_in_float32(writer: PolicyWriter) -> None:
    """A token at a time takes twice as long in bfloat16."""
    model, seen = writer.model, []
    product = model.model.layers[0].mlp.down_proj
    hook = product.register_forward_hook(lambda *parts: seen.append((parts[2].shape[1], parts[2].dtype)))
    with sampling.evaluating(model, bf16=True):
        [[text]] = sampling.sample(model, [[5, 6, 7]], max_new_tokens=4, temperature=0, eos_ids=[])
    hook.remove()
    assert len(text) == 4
    assert seen == [(3, torch.bfloat16), *[(1, torch.float32)] * 3]


def test_ends_and_cuts_are_told_apart(writer: PolicyWriter, asked: list[Example]) -> None:
    found = texts(writer, asked, tuple(range(16))).values()
    assert all(tokens == LIMIT for _, truncated, tokens in found if truncated)
    assert all(tokens < LIMIT for _, truncated, tokens in found if not truncated)
    assert {truncated for _, truncated, _ in found} == {True, False}


def test_the_identity_tells_weights_and_prompts_apart_and_threads_not(tiny_model: Path) -> None:
    first = PolicyWriter.load(settings(tiny_model))
    other = PolicyWriter.load(settings(tiny_model, prompt="{question} !"))
    assert first.identity == PolicyWriter.load(settings(tiny_model)).identity
    assert first.identity.split()[:2] == other.identity.split()[:2]
    assert first.identity != other.identity
    with torch.no_grad():
        other.model.model.embed_tokens.weight[3, 3] += 1e-3
    assert _fingerprint(other.model) != _fingerprint(first.model)

    big = torch.nn.Linear(1 << 10, 1 << 12)  # large enough to be summed by several threads
    threads, found = torch.get_num_threads(), set()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.add(_fingerprint(big))
    torch.set_num_threads(threads)
    assert len(found) == 1


# --- the choice of a token -------------------------------------------------------------------------


def drawn(
    logits: torch.Tensor, uniforms: torch.Tensor, temperature: float = 1.0, top_p: float = 1.0
) -> list[int]:
    rows = len(uniforms)
    return _chosen(logits.expand(rows, -1), temperature, top_p, uniforms).tolist()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.8), (1.7, 0.9)])
def test_tokens_come_as_often_as_the_model_says(temperature: float, top_p: float) -> None:
    logits = torch.tensor([0.3, -1.0, 2.0, 1.4, -3.0, 0.9])
    wanted = torch.softmax(logits / temperature, dim=-1)
    order = wanted.argsort(descending=True)
    inside = wanted[order].cumsum(0) - wanted[order] < top_p
    wanted[order[~inside]] = 0
    wanted = wanted / wanted.sum()
    n = 20_000
    uniforms = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = Counter(drawn(logits, uniforms, temperature, top_p))
    kept = [token for token in range(6) if wanted[token] > 0]
    assert {*seen} == {*kept}, "a token outside the nucleus is never drawn"
    chi_square = sum((seen[t] - n * float(wanted[t])) ** 2 / (n * float(wanted[t])) for t in kept)
    assert chi_square < 20.5  # 99.9 % of 5 degrees of freedom


@pytest.mark.parametrize("uniform", [0.0, 0.5, math.nextafter(0.5, 0), math.nextafter(1.0, 0)])
def test_a_token_of_probability_zero_is_never_drawn(uniform: float) -> None:
    never = -math.inf
    for logits in (
        [never, 1.0, never, 1.0, never],
        [never, never, 5.0],
        [0.0, never, never],
        [-200.0, 0.0, never],
    ):
        [token] = drawn(torch.tensor(logits), torch.tensor([uniform], dtype=torch.float64))
        assert float(torch.softmax(torch.tensor(logits), 0)[token]) > 0
