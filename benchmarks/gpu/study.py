"""TruthRL's ternary and binary rewards and TRL's own trainer on a GPU: held-out answers, and what they cost.

    python benchmarks/gpu/study.py questions questions             here: needs FACTRL_DATA and factrl[demo]
    python3 benchmarks/gpu/study.py run /tmp/study --minutes 9     there, until it says that all is done
    python benchmarks/gpu/study.py table study.json --rate 2.5     anywhere: US dollars for an hour

A run is a list of jobs, each `factrl train` or `factrl eval` in a process of its own.  What is done is left
out, so the same command goes on where the last one was stopped or killed; when its time is nearly up, a
training gets the signal after which it saves a checkpoint.  Exit code 75 says that there is more to do.  All
is in /tmp/study/study-MODEL: runs, evaluations, logs, and after each command study.json, .md and .svg.

The arm `trl` is TRL's `GRPOTrainer` with `to_trl(reward)` and the same settings, started by `factrl train`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
MORE = 75  # exit code: not everything is done
GRACE = 60  # seconds before the end in which a training saves its checkpoint
ARMS = {"ternary": "truthrl:ternary", "binary": "truthrl:binary", "trl": "truthrl:binary"}
WEIGHTS: Mapping[str, Sequence[str]] = {
    "full": (),  # float32, computed with in bfloat16: an update is smaller than bfloat16 can hold
    "lora": ("model.lora=true", "model.dtype=bfloat16", "train.learning_rate=1e-5"),
}
METRICS = ("truthfulness", "hallucination", "abstention", "accuracy")
PARTS = ("generation", "reward", "update", "step")
RECIPE = Path(__file__).with_name("study.toml")
HELD_OUT, WATCHED = 1_000, 128
RANDOM = "random"  # a model of 3 million random weights that reads bytes, to try everything with


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# -- What is asked -----------------------------------------------------------------------------------


def questions(folder: Path) -> None:
    """Write train, watched and held-out questions: TriviaQA's, NQ-open's and the demo's."""
    from factrl.lab.demo import build_questions
    from factrl.prepare.dataset import write_rows
    from factrl.runs.rows import read_rows

    data, demo = Path(os.environ["FACTRL_DATA"]), build_questions(0)
    rows = [
        {**{name: row[name] for name in ("id", "question", "answers")}, "source": row["dataset"]}
        for name in ("triviaqa_1k", "nq_open")
        for row in read_rows(data / name / "test.jsonl")
    ]
    random.Random(0).shuffle(rows)
    train, test = (
        [{"id": e.id, "question": e.question, "answers": list(e.answers), "source": "demo"} for e in examples]
        for examples in (demo.train, demo.test[: HELD_OUT // 4])
    )
    first = HELD_OUT - len(test)
    told = {"test": [*test, *rows[:first]], "watched": rows[first : first + WATCHED]}
    told["train"] = [*rows[first + WATCHED :], *train]
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in told.items():
        write_rows(folder / f"{name}.jsonl", some)
        say(f"{folder / name}.jsonl: {len(some)} questions")


# -- Jobs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A process of the study.

    Attributes:
        name: of its log, its marker and what it makes.
        words: what stands behind `factrl`; a training that was begun goes on instead.
        trainer: `factrl` or `trl`; empty for what does not train.
    """

    name: str
    words: tuple[str, ...]
    trainer: str = ""


def jobs(told: argparse.Namespace) -> list[Job]:
    """The model, its own answers, and for each seed, kind of weights and arm a training and an evaluation."""
    place, asked = told.place, told.home / "questions"

    def evaluation(name: str, model: Path, config: Path) -> Job:
        words = ("eval", str(asked / "test.jsonl"), "--model", str(model), "--config", str(config))
        more = ("--limit", str(told.held_out), "--output", str(place / "evals" / name))
        return Job(f"eval {name}", (*words, *more))

    model = told.home / told.model
    found = [Job("model", ("model", told.model)), evaluation("base", model, RECIPE)]
    for seed, weights, arm in itertools.product(told.seeds, told.weights, told.arms):
        name = f"{arm}-{weights}-{seed}"
        data = (f"data.train={asked / 'train.jsonl'}", f"data.eval={asked / 'watched.jsonl'}")
        size = (f"train.steps={told.steps}", f"train.eval_steps={max(1, told.steps // 5)}")
        words = ("train", ARMS[arm], "--config", str(RECIPE), "--model", str(model), *data, *size)
        place_of = (f"run.dir={told.runs / name}", f"run.seed={seed}")
        words = (*words, *place_of, *WEIGHTS[weights], *told.settings)
        found.append(Job(name, words, "trl" if arm == "trl" else "factrl"))
        run = begun(told.runs / name) or told.runs / name
        found.append(evaluation(name, run / "model", run / "config.toml"))
    return found


def begun(folder: Path) -> Path | None:
    """The last run in a folder of runs."""
    return max((path.parent for path in folder.glob("*/config.toml")), default=None)


def run(told: argparse.Namespace) -> int:
    """Do what fits into the minutes; 0 when all is done, else `MORE`."""
    place = told.place
    os.environ.update(FACTRL_CACHE=str(told.home), HF_HUB_OFFLINE="1")
    for name in ("done", "logs", "times"):
        (place / name).mkdir(parents=True, exist_ok=True)
    total, done = len(jobs(told)), 0
    for number in range(total):
        job = jobs(told)[number]  # the run that an evaluation is of was begun meanwhile
        marker, words = place / "done" / job.name, json.dumps(job.words)
        if not marker.exists():
            left = 60 * told.minutes - (time.monotonic() - BEGAN)
            if left < 12 * told.minutes:
                break
            say(f"[{number + 1}/{total}] {job.name}")
            if not _do(job, told, left):
                break
            marker.write_text(words)
            if job.trainer and (made := begun(told.runs / job.name)):
                shutil.rmtree(made / "checkpoints", ignore_errors=True)  # three models' worth each
        elif marker.read_text() != words:
            raise SystemExit(
                f"{job.name} was done as {marker.read_text()}, now it is {words}; give another place"
            )
        done += 1
    document = summary(told)
    (place / "study.json").write_text(json.dumps(document, indent=1))
    (place / "study.md").write_text(table(document, told.rate))
    _picture(document, place / "study.svg")
    say(f"{done} of {total} jobs are done: {place / 'study.md'}")
    return 0 if done == total else MORE


def _do(job: Job, told: argparse.Namespace, left: float) -> bool:
    """Run a job for at most so many seconds; whether it came to its end.

    Raises:
        SystemExit: it failed; the end of its log is in the message.
    """
    words: Sequence[str] = job.words
    if job.trainer and (made := begun(told.runs / job.name)):
        words = ("train", "--resume", str(made))
    elif job.trainer and "model.lora=true" not in words:
        _check_room(told.runs, told.home / told.model)
    log, times = told.place / "logs" / f"{job.name}.log", told.place / "times" / f"{job.name}.jsonl"
    options = ("work", "--trainer", job.trainer, "--times", str(times), "--", *words)
    stopped = False
    with log.open("a") as out:
        command = [sys.executable, __file__, *options]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603
        grace = min(GRACE, left / 4)
        for ask, seconds in ((None, left - grace), (process.terminate, grace * 0.9), (process.kill, None)):
            stopped = ask is not None
            if ask:
                ask()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
    if process.returncode and not stopped:
        end = log.read_text(errors="replace")[-2_000:]
        raise SystemExit(f"{job.name} ended with exit code {process.returncode}; {log} ends with:\n{end}")
    return process.returncode == 0


def _check_room(runs: Path, model: Path) -> None:
    """Refuse full weights where three checkpoints (weights and Adam's two moments) and a model do not fit."""
    runs.mkdir(parents=True, exist_ok=True)
    need, free = (
        10 * sum(path.stat().st_size for path in model.glob("*.safetensors")),
        shutil.disk_usage(runs).free,
    )
    if need > free:
        remedy = "name a larger place, such as one in memory (--runs /dev/shm/runs), or --weights lora"
        raise SystemExit(
            f"full weights need {need / 1e9:.0f} GB in {runs}, free are {free / 1e9:.0f}; {remedy}"
        )


# -- In the process of a job -------------------------------------------------------------------------


def work(trainer: str, times: Path, words: Sequence[str]) -> int:
    """`factrl WORDS`, the steps of its trainer timed; `model NAME` makes a model."""
    if words[0] == "model":
        make_model(words[1])
        return 0
    if trainer:
        from factrl.train import online

        kind = plain_trl() if trainer == "trl" else online.FactualGRPOTrainer
        online.FactualGRPOTrainer = timed(kind, times)  # type: ignore[misc]
    from factrl.cli import main as cli

    return cli(list(words))


def make_model(name: str) -> None:
    """Float weights of a model of `factrl models list`, or random ones, in a folder of that name."""
    from factrl.llm.models import cache_folder
    from factrl.train.model import embedded_policy

    if name == RANDOM:
        return _random_model(cache_folder() / RANDOM)
    for half in cache_folder().glob("tmp*"):  # of a command that was killed, as large as the model
        shutil.rmtree(half)
    folder = embedded_policy(name)
    settings = json.loads((folder / "config.json").read_text())
    if settings["model_type"] == "qwen2" and not settings["tie_word_embeddings"]:
        _tie(folder)
    return None


def _tie(folder: Path) -> None:
    """One matrix for both ends, as Qwen2.5-1.5B has it: the file holds it twice, the head's in more bits."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    model.config.tie_word_embeddings = True
    target = folder.with_name(f"{folder.name}.tied")
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    shutil.rmtree(folder)
    target.replace(folder)


def _random_model(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

    letters = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")  # noqa: S106
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    fast.save_pretrained(folder)
    size = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 4}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = LlamaConfig(vocab_size=len(letters), **size, **ends)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def plain_trl() -> Any:
    """TRL's trainer, made with the words that `factrl train` makes its own with."""
    from collections import Counter

    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    from factrl.bridges.trl import to_trl

    class Plain(GRPOTrainer):
        steps_over_limit = 0

        def __init__(self, model: Any, reward: Any, examples: Any, prompts: Any, args: Any, **more: Any):
            columns = {
                "prompt": list(prompts),
                "question": [one.question for one in examples],
                "answers": [list(one.answers) for one in examples],
            }
            function, self.masked_causes = to_trl(reward, prefill=args.prefill), Counter[str]()
            known = {name: more[name] for name in ("processing_class", "peft_config")}
            super().__init__(model, function, args, train_dataset=Dataset.from_dict(columns), **known)

    return Plain


def timed(kind: Any, path: Path) -> Any:
    """That trainer, which appends a line for every step: seconds of its parts, tokens written, memory."""
    import torch
    from transformers import TrainerCallback

    gpu, parts, session = torch.cuda.is_available(), dict[str, float](), time.time()

    def wait() -> float:
        if gpu:
            torch.cuda.synchronize()
        return time.monotonic()

    class Steps(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            parts.clear()
            parts["begun"] = wait()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            now = wait()
            line = {"session": session, "at": now - BEGAN, "step": state.global_step, "memory_gb": memory()}
            line |= {name: parts.get(name, 0.0) for name in ("generation", "reward", "tokens")}
            with path.open("a") as out:
                out.write(json.dumps({**line, "seconds": now - parts["begun"]}) + "\n")

    def memory() -> float:
        if gpu:
            return torch.cuda.max_memory_allocated() / 1e9
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

    class Timed(kind):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.add_callback(Steps())

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            found = self._took("generation", super()._generate_single_turn, *args, **kwargs)
            parts["tokens"] = parts.get("tokens", 0.0) + sum(map(len, found[0]))
            return found

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            return self._took("reward", super()._calculate_rewards, *args, **kwargs)

        def _took(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
            begun = wait()
            found = call(*args, **kwargs)
            parts[name] = parts.get(name, 0.0) + wait() - begun
            return found

    return Timed


# -- What came of it ---------------------------------------------------------------------------------


def summary(told: argparse.Namespace) -> dict[str, Any]:
    """Everything of `study.json`; what is not evaluated yet has no row."""
    from factrl.cli.options import gpus_here
    from factrl.evals.paired import compare_outputs
    from factrl.evals.samples import read_output
    from factrl.runs.folder import version_of

    rows: list[dict[str, Any]] = []
    names = ["base", *(job.name for job in jobs(told) if job.trainer)]
    for name in [name for name in names if (told.place / "done" / f"eval {name}").exists()]:
        base, output = (read_output(told.place / "evals" / one) for one in ("base", name))
        row: dict[str, Any] = {"run": name, "masked": sum(output.benchmarks["test"]["masked"].values())}
        row["numbers"] = {metric: asdict(one) for metric, one in output.numbers("test").items()}
        if name != "base":
            moved = compare_outputs(base, output)[0].differences["truthfulness"]
            times, folder = told.place / "times" / f"{name}.jsonl", begun(told.runs / name)
            row |= {"change": moved and asdict(moved), **of_run(times, folder or told.runs)}
        rows.append(row)
    device = f"{os.cpu_count()} CPU cores, no GPU"
    if gpus_here():
        import torch

        device = torch.cuda.get_device_name()
    packages = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
    about = {
        "device": device,
        "versions": {"Python": sys.version.split()[0], **{name: version_of(name) for name in packages}},
        **{name: getattr(told, name) for name in ("model", "steps", "held_out", "settings")},
        "recipe": RECIPE.read_text(),
    }
    return {"about": about, "rows": rows}


def of_run(times: Path, folder: Path) -> dict[str, Any]:
    """Costs and curves of a training, from the lines of its steps and its run folder."""
    from factrl.runs.disk import whole_lines
    from factrl.runs.folder import read_metrics

    steps = [json.loads(line) for line in whole_lines(times)]
    ends = {step["session"]: step["at"] for step in steps}
    warm = {min(s["step"] for s in steps if s["session"] == session) for session in ends}
    usual = [step for step in steps if step["step"] not in warm] or steps
    middle = {
        part: statistics.median(step[part] for step in usual) for part in ("generation", "reward", "seconds")
    }
    wanted = ("reward", "abstain/rate", "completions/mean_length", *(f"eval/{metric}" for metric in METRICS))
    return {
        "steps": max(step["step"] for step in steps),
        "sessions": len(ends),
        "minutes": sum(ends.values()) / 60,
        "generation": middle["generation"],
        "reward": middle["reward"],
        "update": middle["seconds"] - middle["generation"] - middle["reward"],
        "step": middle["seconds"],
        "tokens_per_s": sum(step["tokens"] for step in usual) / sum(step["seconds"] for step in usual),
        "memory_gb": max(step["memory_gb"] for step in steps),
        "curve": [
            {"step": line["step"], **{key: line[key] for key in wanted if line.get(key) is not None}}
            for line in read_metrics(folder)
        ],
    }


def table(document: Mapping[str, Any], rate: float | None) -> str:
    """Markdown: what was answered, with 95 % intervals in points, and what it cost.

    Args:
        rate: US dollars for an hour of the card; without it there is no price.
    """
    from factrl.evals.metrics import Interval, Number

    about = document["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    lines = [f"{about['model']} on {about['device']}; {versions}", ""]
    lines += _head("run", *METRICS, "change of truthfulness", "masked", "minutes", "minutes per point", "US$")
    for row in document["rows"]:
        change, minutes = row.get("change"), row.get("minutes")
        gained = change and change["low"] > 0 and minutes / (100 * change["value"])
        price = None if rate is None or minutes is None else minutes / 60 * rate
        cells = [str(Number(**row["numbers"][metric])) for metric in METRICS]
        cells += [Interval(**change).signed() if change else "–", str(row["masked"])]
        cells += [_cell(minutes, ".1f"), _cell(gained or None, ".2f"), _cell(price, ".2f")]
        lines.append(f"| {' | '.join([row['run'], *cells])} |")
    lines += [
        "",
        *_head("run", "steps", *(f"{part}, s" for part in PARTS), "tokens/s", "peak GB", "commands"),
    ]
    for row in document["rows"]:
        if "step" in row:
            parts = [_cell(row[part], ".2f") for part in PARTS]
            rest = [_cell(row["tokens_per_s"], ",.0f"), _cell(row["memory_gb"], ".1f"), str(row["sessions"])]
            lines.append(f"| {' | '.join([row['run'], str(row['steps']), *parts, *rest])} |")
    return "\n".join(lines) + "\n"


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _picture(document: Mapping[str, Any], path: Path) -> None:
    from factrl.evals.plots import Point, write_picture

    curves = {
        row["run"]: [
            Point(one["step"], *(one[f"eval/{m}"] for m in ("accuracy", "abstention", "hallucination")))
            for one in row["curve"]
            if "eval/accuracy" in one
        ]
        for row in document["rows"]
        if row.get("curve")
    }
    if curves := {name: points for name, points in curves.items() if points}:
        write_picture(curves, path, title=f"{document['about']['model']}, watched questions")


def main() -> int:
    """One of the verbs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    asked = verbs.add_parser("questions", help="write the questions")
    asked.add_argument("folder", type=Path)
    runs = verbs.add_parser("run", help="do what fits into a command")
    runs.add_argument("place", type=Path, help="outside the tree, with what was brought")
    runs.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of every training")
    runs.add_argument("--model", default="Qwen2.5-Coder-1.5B-Instruct", help=f"or {RANDOM}")
    runs.add_argument("--minutes", type=float, default=9.0, help="that a command may take")
    runs.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    runs.add_argument("--weights", nargs="+", choices=WEIGHTS, default=list(WEIGHTS))
    runs.add_argument("--seeds", nargs="+", type=int, default=[0])
    runs.add_argument("--steps", type=int, default=100)
    runs.add_argument("--held-out", type=int, default=HELD_OUT)
    runs.add_argument("--runs", type=Path, help="folder of the run folders; by default in PLACE")
    runs.add_argument("--rate", type=float, help="US dollars for an hour of the card")
    tables = verbs.add_parser("table", help="the table of a study.json")
    tables.add_argument("file", type=Path)
    tables.add_argument("--rate", type=float, help="US dollars for an hour of the card")
    works = verbs.add_parser("work", help="a job; `run` starts it")
    works.add_argument("--trainer")
    works.add_argument("--times", type=Path)
    works.add_argument("words", nargs="+")
    told = parser.parse_args()
    if told.verb == "questions":
        questions(told.folder)
    elif told.verb == "table":
        say(table(json.loads(told.file.read_text()), told.rate).rstrip())
    elif told.verb == "work":
        return work(told.trainer, told.times, told.words)
    else:
        told.home = told.place.resolve()
        told.place = told.home / f"study-{told.model}"
        told.runs = (told.runs or told.place / "runs").resolve()
        return run(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
