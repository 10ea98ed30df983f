"""Evidence from files and from memory: what is found, and what is said of every broken source."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from factrl.errors import DataError
from factrl.runs.rows import LONGEST_LINE
from factrl.types import Passage
from factrl.verifier.pieces import KEPT_WORDS, MAX_WORDS
from factrl.verifier.search import Given
from factrl.verifier.search.sources import (
    cut,
    documents,
    find_sources,
    title_key,
    words,
)

ROWS = [
    {"id": "a", "title": "Marie Curie", "text": "She was born in Warsaw.", "url": "https://example.org/a"},
    {"id": "b", "title": "Kim, Lee", "text": 'He said "no",\nand left.', "url": "https://example.org/b"},
]
DOCUMENTS = [
    Passage("She was born in Warsaw.", "Marie Curie", "https://example.org/a", "a"),
    Passage('He said "no",\nand left.', "Kim, Lee", "https://example.org/b", "b"),
]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
QUOTED = "id,title,text,url\na,Marie Curie,She was born in Warsaw.,https://example.org/a\n"
QUOTED += 'b,"Kim, Lee","He said ""no"",\nand left.",https://example.org/b\n'


def read(path: Path) -> list[Passage]:
    return list(documents(path))


def zipped(name: str, content: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return made.getvalue()


def refusal(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        Given.read([path])
    return str(caught.value).replace(f"{path.parent}/", "")


# Formats


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", JSON_LINES),
        ("x.JSONL", "\ufeff\n" + JSON_LINES),
        (
            "x.jsonl",
            '{"text": ""}\n{"text": null}\n{"text": " \\n"}\n' + JSON_LINES.replace('"text"', '"contents"'),
        ),
        ("x.csv", QUOTED),
        ("x.tsv", "text\ttitle\tid\tsource\n" + '"one\ttwo"\tT\t1\tS\n'),
    ],
)
def test_rows(tmp_path: Path, name: str, content: str, pack: Callable[[bytes], bytes]) -> None:
    suffix = {bytes: "", gzip.compress: ".gz"}[pack]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(pack(content.encode()))
    assert read(path) == ([Passage("one\ttwo", "T", "S", "1")] if name == "x.tsv" else DOCUMENTS)


def test_parquet_and_a_list(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(ROWS))
    assert read(tmp_path / "x.json") == DOCUMENTS
    table = pyarrow.Table.from_pylist([{**row, "embedding": [0.5]} for row in ROWS])
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == DOCUMENTS


def test_the_database_of_factscore_and_knowrl(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "wiki.db")) as database, database:
        database.execute("CREATE TABLE documents (title PRIMARY KEY, text)")
        text = "<s>One two.</s>####SPECIAL####SEPARATOR####<s>Three four.</s>"
        database.execute("INSERT INTO documents VALUES ('T', ?), ('U', NULL)", (text,))
    (document,) = read(tmp_path / "wiki.db")
    assert (document.title, document.source) == ("T", "wiki.db")
    assert document.text.split() == ["One", "two.", "Three", "four."]


def test_a_text_file_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "Marie_Curie.txt").write_text("\nBorn in\nWarsaw.\n")
    (tmp_path / "notes.md").write_text("# Pierre Curie\n\nBorn.")
    assert [(each.title, each.text, each.source) for each in Given.read([tmp_path]).passages] == [
        ("Marie Curie", "Born in\nWarsaw.", "Marie_Curie.txt"),
        ("Pierre Curie", "Born.", "notes.md"),
    ]


def pdf(*pages: str) -> bytes:
    """A PDF whose pages show these lines, in its author's title "Marie Curie"."""
    kids = " ".join(f"{5 + 2 * n} 0 R" for n in range(len(pages)))
    parts = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Title (Marie Curie) >>",
    ]
    for number, lines in enumerate(pages):
        shown = "".join(f"({line}) Tj 0 -14 Td " for line in lines.splitlines())
        stream = f"BT /F1 12 Tf 72 700 Td {shown}ET"
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        parts.append(f"<< /Type /Page /Parent 2 0 R {fonts} /Contents {6 + 2 * number} 0 R >>")
        parts.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, part in enumerate(parts, start=1):
        places.append(f"{len(body):010} 00000 n \n")
        body += f"{number} 0 obj\n{part}\nendobj\n"
    table = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{''.join(places)}"
    ending = f"trailer\n<< /Size {len(parts) + 1} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return (body + table + ending).encode()


