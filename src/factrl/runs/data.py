"""Examples from the rows of a dataset, and the prompts made of them.

The usual column names are recognised, those of verl's parquet rows and of TruthRL's, KnowRL's and FSPO's
datasets too; others can be given.  A cell may hold lists and tables also as arrays, and as text in
JSON, which is how a .csv has them.  Nothing is repaired: a row without a question or an answer,
an id that occurs twice, and a cell that could mean two things, are errors that name the row.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from factrl.errors import ConfigError, DataError, nearest
from factrl.runs.rows import Row, read_rows
from factrl.text.messages import completion_of, is_conversation, last_message, text_of
from factrl.types import Example, Passage

if TYPE_CHECKING:
    from factrl.runs.settings import DataSettings

ColumnName = Literal[
    "question", "answers", "id", "topic", "ook", "false_premise", "evidence", "checklist", "rejected"
]

# Tried in this order when the recipe names no column; dots reach into nested columns.
_USUAL: Mapping[ColumnName, tuple[str, ...]] = {
    "question": (
        *("question", "query", "problem", "reward_model.ground_truth.problem", "extra_info.question"),
        *("prompt", "messages"),
    ),
    "answers": (
        *("answers", "answer", "gold", "target", "golden_answers", "possible_answers", "ground_truth"),
        *("reward_model.ground_truth", "extra_info.answers"),
    ),
    "id": ("id", "_id", "interaction_id", "extra_info.id"),
    "topic": ("topic", "title", "extra_info.topic"),
    "ook": ("ook", "out_of_knowledge", "reward_model.ground_truth.out_of_knowledge"),
    "false_premise": ("false_premise", "extra_info.false_premise"),
    "evidence": ("evidence", "knowledge", "retrieved_chunks", "extra_info.evidence"),
    "checklist": ("checklist", "extra_info.checklist"),
    "rejected": ("rejected",),  # a worse completion, as TRL has it; an example's `meta` has it by this name
}
# A surrogate without its pair, which JSON can hold and UTF-8 cannot.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MORE_ANSWERS = ("alt_ans", "answer_aliases", "aliases")  # beside an answer: TruthRL's, MuSiQue's, TriviaQA's
_PARTS = ("value", "target", "answer", "answers", "aliases")  # of a table of answers: TriviaQA's, verl's
_PASSAGE = ("text", "chunk", "content")  # what a passage's text is called; chunks of TruthRL among them
_AS_TEXTS = 'a text, a number or a list of them (["1867", "1868"] are two, ["[0, 1]"] is one)'
_AS_EVIDENCE = "a text, a table with text, title and source, or a list of those"
# TruthRL shows chunks from these scores on; the first score that a chunk has decides.
_LEAST_SCORE = {"bge_score": 2.0, "oracle_score": 3.0}


def load_examples(
    source: str | Path,
    *,
    split: str = "train",
    subset: str | None = None,
    columns: Mapping[ColumnName, str] | None = None,
    limit: int | None = None,
    require_answers: bool = True,
) -> list[Example]:
    """The examples of a dataset, in its order.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "questions.csv")
    >>> _ = path.write_text("question,answer\\nWho wrote Emma?,Jane Austen\\n")
    >>> load_examples(path)[0].answers
    ('Jane Austen',)

    Args:
        source: a file, a folder with one file (or several parts) per split, or a hub id.
        split: which split of a folder or hub dataset.
        subset: configuration of a hub dataset.
        columns: our name -> the dataset's column; `""` means that the dataset has none.
        limit: read only the first so many rows.
        require_answers: refuse rows without a reference answer, except those on a false premise.

    Returns:
        Examples whose `meta` holds every column that was not used.  Rows without an id get one from
        their content, so that it stays the same when rows are added or removed.

    Raises:
        DataError: the dataset is missing, unreadable or lacks what it needs.
        MissingExtra: a hub id, and `datasets` is not installed.
    """
    rows = list(itertools.islice(read_rows(str(source), split, subset), limit))
    if not rows:
        raise DataError(f"{source} has no rows")
    names = _choose_columns(rows, columns or {}, str(source))
    for name in ("question", "answers") if require_answers else ("question",):
        if name not in names:
            there = _column_names(rows)
            if empty := next((column for column in _USUAL[name] if column in there), ""):
                raise DataError(
                    f"{source}: no row has anything usable as the {name} in its column {empty!r}; fill it, "
                    f"or name another with data.columns.{name}=..."
                )
            raise DataError(
                f"{source} has no column for the {name}; columns: {', '.join(there)}; say "
                f"which one it is with data.columns.{name}=..."
            )
    examples = [_example(row, names, f"{source}, row {number}") for number, row in enumerate(rows, start=1)]
    _check(examples, names, str(source), require_answers)
    return _with_ids(examples, names, str(source))


def load_training(
    data: DataSettings, *, limit: int | None = None, require_answers: bool = True
) -> list[Example]:
    """The examples of `data.train`, as `[data]` says that they are read.

    Args:
        limit: instead of `data.limit`.

    Raises:
        DataError, MissingExtra: as `load_examples`.
    """
    return load_examples(
        data.train,
        split=data.split,
        subset=data.subset,
        columns=data.columns,
        limit=limit or data.limit,
        require_answers=require_answers,
    )


def load_held_out(data: DataSettings) -> list[Example]:
    """All examples of `data.eval`; none where it names no dataset.

    Raises:
        DataError, MissingExtra: as `load_examples`.
    """
    if not data.eval:
        return []
    return load_examples(data.eval, split=data.eval_split, subset=data.subset, columns=data.columns)


def template_names(template: str) -> list[str]:
    """The column names in a prompt template.

    >>> template_names("Question: {question}")
    ['question']

    Raises:
        ConfigError: a brace without its partner, or anything but a plain name in braces.
    """
    names = []
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"data.prompt: {error}; write {{{{ and }}}} for literal braces") from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            shown = "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            raise ConfigError(
                f"data.prompt: {shown} is not a column name; write {{{{ and }}}} for literal braces"
            )
        names.append(name)
    return names


def render_prompt(example: Example, template: str) -> str:
    """The user's message: `template` with its column names replaced by the example's values.

    Args:
        example: supplies `question`, `id`, `topic`, its `meta` columns and `evidence`, which is written as
            numbered documents; never the answers or the checklist.  `asked_at` is a line with its column
            `query_time` (CRAG), and empty where it has none.
        template: text with column names in braces.  Values are inserted as they are: braces in a
            question are not read again, and no attribute of a value can be reached.

    >>> render_prompt(Example("Who wrote Emma?"), "Answer in a word. {question}")
    'Answer in a word. Who wrote Emma?'

    Raises:
        ConfigError: a malformed template, an unknown column, or a column that is neither text nor a number.
    """
    time = native(example.meta.get("query_time"))
    asked_at = f"Asked at: {time}\n" if time else ""
    values = {"asked_at": asked_at, **example.meta}
    values |= {"question": example.question, "id": example.id, "topic": example.topic}
    if example.evidence:
        values["evidence"] = documents(example.evidence)
    for name in template_names(template):
        if name not in values:
            shown = ", ".join(sorted(values.keys() - {"asked_at"}))
            remedy = "; factrl prepare retrieve finds passages for it" if name == "evidence" else ""
            raise ConfigError(
                f"data.prompt: {{{name}}} is no column of example {example.id!r}{nearest(name, values)}; "
                f"columns: {shown}{remedy}"
            )
        if (value := native(values[name])) is None or not isinstance(value, (str, int, float)):
            kind = (
                "empty; fill it, or leave the row out"
                if value is None
                else f"{type(value).__name__}, not text"
            )
            raise ConfigError(f"data.prompt: column {name} of example {example.id!r} is {kind}")
    text = template.format_map(values)
    half = _LONE_SURROGATE.search(text)
    if half is not None:
        raise DataError(
            f"the prompt of example {example.id!r} holds {half[0]!r}, half a character, which no model can "
            "read; mend that row or leave it out"
        )
    return text


def documents(passages: Sequence[Passage]) -> str:
    """Passages as TruthRL shows them to the policy: each in a `<DOC>` block, numbered from 1.

    >>> print(documents([Passage("It is in France.", "Paris")]))
    <DOC>
    Document [1]: Paris
    It is in France.
    </DOC>
    """
    shown = ("\n".join(filter(None, (passage.title, passage.text))) for passage in passages)
    return "\n".join(f"<DOC>\nDocument [{number}]: {text}\n</DOC>" for number, text in enumerate(shown, 1))


def to_example(row: Row, columns: Mapping[ColumnName, str] | None = None, at: str = "the row") -> Example:
    """One row of any dataset as an example; what it lacks stays empty.

    Args:
        columns: our name -> the row's column; `""` means that it has none.
        at: what an error calls the row.

    >>> to_example({"question": "Who wrote Emma?", "answer": "Jane Austen", "year": 1815}).answers
    ('Jane Austen',)

    Raises:
        DataError: a column holds a value of the wrong kind.
    """
    return _example(row, _choose_columns([row], columns or {}, at), at)


def columns_of(example: Example) -> dict[str, Any]:
    """An example as a row of JSON values under our names, which `to_example` reads back; without its `meta`.

    >>> columns_of(Example("Who wrote Emma?", ("Jane Austen",)))["answers"]
    ['Jane Austen']
    """
    return {
        "id": example.id,
        "question": example.question,
        "answers": [*example.answers],
        "topic": example.topic,
        "ook": example.ook,
        "false_premise": example.false_premise,
        "evidence": [{"text": p.text, "title": p.title, "source": p.source} for p in example.evidence],
        "checklist": [*example.checklist],
    }


def label_example(question: str, label: str) -> Example:
    """The example of a question with one text beside it, as OpenRLHF's datasets have it.

    Args:
        label: an accepted answer, a list of them, or a table with an example's columns; the last two in JSON.

    >>> label_example("Who wrote Emma?", '["Jane Austen", "Austen"]').answers
    ('Jane Austen', 'Austen')

    Raises:
        DataError: it cannot be read.
    """
    columns = _listed(label)
    usual = {column.partition(".")[0] for columns in _USUAL.values() for column in columns}
    if isinstance(columns, dict) and usual & columns.keys():
        return to_example({"question": question, **columns})
    return to_example({"question": question, "answers": label})


# Recognising columns


def _choose_columns(rows: Sequence[Row], given: Mapping[ColumnName, str], source: str) -> dict[str, str]:
    """Our name -> the dataset's column, for those that the dataset has."""
    for name in given:
        if name not in _USUAL:
            raise DataError(
                f"data.columns has no {name!r}{nearest(name, _USUAL)}; known: {', '.join(_USUAL)}"
            )
    chosen = {}
    for name in get_args(ColumnName):
        if name in given:
            column = given[name]
            if column and not any(_look_up(row, column) is not None for row in rows):
                known = _column_names(rows)
                raise DataError(
                    f"{source} has no column {column!r} (data.columns.{name}){nearest(column, known)}; "
                    f"columns: {', '.join(known)}"
                )
        else:
            fits = (c for c in _USUAL[name] if any(_fits(name, native(_look_up(row, c)), c) for row in rows))
            first = next(fits, "")
            filled = (
                c for c in (first, *fits) if any(native(_look_up(row, c)) not in _EMPTY for row in rows)
            )
            column = first and next(filled, first)
        if column:
            chosen[name] = column
    return chosen


