"""Questions of a file, with TruthRL's reward, for verifiers 1.

    pip install factrl verifiers==0.4.0
    PYTHONPATH=examples vf-eval truthful_taskset --env.taskset.file questions.jsonl ...

`rewards` names what pays; any other paper, or a function of your own, is named in its place.
"""

from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from pydantic import Field

import factrl as fx

FORM = "Give the answer in \\boxed{}; if you are not sure, \\boxed{I don't know}."


class TruthfulData(vf.TaskData):
    """A question with its accepted answers."""

    question: str
    answers: list[str]

    @classmethod
    def of(cls, example: fx.Example, before: str = "") -> "TruthfulData":
        """A question of a file, with the form of its answer."""
        asked = f"{example.question}\n{before}{FORM}"
        return cls(id=example.id, prompt=asked, question=example.question, answers=list(example.answers))


class TruthfulTaskConfig(vf.TaskConfig):
    """Which reward pays; in TOML it is `[env.taskset.task.rewards]`."""

    rewards: dict[str, vf.RewardFunctionConfig] = Field(
        default={"truthrl": vf.RewardFunctionConfig(fn="factrl.bridges.verifiers:truthrl")}
    )


class TruthfulConfig(vf.TasksetConfig):
    """Where the questions are."""

    file: Path = Path("questions.jsonl")
    task: TruthfulTaskConfig = TruthfulTaskConfig()


class TruthfulTask(vf.Task[TruthfulData, vf.State, TruthfulTaskConfig]):
    """Asks for an answer in a box, or for none."""


class TruthfulTaskset(vf.Taskset[TruthfulTask, TruthfulConfig]):
    """The rows of a file that factrl reads."""

    def load(self) -> Iterator[TruthfulTask]:
        for example in fx.load_examples(self.config.file):
            yield TruthfulTask(TruthfulData.of(example), self.config.task)


__all__ = ["TruthfulTaskset"]