def test_each_page_of_a_pdf_is_a_document_in_whole_sentences(tmp_path: Path) -> None:
    (tmp_path / "curie.pdf").write_bytes(
        pdf("Marie Curie was\nborn in War-\nsaw.\nIn 1867.", "", "She won twice.")
    )
    assert read(tmp_path / "curie.pdf") == [
        Passage("Marie Curie was born in Warsaw.\nIn 1867.", "Marie Curie", "curie.pdf", "page 1"),
        Passage("She won twice.", "Marie Curie", "curie.pdf", "page 3"),
    ]


def test_of_a_web_page_its_words_are_read(tmp_path: Path) -> None:
    story = "Marie Curie was born in Warsaw in 1867 and moved to Paris. " * 9
    page = f"<html><head><title>Curie</title></head><body><p>{story}</p><table><tr><td>1903</td></tr></table>"
    (tmp_path / "long.html").write_text(page + "<script>let x = 1</script></body></html>")
    (tmp_path / "two_words.htm").write_text("<p>Short text.</p>")
    (long,), (short,) = read(tmp_path / "long.html"), read(tmp_path / "two_words.htm")
    assert (long.title, long.source) == ("Curie", "long.html")
    assert "Marie Curie was born" in long.text
    assert "1903" in long.text
    assert "let x" not in long.text
    assert (short.title, short.text) == ("two words", "Short text.")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("The tower is <s>never </s><del>x</del>open <strike>y</strike>today.", "The tower is open today."),
        ("It is <b hidden>x</b><b style='color: red; DISPLAY: none'>y</b>open.<br hidden>", "It is open."),
        ("It is <i style='text-decoration:line-through'>not </i>open.", "It is open."),
        ("It is <span aria-hidden=true>open</span>.", "It is open."),
        ("<div>" * 999 + "It is open.", "It is open."),
        ("<span>" * 260 + "It is<p>open.", "It is\n\nopen."),
        ("<pre><code>a  b</code></pre>", "a b"),
        ("<table><caption>T</caption><tr><th>a<th>b<tr><td><h2>1</h2><li>2</li><td>3|4</table>",
         "T\n\n| a | b |\n|---|---|\n| 1 2 | 3/4 |"),
        ("<table><tr><td><h2>A</h2><td><table><tr><td>1<td>2</table></table>",
         "## A\n\n| 1 | 2 |\n|---|---|"),
    ],
)  # fmt: skip
def test_what_a_reader_of_a_page_sees(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "a.html").write_text(page)
    assert [document.text for document in read(tmp_path / "a.html")] == [text]


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{text if '<' in text else run(text)}</w:p>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(content: str, properties: str = "") -> str:
    inner = content if "<" in content else paragraph(content)
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inner}</w:tc>"


BOX = f"<w:txbxContent>{paragraph('A box.')}</w:txbxContent>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (paragraph(run("Not ") + f"<w:ins>{run('now ')}</w:ins>"
                   + "<w:del><w:r><w:delText>x</w:delText></w:r></w:del>" + run("open.")), "Not now open."),
        (paragraph(f"<w:moveFrom>{run('a')}</w:moveFrom><w:moveTo>{run('b')}</w:moveTo>"), "b"),
        (paragraph(run("a", "<w:strike/>") + run("b", "<w:dstrike/>") + run("c", "<w:vanish/>")
                   + run("d", '<w:strike w:val="0"/>')), "d"),
        (paragraph(run("gone", '<w:rStyle w:val="Gone"/>')
                   + run("kept", '<w:rStyle w:val="Gone"/><w:strike w:val="false"/>')), "kept"),
        (paragraph("It is", "<w:rPr><w:del/></w:rPr>") + paragraph(" open."), "It is open."),
        (f"<w:sdt><w:sdtContent>{paragraph('In a control.')}</w:sdtContent></w:sdt>", "In a control."),
        (paragraph(f"<w:hyperlink>{run('a')}</w:hyperlink><w:sdt><w:sdtContent>{run('b')}</w:sdtContent></w:sdt>"
                   f"<w:fldSimple>{run('c')}</w:fldSimple>"), "abc"),
        (paragraph(run("First.") + f"<w:r><w:drawing>{BOX}</w:drawing><mc:Fallback>{BOX}</mc:Fallback></w:r>")
         + paragraph("Last."), "First.\n\nA box.\n\nLast."),
        (table(cell("a", '<w:gridSpan w:val="2"/>'),
               cell("b", '<w:vMerge w:val="restart"/>') + cell("1"),
               cell("", "<w:vMerge/>") + cell("2"),
               "<w:trPr><w:del/></w:trPr>" + cell("x")), "| a | a |\n|---|---|\n| b | 1 |\n| b | 2 |"),
        (table(cell("a") + cell(table(cell("b")))), "a\n\n| b |\n|---|"),
    ],
)  # fmt: skip
def test_what_a_reader_of_a_word_document_sees(tmp_path: Path, body: str, text: str) -> None:
    docx, oxml = pytest.importorskip("docx"), pytest.importorskip("docx.oxml")
    document = docx.Document()
    document.styles.add_style("Gone", 2).font.strike = True
    document.sections[0].header.paragraphs[0].text = "Above."
    names = (
        oxml.ns.nsdecls("w", "r") + ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    )
    for one in oxml.parse_xml(f"<w:x {names}>{body}</w:x>"):
        document.element.body.insert(len(document.element.body) - 1, one)
    document.save(tmp_path / "a.docx")
    assert [one.text for one in read(tmp_path / "a.docx")] == [f"Above.\n\n{text}"]


