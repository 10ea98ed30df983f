"""Whatever the user's disk, words and files do: one line that names it, exit code 2, and nothing lost."""

from __future__ import annotations

import errno
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import factrl as fx
from commands import process, write
from factrl import cli
from factrl.cli import main
from factrl.cli.terminal import mishap
from factrl.errors import ConfigError, RewardBug
from factrl.runs.config import load_settings, settable
from factrl.runs.disk import Journal
from factrl.runs.settings import AskSettings, RunSettings
from fault_server import FaultServer, says

ROW = {"question": "Capital of Norway?", "answers": ["Oslo"], "evidence": "Oslo is the capital of Norway."}
LARGE, HUGE = "9" * 20, "9" * 5_000


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    rows = [{"id": str(n), **ROW, "completion": f"Bergen {n}"} for n in range(64)]
    write("rows.jsonl", *rows)
    Path("good.toml").write_text(
        'paper = "truthrl"\n[model]\nname = "m"\n[data]\ntrain = "rows.jsonl"\n', encoding="utf-8"
    )
    Path("notes.txt").write_text("Oslo is the capital of Norway.\n")
    Path("a-file").write_text("x")
    Path("a-folder.html").mkdir()
    for suffix in ("html", "json", "jsonl"):
        Path(f"full.{suffix}").symlink_to("/dev/full")


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a user sees beside progress."""
    err = capsys.readouterr().err
    assert "Traceback" not in err
    lines = [line for line in err.split("\n") if line.startswith("factrl: ")]
    assert len(lines) == 1, err
    return lines[0]


# Words


@pytest.mark.parametrize("value", [LARGE, HUGE, "-1.5", "nan", "²", "\udcff", "9" * 19])
def test_every_option_that_is_a_number_refuses_what_cannot_be_one(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb, parser in cli.all_parsers()[1].items():
        words = ["x" for action in parser._actions if not action.option_strings and action.nargs != "*"]
        for action in parser._actions:
            if action.option_strings and action.type is not None:
                assert main([*verb.split(), *words, f"{action.option_strings[0]}={value}"]) == 2
                assert len(complaint(capsys)) < 400, (verb, action.option_strings)


@pytest.mark.parametrize("cls", [RunSettings, AskSettings])
def test_every_setting_refuses_a_number_that_nothing_counts_to(cls: type[Any]) -> None:
    for value in (LARGE, HUGE, "0x" + "f" * 5_000, f"[{LARGE}]", f"-{HUGE}", f"1e{HUGE}"):
        Path("long.toml").write_text(f"[run]\nseed = {value}\n")
        with pytest.raises(ConfigError):
            load_settings(cls, "long.toml", [])
        for key in settable(cls):
            if key.split(".")[0] not in ("reward", "paper"):
                with pytest.raises(ConfigError):
                    load_settings(cls, None, [f"{key}={value}"])


@pytest.mark.parametrize(
    "line",
    [
        f"train good.toml --dry-run data.limit={HUGE}",
        f"train good.toml --dry-run reward.wrong=0x{'f' * 5_000}",
        f"eval rows.jsonl --paper truthrl reward.wrong=-{HUGE}",
        "train good.toml --dry-run data.system=a\udcff",
        "eval rows\udcff.jsonl",
        "train good\udcff.toml",
        "\udcff",
    ],
)
def test_strange_words_get_one_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split(" ")) == 2
    assert (
        "more than 64 bits" in (shown := complaint(capsys))
        or "UTF-8" in shown
        or "digits" in shown
        or LARGE[:9] in shown
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f'{{"question": "q", "answers": {HUGE}}}', "rows.jsonl, line 1 is not JSON: Exceeds the limit"),
        ('{"question": ' + "[" * 100_000 + "]" * 100_000 + "}", "rows.jsonl, line 1 is not JSON: "),
        (f'{{"question": "q", "completion": "x", "ook": {LARGE}}}', "ook is 99999999999999999999, not true"),
        ("\x00", "rows.jsonl is not UTF-8 text"),
    ],
)
def test_strange_rows_get_one_line(content: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.jsonl").write_text(content)
    assert main(["eval", "rows.jsonl"]) == 2
    assert message in (shown := complaint(capsys))
    assert "set_int_max_str_digits" not in shown


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], {"question": "Which\udfff?"}),
        (["data.prompt={evidence} {question}"], {"evidence": "a\ud83d"}),
    ],
)
def test_half_a_character_in_a_prompt_names_the_row(
    words: list[str], part: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": str(n), **ROW, **part} for n in range(64)]
    write("half.jsonl", *rows)
    assert main(["train", "good.toml", "--dry-run", "data.train=half.jsonl", *words]) == 2
    assert "the prompt of example '0' holds '\\u" in complaint(capsys)


# Places

# Root may write where others may not, so these are places that nobody can write to.
PLACES = ["a-file/below", "/proc/none/below", "a-folder.html", "full"]
WRITERS = [
    ("eval rows.jsonl --output {}", ""),
    ("eval rows.jsonl --paper truthrl --output {}", ".jsonl"),
    ("verify Oslo --docs notes.txt verifier.judge=weak --output {}", ".html"),
    ("prepare convert rows.jsonl --to trl --output {}", "/x.jsonl"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("line", "suffix"), WRITERS, ids=[line for line, _ in WRITERS])
def test_a_place_that_cannot_be_written_gets_one_line(
    line: str, suffix: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = place if place == "a-folder.html" else place + suffix
    if place == "a-folder.html" and suffix == "":
        name = "rows.jsonl/below"
    if place == "full" and suffix == "":
        name = "/dev/full"
    assert main(line.format(name).split()) == 2
    assert complaint(capsys)


def test_stdout_that_is_full_gets_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = process("-m", "factrl", "show", "truthrl", stdout=full)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert "factrl: No space left on device" in done.stderr


# A disk that fills up meanwhile


@pytest.fixture
def judge() -> Iterator[FaultServer]:
    server = FaultServer(says("Another city.\nVERDICT: incorrect"))
    yield server
    server.close()


def test_many_samples_on_a_disk_that_fills_up_loses_nothing(
    judge: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    judge.play(says("Oslo"))
    line = ["eval", "rows.jsonl", "--model", f"{judge.url}#m", "--samples", "2", "--output", "p"]
    with full_at(5_000):
        assert main(line) == 2
    assert complaint(capsys)
    assert main(line) == 0
    assert len(Path("p/questions.jsonl").read_text().strip().split("\n")) == 64


def test_a_torn_row_of_a_full_disk_is_not_followed_by_another(tmp_path: Path) -> None:
    with Journal("j.jsonl", {"job": 1}) as journal:
        with full_at(200):
            journal.add("a", {"text": "x" * 50})
            for _ in range(2):
                with pytest.raises(ConfigError, match="File too large"):
                    journal.add("b", {"text": "y" * 500})
        journal.add("c", {"text": "z"})
    with Journal("j.jsonl", {"job": 1}) as journal:
        assert [*journal] == ["a", "c"]


# The boundary


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: Read-only file system"),
        (
            RuntimeError("I/O error: No space left on device (os error 28)"),
            "a file could not be written whole: I/O error: No space left",
        ),
        (OSError(errno.EBADF, "Bad file descriptor"), None),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset"), None),
        (RewardBug("reward 'x' failed: No space left on device"), None),
        (SystemExit(3), None),
    ],
)
def test_what_is_the_disks_and_what_is_ours(error: BaseException, line: str | None) -> None:
    shown = mishap(error)
    assert shown is None if line is None else (shown or "").startswith(line)


@pytest.mark.parametrize("error", [KeyError("a"), OSError(errno.EINVAL, "b")])
def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(words: Any) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", broken)
    with pytest.raises(type(error)):
        main(["show"])


# A reward file of the user's


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\nraise SystemExit(3)", "own.py, line 2 stops with SystemExit: 3"),
        ("1 / 0", "own.py, line 1 stops with ZeroDivisionError: division by zero"),
        ("def f(): f()\nf()", "own.py, line 1 stops with RecursionError: maximum recursion"),
        ("raise OSError(28, 'No space left on device')", "own.py, line 1 stops with OSError: [Errno 28]"),
        ("a\0b", "own.py is not Python: source code string cannot contain null bytes"),
        (f"x = {HUGE}", "own.py, line 1 is not Python: Exceeds the limit"),
    ],
)
def test_a_reward_file_that_does_not_run_is_named_with_its_line(
    source: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(source)
    for line in ("eval rows.jsonl --paper own.py", "train paper=own.py --dry-run good.toml"):
        assert main(line.split()) == 2
        assert message in complaint(capsys)


def test_a_reward_file_may_import_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder := tmp_path / "rewards").mkdir()
    (folder / "brevity_of_ours.py").write_text("def words(text):\n    return len(text.split())\n")
    (folder / "colorsys.py").write_text("raise RuntimeError('hides the standard library')\n")
    (folder / "own.py").write_text(
        "import colorsys\nimport factrl as fx\nfrom brevity_of_ours import words\n\n@fx.reward\n"
        "def mine(example, completion):\n    return {'words': float(words(completion))}\n"
    )
    assert fx.load_reward(f"{folder}/own.py:mine")(fx.Example("Who?"), "two words").value == 2.0


@pytest.mark.parametrize(
    "returned",
    ['{"a": float("nan")}', '{"a": 1, "b": float("inf")}', "1.0", "None", '{"a": "x"}', "{}", '{"a": None}'],
)
def test_what_a_reward_file_returns_is_no_bug_of_ours(
    returned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(
        f"import factrl as fx\n@fx.reward\ndef mine(example, completion):\n    return {returned}\n"
    )
    assert main(["eval", "rows.jsonl", "--paper", "own.py:mine"]) == 2
    assert "failed on example" in complaint(capsys)
