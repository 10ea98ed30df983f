"""Equality of short answers, numbers, what surrounds an answer, and the gate before a judge."""

from __future__ import annotations

from decimal import Decimal

import pytest

from factrl.text.answers import (
    MASTER_KEYS,
    equals,
    final_answer,
    is_contentless,
    normalize_answer,
    same_answer,
)
from factrl.text.words import parse_number

# -- Normalising --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        *[("", ""), ("The  Beatles!", "beatles"), ("I don’t know.", "i dont know"), ("A an the", "")],
        *[("Ｐａｒｉｓ", "paris"), ("Pa\u200bris", "paris")],
    ],
)
def test_normalize(raw: str, normal: str) -> None:
    assert normalize_answer(raw) == normal


# -- Numbers ------------------------------------------------------------------------------------------


NUMBERS = {
    **{"0": "0", "-0": "0", "+7": "7", "−5": "-5", "007": "7", ".5": "0.5", "1,234,567.5": "1234567.5"},
    **{"10\u202f000": "10000", "2.5E-3": "0.0025", "3 × 10⁸": "300000000", "1.5 million": "1500000"},
    **{"٣": "3", "१२": "12", "9" * 64: "9" * 64},
    "0.1000000000000000000000000000000001": "0.1000000000000000000000000000000001",
}
NO_NUMBERS = [
    *("", " ", "-", "five", "NaN", "sNaN", "-inf", "Infinity", "1e999", "-1e999", "1e-999", "10/10", "½"),
    *("1,5", "1,0000", "12,34", "1.2.3", "1 00", "5.", "50%", "$5", "5 km", "0x10", "1_000", "10²", "--5"),
    *("9" * 65, "9" * 5000),
]


def test_a_number_is_read_exactly_or_not_at_all() -> None:
    found = {raw: parse_number(raw) for raw in NUMBERS}
    assert found == {raw: Decimal(value) for raw, value in NUMBERS.items()}
    assert str(found["-0"]) == "0"
    assert [raw for raw in NO_NUMBERS if parse_number(raw) is not None] == []


# -- Equality -----------------------------------------------------------------------------------------

