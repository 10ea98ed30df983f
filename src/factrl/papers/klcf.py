"""KLCF: long answers rewarded for the facts of a checklist and for claims a model holds true.

Paper     KLCF, arXiv:2509.23765.  Its code is not available, and some of its formulas and values are lost
Recall    share of the checklist that the answer states: N_con / (N_con + N_ctr + N_mis)          Eq. 3
Precision N_con / (N_con + N_ctr)                                                                Eq. 4
Truth     mean probability, by a tuned model without evidence, that a claim of the answer is true   Eq. 6
          or only of claims that the checklist, as a text, says nothing about                      Eq. 7

Reconstructed, and not to be taken for the paper's:
- R_fact = alpha recall + beta precision + gamma truth (Eq. 11).  The form fits what is readable, three
  weights in [0, 1]; those of the main configuration are lost, so `klcf` asks for them.  `table-2-row` has
  (0.4, 0.2, 0.4) and `truth-only` (0, 0, 1), two readable rows of Table 2 that are not the main one.
- Eq. 5, a "weighted harmonic balance" of recall and precision, is lost and not tried.
- The cases where a ratio is undefined: precision without a consistent or contradictory item, truth without
  claims.  They are 0, or an answer that says nothing would earn a reward.
- R = R_fact + 0.1 R_general + R_length when the format is right, else -1 (Eqs. 8 and 10).  A review gives
  the 0.1; whether the paper scales the rating first is unknown; here it is the sigmoid of the model's score.
  Ours: the general rating is of the answer block, as are the claims.
- R_length, DAPO's soft penalty for long completions (Eq. 9).  Its two lengths are lost: without them there
  is none.

Baseline  `factscore` is the paper's "GRPO + FActScore": the share of the answer's claims that evidence
          supports, without a length penalty, with the same prompt and training settings.  Ours: it has KLCF's
          format reward and no other term, and declining pays 0.

The prompts are lost too: those of `factrl.rewards.checklist`, `factrl.rewards.truthfulness` and the
extractors are ours.  Without thinking (`non-thinking`) no block is asked for, the whole text is the answer,
and a KL penalty takes the place of format and general reward, as in the paper; its weight is lost, so the
user gives it.  An item that is on a checklist twice counts once, which is ours.  A judge that fails masks,
and an answer that makes it fail earns nothing.

Weaknesses: one safe claim earns the whole truth term, one item the whole precision; a wrong answer followed
by the copied evidence earns nearly as much as a right answer (1.03 of 1.09; the wrong answer alone 0.50), as
each claim and each item counts for itself and no term checks the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from factrl.errors import ConfigError, DataError, PolicyFault
from factrl.llm.judging import judged_here
from factrl.rewards import Needs, for_example, reward
from factrl.rewards.checklist import Item
from factrl.text import think_answer
from factrl.types import Claim, Completion, Example, Score
from factrl.verifier.report import Report

from . import Paper

Check = Callable[..., Sequence[Item]]  # question, text, items; and example, where it has that parameter
Extract = Callable[[str, str, str], Sequence[Claim]]

_MALFORMED = -1.0  # the whole reward of a completion out of form (Eqs. 8 and 10, reconstructed)
_NO_CHECKLIST = "has no checklist; add a list column `checklist` with the facts that a good answer states"
_TERMS = ("recall", "precision", "truth", "general", "format", "length")


def _needs(knobs: Mapping[str, Any]) -> Needs:
    def lacks(example: Example) -> str | None:  # missing knobs are told here too, before anything is paid for
        weights = _weights(knobs["alpha"], knobs["beta"], knobs["gamma"])
        _penalty(Completion("", tokens=0), knobs["length_max"], knobs["length_buffer"])
        needed = _needs_checklist(*weights, knobs["truth_claims"])
        return f"it {_NO_CHECKLIST}" if needed and not example.checklist else None

    # A weight that is still None counts as one that is not 0: the user has to give it.
    alpha, beta, gamma = (knobs[name] != 0 for name in ("alpha", "beta", "gamma"))
    items = _needs_checklist(alpha, beta, gamma, knobs["truth_claims"])
    rated = knobs["thinking"] and knobs["general"]
    used = {"checklist": items, "extract": gamma, "truthfulness": gamma, "rate": rated}
    return Needs(lacks, [name for name, needed in used.items() if not needed])


def _needs_checklist(alpha: float, beta: float, gamma: float, truth_claims: str) -> bool:
    return bool(alpha or beta or (gamma and truth_claims == "missing"))


@reward(needs=_needs)
def klcf(
    example: Example,
    completion: Completion,
    *,
    checklist: Check,
    extract: Extract,
    truthfulness: Callable[..., Sequence[float]],
    rate: Callable[[str, str], float],
    alpha: float | None = None,
    beta: float | None = None,
    gamma: float | None = None,
    truth_claims: Literal["all", "missing"] = "all",
    thinking: bool = True,
    general: float = 0.1,
    length_max: int | None = None,
    length_buffer: int | None = None,
) -> Score:
    """KLCF's reward; the terms are `recall`, `precision`, `truth`, `general`, `format` and `length`,
    with their weights in them.  What has the weight 0 is not asked for.

    `checklist(question, text, items)` and `truthfulness(claims)` also get the example where they have a
    parameter `example`: a checker of yours may look up what it is about.

    Args:
        alpha, beta, gamma: weights of recall, precision and truth, in [0, 1] (Eq. 11).  Required: the main
            configuration's are lost.
        truth_claims: `all` claims of the answer (Eq. 6), or those `missing` from the checklist (Eq. 7).
        thinking: expect `<think>` and `<answer>` blocks and judge the answer block.
        general: weight of the rating of the answer's general quality; the value is from a review.
        length_max, length_buffer: Lmax and Lc of Eq. 9, in tokens: the penalty grows over the last
            `length_buffer` before `length_max`.  Both are lost; without them there is no penalty.

    Raises:
        ConfigError: a knob is missing or out of range, or nobody counted the completion's tokens.
        DataError: the example has no checklist although one is needed.
    """
    base_terms: dict[str, float] = dict.fromkeys(_TERMS, 0.0)
    text, question = str(completion), example.question
    if thinking:
        blocks = think_answer(completion, completion.prefill)
        if blocks.answer is None:  # whatever the weights are
            return Score({**base_terms, "format": _MALFORMED}, floored=blocks.malformed)
        text = blocks.answer.text
    a, b, g = _weights(alpha, beta, gamma)
    if not example.checklist and _needs_checklist(a, b, g, truth_claims):
        raise DataError(f"the example {example.id or example.question[:80]!r} {_NO_CHECKLIST}")
    base_terms["length"] = _penalty(completion, length_max, length_buffer)
    checklist, truthfulness = for_example(checklist, example), for_example(truthfulness, example)
    items = _distinct(example.checklist)
    terms, facts = {**base_terms}, dict[str, Any]()
    try:
        if a or b:
            labels = judged_here(
                lambda answer: checklist(question, answer, items), text, about=question, judge=checklist
            )
            counts = Counter(labels)
            facts |= {word: counts[word] for word in ("consistent", "contradictory", "missing")}
            terms |= _checklist_terms(counts, a, b)
        if g:
            extracted = judged_here(
                lambda answer: extract(answer, question, example.topic), text, about=question, judge=extract
            )
            claims = judged = [claim.text for claim in extracted if claim.skip is None]
            if claims and truth_claims == "missing":
                known = "\n".join(items)
                labels = judged_here(
                    lambda claims: checklist(question, known, claims),
                    claims,
                    control=lambda sentence: [sentence],
                    about=question,
                    judge=checklist,
                )
                judged = [claim for claim, label in zip(claims, labels, strict=True) if label == "missing"]
            truth = fmean(truthfulness(judged)) if judged else 0.0
            facts |= {"claims": len(claims), "judged": len(judged), "truth": truth}
            terms["truth"] = g * truth
        if thinking and general:
            facts["rating"] = rating = judged_here(
                lambda answer: rate(question, answer), text, about=question, judge=rate
            )
            terms["general"] = general * rating
    except PolicyFault as error:
        return Score(base_terms, floored=error.cause, facts=facts)
    return Score(terms, facts=facts)


def _distinct(checklist: Sequence[str]) -> list[str]:
    """The items without repeats; case and spaces make no difference."""
    items: dict[str, str] = {}
    for item in checklist:
        items.setdefault(" ".join(item.casefold().split()), item)
    return [*items.values()]


def _checklist_terms(counts: Mapping[Item, int], alpha: float, beta: float) -> dict[str, float]:
    """The terms for the counts of a checklist (Eqs. 3, 4 and 11)."""
    good, bad = counts["consistent"], counts["contradictory"]
    precision = good / (good + bad) if good + bad else 0.0
    return {"recall": alpha * good / (good + bad + counts["missing"]), "precision": beta * precision}


def _penalty(completion: Completion, longest: int | None, buffer: int | None) -> float:
    """Eq. 9, which is DAPO's: 0 up to Lmax - Lc tokens, down to -1 at Lmax, -1 beyond."""
    if longest is None and buffer is None:
        return 0.0
    if not isinstance(longest, int) or not isinstance(buffer, int) or not 0 < buffer <= longest:
        raise ConfigError(
            f"length_max = {longest!r} and length_buffer = {buffer!r}: give both, 0 < length_buffer <= "
            "length_max, or none for no length penalty"
        )
    if completion.tokens is None:
        raise ConfigError(
            "length_max is in tokens, and nobody counted this completion's; leave length_max and "
            "length_buffer out to score stored answers"
        )
    return min(0.0, max(-1.0, (longest - buffer - completion.tokens) / buffer))