def _fits(name: ColumnName, value: Any, column: str) -> bool:
    """Whether a value fits the meaning of a column with a usual name."""
    if name == "question" and is_conversation(value):
        return True
    if name in ("question", "topic"):
        return isinstance(value, str)
    if name not in ("evidence", "checklist") or column == name:  # what our own name holds is read or refused
        return value is not None
    named = {*_PASSAGE} if name == "evidence" else set[str]()
    cells = value if isinstance(value, list) else [value]
    return value is not None and all(
        c is None or isinstance(c, str) or (isinstance(c, Mapping) and named & c.keys()) for c in cells
    )


def _look_up(row: Row, column: str) -> Any:
    if column in row:
        return row[column]
    value: Any = row
    for part in column.split("."):
        value = native(value) if value is not row and not isinstance(value, Mapping) else value
        value = _listed(value)  # a table may be written in JSON
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _column_names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


# Building examples


def _example(row: Row, names: Mapping[str, str], at: str) -> Example:
    beside = _MORE_ANSWERS if names.get("answers") in _BESIDE_THEM else ()
    used = {*names.values(), *beside}

    def value(name: ColumnName) -> Any:
        return native(_look_up(row, names[name])) if name in names else None

    question, topic, given_id = value("question"), value("topic"), value("id")
    if (last_turn := _last_question(question)) is not None:
        question = last_turn
        if not question.strip():
            raise DataError(f"{at}: {names['question']} has no message of a user with text")
    if isinstance(given_id, float) and given_id.is_integer():  # as data frames write numbers
        given_id = int(given_id)
    for name, text in (("question", question), ("topic", topic)):
        if text is not None and not isinstance(text, str):
            hint = ", and no list of messages with a user's" if isinstance(text, (list, dict)) else ""
            raise DataError(f"{at}: {names[name]} is a {type(text).__name__}, not text{hint}")
    if given_id is not None and not isinstance(given_id, (str, int)):
        raise DataError(f"{at}: {names['id']} is a {type(given_id).__name__}, not text")
    answers = _answers(value("answers"), f"{at}: {names.get('answers')}")
    for more in beside:
        answers += _answers(native(row.get(more)), f"{at}: {more}")
    evidence = _evidence(value("evidence"), f"{at}: {names.get('evidence')}")
    # An empty list means that a search found nothing; a row without the column was not searched for.
    shown = {"evidence": ""} if value("evidence") is not None and not evidence else {}
    shown |= {"rejected": value("rejected")} if "rejected" in names else {}
    others = {column: content for column, content in row.items() if column not in used}
    for table in (row, row.get("extra_info")):  # what `prepare convert` has put into one text
        meta = table["meta"] if isinstance(table, Mapping) and table.keys() >= _CONVERTED else None
        if isinstance(meta, str) and isinstance(kept := _listed(meta), dict):
            others = {column: others[column] for column in others if column != "meta"} | kept
    if "answerable" in others:
        shown["answerable"] = read_flag(others["answerable"], f"{at}: answerable")
    return Example(
        question=(question or "").strip(),
        answers=tuple(dict.fromkeys(answers)),
        id="" if given_id is None else str(given_id),
        topic=topic or "",
        ook=read_flag(value("ook"), f"{at}: {names.get('ook')}"),
        false_premise=read_flag(value("false_premise"), f"{at}: {names.get('false_premise')}"),
        evidence=evidence,
        checklist=_texts(_listed(value("checklist")), f"{at}: {names.get('checklist')}"),
        meta=others | shown,
    )