SAME = [
    *[("Paris.", "paris"), ("The Beatles", "Beatles"), ("São Paulo", "Sao Paulo"), ("Łódź", "Lodz")],
    *[("Straße", "strasse"), ("Breakfast at Tiffany’s", "Breakfast at Tiffany's"), ("H₂O", "H2O")],
    *[("1,000", "1000"), ("1.5 million", "1500000"), ("12.0", "12"), ("-5", "−5")],
    *[("50%", "50 percent"), ("1,000 km", "1000 km"), ("13th of March 2018", "2018-03-13")],
    *[("July 4", "4 July"), ("Sept 5, 1999", "September 5 1999"), ("K.", "K"), ("U.S.", "US"), ("no", "No")],
    *[("The The", "the the"), ("A", "A"), ("π", "π"), ("C++", "C++"), ("Pa\u200bris", "Paris")],
    *[
        ("足阳明 胃经", "足阳明胃经"),
        ("《红楼梦》", "红楼梦"),
        ("Argentina and Chile", "Argentina and Chile"),
    ],
    *[("\\frac12", "1/2"), ("New~York", "New York")],
    *[("J.R.R. Tolkien", "J. R. R. Tolkien"), ("JRR Tolkien", "J. R. R. Tolkien")],
    *[("J R R Tolkien", "J.R.R. Tolkien"), ("Mt. Everest", "Mount Everest"), ("Mt Everest", "Mount Everest")],
    *[("George 3", "George III"), ("World War 2", "World War II"), ("World War Two", "World War II")],
    *[("Louis 14", "Louis XIV"), ("Henry the Eighth", "Henry VIII"), ("Henry the 8th", "Henry VIII")],
    *[("george iii", "George III"), ("George III.", "George 3"), ("Elizabeth I", "Elizabeth 1")],
    *[("St. Petersburg", "Saint Petersburg"), ("Wall St.", "Wall Street")],
    *[("Simon & Garfunkel", "Simon and Garfunkel"), ("AT&amp;T", "AT&T"), ("New&nbsp;York", "New York")],
    *[("44 B.C.", "44 BC"), ("44 BCE", "44 BC"), ("5pm", "5 PM")],
    *[("Spider-Man", "Spider Man"), ("Spider-Man", "Spiderman"), ("The Beatles", "beatles")],
    *[("H_{2}O", "H2O"), ("H_2O", "H2O"), ("h2o", "H2O"), ("2\\frac{1}{2}", "2 1/2")],
    *[("x^{2}", "x^2"), ("\\sqrt{2}", "√2"), ("$\\sqrt2$", "√2"), ("x + 1", "x+1")],
    *[("90^\\circ", "90°"), ("**Paris**", "Paris"), ("`Paris`", "Paris")],
    *[("<b>Paris</b>", "Paris"), ("Wow!", "Wow"), ("Help!", "Help"), ("Malmo", "Malmö"), ("malmo", "Malmö")],
    *[
        ("Горбачев", "Горбачёв"),
        ("Ocean's 11", "Ocean's Eleven"),
    ],
    *[("Austen, Jane", "Jane Austen"), ("[0, 1)", "[0,1)"), ("Na+", "Na+")],
    ("Martin Luther King Jr.", "Martin Luther King, Jr."),
    *[("Martin Luther King Junior", "Martin Luther King Jr."), ("O-", "O−")],
    *[("George H.W. Bush", "George H. W. Bush"), ("U.S.A.", "USA"), ("5 KM", "5 km")],
    *[
        ("Catch-22", "Catch 22"),
        ('"Paris"', "Paris"),
        ("O'Brien", "OBrien"),
    ],
    *[("Washington, D.C.", "Washington DC"), ("Washington D. C.", "Washington, DC"), ("30 %", "30 percent")],
    *[("15,000,000", "15 million"), ("iPhone X", "iPhone X")],
    *[("Rocky IV", "Rocky 4"), ("Super Bowl LIV", "Super Bowl 54"), ("Act II, Scene III", "Act 2, Scene 3")],
    *[("Boeing 747-400", "Boeing 747-400"), ("(Paris)", "Paris"), ("Chapter 11", "Chapter XI")],
    *[("Apollo 11", "Apollo XI"), ("Who's Afraid of Virginia Woolf?", "Who's Afraid of Virginia Woolf")],
    *[("\\text{Paris}", "Paris"), ("Paris\\,", "Paris"), ("J.K. Rowling", "J. K. Rowling")],
    *[("C. S. Lewis", "CS Lewis"), ("3.0", "3"), ("sixth", "6th"), ("Henry the 8th", "Henry the Eighth")],
    *[("the 5th", "fifth"), ('"Catch-22"', "Catch 22"), ("'Emma'", "Emma"), ("COVID 19", "COVID-19")],
    *[("x-1", "x - 1"), ("F-16", "F16"), ("E=mc^2", "E = mc²"), ("Dr. No", "Dr No")],
    *[("Louis-Philippe I", "Louis Philippe I"), ("Elizabeth II of England", "Elizabeth 2 of England")],
    *[("Pelé", "Pele"), ("naïve", "naïve"), ("Côte d'Ivoire", "Cote d'Ivoire"), ("Beyoncé", "Beyonce")],
    *[("Jean-Paul Sartre", "Jean Paul Sartre"), ("Charles de Gaulle", "Charles De Gaulle"), ("É", "É")],
    *[("10\xa0000", "10,000"), ("½", "1/2")],
    *[("35\\%", "35%"), ("Beijing (China)", "Beijing, China"), ("Tom & Jerry", "Tom and Jerry")],
    *[("2nd", "second"), ("Crash! Boom! Bang!", "Crash Boom Bang"), ("St Andrews", "St. Andrews")],
    *[("Mr. Bean", "Mr Bean"), ("P.T. Barnum", "PT Barnum")],
    *[
        ("1914 - 1918", "1914–1918"),
        ("Mueller", "Müller"),
        ("Gerhard Schroeder", "Gerhard Schröder"),
    ],
    *[("90°", "90 degrees"), ("20 °C", "20 degrees Celsius"), ("fifty per cent", "50%")],
    *[("25/12/1867", "25 December 1867"), ("13.3.2018", "2018-03-13"), ("3/13/2018", "13. 3. 2018")],
    *[("10₂", "10_{2}"), ("10<sub>2</sub>", "10_2"), ("U_3O_8", "U₃O₈")],
    *[("Saturday, 5 May 2001", "5 May 2001"), ("Saturday, May 5, 2001", "2001-05-05")],
]
DIFFERENT = [
    *[("", ""), ("", "Paris"), ("\u200b", "\u200b"), (".", ""), ("Paris or Lyon", "Paris")],
    *[("Africa, Asia, Europe", "Asia"), ("yes and no", "no"), ("Paris / Lyon", "Paris")],
    *[("not Paris", "Paris"), ("New York", "York"), ("Parisian", "Paris"), ("New York City", "New York")],
    *[("Lagos State", "Lagos"), ("CO", "Co"), ("potassium (K)", "K"), ("us", "US"), ("C++", "C")],
    *[("A*", "A"), ("The", "A"), ("-5", "5"), ("1.5", "15"), ("1.5 km", "15 km"), ("3:2", "32")],
    *[("10/10", "1010"), ("10²", "102"), ("2½", "21/2"), ("1,5", "15"), ("1.5", "1,5")],
    *[("2004-05", "200405"), ("3.14", "3.1416"), ("50", "50%"), ("$5", "5"), ("5 km", "5")],
    *[("1861", "July 21, 1861"), ("July 21, 1861", "July 22, 1861"), ("1939–1945", "1939-46")],
    *[("May", "May 1"), ("03/04/2018", "04/03/2018"), ("が", "か"), ("й", "и"), ("東京大学", "東京")],
    *[("北京、上海", "北京"), ("Рaris", "Paris")],
    ("Paris" * 300, "Paris" * 300),
    *[("√2", "2"), ("\\sqrt{2}", "2"), ("n!", "n"), ("5!", "5"), ("(n+1)!", "(n+1)"), ("a/b", "ab")],
    *[("[0,1)", "[0,1]"), ("(0,1)", "[0,1]"), ("(0, 1]", "[0, 1]"), ("]0,1[", "[0,1]"), ("O-", "O+")],
    *[("O-", "O"), ("O+", "O"), ("AB-", "AB"), ("AB−", "AB+"), ("5 mJ", "5 MJ"), ("5 mW", "5 MW")],
    *[("10 Mb", "10 MB"), ("10 mb", "10 Mb"), ("5 Mg", "5 mg"), ("5mg", "5Mg"), ("5 M", "5 m")],
    *[("3.10", "3.1"), ("Python 3.10", "Python 3.1"), ("+44", "44"), ("007", "7"), ("01234", "1234")],
    *[("año", "ano"), ("Año", "ano nuevo"), ("pêche", "péché"), ("schon", "schön")],
    *[("John Elton", "Elton John"), ("Austen Jane", "Jane Austen"), ("Louis XV", "Louis XIV")],
    *[("George 4", "George III"), ("Elizabeth I", "Elizabeth II"), ("Elizabeth", "Elizabeth II")],
    *[("10 - 20", "10"), ("44 BC", "44 AD"), ("44", "44 BC"), ("5 am", "5 pm"), ("not guilty", "guilty")],
    *[("C#", "C"), ("F#", "F"), ("B♭", "B"), ("A-", "A"), ("vitamin A", "vitamin"), ("Vitamin A", "Vitamin")],
    *[("Hepatitis A", "Hepatitis"), ("Serie A", "Serie"), ("A minor", "minor"), ("A♭ minor", "A minor")],
    *[("Cl-", "Cl"), ("Na+", "Na"), ("x-y", "xy"), ("-x", "x"), ("f'", "f"), ("f''", "f'"), ("5'", "5")],
    *[('5"', "5"), ("x^2", "x2"), ("x|X", ""), ("|x|", "x"), ("2:1", "1:2"), ("5°", "5"), ("5%", "5")],
    *[("5‰", "5"), ("£5", "€5"), ("5 m/s", "5 ms"), ("2(x+1)", "2x+1"), ("(a+b)c", "a+bc"), ("a<b", "ab")],
    *[("a>b", "a<b"), ("≤5", "<5"), ("±5", "5"), ("~5", "5"), (">5", "5"), ("CO2", "Co2")],
    *[("{1,2}", "(1,2)"), ("2/4", "1/2"), ("10/10", "1"), ("2 1/2", "21/2"), ("2 1/2", "2"), ("5th", "5")],
    *[("5", "the fifth"), ("x_1 y", "x1 z"), ("10,5", "10"), ("10,5", "105"), ("1.000", "1,000")],
    *[("1e3", "13"), ("किताब", "कताब"), ("काला", "कल"), ("May 2018", "May 5, 2018")],
    *[("2001", "September 11, 2001"), ("7 November", "7 November 1867"), ("Paris → Lyon", "Paris")],
    *[("Paris/Lyon", "Paris"), ("Paris vs Lyon", "Paris"), ("between Paris and Lyon", "Paris")],
    *[("✗ Paris ✓ Lyon", "Lyon"), ("Paris? Lyon?", "Paris"), ("10^{6}", "10^{7}"), ("x^{2n}", "x^2n")],
    *[("\\frac12", "2"), ("\\frac{a+b}{c}", "a+b/c"), ("1/2", "2/1"), ("-1/2", "1/2"), ("2^-3", "2^3")],
    *[("Malcolm X", "Malcolm"), ("Bär", "bar"), ("George VI", "George IV"), ("2n!", "2n"), ("¬p", "p")],
    *[("!p", "p"), ("not p", "p"), ("p ∧ q", "p ∨ q"), ("A ∪ B", "A ∩ B"), ("A ⊂ B", "A ⊃ B")],
    *[("Fe2+", "Fe3+"), ("Fe2+", "Fe2"), ("1.5 million", "1.5 billion"), ("Bros", "Brothers Grimm")],
    *[("Python", "Python 3"), ("5 km", "5 miles"), ("HIV-1", "HIV-2"), ("COVID-19", "COVID"), ("T-", "T")],
    *[("Bär", "Bar"), ("Psalm 23", "Psalm 32"), ("Rocky IV", "Rocky VI")],
    *[("5 Mm", "5 mm"), ("x^-1", "x^1"), ("log x", "log y"), ("3 × 4", "3 + 4"), ("6÷2", "62")],
    *[("1:30", "130"), ("1.30", "1:30"), ("2.0.1", "2.01"), ("v1.2", "v12"), ("1e-3", "1e3"), ("first", "1")],
    *[("The fifth", "5"), ("+5", "5"), ("Type A", "Type"), ("Se", "SE"), ("p → q", "q → p"), ("∀x", "∃x")],
    *[("a ∈ B", "a ∉ B"), ("x ≥ 2", "x > 2"), ("f(x)", "fx"), ("‖x‖", "x"), ("√2/2", "2/2"), ("π/2", "π2")],
    *[("50¢", "50"), ("1914 - 1919", "1914–1918"), ("none", "1"), ("Moeller", "Müller"), ("schoen", "schon")],
    *[("Saturday, 5 May", "5 May 2001"), ("1980s", "1980"), ("9" * 40, "1" + "0" * 40)],
    *[("10_2", "102"), ("10_{2}", "102"), ("10₂", "102"), ("number 1<sub>0</sub>", "number 10")],
    *[("won 1-0", "won 10"), ("3/4/1889", "3 April 1889"), ("20 °F", "20 °C"), ("90 degrees", "90 °C")],
    *[("Saturday", "5 May 2001"), ("Saturday,5", "5"), ("Saturday, 2001-13-05", "2001-12-05")],
]


