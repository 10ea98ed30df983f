"""The page of `factrl serve --page`: a text, documents to check it against, and its verdicts.

The page is one file with one script (`page.html`, `page.js`).  The HTML of a report is made and escaped here,
as by `factrl verify --output`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

from factrl.errors import DataError, FactrlError, MissingExtra
from factrl.llm.background import on_background
from factrl.rewards.remote import REQUEST_LIMIT
from factrl.text import strip_end_tokens
from factrl.text.html import page as whole_page
from factrl.types import Passage
from factrl.verifier import Verifier
from factrl.verifier.engine import Job, run
from factrl.verifier.report import SURE, Report, body, page
from factrl.verifier.search import Given
from factrl.verifier.search.sources import documents, passages_of

from .schema import CheckRequest, Document, ReportRequest

_READ_WITH = {
    ".pdf": "pypdf",
    ".parquet": "pyarrow",
    ".docx": "docx",
    ".odt": "odfdo",
    **dict.fromkeys((".html", ".htm"), "lxml"),
}
FORMATS = (".txt", ".md", ".ipynb", ".json", ".jsonl", ".csv", ".tsv", *_READ_WITH)
"""What is read of documents that come over the wire: nothing packed as .gz, and no databases."""
MAX_READ = 2 * REQUEST_LIMIT  # characters of the documents of one check, whose files can be compressed
DOCUMENTS = REQUEST_LIMIT * 3 // 4 - (1 << 18)  # bytes of their files, which travel in base64 beside the text
KEPT = 16  # reports that can still be shown at another level of `--sure`
_NAME = 60  # characters of a file's name, the last, which has its format
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself has the rest of the policy
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


def _can_read(suffix: str) -> bool:
    """Whether what reads files of this format is installed."""
    return suffix not in _READ_WITH or find_spec(_READ_WITH[suffix]) is not None


class CheckPage:
    """The routes of the page.

    Args:
        verifier: checks the texts; its own search is used where no documents come with them.
    """

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._reports: dict[str, Report] = {}
        self._place: str | None = None

    @contextmanager
    def place(self) -> Iterator[None]:
        """While a server runs: a folder for documents that are being read, which goes with it."""
        with TemporaryDirectory(prefix="factrl-", ignore_cleanup_errors=True) as self._place:
            yield

    def add_to(self, api: FastAPI) -> None:
        """Add them to a server."""
        api.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)(self.show)
        api.post("/page/check", include_in_schema=False)(self.check)
        api.post("/page/report", include_in_schema=False)(self.report)

    async def show(self) -> Any:
        """The page, the same for everybody."""
        html = whole_page(
            "server/page.html",
            title="factrl: check a text",
            main="verified",
            script=files("factrl.server").joinpath("page.js").read_text(encoding="utf-8"),
            formats=",".join(suffix for suffix in FORMATS if _can_read(suffix)),
            sure=SURE,
            most=DOCUMENTS,
            own=self._verifier.search is not None,
        )
        return HTMLResponse(html, headers=_HEADERS)

    async def check(self, request: CheckRequest) -> Any:
        """A line of JSON whenever there are new verdicts: how many claims have one, and their HTML.  The last
        line has the whole report, or the `problem` why there is none; without it the check broke off.  A
        client that leaves ends the check."""
        if not request.text.strip():
            raise HTTPException(422, "the text is empty; paste what is to be checked")
        search = self._verifier.search
        if request.documents:
            try:
                search = await anyio.to_thread.run_sync(read, request.documents, self._place)
            except MissingExtra as error:
                raise HTTPException(422, str(error)) from error
        if search is None:
            raise HTTPException(422, "this server has no documents of its own; add those to check against")
        job = Job(strip_end_tokens(request.text), search, request.question)
        return StreamingResponse(self._lines(job, request.sure), media_type="application/x-ndjson")

    async def _lines(self, job: Job, sure: float) -> AsyncIterator[str]:
        loop, news, settled, started = asyncio.get_running_loop(), asyncio.Event(), (0, 0), time.monotonic()

        def watch(done: int, total: int) -> None:
            nonlocal settled
            settled = done, total
            loop.call_soon_threadsafe(news.set)

        task = loop.create_task(on_background(run(self._verifier, [job], watch)))
        task.add_done_callback(lambda _: news.set())
        try:
            while await news.wait() and not task.done():
                news.clear()
                done, total = settled
                report = self._report(job, sure, started)
                html = await anyio.to_thread.run_sync(body, report)
                yield json.dumps({"done": done, "total": total, "html": html}) + "\n"
            await task
            report = self._report(job, sure, started)
            shown = await anyio.to_thread.run_sync(self._shown, report)
            try:
                report.check_verdicts(self._verifier.max_chars)
            except FactrlError as error:
                shown["problem"] = str(error)
            key = secrets.token_urlsafe(12)
            self._reports[key] = report
            for old in [*self._reports][:-KEPT]:
                del self._reports[old]
            yield json.dumps({**shown, "id": key}) + "\n"
        except FactrlError as error:
            yield json.dumps({"problem": str(error)}) + "\n"
        finally:
            task.cancel()

    def _report(self, job: Job, sure: float, started: float) -> Report:
        return replace(self._verifier.report(job, time.monotonic() - started), sure=sure)

    def report(self, request: ReportRequest) -> Any:
        """A report of this server at another level, to be shown and to be saved."""
        report = self._reports.get(request.id)
        if report is None:
            raise HTTPException(404, "this report is not kept any more; check the text again")
        return JSONResponse(self._shown(replace(report, sure=request.sure)))

    def _shown(self, report: Report) -> dict[str, str]:
        return {"html": body(report), "page": page(report), "summary": "; ".join(report.summary())}


def read(given: Sequence[Document], place: str | None = None) -> Given:
    """The passages of documents that came over the wire.

    Args:
        place: the folder in which they lie while they are read, which nothing outlasts.

    Raises:
        DataError: one cannot be read, has no text, or all have more than `MAX_READ` characters.
        MissingExtra: what reads PDF or HTML is not installed.
    """
    passages: list[Passage] = []
    size = 0
    with TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        for number, document in enumerate(given):
            path = Path(folder, str(number), document.name[-_NAME:])  # two may have one name
            if path.suffix.lower() not in FORMATS:
                raise DataError(f"{path.name} is of no format that is read here ({', '.join(FORMATS)})")
            before = size
            try:
                path.parent.mkdir()
                path.write_bytes(base64.b64decode(document.data, validate=True))
                for one in documents(path):
                    size += len(one.text)
                    if size > MAX_READ:
                        raise DataError(f"{path} has too much text: {MAX_READ:,} characters are read at once")
                    passages += passages_of(one)
            except ValueError as error:  # also a DataError
                raise DataError(str(error).replace(f"{path.parent}/", "")) from None
            if size == before:
                raise DataError(f"{path.name} has no text")
    return Given(passages)
