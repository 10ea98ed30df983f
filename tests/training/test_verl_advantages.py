"""Advantages, masks and credit under verl are those of our trainer and of TRL, through verl's own code."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from factrl.runs import RECIPES
from factrl.train.advantages import group_advantages, reinforce_pp_advantages
from test_parity_trl import PROMPTS, SIZES, Given, Ours, our_trainer, prepared
from verl_parts import batch_of, composed, imported

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def ours(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ours:
    return our_trainer(tiny_model, tmp_path_factory.mktemp("verl"), shortcuts=False)


@pytest.fixture(scope="module")
def plugin() -> Any:
    return imported("factrl.bridges.verl_plugin")


@pytest.fixture(scope="module")
def compute(plugin: Any) -> Any:
    return imported("verl.trainer.ppo.ray_trainer").compute_advantage


def config(**told: Any) -> Any:
    return imported("omegaconf").OmegaConf.create({"factrl": told})


def test_verl_knows_what_the_plugin_registers(plugin: Any) -> None:
    plugin.check_registered()
    core, v1 = imported("verl.trainer.ppo.core_algos"), imported("verl.trainer.ppo.v1")
    assert core.get_adv_estimator_fn("factrl_grpo") is plugin.group_relative
    assert core.get_adv_estimator_fn("factrl_reinforce_pp") is plugin.reinforce_pp
    assert v1.get_trainer_cls("factrl_sync") is plugin.FactualTrainer


@pytest.mark.slow
def test_a_fresh_process_takes_the_plugin_up(plugin: Any) -> None:
    """As verl's main_ppo needs it; verl itself says nothing where a plugin fails."""
    module = "factrl.bridges.verl_plugin"
    code = f"import verl, {module} as plugin; plugin.check_registered()"
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": module}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("script", sorted(RECIPES.glob("*/verl.sh")), ids=lambda path: path.parent.name)
def test_verls_loader_takes_what_a_script_prints(script: Path, plugin: Any) -> None:
    given = {"DRY": "1", "DATA": "in", "OUT": "/made", "JUDGE": "http://localhost:8000/v1#judge"}
    command = ["bash", str(script)]
    done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=True)
    main = "verl.trainer.main_ppo"
    [words] = [shlex.split(line) for line in done.stdout.splitlines() if main in line]
    told = composed(*words[words.index(main) + 1 :])
    if not told.actor_rollout_ref.model.lora_rank:  # to check an adapter's rank verl wants vLLM
        composed(*words[words.index(main) + 1 :], checked=True)
    assert told.algorithm.adv_estimator in ("factrl_grpo", "factrl_reinforce_pp")
    assert told.trainer.v1.trainer_mode == "factrl_sync"
    assert told.reward.custom_reward_function.path == "pkg://factrl.bridges.verl"
    assert told.data.train_files.startswith("/made/")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_groups_in_any_order_with_masked_samples(plugin: Any, compute: Any, size: int, scale: Any) -> None:
    draw = random.Random(size)
    rewards = [draw.choice((-1.0, 0.0, 0.5, 1.0)) for _ in range(6 * size)]
    for row in draw.sample(range(6 * size), 2 * size):
        rewards[row] = math.nan
    wanted = group_advantages(torch.tensor(rewards), size, scale=scale, epsilon=1e-6)
    order = draw.sample(range(6 * size), 6 * size)
    ids = [[1] * draw.randint(1, 9) for _ in order]
    batch = batch_of(ids, [rewards[row] for row in order], [f"u{row // size}" for row in order])
    batch = pickle.loads(pickle.dumps(batch))  # noqa: S301  as verl sends it to another process
    found = compute(batch, "factrl_grpo", config=config(scale=scale, epsilon=1e-6)).batch
    expected = wanted[order].unsqueeze(1) * found["response_mask"]
    torch.testing.assert_close(found["advantages"], expected, atol=1e-6, rtol=0)
    assert found["advantages"].isfinite().all()


def test_reinforce_pp(plugin: Any, compute: Any) -> None:
    draw = random.Random(2)
    ids = [[1] * draw.randint(1, 9) for _ in range(24)]
    scores = [math.nan if row % 5 == 0 else draw.random() for row in range(24)]
    found = compute(batch_of(ids, scores, ["u"] * 24), "factrl_reinforce_pp", config=config()).batch
    wanted = reinforce_pp_advantages(torch.tensor(scores), torch.tensor([len(row) for row in ids]))
    torch.testing.assert_close(found["advantages"], wanted.unsqueeze(1) * found["response_mask"])


