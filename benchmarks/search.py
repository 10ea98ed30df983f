"""Search engines on the same passages: time and memory to build, bytes on disk, latency, hit@5.

    FACTRL_DATA=… python benchmarks/search.py [--engine NAME …] [--passages N] [--folder F] [--questions N]

Without --passages: the real passages of `evidence_corpus`; with it, N passages, of which the real ones come
first and the rest are made of their words.  Every engine builds in one process and searches in another, so
that each peak of memory is its own.  A hit is an accepted answer that occurs, as whole words, in one of the
first five passages.  Latency is CPU time of the searching process, passages included, over claims of
`factscore_human`.

Other people's packages are installed into a folder of their own, `--packages`, when one of their engines is
asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from factrl.runs.rows import read_rows
from factrl.text.answers import normalize_answer
from factrl.verifier.search import Index
from factrl.verifier.search.sources import words

SETS = {
    "hotpotqa_2wiki_eval": "eval.jsonl",
    "triviaqa_1k": "test.jsonl",
    "halueval_qa": "all.jsonl.gz",
}
Search = Callable[[str], list[str]]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a .jsonl or .jsonl.gz file."""
    return map(dict, read_rows(str(path)))


def data() -> Path:
    """The folder of the public data sets."""
    return Path(os.environ["FACTRL_DATA"])


# The passages


def corpus(folder: Path, count: int | None) -> Path:
    """A JSON Lines file with the real passages, filled up to `count` with made-up ones."""
    path = folder / f"passages-{count or 'real'}.jsonl"
    if path.exists():
        return path
    real = list(rows(data() / "evidence_corpus" / "passages.jsonl.gz"))
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w", encoding="utf-8") as out:
        for row in real[:count]:
            out.write(json.dumps({"title": row["title"], "text": row["text"]}) + "\n")
        for row in made_up(real, (count or 0) - len(real)):
            out.write(json.dumps(row) + "\n")
    unfinished.rename(path)
    return path


def made_up(real: list[dict[str, Any]], count: int) -> Iterator[dict[str, str]]:
    """Half of the words of two passages each, shuffled, under a name that no other passage has.

    So words are as frequent, and as often together, as in the real ones, and the vocabulary keeps growing.
    """
    dice = random.Random(0)
    split = [row["text"].split() for row in real]
    letters = "aeioubdfgklmnprst"
    for _ in range(count):
        one, other = split[dice.randrange(len(split))], split[dice.randrange(len(split))]
        mixed = one[::2] + other[1::2]
        dice.shuffle(mixed)
        name = "".join(dice.choices(letters, k=7)).capitalize()
        yield {"title": name, "text": f"{name} {' '.join(mixed[:100])}"}


def numbered(path: Path) -> Iterator[tuple[int, str, str]]:
    """Number, title and text of every passage."""
    for number, row in enumerate(rows(path)):
        yield number, row["title"], row["text"]


# Other people's packages

# Without their dependencies: what they need beside these is in the environment of `make bench`.
PINS = (
    "bm25s==0.3.16",
    "rank-bm25==0.2.2",
    "factscore==0.2.0",
    "lancedb==0.40.0",
    "lance-namespace==0.13.0",
    "lance-namespace-urllib3-client==0.13.0",
    "deprecation==2.1.0",
    "overrides==7.7.0",
)


def with_packages(folder: Path) -> dict[str, str]:
    """An environment in which they can be imported; they are installed into `folder` the first time."""
    stamp = folder / "pins.txt"
    if not stamp.exists() or stamp.read_text("utf-8") != "\n".join(PINS):
        install = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--upgrade"]
        subprocess.run([*install, "--target", str(folder), *PINS], check=True)  # noqa: S603
        stamp.write_text("\n".join(PINS), "utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


# The engines: build(passages, folder), then open(folder) -> search


class FTS5:
    """SQLite's own, with `words` on both sides; the passages in a table beside it."""

    def build(self, passages: Path, folder: Path) -> None:
        """One transaction, then one merge."""
        database = sqlite3.connect(folder / "fts.sqlite")
        database.execute("CREATE TABLE p (n INTEGER PRIMARY KEY, title TEXT, text TEXT)")
        database.execute("CREATE VIRTUAL TABLE f USING fts5(w, content='', tokenize='unicode61')")
        database.execute("INSERT INTO f(f, rank) VALUES ('hashsize', 33554432)")
        for number, title, text in numbered(passages):
            database.execute("INSERT INTO p VALUES (?, ?, ?)", (number, title, text))
            database.execute(
                "INSERT INTO f(rowid, w) VALUES (?, ?)", (number, " ".join(words(f"{title} {text}")))
            )
        database.execute("INSERT INTO f(f) VALUES ('optimize')")
        database.commit()
        database.close()

    def open(self, folder: Path) -> Search:
        """Any of the words, ranked by bm25."""
        database = sqlite3.connect(folder / "fts.sqlite")
        sql = "SELECT p.text FROM f JOIN p ON p.n = f.rowid WHERE f MATCH ? ORDER BY f.rank LIMIT 5"

        def search(query: str) -> list[str]:
            wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(query)))
            return [text for (text,) in database.execute(sql, (wanted or '""',))]

        return search


