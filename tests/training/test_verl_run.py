"""recipes/truthrl/verl.sh on two CPU cores: verl's `main_ppo`, Ray, FSDP2, two ranks, and our trainer."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import factrl
from commands import write
from factrl.cli import main
from factrl.runs.folder import read_metrics
from factrl.runs.rows import read_lines
from factrl.train.page import write_run_page
from verl_parts import imported

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

OWN = """
from factrl import Score, Span, Unscored, reward

class Groups:
    def __call__(self, completion):
        return 1

    def answer_together(self, calls):
        return [len(calls)] * len(calls)

@reward
def words(example, completion, *, groups):
    together = groups(completion)
    if "oslo" in completion or example.id in {masked}:
        raise Unscored("timeout", "no reply")
    ends = len(completion.split(" ")[0])
    return Score(
        {{"right": float(example.answers[0] in completion), "words": len(completion.split()) / 8}},
        (Span(0, ends, -1),),
        facts={{"label": "incorrect", "together": together}},
    )

words = words.with_(groups=Groups())

@reward
def broken(example, completion):
    return {{"right": 1 / 0}}
"""
CORES = {
    "VERL_PLATFORM": "cores",
    "VERL_ENGINE_DEVICE": "cuda",  # verl registers its FSDP engine for cuda and npu alone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "VERL_USE_EXTERNAL_MODULES": "verl_cores,verl_transformers,factrl.bridges.verl_plugin",
    "OMP_NUM_THREADS": "1",
    "RAY_worker_niceness": "0",  # its 15 is too polite where other work runs beside
    "PYTHONPATH": os.pathsep.join(
        [
            str(Path(__file__).parent),
            str(Path(factrl.__file__).parents[1]),
            os.environ.get("PYTHONPATH", ""),
        ]
    ),
}
WORDS = (
    "actor_rollout_ref.model.use_remove_padding=false",  # without flash-attn
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    # Its default of 8 was seen to hang where Ray has fewer CPUs than they and workers take.
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "actor_rollout_ref.rollout.name=transformers",
    "actor_rollout_ref.rollout.free_cache_engine=false",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.ref.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.ref.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.ref.use_torch_compile=false",
    "reward.num_workers=1",
    "trainer.device=cpu",
    "trainer.logger=[console,file]",
    "trainer.n_gpus_per_node=2",
    "+ray_kwargs.ray_init.num_gpus=2",  # places for a rank
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.include_dashboard=false",
    "+ray_kwargs.ray_init._node_ip_address=127.0.0.1",
)


VERL_SH = Path(factrl.__file__).parent / "recipes" / "truthrl" / "verl.sh"
KWARGS = "++reward.custom_reward_function.reward_kwargs"


@pytest.fixture
def cores(tmp_path: Path) -> Path:
    """The folder of this test; skips where verl is not whole."""
    imported("factrl.bridges.verl_plugin")
    return tmp_path


def run_script(folder: Path, model: Path, questions: Path, *words: str, **more: str) -> int:
    """The exit code of verl.sh with verl on CPU cores.

    An environment for verl has no trl; what the trl of this one lacks is mended in `verl_transformers`.
    """
    for name in ("train", "crag"):
        (folder / f"{name}.jsonl").write_bytes(questions.read_bytes())
    files = {"FACTRL_TEST_WEIGHTS": "weights.jsonl", "VERL_FILE_LOGGER_PATH": "verl.jsonl"}
    environment: Mapping[str, str] = {
        **os.environ,
        **CORES,
        **{name: str(folder / file) for name, file in files.items()},
        **{"DATA": str(folder), "OUT": str(folder), "MODEL": str(model), "RETRIEVAL": "no"},
        **{"JUDGE": "http://localhost:1/v1#judge", "GPUS": "2", "TRAIN": "train.prompts_per_step=1"},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **more,
    }
    sizes = ("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    sizes += ("actor_rollout_ref.rollout.n=4", "actor_rollout_ref.rollout.tensor_model_parallel_size=1")
    command = ["bash", str(VERL_SH), "ternary", *WORDS, *sizes, *words]
    return subprocess.run(command, env=environment).returncode


def trained(folder: Path, model: Path, questions: Path, reward: str, steps: int) -> int:
    """The exit code of verl with a reward of this test's."""
    (folder / "own.py").write_text(OWN.format(masked=["ada"]), encoding="utf-8")
    run = folder / "verl-ternary"
    run.mkdir(exist_ok=True)
    for name, more in (("train", []), ("eval", ["data.split=test"])):  # the prompt is the question alone
        if not (run / f"{name}.parquet").exists():
            asked = ["--to", "verl", "--output", str(run / f"{name}.parquet"), "data.prompt={question}"]
            assert main(["prepare", "convert", str(questions), *asked, *more]) == 0
    words = (
        f"{KWARGS}.settings='paper={folder}/own.py:{reward} verifier.share=true'",
        *(f"{KWARGS}.group=4", "++algorithm.factrl.max_masked_share=1.0"),
        *("data.max_prompt_length=32", "data.max_response_length=6"),
        *("actor_rollout_ref.actor.kl_loss_coef=0.01", "actor_rollout_ref.actor.optim.lr=0.01"),
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        *("trainer.save_freq=1", "trainer.test_freq=1", "trainer.total_epochs=9"),
        f"trainer.total_training_steps={steps}",
    )
    return run_script(folder, model, questions, *words)


