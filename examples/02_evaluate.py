"""Grade answers that are stored already: accuracy, abstention, hallucination, and what changed.

    python examples/02_evaluate.py

Two models answered the same ten questions.  Rules grade here; `fx.Grader(fx.connect(URL))` asks a judge too.
"""

import factrl as fx

QUESTIONS = {
    "In which city was Marie Curie born?": "Warsaw",
    "Who wrote Ulysses?": "James Joyce",
    "What is the capital of Australia?": "Canberra",
    "In what year did the Titanic sink?": "1912",
    "Which planet is closest to the Sun?": "Mercury",
    "Who painted Guernica?": "Pablo Picasso",
    "What is the chemical symbol of gold?": "Au",
    "In which country is Mount Kilimanjaro?": "Tanzania",
    "Who discovered penicillin?": "Alexander Fleming",
    "Which river flows through Cairo?": "the Nile",
}
UNSURE = "I don't know"
GUESSES = (
    "Warsaw",
    "James Joyce",
    "Sydney",
    "1914",
    "Venus",
    "Picasso",
    "Au",
    "Kenya",
    "Fleming",
    "the Nile",
)
CAREFUL = ("Warsaw", "James Joyce", UNSURE, "1912", UNSURE, "Picasso", "Au", UNSURE, "Fleming", "the Nile")


def grades(answers: tuple[str, ...]) -> list[fx.Grade | None]:
    """What became of each answer; None where it could not be graded."""
    examples = [fx.Example(question, (accepted,)) for question, accepted in QUESTIONS.items()]
    rows = fx.grade_completions(list(zip(examples, answers, strict=True)), fx.Grader(form="sentence"))
    return [row.grade for row in rows]


def main() -> None:
    before, after = grades(GUESSES), grades(CAREFUL)
    changes = fx.compare(before, after).differences
    print(f"{'points, 95 % interval':<24}{'guesses':>20}{'careful':>20}{'change':>24}")
    first, second = fx.short_form(before).metrics, fx.short_form(after).metrics
    for name in ("accuracy", "abstention", "hallucination", "truthfulness"):
        change = changes[name]
        print(f"{name:<24}{first[name]!s:>20}{second[name]!s:>20}{change.signed() if change else '':>24}")
    for question, grade in zip(QUESTIONS, before, strict=True):
        if grade is not None and grade.label == "incorrect":
            print(f"wrong: {question} {grade.answer}")


if __name__ == "__main__":
    main()