class BM25S:
    """bm25s with its own tokeniser and stop words, opened as a memory map."""

    def build(self, passages: Path, folder: Path) -> None:
        """All passages in memory, as it wants them."""
        import bm25s

        texts = [f"{title} {text}" for _, title, text in numbered(passages)]
        tokens = bm25s.tokenize(texts, stopwords="en", show_progress=False)
        engine = bm25s.BM25()
        engine.index(tokens, show_progress=False)
        engine.save(folder, corpus=texts)

    def open(self, folder: Path) -> Search:
        """One query at a time."""
        import bm25s

        engine = bm25s.BM25.load(folder, mmap=True, load_corpus=True)

        def search(query: str) -> list[str]:
            tokens = bm25s.tokenize(query, stopwords="en", show_progress=False)
            found, _ = engine.retrieve(tokens, k=5, show_progress=False, n_threads=0)
            return [entry["text"] for entry in found[0]]

        return search


class RankBM25:
    """rank_bm25, on lower-case words; it keeps no index, so what is built is a pickle of its object."""

    def build(self, passages: Path, folder: Path) -> None:
        """All passages in memory, as it wants them."""
        import pickle

        from rank_bm25 import BM25Okapi  # pyright: ignore[reportMissingImports]

        texts = [f"{title} {text}" for _, title, text in numbered(passages)]
        engine = BM25Okapi([text.lower().split() for text in texts])
        with (folder / "engine.pickle").open("wb") as file:
            pickle.dump((engine, texts), file, protocol=pickle.HIGHEST_PROTOCOL)

    def open(self, folder: Path) -> Search:
        """Every passage is scored for every query."""
        import pickle

        with (folder / "engine.pickle").open("rb") as file:
            engine, texts = pickle.load(file)  # noqa: S301
        return lambda query: engine.get_top_n(query.lower().split(), texts, n=5)


class Tantivy:
    """tantivy with `words` on both sides, the passages stored in it."""

    def build(self, passages: Path, folder: Path) -> None:
        """One writing thread, one commit."""
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_bytes_field("text", stored=True)
        schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
        writer = tantivy.Index(schema.build(), str(folder)).writer(heap_size=64_000_000, num_threads=1)
        for _, title, text in numbered(passages):
            writer.add_document(
                tantivy.Document(text=text.encode(), words=" ".join(words(f"{title} {text}")))
            )
        writer.commit()
        writer.wait_merging_threads()

    def open(self, folder: Path) -> Search:
        """Any of the words."""
        import tantivy

        index = tantivy.Index.open(str(folder))
        searcher, schema = index.searcher(), index.schema

        def search(query: str) -> list[str]:
            terms = [
                tantivy.Query.term_query(schema, "words", word, "freq")
                for word in dict.fromkeys(words(query))
            ]
            wanted = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
            return [
                bytes(searcher.doc(address)["text"][0]).decode()
                for _, address in searcher.search(wanted, 5, count=False).hits
            ]

        return search


class LanceDB:
    """LanceDB's full-text index, without positions."""

    def build(self, passages: Path, folder: Path) -> None:
        """Batches of 10,000 rows, then the index."""
        import lancedb
        import pyarrow as pa

        schema = pa.schema([("text", pa.string()), ("words", pa.string())])

        def batches() -> Iterator[Any]:
            source = numbered(passages)
            while chunk := list(islice(source, 10_000)):
                yield pa.RecordBatch.from_pylist(
                    [{"text": x, "words": f"{t} {x}"} for _, t, x in chunk], schema
                )

        table = lancedb.connect(folder).create_table("p", batches(), schema=schema)
        table.create_fts_index("words", with_position=False, remove_stop_words=True, stem=False)

    def open(self, folder: Path) -> Search:
        """Any of the words."""
        import lancedb
        from lancedb.query import MatchQuery

        table = lancedb.connect(folder).open_table("p")

        def search(query: str) -> list[str]:
            found = table.search(MatchQuery(query, "words")).select(["text", "_score"]).limit(5)
            return [row["text"] for row in found.to_list()]

        return search


