"""One contract for every host: 500 fixed completions, and what each of them is worth.

Run as a program it prints the worth of each by the reward alone; `test_contract*.py` here, in hosts/ and in
training/ hold what every host makes of them against that.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence

from factrl import Completion, Example, Reward, Score, Span, Unscored, reward

QUESTION = "Where was she born?"
ANSWERS = ("Warsaw", "Warszawa")
TEXTS = (
    "She was born in Warsaw.",
    "Elle est née à Varsovie.",
    "Sie wurde in Warschau geboren.",
    "Nació en Varsovia.",
    "Urodziła się w Warszawie.",
    "Она родилась в Варшаве.",
    "彼女はワルシャワで生まれた。",
    "她出生在华沙。",
    "그녀는 바르샤바에서 태어났다.",
    "وُلدت في وارسو.",
    "היא נולדה בוורשה.",
    "वह वारसॉ में पैदा हुई थी।",
    "Γεννήθηκε στη Βαρσοβία.",
    "<answer>Warsaw",
    "\\boxed{Warsaw",
    '```json\n{"city": "Warsaw"}',
    "line\r\nbreaks\u2028and\ttabs\u0000",
    "emoji 👩🏽‍🔬 and e\u0301",
    "",
    "   ",
)
HEADS = ("", "<think>Marie Curie.</think>", "<think>never closed ", "I don't know. ", "\\boxed{")
TAILS = ("", "</answer>", "}", " <|im_end|>x", "\nWait, no.")
MASKED, FLOORED = 7, 11  # every so many


@reward
def contract(example: Example, completion: Completion) -> Score:
    """A number that depends on every character, with a span; some are masked, and some floored."""
    assert (example.question, example.answers) == (QUESTION, ANSWERS)
    number = int(hashlib.sha256(completion.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)
    if number % MASKED == 0:
        raise Unscored("judge_down", "nobody answers")
    spans = (Span(0, len(completion) // 2, number % 3 - 1),) if completion else ()
    terms = {"right": number / 2**32, "short": -math.log1p(len(completion)) / 7}
    return Score(terms, spans, "odd" if number % FLOORED == 0 else None)


def completions() -> list[str]:
    """The 500 texts."""
    return [head + text + tail for text, head, tail in itertools.product(TEXTS, HEADS, TAILS)]


def worth(texts: Sequence[str], by: Reward = contract) -> list[float | None]:
    """What the reward alone makes of them; None where masked."""
    return [result.value for result in by.batch([Example(QUESTION, ANSWERS)] * len(texts), texts)]


def differences(
    rewards: Sequence[float | None], texts: Sequence[str]
) -> list[tuple[str, float | None, float | None]]:
    """Where a host says otherwise, to 1e-9: text, worth, and the host's number; None or NaN is none."""
    numbers = [None if number is None or math.isnan(number) else number for number in rewards]
    return [
        (text, ours, theirs)
        for text, ours, theirs in zip(texts, worth(texts), numbers, strict=True)
        if (ours is None) != (theirs is None) or (ours is not None and abs(ours - theirs) > 1e-9)
    ]


if __name__ == "__main__":
    for text, value in zip(completions(), worth(completions()), strict=True):
        print(repr(text), value)  # noqa: T201
