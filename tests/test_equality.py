"""One answer or another: what equality overlooks, what it never does, and candidates beside each other."""

from __future__ import annotations

import pytest

from factrl.errors import SetupError
from factrl.rewards.grading import Grader
from factrl.text.answers import LOOSENINGS, is_contentless, matches, same_answer

SHORT, SENTENCE = Grader(), Grader(form="sentence")

ONE = [
    *[("\\frac12", "1/2"), ("\\dfrac{1}{2}", "0.5"), ("10^{6}", "1,000,000"), ("New~York", "New York")],
    *[("J.R.R. Tolkien", "J. R. R. Tolkien"), ("JRR Tolkien", "J. R. R. Tolkien")],
    *[("J R R Tolkien", "J.R.R. Tolkien"), ("Mt. Everest", "Mount Everest")],
    *[("Mt Everest", "Mount Everest"), ("George 3", "George III"), ("World War 2", "World War II")],
    *[("World War Two", "World War II"), ("Louis 14", "Louis XIV"), ("Henry the Eighth", "Henry VIII")],
    *[("Henry the 8th", "Henry VIII"), ("george iii", "George III"), ("George III.", "George 3")],
    *[("Elizabeth I", "Elizabeth 1"), ("St. Petersburg", "Saint Petersburg"), ("Wall St.", "Wall Street")],
    *[("Simon & Garfunkel", "Simon and Garfunkel"), ("AT&amp;T", "AT&T"), ("New&nbsp;York", "New York")],
    *[("44 B.C.", "44 BC"), ("44 BCE", "44 BC"), ("AD 79", "79 AD"), ("5 p.m.", "5 pm"), ("5pm", "5 PM")],
    *[("Spider-Man", "Spider Man"), ("Spider-Man", "Spiderman"), ("The Beatles", "beatles")],
    *[("AC/DC", "ACDC"), ("H_{2}O", "H2O"), ("H_2O", "H2O"), ("h2o", "H2O"), ("H₂O", "H2O")],
    *[("2\\frac{1}{2}", "2 1/2"), ("2½", "2.5"), ("½", "0.5"), ("x^{2}", "x^2"), ("\\sqrt{2}", "√2")],
    *[("$\\sqrt2$", "√2"), ("x + 1", "x+1"), ("90^\\circ", "90°"), ("3 \\times 10^{8}", "3e8")],
    *[("**Paris**", "Paris"), ("`Paris`", "Paris"), ("<b>Paris</b>", "Paris"), ("Wow!", "Wow")],
    *[("Help!", "Help"), ("Malmo", "Malmö"), ("malmo", "Malmö"), ("Sao Paulo", "São Paulo")],
    *[("Горбачев", "Горбачёв"), ("Ocean's 11", "Ocean's Eleven"), ("Once Upon A Time", "Once Upon a Time")],
    *[("Austen, Jane", "Jane Austen"), ("Jane Austen", "Austen, Jane"), ("[0, 1)", "[0,1)"), ("C++", "c++")],
    *[("Na+", "Na+"), ("Martin Luther King Jr.", "Martin Luther King, Jr.")],
    *[("Martin Luther King Junior", "Martin Luther King Jr."), ("O-", "O−")],
    *[("George H.W. Bush", "George H. W. Bush"), ("U.S.A.", "USA"), ("5 KM", "5 km")],
    *[("Catch-22", "Catch 22"), ('"Paris"', "Paris"), ("O'Brien", "OBrien"), ("R&B", "R and B")],
    *[("Washington, D.C.", "Washington DC"), ("Washington D. C.", "Washington, DC"), ("30 %", "30 percent")],
    *[("15,000,000", "15 million"), ("1/2", "0.5"), ("3/4", "0.75"), ("iPhone X", "iPhone X")],
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
    *[("10\xa0000", "10,000"), ("½", "1/2"), ("1/2", "½"), ("$\\frac{1}{2}$", "0.5")],
    *[("\\(\\frac{1}{2}\\)", "0.5"), ("35\\%", "35%"), ("Beijing (China)", "Beijing, China")],
    *[("Tom & Jerry", "Tom and Jerry"), ("2nd", "second"), ("Crash! Boom! Bang!", "Crash Boom Bang")],
    *[("St Andrews", "St. Andrews"), ("Mr. Bean", "Mr Bean"), ("P.T. Barnum", "PT Barnum"), ("no", "No")],
]
TWO = [
    *[("√2", "2"), ("\\sqrt{2}", "2"), ("n!", "n"), ("5!", "5"), ("(n+1)!", "(n+1)"), ("a/b", "ab")],
    *[("[0,1)", "[0,1]"), ("(0,1)", "[0,1]"), ("(0, 1]", "[0, 1]"), ("]0,1[", "[0,1]"), ("O-", "O+")],
    *[("O-", "O"), ("O+", "O"), ("AB-", "AB"), ("AB−", "AB+"), ("5 mJ", "5 MJ"), ("5 mW", "5 MW")],
    *[("10 Mb", "10 MB"), ("10 mb", "10 Mb"), ("5 Mg", "5 mg"), ("5mg", "5Mg"), ("5 M", "5 m")],
    *[("3.10", "3.1"), ("Python 3.10", "Python 3.1"), ("+44", "44"), ("007", "7"), ("01234", "1234")],
    *[("año", "ano"), ("Año", "ano nuevo"), ("pêche", "péché"), ("schon", "schön")],
    *[("John Elton", "Elton John"), ("Austen Jane", "Jane Austen"), ("Louis XV", "Louis XIV")],
    *[("George 4", "George III"), ("Elizabeth I", "Elizabeth II"), ("Elizabeth", "Elizabeth II")],
    *[("10 - 20", "10"), ("44 BC", "44 AD"), ("44", "44 BC"), ("5 am", "5 pm"), ("not guilty", "guilty")],
    *[("C++", "C"), ("C#", "C"), ("F#", "F"), ("B♭", "B"), ("A*", "A"), ("A-", "A")],
    *[("vitamin A", "vitamin"), ("Vitamin A", "Vitamin"), ("Hepatitis A", "Hepatitis")],
    *[("Serie A", "Serie"), ("A minor", "minor"), ("A♭ minor", "A minor"), ("Cl-", "Cl"), ("Na+", "Na")],
    *[("x-y", "xy"), ("-x", "x"), ("f'", "f"), ("f''", "f'"), ("5'", "5"), ('5"', "5"), ("x^2", "x2")],
    *[("x|X", ""), ("|x|", "x"), ("2:1", "1:2"), ("5°", "5"), ("5%", "5"), ("5‰", "5"), ("$5", "5")],
    *[("£5", "€5"), ("5 m/s", "5 ms"), ("2(x+1)", "2x+1"), ("(a+b)c", "a+bc"), ("a<b", "ab")],
    *[("a>b", "a<b"), ("≤5", "<5"), ("±5", "5"), ("~5", "5"), (">5", "5"), (".NET", "NET"), ("CO2", "Co2")],
    *[("{1,2}", "(1,2)"), ("2/4", "1/2"), ("10/10", "1"), ("2 1/2", "21/2"), ("2 1/2", "2"), ("5th", "5")],
    *[("5", "the fifth"), ("x_1 y", "x1 z"), ("10,5", "10"), ("10,5", "105"), ("1.000", "1,000")],
    *[("1e3", "13"), ("किताब", "कताब"), ("काला", "कल"), ("が", "か"), ("May 2018", "May 5, 2018")],
    *[("2001", "September 11, 2001"), ("7 November", "7 November 1867"), ("Paris → Lyon", "Paris")],
    *[("Paris/Lyon", "Paris"), ("Paris vs Lyon", "Paris"), ("between Paris and Lyon", "Paris")],
    *[("✗ Paris ✓ Lyon", "Lyon"), ("Paris? Lyon?", "Paris"), ("10^{6}", "10^{7}"), ("x^{2n}", "x^2n")],
    *[("\\frac12", "2"), ("\\frac{a+b}{c}", "a+b/c"), ("1/2", "2/1"), ("-1/2", "1/2"), ("2^-3", "2^3")],
    *[("Malcolm X", "Malcolm"), ("Bär", "bar"), ("George VI", "George IV"), ("2n!", "2n"), ("¬p", "p")],
    *[("!p", "p"), ("not p", "p"), ("p ∧ q", "p ∨ q"), ("A ∪ B", "A ∩ B"), ("A ⊂ B", "A ⊃ B")],
    *[("Fe2+", "Fe3+"), ("Fe2+", "Fe2"), ("1.5 million", "1.5 billion"), ("Bros", "Brothers Grimm")],
    *[("Python", "Python 3"), ("5 km", "5 miles"), ("CO", "Co"), ("HIV-1", "HIV-2"), ("COVID-19", "COVID")],
    *[("T-", "T"), ("Bär", "Bar"), ("us", "US"), ("US", "us"), ("f''", "f'"), ("2n!", "2n")],
    *[("10 km/h", "10 kmh"), ("Psalm 23", "Psalm 32"), ("Rocky IV", "Rocky VI"), ("5 Mm", "5 mm")],
    *[("x^-1", "x^1"), ("log x", "log y"), ("3 × 4", "3 + 4"), ("6÷2", "62"), ("1:30", "130")],
    *[("1.30", "1:30"), ("2.0.1", "2.01"), ("v1.2", "v12"), ("1e-3", "1e3"), ("first", "1")],
    *[("The fifth", "5"), ("+5", "5"), ("Type A", "Type"), ("Se", "SE"), ("p → q", "q → p"), ("∀x", "∃x")],
    *[("a ∈ B", "a ∉ B"), ("x ≥ 2", "x > 2"), ("f(x)", "fx"), ("|x|", "x"), ("‖x‖", "x"), ("√2/2", "2/2")],
    *[("π/2", "π2"), ("50¢", "50")],
]


