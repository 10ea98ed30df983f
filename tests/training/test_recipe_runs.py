"""`run.sh` of every paper by a tiny model and a judge over HTTP: killed twice, gone on with, called again.

Every line of each script, and with -s what became of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import programs
from scripts import VERISCORE
from tiny import word_tokenizer

import factrl
from commands import write
from factrl.evals.catalogue import benchmarks
from factrl.runs import RECIPES
from fault_server import FaultServer, Handler, answers, replies

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]
SAID = {
    "rome": "<think>Rome is in Italy.</think><answer>Rome is in Italy. \\boxed{rome}</answer>",
    "oslo": "<think>Oslo is in Italy.</think><answer>Oslo is in Italy. \\boxed{oslo}</answer>",
    "nobody": "<think>I cannot tell.</think><answer>\\boxed{I don't know}</answer>",
}
EVIDENCE = ("Rome is a city in Italy.", "Oslo is a city in Norway.")
ROW: dict[str, Any] = {  # whatever a step of any paper reads
    **{"question": "Which city is in Italy?", "answers": ["rome"], "topic": "Rome", "title": "Rome"},
    **{
        "evidence": [*EVIDENCE],
        "checklist": [EVIDENCE[0]],
        "completion": SAID["rome"],
        "response": SAID["oslo"],
    },
    **{"claim": EVIDENCE[0], "label": "supported", "claims": [EVIDENCE[0]], "chosen": SAID["rome"]},
    **{"rejected": SAID["oslo"], "question_type": "comparison"},
    **{"items": [EVIDENCE[0]], "hallucinated_answer": "oslo"},
}
TRAIN = (
    "train.steps=3 train.prompts_per_step=2 train.num_generations=4 train.micro_batch_size=2 "
    "train.save_steps=1 train.max_completion_length=2 train.gradient_checkpointing=false "
    "train.bf16=false train.use_vllm=false"
)
TUNE = (
    "train.steps=3 train.prompts_per_step=2 train.micro_batch_size=2 train.save_steps=1 "
    "train.gradient_checkpointing=false train.bf16=false"
)


def judge(message: str) -> str:
    """What a model says to any of factrl's prompts; what speaks of Rome is right."""
    asked, mark, told = message.rpartition("\nDATA ")
    if not mark:
        return "- Is it?" if message.endswith("Questions:") else "Rome is in Italy. Oslo is in Italy."
    data = json.loads(told.split("\n")[1])
    lists = [(name, data[name]) for name in ("claims", "facts", "items") if isinstance(data.get(name), list)]
    written = re.compile("(?!accepted).*(answer|reply|reasoning|response|claim)")
    said = [value for name, value in data.items() if written.match(name)]
    right = "rome" in str(said or data).lower()
    for name, items in lists:
        words = {"claims": ("supported", "refuted"), "facts": ("keep",), "items": ("consistent", "missing")}
        named = [(one["id"], right if name == "items" else "Rome" in str(one)) for one in items]
        verdicts = [(id_, words[name][0 if true else -1], EVIDENCE[not true]) for id_, true in named]
        return "\n".join(json.dumps({"id": i, "quote": q, "verdict": v}) for i, v, q in verdicts)
    if verdicts := [*dict.fromkeys(re.findall(r"VERDICT: (Not \w+|\w+)", asked))]:
        return f"Because.\nVERDICT: {verdicts[0 if right else -1]}"
    return "\n".join(f"- {one}" for one in re.findall(r"\w+ is in Italy\.", told)) or "No verifiable claim."


def save_models(folder: Path, name: str) -> Path:
    """A model that, whatever it is asked, says one of `SAID` and ends; and `rater`, a reward model."""
    tokens: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    tokenizer = word_tokenizer([*tokens.values(), *SAID.values(), "True", "False"], **tokens)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}"
    for one in (name, "rater"):
        tokenizer.save_pretrained(folder / one)
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    config = LlamaConfig(
        vocab_size=8, max_position_embeddings=4096, tie_word_embeddings=False, num_labels=1, **shape, **ids
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for place, weight in model.named_parameters():
            if place.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()  # a layer adds nothing: the next token depends on the last one alone
        model.get_input_embeddings().weight.copy_(torch.eye(8))
        head = torch.zeros(8, 8)
        head[3:6, :3] = 10  # after anything else one of the texts,
        head[2, 3:6] = 10  # and after a text the end
        model.get_output_embeddings().weight.copy_(head)
    model.save_pretrained(folder / name)
    LlamaForSequenceClassification(config).save_pretrained(folder / "rater")
    return folder / name


def make_files(folder: Path, names: Sequence[str], shown: str) -> None:
    """What the printed steps read: files of rows, an index where a name has no ending, and test sets."""
    from factrl.verifier.search import Index

    (folder / "Rome.txt").write_text(" ".join(EVIDENCE), encoding="utf-8")
    words = {*shown.split()}
    known = [one.local.partition(".")[0] + ".jsonl" for name, one in benchmarks().items() if name in words]
    for name in [*names, *known]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            asked = "Which city, said {}, is in Italy?"
            numbered = ({"id": f"{path.stem}-{n}", "question": asked.format(n)} for n in range(4))
            write(path, *({**ROW, **one} for one in numbered))
        elif path.suffix == ".toml":
            path.write_text('[data]\nchat = false\nprompt = "{question}"\n', encoding="utf-8")
        elif not path.exists():
            Index.build(path, [folder / "Rome.txt"])


def whole(out: Path) -> dict[str, str]:
    """The digest of every result: models, answers and numbers."""
    paths = [path for path in out.rglob("*") if path.suffix in (".safetensors", ".json", ".jsonl")]
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if "checkpoints" not in path.parts
    }


