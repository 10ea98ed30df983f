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
from factrl.rewards import Reward
from factrl.runs.progress import Progress
from factrl.types import Example

from . import ABSTENTION, World, make_world, supplied
from .loop import LoopSettings, Optimizer, answers, greedy, optimise, parts
from .model import Base, Decoder, Tokenizer, answer_loss, log_probs, pretrained
from .show import ArmResult, ArmRuns, Outcome, Point
from .tables import BASE, METHODS, Row, Table

PROBES = 8  # samples of the pretrained model that tell what it knows
EVALUATIONS = 6  # points of a curve after the first
DPO_BETA = 0.1
BATCH = 64  # questions or pairs of a step of an offline method
# Settings of a paper that keep their meaning in the lab.
_KEPT = (
    "loss_type",
    "scale_rewards",
    "advantage_epsilon",
    "beta",
    "temperature",
)

Probe = Sequence[Sequence[str]]
OnStep = Callable[[int], None]


def run_arm(
    world: World,
    base: Base,
    arm: str,
    seed: int = 0,
    steps: int = 48,
    on_step: OnStep | None = None,
    settings: LoopSettings | None = None,
) -> ArmResult:
    """Train a copy of `base` and measure it on the held-out questions on the way.

    Args:
        arm: a reward's spec (`truthrl:binary`, `my_file.py:mine`), one of `METHODS`, or `base`: no training.
        seed: of the samples and the order of the questions.
        on_step: called with the number of steps done.
        settings: of the loop; `paper_settings(arm)` unless given.

    Raises:
        ConfigError: unknown arm, or a reward that asks for something that this world has no oracle for.
        DataError: the world's questions lack what the reward needs.
    """
    model = copy.deepcopy(base.model)
    curve, texts = [], []

    def evaluate(step: int) -> None:
        texts[:] = greedy(model, base.tokenizer, world, world.test)
        curve.append(Point(step, world.measure(list(zip(world.test, texts, strict=True)))))

    evaluate(0)
    if arm != BASE:
        learning = _offline(world, base, model, arm, seed, steps) if arm in METHODS else None
        learning = learning or reinforced(world, base, model, arm, seed, settings)
        every = max(1, round(steps / EVALUATIONS))
        for step in range(1, steps + 1):
            next(learning)
            if step == steps or step % every == 0:
                evaluate(step)
            if on_step is not None:
                on_step(step)
    return ArmResult(curve, _shown(world, texts))


