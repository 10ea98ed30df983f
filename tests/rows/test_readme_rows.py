"""Each block of README's first screen does what it says, in an environment with its extra and nothing else.

`make test-rows` runs it: environments are made anew under the folder that FACTRL_ROWS names, which takes
minutes, and the models of `factrl doctor` must be on this machine.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SEEN = {
    "verify": "1 refuted, 1 supported of 2",
    "eval": "hallucination",
    "train": "runs/truthrl",
    "stress": "37 policies: 37 held",
}
FEWER = {"train": ["--steps", "1"]}  # of the eight of the recipe


def blocks() -> dict[str, list[str]]:
    """The commands of the first screen by the extra that was installed last."""
    found = dict[str, list[str]]()
    for extra, command in re.findall(r"^\$ (?:pip install .*?'\.\[([\w,]+)\]'|factrl (.*)$)", README, re.M):
        if extra:
            found[extra] = []
        else:
            [*found.values()][-1].append(command)
    return found


BLOCKS = blocks()


def test_the_blocks_are_read() -> None:
    assert [command.split()[0] for commands in BLOCKS.values() for command in commands] == [*SEEN]


def run(*words: str | Path, folder: Path, code: int = 0) -> str:
    """What a command prints; its environment has nothing of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def environment(extra: str) -> Path:
    """The programs of a new environment with factrl and one extra."""
    folder = Path(os.environ["FACTRL_ROWS"]).absolute() / extra.replace(",", "-")
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder, folder=ROOT)
    install = [folder / "bin" / "python", "-m", "pip", "install", "-qq", "-c", "constraints.txt"]
    if "train" in extra.split(","):
        run(*install, "torch", folder=ROOT)  # a CPU build that pip's own settings offer is then kept
    run(*install, f".[{extra}]", folder=ROOT)
    return folder / "bin"


@pytest.mark.skipif("FACTRL_ROWS" not in os.environ, reason="make test-rows")
@pytest.mark.parametrize("extra", BLOCKS)
def test_a_block_does_what_it_says(extra: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    programs = environment(extra)
    for words in map(shlex.split, BLOCKS[extra]):
        verb = words[0]
        if verb == "train":
            run(programs / "factrl", *words, "--dry-run", folder=tmp_path)
        assert SEEN[verb] in run(programs / "factrl", *words, *FEWER.get(verb, []), folder=tmp_path)