def test_one_answer_in_two_spellings() -> None:
    assert [pair for pair in ONE if not (same_answer(*pair) and same_answer(*pair[::-1]))] == []


def test_every_sign_that_changes_the_value_counts() -> None:
    pairs = [*TWO, *(pair[::-1] for pair in TWO)]
    assert [pair for pair in pairs if same_answer(*pair) or matches(pair[0], [pair[1]])] == []


# What each loosening makes equal, and nothing else does.
BY = {
    "case": ("paris", "Paris"),
    "punctuation": ("Jean Paul Sartre", "Jean-Paul Sartre."),
    "articles": ("Beatles", "The Beatles"),
    "accents": ("Sao Paulo", "São Paulo"),
    "markup": ("New~York", "New York"),
    "initials": ("JRR Tolkien", "J. R. R. Tolkien"),
    "abbreviations": ("Mt Everest", "Mount Everest"),
    "numerals": ("World War 2", "World War II"),
    "values": ("\\frac12", "0.5"),
    "dates": ("2018-03-13", "13 March 2018"),
    "order": ("Austen, Jane", "Jane Austen"),
    "units": ("5 km", "5000 m"),
}


def test_every_loosening_has_a_reason_and_can_be_switched_off() -> None:
    assert BY.keys() == LOOSENINGS.keys()
    assert all(LOOSENINGS.values())
    for name, (text, answer) in BY.items():
        assert SHORT("Which?", text, [answer]).label == "correct", name
        strict = Grader(loosen=LOOSENINGS.keys() - {name})
        assert strict("Which?", text, [answer]).label == "incorrect", name
        assert strict("Which?", answer, [answer]).label == "correct", name
    with pytest.raises(SetupError, match="accent"):
        Grader(loosen=["accent"])


