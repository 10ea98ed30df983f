"""TRL's vLLM server mode: its client speaks to a loopback stand-in with `vllm serve`'s endpoints for a run.

The shapes are those that TRL 1.16's `trl/generation/vllm_client.py` sends and reads.  What no test here can
have is the way of the weights to the server: TRL sends them by NCCL, and its client refuses a CPU by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tiny import small_run

from factrl.job import read_job
from factrl.runs.folder import read_metrics
from factrl.train.online import train
from factrl.train.plan import make_plan
from fault_server import FaultServer, Handler, answers

GENERATIONS = 4


class VLLM:
    """What `vllm serve` answers; its completions are words of the model's own vocabulary."""

    def __init__(self, model: Path) -> None:
        self.vocab: dict[str, int] = json.loads((model / "tokenizer.json").read_text("utf-8"))["model"][
            "vocab"
        ]
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []

    def __call__(self, handler: Handler) -> None:
        path = handler.asked.path.partition("?")[0]
        self.paths.append(path)
        document: dict[str, Any] = {
            "/health": {},
            "/v1/models": {"data": [{"id": "tiny"}]},
            "/get_world_size": {"world_size": 1},
            "/reset_prefix_cache": {"success": True},
            "/server_info": {
                "vllm_config": {
                    "weight_transfer_config": {"backend": "nccl"},
                    "model_config": {"logprobs_mode": "processed_logprobs"},
                }
            },
        }.get(path, {})
        if path == "/v1/completions":
            self.asked.append(handler.asked.body)
            document = {
                "choices": [self.choice(ids, n) for ids in handler.asked.body["prompt"] for n in range(4)]
            }
        answers(200, document)(handler)

    def choice(self, prompt: list[int], number: int) -> dict[str, Any]:
        word = ("rome", "oslo", "lima", "cairo")[number]
        ids = [self.vocab[word], self.vocab["<end>"]]
        names = [f"token_id:{i}" for i in ids]
        logprobs = {"tokens": names, "token_logprobs": [-3.2] * 2, "top_logprobs": [{n: -3.2} for n in names]}
        return {"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs, "finish_reason": "stop"}


@pytest.fixture
def vllm(tiny_model: Path) -> VLLM:
    return VLLM(tiny_model)


@pytest.fixture
def server(vllm: VLLM) -> Iterator[FaultServer]:
    running = FaultServer(vllm)
    yield running
    running.close()


@pytest.fixture
def words(tiny_model: Path, questions: Path, server: FaultServer, tmp_path: Path) -> list[str]:
    return [
        *("paper=truthrl", f"model.name={tiny_model}", f"data.train={questions}", "data.prompt={question}"),
        *("reward.answer=text", f"run.dir={tmp_path / 'runs'}", "train.use_vllm=true"),
        *small_run(steps=2, num_generations=4, micro_batch_size=8, max_completion_length=5),
        *("train.vllm_mode=server", "train.temperature=0.9", "train.learning_rate=1e-3"),
        f"train.vllm_server_base_url={server.url.removesuffix('/v1')}",
    ]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL asks whether vLLM is there before it speaks to a server; it needs no more of the package here."""
    for module in ("trl.generation.vllm_client", "trl.generation.vllm_generation"):
        monkeypatch.setattr(f"{module}.is_vllm_available", lambda *_, **__: True)
    monkeypatch.setattr("trl.generation.vllm_client.get_ip", lambda: "127.0.0.1", raising=False)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the weights that would be sent, once for each time; in place of NCCL."""
    from trl.generation.vllm_client import VLLMClient

    names: list[list[str]] = []

    def update(self: Any, metadata: list[Any], tensors: Any) -> None:
        assert [name for name, _, _ in metadata] == [name for name, _ in tensors]
        names.append([name for name, _, _ in metadata])

    monkeypatch.setattr(VLLMClient, "init_communicator", lambda self, device=0: self.get_world_size())
    monkeypatch.setattr(VLLMClient, "update_named_params", update)
    return names


@pytest.mark.usefixtures("installed")
def test_a_run_trains_on_what_the_server_writes(
    words: list[str], vllm: VLLM, sent: list[list[str]], tiny_model: Path
) -> None:
    run = train(make_plan(read_job(None, words)))
    assert len(vllm.asked) == 2
    for request in vllm.asked:
        assert len(request["prompt"]) == 2  # each question once, however many completions it gets
        assert {type(token) for ids in request["prompt"] for token in ids} == {int}
        sampling = {"model": "tiny", "n": GENERATIONS, "temperature": 0.9, "max_tokens": 5, "top_p": 1.0}
        assert request.items() >= {**sampling, "logprobs": 0}.items()
        assert (request["return_token_ids"], request["return_tokens_as_token_ids"]) == (True, True)
        assert request["top_k"] == 0
    rows = pq.read_table(run / "rollouts" / "step_000001.parquet").to_pylist()
    assert [row["completion"] for row in rows] == ["rome", "oslo", "lima", "cairo"] * 2
    assert sorted(row["value"] for row in rows) == [-1.0] * 6 + [1.0] * 2
    logged = [row for row in read_metrics(run) if "reward" in row]
    assert [row["step"] for row in logged] == [1, 2]
    assert all(row["reward"] == -0.5 and row["grad_norm"] > 0 for row in logged)
    assert "sampling/sampling_logp_difference/mean" in logged[0]
    assert len(sent) >= 1  # before the second batch is written, by a policy that one step has changed
    assert "model.embed_tokens.weight" in sent[-1]
    assert vllm.paths.count("/reset_prefix_cache") == len(sent)
    assert (run / "model" / "config.json").is_file()
