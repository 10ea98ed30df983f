"""Binary RAR: one bit for the whole answer, 1 where retrieved evidence contradicts nothing of it.

Paper     Train for Truth, Keep the Skills: Binary Retrieval-Augmented Reward Mitigates Hallucinations,
          Chen et al. 2025, arXiv:2510.17733 (ICML 2026), known to us from its abstract and a public note
Code      chentong0/rl-binary-rar (d97ea69), for Open-Instruct and, with other settings, for Tinker
Reward    Eq. 5: the request, the answer and its 8 best passages (BM25, 512 tokens each) are shown to a
          language model, Qwen3-32B; 1 if it finds no contradiction, else 0; what is not mentioned is none
Skills    The paper watches ten evaluations besides: AlpacaEval, Arena-Hard, IFEval, PopQA and GPQA without
          abstaining, BBH, GSM8K, Minerva, HumanEval and MBPP; `PUBLISHED` has them

The same bit is the reward of long and short answers; the paper trains on requests of WildChat alone.  An
answer that declines contradicts nothing, so it earns what a right one does: answering never pays more than
declining, and neither does saying much.  What keeps answers is the KL penalty: 0.001 for 8B and 0.003 for 4B
models; with too little of it answers become short and empty (the paper's section 6.3).

What differs from the released code, and why:
- A reply without a verdict counts as a contradiction there, and so does a server that is down; here both mask
  the sample, but for a text that is itself to blame.  So does a question for which nothing is found.
- The reasoning is not shown, as there; an unclosed one, an answer that was cut off and one without content
  earn 0 there (`non_stop_penalty_value` 0), and are floored at 0 here.
- Passages are found by request and answer, as paper and method text say; the code asks with the answer alone.
- A verdict is a word on a line of its own, not a number in JSON; the prompt is in our words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factrl.errors import PolicyFault
from factrl.llm.judging import judged_here
from factrl.rewards import reward
from factrl.rewards.grading import MAX_TEXT
from factrl.text import bytes_of
from factrl.text.abstention import abstains
from factrl.text.answers import is_contentless
from factrl.types import Completion, Example, Passage, Score


@reward(searches=True)
def rar(
    example: Example, completion: Completion, *, contradicts: Callable[[str, str, Sequence[Passage]], bool]
) -> Score:
    """1 if the answer contradicts nothing that is found for it, else 0; the only term is `consistent`.

    Raises:
        Unscored: no verdict, or nothing was found that could contradict the answer.
    """
    whole = completion.prefill + completion
    text = whole.rpartition("</think>")[2].strip()
    floored = ""
    if completion.truncated:
        floored = "truncated"
    elif "<think>" in text:
        floored = "think_unclosed"
    elif is_contentless(text):
        floored = "contentless"
    elif bytes_of(text) > MAX_TEXT:
        floored = "oversize"
    else:
        try:
            request = example.question
            contradicted = judged_here(
                lambda answer: contradicts(request, answer, example.evidence),
                text,
                about=request,
                judge=contradicts,
            )
            facts: Mapping[str, Any] = (
                {"label": "abstained"} if abstains(text, example.question, strict=True) else {}
            )
            return Score({"consistent": float(not contradicted)}, facts=facts)
        except PolicyFault as error:
            floored = error.cause
    return Score({"consistent": 0.0}, floored=floored)


TERMS = ("consistent",)
VARIANTS = {"8b": rar, "4b": rar}
VARIANT_SETTINGS = {"4b": {"train": {"beta": 0.003}}}
FORM, LENGTH = "text", "long"


# In points.  Hallucination: wrong claims of long answers, wrong answers of short ones.  From the note.
_FACTS = ("Biography", "WildHallucinations", "long answers", "PopQA", "GPQA", "short answers")
_SKILLS = (
    *("AlpacaEval", "Arena-Hard", "IFEval", "PopQA, all answered", "GPQA, all answered"),
    *("BBH", "GSM8K", "Minerva", "HumanEval", "MBPP", "all ten"),
)
PUBLISHED = {
    (where, f"Qwen3-8B {row}", metric): value
    for metric, places, rows in (
        (
            "hallucination",
            _FACTS,
            {
                "base": (76.2, 47.6, 61.9, 71.2, 50.0, 60.6),
                "SFT": (75.3, 46.5, 60.9, 70.4, 50.0, 60.2),
                "DPO": (66.9, 39.8, 53.4, 65.2, 49.1, 57.2),
                "RL, LM judge": (80.4, 50.3, 65.4, 68.8, 48.0, 58.4),
                "RL, VeriScore": (51.7, 29.5, 40.6, 43.6, 41.1, 42.3),
                "Binary RAR": (45.8, 29.2, 37.5, 26.8, 28.3, 27.6),
            },
        ),
        (
            "skill",
            _SKILLS,
            {
                "base": (54.7, 18.7, 87.2, 20.2, 48.2, 62.4, 92.8, 80.7, 83.5, 67.4, 61.6),
                "RL, VeriScore": (42.2, 14.9, 88.7, 19.6, 47.7, 61.4, 92.2, 79.0, 83.4, 66.9, 59.6),
                "Binary RAR": (53.9, 17.9, 85.2, 20.6, 48.8, 66.4, 93.4, 82.3, 86.1, 67.6, 62.2),
            },
        ),
    )
    for row, values in rows.items()
    for where, value in zip(places, values, strict=True)
}