def test_a_cirrus_dump(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"index": {"_type": "page", "_id": "7"}},
        {"title": "T", "namespace": 0, "text": "Prose."},
        {"index": {"_type": "page", "_id": "8"}},
        {"title": "Talk:T", "namespace": 1, "text": "Chatter."},
    ]
    with gzip.open(tmp_path / "wiki.json.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, lines)))
    assert [document.text for document in read(tmp_path / "wiki.json.gz")] == ["Prose."]


def test_a_table_is_evidence_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text('region,quarter,units_sold\nNorth,Q1,"1,203"\nSouth,,88\n')
    pyarrow.parquet.write_table(pyarrow.table({"Region": ["North"], "sold": [1203]}), tmp_path / "t.parquet")
    (tmp_path / "texts.tsv").write_text("Title\tText\nA\tPlain.\n")
    first, second = read(tmp_path / "sales.csv")
    assert (first.text, first.title, first.id) == (
        "region: North; quarter: Q1; units sold: 1,203",
        "sales",
        "row 1",
    )
    assert second.text == "region: South; units sold: 88"
    assert [one.text for one in read(tmp_path / "t.parquet")] == ["Region: North; sold: 1203"]
    assert [(one.title, one.text) for one in read(tmp_path / "texts.tsv")] == [("A", "Plain.")]


ROW, CAFE = (
    '{"text": "Café."}',
    "<html><head>{}</head><body><p>Café in Warsaw is open for all.</p></body></html>",
)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.json", b"\xef\xbb\xbf" + b'[\n {"text":\n  "Caf\xc3\xa9."}\n]', "Café."),
        ("a.json", f"\n  [{ROW}]".encode(), "Café."),
        ("a.json", b'{\n "text": "Caf\xc3\xa9."\n}', "Café."),
        ("a.json.gz", gzip.compress(f"[\n{ROW}\n]".encode(), mtime=0), "Café."),
        ("a.jsonl", b"\xef\xbb\xbf" + ROW.encode(), "Café."),
        ("a.csv", b"\xef\xbb\xbftext\nCaf\xc3\xa9.\n", "Café."),
        ("a.txt", b"\xef\xbb\xbf" + "Café.".encode(), "Café."),
        ("a.txt", "Café.".encode("utf-16"), "Café."),
        ("a.md", b"\xfe\xff" + "Café.".encode("utf-16-be"), "Café."),
        (
            "a.html",
            CAFE.format('<meta charset="iso-8859-1">').encode("latin-1"),
            "Café in Warsaw is open for all.",
        ),
        (
            "a.html",
            CAFE.format("<meta charset=windows-1252>").encode("cp1252"),
            "Café in Warsaw is open for all.",
        ),
        ("a.html", CAFE.format('<meta charset="iso-8859-1">').encode(), "Café in Warsaw is open for all."),
        (
            "a.html",
            CAFE.format('<meta http-equiv="Content-Type" content="text/html; charset=utf-16">').encode(
                "utf-16"
            ),
            "Café in Warsaw is open for all.",
        ),
        (
            "a.html",
            CAFE.format('<meta charset="macroman">').encode("mac-roman"),
            "Café in Warsaw is open for all.",
        ),
    ],
)
def test_a_file_is_in_the_encoding_that_it_declares(
    tmp_path: Path, name: str, data: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert [document.text for document in read(tmp_path / name)] == [text]


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, data in (
        ("a.txt", "Paris."),
        ("b.doc", "x"),
        ("c.jsonl", '{"body": 1}'),
        ("d.pdf", "none"),
        ("e.md", " "),
    ):
        (tmp_path / name).write_text(data)
    assert [one.text for one in Given.read(sorted(tmp_path.iterdir())).passages] == ["Paris."]
    assert [one.message.split(" is left out")[0][-5:] for one in caplog.records if one.name == "factrl"] == [
        "b.doc",
        "jsonl",
        "d.pdf",
        "/e.md",
    ]
    with pytest.raises(DataError, match=r"d\.pdf cannot be read as \.pdf"):
        Given.read([tmp_path / "d.pdf"])


# Broken files


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.jsonl", '{"body": "a", "title": "b"}', "no column text or contents or passage; columns: body, t"),
        ("x.jsonl", '{"text": "a"}\n{"text"', "x.jsonl, line 2 is not JSON"),
        ("x.csv", "text\na\nb,c\n", "line 3 has more fields than the first line"),
        ("x.tsv", 'title\ttext\nOne\t"Open\nTwo\tMarie "M" Curie\n', "x.tsv, line 2 cannot be read"),
        ("x.tsv", 'title\ttext\nOne\tIt.\nTwo\t"Open\nThree\tIt.\n', "x.tsv, line 3 cannot be read"),
        ("x.csv", 'text,id\n"a" b,1\n', "x.csv, line 2 cannot be read"),
        ("x.html", '<meta charset="klingon"><p>x', "x.html declares an encoding that is not known"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}', "x.jsonl is not UTF-8 text: invalid start byte"),
        ("x.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9], "cannot be read as .jsonl"),
        ("x.db", b"no database at all" * 99, "x.db cannot be read as .db"),
        ("x.pdf", pdf("One.")[:400], "x.pdf cannot be read as .pdf"),
        ("x.pdf", pdf("", ""), "x.pdf has no text on any page; if it is scanned"),
        ("x.docx", zipped("[Content_Types].xml", "<Types/>"), "x.docx cannot be read as .docx"),
        ("x.docx", zipped("much", "0" * (LONGEST_LINE + 1)), "x.docx has more than"),
        ("x.odt", zipped("a", "b"), "x.odt cannot be read as .odt"),
        ("x.ipynb", "{}", "x.ipynb cannot be read as .ipynb"),
        ("x.html", "<div>" * 3_000 + "x", "x.html nests elements deeper than"),
        ("x.html", "<!-- only -->", "no text in x.html"),
        ("x.html", "", "no text in x.html"),
        ("x.html", "<html></html>", "no text in x.html"),
        ("x.html", "<script>a</script>", "no text in x.html"),
        ("x.md", "", "no text in x.md"),
        ("x.txt", "Open.".encode("utf-16-le"), "x.txt is not UTF-8 text: NUL"),
        ("x.txt", "Open.".encode("utf-32"), "x.txt is not UTF-8 text: NUL"),
        ("x.html", "<p>Open.".encode("utf-16-be"), "x.html is not UTF-8 text: NUL"),
        ("x.csv", "text\nOpen.\n".encode("utf-16-le"), "x.csv is not UTF-8 text: NUL"),
        ("x.jsonl", JSON_LINES.encode("utf-16-le"), "x.jsonl is not UTF-8 text: NUL"),
        ("x.md", r"{\rtf1 Hello}", "x.md is a document in RTF"),
        ("x.jsonl.gz", gzip.compress(json.dumps({"text": "x" * (1 << 20)}).encode() + b"\n", mtime=0) * 70,
         "x.jsonl.gz unpacks to more than"),
        ("x.csv.gz", gzip.compress(b"text\n" + b"x\n" * 600_000, mtime=0), "x.csv.gz unpacks to more than"),
        ("x.xml", "<mediawiki></mediawiki>", "of Wikipedia take the Cirrus dump, .json.gz"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, name: str, content: bytes | str, told: str) -> None:
    assert told in refusal(tmp_path / name, content)


# Finding files


def test_a_folder_is_every_file_in_it_that_can_be_read_and_the_others_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.txt", "deep/a.md", "picture.png", ".git/c.txt", ".d.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    (tmp_path / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    found = find_sources([tmp_path, tmp_path / "b.txt"])
    assert [file.name for file in found] == ["b.txt", "a.md"]
    assert "dangling.txt, picture.png, pipe.txt, round" in caplog.text
    assert [file.name for file in find_sources([tmp_path], outside=tmp_path / "deep")] == ["b.txt"]


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text("")
    with pytest.raises(DataError, match=r"'passages\.jsonl'"):
        find_sources([tmp_path / "pasages.jsonl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="known format"):
        find_sources([tmp_path / "empty"])
    (tmp_path / "x.doc").write_text("x")
    with pytest.raises(DataError, match=r"of no known format \(known: \.jsonl"):
        find_sources([tmp_path / "x.doc"])
    for one in (str(tmp_path), tmp_path):  # its letters would be names
        with pytest.raises(DataError, match=r"files are a list, not '.*' alone; write \['"):
            Given.read(one)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="no file was named"):
        find_sources([])


# Passages


def test_passages_end_at_the_ends_of_sentences() -> None:
    sentence = "The quick brown fox jumps over the lazy dog number 7."  # 11 words
    parts = cut(" ".join([sentence] * 50))
    assert [len(part.split()) for part in parts] == [110, 110, 110, 110, 110]
    assert all(part.endswith(".") for part in parts)
    assert [len(part.split()) for part in cut(" ".join([sentence] * 22))] == [110, 132]  # no scrap at the end
    assert [len(cut("word. " * count)) for count in (0, KEPT_WORDS, KEPT_WORDS + 1)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["word " * 1000, "字" * 1000, "\n\n".join(["A few words, here."] * 200)])
def test_nothing_is_lost_and_nothing_is_long(text: str) -> None:
    parts = cut(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part.split()) <= 1.25 * MAX_WORDS and len(part) <= 30 * MAX_WORDS for part in parts)
    assert all(part == part.strip() != "" for part in parts)


CURIE = Passage("Marie Curie was born in Warsaw in 1867.", title="Marie Curie")
PIERRE = Passage("Pierre Curie was born in Paris in 1859.", title="Pierre Curie")
ULM = Passage("Albert Einstein was born in Ulm.", title="Albert Einstein")

# Words


def test_words() -> None:
    text = (
        "Who was born in WARSAW? École Ångström e\u0301cole 3.14 1,000 居里夫人 于1867年 ﬁne １９ "
        + "x" * 999
    )
    found = "born warsaw ecole angstrom ecole 3 14 1 000 居里 里夫 夫人 于 1867 年 fine 19"
    assert " ".join(words(text)) == f"{found} {'x' * 64}"
    assert words("the of in") == []
    assert title_key(" Marie_Curie ") == title_key("marie  curie")


# Ranking


def test_bm25_by_hand() -> None:
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3
    expected = {
        0: idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean)),
        1: idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean)),
    }
    found = Given(["cat dog", "cat cat mouse bird", "fish"])
    assert found.scores("the cat") == pytest.approx(expected)
    assert found.scores("whale") == {}


