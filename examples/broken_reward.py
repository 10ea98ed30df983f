"""A reward that is broken on purpose: it pays for being sure, whatever is said.

    factrl demo examples/broken_reward.py:sure

docs/own_reward.md says what it teaches.
"""

import factrl as fx
from factrl.text.abstention import abstains


@fx.reward
def sure(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
    """+1 for any answer, right or wrong, and 0 for declining."""
    return {"sure": 0.0 if abstains(completion, example.question) else 1.0}
