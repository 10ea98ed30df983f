"""A rollout engine for verl on transformers, one server for each rank, and what its FSDP2 lacks on CPU cores.

Each server appends one line of JSON for each set of weights that it was given to FACTRL_TEST_WEIGHTS.  With
FACTRL_TEST_SAYS, a list of scripts in JSON, the n-th question is answered by the n-th script, turn by turn,
and a search for "nowhere" fails.
"""

# pyright: basic, reportAttributeAccessIssue=false, reportAssignmentType=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import asyncio
import hashlib
import json
import os
from typing import Any

import ray
import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from verl.models.transformers import monkey_patch
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.rollout import base, replica

# An environment for verl has no trl; this one has, and of a version beside which verl's actors cannot start.
monkey_patch.is_trl_available = lambda: False
_init = torch.distributed.init_process_group


def _init_once(backend: str, **told: Any) -> Any:
    """verl names one backend for CPUs and one for the device, which are the same here."""
    return _init("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **told)


torch.distributed.init_process_group = _init_once
transformer_impl.CPUOffloadPolicy = lambda pin_memory: CPUOffloadPolicy(pin_memory=False)


class Server:
    """One model in one process; it answers one request at a time."""

    def __init__(self, path: str, most: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.most, self.steps, self.turn = most, 0, asyncio.Lock()
        self.scripts, self.answered = json.loads(os.environ.get("FACTRL_TEST_SAYS", "[]")), 0
        self.tokenizer = AutoTokenizer.from_pretrained(path)

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> replica.TokenOutput:
        """One completion, and the log-probability of each of its tokens."""
        async with self.turn:
            ids, logprobs = await asyncio.to_thread(self._sample, prompt_ids, dict(sampling_params))
        told = {"global_steps": self.steps}
        return replica.TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields=told
        )

    @torch.no_grad()
    def _sample(self, prompt: list[int], told: dict[str, Any]) -> tuple[list[int], list[float]]:
        ids, logprobs, warmth = list(prompt), [], told.get("temperature", 1.0)
        said = self._scripted(self.tokenizer.decode(prompt)) if self.scripts else []
        for place in range(len(said) or told.get("max_tokens") or self.most):
            logits = self.model(torch.tensor([ids])).logits[0, -1].float()
            likely = torch.log_softmax(logits / (warmth or 1.0), dim=-1)
            token = int(likely.exp().multinomial(1)) if warmth else int(likely.argmax())
            token = said[place] if said else token
            ids.append(token)
            logprobs.append(float(likely[token]))
            if token == self.model.config.eos_token_id:
                break
        return ids[len(prompt) :], logprobs

    def _scripted(self, prompt: str) -> list[int]:
        """The tokens of this turn."""
        turn = prompt.count("<|im_start|>assistant") - 1
        script = next((one for one in self.scripts if turn and one[turn - 1] in prompt), None)
        if script is None:
            script, self.answered = self.scripts[self.answered % len(self.scripts)], self.answered + 1
        return [*self.tokenizer(script[turn])["input_ids"], self.tokenizer.eos_token_id]

    async def load(self, weights: dict[str, Any], steps: int | None) -> None:
        """New weights, and which step they are from."""
        self.steps = steps or 0
        missing, odd = self.model.load_state_dict(
            {name: torch.from_numpy(one) for name, one in weights.items()}, strict=False
        )
        if odd or any("lm_head" not in name for name in missing):
            raise ValueError(f"these are not the model's weights: {[*missing, *odd]}")
        seen = hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()
        with open(os.environ["FACTRL_TEST_WEIGHTS"], "a", encoding="utf-8") as log:
            log.write(json.dumps({"step": self.steps, "weights": seen}) + "\n")

    async def nothing(self, *_: Any, **__: Any) -> None:
        """Memory that a GPU would free."""

    sleep = wake_up = clear_kv_cache = abort_all_requests = resume_generation = nothing
    start_profile = stop_profile = release_kv_cache = resume_kv_cache = nothing


class Replica(replica.RolloutReplica):
    """One server for each rank."""

    async def launch_servers(self) -> None:
        self.servers = [
            ray.remote(Server)
            .options(num_cpus=0, name=f"transformers_{self.replica_rank}", max_concurrency=1000)
            .remote(self.model_config.path, self.config.response_length)
        ]
        self._server_handle, self._server_address = self.servers[0], f"transformers_{self.replica_rank}"


class Adapter(base.BaseRollout):
    """A rank's side of its server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **_: Any
    ) -> None:
        from verl.workers.rollout.utils import ensure_async_iterator

        found = {
            name: one.detach().float().cpu().numpy().copy()
            async for name, one in ensure_async_iterator(weights)
        }
        server = ray.get_actor(f"transformers_{os.environ['RANK']}")
        await server.load.remote(found, global_steps)


replica.RolloutReplicaRegistry.register("transformers", lambda: Replica)
base._ROLLOUT_REGISTRY["transformers", "async"] = f"{__name__}.Adapter"


class Searched:
    """Knows who is from where; what is asked about "nowhere" fails."""

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Any]:
        from factrl.errors import Unscored
        from factrl.verifier.search import Given

        if "nowhere" in query:
            raise Unscored("search_failed", "the disk is gone")
        return Given(["ada is from rome.", "bo is from oslo."]).search(query, k)


if "FACTRL_TEST_SAYS" in os.environ:
    import factrl.verifier

    factrl.verifier.open_search = lambda **_: Searched()
