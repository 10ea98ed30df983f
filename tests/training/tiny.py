"""The random models and tokenizers of these tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch


def word_tokenizer(words: Iterable[str], *, pairs: bool = False, **options: Any) -> Any:
    """A fast tokenizer of whole words, whose tokens are numbered in their order.

    Args:
        pairs: two texts stand as `[CLS]`, the first, `[SEP]`, the second, `[SEP]`, which are tokens 2 and 3.
        options: of transformers' tokenizer, `unk_token` among them.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=options["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if pairs:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def byte_tokenizer(
    special: Sequence[str] = (), texts: Sequence[str] = (), size: int = 0, **options: Any
) -> Any:
    """A fast tokenizer of bytes, and of up to `size` tokens learnt from texts; the special ones come first.

    Args:
        options: of transformers' tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=max(size, 256 + len(special)),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True) for token in special],
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def small_run(**more: object) -> list[str]:
    """`[train]` of steps that take a second: two questions with two completions of four tokens."""
    sizes = {"prompts_per_step": 2, "num_generations": 2, "micro_batch_size": 4, "max_completion_length": 4}
    off = {"gradient_checkpointing": "false", "bf16": "false"}
    return [f"train.{name}={value}" for name, value in {**sizes, **off, **more}.items()]


TOWN_STUDY = (  # of a study that takes seconds
    *("start.steps=2", "start.batch_size=4", "start.freeze_layers=0", "known.samples=2", "size.test=4"),
    *("train.steps=1", "train.prompts_per_step=2", "train.num_generations=2", "train.micro_batch_size=4"),
    *("train.max_completion_length=6", "known.questions=6"),
)


def save_towns(folder: Path) -> None:
    """`model`, a random one that reads bytes, and `facts.csv`, a table of towns."""
    tokenizer = byte_tokenizer(["<pad>", "<eos>"], pad_token="<pad>", eos_token="<eos>")
    llama(len(tokenizer)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [f"Town {n},{r},{v}" for n in range(30) for r, v in (("country", "Peru"), ("river", f"R{n}"))]
    (folder / "facts.csv").write_text("\n".join(["entity,relation,value", *rows]))


# Of a trainer that takes a few steps on a CPU and keeps nothing.
FEW_STEPS: dict[str, Any] = {
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
}


def llama(words: int, seed: int = 0, heads: tuple[int, int] = (4, 2), **options: Any) -> Any:
    """A random two-layer Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "tie_word_embeddings": True}
    shape |= {"vocab_size": words, "num_attention_heads": heads[0], "num_key_value_heads": heads[1]}
    return LlamaForCausalLM(LlamaConfig(**{**shape, **options}))


def save_llama(folder: Path, tokenizer: Any, positions: int) -> Path:
    """Save a Llama with its tokenizer, whose tokens 0 and 2 are the padding and the end."""
    tokenizer.save_pretrained(folder)
    tokens = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    llama(len(tokenizer), max_position_embeddings=positions, **tokens).save_pretrained(folder)
    return folder


class GivenTexts:
    """Of a GRPO trainer: the n-th sample of a step, over all processes, is the n-th of the given texts."""

    texts: Sequence[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rollout_func = self.write

    def write(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`."""
        first = trainer.accelerator.process_index * len(prompts)
        texts = [self.texts[(first + row) % len(self.texts)] for row in range(len(prompts))]
        words = trainer.processing_class
        ids = [[*words(text)["input_ids"], words.eos_token_id] for text in texts]
        asked = words(text=list(prompts))["input_ids"]
        return {"prompt_ids": asked, "completion_ids": ids, "logprobs": None}


class Recording:
    """Of a `FactualGRPOTrainer`: keeps the micro-batches that TRL's loss gets, and the losses.

    TRL shuffles the rows; in what is kept they are in the order in which they were written.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.losses: list[float] = []
        super().__init__(*args, **kwargs)

    def corrected(self, inputs: Any) -> Any:
        trainer: Any = super()
        batch = trainer.corrected(inputs)
        rows = torch.tensor(written(self, inputs)).argsort()
        kept = {name: value for name, value in batch.items() if torch.is_tensor(value)}
        self.batches.append({n: v[rows].clone() if v.dim() else v.clone() for n, v in kept.items()})
        return batch

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        trainer: Any = super()
        loss = trainer.compute_loss(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


def written(trainer: Any, inputs: Any) -> list[int]:
    """Which of the completions that this process wrote each row of a micro-batch is; texts differ."""
    numbers = {key[1]: rows[0] for key, rows in trainer.graded[trainer.mode].rows.items()}
    pairs = zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)
    return [numbers[tuple(ids[own.bool()].tolist())] for ids, own in pairs]
