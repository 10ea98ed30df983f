"""verl's reward loop and its trainer's data path on a Ray cluster of this machine, without a GPU."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from factrl.train.advantages import flip_advantages, group_advantages
from verl_parts import composed, imported

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ROWS, GROUP = 256, 8
OWN = """
from factrl import Score, Span, Unscored, reward

@reward
def words(example, completion):
    if len(completion.split()) == 3:
        raise Unscored("timeout", "no reply")
    ends = len(completion.split(" ")[0])
    return Score({"right": float(example.answers[0] in completion)}, (Span(0, ends, 1),))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Sixteen CPUs on paper, which verl's queue wants, and few processes."""
    imported("factrl.bridges.verl_plugin")
    ray = pytest.importorskip("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(
        num_cpus=16,
        object_store_memory=80 << 20,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _system_config={"prestart_worker_first_driver": False, "enable_worker_prestart": False},
    )
    yield ray
    ray.shutdown()


def texts(model: Path) -> tuple[Any, list[list[int]]]:
    """Completions of one to six words and an end."""
    from transformers import AutoTokenizer

    draw = random.Random(0)
    return AutoTokenizer.from_pretrained(model), [
        [*draw.choices(range(3, 15), k=draw.randint(1, 6)), 2] for _ in range(ROWS)
    ]


def test_the_reward_loop_scores_a_batch(cluster: Any, tiny_model: Path, tmp_path: Path) -> None:
    """256 completions, two workers, and advantages that leave the masked ones out."""
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    tokenizer, ids = texts(tiny_model)
    config = composed(
        f"actor_rollout_ref.model.path={tiny_model}",
        "reward.num_workers=2",
        "reward.custom_reward_function.path=pkg://factrl.bridges.verl",
        f"+reward.custom_reward_function.reward_kwargs.paper='{tmp_path}/own.py:words'",
    )
    loop = imported("verl.experimental.reward_loop.reward_loop").RewardLoopManager(config)
    batch = batch_for_rewards(ids)
    found = loop.compute_rm_score(batch)
    for worker in loop.reward_loop_workers:
        cluster.kill(worker)

    state, told = found.non_tensor_batch["state"], found.non_tensor_batch["score"]
    lengths = [len(tokenizer.decode(row, skip_special_tokens=True).split()) for row in ids]
    assert [one == "masked" for one in state] == [length == 3 for length in lengths]
    assert np.isnan(told.astype(float)).tolist() == [length == 3 for length in lengths]
    scores = found.batch["rm_scores"].sum(dim=1)
    wanted = [float("rome" in tokenizer.decode(row)) for row in ids]
    assert all(score.isnan() or score == want for score, want in zip(scores, wanted, strict=True))

    uid = np.array([str(row // GROUP) for row in range(ROWS)], dtype=object)
    batch = batch.union(found)
    batch.batch["token_level_rewards"] = batch.batch["rm_scores"]
    batch.non_tensor_batch["uid"] = uid
    compute = imported("verl.trainer.ppo.ray_trainer").compute_advantage
    advantages = compute(batch, "factrl_grpo", config=config.algorithm).batch["advantages"]
    expected = group_advantages(scores, GROUP).unsqueeze(1) * batch.batch["response_mask"]
    torch.testing.assert_close(advantages, expected, atol=1e-6, rtol=0)


def batch_for_rewards(ids: list[list[int]]) -> Any:
    """As the agent loop hands it to the reward loop."""
    from verl import DataProto

    width = max(map(len, ids))
    responses = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    prompts = torch.full((len(ids), 4), 5)
    attention = torch.cat([torch.ones_like(prompts), mask], dim=1)
    extra = {"question": "where is ada from ?", "answers": ["rome"], "id": "ada"}
    return DataProto.from_dict(
        {"prompts": prompts, "responses": responses, "attention_mask": attention, "response_mask": mask},
        non_tensors={
            "data_source": np.array(["factrl"] * len(ids), dtype=object),
            "reward_model": np.array([{"ground_truth": "rome"} for _ in ids], dtype=object),
            "extra_info": np.array([dict(extra) for _ in ids], dtype=object),
        },
    )


def test_signs_and_masks_pass_through_verls_queue(cluster: Any, tiny_model: Path) -> None:
    """From the agent loop's columns to the advantages that the actor is trained on."""
    tq = imported("transfer_queue")
    plugin, agent = imported("factrl.bridges.verl_plugin"), imported("factrl.bridges.verl_agent")
    config = composed("+algorithm.factrl.scale=group", "algorithm.adv_estimator=factrl_grpo")
    config.transfer_queue.enable = True
    config.transfer_queue.backend.SimpleStorage.num_data_storage_units = 1
    tq.init(config.transfer_queue)
    try:
        tokenizer, ids = texts(tiny_model)
        ids = ids[:16]
        scores = [math.nan if row in (2, 9) else float(row % 3) for row in range(16)]
        keys, columns = put(tq, agent, tokenizer, ids, scores)
        trainer = object.__new__(plugin.FactualTrainer)
        trainer.config = config
        tags = [{} for _ in keys]
        batch = SimpleKeys(keys, "train", tags)
        metrics: dict[str, Any] = {}
        trainer._compute_advantage(batch, metrics)
        wanted = ["advantages", "response_mask", "loss_mask"]
        back = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=wanted)
        found = {name: back[name].to_padded_tensor(padding=0.0).float() for name in wanted}
    finally:
        tq.close()
    signs = torch.nn.utils.rnn.pad_sequence([one[agent.SIGNS] for one in columns], batch_first=True)
    full = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in ids], batch_first=True)
    by_row = group_advantages(torch.tensor(scores), GROUP)
    torch.testing.assert_close(found["advantages"], flip_advantages(by_row, signs) * full, atol=1e-6, rtol=0)
    graded = torch.tensor([not math.isnan(score) for score in scores]).float().unsqueeze(1)
    torch.testing.assert_close(found["response_mask"], full * graded)
    torch.testing.assert_close(found["loss_mask"], full * graded)
    assert metrics["credit/flipped"] > 0


