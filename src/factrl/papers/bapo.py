"""BAPO: "I don't know" pays where no completion of the question is right, once answers stop improving.

Paper     BAPO: Boundary-Aware Policy Optimization for Reliable Agentic Search, Liu et al. 2026,
          arXiv:2601.11037, known to us from a public note of its content
Code      Liushiyu-0709/BAPO-Reliable-Search, on verl, read in a public copy (b8b1072)
Correct   word-level F1 of the answer with the best accepted answer; -1 where the format is violated
Boundary  +0.5 for declining, in form, where no completion of the group has F1 > 0; else declining is 0
Stages    exploration: the boundary reward is paid only in steps in which less than alpha = 5 % of all
          completions decline.  Plateau: once validation has not improved for 5 evaluations; then it is not
          paid in groups that still explore, with G/2 different answers or more

The completions of a question have to be seen together (`Completion.group`), the stages also need all of the
step and the evaluations (`Completion.course`), which `factrl train` with TRL has.  verl and the server see a
group: `bapo:plateau` works there, the stages are refused by name.

Where code and note differ, and what is done here:
- The code leaves exploration after more than five evaluations below the best, counted together and never
  reset, of the mean reward; here after `patience` evaluations since the best accuracy.
- alpha is a share of the whole step in the code, so here (of 8 completions, less than 5 % is none).  A text
  beside the code says 0.1; its script and the note say 0.05.
- Different answers are counted in the code without those that decline: at most 3 of 8; here fewer than half.
- The code takes "i don't know" or "i do not know" anywhere in the answer for declining.  Here it is what all
  of factrl calls an abstention, which asserts nothing beside it; its F1 is 0.
- The code wants the answer in \\boxed{} between answer tags.  Here a box there is read, and not needed; an
  answer without content is a violation, and the only one where the whole text is the answer.
- Both draw groups again, up to twice, in which nothing is right and nobody declines.  It is not built here:
  a question counts as beyond reach after one group.
- Four updates of 16 questions on each 64 there, one of 64 here.  The paper's policy searches as it answers;
  this reads the answer of the last turn, whoever searched.

In a group without a right answer declining is worth 0.5 and a wrong answer 0, in others both are 0.  Where
each of eight is right with probability p and the seven others answer, declining is worth 0.5 (1 - p)^7 before
the group is known, and answering pays from p = 0.154 on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from factrl.rewards import reward
from factrl.text import boxed, tag, unwrap_latex
from factrl.text.abstention import abstains
from factrl.text.answers import equals, is_contentless, normalize_answer
from factrl.types import Completion, Example, Score, TrainingState

_CHOICES = {"stage": ("auto", "exploration", "plateau"), "answer": ("tags", "text")}


@dataclass(frozen=True, slots=True)
class _Read:
    """What stands in a completion: its answer, F1, whether it declines, and how it breaks the format."""

    answer: str
    f1: float
    declines: bool
    malformed: str = ""


def _requires(example: Example, knobs: Mapping[str, Any]) -> str | None:
    return None if example.answers else "it has no accepted answers"


def _unused(knobs: Mapping[str, Any]) -> list[str]:
    return ["group", "course"] if not knobs["bounded"] else ["course"] if knobs["stage"] == "plateau" else []


@reward(requires=_requires, unused=_unused, choices=_CHOICES)
def bapo(
    example: Example,
    completion: Completion,
    *,
    group: Callable[[Completion], tuple[str, ...]],
    course: Callable[[Completion], TrainingState],
    idk: float = 0.5,
    malformed: float = -1.0,
    stage: str = "auto",
    alpha: float = 0.05,
    patience: int = 5,
    diverse: float = 0.5,
    bounded: bool = True,
    answer: str = "tags",
) -> Score:
    """F1 of the answer, and the boundary reward for declining; the terms are `correct` and `boundary`.

    Args:
        idk: what declining is worth where no completion of the group is right.
        malformed: what a completion that breaks the format is worth.
        stage: `exploration` or `plateau`; `auto` is the one until held-out answers stop improving, then the
            other.
        alpha: in exploration the boundary reward is paid while a smaller share of the step declines.
        patience: evaluations without a better one after which the plateau begins.
        diverse: share of different answers in a group from which on it still explores, at the plateau; with
            1 it never does.
        bounded: without it, declining is worth `idk` always, and nothing else is looked at.
        answer: `tags`, the answer stands in `<answer>` after a `<think>`; `text`, it is the whole text.

    Raises:
        ConfigError: the completion is alone, or nobody says how the run goes.
    """

    def read(text: str) -> _Read:
        return _read(completion.prefill + text, example.question, example.answers, answer)

    own = read(completion)
    facts: dict[str, Any] = {"answer": own.answer, "f1": own.f1}
    if own.malformed:
        return Score({"correct": malformed, "boundary": 0.0}, floored=own.malformed, facts=facts)
    right = equals(own.answer, example.answers) is not None
    facts["label"] = "abstained" if own.declines else "correct" if right else "incorrect"
    pays = own.declines
    if pays and bounded:
        others = [read(text) for text in group(completion)]
        pays = not any(other.f1 > 0 for other in others)
        now = course(completion) if stage != "plateau" else None
        exploring = now is not None and (stage == "exploration" or now.stalled < patience)
        facts["stage"] = "exploration" if exploring else "plateau"
        if exploring and now is not None:
            pays = pays and _declining(now.texts, completion.prefill, answer) < alpha
        else:
            guesses = {normalize_answer(other.answer) for other in others if not other.declines}
            pays = pays and len(guesses) < diverse * len(others)
    return Score({"correct": own.f1, "boundary": idk * pays}, facts=facts)


@lru_cache(maxsize=8_192)  # each is read for every other of its group
def _read(text: str, question: str, answers: tuple[str, ...], form: str) -> _Read:
    parsed, problem = _answer(text, form)
    if problem:
        return _Read(parsed, 0.0, declines=False, malformed=problem)
    declines = abstains(parsed, question, strict=True)
    return _Read(parsed, 0.0 if declines else max(_f1(parsed, one) for one in answers), declines)


def _answer(text: str, form: str) -> tuple[str, str]:
    """The answer of a completion behind its prefill, and how the format is broken; a turn may think anew."""
    parsed, problem = text, ""
    if form == "tags":
        tagged = tag(text, "answer")
        if text.count("<think>") != text.count("</think>") or not text.count("<think>"):
            problem = "think_unclosed"
        elif text.count("<answer>") != 1 or text.count("</answer>") != 1 or tagged is None:
            problem = "no_answer"
        parsed = tagged.text.strip() if tagged else ""
        box = boxed(parsed)
        parsed = unwrap_latex(box.text) if box else parsed
    return parsed, problem or ("contentless" if is_contentless(parsed) else "")


def _f1(answer: str, accepted: str) -> float:
    """Word-level F1 after SQuAD's normalisation; a yes or no is right or wrong as a whole."""
    one, other = (normalize_answer(text) for text in (answer, accepted))
    if {one, other} & {"yes", "no", "noanswer"}:
        return float(one == other)
    shared = (Counter(one.split()) & Counter(other.split())).total()
    return 2 * shared / (len(one.split()) + len(other.split())) if shared else 0.0