def _last_question(cell: Any) -> str | None:
    """The last message of the user in a conversation, also in one in JSON; None of other cells."""
    messages = _listed(cell)
    if not is_conversation(messages):
        return None
    return text_of(last_message(messages, "user"))


def _answers(value: Any, where: str) -> tuple[str, ...]:
    """Accepted answers in a cell: text, a number, a list of those, or a table of them such as TriviaQA's."""
    if isinstance(value, str):
        value = _parsed(value, where)
    if is_conversation(value):  # the better completion of a pair, as TRL has it
        return _texts(text_of(last_message(value, "assistant")), where)
    if isinstance(value, Mapping):
        parts = [value[name] for name in _PARTS if name in value]
        if not parts and any(native(inner) not in _EMPTY for inner in value.values()):
            raise _odd(value, where)
        return tuple(itertools.chain.from_iterable(_answers(part, where) for part in parts))
    stated = (
        marked[1].strip() if (marked := _MARKED.search(text)) else text for text in _texts(value, where)
    )
    return tuple(text for text in stated if text)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    """The texts and numbers of a cell, which holds one or a list of them."""
    texts = []
    while isinstance(value, list) and len(value) == 1:
        inner = _listed(value[0])
        if not isinstance(inner, (list, Mapping)):
            break
        if isinstance(inner, Mapping) and {*_PARTS} & inner.keys():
            return _answers(inner, where)
        value = inner
    for cell in value if isinstance(value, list) else [value]:
        if cell is None:
            continue
        # Data frames write 1867 as 1867.0.
        if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT:
            cell = int(cell)
        is_number = isinstance(cell, (int, float, Decimal)) and math.isfinite(cell)
        if isinstance(cell, bool) or not (is_number or isinstance(cell, str)) or _listed(cell) is not cell:
            raise _odd(value, where)
        texts.append(str(cell).strip())
    return tuple(text for text in texts if text)


