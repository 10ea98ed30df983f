"""Search engines on the web: what they say of a page, never the page itself.

An engine is a row of `PROVIDERS` and no code of its own.  None is asked unless it is named, because every
claim goes to a server of others; what looks like a key or an e-mail address stays here.  The rows are from
the engines' public documentation (docs/search.md), and were tried on replies written after it, not on the
services.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import getitem, itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from factrl.errors import ConfigError, LLMError, Unscored, nearest
from factrl.text import encodable
from factrl.types import Passage

if TYPE_CHECKING:
    from factrl.llm.client import JSONClient

_MAX_SENT = 2_000  # characters of a query to an engine; they read a few dozen words


@dataclass(frozen=True)
class Provider:
    """How an engine is asked over HTTP, and where its reply has the results.

    Attributes:
        url: its address; empty where users run their own.
        method, path: of a search; `POST` sends the fields as JSON, `GET` in the address.
        query, count: the fields of the query and of the number of results; no `count`: it takes none.
        results: where a reply has the list of results, from the outside in.
        text, title, source: the fields of a result.
        key_variable, key_header: the environment variable of the key and the header that carries it; empty
            where there is no key.
        fields: further fields of every search.
        empty: the field of a reply that has no `results` where nothing was found.
        failed: the field that names engines behind this one that did not answer.
        order: the field of a result that says its place, where they come in another order.
        chars, words, most: the longest query and the largest number of results that it takes.
        hints: what a status means there.
    """

    url: str
    method: str
    path: str
    query: str
    count: str
    results: tuple[str, ...]
    text: str
    title: str
    source: str
    key_variable: str = ""
    key_header: str = "Authorization"
    fields: Mapping[str, Any] = field(default_factory=dict)
    empty: str = ""
    failed: str = ""
    order: str = ""
    chars: int = _MAX_SENT
    words: int = _MAX_SENT
    most: int = 100
    hints: Mapping[int, str] = field(default_factory=dict)


PROVIDERS: Mapping[str, Provider] = {
    "serper": Provider(
        "https://google.serper.dev",
        *("POST", "/search", "q", "num"),
        *(("organic",), "snippet", "title", "link"),
        *("SERPER_API_KEY", "X-API-KEY"),
    ),
    "searxng": Provider(
        "",
        *("GET", "/search", "q", ""),
        *(("results",), "content", "title", "url"),
        fields={"format": "json"},
        failed="unresponsive_engines",
        hints={403: "SearXNG answers JSON only where its settings.yml has json among search.formats"},
    ),
    "tavily": Provider(
        "https://api.tavily.com",
        *("POST", "/search", "query", "max_results"),
        *(("results",), "content", "title", "url"),
        "TAVILY_API_KEY",
        chars=400,
        most=20,
    ),
    "brave": Provider(
        "https://api.search.brave.com",
        *("GET", "/res/v1/web/search", "q", "count"),
        *(("web", "results"), "description", "title", "url"),
        *("BRAVE_API_KEY", "X-Subscription-Token"),
        fields={"text_decorations": "false"},  # no <strong> around the words of the query
        empty="type",
        chars=400,
        words=50,
        most=20,
        hints={422: "Brave answers so to a key that it does not know, too; it is read from BRAVE_API_KEY"},
    ),
    "exa": Provider(
        "https://api.exa.ai",
        *("POST", "/search", "query", "numResults"),
        *(("results",), "text", "title", "url"),
        *("EXA_API_KEY", "x-api-key"),
        fields={"contents": {"text": {"maxCharacters": 2000}}},
    ),
    "wikipedia": Provider(  # the first sections as plain text, where its own search has HTML of a few words
        "https://en.wikipedia.org",
        *("GET", "/w/api.php", "gsrsearch", "gsrlimit"),
        *(("query", "pages"), "extract", "title", "fullurl"),
        fields={
            "action": "query",
            "format": "json",
            "formatversion": "2",
            "generator": "search",
            "prop": "extracts|info",
            "exintro": "1",
            "explaintext": "1",
            "exlimit": "max",
            "inprop": "url",
        },
        empty="batchcomplete",
        order="index",
        chars=300,
        most=20,
    ),
}
"""By the name that `verifier.web` takes, also as `NAME:URL`; an address alone speaks like Serper."""


class WebSearch:
    """A search engine of `PROVIDERS`, as a `Search`; the topic has no meaning there.

    Args:
        engine: its name, `NAME:URL` where it is asked elsewhere (`searxng:http://localhost:8888`), or the
            address of one; an address that is no provider's is asked as Serper is.
        key: None reads the provider's environment variable.
        limits: `timeout_attempt`, `max_attempts`, … of `factrl.llm.client.JSONClient`.

    Raises:
        ConfigError: no such engine, no address, or no key where the service itself is asked.

    >>> WebSearch("searxng:http://localhost:8888")
    WebSearch('http://localhost:8888')
    """

    def __init__(self, engine: str = "serper", key: str | None = None, **limits: Any) -> None:
        from factrl.llm.client import JSONClient

        self.provider, url = _named(engine)
        variable = self.provider.key_variable
        key = key or os.environ.get(variable)
        if variable and not key and url == self.provider.url:
            raise ConfigError(f"the search engine {url} needs a key; set {variable}")
        self.client: JSONClient = JSONClient(
            url,
            key,
            key_variable=variable,
            key_header=self.provider.key_header,
            stage="search",
            **limits,
        )
        self.client.ping = partial(_request, self.provider, "weather", 1)

    def __repr__(self) -> str:
        return f"WebSearch({self.client.base_url!r})"

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """What the engine shows for `query`, in its order; an empty list when it found nothing.

        Raises:
            Unscored: `search_failed`, with the client's cause as the fact `reason`: no connection, the quota
                is used up, the key is refused, or the reply is a page (a captcha, say) and no results.
        """
        query = without_secrets(query)
        if not query:
            return []
        try:
            return (await self.client.ask(*_request(self.provider, query, k)))[:k]
        except LLMError as error:
            hint = self.provider.hints.get(error.facts["status"], "")
            facts = {**error.facts, "reason": error.cause}
            raise Unscored("search_failed", "; ".join(filter(None, (error.detail, hint))), **facts) from error


def _named(engine: str) -> tuple[Provider, str]:
    """The provider of a name, `NAME:URL` or address, and where it is asked."""
    from factrl.llm.client import checked_url

    name, _, url = engine.partition(":")
    if (provider := PROVIDERS.get(name)) is not None:
        if not (url or provider.url):
            raise ConfigError(
                f"{name} runs where you say; name its address, as in {name}:http://localhost:8888"
            )
        example = f"{name}:{provider.url or 'http://localhost:8888'}"
        return provider, checked_url(url or provider.url, provider.key_variable, example)
    if "://" not in engine:
        raise ConfigError(
            f"unknown search engine {engine!r}{nearest(name, PROVIDERS)} (there are: {', '.join(PROVIDERS)}, "
            "each also as NAME:URL, and the address of a server that speaks like Serper)"
        )
    url = engine.rstrip("/")
    return next((one for one in PROVIDERS.values() if one.url == url), PROVIDERS["serper"]), url


def _request(provider: Provider, query: str, k: int) -> tuple[str, str, Any, Callable[[Any], list[Passage]]]:
    """A search: method, path, body and reader."""
    query = " ".join(query.split()[: provider.words])[: provider.chars]
    fields = {**provider.fields, provider.query: query}
    if provider.count:
        fields[provider.count] = min(k, provider.most)
    read = partial(_results, provider)
    if provider.method == "GET":
        fields[provider.query] = encodable(query)
        return "GET", f"{provider.path}?{urlencode(fields)}", None, read
    return provider.method, provider.path, fields, read


def _results(provider: Provider, document: Any) -> list[Passage]:
    from factrl.llm.client import Unreadable

    fields = (provider.text, provider.title, provider.source)
    try:
        if document.get(provider.results[0]) is None and document.get(provider.empty):
            return []
        results = reduce(getitem, provider.results, document)
        if provider.order:
            results = sorted(results, key=itemgetter(provider.order))
        parts = [[one.get(name) or "" for name in fields] for one in results]
        passages = [Passage(text.strip(), title.strip(), source=link + "") for text, title, link in parts]
        failed = document.get(provider.failed)
    except (TypeError, KeyError, AttributeError):  # no results, or no texts in them
        place = ".".join(provider.results)
        raise Unreadable(f"answered something other than a list of results ({place!r})") from None
    if failed and not results:  # nobody looked: not the same as that nothing was found
        raise Unreadable(f"found nothing, and engines behind it did not answer: {failed}"[:200])
    return [passage for passage in passages if passage.text]


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
    return " ".join(_PRIVATE.sub(" ", query[:_MAX_SENT]).split())
