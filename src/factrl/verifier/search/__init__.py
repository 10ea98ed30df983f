"""Where evidence comes from: anything with `search`.

`Index` is knowledge on disk, `Given` evidence that was handed in, and `WebSearch` somebody else's engine that
speaks like Serper: what it says of a page, never the page itself.  That one is off unless it is asked for,
because every claim goes to a server of others; what looks like a key or an e-mail address stays here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from factrl.errors import LLMError, Unscored
from factrl.types import Passage
from factrl.verifier.search.given import Given
from factrl.verifier.search.index import BrokenIndex, Index

if TYPE_CHECKING:
    from factrl.llm.client import JSONClient

__all__ = ["BrokenIndex", "Given", "Index", "Search", "WebSearch", "without_secrets"]

SERPER = "https://google.serper.dev"
KEY_VARIABLE = "SERPER_API_KEY"
_MAX_QUERY = 2_000  # characters; engines read a few dozen words


class Search(Protocol):
    """Anything that finds passages for a claim; called from many threads, or awaited, at once."""

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage] | Awaitable[list[Passage]]:
        """At most `k` passages that bear on `query`, best first; an empty list when there are none.

        Args:
            topic: the title of the document that the claim is about, for searches that know titles.

        Raises:
            Unscored: `search_failed`; that nothing was found is not a failure.
        """
        ...


class WebSearch:
    """A Serper-compatible search engine, as a `Search`; the topic has no meaning there.

    Args:
        key: None reads `SERPER_API_KEY`.
        limits: `timeout_attempt`, `max_attempts`, … of `factrl.llm.client.JSONClient`.
    """

    def __init__(self, url: str = SERPER, key: str | None = None, **limits: Any) -> None:
        from factrl.llm.client import JSONClient

        self.client: JSONClient = JSONClient(
            url,
            key or os.environ.get(KEY_VARIABLE),
            key_variable=KEY_VARIABLE,
            key_header="X-API-KEY",
            stage="search",
            **limits,
        )

    def __repr__(self) -> str:
        return f"WebSearch({self.client.base_url!r})"

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """What the engine shows for `query`, in its order; an empty list when it found nothing.

        Raises:
            Unscored: `search_failed`, with the client's cause as the fact `reason`: no connection, the quota
                is used up, the key is refused, or the reply is a page (a captcha, say) and no results.
        """
        asked = without_secrets(query)
        if not asked:
            return []
        try:
            return (await self.client.ask("POST", "/search", {"q": asked, "num": k}, _results))[:k]
        except LLMError as error:
            raise Unscored("search_failed", error.detail, **{**error.facts, "reason": error.cause}) from error


_PRIVATE = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"  # an e-mail address
    r"|\b(?:(?:sk|pk|rk|hf|glpat|xox[abp])[-_]|gh[pos]_|AKIA|AIza)(?=[\w-]{0,200}\d)[\w-]{12,200}"  # a key
    r"|\beyJ[\w-]{10,2000}(?:\.[\w-]{1,2000}){0,2}"  # a JSON web token
    r"|\b(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[A-Za-z])[\w-]{32,200}"  # letters and digits, too long for a word
)


def without_secrets(query: str) -> str:
    """The query without what looks like a key or an e-mail address.

    >>> without_secrets("Mail ann@example.org the key sk-abcdefghijklmnop1234 of Ann Lee")
    'Mail the key of Ann Lee'
    """
    return " ".join(_PRIVATE.sub(" ", query[:_MAX_QUERY]).split())


def _results(document: Any) -> list[Passage]:
    from factrl.llm.client import Unreadable

    try:
        parts = [
            [one.get(name) or "" for name in ("snippet", "title", "link")] for one in document["organic"]
        ]
        found = [Passage(text.strip(), title.strip(), source=link + "") for text, title, link in parts]
    except (TypeError, KeyError, AttributeError):  # no results, or no texts in them
        raise Unreadable("answered something other than a list of results ('organic')") from None
    return [passage for passage in found if passage.text]
