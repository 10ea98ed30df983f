"""Runs that die in the middle: each in a fork of one process, which imports torch once for all of them.

python dying.py '[["train", "rollouts", 2, "kill", "recipe.toml", "run.output=here"], …]'
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

Death = Sequence[Any]
"""The verb, after how many calls of what (`MOMENTS`), `kill` or `interrupt`, and what the verb is given."""


def died(*deaths: Death) -> tuple[list[int], str]:
    """The exit code of each run, one after another, and what they wrote on stderr."""
    command = [sys.executable, __file__, json.dumps(deaths)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def run(verb: str, where: str, after: int, how: str, *words: str) -> None:
    from factrl.job import read_job
    from factrl.runs import disk, folder
    from factrl.train import offline, online
    from factrl.train.plan import make_plan
    from factrl.train.tuning import samples
    from factrl.train.tuning.plan import plan_tuning
    from factrl.train.tuning.settings import read_tuning_job

    moments = {
        "rollouts": (folder.Run, "write_rollouts"),
        "logging": (folder.Run, "log"),
        "sampling": (disk.Journal, "add"),
        "ending": (offline, "say_done"),
    }
    kind, method = moments[where]
    plain, calls = getattr(kind, method), 0

    def dying(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after and how == "kill":
            os._exit(9)  # nothing is closed, flushed or released
        if calls == after + 1:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(*args)

    setattr(kind, method, dying)
    samples.PART = 8
    if verb == "train":
        online.train(make_plan(read_job(words[0], words[1:])))
    else:
        offline.tune(plan_tuning(read_tuning_job(None, words)))


if __name__ == "__main__":
    import factrl.train.offline
    import factrl.train.online  # noqa: F401

    codes = []
    for death in json.loads(sys.argv[1]):
        if (child := os.fork()) == 0:
            try:
                run(*death)
            except KeyboardInterrupt as stopped:
                sys.stderr.write(f"{stopped}\n")
                sys.stderr.flush()
                os._exit(130)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.stdout.write(json.dumps(codes) + "\n")