@pytest.mark.parametrize("size", SIZES)
def test_credit_is_that_of_our_trainer(plugin: Any, compute: Any, ours: Ours, size: int) -> None:
    """With masked rows; advantages without spans are compared in `test_parity_trl` and `test_parity_verl`."""
    given = Given(size, 8, masked=min(size // 3, size - 2), spans=True)
    scores = [math.nan if value is None else value for value in given.values]
    batch = batch_of(given.ids, scores, [str(row // size) for row in range(PROMPTS * size)])
    verls = compute(batch, "factrl_grpo", config=config(scale="group", epsilon=1e-6)).batch
    signs = torch.zeros_like(verls["response_mask"])
    texts = [words_of(ours.text_tokenizer, ids) for ids in given.ids]
    for row, result in enumerate(given.results(texts)):
        spans = json.dumps([(span.start, span.end, span.sign) for span in result.spans])
        found = imported("factrl.bridges.verl_agent").signs_of(given.ids[row], spans, ours.text_tokenizer)
        signs[row, : len(found)] = found
    rewards, mask = batch.batch["token_level_rewards"], verls["response_mask"]
    found, kept = plugin.credited(verls["advantages"], mask, rewards, signs)
    mine = prepared(ours, given)
    kept_by_us = mine["completion_mask"].float()
    torch.testing.assert_close(kept, kept_by_us)
    wanted = mine["advantages"] if mine["advantages"].dim() == 2 else mine["advantages"].unsqueeze(1)
    torch.testing.assert_close(found * kept, wanted * kept_by_us, atol=1e-6, rtol=0)


def test_metrics_of_scores_leave_masked_samples_out(plugin: Any) -> None:
    told = plugin.score_metrics(torch.tensor([1.0, math.nan, -1.0, 0.5]))
    assert (told["critic/score/mean"], told["critic/rewards/max"]) == (pytest.approx(0.5 / 3), 1.0)
    assert plugin.score_metrics(torch.tensor([math.nan])) == {}


class Server:
    """Says the same tokens whatever it is asked, in place of vLLM."""

    def __init__(self, ids: list[int]) -> None:
        self.ids, self.asked = ids, []

    async def generate(self, **told: Any) -> Any:
        self.asked.append(told["prompt_ids"])
        output = imported("verl.workers.rollout.replica").TokenOutput
        return output(token_ids=self.ids, log_probs=[-0.5] * len(self.ids))


def sampled(
    tiny_model: Path, ids: list[int], prefill: str, thinks: str = "", chat: bool = True
) -> tuple[Any, Any, Server, Any]:
    """What the agent loop makes of the given tokens."""
    import asyncio

    from transformers import AutoTokenizer

    loops = imported("verl.experimental.agent_loop.agent_loop")
    agent = imported("factrl.bridges.verl_agent")
    told = composed("data.max_prompt_length=32", "data.max_response_length=5")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    if thinks:
        tokenizer.chat_template += thinks

    async def run() -> tuple[Any, Server]:
        server = Server(ids)
        loop = agent.FactualAgentLoop(
            trainer_config=loops.DictConfigWrap(told),
            server_manager=server,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=object,
            data_config=loops.DictConfigWrap(told.data),
            prefill=prefill,
            chat=chat,
        )
        messages = [{"role": "user", "content": "where is ada from ?"}]
        return await loop.run({}, raw_prompt=messages), server

    output, server = asyncio.run(run())
    return output, tokenizer, server, agent


@pytest.mark.parametrize("prefill", ["", "ada"])
def test_the_agent_loop_writes_a_sign_for_every_token(plugin: Any, tiny_model: Path, prefill: str) -> None:
    output, tokenizer, server, agent = sampled(tiny_model, [3, 4, 5, 2], prefill)
    assert words_of(tokenizer, server.asked[0]).endswith(f"is {prefill}".strip())
    said = output.extra_fields["factrl_written"]
    assert (said.truncated, said.tokens, said.prefill) == (False, 3, prefill)
    assert said == tokenizer.decode([3, 4, 5])
    output.reward_score = 1.5
    first = tokenizer.decode([3])
    spans = [[0, len(first), -1], [len(first) + 1, len(first) + 3, 1]]
    output.extra_fields["reward_extra_info"] = {"spans": json.dumps(spans)}
    columns = output.as_dict()
    assert columns[agent.SIGNS].tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert columns["rm_scores"].tolist() == [0.0, 0.0, 0.0, 1.5]
    assert columns["rollout_log_probs"].tolist() == [-0.5] * 4
    assert agent.SIGNS == plugin.SIGNS


def test_the_reward_knows_a_block_that_the_chat_template_opens(plugin: Any, tiny_model: Path) -> None:
    output, *_ = sampled(tiny_model, [3, 4, 2], "", thinks="<think>\n")
    assert output.extra_fields["factrl_written"].prefill.strip() == "<think>"


def test_a_base_model_is_asked_without_a_chat_template(plugin: Any, tiny_model: Path) -> None:
    _, tokenizer, server, _ = sampled(tiny_model, [3, 4, 2], "ada", chat=False)
    assert words_of(tokenizer, server.asked[0]) == "where is ada from ? ada"


def test_a_completion_at_the_limit_was_cut(plugin: Any, tiny_model: Path) -> None:
    output, *_ = sampled(tiny_model, [3, 4, 5, 6, 7], "")
    said = output.extra_fields["factrl_written"]
    assert (said.truncated, said.tokens, said.prefill) == (True, 5, "")
    assert output.as_dict()["factrl_signs"].tolist() == [0.0] * 5  # a column for all, spans or none


def words_of(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)
