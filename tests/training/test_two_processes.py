"""Training on two processes is training on one: masked rows, siblings, credit and weights.

Run as a program, this file is one of the processes, which `torchrun` starts and `accelerate` joins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")

from datasets import Dataset  # noqa: E402
from tiny import FEW_STEPS, GivenTexts  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from factrl.errors import LLMError  # noqa: E402
from factrl.rewards import reward  # noqa: E402
from factrl.runs.folder import read_metrics  # noqa: E402
from factrl.train.advantages import flip_advantages, group_advantages  # noqa: E402
from factrl.train.grpo import FactualGRPOConfig, FactualGRPOTrainer  # noqa: E402
from factrl.types import Example, Score, Span  # noqa: E402

pytestmark = pytest.mark.slow

SECONDS = 180
GROUP = 4  # of three: the second group is half on one process, half on the other
TEXTS = (
    *("ada is from rome . oslo", "lima", "i don ' t know .", "cairo . rome"),
    *("bo is from", "oslo . lima . cairo . rome", "lima", "rome rome oslo"),
    *("where is fay ?", "oslo oslo", "eve rome", "rome . know"),
)
DOWN = ("i don ' t know .", "lima")  # texts on which the judge fails: some on either process
SPANS = ("rome", "oslo")  # the first is right, the second wrong; no span but in the first seven texts


def value(text: str) -> float:
    return len(text) / 10


def spans(text: str) -> tuple[Span, ...]:
    found, start = [], 0
    for word in text.split():
        if word in SPANS and text in TEXTS[:7]:
            found.append(Span(start, start + len(word), 1 - 2 * SPANS.index(word)))
        start += len(word) + 1
    return tuple(found)


@reward
def judged(example: Example, completion: str) -> Score:
    if completion in DOWN:
        raise LLMError("connection", "refused")
    return Score({"outcome": value(completion)}, spans=spans(completion))


class Given(GivenTexts, FactualGRPOTrainer):
    """Keeps what it trains on: of each step, of its own rows in their order."""

    texts = TEXTS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.parts: list[list[tuple[int, Any, Any]]] = []
        super().__init__(*args, **kwargs)

    def corrected(self, inputs: Any) -> Any:
        batch = super().corrected(inputs)
        rows = zip(self.numbers(inputs), batch["advantages"], batch["completion_mask"], strict=True)
        self.parts.append([*rows])
        return batch

    def numbers(self, inputs: Any) -> list[int]:
        """A text may come twice in a group; then it is worth the same."""
        rows = self.graded[self.mode].rows
        found = []
        for prompt, seen, ids, own in zip(
            *(inputs[f"{part}_{kind}"] for part in ("prompt", "completion") for kind in ("ids", "mask")),
            strict=True,
        ):
            found.append(rows[tuple(prompt[seen.bool()].tolist()), tuple(ids[own.bool()].tolist())][0])
        return found

    @property
    def batches(self) -> list[dict[str, Any]]:
        steps = [self.parts[start] + self.parts[start + 1] for start in range(0, len(self.parts), 2)]
        return [
            {
                "advantages": [value for _, value, _ in sorted(step, key=lambda row: row[0])],
                "completion_mask": [mask for *_, mask in sorted(step, key=lambda row: row[0])],
            }
            for step in steps
        ]


def run(model: str, folder: Path, loss: str, processes: int) -> dict[str, Any]:
    """Two steps; what this process saw."""
    config = FactualGRPOConfig(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=len(TEXTS) // processes // 2,
        gradient_accumulation_steps=2,
        num_generations=GROUP,
        max_completion_length=10,
        learning_rate=1e-3,
        loss_type="dapo" if loss == "reinforce++" else loss,
        advantage_estimator="reinforce++" if loss == "reinforce++" else "group",
        shuffle_dataset=False,
        **FEW_STEPS,
    )
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    prompts = [f"where is {name} from ?" for name in ("ada", "bo", "cleo", "dan", "eve", "fay")]
    policy = AutoModelForCausalLM.from_pretrained(model)
    rows = Dataset.from_dict({"prompt": prompts})
    trainer = Given(policy, judged, config, rows, processing_class=tokenizer)
    trainer.train()
    weights = trainer.accelerator.unwrap_model(trainer.model).parameters()
    return {
        "processes": trainer.accelerator.num_processes,
        "batches": trainer.batches,
        "weights": torch.cat([weight.detach().flatten() for weight in weights]),
        "log": [entry for entry in trainer.state.log_history if "reward" in entry],
        "masked": dict(trainer.masked_causes),
    }


def main(model: str, folder: str, *losses: str) -> None:
    found = {loss: run(model, Path(folder), loss, processes=2) for loss in losses}
    torch.save(found, Path(folder) / f"{os.environ['RANK']}.pt")
    torch.distributed.destroy_process_group()  # its threads abort one process in many that ends with them


LOSSES = ("grpo", "dapo", "reinforce++")


@pytest.fixture(scope="module")
def both(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What either of two processes saw, by loss."""
    folder = tmp_path_factory.mktemp("two")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    here = (str(Path(__file__)), str(tiny_model), str(folder), *LOSSES)
    done = subprocess.run(
        [sys.executable, *launch, *here],
        timeout=SECONDS,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_are_one(
    both: list[dict[str, Any]], tiny_model: Path, tmp_path: Path, loss: str
) -> None:
    ranks = [found[loss] for found in both]
    alone = run(str(tiny_model), tmp_path, loss, processes=1)
    assert [rank["processes"] for rank in ranks] == [2, 2]
    assert torch.equal(ranks[0]["weights"], ranks[1]["weights"])
    torch.testing.assert_close(ranks[0]["weights"], alone["weights"], atol=1e-5, rtol=0)
    start = AutoModelForCausalLM.from_pretrained(tiny_model).parameters()
    assert (torch.cat([w.detach().flatten() for w in start]) - alone["weights"]).abs().max() > 1e-3
    assert len(alone["batches"]) == 2
    for step, whole in enumerate(alone["batches"]):
        parts = [rank["batches"][step] for rank in ranks]
        for name in ("advantages", "completion_mask"):
            rows = [row for part in parts for row in part[name]]
            width = max(len(row) for row in rows)
            for row, expected in zip(rows, whole[name], strict=True):
                torch.testing.assert_close(row, expected[: len(row)], atol=1e-6, rtol=0)
                assert len(expected) == width
    names = [name for name in alone["log"][0] if name.startswith(("credit/", "reward", "masked/"))]
    names.remove("reward/seconds")
    assert len(names) > 8
    for ours, theirs in zip(ranks[0]["log"], alone["log"], strict=True):
        assert {n: ours[n] for n in names} == pytest.approx({n: theirs[n] for n in names}, abs=1e-6)
    assert ranks[0]["masked"] == alone["masked"] == {"connection": 6}


def test_masked_rows_and_their_siblings(both: list[dict[str, Any]]) -> None:
    """On either process: zero where masked, and elsewhere what the others alone would have."""
    rows = [row for found in both for row in found["grpo"]["batches"][0]["advantages"]]
    for group in range(0, len(TEXTS), GROUP):
        graded = [n for n in range(group, group + GROUP) if TEXTS[n] not in DOWN]
        theirs = group_advantages(torch.tensor([value(TEXTS[n]) for n in graded]), len(graded))
        for row, advantage in zip(graded, theirs, strict=True):
            expected = flip_advantages(advantage.unsqueeze(0), word_signs(TEXTS[row], len(rows[row])))
            torch.testing.assert_close(rows[row], expected[0], atol=1e-6, rtol=0)
        for row in set(range(group, group + GROUP)) - set(graded):
            assert not rows[row].any()


def word_signs(text: str, width: int) -> Any:
    """Signs of a text whose words are tokens."""
    named = {SPANS[0]: 1, SPANS[1]: -1} if text in TEXTS[:7] else {}
    signs: Sequence[int] = [named.get(word, 0) for word in text.split()]
    return torch.tensor([[*signs, *[0] * (width - len(signs))]])


NAMES = ("ada", "bo", "cleo", "dan", "eve", "fay", "gus", "hal")
# A reward for `factrl train`, whose samples are given: two processes draw others than one.
OWN = f"""
from factrl import reward
from factrl.train.grpo import FactualGRPOTrainer
from tiny import GivenTexts

class Given(GivenTexts):
    texts = {TEXTS}

begun = FactualGRPOTrainer.__init__

def begin(self, *args, **kwargs):
    begun(self, *args, **kwargs)
    self.texts, self.rollout_func = Given.texts, lambda prompts, trainer: Given.write(self, prompts, trainer)

FactualGRPOTrainer.__init__ = begin

@reward
def length(example, completion):
    return dict(length=len(completion) / 10)
"""


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Path]:
    """A file for each verb."""
    from commands import write  # beside this folder: not found where this file is run as a program

    asked = [f"where is {name} from ?" for name in NAMES]
    rows = {
        "train": [{"question": one, "answers": ["rome"]} for one in asked],
        "sft": [{"prompt": one, "completion": "rome ."} for one in asked],
        "dpo": [{"prompt": one, "chosen": "rome .", "rejected": "i don ' t know ."} for one in asked],
    }
    rows["sft"][3]["completion"] = "oslo . lima . cairo ."  # the processes have tokens of different number
    return {verb: write(tmp_path / f"{verb}.jsonl", *some) for verb, some in rows.items()}


