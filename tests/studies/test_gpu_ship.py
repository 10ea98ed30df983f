"""`benchmarks/gpu/ship.py`: what arrives is what was packed, whatever happened on the way."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "gpu" / "ship.py"
ship: Any = SimpleNamespace(**runpy.run_path(str(SOURCE)))

FILES = {"a/empty": b"", "a/long": bytes(range(256)) * 12, "b/short": b"x", "b/even": b"y" * 1000}
SIZE = 1000  # so that a file spans parts, a part holds two files, and one ends where a part does


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """The folders of a packed tree; 3072 + 1 + 1000 bytes are five parts."""
    for name, content in FILES.items():
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    files = ship.files_of([tmp_path / "from" / "a", tmp_path / "from" / "b"], [])
    assert ship.pack(tmp_path / "parts", files, SIZE) == [1000, 1000, 1000, 1000, 73]
    return tmp_path / "parts"


def came(place: Path) -> dict[str, bytes]:
    return {name: (place / name).read_bytes() for name in FILES if (place / name).exists()}


@pytest.mark.parametrize("order", ["54321", "1122334455"])
def test_parts_may_come_in_any_order_and_twice(parts: Path, tmp_path: Path, order: str) -> None:
    place = tmp_path / "there"
    whole = [ship.take(place, parts / f"00{number}") for number in order]
    assert (whole[0], whole[-1], came(place)) == (False, True, FILES)
    assert not list(place.rglob("*.partial"))


def _torn_part(parts: Path, place: Path) -> None:
    """A kill while a part was copied."""
    next(place.glob(".parts/*/001")).rename(next(place.glob(".parts/*")) / "001.partial")


def _torn_file(parts: Path, place: Path) -> None:
    """A kill while the files were put together."""
    (place / "a").mkdir()
    (place / "a" / "long.partial").write_bytes(b"half")
    (place / "a" / "empty").touch()


def _lost_file(parts: Path, place: Path) -> None:
    """A file that was there and is gone: its parts have to come again."""
    for number in range(1, 6):
        ship.take(place, parts / f"00{number}")
    (place / "b" / "even").unlink()


@pytest.mark.parametrize("happens", [_torn_part, _torn_file, _lost_file])
def test_it_goes_on_where_it_was_killed(
    parts: Path, tmp_path: Path, happens: Callable[[Path, Path], None]
) -> None:
    place = tmp_path / "there"
    ship.take(place, parts / "001")
    happens(parts, place)
    for number in range(1, 6):
        ship.take(place, parts / f"00{number}")
    assert came(place) == FILES


def test_a_part_that_changed_on_the_way_is_refused(parts: Path, tmp_path: Path) -> None:
    part = parts / "002" / "002.part"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(SystemExit, match=r"not the part that was packed; bring 002 again"):
        ship.take(tmp_path / "there", parts / "002")
    assert not list((tmp_path / "there").rglob("002"))


def test_nothing_is_put_outside_the_folder(parts: Path, tmp_path: Path) -> None:
    for folder in parts.glob("0*"):
        told = json.loads((folder / "manifest.json").read_text())
        told["files"][0]["path"] = "../outside"
        (folder / "manifest.json").write_text(json.dumps(told))
    for number in range(1, 5):
        ship.take(tmp_path / "there", parts / f"00{number}")
    with pytest.raises(SystemExit, match="would be outside"):
        ship.take(tmp_path / "there", parts / "005")
    assert not (tmp_path / "outside").exists()


def test_pack_says_how_many_commands_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "one.whl").write_bytes(bytes(3 << 20))
    words = ["pack", str(tmp_path / "parts"), "--folder", str(tmp_path / "wheels"), "--tree", "5"]
    ship.main([*words, "--limit", "7"])
    said = capsys.readouterr().out.split("\n")
    assert said[0] == "2 commands, each with 5.0 MiB of this tree beside its part:"
    assert [line.split()[1:] for line in said[1:3]] == [["1.8", "MiB"], ["1.2", "MiB"]]
    with pytest.raises(SystemExit, match="holds other files than parts"):
        ship.main(["pack", str(tmp_path), *words[2:], "--limit", "7"])
