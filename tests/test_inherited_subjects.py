"""A sentence that names nobody is about its heading's subject, or that of the sentence before it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from test_similar_documents import JUDGES

from factrl.types import Passage
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges.inherited import lead

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
ALL_OF_IT = "The heater weighs 6 kg and costs 99 euros. It has a five-year warranty."
OF_ANOTHER = [
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
]
OF_ITS_OWN = [
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
        (HEATERS[:1], ["The heater weighs 4 kg.", "## Warranty and price\n\nThe heater costs 129 euros."]),
        (UNTITLED, ["## Auron H1\n\nThe heater weighs 4 kg."]),
        (HOTELS, ["## Hotel Alba\n\nFrühstück kostet 9 Euro."]),
        (CHINESE, ["青山酒店很大。有40间客房。", "## 海景酒店\n\n酒店有25间客房。"]),
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
            ["Ana Ruiz was a chemist. Born in Vigo in 1931.", "Ruiz was a chemist. Born in Vigo in 1931."],
        ),
        (ARABIC, ["سامي حداد كيميائي. ولد في حلب عام 1931."]),
        (HINDI, ["सीता देवी रसायनज्ञ थीं। उनका जन्म दिल्ली में 1931 में हुआ।"]),
        (RUSSIAN, ["Анна Белова была химиком. Родилась в Омске в 1931 году."]),
    ]
    for text in texts
]


def last_label(judge: str, evidence: Sequence[Passage], text: str) -> str:
    report = Verifier(SentenceClaims(), None, JUDGES[judge]())(text, evidence=evidence)
    verdict = report.checks[-1].verdict
    assert verdict is not None
    assert verdict.label == "supported" or (verdict.p or 0.0) < 0.5
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
