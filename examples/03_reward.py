"""What a paper's reward pays, term by term, and what happens when its judge is down.

    python examples/03_reward.py

Nothing is scripted: the first table is KnowRL's reward with rules and overlap of words as judges, and the
last line asks a server that is not there.
"""

import factrl as fx

QUESTION = fx.Example(
    "In which city was Marie Curie born?",
    answers=("Warsaw",),
    evidence=(
        fx.Passage("Marie Curie was born in Warsaw. She moved to Paris in 1891.", title="Marie Curie"),
    ),
)
COMPLETIONS = {
    "right, true reasoning": "<think>Marie Curie was born in Warsaw.</think><answer>Warsaw</answer>",
    "right, made-up reasoning": "<think>Marie Curie came from Lyon.</think><answer>Warsaw</answer>",
    "declines": "<think>Which city was it?</think><answer>I don't know</answer>",
    "wrong": "<think>Marie Curie moved to Paris in 1891.</think><answer>Paris</answer>",
    "no answer block": "<think>Marie Curie was born in Warsaw.</think> Warsaw",
}


def main() -> None:
    verify = fx.open_verifier("local", judge="weak")
    reward = fx.load_reward("knowrl").with_(grade=fx.Grader(), verify=verify)
    results = reward.batch([QUESTION] * len(COMPLETIONS), list(COMPLETIONS.values()))
    for name, result in zip(COMPLETIONS, results, strict=True):
        terms = " ".join(f"{term} {value:+.2f}" for term, value in result.terms.items())
        value = "   -" if result.value is None else f"{result.value:+.2f}"
        print(f"{name:<26}{value}  {result.state:<9}{terms} {result.cause or ''}")

    down = fx.connect("http://127.0.0.1:9/v1#no-model", max_attempts=2, backoff=0.0)
    truthrl = fx.load_reward("truthrl").with_(grade=fx.Grader(down))
    equal = truthrl(QUESTION, r"\boxed{Warsaw}")
    other = truthrl(QUESTION, r"\boxed{the capital of Poland}")
    print(f"\nwith a judge that is down: equality needs none, {equal.value:+.0f}")
    print(f"anything else is {other.state}, its reward is {other.value}: {other.cause}")


if __name__ == "__main__":
    main()
