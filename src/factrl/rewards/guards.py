"""Guards against cheating, as pieces for a reward of your own; docs/guards.md says which hack each is for.

    from factrl.rewards import guards
    claims = SentenceClaims()(text, example.question, example.topic)
    again = guards.repeats(claims, about=example.question)
    read = guards.coverage(text, claims)

The word rules are cheap filters for English, not an understanding: a text that knows them passes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from factrl.text import clean
from factrl.text.sentences import sentences
from factrl.types import Claim
from factrl.verifier.claims import content_words

MAX_COMPARED = 256  # claims that later ones are held against, so that a long text takes no quadratic time
_READ = (None, "question", "repeat")  # marks of a claim that was read, whether or not it is judged
_NAME = re.compile(r"(?<![.!?:] )(?<!^)\b[A-Z][\w'’-]*")  # a capital that does not open a sentence
_DENIALS = frozenset({"not", "never", "no", "neither", "nor", "without"})
_SAME = 0.5  # share of new words up to which a claim says what another has said


def coverage(text: str, claims: Sequence[Claim]) -> float:
    """Share of the visible characters of a text that stand in sentences which a claim was read from.

    Code, table rows without words, hedges, remarks on the text itself and whatever else an extractor passes
    over are not covered.  Guard: `Score(…, floored="…")`, or count the rest as unsupported, when it is low.
    A text without a visible character is covered.

    >>> text = "Lima is in Peru. ```x = 1```"
    >>> coverage(text, [Claim("Lima is in Peru.", 0, 16, sentence=0)]) < 1
    True

    Args:
        claims: all claims of the text, marked ones too; their `sentence` counts its sentences.
    """
    read = {claim.sentence for claim in claims if claim.skip in _READ}
    total = _visible(text)
    covered = sum(_visible(text[s.start : s.end]) for n, s in enumerate(sentences(text)) if n in read)
    return min(covered / total, 1.0) if total else 1.0


def _visible(text: str) -> int:
    return len("".join(text.split()))


def relevant(claim: Claim, about: str) -> bool:
    """Whether a claim shares a content word with question, topic and accepted answers, in one string.

    >>> relevant(Claim("Water boils at 100 degrees.", 0, 27), about="Where was Marie Curie born? Warsaw")
    False
    """
    return bool(content_words(claim.text) & content_words(about))


def repeats(claims: Sequence[Claim], about: str = "") -> list[bool]:
    """For each claim, whether an earlier one says the same, in the same words or in others.

    It does when at most half of its words, those of `about` left aside, are not in the earlier one, it brings
    no number and no name that the earlier one lacks, and it denies what that denies.  So a paraphrase is a
    repeat, and a near miss ("1867" and "1868", "is" and "is not") is not.  It errs on the strict side: a fact
    that differs by one plain word of few ("lions eat meat", "lions eat grass") is taken for a repeat.

    >>> texts = ["Marie Curie discovered radium.", "Radium was discovered by Marie Curie."]
    >>> repeats([Claim(text, 0, len(text)) for text in texts], about="Who was Marie Curie?")
    [False, True]

    Args:
        about: the question and its topic, whose words every claim shares.
    """
    of_question = content_words(about)
    stated: list[frozenset[str]] = []  # the words of claims that say something new
    repeated = []
    for claim in claims:
        words = content_words(claim.text)
        names = content_words(" ".join(_NAME.findall(clean(claim.text))))
        values = ({w for w in words if w[0].isdigit()} | names) - of_question
        own = words - of_question - _DENIALS
        again = claim.skip == "repeat" or any(
            not words.isdisjoint(earlier)
            and words & _DENIALS == earlier & _DENIALS
            and values <= earlier
            and len(own - earlier) <= _SAME * len(own)
            for earlier in stated
        )
        repeated.append(again)
        if not again and len(stated) < MAX_COMPARED:
            stated.append(words)
    return repeated
