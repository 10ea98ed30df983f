"""The model of an evaluation: loaded once, asked by every benchmark in its own way."""

from __future__ import annotations

from typing import Any

from factrl.evals.choice import Scorer
from factrl.llm.writers import Writer, open_writer, writes_with_vllm
from factrl.runs.settings import LOCAL, AskSettings


class NamedModel:
    """What `model.name` names, opened at its first use.

    A policy in this process stays loaded; a server is asked with other prompts by a writer of its own.
    """

    def __init__(self) -> None:
        self._policy: Any = None

    def writer(self, settings: AskSettings) -> Writer:
        """The model, asked as the settings say.

        Raises:
            SetupError: what the user must change.
        """
        if not _is_policy(settings):
            return open_writer(settings)
        if self._policy is None:
            self._policy = open_writer(settings)
            return self._policy
        return self._policy.asked(settings)

    def scorer(self, settings: AskSettings) -> Scorer | None:
        """The same as a scorer of continuations.

        None where there are no likelihoods: behind a server, from vLLM, of a method that writes in steps.
        """
        if not _is_policy(settings) or writes_with_vllm(settings):
            return None
        from factrl.train.scoring import PolicyScorer

        writer: Any = self.writer(settings)
        return PolicyScorer(writer, settings)


def _is_policy(settings: AskSettings) -> bool:
    if settings.sampling.method == "cove":  # a writer around the policy, which gives no likelihoods
        return False
    return settings.model.name != LOCAL and not settings.model.name.startswith(("http://", "https://"))
