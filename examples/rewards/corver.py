"""CorVer: a sentence is worth how often its two names stand together in a corpus; no verifier.

    factrl index wikipedia.jsonl --output wiki
    factrl train examples/rewards/corver.py:corver --model MODEL --data questions.jsonl reward.index=wiki

Fan et al. 2026, arXiv:2605.29648, known to us from its abstract and its code (shichengf/CorVer, f5f5ee4).
Eq. 2: how many passages hold all words of a sentence's first pair of names: none is worth -0.2, under five
-0.1, under twenty nothing, more 0.1.  Eq. 4 gives each token its sentence's number; credit here has a sign:
a sentence below 0 is never encouraged, one above 0 never discouraged.  Pairs are found by rules, not by the
paper's extractor; passages of your index stand for windows of 1,000 tokens of Wikipedia.  What is said of
the two names is not read, which `robust` closes.
"""

import re
from functools import lru_cache

import factrl as fx
from factrl.papers import no_answers
from factrl.text import think_answer
from factrl.text.sentences import STARTERS, sentences
from factrl.verifier.search import BrokenIndex

PRONOUNS = {"he", "she", "it", "they", "we", "i", "you", "this", "that", "these", "those", "there"}
NAME = re.compile(
    r"\d{1,3}(?:,\d{3}){1,9}|\d{1,30}|\b[^\W\d_a-z][\w'’-]{0,40}(?: [^\W\d_a-z][\w'’-]{0,40}){0,7}"
)

opened = lru_cache(maxsize=1)(fx.Index.open)


@fx.reward(needs=fx.Needs(no_answers))
def corver(example, completion, *, grade, index="", weight=2.0, unseen=-0.2, rare=-0.1, common=0.1):
    """CorVer's reward; the terms are `correctness`, `format`, `length` and `sentences`.

    Args:
        index: the folder of `factrl index` in which names are counted.
        weight: of correctness, which is 2 or -1.
        unseen, rare, common: what a sentence is worth whose pair stands in no passage, in fewer than five, in
            twenty or more.
    """
    blocks = think_answer(completion, completion.prefill)
    floored, label = blocks.malformed or "no_answer", "incorrect"
    if blocks.think is not None and blocks.answer is not None:
        graded = grade(example.question, blocks.answer.text, example.answers)
        floored, label = graded.floored or "", graded.label
    if floored:
        return fx.Score(
            {"correctness": -weight, "format": -1.0, "length": 0.0, "sentences": 0.0}, floored=floored
        )
    spans, total = [], 0.0
    for block in (blocks.think, blocks.answer):
        for one in sentences(block.text):
            names = pair_of(block.text[one.start : one.end])
            count = together(index, *names) if names else 5
            number = unseen if count == 0 else rare if count < 5 else common if count >= 20 else 0.0
            total += number * (one.end - one.start)
            spans.append(fx.Span(block.start + one.start, block.start + one.end, (number > 0) - (number < 0)))
    terms = {
        "correctness": weight * (2.0 if label == "correct" else -1.0),
        "format": 1.0,
        "length": -0.5 * max(0, (completion.tokens or 0) - 512) / 512,
        "sentences": total / len(completion),
    }
    return fx.Score(terms, tuple(spans), facts={"answer": blocks.answer.text, "label": label})


def pair_of(sentence):
    """The first two names or numbers of a sentence; None where a pronoun opens it or there are not two."""
    first = re.match(r"\W*(\w+)", sentence)
    if first and first[1].lower() in PRONOUNS:
        return None
    names = [m[0] for m in NAME.finditer(sentence) if m[0][0].isdecimal() or m[0][0].isupper()]
    names = [name for name in names if name.lower() not in STARTERS]
    return (names[0], names[1]) if len(names) > 1 and names[0] != names[1] else None


def together(folder, *names):
    """How many passages of the index hold all words of these names."""
    try:
        return opened(folder).together(*names)
    except BrokenIndex as error:
        raise fx.Unscored("search_failed", str(error), stage="search") from error
