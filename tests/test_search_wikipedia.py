"""A wiki's XML dump: which pages are articles, and what of them is prose."""

from __future__ import annotations

import bz2
import gc
import io
import time
from pathlib import Path

import pytest

from factrl.verifier.search.sources import Source
from factrl.verifier.search.wikipedia import plain_text, read_dump

pytestmark = pytest.mark.alone

DUMP = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo><sitename>Wikipedia</sitename><base>https://en.wikipedia.org/wiki/Main_Page</base></siteinfo>
  <page><title>Ada Lovelace</title><ns>0</ns><id>974</id>
    <revision><text>Old.</text></revision><revision><id>1</id>
      <text xml:space="preserve">'''Ada''' was a [[mathematician]] &amp; writer.</text></revision>
  </page>
  <page><title>Ada</title><ns>0</ns><id>975</id><redirect title="Ada Lovelace" />
    <revision><id>2</id><text>#REDIRECT [[Ada Lovelace]]</text></revision>
  </page>
  <page><title>Talk:Ada Lovelace</title><ns>1</ns><id>976</id>
    <revision><id>3</id><text>Was she?</text></revision>
  </page>
  <page><title>Blank</title><ns>0</ns><id>977</id><revision><id>4</id><text /></revision></page>
</mediawiki>
"""


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
def test_a_dump(tmp_path: Path, name: str) -> None:
    half = len(DUMP) // 2
    packed = bz2.compress(DUMP[:half].encode()) + bz2.compress(DUMP[half:].encode())  # "multistream"
    (tmp_path / name).write_bytes(packed if name.endswith("bz2") else DUMP.encode())
    (document,) = Source(tmp_path / name).documents()
    assert document.text == "Ada was a mathematician & writer."
    assert (document.title, document.id) == ("Ada Lovelace", "974")
    assert document.source == "https://en.wikipedia.org/wiki/Ada_Lovelace"


def test_pages_do_not_pile_up() -> None:
    import tracemalloc

    page = (
        f"<page><title>T</title><ns>0</ns><id>1</id><revision><text>{'x' * 10_000}</text></revision></page>"
    )
    file = io.BytesIO(f"<mediawiki>{page * 500}</mediawiki>".encode())
    tracemalloc.start()
    count = sum(1 for _ in read_dump(file, Path("x.xml")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 500
    assert peak < 1_000_000  # of 5 MB


@pytest.mark.parametrize(
    ("wikitext", "plain"),
    [
        ("'''Bold''' and ''italic''", "Bold and italic"),
        ("[[Paris]], [[Paris|the city]] and [[a (b)|a]]s", "Paris, the city and as"),
        ("[[File:x.jpg|thumb|A [[Paris|city]] view]]Text [[Category:Cities]]", "Text"),
        ("[[:Category:Cities|Cities]]", ""),
        ("A{{cn|date={{x}}}} b.<ref name=a>c</ref><ref name=a /> d", "A b. d"),
        ("{{Infobox\n| name = X\n| image = {{y}}\n}}\nText", "Text"),
        ("a\n{| class=x\n|-\n| {{b}} ||\n{| nested\n|}\n|}\nc", "a\n\nc"),
        ("{{convert|5|km|mi}} {{lang|fr|bon}} {{nowrap|1 2}}", "5 km bon 1 2"),
        ("Born ({{IPA|x}}; 1815)<!-- hidden -->", "Born (; 1815)"),
        ("Born ({{IPA|x}}, )", "Born"),
        ("[https://example.org a label] and [http://example.org]", "a label and"),
        ("== Life ==\nText\n=== Youth ===\n* One\n# Two", "Life\n\nText\n\nYouth\n\nOne\n\nTwo"),
        ("Text\n== References ==\nJunk\n== Later ==\nMore", "Text\n\nLater\n\nMore"),
        ("x &amp;lt; y&nbsp;z<br/>w", "x &lt; y z w"),
        ("f(x) <math>x^{2}</math> here", "f(x) here"),
        ("2 < 3 and 4 > 1", "2 < 3 and 4 > 1"),
        # What has no partner stays, and swallows nothing.
        ("a {{ b", "a {{ b"),
        ("a }} b [[ c", "a }} b [[ c"),
        ("a <!-- b", "a <!-- b"),
        ("a <ref>b c", "a b c"),
        ("{{a|{{b}} text", "{{a| text"),
    ],
)
def test_prose(wikitext: str, plain: str) -> None:
    assert plain_text(wikitext) == plain


@pytest.mark.security("S15", "S23")
@pytest.mark.parametrize(
    "piece",
    ["[[", "]]", "{{", "}}", "{|\n", "[[a|", "<ref>", "<ref", "<!--", "[http://a ", "==a", "( ", "&", "<a "],
)
def test_time_is_linear(piece: str) -> None:
    def seconds(text: str) -> float:
        gc.disable()  # a collection looks at all that the other tests left
        started = time.process_time()
        plain_text(text)
        ended = time.process_time()
        gc.enable()
        return ended - started

    count = 20_000 // len(piece)
    small = min(seconds(piece * count) for _ in range(5))
    large = min(seconds(piece * count * 8) for _ in range(3))
    assert large < max(24 * small, 0.05)  # quadratic: 64 times
