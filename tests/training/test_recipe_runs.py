"""Steps of `run.sh` by a tiny model and a stub judge over HTTP: killed twice, gone on with, and called again.

One step of each kind, as a paper has fifty.  KLCF and factreason are tried step by step with files of
their own in `tests/recipes`: they take three models, two indexes, a search engine and VeriScore's program.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import word_tokenizer

from commands import write
from factrl.runs import RECIPES
from fault_server import FaultServer, replies

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL"),
]
STEPS = {
    "truthrl": "eval/base crag/base known sft dpo ternary",
    "knowrl": "sft samples pairs/dpo.jsonl dpo knowrl",
    "fspo": "fspo held-out/fspo steps/fspo.jsonl",
}
SAID = {
    "rome": "<think>Rome is in Italy.</think><answer>Rome is in Italy. \\boxed{rome}</answer>",
    "oslo": "<think>Oslo is in Italy.</think><answer>Oslo is in Italy. \\boxed{oslo}</answer>",
    "nobody": "<think>I cannot tell.</think><answer>\\boxed{I don't know}</answer>",
}
EVIDENCE = "Rome is a city in Italy."
ROW: dict[str, Any] = {  # whatever a step of any paper reads
    **{"question": "Which city is in Italy?", "answers": ["rome"], "topic": "Rome", "title": "Rome"},
    **{"evidence": [EVIDENCE], "checklist": [EVIDENCE], "completion": SAID["rome"], "response": SAID["oslo"]},
    **{"claim": EVIDENCE, "label": "supported", "claims": [EVIDENCE], "chosen": SAID["rome"]},
    **{"rejected": SAID["oslo"], "question_type": "comparison"},
}
TRAIN = (
    "train.steps=2 train.prompts_per_step=2 train.num_generations=4 train.micro_batch_size=2 "
    "train.save_steps=1 train.max_completion_length=2 train.gradient_checkpointing=false "
    "train.bf16=false train.use_vllm=false"
)
TUNE = (
    "train.steps=2 train.prompts_per_step=2 train.micro_batch_size=2 train.save_steps=1 "
    "train.gradient_checkpointing=false train.bf16=false"
)


def judge(message: str) -> str:
    """What a judge says to any of factrl's prompts: what speaks of Rome is right."""
    asked, _, told = message.rpartition("DATA")
    said = re.findall(r'"(?:answer|reply|reasoning|response|claim|\w+_answer)": "((?:[^"\\]|\\.)*)"', told)
    right = "rome" in " ".join(said or [message]).lower()
    if "consistent" in asked:
        ids = re.findall(r'"id": "(\w+)"', told)
        return "\n".join(
            f'{{"id": "{one}", "verdict": "{"consistent" if right else "missing"}"}}' for one in ids
        )
    if verdicts := [*dict.fromkeys(re.findall(r"VERDICT: (\w+)", asked))]:
        return f"Because.\nVERDICT: {verdicts[0 if right else -1]}"
    if "###" in message:
        return f"###{'Supported' if right else 'Not Supported'}.###"
    return str(right) if "True or False" in message else f"- {EVIDENCE}"


def save_speaker(folder: Path) -> None:
    """A model that, whatever it is asked, says one of `SAID` and ends."""
    tokens: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    tokenizer = word_tokenizer([*tokens.values(), *SAID.values()], **tokens)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + ' ' }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    config = LlamaConfig(
        vocab_size=6, max_position_embeddings=4096, tie_word_embeddings=False, **shape, **ids
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()  # a layer adds nothing: the next token depends on the last one alone
        model.get_input_embeddings().weight.copy_(torch.eye(6, 8))
        head = torch.zeros(6, 8)
        head[3:, :3] = 10  # after anything else one of the texts,
        head[2, 3:] = 10  # and after a text the end
        model.get_output_embeddings().weight.copy_(head)
    model.save_pretrained(folder)


def files_of(script: Path, environment: dict[str, str]) -> list[str]:
    """What the steps read of DATA, by their words."""
    shown = subprocess.run(
        ["bash", str(script)], env={**environment, "DRY": "1"}, capture_output=True, text=True, check=True
    )
    data = re.escape(environment["DATA"])
    return sorted({*re.findall(rf"{data}/([^\s'\"]+)", shown.stdout)})


def make_files(folder: Path, names: list[str]) -> None:
    """Files of rows, and an index where a name has no ending."""
    from factrl.verifier.search import Index

    (folder / "facts.txt").write_text(EVIDENCE, encoding="utf-8")
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            write(path, *({**ROW, "id": f"{path.stem}-{number}"} for number in range(4)))
        elif not path.suffix and not path.exists():
            Index.build(path, [folder / "facts.txt"])


def whole(out: Path) -> dict[str, str]:
    """The digest of every result: models, answers and numbers."""
    kept = ("model.safetensors", "samples.jsonl", "results.json")
    paths = [
        path for path in out.rglob("*") if path.is_file() and str(path).endswith((*kept, ".json", ".jsonl"))
    ]
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if "checkpoints" not in path.parts
    }


@pytest.mark.parametrize("paper", STEPS)
def test_a_script_that_was_killed_twice_goes_on_and_does_nothing_twice(paper: str, tmp_path: Path) -> None:
    script, chosen = RECIPES / paper / "run.sh", STEPS[paper].split()
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    save_speaker(tmp_path / "speaker")
    with FaultServer(replies(judge)) as server:
        url = f"{server.url}#judge"
        environment = {
            **os.environ,
            **{"DATA": str(data), "OUT": str(out), "MODEL": str(tmp_path / "speaker"), "JUDGE": url},
            **dict.fromkeys(("BASE", "TEACHER", "RANK", "POLICY"), url),
            "VERIFIER": f"verifier.judge=llm judge.url={url}",
            **{"TRAIN": TRAIN, "TUNE": TUNE, "EVAL": "train.max_completion_length=2"},
            **{"FACTRL_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        make_files(data, files_of(script, environment))
        shown = subprocess.run(
            ["bash", str(script), *chosen],
            env={**environment, "DRY": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        steps = shown.stdout.splitlines()

        def run(kill_in: str = "") -> int:
            """The exit code; killed when the step's line is there and it has had a moment."""
            with subprocess.Popen(
                ["bash", str(script), *chosen],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if kill_in and line.startswith(f"{kill_in}: "):
                        with pytest.raises(subprocess.TimeoutExpired):
                            process.wait(4)
                        os.killpg(process.pid, signal.SIGKILL)
                        return process.wait()
            return process.wait()

        names = [line.partition(": ")[0] for line in steps]
        trained = [
            name for name, line in zip(names, steps, strict=True) if re.search(r"factrl t(rain|une) ", line)
        ]
        for name in (trained[0], trained[-1]):
            assert run(kill_in=name) == -signal.SIGKILL
        assert run() == 0
        before, asked = whole(out), len(server.requests)
        for name in trained:
            assert any(one.startswith(f"{name}/model/") for one in before), name
        assert run() == 0
        assert whole(out) == before
        again = [json.dumps(one.body) for one in server.requests[asked:]]
        assert not [one for one in again if "Italy" in one], "a judge was asked twice"
