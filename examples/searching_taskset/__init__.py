"""`truthful_taskset` with a search: the model looks things up in an index before it answers, for verifiers 1.

    factrl index documents.jsonl --out wiki
    PYTHONPATH=examples vf-eval searching_taskset --env.taskset.file questions.jsonl \\
        --env.taskset.search.index wiki --env.agent.harness.id null ...

A rollout in which the search failed is an error of the task, and no number.
"""

from collections.abc import Iterator

import verifiers.v1 as vf
from truthful_taskset import TruthfulConfig, TruthfulData, TruthfulTaskConfig

import factrl as fx
from factrl.bridges.verifiers import SearchConfig, SearchState, SearchToolset


class SearchingConfig(TruthfulConfig):
    """Where the questions are, and what may be searched."""

    search: SearchConfig = SearchConfig()


class SearchingTask(vf.Task[TruthfulData, SearchState, TruthfulTaskConfig]):
    """Asks for an answer in a box, or for none, after searches."""


class SearchingTaskset(vf.Taskset[SearchingTask, SearchingConfig]):
    """The rows of a file that factrl reads."""

    @classmethod
    def toolsets(cls, config: SearchingConfig) -> list[vf.Toolset]:
        """One server for all rollouts."""
        return [SearchToolset(config.search)]

    def load(self) -> Iterator[SearchingTask]:
        for example in fx.load_examples(self.config.file):
            yield SearchingTask(TruthfulData.of(example, "Search before you answer. "), self.config.task)


__all__ = ["SearchingTaskset"]
