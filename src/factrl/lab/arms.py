"""Arms of a comparison: any reward by name, and the methods that learn from given answers.

Every arm starts from a copy of the same pretrained model and takes as many optimizer steps as the others.

sft            the accepted answer of every question
rft            an own sample that is right; where none is ("out of knowledge"), an own sample that abstains
r-tuning       the accepted answer, "I don't know" where the question is out of knowledge
dpo            pairs of own samples: right over wrong; out of knowledge, "I don't know" over wrong
These are TruthRL's baselines (arXiv:2509.25760, section 4.1 and its code) in the lab's size.  Out of
knowledge is what the pretrained model gets wrong `PROBES` times out of as many.  The paper takes 256 samples;
where one guess in forty is right, so many would call hardly anything unknown.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from factrl.errors import ConfigError
from factrl.papers import form_of, settings_of
from factrl.runs.progress import Progress

from . import ABSTENTION, World, make_world, parted, supplied
from .loop import LoopSettings, Optimizer, answers, optimise, parts
from .model import Base, Decoder, answer_loss, log_probs, pretrained
from .rewards import ASKED, SAMPLES, facts_of
from .tables import BASE, METHODS, Curve, Outcome, Row, Table

PROBES = 8  # samples of the pretrained model that tell what it knows
EVALUATIONS = 6  # points of a curve after the first
DPO_BETA = 0.1
BATCH = 64  # questions or pairs of a step of an offline method
# Settings of a paper that keep their meaning in the lab.
_KEPT = ("loss_type", "scale_rewards", "advantage_epsilon", "beta", "temperature")


def run_arm(
    world: World,
    base: Base,
    arm: str,
    seed: int = 0,
    steps: int = 48,
    on_step: Callable[[int], None] = lambda step: None,
) -> Curve:
    """Train a copy of `base` and measure it on the held-out questions on the way.

    Args:
        arm: a reward's spec (`truthrl:binary`, `my_file.py:mine`), behind which `@given` names a way of the
            world's; one of `METHODS`; or `base`: no training.
        seed: of the samples and the order of the questions.
        on_step: called with the number of steps done.

    Raises:
        ConfigError: unknown arm, or a reward that asks for something that this world has no oracle for.
        DataError: the world's questions lack what the reward needs.
    """
    model, (spec, way) = copy.deepcopy(base.model), parted(arm)
    world = world.asked(way) if way else world

    def measured() -> Any:
        texts = [text for (text,) in answers(model, base.tokenizer, world, world.test)]
        return world.measure(list(zip(world.test, texts, strict=True)))

    curve = [(0, measured())]
    if arm == BASE:
        return curve
    if arm in METHODS:
        learning = _offline(world, base, model, arm, seed)
    else:
        learning = _reinforced(world, base, model, spec, seed)
    every = max(1, round(steps / EVALUATIONS))
    for step in range(1, steps + 1):
        next(learning)
        if step == steps or step % every == 0:
            curve.append((step, measured()))
        on_step(step)
    return curve


def run_table(table: Table, seeds: Sequence[int], steps: int | None = None) -> Outcome:
    """Run every arm of a table on every seed, with a progress bar for each arm.

    Args:
        steps: optimizer steps of each arm; by default the table's.
    """
    started, steps = time.monotonic(), steps or table.steps
    worlds = [make_world(table.world, seed) for seed in seeds]
    starts = [(seed, world, pretrained(world, seed)) for seed, world in zip(seeds, worlds, strict=True)]

    def run(row: Row) -> Row:
        curves = []
        with Progress(row.arm, len(seeds) * (1 if row.arm == BASE else steps)) as progress:
            for seed, world, base in starts:
                curves.append(run_arm(world, base, row.arm, seed, steps, lambda _: progress.advance()))
                if row.arm == BASE:
                    progress.advance()
        return replace(row, curves=curves, facts=facts(row.arm) if table.facts and row.arm != BASE else {})

    def facts(arm: str) -> dict[str, str]:
        seed, world, base = starts[0]
        asked, draw = world.train[:ASKED], torch.Generator().manual_seed(seed)
        texts = answers(base.model, base.tokenizer, world, asked, SAMPLES, 1.0, draw)
        rows = [(example, text) for example, group in zip(asked, texts, strict=True) for text in group]
        return facts_of(world, arm, rows)

    base, arms = run(Row(BASE)), tuple(map(run, table.rows))
    return Outcome(table, tuple(seeds), steps, base, arms, time.monotonic() - started)


# -- Rewards


def _reinforced(world: World, base: Base, model: Decoder, spec: str, seed: int) -> Iterator[Any]:
    """Each turn one step of reinforcement learning with a reward."""
    reward, examples = supplied(world, spec), world.train
    paper = settings_of(spec).get("train", {})
    settings = LoopSettings(**{name: paper[name] for name in _KEPT if name in paper})

    def lacks(ook: bool | None) -> bool:
        problem = reward.requires(replace(examples[0], ook=ook), reward.knobs) if reward.requires else None
        return problem is not None

    if lacks(None) and not lacks(True):  # nothing but whether the model knows the answer
        known = ("correct" in labels.values() for labels in _probed(world, base, seed))
        examples = [replace(example, ook=not knows) for example, knows in zip(examples, known, strict=True)]
    reward.check_examples(examples)
    form = form_of(spec, reward)
    return optimise(model, base, world, reward, form, settings, examples=examples, seed=seed)


def _probed(world: World, base: Base, seed: int) -> list[dict[str, str]]:
    """Sample of the pretrained model -> grade, for each training question."""
    grade = world.resources().get("grade")
    if grade is None:
        raise ConfigError(f"the world {world.name!r} has no answers that could be graded for this arm")
    draw = torch.Generator().manual_seed(seed)
    found = answers(base.model, base.tokenizer, world, world.train, PROBES, 1.0, draw)
    return [
        {text: grade(example.question, text, example.answers).label for text in dict.fromkeys(texts)}
        for example, texts in zip(world.train, found, strict=True)
    ]


# -- Given answers


def _offline(world: World, base: Base, model: Decoder, arm: str, seed: int) -> Iterator[None]:
    """Each turn one optimizer step of an offline method."""
    rows: list[tuple[str, ...]] = []
    if arm == "sft":
        rows = [(example.question, example.answers[0]) for example in world.train]
    else:
        for example, labels in zip(world.train, _probed(world, base, seed), strict=True):
            prompt, ook = example.question, "correct" not in labels.values()
            wanted = "abstained" if ook else "correct"
            chosen = next((text for text, label in labels.items() if label == wanted), None)
            wrong = next((text for text, label in labels.items() if label == "incorrect"), None)
            if arm == "r-tuning":
                rows.append((prompt, ABSTENTION if ook else example.answers[0]))
            elif arm == "rft" and chosen is not None:
                rows.append((prompt, chosen))
            elif arm == "dpo" and wrong is not None and (better := ABSTENTION if ook else chosen):
                rows.append((prompt, better, wrong))
    if not rows:
        raise ConfigError("the pretrained model's samples give this arm nothing to learn from")
    optimizer = Optimizer(model, LoopSettings())
    for part in parts(rows, min(BATCH, len(rows)), seed):
        loss = _preference(model, base, part) if arm == "dpo" else answer_loss(model, base.tokenizer, part)
        optimizer.step(loss)
        yield


def _preference(model: Decoder, base: Base, part: Sequence[tuple[str, str, str]]) -> torch.Tensor:
    """Direct preference optimisation (arXiv:2305.18290, Eq. 7) on (prompt, better, worse)."""
    prompts = base.tokenizer.prompts([prompt for prompt, _, _ in part])
    both = base.tokenizer.completions([text for _, better, worse in part for text in (better, worse)])
    with torch.no_grad():
        before = log_probs(base.model, prompts, both).sum(dim=1)
    gain = (log_probs(model, prompts, both).sum(dim=1) - before).view(-1, 2)
    return -logsigmoid(DPO_BETA * (gain[:, 0] - gain[:, 1])).mean()
