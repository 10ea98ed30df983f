"""factrl's grades and rewards as scorers of Inspect (inspect_ai).

    from factrl.bridges.inspect import outcome
    Task(dataset, solver=generate(), scorer=outcome("http://localhost:8000/v1#Qwen/Qwen3-8B"))

    inspect score LOG.eval --scorer factrl/outcome
    inspect score LOG.eval --scorer factrl/reward -S paper=truthrl:binary

A sample's target holds the accepted answers; its metadata may hold what else a row of factrl has: `evidence`,
`topic`, `checklist`, `ook`, `false_premise`.  What could not be graded is Inspect's `Score.unscored`, which
is in no metric and counts among the `unscored_samples`.
"""

from __future__ import annotations

import shlex

import anyio
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # pyright: ignore[reportMissingImports]  (brought by its user)
from inspect_ai.solver import TaskState  # pyright: ignore[reportMissingImports]  (brought by its user)

from factrl.errors import ConfigError
from factrl.evals.grade import Extract, grade_completions
from factrl.evals.metrics import LABELS
from factrl.job import REWARD_ALONE, read_job
from factrl.llm import connect
from factrl.rewards.grading import AnswerForm, Grader
from factrl.runs.data import to_example
from factrl.text.messages import completion_of
from factrl.types import Completion, Example


@scorer(metrics={"*": [mean(), stderr()]})
def outcome(judge: str = "", *, extract: Extract = "text", form: AnswerForm = "sentence") -> Scorer:
    r"""Whether an answer is right, declines or is wrong, as in `factrl eval`.

    The value has `correct`, `abstained` and `incorrect`, one of them 1, and `truthfulness`, 1, 0 or -1.

    >>> scorer = outcome("http://localhost:8000/v1#Qwen/Qwen3-8B", extract="boxed")

    Args:
        judge: who grades what rules cannot decide, such as `http://localhost:8000/v1#model`; "" for rules
            alone.
        extract: where the answer is: `text`, all but the reasoning, the last `boxed`, or the last `answer`.
        form: what rules take for an answer: a `sentence` that gives an accepted one, or `short`, that equals
            it.
    """
    grader = Grader(connect(judge) if judge else None, form=form)

    async def score(state: TaskState, target: Target) -> Score:
        if failed := _failed(state):
            return failed
        pair = (_example(state, target), _completion(state))
        (row,) = await anyio.to_thread.run_sync(lambda: grade_completions([pair], grader, extract, workers=1))
        if row.grade is None:
            return Score.unscored(reason=row.cause, explanation=row.detail or None)
        grade = row.grade
        value: dict[str, float] = {label: float(label == grade.label) for label in LABELS}
        value["truthfulness"] = value["correct"] - value["incorrect"]
        about = {"how": grade.how, "floored": grade.floored}
        return Score(value=value, answer=grade.answer, explanation=grade.why or None, metadata=about)  # type: ignore[arg-type]

    return score


@scorer(metrics=[mean(), stderr()])
def reward(paper: str, *, settings: str = "") -> Scorer:
    """What a reward pays; its terms are in the score's metadata.

    Args:
        paper: `truthrl`, `truthrl:binary` or `my.py:mine`.
        settings: what a recipe can say about it, such as `judge.url=http://localhost:8000/v1#model
            verifier.index=wiki`.

    Raises:
        SetupError: no such reward, or what it needs is not there.
    """
    pays = read_job(None, [f"paper={paper}", *REWARD_ALONE, *shlex.split(settings)]).supplied

    async def score(state: TaskState, target: Target) -> Score:
        if failed := _failed(state):
            return failed
        example, text = _example(state, target), _completion(state)
        pays.check_examples([example])
        tokens = state.output.usage and state.output.usage.output_tokens
        cut = state.output.stop_reason == "max_tokens"
        completion = Completion(text, truncated=cut, tokens=tokens)
        result = await anyio.to_thread.run_sync(lambda: pays(example, completion))
        about = {"state": result.state, "cause": result.cause, "terms": dict(result.terms), **result.facts}
        if result.value is None:
            return Score.unscored(reason=result.cause, explanation=result.detail or None, metadata=about)
        return Score(value=result.value, answer=text, metadata=about)

    return score


def _failed(state: TaskState) -> Score | None:
    """The score of a sample for which the model gave no reply; None where it gave one, be it empty."""
    if state.output.choices and not state.output.error:
        return None
    return Score.unscored(reason="no_completion", explanation=state.output.error or "the model gave no reply")


def _completion(state: TaskState) -> str:
    """The answer; reasoning that Inspect keeps apart from it stands in `<think>` before it."""
    return completion_of(state.output.choices[0].message)


def _example(state: TaskState, target: Target) -> Example:
    known = dict(state.metadata or {})
    taken = [name for name in ("question", "answers") if name in known]
    if taken:
        raise ConfigError(
            f"metadata[{taken[0]!r}] of sample {state.sample_id} stands in the sample's input or target"
        )
    answers = [answer for answer in target if answer]
    return to_example({**known, "id": str(state.sample_id), "question": state.input_text, "answers": answers})
