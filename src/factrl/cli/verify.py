"""`factrl verify`: the claims of a text, a verdict for each, and the evidence it rests on; `factrl index`."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import INSTALL, ConfigError, DataError, TooManyMasked, Unscored, first_line, nearest
from factrl.job import REWARD_ALONE, open_judge, read_job, unread
from factrl.llm import preflight
from factrl.runs.config import settable
from factrl.runs.disk import is_page, write_page
from factrl.runs.progress import Progress
from factrl.runs.rows import refuse_pipe
from factrl.runs.settings import LOCAL, AskSettings
from factrl.text.escape import one_line
from factrl.verifier.claims import normalised
from factrl.verifier.report import SURE, Check, Report, lines_of, page

from .options import (
    Verbs,
    add_option,
    add_options,
    add_verb,
    as_overrides,
    between,
    check_place,
    is_setting,
)
from .terminal import say, tell

if TYPE_CHECKING:
    from factrl.verifier import Verifier

_SECTIONS = ("judge.", "verifier.")  # of settings: a text may have an equals sign, too
_LARGEST = 16 * 2**20  # bytes of text that are read at all
_ALL = 10**9  # claims: a limit is for rewards, or the user's own
_QUIET = 0.8  # seconds before anything is said of progress
_MANY = 30  # claims from which on it is worth one claim's time to say how long all take
_PATIENT = 7 * 86_400.0  # seconds: whoever waits at a terminal can stop by themselves
_DATA = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".db", ".xlsx"}
_NO_MODEL = (
    "No model judges: words, names and numbers are compared, which is weak and no verification. For a model: "
    f"{INSTALL.format('[local]')}, then factrl doctor --get Qwen2.5-Coder-1.5B-Instruct; or --judge URL."
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
            "  factrl verify docs/*.md --docs notes/ --strict --json > claims.jsonl\n"
            "  cat answer.txt | factrl verify --index kb --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "exit code: 0 it was checked, whatever the verdicts; with --strict 1 unless there is a claim,\n"
            "and every one is supported for sure; 2 something must be changed; 3 it could not be checked"
        ),
    )
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT | FILE | -",
        help="a text, files (also html, pdf, docx, odt), or - for stdin; settings may stand among them: "
        "verifier.judge=weak, verifier.preset=factscore, verifier.k=3, verifier.max_claims=9",
    )
    add_option(parser, "--question TEXT", "the question that the text answers", default="")
    add_options(
        parser,
        "docs",
        "index",
        "web",
        judge="model that finds and judges claims, e.g. http://host:8000/v1#model; `local`, the default, is "
        "a small one in this process",
        config="[verifier] and [judge] of a recipe",
        json="print JSON instead of text, a line for each text",
    )
    add_option(parser, "--output FILE.html", "write the report on all texts as one page")
    add_option(parser, "--ignore FILE", "accepted claims, one a line as printed; they are not judged")
    add_option(
        parser,
        "--sure P",
        "probability from which on a claim is shown as supported, not unsure (default: %(default)s)",
        type=between(0.5, 1),
        default=SURE,
    )
    add_option(parser, "--strict", "exit code 1 unless every claim is supported for sure")
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
            "  factrl index notes/ facts.jsonl.gz --output kb\n"
            "  factrl index enwiki-cirrussearch-content.json.gz --output wiki\n"
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
    add_option(parser, "--output FOLDER", "where the index shall be", required=True)


def _index(args: argparse.Namespace) -> int:
    from factrl.verifier.search.index import Index

    folder, started = Path(args.output).expanduser(), time.monotonic()
    index = Index.build(folder, args.files)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    seconds = time.monotonic() - started
    say(one_line(f"{folder}: {len(index):,} passages, {size / 1e6:,.1f} MB, {seconds:,.1f} s"))
    return 0


def _read_settings(args: argparse.Namespace) -> AskSettings:
    """The settings that stand among the texts or behind --docs, of the options, and of the recipe."""
    words = [*args.texts, *(args.docs or ())]
    sections = {key.split(".")[0] for key in settable(AskSettings) if "." in key} | {"reward"}
    for word in words:
        key = word.partition("=")[0]
        others = "." in key and key.split(".")[0] in sections and not word.startswith(_SECTIONS)
        if others and is_setting(word) and not Path(word).exists():
            raise ConfigError(
                f"{key.strip()} is a setting that factrl verify does not read; it reads judge.… and "
                "verifier.…"
            )
    args.settings = [word for word in words if word.startswith(_SECTIONS) and is_setting(word)]
    args.texts = [word for word in args.texts if word not in args.settings]
    args.docs = [word for word in args.docs or () if word not in args.settings] or None
    words = [*REWARD_ALONE, *as_overrides(args)]
    settings = read_job(
        args.config, words, AskSettings, lambda job: unread(job.settings, ["verify"])
    ).settings
    url = settings.judge.url or ""
    if url == "weak" or url.startswith(("nli:", "table:")):
        raise ConfigError(
            f"--judge {url} is no language model's address, such as http://host:8000/v1#model, and not "
            f"local; what only judges claims is verifier.judge={url}"
        )
    return settings


def _verify(args: argparse.Namespace) -> int:
    settings = _read_settings(args)
    verifier = settings.verifier
    by_table = str(verifier.judge).startswith("table:")  # which has the documents itself
    if not (verifier.docs or verifier.index or verifier.web or by_table):
        raise ConfigError(
            "no evidence to check the text against; name files with --docs, an index with --index or a "
            "search server with --web"
        )
    if args.output is not None:
        ours = partial(is_page, template="verifier/report.html")
        check_place("--output", Path(args.output), ".html", ".htm", may_replace=ours)
    accepted = [] if args.ignore is None else _accepted(Path(args.ignore))
    texts = _texts(args.texts)
    docs = _evidence(verifier.docs, texts) if verifier.docs else []
    try:
        checked = _checked(args, settings, docs, texts, accepted)
    except Unscored as error:
        raise TooManyMasked(f"the text could not be checked: {error}") from error
    if args.output is not None:
        write_page(args.output, page(*(report for _, report in checked), names=[path for path, _ in checked]))
        tell(f"report: {args.output}")
    if args.ignore is not None:
        met = {normalised(c.claim.text) for _, r in checked for c in r.checks if c.claim.skip == "accepted"}
        for claim in [claim for claim in accepted if normalised(claim) not in met]:
            tell(one_line(f"{args.ignore}: no text has this claim any more: {claim}"))
    for path, report in checked:
        where = f"{path}: " if len(checked) > 1 else ""
        try:
            report.check_verdicts(_LARGEST)
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
    except OSError as error:
        raise ConfigError(f"--ignore {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--ignore {path} is not UTF-8 text: write claims there, one a line") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _checked(
    args: argparse.Namespace,
    settings: AskSettings,
    docs: list[Path],
    texts: list[tuple[str, str]],
    accepted: list[str],
) -> list[tuple[str, Report]]:
    """The report on each text, printed as its claims are judged.

    A model in this process takes texts one after the other; a server is asked about all at once.
    """
    checked: list[tuple[str, Report]] = []
    server = settings.judge.url not in (None, LOCAL)
    with ExitStack() as stack:
        watch, spoken = _watch(stack, bar=args.json or server)
        verifier = _open(settings, docs, accepted, keep=not args.no_cache)
        if not server:
            _tell_minutes(verifier, [text for _, text in texts], args.question)
        for some in [texts] if server else [[one] for one in texts]:
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
    return checked


def _tell_minutes(verifier: Verifier, texts: list[str], question: str) -> None:
    """Say how long a model in this process will take, by the time that it takes for one claim."""
    if not getattr(verifier.judge, "alone", 0) or verifier.judge.weak:
        return
    extract: Any = verifier.extract
    claims = [claim for text in texts for claim in extract(text, question)]
    claims = [claim for claim in claims if claim.skip is None][: verifier.max_claims]
    if len(claims) < _MANY or verifier.search is None:
        return
    passages: Any = verifier.search.search(claims[0].text, verifier.k)
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
    from factrl.verifier.search.sources import KNOWN, kind_of, plain_text

    if word == "-":
        return "", plain_text(None, sys.stdin.buffer.read(_LARGEST + 1), most=_LARGEST)
    if not word.strip():
        return "", word
    path = Path(word)
    try:
        if path.is_dir():
            raise ConfigError(f"{word} is a folder; name a file, or give the text itself")
        if path.exists():
            return word, _read(path)
    except (OSError, EOFError, zlib.error) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:  # so it is a text
            return "", word
        why = getattr(error, "strerror", None) or first_line(error)
        raise DataError(f"{word} cannot be read: {why}") from error
    if "\n" not in word and kind_of(path) in {*KNOWN, *_DATA}:
        around = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        end = "; a text that ends so gets a period" if " " in word else ""
        raise DataError(f"{word} does not exist{nearest(path.name, around)}{end}")
    return "", word


def _read(path: Path) -> str:
    """The text of a file: as it is, or what `--docs` reads of a format that is not plain text.

    Raises:
        DataError: it is a table or data, or cannot be read.
    """
    from factrl.verifier.search.sources import KNOWN, PLAIN, documents, kind_of, plain_text

    refuse_pipe(path)
    kind = kind_of(path)
    if kind in _DATA:
        raise DataError(f"{path} holds rows and no text; give a text, or print the column that has them")
    if kind in PLAIN or kind not in KNOWN or not path.is_file():
        return plain_text(path, most=_LARGEST)
    return "\n\n".join(one.text for one in documents(path))


def _evidence(names: Sequence[str], texts: list[tuple[str, str]]) -> list[Path]:
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


def _open(settings: AskSettings, docs: list[Path], accepted: list[str], *, keep: bool) -> Verifier:
    """The verifier of the settings, without the limits that a reward has on claims and characters."""
    from factrl.llm.models import cache_folder
    from factrl.llm.store import Store
    from factrl.verifier import open_verifier

    checks = settings.verifier
    local = settings.judge.url == LOCAL
    llm = None if local else open_judge(settings.judge)
    if llm is not None:
        preflight(llm)  # one tiny question, before anything is read
    verifier = open_verifier(
        **checks.model_dump(exclude={"docs", "judge", "max_claims", "share", "deadline", "cache"}),
        docs=docs,
        judge=checks.judge or (LOCAL if local else None),
        llm=llm,
        max_claims=checks.max_claims or _ALL,
        max_chars=_LARGEST,
        store=Store(cache_folder() / "verdicts.db") if keep and checks.cache else None,
        accepted=accepted,
    )
    verifier.share = checks.share
    verifier.deadline = checks.deadline if "deadline" in checks.model_fields_set else _PATIENT
    if verifier.judge.weak and checks.judge != "weak":
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
