"""An exact verifier: plain sentences are parsed and compared with a table of facts.

    table = Table.read("facts.csv")                     # entity,relation,value
    verify = open_verifier(judge="table:facts.csv")     # the same by name
    verify("Its capital is Osaka.", topic="Japan").counts["refuted"]      # 1

A sentence has one of three forms: "Its capital is Tokyo.", "The capital of Japan is Tokyo." and "Japan's
capital is Tokyo."; "its" is the topic, or the entity that the passage is titled with.  Everything else states
nothing that the table knows, and is `unknown`.  There is no model and no threshold in it, so what a reward
teaches is not mixed up with what a judge gets wrong; it judges real texts not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.runs.rows import read_separated
from factrl.text.sentences import Sentence, sentences
from factrl.types import Claim, Passage, Verdict

ALIASES = "|"  # between the spellings of a value in a file; the first is the one that is written
_YES, _NO = {"yes", "true", "1", "1.0"}, {"no", "false", "0", "0.0", ""}
_COLUMNS = ("entity", "relation", "value", "several")


@dataclass(frozen=True, slots=True)
class Statement:
    """What a sentence in one of the forms says; without an entity where it says "its"."""

    entity: str
    relation: str
    value: str


class Table:
    """Facts about entities.

    Args:
        rows: (entity, relation, spellings of the value, the first the usual one).
        several: relations that may have several values, such as neighbours; all others have one.

    Raises:
        DataError: a row is empty, or a relation with one value has two for an entity.
    """

    def __init__(self, rows: Iterable[tuple[str, str, Sequence[str]]], several: Collection[str] = ()) -> None:
        many = {*map(_key, several)}
        self.facts: dict[str, dict[str, list[tuple[str, ...]]]] = {}
        usual: dict[str, str] = {}  # "Japan" and "japan" are one
        for entity, relation, values in rows:
            values = [" ".join(value.split()) for value in values]  # a cell of Excel may have two lines
            entity, relation = (" ".join(name.split()) for name in (entity, relation))
            entity, relation = (usual.setdefault(_key(name), name) for name in (entity, relation))
            if not (entity and relation and values and all(values)):
                row = (entity, relation, *values)
                raise DataError(
                    f"the table has an empty cell in the row {row!r}; fill it or leave the row out"
                )
            held = self.facts.setdefault(entity, {}).setdefault(relation, [])
            if tuple(values) in held:
                continue
            if held and _key(relation) not in many:
                raise DataError(
                    f"{entity!r} has two values for {relation!r}, {held[0][0]!r} and {values[0]!r}; give "
                    f"one, write spellings of one value as {held[0][0]}{ALIASES}{values[0]}, or put yes into "
                    "the column `several`"
                )
            held.append(tuple(values))
        if not self.facts:
            raise DataError("the table has no facts")
        self.several = frozenset(r for facts in self.facts.values() for r in facts if _key(r) in many)
        judge = TableJudge(self)
        for entity in self.facts:
            for one in self.statements(entity):
                if (shown := judge.unread(one)) is not None:
                    raise DataError(
                        f"no judge can read {shown!r} as {one.relation!r} of {entity!r}; rename one of "
                        "them, or leave the row out"
                    )

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """A CSV or TSV file with the columns entity, relation, value and, where wanted, several (yes).

        Raises:
            DataError: the file is not there, lacks a column, or as `Table` says.
        """
        try:
            held = list(read_separated(Path(path)))
        except UnicodeDecodeError as error:
            raise DataError(f"the table {str(path)!r} is not UTF-8 text; save it as UTF-8") from error
        except OSError as error:
            raise DataError(f"the table {str(path)!r} cannot be read: {error}") from error
        if not held:
            raise DataError(f"the table {str(path)!r} has no rows")
        names = {name: name.strip().lower() for name in held[0]}  # whatever their capitals
        names = {name: usual for name, usual in names.items() if usual in _COLUMNS}
        if missing := sorted({*_COLUMNS[:3]} - {*names.values()}):
            raise DataError(
                f"the table {str(path)!r} has no column {missing[0]!r}; it has {', '.join(held[0])}. Its "
                "first line must be entity,relation,value, with commas in a .csv and tabs in a .tsv file"
            )
        if len({*names.values()}) < len(names):
            raise DataError(f"the table {str(path)!r} has two columns of one name: {', '.join(names)}")
        # A gap is empty, or nan where pandas wrote text.
        cells = [{usual: row[name].strip() for name, usual in names.items()} for row in held]
        rows = [{k: "" if v in ("nan", "NaN") else v for k, v in row.items()} for row in cells]
        for line, row in enumerate(rows, start=2):
            if (word := row.get("several", "").lower()) not in _YES | _NO:
                raise DataError(f"the table {str(path)!r}, line {line}: several is {word!r}; write yes or no")
        rows = [row for row in rows if any(row.values())]  # Excel leaves ,, behind
        several = {row["relation"] for row in rows if row.get("several", "").lower() in _YES}
        values = ([v.strip() for v in row["value"].split(ALIASES)] for row in rows)
        facts = ((row["entity"], row["relation"], value) for row, value in zip(rows, values, strict=True))
        try:
            return cls(facts, several)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    def to_csv(self) -> bytes:
        """The file that `Table.read` reads."""
        lines = [("entity", "relation", "value", "several")]
        for entity, facts in self.facts.items():
            for relation, values in facts.items():
                several = "yes" if relation in self.several else ""
                lines += [(entity, relation, ALIASES.join(value), several) for value in values]
        quoted = (",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in line) for line in lines)
        return "".join(f"{line}\n" for line in quoted).encode()

    @property
    def relations(self) -> list[str]:
        """Every relation, in the order of the rows."""
        return list(dict.fromkeys(relation for facts in self.facts.values() for relation in facts))

    def statements(self, entity: str) -> list[Statement]:
        """Every fact of an entity, with the usual spelling."""
        facts = self.facts[entity]
        return [Statement(entity, relation, value[0]) for relation in facts for value in facts[relation]]

    def document(self, entity: str, relations: Collection[str] | None = None) -> Passage:
        """The facts of an entity as sentences, titled with it; of these relations alone where given."""
        statements = (s for s in self.statements(entity) if relations is None or s.relation in relations)
        return Passage(" ".join(map(sentence, statements)), title=entity)

    def find(self, name: str) -> str | None:
        """The entity of this name, whatever its case, with or without "the"."""
        return self._names.get(_key(name))

    @cached_property
    def stopped(self) -> Sequence[str]:
        """Entities and values with the sign of a sentence's end in them, up to their last letter."""
        names = {name.rstrip(_STOPS) for name in (*self.facts, *self._spellings)}
        return sorted((name for name in names if not {*_STOPS}.isdisjoint(name)), key=len, reverse=True)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {_key(entity): entity for entity in self.facts}

    def parse(self, text: str) -> Statement | None:
        """What a sentence says, if it has one of the forms and a relation of the table."""
        stated, denied = self.read_sentence(text)
        return None if denied else stated

    def read_sentence(self, text: str) -> tuple[Statement | None, bool]:
        """What a sentence says or denies, if it has one of the forms, and whether it denies it."""
        body = " ".join(text.split())
        body = body[:-1].rstrip() if body.endswith((".", "!")) else body
        for form in self._forms:
            if match := form.fullmatch(body):
                relation = self._relations.get(_key(match["relation"]))
                return (None, False) if relation is None else self._statement(relation, match)
        return None, False

    def _statement(self, relation: str, match: re.Match[str]) -> tuple[Statement | None, bool]:
        """The statement of a sentence in one of the forms; none where its value is several, or a question."""
        entity, value = match.groupdict().get("entity", ""), match["value"]
        # "is" may be a part of the entity's name, as in Life Is Beautiful: the longest name of the table.
        splits = [(entity, value)] if entity else []
        for verb in _VERB.finditer(value) if match.re is self._forms[1] else ():
            longer = match.string[match.start("entity") : match.start("value") + verb.start()]
            splits.append((longer, value[verb.end() :]))
        entity, value = next((one for one in reversed(splits) if self.find(one[0])), (entity, value))
        denied = bool(match["denied"])
        if _key(value) not in self._values:
            value, denials = _DENIED.subn("", value)
            denied = denied or denials > 0
            if _NO_VALUE.search(value) or (relation in self.several and _LISTED.search(value)):
                return None, False
        return Statement(entity.strip(), relation, value.strip()), denied

    @cached_property
    def _values(self) -> frozenset[str]:
        """The keys of all spellings of all values."""
        return frozenset(map(_key, self._spellings))

    @property
    def _spellings(self) -> Iterator[str]:
        facts = self.facts.values()
        return (v for of_entity in facts for held in of_entity.values() for value in held for v in value)

    @cached_property
    def _relations(self) -> Mapping[str, str]:
        return {_key(relation): relation for relation in self.relations}

    @cached_property
    def _forms(self) -> Sequence[re.Pattern[str]]:
        names = "|".join(re.escape(r) for r in sorted(self.relations, key=len, reverse=True))
        relation, value = rf"(?P<relation>{names})", r"(?:is|are|was|were)(?P<denied>n['’]t)? (?P<value>.+)"
        return [
            re.compile(rf"(?:its|his|her|their) {relation} {value}", re.IGNORECASE),
            re.compile(rf"the {relation} of (?P<entity>.+?) {value}", re.IGNORECASE),
            re.compile(rf"(?P<entity>.+?)['’]s {relation} {value}", re.IGNORECASE),
        ]

    def same(self, entity: str, relation: str, one: str, other: str) -> bool:
        """Whether two spellings are of one value of an entity: of Canada's is "dollar", but not "US dollar".

        Of an entity that the table has not, spellings of any are one.
        """
        a, b, found = _key(one), _key(other), self.find(entity)
        held = [self.facts[found]] if found else self.facts.values()
        return a == b or any({a, b} <= {*map(_key, v)} for facts in held for v in facts.get(relation, ()))

    def usual(self, entity: str, relation: str, value: str) -> str:
        """The key of the first spelling of a value of an entity; of what the table has not, its own."""
        found, key = self.find(entity), _key(value)
        return self._usual.get((found or "", relation, key), key)

    @cached_property
    def _usual(self) -> Mapping[tuple[str, str, str], str]:
        keys = dict[tuple[str, str, str], str]()
        for entity, facts in self.facts.items():
            for relation, held in facts.items():
                for value in held:
                    for spelling in value:
                        for of in (entity, ""):  # of an entity that the table has not, those of any
                            keys.setdefault((of, relation, _key(spelling)), _key(value[0]))
        return keys