def test_one_answer_in_two_spellings() -> None:
    assert [pair for pair in SAME if not (same_answer(*pair) and same_answer(*pair[::-1]))] == []


def test_every_sign_that_changes_the_value_counts() -> None:
    both = [*DIFFERENT, *(pair[::-1] for pair in DIFFERENT), ("k", "K")]
    assert [pair for pair in both if same_answer(*pair) or equals(pair[0], [pair[1]])] == []


# Question, accepted answer, texts that equal it, and texts that a judge has to decide.
ASKED = [
    ("How high is it in metres?", "8849", ["8849 metres", "8,849 m"], ["8849 feet"]),
    ("How high is it?", "8849 metres", ["8849 m"], ["8849", "8.849 km"]),
    ("How many goals did he score?", "12", ["12 goals", "He had 12 goals"], ["12 assists", "at least 12"]),
    ("What percentage of them voted?", "62.5", ["62.5%", "62.5 percent"], ["62"]),
    ("How much is it in pounds sterling?", "10,000", ["£10,000", "10000 pounds"], ["$10,000", "€10,000"]),
    ("Wie viel Euro kostet es?", "€25", ["25", "25 Euro", "25 €"], ["25 $"]),
    ("Combien de dollars ?", "18", ["$18", "18 dollars"], ["18 €"]),
    ("何年に始まりましたか？", "1867", ["1867年"], ["不是1867年", "1867年或1868年"]),
    ("How warm is it?", "45 °C", ["$45^\\circ\\text{C}$", "45°C"], ["45 °F", "45"]),
    ("How large is the resistance?", "5 mΩ", ["5mΩ"], ["5 MΩ", "5 kΩ"]),
    ("How much radiation?", "5 mSv", ["5 mSv"], ["5 MSv"]),
    (
        "When?",
        "13 March 2018",
        ["13. März 2018", "le 13 mars 2018", "2018年3月13日"],
        ["03/2018"],
    ),
    ("Which colours?", "red, white", ["white and red"], ["red"]),
    ("In which order?", "red, white", ["red and white"], ["white, red"]),
    (
        "Is it?",
        "Yes",
        ["Yes.", "yes, it is"],
        ["Yes and no.", "Yes, but no.", "Yesterday"],
    ),
    ("Is it false?", "False", ["false"], ["It is not false.", "True"]),
    (
        "C) Nice or D) Lyon?",
        "D",
        ["D", "D) Lyon", "The answer is D.", "(D)"],
        ["B", "D) C", "D) Nice", "Denmark", "D or B"],
    ),
    ("Who?", "Ma", ["Ma"], ["MA"]),
]


