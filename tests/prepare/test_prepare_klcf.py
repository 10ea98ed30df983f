"""The four stages of KLCF's dataset, with scripted parts: nothing is filled in or paid for twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from preparing import ScriptedWriter, asking

from commands import read
from factrl.errors import LLMError, Unscored
from factrl.llm import FakeLLM
from factrl.prepare import TOGETHER, answer_part, few_shot
from factrl.prepare.dataset import Prepared, choose, read_choices, truthfulness_rows, write_dataset
from factrl.prepare.klcf import Preparation
from factrl.rewards.checklist import item_ids
from factrl.runs.data import load_examples
from factrl.runs.disk import Journal
from factrl.types import Completion, Example, Passage, Verdict
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from judging import JudgeBy

TOWNS = [Example(f"Tell me about town {n}.", id=f"t{n}") for n in range(3)]
BOTH = "Town 0 is old. Town 0 has a port."


class Chronicle:
    """A search that finds one passage, which has the numbers of the query and says nothing else of it."""

    def search(self, query: str, k: int, *, topic: str = "") -> list[Passage]:
        numbers = " ".join(word for word in re.findall(r"\w+", query) if word.isdigit())
        return [Passage(f"Town {numbers} has a chronicle.", "Towns", "http://t")]


class Bench:
    """A preparation with scripted parts in a folder of its own, which can be run again."""

    def __init__(
        self, folder: Path, script: Callable[[str, int], Any], llm: FakeLLM | None = None, **given: Any
    ):
        self.folder, self.llm = folder, llm
        self.writer, self.judge, self.down = ScriptedWriter(script), JudgeBy(self.say), True
        workers, samples, model = given.pop("workers", 1), given.pop("samples", 1), given.pop("model", "-")
        verifier = Verifier(SentenceClaims(), Chronicle(), self.judge, **given)
        self.given = (self.writer, verifier, llm, workers, asking(model, samples))

    def say(self, text: str) -> Verdict:
        """Supported, refuted or without a verdict by the words of the claim."""
        if "broken" in text and self.down:
            return Verdict("unjudged", "scripted", cause="judge_unreadable")
        label = "refuted" if "new" in text else "unknown" if "odd" in text else "supported"
        return Verdict(label, "scripted", p=0.5, quote=(0, 0, 4))

    def run(self, examples: Sequence[Example] = TOWNS[:1]) -> list[Prepared]:
        with Journal(self.folder / "journal.jsonl", {"job": "test"}) as journal:
            self.work = Preparation(*self.given)
            self.prepared = self.work.run(examples, journal)
            self.counts = write_dataset(self.folder, self.prepared, {"job": "test"}, seed=0)
        return self.prepared

    def rows(self, name: str) -> list[dict[str, Any]]:
        return read(self.folder / name)


def towns(id_: str, number: int) -> str:
    name = f"Town {id_[1:]}"
    return f"{name} is old. {name} has a port. {name} is new. {name} has an odd mill."


def test_what_the_passages_support_becomes_the_checklist(tmp_path: Path) -> None:
    bench = Bench(tmp_path, towns)
    bench.run(TOWNS)
    rows = bench.rows("train.jsonl")
    assert [row["id"] for row in rows] == ["t0", "t1", "t2"]
    assert rows[1]["checklist"] == ["Town 1 is old.", "Town 1 has a port."]
    assert rows[1]["checklist_claims"] == [["t1/0/0"], ["t1/0/1"]]
    claims = {row["id"]: row for row in bench.rows("claims.jsonl")}
    assert len(claims) == 12
    claim = claims["t1/0/1"]
    sample = next(s for s in bench.rows("samples.jsonl") if (s["group_id"], s["sample"]) == ("t1", 0))
    assert sample["text"][claim["start"] : claim["end"]] == claim["said"] == "Town 1 has a port."
    assert (claim["label"], claim["p"], claim["quote"], claim["title"]) == ("supported", 0.5, "Town", "Towns")
    counts = json.loads((tmp_path / "about.json").read_text())["counts"]
    assert counts == bench.counts
    names = (
        "prompts",
        "questions",
        "samples",
        "claims",
        "supported",
        "refuted",
        "unknown",
        "checklist_items",
    )
    assert [counts[name] for name in names] == [3, 3, 3, 12, 6, 3, 3, 6]


def test_the_dataset_is_what_train_klcf_reads(tmp_path: Path) -> None:
    from factrl.job import read_job

    Bench(tmp_path, towns).run(TOWNS)
    path = tmp_path / "train.jsonl"
    words = ["paper=klcf:non-thinking", "model.name=-", f"data.train={path}", "judge.url=local"]
    examples = load_examples(path, require_answers=False)
    read_job(None, words).check_examples(examples)
    assert (examples[0].question, examples[0].id) == ("Tell me about town 0.", "t0")


def test_equal_claims_of_several_samples_are_one_item(tmp_path: Path) -> None:
    texts = ["Town 0 is old. Town 0 has a port.", "Town 0 has a mill. TOWN 0 IS OLD!"]
    bench = Bench(tmp_path, lambda id_, number: texts[number], samples=2)
    (one,) = bench.run()
    assert one.checklist == [
        ("Town 0 is old.", ["t0/0/0", "t0/1/1"]),
        ("Town 0 has a port.", ["t0/0/1"]),
        ("Town 0 has a mill.", ["t0/1/0"]),
    ]


def test_a_question_with_a_claim_without_a_verdict_is_left_out_and_tried_again(tmp_path: Path) -> None:
    def script(id_: str, number: int) -> str:
        return towns(id_, number) + (" A broken bridge is there." if id_ == "t1" else "")

    bench = Bench(tmp_path, script)
    bench.run(TOWNS)
    assert [row["id"] for row in bench.rows("train.jsonl")] == ["t0", "t2"]
    assert bench.counts["left_out"] == {"claims_unjudged": 1}
    assert (bench.counts["unjudged"], bench.prepared[1].judged) == (1, False)
    assert bench.prepared[1].detail == "1 of 5 claims have no verdict (judge_unreadable 1)"
    assert {row["group_id"] for row in bench.rows("truthfulness.jsonl")} == {"t0", "t2"}
    bench.judge.asked, bench.down = [], False
    bench.run(TOWNS)
    assert bench.work.requests == {"checks": 1}  # the samples and the other checks are there
    assert len(bench.rows("train.jsonl")) == 3


def test_a_sample_that_was_not_written_leaves_the_question_out(tmp_path: Path) -> None:
    down = [LLMError("connection", "the server is gone")]
    bench = Bench(tmp_path, lambda id_, number: down[0] if down and number else towns(id_, number), samples=2)
    (one,) = bench.run()
    assert (one.left_out, one.detail) == ("connection", "the server is gone")
    assert bench.counts["samples"] == 1
    down.clear()
    bench.writer.asked.clear()
    (one,) = bench.run()
    assert (one.left_out, bench.writer.asked) == ("", [(TOWNS[0], 1)])


@pytest.mark.parametrize("text", ["I don't know.", "Town 0 is new."])
def test_a_question_without_a_supported_claim_is_left_out(tmp_path: Path, text: str) -> None:
    bench = Bench(tmp_path, lambda id_, number: text)
    bench.run()
    assert bench.counts["left_out"] == {"no_supported_claim": 1}


@pytest.mark.parametrize(("model", "workers"), [("http://localhost/v1#m", 4), ("policy", 1)])
def test_many_questions_of_every_model(tmp_path: Path, model: str, workers: int) -> None:
    many = [Example(f"Tell me about town {n}.", id=f"t{n}") for n in range(2 * TOGETHER + 3)]
    bench = Bench(tmp_path, towns, workers=workers, model=model, samples=2)
    bench.run(many[5:9])
    bench.run(many)
    assert [row["id"] for row in bench.rows("train.jsonl")] == [example.id for example in many]
    assert Counter(bench.writer.asked) == dict.fromkeys(((example, n) for example in many for n in (0, 1)), 1)
    assert bench.work.requests == {"samples": 2 * (len(many) - 4), "checks": 2 * (len(many) - 4)}
    bench.run([replace(many[0], topic="towns"), replace(many[1], evidence=(Passage("Chronicle."),))])
    assert bench.work.requests == {"checks": 4}, "another topic or evidence"


def choice_lines(facts: Sequence[str], *words: str) -> str:
    """A reply; `duplicate:0` is one of the first fact."""
    ids = item_ids(facts)
    rows = [
        {"id": id_, "verdict": word.partition(":")[0]}
        | ({"of": ids[int(word[-1])]} if word.startswith("duplicate:") else {})
        for id_, word in zip(ids, words, strict=False)
    ]
    return "\n".join(map(json.dumps, rows))


FACTS = ["Town 0 is old.", "Town 0 has a port.", "Town 0 is very old."]


def test_minor_facts_go_and_duplicates_give_their_claims(tmp_path: Path) -> None:
    llm = FakeLLM([choice_lines(FACTS, "keep", "minor", "duplicate:0")])
    (one,) = Bench(tmp_path, lambda *_: " ".join(FACTS), llm).run()
    assert one.checklist == [("Town 0 is old.", ["t0/0/0", "t0/0/2"])]
    assert one.choices == {"keep": 1, "minor": 1, "duplicate": 1}


def test_a_choice_that_cannot_be_read_leaves_the_question_out(tmp_path: Path) -> None:
    llm = FakeLLM(["I would keep them all.", choice_lines(FACTS, "minor", "minor", "minor")])
    bench = Bench(tmp_path, lambda *_: " ".join(FACTS), llm)
    bench.run()
    assert bench.counts["left_out"] == {"judge_unreadable": 1}
    assert len(bench.rows("truthfulness.jsonl")) == 0
    bench.run()
    assert bench.counts["left_out"] == {"nothing_important": 1}


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("All of them.", "holds no verdict"),
        (choice_lines(FACTS, "keep", "keep"), "no verdict on fact"),
        (choice_lines(FACTS, "keep", "keep", "kept"), "'kept', not keep"),
        (choice_lines(FACTS, "keep", "keep", "duplicate"), "a duplicate of 'None', which is no other fact"),
        (choice_lines(FACTS, "keep", "duplicate:2", "duplicate:1"), "which is no other fact"),
        (choice_lines(FACTS, "keep", "minor", "duplicate:1"), "which is not kept"),
        (choice_lines([*FACTS, "More."], *["keep"] * 4), "no fact of this call"),
        (choice_lines(FACTS, *["keep"] * 3) + choice_lines(FACTS, "minor"), "two verdicts on fact"),
        ("<think>" + choice_lines(FACTS, *["keep"] * 3), "holds no verdict"),
    ],
)
def test_what_is_no_choice(reply: str, problem: str) -> None:
    with pytest.raises(Unscored, match=problem) as error:
        read_choices(reply, item_ids(FACTS))
    assert error.value.cause == "judge_unreadable"


def test_many_facts_are_asked_about_in_parts() -> None:
    facts = [f"Fact {n}." for n in range(60)]
    llm = FakeLLM(
        [choice_lines(facts[:50], *["keep"] * 50), choice_lines(facts[50:], *["keep"] * 9, "duplicate:0")]
    )
    choices = choose(llm, "Q?", facts)
    assert (len(choices), choices[-1]) == (60, {"word": "duplicate", "of": 50})


def claim(number: int, label: str, text: str = "") -> dict[str, Any]:
    words = text or f"Claim {number} is made."
    return {"id": str(number), "claim": words, "label": label, "question": "Q?", "group_id": "g"}


def test_negatives_three_times_then_positives_two_to_one() -> None:
    claims = [claim(n, "supported") for n in range(40)] + [claim(n, "refuted") for n in (40, 41, 42)]
    rows, counts = truthfulness_rows([*claims, claim(50, "unknown"), claim(51, "skipped")], seed=0)
    labels = [row["label"] for row in rows]
    assert (labels.count("refuted"), labels.count("supported")) == (9, 18)
    assert [row["copy"] for row in rows if row["id"] == "41"] == [0, 1, 2]
    assert counts == {
        "supported": 40, "refuted": 3, "repeated": 0, "contradictory": 0, "not_drawn": 22, "rows": 27,
    }  # fmt: skip
    drawn = {row["id"] for row in rows}
    assert {row["id"] for row in truthfulness_rows(reversed(claims), seed=0)[0]} == drawn
    assert {row["id"] for row in truthfulness_rows(claims, seed=1)[0]} != drawn


def test_equal_claims_are_one_row_and_contradictory_ones_none() -> None:
    same = [claim(0, "refuted", "Oslo is old."), claim(1, "refuted", "OSLO is old!")]
    both = [claim(2, "refuted", "Rome is old."), claim(3, "supported", "Rome is old.")]
    rows, counts = truthfulness_rows([*same, *both], seed=0)
    assert [row["id"] for row in rows] == ["0"] * 3
    assert (counts["repeated"], counts["contradictory"]) == (2, 1)


def test_demonstrations_stand_before_the_question() -> None:
    shown = [Example("Who is {A}?", ("A {man}.",)), Example("Who is B?", ("B.",))]
    from factrl.runs.data import render_prompt

    template = few_shot("Question: {question}\nAnswer:", shown)
    assert render_prompt(Example("Who is C?"), template) == (
        "Question: Who is {A}?\nAnswer: A {man}.\n\nQuestion: Who is B?\nAnswer: B.\n\n"
        "Question: Who is C?\nAnswer:"
    )
    assert few_shot("Q: {question}", []) == "Q: {question}"


@pytest.mark.parametrize(
    ("text", "truncated", "part"),
    [
        ("One is one. Two is two.", False, "One is one. Two is two."),
        ("One is one. Two is", True, "One is one."),
        ("<think>Hm. One.</think> One is one.", False, "One is one."),
        ("<think>Hm. One.", True, ""),
        (" One is one.\n\nQuestion: What is two?\nAnswer: Two is", True, "One is one."),
        ("- One is one\n- Two is", True, "- One is one"),
    ],
)
def test_the_part_that_is_the_answer(text: str, truncated: bool, part: str) -> None:
    assert answer_part(Completion(text, truncated=truncated), "Question: {question}\nAnswer:") == part
