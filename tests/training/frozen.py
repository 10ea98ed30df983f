"""Numbers of the trainer as it was on commit ab8b2a6, which a later one must give too.

    python tests/training/frozen.py             compares, and says what is equal to the last bit

The file that wrote them is this one as it was in the commit that added it.  The cases of the verb
were written on that commit too, once more: with a reward of their own, which no change of a grader changes.

Steps on given texts, of which two of eight are masked and some carry spans; runs on two processes; and the
verb, which samples by itself.  Everything is float32 and one thread.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tiny import FEW_STEPS, GivenTexts, save_llama, word_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from factrl.errors import LLMError
from factrl.rewards import reward
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer
from factrl.types import Completion, Example, Score, Span

FILE = Path(__file__).with_suffix(".json")
PEOPLE, PLACES = ("ada", "bo", "cleo", "dan", "eve", "fay", "gus", "hal"), ("rome", "oslo", "lima", "cairo")
WORDS = [*PEOPLE, *PLACES, "where", "is", "from", "?", "i", "don", "'", "t", "know", ".", "user", "system"]
QUESTIONS = ("where is ada from ?", "where is bo from ?")
DIFFER = (
    *("rome . oslo . lima . cairo", "oslo", "i don ' t know .", "rome"),
    *("lima", "oslo . rome", "cairo rome", "rome . lima"),
)
EQUAL = (*("rome", "rome", "i don ' t know .", "oslo"), *("rome", "oslo . rome", "oslo . rome", "lima"))
DOWN = ("i don ' t know .", "oslo . rome")  # texts that cannot be graded


@reward
def partly_down(example: Example, completion: Completion) -> Score:
    if completion in DOWN:
        raise LLMError("connection", "refused")
    spans = (Span(0, 4, 1),) if completion.startswith("rome") else ()
    spans += (Span(0, 4, -1),) if completion.startswith("oslo") else ()
    return Score({"outcome": completion.count("rome") - 0.1 * len(completion.split())}, spans=spans)


@reward
def all_graded(example: Example, completion: Completion) -> dict[str, float]:
    return {"outcome": completion.count("rome") - 0.1 * len(completion.split())}


REWARDS = {"partly_down": partly_down, "all_graded": all_graded}


class Watched(GivenTexts, FactualGRPOTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.losses: list[float] = []
        super().__init__(*args, **kwargs)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.losses.append(loss.item())
        return loss


def save_model(folder: Path) -> Path:
    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    fast = word_tokenizer([*tokens.values(), *WORDS], **tokens)
    return save_llama(folder, fast, 64)


def numbers(
    folder: Path,
    loss: str = "dapo",
    *,
    beta: float = 0.0,
    passes: int = 1,
    texts: tuple[str, ...] = DIFFER,
    judged: str = "partly_down",
    lora: bool = False,
    shortcuts: bool = False,
    micro_batch: int = 2,
    processes: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """Three steps of eight completions."""
    torch.manual_seed(0)
    model_folder = save_model(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    told: dict[str, Any] = {
        **FEW_STEPS,
        "output_dir": str(folder / "out"),
        "max_steps": 3,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": 8 // micro_batch // processes,
        "num_generations": 4,
        "max_completion_length": 10,
        "learning_rate": 1e-3,
        "shuffle_dataset": False,
        "use_bias_correction_kl": False,
        "loss_type": "dapo" if loss == "reinforce++" else loss,
        "advantage_estimator": "reinforce++" if loss == "reinforce++" else "group",
        "beta": beta,
        "num_iterations": passes,
        "shortcuts": shortcuts,
        **more,
    }
    peft = None
    if lora:
        from peft import LoraConfig

        peft = LoraConfig(
            r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    made = watched(model, REWARDS[judged], FactualGRPOConfig(**told), tokenizer, peft)
    made.texts = texts
    made.train()
    policy = made.accelerator.unwrap_model(made.model)
    weights = torch.cat([p.detach().double().flatten() for p in policy.parameters() if p.requires_grad])
    raw = b"".join(p.detach().numpy().tobytes() for p in policy.parameters())
    waves = torch.cos(torch.arange(len(weights), dtype=torch.float64))
    return {
        "losses": made.losses,
        "grad_norms": [entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry],
        "weights": [weights.sum().item(), weights.abs().sum().item(), (weights * waves).sum().item()],
        "masked": dict(made.masked_causes),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


def watched(model: Any, judge: Any, config: Any, tokenizer: Any, peft: Any) -> Any:
    rows = Dataset.from_dict({"prompt": list(QUESTIONS)})
    return Watched(model, judge, config, rows, processing_class=tokenizer, peft_config=peft)


def cases() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for loss in ("grpo", "dr_grpo", "dapo", "bnpo", "reinforce++"):
        for beta, passes in ((0.0, 1), (0.1, 1), (0.1, 2), (0.0, 2)):
            found[f"{loss} beta={beta} passes={passes}"] = {"loss": loss, "beta": beta, "passes": passes}
        found[f"{loss} equal texts"] = {"loss": loss, "beta": 0.1, "texts": EQUAL}
        found[f"{loss} lora"] = {"loss": loss, "beta": 0.1, "lora": True}
        found[f"{loss} no accumulation"] = {"loss": loss, "micro_batch": 8}
        found[f"{loss} all graded"] = {"loss": loss, "judged": "all_graded"}
        if loss != "bnpo":
            found[f"{loss} shortcuts"] = {"loss": loss, "shortcuts": True}
            found[f"{loss} shortcuts beta=0.1"] = {"loss": loss, "shortcuts": True, "beta": 0.1, "passes": 2}
    found["dapo batch scale"] = {"scale_rewards": "batch"}
    found["dapo truncated are masked"] = {"mask_truncated_completions": True, "max_completion_length": 4}
    return found


TWO = {f"two {loss}": {"loss": loss, "processes": 2} for loss in ("grpo", "dr_grpo", "dapo", "reinforce++")}


def two_processes() -> dict[str, Any]:
    """The same on two processes, as the first of them has it."""
    with tempfile.TemporaryDirectory() as folder:
        launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        subprocess.run([sys.executable, *launch, __file__, "rank", folder], check=True, timeout=300, env=env)
        return json.loads((Path(folder) / "0.json").read_text("utf-8"))


def rank(folder: Path) -> None:
    own = os.environ["RANK"]
    found = {name: numbers(folder / own, **told) for name, told in TWO.items()}
    (folder / f"{own}.json").write_text(json.dumps(found), "utf-8")
    torch.distributed.barrier()  # who leaves first is not taken for lost
    torch.distributed.destroy_process_group()


OWN = """
from factrl.rewards import reward

