"""Labelled claims: what is read of them, what is left out, and that no document is on both sides."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import DataError
from factrl.train.tuning.claim_rows import LabelledClaim, digest_of_rows, drawn, load_claims, split_by_group

DATA = Path(os.environ.get("FACTRL_DATA", "unset"))


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def claims(count: int, source: str = "a", each: int = 2) -> list[LabelledClaim]:
    return [
        LabelledClaim(f"{source}:{n}", f"claim {source} {n}", "", n % 3 > 0, f"{source}{n // each}", source)
        for n in range(count)
    ]


def test_labels_become_two_classes(tmp_path: Path) -> None:
    labels = ["supported", "refuted", "unsupported", True, False, 1, 0, "Supported ", None, "irrelevant"]
    file = write(tmp_path / "a.jsonl", [{"claim": f"claim {n}", "label": x} for n, x in enumerate(labels)])
    found, left_out = load_claims([file])
    assert [row.true for row in found] == [True, False, False, True, False, True, False, True]
    assert left_out == {"label none": 1, "label irrelevant": 1}
    wider, left_out = load_claims([file], negative=("refuted", "irrelevant"))
    assert [row.true for row in wider].count(False) == 4
    assert left_out == {"label unsupported": 1, "label none": 1}


def test_labels_are_told_as_rows_have_them(tmp_path: Path) -> None:
    labels = ["SUPPORTS", "refutes", 1.0, 0.0]
    file = write(tmp_path / "a.jsonl", [{"claim": f"claim {n}", "label": x} for n, x in enumerate(labels)])
    found, left_out = load_claims([file], positive=["SUPPORTS", "true"], negative=["Refutes ", "0.0"])
    assert [row.true for row in found] == [True, False, True, False]
    assert not left_out
    with pytest.raises(DataError, match="both mean supported"):
        load_claims([file], positive=["true"], negative=["Supported"])


def test_evidence_is_one_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"claim": "a b", "label": "supported", "evidence": [{"title": "T", "text": "one"}, {"text": "two"}]},
        {"claim": "c d", "label": "refuted", "evidence": ["three", " "]},
        {"claim": "e f", "label": "refuted", "evidence": []},
        {"claim": "g h", "label": "refuted", "evidence": [{"title": "T", "text": ""}]},
    ]
    file = write(tmp_path / "a.jsonl", rows)
    found, left_out = load_claims([file], with_evidence=True)
    assert [row.evidence for row in found] == ["T: one two", "three"]
    assert left_out == {"without evidence": 2}
    alone, left_out = load_claims([file])
    assert [row.evidence for row in alone] == [""] * 4
    assert not left_out


def test_a_group_is_named_or_is_the_row_itself(tmp_path: Path) -> None:
    rows = [
        {"claim": "a", "label": True, "group_id": "g", "question": "q"},
        {"claim": "b", "label": False, "question": "q"},
        {"claim": "c", "label": False},
    ]
    found, _ = load_claims([write(tmp_path / "a.jsonl", rows)])
    assert [row.group for row in found[:2]] == ["g", "q"]
    assert found[2].group == found[2].id


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"claim": "a"}], "row 1 has no `claim` with a `label`"),
        ([{"claim": " ", "label": True}], "row 1 has no `claim`"),
        ([{"claim": "a", "label": True}], "1 claims of one class at most (none left out)"),
        ([{"claim": "a", "label": "nei"}], "0 claims of one class at most (1 label nei)"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError) as caught:
        load_claims([write(tmp_path / "a.jsonl", rows)])
    assert message in str(caught.value)


def test_no_document_is_in_two_parts() -> None:
    rows = [*claims(60), *claims(40, "b")]
    split = split_by_group(rows, 0.3, 0.5, seed=1)
    groups = [{row.group for row in part} for part in (split.train, split.calibrate, split.report)]
    assert not groups[0] & (groups[1] | groups[2])
    assert not groups[1] & groups[2]
    assert [len(part) for part in groups] == [35, 7, 8]
    for part in groups:
        assert {name[0] for name in part} == {"a", "b"}  # of each file its share
    assert split_by_group(rows, 0.3, 0.5, seed=1) == split
    assert split_by_group(rows, 0.3, 0.5, seed=2) != split


def test_a_document_of_two_files_is_in_one_part() -> None:
    shared = [LabelledClaim(f"b:{n}", f"other {n}", "", bool(n % 2), f"a{n // 2}", "b") for n in range(40)]
    split = split_by_group([*claims(40), *shared], 0.3, 0.5, seed=0)
    assert not {row.group for row in split.train} & {row.group for row in [*split.calibrate, *split.report]}


def test_what_was_learnt_is_not_reported() -> None:
    rows = claims(60, each=1)
    same = [LabelledClaim(f"c:{n}", "The Same claim.", "", True, f"c{n}", "c") for n in range(30)]
    split = split_by_group([*rows, *same], 0.4, 0.5, seed=0)
    held = [row for row in [*split.calibrate, *split.report] if row.source == "c"]
    assert held == []
    assert split.left_out == 12
    assert sum(row.source == "c" for row in split.train) == 18  # copies in training are the user's doing


def test_too_few_documents_are_told() -> None:
    with pytest.raises(DataError, match=r"2 documents \(4 rows\) do not make three parts"):
        split_by_group(claims(4), 0.3, 0.3, seed=0)


def test_a_draw_keeps_the_order_and_depends_on_the_seed() -> None:
    rows = claims(50)
    found = drawn(rows, 10, 0)
    assert len(found) == 10
    assert found == [row for row in rows if row in found]
    assert drawn(rows, 10, 1) != found
    assert drawn(rows, None, 0) == rows


def test_the_fingerprint_is_of_rows_and_parts_not_of_folders() -> None:
    def at(folder: str) -> list[LabelledClaim]:
        return [LabelledClaim(f"{folder}/a.jsonl:1", "x", "", True, "g", f"{folder}/a.jsonl")]

    assert digest_of_rows([at("/one"), []]) == digest_of_rows([at("/two/deep"), []])
    assert digest_of_rows([at("/one"), []]) != digest_of_rows([[], at("/one")])


@pytest.mark.data
@pytest.mark.skipif("FACTRL_DATA" not in os.environ, reason="needs FACTRL_DATA")
@pytest.mark.parametrize(
    ("name", "with_evidence", "count", "true"),
    [
        ("felm/segments.jsonl", False, 2267, 1880),
        ("factscore_human/facts.jsonl.gz", False, 6550, 4572),
        ("wice/oracle_chunks_dev.jsonl", True, 253, 180),
        ("summedits/summaries.jsonl.gz", True, 2071, 748),
    ],
)
def test_public_sets_can_be_used(name: str, with_evidence: bool, count: int, true: int) -> None:
    found, _ = load_claims([str(DATA / name)], with_evidence=with_evidence)
    assert (len(found), sum(row.true for row in found)) == (count, true)
    split_by_group(found, 0.3, 0.33, seed=0)