def verb(words: Sequence[str], processes: int, until: Path | None = None) -> None:
    """Run `factrl` by accelerate on CPUs; to its end, or until a file is there, and it is killed."""
    import psutil  # which accelerate brings

    recipe = Path(__file__).parents[2] / "recipes" / "accelerate" / "cpu.yaml"
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(recipe), "--num_processes", "2"]
    start = [sys.executable, *(launcher if processes == 2 else ()), "-m", "factrl", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "FACTRL_BF16": "0"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(start, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as started:
        while until is not None and not until.exists():
            assert started.poll() is None, started.stderr and started.stderr.read().decode()[-3000:]
            time.sleep(0.02)
        if until is not None:
            workers = psutil.Process(started.pid).children(recursive=True)
            for process in (started, *workers):  # which torchrun has put into sessions of their own
                process.kill()
        error = started.stderr.read().decode() if started.stderr else ""
    assert until is not None or started.returncode == 0, error[-3000:]


@pytest.mark.parametrize("method", ["train", "sft", "dpo"])
def test_a_verb_on_two_processes_is_the_verb_on_one_also_when_it_was_killed(
    tiny_model: Path, data: dict[str, Path], tmp_path: Path, method: str
) -> None:
    words = [
        "train.save_steps=1",
        "train.learning_rate=1e-2",
        "train.prompts_per_step=4",
        "train.micro_batch_size=2",
    ]
    words += ["train.gradient_checkpointing=false", "--model", str(tiny_model), "--steps", "4"]
    if method == "train":
        (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
        words += [f"paper={tmp_path / 'own.py'}:length", f"data.train={data['train']}", "data.chat=false"]
        words += [
            "train.num_generations=4",
            "train.max_completion_length=10",
            "train.loss_type=dapo",
            "train.beta=0.1",
        ]
        words = ["train", *words, "train.bf16=false"]
    else:
        words = ["tune", method, str(data[method]), *words, *["tune.rule=given"] * (method == "dpo")]
    one, two = tmp_path / "one", tmp_path / "two"
    verb([*words, "--output", str(one)], 1)
    for step in (1, 2):
        verb([*words, "--output", str(two)], 2, until=two / "checkpoints" / f"checkpoint-{step}" / "complete")
        assert not (two / "done.json").exists()
    verb([*words, "--output", str(two)], 2)
    losses = [[(row["step"], row["loss"]) for row in read_metrics(run)] for run in (one, two)]
    assert [step for step, _ in losses[1]] == [1, 2, 3, 4]
    assert all(abs(loss) > 1e-3 for _, loss in losses[1])
    assert [loss for _, loss in losses[1]] == pytest.approx([loss for _, loss in losses[0]], rel=1e-4)
    first, second = (AutoModelForCausalLM.from_pretrained(run / "model").state_dict() for run in (one, two))
    for name, weights in first.items():
        assert torch.allclose(weights, second[name], atol=1e-4), name
    verb([*words, "--output", str(two)], 2)  # there is nothing to do
    assert len(read_metrics(two)) == 4
    assert json.loads((two / "done.json").read_text()) == {"steps": 4}
    assert (two / "report.html").is_file() or method != "train"
    told = [f"{one:.7f} {two:.7f}" for (_, one), (_, two) in zip(*losses, strict=True)]
    sys.stdout.write(f"{method}: {', '.join(told)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])


@pytest.mark.parametrize("name", ["fsdp", "deepspeed"])
def test_accelerate_reads_the_files_for_several_gpus(name: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    recipe = Path(__file__).parents[2] / "recipes" / "accelerate" / f"{name}.yaml"
    told: Any = load_config_from_file(str(recipe))
    assert str(told.distributed_type).endswith(name.upper())
    assert told.num_processes == 8
