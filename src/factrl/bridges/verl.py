"""factrl's rewards for verl: the function that `reward.custom_reward_function` names.

    python -m verl.trainer.main_ppo \\
        reward.custom_reward_function.path=pkg://factrl.bridges.verl \\
        +reward.custom_reward_function.reward_kwargs.paper=truthrl ...

`recipes/truthrl/verl.sh` is a whole command.  `paper`, `recipe` (a path) and `settings`
(overrides such as `"reward.wrong=-2"`) say which reward it is; FACTRL_SETTINGS and the judge's variables
count as in `factrl.bridges.trl`.  What is known about a question is read from `extra_info`, as `factrl
prepare convert --to verl` writes it, or else from the ground truth.

verl has no state for a completion that could not be graded.  Its score is NaN here, `cause` says why, and the
advantage estimators of `factrl.bridges.verl_plugin` leave it out; verl's own `grpo` would lose its group.

verl scores one completion at a time, each when it is complete.  A verifier with `share` needs those of one
question at once: with `group`, they wait for each other, and there must be one reward worker alone.
"""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, get_args

from factrl.errors import ConfigError, FactrlError
from factrl.job import REWARD_ALONE, read_job
from factrl.llm.background import on_thread
from factrl.papers import paper_of
from factrl.rewards import THREADS, Reward
from factrl.runs.data import ColumnName, native, table_of, to_example
from factrl.types import Completion, Example, Result, Span

from .trl import overrides_of_environment

COMPLETION = "factrl_written"  # the extra field in which our agent loop passes the completion
SIGNS = "factrl_signs"  # the column with the sign of each token's step
BUG = "bug"  # the column with the error for which there is no score; our trainer raises it
ONCE = "test"  # the split of held-out questions, which are answered once
PATIENCE = 300.0  # seconds that a completion waits for the others; verl drops some without a message
_OURS = get_args(ColumnName)


@dataclass(frozen=True)
class _Supplied:
    """A reward, the names of its terms where the paper declares them, and its settings of the data."""

    reward: Reward
    terms: tuple[str, ...]
    prefill: str
    columns: Mapping[ColumnName, str]


class _Batch:
    """Completions of one question, and what grades them."""

    def __init__(self) -> None:
        self.members: list[tuple[Example, Completion]] = []
        self.grading: asyncio.Future[asyncio.Task[Sequence[Result]]] = (
            asyncio.get_running_loop().create_future()
        )


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    recipe: str = "",
    paper: str = "",
    settings: str = "",
    group: int = 1,
    **_: Any,
) -> dict[str, Any]:
    """The score of one completion, as verl's reward managers ask for it.

    Args:
        data_source: the dataset's name; not used.
        solution_str: the completion, decoded without special tokens; our agent loops say what of it to grade.
        ground_truth: the accepted answers, or a mapping with `target` and maybe `problem`; also in JSON.
        extra_info: the example's columns; also in JSON.
        recipe, paper, settings: which reward; see above.
        group: completions of one question, told apart by `extra_info["index"]`, that are graded as one batch;
            those that are not there after `PATIENCE` are graded without the others.

    Returns:
        The same keys for every sample: `score`, NaN when masked; `state`; `cause`; `term/NAME` for the terms
        of a paper, NaN where there is none; as JSON all `terms`, `facts` and `spans`; and `bug`, which is
        empty or, under our agent loop, from which no exception reaches the trainer, the error.

    Raises:
        ConfigError: no such reward, or it cannot be supplied.
        RewardBug: the reward is broken.
    """
    extra = table_of(extra_info, "extra_info")
    from_agent = extra.pop(COMPLETION, None)
    try:
        usual = tuple(overrides_of_environment())
        supplied = await _on_a_thread(_supplied, recipe, paper, settings, usual)
        example = _example(extra, ground_truth, supplied.columns)
        completion = Completion(solution_str, prefill=supplied.prefill) if from_agent is None else from_agent
        if group > 1 and extra.get("split") != ONCE:
            which = (id(supplied), str(extra.get("index")), example.question)
            result = await _together(supplied.reward, which, group, example, completion)
        else:
            result = await _on_a_thread(supplied.reward, example, completion)
    except FactrlError as error:
        if from_agent is None:
            raise
        return {**as_verl(Result("masked", None, cause=BUG)), BUG: f"{type(error).__name__}: {error}"}
    return as_verl(result, supplied.terms)


