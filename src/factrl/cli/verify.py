"""`factrl verify`: the claims of a text, a verdict for each, and the evidence it rests on."""

from __future__ import annotations

import argparse
import errno
import json
import re
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DataError, LLMError, SetupError, TooManyMasked, Unscored, nearest
from ..llm import connect, preflight
from ..progress import Progress
from .options import Verbs, add_verb, at_least_one, check_place
from .terminal import complain, say, tell

if TYPE_CHECKING:
    from ..cache import Store
    from ..openai_compatible import OpenAICompatible
    from ..verifier import Report, Verifier

_LARGEST = 16 * 2**20  # bytes of text that are read at all
_QUIET = 2.0  # seconds before a progress bar appears
_TEXT_FILES = {".txt", ".text", ".md", ".markdown", ".rst", ".html", ".json", ".jsonl", ".csv"}
_COLOURS = {"S": "green", "C": "bold red", "N": "yellow", "?": "bold magenta", "-": "dim"}
_LABEL = re.compile(r"[SCN?] (?:supported|refuted|unknown|unjudged) |- skipped ")
_DOWN = {"connection", "timeout", "http_429", "breaker_open"}  # the server's doing, not the user's
_NO_MODEL = (
    "No model judges here: words, names and numbers are compared, which is weak and no verification. For a "
    "model: pip install 'factrl[local]', then factrl models get Qwen2.5-Coder-1.5B-Instruct; or use --llm."
)


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "verify",
        _verify,
        about="check a text: its claims, a verdict for each, and the evidence it rests on",
        example=(
            "examples:\n"
            '  factrl verify "Marie Curie was born in Warsaw in 1868." --docs curie.txt\n'
            "  factrl verify answer.txt --index kb --html answer.html\n"
            "  cat answer.txt | factrl verify --docs notes/*.md --llm http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "exit code: 0 it was checked, whatever the verdicts; 2 something must be changed first;\n"
            "3 it could not be checked"
        ),
    )
    parser.add_argument("text", nargs="?", metavar="TEXT | FILE | -", help="what to check; - reads stdin")
    parser.add_argument("--question", metavar="TEXT", default="", help="the question that the text answers")
    parser.add_argument(
        "--topic", metavar="TITLE", default="", help="search only the document with this title"
    )
    evidence = parser.add_argument_group("evidence, one of them")
    evidence.add_argument(
        "--docs", metavar="FILE", nargs="+", action="extend", default=[], help="txt, md, jsonl, csv, parquet"
    )
    evidence.add_argument("--index", metavar="FOLDER", help="made by factrl index")
    evidence.add_argument("--web", metavar="URL", help="a Serper-compatible search server; needs a key")
    parser.add_argument(
        "--llm",
        metavar="SPEC",
        help="model server that finds the claims and judges, e.g. http://host:8000/v1#model",
    )
    parser.add_argument(
        "--judge",
        metavar="local|weak|nli:NAME",
        help="what judges (default: local where its model is, else weak)",
    )
    parser.add_argument(
        "--preset", default="local", metavar="NAME", help="local, factscore, veriscore, knowrl, fspo"
    )
    parser.add_argument("--k", metavar="N", type=at_least_one, help="passages for each claim")
    parser.add_argument("--max-claims", metavar="N", type=at_least_one, help="claims that are judged")
    parser.add_argument("--max-chars", metavar="N", type=at_least_one, help="a longer text is not read")
    parser.add_argument("--recall-at", metavar="K", type=at_least_one, help="recall@K and F1@K too")
    parser.add_argument("--html", metavar="FILE", help="write the report as one self-contained page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor keep verdicts")


def _verify(args: argparse.Namespace) -> int:
    _check(args)
    text = _text(args.text)
    if not text.strip():
        raise ConfigError("the text is empty; give it as an argument, name a file, or pipe it in")
    verifier = _open(args)
    try:
        with _Watch() as watch:
            report = verifier(text, args.question, topic=args.topic, watch=watch)
    except Unscored as error:
        raise TooManyMasked(f"the text could not be checked: {error}") from error
    written = _write(report, args)
    if args.json:
        say(json.dumps(_document(report, args.recall_at), indent=2))
    elif report.failure is None and not report.floored:
        _show("\n".join([str(report), *_recall(report, args.recall_at)]))
    return _code(report, verifier, written)


def _check(args: argparse.Namespace) -> None:
    """What is missing or cannot be written, before anything is read or paid for."""
    if not args.docs and args.index is None and args.web is None:
        raise ConfigError(
            "no evidence to check the text against; name files with --docs, an index with --index or a "
            "search server with --web"
        )
    if args.html is not None:
        check_place("--html", Path(args.html))


def _code(report: Report, verifier: Verifier, written: bool) -> int:
    """The exit code, after a word on what is missing."""
    if report.failure is not None:
        raise TooManyMasked(f"the text could not be checked: {report.failure}")
    if report.floored and len(report.text) <= verifier.max_chars:
        raise TooManyMasked(
            f"the text could not be checked ({report.floored}): the model cannot list its claims; shorten "
            "it, or take a model with a longer context"
        )
    if report.floored:
        raise ConfigError(
            f"the text has {len(report.text):,} characters, more than the {verifier.max_chars:,} that are "
            "read; shorten it or raise --max-chars"
        )
    missing = report.counts["unjudged"]
    if missing and missing == report.claims:
        raise TooManyMasked(f"none of the claims could be judged ({_why(report)})")
    if missing:
        tell(f"{missing} of {report.claims} claims have no verdict; run again to judge only those.")
    return 0 if written else 2


