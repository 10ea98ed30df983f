"""In which order two other reward loops send their calls, as plain blocking HTTP.  It is not their code.

    python benchmarks/call_patterns.py sequential|safe|knowrl RESPONSES.json URL       prints JSON

SAFE (google-deepmind/long-form-factuality 9d27158) and KnowRL's reward (zjunlp/KnowRL f75b0bb) are on no
package index.  What is kept of them is only what waits for what; prompts are a line of ours, no reply is ever
wrong, and nothing is cached or written to disk, all of which costs the originals more.

- sequential: one response after the other; one extraction, then for each claim one search and one verdict.
- safe: one extraction for each sentence; for each claim a revision, a check of relevance, five rounds of a
  query by the model and a search, and an answer.  Responses in up to 25 threads, its default.
- knowrl: a judge call for each response, then an extraction for each, then each claim against the passages of
  its page, at most five, until one entails it: 10 ms for such a pair, by a model that is not asked over HTTP.
  One after the other throughout.  Every answer counts as judged wrong, since only those get their facts
  checked; a true claim is entailed by its first passage.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SAFE_THREADS, SAFE_ROUNDS = 25, 5
PAIR_S, PASSAGES = 0.010, 5

Item = dict[str, Any]  # text; sentences: (sentence, ((claim, is it true), …))


class Server:
    """The stub, over one connection for each thread."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc
        self._own = threading.local()

    def ask(self, prompt: str) -> str:
        """What the model says."""
        document = {"model": "stub", "messages": [{"role": "user", "content": prompt}]}
        return self._post("/v1/chat/completions", document)["choices"][0]["message"]["content"]

    def claims(self, text: str) -> list[str]:
        """One extraction."""
        reply = self.ask(f"Please breakdown the following sentence into independent facts: {text}")
        return [line.removeprefix("- ") for line in reply.split("\n") if line.startswith("- ")]

    def verdict(self, claim: str, found: Sequence[str]) -> bool:
        """One verdict."""
        return self.ask("\n".join((*found, f"Input: {claim} True or False?\nOutput:"))) == "True"

    def search(self, query: str) -> list[str]:
        """One search."""
        return [one["snippet"] for one in self._post("/search", {"q": query, "num": 3})["organic"]]

    def _post(self, path: str, document: Item) -> Item:
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(self._host)
        headers = {"Content-Type": "application/json"}
        self._own.connection.request("POST", path, json.dumps(document), headers)
        with self._own.connection.getresponse() as answer:
            return json.load(answer)


def sequential(server: Server, items: Sequence[Item]) -> int:
    """How many claims were judged."""
    count = 0
    for item in items:
        for claim in server.claims(item["text"]):
            server.verdict(claim, server.search(claim))
            count += 1
    return count


def safe(server: Server, items: Sequence[Item]) -> int:
    """How many claims were judged."""
    with ThreadPoolExecutor(SAFE_THREADS) as threads:
        return sum(threads.map(lambda item: _safe(server, item), items))


def knowrl(server: Server, items: Sequence[Item]) -> int:
    """How many claims were judged."""
    true = {claim for item in items for _, facts in item["sentences"] for claim, is_true in facts if is_true}
    for _ in items:
        server.ask("Is the answer correct?")
    found = [server.claims(item["text"]) for item in items]
    for claim in (claim for claims in found for claim in claims):
        for _ in range(1 if claim in true else PASSAGES):
            time.sleep(PAIR_S)
    return sum(map(len, found))


PATTERNS: dict[str, Callable[[Server, Sequence[Item]], int]] = {
    "sequential": sequential,
    "safe": safe,
    "knowrl": knowrl,
}


def _safe(server: Server, item: Item) -> int:
    claims = [claim for sentence, _ in item["sentences"] for claim in server.claims(sentence)]
    for claim in claims:
        server.ask(f"Revise: {claim}")
        server.ask(f"Is it relevant: {claim}")
        found: list[str] = []
        for _ in range(SAFE_ROUNDS):
            server.ask(f"A query for: {claim}")
            found += server.search(claim)
        server.verdict(claim, found)
    return len(claims)


def main() -> None:
    """Run what the command line names; wall and CPU seconds."""
    name, path, url = sys.argv[1:]
    items, server = json.loads(Path(path).read_text("utf-8")), Server(url)
    wall, cpu = time.perf_counter(), time.process_time()
    claims = PATTERNS[name](server, items)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sys.stdout.write(json.dumps({"wall": wall, "cpu": cpu, "claims": claims}) + "\n")


if __name__ == "__main__":
    main()