def run_table(table: Table, seeds: Sequence[int], steps: int | None = None) -> Outcome:
    """Run every arm of a table on every seed, with a progress bar for each arm.

    Args:
        steps: optimizer steps of each arm; by default the table's.
    """
    started, steps = time.monotonic(), steps or table.steps
    starts = []
    with Progress("pretrained models, %", 100 * len(seeds)) as progress:
        for number, seed in enumerate(seeds, 1):
            world, before = make_world(table.world, seed), progress.done

            def percent(step: int, last: int, before: int = before) -> None:
                progress.advance(before + 100 * step // last - progress.done)

            starts.append((seed, world, pretrained(world, seed, on_step=percent)))
            progress.advance(100 * number - progress.done)

    def runs(row: Row) -> ArmRuns:
        results = []
        with Progress(row.arm, len(seeds) * (1 if row.arm == BASE else steps)) as progress:
            for seed, world, base in starts:
                results.append(
                    run_arm(world, base, row.arm, seed, steps, on_step=lambda _: progress.advance())
                )
                if row.arm == BASE:
                    progress.advance()
        return ArmRuns(row, tuple(results))

    base, arms = runs(Row(BASE)), tuple(runs(row) for row in table.rows)
    return Outcome(table, tuple(seeds), steps, base, arms, time.monotonic() - started)


# -- Rewards --------------------------------------------------------------------------------------------


def reinforced(
    world: World, base: Base, model: Decoder, spec: str, seed: int, settings: LoopSettings | None = None
) -> Iterator[Any]:
    """Each turn one step of reinforcement learning with a reward; see `run_arm`."""
    reward = supplied(world, spec)
    examples: Sequence[Example] = world.train
    if _needs_probe(reward, examples[0]):
        flags = out_of_knowledge(world, probe(world, base, examples, seed))
        examples = [replace(example, ook=flag) for example, flag in zip(examples, flags, strict=True)]
    reward.check_examples(examples)
    return optimise(
        model,
        base.tokenizer,
        world,
        reward,
        form_of(spec, reward),
        settings or paper_settings(spec),
        examples=examples,
        reference=base.model,
        seed=seed,
    )


def paper_settings(spec: str) -> LoopSettings:
    """The lab's settings with those of the paper that mean the same on a model of any size."""
    told = settings_of(spec).get("train", {})
    return LoopSettings(**{name: told[name] for name in _KEPT if name in told})


def _needs_probe(reward: Reward, example: Example) -> bool:
    """Whether it refuses an example for nothing but its missing out-of-knowledge flag."""
    if reward.requires is None:
        return False
    unknown = reward.requires(replace(example, ook=None), reward.knobs)
    return bool(unknown) and not reward.requires(replace(example, ook=True), reward.knobs)


# -- What the pretrained model knows --------------------------------------------------------------------


def probe(world: World, base: Base, examples: Sequence[Example], seed: int) -> Probe:
    """`PROBES` samples of the pretrained model for each example."""
    draw = torch.Generator().manual_seed(seed)
    return answers(base.model, base.tokenizer, world, examples, PROBES, 1.0, draw)


def out_of_knowledge(world: World, found: Probe) -> list[bool]:
    """For each training question, whether none of its samples is right."""
    grade = _grader(world)
    return [
        not any(grade(example, text) == "correct" for text in {*texts})
        for example, texts in zip(world.train, found, strict=True)
    ]


def _grader(world: World) -> Callable[[Example, str], str]:
    grade = world.resources().get("grade")
    if grade is None:
        raise ConfigError(f"the world {world.name!r} has no answers that could be graded for this arm")
    return lambda example, text: grade(example.question, text, example.answers).label


# -- Given answers --------------------------------------------------------------------------------------


def _offline(world: World, base: Base, model: Decoder, arm: str, seed: int, steps: int) -> Iterator[Any]:
    """Each turn one optimizer step of an offline method."""
    if arm == "sft":
        given = [(example.question, example.answers[0]) for example in world.train]
        return _imitation(model, base.tokenizer, given, seed)
    found = probe(world, base, world.train, seed)
    unknown = out_of_knowledge(world, found)
    grade = _grader(world)
    given, pairs = [], []
    for example, texts, ook in zip(world.train, found, unknown, strict=True):
        prompt = example.question
        labels = {text: grade(example, text) for text in texts}
        wanted = "abstained" if ook else "correct"
        chosen = next((text for text in texts if labels[text] == wanted), None)
        wrong = next((text for text in texts if labels[text] == "incorrect"), None)
        if arm == "r-tuning":
            given.append((prompt, ABSTENTION if ook else example.answers[0]))
        elif arm == "rft" and chosen is not None:
            given.append((prompt, chosen))
        elif arm == "dpo" and wrong is not None:
            pairs.append((prompt, ABSTENTION if ook else chosen, wrong))
    if arm == "dpo":
        return _preference(model, base.model, base.tokenizer, pairs, seed)
    return _imitation(model, base.tokenizer, given, seed)


def _imitation(
    model: Decoder, tokenizer: Tokenizer, given: Sequence[tuple[str, str]], seed: int
) -> Iterator[None]:
    optimizer = Optimizer(model, LoopSettings())
    for part in _parts(given, seed):
        optimizer.step(answer_loss(model, tokenizer, part))
        yield


def _preference(
    model: Decoder, reference: Decoder, tokenizer: Tokenizer, pairs: Sequence[Any], seed: int
) -> Iterator[None]:
    """Direct preference optimisation (arXiv:2305.18290, Eq. 7) on (prompt, better, worse)."""
    optimizer = Optimizer(model, LoopSettings())
    for part in _parts(pairs, seed):
        prompts = tokenizer.prompts([prompt for prompt, _, _ in part])
        both = tokenizer.completions([text for _, better, worse in part for text in (better, worse)])
        with torch.no_grad():
            before = log_probs(reference, prompts, both).sum(dim=1)
        gain = (log_probs(model, prompts, both).sum(dim=1) - before).view(-1, 2)
        optimizer.step(-logsigmoid(DPO_BETA * (gain[:, 0] - gain[:, 1])).mean())
        yield


def _parts(rows: Sequence[Any], seed: int) -> Iterator[list[Any]]:
    """Parts of `BATCH` rows or of all where there are fewer, epoch after epoch."""
    if not rows:
        raise ConfigError("the pretrained model's samples give this arm nothing to learn from")
    return parts(rows, min(BATCH, len(rows)), seed)


def _shown(world: World, texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Two questions of each tier with their answers."""
    shown: dict[str, list[tuple[str, str, str]]] = {}
    for example, text in zip(world.test, texts, strict=True):
        tier = str(example.meta.get("tier", ""))
        if len(shown.setdefault(tier, [])) < 2:
            shown[tier].append((example.question, text, tier))
    return [row for rows in shown.values() for row in rows]
