"""Searching within one document: FActScore's retrieval, as published, against factrl's index.

    FACTRL_DATA=… python benchmarks/titled.py [--passages N] [--queries 300]

FActScore's evidence is the page of a given title: a table in SQLite by title, and rank_bm25 over the passages
of the page, made when a title is first asked for and kept in memory.  That is `factscore.retrieval` 0.2.0 of
the package index, unmodified; the table is filled here in its format, because its own builder downloads a
tokenizer.  factrl searches with `topic=` the title.

The passages are those of `search.py`.  A query is the middle sentence of a passage of a document with at
least six of them, a hit one of five passages that has this sentence.  Both take turns in one process, after
each has answered twenty other queries.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from factscore_inside import fill
from search import corpus, numbered, with_packages

from factrl.text.sentences import sentences
from factrl.verifier.search import Index

LEAST = 6  # passages of a document
Find = Callable[[str, str], list[str]]  # query and title -> texts


def pages_of(passages: Path) -> dict[str, list[str]]:
    """The passages of every title."""
    pages: dict[str, list[str]] = defaultdict(list)
    for _, title, text in numbered(passages):
        pages[title].append(text)
    return pages


def of_factscore(folder: Path) -> Find:
    """Its `Retrieval`, without a cache on disk."""
    from factscore.retrieval import DocDB, Retrieval  # pyright: ignore[reportMissingImports]

    nowhere = str(folder / "none")
    pages: Any = Retrieval(DocDB(str(folder / "pages.db")), nowhere, nowhere, retrieval_type="bm25")
    return lambda query, title: [found["text"] for found in pages.get_passages(title, query, 5)]


def of_index(folder: Path) -> Find:
    """factrl's own."""
    index = Index.open(folder / "index")
    return lambda query, title: [found.text for found in index.search(query, 5, topic=title)]


def asked(passages: Path, count: int) -> list[tuple[str, str]]:
    """`count` sentences, each with the title of its document."""
    pages: dict[str, list[str]] = defaultdict(list)
    for _, title, text in numbered(passages):
        pages[title].append(text)
    known = [(title, text) for title, texts in pages.items() if len(texts) >= LEAST for text in texts]
    queries: list[tuple[str, str]] = []
    for title, text in random.Random(0).sample(known, len(known)):
        parts = sentences(text)
        middle = parts[len(parts) // 2]
        if len(parts) > 2:
            queries.append((text[middle.start : middle.end], title))
        if len(queries) == count:
            break
    return queries


def measure(passages: Path, folder: Path, count: int) -> list[str]:
    """Build both, then ask both; lines of a Markdown table."""
    builds: dict[str, tuple[Callable[[], Any], Callable[[Path], Find]]] = {
        "FActScore 0.2.0": (lambda: fill(pages_of(passages), folder / "pages.db"), of_factscore),
        "`factrl index`, `topic=`": (lambda: Index.build(folder / "index", [passages]), of_index),
    }
    built: dict[str, float] = {}
    finds: dict[str, Find] = {}
    for name, (build, start) in builds.items():
        begun = time.process_time()
        build()
        built[name] = time.process_time() - begun
        with contextlib.redirect_stdout(io.StringIO()):
            finds[name] = start(folder)
    queries = asked(passages, count + 20)
    times: dict[str, list[float]] = {name: [] for name in finds}
    hits: dict[str, list[bool]] = {name: [] for name in finds}
    for number, (query, title) in enumerate(queries):
        for name, find in finds.items():
            begun = time.process_time()
            found = find(query, title)
            if number >= 20:
                times[name].append(1e3 * (time.process_time() - begun))
                hits[name].append(any(_plain(query) in _plain(text) for text in found))
    lines = ["| engine | build CPU s | p50 ms | p99 ms | hit@5 |", "|---|--:|--:|--:|--:|"]
    for name in finds:
        cuts = statistics.quantiles(times[name], n=100)
        hit = statistics.mean(hits[name])
        lines.append(f"| {name} | {built[name]:.1f} | {cuts[49]:.2f} | {cuts[98]:.2f} | {hit:.3f} |")
    return lines


def _plain(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passages", type=int)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--packages", type=Path, default=Path(".venv-search"), help="made when missing")
    options = parser.parse_args()
    environment = with_packages(options.packages.resolve())
    if (
        os.environ.get("PYTHONPATH") != environment["PYTHONPATH"]
    ):  # imports are looked up there from the start
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)  # noqa: S603
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lines = measure(corpus(folder, options.passages), folder, options.queries)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
