"""The requests and replies of the server; a request with an unknown field is refused.

A request names one of the rewards that the server was started with.  It cannot set a judge's address, a file
or a knob: those are the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from factrl.rewards.remote import REQUEST_LIMIT
from factrl.types import Completion, Example, Passage, Result
from factrl.verifier.report import SURE

MAX_SAMPLES = 1024
MAX_FIELDS = 32  # of an object; each unknown one would become an error of its own
MAX_TEXT = 1 << 20  # characters; what a reward reads of it is the reward's own limit

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Line = Annotated[str, Field(max_length=32_768)]
Sure = Annotated[float, Field(ge=0.5, le=1)]


class Wire(BaseModel):
    """Closed and typed strictly: `"5"` is no number, null is no list."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: Any) -> Any:
        if isinstance(body, Mapping) and len(body) > MAX_FIELDS:
            raise ValueError(f"it has {len(body)} fields, more than {MAX_FIELDS}")
        return body


class WirePassage(Wire):
    """A piece of evidence."""

    text: Text
    title: Line = ""
    source: Line = ""


class WireExample(Wire):
    """A question with what is known about its answer; see `factrl.types.Example`."""

    question: Line
    answers: Annotated[list[Line], Field(max_length=256)] = []
    id: Line = ""
    topic: Line = ""
    ook: bool | None = None
    false_premise: bool | None = None
    evidence: Annotated[list[WirePassage], Field(max_length=256)] = []
    checklist: Annotated[list[Line], Field(max_length=256)] = []

    def example(self) -> Example:
        """As rewards know it."""
        passages = tuple(Passage(p.text, p.title, p.source) for p in self.evidence)
        fields = self.model_dump(include={"question", "id", "topic", "ook", "false_premise"})
        return Example(
            **fields, answers=tuple(self.answers), evidence=passages, checklist=tuple(self.checklist)
        )


class Sample(Wire):
    """One completion of one example."""

    example: WireExample
    completion: Text
    prefill: Line = ""
    truncated: bool = False
    tokens: Annotated[int, Field(ge=0)] | None = None

    def text(self) -> Completion:
        """As rewards know it."""
        return Completion(self.completion, prefill=self.prefill, truncated=self.truncated, tokens=self.tokens)


class ScoreRequest(Wire):
    """Completions to be scored by one reward."""

    reward: Annotated[str, Field(min_length=1, max_length=256)]
    samples: Annotated[list[Sample], Field(min_length=1, max_length=MAX_SAMPLES)]


class ScoreReply(Wire):
    """One result per sample, in the order of the request; `value` is null exactly when it is masked."""

    reward: str
    results: list[Result]


class VerifyRequest(Wire):
    """A text whose claims are checked; without evidence the server's own sources are searched."""

    text: Text
    question: Line = ""
    topic: Line = ""
    evidence: Annotated[list[WirePassage], Field(max_length=256)] | None = None


class Document(Wire):
    """A file of evidence; its name says the format."""

    name: Annotated[str, Field(pattern=r"^[^/\\\x00]*\.\w+$", max_length=1024)]
    data: Annotated[str, Field(max_length=REQUEST_LIMIT)]


class CheckRequest(Wire):
    """A text and documents, of the page; without any the server's own sources are searched."""

    text: Text
    question: Line = ""
    documents: Annotated[list[Document], Field(max_length=256)] = []
    sure: Sure = SURE


class ReportRequest(Wire):
    """A report that was made, shown at another level."""

    id: Line
    sure: Sure


class OpenRLHFRequest(Wire):
    """What OpenRLHF's `--reward.remote_url` posts; other fields that its versions add are ignored.

    Attributes:
        query: prompt and response in one, as the model saw them.
        prompts: the prompts, which the queries begin with.
        labels: the dataset's label column: an accepted answer, or the JSON that `factrl prepare convert --to
            openrlhf` writes.
    """

    model_config = ConfigDict(extra="ignore")

    query: Annotated[list[Text], Field(min_length=1, max_length=MAX_SAMPLES)]
    prompts: Annotated[list[Text], Field(max_length=MAX_SAMPLES)]
    labels: Annotated[list[Text], Field(max_length=MAX_SAMPLES)]


class OpenRLHFReply(Wire):
    """A number per query, and per-sample logs."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


class NeMoGymRequest(Wire):
    """What NeMo Gym's agents post of a rollout; the other columns of the dataset's row are an example's.

    Attributes:
        responses_create_params: the request of OpenAI's Responses API; its last user message is the question
            unless the row has a column for it.
        response: the answer in the same API's form; nothing yet when a session is seeded.
    """

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any] | None = None
