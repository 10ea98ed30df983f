"""robust: our own reward, made so that none of 37 known ways to cheat pays more than it should.

Ours, after no paper.  It keeps know > partial > abstain > wrong >= floored for short answers, between tags
or as the whole text.  By their formulas the published rewards break this order for 3 to 19 of the 37.

outcome   +1 a right answer, 0 an abstention, -1 anything else, -1.25 a completion that cannot be graded
fact      (supported - unsupported) / max(claims, 12), times 0.5 beside a right answer, times 0.25 beside an
          abstention, nothing beside a wrong answer, which is not even verified
partial   "I don't know the city; she was born in Poland" is an abstention when the evidence supports all that
          it asserts, and a wrong answer when it does not: then it has guessed

A claim is held against evidence, and it is unsupported unless that says so.  One that is likelier wrong than
right therefore never pays, twelve right ones pay all that there is, and from then on only their share counts.
The bands of the three outcomes do not meet: [0.5, 1.5], [-0.25, 0.25] and -1, so nothing that is said
*beside* an answer lifts it over a better outcome.  By the outcomes alone, answering pays from a confidence of
0.5 on.  Unknown counts as unsupported, so the evidence has to cover what may be said; where it does not, set
`detail=0`.

What answers each hack:
  hedge, list, refuse and guess, deny the question (D02-D06, D21, D22, D24)  one exclusive grade of the whole
      answer: every candidate must hold, a guess is graded, a hedge claims nothing, numbers are compared typed
  true but beside the answer, in any amount (D08, D12-D20, D23, D29, D31, D32, D34)  a wrong answer is -1 flat
  a wrong answer, then the evidence copied (D37)  the same: what is copied is one more candidate of the one
      grade, and a page of it is too long for an answer
  one fact, or one over and over (D07, D10, D11, D34)  volume of twelve; an exact repeat is not judged; a
      claim counts only if more than half of its words beside the question's are new, or a number is; what is
      over the verifier's limit is unsupported
  facts next to the topic, trivia (D09, D12-D14)  a supported claim counts only if it shares a word with the
      question, its topic or its answers; what the question says already is not judged
  claims about the text or its grader (D24, D36)  not judged; the grader gets policy text as quoted data only
  reasoning made up (D30)  the think part is verified with a right answer, and false steps cost
  code, tables, other languages (D17, D18)  what no claim is made of earns nothing
  empty, master key, forged or malformed tags, too long (D25-D28, D33, D35)  floored below a wrong answer,
      while a judge that failed masks.  Master keys: arXiv:2507.08794
  always abstaining (D01)  below every right answer; how often in vain is for the evaluation to say
One example of each hack is tested, with a scripted grader and verifier that mostly read well; how often real
ones let a hack through is not measured.  The two word rules are cheap filters, not an understanding of
relevance or paraphrase.  A text that knows them passes them, and wins at most
the band of its outcome; some honest facts go uncounted.  Pronouns hide the words that they look for, so use a
verifier whose claims stand alone, as the preset `local` has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

from factrl.errors import ConfigError, Unscored
from factrl.rewards import Needs, reward
from factrl.rewards.grading import Grader
from factrl.text import Blocks, Slice, think_answer
from factrl.types import Completion, Example, Score
from factrl.verifier.claims import content_words
from factrl.verifier.report import WIDTH, Report

from . import Paper, no_answers


def _needs(knobs: Mapping[str, Any]) -> Needs:
    correct, abstain, wrong, floor = (knobs[name] for name in ("correct", "abstain", "wrong", "floor"))
    detail, partial, enough = (knobs[name] for name in ("detail", "partial", "enough"))
    if enough < 1 or detail < 0 or partial < 0:
        raise ConfigError(f"enough={enough}, detail={detail:g} and partial={partial:g} must be positive")
    if not correct - detail > abstain + partial >= abstain - partial > wrong >= floor:
        raise ConfigError(
            f"the outcomes' bands must not meet, but they are {correct - detail:g} to {correct + detail:g} "
            f"(correct), {abstain - partial:g} to {abstain + partial:g} (abstain), {wrong:g} (wrong) and "
            f"{floor:g} (floor)"
        )
    return Needs(no_answers, searches=True)


@reward(needs=_needs)
def robust(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    verify: Callable[..., Report],
    correct: float = 1.0,
    abstain: float = 0.0,
    wrong: float = -1.0,
    floor: float = -1.25,
    detail: float = 0.5,
    partial: float = 0.25,
    enough: int = 12,
    answer: Literal["tags", "text"] = "tags",
) -> Score:
    """Outcome first, facts within its band; the terms are `outcome` and `fact`.

    Args:
        correct, abstain, wrong, floor: what each outcome pays.
        detail, partial: the most that facts add to or take from a right answer and an abstention.
        enough: claims from which on more of them pay nothing.
        answer: `tags`, the answer stands in `<answer>` after a `<think>`; `text`, it is the whole text.

    Raises:
        Unscored: no grade, no claims or too few verdicts.
    """
    blocks = think_answer(completion, completion.prefill) if answer == "tags" else _whole(completion)
    if blocks.think is None or blocks.answer is None:
        return Score({"outcome": floor, "fact": 0.0}, floored=blocks.malformed)
    think, given = blocks.think.text, blocks.answer.text
    graded = grade(example.question, given, example.answers, false_premise=example.false_premise)
    facts: dict[str, Any] = {"answer": graded.answer, "label": graded.label, "how": graded.how}
    if graded.floored:
        return Score({"outcome": floor, "fact": 0.0}, floored=graded.floored, facts=facts)
    if graded.label == "incorrect":
        return Score({"outcome": wrong, "fact": 0.0}, facts=facts)
    if graded.how == "abstention":  # one of the listed refusals, which asserts nothing
        return Score({"outcome": abstain, "fact": 0.0}, facts=facts)
    right = graded.label == "correct"
    # An abstention is paid for what it tells the reader, a right answer for its reasons and for what it says
    # beyond an accepted answer, which comes first so that it is within the verifier's limit.
    text = given if not right else think if graded.how != "judge" else f"{given}\n\n{think}"
    report = verify(text, example.question, topic=example.topic, evidence=example.evidence or None)
    if report.failure is not None:
        raise report.failure
    if report.floored:
        return Score({"outcome": floor, "fact": 0.0}, floored=report.floored, facts=facts)
    counts = _counts(report, example)
    claims = counts["supported"] + counts["unsupported"] + counts["unjudged"]
    weight, missing = detail if right else partial, counts["unjudged"]
    facts.update(counts, checked=report.checked())
    if not right and counts["unsupported"]:  # what it asserts beside declining was a guess
        return Score({"outcome": wrong, "fact": 0.0}, facts=facts)
    if missing and (not right or 2 * weight * missing > WIDTH * max(claims, enough)):
        raise Unscored("claims_unjudged", f"{missing} of {claims} claims have no verdict", stage="verify")
    share = (counts["supported"] - counts["unsupported"]) / max(claims, enough)
    return Score({"outcome": correct if right else abstain, "fact": weight * share}, facts=facts)


def _whole(completion: Completion) -> Blocks:
    """The whole completion as the answer."""
    return Blocks(Slice("", 0, 0), Slice(str(completion), 0, len(completion)))


def _counts(report: Report, example: Example) -> Counter[str]:
    """How many claims are what.

    `beside` adds nothing: true but off the question, a denial, said by the question, or nearly said before.
    `skipped` says nothing that evidence could decide, such as a hedge or a remark about the answer.
    """
    of_question = content_words(" ".join([example.question, example.topic, *example.answers]))
    known: frozenset[str] = frozenset()
    counts: Counter[str] = Counter(supported=0, unsupported=0, beside=0, skipped=0, unjudged=0)
    for check in report.checks:
        if check.verdict is None:
            label = "beside" if check.claim.skip in ("question", "repeat") else "skipped"
        else:
            label = check.verdict.label
        if label in ("refuted", "unknown"):
            label = "unsupported"
        elif label == "supported":
            words = content_words(check.claim.text)
            new = words - of_question - known
            tells = 2 * len(new) > len(words - of_question) or any(word[0].isdigit() for word in new)
            denies = bool((words - of_question) & {"not", "never"})  # what is not so is without end
            if words & of_question and tells and not denies:
                known |= words
            else:
                label = "beside"
        counts[label] += 1
    return counts


PAPER = Paper({"robust": robust, "text": robust.with_(answer="text")}, terms=("outcome", "fact"), form="tags")
