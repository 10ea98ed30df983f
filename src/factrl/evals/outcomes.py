"""What became of an answer, by the kind of its benchmark; what is graded once is kept in a journal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from factrl.errors import Unscored
from factrl.evals.catalogue import Benchmark
from factrl.evals.choice import by_letter, by_likelihood
from factrl.evals.prompts import final_part, stated_confidence
from factrl.evals.samples import Outcome, Row, grade_of, graded, is_hopeless, masked
from factrl.evals.shortqa import Extract, GradeAnswer, short_answer
from factrl.llm.writers import Written, digest_of
from factrl.rewards.mathematics import Mathematician
from factrl.runs.journal import Journal
from factrl.text.abstention import abstains, says_invalid_question
from factrl.types import Completion, Example, Grade

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
    grade, answer = short_answer(
        example, said, _decline if is_hopeless(example) else tools.grader, tools.extract
    )
    wrong = example.meta.get("wrong_answers")
    if wrong and answer is not None:
        return grade, {"rouge1_acc": closer_to_true(answer, example.answers, wrong)}
    return grade, {}


def _decline(question: str, prediction: str, answers: Sequence[str], **_: object) -> Grade:
    """The grader of questions that nobody can answer."""
    declined = abstains(prediction, question) or says_invalid_question(prediction)
    return Grade("abstained" if declined else "incorrect", prediction.strip()[:200], how="rules")


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
) -> list[Row]:
    """A row for every text, in the order of the questions; what the journal has is not graded again.

    What could not be graded is not kept, so that the next run tries again.
    """
    numbers = sorted({number for _, number in texts})
    keys = [(example, number) for example in examples for number in numbers if (example.id, number) in texts]

    def grade(key: tuple[Example, int]) -> tuple[Row, str, bool]:
        example, number = key
        text = texts[example.id, number]
        of = grade_digest(text, example)
        kept = journal.get(f"{number}:{example.id}", {})
        about: dict[str, Any] = {"benchmark": benchmark.name, "number": number}
        if kept.get(OF) == of and isinstance(text, Completion):
            about["confidence"] = kept["confidence"]
            return graded(example, text, lambda: (grade_of(kept), kept["values"]), **about), of, False
        return _graded(benchmark, example, text, tools, about), of, True

    samples = []
    pool = ThreadPoolExecutor(tools.workers)
    try:
        for row, of, new in pool.map(grade, keys):
            if new and row.grade is not None:
                journal.add(f"{row.number}:{row.example.id}", {**_kept(row, row.grade), OF: of})
            samples.append(row)
            on_done(1)
    finally:
        pool.shutdown(cancel_futures=True)
    return samples


def _graded(
    benchmark: Benchmark, example: Example, text: Written, tools: Tools, about: Mapping[str, Any]
) -> Row:
    if isinstance(text, Unscored):
        return masked(example, text, **about)
    plain, sure = stated_confidence(text) if tools.confidence else (text, None)
    said = Completion(plain, prefill=text.prefill)
    return graded(
        example, text, lambda: score_text(benchmark, example, said, tools), confidence=sure, **about
    )


def _kept(row: Row, grade: Grade) -> dict[str, Any]:
    fields = {name: getattr(grade, name) for name in ("label", "answer", "how", "floored", "why")}
    return {**fields, "confidence": row.confidence, "values": dict(row.values)}


def grade_digest(text: Written, example: Example) -> str:
    """Of what a grade is about: the text and everything that is known of its question."""
    return digest_of(str(text), text.prefill if isinstance(text, Completion) else "", example)


def grade_likelihoods(
    benchmark: Benchmark, examples: Sequence[Example], sums: Mapping[str, Sequence[float]]
) -> list[Row]:
    """A row for every question whose options were weighed."""
    rows = []
    for example in examples:
        grade, values = by_likelihood(example, sums[example.id], benchmark.several)
        rows.append(Row(example, None, grade, benchmark=benchmark.name, values=values))
    return rows
