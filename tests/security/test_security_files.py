"""Files and names of others: paths that lead outside, states that are not what they say they are."""

from __future__ import annotations

import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import DataError, SetupError
from factrl.evals.folder import RESULTS, SAMPLES, read_output
from factrl.llm.store import Store
from factrl.runs.config import read_toml
from factrl.runs.data import load_examples
from factrl.runs.disk import Journal
from factrl.runs.folder import Run, read_metrics
from factrl.train.page import write_run_page
from factrl.verifier.search.index import load_manifest

TOML = 'paper = "truthrl"\n[model]\nname = "m"\n[data]\ntrain = "q.jsonl"\n'

# ---------------------------------------------------------------- names

NAMES = [
    *("../../etc/passwd", "/etc/passwd", "..", "", "a/../../b", "..\\..\\windows\\system32", "C:\\x"),
    *("a\0b", "a\nb", "真" * 300, "~/x", "$HOME/x", "\u202e/../x", "．．／x", "a;rm -rf b"),
]  # fmt: skip


def everything(folder: Path) -> set[Path]:
    return {*folder.rglob("*")}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_no_name_leads_outside_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setenv("FACTRL_CACHE", str(inside / "cache"))
    monkeypatch.setenv("HOME", str(inside / "home"))
    with Run.create(inside / "runs", name, TOML) as run:
        assert run.path.parent == inside / "runs"
        assert run.path.resolve().is_relative_to(inside.resolve())
        assert len(run.path.name.encode()) <= 255
    store = Store(inside / "store" / "answers.db")
    store.put_many({name: {"name": name}})
    assert store.get(name) == {"name": name}
    store.close()
    assert [path for path in tmp_path.iterdir() if path != inside] == []
    assert not [path for path in everything(inside) if path.is_symlink() or path.name == "passwd"]


# ---------------------------------------------------------------- states

DEEP = "[" * 100_000


class Poison:
    def __reduce__(self) -> Any:
        return os.system, ("touch poisoned",)


CONTENTS = {
    "pickle": pickle.dumps(Poison()),
    "JSON without end": DEEP.encode(),
    "an object of objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a number without end": b'{"step": ' + b"9" * 6_000 + b"}",
    "a class": b'{"__class__": "os.system", "__reduce__": ["touch poisoned"], "step": "x"}',
    "not UTF-8": b"\xff\xfe\x00{",
    "null": b"null\n",
    "a list": b"[1, 2]\n",
}


def journal(file: Path) -> Any:
    with Journal(file, {"what": "a job"}) as rows:
        return dict(rows)


# What reads a file of an earlier run, and how the file is called.
STATES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "metrics": ("metrics.jsonl", lambda file: read_metrics(file.parent)),
    "journal": ("rows.jsonl", journal),
    "results": (RESULTS, lambda file: read_output(file.parent)),
    "samples": (SAMPLES, lambda file: read_output(file.parent)),
    "manifest": ("index.json", lambda file: load_manifest(file.parent)),
    "settings": ("config.toml", read_toml),
    "data": ("data.jsonl", lambda file: load_examples(str(file))),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("state", STATES)
def test_a_poisoned_state_is_refused_in_one_error(
    state: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, read = STATES[state]
    (tmp_path / RESULTS).write_text('{"benchmarks": {}}', encoding="utf-8")
    (tmp_path / SAMPLES).write_text("", encoding="utf-8")
    file = tmp_path / name
    file.write_bytes(CONTENTS[content] + b"\n")
    with pytest.raises(SetupError) as caught:
        read(file)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert not (tmp_path / "poisoned").exists()


def test_a_poisoned_row_whose_checksum_is_right_is_data_or_nothing(tmp_path: Path) -> None:
    import sqlite3

    from factrl.llm.store import _checksum

    file = tmp_path / "store" / "verdicts.db"
    store = Store(file)
    store.put_many(dict.fromkeys(CONTENTS, 1))
    store.close()
    with sqlite3.connect(file) as other:
        for key, content in CONTENTS.items():
            row = (content, _checksum(key, content), key)
            other.execute("UPDATE entries_1 SET value = ?, sum = ? WHERE key = ?", row)
    other.close()
    found = Store(file).get_many([*CONTENTS])
    for key in ("pickle", "JSON without end", "an object of objects", "not UTF-8"):
        assert key not in found
    assert type(found["a class"]) is dict
    assert not Path("poisoned").exists()


def test_a_poisoned_rollout_is_refused_or_shown_as_text(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    from factrl.runs.folder import Rollout
    from factrl.types import Result
    from pages import Page

    bad = "<script>1</script><img src=x onerror=1>'\"><!--"
    with Run.create(tmp_path, "x", f"{TOML}[train]\nlearning_rate = 1e-5\n") as run:
        run.log(1, {"reward": 1.0})
        rows = [Rollout("q", "Who?", "Ann", Result("floored", 0.0, {"a": 0.0}, cause="x"), 0.1)]
        file = run.write_rollouts(1, rows)
    whole = pyarrow.parquet.read_table(file)
    refused = []
    for index, name in enumerate(whole.column_names):
        pyarrow.parquet.write_table(whole.set_column(index, name, pyarrow.array([bad])), file)
        try:
            page = Page(write_run_page(run.path).read_text("utf-8"))
        except DataError as error:
            assert "is damaged" in str(error)  # noqa: PT017
            refused.append(name)
        else:
            assert not {tag for tag, _ in page.elements} & {"script", "img"}, name
            assert page.comments == 0
    assert {*refused} >= {"value", "advantage", "spans"}
    assert not {*refused} & {"step", "id", "prompt", "completion", "state", "cause"}


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_what_a_run_and_a_store_hold_is_for_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Run.create(tmp_path / "runs", "x", TOML) as run:
            run.log(1, {"reward": 1.0})
        Store(tmp_path / "cache" / "store" / "verdicts.db").put_many({"a": 1})
    finally:
        os.umask(before)
    for folder in (run.path, tmp_path / "cache" / "store"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads((run.path / "env.json").read_text("utf-8"))["python"]
