"""From an asked text to a grade: `EvalSample`, by the kind of its question.

A short answer is graded by rules and a judge; a formula by `math-verify`; of options the letter counts that
stands in the box (or between <answer> tags, where answers stand there); a long answer is checked claim by
claim.  What could not be graded is masked: this is the one place of an evaluation where `Unscored` is caught.

Grades are not kept here: what a judge said is in the store of replies (`factrl.llm.store`), and rules are
quick.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, get_args

from factrl.errors import ConfigError, FactrlError, RewardBug, Unscored, nearest
from factrl.evals.catalogue import Benchmark, is_hopeless
from factrl.evals.numbers import undecided
from factrl.evals.samples import Claims, EvalSample
from factrl.llm.writers import Written
from factrl.rewards.mathematics import math_grader
from factrl.runs.progress import Progress
from factrl.text import boxed, tag
from factrl.text.abstention import abstains, says_invalid_question
from factrl.text.answers import normalize_answer
from factrl.text.confidence import stated_confidence
from factrl.text.reasoning import Extract, find_answer, without_reasoning
from factrl.types import Completion, Example, Grade
from factrl.verifier import Report, Verifier

Texts = dict[tuple[str, int], Written]
"""Answers by id of the question and number of the sample."""
NOTHING_STORED = Unscored("no_completion", "the file has no completion here")
AT_ONCE = 8  # long answers whose claims are checked together


class GradeAnswer(Protocol):
    """Anything that grades one answer, such as `factrl.rewards.grading.Grader`."""

    def __call__(
        self, question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
    ) -> Grade:
        """What became of the answer; raises `Unscored` when it cannot be graded."""
        ...


# -- What of a text is the answer ----------------------------------------------------------------------


_NEXT = r"\n(?:(?:Question|Problem|问题)\s*[:：]|Write an article about )"


def continued(text: str, *, long: bool = False) -> str:
    """What a model that only continues text answers before it goes on with questions of its own.

    >>> continued("Paris\\nQuestion: And of Italy?")
    'Paris'

    Args:
        long: the answer may have several paragraphs; a short one ends with its own.
    """
    ends = _NEXT if long else rf"\n\s*\n|{_NEXT}"
    return re.split(ends, text.lstrip("\n"), maxsplit=1)[0].strip()


def final_part(text: str, *, chat: bool = True, long: bool = False) -> str | None:
    """What a text says after its reasoning, None when the reasoning does not end.

    Args:
        text: a `Completion` whose prefill may have begun the reasoning, or a plain text.
        chat: false for a model that only continued the text.
        long: as in `continued`.

    >>> final_part("<think>Capital of Italy.</think>Rome")
    'Rome'
    """
    rest = without_reasoning(text, getattr(text, "prefill", ""))
    return rest if chat or rest is None else continued(rest, long=long)


# -- Kinds of answers --------------------------------------------------------------------------------


def by_letter(example: Example, text: str, extract: Extract = "boxed") -> Grade:
    r"""The option whose letter, or whose own words, a reply puts into a box; any other reply is floored.

    >>> asked = Example("Capital of Italy?", meta={"choices": ["Oslo", "Rome"], "right": [0, 1]})
    >>> by_letter(asked, "It is \\boxed{B}.").label
    'correct'

    Args:
        extract: `answer` where the reply stands between <answer> tags.
    """
    choices, right = example.meta["choices"], example.meta["right"]
    found = find_answer(text, "answer" if extract == "answer" else "boxed", getattr(text, "prefill", ""))
    said = (found or "").strip()
    letter = re.fullmatch(r"\W*([A-Za-z])\W*", re.sub(r"\\text\w*", "", said))
    words = normalize_answer(said)
    named = [n for n, one in enumerate(choices) if words and normalize_answer(one) == words]
    if letter and letter[1].upper() in string.ascii_uppercase[: len(choices)]:
        named = [string.ascii_uppercase.index(letter[1].upper())]
    if len(named) == 1:
        return Grade("correct" if right[named[0]] else "incorrect", choices[named[0]], how="letter")
    if abstains(said or text, " ".join([example.question, *choices])):
        return Grade("abstained", said or text.strip()[:200], how="abstention")
    return Grade("incorrect", text.strip()[:200], how="gate", floored="no_choice" if said else "no_box")


# -- Grading -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """What the grading of all kinds of answers needs.

    Attributes:
        grader: grades short answers; called from several threads.
        extract: where a short answer stands in a completion.
        confidence: answers end with how sure the model is.
        chat: false where the model only continued the text.
        workers: answers graded at the same time.
    """

    grader: GradeAnswer
    extract: Extract = "text"
    confidence: bool = False
    chat: bool = True
    workers: int = 16


def grade_completions(
    completions: Sequence[tuple[Example, str | Unscored | None]],
    grader: GradeAnswer,
    extract: Extract = "text",
    workers: int = 16,
) -> list[EvalSample]:
    r"""Grade completions side by side; the rows come back in their order.

    Args:
        completions: examples with what was written for them, None or why when nothing was.
        grader: such as `fx.Grader()`; called from as many threads as there are `workers`.
        extract: `text` the completion without its reasoning, `boxed` the last `\boxed{…}`, `answer` the last
            `<answer>` tag.  Without the box, the tag or the end of its reasoning a completion is wrong.

    >>> from factrl.rewards.grading import Grader
    >>> [row] = grade_completions([(Example("Capital of Italy?", ("Rome",)), "It is Rome.")], Grader())
    >>> row.label
    'correct'

    Raises:
        RewardBug: the grader raised something other than `Unscored`, or returned no grade.
    """
    if extract not in get_args(Extract):
        known = get_args(Extract)
        raise ConfigError(f"extract {extract!r} is not one of {', '.join(known)}{nearest(extract, known)}")
    pairs = [(example, NOTHING_STORED if text is None else text) for example, text in completions]
    return [*_side_by_side(pairs, lambda one, text: short_answer(one, text, grader, extract), workers)]


def grade_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Texts,
    tools: Tools,
) -> list[EvalSample]:
    """A row for every text, in the order of the questions and of their samples."""
    keys = in_order(examples, texts)

    def score(example: Example, text: str) -> Grade:
        prefill = text.prefill if isinstance(text, Completion) else ""
        plain = Completion(stated_confidence(text)[0], prefill=prefill) if tools.confidence else text
        return score_text(benchmark, example, plain, tools)

    pairs = [(example, texts[example.id, number]) for example, number in keys]
    with Progress(f"{benchmark.name}: grade", len(pairs)) as progress:
        rows = [*progress.over(_side_by_side(pairs, score, tools.workers))]
    return [
        replace(row, benchmark=benchmark.name, number=number)
        for row, (_, number) in zip(rows, keys, strict=True)
    ]


def in_order(examples: Sequence[Example], texts: Texts) -> list[tuple[Example, int]]:
    """Which samples there are: the questions with their numbers."""
    numbers = sorted({number for _, number in texts})
    return [(one, number) for one in examples for number in numbers if (one.id, number) in texts]


def score_text(benchmark: Benchmark, example: Example, text: str, tools: Tools) -> Grade:
    """What became of a text; reasoning before `</think>` is not looked at, and a text without an end of it is
    floored.

    Raises:
        Unscored: it could not be graded.
    """
    answer = final_part(text, chat=tools.chat, long=benchmark.kind != "short")
    if answer is None:
        return Grade("incorrect", "", how="gate", floored="no_answer")
    if benchmark.kind == "choice":
        return by_letter(example, answer, tools.extract)
    if benchmark.kind == "reasoning":
        tagged = tag(answer, "answer") if tools.extract == "answer" else None
        if tagged is not None:  # what stands there is the answer, also where it is no number and in no box
            stated = (boxed(tagged.text) or tagged).text.strip()
            return math_grader().compare(stated, example.answers[0])
        return math_grader().grade(answer, example.answers[0])
    return short_answer(example, answer, _decline if is_hopeless(example) else tools.grader, tools.extract)


def short_answer(example: Example, text: str, grader: GradeAnswer, extract: Extract) -> Grade:
    """The grade of the answer in a text; a text without one is floored.

    Raises:
        Unscored: it could not be graded.
    """
    answer = find_answer(text, extract, getattr(text, "prefill", ""))
    if answer is None:
        return Grade("incorrect", "", how="gate", floored="no_box" if extract == "boxed" else "no_answer")
    grade = grader(example.question, answer, example.answers, false_premise=example.false_premise)
    if not isinstance(grade, Grade):
        raise RewardBug(f"the grader returned {grade!r} for {_named(example)}, not a Grade")
    return grade


def _decline(question: str, prediction: str, answers: Sequence[str], **_: object) -> Grade:
    """The grader of questions that nobody can answer."""
    declined = abstains(prediction, question) or says_invalid_question(prediction)
    return Grade("abstained" if declined else "incorrect", prediction.strip()[:200], how="rules")


def _side_by_side(
    pairs: Sequence[tuple[Example, str | Unscored]],
    score: Callable[[Example, str], Grade],
    workers: int,
) -> Iterator[EvalSample]:
    """A row for every text, in order; what has not begun is left when a grader fails.

    Where `Unscored` is raised the row is masked, and in no number.
    """

    def grade(pair: tuple[Example, str | Unscored]) -> EvalSample:
        example, text = pair
        if isinstance(text, Unscored):
            return EvalSample(example, None, None, text.cause, text.detail)
        try:
            grade = score(example, text)
        except Unscored as error:
            return EvalSample(example, text, None, error.cause, error.detail)
        except FactrlError:
            raise
        except Exception as error:
            raise RewardBug(f"the grader failed on {_named(example)}: {error!r}") from error
        return EvalSample(example, text, grade)

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(grade, pairs)  # the first failure cancels what has not begun


def _named(example: Example) -> str:
    return f"example {example.id!r} ({example.question[:80]!r})"


# -- Long answers ------------------------------------------------------------------------------------


def check_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Texts,
    verifier: Verifier,
    *,
    chat: bool = True,
) -> list[EvalSample]:
    """A row for every text; it has no grade, as a long answer is neither right nor wrong.

    What could not be checked is masked.  Reasoning is not checked.  An example's `evidence`, when it has any,
    is used instead of a search, and its `topic` is where the search is confined to.

    Args:
        chat: false where the model only continued the text.
    """
    rows, every = list[EvalSample](), in_order(examples, texts)
    with Progress(f"{benchmark.name}: grade", len(every)) as progress:
        for start in range(0, len(every), AT_ONCE):
            block = [
                _unchecked(EvalSample(one, None, None, benchmark=benchmark.name, number=number), texts, chat)
                for one, number in every[start : start + AT_ONCE]
            ]
            asked = [(row.example, answer) for row, answer in block if answer is not None]
            found = iter(
                verifier.batch(
                    [answer for _, answer in asked],
                    [example.question for example, _ in asked],
                    topics=[example.topic for example, _ in asked],
                    evidence=[example.evidence or None for example, _ in asked],
                )
            )
            for row, answer in block:
                rows.append(row if answer is None else _checked(row, next(found), benchmark.recall_at))
            progress.advance(len(block))
    return rows


def _unchecked(row: EvalSample, texts: Texts, chat: bool) -> tuple[EvalSample, str | None]:
    """A row with its text, and what of that is checked; None where there is nothing."""
    text = texts[row.example.id, row.number]
    if isinstance(text, Unscored):
        return replace(row, cause=text.cause, detail=text.detail), None
    answer = final_part(text, chat=chat, long=True)
    claims = Claims(floored="no_answer") if answer is None else None
    return replace(row, completion=text, claims=claims), answer


def _checked(row: EvalSample, report: Report, k: int) -> EvalSample:
    if failure := report.failure:
        return replace(row, cause=failure.cause, detail=failure.detail)
    claims = claims_of(report)
    if undecided([claims], k)[0]:
        detail = f"{claims.unjudged} of {claims.total} claims have no verdict"
        return replace(row, claims=claims, cause="claims_unjudged", detail=detail)
    return replace(row, claims=claims)


def claims_of(report: Report) -> Claims:
    """What was found of a checked answer."""
    claims = tuple((c.claim.text, c.verdict.label if c.verdict else "skipped") for c in report.checks)
    skipped = [label for _, label in claims].count("skipped")
    return Claims(
        **report.likelier,
        skipped=skipped,
        abstained=report.abstained,
        floored=report.floored,
        claims=claims,
    )
