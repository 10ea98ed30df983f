"""Extractors: from a text to the claims that it makes, each with the stretch of the text that makes it.

An extractor is anything that can be called with a text.  Here are two: `SentenceClaims` (a sentence is a
claim) and `LLMClaims` (atomic claims by a language model).  What they return is marked: a claim with `skip`
is in the text but not to be judged (`factrl.verifier.claims.marks`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from factrl.types import Claim
from factrl.verifier.claims.llm import LLMClaims
from factrl.verifier.claims.whole import SentenceClaims

__all__ = ["Extractor", "LLMClaims", "SentenceClaims"]


class Extractor(Protocol):
    """Anything that takes a text apart into claims."""

    def __call__(
        self, text: str, question: str = "", topic: str = ""
    ) -> list[Claim] | Awaitable[list[Claim]]:
        """The claims of `text`, in order; an empty text makes none.

        Args:
            text: what is judged.
            question: what the text answers, empty when unknown.
            topic: what the text is about, empty when unknown.

        Raises:
            Unscored: the claims could not be extracted; never a shorter list instead.
        """
        ...
