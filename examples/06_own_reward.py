"""A reward of your own, what it pays, and how it can be cheated.

    python examples/06_own_reward.py

The same from the command line: `factrl show`, `factrl stress` and `factrl train` take
`examples/06_own_reward.py:brief` wherever they take a paper's name.
"""

from dataclasses import replace

import factrl as fx
from factrl.stress import oracle_setup, run_battery
from factrl.stress.payoffs import OUTCOMES, payoffs


@fx.reward
def brief(
    example: fx.Example,
    completion: fx.Completion,
    *,
    grade: fx.Grader,
    abstain: float = 0.2,
    bonus: float = 0.5,
    answer: str = "boxed",
) -> dict[str, float]:
    """Pays right answers, a little for declining, and a bonus for few words.

    Args:
        abstain: what "I don't know" is worth.
        bonus: what a completion of up to 20 words earns on top.
        answer: where the answer stands; read by `factrl stress`.
    """
    said = completion.rpartition(r"\boxed{")[2].rstrip("} \n")
    label = grade(example.question, said, example.answers).label
    words = len(completion.split())
    return {
        "outcome": {"correct": 1.0, "abstained": abstain, "incorrect": -1.0}[label],
        "brief": bonus if words <= 20 else 0.0,
    }


def main() -> None:
    payoff = payoffs(brief)[0]
    for outcome in OUTCOMES:
        value = payoff.value(outcome)
        print(f"{outcome:<12}{'masked' if value is None else f'{value:+.2f}'}")
    print(f"answering pays above a confidence of {payoff.answering_pays_above or 0:.0%}")

    outcome = run_battery(replace(oracle_setup("brief", brief), questions=5, ways=1))
    broken = outcome.of("broken")
    print(f"\n{len(broken)} of the 37 known ways to cheat, and steps of the honest order, are not held:")
    for found in broken:
        print(f"  {found.id:<22}{found.name}")


if __name__ == "__main__":
    main()
