"""Evidence from a web search engine that speaks like Serper: what it says of a page, never the page itself.

Off unless it is asked for: every claim goes to somebody else's server.  What looks like a key or an e-mail
address stays here.  A search that failed is `Unscored`, never evidence and never "nothing was found".
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from factrl.errors import LLMError, Unscored
from factrl.types import Passage

if TYPE_CHECKING:
    from factrl.llm.client import JSONClient

SERPER = "https://google.serper.dev"
KEY_VARIABLE = "SERPER_API_KEY"
_MAX_QUERY = 2_000  # characters; engines read a few dozen words

_PRIVATE = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"  # an e-mail address
    r"|\b(?:(?:sk|pk|rk|hf|glpat|xox[abp])[-_]|gh[pos]_|AKIA|AIza)(?=[\w-]{0,200}\d)[\w-]{12,200}"  # a key
    r"|\beyJ[\w-]{10,2000}(?:\.[\w-]{1,2000}){0,2}"  # a JSON web token
    r"|\b(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[A-Za-z])[\w-]{32,200}"  # letters and digits, too long for a word
)


class WebSearch:
    """A Serper-compatible search engine, as a `Search`.

    Args:
        url: its address, to which `/search` is appended.
        key: the API key; None reads `SERPER_API_KEY`.
        key_variable: the environment variable of the key.
        limits: `timeout_attempt`, `max_attempts`, `max_concurrency`, `rpm`, `max_calls`, … of
            `factrl.llm.client.JSONClient`.

    Raises:
        ConfigError: a value that cannot work.
    """

    def __init__(
        self, url: str = SERPER, key: str | None = None, *, key_variable: str = KEY_VARIABLE, **limits: Any
    ) -> None:
        from factrl.llm.client import JSONClient

        self.client: JSONClient = JSONClient(
            url,
            key or os.environ.get(key_variable),
            key_variable=key_variable,
            key_header="X-API-KEY",
            stage="search",
            **limits,
        )

    def __repr__(self) -> str:
        return f"WebSearch({self.client.base_url!r})"

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """What the engine shows for `query`, in its order; an empty list when it found nothing.

        Args:
            topic: has no meaning here: the web has no documents by title.

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


def without_secrets(query: str) -> str:
    """The query without what looks like a key or an e-mail address.

    >>> without_secrets("Mail ann@example.org the key sk-abcdefghijklmnop1234 of Ann Lee")
    'Mail the key of Ann Lee'
    """
    return " ".join(_PRIVATE.sub(" ", query[:_MAX_QUERY]).split())


def _results(document: Any) -> list[Passage]:
    from factrl.llm.client import Unreadable

    if not isinstance(document, dict) or not isinstance(document.get("organic"), list):
        raise Unreadable("answered something other than a list of results ('organic')")
    found = []
    for entry in document["organic"]:
        if not isinstance(entry, dict):
            raise Unreadable("answered a result that is no object")
        snippet, title, link = (entry.get(name) or "" for name in ("snippet", "title", "link"))
        if not all(isinstance(text, str) for text in (snippet, title, link)):
            raise Unreadable("answered a result whose snippet, title or link is not text")
        if snippet.strip():
            found.append(Passage(snippet.strip(), title=title.strip(), source=link))
    return found
