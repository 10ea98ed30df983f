"""A small model with a passage in the prompt: what retrieval and declining change, by factrl's own commands.

    FACTRL_DATA=DIR python benchmarks/passages.py WORK_FOLDER

TriviaQA and NQ-open, one BM25 passage of the evidence corpus each; `helps` says whether it holds an accepted
answer.  SmolLM2-135M-Instruct learns the form from 400 questions, a fifth of whose answers is "I don't know"
where the passage does not help, and takes `STEPS` steps under the binary and the ternary reward.  200 others
are held out.  Prints each command, and the tables of `factrl eval --by helps`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from factrl.prepare.dataset import write_rows
from factrl.runs.rows import read_rows

MODEL, STEPS, WARM, HELD_OUT = "SmolLM2-135M-Instruct", 10, 400, 200
PROMPT = "<|im_start|>user\n{evidence}\n\n{question}<|im_end|>\n<|im_start|>assistant\n"
SHORT = ("reward.answer=text", "train.max_completion_length=12", "train.micro_batch_size=8")
LEARNT = ("train.prompts_per_step=8", "train.lr_scheduler_type=linear", "train.weight_decay=0.0")
TAUGHT = ("train.learning_rate=5e-5",)
GRPO = ("train.learning_rate=2e-5", "train.num_generations=8", "train.loss_type=dr_grpo")


def factrl(*words: object) -> str:
    """The last line that a command prints; what it shows goes to the terminal."""
    line = ["factrl", *map(str, words)]
    sys.stdout.write("$ " + " ".join(line) + "\n")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", *line], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    sys.stdout.write(done.stdout)
    return done.stdout.strip().rpartition("\n")[2]


def main() -> None:
    folder, data = Path(sys.argv[1]), Path(os.environ["FACTRL_DATA"])
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {name: row[name] for name in ("id", "question", "answers")}
        for name in ("triviaqa_1k", "nq_open")
        for row in read_rows(str(data / name / "test.jsonl"))
    ]
    random.Random(0).shuffle(rows)
    write_rows(folder / "asked.jsonl", rows)
    factrl("index", data / "evidence_corpus/passages.jsonl.gz", "--out", folder / "index")
    found = folder / "found.jsonl"
    words = (folder / "asked.jsonl", "--index", folder / "index", "--k", 1, "--output", found)
    factrl("prepare", "retrieve", *words)
    shown, draw = [dict(row) for row in read_rows(str(found))], random.Random(1)
    held_out, warm, train = shown[:HELD_OUT], shown[HELD_OUT : HELD_OUT + WARM], shown[HELD_OUT + WARM :]
    for row in warm:
        if not row["helps"] and draw.random() < 0.2:
            row["answers"] = ["I don't know"]
    for name, some in (("held_out", held_out), ("warm", warm), ("train", train)):
        write_rows(folder / f"{name}.jsonl", some)

    said = (f"data.prompt={PROMPT}", *SHORT)

    def evaluated(name: str, model: object) -> None:
        words = (folder / "held_out.jsonl", "--model", model, "--by", "helps", "--output", folder / name)
        factrl("eval", *words, *said)

    evaluated("untouched", MODEL)
    kept = ("--output", folder / "runs", *said, *LEARNT)
    start = factrl("tune", "sft", folder / "warm.jsonl", "--model", MODEL, "train.steps=30", *kept, *TAUGHT)
    evaluated("start", f"{start}/model")
    for arm in ("binary", "ternary"):
        words = ("--data", folder / "train.jsonl", "--model", f"{start}/model", f"train.steps={STEPS}")
        evaluated(arm, factrl("train", f"truthrl:{arm}", *words, *kept, *GRPO) + "/model")


if __name__ == "__main__":
    main()