def test_given_evidence_is_ranked_and_never_dropped() -> None:
    found = Given([ULM, PIERRE, CURIE]).search("Marie Curie was born in 1868.", k=3)
    assert [passage.title for passage in found] == ["Marie Curie", "Pierre Curie", "Albert Einstein"]
    scores = [passage.score or 0.0 for passage in found]
    assert scores == sorted(scores, reverse=True)
    assert [p.text for p in Given(["a text"]).search("nothing shared")] == ["a text"]
    assert Given([]).search("x") == []


def test_a_topic_narrows_given_evidence_where_it_can() -> None:
    evidence = Given([ULM, PIERRE, CURIE])
    assert [p.title for p in evidence.search("born", topic="marie_curie")] == ["Marie Curie"]
    assert len(evidence.search("born", topic="Pierre Curie;Marie Curie")) == 2
    assert len(evidence.search("born", topic="Nobody")) == 3


def test_evidence_says_when_it_has_nothing() -> None:
    found = Given([CURIE, ULM])
    assert found.covers("Marie Curie was born in Warsaw in 1868.")  # the year is wrong, the passage right
    assert not found.covers("Marie Curie discovered radium and polonium in Paris.")
    assert not found.covers("Whales are mammals.")
    assert not Given([]).covers("Whales")
