"""Rows of a dataset: .jsonl, .json (a list), .csv, .tsv, .parquet, .arrow, folders of those, or the hub.

A row is a mapping of columns; `factrl.runs.data` knows what the columns mean.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from factrl.errors import DataError, MissingExtra, nearest
from factrl.runs import located

Row = Mapping[str, Any]

LONGEST_LINE = 1 << 26  # bytes of one line; a whole book has 10 million


def read_rows(source: str, split: str = "train", subset: str | None = None) -> Iterator[Row]:
    """The rows of a dataset, in its order.

    Args:
        source: a file, a folder with one file (or several parts) per split, or a hub id.
        split: which split of a folder or hub dataset.
        subset: configuration of a hub dataset.

    Raises:
        DataError: the dataset is missing or unreadable.
        MissingExtra: a hub id, and `datasets` is not installed.
    """
    path = located(source)
    if path.is_dir():
        for part in _parts(path, split):
            yield from _read_file(part)
    elif path.exists():
        refuse_pipe(path)
        yield from _read_file(path)
    elif (
        source.startswith((".", "/", "~")) or source.lower().endswith(tuple(READERS)) or source.count("/") > 1
    ):
        # A hub id is `name` or `owner/name`, without the suffix of a data file.
        around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{source} does not exist{nearest(path.name, around)}")
    else:
        yield from _read_hub(source, split, subset)


def refuse_pipe(path: Path) -> None:
    """Refuse a named pipe, for whose writer a reader would wait for ever.

    Raises:
        DataError: it is one.
    """
    if path.is_fifo() and path.parts[:2] not in (("/", "dev"), ("/", "proc")):  # where shells have theirs
        raise DataError(f"{path} is a named pipe, which may have no writer; write its content into a file")


def _parts(folder: Path, split: str) -> list[Path]:
    """`train.jsonl`, or the parts `train-00000-of-00002.parquet`, …, or what `datasets` saved to disk."""
    if (folder / "dataset_dict.json").is_file() and (folder / split).is_dir():
        folder = folder / split
    if (folder / "state.json").is_file() and (parts := sorted(folder.glob("*.arrow"))):
        return parts
    files = sorted(file for file in folder.iterdir() if file.name.lower().endswith(tuple(READERS)))
    parts = [file for file in files if file.name.split(".")[0] == split or file.name.startswith(f"{split}-")]
    if not parts:
        names = ", ".join(file.name for file in files[:10]) or "no data file"
        raise DataError(f"{folder} has no split {split!r}; it has {names}; name the split or the file itself")
    return parts


def _read_file(path: Path) -> Iterator[Row]:
    read = next((read for suffix, read in READERS.items() if path.name.lower().endswith(suffix)), None)
    if read is None:
        raise DataError(f"{path} is none of {', '.join(READERS)}")
    try:
        for number, row in enumerate(read(path), start=1):
            if not isinstance(row, dict):
                raise DataError(f"{path}: row {number} is a {type(row).__name__}, not an object with columns")
            yield row
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def opened(path: Path) -> IO[bytes]:
    """A file to read bytes from, unpacked where its name ends in .gz."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def lines_of(file: IO[bytes], name: object) -> Iterator[bytes]:
    """The lines of JSON Lines, which end at a line feed and at nothing else, in memory that is bounded.

    Args:
        name: what to call the file in an error.

    Raises:
        DataError: a line is longer than `LONGEST_LINE`.
    """
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise DataError(
                f"{name}, line {number} has more than {LONGEST_LINE >> 20} MiB; write one row a line, or a "
                "shorter row"
            )
        yield line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def check_size(path: Path, size: int) -> Path:
    """The path of a file that is to be in memory at once.

    Raises:
        DataError: it has more than `LONGEST_LINE` bytes.
    """
    if size > LONGEST_LINE:
        raise DataError(f"{path} has more than {LONGEST_LINE:,} bytes; cut it into several")
    return path


def without_nul(text: str, data: bytes) -> str:
    """The text, which is not UTF-8 where it has NUL characters: UTF-16 and UTF-32 read so have them.

    Raises:
        UnicodeDecodeError: it has one.
    """
    if "\0" in text:
        at = data.find(0)
        raise UnicodeDecodeError("utf-8", data, at, at + 1, "NUL character")
    return text


def _utf8(line: bytes) -> str:
    return without_nul(line.decode("utf-8"), line)


def read_lines(path: Path) -> Iterator[Any]:
    """The values of a file of JSON Lines, plain or .gz.

    Raises:
        DataError: a line is not JSON, or is longer than `LONGEST_LINE`.
    """
    with opened(path) as file:
        for number, line in enumerate(lines_of(file, path), start=1):
            if line.strip():
                yield _parse(_utf8(line), f"{path}, line {number}")


