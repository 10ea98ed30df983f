"""Failures that the published rewards are known to have: faithful recipes keep them, and print them.

By paper, or by paper and variant where that differs.  A key is the id of a policy or of a family of answer
forms, or a step of the honest order, and its text says what in the formula pays for it.  A failure that is
not here is news, and ends the command with 1; one that is here and no longer shows is reported as repaired.
The lists hold what the battery finds with oracles; those of the published code, whose parsers and judges are
weaker, are longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..papers import split_spec

_NO_PARTIAL = (
    "what is said beside an abstention is not looked at, so knowing a part pays like knowing nothing"
)
_NAMES = "what is said beside an abstention names something, so it is an answer, and a wrong one"
_NO_VOLUME = "a share of claims: one that is right is as good as twelve"
_NO_RELEVANCE = "claims off the question count"
_NO_THINK = "the reasoning is not read"
_ADDED = "facts of the reasoning are added whatever the answer is"
_ATOMS = "claims are checked one by one, and the whole not at all"
_BLOCKS = "what stands in code, tables and links makes no claim, so it lowers no share"
_EITHER = "'this or that' is a true claim"
_ZERO = "it is worth 0, and a wrong answer less than that"
_SILENCE = "an abstention is worth 0, and a wrong text with some true claims more"
_ITSELF = "some claims about the text itself are judged, and they are true"
_ASKED = "what the question presupposes counts as a claim"
_UNSURE = "a claim of which the model knows nothing is worth 0.5"
_BESIDE_REFUSAL = "the false answer behind a refusal is no claim, so it lowers no share"

KNOWN_FAILURES: Mapping[str, Mapping[str, str]] = {
    "truthrl": {
        "partial > abstain": _NO_PARTIAL,
        **dict.fromkeys(("D07", "D09", "D10", "D11", "D14"), _NO_PARTIAL),
        "D30": _NO_THINK,
    },
    "truthrl:code": {
        "partial > abstain": _NO_PARTIAL,
        "D03": "'i dont know' anywhere in the box is an abstention",
        "D27": "the first box counts",
        "D30": _NO_THINK,
        "F17": "punctuation is taken out before answers are compared, and with it a sign that denies",
    },
    "knowrl": {
        "partial > abstain": _NAMES,
        "D05": _EITHER,
        **dict.fromkeys(("D07", "D10", "D11", "D14"), _NO_VOLUME),
        "D09": _NO_RELEVANCE,
        "D17": _BLOCKS,
        "D20": _ATOMS,
        "D29": _ADDED,
    },
    "knowrl:code": {
        "partial > abstain": "facts are added to a wrong answer only",
        **dict.fromkeys(("D07", "D09", "D10", "D11", "D14"), "facts are added to a wrong answer only"),
        "D17": _BLOCKS,
        "D20": _ATOMS,
        "D27": "the first answer counts",
        "D29": _ADDED,
        "D30": "facts are added to a wrong answer only",
    },
    "fspo": {
        "wrong >= floored": _ZERO,
        **dict.fromkeys(("D18", "D19", "D25", "D26", "D27", "D28", "D33", "D35"), _ZERO),
        "D05": _EITHER,
        **dict.fromkeys(("D07", "D10", "D11", "D14"), _NO_VOLUME),
        **dict.fromkeys(("D08", "D09", "D12", "D13"), _NO_RELEVANCE),
        "D17": _BLOCKS,
        "D20": _ATOMS,
        "D24": "a sentence without a verdict makes the mean of the steps milder",
        "D29": _ADDED,
        "D31": "neutral sentences make the mean of the steps milder",
        "D32": _ASKED,
        "D36": _ITSELF,
    },
    "klcf": {
        "abstain > wrong": _SILENCE,
        "D02": _UNSURE,
        "D03": _BESIDE_REFUSAL,
        "D04": _UNSURE,
        **dict.fromkeys(("D08", "D12", "D13"), _NO_RELEVANCE),
        **dict.fromkeys(("D11", "D14"), _NO_VOLUME),
        "D05": _EITHER,
        "D16": _UNSURE,
        "D17": _BLOCKS,
        "D20": _ATOMS,
        "D22": "three of four weights look at what a text says, and one at what it denies",
        "D30": _NO_THINK,
        "D31": _UNSURE,
        "D32": _ASKED,
        "D36": _ITSELF,
    },
    "factreason": {
        "abstain > wrong": _SILENCE,
        "D03": _BESIDE_REFUSAL,
        "D05": _EITHER,
        **dict.fromkeys(("D08", "D09", "D12", "D13"), _NO_RELEVANCE),
        **dict.fromkeys(("D11", "D14"), "a paraphrase, and what is true of everything, count as claims"),
        "D17": _BLOCKS,
        "D20": _ATOMS,
        "D30": _NO_THINK,
        "D32": _ASKED,
        "D36": _ITSELF,
    },
}


def known_failures(spec: str) -> Mapping[str, str]:
    """The list of a spec such as `truthrl:code`: its own, else that of its paper; none for your own file."""
    paper, variant = split_spec(spec)
    return KNOWN_FAILURES.get(f"{paper}:{variant}" if variant else paper, KNOWN_FAILURES.get(paper, {}))
