"""`factrl prepare questions`: the small world's questions as files, to try things with."""

from __future__ import annotations

import argparse
import csv
import io
import random
from pathlib import Path
from typing import Any

from factrl.prepare.dataset import lines_of
from factrl.runs.disk import check_free, nothing, write_whole
from factrl.studies.world import PARTS, TASKS, World, open_world, target
from factrl.verifier.judges.table import ALIASES, sentence

from .options import Verbs, a_seed, add_verb
from .terminal import say

_DECLINED = 0.15  # of the answers of a warm start, drawn at random


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "prepare questions",
        _run,
        about="write the questions of the studies' small world: countries and cities, or your own table",
        example="examples:\n  factrl prepare questions --output questions\n"
        "  factrl prepare questions --output questions --table facts.csv   # entity,relation,value\n"
        "writes facts.csv, the table of verifier.judge=table:facts.csv, and for each task (short, reasoned,\n"
        "profile) TASK-warm.jsonl, TASK-train.jsonl and TASK-test.jsonl, each about other entities:\n"
        "question, answers, topic, the entity's facts as evidence and checklist, and for the warm start a\n"
        "true response in the form of the task, of which one in seven declines, drawn at random.",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the files")
    parser.add_argument("--table", metavar="FILE", help="your own facts: entity,relation,value[,several]")
    seed = "seed of the split (default: 0)"
    parser.add_argument("--seed", metavar="N", type=a_seed, default=0, help=seed)


def _run(args: argparse.Namespace) -> int:
    write_questions(Path(args.output), open_world(args.table, args.seed), args.seed)
    say(args.output)
    return 0


def write_questions(folder: Path, world: World, seed: int = 0) -> None:
    """Write all files of `factrl prepare questions`; none where another file has the name of one."""
    contents = {folder / "facts.csv": _facts(world).encode()}
    for task in TASKS:
        for part in PARTS:
            draw, rows = random.Random(f"{task} {seed}"), list[dict[str, Any]]()
            for one in world.examples(task, part, seed):
                facts = [sentence(s, named=True) for s in world.table.statements(one.topic)]
                row = {"id": one.id, "question": one.question, "topic": one.topic, "checklist": facts}
                row |= {"answers": list(one.answers)} if one.answers else {}
                row |= {"evidence": [{"title": p.title, "text": p.text} for p in one.evidence]}
                if part == "warm":
                    row["response"] = target(task, one, world.table, draw, _DECLINED)
                rows.append(row)
            contents[folder / f"{task}-{part}.jsonl"] = lines_of(rows)
    for path, content in contents.items():  # all of them, before the first is written
        check_free(path, lambda there, content=content: there.read_bytes() == content)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_whole(path, content, nothing)


def _facts(world: World) -> str:
    """The table as `Table.read` takes it."""
    table, text = world.table, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["entity", "relation", "value", "several"])
    for entity, facts in table.facts.items():
        for relation, values in facts.items():
            several = "yes" if relation in table.several else ""
            writer.writerows([entity, relation, ALIASES.join(value), several] for value in values)
    return text.getvalue()