def _why(report: Report) -> str:
    """The causes of missing verdicts with their counts, and what was said about the first."""
    missing = [check.verdict for check in report.checks if check.verdict and check.verdict.cause]
    causes = Counter(verdict.cause for verdict in missing)
    detail = next((f": {verdict.facts['detail']}" for verdict in missing if verdict.facts.get("detail")), "")
    return ", ".join(f"{count} {cause}" for cause, count in causes.most_common()) + detail


# What is checked, and with what


def _text(word: str | None) -> str:
    """The text itself, or what is in the file or the pipe that the word names."""
    if word is None and sys.stdin.isatty():
        raise ConfigError("no text; give it as an argument (before --docs), name a file, or pipe it in")
    if word is None or word == "-":
        return _decoded(sys.stdin.buffer.read(_LARGEST + 1), "stdin")
    if not word.strip():
        return word
    path = Path(word)
    try:
        if path.is_dir():
            raise ConfigError(f"{word} is a folder; name a file, or give the text itself")
        if path.is_file():
            with path.open("rb") as file:
                return _decoded(file.read(_LARGEST + 1), word)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # too long for a name, so it is a text
            raise DataError(f"{word} cannot be read: {error.strerror}") from error
    if len(word.split()) == 1 and path.suffix.lower() in _TEXT_FILES:
        around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{word} does not exist{nearest(path.name, around)}")
    return word


def _decoded(data: bytes, name: str) -> str:
    if len(data) > _LARGEST:
        raise DataError(f"{name} has more than {_LARGEST / 2**20:.0f} MiB; name a file with one text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start:,}") from None


def _open(args: argparse.Namespace) -> Verifier:
    from ..verifier.presets import open_verifier

    verifier = open_verifier(
        args.preset,
        docs=args.docs,
        index=args.index,
        web=args.web,
        llm=_server(args.llm) if args.llm is not None else None,
        judge=args.judge,
        k=args.k,
        max_claims=args.max_claims,
        max_chars=args.max_chars,
        store=None if args.no_cache else _store(),
    )
    if verifier.judge.weak and args.judge != "weak":
        tell(_NO_MODEL)
    return verifier


def _server(spec: str) -> OpenAICompatible:
    """The model server, after one tiny question.

    Raises:
        SetupError: the user must change something: the address, the model's name or the key.
        TooManyMasked: it is down.
    """
    llm = connect(spec)
    try:
        preflight(llm)
    except SetupError as error:
        cause = error.__cause__
        if isinstance(cause, LLMError) and (cause.cause in _DOWN or cause.cause.startswith("http_5")):
            raise TooManyMasked(str(error)) from error
        raise
    return llm


def _store() -> Store:
    from ..cache import Store
    from ..models import cache_folder

    return Store(cache_folder() / "verdicts.db")


class _Watch:
    """A progress bar on stderr, once checking takes longer than a moment."""

    def __init__(self) -> None:
        self._stack, self._started = ExitStack(), time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and done < total and time.monotonic() - self._started > _QUIET:
            self._bar = self._stack.enter_context(Progress("verify", total))
        if self._bar is not None:
            self._bar.advance(done - self._bar.done)


# What comes of it


def _write(report: Report, args: argparse.Namespace) -> bool:
    """The page; false when it could not be written."""
    from ..verifier.html import page

    if args.html is None:
        return True
    try:
        Path(args.html).write_text(page(report, recall_at=args.recall_at), encoding="utf-8")
    except OSError as error:
        complain(f"--html {args.html} could not be written: {error.strerror}")
        return False
    tell(f"report: {args.html}")
    return True


def _more(report: Report, k: int | None) -> dict[str, tuple[float, float]]:
    """Recall@K and F1@K, when they were asked for and there are claims."""
    if k is None or report.failure is not None or not report.claims:
        return {}
    return {f"{name}@{k}": report.bounds(score, k) for name, score in (("recall", "recall"), ("F1", "f1"))}


def _document(report: Report, k: int | None) -> dict[str, Any]:
    more = _more(report, k).items()
    return {
        **report.to_json(),
        **{name: dict(zip(("low", "high"), ends, strict=True)) for name, ends in more},
    }


def _recall(report: Report, k: int | None) -> list[str]:
    return [
        f"{name} = {low:.2f}" if low == high else f"{name} = between {low:.2f} and {high:.2f}"
        for name, (low, high) in _more(report, k).items()
    ]


def _show(text: str) -> None:
    """The report on stdout, its verdicts coloured where that is a terminal."""
    if not sys.stdout.isatty():
        say(text)
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text()
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        label = _LABEL.match(line)
        split = label.end() if label else 0
        shown.append(line[:split], _COLOURS[line[0]] if label else None).append(line[split:])
    Console(file=sys.stdout, highlight=False).print(shown, soft_wrap=True)
