"""`factrl verify`: the claims of a text, a verdict for each, and the evidence it rests on; `factrl index`."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import INSTALL, ConfigError, DataError, TooManyMasked, Unscored, nearest
from factrl.llm import connect, preflight
from factrl.runs.disk import is_page
from factrl.runs.progress import Progress
from factrl.text.escape import one_line
from factrl.verifier.report import SURE, Check, Report

from .options import Verbs, add_option, add_options, add_verb, at_least_one, between, check_place
from .terminal import say, tell

if TYPE_CHECKING:
    from factrl.verifier import Verifier

_LARGEST = 16 * 2**20  # bytes of text that are read at all
_ALL = 10**9  # claims: a limit is for rewards, or the user's own
_QUIET = 0.8  # seconds before anything is said of progress
_TEXT_FILES = {".txt", ".text", ".md", ".markdown", ".rst", ".html", ".json", ".jsonl", ".csv"}
_NO_MODEL = (
    "No model judges here: words, names and numbers are compared, which is weak and no verification. For a "
    f"model: {INSTALL.format('[local]')}, then factrl doctor --get Qwen2.5-Coder-1.5B-Instruct; or use --llm."
)


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "verify",
        _verify,
        about="check a text: its claims, a verdict for each, and the evidence",
        example=(
            "examples:\n"
            '  factrl verify "Marie Curie was born in Warsaw in 1868." --docs curie.txt\n'
            "  factrl verify answer.txt --index kb --html answer.html\n"
            "  cat answer.txt | factrl verify --docs notes/*.md --llm http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl verify docs/*.md --docs notes/ --strict --json > claims.jsonl\n"
            "exit code: 0 it was checked, whatever the verdicts; with --strict 1 unless there is a claim,\n"
            "and every one is supported for sure; 2 something must be changed; 3 it could not be checked"
        ),
    )
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT | FILE | -",
        help="what to check: a text, files, or - for stdin",
    )
    add_option(parser, "--question TEXT", "the question that the text answers", default="")
    add_option(parser, "--topic TITLE", "search only the document with this title", default="")
    evidence = parser.add_argument_group("evidence, one of them")
    add_option(
        evidence,
        "--docs FILE",
        "txt, md, html, pdf, docx, odt, jsonl, csv, parquet, or a folder of these; the text is left out",
        nargs="+",
        action="extend",
        default=[],
    )
    add_option(evidence, "--index FOLDER", "made by factrl index")
    add_option(
        evidence,
        "--web ENGINE",
        "searxng:URL, wikipedia, serper, tavily, brave, exa, or a server that speaks like Serper",
    )
    add_option(parser, "--preset NAME", "local, factscore, veriscore, knowrl, fspo", default="local")
    add_option(
        parser, "--llm SPEC", "model server that finds the claims and judges, e.g. http://host:8000/v1#model"
    )
    add_option(
        parser,
        "--judge local|weak|nli:NAME",
        "what judges (default: local where its model is, else weak)",
    )
    add_option(parser, "--html FILE", "write the report as one self-contained page")
    add_option(parser, "--k N", "passages that are searched for each claim", type=at_least_one)
    add_option(parser, "--max-claims N", "claims that are looked at (default: all)", type=at_least_one)
    add_option(parser, "--max-chars N", "a longer text is not read", type=at_least_one)
    add_options(parser, json="print JSON instead of text, a line for each text")
    add_option(
        parser,
        "--sure P",
        "the judge's probability from which on a claim is shown as supported, and not as unsure "
        "(default: %(default)s)",
        type=between(0.5, 1),
        default=SURE,
    )
    add_option(
        parser,
        "--strict",
        "exit code 1 unless there is a claim, and every one is supported for sure",
    )
    add_option(parser, "--no-cache", "neither read nor keep verdicts")
    _add_index(verbs)


def _add_index(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "index",
        _index,
        about="build an index of passages from files or a Wikipedia dump",
        example=(
            "examples:\n"
            "  factrl index notes/ facts.jsonl.gz --out kb\n"
            "  factrl index enwiki-cirrussearch-content.json.gz --out wiki\n"
            "Rows have a column text (or contents, passage), and may have title, url (or source) and id;\n"
            "those of a table without such a column are read as they are.\n"
            "An interrupted build begins anew when the same command is run again."
        ),
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="jsonl, csv, tsv, txt, md, html (also .gz), pdf, docx, odt, parquet, db, or a folder of these",
    )
    add_option(parser, "--out FOLDER", "where the index shall be", required=True)


def _index(args: argparse.Namespace) -> int:
    from factrl.verifier.search.index import Index

    folder, started = Path(args.out).expanduser(), time.monotonic()
    index = Index.build(folder, args.files)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    seconds = time.monotonic() - started
    say(one_line(f"{folder}: {len(index):,} passages, {size / 1e6:,.1f} MB, {seconds:,.1f} s"))
    return 0


def _verify(args: argparse.Namespace) -> int:
    by_table = str(args.judge).startswith("table:")  # which has the documents itself
    if not args.docs and args.index is None and args.web is None and not by_table:
        raise ConfigError(
            "no evidence to check the text against; name files with --docs, an index with --index or a "
            "search server with --web"
        )
    if args.html is not None:
        check_place("--html", Path(args.html), may_replace=partial(is_page, template="verifier/report.html"))
    texts = _texts(args.texts)
    several = len(texts) > 1
    if several and args.html is not None:
        raise ConfigError("--html is about one text; name one file, or use --json")
    if args.docs:
        args.docs = _evidence(args.docs, texts)
    verifier, max_chars, checked = None, 0, list[tuple[str, Report]]()
    try:
        for path, text in texts:
            with ExitStack() as stack:
                watch = _watch(stack)
                verifier = verifier or _open(args)
                report = verifier(text, args.question, topic=args.topic, watch=watch)
                max_chars = verifier.max_chars
                checked.append((path, replace(_looked_at(report), sure=args.sure)))
    except Unscored as error:
        raise TooManyMasked(f"the text could not be checked: {error}") from error
    _print(args, checked)
    if args.html is not None:
        checked[0][1].to_html(args.html)
        tell(f"report: {args.html}")
    for path, report in checked:
        where = f"{path}: " if several else ""
        try:
            report.check_verdicts(max_chars)
        except (ConfigError, TooManyMasked) as error:
            raise type(error)(f"{where}{error}") from error
        if missing := report.likelier["unjudged"]:
            tell(
                f"{where}{missing} of {report.claims} claims have no verdict; run again to judge only those."
            )
    return int(args.strict and not all(_is_supported(report) for _, report in checked))


def _print(args: argparse.Namespace, checked: list[tuple[str, Report]]) -> None:
    for path, report in checked:
        if args.json:
            say(json.dumps({**({"file": path} if path else {}), **report.to_json()}))
            continue
        if len(checked) > 1:
            say(one_line(f"{path}:"))
        if report.failure is None and not report.floored:
            say(str(report))


def _looked_at(report: Report) -> Report:
    """The report without verdicts on claims beyond the user's limit, which count for and against nothing."""

    def seen(check: Check) -> Check:
        over = check.verdict is not None and check.verdict.cause == "over_limit"
        return replace(check, verdict=None, claim=replace(check.claim, skip="limit")) if over else check

    return replace(report, checks=tuple(map(seen, report.checks)))


