"""Each row of README's table does what it says in an environment that has its extra and nothing else.

`make test-rows` runs it: environments are made anew under the folder that FACTRL_ROWS names, which takes
minutes, and the models of `factrl models list` must be on this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
ROWS = {
    extra: re.findall(r"`(factrl [^`]+)`", rest)
    for extra, rest in re.findall(r"^\| \*\*[^|]*\| `\.\[([\w,]+)\]` \|([^|]*)\|", README, re.M)
}
# What a row begins with is given before its command; and what is seen of it.
FILES = {
    "answer.txt": "Marie Curie was born in Warsaw. She won two Nobel Prizes.\n",
    "notes/curie.md": (ROOT / "examples" / "curie.txt").read_text("utf-8"),
    "answers.jsonl": json.dumps({"question": "Q?", "answers": ["Warsaw"], "completion": "Warsaw."}) + "\n",
}
SEEN = {"verify": "supported", "train": "small-truthrl", "eval": "hallucination"}
FEWER = {"train": ["--steps", "1"]}  # of the eight of the recipe


def test_the_table_is_read() -> None:
    assert [*map(len, ROWS.values())] == [1, 1, 1]
    assert {command.split()[1] for (command,) in ROWS.values()} == {*SEEN}


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
@pytest.mark.parametrize("extra", ROWS)
def test_a_row_does_what_it_says(extra: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    programs, (command,) = environment(extra), ROWS[extra]
    verb = command.split()[1]
    words = [
        w
        for word in command.split()[1:]
        for w in (sorted(map(str, tmp_path.glob(word))) if "*" in word else [word])
    ]
    if verb == "train":
        run(programs / "factrl", *words, "--dry-run", folder=tmp_path)
    assert SEEN[verb] in run(programs / "factrl", *words, *FEWER.get(verb, []), folder=tmp_path)
    if verb == "verify":  # README's first command, from a clone
        first = re.search(r'^\$ factrl verify ("[^"]*") (--docs \S+)$', README, re.M)
        assert first
        told = run(programs / "factrl", "verify", first[1].strip('"'), *first[2].split(), folder=ROOT)
        assert "1 refuted, 1 supported of 2" in told
    if verb == "train":  # without a package, a dry run says what the run says
        run(programs / "python", "-m", "pip", "uninstall", "-qq", "-y", "xllamacpp", folder=tmp_path)
        told = [
            run(programs / "factrl", *words, *more, folder=tmp_path, code=2) for more in ([], ["--dry-run"])
        ]
        assert (
            told[0]
            == told[1]
            == "factrl: xllamacpp is not installed; run: pip install '.[local]' in a clone of factrl\n"
        )
