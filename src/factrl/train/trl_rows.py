"""TRL's rows as rewards read them: the columns of its dataset, its completions, its environments.

`fx.to_trl` makes a `TRLReward` for a trainer of TRL's own, and `factrl.train.grpo.FactualGRPOTrainer` reads
and grades with the same object.  Neither torch nor TRL is needed here.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from packaging.version import Version

from factrl.errors import ConfigError, DataError, TooManyMasked, Unscored
from factrl.rewards import Reward
from factrl.rewards.trl import from_trl, weighted
from factrl.runs.data import ColumnName, to_example
from factrl.runs.folder import version_of
from factrl.text import opened
from factrl.text.messages import completion_of, is_conversation, last_message, reasoning_of, text_of
from factrl.types import Completion, Example, Result

from .metrics import reward_metrics
from .search import SearchEnvironment, attach_search

Column = Sequence[Any]
_LOG = logging.getLogger("factrl")
# Cause for which a completion is floored -> the form that prompts must ask for.
_FORMS = {
    "no_box": "\\boxed{…}",
    **dict.fromkeys(("no_think", "think_unclosed"), "<think>…</think>"),
    **dict.fromkeys(("no_answer", "answer_unclosed"), "<answer>…</answer>"),
    "tags": "<think>…</think> <answer>…</answer>",
    "no_confidence": "<confidence>…</confidence>",
    "no_analysis": "<analysis>…</analysis>",
}
# Cause for which a completion is masked -> what helps.
_REMEDIES = {
    "timeout": "raise judge.timeout_attempt, or lower judge.max_concurrency",
    "http_429": "lower judge.max_concurrency, or set judge.tpm",
    **dict.fromkeys(("connection", "breaker_open", "http_5xx"), "look at the server and its log"),
    "auth": "set its key",
}
_UNUSABLE = "unusable_row"  # the cause of a row that lacks what the reward needs, which is told once
ALL_MASKED = 3  # batches in a row without a single number, after which a trainer of TRL's own is stopped
_TAKES_NONE_SINCE = (1, 6)  # since this version of TRL, trainers leave None out of a group


class TRLReward:
    """A reward as TRL calls it; `to_trl` makes it, and `FactualGRPOTrainer` reads TRL's rows with it.

    It can be pickled where its resources can, which TRL's `AsyncGRPOTrainer` asks for.
    """

    def __init__(
        self, reward: Reward, prefill: str = "", columns: Mapping[ColumnName, str] | None = None
    ) -> None:
        if reward.missing:
            raise ConfigError(
                f"reward {reward.name!r} needs {', '.join(reward.missing)}; factrl.supply(reward, judge) "
                f"makes them, or give your own: .with_({reward.missing[0]}=…)"
            )
        self.reward, self.prefill, self.columns = reward, prefill, columns
        self.table: Sequence[Example] | None = None  # the column `example` then holds numbers of its rows
        self.__name__ = reward.name
        self.gathers = True  # metrics are of the completions of all processes
        self._is_first_batch, self._warned = True, False
        self._all_masked, self._seconds = 0, 0.0
        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_no_dump)

    def __call__(
        self,
        prompts: Column,
        completions: Column,
        completion_ids: Column | None = None,
        *,
        environments: Column | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The reward of each completion, None for one that could not be graded.

        Raises:
            ConfigError: the installed TRL would make a number of None.
            DataError: no row of the first batch has what the reward needs.
            TooManyMasked: nothing could be graded for `ALL_MASKED` batches in a row.
        """
        if self._is_first_batch and (problem := _old_trl()):
            raise ConfigError(problem)
        examples, texts = self.read(
            prompts, completions, completion_ids, environments=environments, **columns
        )
        results = self.grade(examples, texts)
        gathered = _of_all_processes(results) if self.gathers and log_metric is not None else results
        self.log(results, gathered, log_metric, log_extra)
        failed = masked_line(results).startswith(f"{len(results)} of ")
        self._all_masked = self._all_masked + 1 if failed else 0
        if self._all_masked == ALL_MASKED:
            raise TooManyMasked(
                f"nothing could be graded in {ALL_MASKED} batches in a row; {masked_line(results)}"
            )
        return [result.value for result in results]

    def read(
        self,
        prompts: Column,
        completions: Column,
        completion_ids: Column | None = None,
        *,
        environments: Column | None = None,
        stop_ids: Collection[int] | None = None,
        **columns: Any,
    ) -> tuple[list[Example], list[Completion]]:
        """The example and the completion of each row, as rewards read them.

        Args:
            completion_ids: the tokens of each completion, with those of an environment's replies.
            stop_ids: tokens that end a completion; without them it is not known whether it was cut off.
            columns: of the dataset, a value for each row; what else TRL passes does not disturb.

        Raises:
            DataError: no row of the first batch has what the reward needs.
        """
        if len(completions) != len(prompts):
            raise ConfigError(f"{len(completions)} completions for {len(prompts)} prompts")
        rows = len(prompts)
        if self.table is None:
            examples, problems = self._examples(prompts, columns)
        else:
            examples, problems = [self.table[number] for number in columns["example"]], [None] * rows
        episodes, texts = environments or [None] * rows, list[Completion]()
        for prompt, completion, ids, episode, problem in zip(
            prompts, completions, completion_ids or [None] * rows, episodes, problems, strict=True
        ):
            text = _completion(prompt, completion, self.prefill)
            if ids is not None:
                ended = stop_ids is not None and len(ids) > 0 and ids[-1] in stop_ids
                text.truncated = stop_ids is not None and not ended
                # With an environment, not all tokens are the policy's.
                text.tokens = None if environments else len(ids) - ended
                text.passed = (ids, columns.get("trainer_state"))
            if isinstance(episode, SearchEnvironment):
                attach_search(episode, text)
            text.failed = text.failed or problem
            texts.append(text)
        return examples, texts

    def grade(self, examples: Sequence[Example], texts: Sequence[Completion]) -> list[Result]:
        """The result of each completion; says so where none of the first batch has the reward's form."""
        started = time.monotonic()
        results = self.reward.batch(examples, texts)
        self._seconds = time.monotonic() - started
        if self._is_first_batch and (problem := _form_missing(results, texts, self.reward)):
            _LOG.warning("%s", problem)
        self._is_first_batch = False
        return results

    def log(
        self,
        results: Sequence[Result],
        gathered: Sequence[Result],
        log_metric: Callable[[str, float], None] | None,
        log_extra: Callable[[str, list[Any]], None] | None,
    ) -> None:
        """Log metrics of the gathered results of all processes, and columns of this one's completions."""
        if (line := masked_line(gathered)) and os.environ.get("RANK", "0") == "0":
            _LOG.warning("%s", line)
        if log_metric is not None:
            log_metric("reward/seconds", self._seconds)
            for metric, value in reward_metrics(gathered).items():
                log_metric(metric, value)
        if log_extra is not None:
            for column, values in _extra_columns(results).items():
                log_extra(f"{self.reward.name}_{column}", values)

    def _examples(
        self, prompts: Column, columns: Mapping[str, Any]
    ) -> tuple[list[Example], list[Unscored | None]]:
        """The example of each row, and why it cannot be graded."""
        examples, problems = list[Example](), list[Unscored | None]()
        for number, prompt in enumerate(prompts):
            try:
                examples.append(_example(number, prompt, columns, self.columns, len(prompts)))
                self.reward.check_examples(examples[-1:])
                problems.append(None)
            except DataError as error:  # noqa: PERF203  (only this row is unusable)
                problems.append(Unscored(_UNUSABLE, str(error)))
                examples[number:] = examples[number:] or [Example(_question(prompt))]
        why = next((problem.detail for problem in problems if problem), "")
        if why and self._is_first_batch and all(problems):
            names = [name for name, values in columns.items() if _is_column(values, len(prompts))]
            raise DataError(
                f"none of the {len(prompts)} rows of the first batch is of use: {why}; columns: "
                f"{', '.join(['prompt', *names])}; to_trl(reward, columns={{'answers': …}}) names others"
            )
        if why and not self._warned:
            _LOG.warning(
                "rows of the dataset are of no use to reward %r: %s; their completions are None, counted as "
                "masked/unusable_row",
                self.reward.name,
                why,
            )
            self._warned = True
        return examples, problems


