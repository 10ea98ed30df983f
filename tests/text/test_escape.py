from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from factrl.text.escape import attribute, linked, markdown, markup, one_line, visible

TEXTS = st.text(st.characters(), max_size=60)  # lone surrogates included


class _Content(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> _Content:
    parser = _Content()
    parser.feed(html)
    parser.close()
    return parser


@pytest.mark.parametrize(
    ("char", "code"),
    [
        ("\u202e", "U+202E"),
        ("\u200b", "U+200B"),
        ("\u00ad", "U+00AD"),
        ("\x1b", "U+001B"),
        ("\u2028", "U+2028"),
        ("\ud800", "U+D800"),
        ("\U000e0100", "U+E0100"),
        ("\u3164", "U+3164"),
        ("\uffff", "U+FFFF"),
    ],
)
def test_what_cannot_be_seen_is_written_out(char: str, code: str) -> None:
    assert visible(f"a{char}b") == f"a⟨{code}⟩b"
    assert code in one_line(char)
    assert 'class="mark"' in markup(char)
    assert read(markup(f"a{char}b")).text == f"a{code}b"
    assert (markup(char) + attribute(char)).encode()


@pytest.mark.parametrize("text", ["Bouaké", "日本語", "שלום", "naïve — 5 €", "a\n\tb", "👍🏽", "✔️"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text
    assert read(markup(text)).text == text


@given(TEXTS)
def test_markup_shows_every_text_and_nothing_else(text: str) -> None:
    got = read(markup(text))
    assert set(got.tags) <= {"span"}
    assert got.text == visible(text).replace("⟨U+", "U+").replace("⟩", "") or "⟨" in text or "⟩" in text
    quoted = attribute(text)
    assert not set(quoted) & set("\"'<>")
    quoted.encode()


@given(TEXTS)
def test_one_line_is_one_line(text: str) -> None:
    got = one_line(text)
    assert len(got.splitlines()) <= 1
    assert got.isprintable() or all(visible(char) == char for char in got)


@given(TEXTS)
@example("&lt;b&gt; &#60;i&#62; &amp; &copy;")
@example("a|b `c` *d* __e__ [f](g) ![h](i) <j> ~~k~~ \\ \\|")
def test_markdown_reads_as_the_text_and_as_nothing_else(text: str) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = reader.parse(f"| a | b |\n| --- | --- |\n| x{markdown(text)}x | y |\n")
    assert [token.type for token in tokens].count("tr_open") == 2
    cells = [token for token in tokens if token.type == "inline"]
    assert len(cells) == 4
    assert {child.type for child in cells[2].children or []} <= {"text", "text_special"}
    assert "".join(child.content for child in cells[2].children or []) == f"x{one_line(text)}x"


@pytest.mark.parametrize(
    "text", ["https://evil.example", "FTP://x", "www.evil.example", "WWW.x.org", "me@evil.example"]
)
def test_markdown_makes_no_links_unasked(text: str) -> None:
    assert not re.search(r"(?<!\\)://|www\.|(?<!\\)@", markdown(text), re.I)


@pytest.mark.parametrize(
    ("address", "is_link"),
    [
        ("https://example.org/a?b=1&c=2", True),
        ("http://localhost:8000/", True),
        ("javascript:alert(1)", False),
        ("JaVaScRiPt://example.org/%0aalert(1)", False),
        ("data:text/html,<script>", False),
        ("file:///etc/passwd", False),
        ("https://trusted.org@evil.org/", False),
        ('https://example.org/"onclick="x', False),
        ("https://example.org/\u202egpj", False),
        ("https://[::1", False),
    ],
)
def test_only_plain_web_addresses_become_links(address: str, is_link: bool) -> None:
    got = linked(address)
    assert ("a" in read(got).tags) == is_link
    if is_link:
        assert got == f'<a href="{attribute(address)}" rel="noopener noreferrer">{markup(address)}</a>'
