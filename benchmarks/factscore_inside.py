"""What runs inside FActScore's environment: its `get_score` with a clock around it.

    python factscore_inside.py TIMINGS       in a folder that `factscore_run.py` laid out

The package itself is not touched.  torch and transformers, which it imports for models that are not asked
here, are replaced by nothing; NLTK's download of what is there already does nothing; its own `Retrieval` is
opened with the package's `bm25`, since its default needs a GPU and a model.  The model's address is the
OpenAI client's own environment variable.  Imports nothing of factrl.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

SOURCE = "enwiki-20230401"  # the name of its default


def fill(pages: dict[str, list[str]], database: Path) -> None:
    """FActScore's table: the passages of a title in one text, with its separator between them."""
    from factscore.retrieval import SPECIAL_SEPARATOR  # pyright: ignore[reportMissingImports]

    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE documents (title PRIMARY KEY, text)")
        rows = ((title, SPECIAL_SEPARATOR.join(texts)) for title, texts in pages.items())
        connection.executemany("INSERT INTO documents VALUES (?, ?)", rows)
        connection.commit()


def score(report: Path) -> None:
    """`FactScorer.get_score` on the responses of this folder; models are loaded before the clock starts."""
    import nltk  # pyright: ignore[reportMissingImports]
    import spacy  # noqa: F401  # pyright: ignore[reportMissingImports]

    nltk.download = lambda *_, **__: True
    sys.modules.update({name: MagicMock() for name in ("torch", "transformers")})
    from factscore.atomic_facts import AtomicFactGenerator  # pyright: ignore[reportMissingImports]
    from factscore.factscorer import FactScorer  # pyright: ignore[reportMissingImports]
    from factscore.retrieval import DocDB, Retrieval  # pyright: ignore[reportMissingImports]

    rows = json.loads(Path("responses.json").read_text("utf-8"))
    fill(json.loads(Path("pages.json").read_text("utf-8")), Path("pages.db"))
    scorer = FactScorer(model_name="retrieval+ChatGPT", data_dir=".", cache_dir="cache", openai_key="api.key")
    where = [os.path.join("cache", f"retrieval-{SOURCE}.{kind}") for kind in ("json", "pkl")]
    scorer.retrieval[SOURCE] = Retrieval(DocDB("pages.db"), *where, retrieval_type="bm25")
    scorer.af_generator = AtomicFactGenerator(
        key_path="api.key", demon_dir="demos", gpt3_cache_file=os.path.join("cache", "InstructGPT.pkl")
    )
    wall, cpu = time.perf_counter(), time.process_time()
    found = scorer.get_score([row["topic"] for row in rows], [row["text"] for row in rows])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    decisions = [one for each in found["decisions"] if each for one in each]
    supported = sum(bool(one["is_supported"]) for one in decisions)
    result = {"wall": wall, "cpu": cpu, "claims": len(decisions), "supported": supported}
    report.write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    score(Path(sys.argv[1]))