def test_verl_trains_and_goes_on(cores: Path, tiny_model: Path, questions: Path) -> None:
    """Two steps, then a third from the checkpoint: masked rows, spans and KL, in files that factrl reads."""
    from transformers import AutoModelForCausalLM

    assert trained(cores, tiny_model, questions, "words", steps=2) == 0
    run = cores / "verl-ternary"
    assert trained(cores, tiny_model, questions, "words", steps=3) == 0

    weights = [*read_lines(cores / "weights.jsonl")]
    by_step: dict[int, set[str]] = {}
    for one in weights:
        by_step.setdefault(one["step"], set()).add(one["weights"])
    assert [len(by_step[step]) for step in range(4)] == [1, 1, 1, 1]  # both servers have the same
    assert len(set.union(*by_step.values())) == 4  # and others after each step

    logged = read_metrics(run)
    steps: list[dict[str, Any]] = [row for row in logged if "loss" in row]
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert steps[-1]["kl"] > 0
    assert sum(row["reward/masked_frac"] for row in steps) > 0
    assert sum(row["credit/flipped"] for row in steps) > 0
    assert all(math.isfinite(row["reward"]) for row in steps)
    for row in [*read_lines(cores / "verl.jsonl")]:
        verls = row["data"]
        # The first step on a batch is on the policy: the loss is the mean advantage of its kept tokens.
        assert verls["actor/pg_loss"] == pytest.approx(-verls["critic/advantages/mean"], abs=1e-5)
        assert all(math.isfinite(value) for name, value in verls.items() if name.startswith("val-"))
    held_out = [row for row in logged if "eval/reward" in row]
    assert [row["step"] for row in held_out] == [1, 2, 3]
    assert all(row["eval/masked"] >= 1 / 8 for row in held_out)
    assert all(math.isfinite(row["eval/reward"]) for row in held_out)
    rows = [row for path in sorted(run.glob("rollouts/*.parquet")) for row in pq.read_table(path).to_pylist()]
    together = {json.loads(row["facts"]).get("together") for row in rows if row["state"] == "scored"}
    assert together == {4}  # the completions of a question were graded as one batch
    page = write_run_page(run).read_text("utf-8")
    assert "timeout" in page

    (saved,) = run.glob("checkpoints/global_step_3/actor/huggingface")
    AutoModelForCausalLM.from_pretrained(saved)


TEMPLATE = """
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}
<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def call(query: str) -> str:
    told = json.dumps({"name": "search", "arguments": {"query": query}})
    return f"<tool_call>{told}</tool_call>"


SAYS = (
    (call("ada home"), r"ada is from rome [1]. \boxed{rome}"),
    (call("nowhere"), r"\boxed{lima}"),
    (call("bo home"), r"\boxed{oslo}"),
    (r"\boxed{I don't know}",),
)


def test_verl_trains_a_policy_that_searches(cores: Path) -> None:
    """What is shown is read and not learnt, the last message is graded, and a search that fails is masked."""
    from tiny import byte_tokenizer, save_llama

    from factrl.verifier.search import Index

    marks = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    fast = byte_tokenizer(marks, pad_token=marks[0], eos_token=marks[2])
    fast.chat_template = TEMPLATE
    model = save_llama(cores / "speaker", fast, 8192)
    (cores / "facts.txt").write_text("ada is from rome.", encoding="utf-8")
    Index.build(cores / "wiki", [cores / "facts.txt"])
    asked = write(cores / "asked.jsonl", {"question": "where is ada from ?", "answers": ["rome"]})
    loop = {"name": "factrl_agent", "_target_": "factrl.bridges.verl_agent.SearchAgentLoop"}
    loop |= {"index": str(cores / "wiki"), "embedder": "", "k": 1, "turns": 2}
    (cores / "search.yaml").write_text(json.dumps([loop]), encoding="utf-8")
    words = (
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={cores}/search.yaml",
        f"{KWARGS}.settings='paper=truthrl'",
        *("++algorithm.factrl.max_masked_share=1.0", "actor_rollout_ref.actor.use_kl_loss=false"),
        *("data.max_prompt_length=2048", "data.max_response_length=600", "data.train_batch_size=1"),
        *("actor_rollout_ref.actor.ppo_mini_batch_size=1", "trainer.total_training_steps=1"),
        *("actor_rollout_ref.actor.loss_agg_mode=token-mean", "trainer.n_gpus_per_node=1"),
        *("trainer.test_freq=-1", "trainer.save_freq=-1"),
    )
    assert run_script(cores, model, asked, *words, FACTRL_TEST_SAYS=json.dumps(SAYS)) == 0
    [file] = (cores / "verl-ternary").glob("rollouts/*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert len(rows) == len(SAYS)
    lost, own = 0.0, 0
    for row in rows:
        [script] = [one for one in SAYS if one[-1] in row["completion"]]
        wrote = sum(len(turn.encode()) + 1 for turn in script)  # and an end
        assert ("[1] {" in row["completion"]) == (script in (SAYS[0], SAYS[2]))
        assert row["cause"] == ("search_failed" if script == SAYS[1] else None)
        if row["state"] != "masked":
            lost, own = lost - row["advantage"] * wrote, own + wrote
    [logged] = [*read_lines(cores / "verl.jsonl")]
    assert logged["data"]["actor/pg_loss"] == pytest.approx(lost / own, abs=1e-5)
    [step] = [row for row in read_metrics(cores / "verl-ternary") if "loss" in row]
    assert (step["reward/masked_frac"], step["reward"]) == (0.25, 0.0)


def test_a_reward_that_raises_ends_the_run(
    cores: Path, tiny_model: Path, questions: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert trained(cores, tiny_model, questions, "broken", steps=2) != 0
    out, err = capfd.readouterr()
    assert "RewardBug" in out + err
    assert "broken" in out + err
    assert "ZeroDivisionError" in out + err
