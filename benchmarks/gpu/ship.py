"""Bring files to a machine that nothing is reachable from, a folder of at most so many MiB for each command.

    python benchmarks/gpu/ship.py pack parts --model Qwen2.5-Coder-1.5B-Instruct --folder wheels
    python3 benchmarks/gpu/ship.py take /tmp/study parts/001      there, for each folder of parts

`pack` sees all files as one stream, cuts it where a command is full, and says how many commands it takes.
`take` copies a part into a folder outside the tree, checks its hash and says which are missing; when all are
there it puts the files together, checks the hash of each and drops the parts.  Both may be run again at any
time, also after a kill: what is there and right stays.  `take` needs nothing but Python.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

MIB = 1 << 20
MANIFEST, JOINED = "manifest.json", "joined"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def sha256_of(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    return _write(Path(os.devnull), _chunks([path]))


def _write(path: Path, chunks: Iterable[bytes]) -> str:
    """Write a file; its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for chunk in chunks:
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _chunks(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as stream:
            while chunk := stream.read(MIB):
                yield chunk


def _cut(paths: Sequence[Path], sizes: Sequence[int]) -> Iterator[Iterator[bytes]]:
    """The bytes of all files, cut to these sizes; each part is read before the next is asked for."""
    chunks, rest = _chunks(paths), b""

    def part(left: int) -> Iterator[bytes]:
        nonlocal rest
        while left:
            rest = rest or next(chunks)
            yield rest[:left]
            rest, left = rest[left:], left - len(rest[:left])

    return map(part, sizes)


def tree_size() -> int:
    """Bytes of the files that travel with every command: those that git has or does not ignore."""
    words = ("git", "ls-files", "-co", "--exclude-standard", "-z")
    listed = subprocess.run(words, capture_output=True, check=True).stdout  # noqa: S603
    return sum(Path(os.fsdecode(name)).stat().st_size for name in listed.split(b"\0") if os.path.isfile(name))


# -- Here --------------------------------------------------------------------------------------------


def files_of(folders: Sequence[Path], models: Sequence[str]) -> list[tuple[str, Path]]:
    """Where each file goes, and where it is: folders under their own names, models as the cache has them."""
    found = [
        (f"{folder.name}/{path.relative_to(folder).as_posix()}", path)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    if models:
        from factrl.llm.models import cache_folder, get

        for name in models:
            place = get(name, download=False)
            found.append((place.relative_to(cache_folder()).as_posix(), place))
    return found


def pack(target: Path, files: Sequence[tuple[str, Path]], size: int) -> list[int]:
    """Write `001`, `002` and so on, each with a part of at most `size` bytes; returns the bytes of each."""
    if not files:
        raise SystemExit("nothing to pack: give --folder with files in it, or --model")
    paths = [path for _, path in sorted(files)]
    lengths = [path.stat().st_size for path in paths]
    about = [
        {"path": name, "size": length, "sha256": sha256_of(path)}
        for (name, path), length in zip(sorted(files), lengths, strict=True)
    ]
    total = sum(lengths)
    sizes = [min(size, total - start) for start in range(0, total, size)]
    if any(not path.name.isdecimal() and path.name != ".gitignore" for path in target.glob("*")):
        raise SystemExit(
            f"{target} holds other files than parts, which pack would delete; name another folder"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / ".gitignore").write_text("*\n")  # git, and what copies a tree by its rules, leaves it out
    folders = [target / f"{number:03}" for number in range(1, len(sizes) + 1)]
    hashes = []
    for folder, chunks in zip(folders, _cut(paths, sizes), strict=True):
        folder.mkdir()
        hashes.append(_write(folder / f"{folder.name}.part", chunks))
    for folder in folders:
        (folder / MANIFEST).write_text(json.dumps({"parts": hashes, "files": about}))
    return sizes


# -- There -------------------------------------------------------------------------------------------


def take(place: Path, folder: Path) -> bool:
    """Put a part where the others are, and the files together when it was the last; whether they are there.

    Raises:
        SystemExit: the part is not the one that was packed, or a file is not; the message says what to bring.
    """
    if not (folder / MANIFEST).is_file():
        raise SystemExit(f"{folder} is no folder that pack made (it has no {MANIFEST})")
    text = (folder / MANIFEST).read_bytes()
    manifest = json.loads(text)
    shelf = place / ".parts" / hashlib.sha256(text).hexdigest()[:12]
    shelf.mkdir(parents=True, exist_ok=True)
    number, total = int(folder.name), len(manifest["parts"])
    if not _are_there(place, shelf, manifest):
        here, expected = shelf / f"{number:03}", manifest["parts"][number - 1]
        if not (here.exists() and sha256_of(here) == expected):
            if sha256_of(part := folder / f"{number:03}.part") != expected:
                raise SystemExit(f"{part} is not the part that was packed; bring {folder.name} again")
            unfinished = here.with_suffix(".partial")  # a kill leaves no half of it under its name
            _write(unfinished, _chunks([part]))
            unfinished.replace(here)
        missing = [one for one in range(1, total + 1) if not (shelf / f"{one:03}").exists()]
        say(f"part {number} of {total} is here; missing: {_ranges(missing) or 'none'}")
        if missing:
            return False
        _join(place, shelf, manifest)
    say(f"all {len(manifest['files'])} files are in {place}")
    return True


def _are_there(place: Path, shelf: Path, manifest: Any) -> bool:
    """Whether they were put together, and nobody took one away since."""
    files = [(place / one["path"], one["size"]) for one in manifest["files"]]
    return (shelf / JOINED).exists() and all(
        path.is_file() and path.stat().st_size == size for path, size in files
    )


def _join(place: Path, shelf: Path, manifest: Any) -> None:
    parts = [shelf / f"{number:03}" for number in range(1, len(manifest["parts"]) + 1)]
    files = manifest["files"]
    for one, chunks in zip(files, _cut(parts, [one["size"] for one in files]), strict=True):
        path = place / one["path"]
        if not path.resolve().is_relative_to(place.resolve()):
            raise SystemExit(f"{one['path']} would be outside {place}; nothing is put there")
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.partial")
        if _write(unfinished, chunks) != one["sha256"]:
            unfinished.unlink()
            _refuse(parts, manifest, one["path"])
        unfinished.replace(path)
    (shelf / JOINED).touch()
    for part in parts:
        part.unlink()


def _refuse(parts: Sequence[Path], manifest: Any, name: str) -> None:
    """Throw away the parts that changed since they were checked."""
    bad = [
        number
        for number, (part, expected) in enumerate(zip(parts, manifest["parts"], strict=True), start=1)
        if sha256_of(part) != expected
    ]
    for number in bad:
        parts[number - 1].unlink()
    remedy = f"bring again: {_ranges(bad)}" if bad else "pack again: it changed while it was packed"
    raise SystemExit(f"{name} is not the file that was packed; {remedy}")


def _ranges(numbers: Sequence[int]) -> str:
    """`1-3, 7` of 1, 2, 3 and 7."""
    starts = [one for one in numbers if one - 1 not in numbers]
    ends = [one for one in numbers if one + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def main(words: Sequence[str] | None = None) -> None:
    """Pack or take."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    packs = verbs.add_parser("pack", help="cut files into folders that fit into a command")
    packs.add_argument("target", type=Path, help="folder for the parts")
    packs.add_argument(
        "--folder", action="append", default=[], type=Path, help="to bring under its own name; repeated"
    )
    packs.add_argument(
        "--model", action="append", default=[], help="of `factrl doctor`, on this machine; repeated"
    )
    packs.add_argument("--limit", type=float, default=64, help="MiB of files that a command may bring")
    packs.add_argument("--tree", type=float, help="MiB that go along with each; by default this tree's")
    takes = verbs.add_parser("take", help="put parts where they stay, and the files together")
    takes.add_argument("place", type=Path, help="folder outside the tree")
    takes.add_argument("parts", type=Path, nargs="+", help="folders that pack made")
    told = parser.parse_args(words)
    if told.verb == "take":
        for folder in told.parts:
            take(told.place, folder)
        return
    tree = tree_size() / MIB if told.tree is None else told.tree
    room = int((told.limit - tree) * MIB) - MIB // 4  # the manifest goes along too
    if room <= 0:
        raise SystemExit(f"the tree alone has {tree:.1f} MiB of the {told.limit:g} of a command")
    sizes = pack(told.target, files_of(told.folder, told.model), room)
    say(f"{len(sizes)} commands, each with {tree:.1f} MiB of this tree beside its part:")
    for number, size in enumerate(sizes, start=1):
        say(f"  {told.target / f'{number:03}'}  {size / MIB:6.1f} MiB")


if __name__ == "__main__":
    main()