def _weights(*weights: float | None) -> tuple[float, float, float]:
    """Alpha, beta and gamma, which the user has to give."""
    for name, value in zip(("alpha", "beta", "gamma"), weights, strict=True):
        if value is None:
            raise ConfigError(
                f"klcf needs reward.{name}: the weights of the paper's main configuration are lost, so give "
                "reward.alpha, reward.beta and reward.gamma, each between 0 and 1, or take a variant that "
                "has them: klcf:table-2-row, klcf:truth-only"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ConfigError(f"reward.{name} = {value!r} must be a number between 0 and 1")
    alpha, beta, gamma = (float(value or 0) for value in weights)
    return alpha, beta, gamma


@reward(needs=Needs(searches=True))
def factscore(example: Example, completion: Completion, *, verify: Callable[..., Report]) -> Score:
    """The paper's baseline GRPO + FActScore; the terms are `precision` and `format`.

    `precision` is FActScore (arXiv:2305.14251) without its length penalty: supported claims of the answer
    block over all of them, so that one of one is 1.  An answer that declines has none there, and
    `precision` 0 here.
    """
    blocks = think_answer(completion, completion.prefill)
    if blocks.answer is None:
        return Score({"precision": 0.0, "format": _MALFORMED}, floored=blocks.malformed)
    report = verify(
        blocks.answer.text, example.question, topic=example.topic, evidence=example.evidence or None
    )
    terms = {"precision": report.precision or 0.0, "format": 0.0}
    return Score(terms, floored=report.floored, facts={"claims": report.claims, **report.likelier})


_ROW = klcf.with_(alpha=0.4, beta=0.2, gamma=0.4)  # a row of Table 2, not the main configuration

PAPER = Paper(
    {
        "weights-required": klcf,
        "table-2-row": _ROW,
        "truth-only": klcf.with_(alpha=0.0, beta=0.0, gamma=1.0),  # another row of Table 2
        "non-thinking": _ROW.with_(thinking=False),
        "uncovered": _ROW.with_(truth_claims="missing"),
        "factscore": factscore,
    },
    terms=_TERMS,
    form="tags",
    length="long",
    settings={
        "non-thinking": {
            "data": {
                "prompt": "Answer the question below in detail. State only facts that you are sure of.\n\n"
                "Question: {question}"
            }
        },
        "factscore": {"verifier": {"preset": "factscore", "max_claims": 100_000}},  # all claims are judged
    },
    asks={
        "non-thinking": {
            "train.beta": "it has a KL penalty in the place of the general reward, and its weight is lost "
            "(Table 8); 0 leaves the penalty out"
        }
    },
    stand_in=(
        "table-2-row",
        "klcf's own weights are lost: alpha=0.4 beta=0.2 gamma=0.4, a row of its Table 2",
    ),
)