class SimpleKeys(SimpleNamespace):
    """verl's `KVBatchMeta`, as far as it is read here."""

    def __init__(self, keys: list[str], partition_id: str, tags: list[dict[str, Any]]) -> None:
        super().__init__(keys=keys, partition_id=partition_id, tags=tags, extra_info={})

    def __len__(self) -> int:
        return len(self.keys)


def put(tq: Any, agent: Any, tokenizer: Any, ids: Any, scores: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """What verl's agent worker puts into the queue for each completion."""
    loops = imported("verl.experimental.agent_loop.agent_loop")
    columns = []
    for row, (tokens, score) in enumerate(zip(ids, scores, strict=True)):
        output = loops.AgentLoopOutput(
            prompt_ids=[5, 6],
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            metrics=loops.AgentLoopMetrics(),
        )
        output = agent.FactualOutput.of(output, tokenizer)
        output.reward_score = score
        first = len(tokenizer.decode(tokens[:1]))
        spans = json.dumps([[0, first, (-1, 1)[row % 2]]])
        output.extra_fields["reward_extra_info"] = {"spans": spans}
        columns.append({**output.as_dict(), "uid": f"u{row // GROUP}"})
    keys = [f"u{row // GROUP}_{row % GROUP}_0" for row in range(len(ids))]
    to_tensordict = imported("verl.utils.tensordict_utils").list_of_dict_to_tensordict
    tags = [{"status": "success"} for _ in keys]
    kept = ("uid", "response_mask", "rm_scores", "extra_fields", agent.SIGNS)
    fields = to_tensordict([{name: one[name] for name in kept} for one in columns])
    tq.kv_batch_put(keys=keys, fields=fields, tags=tags, partition_id="train")
    return keys, columns
