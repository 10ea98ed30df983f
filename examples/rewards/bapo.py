"""BAPO: "I don't know" pays where no completion of the question is right, once answers stop improving.

    factrl train examples/rewards/bapo.py:bapo --model MODEL --data questions.jsonl \
        data.eval=held_out.jsonl train.eval_steps=1 train.beta=0.001

Liu et al. 2026, arXiv:2601.11037, known to us from a public note; code Liushiyu-0709/BAPO-Reliable-Search.
Both draw a group without a right answer again and let the policy search; this does neither.  How a run goes
is known to `factrl train` alone; with `stage="plateau"` any caller that has whole groups will do.
"""

from collections import Counter
from typing import Literal

import factrl as fx
from factrl.papers import no_answers
from factrl.text import tag
from factrl.text.abstention import is_refusal
from factrl.text.answers import equals, is_contentless, normalize_answer


def needs(knobs):
    """Accepted answers; and the course of the run, until the plateau."""
    return fx.Needs(no_answers, unused=["course"] if knobs["stage"] == "plateau" else [])


@fx.reward(needs=needs)
def bapo(
    example,
    completion,
    *,
    group,
    course,
    idk=0.5,
    malformed=-1.0,
    stage: Literal["auto", "plateau"] = "auto",
    alpha=0.05,
    patience=5,
):
    """F1 of the answer, and the boundary reward for declining.

    Args:
        idk: what declining is worth where no completion of the group shares a word with an accepted answer.
        malformed: what a completion that breaks the format is worth.
        stage: `plateau` from the start; `auto` after `patience` evaluations without a better one.
        alpha: until the plateau declining pays while a smaller share of the step declines.
        patience: evaluations without a better one after which the plateau begins.
    """
    answer = answer_in(completion.prefill + completion)
    if answer is None:
        return fx.Score({"correct": malformed, "boundary": 0.0}, floored="no_answer")
    declines = is_refusal(answer)
    label = "abstained" if declines else "correct" if equals(answer, example.answers) else "incorrect"
    pays = declines
    if declines:
        others = [answer_in(completion.prefill + other) or "" for other in group(completion)]
        pays = not any(f1(other, example.answers) for other in others if not is_refusal(other))
        now = course(completion) if stage == "auto" else None
        if now is not None and now.stalled < patience:
            answers = [answer_in(completion.prefill + text) or "" for text in now.texts]
            pays = pays and sum(is_refusal(one) for one in answers) < alpha * len(answers)
        else:  # a group with G/2 different answers still explores
            guesses = {normalize_answer(other) for other in others if not is_refusal(other)}
            pays = pays and 2 * len(guesses) < len(others)
    correct = 0.0 if declines else f1(answer, example.answers)
    return fx.Score({"correct": correct, "boundary": idk * pays}, facts={"answer": answer, "label": label})


def answer_in(text):
    """What stands in `<answer>` behind the thoughts; None where the form is broken."""
    found = tag(text, "answer")
    formed = text.count("<think>") == text.count("</think>") == text.count("<answer>") == 1
    return found.text.strip() if found and formed and not is_contentless(found.text) else None


def f1(answer, accepted):
    """Word-level F1 with the best accepted answer, after SQuAD's normalisation."""

    def one(said, wanted):
        shared = (Counter(said) & Counter(wanted)).total()
        return 2 * shared / (len(said) + len(wanted)) if shared else 0.0

    return max(one(normalize_answer(answer).split(), normalize_answer(a).split()) for a in accepted)
