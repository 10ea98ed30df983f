"""What runs inside VeriScore's environment: its command line with a clock around it, and its splitter.

    python veriscore_inside.py score SEARCH_URL TIMINGS      in a folder that `veriscore_run.py` laid out
    python veriscore_inside.py sentences TEXTS SENTENCES

The package itself is not touched.  Two things are replaced while it runs: the address of the search
(hard-coded in the package, so requests to it are sent to the stub) and, by wrappers that only add up time
and tokens, a few functions.  The model's address is the OpenAI client's own environment variable.  Imports
nothing of factrl.
"""

from __future__ import annotations

import functools
import json
import runpy
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

SERPER = "https://google.serper.dev/search"


class Clock:
    """Adds up the seconds inside functions, and remembers when the first of them began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.started: tuple[float, float] | None = None

    def time(self, owner: Any, function: str, name: str) -> None:
        """Count the time in `owner.function` under `name`."""
        original = getattr(owner, function)

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            if self.started is None:
                self.started = (begun, time.process_time())
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - begun

        setattr(owner, function, timed)


def score(search_url: str, report: Path) -> None:
    """`python -m veriscore.veriscore` with its own defaults, timed from its first extraction."""
    import requests
    from veriscore.claim_extractor import ClaimExtractor  # pyright: ignore[reportMissingImports]
    from veriscore.get_response import GetResponse  # pyright: ignore[reportMissingImports]
    from veriscore.search_API import SearchAPI  # pyright: ignore[reportMissingImports]

    send = requests.request
    requests.request = lambda method, url, **rest: send(method, search_url if url == SERPER else url, **rest)
    clock = Clock()
    clock.time(ClaimExtractor, "get_sentence", "sentences")
    clock.time(SearchAPI, "save_cache", "cache")
    clock.time(GetResponse, "save_cache", "cache")
    clock.time(SearchAPI, "get_search_res", "search")
    sys.argv = ["veriscore", "--input_file", "responses.jsonl"]
    saves: dict[str, list[tuple[int, float]]] = defaultdict(list)
    save = GetResponse.save_cache

    def saved(self: Any) -> None:
        begun = time.perf_counter()
        save(self)
        saves[Path(self.cache_file).stem].append((len(self.cache_dict), time.perf_counter() - begun))

    GetResponse.save_cache = saved
    tokens = 0
    count = GetResponse.get_response

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal tokens
        reply = count(self, *args, **kwargs)
        tokens += reply[1]
        return reply

    GetResponse.get_response = counted
    runpy.run_module("veriscore.veriscore", run_name="__main__")
    assert clock.started  # noqa: S101
    result = {
        "wall": time.perf_counter() - clock.started[0],
        "cpu": time.process_time() - clock.started[1],
        "tokens_in": tokens,
        "saves": saves,
        **clock.seconds,
    }
    report.write_text(json.dumps(result), "utf-8")


def sentences(texts: Path, report: Path) -> None:
    """VeriScore's `get_sentence` on each text, after one text to warm up."""
    import spacy  # pyright: ignore[reportMissingImports]

    split = spacy.load("en_core_web_sm")
    responses = json.loads(texts.read_text("utf-8"))
    list(split(responses[0]).sents)
    seconds, found = [], []
    for text in responses:
        begun = time.perf_counter()
        found.append([sentence.text.strip() for sentence in split(text).sents])
        seconds.append(time.perf_counter() - begun)
    report.write_text(json.dumps({"seconds": seconds, "sentences": found}), "utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "score":
        score(sys.argv[2], Path(sys.argv[3]))
    else:
        sentences(Path(sys.argv[2]), Path(sys.argv[3]))
