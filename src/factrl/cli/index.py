"""`factrl index`: knowledge on disk, for the claims of `factrl verify` and of training."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from factrl.errors import ConfigError
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
            "  factrl index more.parquet --out kb --add\n"
            "An interrupted build goes on when the same command is run again. Rows have a column text (or\n"
            "contents, passage), and may have title, url (or source) and id."
        ),
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="jsonl, csv, tsv, txt, md (each also .gz), parquet, db, or a folder of these",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the index is, or shall be")
    parser.add_argument("--add", action="store_true", help="add the files to an index that is there already")


def _index(args: argparse.Namespace) -> int:
    from factrl.verifier.search.index import NAME, Index

    folder = Path(args.out).expanduser()
    started = time.monotonic()
    if not args.add:
        index, before = Index.build(folder, args.files), 0
    elif (folder / NAME).exists():
        index = Index.open(folder)
        before = len(index)
        index.add(args.files)
    else:
        raise ConfigError(f"there is no index in {folder} to add to; leave out --add to build one")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    added = f" ({len(index) - before:,} new)" if args.add else ""
    seconds = time.monotonic() - started
    say(one_line(f"{folder}: {len(index):,} passages{added}, {size / 1e6:,.1f} MB, {seconds:,.1f} s"))
    return 0
