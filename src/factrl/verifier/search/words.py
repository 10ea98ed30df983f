"""Words as search sees them: folded, without stop words, the same for a passage and for a query.

Everything that ranks in `factrl.verifier.search` reads text through `words`, so that the index on disk, the
evidence pools and the evidence that was handed in agree on what a word is.  It knows no grammar and no
languages, except that Chinese and Japanese, which have no spaces, become overlapping pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

STOP_WORDS = frozenset(
    """
    a about after all also an and any are as at be been before being but by can could did do does during for
    from had has have he her hers him his how i if in into is it its itself me more most my no nor not of on
    or other our over own s same she should so some such t than that the their them then there these they this
    those through to too under until up was we were what when where which while who whom whose why will with
    would you your
    """.split()  # noqa: SIM905  (a hundred quoted words would be no clearer)
)
"""English words that say nothing about what a text is about."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]+")
_MAX_TITLE = 200  # characters of a title that count
_MAX_WORD = 64  # characters; what is longer is no word, and would fill an index with keys


class _Folding(dict[int, str]):
    """Character -> its lower-case letters without marks, worked out when first met.

    One character at a time: normalising a whole text takes quadratic time on a long run of marks.
    """

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code).lower())
        self[code] = folded = "".join(char for char in parts if not unicodedata.combining(char))
        return folded


_FOLDING = _Folding()


def words(text: str) -> list[str]:
    """The words of a text that a search can go by, in order, with repeats.

    >>> words("Où est l'École? She was born in 1867.")
    ['ou', 'est', 'l', 'ecole', 'born', '1867']
    """
    text = text.lower() if text.isascii() else _UNSPACED.sub(_pairs, text.translate(_FOLDING))
    return [word[:_MAX_WORD] for word in _WORD.findall(text) if word not in STOP_WORDS]


_SHORT = 512  # characters of a query that is remembered
_remembered = lru_cache(maxsize=4_096)(words)


def query_words(text: str) -> list[str]:
    """As `words`, for a query: a claim is asked about several times.  The list is not to be changed."""
    return _remembered(text) if len(text) <= _SHORT else words(text)


def title_key(title: str, *, exact: bool = False) -> str:
    """A title as it is looked up: underscores and doubled spaces make no difference, nor does case.

    >>> title_key("Marie_Curie"), title_key("Marie_Curie", exact=True)
    ('~marie curie', '=Marie Curie')

    Args:
        exact: case makes a difference.
    """
    key = " ".join(title.replace("_", " ").split())[:_MAX_TITLE]
    return ("=" + key if exact else "~" + key.casefold()).encode("utf-8", "replace").decode()


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    pairs = (run[at : at + 2] for at in range(len(run) - 1)) if len(run) > 1 else (run,)
    return f" {' '.join(pairs)} "
