"""A claim is held against one passage at a time, of those that are about its own subject or, where it names
nobody, about that of its heading or of the sentence before it; values are compared whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from factrl.llm import FakeLLM, Message
from factrl.types import Claim, Passage
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import LLMJudge, LocalJudge, WeakJudge
from factrl.verifier.judges.overlap import words_of
from factrl.verifier.judges.subjects import about, apart, differs, lead, subject_of
from judging import LettersBy, data_of

CASTLES = [
    Passage(
        "Dunmore Castle was built by Hugh Tallis in 1296. It has four round towers and a moat.",
        "Dunmore Castle",
    ),
    Passage("Pell Keep is the oldest stone building. Built in 1138, it was a bishop's seat.", "Pell Keep"),
    Passage("Rathmoor was begun in 1412. The great hall has a painted ceiling.", "Rathmoor"),
]
PHONES = [
    Passage("The Auron H1 plays for 30 hours and costs 129 dollars.", "Auron H1"),
    Passage("The Auron H1 Max plays for 45 hours. It costs 199 dollars.", "Auron H1 Max"),
    Passage("The Auron H2 costs 159 dollars. It comes in four colours.", "Auron H2"),
]
ROWS = [
    Passage("region: North; quarter: Q1; units_sold: 1,203; manager: Olsen"),
    Passage("region: South; quarter: Q1; units_sold: 987; manager: Prieto"),
    Passage("region: North; quarter: Q2; units_sold: 1,411; manager: Olsen"),
]
FIRMS = [
    Passage("Norvik Shipping (NS) was founded in Bergen in 1911. The company owns 42 ships.", "doc1"),
    Passage("Baltic Lines, known as BL, was founded in Riga. The company owns 17 ships.", "doc2"),
]
SCHOOLS = [
    Passage("Das Goethe-Gymnasium wurde 1906 gegründet und hat 820 Schüler.", "Goethe-Gymnasium"),
    Passage("Das Schiller-Gymnasium hat 1.140 Schüler. Schulleiter ist Uwe Brandt.", "Schiller-Gymnasium"),
]
TRAINS = [
    Passage("Der Zug nach Kassel fährt um 9.14 Uhr von Gleis 4."),
    Passage("Der Zug nach Fulda fährt um 9.38 Uhr von Gleis 7."),
]
PARIS = [
    Passage("Paris is the capital of France.", "Paris"),
    Passage("The games were held in Paris in 1924.", "1924 Summer Olympics"),
    Passage("The games of 1928 were held in Amsterdam.", "1928 Summer Olympics"),
]
TOWNS = [
    Passage("The town of Norholm was first mentioned in 1683."),
    Passage("The town of Brunlund was first mentioned in 1713."),
]
HEATERS = [
    Passage("The Auron H1 heater weighs 4 kg and costs 129 euros. It has a two-year warranty.", "Auron H1"),
    Passage("The Borea K2 heater weighs 6 kg and costs 99 euros. It has a five-year warranty.", "Borea K2"),
]
UNTITLED = [Passage(one.text) for one in HEATERS]
HOTELS = [
    Passage("Das Hotel Alba hat 25 Zimmer. Frühstück kostet 9 Euro.", "Hotel Alba"),
    Passage("Das Hotel Brava hat 40 Zimmer. Frühstück kostet 14 Euro.", "Hotel Brava"),
]
FRENCH = [
    Passage("L'Hôtel Alba a 25 chambres. Le petit déjeuner coûte 9 euros.", "Hôtel Alba"),
    Passage("L'Hôtel Brava a 40 chambres. Le petit déjeuner coûte 14 euros.", "Hôtel Brava"),
]
CHINESE = [Passage("青山酒店有40间客房。", "青山酒店"), Passage("海景酒店有25间客房。", "海景酒店")]
CHANGES = [
    Passage(
        "# Changelog\n\n## 2.1.0\n\n- Added dark mode.\n- Fixed printing.\n\n"
        "## 2.0.0\n\n- Added search.\n- Removed the toolbar.\n",
        "CHANGELOG",
    )
]
DATED = [
    Passage(CHANGES[0].text.replace("2.1.0", "[2.1.0] - 2024-05-01").replace("2.0.0", "[2.0.0] - 2024-01-05"))
]
KEPT = [
    Passage(
        "# Changelog\n\n## [2.1.0] - 2024-05-01\n### Added\n- Dark mode.\n\n"
        "## [2.0.0] - 2024-01-05\n### Added\n- Search panel.\n",
        "CHANGELOG.md",
    )
]
UNDERLINED = [Passage("2.1.0\n-----\n- Added dark mode.\n\n2.0.0\n-----\n- Added search.\n", "CHANGELOG")]
FORM = [Passage("Name: Lena Hoff\nEmployer: Dow Chemical\nAnalyst since 2011\n", "CV")]
CITIES = [
    Passage("# Ports\n\n## Port Elm\n\nIt has 12 cranes.\n\n## Port Oak\n\nIt has 7 cranes.\n", "Ports")
]
SOUPS = [
    Passage("**Leek Soup**\n\nIt keeps for 3 days.\n\n**Pea Soup**\n\nIt keeps for 5 days.\n", "soups.md")
]
FIRM = [Passage("The firm owns 42 ships. Its seat is in Bergen.", "annual.txt")]
CV = [
    Passage(
        "Lena Hoff\nChemist, Basel\n\nAnalyst, Roche, 2011-2020\n\n"
        "Referee: Prof. Karl Maier\nLead chemist, Bayer, 2001-2010\n",
        "CV of Lena Hoff",
    )
]
LEAFLET = [
    Passage("Paracetamol 500 mg tablets. Do not take with alcohol. Store below 25 degrees.", "Paracetamol")
]
PLAIN = [
    Passage("Paracetamol 500 mg tablets. Do not take with alcohol. Store below 25 degrees.", "leaflet.txt")
]
SPANISH = [
    Passage("Ana Ruiz fue química. Nació en Vigo en 1931.", "Ana Ruiz"),
    Passage("Eva Mora fue pintora. Nació en Soria en 1922.", "Eva Mora"),
]
ENGLISH = [
    Passage("Ana Ruiz was a chemist. She was born in Vigo in 1931.", "Ana Ruiz"),
    Passage("Eva Mora was a painter. She was born in Soria in 1922.", "Eva Mora"),
]
ARABIC = [
    Passage("سامي حداد كيميائي. ولد في حلب عام 1931.", "سامي حداد"),
    Passage("كريم ناصر رسام. ولد في حمص عام 1922.", "كريم ناصر"),
]
HINDI = [
    Passage("सीता देवी रसायनज्ञ थीं। उनका जन्म दिल्ली में 1931 में हुआ।", "सीता देवी"),
    Passage("मीरा राव चित्रकार थीं। उनका जन्म पुणे में 1922 में हुआ।", "मीरा राव"),
]
RUSSIAN = [
    Passage("Анна Белова была химиком. Родилась в Омске в 1931 году.", "Анна Белова"),
    Passage("Вера Ким была художницей. Родилась в Томске в 1922 году.", "Вера Ким"),
]
NURSES = [
    Passage("Alice Stone is a pilot who was born in Rome in 1980.", "Alice Stone"),
    Passage("Carla Reed is a nurse who was born in Oslo in 1975.", "Carla Reed"),
]
PRESIDENTS = [
    Passage("George H. W. Bush was the 41st president. He was born in Milton.", "George H. W. Bush"),
    Passage("George W. Bush was the 43rd president. He was born in New Haven.", "George W. Bush"),
]
DRUGS = [
    Passage("Aspirin reduces fever. Adults take 500 mg every four hours.", "Aspirin"),
    Passage("Ibuprofen reduces fever. Adults take 400 mg every six hours.", "Ibuprofen"),
]
WARS = [
    Passage("The First World War began in 1914 and ended in 1918.", "World War I"),
    Passage("The Second World War began in 1939 and ended in 1945.", "World War II"),
]
COMPANIES = [
    Passage("Alphabet Inc. owns Google. Its revenue was 307 billion dollars in 2023.", "Alphabet Inc."),
    Passage("Apple Inc. makes the iPhone. Its revenue was 383 billion dollars in 2023.", "Apple Inc."),
]
ALL_OF_IT = "The heater weighs 6 kg and costs 99 euros. It has a five-year warranty."
OF_ANOTHER: list[tuple[list[Passage], str]] = [
    (CASTLES, "Dunmore Castle was built in 1138."),
    (CASTLES, "The great hall of Dunmore Castle has a painted ceiling."),
    (CASTLES, "Pell Keep has four round towers."),
    (PHONES, "The Auron H1 costs 199 dollars."),
    (PHONES, "The Auron H2 plays for 45 hours."),
    (ROWS, "The region South sold 1,203 units in Q1."),
    (ROWS, "The region North sold 1,203 units in Q2."),
    (FIRMS, "Norvik Shipping owns 17 ships."),
    (FIRMS, "NS was founded in Riga."),
    (FIRMS, "Norvik Shipping was founded in Bergen. The company owns 17 ships."),
    (FIRMS, "Norvik Shipping was founded in 1911. It was founded in Riga."),
    (SCHOOLS, "Das Goethe-Gymnasium hat 1.140 Schüler."),
    (SCHOOLS, "Das Schiller-Gymnasium wurde 1906 gegründet."),
    (TRAINS, "Der Zug nach Kassel fährt von Gleis 7."),
    (TOWNS, "Norholm was first mentioned in 1713."),
    *[
        (evidence, f"{heading}\n{ALL_OF_IT}")
        for evidence in (HEATERS, UNTITLED)
        for heading in (
            "## Auron H1\n",
            "**Auron H1**",
            "**Auron H1:**\n",
            "# The Auron H1 heater\n",
            "Auron H1\n",
        )
    ],
    (HEATERS, "## Auron H1\n- Weighs 6 kg\n- Costs 99 euros\n- Five-year warranty"),
    (HEATERS, "# Auron H1\n\n## Price\n\nThe heater costs 99 euros."),
    (HEATERS, f"## Cyrus M3\n\n{ALL_OF_IT}"),
    (HEATERS, f"The Auron H1 is a heater. {ALL_OF_IT}"),
    (HEATERS, "## Borea K2\n\nIt weighs 6 kg.\n\n## Auron H1\n\nIt has a five-year warranty."),
    (HOTELS, "## Hotel Alba\n\nDas Haus hat 40 Zimmer. Frühstück kostet 14 Euro."),
    (FRENCH, "## Hôtel Alba\n\nIl a 40 chambres. Le petit déjeuner coûte 14 euros."),
    (CHINESE, "## 青山酒店\n\n酒店有25间客房。"),
    (CHINESE, "青山酒店很大。它有25间客房。"),
    ([Passage(one.text) for one in CHINESE], "青山酒店很大。它有25间客房。"),
    (CHANGES, "## 2.0.0\n- Added dark mode."),
    (CHANGES, "## Version 2.0.0\n\n- Added dark mode.\n- Fixed printing."),
    (CHANGES, "Version 2.0.0 added dark mode."),
    (DATED, "## 2.0.0\n- Added dark mode."),
    (CITIES, "Port Oak has 12 cranes."),
    (CITIES, "## Port Oak\n\nIt has 12 cranes."),
    (CV, "Lena Hoff was Lead chemist, Bayer, 2001-2010."),
    (LEAFLET, "Ibuprofen 500 mg tablets. Do not take with alcohol."),
    (PLAIN, "Ibuprofen 500 mg tablets. Do not take with alcohol."),
    (LEAFLET, "Ibuprofen is a painkiller. Store below 25 degrees."),
    (LEAFLET, "## Ibuprofen 400 mg\n\nDo not take with alcohol."),
    (KEPT, "## 2.0.0\n### Added\n- Dark mode."),
    (KEPT, "## [2.0.0] - 2024-01-05\n- Dark mode."),
    (UNDERLINED, "## 2.0.0\n- Added dark mode."),
    (ARABIC[1:], "سامي حداد كيميائي. ولد في حمص عام 1922."),
    (CHINESE[1:], "青山酒店很大。有25间客房。"),
    (LEAFLET, "# Ibuprofen\n\nDo not take with alcohol."),
    (PLAIN, "**Ibuprofen**\n- Do not take with alcohol."),
    (PLAIN, "Ibuprofen relieves pain. Do not take with alcohol."),
    (SOUPS, "**Leek Soup**\n\nIt keeps for 5 days."),
    (SOUPS, "Pea soup is green. It keeps for 3 days."),
    (HEATERS, "Let's look at the Auron H1. The heater weighs 6 kg."),
    (HEATERS, "1. **Auron H1**\n   - Weighs 6 kg\n   - Costs 99 euros"),
    (SPANISH, "Ana Ruiz fue química. Nació en Soria en 1922."),
    (ENGLISH, "Ana Ruiz was a chemist. Born in Soria in 1922."),
    (ENGLISH[1:], "Ana Ruiz was a chemist. Born in Soria in 1922."),
    (ARABIC, "سامي حداد كيميائي. ولد في حمص عام 1922."),
    (HINDI, "सीता देवी रसायनज्ञ थीं। उनका जन्म पुणे में 1922 में हुआ।"),
    (RUSSIAN, "Анна Белова была химиком. Родилась в Томске в 1922 году."),
    (NURSES, "Alice Stone is a pilot. Born in Rome in 1980. Carla Reed is a nurse. Born in Rome in 1980."),
    (HEATERS, "## Borea K2\n\nIt costs 99 euros.\n\n## Auron H1\n\nIt costs 99 euros."),
    (
        DRUGS,
        "Aspirin reduces fever. Adults take 500 mg every four hours. Ibuprofen reduces fever. "
        "Adults take 500 mg every four hours.",
    ),
    (PRESIDENTS, "George W. Bush was born in Milton."),
    (DRUGS, "ibuprofen: adults take 500 mg every four hours"),
    (DRUGS, "The dose of ibuprofen is 500 mg every four hours."),
    (HEATERS, "The Auron-H1 weighs 6 kg."),
    (HEATERS, "The Auron H1 costs 129 dollars."),
    (HEATERS, "The Auron H1 weighs 4 lb."),
]
OF_ITS_OWN: list[tuple[list[Passage], str]] = [
    (CASTLES, "Dunmore Castle was built in 1296."),
    (PHONES, "The Auron H1 Max plays for 45 hours."),
    (ROWS, "The region South sold 987 units in Q1."),
    (FIRMS, "Norvik Shipping was founded in Bergen. The company owns 42 ships."),
    (FIRMS, "BL was founded in Riga."),
    (SCHOOLS, "Das Goethe-Gymnasium hat 820 Schüler."),
    (TRAINS, "Der Zug nach Kassel fährt von Gleis 4."),
    (TOWNS, "Norholm was first mentioned in 1683."),
    (PARIS, "The games of 1924 were held in Paris. It is the capital of France."),
    *[
        (evidence, text)
        for evidence, texts in [
            (
                HEATERS,
                [
                    "## Auron H1\n\nThe heater weighs 4 kg and costs 129 euros. It has a two-year warranty.",
                    "**Borea K2**\n- Weighs 6 kg\n- Five-year warranty",
                    "# Heaters\n\n## Warranty\n\nThe Borea K2 has a five-year warranty.",
                    "## Auron H1\n\nThe Borea K2 has a five-year warranty.",
                    "## Summary\n\nThe Auron H1 has a two-year warranty. It weighs 4 kg.",
                ],
            ),
            (
                HEATERS[:1],
                ["The heater weighs 4 kg.", "## Warranty and price\n\nThe heater costs 129 euros."],
            ),
            (UNTITLED, ["## Auron H1\n\nThe heater weighs 4 kg."]),
            (HOTELS, ["## Hotel Alba\n\nFrühstück kostet 9 Euro."]),
            (CHINESE, ["青山酒店很大。有40间客房。", "## 海景酒店\n\n酒店有25间客房。"]),
            ([Passage(one.text) for one in CHINESE], ["青山酒店很大。有40间客房。"]),
            (CHANGES, ["## 2.0.0\n- Added search.", "2.1.0 added dark mode.", "Added dark mode."]),
            (DATED, ["## 2.1.0\n- Added dark mode."]),
            (SOUPS, ["**Pea Soup**\n\nIt keeps for 5 days.", "Leek soup is white. It keeps for 3 days."]),
            (
                FIRM,
                [
                    "Norvik Shipping is large. The firm owns 42 ships.",
                    "## Norvik Shipping\n\nIts seat is in Bergen.",
                ],
            ),
            (
                PLAIN,
                ["Tablets are white. Do not take with alcohol.", "## Dosierung\n\nDo not take with alcohol."],
            ),
            (CITIES, ["Port Oak has 7 cranes."]),
            (KEPT, ["## 2.1.0\n### Added\n- Dark mode."]),
            (UNDERLINED, ["## 2.0.0\n- Added search."]),
            (FORM, ["Lena Hoff was Analyst since 2011."]),
            (CV, ["Lena Hoff was Analyst, Roche, 2011-2020."]),
            (LEAFLET, ["Paracetamol 500 mg tablets. Do not take with alcohol.", "Store below 25 degrees."]),
            (PLAIN, ["## Storage\n\nStore below 25 degrees.", "Large print. Do not take with alcohol."]),
            (SPANISH, ["Ana Ruiz fue química. Nació en Vigo en 1931."]),
            (
                ENGLISH,
                [
                    "Ana Ruiz was a chemist. Born in Vigo in 1931.",
                    "Ruiz was a chemist. Born in Vigo in 1931.",
                ],
            ),
            (ARABIC, ["سامي حداد كيميائي. ولد في حلب عام 1931."]),
            (HINDI, ["सीता देवी रसायनज्ञ थीं। उनका जन्म दिल्ली में 1931 में हुआ।"]),
            (RUSSIAN, ["Анна Белова была химиком. Родилась в Омске в 1931 году."]),
            (NURSES, ["Alice Stone was born in Rome in 1980. Carla Reed is a nurse. Born in Oslo in 1975."]),
            (PRESIDENTS, ["George H. W. Bush was born in Milton.", "George W. Bush was born in New Haven."]),
            (DRUGS, ["ibuprofen: adults take 400 mg every six hours", "aspirin reduces fever"]),
        ]
        for text in texts
    ],
]


def mixing(evidence: str, claim: str) -> bool:
    """Whether all words of a claim stand anywhere in what was shown: a reader who mixes documents."""
    return {*words_of(evidence).stems}.issuperset(words_of(claim).stems)


def letters() -> LettersBy:
    """A model in this process that says Yes to whatever `mixing` finds."""

    def answer(prompt: str) -> Sequence[float]:
        texts = [json.loads(line.partition(": ")[2]) for line in prompt.split("\n")]
        return (-0.05, -4.0, -4.0) if mixing(*texts) else (-4.0, -0.7, -0.7)

    return LettersBy(answer)


def careless(messages: Sequence[Message]) -> str:
    """A model server that says supported of whatever `mixing` finds in the passages of a claim."""
    data = data_of(messages)
    shown = {p["id"]: f"{p['title']} {p['text']}" for p in data["passages"]}
    lines = []
    for one in data["claims"]:
        found = mixing(" ".join(shown[id_] for id_ in one["passages"]), one["claim"])
        verdict = "supported" if found else "unknown"
        lines.append(json.dumps({"id": one["id"], "quote": "", "verdict": verdict}))
    return "\n".join(lines)


JUDGES: dict[str, Any] = {
    "words": WeakJudge,
    "local": lambda: LocalJudge(letters()),
    "server": lambda: LLMJudge(FakeLLM(careless)),
}


def last_label(judge: str, evidence: Sequence[Passage], text: str) -> str:
    report = Verifier(SentenceClaims(), None, JUDGES[judge]())(text, evidence=evidence)
    verdict = report.checks[-1].verdict
    assert verdict is not None
    if verdict.label == "supported":
        assert verdict.quote is not None
    else:
        assert (verdict.p or 0.0) < 0.5
    return verdict.label


def name(one: object) -> str:
    return one if isinstance(one, str) else ""


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(("evidence", "text"), OF_ANOTHER, ids=name)
def test_what_is_said_of_another_subject_supports_nothing(
    judge: str, evidence: Sequence[Passage], text: str
) -> None:
    if evidence is CV and judge == "server":
        pytest.skip("a model server sees the whole passage, and judges it")
    assert last_label(judge, evidence, text) in ("unknown", "refuted")


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(("evidence", "text"), OF_ITS_OWN, ids=name)
def test_what_is_said_of_its_own_subject_supports_it(
    judge: str, evidence: Sequence[Passage], text: str
) -> None:
    assert last_label(judge, evidence, text) == "supported"


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(
    ("evidence", "question", "text", "supported"),
    [
        (DRUGS, "How is ibuprofen dosed?", "Adults take 500 mg every four hours.", False),
        (DRUGS, "How is ibuprofen dosed?", "Adults take 400 mg every six hours.", True),
        (DRUGS, "How is it dosed?", "Adults take 500 mg every four hours.", True),
        (
            DRUGS,
            "How is ibuprofen dosed?",
            "Aspirin reduces fever. Adults take 500 mg every four hours.",
            True,
        ),
        (COMPANIES, "What was Alphabet's revenue?", "383 billion dollars.", False),
        (COMPANIES, "What was Alphabet's revenue?", "307 billion dollars.", True),
        (COMPANIES, "What was Alphabet's revenue?", "Revenue was 383 billion dollars in 2023.", False),
        (COMPANIES, "Is Alphabet the largest?", "Apple Inc. makes the iPhone.", True),
        (HEATERS, "How heavy is the Auron H1?", "6 kg", False),
        (HEATERS, "How heavy is the Auron H1?", "4 kg", True),
        (HEATERS, "Which heater is heaviest?", "6 kg", True),
        (WARS, "When did World War 1 end?", "It ended in 1945.", False),
        (WARS, "When did World War Two end?", "It ended in 1945.", True),
    ],
)
def test_a_short_answer_is_about_what_the_question_names(
    judge: str, evidence: Sequence[Passage], question: str, text: str, supported: bool
) -> None:
    report = Verifier(SentenceClaims(), None, JUDGES[judge]())(text, question, evidence=evidence)
    verdict = report.checks[-1].verdict
    assert verdict is not None
    assert (verdict.label == "supported") == supported


@pytest.mark.parametrize(
    ("text", "skips"),
    [
        ("Alice Stone is a pilot. She is 45. Carla Reed is a nurse. She is 45.", [None] * 4),
        ("Alice Stone is a pilot. She is 45. She is 45.", [None, None, "repeat"]),
        ("Alice Stone is 45. Carla Reed is a nurse. Alice Stone is 45.", [None, None, "repeat"]),
        ("## Auron H1\n\nIt costs 9 euros.\n\n## Auron H2\n\nIt costs 9 euros.", [None] * 4),
        (
            "## Auron H1\n\n### Price\n\nIt costs 9 euros.\n\n### Warranty\n\nIt costs 9 euros.",
            [None, None, "repeat"],
        ),
        ("青山酒店很大。它有25间客房。海景酒店很大。它有25间客房。", [None] * 4),
        ("青山酒店很大。它有25间客房。它有25间客房。", [None, None, "repeat"]),
        ("Is aspirin safe? Yes, it is safe. Is oxygen safe? Yes, it is safe.", ["unverifiable", None] * 2),
    ],
)
def test_equal_words_about_another_subject_are_no_repeat(text: str, skips: Sequence[str | None]) -> None:
    report = Verifier(SentenceClaims(), None, WeakJudge())(text, evidence=[Passage("x")])
    assert [check.claim.skip for check in report.checks] == skips


def test_what_is_shown_is_of_one_document_and_at_most_two_are_asked() -> None:
    model, many = letters(), [*CASTLES, *PHONES, *FIRMS]
    texts = [text for evidence, text in [*OF_ANOTHER, *OF_ITS_OWN] if evidence in (CASTLES, PHONES, FIRMS)]
    LocalJudge(model).judge([(Claim(text, 0, len(text)), many) for text in texts])
    prompts = [prompt for _, prompts, *_ in model.calls for prompt in prompts]
    assert len(texts) <= len(prompts) <= 2 * len(texts)
    for prompt in prompts:
        evidence = prompt.partition("\nClaim: ")[0]
        assert sum(passage.text[:20] in evidence or passage.title in evidence for passage in CASTLES) <= 1


@pytest.mark.parametrize(
    ("claim", "evidence", "numbers"),
    [
        ("The Auron H1 costs 129 dollars.", PHONES, [0]),
        ("The Auron H1 Max costs 129 dollars.", PHONES, [1]),  # the longer of two names that begin alike
        (
            "The pea soup keeps for a day.",
            [Passage("x", "Pea soup"), Passage("It keeps for a day.", "Leek soup")],
            [0],
        ),
        ("Pell Keep is older than Rathmoor.", CASTLES, [1, 2]),
        ("In 1713, it is said, Norholm was first mentioned.", TOWNS, [0]),
        (
            "Sachsen hat 4 Millionen Einwohner.",
            [Passage("Sachsen-Anhalt hat 2."), Passage("Sachsen hat 4.")],
            [1],
        ),
        (
            "Grace Harland founded a school.",
            [Passage("x", "John Harland"), Passage("y", "Grace Harland")],
            [1],
        ),
        ("The moon is far.", [Passage("Cheese is old."), Passage("The sun is hot.")], [0, 1]),
        (
            "东京的人口是一千四百万。",
            [Passage("大阪的人口是一千四百万。", "大阪"), Passage("它是首都。", "东京")],
            [1],
        ),
        ("It is old.", [Passage("x")], [0]),
        ("Paris held the games in 1924.", PARIS, [0, 1]),  # a page of another subject that names it
        ("Paris is old.", [*PARIS[:1], Passage("It was founded by a tribe.", "History of Paris")], [0, 1]),
        ("York is old.", [Passage("York is old."), Passage("New York is young.", "New York")], [0]),
        (
            "Oxford University is old.",
            [Passage("x", "Oxford Brookes University"), Passage("Oxford University is old.")],
            [1],
        ),
        ("John Adams was president.", [Passage("x", "John Adams"), Passage("x", "John Quincy Adams")], [0]),
        (
            "John Adams was president.",
            [Passage("x", "John Adams"), Passage("A son of John Adams.", "John Quincy Adams")],
            [0, 1],
        ),
        ("World War 2 was long.", WARS, [1]),
        ("World War One was long.", WARS, [0]),
        ("GPT 3 is a model.", [Passage("x", "GPT-3"), Passage("y", "GPT-3.5")], [0]),
    ],
)
def test_passages_about_a_claims_own_subject(
    claim: str, evidence: Sequence[Passage], numbers: Sequence[int]
) -> None:
    assert sorted(about(claim, evidence)) == numbers
    assert len(apart(claim, evidence)) <= 2


@pytest.mark.parametrize(
    ("claim", "sentence", "other"),
    [
        ("Der Hall ist der größte See.", "Der Hall ist der drittgrößte See des Landes.", True),
        ("Der Hall ist der drittgrößte See.", "Der Hall ist der drittgrößte See des Landes.", False),
        ("The Ob is the longest river.", "The Ob is the second-longest river in Asia.", True),
        ("The Ob is the longest river.", "The Ob is the second longest river in Asia.", True),
        ("C'est la plus grande ville du pays.", "C'est la deuxième plus grande ville du pays.", True),
        ("Die Firma sitzt in Bayern.", "Die Firma sitzt in Baden-Württemberg.", True),
        ("Sie wurde in Sachsen geboren.", "Sie wurde in Sachsen-Anhalt geboren.", True),
        ("Ein Werk steht in Frankfurt am Main.", "Ein Werk steht in Frankfurt (Oder).", True),
        ("Er wurde am 4. Mai 1722 geboren.", "Er wurde am 14. Mai 1722 geboren.", True),
        ("Er war der zweite Sohn des Herzogs.", "Er war der dritte Sohn des Herzogs.", True),
        ("Es kamen weniger Gäste als 2021.", "Es kamen mehr Gäste als 2021.", True),
        ("Die Brücke ist niedriger als die alte.", "Die Brücke ist höher als die alte.", True),
        ("Die Schulden sanken um 35 Prozent.", "Die Schulden sanken um 3,5 Prozent.", True),
        ("The prize was 3 million euros.", "The prize was 3 billion euros.", True),
        ("It costs 99 dollars.", "It weighs 6 kg and costs 99 euros.", True),
        ("It weighs 6 lb.", "It weighs 6 kg and costs 99 euros.", True),
        ("It weighs 6 kilograms.", "It weighs 6 kg and costs 99 euros.", False),
        ("It costs $99.", "It costs 99 US dollars.", False),
        ("It costs 5 pounds.", "It costs £5.", False),
        ("It does 60 miles per hour.", "It does 60 mph.", False),
        ("Pell Keep was a bishop's seat.", "Built in 1138, it was a bishop's seat.", False),
        (
            "The Solis 7 has a battery of 5,100 mAh.",
            "It weighs 214 grams and has a battery of 5,100 mAh.",
            False,
        ),
        ("Sie wurden von 500 Arbeitern gebaut.", "Sie wurden von fünfhundert Arbeitern gebaut.", False),
        ("Anna Lindqvist studied law in Uppsala.", "She studied law in Uppsala before 1950.", False),
    ],
)
def test_a_value_is_compared_whole(claim: str, sentence: str, other: bool) -> None:
    passage = Passage(
        sentence, title="Pell Keep" if "Pell" in claim else "Solis 7" if "Solis" in claim else ""
    )
    assert bool(differs(claim, passage, 0, len(sentence))) == other
    if other:  # however sure the model is
        model = LettersBy(lambda _: (-0.01, -6.0, -6.0))
        (verdict,) = LocalJudge(model).judge([(Claim(claim, 0, len(claim)), [passage])])
        assert verdict.label != "supported"
        assert WeakJudge().judge([(Claim(claim, 0, len(claim)), [passage])])[0].label != "supported"


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Norvik Shipping was founded in Bergen.", ("Norvik Shipping", True)),
        ("The Technical University of Brack has four faculties.", ("Technical University Brack", True)),
        ("The company owns 17 ships.", ("", False)),
        ("She was born in Odense.", ("", False)),
        ("In 1927 she moved to Odense.", ("", False)),
        ("In Bergen the rain never stops.", ("", True)),
        ("Die Firma besitzt 17 Schiffe.", ("Firma", False)),
        ("Seine Werke hängen in Graz.", ("", False)),
        ("Alpha " * 300, ("Alpha " * 166 + "Alph", True)),  # of a sentence over the limit the part before it
    ],
)
def test_whom_a_sentence_speaks_of(text: str, subject: tuple[str, bool]) -> None:
    assert subject_of(text) == subject


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1203", 1203.0),
        ("1,203", 1203.0),
        ("1.203", 1203.0),
        ("1.25", 1.25),
        ("1,25", 1.25),
        ("12,5", 12.5),
        ("1.234.567", 1234567.0),
        ("1.234,5", 1234.5),
        ("0.125", 0.125),
    ],
)
def test_numbers_with_the_signs_of_either_language(written: str, value: float) -> None:
    assert words_of(f"It has {written} parts.").numbers == {value}


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("The ferry ran aground. Nobody was killed. It was built in 2009.", "The ferry was built in 2009."),
        ("Dear Ms Okafor,\n\nThe two lamps will be delivered on 21 March.", "The two lamps: 21 March."),
        ("Sehr geehrte Frau Okafor,\n\nDie Lampen kosten 186 Euro.", "Die Lampen kosten 186 Euro."),
        ("Niemand wurde verletzt. Das Schiff wurde 2009 gebaut.", "Das Schiff wurde 2009 gebaut."),
        ("Everyone was saved. The ship was built in 2009.", "The ship was built in 2009."),
        ("Here is a list. Both were built in 2009.", "Here is a plan. Both were built in 2009."),
    ],
)
def test_who_is_greeted_and_nobody_are_no_subjects(text: str, document: str) -> None:
    report = open_verifier("local", judge="weak")(text, evidence=[Passage(document, "notes")])
    assert report.checks[-1].passages


@pytest.mark.parametrize("name", ["Madame Tussauds", "Best Buy", "Warm Springs", "Hello Fresh"])
def test_a_name_that_begins_like_a_greeting_is_a_subject(name: str) -> None:
    assert lead(f"{name} is in London.") == name


@pytest.mark.parametrize("name", ["Howard", "Somerset", "Anyang", "Whitby"])
def test_a_name_that_begins_like_a_pronoun_is_a_subject(name: str) -> None:
    document = "The lighthouse was built in 1871. It is 40 m high."
    report = open_verifier("local", judge="weak")(
        f"{name} has a lamp. It is 40 m high.", evidence=[Passage(document, "notes")]
    )
    assert not report.checks[-1].passages
