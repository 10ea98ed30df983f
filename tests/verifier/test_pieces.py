"""Evidence cut into pieces that stand alone, what words alone decide of them, and documents that disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.types import Passage, Verdict
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.judges import WeakJudge
from factrl.verifier.pieces import cut, found_in, pieces_in, ranked
from factrl.verifier.report import _excerpt
from factrl.verifier.search import Given
from factrl.verifier.subjects import Context, heads, other_subject
from factrl.verifier.tokens import lexicon
from factrl.verifier.values import _SIZES, contradicts, is_verbatim, other_value, rivals

TABLE = (
    "## Prices\n\n| name | price | weight |\n|---|---|---|\n| Auron | 99 euros | 2 kg |\n"
    "| Belvor | 149 euros | 5 kg |\n"
)


def shown(text: str, title: str = "") -> list[tuple[str, str]]:
    return [(one.passage.title, one.passage.text) for one in found_in([Passage(text, title)])]


def test_a_piece_is_shown_with_what_it_leans_on() -> None:
    assert shown(TABLE, "Heaters")[1:] == [
        ("Heaters › Prices", "name: Auron; price: 99 euros; weight: 2 kg"),
        ("Heaters › Prices", "name: Belvor; price: 149 euros; weight: 5 kg"),
    ]
    text = "Ann Lee led the Rovers. She left in 1999. The fee was 3 euros.\n\nIt rained."
    assert [own for _, own in shown(text)] == [
        "Ann Lee led the Rovers.",
        "Ann Lee led the Rovers. She left in 1999.",
        "Ann Lee led the Rovers. The fee was 3 euros.",
        "It rained.",
    ]
    assert shown("The box holds:\n\n- two lamps\n- a cable")[1:] == [
        ("", "The box holds: two lamps"),
        ("", "The box holds: a cable"),
    ]
    asked = "Who wrote it?\nPaul Venn did.\n\n2. Finances\nThe fund holds 300 euros."
    assert shown(asked)[1:] == [
        ("", "Who wrote it? Paul Venn did."),
        ("", "Finances"),
        ("Finances", "The fund holds 300 euros."),
    ]


def test_a_stretch_of_a_document_begins_with_its_headings_and_columns() -> None:
    rows = "".join(f"| Model {n} | {n} euros |\n" for n in range(100))
    parts = cut(f"# Heaters\n\n## Prices\n\n| name | price |\n|---|---|\n{rows}")
    assert len(parts) > 2
    last = found_in([Passage(parts[-1])])[-1]
    assert (last.passage.title, last.passage.text) == ("Heaters › Prices", "name: Model 99; price: 99 euros")


@given(st.text(alphabet="aA .\n#|-:1*?", max_size=400))
def test_any_text_can_be_cut(text: str) -> None:
    assert all(one.text and 0 <= one.start < one.end <= len(text) for one in pieces_in(text))
    assert all(part.strip() for part in cut(text))


@pytest.mark.parametrize(
    ("claim", "sentence", "says"),
    [
        ("the Lamp costs forty euros", "The lamp costs 40 euros.", True),
        ("Water is held for 40 days.", "In 2020 water is held for 40 days, then used.", False),
        ("Co\u00adoperation is free.", "Cooperation is free.", True),
        ("The pump is new.", "If the pump is new, call us.", False),
        ("The Moon is made of cheese.", "Nobody says the Moon is made of cheese.", False),
        ("The lamp costs 14 euros.", "The lamp costs 40 euros.", False),
    ],
)
def test_word_for_word(claim: str, sentence: str, says: bool) -> None:
    from factrl.text import clean

    assert is_verbatim(clean(claim), sentence) is says


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("France has 96 regions.", "France has 18 regions and 96 departments."),
        ("Sudby has 9,870 inhabitants.", "Norby has 9,870 inhabitants, Sudby 12,400."),
        ("Code E7 means no water.", "Code E2 means no water."),
        ("Der Laden ist sonntags offen.", "Der Laden ist samstags offen."),
        ("It opens in nineteen days.", "It opens in nine days."),
        ("Rashes are common.", "Headaches are common; rashes are rare."),
        ("The lamp costs 99 dollars.", "The lamp costs 99 euros."),
        ("Auer bought Brock.", "Brock bought Auer."),
        ("Cellos are accepted in the cabin.", "Cellos are not accepted in the cabin."),
    ],
)
def test_another_value_in_the_same_place_is_told(claim: str, sentence: str) -> None:
    (piece,) = pieces_in(sentence)
    assert other_value(claim, [piece], "") != ""
    assert other_value(sentence, [piece], "") == ""


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("France has 96 departments.", "France has 18 regions and 96 departments."),
        ("Sudby has 12,400 inhabitants.", "Norby has 9,870 inhabitants, Sudby 12,400."),
        ("The lamp costs forty euros.", "The lamp costs 40 euros."),
        ("La durée est de 3 semaines.", "La durée du prêt est de trois semaines."),
    ],
)
def test_a_value_beside_its_own_words_is_none(claim: str, sentence: str) -> None:
    assert other_value(claim, pieces_in(sentence), "") == ""


ROW = "| Model | Colour | Price | Service needed |\n|---|---|---|---|\n| Lumo 60 | black | 899 euros | no |\n"


@pytest.mark.parametrize(
    ("claim", "text", "other"),
    [
        (
            "The Lumo 60 is black and costs 899 euros.",
            ROW,
            False,
        ),  # 60 is its name, and "no" denies no colour
        ("The Lumo 60 is not black.", ROW, True),
        ("Wooden spoons may not be washed.", "The following may not be washed:\n- wooden spoons", False),
        ("Wooden spoons may be washed.", "The following may not be washed:\n- wooden spoons", True),
    ],
)
def test_what_a_row_is_about_is_no_value_of_it_and_an_item_denies_with_its_lead_in(
    claim: str, text: str, other: bool
) -> None:
    assert bool(other_value(claim, pieces_in(text)[-1:], "")) is other


def test_of_two_headings_the_nearer_one_says_whose_piece_it_is() -> None:
    text = "# Lumo 45 and Lumo 60\n\n## Lumo 45\n\nIt has five programmes.\n\n## Lumo 60\n\nIt has eight."
    found = found_in([Passage(text, "Lumo 45 and Lumo 60")])
    doubts = {
        one.passage.text: bool(
            other_subject("The Lumo 60 has eight programmes.", Context(), one, heads(found))
        )
        for one in found
    }
    assert (doubts["It has five programmes."], doubts["It has eight."]) == (True, False)


DOCS = [Passage("It costs 99 euros.", "Auron"), Passage("It costs 149 euros.", "Auron Plus")]


def test_a_subject_is_a_preference_and_hides_nothing() -> None:
    found = found_in(DOCS)
    known = heads(found)
    doubts = [bool(other_subject("The Auron costs 149 euros.", Context(), one, known)) for one in found]
    assert doubts == [False, True]
    assert len(ranked("The Auron costs 149 euros.", found)) == 2
    assert not other_subject("The heater costs 99 euros.", Context(), found[0], known)


def test_contradicts_is_the_same_words_with_another_value() -> None:
    (piece,) = pieces_in("Adults pay 12 euros a year.")
    assert contradicts("Adults pay 15 euros a year.", piece, "")
    assert not contradicts("Adults pay 12 euros a year.", piece, "")
    assert not contradicts("Children pay 15 euros a year.", piece, "")


GUESTS = "The guest network switches off after 8 hours."
VALID = "The guarantee is valid for 24 months."


@pytest.mark.parametrize(
    ("claim", "said", "title", "otherwise"),
    [
        (GUESTS, "Does the guest network stay on? It goes off by itself after 12 hours.", "", True),
        (GUESTS, "Does the guest network stay on? It goes off by itself after 480 minutes.", "", False),
        (GUESTS, "The alarm rings after 12 hours.", "", False),
        (VALID, "How long is the guarantee? Three years, if you register.", "Lamp", True),
        (VALID, "How long is the guarantee? Two years, if you register.", "Lamp", False),
        ("Sessions expire after 20 minutes.", "Sessions expire after 20 minutes or 3 visits.", "", False),
        ("On Sundays the shop closes at 18:00.", "The shop closes at 17:00 on Sundays.", "", True),
        ("The shop closes at 8:00.", "The shop closes at 8 o'clock.", "", False),
        ("Die Proben sind donnerstags.", "Wir haben die Proben immer mittwochs.", "", True),
        ("Lockers take a 2 euro coin.", "Lockers are opened for 3 pounds.", "", False),
        ("The keep of Rowan has five floors.", "The mill nearby has two floors.", "Rowan", False),
        ("The flat costs 900 euros a month.", "The flat costs 900 euros, the garage 80 euros.", "", False),
        ("The Auron weighs 2 kg.", "The Belvor weighs 5 kg.", "", False),
    ],
)
def test_another_amount_of_the_same_thing_in_other_words(
    claim: str, said: str, title: str, otherwise: bool
) -> None:
    assert rivals(claim, pieces_in(said)[-1], title) == otherwise


@pytest.mark.parametrize(("p", "shown"), [(0.1, "unsure"), (0.3, "supported")])
def test_another_document_that_a_judge_finds_to_refute_a_claim_leaves_it_unsure(p: float, shown: str) -> None:
    class Model(WeakJudge):
        weak = False

        def judge(self, pairs: Any) -> list[Verdict]:
            return [Verdict("refuted", "model", p, (0, 0, 9)) for _ in pairs]

    docs = [
        Passage("The old castle was built by Duncan.", "Tours", "a.md"),
        Passage("The old castle was built by Malcolm, we heard.", "Tours", "b.md"),
    ]
    verifier = Verifier(SentenceClaims(), Given(docs), Model())
    (check,) = verifier("The old castle was built by Duncan.").checks
    assert check.shown == shown
    assert (check.against == docs[1]) == (shown == "unsure")


def report_of(text: str, docs: Path) -> dict[str, object]:
    return open_verifier("local", docs=[docs], judge="weak")(text).to_json()


def test_documents_that_disagree_are_both_shown(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("# Rules of 2021\n\nAdults pay 12 euros a year.")
    (tmp_path / "new.md").write_text("# Rules of 2024\n\nAdults pay 15 euros a year.")
    report = open_verifier("local", docs=[tmp_path], judge="weak")("Adults pay 15 euros a year.")
    (check,) = report.checks
    assert (check.shown, check.quote) == ("unsure", "Adults pay 15 euros a year.")
    assert check.against is not None
    assert check.against.text == "Adults pay 12 euros a year."
    assert "12 euros" in str(report)
    assert json.loads(json.dumps(report.to_json()))["claims"][0]["verdict"]["facts"]["against"]
    page = report.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Rules of 2021" in page
    assert "the documents disagree" in page


def test_a_page_cuts_no_word_of_a_long_passage() -> None:
    text = f"{'December ' * 60}It opens at nine. {'September ' * 60}"
    start = text.index("It opens")
    before, quote, after = _excerpt(text, start, start + 17)
    assert quote == "It opens at nine."
    assert {*before.split(), *after.split()} == {"…", "December", "September"}


def test_rows_of_a_table_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "prices.md").write_text(TABLE)
    report = open_verifier("local", docs=[tmp_path], judge="weak")(
        "The Auron costs 99 euros. The Auron costs 149 euros. The Belvor weighs 2 kg."
    )
    assert [check.verdict.label == "supported" for check in report.checks if check.verdict] == [
        True,
        False,
        False,
    ]


def test_documents_of_word_processors_and_what_was_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    docx, odfdo = pytest.importorskip("docx"), pytest.importorskip("odfdo")
    document = docx.Document()
    document.add_heading("Fees", 1)
    document.add_paragraph("The club has 40 mem\u00adbers.")
    table = document.add_table(2, 2)
    for cell, words in zip(
        [*table.rows[0].cells, *table.rows[1].cells], ["name", "fee", "Lee", "9 euros"], strict=True
    ):
        cell.text = words
    document.save(str(tmp_path / "a.docx"))
    text = odfdo.Document("text")
    text.body.clear()
    text.body.append(odfdo.Header(1, "Rooms"))
    text.body.append(odfdo.Paragraph("The hall holds 60 people."))
    text.save(tmp_path / "b.odt")
    (tmp_path / "c.xlsx").write_bytes(b"PK")
    found = {(one.passage.title, one.passage.text) for one in found_in(Given.read([tmp_path]).passages)}
    assert {("a › Fees", "The club has 40 members."), ("a › Fees", "name: Lee; fee: 9 euros")} <= found
    assert ("b › Rooms", "The hall holds 60 people.") in found
    assert [record.message for record in caplog.records if "c.xlsx" in record.message] != []


def test_a_page_keeps_headings_lists_and_tables(tmp_path: Path) -> None:
    page = "<body><script>x</script><h2>Fees</h2><ul><li>Tea</li></ul>"
    page += "<table><tr><th>a<th>b<tr><td>1<td>2</table></body>"
    (tmp_path / "a.html").write_text(page)
    found = [(one.passage.title, one.passage.text) for one in found_in(Given.read([tmp_path]).passages)]
    assert found == [("a", "Fees"), ("a › Fees", "Tea"), ("a › Fees", "a: 1; b: 2")]


def test_every_unit_of_the_words_has_a_size() -> None:
    """A claim in miles against a document in km ended the whole batch."""
    units = [value for value in lexicon()[0].values() if value[0] in _SIZES]
    assert [which for kind, which in units if which not in _SIZES[kind]] == []
