"""Documents from files, one after the other, in memory that does not grow with the file; their passages, and
what a word is to a search.

Reads JSON Lines (plain, or as a Cirrus dump of a wiki), CSV and TSV, parquet, plain text, Markdown and HTML
(a file is a document), DOCX and ODT, notebooks (their text cells), PDF (a page is one), and the SQLite files
in which FActScore and KnowRL keep Wikipedia; text, tables and JSON also as .gz. Headings, lists and tables
become those of Markdown. A table without a column of texts is read row by row ("region: North; units_sold:
1,203"). Nothing is repaired: a row without text is left out, and what cannot be read is an error that names
the file and the place.

A passage is short enough that a judge can read several for one claim, and long enough to say what its
sentences are about; it ends at the end of a sentence. Corpora that come in passages keep theirs: cutting
those of HotpotQA, which hold both ends of a question, cost 11 points of hit@5.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import logging
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import ZipFile

from factrl.errors import DataError, FactrlError, MissingExtra, SetupError, first_line, nearest
from factrl.runs import rows as limits
from factrl.runs.rows import check_size, opened, read_lines, read_rows, read_separated, without_nul
from factrl.text import encodable
from factrl.text.escape import one_line
from factrl.text.html import OWN_PAGE
from factrl.text.words import STOP_WORDS
from factrl.types import Passage
from factrl.verifier.pieces import MAX_TITLE, STRUCK, cut, in_words

_LOG = logging.getLogger("factrl")
_TEXT = ("text", "contents", "passage")
_COLUMNS = (_TEXT, ("title",), ("url", "source"), ("id", "_id"))
_TABLES = (".csv", ".tsv", ".parquet")
PLAIN = (".txt", ".text", ".md", ".markdown", ".rst")
"""The endings of plain text."""
# Between the passages of one document in the databases of FActScore and KnowRL (systems: `documents`).
_SEPARATOR = "####SPECIAL####SEPARATOR####"

_RATIO = 100  # of what a file unpacks to; texts have 3 to 10, but one that is stored once may be in each row
_ROW = 128  # bytes that a row takes without its text
_NAMED = 20  # files of a folder that are named because they were not read
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
    number = size = 0
    try:
        read = _reader(path)
        most = max(limits.LONGEST_LINE, _RATIO * path.stat().st_size)
        for number, (place, row) in enumerate(read(path), start=1):  # noqa: B007 (the error has it)
            document = _document(path, row, place)
            size += len(document.text) + _ROW
            if size > most:
                raise DataError(
                    f"{path} unpacks to more than {_RATIO} times its size, {most >> 20} MiB by {place}; cut "
                    "it into several, or write equal rows once"
                )
            if document.text and not document.text.isspace():
                yield document
    except FactrlError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason}; save it as UTF-8") from None
    except Exception as error:  # whatever a library raises on a file that is not what it says
        why = f"{type(error).__name__}: {first_line(error)}; it is damaged, encrypted or of another kind"
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        after = f" after {number:,} documents" if number else ""
        raise DataError(f"{path} cannot be read as {kind_of(path)}{after}: {why}") from error


def _document(path: Path, row: Mapping[str, Any], place: str) -> Passage:
    named = {column.strip().lower(): value for column, value in row.items()}
    text, title, url, name = (
        next((named[name] for name in names if named.get(name) not in (None, "")), None) for names in _COLUMNS
    )
    if not any(name in named for name in _TEXT):
        if kind_of(path) in _TABLES:
            name = str(title or _title(path)).strip()[:MAX_TITLE]
            return Passage(in_words(row.items()), name, path.name, place)
        columns = ", ".join(map(str, row)) or "none"
        raise DataError(
            f"{path}, {place} has no column {' or '.join(_TEXT)}; columns: {columns}; "
            "rename the one that holds the text to 'text'"
        )
    if text is not None and not isinstance(text, str):
        raise DataError(f"{path}, {place}: the text is a {type(text).__name__}, not a string")
    source = path.name if url is None else str(url)
    return Passage(
        text or "", str(title or "").strip()[:MAX_TITLE], source, "" if name is None else str(name)
    )


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
        files = [path] if path.is_file() else _files_in(path, outside)
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


def _files_in(folder: Path, outside: Path | None) -> list[Path]:
    """The files in a folder that can be read, by name; the others are named in one line."""
    found: list[Path] = []
    others: list[str] = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "~$")) for part in path.relative_to(folder).parts)
        folded = path.is_dir() and not path.is_symlink()  # links to folders are not followed
        if hidden or folded or (outside and outside.resolve() in path.resolve().parents):
            continue
        if path.is_file() and kind_of(path) in _READERS:
            found.append(path)
        else:
            others.append(str(path.relative_to(folder)))
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        told = f"{folder}: not read, no file of a known format: {', '.join(others[:_NAMED])}{more}"
        _LOG.warning("%s", one_line(told))
    return found


def kind_of(path: Path) -> str:
    """`.jsonl` for `a.jsonl` and `a.jsonl.gz`."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


# -- Formats


def _read_rows(path: Path) -> _Rows:
    rows = read_rows(str(path)) if kind_of(path) == ".parquet" else _read_json(path)
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
    value = json.loads(_whole(path))
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
        UnicodeDecodeError: it is not in that encoding, or has NUL characters.
        LookupError: a page declares an encoding that is not known.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return without_nul(data[len(mark) :].decode(encoding), data)
    declared = _CHARSET.search(data[:_DECLARES]) if html else None
    name = declared[1].decode("ascii").lower() if declared else "utf-8"
    if name not in _LATIN:
        return without_nul(data.decode(name), data)
    try:
        return without_nul(data.decode("utf-8"), data)
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