class Ours:
    """factrl's own index: tantivy with titles, checksums and a build that goes on."""

    def build(self, passages: Path, folder: Path) -> None:
        """As `factrl index` does it."""
        Index.build(folder, [passages])

    def open(self, folder: Path) -> Search:
        """As a verifier does it."""
        index = Index.open(folder)
        return lambda query: [passage.text for passage in index.search(query, 5)]


ENGINES: dict[str, Callable[[], Any]] = {
    "fts5": FTS5,
    "bm25s": BM25S,
    "rank_bm25": RankBM25,
    "tantivy": Tantivy,
    "lancedb": LanceDB,
    "index": Ours,
}


OTHERS = {"bm25s", "rank_bm25", "lancedb"}


# Measuring


def questions(count: int) -> dict[str, list[tuple[str, list[str]]]]:
    """Set -> questions with answers that can be found in a text; yes and no cannot."""
    found = {}
    for name, file in SETS.items():
        known = [r for r in rows(data() / name / file) if r["answers"]]
        useful = [r for r in known if normalize_answer(r["answers"][0]) not in ("", "yes", "no")]
        random.Random(0).shuffle(useful)
        found[name] = [(r["question"], r["answers"]) for r in useful[:count]]
    return found


def is_hit(texts: list[str], answers: list[str]) -> bool:
    """Whether an answer occurs in one of the texts as whole words."""
    inside = [f" {normalize_answer(text)} " for text in texts]
    return any(f" {normalize_answer(answer)} " in text for answer in answers for text in inside)


def build(engine: str, passages: Path, folder: Path) -> dict[str, Any]:
    """Build once; what it took."""
    started, cpu = time.perf_counter(), time.process_time()
    ENGINES[engine]().build(passages, folder)
    return {
        "build_s": time.perf_counter() - started,
        "build_cpu_s": time.process_time() - cpu,
        "build_rss_mb": peak_mb(),
        "disk_mb": sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6,
    }


def search(engine: str, folder: Path, count: int) -> dict[str, Any]:
    """Open and search; latencies and hits."""
    find: Search = ENGINES[engine]().open(folder)
    claims = [row["claim"] for row in rows(data() / "factscore_human" / "facts.jsonl.gz")]
    random.Random(0).shuffle(claims)
    for claim in claims[count : count + 20]:
        find(claim)  # warm up
    times, walls = [], []
    for claim in claims[:count]:
        started, cpu = time.perf_counter(), time.process_time()
        find(claim)
        times.append((time.process_time() - cpu) * 1e3)
        walls.append((time.perf_counter() - started) * 1e3)
    hits = {
        name: statistics.mean(is_hit(find(question), answers) for question, answers in asked)
        for name, asked in questions(count).items()
    }
    cuts, wall_cuts = statistics.quantiles(times, n=100), statistics.quantiles(walls, n=100)
    return {
        "p50_ms": cuts[49],
        "p99_ms": cuts[98],
        "wall_p50_ms": wall_cuts[49],
        "wall_p99_ms": wall_cuts[98],
        "search_rss_mb": peak_mb(),
        **hits,
    }


def peak_mb() -> float:
    """This process's largest resident size so far; `getrusage` would begin with that of the parent."""
    return int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def main() -> None:
    """One line of JSON per engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", nargs="*", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--passages", type=int)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "factrl-bench-search")
    parser.add_argument("--packages", type=Path, default=Path(".venv-search"), help="made when missing")
    parser.add_argument("--step", choices=["build", "search"], help="used by the benchmark itself")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    passages = corpus(args.folder, args.passages)
    for engine in args.engine:
        folder = args.folder / engine
        if args.step == "build":
            report = build(engine, passages, folder)
        elif args.step == "search":
            report = search(engine, folder, args.questions)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            report = {"engine": engine, "passages": args.passages or "real"}
            environment = with_packages(args.packages.resolve()) if engine in OTHERS else None
            for step in ("build", "search"):
                told = ["--engine", engine, "--questions", str(args.questions), "--folder", str(args.folder)]
                told += ["--passages", str(args.passages)] if args.passages else []
                command = [sys.executable, __file__, *told, "--step", step]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)  # noqa: S603
                report |= json.loads(done.stdout)
            shutil.rmtree(folder)
        short = {key: round(value, 3) if isinstance(value, float) else value for key, value in report.items()}
        sys.stdout.write(json.dumps(short) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
