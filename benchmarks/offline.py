"""What papers do before and beside reinforcement learning, on a small real model: one table.

    FACTRL_DATA=… python benchmarks/offline.py FOLDER [--with ARM …]

Each row is one `factrl` command, printed before it runs: SFT, a probe of its model, R-Tuning on what the
probe found, RFT, DPO and one round of iterative DPO from there; and the rules for long answers, from the
model as it comes.  Questions are from WebQuestions, TriviaQA and PopQA, a hundred held out of each.  The
learning rates move a small model in few steps and are not the papers'.  Started again, it goes on: a finished
arm is read.  About 25 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from factrl.runs.rows import json_lines

SETS = {"webquestions": "trainmodel", "triviaqa_1k": "test", "popqa_1k": "test"}
MODEL = "SmolLM2-135M-Instruct"
SHORT = """
[data]
prompt = "Question: {question}\\nAnswer:"
chat = false

[train]
max_completion_length = 10
"""
TUNED = (
    SHORT
    + """gradient_checkpointing = false
prompts_per_step = 8
micro_batch_size = 8
learning_rate = 5e-5

[tune]
target = " {answer}"
"""
)
LONG = """
[data]
prompt = "{question} Answer in two sentences."

[train]
max_completion_length = 64
gradient_checkpointing = false
prompts_per_step = 4
micro_batch_size = 4
learning_rate = 1e-5

[sampling]
num_samples = 4
temperature = 1.0
top_p = 1.0

[verifier]
judge = "weak"
index = "evidence"
"""


class Arm(NamedTuple):
    """A run of `factrl tune`: whose model it starts from, its words, and the probe it needs, if any."""

    start: str
    words: str
    probe: str = ""


TRUTHRL = "paper=truthrl reward.answer=text"
ARMS = {
    "sft": Arm("", "sft teach.jsonl --config short.toml --steps 75 learning_rate=1e-4"),
    "r-tuning": Arm("sft", "r-tuning ask.jsonl --config short.toml", "probe"),
    "rft": Arm("r-tuning", "rft ask.jsonl --config short.toml", "probe --full"),
    "dpo correctness": Arm(
        "r-tuning",
        "dpo ask.jsonl --config short.toml --rule correctness learning_rate=1e-5",
        "probe --full",
    ),
    "dpo max-min": Arm(
        "r-tuning",
        f"dpo ask.jsonl --config short.toml --rule max-min learning_rate=1e-5 {TRUTHRL}",
        "probe --full",
    ),
    "iterative-dpo": Arm(
        "r-tuning",
        f"iterative-dpo ask.jsonl --config short.toml --rule max-min learning_rate=1e-5 {TRUTHRL} rounds=1 "
        "sampling.num_samples=8 sampling.temperature=1.0 sampling.top_p=1.0 data.limit=150",
    ),
    "dpo margin-length": Arm("", "dpo long.jsonl --config long.toml --rule margin-length"),
    "dpo factscore": Arm("", "dpo long.jsonl --config long.toml --rule factscore"),
}


def questions(folder: Path) -> None:
    """Writes `teach`, `ask` and `held`, apart from each other, and the prompts for long answers."""
    data = Path(os.environ["FACTRL_DATA"])
    parts: dict[str, list[str]] = {"teach": [], "ask": [], "held": []}
    for name, split in SETS.items():
        rows = [json.dumps(row) for row in json_lines((data / name / f"{split}.jsonl").read_bytes())]
        random.Random(0).shuffle(rows)
        for part, (first, last) in {"teach": (0, 133), "ask": (133, 233), "held": (233, 333)}.items():
            parts[part] += rows[first:last]
    for part, rows in parts.items():
        random.Random(1).shuffle(rows)
        (folder / f"{part}.jsonl").write_text("\n".join(rows) + "\n")
    prompts = json_lines((data / "longfact" / "objects.jsonl").read_bytes())[:16]
    asked = ({"id": row["id"], "question": row["prompt"]} for row in prompts)
    (folder / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    (folder / "probe.toml").write_text(SHORT)
    (folder / "short.toml").write_text(TUNED)
    (folder / "long.toml").write_text(LONG)


def run(folder: Path, words: str) -> str:
    """Runs one command of factrl in the folder; the last line that it prints."""
    sys.stderr.write(f"    factrl {words}\n")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "factrl", *shlex.split(words)], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"factrl {words} ended with {done.returncode}")
    return done.stdout.strip().rpartition("\n")[2]


def train(folder: Path, name: str) -> Path:
    """The run folder of an arm, trained if it is not there; its model's own start is trained before it."""
    kept = folder / f"{name.replace(' ', '_')}.run"
    if not kept.exists():
        arm = ARMS[name]
        model = f"{train(folder, arm.start)}/model" if arm.start else MODEL
        probe = ""
        if arm.probe:
            found = f"{arm.start}.probed.jsonl"
            run(
                folder,
                f"{arm.probe} ask.jsonl --config probe.toml --samples 16 --model {model} --output {found}",
            )
            probe = f" --probe {found}"
        if "long.jsonl" in arm.words:
            corpus = Path(os.environ["FACTRL_DATA"], "evidence_corpus", "passages.jsonl.gz").resolve()
            run(folder, f"index {shlex.quote(str(corpus))} --out evidence")
        kept.write_text(run(folder, f"tune {arm.words} --model {model}{probe} --evaluate held.jsonl"))
    return Path(kept.read_text())


def shares(found: Iterable[str | None]) -> str:
    """Right, abstained and wrong of a hundred."""
    counts = Counter(found)
    return " / ".join(f"{counts[label]}" for label in ("correct", "abstained", "incorrect"))


def rows(folder: Path, name: str, place: Path) -> Iterator[str]:
    """A row of the table before training, for an arm that starts from the model as it comes, and after."""
    told: dict[str, Any] = json.loads((folder / place / "evaluation.json").read_text())

    def points(value: dict[str, float]) -> str:
        return f"{100 * value['value']:.1f} [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"

    def row(title: str, when: str, change: str) -> str:
        labels = {one["id"]: one[when]["label"] for one in told["rows"]}
        of_set = [shares(label for name, label in labels.items() if name.startswith(one)) for one in SETS]
        rates = [
            points(told[when][rate]) for rate in ("accuracy", "abstention", "hallucination", "truthfulness")
        ]
        return f"| {' | '.join([title, *rates, change, *of_set])} |"

    if not ARMS[name].start:
        yield row(f"as it comes, asked as for {name}", "before", "")
    yield row(
        f"{ARMS[name].start or 'as it comes'} → {name}", "after", points(told["differences"]["truthfulness"])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--with", dest="arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM"
    )
    told = parser.parse_args()
    told.folder.mkdir(parents=True, exist_ok=True)
    if not (told.folder / "ask.jsonl").exists():
        questions(told.folder)
    places = {name: train(told.folder, name) for name in told.arms}
    sets = " | ".join(f"{name}: right / abstained / wrong" for name in SETS)
    table = [
        f"| from → method | accuracy | abstention | hallucination | truthfulness | its change | {sets} |",
        f"|---|{'--:|' * (5 + len(SETS))}",
        *chain.from_iterable(rows(told.folder, name, place) for name, place in places.items()),
    ]
    sys.stdout.write("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