def sentence(statement: Statement, *, named: bool = False) -> str:
    """A statement as a sentence, about "its" or about the entity by name."""
    subject = f"The {statement.relation} of {statement.entity}" if named else f"Its {statement.relation}"
    return f"{subject} is {statement.value.removesuffix('.')}."


class TableJudge:
    """A `Judge`, a `Search` and an extractor in one; `open_verifier(judge="table:facts.csv")` uses all three.

    A claim is held against the passages beside it: `supported` where one states it, `refuted` where they
    state another value of its relation, else `unknown`.  So evidence that is cut to what a question needs
    leaves the rest unknown.  A text that gives two values for a relation that has one states both of them,
    and both sentences are refuted, as is an item of a checklist held against such a text; or a policy would
    learn to name all that is likely.

    Args:
        table: tells relations, spellings and which relations have several values.
    """

    weak = False
    per_call = 1024

    def __init__(self, table: Table) -> None:
        self.table = table
        facts = json.dumps([sorted(table.several), table.facts], sort_keys=True, ensure_ascii=False)
        self.identity = f"table {hashlib.sha256(facts.encode()).hexdigest()[:12]}"
        self._stated = lru_cache(4096)(self._statements_of)

    def extract(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """Every sentence as a claim that names its entity; a statement counts once, in whatever words."""
        units = [(n, unit, text[unit.start : unit.end]) for n, unit in enumerate(self._sentences(text))]
        parsed = [self.table.parse(words) for _, _, words in units]
        named = [one and replace(one, entity=one.entity or topic) for one in parsed]
        keys = [one and (_key(one.entity), one.relation) for one in named]
        usual = [one and self.table.usual(one.entity, one.relation, one.value) for one in named]
        values = defaultdict[Any, dict[str, str]](dict)
        for one, key, spelling in zip(named, keys, usual, strict=True):
            if one is not None and one.relation not in self.table.several:
                values[key].setdefault(spelling or "", one.value)
        claims: list[Claim] = []
        seen: set[Any] = set()
        for (number, unit, words), one, key, spelling in zip(units, named, keys, usual, strict=True):
            text, said = words.strip(), (key, spelling) if one else _key(words)
            if one is not None:
                both = values.get(key, {})
                value = " and at once ".join(both.values()) if len(both) > 1 else one.value
                text = sentence(replace(one, value=value), named=bool(one.entity))
            claims.append(Claim(text, unit.start, unit.end, number, "repeat" if said in seen else None))
            seen.add(said)
        return claims

    def unread(self, statement: Statement) -> str | None:
        """A sentence in which this judge does not find a statement of its table; None where it reads all."""
        for named in (True, False):
            shown = sentence(statement, named=named)
            claims = self.extract(shown, topic=statement.entity)
            verdicts = self.judge([(claim, [Passage(shown, statement.entity)]) for claim in claims])
            back = self.table.parse(claims[0].text)
            same = back and all(_key(getattr(back, n)) == _key(getattr(statement, n)) for n in _PARTS)
            if not same or [verdict.label for verdict in verdicts] != ["supported"]:
                return shown
        return None

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every claim, in their order."""
        return [self._verdict(claim, passages) for claim, passages in pairs]

    def _verdict(self, claim: Claim, passages: Sequence[Passage]) -> Verdict:
        one = self.table.parse(claim.text)
        if one is None:
            return Verdict("unknown", self.identity, cause="no_form")
        about = [
            (number, start, end, stated, denied)
            for number, passage in enumerate(passages)
            for start, end, stated, denied in self._stated(passage.text, passage.title)
            if stated.relation == one.relation
            and (not one.entity or not stated.entity or _key(stated.entity) == _key(one.entity))
        ]
        denials = [row for row in about if row[4] and self._same(one, row[3])]
        about = [row for row in about if not row[4]]
        if not about and not denials:
            return Verdict("unknown", self.identity, cause="no_evidence")
        holds = [row for row in about if self._same(one, row[3])]
        if denials or (one.relation not in self.table.several and self._disagree(about)):
            holds = []
        number, start, end, *_ = (holds or denials or about)[0]
        label = "supported" if holds else "refuted"
        return Verdict(label, self.identity, p=float(bool(holds)), quote=(number, start, end))

    def _disagree(self, stated: Sequence[tuple[int, int, int, Statement, bool]]) -> bool:
        """Whether one passage states two values: a text that names all that is likely has none of them."""
        return any(
            number == other and not self._same(one, two)
            for (number, _, _, one, _), (other, _, _, two, _) in pairwise(stated)
        )

    def _same(self, one: Statement, stated: Statement) -> bool:
        return self.table.same(stated.entity or one.entity, one.relation, stated.value, one.value)

    def _statements_of(self, text: str, title: str) -> list[tuple[int, int, Statement, bool]]:
        read = [
            (unit, *self.table.read_sentence(text[unit.start : unit.end])) for unit in self._sentences(text)
        ]
        return [
            (unit.start, unit.end, replace(one, entity=one.entity or title), denied)
            for unit, one, denied in read
            if one is not None
        ]

    def _sentences(self, text: str) -> list[Sentence]:
        """With the names of the table whole ("St. Lucia" ends no sentence), and without tags."""
        text = _TAG.sub(lambda tag: "\n" * len(tag[0]), text)
        for name in self.table.stopped:
            if name in text:
                text = text.replace(name, name.translate(_WITHOUT_STOPS))
        return sentences(text)

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The document of the entity that the claim names, else of the topic."""
        one = self.table.parse(query)
        entity = self.table.find((one and one.entity) or topic)
        return [] if entity is None else [self.table.document(entity)]


_PARTS = ("entity", "relation", "value")
_STOPS = ".!?"
_WITHOUT_STOPS = str.maketrans(_STOPS, "xxx")
_TAG = re.compile(r"<\s*(?:/\s*)?\w+\s*/?>")  # `<answer>`, `</answer >`, `<b>`
_VERB = re.compile(r" (?:is|are|was|were) ", re.I)
_DENIED = re.compile(r"^(?:not|no longer|never) ", re.I)
_NO_VALUE = re.compile(r"^(?:neither|either)\b|\?$|, (?:which|who|where|whose|but|and|or|not)\b", re.I)
_LISTED = re.compile(r",| and | or |;")
_SIGNS = str.maketrans("‘’‐‑–—", "''----")
_MARKED = re.compile(r"""^(["*_`“„]{1,3})(.+?)["*_`“”]{1,3}$""")


@lru_cache(maxsize=65_536)
def _key(name: str) -> str:
    """A name for comparison: case, white space, quotes, a leading "the" and a last period do not count."""
    plain = _MARKED.sub(r"\2", unicodedata.normalize("NFC", name).translate(_SIGNS).casefold())
    return " ".join(plain.split()).removeprefix("the ").rstrip(".") or name