@lru_cache(maxsize=4)
def _declining(texts: tuple[str, ...], prefill: str, form: str) -> float:
    """The share of a step's completions that decline."""
    return sum(abstains(_answer(prefill + text, form)[0], strict=True) for text in texts) / max(len(texts), 1)


_EVALUATED = "the stages end by the evaluations of held-out answers; bapo:plateau does without"
_ASKED = {"data.eval": _EVALUATED, "train.eval_steps": f"{_EVALUATED}; the script has 1"}
ASKS = {"": _ASKED, "plateau": {}, "no-modulator": {}, "fixed": {}}

TERMS = ("correct", "boundary")
VARIANTS = {
    "bapo": bapo,
    "plateau": bapo.with_(stage="plateau"),
    "no-sample": bapo.with_(diverse=1.0),
    "no-modulator": bapo.with_(stage="plateau", diverse=1.0),
    "fixed": bapo.with_(bounded=False),
}
FORM = "tags"


# Second-hand, from the note.  Reliability = (1 - abstention) precision + abstention accuracy, in points.
PUBLISHED = {
    **{
        (where, f"Qwen2.5-7B {row}", "reliability"): value
        for row, values in (
            ("Search-R1", (49.0, 22.5, 39.0, 52.0, 40.6)),
            ("ReSearch", (61.5, 31.0, 54.2, 54.4, 50.3)),
            ("Reliable RFT", (40.2, 18.5, 23.9, 49.4, 33.0)),
            ("prompting", (60.6, 27.2, 43.3, 50.5, 45.4)),
            ("GRPO", (60.0, 29.5, 59.5, 57.6, 51.7)),
            ("BAPO", (65.5, 36.6, 63.3, 61.2, 56.7)),
        )
        for where, value in zip(("HotpotQA", "MuSiQue", "2Wiki", "Bamboogle", "average"), values, strict=True)
    },
    **{
        ("average", f"Qwen2.5-3B {row}", metric): value
        for row, values in (
            ("BAPO", (44.8, 52.8, 16.8, 51.3)),
            ("fixed", (30.6, 62.4, 53.1, 44.8)),
            ("no-sample", (43.3, 52.0, 20.4, 50.1)),
            ("no-modulator", (37.8, 56.0, 35.2, 49.0)),
        )
        for metric, value in zip(("accuracy", "precision", "abstention", "reliability"), values, strict=True)
    },
}