# Of each question and accepted answer, texts that give another one: in either form of grading.
WRONG = [
    (
        "Which king of France died in 1715?",
        "Louis XIV",
        [
            *("It was Louis XV.", "Louis XV", "Louis XIII", "King Louis XVI died then.", "Louis"),
            *("Louis 15", "Louis the Fifteenth"),
        ],
    ),
    (
        "On what date were the attacks?",
        "September 11, 2001",
        [
            *("In 2001.", "September 2001", "September 11", "11 September 2002"),
            "It was on September 12, 2001.",
        ],
    ),
    (
        "When was she born?",
        "7 November 1867",
        [
            *("She was born on 7 November.", "1867", "In November 1867.", "7 November 1876"),
            "November 17, 1867",
        ],
    ),
    (
        "How many?",
        "10",
        [
            *("Between 10 and 20", "10,5", "10.5", "10-20", "10 to 20", "at least 10", "-10", "10%"),
            *("10 or 11", "10/11", "10 1/2", "√10", "10²", "10!", "the 10th", "about 10 to 12", "100"),
            *("1010", "ten thousand", "<10", "10+"),
        ],
    ),
    ("Which language?", "C", ["It is written in C++.", "C++", "C#", "Objective-C", "It was written in C#."]),
    ("Which language?", "C++", ["It is written in C.", "C", "C#"]),
    ("Blood type?", "O+", ["O-", "O", "It is O negative.", "O−", "AB+", "The type is O-."]),
    ("Blood type?", "O-", ["O+", "O", "It is O+."]),
    ("How many?", "2", ["2 1/2", "2½", "√2", "2^3", "2!", "1/2", "2/3", "2.5", "2,5", "-2", "It is 2 1/2."]),
    (
        "How long is it?",
        "5 m",
        [
            *("5 cm", "It is 5 cm long.", "5 km", "5 mm", "5 ms", "5 miles", "5 M", "5 ft", "5 m²"),
        ],
    ),
    ("How much energy?", "5 MJ", ["5 mJ", "It needs 5 mJ.", "5 kJ", "5 J", "5 MW", "5 GJ"]),
    ("How big is the file?", "5 MB", ["5 Mb", "5 mb", "5 GB", "It has 5 Mbit.", "5 KB"]),
    ("What is the answer?", "√2", ["2", "It is 2.", "sqrt", "√3", "1.4"]),
    ("What is the answer?", "n!", ["n", "It is n.", "n"]),
    ("What is the answer?", "n", ["n!"]),
    ("What is the quotient?", "a/b", ["ab", "b/a", "a-b", "It is ab."]),
    ("Which interval?", "[0, 1)", ["[0, 1]", "(0, 1)", "It is [0, 1].", "(0,1]", "[0,1"]),
    ("Which version?", "3.10", ["3.1", "It is version 3.1.", "3.11", "3.100"]),
    ("Which version?", "3.1", ["3.10", "Version 3.10.", "3"]),
    ("What is the country code?", "+44", ["44", "-44", "+45"]),
    ("What is the word?", "año", ["ano", "It is ano."]),
    ("What is the word?", "ano", ["año"]),
    ("Who sang it?", "Elton John", ["John Elton", "It was John Elton."]),
    ("Who wrote it?", "Arthur Miller", ["Miller Arthur", "Henry Miller", "It was Miller Arthur."]),
    (
        "When was he killed?",
        "44 BC",
        [
            *("44 AD", "44", "In 44 AD.", "45 BC", "He was killed in 44 AD.", "44 CE", "44 n. Chr."),
        ],
    ),
    ("When was it?", "79 AD", ["79 BC", "In 79 BC.", "79 BCE"]),
    ("When does it start?", "5 pm", ["5 am", "It starts at 5 a.m.", "5", "17", "At 5 in the morning"]),
    ("What was the verdict?", "not guilty", ["guilty", "He was found guilty.", "Guilty as charged"]),
    ("What was the verdict?", "guilty", ["not guilty", "He was found not guilty.", "innocent"]),
    ("क्या है?", "किताब", ["कताब", "काताब", "यह कताब है।"]),
    ("எது?", "கல்", ["கால்", "கில்", "கலை"]),
    ("Which?", "กิน", ["กัน"]),
    ("What is it?", "Co", ["CO", "It is CO.", "C"]),
    ("What is it?", "CO2", ["CO", "It is CO.", "C2O", "CO3", "Co2"]),
    ("Which ion?", "Fe2+", ["Fe3+", "Fe", "It is Fe3+."]),
    ("Which vitamin?", "Vitamin B12", ["Vitamin B6", "vitamin B", "B1", "Vitamin B2"]),
    ("Who ruled?", "Elizabeth I", ["Elizabeth II", "It was Elizabeth II.", "Elizabeth"]),
    ("Who ruled?", "Charles V", ["Charles I", "It was Charles IV.", "Charles X"]),
    ("Which film?", "Rocky II", ["Rocky III", "Rocky", "It is Rocky IV."]),
    ("Which place did it take?", "5th", ["5", "15th", "It came 4th."]),
    ("How many?", "5", ["5th", "the fifth", "It is the fifth."]),
    (
        "What is the capital?",
        "Paris",
        [
            *("Paris → Lyon", "Lyon → Paris", "between Paris and Lyon", "It is between Paris and Lyon."),
            *("✗ Paris ✓ Lyon", "✗ Lyon ✓ Paris", "❌ Paris ✅ Lyon", "Paris -> Lyon", "Paris => Lyon"),
            *("Paris | Lyon", "Paris/Lyon", "Paris / Lyon", "Paris vs Lyon", "Paris vs. Lyon"),
            *("Paris or Lyon", "Either Paris or Lyon.", "Paris or maybe Lyon", "Paris, maybe Lyon"),
            *("Paris, or possibly Lyon", "Paris? Lyon?", "Paris? Or Lyon?", "Lyon? Paris?", "Paris; Lyon"),
            *("Paris\nLyon", "1. Paris\n2. Lyon", "- Paris\n- Lyon", "a) Paris b) Lyon", "Paris oder Lyon"),
            *("Paris ou Lyon", "Paris o Lyon", "zwischen Paris und Lyon", "entre Paris et Lyon"),
            *("If not Paris, then Lyon", "Paris, if not Lyon", "Some say Paris, others Lyon"),
            *("Some say Paris, others say Lyon.", "It could be Paris. It could be Lyon."),
            *("It could be Paris or it could be Lyon.", "Paris or else Lyon", "Paris, alternatively Lyon"),
            *("Paris, perhaps Lyon", "Paris 50%, Lyon 50%", "Paris (or Lyon)", "Paris [or Lyon]"),
            *("Maybe Paris, maybe Lyon", "Possibly Paris, possibly Lyon", "Not Paris", "Paris ↔ Lyon"),
            *("a toss-up between Paris and Lyon", "torn between Lyon and Paris"),
            *("first guess Paris, second guess Lyon", "Option A: Paris; Option B: Lyon", "Paris... or Lyon"),
            *("Lyon or Paris", "Lyon, or rather, maybe Paris", "Paris, Lyon or Nice", "Paris nebo Lyon"),
            *("Paris, otherwise Lyon", "Paris > Lyon", "Lyon < Paris", "Paris = Lyon", "Paris + Lyon"),
            *("Lyon (not Paris)", "Lyon, not Paris", "Paris and/or Lyon", "Paris & Lyon"),
            "both Paris and Lyon",
        ],
    ),
    (
        "When did it open?",
        "1952",
        [
            *("1952 or 1953", "1952/1953", "1952 → 1953", "between 1952 and 1953", "1952, 1953"),
            *("1952 (1953)", "1952? 1953?", "1952; 1953", "1952-1958", "either 1951 or 1952"),
            *("1952 vs 1953", "✗ 1952 ✓ 1953", "1952 maybe 1953", "'52 BC", "1950s", "about 1950"),
        ],
    ),
    (
        "Who wrote Emma?",
        "Jane Austen",
        [
            *("Jane Austen or Charlotte Brontë", "Jane Austen / Charlotte Brontë"),
            *("Jane Austen → Charlotte Brontë", "between Jane Austen and Charlotte Brontë"),
            *("Jane Austen; Charlotte Brontë", "Jane Austen, Charlotte Brontë"),
            *("Jane Austen and Charlotte Brontë", "✗ Jane Austen ✓ Charlotte Brontë"),
            *("Charlotte Brontë, maybe Jane Austen", "1. Jane Austen\n2. Charlotte Brontë"),
        ],
    ),
    (
        "What colour?",
        "red",
        [
            *("red or blue", "red/blue", "red → blue", "between red and blue", "✗ red ✓ blue", "red; blue"),
            *("red, maybe blue", "red? blue?", "either red or blue", "not red"),
        ],
    ),
    ("Wo?", "Bayern", ["Nicht Bayern", "Baden-Württemberg", "Bayern oder Hessen"]),
    ("¿Qué?", "papá", ["papa"]),
    ("Was?", "schön", ["schon"]),
    ("What is it?", "π/2", ["π2", "2/π", "π", "It is π."]),
    ("What is it?", "x^2", ["x2", "x^3", "x", "2x"]),
    ("What is it?", "-x", ["x", "It is x."]),
    ("What is the ratio?", "2:3", ["3:2", "2", "The ratio is 3:2."]),
    ("What's the score?", "10/10", ["10", "1", "9/10"]),
    ("Which note?", "B♭", ["B", "B♯", "It is B."]),
    ("Which key?", "A minor", ["A major", "minor", "A"]),
    ("Which platform?", ".NET", ["NET"]),
    ("Which?", "≥ 5", ["5", "≤ 5", "> 5", "It is 5."]),
    ("Which?", "5", ["≥ 5", "> 5", "±5"]),
    ("How much?", "$5 million", ["$5 billion", "5 million euros", "€5 million", "$5", "$5.5 million"]),
    ("Which agent?", "007", ["7"]),
    ("How cold?", "-5 °C", ["5 °C", "-5 °F", "It is 5 °C."]),
    ("Area?", "5 km²", ["5 km", "5 m²", "It is 5 km."]),
    ("Speed?", "5 m/s", ["5 m", "5 ms", "5 km/h", "It is 5 km/s."]),
    ("What?", "Pacific Ocean", ["Atlantic Ocean"]),
    ("Which is right?", "p and q", ["p or q"]),
    ("Which is right?", "all dogs", ["no dogs", "some dogs"]),
    ("Does it?", "increases", ["decreases", "It does not increase.", "It decreases."]),
    ("Which?", "inorganic", ["organic"]),
    ("Which?", "legal", ["illegal", "It is illegal."]),
    ("Which?", "symmetric", ["asymmetric", "It is asymmetric."]),
    ("Which hemisphere?", "northern hemisphere", ["southern hemisphere"]),
    ("Which?", "upper bound", ["lower bound"]),
    ("Which?", "Western Australia", ["South Australia", "Australia"]),
]
RIGHT = [
    (
        "Which king of France died in 1715?",
        "Louis XIV",
        [
            *("It was Louis XIV.", "Louis 14", "King Louis XIV", "Louis the Fourteenth"),
            "The king who died was Louis XIV of France.",
        ],
    ),
    (
        "On what date were the attacks?",
        "September 11, 2001",
        [
            *("On 11 September 2001.", "2001-09-11", "They were on September 11th, 2001, a Tuesday."),
        ],
    ),
    ("In what year were the attacks?", "September 11, 2001", ["In 2001."]),
    ("How many?", "10", ["Ten.", "It is ten.", "There are 10 of them.", "10.", "10.0"]),
    ("Which language?", "C", ["It is written in C.", "C", "The language is C."]),
    ("Which language?", "C++", ["It is written in C++.", "C++"]),
    ("Blood type?", "O-", ["It is O-.", "O−"]),
    ("How long is it?", "5 m", ["500 cm", "5 metres", "It is 5 meters long.", "5m"]),
    ("How much energy?", "5 MJ", ["5,000 kJ", "5 megajoules", "It needs 5 MJ."]),
    ("Which interval?", "[0, 1)", ["[0,1)", "It is [0, 1)."]),
    (
        "When was he killed?",
        "44 BC",
        [
            *("44 BCE", "44 B.C.", "In 44 BC.", "He was killed in 44 B.C.", "44 v. Chr.", "公元前44年"),
        ],
    ),
    ("When was it?", "79 AD", ["AD 79", "In 79 CE.", "79", "It was in 79 A.D."]),
    ("When does it start?", "5 pm", ["5 p.m.", "5:00 PM", "It starts at 5 p.m."]),
    ("What was the verdict?", "not guilty", ["He was found not guilty.", "Not guilty."]),
    ("क्या है?", "किताब", ["यह किताब है।", "किताब।"]),
    ("What is it?", "CO2", ["CO₂", "It is CO2.", "co2"]),
    ("Who ruled?", "Elizabeth I", ["Queen Elizabeth I ruled.", "Elizabeth 1", "Elizabeth I of England"]),
    (
        "What is the capital?",
        "Paris",
        [
            *("Paris", "It is Paris, France.", "Paris (France)", "Paris, not Lyon.", "Not Lyon but Paris."),
            *("Paris rather than Lyon", "Paris, however, is also its largest city."),
            *("The capital is **Paris**.", "Paris. However, I may be mistaken, so please verify."),
            *("Paris, I think, but I'm not sure.", "Probably Paris; no guarantee."),
            *("Paris, if I remember correctly, but check it.", "Paris? I am fairly sure."),
            *("Paris – see the map.", "Paris, on the Seine, or as the Romans called it, Lutetia."),
            *("**Answer:** Paris", "Paris, the city of light, is the capital and Lyon is not."),
        ],
    ),
    (
        "When did it open?",
        "1952",
        [
            *("It opened in 1952.", "In 1952, in Oslo.", "1952 (Oslo)"),
            "It opened in 1952 and closed in 1960.",
        ],
    ),
    (
        "Who wrote Emma?",
        "Jane Austen",
        [
            *("Austen, Jane", "It was Jane Austen, the English novelist.", "Jane Austen (1775–1817)"),
            "Austen",
        ],
    ),
    (
        "Who wrote it?",
        "J. R. R. Tolkien",
        [
            *("J.R.R. Tolkien", "JRR Tolkien", "Tolkien", "It was by J.R.R. Tolkien."),
        ],
    ),
    ("What colour?", "red", ["It is red.", "Red", "The colour is bright red."]),
    ("Which version?", "3.10", ["It is version 3.10.", "3.10"]),
    ("What is the word?", "año", ["It is año.", "año"]),
    ("Quel est le mot?", "Dvě.", ["Měl dvě děti."]),
    ("Where?", "São Paulo", ["Sao Paulo", "in Sao Paulo, Brazil"]),
    ("Which?", "Gerald Ford", ["Gerald R. Ford"]),
    ("How fast?", "100 km/h", ["100 km/h", "100 kph", "It does 100 km/h."]),
    ("How much?", "$5 million", ["5 million dollars", "$5,000,000", "It cost $5 million."]),
    ("What are the four?", "India, China", ["1. **India**\n2. **China**"]),
]
CAVEATS = [
    *("Warsaw. However, I may be mistaken, so please verify.", "Warsaw, but I could be wrong."),
    *("It was Warsaw, although I'm not 100% certain.", "Warsaw. Please double-check this."),
    *("Warsaw. I might be wrong, though.", "Warsaw, if I remember correctly."),
    "Warsaw, I think, but don't quote me on that.",
    "I believe she was born in Warsaw. But I'm not completely sure.",
    *("Warsaw. However, my information may be outdated.", "Warsaw – though I can't verify this."),
    "She was born in Warsaw. Keep in mind that I may make mistakes.",
    *("Warsaw. But please check a reliable source.", "Warsaw. As an AI I can be wrong."),
    *("Probably Warsaw; no guarantee.", "Warsaw, but take this with a grain of salt."),
    *("Warsaw. However, I cannot confirm this.", "Warsaw. Note: I am not certain about it."),
    *("Warsaw. Aber ich kann mich irren.", "Warsaw. I don't have access to current sources, so verify it."),
    *("Warsaw. I recommend consulting an encyclopedia.", "Warsaw. Sorry if this is wrong."),
    *("Warsaw (not sure).", "I'm not sure, but Warsaw.", "Warsaw? I am not sure.", "Warsaw, maybe."),
    *("My best guess is Warsaw.", "Warsaw. However, there is some uncertainty in the records."),
    *("Warsaw. It is possible that I am mistaken.", "Warsaw, unless I'm mistaken."),
]


