"""`factrl prepare questions`: the questions and facts of the studies' small world as files."""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factrl.prepare.dataset import lines_of
from factrl.runs.disk import check_free, nothing, write_whole
from factrl.studies import StartSettings
from factrl.studies.world import PARTS, PREFILLS, PROMPTS, Part, Task, World, open_world, target
from factrl.types import Example
from factrl.verifier.judges import Table
from factrl.verifier.judges.table import ALIASES, sentence

from .options import Verbs, a_seed, add_verb
from .terminal import say

_FILES: dict[str, Task] = {"": "reasoned", "profiles-": "profile"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "prepare questions",
        _run,
        about="write the studies' small world: questions on countries and cities, and the facts behind them",
        example="example:\n  factrl prepare questions --output questions\n"
        "writes warm.jsonl, train.jsonl and test.jsonl, each about other entities, with what is known of an\n"
        "entity as evidence; profiles-warm.jsonl and so on, which ask for all that is known of an entity,\n"
        "with its facts as checklist; in both of warm a column `reasoned`, a text as the studies teach it,\n"
        "of whose answers a share declines, at random; and, without --table, facts.csv, which is for\n"
        "verifier.judge=table:facts.csv and factrl study --table",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the files")
    parser.add_argument("--table", metavar="FILE", help="your own facts: entity,relation,value")
    parser.add_argument("--seed", metavar="N", type=a_seed, default=0, help="seed of the split (default: 0)")


def _run(args: argparse.Namespace) -> int:
    world = open_world(args.table, args.seed)
    folder = Path(args.output)
    # A table of the user's is there already, and could hold what a spreadsheet would run.
    contents = {} if args.table else {folder / "facts.csv": facts_of(world.table)}
    for before, task in _FILES.items():
        for part in PARTS:
            contents[folder / f"{before}{part}.jsonl"] = lines_of(rows(world, task, part, args.seed))
    for path, content in contents.items():  # all of them, before the first is written
        check_free(path, lambda there, content=content: there.read_bytes() == content)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_whole(path, content, nothing)
    say(args.output)
    return 0


def rows(world: World, task: Task, part: Part, seed: int) -> Iterator[dict[str, Any]]:
    """The questions of a task about the entities of a part, as rows of a dataset."""
    draw, decline = random.Random(f"{task} {seed}"), StartSettings().decline
    for one in world.examples(task, part, seed):
        row = {"id": one.id, "question": _asked(task, one), "answers": [*one.answers], "topic": one.topic}
        row["evidence"] = [{"title": each.title, "text": each.text} for each in one.evidence]
        if task == "profile":
            facts = world.table.statements(one.topic)
            row["checklist"] = [sentence(fact, named=True) for fact in facts]
        if part == "warm":
            row["reasoned"] = PREFILLS[task] + target(task, one, world.table, draw, decline)
        yield row


def _asked(task: Task, example: Example) -> str:
    return PROMPTS[task].format(question=example.question) if task == "profile" else example.question


def facts_of(table: Table) -> bytes:
    """A table of facts as the CSV file that `Table.read` reads."""
    lines = [("entity", "relation", "value", "several")]
    for entity, facts in table.facts.items():
        for relation, values in facts.items():
            several = "yes" if relation in table.several else ""
            lines += [(entity, relation, ALIASES.join(value), several) for value in values]
    quoted = (",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in line) for line in lines)
    return "".join(f"{line}\n" for line in quoted).encode()