@pytest.mark.parametrize(("question", "answer", "same", "unsure"), ASKED)
def test_equality_reads_the_question_for_units_and_no_more(
    question: str, answer: str, same: list[str], unsure: list[str]
) -> None:
    assert [text for text in same if equals(text, [answer], question) != answer] == []
    assert [text for text in unsure if equals(text, [answer], question) is not None] == []


def test_equality_names_the_alias() -> None:
    assert equals("NYC", ["New York City", "nyc"]) == "nyc"
    assert equals("Boston", ["New York City", "NYC"]) is None
    assert equals("Paris", []) is None
    assert equals("Paris", iter(["Lyon", "paris"])) == "paris"


def test_an_answer_as_written_comes_before_its_reading() -> None:
    assert equals("The Man Who Was Thursday", ["The Man Who Was Thursday"])
    assert equals("The Future Is Female", ["The Future Is Female"])
    assert equals("The world is flat", ["The World Is Flat"])


# -- Around the answer --------------------------------------------------------------------------------


BARE = {
    **{
        "": "",
        ".": "",
        "Paris.": "Paris",
        "東京。": "東京",
        "**Answer:** Paris": "Paris",
        '"Paris".': "Paris",
    },
    **{"The answer is: **Paris**.": "Paris", "So, the final answer is 42.": "42", "答案是：巴黎。": "巴黎"},
    **{"It's Paris.": "Paris", "I think it's Paris.": "Paris", "Perhaps Paris": "Paris", "It is": "It is"},
    **{"$\\boxed{\\text{New York}}$": "New York", "The answer is the U.S.": "the U.S."},
}
LEFT_ALONE = [
    *("U.S.", "'Til Tuesday", '"Heroes" and "Low"', "2**3", "It Is Written", "It's Complicated"),
    *("The Man Who Was Thursday", "The wrong answer is Paris", "The capital that is not meant is Paris"),
    *("The city, unlike what people say, is Paris", "Paris is the capital of France", "I doubt it is Paris"),
    *(
        "The former capital was Bonn.",
        "The nearest city to the capital is Paris.",
        "The capital of Peru is Lima.",
    ),
]
NOT_PARIS = [
    *("The capital of France is not Paris.", "It isn't Paris", "The answer is Paris or Lyon."),
    "It is false: Paris",
    *("The answer is Lyon. It is not Paris", "The wrong answer is Paris", "Nobody thinks it is Paris"),
    *("It may be Paris, though possibly Lyon; sources differ.", "The capital nobody doubts is Paris"),
]


