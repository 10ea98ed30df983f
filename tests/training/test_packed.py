"""The shortcuts must be exact: the numbers and gradients of TRL's forward and of transformers' generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from trl.trainer.utils import add_fused_lm_head

from factrl.train import shortcuts
from factrl.train.sampling import sample
from factrl.train.shortcuts import joins, restore_forward, use_packed_logprobs

PROMPTS = ([5, 6, 7], [8, 9], [5, 6, 7, 10])
Batch = dict[str, torch.Tensor]


def _load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()


def _batch(lengths: list[int], samples: int = 3) -> Batch:
    """Left-padded prompts, right-padded completions, rows of one prompt scattered."""
    generator = torch.Generator().manual_seed(1)
    width = max(map(len, PROMPTS))
    prompts = [p for p in PROMPTS for _ in range(samples)]
    order = torch.randperm(len(prompts), generator=generator).tolist()
    prompt_ids = torch.tensor([[0] * (width - len(prompts[i])) + prompts[i] for i in order])
    prompt_mask = (prompt_ids != 0).long()
    size = torch.tensor([lengths[i % len(lengths)] for i in order])
    completion_ids = torch.randint(3, 20, (len(order), int(max(lengths))), generator=generator)
    completion_mask = (torch.arange(completion_ids.size(1)) < size.unsqueeze(1)).long()
    ids = torch.cat([prompt_ids, completion_ids * completion_mask], dim=1)
    mask = torch.cat([prompt_mask, completion_mask], dim=1)
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :width] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _run(model: Any, batch: Batch) -> tuple[Any, list[torch.Tensor]]:
    model.zero_grad()
    output = model(**batch, fused_lm_head=True)
    weights = torch.linspace(-1, 1, output.log_probs.numel()).view(output.log_probs.shape)
    (output.log_probs * weights).sum().backward()
    return output, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("lengths", [[4], [1, 2, 5], [1], [0, 3], [6, 0, 0]])
@pytest.mark.parametrize("pack", [8192, 8])
def test_packed_forward_equals_trls(
    tiny_model: Path, lengths: list[int], pack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortcuts, "TOKENS_PER_PACK", pack)
    batch = _batch(lengths)
    model = _load(tiny_model)
    add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy", "is_top1"))
    expected, expected_grads = _run(model, batch)
    assert use_packed_logprobs(model, temperature=0.7)
    found, grads = _run(model, batch)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.entropy, expected.entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.loss, expected.loss, atol=1e-5, rtol=1e-5)
    assert torch.equal(found.is_top1 & found.label_mask, expected.is_top1.bool() & expected.label_mask)
    for mine, theirs in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("pack", "completion", "prompt", "together"),
    [
        (1536, 512, 1024, True),  # a long prompt is dear
        (4096, 512, 1024, True),
        (6144, 512, 1024, False),  # but not that dear
        (512, 512, 4, False),  # a short one is cheap
        (7900, 300, 4000, False),  # over the limit
    ],
)
def test_a_prompt_is_shared_as_long_as_that_is_less_work(
    pack: int, completion: int, prompt: int, together: bool
) -> None:
    assert joins(pack, completion, prompt, hidden_size=576) is together


def test_right_padded_rows_with_their_own_prompts_also_work(tiny_model: Path) -> None:
    """The layout of supervised fine-tuning."""
    ids = torch.tensor([[5, 6, 7, 8, 2, 0], [9, 10, 2, 0, 0, 0]])
    labels = torch.tensor([[-100, -100, -100, 8, 2, -100], [-100, 10, 2, -100, -100, -100]])
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}
    model = _load(tiny_model)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    expected, _ = _run(model, batch)
    use_packed_logprobs(model)
    found, _ = _run(model, batch)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=1e-5)


def test_generation_and_plain_calls_are_untouched(tiny_model: Path) -> None:
    model = _load(tiny_model).eval()
    ids = torch.tensor([[5, 6, 7]])
    logits = model(ids).logits
    plain = model.generate(ids, max_new_tokens=4, do_sample=False)
    use_packed_logprobs(model)
    torch.testing.assert_close(model(ids).logits, logits)
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), plain)
    restore_forward(model)
    assert "forward" not in model.__dict__


# --- sampling ----------------------------------------------------------------------------------------


def test_greedy_sampling_equals_generate(tiny_model: Path) -> None:
    model = _load(tiny_model).eval()
    found = sample(model, PROMPTS, max_new_tokens=6, temperature=0, eos_ids=[2])
    for prompt, [completion] in zip(PROMPTS, found, strict=True):
        whole = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, eos_token_id=2)
        expected = whole[0, len(prompt) :].tolist()
        assert completion == expected[: len(completion)]
        assert len(completion) == 6 or completion[-1] == 2


# Long completions: a copy of the whole cache at every token took a third of the step.
def test_the_cache_is_copied_only_when_a_row_is_split_or_ends(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _load(tiny_model).eval()
    copied, select = [], DynamicCache.batch_select_indices

    def counted(cache: DynamicCache, rows: torch.Tensor) -> None:
        copied.append(rows.tolist())
        select(cache, rows)

    monkeypatch.setattr(DynamicCache, "batch_select_indices", counted)
    sample(model, PROMPTS, max_new_tokens=6, temperature=1, eos_ids=[])
    assert copied == []
    sample(model, PROMPTS[:1], num_samples=4, max_new_tokens=12, temperature=1, eos_ids=[])
    assert 0 < len(copied) <= 3  # four samples of one prompt part three times at most


def test_top_p_keeps_only_the_nucleus(tiny_model: Path) -> None:
    model = _load(tiny_model).eval()
    with torch.no_grad():
        probabilities = torch.softmax(model(torch.tensor([PROMPTS[0]])).logits[0, -1], dim=-1)
    ordered, order = probabilities.sort(descending=True)
    nucleus = set(order[: int((ordered.cumsum(0) < 0.3).sum()) + 1].tolist())
    [rows] = sample(
        model, [PROMPTS[0]], num_samples=200, max_new_tokens=1, temperature=1, top_p=0.3, eos_ids=[]
    )
    assert {ids[0] for ids in rows} <= nucleus


def test_a_batch_without_labels_is_a_differentiable_zero(tiny_model: Path) -> None:
    model = _load(tiny_model)
    use_packed_logprobs(model)
    batch = _batch([3])
    batch["labels"] = torch.full_like(batch["labels"], -100)
    output, grads = _run(model, batch)
    assert output.log_probs.abs().max() == 0
    assert all(grad.abs().max() == 0 for grad in grads)
