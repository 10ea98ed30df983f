"""`factrl index`: knowledge on disk, for the claims of `factrl verify` and of training."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from factrl.text.escape import one_line

from .options import Verbs, add_verb
from .terminal import say


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "index",
        _index,
        about="build an index of passages from files, a folder or a Wikipedia dump",
        example=(
            "examples:\n"
            "  factrl index notes/ facts.jsonl.gz --out kb\n"
            "  factrl index enwiki-cirrussearch-content.json.gz --out wiki\n"
            "Rows have a column text (or contents, passage), and may have title, url (or source) and id.\n"
            "An interrupted build begins anew when the same command is run again."
        ),
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="jsonl, csv, tsv, txt, md (each also .gz), parquet, db, or a folder of these",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the index shall be")


def _index(args: argparse.Namespace) -> int:
    from factrl.verifier.search.index import Index

    folder, started = Path(args.out).expanduser(), time.monotonic()
    index = Index.build(folder, args.files)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    seconds = time.monotonic() - started
    say(one_line(f"{folder}: {len(index):,} passages, {size / 1e6:,.1f} MB, {seconds:,.1f} s"))
    return 0