@reward
def mine(example, completion):
    return {"outcome": sum(completion.count(place) for place in ("rome", "oslo")) - 0.5}
"""
SETTINGS = """
paper = {reward!r}
[model]
name = {model!r}
[data]
train = {questions!r}
prompt = "{{question}}"
chat = false
[train]
prompts_per_step = 2
num_generations = 4
micro_batch_size = 4
max_completion_length = 5
gradient_checkpointing = false
learning_rate = 1e-3
beta = 0.01
save_steps = 4
bf16 = false
[run]
dir = {runs!r}
seed = 3
"""


def verb(folder: Path, *words: str, shortcuts: bool = False) -> dict[str, Any]:
    """`factrl train` over more than two rounds of its questions, which are shuffled."""
    from safetensors.torch import load_file

    from factrl.job import read_job
    from factrl.runs.folder import read_metrics
    from factrl.train import online
    from factrl.train.plan import make_plan

    model = save_model(folder / "model")
    rows = [
        {"id": name, "question": f"where is {name} from ?", "answers": [PLACES[index % 4]]}
        for index, name in enumerate(PEOPLE)
    ]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (folder / "own.py").write_text(OWN, "utf-8")
    told = SETTINGS.format(
        reward=f"{folder}/own.py:mine",
        model=str(model),
        questions=str(folder / "q.jsonl"),
        runs=str(folder / "runs"),
    )
    (folder / "recipe.toml").write_text(told, "utf-8")
    told_trl = online.grpo_config

    def config(*args: Any) -> Any:
        made = told_trl(*args)
        made.shortcuts = shortcuts
        return made

    online.grpo_config = config
    try:
        run = online.train(make_plan(read_job(folder / "recipe.toml", list(words))))
    finally:
        online.grpo_config = told_trl
    import pyarrow.parquet as parquet

    files = sorted((run / "rollouts").iterdir())
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    lines = [line for line in read_metrics(run) if "loss" in line]
    values = load_file(run / "model" / "model.safetensors").values()
    weights = torch.cat([value.double().flatten() for value in values])
    return {
        "losses": [line["loss"] for line in lines],
        "grad_norms": [line["grad_norm"] for line in lines],
        "rewards": [line.get("reward") for line in lines],
        "weights": [weights.sum().item(), weights.abs().sum().item()],
        "texts": hashlib.sha256(json.dumps([row["completion"] for row in rows]).encode()).hexdigest(),
        "questions": " ".join(row["id"] for row in rows[::4]),
    }


VERBS = {  # one round over the questions; each round drew a random number for the order of the next
    "verb": ("train.steps=4", "train.save_steps=2"),
    "verb passes=2": ("train.steps=8", "train.num_iterations=2"),
    # Another order of micro-batches is other rounding, which Adam makes larger: texts differ some steps on.
    "verb shortcuts": ("train.steps=3",),
}
ROUNDS = ("train.epochs=2.25",)  # of which the questions are compared


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    torch.set_num_threads(1)
    for name, told in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            yield name, numbers(Path(folder), **told)
    for name, words in VERBS.items():
        with tempfile.TemporaryDirectory() as folder:
            yield name, verb(Path(folder), *words, shortcuts="shortcuts" in name)
    with tempfile.TemporaryDirectory() as folder:
        yield "verb rounds", {"questions": verb(Path(folder), *ROUNDS)["questions"]}
    yield from two_processes().items()


def differences(found: dict[str, Any], frozen: dict[str, Any]) -> float:
    """The largest difference of a number; 0 where all is equal to the last bit.

    Micro-batches were ordered by length with the shortcuts, so of their losses the sums of a step are taken.
    """
    if found == frozen:
        return 0.0
    largest = math.ulp(0.0)
    for name, value in frozen.items():
        if isinstance(value, list):
            one, other = (
                by_step(numbers) if name == "losses" else numbers for numbers in (found[name], value)
            )
            pairs = zip(one, other, strict=True)
            largest = max([largest, *(abs((a or 0) - (b or 0)) for a, b in pairs)])
        elif name != "sha256" and found[name] != value:
            largest = math.inf
    return largest


def by_step(losses: list[float]) -> list[float]:
    size = len(losses) // 3
    return [sum(losses[start : start + size]) for start in range(0, len(losses), size)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(Path(sys.argv[2]))
    else:
        frozen = json.loads(FILE.read_text("utf-8"))
        for case, found in everything():
            largest = differences(found, frozen[case])
            sys.stdout.write(f"{case:32} {f'within {largest:.1e}' if largest else 'the same bits'}\n")
