"""factrl's rewards for a plain `trl.GRPOTrainer`, in Python or on TRL's command line.

    trainer = GRPOTrainer(model, reward_funcs=to_trl(reward), train_dataset=dataset, args=config)

    FACTRL_JUDGE_BASE_URL=http://localhost:8000/v1 trl grpo --reward_funcs factrl.bridges.trl.truthrl ...

Every paper and variant is an attribute of this module, `truthrl` or `truthrl_binary`, with whatever is not a
letter, a digit or `_` written as `_`.  Its judge is FACTRL_JUDGE_BASE_URL with FACTRL_JUDGE_MODEL and
FACTRL_JUDGE_API_KEY; every other setting of a reward, such as
`verifier.index=wiki.index reward.wrong=-2`, goes into FACTRL_SETTINGS.

With `environment_factory=partial(SearchEnvironment, index)` (`factrl.train.search`) the policy searches
first, and a reward reads its last message.

A completion that could not be graded is None, which TRL leaves out of its group's mean and gives the
advantage 0.  A completion whose row lacks what the reward needs is None too; if all rows of the first batch
lack it, that is an error.  What plain TRL cannot do is step-wise credit (FSPO's spans are dropped, its sum is
kept), and keeping masked completions out of the KL penalty and of the token count:
`factrl.train.grpo.FactualGRPOTrainer` does both.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from factrl.errors import ConfigError, nearest
from factrl.job import REWARD_ALONE, read_job
from factrl.papers import load_paper, paper_names
from factrl.rewards import Reward
from factrl.runs.data import ColumnName
from factrl.runs.settings import RunSettings
from factrl.train.trl_rows import TRLReward


def to_trl(
    reward: Reward,
    *,
    prefill: str = "",
    columns: Mapping[ColumnName, str] | None = None,
    asynchronous: bool = False,
) -> Any:
    """A reward function for `trl.GRPOTrainer(reward_funcs=...)`; its `__name__` is the reward's.

    The columns of the dataset become the example, under the names that `factrl.runs.data` recognises:
    `question`, `answers`, `evidence`, `topic`, `ook` and so on.  Without a question column, the question
    is the prompt; in a conversation, the last message of the user.

    It logs the metrics of docs/metrics.md about terms, states and causes, and beside each completion its
    state, cause, terms and facts.

    >>> import factrl as fx
    >>> score = to_trl(fx.load_reward("truthrl").with_(grade=fx.Grader(), answer="text"))
    >>> score(["Capital of Peru?"] * 2, ["Lima", "Cusco"], answers=[["Lima"]] * 2)
    [1.0, -1.0]

    Args:
        reward: a reward with its resources.
        prefill: what the chat template puts at the start of the answer, e.g. `<think>`.  A conversation that
            ends with the assistant's words brings its own.
        columns: our name -> the dataset's column; `""` means that the dataset has none.
        asynchronous: make a coroutine function, which TRL awaits beside its others: two judges are then asked
            at once.  Each process logs the metrics of its own completions, as the collectives of several
            threads could mix.  It is not pickled; `AsyncGRPOTrainer` runs the other form in a thread itself.

    Raises:
        ConfigError: it is no reward, or a resource of it is missing.
    """
    if not isinstance(reward, Reward):
        raise ConfigError(
            f"{str(reward)[:80]!r} is no reward; give fx.supply(fx.load_reward('truthrl'), judge)"
        )
    score = TRLReward(reward, prefill, columns)
    if not asynchronous:
        return score
    score.gathers = False

    async def score_in_thread(*args: Any, **kwargs: Any) -> list[float | None]:
        return await asyncio.to_thread(score, *args, **kwargs)

    score_in_thread.__name__ = score.__name__  # a plain function, as TRL before 1.16 awaits no `__call__`
    return score_in_thread


def supplied_by_environment(name: str) -> tuple[Reward, RunSettings]:
    """The reward behind an attribute of this module, with its resources, and the settings that made them.

    Raises:
        AttributeError: there is no such paper or variant.
        SetupError: the environment names something that is not there.
    """
    specs = _specs()
    if name not in specs:
        raise AttributeError(f"{__name__} has no reward {name!r}{nearest(name, specs)}")
    job = read_job(None, [f"paper={specs[name]}", *REWARD_ALONE, *overrides_of_environment()])
    return job.supplied, job.settings


def __getattr__(name: str) -> TRLReward:
    if name.startswith("_"):  # what the import system and inspection look for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    reward, settings = supplied_by_environment(name)
    function = to_trl(reward, prefill=settings.data.prefill, columns=settings.data.columns)
    function.__name__ = name
    return function


def overrides_of_environment() -> list[str]:
    """`key=value` settings from FACTRL_JUDGE_BASE_URL, FACTRL_JUDGE_MODEL and FACTRL_SETTINGS."""
    url, model = (os.environ.get(f"FACTRL_JUDGE_{part}", "") for part in ("BASE_URL", "MODEL"))
    judge = [f"judge.url={url}#{model}" if model else f"judge.url={url}"] if url else []
    return [*judge, *shlex.split(os.environ.get("FACTRL_SETTINGS", ""))]


def __dir__() -> list[str]:
    return sorted([*globals(), *_specs()])


def _specs() -> dict[str, str]:
    """Attribute -> spec of every paper and variant."""
    specs = {name: name for name in paper_names()}
    for paper in paper_names():
        for variant in load_paper(paper).variants:
            specs[re.sub(r"\W", "_", f"{paper}_{variant}")] = f"{paper}:{variant}"
    return specs
