"""HTML pages that load nothing and, except for `factrl serve --page`, run nothing: one template engine, one
style sheet, one policy.

Templates are the `.html` files beside the code that fills them; their line breaks are not part of the page.
Whatever a template shows is escaped by `factrl.text.escape`, unless it is `Markup` that was made here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from factrl.text.escape import attribute, linked, markup

if TYPE_CHECKING:
    from jinja2 import Environment

OWN_PAGE = '<meta name="generator" content="factrl'
"""How what a page says of itself begins, so that none is taken for evidence; then comes its template."""

_ROWS, _CELL = 40, 300  # rows, and characters of a text, that a notebook shows


def page(template: str, *, title: str, main: str = "", script: str = "", **values: Any) -> str:
    """A whole page; the same values give the same bytes.

    Args:
        template: of its body, by its path in the package, such as `evals/evaluation.html`.
        title: plain text; also given to the template.
        main: the class of its body.
        script: of the page itself, which may ask the server that the page is from and no other.
        values: what the template shows.
    """
    body = fragment(template, title=title, **values)
    style = "\n" + chart_style() + files("factrl.text").joinpath("page.css").read_text(encoding="utf-8")
    scripts = f" script-src '{_digest(script)}'; connect-src 'self';" if script else ""
    # Widths of bars are attributes; a page without any allows none.
    widths = " style-src-attr 'unsafe-inline';" if ' style="' in body else ""
    pictures = " img-src data:;" if "<img " in body else ""
    policy = Markup(  # noqa: S704 - of nothing but our own words
        f"default-src 'none'; style-src '{_digest(style)}';{scripts}{widths}{pictures} base-uri 'none'; "
        "form-action 'none'"
    )
    own = Markup(f'{OWN_PAGE} {template}">')  # noqa: S704
    parts = {"policy": policy, "own": own, "style": Markup(style), "script": Markup(script)}  # noqa: S704
    return fragment("text/page.html", title=title, main=main, body=body, **parts)


def _digest(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def chart_style() -> str:
    """The colours, and how charts look."""
    return files("factrl.text").joinpath("chart.css").read_text(encoding="utf-8")


def fragment(template: str, **values: Any) -> Markup:
    """A part of a page."""
    return Markup(_engine().get_template(template).render(values))  # noqa: S704 - the engine escapes


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """A table for a notebook: at most 40 rows, and of each text at most 300 characters."""
    cells = [[_clipped(cell) for cell in row] for row in rows]
    values = {"head": head, "rows": cells[:_ROWS], "more": len(cells[_ROWS:]), "caption": _clipped(caption)}
    return str(fragment("text/table.html", **values))


def _clipped(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[:_CELL]} …"


@cache
def _engine() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    engine = Environment(
        loader=FunctionLoader(_template), autoescape=True, finalize=_shown, undefined=StrictUndefined
    )
    engine.filters |= {
        "attribute": lambda value: Markup(attribute(str(value))),  # noqa: S704 - escaped
        "linked": lambda value: Markup(linked(str(value))),  # noqa: S704 - escaped
        "words": lambda name: str(name).replace("_", " "),
        "minus": lambda number: str(number).replace("-", "−"),
        "points": lambda share: f"{round(100 * share, 1) + 0.0:.1f}".replace("-", "−"),
    }
    engine.globals["parts"] = engine.get_template("text/parts.html").module
    return engine


def _template(name: str) -> str:
    """A template in one line: a break between words is a space, any other is nothing."""
    text = files("factrl").joinpath(name).read_text(encoding="utf-8").strip()
    return re.sub(r"\s*\n\s*", "", re.sub(r"(?<=[^>}\s])\n\s*(?=[^<{\s])", " ", text))


def _shown(value: object) -> Markup:
    if value is None:
        return Markup()
    return value if isinstance(value, Markup) else Markup(markup(str(value)))  # noqa: S704 - escaped
