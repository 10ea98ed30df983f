"""The lab's loop against TRL's trainer: the same tiny model, batch, reward and settings, in CPU seconds.

    python benchmarks/lab.py [ROUNDS]

Both start from the same pretrained weights in a model world and ask the same 32 questions eight times a step.
They alternate, so that a machine that slows down slows both; the first step of each round is left out.  TRL
gets its model from transformers with these weights, and nothing of it is overridden.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from factrl.lab import supplied
from factrl.lab.loop import LoopSettings, optimise
from factrl.lab.model import END, PAD, Base, ModelSettings, pretrained
from factrl.lab.people import People
from factrl.papers import form_of
from factrl.train.model import for_command_line

SPEC, STEPS = "truthrl:ternary", 8
SETTINGS = LoopSettings()
Times = list[float]


def of_loop(world: People, base: Base) -> Times:
    """CPU seconds of each step of the lab's loop after the first."""
    reward = supplied(world, SPEC)
    model = copy.deepcopy(base.model)
    form = form_of(SPEC, reward)
    learning = optimise(model, base, world, reward, form, SETTINGS, examples=world.train)
    return _differences(time.process_time() for _ in itertools.islice(learning, STEPS))


def of_trl(world: People, base: Base, folder: str) -> Times:
    """CPU seconds of each step of TRL's trainer after the first."""
    reward = supplied(world, SPEC)
    form = form_of(SPEC, reward)
    examples = {example.id: example for example in world.train}

    def score(completions: Sequence[str], key: Sequence[str], **_: Any) -> list[float | None]:
        asked = [examples[name] for name in key]
        texts = [world.wrap(e, text.strip(), form).text for e, text in zip(asked, completions, strict=True)]
        return [result.value for result in reward.batch(asked, texts)]

    ends: Times = []

    class Timed(GRPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            ends.append(time.process_time())
            return super().training_step(*args, **kwargs)

    rows = [{"prompt": example.question, "key": name} for name, example in examples.items()]
    trainer = Timed(
        model=_llama(base),
        reward_funcs=score,
        args=_config(world, folder),
        train_dataset=Dataset.from_list(rows),
        processing_class=_tokenizer(world),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return _differences([*ends, time.process_time()])


def _differences(ends: Any) -> Times:
    return [after - before for before, after in itertools.pairwise(ends)][1:]


def _config(world: People, folder: str) -> GRPOConfig:
    told = asdict(SETTINGS)
    shared = ("num_generations", "temperature", "learning_rate", "warmup_steps", "loss_type", "beta")
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=SETTINGS.prompts_per_step * SETTINGS.num_generations,
        max_completion_length=world.max_new_tokens,
        max_steps=STEPS,
        lr_scheduler_type="constant_with_warmup",
        scale_rewards=told["scale_rewards"],
        **{name: told[name] for name in shared},
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=0,
    )


def _llama(base: Base) -> LlamaForCausalLM:
    """The pretrained model, as transformers has it."""
    told = ModelSettings()
    config = LlamaConfig(
        vocab_size=len(base.tokenizer),
        hidden_size=told.width,
        intermediate_size=told.hidden,
        num_hidden_layers=told.layers,
        num_attention_heads=told.heads,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    if unexpected or {*missing} - {"lm_head.weight"}:
        raise RuntimeError(f"not the same model: {missing}, {unexpected}")
    model.tie_weights()
    return model


def _tokenizer(world: People) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<end>", *world.words])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106  # a word, no secret
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"pad_token": "<pad>", "unk_token": "<pad>", "eos_token": "<end>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **marks)


def main() -> None:
    """Print the medians and the ratio of every pair of rounds."""
    for_command_line()
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    world = People(per_tier=60)
    base = pretrained(world)
    with tempfile.TemporaryDirectory() as folder:
        pairs = [
            (statistics.median(of_trl(world, base, folder)), statistics.median(of_loop(world, base)))
            for _ in range(rounds)
        ]
    trl, ours = zip(*pairs, strict=True)
    ratios = sorted(a / b for a, b in pairs)
    samples = SETTINGS.prompts_per_step * SETTINGS.num_generations
    sys.stdout.write(
        f"model world, {samples} completions a step, {SPEC}, one thread, {rounds} rounds of {STEPS} steps\n"
        f"TRL's GRPOTrainer  {statistics.median(trl):6.3f} CPU s per step\n"
        f"the lab's loop     {statistics.median(ours):6.3f}\n"
        f"ratio              {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
    )


if __name__ == "__main__":
    main()
