"""Evaluation, in the order of one question: `catalogue` loads it, `suite` asks it, `shortqa` or `longform`
grades the answer, `numbers` and `metrics` sum up, `samples` is what is on disk, and `report` shows it.
"""