def served(handler: Handler) -> None:
    """A judge, and what a search finds."""
    found = {"organic": [{"snippet": " ".join(EVIDENCE), "title": "Rome", "link": "https://rome.test"}]}
    (answers(200, found) if handler.asked.path.endswith("/search") else replies(judge))(handler)


@pytest.mark.parametrize("script", sorted(RECIPES.glob("*/run.sh")), ids=lambda path: path.parent.name)
def test_a_script_that_was_killed_twice_goes_on_and_does_nothing_twice(script: Path, tmp_path: Path) -> None:
    data, out, log = tmp_path / "data", tmp_path / "out", tmp_path / "log"
    for folder in ("data", "programs", "veriscore"):
        (tmp_path / folder).mkdir()
    (tmp_path / "veriscore" / "veriscore.py").write_text(VERISCORE, encoding="utf-8")
    named = re.search(r"\$\{MODEL:-.*?/(.*?)\}", script.read_text("utf-8"))
    model = save_models(tmp_path, named[1] if named else "")  # so that `factrl report` finds the paper's row
    environment = {
        **os.environ,
        **{"DATA": str(data), "OUT": str(out), "REWARD": str(tmp_path / "rater")},
        **dict.fromkeys(("MODEL", "SFT", "INSTRUCT"), str(model)),
        **{"VERISCORE": str(tmp_path), "PYTHON": sys.executable, "BETA": "0.1", "EXISTING": ""},
        **{"TRAIN": TRAIN, "TUNE": TUNE, "EVAL": "train.max_completion_length=2"},
        **{"FACTRL_DATA": str(data), "FACTRL_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
        **{"OMP_NUM_THREADS": "1", "SERPER_API_KEY": "k"},
        "PYTHONPATH": str(Path(factrl.__file__).parents[1]),
    }
    with (
        FaultServer(served) as server,
        programs(tmp_path / "programs", **environment) as folder,
    ):
        url = f"{server.url}#judge"
        servers = ("JUDGE", "BASE", "TEACHER", "RANK", "PREFERENCE", "EXTRACTOR", "CHECKER")
        environment |= {**dict.fromkeys(servers, url), "WEB": server.url}
        environment |= {"VERIFIER": f"verifier.judge=llm judge.url={url}"}
        environment |= {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        command, printed = ["bash", str(script)], {**environment, "DRY": "1"}
        shown = subprocess.run(command, env=printed, capture_output=True, text=True, check=True).stdout
        make_files(data, sorted({*re.findall(rf"{re.escape(str(data))}/([^\s'\"]+)", shown)}), shown)
        steps = [line.partition(": ")[::2] for line in shown.splitlines()]
        trained = [name for name, words in steps if re.search(r"factrl t(rain|une) ", words)]

        def run(kill_in: str = "") -> int:
            """The exit code; killed after a training's first step."""
            begun = out / kill_in / "checkpoints" / "checkpoint-1" / "complete"
            with (
                log.open("ab") as to,
                subprocess.Popen(
                    command, env=environment, stdout=to, stderr=to, start_new_session=True
                ) as process,
            ):
                while kill_in and process.poll() is None and not begun.exists():
                    time.sleep(0.01)
                if kill_in and process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
            return process.returncode

        def end() -> str:
            return log.read_text("utf-8")[-3000:]

        killed = [trained[len(trained) // 3], trained[2 * len(trained) // 3]]
        for name in killed:
            assert run(kill_in=name) == -signal.SIGKILL, end()
            assert not (out / name / "done.json").exists()
        assert run() == 0, end()
        before, asked = whole(out), len(server.requests)
        for name, _ in steps:
            assert any(one == name or one.startswith(f"{name}/") for one in before), name
        for name in trained:
            assert any(re.fullmatch(rf"{re.escape(name)}/model/\w+\.safetensors", one) for one in before), (
                name
            )
        assert run() == 0, end()
        assert whole(out) == before
        again = [json.dumps(one.body) for one in server.requests[asked:]]
        assert not [one for one in again if "Italy" in one], "a judge was asked twice"
    sys.stdout.write(
        f"{script.parent.name}: {len(steps)} steps, {len(trained)} of them trainings; killed in "
        f"{' and '.join(killed)}; {len(before)} files, {asked} requests; called again: the same files, "
        "nothing asked\n"
    )
