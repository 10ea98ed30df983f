"""What became of an answer, by the kind of its question: short, a formula, or one of several options.

TruthfulQA (arXiv 2109.07958, section 2.2) scores an option by the sum of the log-probabilities of its tokens
after the question, without any correction for length, so that long options lose:

    MC1   1 when the option with the highest sum is the true one
    MC2   exp of the sums, normalised over the options: the share that the true options get

Differences from the original: the question is asked in the model's own chat format, without the six worked
examples that the original puts first, and an option is not ended by a token.
A model behind a server gives no likelihoods: it is asked for a letter, which measures something else and is
reported as such.

Grades are not kept here: what a judge said is in the store of replies (`factrl.llm.store`), and rules are
quick.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, get_args

from factrl.errors import ConfigError, FactrlError, RewardBug, Unscored, nearest
from factrl.evals.catalogue import Benchmark, is_hopeless
from factrl.evals.samples import EvalSample
from factrl.llm.writers import Written
from factrl.rewards.mathematics import math_grader
from factrl.runs.progress import Progress
from factrl.text import boxed, tag
from factrl.text.abstention import abstains, says_invalid_question
from factrl.text.answers import normalize_answer
from factrl.text.confidence import stated_confidence
from factrl.text.reasoning import Extract, find_answer, without_reasoning
from factrl.types import Completion, Example, Grade

ScoredAnswer = tuple[Grade, Mapping[str, float]]
"""What became of a text, and other numbers of it."""
Texts = dict[tuple[str, int], Written]
"""Answers by id of the question and number of the sample."""
NOTHING_STORED = Unscored("no_completion", "the file has no completion here")


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


# -- Options -----------------------------------------------------------------------------------------


_NOT = r"(?!\s+(?:is|was)\s+(?:wrong|incorrect|not|false)|\s+isn['’]t)"
_NAMED = re.compile(
    rf"(?i:answer|option|choice|答案|选项)\W{{0,4}}(?i:is|是|为)?\W{{0,6}}([A-Z])(?![A-Za-z'’]){_NOT}"
)
_ALONE = re.compile(r"\W*([A-Za-z])\W*")
# A letter with a sign, an end of line, "or", "and" or "is" after it; "A person" has an article.
_AFTER = r"\s*$|\s*\n|[).:,;!?/、。，；：\]*]|\s+(?:or|and|is)\b|[或和]"
_WHOLE = r"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])"
_STANDS = re.compile(rf"(?<![A-Za-z0-9_'’])(?<!not )([A-Z])(?={_AFTER}){_NOT}")


def by_likelihood(example: Example, sums: Sequence[float], *, several: bool) -> ScoredAnswer:
    """Whether the most likely option is a true one, which is MC1, and with `several` the question's `mc2`.

    Args:
        example: its `meta` has `choices` and `right`.
        sums: the log-probability of each option.
    """
    choices, right = example.meta["choices"], example.meta["right"]
    best = max(range(len(choices)), key=lambda number: sums[number])
    grade = Grade("correct" if right[best] else "incorrect", choices[best], how="likelihood")
    if not several:
        return grade, {}
    top = max(sums)
    weights = [math.exp(value - top) for value in sums]
    return grade, {"mc2": math.fsum(w for w, true in zip(weights, right, strict=True) if true) / sum(weights)}


def by_letter(example: Example, text: str) -> ScoredAnswer:
    """The option that a reply names; a reply that names none, or two, is wrong and counted as invalid."""
    return _by_option(example, text, chosen(text, example.meta["choices"]), "letter")


def by_text(example: Example, text: str) -> ScoredAnswer:
    """The option that a reply writes out between <answer> tags (FSPO, arXiv:2505.24630, Table 4).

    Equal but for case, punctuation and articles, as in its released scorer, which also takes a right answer
    of one word that stands among others; a reply that names none is wrong and counted as invalid.
    """
    span = tag(text, "answer")
    if span is None:
        return Grade("incorrect", text.strip()[:200], how="gate", floored="no_answer"), {}
    words = normalize_answer(span.text)
    same = [n for n, one in enumerate(example.meta["choices"]) if words and normalize_answer(one) == words]
    return _by_option(example, span.text, same[0] if len(same) == 1 else None, "text")


def _by_option(example: Example, text: str, number: int | None, how: str) -> ScoredAnswer:
    choices, right = example.meta["choices"], example.meta["right"]
    if number is None:
        if abstains(text, " ".join([example.question, *choices])):
            return Grade("abstained", text.strip(), how="abstention"), {}
        return Grade("incorrect", text.strip()[:200], how="gate", floored="no_choice"), {}
    label = "correct" if right[number] else "incorrect"
    return Grade(label, choices[number], how=how), {"chose_first": float(number == 0)}


def chosen(text: str, choices: Sequence[str]) -> int | None:
    """The number of the option that a reply commits to, None when that cannot be told.

    An option's own words, a letter that stands by itself, `the answer is B`, or words that hold those of one
    option.  Letters are capitals unless one is all there is, an article "A" is no letter, and an option's own
    words have none.  Two letters, and a reply that declines, name none.

    >>> chosen("The answer is B.", ["Oslo", "Rome"])
    1
    """
    letters = string.ascii_uppercase[: len(choices)]
    head = text.strip()
    words, options = normalize_answer(head), [normalize_answer(option) for option in choices]
    same = [n for n, option in enumerate(options) if option and option == words]
    if len(same) == 1:
        return same[0]
    if abstains(head, " ".join(choices)):
        return None
    alone = _ALONE.fullmatch(head)
    rest = head
    for option in sorted(filter(lambda one: len(one.strip()) > 1, choices), key=len, reverse=True):
        rest = re.sub(rf"(?<!\w){re.escape(option.strip())}(?!\w)", " \n", rest, flags=re.IGNORECASE)
    named = {alone[1].upper()} if alone else {*_NAMED.findall(rest), *_STANDS.findall(rest)}
    if named:
        indices = {letters.index(letter) for letter in named if letter in letters}
        return indices.pop() if len(indices) == 1 == len(named) else None
    inside = [n for n, one in enumerate(options) if one and re.search(_WHOLE % re.escape(one), words)]
    return inside[0] if len(inside) == 1 else None


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
    return [*_side_by_side(pairs, lambda one, text: (short_answer(one, text, grader, extract), {}), workers)]


def grade_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Texts,
    tools: Tools,
) -> list[EvalSample]:
    """A row for every text, in the order of the questions and of their samples."""
    keys = in_order(examples, texts)

    def score(example: Example, text: str) -> ScoredAnswer:
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


def score_text(benchmark: Benchmark, example: Example, text: str, tools: Tools) -> ScoredAnswer:
    """What became of a text; reasoning before `</think>` is not looked at, and a text without an end of it is
    floored.

    Raises:
        Unscored: it could not be graded.
    """
    answer = final_part(text, chat=tools.chat, long=benchmark.kind == "reasoning")
    if answer is None:
        return Grade("incorrect", "", how="gate", floored="no_answer"), {}
    if benchmark.kind in ("choice", "letter"):
        return by_letter(example, answer)
    if benchmark.kind == "discrimination":
        return by_text(example, answer)
    if benchmark.kind == "reasoning":
        tagged = tag(answer, "answer") if tools.extract == "answer" else None
        if tagged is not None:  # what stands there is the answer, also where it is no number and in no box
            stated = (boxed(tagged.text) or tagged).text.strip()
            return math_grader().compare(stated, example.answers[0]), {}
        return math_grader().grade(answer, example.answers[0]), {}
    grader = _decline if is_hopeless(example) else tools.grader
    return short_answer(example, answer, grader, tools.extract), {}


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
    score: Callable[[Example, str], ScoredAnswer],
    workers: int,
) -> Iterator[EvalSample]:
    """A row for every text, in order; what has not begun is left when a grader fails.

    The one place of an evaluation where `Unscored` is caught: the row is masked, and in no number.
    """

    def grade(pair: tuple[Example, str | Unscored]) -> EvalSample:
        example, text = pair
        if isinstance(text, Unscored):
            return EvalSample(example, None, None, text.cause, text.detail)
        try:
            grade, values = score(example, text)
        except Unscored as error:
            return EvalSample(example, text, None, error.cause, error.detail)
        except FactrlError:
            raise
        except Exception as error:
            raise RewardBug(f"the grader failed on {_named(example)}: {error!r}") from error
        return EvalSample(example, text, grade, values=values)

    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(grade, pairs)  # the first failure cancels what has not begun


def _named(example: Example) -> str:
    return f"example {example.id!r} ({example.question[:80]!r})"
