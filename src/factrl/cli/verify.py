"""`factrl verify`: the claims of a text, a verdict for each, and the evidence it rests on; `factrl index`."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import INSTALL, ConfigError, DataError, TooManyMasked, Unscored, nearest
from factrl.llm import connect, preflight
from factrl.runs.config import read_toml
from factrl.runs.disk import is_page, write_page
from factrl.runs.progress import Progress
from factrl.text.escape import one_line
from factrl.verifier.claims import normalised
from factrl.verifier.report import SURE, Check, Report, lines_of, page

from .options import Verbs, add_option, add_options, add_verb, at_least_one, between, check_place
from .terminal import say, tell

if TYPE_CHECKING:
    from factrl.verifier import Verifier

_LARGEST = 16 * 2**20  # bytes of text that are read at all
_ALL = 10**9  # claims: a limit is for rewards, or the user's own
_QUIET = 0.8  # seconds before anything is said of progress
_MANY = 30  # claims from which on it is worth one claim's time to say how long all take
_PATIENT = 7 * 86_400.0  # seconds: whoever waits at a terminal can stop by themselves
_HEAD = 200  # bytes in which a file says what it is
_MARKS = {b"%pdf-": "a PDF (.pdf)", b"<!doctype html": "a page (.html)", b"<html": "a page (.html)"}
_MARKS |= {b"pk\x03\x04": "a document of an office suite or an archive (.docx, .odt)"}
_DOCUMENTS = {".html", ".htm", ".pdf", ".docx", ".odt", ".ipynb"}
_DATA = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".db", ".xlsx"}
_TEXT_FILES = {".txt", ".text", ".md", ".markdown", ".rst", ".html", ".json", ".jsonl", ".csv"}
_NO_MODEL = (
    "No model judges: words, names and numbers are compared, which is weak and no verification. For a model: "
    f"{INSTALL.format('[local]')}, then factrl doctor --get Qwen2.5-Coder-1.5B-Instruct; or --judge URL."
)


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "verify",
        lambda args: _verify(args if args.config is None else _configured(parser, args)),
        about="check a text: its claims, a verdict for each, and the evidence",
        example=(
            "examples:\n"
            '  factrl verify "Marie Curie was born in Warsaw in 1868." --docs curie.txt\n'
            "  factrl verify answer.txt --index kb --html answer.html\n"
            "  cat answer.txt | factrl verify --docs notes/*.md --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl verify docs/*.md --docs notes/ --strict --json > claims.jsonl\n"
            '  factrl verify docs/*.md --config verify.toml   # docs = ["notes/"], strict = true, …\n'
            "S supported, R refuted, ? unsure (between the two), U unknown (the evidence does not say),\n"
            "! no verdict (the judge failed), – skipped (nothing to check: a question, an opinion, a hedge)\n"
            "exit code: 0 it was checked, whatever the verdicts; with --strict 1 unless there is a claim,\n"
            "and every one is supported for sure; 2 something must be changed; 3 it could not be checked"
        ),
    )
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT | FILE | -",
        help="what to check: a text, files (also html, pdf, docx, odt), or - for stdin",
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
        parser,
        "--judge URL",
        "language model that finds the claims and judges them, e.g. http://host:8000/v1#model; `local` is a "
        "small one in this process, which is the default where it is. What only judges claims is a word "
        "among the texts: verifier.judge=weak, verifier.judge=nli:NAME",
    )
    add_option(parser, "--html FILE", "write the report on all texts as one self-contained page")
    add_option(
        parser,
        "--ignore FILE",
        "accepted claims, one a line as they are printed, # for remarks: they are not judged and count for "
        "and against nothing",
    )
    add_option(
        parser,
        "--config FILE.toml",
        "options, each under its long name (docs, strict, max-claims, …); the command line's own win",
    )
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


def _configured(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.Namespace:
    """The options with those of the file `--config` where the command line has none.

    Raises:
        ConfigError: the file is no TOML, or has what is no option.
    """
    path = Path(args.config).expanduser()
    options = {action.dest: action for action in parser._actions if action.option_strings}
    words: list[str] = []
    for name, value in read_toml(path).items():
        if name == "verifier" and isinstance(value, Mapping) and [*value] == ["judge"]:
            if not any(word.startswith(_OWN_JUDGE) for word in args.texts):
                args.texts = [*args.texts, f"{_OWN_JUDGE}{value['judge']}"]
            continue
        action = options.get(name.replace("-", "_"))
        if action is None or action.dest in ("help", "config"):
            raise ConfigError(f"{path}: verify has no option {name!r}{nearest(name, options)}")
        option = action.option_strings[0]
        if isinstance(value, bool) and action.nargs == 0:
            words += [option] if value else []
        elif isinstance(value, list) and action.nargs == "+":
            words += [option, *map(str, value)]
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool) and action.nargs != 0:
            words += [f"{option}={value}"]
        else:
            wanted = "true or false" if action.nargs == 0 else "a list" if action.nargs else "one value"
            raise ConfigError(f"{path}: {name} = {value!r}; it takes {wanted}")
    try:
        read = parser.parse_args(words)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    for name, action in options.items():
        if name in vars(args) and getattr(args, name) == action.default:
            setattr(args, name, getattr(read, name))
    return args


_OWN_JUDGE = "verifier.judge="


def _take_judge(args: argparse.Namespace) -> None:
    """Tell a language model (`args.llm`) from what only judges claims (`args.judge`)."""
    words = map(str, [*args.texts, *args.docs])  # behind --docs a word is taken for one of them
    named = [word.removeprefix(_OWN_JUDGE) for word in words if word.startswith(_OWN_JUDGE)]
    args.texts, args.docs = (
        [word for word in some if not str(word).startswith(_OWN_JUDGE)] for some in (args.texts, args.docs)
    )
    asked, args.llm = args.judge, None
    if asked is not None and asked != "local":
        if "#" not in asked and "://" not in asked:
            raise ConfigError(
                f"--judge {asked} is no language model's address, such as http://host:8000/v1#model, and not "
                f"local; what only judges claims is {_OWN_JUDGE}{asked}"
            )
        args.llm = asked
    args.judge = named[-1] if named else "local" if asked == "local" else None


def _verify(args: argparse.Namespace) -> int:
    _take_judge(args)
    by_table = str(args.judge).startswith("table:")  # which has the documents itself
    if not args.docs and args.index is None and args.web is None and not by_table:
        raise ConfigError(
            "no evidence to check the text against; name files with --docs, an index with --index or a "
            "search server with --web"
        )
    if args.html is not None:
        check_place("--html", Path(args.html), may_replace=partial(is_page, template="verifier/report.html"))
    accepted = [] if args.ignore is None else _accepted(Path(args.ignore))
    texts = _texts(args.texts)
    if args.docs:
        args.docs = _evidence(args.docs, texts)
    try:
        checked, max_chars = _checked(args, texts, accepted)
    except Unscored as error:
        raise TooManyMasked(f"the text could not be checked: {error}") from error
    if args.html is not None:
        write_page(args.html, page(*(report for _, report in checked), names=[path for path, _ in checked]))
        tell(f"report: {args.html}")
    if args.ignore is not None:
        met = {normalised(c.claim.text) for _, r in checked for c in r.checks if c.claim.skip == "accepted"}
        for claim in [claim for claim in accepted if normalised(claim) not in met]:
            tell(one_line(f"{args.ignore}: no text has this claim any more: {claim}"))
    for path, report in checked:
        where = f"{path}: " if len(checked) > 1 else ""
        try:
            report.check_verdicts(max_chars)
        except (ConfigError, TooManyMasked) as error:
            raise type(error)(f"{where}{error}") from error
        if missing := report.likelier["unjudged"]:
            tell(
                f"{where}{missing} of {report.claims} claims have no verdict; run again to judge only those."
            )
    return int(args.strict and not all(_is_supported(report) for _, report in checked))


def _accepted(path: Path) -> list[str]:
    try:
        lines = path.expanduser().read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--ignore {path} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _checked(
    args: argparse.Namespace, texts: list[tuple[str, str]], accepted: list[str]
) -> tuple[list[tuple[str, Report]], int]:
    """The report on each text, printed as its claims are judged, and the most characters that are read.

    A model in this process takes texts one after the other; a server is asked about all at once.
    """
    checked: list[tuple[str, Report]] = []
    with ExitStack() as stack:
        watch, spoken = _watch(stack, bar=args.json or args.llm is not None)
        verifier = _open(args, accepted)
        _tell_minutes(args, verifier, [text for _, text in texts])
        for some in [texts] if args.llm is not None else [[one] for one in texts]:
            alone = len(some) == 1 and not args.json
            lines = 0

            def show(_: int, check: Check) -> None:
                nonlocal lines
                spoken()
                if not lines and len(texts) > 1:
                    say(one_line(f"{some[0][0]}:"))  # noqa: B023 - called before the next
                shown = Report("", checks=(_looked_at(check),), weak=verifier.judge.weak, sure=args.sure)
                lines += 1
                say("\n".join(lines_of(shown.checks[0])))
                sys.stdout.flush()

            reports = verifier.batch(
                [text for _, text in some],
                [args.question] * len(some),
                topics=[args.topic] * len(some),
                watch=watch,
                seen=show if alone else None,
            )
            spoken()
            for (path, _), report in zip(some, reports, strict=True):
                own = replace(report, checks=tuple(map(_looked_at, report.checks)), sure=args.sure)
                checked.append((path, own))
                if args.json:
                    say(json.dumps({**({"file": path} if path else {}), **own.to_json()}))
                    continue
                if len(texts) > 1 and not lines:
                    say(one_line(f"{path}:"))
                if own.failure is None and not own.floored:
                    say("\n".join(own.ending()) if lines else str(own))
            sys.stdout.flush()
    return checked, verifier.max_chars


def _tell_minutes(args: argparse.Namespace, verifier: Verifier, texts: list[str]) -> None:
    """Say how long a model in this process will take, by the time that it takes for one claim."""
    if args.llm is not None or not getattr(verifier.judge, "alone", 0) or verifier.judge.weak:
        return
    extract: Any = verifier.extract
    claims = [claim for text in texts for claim in extract(text, args.question, args.topic)]
    claims = [claim for claim in claims if claim.skip is None][: args.max_claims]
    if len(claims) < _MANY or verifier.search is None:
        return
    passages: Any = verifier.search.search(claims[0].text, verifier.k, topic=args.topic)
    started = time.monotonic()
    verifier.judge.judge([(claims[0], passages)])
    minutes = len(claims) * (time.monotonic() - started) / 60
    if minutes >= 1:
        tell(
            f"{len(claims):,} claims: about {minutes:,.0f} minutes at most; those that stand there word for "
            "word, and those judged before, take none. A model server is faster: --judge URL#MODEL"
        )


def _looked_at(check: Check) -> Check:
    """The check without a verdict where it is beyond the user's limit; it counts for and against nothing."""
    over = check.verdict is not None and check.verdict.cause == "over_limit"
    return replace(check, verdict=None, claim=replace(check.claim, skip="limit")) if over else check