def _odd(value: Any, where: str, wanted: str = _AS_TEXTS) -> DataError:
    """The error for a cell that holds something else, or what could mean two things."""
    column = where.rpartition(" ")[2]
    mended = f"ast.literal_eval(row[{column!r}])" if isinstance(value, str) else "…"
    return DataError(
        f"{where} is {str(value)[:80]!r}, not {wanted}; name a part of it, data.columns.NAME={column}.PART, "
        f"or mend it, e.g. rows.map(lambda row: {{{column!r}: {mended}}})"
    )


# Cells as other tools write them


def read_flag(cell: Any, where: str) -> bool | None:
    """A cell that is true, false or empty.

    >>> read_flag("False", "ook")
    False

    Raises:
        DataError: it is something else.
    """
    word = "" if (cell := native(cell)) is None else str(cell).strip().lower()
    if word not in _FLAGS:
        raise DataError(f"{where} is {cell!r}, not true or false")
    return _FLAGS[word]


def unpacked(cell: Any) -> Any:
    """A cell in Python's own types; of a text that spells a list with texts or tables, or a table, that one.

    >>> unpacked('[{"text": "Rome"}]')
    [{'text': 'Rome'}]
    """
    return _listed(native(cell))


def table_of(cell: Any, where: str) -> dict[str, Any]:
    """The columns of a table in a cell, which may be in JSON; none of an empty one.

    >>> table_of('{"topic": "Emma"}', "extra_info")
    {'topic': 'Emma'}

    Raises:
        DataError: it is no table.
    """
    value = cell if isinstance(cell, Mapping) else _listed(native(cell))
    if not isinstance(value, Mapping) and value not in (None, "", "{}"):
        raise DataError(f"{where} is a {type(value).__name__}, not a table: {str(value)[:80]!r}")
    return dict(value or {}) if isinstance(value, Mapping) else {}


