"""Grades on disk as soon as they are known, so that an evaluation that was killed pays for none twice."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import NoReturn

from factrl.errors import LLMError
from factrl.evals.shortqa import GradeAnswer
from factrl.llm import LLM
from factrl.llm.writers import digest_of
from factrl.runs.journal import Journal
from factrl.types import Grade


class KeptGrader:
    """A grader in front of another one, which is not asked again what it has graded.

    Args:
        grader: grades what the journal does not hold; what it raises is not kept.
        journal: of this run and of those before it.
        by: everything that decides a grade beside the question, the answer and the accepted ones.
    """

    def __init__(self, grader: GradeAnswer, journal: Journal, by: str) -> None:
        self._grader, self._journal, self._by = grader, journal, by
        self._writing = threading.Lock()

    def __call__(
        self, question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
    ) -> Grade:
        """The grade that is kept, or a new one."""
        key = digest_of(self._by, question, prediction, list(answers), false_premise)
        row = self._journal.get(key)
        if row is not None:
            return Grade(**row)
        grade = self._grader(question, prediction, answers, false_premise=false_premise)
        with self._writing:
            self._journal.add(key, asdict(grade))
        return grade


class Unasked:
    """A model that answers nothing, in the place of one that need not be there for what is kept.

    Args:
        llm: whose identity it has.
    """

    def __init__(self, llm: LLM) -> None:
        self.identity = getattr(llm, "identity", "")

    def complete(self, *_: object, **__: object) -> NoReturn:
        """Raises `LLMError`, whatever it is asked."""
        raise LLMError("not_asked", "nothing is asked yet")
