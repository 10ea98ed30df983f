"""The lab's model, and its loop against what each part of it must do."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from factrl.lab import ABSTENTION, arms, loop
from factrl.lab.loop import LoopSettings, make_batch, sample, update
from factrl.lab.model import (
    END,
    PAD,
    Base,
    Decoder,
    ModelSettings,
    Tokenizer,
    answer_loss,
    fresh,
    log_probs,
    pretrained,
    written,
)
from factrl.lab.people import People
from factrl.lab.search import Search
from factrl.lab.tables import METHODS
from factrl.types import Result, Span

SMALL = ModelSettings(width=32, hidden=48, heads=2, spread=0.2, learning_rate=1e-2, warmup_steps=2)


@pytest.fixture(scope="module")
def world() -> People:
    return People(per_tier=12, known=8, half=2, abstaining=0.3)


@pytest.fixture(scope="module")
def base(world: People, tmp_path_factory: pytest.TempPathFactory) -> Base:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACTRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return pretrained(world, 0, SMALL)


@pytest.fixture
def model() -> Decoder:
    return fresh(30, replace(SMALL, spread=0.3), 0)


PROMPTS = torch.tensor([[PAD, PAD, 5, 6], [7, 8, 9, 10], [PAD, 11, 12, 13]])
COMPLETIONS = torch.tensor(
    [[14, END, PAD], [15, 16, END], [END, PAD, PAD], [17, 18, 19], [20, END, PAD], [21, 22, END]]
)


def scored(values: Sequence[float | None]) -> list[Result]:
    return [Result("masked", None, cause="test") if v is None else Result("scored", v) for v in values]


def settings(**told: object) -> LoopSettings:
    return LoopSettings(**{"num_generations": 2, "learning_rate": 1e-3, "warmup_steps": 1, **told})  # pyright: ignore[reportArgumentType]


# The model


def test_log_probabilities_do_not_depend_on_padding_or_on_their_neighbours(model: Decoder) -> None:
    together = log_probs(model, PROMPTS, COMPLETIONS)
    for row, completion in enumerate(COMPLETIONS):
        prompt = PROMPTS[row // 2]
        ids = torch.cat([prompt[prompt != PAD], completion[completion != PAD]])
        length = int((completion != PAD).sum())
        logits = model.logits(model.read(ids[None])[0])[0, -length - 1 : -1]
        alone = torch.log_softmax(logits, -1).gather(1, ids[-length:, None])[:, 0]
        assert torch.allclose(together[row, :length], alone, atol=1e-5)
        assert (together[row, length:] == 0).all()


def test_samples_are_from_the_distribution_that_the_loss_sees(model: Decoder) -> None:
    greedy = sample(model, PROMPTS, 1, 4, temperature=0.0)
    chosen = log_probs(model, PROMPTS, greedy)
    assert not greedy.eq(PAD)[:, 0].any()
    for row in range(3):
        for other in range(1, 30):  # no other first token is likelier
            changed = torch.tensor([[other, END]])
            assert log_probs(model, PROMPTS[row : row + 1], changed)[0, 0] <= chosen[row, 0] + 1e-5
    rows = sample(model, PROMPTS, 2_000, 1, 1.0, torch.Generator().manual_seed(0))
    counts = torch.bincount(rows[:2_000, 0], minlength=30) / 2_000
    every = torch.arange(1, 30)[:, None]
    expected = log_probs(model, PROMPTS[:1], every)[:, 0].exp()
    assert (counts[1:] - expected).abs().max() < 0.04


def test_a_pretrained_model_is_read_from_the_cache(
    world: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path))
    first = pretrained(world, 0, SMALL)
    monkeypatch.delattr("factrl.lab.model.answer_loss")  # what is there is not trained again
    second = pretrained(world, 0, SMALL)
    monkeypatch.undo()
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path))
    assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
    pretrained(world, 1, SMALL)
    pretrained(People(1, per_tier=12, known=4, half=2), 0, SMALL)
    assert len([*(tmp_path / "lab").iterdir()]) == 3


@pytest.mark.parametrize("damaged", [None, b"", "other"])
def test_a_pretraining_that_is_stopped_goes_on_where_it_was(
    world: People, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes | str | None
) -> None:
    """And from the beginning, where what was kept cannot be read."""
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path))
    monkeypatch.setattr("factrl.lab.model.KEPT_SECONDS", 0.0)
    read = []

    def stopped(*told: Any) -> torch.Tensor:
        read.append(told[2])
        if len(read) == 3:
            raise KeyboardInterrupt
        return answer_loss(*told)

    monkeypatch.setattr("factrl.lab.model.answer_loss", stopped)
    with pytest.raises(KeyboardInterrupt):
        pretrained(world, 0, SMALL)
    if damaged is not None:
        [kept] = (tmp_path / "lab").glob("*.stopped")
        kept.write_bytes(damaged if isinstance(damaged, bytes) else save({"other weight": torch.zeros(1)}))
    whole = pretrained(world, 0, SMALL)
    assert read[3] == read[2 if damaged is None else 0], (
        "what had not been learnt is read, and nothing before"
    )
    assert all(map(torch.equal, base.model.parameters(), whole.model.parameters()))
    assert len([*(tmp_path / "lab").iterdir()]) == 1


# The loop


def test_a_masked_sample_moves_nothing() -> None:
    rewards = [1.0, None, 1.0, 0.0, 0.0, 1.0]
    batch = make_batch(PROMPTS, COMPLETIONS, scored(rewards), torch.zeros(6, 3), settings(), 3)
    assert (batch.weights[1] == 0).all()
    assert (batch.advantages[:2] == 0).all()  # its only sibling has nobody to be compared with
    assert (batch.advantages[2] > 0).all()
    assert (batch.advantages[3] < 0).all()


@pytest.mark.parametrize(
    ("loss_type", "rows"),
    [
        ("grpo", [1 / 2 / 6, 1 / 3 / 6]),
        ("dr_grpo", [1 / (6 * 3), 1 / (6 * 3)]),
        ("dapo", [1 / 14, 1 / 14]),
    ],
)
def test_weights(loss_type: str, rows: list[float]) -> None:
    batch = make_batch(
        PROMPTS, COMPLETIONS, scored([1, 0] * 3), torch.zeros(6, 3), settings(loss_type=loss_type), 3
    )
    assert batch.weights[0].tolist() == pytest.approx([rows[0], rows[0], 0])
    assert batch.weights[1].tolist() == pytest.approx([rows[1]] * 3)


def test_spans_reach_the_words_that_they_are_about(world: People, base: Base) -> None:
    from factrl.rewards import reward

    @reward
    def second_word(example, completion):
        from factrl.types import Score

        return Score({"value": 1.0}, (Span(8, 13, -1),) if completion == "Oakford bacon" else ())

    completions = base.tokenizer.completions(["Oakford bacon", "Oakford"])
    asked = [world.train[0]] * 2
    results, signs = loop.judge(second_word, "text", world, base.tokenizer, asked, completions)
    assert [result.value for result in results] == [1, 1]
    assert signs.tolist() == [[0, -1, 0], [0, 0, 0]]
    batch = make_batch(PROMPTS[:1], completions, scored([1, 0]), signs, settings(), 3)
    assert (batch.advantages[0] > 0).tolist() == [True, False, True]
    assert (batch.advantages[1] < 0).all()


def optimised(model: Decoder, rewards: Sequence[float | None], **told: object) -> torch.Tensor:
    """How the log-probability of each completion changed."""
    reference, told_settings = copy.deepcopy(model), settings(**told)
    batch = make_batch(PROMPTS, COMPLETIONS, scored(rewards), torch.zeros(6, 3), told_settings, 3)
    optimizer = loop.Optimizer(model, told_settings)
    before = log_probs(model, PROMPTS, COMPLETIONS).sum(1)
    update(model, optimizer, batch, told_settings, reference)
    return (log_probs(model, PROMPTS, COMPLETIONS).sum(1) - before).detach()


@pytest.mark.parametrize("loss_type", ["dr_grpo", "reinforce++"])
def test_what_is_rewarded_becomes_likelier(model: Decoder, loss_type: str) -> None:
    change = optimised(model, [1, 0, 0, 1, 1, 0], loss_type=loss_type)
    assert (change[::2] - change[1::2] > 0).tolist() == [True, False, True]


def test_groups_without_a_difference_are_not_run_and_change_nothing(model: Decoder) -> None:
    assert (optimised(copy.deepcopy(model), [1, 1, 0, 0, None, None]) == 0).all()
    with_flat = optimised(copy.deepcopy(model), [1, 1, 1, 0, 0, 0])
    whole = copy.deepcopy(model)  # the same with every group run: a penalty too small to be felt
    assert torch.allclose(with_flat, optimised(whole, [1, 1, 1, 0, 0, 0], beta=1e-9), atol=1e-5)


def test_the_penalty_holds_back(model: Decoder) -> None:
    def moved(beta: float) -> float:
        trained, told = copy.deepcopy(model), settings(beta=beta)
        batch = make_batch(PROMPTS, COMPLETIONS, scored([1, 0] * 3), torch.zeros(6, 3), told, 3)
        optimizer = loop.Optimizer(trained, told)
        for _ in range(8):
            update(trained, optimizer, batch, told, model)
        after, before = (log_probs(one, PROMPTS, COMPLETIONS).sum(1).detach() for one in (trained, model))
        return float((after - before)[::2].sum() - (after - before)[1::2].sum())

    assert moved(5.0) < moved(0.0)


# Turns


def test_a_tools_words_are_read_and_not_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Search(people=60, told=1, read=1)
    tokenizer = Tokenizer(world.words)
    model = fresh(len(tokenizer), replace(SMALL, spread=0.3), 0)
    asked = world.test[:2]
    search = f"search {asked[0].meta['attribute']} of {asked[0].topic}"
    script = iter([[search, "I don't know", search, search], ["Oakford [1]", search, "bacon"], [ABSTENTION]])
    seen: list[torch.Tensor] = []

    def scripted(model: Decoder, prompts: torch.Tensor, *args: object) -> torch.Tensor:
        seen.append(prompts)
        return tokenizer.completions(next(script))

    monkeypatch.setattr(loop, "sample", scripted)
    prompts, completions = loop.converse(model, tokenizer, world, asked, 2)
    told = world.reply(asked[0], search)
    texts = [tokenizer.decode(row) for row in completions.tolist()]
    assert texts[:2] == [f"{search} | {told} | Oakford [1]", "I don't know"]
    assert texts[3] == f"{search} | {told} | bacon"
    assert texts[2].count("|") == 4
    assert texts[2].endswith("| I don't know")
    goes_on = f"{world.prompt(asked[0])} {search} | {told}"
    assert (tokenizer.decode(seen[1][0].tolist()), int(seen[1][0, -1])) == (goes_on, END)
    own = written(completions)
    words = [
        [word for word, mine in zip(f"{text} |".split(), row.tolist(), strict=False) if mine]
        for text, row in zip(texts, own, strict=True)
    ]
    assert words[0] == [*search.split(), "|", "Oakford", "[1]", "|"]
    batch = make_batch(
        prompts, completions, scored([1, 0, 1, 0]), torch.zeros(completions.shape), settings(), 6
    )
    assert ((batch.weights > 0) == own).all()
    found = log_probs(model, prompts, completions)
    assert (found[~own] == 0).all()
    other = completions.clone()
    other[0, len(search.split()) + 2] = tokenizer.encode("pilot")[0]  # another word of the tool's
    changed = log_probs(model, prompts, other)
    assert (changed[0] - found[0]).abs().max() > 1e-4
    assert torch.equal(written(other), own)


# Arms


@pytest.mark.parametrize("arm", ["base", "truthrl:knowledge-ternary", "knowrl", "fspo", *METHODS])
def test_arms_run_and_repeat(world: People, base: Base, arm: str) -> None:
    before = copy.deepcopy(base.model.state_dict())
    done: list[int] = []
    curve = arms.run_arm(world, base, arm, 0, 3, done.append)
    assert done == ([] if arm == "base" else [1, 2, 3])
    assert [step for step, _ in curve] == ([0] if arm == "base" else [0, 1, 2, 3])
    assert arms.run_arm(world, base, arm, 0, 3) == curve
    for name, weight in base.model.state_dict().items():
        assert torch.equal(weight, before[name])  # arms change copies