def reader_of(reward_funcs: Any, weights: Sequence[float] | None = None) -> TRLReward:
    """What reads TRL's rows and grades them with `reward_funcs`, of several with their weighted sum.

    Args:
        reward_funcs: a reward, what `to_trl` made of one, a function in TRL's form, or a list of these.
        weights: TRL's `reward_weights`.

    Raises:
        ConfigError: one of them is none of these, or a resource of one is missing.
    """
    given = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
    readers = [one for one in given if isinstance(one, TRLReward)]
    if given == readers[:1] and weights is None:
        return readers[0]
    rewards = [one.reward if isinstance(one, TRLReward) else one for one in given]
    rewards = [one if isinstance(one, Reward) else from_trl(one) for one in rewards]
    total = rewards[0] if len(rewards) == 1 and weights is None else weighted(rewards, weights)
    return TRLReward(total, *([readers[0].prefill, readers[0].columns] if readers else []))


def masked_line(results: Sequence[Result]) -> str:
    """How many of a batch could not be graded, why, what helps; "" for none but unusable rows.

    >>> failed = Result("masked", None, cause="timeout", detail="http://host/v1 gave no reply within 20 s")
    >>> masked_line([failed, Result("scored", 1.0)]).partition(": ")[0]
    '1 of 2 completions masked'
    """
    masked = [one for one in results if one.state == "masked" and one.cause != _UNUSABLE]
    if not masked:
        return ""
    causes = Counter(result.cause or "" for result in masked).most_common()
    tally = ", ".join(f"{count} {cause}" for cause, count in causes)
    detail = next(result.detail for result in masked if (result.cause or "") == causes[0][0])
    remedy = next((_REMEDIES[cause] for cause, _ in causes if cause in _REMEDIES), "")
    return f"{len(masked)} of {len(results)} completions masked: {tally} ({detail})" + (
        remedy and f"; {remedy}"
    )


