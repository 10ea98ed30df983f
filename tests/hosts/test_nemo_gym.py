"""NeMo Gym's HTTP protocol on `factrl serve`, spoken by the client of it in verifiers 1."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

vf = pytest.importorskip("verifiers.v1", reason="needs tests/hosts/requirements.txt")

from traces import trace_of  # noqa: E402
from verifiers.v1.tasksets.nemo_gym.taskset import NeMoGymConfig, NeMoGymTaskset  # noqa: E402
from verifiers.v1.tasksets.nemo_gym.toolset import NeMoGymState  # noqa: E402

from factrl import FakeLLM, LLMError  # noqa: E402
from serving import RIGHT, WRONG, Make  # noqa: E402

ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "The capital of France?"}]},
    "question": "The capital of France?",
    "answers": ["Paris"],
}


def verified(make: Make, tmp_path: Path, text: str, thought: str | None = None) -> vf.Trace:
    """A rollout of one message, seeded and verified by the client."""
    server = make(FakeLLM(lambda _: LLMError("timeout", "no reply")))
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    url = f"http://127.0.0.1:{server.port}/v1/nemo_gym/truthrl"
    config = NeMoGymConfig(dataset=tmp_path / "rows.jsonl", task={"resources_url": url})
    [task] = NeMoGymTaskset(config).load()
    trace = trace_of(task.data, text, thought, task.data.prompt, state=NeMoGymState())

    async def lives() -> None:
        await task.setup(trace, None)
        await task.score(trace)

    asyncio.run(lives())
    return trace


def test_a_rollout_gets_its_reward_and_the_terms_as_metrics(make: Make, tmp_path: Path) -> None:
    trace = verified(make, tmp_path, RIGHT, "Of France it is Paris.")
    assert trace.reward == 1.0
    assert trace.metrics == {"term_outcome": 1.0}
    assert trace.info["nemo_gym"]["state"] == "scored"


def test_what_could_not_be_graded_is_an_error_and_no_number(make: Make, tmp_path: Path) -> None:
    with pytest.raises(vf.TaskError, match="NoneType"):
        verified(make, tmp_path, WRONG)
