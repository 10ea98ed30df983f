"""`factrl eval FILE --paper P`: what a reward gives to the completions that a file holds, term by term."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from factrl.errors import DataError, TooManyMasked, Unscored
from factrl.evals.ask import EvalSettings, completions_of, stored_texts
from factrl.evals.catalogue import own_file
from factrl.job import read_job
from factrl.rewards import SUM, THREADS, Reward
from factrl.runs.data import load_examples
from factrl.runs.disk import MayReplace, check_free, whole_file
from factrl.runs.progress import Progress
from factrl.runs.rows import read_rows
from factrl.text import implied
from factrl.types import Completion, Example, Result

from .options import as_overrides, check_judge, check_place, warn_of_weak
from .terminal import say, show_rows, tally, tell

AT_ONCE = 4 * THREADS  # completions that are scored between two writes to the file of rows
_STATES = ("scored", "masked", "floored")

Stored = tuple[Example, str | None]


def score(args: argparse.Namespace, file_name: str) -> int:
    """`factrl eval FILE --paper P`: prints the terms, states and causes; returns the exit code.

    Args:
        args: of `factrl eval`; `output` is a file that gets a row per completion, once all are known.
    """
    output = None if args.output is None else Path(args.output)
    if output is not None:
        check_place("--output", output, ".jsonl")
    # No model is asked, and a recipe may leave it to the user.
    overrides = [f"data.train={file_name}", "model.name=none", *as_overrides(args)]
    job = read_job(args.config, overrides, EvalSettings)
    settings = job.settings
    examples = load_examples(
        file_name, columns=settings.data.columns, limit=args.limit, require_answers=False
    )
    column = settings.grade.column
    if args.completions:
        texts, left = stored_texts(args.completions, column, own_file(file_name, settings.data), examples)
        if left:
            tell(left)
        of = {one.id: one for one in examples}
        given = ((of[name], text) for (name, _), text in texts.items())
        stored = [(example, None if isinstance(text, Unscored) else text) for example, text in given]
    else:
        stored = list(zip(examples, completions_of(file_name, examples, column), strict=True))

    def ours(path: Path) -> bool:
        return _is_of(path, stored)

    if output is not None:
        check_free(output, ours)
    job.checked()
    job.check_examples([example for example, text in stored if text is not None])
    reward = job.supplied
    check_judge(job, rules="grade" in reward.resources)
    warn_of_weak(reward.resources.get("verify"))
    results: list[Result] = []
    size = len(stored) if "group" in reward.resources else AT_ONCE  # a group is not cut
    with (
        nullcontext(None) if output is None else _rows_file(output, ours) as file,
        Progress("eval", len(stored)) as progress,
    ):
        for start in range(0, len(stored), size):
            chunk = stored[start : start + size]
            new = score_stored(reward, chunk, settings.data.prefill)
            results += new
            if file is not None:
                rows = (_row(*one, result) for one, result in zip(chunk, new, strict=True))
                file.writelines(json.dumps(row) + "\n" for row in rows)
                file.flush()
            progress.advance(len(chunk))
    summary = summarise(results)
    about = {"file": file_name, "paper": settings.paper, "reward": dict(reward.knobs)}
    if args.json:
        say(json.dumps({**about, "output": args.output, **summary}, indent=2))
    else:
        _show(summary)
    if output is not None:
        tell(f"one row per completion: {args.output}")
    n, masked = summary["completions"], summary["states"]["masked"]
    if masked == n:
        causes = tally(summary["causes"]["masked"])
        raise TooManyMasked(f"none of the {n} completions could be graded ({causes})")
    if masked:
        tell(f"{masked} of {n} completions could not be graded; the means are of the others.")
    return 0


def score_stored(reward: Reward, stored: Sequence[Stored], prefill: str = "") -> list[Result]:
    """What a reward makes of stored completions, in their order; a null completion is masked.

    Args:
        reward: its resources supplied.
        stored: examples with what was written for them.
        prefill: what the prompt had put at the start of the answer.  A completion that starts with it, or
            with the tag that it ends with, was stored with it.  Without one, a completion that closes a
            reasoning which it never opens had it opened by the chat template of its model.
    """
    present = [(example, text) for example, text in stored if text is not None]
    starts = (prefill.strip(), prefill[max(prefill.rfind("<"), 0) :].strip())
    completions = [
        Completion(text, prefill="" if text.lstrip().startswith(starts) else prefill)
        if prefill
        else Completion(text, prefill=implied(text))
        for _, text in present
    ]
    scored = iter(reward.batch([example for example, _ in present], completions))
    absent = Result("masked", None, cause="no_completion", detail="the file has no completion here")
    return [absent if text is None else next(scored) for _, text in stored]


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Terms and states of results, as plain data.

    Returns:
        `terms`: per term, and for their sum, the mean over the completions that have it, and the share of
        all completions that do.  `states`: how many completions are in each.  `causes`: of masked and
        floored ones, by cause.
    """
    columns: dict[str, list[float]] = {}
    total = [result.value for result in results if result.value is not None]
    for result in results:
        for name, value in result.terms.items() if result.value is not None else ():
            columns.setdefault(name, []).append(value)
    return {
        "completions": len(results),
        "terms": {
            name: {"mean": fmean(values) if values else None, "share": len(values) / len(results)}
            for name, values in {**columns, SUM: total}.items()
        },
        "states": {state: sum(result.state == state for result in results) for state in _STATES},
        "causes": {
            state: dict(Counter(r.cause or "" for r in results if r.state == state).most_common())
            for state in ("masked", "floored")
        },
    }


def _show(summary: dict[str, Any]) -> None:
    rows: list[Sequence[str] | None] = []
    for name, of in summary["terms"].items():
        mean = "–" if of["mean"] is None else f"{of['mean']:.3f}"
        rows += [*([None] if name == SUM else []), (name, mean, f"{of['share']:.0%}", "")]
    rows.append(None)
    for state, count in summary["states"].items():
        causes = ", ".join(f"{cause} {n}" for cause, n in summary["causes"].get(state, {}).items())
        rows.append((state, "", f"{count} of {summary['completions']}", causes))
    show_rows(("term", "mean", "completions", "causes"), rows)


@contextmanager
def _rows_file(path: Path, may_replace: MayReplace) -> Iterator[TextIO]:
    with whole_file(path, may_replace) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        yield file


def _is_of(path: Path, stored: Sequence[Stored]) -> bool:
    """Whether a file has rows of these completions, so that the same command made it."""
    try:
        rows = [(row["id"], row["completion"], row["state"]) for row in read_rows(str(path))]
    except (DataError, KeyError):
        return False
    return [row[:2] for row in rows] == [(example.id, text) for example, text in stored]


def _row(example: Example, text: str | None, result: Result) -> dict[str, Any]:
    return {
        "id": example.id,
        "state": result.state,
        "value": result.value,
        "terms": dict(result.terms),
        "cause": result.cause,
        "detail": result.detail,
        "facts": dict(result.facts),
        "spans": [asdict(span) for span in result.spans],
        "completion": text,
    }