def _is_supported(report: Report) -> bool:
    """Whether there is a claim, all were looked at, every one is supported for sure or accepted, and none is
    a hedge."""
    open_ones = report.not_looked_at or any(check.hedged for check in report.checks)
    accepted = sum(check.claim.skip == "accepted" for check in report.checks)
    return not open_ones and report.claims + accepted > 0 and report.claims == report.counts["supported"]


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
            return word, _read(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # too long for a name, so it is a text
            raise DataError(f"{word} cannot be read: {error.strerror}") from error
    if len(word.split()) == 1 and path.suffix.lower() in _TEXT_FILES:
        around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"{word} does not exist{nearest(path.name, around)}")
    return "", word


def _read(path: Path) -> str:
    """The text of a file: as it is, or what `--docs` reads of a format that is not plain text.

    Raises:
        DataError: it is a table or data, or cannot be read.
    """
    from factrl.verifier.search.sources import documents, kind_of

    kind = kind_of(path)
    if kind in _DATA:
        raise DataError(f"{path} holds rows and no text; give a text, or print the column that has them")
    if kind in _DOCUMENTS:
        return "\n\n".join(one.text for one in documents(path))
    with path.open("rb") as file:
        return _decoded(file.read(_LARGEST + 1), str(path))


def _decoded(data: bytes, name: str) -> str:
    from factrl.verifier.search.sources import decoded

    for mark, kind in _MARKS.items():
        if data[:_HEAD].lstrip().lower().startswith(mark):
            raise DataError(f"{name} is {kind}; name a file that ends so, and it is read as --docs reads it")
    if len(data) > _LARGEST:
        raise DataError(f"{name} has more than {_LARGEST / 2**20:.0f} MiB; name a file with one text")
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


def _open(args: argparse.Namespace, accepted: list[str]) -> Verifier:
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
        accepted=accepted,
    )
    verifier.deadline = _PATIENT
    if verifier.judge.weak and args.judge != "weak":
        tell(_NO_MODEL)
    return verifier


def _watch(stack: ExitStack, *, bar: bool) -> tuple[Callable[[int, int], None], Callable[[], None]]:
    """A line on stderr once opening or checking takes more than a moment, and a bar as verdicts come.

    Returns:
        What counts verdicts for the bar, if there is to be one, and what says that something is shown.
    """
    started = time.monotonic()
    first = threading.Timer(_QUIET, tell, ["checking; a model that has to be loaded takes a while"])
    first.daemon = True
    first.start()
    stack.callback(first.cancel)
    bars: list[Progress] = []

    def watch(done: int, total: int) -> None:
        if bar and not bars and done < total and time.monotonic() - started > _QUIET:
            bars.append(stack.enter_context(Progress("verify", total)))
        for one in bars:
            one.total = max(one.total, total)
            one.advance(max(done - one.done, 0))

    return watch, first.cancel
