"""What became of an answer, by the kind of its benchmark.

Every scorer returns a `Grade` and the numbers that go with it, or raises `Unscored`, which is caught here and
nowhere else: such an answer is masked, counted by cause, and in no number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from factrl.errors import Unscored
from factrl.evals.benchmark import Benchmark
from factrl.evals.choice import by_letter, by_likelihood
from factrl.evals.prompts import final_part, stated_confidence
from factrl.evals.samples import Sample
from factrl.evals.shortqa import Extract, GradeAnswer, find_answer
from factrl.llm.writers import Written, digest_of
from factrl.rewards.mathematics import Mathematician
from factrl.runs.journal import Journal
from factrl.text.abstention import abstains, says_invalid_question
from factrl.types import Completion, Example, Grade

Outcome = tuple[Grade, Mapping[str, float]]
OF = "of"  # where a row of grades keeps what it is about
_NO_COMMENT = "I have no comment."  # TruthfulQA takes it for a true answer to everything
_WORDS = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Tools:
    """What scorers need.

    Attributes:
        grader: grades short answers; called from several threads.
        mathematician: compares formulas.
        extract: where a short answer stands in a completion.
        confidence: answers end with how sure the model is.
        chat: false where the model only continued the text.
        workers: answers graded at the same time.
    """

    grader: GradeAnswer
    mathematician: Mathematician
    extract: Extract = "text"
    confidence: bool = False
    chat: bool = True
    workers: int = 16


def score_text(benchmark: Benchmark, example: Example, text: str, tools: Tools) -> Outcome:
    """What became of a text; reasoning before `</think>` is not looked at, and a text without an end of it is
    floored.

    Raises:
        Unscored: it could not be graded.
    """
    said = final_part(text, chat=tools.chat, long=benchmark.kind == "reasoning")
    if said is None:
        return Grade("incorrect", "", how="gate", floored="no_answer"), {}
    if benchmark.kind in ("choice", "discrimination"):
        return by_letter(example, said)
    if benchmark.kind == "reasoning":
        return tools.mathematician.grade(said, example.answers[0]), {}
    answer, missing = find_answer(said, tools.extract)
    if answer is None:
        return Grade("incorrect", "", how="gate", floored=missing), {}
    if example.meta.get("answerable") is False:
        declined = abstains(answer, example.question) or says_invalid_question(answer)
        return Grade("abstained" if declined else "incorrect", answer.strip()[:200], how="rules"), {}
    grade = tools.grader(example.question, answer, example.answers, false_premise=example.false_premise)
    wrong = example.meta.get("wrong_answers")
    return grade, {"rouge1_acc": closer_to_true(answer, example.answers, wrong)} if wrong else {}


def closer_to_true(text: str, true: Sequence[str], false: Sequence[str]) -> float:
    """1.0 when the text has more words in common with a true reference than with any false one, else 0.0.

    TruthfulQA's ROUGE-1 accuracy (arXiv 2109.07958, appendix B; F-measure without stemming, "I have no
    comment." among the true references).
    """
    best = [max(_rouge1(text, other) for other in texts) for texts in ([*true, _NO_COMMENT], false)]
    return float(best[0] > best[1])


def _rouge1(text: str, other: str) -> float:
    ours, theirs = Counter(_WORDS.findall(text.lower())), Counter(_WORDS.findall(other.lower()))
    shared = sum((ours & theirs).values())
    return 2 * shared / (ours.total() + theirs.total()) if shared else 0.0


def grade_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Mapping[tuple[str, int], Written],
    tools: Tools,
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> list[Sample]:
    """A `Sample` for every text, in the order of the questions; what the journal has is not graded again.

    What could not be graded is not kept, so that the next run tries again.
    """
    by_id = {example.id: example for example in examples}
    order = {name: position for position, name in enumerate(by_id)}
    keys = sorted((key for key in texts if key[0] in by_id), key=lambda key: (order[key[0]], key[1]))

    def grade(key: tuple[str, int]) -> tuple[dict[str, Any], bool]:
        found = dict(journal.get(f"{key[1]}:{key[0]}", {}))
        if found.pop(OF, None) == grade_digest(texts[key], by_id[key[0]]):
            return found, False
        return _graded(benchmark, by_id[key[0]], texts[key], tools), True

    samples = []
    pool = ThreadPoolExecutor(tools.workers)
    try:
        for key, (row, new) in zip(keys, pool.map(grade, keys), strict=True):
            if new and row.get("label") is not None:
                of = grade_digest(texts[key], by_id[key[0]])
                journal.add(f"{key[1]}:{key[0]}", {**row, OF: of})
            samples.append(sample_of(benchmark, by_id[key[0]], key[1], texts[key], row))
            on_done(1)
    finally:
        pool.shutdown(cancel_futures=True)
    return samples


def grade_digest(text: Written, example: Example) -> str:
    """Of what a grade is about: the text and everything that is known of its question."""
    return digest_of(str(text), text.prefill if isinstance(text, Completion) else "", example)


def _graded(benchmark: Benchmark, example: Example, text: Written, tools: Tools) -> dict[str, Any]:
    if isinstance(text, Unscored):
        return {"cause": text.cause, "detail": text.detail}
    plain, sure = stated_confidence(text) if tools.confidence else (text, None)
    said = Completion(plain, prefill=text.prefill)
    try:
        grade, values = score_text(benchmark, example, said, tools)
    except Unscored as error:
        return {"cause": error.cause, "detail": error.detail, "confidence": sure}
    return {**_plain(grade), "confidence": sure, "values": dict(values)}


def grade_likelihoods(
    benchmark: Benchmark, examples: Sequence[Example], sums: Mapping[str, Sequence[float]]
) -> list[Sample]:
    """A `Sample` for every question whose options were weighed."""
    samples = []
    for example in examples:
        grade, values = by_likelihood(example, sums[example.id], benchmark.several)
        samples.append(sample_of(benchmark, example, 0, None, {**_plain(grade), "values": values}))
    return samples


def sample_of(
    benchmark: Benchmark, example: Example, number: int, text: Written | None, row: Mapping[str, Any]
) -> Sample:
    """One row from a question, what was written and what became of it."""
    wrote = text if isinstance(text, str) else None
    marks: dict[str, Any] = {}
    if example.meta.get("answerable") is False:
        marks["answerable"] = False
    if example.false_premise is not None:
        marks["false_premise"] = example.false_premise
    if "right" in example.meta:
        marks["chance"] = sum(example.meta["right"]) / len(example.meta["right"])
    if wrote is not None and wrote.prefill:
        marks["prefill"] = wrote.prefill
    return Sample(
        benchmark=benchmark.name,
        id=example.id,
        number=number,
        question=example.question,
        answers=list(example.answers),
        completion=None if wrote is None else str(wrote),
        truncated=bool(wrote is not None and wrote.truncated),
        tokens=None if wrote is None else wrote.tokens,
        marks=marks,
        **row,
    )


def _plain(grade: Grade) -> dict[str, Any]:
    return {
        "label": grade.label,
        "answer": grade.answer,
        "how": grade.how,
        "floored": grade.floored,
        "why": grade.why,
    }
