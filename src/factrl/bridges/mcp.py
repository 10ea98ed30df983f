"""What factrl checks as tools for agents, by the Model Context Protocol: `factrl serve --mcp`.

Written for mcp 2.0 and 2.3.  What could not be graded is an error of the tool, in one line with its cause;
a claim without a verdict is `unjudged`.  Neither is a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mcp.server import MCPServer  # pyright: ignore[reportMissingImports]
from mcp.server.mcpserver.exceptions import ToolError  # pyright: ignore[reportMissingImports]
from pydantic import Field, ValidationError

from factrl import __version__
from factrl.errors import ConfigError, FactrlError, nearest
from factrl.llm.background import wait_for
from factrl.rewards.grading import Grader
from factrl.text.escape import one_line
from factrl.types import Label, Passage
from factrl.verifier import Verifier

_ECHO = 400  # characters of an error
Passages = Annotated[int, Field(ge=1, le=50)]


@dataclass(frozen=True)
class CheckedClaim:
    """A claim of a text.

    Attributes:
        verdict: as a report shows it; an `unjudged` claim has none, and a `skipped` one needs none.
        p: the judge's probability that the evidence supports it; None where it gave none.
        quote: the sentence of the evidence that decided, or came nearest; empty without one.
        source: what the quote is from.
        cause: why there is no verdict, or why it is not counted.
    """

    claim: str
    verdict: Literal["supported", "refuted", "unsure", "unknown", "unjudged", "skipped"]
    p: float | None
    quote: str
    source: str
    cause: str


@dataclass(frozen=True)
class Verified:
    """A checked text: a summary in words, and its claims in the order of the text."""

    summary: str
    claims: list[CheckedClaim]


@dataclass(frozen=True)
class Graded:
    """A graded answer: `Grade` itself gets no output schema, as its annotations are names of its own module.

    Attributes:
        label: `correct`, `incorrect` or `abstained`.
        how: what decided: `exact`, `abstention`, `gate`, `rules` or `judge`.
        why: the judge's reasoning, when there was one.
        floored: why nothing in the answer could be graded, which counts as incorrect; else None.
    """

    label: Label
    how: str
    why: str
    floored: str | None


class _Server(MCPServer):
    """Reports an error in one line, and refuses arguments that a tool does not have."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        for key in arguments.keys() - known.get(name, arguments).keys():
            raise ToolError(one_line(f"{name} has no argument {key[:80]!r}{nearest(key, known[name])}"))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            text = _problem(error.__cause__)
            if not text:
                raise
            raise ToolError(one_line(text)[:_ECHO]) from None


def _problem(cause: BaseException | None) -> str:
    if isinstance(cause, ValidationError):
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in cause.errors())
    return str(cause) if isinstance(cause, FactrlError) else ""


def server(verifier: Verifier, grader: Grader) -> MCPServer:
    """A server of the three tools; `.run()` serves them on stdin and stdout.

    Args:
        verifier: checks texts, and its search answers `search`.
        grader: grades answers; of the form "sentence", as agents write sentences.
    """

    def verify(text: str, question: str = "", topic: str = "", evidence: list[str] | None = None) -> Verified:
        """Check a text: its claims, whether the evidence supports each, and the sentence that decided.

        Args:
            text: what is checked.
            question: the question that it answers, if there is one.
            topic: search only the document with this title.
            evidence: texts to check against; without them the server's own documents are searched.
        """
        report = verifier(text, question, topic=topic, evidence=evidence)
        report.check_verdicts(verifier.max_chars)
        claims = [
            CheckedClaim(
                check.claim.text,
                check.shown,  # type: ignore[arg-type]
                check.verdict.p if check.verdict else None,
                check.quote,
                check.quoted_from,
                (check.verdict.cause if check.verdict else check.claim.skip) or "",
            )
            for check in report.checks
        ]
        return Verified("; ".join(report.summary()), claims)

    def grade(question: str, answer: str, accepted: list[str]) -> Graded:
        """Grade an answer to a question against the accepted ones: correct, incorrect or abstained.

        `how` says what decided; by `rules`, without a judge, a paraphrase of an accepted answer is incorrect.

        Args:
            question: what was asked.
            answer: what was answered, without its reasoning.
            accepted: the accepted answers.
        """
        grade = grader(question, answer, accepted)
        return Graded(grade.label, grade.how, grade.why, grade.floored)

    def search(query: str, k: Passages = 5, topic: str = "") -> list[Passage]:
        """Passages of the server's documents that bear on a query, best first.

        Args:
            query: what to look for.
            k: how many passages at most.
            topic: search only the document with this title.
        """
        if verifier.search is None:
            raise ConfigError("nothing to search; start it with factrl serve --mcp verifier.index=FOLDER")
        passages = verifier.search.search(query, k, topic=topic)
        return passages if isinstance(passages, list) else wait_for(passages)  # type: ignore[arg-type]

    tools = _Server("factrl", version=__version__, log_level="ERROR")
    each: list[Callable[..., Any]] = [verify, grade, search]
    for tool in each:
        tools.add_tool(tool)
    return tools
