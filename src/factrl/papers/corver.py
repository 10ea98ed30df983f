"""CorVer: a sentence is worth how often its two names stand together in a corpus; no verifier.

Paper     Verifiable Rewards Beyond Math and Code: Lightweight Corpus-Grounded Process Supervision for Factual
          Question Answering, Fan et al. 2026, arXiv:2605.29648, known to us from its abstract and its code
Code      shichengf/CorVer, read at f5f5ee4
Sentence  Eq. 2: how many places of Wikipedia hold all words of its first pair of subject and object: none is
          worth -0.2, under 5 -0.1, under 20 nothing, more 0.1; a sentence without a pair is worth nothing.
          What is said of the two is not looked up
Outcome   weight (2 where the answer is right, -1 elsewhere, declining too), 1 or -1 for the form, and
          -0.5 max(0, tokens - 512) / 512; the weight is 2 for Llama-3.1-8B and 1 for the five other models
Tokens    Eq. 4: a token's return is the outcome and its sentence's number; the advantage is that, less the
          group's mean of completions' mean returns, divided by their deviation

How we differ:
- Credit here has a sign for each sentence, not a number.  The mean over tokens is in the reward, as in
  Eq. 4, counted in characters; what Eq. 4 gives a token besides becomes FSPO's sign rule: the tokens of a
  sentence below 0 are never encouraged, of one above 0 never discouraged.  That is harsher than
  a number of 0.3 at most.  The variant `mean` goes without signs.
- Pairs are found by rules, not by the 0.5B extractor (ZhishanQ/QuCo-extractor-0.5B): the first name, and the
  next name or number, else the last word of the sentence.  None where a pronoun stands first, as there.
- Counted are passages of an index of yours that hold all words, not places within 1,000 tokens of each
  other in Wikipedia of November 2023; with another index `few` and `enough` want other values.
- A look-up that fails is worth nothing there and masks here.  A completion out of form is floored; there
  its sentences count, and an answer without its end can be right.
- Answers are graded by our rules and, where you give one, a judge.  In the code an answer is right that
  contains an accepted one or is contained in one, so a single letter of it is.
- Where nobody counted tokens, outside of training, nothing is taken off for length.
The first release (36b2390) had -0.3 for a count of 0.

Known weaknesses of the published reward, which `robust` closes: what is said of the two names is not read;
and by Eq. 2 a sentence without a pair is worth nothing and one with an unseen pair less, so a wrong answer is
paid more behind reasoning in which nothing can be read than behind sentences about rare pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from factrl.rewards import reward
from factrl.rewards.grading import MAX_TEXT, Grader
from factrl.text import Slice, bytes_of, think_answer
from factrl.text.sentences import STARTERS, sentences
from factrl.types import Completion, Example, Grade, Score, Span
from factrl.verifier.search.sources import words

from . import no_answers

_LONG = 512  # tokens that cost nothing
_PRONOUNS = frozenset("he she it they we i you this that these those there here who which".split())  # noqa: SIM905
_NAME = re.compile(r"\d{1,3}(?:,\d{3}){1,9}|\d{1,30}|[^\W\d_][\w'’-]{0,40}")
_JOINS = frozenset({"", "of", "of the", "de", "von", "van"})  # between the parts of one name
_MAX_NAME = 8  # words of a name that are looked up


def _unused(knobs: Mapping[str, Any]) -> list[str]:
    return [] if knobs["sentences"] else ["together"]


@reward(requires=no_answers, unused=_unused)
def corver(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    together: Callable[[str, str], int],
    weight: float = 2.0,
    sentences: float = 1.0,
    unseen: float = -0.2,
    rare: float = -0.1,
    common: float = 0.1,
    few: int = 5,
    enough: int = 20,
    signs: bool = True,
) -> Score:
    """CorVer's reward; the terms are `correctness`, `format`, `length` and `sentences`.

    Args:
        weight: of correctness, which is 2 or -1.
        sentences: of the mean number of the sentences; 0 looks nothing up.
        unseen, rare, common: what a sentence is worth whose pair stands in no passage, in fewer than `few`,
            in `enough` or more; between them, and without a pair, it is worth nothing.
        few, enough: passages.
        signs: give the signs of the sentences as spans; without it all tokens have one advantage.

    Raises:
        Unscored: the index failed, or the judge.
    """
    blocks, floored = think_answer(completion, completion.prefill), ""
    graded = Grade("incorrect", "", how="gate")
    if bytes_of(completion) > MAX_TEXT:
        floored = "oversize"
    elif blocks.think is None or blocks.answer is None:
        floored = blocks.malformed or "no_answer"
    else:
        premise = example.false_premise
        graded = grade(example.question, blocks.answer.text, example.answers, false_premise=premise)
        floored = graded.floored or ""
    facts: dict[str, Any] = {"answer": graded.answer, "label": graded.label, "how": graded.how}
    if floored or blocks.think is None or blocks.answer is None:
        terms = {"correctness": -weight, "format": -1.0, "length": 0.0, "sentences": 0.0}
        return Score(terms, floored=floored, facts=facts)
    spans, total = [], 0.0
    counts: list[int | None] = []
    for part in (blocks.think, blocks.answer) if sentences else ():
        for start, end, pair in _pairs(part):
            counts.append(together(*pair) if pair else None)
            number = _number(counts[-1], few, enough, (unseen, rare, common))
            total += number * (end - start)
            spans.append(Span(start, end, (number > 0) - (number < 0)))
    counted = [count for count in counts if count is not None]
    facts |= {"sentences": len(counts), "looked_up": len(counted), "unseen": counted.count(0)}
    terms = {
        "correctness": weight * (2.0 if graded.label == "correct" else -1.0),
        "format": 1.0,
        "length": 0.0 - 0.5 * max(0, (completion.tokens or 0) - _LONG) / _LONG,
        "sentences": sentences * total / len(completion),
    }
    return Score(terms, tuple(spans) if signs else (), facts=facts)


def _number(count: int | None, few: int, enough: int, worth: tuple[float, float, float]) -> float:
    """Eq. 2: what a sentence is worth whose pair stands in so many passages; None is no pair."""
    if count is None or few <= count < enough:
        return 0.0
    return worth[2] if count >= enough else worth[1] if count else worth[0]


def _pairs(part: Slice) -> list[tuple[int, int, tuple[str, str] | None]]:
    """The sentences of a block: first character and end in the completion, and the pair of each."""
    return [
        (part.start + one.start, part.start + one.end, pair_of(part.text[one.start : one.end]))
        for one in sentences(part.text)
    ]


def pair_of(sentence: str) -> tuple[str, str] | None:
    """The two names of a sentence that are looked up, as words; None where it has none, or one word.

    >>> pair_of("Marie Curie studied at the University of Paris.")
    ('marie curie', 'university paris')
    >>> pair_of("She was born in Warsaw.")
    """
    names: list[tuple[int, int]] = []
    matches = list(_NAME.finditer(sentence))
    if not matches or matches[0][0].lower() in _PRONOUNS:
        return None
    for match in matches:
        capital = match[0][0].isupper() and match[0].lower() not in STARTERS
        if capital and names and sentence[names[-1][0]].isupper():
            between = sentence[names[-1][1] : match.start()]
            if len(between) < 9 and between.strip(" .") in _JOINS:
                names[-1] = names[-1][0], match.end()
                continue
        if capital or match[0][0].isdecimal():
            names.append(match.span())
    if not names:
        return None
    head, *more = (words(sentence[start:end])[:_MAX_NAME] for start, end in names)
    others = [name for name in more if {*name} - {*head} and {*head} - {*name}]
    # An answer such as "the Polish capital" is no sentence.
    whole = sentence.rstrip("\"')*_”’»")[-1:] in (".", "!", "。")
    rest = [word for word in words(sentence[names[0][1] :]) if len(word) > 2] if whole else []
    tail = others[0] if others else rest[-1:]
    return (" ".join(head), " ".join(tail)) if len({*head, *tail}) > 1 and head and tail else None


TERMS = ("correctness", "format", "length", "sentences")
VARIANTS = {
    "corver": corver,
    "mean": corver.with_(signs=False),
    "outcome": corver.with_(sentences=0.0),
    "sentences": corver.with_(weight=0.0),
}
ASKS = {"": {"verifier.index": "the folder of `factrl index` in which names that stand together are counted"}}
ASKS["outcome"] = {}
FORM = "tags"


# From the abstract: cells are pairs of six models and five benchmarks; the gain is the mean over models, in
# points; times are those of four neural verifiers against CorVer's.  Single rows of its tables are not known.
PUBLISHED = {
    ("abstract", "against the base models", "cells that rise, of 30"): 30.0,
    ("abstract", "against the base models", "TriviaQA"): 4.1,
    ("abstract", "against four neural verifiers", "cells that win, of 20"): 18.0,
    ("abstract", "against four neural verifiers", "times as fast, least"): 4.8,
    ("abstract", "against four neural verifiers", "times as fast, most"): 8.4,
}
