"""Which of two evaluations' answers a judge prefers, benchmark by benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from factrl.bench.prompts import final_part
from factrl.bench.results import Output
from factrl.bench.samples import Sample, by_question
from factrl.bench.winrate import Prefer, WinRate, win_rate
from factrl.journal import Journal
from factrl.types import Completion, Example
from factrl.writers import digest_of

FOLDER = "preferences"  # of the later evaluation


def preferred(
    name: str,
    pairs: Sequence[tuple[Example, str, str]],
    prefer: Prefer,
    judge: str,
    folder: Path,
    *,
    workers: int = 16,
    on_done: Callable[[int], None] = lambda count: None,
) -> WinRate:
    """The win rate of the later evaluation's first answers over the earlier one's, without their reasoning.

    Every verdict is kept in `preferences/` of the later evaluation, in a file for these answers and this
    judge, and not asked for again.  What had no verdict is masked, and tried again by the next call.

    Args:
        name: the benchmark.
        pairs: of `written_in_both`, at least one.
        prefer: compares two answers; called from several threads.
        judge: its identity, under which verdicts are kept.
        folder: of the later evaluation.
        on_done: called with 1 after each question, in this thread.

    Raises:
        ConfigError: the folder cannot be written.
    """
    about = {"benchmark": name, "judge": judge, "answers": digest_of(pairs)}
    path = folder / FOLDER / f"{name}.{digest_of(about)}.jsonl"
    examples, first, second = zip(*pairs, strict=True)
    with Journal(path, about) as journal:
        return win_rate(examples, first, second, prefer, kept=journal, workers=workers, on_done=on_done)


def written_in_both(name: str, before: Output, after: Output) -> list[tuple[Example, str, str]]:
    """The questions with a text in both, and what each says after reasoning; nothing, if that has no end."""
    sides = [by_question(side.samples.get(name, ())) for side in (before, after)]
    found = []
    for key, group in sides[0].items():
        first, second = (_text(side.get(key, ())) for side in sides)
        if first is not None and second is not None:
            example = Example(group[0].question, tuple(group[0].answers), group[0].id)
            found.append((example, final_part(first) or "", final_part(second) or ""))
    return found


def _text(group: Sequence[Sample]) -> Completion | None:
    if not group or group[0].completion is None:
        return None
    return Completion(group[0].completion, prefill=group[0].marks.get("prefill", ""))