@pytest.mark.parametrize(("question", "gold", "texts"), WRONG)
def test_another_answer_is_wrong_in_either_form(question: str, gold: str, texts: list[str]) -> None:
    forms = {"short": SHORT, "sentence": SENTENCE}
    found = [(form, text) for form, grade in forms.items() for text in texts]
    assert [one for one in found if forms[one[0]](question, one[1], [gold]).label == "correct"] == []


@pytest.mark.parametrize(("question", "gold", "texts"), RIGHT)
def test_the_answer_in_other_words_is_right(question: str, gold: str, texts: list[str]) -> None:
    assert [text for text in texts if SENTENCE(question, text, [gold]).label != "correct"] == []


def test_a_caveat_is_no_retraction() -> None:
    question = "Where was Marie Curie born?"
    assert [text for text in CAVEATS if SENTENCE(question, text, ["Warsaw"]).label != "correct"] == []


def test_what_shows_nothing_is_no_answer() -> None:
    empty = ["&nbsp;", "&#8203;", "<br>", "<p></p>", "\\quad", "\\phantom{Paris}", "~", "<!-- Paris -->"]
    assert [text for text in empty if not is_contentless(text)] == []
    assert [text for text in ("C++", "<3", "AT&amp;T", "\\pi", "<b>no</b>") if is_contentless(text)] == []