async def _together(
    reward: Reward, which: _Group, size: int, example: Example, completion: Completion
) -> Result:
    """The result of one of `size` completions, which are graded as one batch when the last is there."""
    batch = _WAITING.setdefault(which, _Batch())
    place = len(batch.members)
    batch.members.append((example, completion))
    if len(batch.members) < size:
        await asyncio.wait([batch.grading], timeout=PATIENCE)
    if _WAITING.get(which) is batch:  # complete, or the first of them has waited long enough
        del _WAITING[which]
        graded = _on_a_thread(reward.batch, *zip(*batch.members, strict=True))
        batch.grading.set_result(asyncio.get_running_loop().create_task(graded))
    # The others wait on where this call is given up.
    return (await asyncio.shield(batch.grading.result()))[place]


def as_verl(result: Result, terms: tuple[str, ...] = ()) -> dict[str, Any]:
    """A result as verl's `reward_extra_info`: numbers and text alone, and always the same keys.

    Args:
        terms: the names that have keys of their own.

    >>> as_verl(Result("masked", None, cause="timeout"))["score"]
    nan
    """
    return {
        "score": math.nan if result.value is None else result.value,
        "state": result.state,
        "cause": result.cause or "",
        **{f"term/{name}": result.terms.get(name, math.nan) for name in terms},
        "terms": json.dumps(dict(result.terms)),
        "facts": json.dumps(dict(result.facts), ensure_ascii=False, default=str),
        "spans": json.dumps([(span.start, span.end, span.sign) for span in result.spans]),
        BUG: "",
    }


def from_verl(info: Mapping[str, Any]) -> Result:
    """The result of which `as_verl` made a mapping, without its detail."""
    masked = info["state"] == "masked"
    return Result(
        info["state"],
        None if masked else float(info["score"]),
        terms=json.loads(info["terms"]),
        spans=tuple(Span(*span) for span in json.loads(info["spans"])),
        cause=info["cause"] or None,
        facts=json.loads(info["facts"]),
    )


def _example(extra: Mapping[str, Any], ground_truth: Any, columns: Mapping[ColumnName, str]) -> Example:
    row = {name: value for name in _OURS if (value := native(extra.get(name))) is not None}
    row = {"reward_model": {"ground_truth": native(ground_truth)}, "extra_info": extra, **row}
    if columns and not row.keys() & {"question"}:
        return to_example({**extra, **row}, columns)
    return to_example(row)


_Group = tuple[int, str, str]  # a reward, and a question by its index and its words
_WAITING: dict[_Group, _Batch] = {}
_OPENING = threading.RLock()
# Rewards block a thread each; verl awaits as many samples as it has completions under way.
_on_a_thread = partial(on_thread, "verl", THREADS)


def _supplied(*reward: Any) -> _Supplied:
    with _OPENING:  # the first of many threads opens it, once
        return _open(*reward)


@cache
def _open(recipe: str, paper: str, settings: str, usual: tuple[str, ...]) -> _Supplied:
    if not recipe and not paper and "paper=" not in " ".join((settings, *usual)):
        raise ConfigError(
            "verl: which reward? Give +reward.custom_reward_function.reward_kwargs.paper=truthrl or .recipe=…"
        )
    overrides = [f"paper={paper}"] if paper else []
    overrides += [] if recipe else REWARD_ALONE  # model and data are verl's own
    job = read_job(recipe or None, [*overrides, *usual, *shlex.split(settings)])
    terms = tuple(sorted(paper_of(job.settings.paper).terms))
    data = job.settings.data
    return _Supplied(job.supplied, terms, data.prefill, data.columns)