def read_completion(cell: Any, where: str, *, spelled: bool = False) -> str | None:
    """What a policy wrote, in a cell: a text, or a conversation whose last message it is.

    >>> read_completion([{"role": "assistant", "content": "Warsaw"}], "row 1")
    'Warsaw'

    Args:
        spelled: a conversation may be in JSON, as a .csv has it.

    Raises:
        DataError: it is something else than text.
    """
    value = _listed(cell) if spelled else native(cell)
    if is_conversation(value):
        message = last_message(value, "assistant")
        return None if message is None else completion_of(message)
    if value is None:
        return None
    if isinstance(cell, str):
        return cell
    raise DataError(
        f"{where} is {str(value)[:80]!r}, not text or null; write the text, or messages with role and content"
    )


def native(value: Any) -> Any:
    """A cell in Python's own types: arrays and tuples are lists, NaN is None.

    >>> native({"answers": ("Rome",), "year": float("nan")})
    {'answers': ['Rome'], 'year': None}
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {key: native(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [native(inner) for inner in value]
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return None
    if str(getattr(value, "dtype", "")) == "float32" and hasattr(value, "astype"):  # 0.1, not 0.10000000149
        value = value.astype(str).astype(float)
    read = next((getattr(value, name) for name in ("tolist", "as_py") if hasattr(value, name)), None)
    return value if read is None else native(read())


_EMPTY = (None, "", [], {})  # a .csv has no other way to say that there is nothing
_CONVERTED = {*get_args(ColumnName), "meta"} - {"rejected"}  # the columns of a row of `prepare convert`
_EXACT = 2**53  # every integer below this is exact as a float
_FLAGS: Mapping[str, bool | None] = {
    "": None,
    **dict.fromkeys(("0", "0.0", "false"), False),
    **dict.fromkeys(("1", "1.0", "true"), True),
}
_MARKED = re.compile(r"(?:\A|\n)[ \t]*####([^\n]*)\Z")  # GSM8K's answer, behind the solution
_BESIDE_THEM = frozenset(name for name in _USUAL["answers"] if "." not in name)


def _parsed(text: str, where: str) -> Any:
    """A list or a table that a text spells in JSON; the text where it spells none.

    Raises:
        DataError: it begins like one and is no JSON, or is a list of numbers, which could be an interval.
    """
    value = _listed(text)
    if isinstance(value, (list, dict)):
        return value
    body = text.strip()
    whole = _in_json(body)
    if isinstance(whole, list) and len(whole) == 1 and not isinstance(whole[0], (list, dict)):
        return whole
    if isinstance(whole, list) or (body.startswith(("[", "{")) and body[1:].lstrip().startswith(("'", '"'))):
        raise _odd(text, where)
    return text


def _listed(text: Any) -> Any:
    """A list with texts or tables in it, or a table, that a text spells in JSON; anything else is itself.

    A list of numbers alone stays text: it may be an interval.
    """
    if not isinstance(text, str):
        return text
    value = _in_json(text.strip())
    if isinstance(value, str):  # JSON that was written as JSON
        return inner if (inner := _listed(value)) is not value else text
    if isinstance(value, list) and (not value or _has_text(value)):
        return value
    return value if isinstance(value, dict) and value else text


def _has_text(value: Any) -> bool:
    return isinstance(value, (str, dict)) or (isinstance(value, list) and any(map(_has_text, value)))


def _in_json(body: str) -> Any:
    """The list, table or text that a text spells in JSON; None where it spells none."""
    try:
        return json.loads(body) if body.startswith(("[", "{", '"[', '"{')) else None
    except (ValueError, RecursionError):
        return None


def _evidence(value: Any, where: str) -> tuple[Passage, ...]:
    """Passages in a cell: a text, or a list of texts or of tables with `text`, maybe `title` and `source`.

    Chunks that TruthRL's retrieval scored too low to be shown are left out, as there.
    """
    passages = []
    value = _listed(value) or None  # {} of SciFact is none
    if isinstance(value, Mapping) and (apart := _rows_of(value)) is not None:
        value = apart
    for cell in value if isinstance(value, list) else [value]:
        part = cell if isinstance(cell, Mapping) else {"text": cell}
        scored = next((name for name in _LEAST_SCORE if isinstance(part.get(name), (int, float))), None)
        if scored and part[scored] < _LEAST_SCORE[scored]:
            continue
        called = next((name for name in _PASSAGE if part.get(name)), "text")
        text, title, source = (part.get(name) or "" for name in (called, "title", "source"))
        is_text = all(isinstance(words, str) for words in (text, title, source))
        if not is_text or (isinstance(cell, Mapping) and not cell.keys() & {*_PASSAGE}):
            raise _odd(cell, where, _AS_EVIDENCE)
        if text.strip():
            passages.append(Passage(text.strip(), title.strip(), source.strip()))
    return tuple(passages)


def _rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of a table whose columns are equally long, as `datasets` stores lists of tables; else None."""
    columns = {name: cells for name, cells in table.items() if isinstance(cells, list)}
    if not {*_PASSAGE} & columns.keys() or len({*map(len, columns.values())}) != 1:
        return None
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _check(examples: Sequence[Example], names: Mapping[str, str], source: str, require_answers: bool) -> None:
    numbered = list(enumerate(examples, start=1))
    lacking = {"question": [(n, one) for n, one in numbered if not one.question]}
    if require_answers:
        lacking["answers"] = [(n, one) for n, one in numbered if not (one.answers or one.false_premise)]
    for name, rows in lacking.items():
        if rows:
            number, first = rows[0]
            raise DataError(
                f"{source}: no {name} in {len(rows)} of {len(examples)} rows, first in row {number}"
                f"{f' (id {first.id})' if first.id else ''}, column {names[name]!r}; "
                f"remove those rows or name another column with data.columns.{name}=..."
            )


def _with_ids(examples: Sequence[Example], names: Mapping[str, str], source: str) -> list[Example]:
    seen: dict[str, int] = {}
    result = []
    for number, example in enumerate(examples, start=1):
        if example.id in seen and example.id:
            raise DataError(
                f"{source}: rows {seen[example.id]} and {number} have the same id {example.id!r}; "
                f"name a column with unique ids as data.columns.id=..., "
                f"or ignore the column {names['id']!r} with data.columns.id=''"
            )
        if not example.id:
            content = json.dumps([example.question, example.answers]).encode()
            digest = hashlib.sha256(content).hexdigest()[:16]
            copies = (f"{digest}-{copy}" for copy in itertools.count(2))
            free = next(name for name in itertools.chain([digest], copies) if name not in seen)
            example = dataclasses.replace(example, id=free)
        seen[example.id] = number
        result.append(example)
    return result
