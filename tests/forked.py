"""Programs that start at once: each is forked from a process that has loaded torch and the trainers.

`factrl` and `python FILE` in a folder for PATH hand their words, variables and streams to that process.  The
copy that does the work ends by SIGKILL when its caller does, and its caller with its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CALL = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
words = ["factrl", *sys.argv[1:]] if {factrl} else sys.argv[1:]
told = {{"words": words, "folder": os.getcwd(), "variables": dict(os.environ)}}
socket.send_fds(server, [json.dumps(told).encode()], [0, 1, 2])
sys.exit(int(server.recv(9) or 1))
"""


@contextlib.contextmanager
def programs(folder: Path, **environment: str) -> Iterator[str]:
    """The folder of `factrl` and `python`, while the process that they are forked from lives.

    Args:
        environment: what that process loads its modules with.
    """
    address = str(folder / "socket")
    for name in ("factrl", "python"):
        call = CALL.format(python=sys.executable, address=address, factrl=name == "factrl")
        (folder / name).write_text(call, encoding="utf-8")
        (folder / name).chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address], env=environment, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"loaded\n"
        try:
            yield str(folder)
        finally:
            one.kill()


def serve(address: str) -> None:
    """Fork for each call; in the copy, run its program."""
    import runpy

    import accelerate
    import datasets
    import transformers
    import trl

    import factrl.__main__
    import factrl.cli.train
    from factrl.train import grpo

    assert all((accelerate, datasets, grpo, transformers.LlamaForCausalLM))
    assert all(hasattr(trl, name) for name in ("DPOTrainer", "GRPOTrainer", "SFTTrainer"))  # loads them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    os.write(1, b"loaded\n")
    while True:
        caller, _ = server.accept()
        if os.fork():
            caller.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server.close()
        message, streams, *_ = socket.recv_fds(caller, 1 << 20, 3)
        if worker := os.fork():
            ended = os.pidfd_open(worker)
            if caller in select.select([caller, ended], [], [])[0]:
                os.kill(worker, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            with contextlib.suppress(OSError):
                caller.sendall(str(code).encode())
            os._exit(0)
        caller.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        told = json.loads(message)
        os.chdir(told["folder"])
        os.environ.clear()
        os.environ.update(told["variables"])
        sys.argv = told["words"]
        if sys.argv[0] == "factrl":
            sys.exit(factrl.__main__.main())
        runpy.run_path(sys.argv[0], run_name="__main__")
        return


if __name__ == "__main__":
    serve(sys.argv[1])
