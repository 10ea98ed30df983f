"""A claim is held against one passage at a time, of those that are about its own subject; values are compared
whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from factrl.llm import FakeLLM, Message
from factrl.types import Claim, Passage, Verdict
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import LLMJudge, LocalJudge, WeakJudge
from factrl.verifier.judges.overlap import words_of
from factrl.verifier.judges.subjects import about, apart, differs, subject_of

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
SWAPPED = [
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
]
SAID = [
    (CASTLES, "Dunmore Castle was built in 1296."),
    (PHONES, "The Auron H1 Max plays for 45 hours."),
    (ROWS, "The region South sold 987 units in Q1."),
    (FIRMS, "Norvik Shipping was founded in Bergen. The company owns 42 ships."),
    (FIRMS, "BL was founded in Riga."),
    (SCHOOLS, "Das Goethe-Gymnasium hat 820 Schüler."),
    (TRAINS, "Der Zug nach Kassel fährt von Gleis 4."),
    (TOWNS, "Norholm was first mentioned in 1683."),
    (PARIS, "The games of 1924 were held in Paris. It is the capital of France."),
]


def mixing(evidence: str, claim: str) -> bool:
    """Whether all words of a claim stand anywhere in what was shown: a reader who mixes documents."""
    return {*words_of(evidence).stems}.issuperset(words_of(claim).stems)


class Letters:
    """A model in this process that says Yes to whatever `mixing` finds."""

    identity = "letters"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = (), *, suffix: str = ""
    ) -> np.ndarray:
        texts = [[json.loads(line.partition(": ")[2]) for line in prompt.split("\n")] for prompt in prompts]
        self.asked += [(evidence, claim) for evidence, claim in texts]
        return np.array([(-0.05, -4.0, -4.0) if mixing(*text) else (-4.0, -0.7, -0.7) for text in texts])

    def tokens(self, text: str) -> int:
        return len(text) // 4


def careless(messages: Sequence[Message]) -> str:
    """A model server that says supported of whatever `mixing` finds in the passages of a claim."""
    data = json.loads(messages[-1]["content"].split("\n")[-2])
    shown = {p["id"]: f"{p['title']} {p['text']}" for p in data["passages"]}
    lines = []
    for one in data["claims"]:
        found = mixing(" ".join(shown[id_] for id_ in one["passages"]), one["claim"])
        verdict = "supported" if found else "unknown"
        lines.append(json.dumps({"id": one["id"], "quote": "", "verdict": verdict}))
    return "\n".join(lines)


JUDGES: dict[str, Any] = {
    "words": WeakJudge,
    "local": lambda: LocalJudge(Letters()),
    "server": lambda: LLMJudge(FakeLLM(careless)),
}


def verdicts(judge: str, evidence: Sequence[Passage], text: str) -> list[Verdict | None]:
    report = Verifier(SentenceClaims(), None, JUDGES[judge]())(text, evidence=evidence)
    return [check.verdict for check in report.checks]


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(("evidence", "text"), SWAPPED, ids=lambda one: one if isinstance(one, str) else "")
def test_what_another_document_says_of_another_supports_nothing(
    judge: str, evidence: Sequence[Passage], text: str
) -> None:
    last = verdicts(judge, evidence, text)[-1]
    assert last is not None
    assert last.label in ("refuted", "unknown")
    assert (last.p or 0.0) < 0.5


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize(("evidence", "text"), SAID, ids=lambda one: one if isinstance(one, str) else "")
def test_what_its_own_document_says_supports_a_claim(
    judge: str, evidence: Sequence[Passage], text: str
) -> None:
    last = verdicts(judge, evidence, text)[-1]
    assert last is not None
    assert last.label == "supported"
    quoted = SentenceClaims()(text)[-1].text
    assert last.quote is not None, quoted


def test_what_is_shown_is_of_one_document_and_at_most_two_are_asked() -> None:
    model = Letters()
    many = [*CASTLES, *PHONES, *FIRMS]
    LocalJudge(model).judge([(Claim(text, 0, len(text)), many) for _, text in [*SWAPPED, *SAID]])
    assert len(model.asked) <= 2 * len([*SWAPPED, *SAID])
    for evidence, _ in model.asked:
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
    assert bool(differs(claim, sentence, passage)) == other
    if other:  # however sure the model is
        model = Letters()
        model.letter_logprobs = lambda *_, **__: np.array([(-0.01, -6.0, -6.0)])  # type: ignore[method-assign]
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
