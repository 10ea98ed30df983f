"""The contract of tests/contract.py in verifiers, by NeMo Gym's protocol and in Inspect."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

vf = pytest.importorskip("verifiers.v1", reason="needs tests/hosts/requirements.txt")
pytest.importorskip("inspect_ai", reason="needs tests/hosts/requirements.txt")

from contract import ANSWERS, QUESTION, completions, contract, differences  # noqa: E402
from inspect_ai.model import ChatMessageUser, ModelName, ModelOutput  # noqa: E402
from inspect_ai.scorer import Target  # noqa: E402
from inspect_ai.solver import TaskState  # noqa: E402
from traces import trace_of  # noqa: E402

from factrl.bridges import inspect as bridge  # noqa: E402
from factrl.bridges.verifiers import to_verifiers  # noqa: E402
from factrl.job import Job  # noqa: E402
from factrl.server import Service  # noqa: E402
from serving import Running  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore", "ignore::pytest.PytestUnraisableExceptionWarning")
TEXTS = completions()
# verifiers cuts white space at the ends of a reply.
CUT = [text.strip() for text in TEXTS]

pays = to_verifiers(contract)


class Asked(vf.TaskData):
    """A question with its accepted answers."""

    answers: list[str]


def test_verifiers_scores_alike() -> None:
    config = vf.TaskConfig(rewards={"own": {"fn": f"{__file__}:pays"}})

    async def score(text: str) -> float | None:
        trace = trace_of(Asked(idx=0, prompt=QUESTION, answers=list(ANSWERS)), text)
        with contextlib.suppress(vf.TaskError):  # whose trace has no number
            await vf.Task(trace.task.data, config).score(trace)
        return trace.rewards["own"] and trace.rewards["own"].score

    async def scores() -> list[float | None]:
        return [await score(text) for text in CUT]

    assert not differences(asyncio.run(scores()), CUT)


def test_nemo_gyms_protocol_scores_alike() -> None:
    server = Running(Service({"contract": contract}, None, None))
    rewards = []
    for text in TEXTS:
        message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        row = {
            "responses_create_params": {"input": QUESTION},
            "answers": list(ANSWERS),
            "response": {"output": [message]},
        }
        status, answer = server.ask("/v1/nemo_gym/contract/verify", row)
        assert status == 200
        assert (answer["reward"] is None) == answer.get("instance_config", {}).get("mask_sample", False)
        rewards.append(answer["reward"])
    server.stop()
    assert not differences(rewards, TEXTS)


def test_inspect_scores_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "supplied", contract)
    scorer = bridge.reward("truthrl")

    async def score(text: str) -> float:
        state = TaskState(
            model=ModelName("mockllm/model"),
            sample_id=1,
            epoch=1,
            input=QUESTION,
            messages=[ChatMessageUser(content=QUESTION)],
            output=ModelOutput.from_content("mockllm/model", text),
        )
        return (await scorer(state, Target(list(ANSWERS)))).value

    async def scores() -> list[float]:
        return [await score(text) for text in TEXTS]

    assert not differences(asyncio.run(scores()), TEXTS)
