"""What a sentence says: words, numbers and dates in one spelling, and whether it gives an accepted answer."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from factrl.rewards.grading import Grader
from factrl.text.mentions import mentions

# ---------------------------------------------------------------- words


# ---------------------------------------------------------------- what a sentence gives

CAPITAL = "What is the capital of France?"
GIVES = [
    *[(CAPITAL, "The capital of France is the city of Paris, on the Seine.", "Paris")],
    *[(CAPITAL, "PARIS, of course!", "Paris"), (CAPITAL, "It's not Lyon but Paris.", "Paris")],
    *[(CAPITAL, "Paris¹, or as the Romans called it, Lutetia.", "Paris"), (CAPITAL, "Paris[1].", "Paris")],
    *[(CAPITAL, "Not only is Paris the largest city, it is also the capital.", "Paris")],
    *[("When did it open?", "It opened in Oslo in 1952.", "1952"), ("When?", "On 3 May 1952", "1952")],
    ("When was it?", "It was February 9, 2018.", "9 February 2018"),
    ("In what year?", "In 2018.", "9 February 2018"),
    *[("When?", "It came out in March of 2018.", "March 2018"), ("When?", "13 March 2018", "March 2018")],
    *[("How long?", "About twenty-four hours.", "24 hours"), ("How long?", "One day.", "24 hours")],
    *[("How high is it?", "It is 29,029 feet high.", "8,848 m"), ("How many?", "One thousand.", "1,000")],
    *[("How many?", "It has 1k of them", "1000"), ("Which season?", "In season 8.", "the eighth season")],
    *[("Who played him?", "Dave Madden played him.", "David Joseph Madden")],
    ("Who was host?", "The host was John Charles Daly.", "John Daly"),
    ("Who?", "By Sindhu.", "P. V. Sindhu"),
    *[("Who?", "It was PV Sindhu.", "P. V. Sindhu"), ("Who said it?", "Richard Nixon.", "President Nixon")],
    *[("What did she sell?", "She sold seashells.", "Sea Shells"), ("Who?", "Hugo Weaving", "HUGOWEAVING")],
    ("Which nationality?", "He is Colombian.", "Colombia"),
    ("Which colours?", "White, green, orange", "Green, White, Orange"),
    ("Which countries?", "Argentina and Chile.", "Chile and Argentina"),
    ("What is it?", "São Tomé", "Sao Tome"),
    *[("Is it legal?", "Yes, it is.", "yes"), ("Is it legal?", "No, it is not.", "Typically, no")],
    *[("Is it legal?", "It is not legal there.", "no"), ("Is it legal?", "It is legal.", "yes")],
    *[("Which Games did it not attend?", "It did not attend the Games of 1980.", "1980")],
    *[("Which song?", 'It is "Not Fair".', "Not Fair"), ("Name one.", "Akrotiri", "AKROTIRI or DHEKELIA")],
    *[("Who are they?", "Pygmies", "Pygmies (short height)"), ("Is it A or B?", "B rather than A", "B")],
    *[("首都是哪里？", "法国的首都是巴黎。", "巴黎"), ("哪一年？", "他出生于1881年9月25日。", "1881年")],
    *[("谁写的？", "作者不是罗贯中，而是施耐庵。", "施耐庵"), ("When was he born?", "Born c. 1881.", "1881")],
]
DENIES = [
    *[(CAPITAL, "The capital is not Paris.", "Paris"), (CAPITAL, "It isn't Paris, it is Lyon.", "Paris")],
    *[(CAPITAL, "It is Lyon.", "Paris"), (CAPITAL, "The capital of France.", "Paris")],
    (CAPITAL, "", "Paris"),
    *[(CAPITAL, "Paris or Lyon.", "Paris"), (CAPITAL, "It is either Lyon or Paris.", "Paris")],
    *[(CAPITAL, "It is Rome, Berlin, Paris, Madrid or Lyon.", "Paris")],
    *[(CAPITAL, "Paris, London, Rome, Berlin", "Paris"), (CAPITAL, "Lyon; Nice; Paris", "Paris")],
    *[(CAPITAL, "Unlike Paris, Lyon is the capital.", "Paris"), (CAPITAL, "Paris " + "x " * 2_000, "Paris")],
    *[("When?", "In 1953.", "1952"), ("When?", "On May 11, 2018.", "May 16, 2018")],
    ("When?", "1952", "1952-1958"),
    ("When?", "In 2018.", "9 February 2018"),  # a year is less than was asked for
    *[("When?", "In 2017", "9 February 2018"), ("When?", "In April 2018", "March 2018")],
    *[("How long?", "48 hours.", "24 hours"), ("How far?", "It is 5 miles.", "5 km")],
    ("How many?", "100", "1,000"),
    ("Who won?", "Venus Williams won.", "Serena Williams"),
    ("Who?", "Serena van Doorn.", "Serena Williams"),
    *[("Is it legal?", "Yes.", "no"), ("Is it legal?", "It isn't legal.", "yes"), ("Which?", "...", "!")],
    *[
        ("首都是哪里？", "首都不是巴黎。", "巴黎"),
        ("首都是哪里？", "巴黎还是里昂", "巴黎"),
        ("谁？", "李白或杜甫", "杜甫"),
    ],
]


# Near misses: something else stands in the place of what tells the answer apart.
WHICH = "Which one was it?"
SAME = "Were Scott Derrickson and Ed Wood of the same nationality?"
DENIES += [
    (WHICH, text, answer)
    for answer, *texts in [
        ("South Korea", "North Korea", "It was North Korea.", "north korea", "Korea"),
        ("North Carolina", "He was born in South Carolina."),
        ("Manchester City", "Manchester United", "It was won by Manchester United in 1999."),
        ("Joel Coen", "Ethan Coen", "The director of Fargo is Ethan Coen."),
        ("Barack Obama", "Michelle Obama", "It was written by Michelle Obama."),
        ("Nobel Prize in Chemistry", "Nobel Prize in Physics", "She won the Nobel Prize in Physics."),
        ("Nobel Prize in Chemistry", "The Physics Nobel Prize"),
        ("Dark blue", "Dark red", "It is dark red."),
        *[("New York", "York", "He lived in York."), ("York", "New York"), ("Virginia", "West Virginia")],
        *[("1-2", "2-1", "They won 2-1."), ("2:3", "The ratio is 3:2.")],
        ("Portland, Oregon", "Portland, Maine"),
        *[("Lyndon B. Johnson", "It was Andrew Johnson who did."), ("Bank of England", "Bank of America")],
        *[("sulfuric acid", "It is nitric acid."), ("Chicago White Sox", "Boston Red Sox")],
        ("Los Angeles Clippers", "The Los Angeles Lakers won it."),
        *[("George H. W. Bush", "It was George W. Bush"), ("George W. Bush", "George H. W. Bush")],
    ]
    for text in texts
]
DENIES += [
    ("Who was president?", "It was George W. Bush. Bush won twice.", "George H. W. Bush"),
    ("Which won, Manchester City or Manchester United?", "Manchester United", "Manchester City"),
    *[("Is it true?", "Paris", "yes"), ("Is it legal?", "It depends.", "yes")],
    ("Is it legal?", "Paris", "no"),
    *[(SAME, "Scott Derrickson is American and Ed Wood is Canadian.", "yes")],
    *[(SAME, "Scott Derrickson and Ed Wood.", "yes"), (SAME, "They had different nationalities.", "yes")],
    *[("Is France bigger than Spain?", text, "yes") for text in ("Spain", "Spain is bigger.", "It is not.")],
]
GIVES += [
    (WHICH, text, answer)
    for answer, *texts in [
        ("Barack Obama", "Obama", "It was President Obama.", "Barack Hussein Obama", "the politician Obama"),
        *[("Austen", "Jane Austen"), ("Jane Austen", "Austen", "austen"), ("Marie Curie", "Marie S. Curie")],
        *[("South Korea", "It is South Korea.", "south korea"), ("Joel Coen", "Joel and Ethan Coen")],
        ("Manchester City", "Manchester City F.C.", "It was Manchester City, not Manchester United."),
        ("Nobel Prize in Chemistry", "The Nobel Prize for Chemistry", "The Chemistry Nobel"),
        ("New York", "New York City"),
        ("Portland, Oregon", "Portland", "Portland, in the state of Oregon"),
        *[("1-2", "They lost 1-2."), ("1952-1958", "From 1952 to 1958."), ("Dark blue", "A dark blue")],
        *[("David Madden", "Dave Madden"), ("University of Oxford", "Oxford", "Oxford University")],
        ("George H. W. Bush", "George Bush", "It was George H.W. Bush."),
        ("George Bush", "George W. Bush"),
        *[("River Seine", "The Seine"), ("Heathrow Airport", "Heathrow"), ("54 Mbit", "54 Mbps")],
    ]
    for text in texts
]
GIVES += [
    *[(SAME, "They were of the same nationality.", "yes"), (SAME, "They were not of the same one.", "no")],
    *[("Is France bigger than Spain?", "France is bigger.", "yes"), ("Is it legal?", "That is true.", "yes")],
]


@pytest.mark.parametrize(("question", "text", "answer"), GIVES)
def test_gives(question: str, text: str, answer: str) -> None:
    assert mentions(question, text, ["Atlantis", answer]) == answer


@pytest.mark.parametrize(("question", "text", "answer"), DENIES)
def test_does_not_give(question: str, text: str, answer: str) -> None:
    assert mentions(question, text, [answer]) is None


# ---------------------------------------------------------------- in the grader


def test_a_sentence_is_graded_by_rule_only_where_it_is_asked_for() -> None:
    text = "The capital of France has been Paris for centuries."
    assert Grader()(CAPITAL, text, ["Paris"]).label == "incorrect"
    grade = Grader(form="sentence")(CAPITAL, text, ["Paris"])
    assert (grade.label, grade.how) == ("correct", "rules")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I'm sorry, but I don't know.", "abstained"),
        ("I don't know for sure, but I believe it is the city of Paris.", "correct"),
        ("I don't know for sure, but I believe it is the city of Lyon.", "incorrect"),
        ("Lyon. " * 900, "incorrect"),
    ],
)
def test_the_classes_of_sentences(text: str, label: str) -> None:
    assert Grader(form="sentence")(CAPITAL, text, ["Paris"]).label == label


# ---------------------------------------------------------------- time and people


@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("FACTRL_DATA"), reason="set FACTRL_DATA to a folder with the public data sets"
)
@pytest.mark.parametrize(("part", "least"), [("nq", 0.90), ("tq", 0.94)])
def test_against_human_judgement(part: str, least: float) -> None:
    # EVOUNA (Wang et al. 2023); measured 0.924 and 0.968, notebook/grading.md.
    path = Path(os.environ["FACTRL_DATA"]) / "evouna" / f"evouna_{part}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][::8]
    grade = Grader(form="sentence")
    same = [
        (grade(row["question"], row["prediction"], row["gold"]).label == "correct") == row["human_correct"]
        for row in rows
    ]
    assert sum(same) / len(same) >= least


# ---------------------------------------------------------------- named, and not given

NOT_GIVEN = {
    ("How high is Mount Everest in metres?", "8,849 metres"): [
        *("8849 feet", "It is 8,849 feet high.", "at least 8,849 metres", "!8,849", "≠ 8,849"),
    ],
    ("How high is Mount Everest in metres?", "8849"): ["8849 feet", "It is 8,849 feet high."],
    ("When was the Eiffel Tower opened?", "31 March 1889"): [
        *("31 March 1889 or 6 May 1889", "6 May 1889 or 31 March 1889", "before 31 March 1889"),
        "It opened before 1889.",
        *("I doubt it was 1889.", "1889? I doubt it.", "It is doubtful that it opened in 1889"),
        "after 31 March 1889",
        *("31 March 1889? No, 6 May 1889.", "It was not 31 March 1889", "no later than 1889"),
        "~~31 March 1889~~",
        *("не 31 March 1889", "до 31 March 1889", "nicht 31 March 1889", "avant 31 March 1889"),
    ],
    ("What is the capital of France?", "Paris"): [
        *("Paris… no wait, Lyon.", "Paris - scratch that, Lyon", "The answer is Paris. Correction: Lyon"),
        *("The worst possible answer is Paris", "The wrong answer is Paris", "Paris is wrong"),
        "I doubt it is Paris",
        *("\\boxed{\\boxed{Paris} Lyon}", "~~Paris~~ Lyon", "<s>Paris</s> Lyon", "\\sout{Paris} Lyon"),
        *("!Paris", "≠ Paris"),
        *("Anything but Paris.", "Any city except Paris", "a suburb of Paris", "near Paris"),
        "Paris's suburb",
        *("Nobody believes that it is Paris", "Paris is not the answer", "ohne Paris", "hardly Paris"),
    ],
    ("Who wrote Emma?", "Jane Austen"): [
        *("Jane Austen's sister", "the sister of Jane Austen", "Jane Austen's brother Henry"),
        "a friend of Jane Austen",
    ],
    ("How many children did he have?", "2"): [
        "at least 2",
        "more than 2",
        "up to 2",
        "no fewer than 2",
        "2 or 3",
    ],
}


@pytest.mark.parametrize(
    ("question", "gold", "text"), [(*key, text) for key, texts in NOT_GIVEN.items() for text in texts]
)
def test_what_is_named_but_not_given_is_wrong_in_either_form(question: str, gold: str, text: str) -> None:
    assert Grader(form="sentence")(question, text, [gold]).label == "incorrect"
    assert Grader()(question, text, [gold]).label == "incorrect"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("How high is Mount Everest in metres?", "8849", "8849 metres"),
        ("How high is Mount Everest in metres?", "8,849 m", "8849"),
        ("How high is Mount Everest?", "8849 metres", "8.849 km"),
        ("How many goals did he score?", "12", "12 goals"),
        ("When was the Eiffel Tower opened?", "31 March 1889", "31/03/1889"),
        ("When was the Eiffel Tower opened?", "31 March 1889", "31.03.1889"),
        ("Who wrote Emma?", "Jane Austen", "Austen, Jane"),
        ("Which colours has the flag of France?", "blue, white and red", "red, white and blue"),
    ],
)
def test_one_answer_in_another_spelling_is_right_without_a_judge(question: str, gold: str, text: str) -> None:
    assert Grader()(question, text, [gold]).label == "correct"
    assert Grader(form="sentence")(question, text, [gold]).label == "correct"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("How high is Mount Everest?", "8849", "8849 metres"),  # or feet
        ("How many goals did he score?", "12", "12 assists"),
        ("When was it?", "3 April 1889", "03/04/1889"),  # or the fourth of March
        ("What was the score?", "2, 3", "3, 2"),
        ("Who wrote Emma?", "Jane Austen", "Austen Jane"),  # as John Elton is not Elton John
        ("Which colours has the flag of France?", "blue, white and red", "blue, white"),
    ],
)
def test_what_may_be_another_answer_is_left_to_a_judge(question: str, gold: str, text: str) -> None:
    assert Grader()(question, text, [gold]).label == "incorrect"


@pytest.mark.parametrize(
    "text",
    [
        "There is no doubt that it is Paris",
        "Without a doubt Paris",
        "I don't doubt it's Paris",
        "It is Paris, not Lyon",
    ],
)
def test_what_is_not_doubted_is_given(text: str) -> None:
    assert Grader(form="sentence")("What is the capital of France?", text, ["Paris"]).label == "correct"


# ---------------------------------------------------------------- said, and denied, replaced or another's

ADDED, HAMLET, FAUST = "What is 17 + 25?", "Who wrote Hamlet?", "Wer schrieb Faust?"
EMMA, SUMMIT = "Who wrote Emma?", "Quel est le plus haut sommet d'Afrique ?"
BEATEN, LIGHTS = "Who beat whom in the final?", "Name the colours of the lights from top to bottom."
TAKEN_FOR_RIGHT = {  # what the sentence form took for an answer, by class
    "its own verb denied": [
        (HAMLET, "Shakespeare did not write it.", "Shakespeare"),
        (HAMLET, "Contrary to belief, Shakespeare did not write it.", "Shakespeare"),
        ("Welcher Fluss fließt durch Köln?", "Der Rhein fließt nicht durch Köln.", "Rhein"),
        *[(FAUST, "Goethe war es nicht.", "Goethe"), (FAUST, "Keinesfalls Goethe.", "Goethe")],
        ("Qui a écrit Les Misérables ?", "Hugo ne l'a jamais écrit.", "Victor Hugo"),
        ("谁写了《狂人日记》？", "鲁迅没有写。", "鲁迅"),
        ("पहले प्रधानमंत्री कौन थे?", "गांधी नहीं, नेहरू।", "गांधी"),
        ("Türkiye'nin kurucusu kim?", "Atatürk değil.", "Atatürk"),
    ],
    "replaced": [
        (ADDED, "42 was my first thought, but the result is 43.", "42"),
        (ADDED, "I first wrote 42, but the right number is 43.", "42"),
        *[(ADDED, "42\n\nWait, it is 43.", "42"), (ADDED, "\\boxed{42} \\boxed{43}", "42")],
        ("Who was the first?", "Many would say Gagarin; in truth it was Shepard.", "Yuri Gagarin"),
        (SUMMIT, "Kilimandjaro. Pardon, je me corrige : le mont Kenya.", "Kilimandjaro"),
        (CAPITAL, "It's Lyon (some say Paris).", "Paris"),
        (EMMA, "Many believe Jane Austen, but it was Emily Brontë.", "Jane Austen"),
        (EMMA, "Jane Austen is what I said earlier; that was a mistake, and Brontë is right.", "Jane Austen"),
    ],
    "one of several": [
        (ADDED, "The answer is 42 and 43.", "42"),
        ("Wer malte die Mona Lisa?", "Entweder Leonardo da Vinci oder Raffael.", "Leonardo da Vinci"),
        ("Who painted it?", "Possible painters include Dalí, Miró and Picasso.", "Pablo Picasso"),
    ],
    "another amount": [
        *[
            ("By how much?", "It rose by 20 percentage points.", "20%"),
            ("How much?", "It cost A$100.", "$100"),
        ],
        ("How many basis points?", "25 percentage points", "25"),
        ("How many people live in Iceland?", "Half of 380,000.", "380,000"),
        ("How many legs has a spider?", "A spider has twice eight legs.", "8"),
        ("Wie viele?", "Es sind 750 Milliarden Menschen.", "750 Millionen"),
        *[("What is x?", text, "3/4") for text in ("3/4 i", "x \\neq 3/4", "x ≠ 3/4", "x = 3/4 + C")],
    ],
    "another order": [
        *[(BEATEN, "France beat Italy.", "Italy beat France")],
        *[("What happened?", "France beat Italy.", "Italy beat France")],
        (LIGHTS, "green, amber, red", "red, amber, green"),
    ],
    "another name": [
        ("Which country is it?", "It is the Democratic Republic of the Congo.", "Republic of the Congo"),
        ("Who wrote it?", "That was Mary Wollstonecraft Shelley.", "Mary Wollstonecraft"),
        (HAMLET, "William Shakespeare Jr.", "William Shakespeare"),
        *[(FAUST, "Goethes Frau", "Goethe"), ("谁写的？", "是鲁迅的学生写的。", "鲁迅")],
        ("Qui ?", "La femme de Goethe", "Goethe"),
    ],
}
STILL_RIGHT = [
    *[(CAPITAL, "Yes, it was Paris, not Lyon.", "Paris"), (CAPITAL, "Paris not Lyon", "Paris")],
    ("Who did not sign?", "Shakespeare did not sign.", "Shakespeare"),
    (EMMA, "Jane Austen wrote it, but she did not publish it under her own name.", "Jane Austen"),
    (EMMA, "It was Jane Austen, who never published it herself.", "Jane Austen"),
    ("When did it open?", "It did not open in 1951 but in 1952.", "1952"),
    *[(FAUST, "Nicht Schiller, sondern Goethe.", "Goethe"), (ADDED, "43. Wait, it is 42.", "42")],
    *[("How much?", "100 USD", "$100"), ("How much?", "US$100", "$100"), ("What is x?", "x = 3", "3")],
    *[("What is x?", "The answer is \\boxed{\\frac{3}{4}}.", "3/4"), ("谁写的？", "鲁迅写的。", "鲁迅")],
    *[("How many?", "25 basis points", "25"), ("By how much?", "It rose by 20 percent.", "20%")],
    *[
        (BEATEN, "France was beaten by Italy.", "Italy beat France"),
        (LIGHTS, "Red, amber, green", "red, amber, green"),
    ],
    ("Wie viele?", "750 Millionen Menschen", "750 Millionen"),
    (EMMA, "Many believe it was Jane Austen.", "Jane Austen"),
]


@pytest.mark.parametrize(
    ("question", "text", "answer"), [case for cases in TAKEN_FOR_RIGHT.values() for case in cases]
)
def test_what_a_sentence_denies_replaces_or_says_of_another_is_wrong(
    question: str, text: str, answer: str
) -> None:
    assert Grader(form="sentence")(question, text, [answer]).label == "incorrect"


@pytest.mark.parametrize(("question", "text", "answer"), STILL_RIGHT)
def test_what_only_looks_so_is_right(question: str, text: str, answer: str) -> None:
    assert Grader(form="sentence")(question, text, [answer]).label == "correct"
