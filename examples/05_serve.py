"""A reward on another machine: `factrl serve` here, its client beside it, as any trainer would use it.

pip install '.[serve]'
python examples/05_serve.py
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import factrl as fx

QUESTION = fx.Example("In which city was Marie Curie born?", answers=("Warsaw",), id="curie")
COMPLETIONS = (r"\boxed{Warsaw}", r"\boxed{I don't know}", r"\boxed{Paris}", "Warsaw, I think.")
TOKEN = "a-secret-of-yours"  # noqa: S105


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def live(url: str) -> bool:
    """Whether the server answers."""
    try:
        urllib.request.urlopen(f"{url}/health/live", timeout=5).close()  # noqa: S310
    except OSError:
        return False
    return True


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "factrl", "serve", "truthrl", "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, "FACTRL_SERVER_TOKEN": TOKEN})  # noqa: S603
    try:
        while not live(url) and server.poll() is None:
            time.sleep(0.1)
        reward = fx.remote(url, "truthrl", token=TOKEN)
        for text, result in zip(COMPLETIONS, reward.batch([QUESTION] * 4, COMPLETIONS), strict=True):
            print(f"{text:<24}{result.value:+.0f}  {result.state:<8}{result.cause or ''}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