def test_final_answer() -> None:
    assert {raw: final_answer(raw) for raw in BARE} == BARE
    question = "What is the capital of France?"
    assert [raw for raw in LEFT_ALONE if final_answer(raw, question).rstrip(".") != raw.rstrip(".")] == []
    assert final_answer("The capital of France is called Paris.", question) == "Paris"
    assert final_answer("The director of Up was Pete Docter.", "Who directed Up?") == "Pete Docter"
    assert [raw for raw in NOT_PARIS if equals(raw, ["Paris"])] == []


# -- The gate -----------------------------------------------------------------------------------------


CONTENTLESS = [
    *("", " ", ".", "…", "?!", "---", "###", "\u200b", "\u3164", "\ufeff\u2060", "\ufffd", "\x00", "$", "<>"),
    *("Thought process:", "Let’s solve this problem step by step", "**Solution:**", "解", "Final answer"),
    *("Step 1:", "THE ANSWER IS:", "Ｓｏｌｕｔｉｏｎ", "So\u200blution", "答案：", *MASTER_KEYS),
]
SHORT = [
    *("0", "K", "C++", "-5", "π", "中", "No", "The Who", "A", "7.", "∞", "🎳", "½", "I don't know"),
    "Unknown",
    *("Solutions", "Answer me!", "Step 12", "解放", "No. 1", "A+", "Paris"),
]


def test_contentless() -> None:
    assert [raw for raw in CONTENTLESS if not is_contentless(raw)] == []
    assert [raw for raw in SHORT if is_contentless(raw)] == []


def test_what_shows_nothing_is_no_answer() -> None:
    empty = ["&nbsp;", "&#8203;", "<br>", "<p></p>", "\\quad", "\\phantom{Paris}", "~", "<!-- Paris -->"]
    assert [text for text in empty if not is_contentless(text)] == []
    assert [text for text in ("C++", "<3", "AT&amp;T", "\\pi", "<b>no</b>") if is_contentless(text)] == []