def _is_supported(report: Report) -> bool:
    """Whether there is a claim, all were looked at, every one is supported for sure, and none is a hedge."""
    open_ones = report.not_looked_at or any(check.hedged for check in report.checks)
    return not open_ones and 0 < report.claims == report.counts["supported"]


def _texts(words: list[str]) -> list[tuple[str, str]]:
    """The path, "" where there is none, and the text of each: an argument, the pipe, or files."""
    if not words and sys.stdin.isatty():
        raise ConfigError("no text; give it as an argument (before --docs), name a file, or pipe it in")
    texts = [_text(word) for word in words or ["-"]]
    if len(words) > 1:
        for word, (path, _) in zip(words, texts, strict=True):
            if not path:
                raise ConfigError(
                    f"{word[:60]!r} is no file, and several texts are read from files; put one text in quotes"
                )
        texts = [*{Path(path).resolve(): (path, text) for path, text in texts}.values()]
    filled = [(path, text) for path, text in texts if text.strip()]
    empty = [path or "the text" for path, text in texts if not text.strip()]
    if not filled:
        raise ConfigError(f"{', '.join(empty)}: empty; give a text, name a file that has one, or pipe it in")
    for path in empty:  # of many files, as a commit hook names them
        tell(f"{path} is empty and left out")
    return filled


