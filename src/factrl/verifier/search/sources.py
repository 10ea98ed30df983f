"""Documents from files, one after the other, in memory that does not grow with the file; their passages, and
what a word is to a search.

Reads JSON Lines (plain, or as a Cirrus dump of a wiki), CSV and TSV, parquet, plain text, Markdown and HTML
(a file is a document), PDF (a page is one), and the SQLite files in which FActScore and KnowRL keep
Wikipedia; all but parquet, PDF and SQLite also as .gz.  A table without a column of texts is read row by row
("region: North; units_sold: 1,203").  Nothing is repaired: a row without text is left out, and what cannot be
read is an error that names the file and the place.

A passage is short enough that a judge can read several for one claim, and long enough to say what its
sentences are about; it ends at the end of a sentence.  Corpora that come in passages keep theirs: cutting
those of HotpotQA, which hold both ends of a question, cost 11 points of hit@5.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import logging
import re
import sqlite3
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from factrl.errors import DataError, MissingExtra, SetupError, nearest
from factrl.runs import rows as limits
from factrl.runs.rows import opened, read_lines, read_rows, read_separated
from factrl.text import encodable
from factrl.text.escape import one_line
from factrl.text.html import OWN_PAGE
from factrl.text.sentences import sentences
from factrl.text.words import STOP_WORDS
from factrl.types import Passage

MAX_WORDS = 120
"""Words of a passage that is cut out; DPR's Wikipedia has 100, and a judge's prompt holds five of them."""
KEPT_WORDS = 200
"""Words of a document that stays whole."""

_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_PIECE = re.compile(r"\S{1,200}\s*")
_LOG = logging.getLogger("factrl")
_TEXT = ("text", "contents", "passage")
_COLUMNS = (_TEXT, ("title",), ("url", "source"), ("id", "_id"))
_TABLES = (".csv", ".tsv", ".parquet")
# Between the passages of one document in the databases of FActScore and KnowRL (systems: `documents`).
_SEPARATOR = "####SPECIAL####SEPARATOR####"

_HEAD = 1_000  # characters of a page in which it says what made it
_DECLARES = 4_096  # bytes of a page in which it declares its encoding
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")
_WRAPPED = re.compile(r"(?<![.:!?\n])\n(?!\n)")  # an end of a line, not of a sentence or paragraph

_Rows: TypeAlias = Iterator[tuple[str, Mapping[str, Any]]]
"""Each row with its place in the file."""


def documents(path: Path) -> Iterator[Passage]:
    """The documents in the order of the file, those without text left out; its name says the format.

    Raises:
        DataError: the file is of no known format, breaks off, is not what it says, or has no text column.
    """
    number = 0
    try:
        for number, (place, row) in enumerate(_reader(path)(path), start=1):  # noqa: B007 (the error has it)
            document = _document(path, row, place)
            if document.text and not document.text.isspace():
                yield document
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason}") from None
    except (OSError, EOFError, zlib.error, csv.Error, sqlite3.Error) as error:
        raise DataError(f"{path} cannot be read after {number:,} documents: {error}") from error


def _document(path: Path, row: Mapping[str, Any], place: str) -> Passage:
    named = {column.strip().lower(): value for column, value in row.items()}
    text, title, url, name = (
        next((named[name] for name in names if named.get(name) not in (None, "")), None) for names in _COLUMNS
    )
    if not any(name in named for name in _TEXT):
        if _kind(path) in _TABLES:
            return Passage(in_words(row.items()), str(title or _title(path)).strip(), path.name, place)
        columns = ", ".join(map(str, row)) or "none"
        raise DataError(
            f"{path}, {place} has no column {' or '.join(_TEXT)}; columns: {columns}; "
            "rename the one that holds the text to 'text'"
        )
    if text is not None and not isinstance(text, str):
        raise DataError(f"{path}, {place}: the text is a {type(text).__name__}, not a string")
    source = path.name if url is None else str(url)
    return Passage(text or "", str(title or "").strip(), source, "" if name is None else str(name))


def in_words(row: Iterable[tuple[str, Any]]) -> str:
    """A row of a table, columns with their values: what is in each that is not empty.

    >>> in_words([("", "Ann Lee"), ("born", 1867), ("died", None)])
    'Ann Lee; born: 1867'
    """
    parts = []
    for column, value in row:
        if isinstance(value, (list, dict)):
            value = json.dumps(value, ensure_ascii=False, default=str)
        if (
            value is not None and value == value and (text := str(value).strip())
        ):  # NaN is not equal to itself
            parts.append(f"{column.strip()}: {text}" if column.strip() else text)
    return "; ".join(parts)


def fingerprint(path: Path) -> str:
    """Changes when the file does: a digest of its size, its start and its end."""
    size, part = path.stat().st_size, 1 << 16
    with path.open("rb") as file:
        start = file.read(part)
        file.seek(max(0, size - part))
        return hashlib.sha256(b"%d:%b%b" % (size, start, file.read())).hexdigest()[:32]


def find_sources(paths: Iterable[str | Path], *, outside: Path | None = None) -> list[Path]:
    """The files that are named, and for a folder every file in it that can be read, by name.

    Args:
        outside: leave out what a folder holds in here, so that an index is no source of its own; hidden files
            and folders are left out in any case.

    A file of an unknown format is named and left out, unless it is the only one.

    Raises:
        DataError: a name leads nowhere, a folder has nothing to read, no file is of a known format.
    """
    if isinstance(paths, (str, Path)):  # its letters would be files, and "/" among them all of the disk
        raise DataError(f"files are a list, not {str(paths)!r} alone; write [{str(paths)!r}]")
    if not isinstance(paths, Iterable):
        raise DataError(
            f"files are a list of names, not a {type(paths).__name__}; passages go in evidence=[…]"
        )
    files_by_path: dict[Path, Path] = {}
    problems: dict[Path, SetupError] = {}
    for name in paths:
        if not isinstance(name, (str, Path)):
            raise DataError(f"a file is a name, not a {type(name).__name__}; passages go in evidence=[…]")
        if not str(name).strip():  # as a path it would be the current folder
            raise DataError(f"a file has an empty name, {name!r}; name the file, or . for the current folder")
        path = Path(name).expanduser()
        if not path.exists():
            around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            raise DataError(f"{path} does not exist{nearest(path.name, around)}")
        files = [path] if path.is_file() else sorted(_files_in(path, outside))
        if not files:
            raise DataError(f"{path} holds no file of a known format ({', '.join(_READERS)})")
        for file in files:
            try:
                _reader(file)
            except DataError as error:  # noqa: PERF203
                problems[file] = error
            else:
                files_by_path[file.resolve()] = file
    leave_out(problems, files_by_path)
    if not files_by_path:
        raise DataError("no file was named")
    return list(files_by_path.values())


def leave_out(problems: Mapping[Path, SetupError], found: Collection[Any]) -> None:
    """Name the files that cannot be read, with their problems; where there is no other, that is an error.

    Raises:
        SetupError: the first problem.
    """
    for file, problem in problems.items():
        if not found:
            raise problem
        _LOG.warning("%s", one_line(f"{file} is left out of the evidence: {problem}"))


def _files_in(folder: Path, outside: Path | None) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        inside = outside is not None and outside.resolve() in path.resolve().parents
        if _kind(path) in _READERS and path.is_file() and not hidden and not inside:
            yield path


def _kind(path: Path) -> str:
    """`.jsonl` for `a.jsonl` and `a.jsonl.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


# -- Formats


def _read_rows(path: Path) -> _Rows:
    rows = read_rows(str(path)) if _kind(path) == ".parquet" else _read_json(path)
    for number, row in enumerate(rows, start=1):
        place = f"row {number}"
        if not isinstance(row, dict):
            raise DataError(f"{path}, {place} is a {type(row).__name__}, not an object with columns")
        # A Cirrus dump alternates between an action and its article, and has talk pages and the like.
        if row.keys() != {"index"} and row.get("namespace", 0) == 0:
            yield place, row


def _read_json(path: Path) -> Iterable[Any]:
    """The rows of JSON Lines, or of one list or object on as many lines as it likes."""
    with opened(path) as file:
        start = file.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    whole = start.startswith(b"[") or start.partition(b"\n")[0].strip() == b"{"
    if not whole:
        return read_lines(path)
    try:
        value = json.loads(_whole(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    return value if isinstance(value, list) else [value]


_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CHARSET = re.compile(
    rb"<(?:meta|\?xml)\b[^>]{0,200}?(?:charset|encoding)\s{0,3}=\s{0,3}[\"']?([\w.:-]{1,40})", re.IGNORECASE
)
# Browsers read these as Windows' own; any bytes are such a text, so UTF-8 is tried before.
_LATIN = frozenset(
    ("iso-8859-1", "iso8859-1", "latin-1", "latin1", "us-ascii", "ascii", "windows-1252", "cp1252")
)


def decoded(data: bytes, *, html: bool = False) -> str:
    """The text in the encoding that its byte-order mark names, that a page declares, or else UTF-8.

    Raises:
        UnicodeDecodeError: it is not in that encoding.
        LookupError: a page declares an encoding that is not known.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding)
    declared = _CHARSET.search(data[:_DECLARES]) if html else None
    name = declared[1].decode("ascii").lower() if declared else "utf-8"
    if name not in _LATIN:
        return data.decode(name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _whole(path: Path, *, html: bool = False) -> str:
    with opened(_small(path)) as file:
        data = file.read(limits.LONGEST_LINE + 1)
    if len(data) > limits.LONGEST_LINE:
        raise DataError(f"{path} has more than {limits.LONGEST_LINE:,} bytes; cut it into several")
    try:
        return decoded(data, html=html)
    except LookupError as error:
        raise DataError(f"{path} declares an encoding that is not known: {error}") from None


def _read_separated(path: Path) -> _Rows:
    for number, row in enumerate(read_separated(path), start=1):
        yield f"row {number}", row


def _read_database(path: Path) -> _Rows:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        for row, title, text in database.execute("SELECT rowid, title, text FROM documents ORDER BY rowid"):
            text = (text or "").replace("<s>", " ").replace("</s>", " ").replace(_SEPARATOR, "\n\n")
            yield f"row {row}", {"text": text.strip(), "title": title}


def _read_text(path: Path) -> _Rows:
    text, title = _whole(path), _title(path)
    first, _, rest = text.lstrip().partition("\n")
    if _kind(path) == ".md" and first.startswith("# "):
        title, text = first[2:].strip(), rest
    yield "it", {"text": text.strip(), "title": title}


def _small(path: Path) -> Path:
    if path.stat().st_size > limits.LONGEST_LINE:  # all of it is in memory at once
        raise DataError(f"{path} has more than {limits.LONGEST_LINE:,} bytes; cut it into several")
    return path


def _title(path: Path) -> str:
    return path.name[: path.name.lower().rindex(_kind(path))].replace("_", " ")


def _read_html(path: Path) -> _Rows:
    try:
        import trafilatura
    except ImportError as error:
        raise MissingExtra("trafilatura", "files") from error
    text = _whole(path, html=True)
    if OWN_PAGE in text[:_HEAD]:  # a report shows the text that it judged, which would bear itself out
        return
    if "<html" not in text.lower():  # a fragment, of which it reads nothing
        text = f"<html><body>{text}</body></html>"
    page: Any = trafilatura.bare_extraction(
        text, favor_recall=True, include_comments=False, with_metadata=True
    )
    # A short page can give it nothing; then all words are taken, menus among them.
    shown = (page and page.text) or trafilatura.html2txt(text)
    yield "it", {"text": shown, "title": (page and page.title) or _title(path)}


def _read_pdf(path: Path) -> _Rows:
    try:
        from pypdf import PdfReader, errors
    except ImportError as error:
        raise MissingExtra("pypdf", "files") from error
    if not (log := logging.getLogger("pypdf")).level:  # what it warns of would stand beside our one line
        log.setLevel(logging.CRITICAL)
    empty = True
    _small(path)
    try:
        reader = PdfReader(path)
        title = (reader.metadata and reader.metadata.title) or _title(path)
        for number, page in enumerate(reader.pages, start=1):
            text = _WRAPPED.sub(" ", _HYPHEN.sub("", page.extract_text().strip()))
            empty = empty and not text
            yield f"page {number}", {"text": text, "title": title, "id": f"page {number}"}
    except (errors.PyPdfError, errors.DependencyError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as PDF: {error}") from error
    if empty:
        raise DataError(f"{path} has no text on any page; if it is scanned, make it searchable first (OCR)")


_READERS: Mapping[str, Callable[[Path], _Rows]] = {
    ".jsonl": _read_rows,
    ".json": _read_rows,
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".parquet": _read_rows,
    ".txt": _read_text,
    ".md": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
    ".db": _read_database,
}


def _reader(path: Path) -> Callable[[Path], _Rows]:
    reader = _READERS.get(_kind(path))
    if reader is None or not path.is_file():
        raise DataError(
            f"{path} is of no known format (known: {', '.join(_READERS)}; all but .parquet, .pdf and .db "
            "also as .gz; of Wikipedia take the Cirrus dump, .json.gz)"
        )
    return reader


# -- Passages


def passages_of(document: Passage) -> Iterator[Passage]:
    """The passages of one document, each with its title and source; several of one id are numbered."""
    parts = cut(document.text)
    for number, text in enumerate(parts, start=1):
        name = f"{document.id}#{number}" if document.id and len(parts) > 1 else document.id
        yield replace(document, text=text, id=name)


def cut(text: str) -> list[str]:
    """The text itself if it is short, else stretches of it, in order; nothing but white space is lost.

    A sentence is only cut when it is longer than a passage.  Two Chinese or Japanese characters count as a
    word.  What is left at the end goes to the passage before it when it is too short to stand alone.
    """
    text = text.strip()
    if _length(text) <= KEPT_WORDS:
        return [text] if text else []
    starts, held = [0], 0
    for start, end in _units(text):
        size = _length(text[start:end])
        if held and held + size > MAX_WORDS:
            starts.append(start)
            held = 0
        held += size
    if held < MAX_WORDS // 4 and len(starts) > 1:
        starts.pop()
    return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _units(text: str) -> Iterator[tuple[int, int]]:
    """The text in stretches that join without a gap: its sentences, or the words of one that is too long."""
    starts = [0, *(sentence.start for sentence in sentences(text)[1:])]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        if _length(text[start:end]) <= MAX_WORDS:
            yield start, end
        else:
            yield from (word.span() for word in _PIECE.finditer(text, start, end))


def _length(text: str) -> int:
    """Words; at least one for every 20 characters, since a text without spaces is no single word."""
    unspaced = 0 if text.isascii() else len(_WIDE.findall(text)) // 2
    return max(len(text.split()), len(text) // 20) + unspaced


# -- Words: folded, without grammar and languages, except that Chinese and Japanese, which have no spaces,
# -- become overlapping pairs of characters.  Not `factrl.text.words.read`: indexes on disk hold these words,
# -- and a search wants names in every language whole.

_SILENT = STOP_WORDS | {"no", "nor", "not"}
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]+")
_MAX_TITLE = 200  # characters of a title that count
_MAX_WORD = 64  # characters; what is longer is no word, and would fill an index with keys


class _Folding(dict[int, str]):
    """Character -> its lower-case letters without marks, worked out when first met.

    One character at a time: normalising a whole text takes quadratic time on a long run of marks.
    """

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code).lower())
        self[code] = folded = "".join(char for char in parts if not unicodedata.combining(char))
        return folded


_FOLDING = _Folding()


def words(text: str) -> list[str]:
    """The words of a text that a search can go by, in order, with repeats.

    >>> words("Où est l'École? She was born in 1867.")
    ['ou', 'est', 'l', 'ecole', 'born', '1867']
    """
    text = text.lower() if text.isascii() else _UNSPACED.sub(_pairs, text.translate(_FOLDING))
    return [word[:_MAX_WORD] for word in _WORD.findall(text) if word not in _SILENT]


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    pairs = (run[at : at + 2] for at in range(len(run) - 1)) if len(run) > 1 else (run,)
    return f" {' '.join(pairs)} "


def title_key(title: str) -> str:
    """A title as it is looked up: case, underscores and doubled spaces make no difference.

    >>> title_key("Marie_Curie")
    'marie curie'
    """
    return encodable(" ".join(title.replace("_", " ").split())[:_MAX_TITLE].casefold())


def title_keys(topic: str) -> set[str]:
    """The keys of what a topic may name: one title, or several parted by semicolons, as in KnowRL's rows."""
    return {title_key(part) for part in (topic, *topic.split(";")) if part.strip()}