# How files begin that are no plain text, whatever their name says.
_KINDS = {
    b"%pdf-": "a PDF (.pdf)",
    b"<!doctype html": "a page (.html)",
    b"<html": "a page (.html)",
    b"pk\x03\x04": "a document of an office suite or an archive (.docx, .odt)",
    b"{\\rtf": "a document in RTF (save it as .docx or .odt)",
}


def plain_text(path: Path | None, data: bytes = b"", *, most: int = 0) -> str:
    """A text as it is, of a file or of the bytes of standard input.

    Args:
        most: bytes that it may have.

    Raises:
        DataError: it is of another kind, too large, or not UTF-8 text.
    """
    name, most = path or "stdin", most or limits.LONGEST_LINE
    if path is not None:
        with opened(path) as file:
            data = file.read(most + 1)
    for mark, kind in _KINDS.items():
        if data[:_HEAD].lstrip().lower().startswith(mark):
            raise DataError(f"{name} is {kind}; name a file that ends so, and it is read as --docs reads it")
    if len(data) > most:
        raise DataError(f"{name} has more than {most >> 20} MiB; cut it into several")
    try:
        return decoded(data)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 text: {error.reason} at byte {error.start:,}; save it as UTF-8"
        ) from None


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
    with opened(path) as file:
        first = file.readline(limits.LONGEST_LINE)
    # Spreadsheets write what separates values in their country.
    counts = {sign: first.count(sign.encode()) for sign in ",;\t"}
    for number, row in enumerate(read_separated(path, max(counts, key=lambda sign: counts[sign])), start=1):
        yield f"row {number}", row


def _read_database(path: Path) -> _Rows:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        for row, title, text in database.execute("SELECT rowid, title, text FROM documents ORDER BY rowid"):
            text = (text or "").replace("<s>", " ").replace("</s>", " ").replace(_SEPARATOR, "\n\n")
            yield f"row {row}", {"text": text.strip(), "title": title}


def _read_text(path: Path) -> _Rows:
    text, title = plain_text(path), _title(path)
    first, _, rest = text.lstrip().partition("\n")
    if kind_of(path) in (".md", ".markdown") and first.startswith("# "):
        title, text = first[2:].strip(), rest
    yield "it", {"text": text.strip(), "title": title}


def _small(path: Path) -> Path:
    return check_size(path, path.stat().st_size)


def _small_archive(path: Path) -> Path:
    with ZipFile(_small(path)) as archive:  # what reads it unpacks no more than it says here
        return check_size(path, sum(part.file_size for part in archive.infolist()))


def _title(path: Path) -> str:
    return path.name[: path.name.lower().rindex(kind_of(path))].replace("_", " ")


def _read_html(path: Path) -> _Rows:
    try:
        from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]  (compiled, without types)
    except ImportError as error:
        raise MissingExtra("lxml", "files") from error
    from factrl.verifier.search.pages import Page

    text = _whole(path, html=True)
    # A report shows the text that it judged, which would bear itself out.
    if OWN_PAGE in text[:_HEAD] or not text.strip():
        return
    page = Page(path)
    # Decoded above; the parser refuses texts that declare an encoding, so it gets bytes again.
    etree.fromstring(text.encode(), etree.HTMLParser(encoding="utf-8", huge_tree=True, target=page))
    title = " ".join("".join(page.title).split())
    yield "it", {"text": page.text(), "title": title or _title(path)}


def _read_pdf(path: Path) -> _Rows:
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise MissingExtra("pypdf", "files") from error
    if not (log := logging.getLogger("pypdf")).level:  # what it warns of would stand beside our one line
        log.setLevel(logging.CRITICAL)
    empty = True
    _small(path)
    reader = PdfReader(path)
    title = (reader.metadata and reader.metadata.title) or _title(path)
    for number, page in enumerate(reader.pages, start=1):
        text = _WRAPPED.sub(" ", _HYPHEN.sub("", page.extract_text().strip()))
        empty = empty and not text
        yield f"page {number}", {"text": text, "title": title, "id": f"page {number}"}
    if empty:
        raise DataError(f"{path} has no text on any page; if it is scanned, make it searchable first (OCR)")


def _read_docx(path: Path) -> _Rows:
    try:
        import docx
    except ImportError as error:
        raise MissingExtra("python-docx", "files") from error
    from factrl.verifier.search.word import Word

    document = docx.Document(str(_small_archive(path)))
    parts: list[str] = []
    size = 0
    for part in Word(path, document).text():
        size += len(part)
        check_size(path, size)  # a cell that spans rows is in each
        parts.append(part)
    text = "".join(parts).strip()
    yield "it", {"text": text, "title": document.core_properties.title or _title(path)}


def _read_odt(path: Path) -> _Rows:
    try:
        import odfdo
    except ImportError as error:
        raise MissingExtra("odfdo", "files") from error
    document: Any = odfdo.Document(str(_small_archive(path)))
    text, title = STRUCK.sub("", document.to_markdown()), document.meta.title
    yield "it", {"text": text.strip(), "title": title or _title(path)}


def _read_notebook(path: Path) -> _Rows:
    cells = json.loads(_whole(path))["cells"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    yield "it", {"text": text.strip(), "title": _title(path)}


_READERS: Mapping[str, Callable[[Path], _Rows]] = {
    ".jsonl": _read_rows,
    ".json": _read_rows,
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".parquet": _read_rows,
    **dict.fromkeys(PLAIN, _read_text),
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
    ".docx": _read_docx,
    ".odt": _read_odt,
    ".ipynb": _read_notebook,
    ".db": _read_database,
}


KNOWN = frozenset(_READERS)
"""The endings of the files that can be read; those of text also with .gz behind them."""


def _reader(path: Path) -> Callable[[Path], _Rows]:
    reader = _READERS.get(kind_of(path))
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
