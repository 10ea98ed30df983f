"""Binary RAR: one bit for the whole answer, 1 where retrieved evidence contradicts nothing of it.

    factrl train examples/rewards/rar.py:rar --model MODEL --data requests.jsonl \
        verifier.docs=FOLDER judge.url=http://localhost:8000/v1#MODEL train.beta=0.001

Chen et al. 2025, arXiv:2510.17733, known to us from its abstract and a note; code chentong0/rl-binary-rar.
There one call shows a language model the request, the answer and eight passages; here the verifier judges
the answer's claims, and one that it refutes is the contradiction (`verifier.judge=weak` compares words only).
A missing verdict counts as a contradiction there and masks the sample here, and so does a question for which
nothing is found.  An answer that declines contradicts nothing and earns what a right one does: what keeps
answers is the KL penalty (0.001 for 8B models, 0.003 for 4B).
"""

import factrl as fx
from factrl.text.abstention import is_refusal
from factrl.text.answers import is_contentless

THEIR_OWN = ("oversize", "unjudgeable", "over_limit", "unread_claim")  # no verdict by the text's own doing


@fx.reward(needs=fx.Needs(searches=True))
def rar(example, completion, *, verify):
    """1 if the answer contradicts nothing that is found for it, else 0.

    Raises:
        Unscored: verdicts that could decide are missing, or nothing was found.
    """
    text = (completion.prefill + completion).rpartition("</think>")[2].strip()
    floored = ""
    if completion.truncated:
        floored = "truncated"
    elif "<think>" in text:
        floored = "think_unclosed"
    elif is_contentless(text):
        floored = "contentless"
    if floored:
        return fx.Score({"consistent": 0.0}, floored=floored)
    if is_refusal(text):
        return fx.Score({"consistent": 1.0}, facts={"label": "abstained"})
    report = verify(text, example.question, topic=example.topic, evidence=example.evidence or None)
    if report.failure is not None:
        raise report.failure
    if report.floored:
        return fx.Score({"consistent": 0.0}, floored=report.floored)
    judged = [check for check in report.checks if check.verdict is not None]
    if any(c.verdict.label == "refuted" or c.verdict.cause in THEIR_OWN for c in judged):
        return fx.Score({"consistent": 0.0}, facts={"checked": report.checked()})
    if judged and not any(check.passages for check in judged):
        raise fx.Unscored("no_evidence", f"nothing was found for {example.question[:80]!r}", stage="search")
    _ = report.precision  # raises Unscored where what is missing could refute
    return fx.Score({"consistent": 1.0}, facts={"checked": report.checked()})
