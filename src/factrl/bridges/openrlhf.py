"""What OpenRLHF samples with, where a completion that could not be graded is drawn again.

OpenRLHF (0.11) has no state for such a completion: `SingleTurnAgentExecutor` leaves its reward out, and the
run dies where rewards are put together. `--train.agent_func_path` takes this file, with the address of
`factrl serve` in the environment of its workers:

    FACTRL_REWARD_URL=http://localhost:8100/v1/openrlhf/truthrl
"""

from __future__ import annotations

import os
from typing import Any

from openrlhf.utils.agent import SingleTurnAgentExecutor

from factrl.errors import ConfigError, FactrlError

DRAWS = 4  # of one prompt, before a run ends; each is asked about five times, a second apart


class AgentExecutor(SingleTurnAgentExecutor):
    """OpenRLHF's own executor for completions of one turn, with `factrl serve` as its reward.

    Raises:
        ConfigError: `FACTRL_REWARD_URL` is not set; several addresses are separated by commas.
    """

    def __init__(self) -> None:
        url = os.environ.get("FACTRL_REWARD_URL", "")
        if not url:
            raise ConfigError(
                "FACTRL_REWARD_URL is not set; give OpenRLHF's workers the address of factrl serve, e.g. "
                "http://localhost:8100/v1/openrlhf/truthrl"
            )
        super().__init__(url.split(","))

    async def execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """One graded completion, as OpenRLHF's executor returns it: never one without a reward.

        Raises:
            FactrlError: none of `DRAWS` completions could be graded; the run ends and says so.
        """
        for _ in range(DRAWS):
            rollout = await super().execute(*args, **kwargs)
            if rollout["reward"] is not None:
                return rollout
        raise FactrlError(
            f"{DRAWS} completions of one prompt could not be graded at "
            f"{', '.join(self.reward_endpoints)}; its log says why (is its judge up?); "
            "go on from OpenRLHF's last checkpoint"
        )
