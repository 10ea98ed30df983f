"""The files of factrl that a command runs, in the order in which each is first called.

    python benchmarks/walk.py verify answer.txt --docs notes.txt --judge weak --no-cache

What runs at import, and the reading of the command line, are left out.  docs/design.md tells the walks of
`train`, `verify` and `eval`, and how many files they are.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import factrl
from factrl.cli import _parse, _parsers

ROOT = Path(factrl.__file__).parent


def walk(words: list[str]) -> dict[str, str]:
    """File of `src/factrl` -> the function that is called first."""
    seen: dict[str, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path not in seen and path.startswith(f"{ROOT}/") and not at_import(frame):
            seen[path] = frame.f_code.co_name

    args = _parse(*_parsers(), words)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        args.run(args)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(path).relative_to(ROOT)): name for path, name in seen.items()}


def at_import(frame: FrameType | None) -> bool:
    """Whether a module of factrl is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(f"{ROOT}/"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    files = walk(sys.argv[1:])
    lines = [*(f"{path}: {name}" for path, name in files.items()), f"{len(files)} files"]
    sys.stdout.write("\n".join(lines) + "\n")