def _text(word: str) -> tuple[str, str]:
    if word == "-":
        return "", _decoded(sys.stdin.buffer.read(_LARGEST + 1), "stdin")
    if not word.strip():
        return "", word
    path = Path(word)
    try:
        if path.is_dir():
            raise ConfigError(f"{word} is a folder; name a file, or give the text itself")
        if path.is_file():
            with path.open("rb") as file:
                return word, _decoded(file.read(_LARGEST + 1), word)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # too long for a name, so it is a text
            raise DataError(f"{word} cannot be read: {error.strerror}") from error
    if len(word.split()) == 1 and path.suffix.lower() in _TEXT_FILES:
        around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{word} does not exist{nearest(path.name, around)}")
    return "", word


def _decoded(data: bytes, name: str) -> str:
    if len(data) > _LARGEST:
        raise DataError(f"{name} has more than {_LARGEST / 2**20:.0f} MiB; name a file with one text")
    from factrl.verifier.search.sources import decoded

    try:
        return decoded(data)
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start:,}") from None


def _evidence(names: list[str], texts: list[tuple[str, str]]) -> list[Path]:
    """The files behind `--docs`, without those that are checked: a text would bear itself out."""
    from factrl.verifier.search.sources import find_sources

    files = find_sources(names)
    checked = {Path(path).resolve(): path for path, _ in texts if path}
    others = [file for file in files if file.resolve() not in checked]
    left_out = ", ".join(checked[file.resolve()] for file in files if file.resolve() in checked)
    if not others:
        raise ConfigError(
            f"--docs names nothing but {left_out}, the text that is checked; name what it is to be checked by"
        )
    if left_out:
        tell(f"{left_out} is left out of --docs: it is the text that is checked")
    return others


def _open(args: argparse.Namespace) -> Verifier:
    from factrl.llm.models import cache_folder
    from factrl.llm.store import Store
    from factrl.verifier import open_verifier

    llm = None if args.llm is None else connect(args.llm)
    if llm is not None:
        preflight(llm)  # one tiny question, before anything is read
    verifier = open_verifier(
        args.preset,
        docs=args.docs,
        index=args.index,
        web=args.web,
        llm=llm,
        judge=args.judge,
        k=args.k,
        max_claims=args.max_claims or _ALL,
        max_chars=args.max_chars,
        store=None if args.no_cache else Store(cache_folder() / "verdicts.db"),
    )
    if verifier.judge.weak and args.judge != "weak":
        tell(_NO_MODEL)
    return verifier


def _watch(stack: ExitStack) -> Callable[[int, int], None]:
    """A line on stderr once opening or checking takes more than a moment, then a bar as verdicts come."""
    started = time.monotonic()
    first = threading.Timer(_QUIET, tell, ["checking; a model that has to be loaded takes a while"])
    first.daemon = True
    first.start()
    stack.callback(first.cancel)
    bars: list[Progress] = []

    def watch(done: int, total: int) -> None:
        if not bars and done < total and time.monotonic() - started > _QUIET:
            bars.append(stack.enter_context(Progress("verify", total)))
        for bar in bars:
            bar.advance(done - bar.done)

    return watch
