"""Which of two evaluations' answers a judge prefers, benchmark by benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from factrl.bench.prompts import final_part
from factrl.bench.results import Output
from factrl.bench.samples import Sample, by_question
from factrl.bench.winrate import Duel, Prefer, WinRate, duel, summarise_duels
from factrl.journal import Journal
from factrl.types import Completion, Example
from factrl.writers import digest_of

FOLDER = "preferences"  # of the later evaluation


def preferred(
    name: str,
    before: Output,
    after: Output,
    prefer: Prefer,
    judge: str,
    *,
    workers: int = 16,
    on_done: Callable[[int], None] = lambda count: None,
) -> WinRate:
    """The win rate of the later evaluation's first answers over the earlier one's, without their reasoning.

    Every verdict is kept in `preferences/` of the later evaluation, in a file for these answers and this
    judge, and not asked for again.  What had no verdict is masked, and tried again by the next call.

    Args:
        name: the benchmark.
        prefer: compares two answers; called from several threads.
        judge: its identity, under which verdicts are kept.
        on_done: called with 1 after each question, in this thread.

    Raises:
        ConfigError: the folder cannot be written.
    """
    pairs = written_in_both(name, before, after)
    about = {"benchmark": name, "judge": judge, "answers": digest_of(pairs)}
    path = after.folder / FOLDER / f"{name}.{digest_of(about)}.jsonl"

    def compare(pair: tuple[Example, str, str]) -> tuple[Duel, bool]:
        example, first, second = pair
        if example.id in journal:
            return Duel(**journal[example.id]), False
        return duel(example, first, second, prefer), True

    duels = []
    with Journal(path, about) as journal:
        pool = ThreadPoolExecutor(workers)
        try:
            for one, new in pool.map(compare, pairs):
                if new and one.score is not None:
                    journal.add(one.id, one.to_json())
                duels.append(one)
                on_done(1)
        finally:
            pool.shutdown(cancel_futures=True)
    return summarise_duels(duels)


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