def read_separated(path: Path, delimiter: str = "") -> Iterator[dict[str, Any]]:
    """The rows of .csv or .tsv, plain or .gz; the first line names the columns, and every value is text."""
    csv.field_size_limit(LONGEST_LINE)
    name = path.name.lower()
    delimiter = delimiter or ("\t" if name.removesuffix(".gz").endswith(".tsv") else ",")
    with opened(path) as file:
        lines = map(_utf8, lines_of(file, path))
        reader = csv.DictReader(lines, restval="", delimiter=delimiter, strict=True)
        start = 1
        try:
            names = [*(reader.fieldnames or ())]  # reads the first line
            first = "".join(names)
            if len(names) == 1 and (other := next((one for one in ";\t|" if one in first), "")):
                raise DataError(
                    f"{path}, line 1 is separated by {other!r}; save it with commas, or as .tsv with tabs"
                )
            if first.startswith("sep="):
                raise DataError(f"{path}, line 1 is Excel's {first!r}; delete that line")
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise DataError(f"{path} has two columns of the name {twice[0]!r}; rename one")
            start = reader.line_num + 1
            for row in reader:
                if None in row:
                    raise DataError(f"{path}, line {reader.line_num} has more fields than the first line")
                yield row
                start = reader.line_num + 1
        except csv.Error as error:
            why = (
                f"{error}; a value that begins with a quotation mark must end with one, and hold others twice"
            )
            if "new-line character" in str(error):
                why = "it ends lines with a carriage return alone; save it with line feeds"
            raise DataError(f"{path}, line {start} cannot be read: {why}") from error


def _read_list(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = _parse(text, str(path))
    except DataError as error:
        if not re.match(r"\s*\{.*\}\s*\n\s*\{", text):
            raise
        raise DataError(f"{path} holds JSON Lines; name it .jsonl") from error
    if not isinstance(rows, list):
        keys = f" with {', '.join(map(repr, list(rows)[:5]))}" if isinstance(rows, dict) else ""
        raise DataError(
            f"{path} holds one {type(rows).__name__}{keys}, not a list of rows; write [{{...}}, {{...}}], in "
            "pandas to_json(orient='records')"
        )
    return rows


_AT_ONCE = 64  # rows that are unpacked together
_UNPACKED = 1 << 30  # bytes that these may take
_LONG_ROW, _LARGE = 1 << 20, 1 << 28  # bytes: a part of this size in rows so long would be unpacked as one


def _read_parquet(path: Path) -> Iterator[Any]:
    """In batches small by what they unpack to: a value that is stored once may stand in every row."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for number in range(file.metadata.num_row_groups):
                part = file.metadata.row_group(number)
                sizes = [part.column(n).total_uncompressed_size for n in range(part.num_columns)]
                size = max(sizes, default=0)
                if size > _LARGE and size > _LONG_ROW * part.num_rows:
                    raise DataError(
                        f"{path} packs {size >> 20} MiB into {part.num_rows} rows of one part; write it with "
                        "smaller parts (row_group_size=1 in pyarrow)"
                    )
                most = max(1, min(_AT_ONCE, _UNPACKED // max(size, 1)))
                for batch in file.iter_batches(batch_size=most, row_groups=[number]):
                    yield from _as_printed(batch).to_pylist()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is not a parquet file: {error}") from error


def _as_printed(batch: Any) -> Any:
    """A batch of Arrow whose float32 are the numbers that they print: 0.1, not 0.10000000149011612."""
    import pyarrow

    for at, field in enumerate(batch.schema):
        for single, text, double in (
            (pyarrow.float32(), pyarrow.string(), pyarrow.float64()),
            (*map(pyarrow.list_, (pyarrow.float32(), pyarrow.string(), pyarrow.float64())),),
        ):
            if field.type == single:
                batch = batch.set_column(at, field.name, batch.column(at).cast(text).cast(double))
    return batch


def _read_arrow(path: Path) -> Iterator[Any]:
    import pyarrow

    try:
        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_stream(file) as batches:
            for batch in batches:
                for start in range(0, batch.num_rows, _AT_ONCE):
                    yield from _as_printed(batch.slice(start, _AT_ONCE)).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is not an Arrow stream, as `datasets` writes it: {error}") from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {without_hint(error)}") from error


def without_hint(error: BaseException) -> str:
    """A parser's message without Python's own advice on how to read longer numbers."""
    return str(error).partition("; use sys.")[0]


SEPARATED = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
"""Files whose cells are all text."""
READERS: Mapping[str, Callable[[Path], Iterable[Any]]] = {
    ".jsonl": read_lines,
    ".jsonl.gz": read_lines,
    ".json": _read_list,
    **dict.fromkeys(SEPARATED, read_separated),
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}


def _read_hub(source: str, split: str, subset: str | None) -> Iterator[Row]:
    try:
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError as error:
        raise MissingExtra("datasets", "eval") from error
    try:
        rows: Any = load_dataset(source, subset, split=split)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        cause = str(error).strip().split("\n")[0]
        raise DataError(
            f"{source} is neither a file here nor a dataset that the hub gave "
            f"(split {split!r}, subset {subset!r}): {cause}; "
            "check the spelling and the split, or download it and name the file"
        ) from error
    yield from rows
