"""`factrl prepare questions`: real short questions, and more about the same entities, to try things with."""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.lab.demo import build_questions, name_of, statement
from factrl.papers.threshold import VALUES
from factrl.prepare.dataset import lines_of
from factrl.runs.disk import check_free, nothing, write_whole
from factrl.types import Example

from .options import Verbs, add_verb, whole_number
from .terminal import say

SPLITS = ("warm", "train", "test")
_DECLINING = 0.12  # of the answers in warm.jsonl, drawn at random
_WITHHELD = 1 / 3  # of the entities stand in no passage
_LEVELS = (10, 30, 50, 70, 90)  # percent, of confidences
FORMS = {
    "text": "",
    "tags": " Think first.",
    "confidence": " End with a line such as Confidence: 75.",
    "threshold": " Answer only if you are surer than {threshold}.",
}
"""What stands behind a question, by the form that its answer is to have."""
_DECLINED, _UNSURE = "I don't know.", "I am not sure of this."


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "prepare questions",
        _run,
        about="write about 2,200 short questions on countries, cities and elements, to try things with",
        example="example:\n  factrl prepare questions --output questions\n"
        "writes warm.jsonl, train.jsonl and test.jsonl, each about other entities, with what is known of an\n"
        "entity as evidence, a column `reasoned` with the answer as <think>…</think><answer>…</answer>, and\n"
        "`sure` with the answer and a confidence drawn at random;\n"
        "in warm.jsonl an eighth of the answers declines, at random.\n"
        "forms.jsonl has these in turn, each with words behind the question that ask for its form.\n"
        "topics-warm.jsonl and so on ask for all that is known of an entity, claims.jsonl has true and\n"
        "false claims with their labels, passages.jsonl what is known of two entities in three, to index",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder for the files")
    seed = "seed of the split (default: 0)"
    parser.add_argument("--seed", metavar="N", type=whole_number, default=0, help=seed)


def _run(args: argparse.Namespace) -> int:
    write_questions(Path(args.output), args.seed)
    say(args.output)
    return 0


def write_questions(folder: Path, seed: int) -> None:
    """Write all files of `factrl prepare questions`."""
    splits = build_questions(seed)
    made: dict[str, list[dict[str, Any]]] = {}
    draw, sure = random.Random(seed), random.Random(f"confidence {seed}")
    passages: list[dict[str, Any]] = []
    for name in SPLITS:
        examples, facts = getattr(splits, name), defaultdict[str, list[str]](list)
        for example in examples:
            facts[example.topic].append(statement(example))
        rows = []
        for example in examples:
            declined = name == "warm" and draw.random() < _DECLINING
            answer = _DECLINED if declined else example.answers[0]
            thought = _UNSURE if declined else statement(example)
            rows.append(
                {
                    "id": example.id,
                    "question": example.question,
                    "answers": [answer] if declined else list(example.answers),
                    "topic": example.topic,
                    "evidence": [{"title": example.topic, "text": " ".join(facts[example.topic])}],
                    "reasoned": f"<think>{thought}</think><answer>{answer}</answer>",
                    "sure": f"{answer}\nConfidence: {sure.choice(_LEVELS)}",
                }
            )
        made[name] = rows
        if name == "warm":
            made["forms"] = _in_forms(rows)
        topics = made[f"topics-{name}"] = _topics(examples, facts)
        passages += [row["evidence"][0] for row in topics]
    made["claims"] = _claims(splits.train, draw)
    made["passages"] = [row for row in passages if draw.random() >= _WITHHELD]
    contents = {folder / f"{name}.jsonl": lines_of(rows) for name, rows in made.items()}
    for path, content in contents.items():  # all of them, before the first is written
        check_free(path, lambda there, content=content: there.read_bytes() == content)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_whole(path, content, nothing)


def _in_forms(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows asked in the `FORMS` in turn, with an answer in that form, at every threshold alike."""
    written = []
    for number, row in enumerate(rows):
        form = [*FORMS][number % len(FORMS)]
        target = {"tags": row["reasoned"], "confidence": row["sure"]}.get(form, row["answers"][0])
        asked = FORMS[form].format(threshold=VALUES[number // len(FORMS) % len(VALUES)])
        written.append({**row, "question": row["question"] + asked, "answers": [target]})
    return written


def _claims(examples: Sequence[Example], draw: random.Random) -> list[dict[str, Any]]:
    """What is true of each question's entity, and the same with an answer to another question of its kind."""
    others = defaultdict[str, list[str]](list)
    for example in examples:
        others[example.meta["kind"]].append(example.answers[0])
    rows = []
    for example in examples:
        wrong = [one for one in others[example.meta["kind"]] if one not in example.answers]
        said = {"supported": example, "refuted": replace(example, answers=(draw.choice(wrong),))}
        told = ({"claim": statement(one), "label": label} for label, one in said.items())
        rows += [{"id": f"{example.id}/{row['label']}", "group_id": example.topic, **row} for row in told]
    return rows


def _topics(examples: Sequence[Example], facts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A request for a long answer for each entity, its facts as checklist, evidence and answer."""
    names = {example.topic: name for example in examples if (name := name_of(example))}
    rows = []
    for topic, name in names.items():
        asked, text = f"Tell me what you know about {name}.", " ".join(facts[topic])
        said = f"<think>I recall some facts.</think><answer>{text}</answer>"
        row = {"id": topic, "question": asked, "topic": topic, "checklist": list(facts[topic])}
        row |= {"evidence": [{"title": name, "text": text}], "reasoned": said}
        rows.append({**row, "prompt": asked, "response": said})  # as `tune.demonstrations` reads examples
    return rows