def _is_no_dump(record: logging.LogRecord) -> bool:
    """TRL would print each batch's first masked row, text and all, in the place of our own line."""
    return "All reward functions returned None" not in record.getMessage()


def _old_trl() -> str:
    """Why the installed TRL is too old; empty if it is not, or if there is none."""
    version = version_of("trl")
    if not version or Version(version).release >= _TAKES_NONE_SINCE:
        return ""
    return (
        f"trl {version} counts a completion that could not be graded as 0, which an abstention earns; "
        f"trl {'.'.join(map(str, _TAKES_NONE_SINCE))} and later leave it out: pip install -U trl"
    )


def _example(
    number: int,
    prompt: Any,
    given: Mapping[str, Any],
    columns: Mapping[ColumnName, str] | None,
    rows: int,
) -> Example:
    """The example of one row; TRL also passes arguments of its own, which have no value for each row."""
    row = {"prompt": _question(prompt)}
    for name, values in given.items():
        if _is_column(values, rows):
            row[name] = values[number]
        elif hasattr(values, "__len__") and name in get_args(ColumnName):
            raise DataError(f"{name} has {len(values)} values for {rows} prompts; give one for each")
    return to_example(row, columns)


def _is_column(values: Any, rows: int) -> bool:
    """Whether it has a value for each row, as lists, arrays and columns of `datasets` have."""
    listed = not isinstance(values, (str, Mapping)) and hasattr(values, "__getitem__")
    return listed and len(values) == rows


def _question(prompt: Any) -> str:
    """The last thing that the user says in a prompt; a text is itself."""
    return prompt if isinstance(prompt, str) else text_of(_last(prompt, "user", "a prompt"))


def _last(messages: Any, role: str, what: str) -> Any:
    """The last message of a role; None of a conversation that is empty.

    Raises:
        ConfigError: it is no conversation, or not in the form that TRL's are.
    """
    given = [messages] if isinstance(messages, Mapping) else messages
    if not is_conversation(given) and (not isinstance(given, (list, tuple)) or given):
        raise ConfigError(
            f"{what} is one text or a list of messages with role and content, not {str(messages)[:200]!r}"
        )
    return last_message(given, role)


def _completion(prompt: Any, completion: Any, prefill: str) -> Completion:
    """A completion as rewards read it; reasoning that TRL passes apart comes with its own `<think>`."""
    if isinstance(completion, str):
        return Completion(completion, prefill=prefill or _begun_in_prompt(prompt))
    message = _last(completion, "assistant", "a completion")
    begun = "" if reasoning_of(message).strip() else _begun_in_prompt(prompt) or prefill
    return Completion(completion_of(message), prefill=begun)


def _begun_in_prompt(prompt: Any) -> str:
    """The part of the assistant's turn that is in the prompt: its last message, or a text's `<think>`."""
    if isinstance(prompt, str):
        return opened(prompt)
    last = prompt[-1] if len(prompt) else {}
    return completion_of(last) if last_message([last], "assistant") is not None else ""


def _form_missing(results: Sequence[Result], texts: Sequence[Completion], reward: Reward) -> str:
    """The warning where every completion of a batch is floored for its form; "" for other batches."""
    graded = [result for result in results if result.state != "masked"]
    causes = Counter(result.cause or "" if result.state == "floored" else "" for result in graded)
    if not causes or not causes.keys() <= _FORMS.keys():
        return ""
    forms = " and ".join(sorted({_FORMS[cause] for cause in causes}))
    remedy = "ask for it in the prompts"
    if 2 * sum(text.truncated for text in texts) > len(texts):
        remedy = "most were cut off: raise max_completion_length"
    elif "text" in reward.choices.get("answer", ()):
        remedy += ', or take .with_(answer="text"), which reads the whole text'
    return (
        f"reward {reward.name!r} reads {forms}, which none of the {len(graded)} completions of the first "
        f"batch has ({', '.join(causes)}): all are floored alike, so nothing is learnt; {remedy}"
    )


def _of_all_processes(results: Sequence[Result]) -> Sequence[Result]:
    """TRL averages a metric over the processes that log it, and not all see every cause or term."""
    try:
        from accelerate.utils import gather_object
    except ImportError:  # not in a trainer
        return results
    return gather_object(list(results))


def _extra_columns(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Columns for the table of completions; always the same ones, as TRL keeps the last values of each."""
    return {
        "state": [result.state for result in results],
        "cause": [result.cause or "" for result in results],
        "terms": [json.dumps(dict(result.terms)) for result in results],
        "facts": [json.dumps(dict(result.facts), ensure_ascii=False) for result in results],
    }
