"""Models that answer outside of training, opened by name; and chain of verification (CoVe) around one.

With CoVe (Dhuliawala et al. 2023, arXiv:2309.11495, section 3, in the factored form) an answer is drafted,
checked with questions, and revised; nothing is trained:

    draft     the model answers as it always does
    plan      it asks questions whose answers would show what of the draft is wrong
    answers   it answers each question in a prompt of its own, without the draft, so that it does not copy it
    revise    it writes the answer again, with the draft, the questions and their answers before it

The paper's prompts are few-shot examples for its own tasks; these are instructions in our own words for any
question.  The draft is sampled as the settings say, the other steps are greedy.  Left out: the paper's
separate step that compares draft and answers ("factor+revise").

A model whose plan has no readable question has not verified anything.  So its answer is `Unscored`: a
draft that was not checked never counts as an answer of the method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factrl.errors import ConfigError, MissingExtra, Unscored
from factrl.llm import connect, preflight
from factrl.llm.writers import ServerWriter, Writer, Written, digest_of
from factrl.runs.data import render_prompt
from factrl.runs.settings import LOCAL, AskSettings, DataSettings, RunSettings
from factrl.types import Example
from factrl.verifier.claims.llm import NONE

PLAN_PROMPT = """\
Below are a request and a draft of the answer, which may contain mistakes. Write short questions that check \
the facts of the draft, one question for each fact: who, what, when, where, how many. Each question must be \
understood without the draft, so write names instead of "he" or "it", and must not give away the answer.

Write each question on a line of its own that starts with "- " and ends with a question mark, and nothing \
else. If the draft states no fact, write only the word none.

An example of a draft: The Bode Museum, designed by Ernst von Ihne, opened in 1904. It is in Berlin.
Its questions:
- Who designed the Bode Museum?
- When did the Bode Museum open?
- In which city is the Bode Museum?

Request: {request}

Draft: {draft}

Questions:"""
ANSWER_PROMPT = """\
Answer the question in one short sentence. If you do not know the answer, say that you do not know.

Question: {question}"""
REVISE_PROMPT = """\
Below are a request, a draft of the answer, and questions that were asked about its facts with independent \
answers. Write the final answer to the request, in the form that the request asks for. Keep what the answers \
confirm, correct what they contradict, and leave out what they leave in doubt. Do not mention the draft or \
the check.

Request: {request}

Draft: {draft}

Checks:
{checks}

Final answer:"""
STEP_TOKENS = 256  # of a plan and of an answer to one question
MAX_QUESTIONS = 12  # of one draft; those after it are not asked
AT_ONCE = 64  # drafts that take a step together

_MARK = re.compile(r"\A\s*(?:[-*•‣◦–—]\s*|\(?\d{1,3}[.):]\s+|Q\d{1,3}[.:)]\s*)")
_EMPHASIS = re.compile(r"\*\*|__|`")


class CoVeWriter:
    """A `Writer` around a model: its answers are drafts that the model checks and writes again.

    Args:
        draft: writes the drafts, with the prompt, system message and prefill of the run.
        steps: the same model, with an example's question as the whole prompt; see `open_cove`.
        prompt: the template of the drafts' prompt, which says in which form to answer.
    """

    def __init__(self, draft: Writer, steps: Writer, prompt: str = "{question}") -> None:
        self._draft, self._steps, self._prompt = draft, steps, prompt
        digest = digest_of(PLAN_PROMPT, ANSWER_PROMPT, REVISE_PROMPT, MAX_QUESTIONS, prompt, steps.identity)
        self.identity = f"cove@{digest} {draft.identity}"

    def write(
        self,
        examples: Sequence[Example],
        numbers: Sequence[int] = (0,),
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[Written]]:
        """See `Writer.write`; the failure of a step is the result, such as `plan_unreadable`."""
        at_once = max(1, AT_ONCE // len(numbers))
        answers: list[list[Written]] = []
        for start in range(0, len(examples), at_once):
            part = examples[start : start + at_once]
            drafts = self._draft.write(part, numbers, temperature=temperature, top_p=top_p, seed=seed)
            requests = [render_prompt(example, self._prompt) for example in part for _ in numbers]
            finals = self._checked(requests, [draft for group in drafts for draft in group])
            for row in range(0, len(finals), len(numbers)):
                answers.append(finals[row : row + len(numbers)])
                on_done()
        return answers

    def _checked(self, requests: Sequence[str], drafts: Sequence[Written]) -> list[Written]:
        """The final answers; all drafts take a step together."""
        finals = dict(enumerate(drafts))  # a draft stays where its plan says that there is nothing to ask
        fields = {
            number: {"request": request, "draft": f"{draft.prefill}{draft}".strip()}
            for number, (request, draft) in enumerate(zip(requests, drafts, strict=True))
            if not isinstance(draft, Unscored)
        }
        plans = self._replies({number: [PLAN_PROMPT.format(**field)] for number, field in fields.items()})
        questions = _succeeded("plan", plans, finals)
        prompts = {n: [ANSWER_PROMPT.format(question=one) for one in each] for n, each in questions.items()}
        revisions: dict[int, list[str]] = {}
        for number, answers in _succeeded("answer", self._replies(prompts), finals).items():
            pairs = zip(questions[number], answers, strict=True)
            checks = "\n".join(f"- {question} {' '.join(answer.split())}" for question, answer in pairs)
            if checks:
                revisions[number] = [REVISE_PROMPT.format(**fields[number], checks=checks)]
        finals |= {number: final for number, (final,) in self._replies(revisions).items()}
        return list(finals.values())

    def _replies(self, prompts_of: Mapping[int, Sequence[str]]) -> dict[int, list[Written]]:
        """Greedy replies to the prompts of each draft; equal prompts are asked once."""
        prompts = dict.fromkeys(prompt for each in prompts_of.values() for prompt in each)
        examples = [Example(prompt, id=digest_of(prompt)) for prompt in prompts]
        groups = self._steps.write(examples) if examples else []
        reply_to = {example.question: reply for example, (reply,) in zip(examples, groups, strict=True)}
        return {number: [reply_to[prompt] for prompt in each] for number, each in prompts_of.items()}


def _succeeded(
    step: str, replies: Mapping[int, Sequence[Written]], finals: dict[int, Written]
) -> dict[int, list[str]]:
    """The texts of a step for each draft; the failure of a step is the draft's final answer."""
    texts = {number: _texts(step, each) for number, each in replies.items()}
    finals |= {number: one for number, one in texts.items() if isinstance(one, Unscored)}
    return {number: one for number, one in texts.items() if not isinstance(one, Unscored)}


def _texts(step: str, replies: Sequence[Written]) -> list[str] | Unscored:
    """The texts of the replies, or the questions of a plan; or the first failure among the replies."""
    for reply in replies:
        if isinstance(reply, Unscored):
            return reply
        if reply.truncated:
            return Unscored("truncated", f"the {step} is longer than its limit", stage=f"cove {step}")
    texts = [str(reply) for reply in replies]
    if step == "answer":
        return texts
    try:
        return read_questions(texts[0])[:MAX_QUESTIONS]
    except Unscored as error:
        return error


def open_writer(settings: RunSettings) -> Writer:
    """The model that `model.name` names: a server's address, `local`, or a policy to load in this process.

    A server gets one tiny request first, which shows that it answers and what its model is called.  Some
    servers truncate the token distribution by default (llama.cpp `min_p` and `top_k`, vLLM as the model's
    `generation_config.json` says): in `local` that is off, elsewhere it depends on how the server is started.

    Raises:
        SetupError: what the user must change.
        MissingExtra: a policy in this process, without the extra `train`.
    """
    if isinstance(settings, AskSettings) and settings.sampling.method == "cove":
        return open_cove(settings)
    name, limit = settings.model.name, settings.train.max_completion_length
    check_no_search(settings)
    if name == LOCAL:
        from factrl.llm.local.llama import shared_model

        return ServerWriter(shared_model(), settings.data, limit, workers=1, whole={"top_k": 0, "min_p": 0.0})
    if name.startswith(("http://", "https://")):
        limits = settings.judge.model_dump(include={"timeout_attempt", "timeout_call", "max_attempts"})
        workers = settings.judge.max_concurrency
        llm = connect(name, role="policy", retry_cut=False, max_concurrency=workers, **limits)
        preflight(llm)
        return ServerWriter(llm, settings.data, limit, workers)
    try:
        from .writing import PolicyWriter  # needs torch, which a server's client does not
    except ModuleNotFoundError as error:
        package = (error.name or "factrl").partition(".")[0]
        if package == "factrl":
            raise
        raise MissingExtra(package, "train") from error
    return PolicyWriter.load(settings)


def check_no_search(settings: RunSettings) -> None:
    """Refuse to ask a policy that searches: what it learnt with a search, it is not asked without.

    Raises:
        ConfigError: `search.index` is set.
    """
    if settings.search.index is not None:
        raise ConfigError(
            "search.index is for training: a policy searches in TRL's trainer, and answers to held-out "
            "questions are written without; leave data.eval out there, and search.index elsewhere"
        )


def open_cove(settings: RunSettings) -> CoVeWriter:
    """Chain of verification with the model that `model.name` names; only drafts use `[data]`'s prompt."""
    data = settings.data
    limit = max(STEP_TOKENS, settings.train.max_completion_length)  # the revised answer needs its own room
    train = settings.train.model_copy(update={"max_completion_length": limit})
    values = {name: getattr(settings, name) for name in RunSettings.model_fields}  # without [sampling]
    direct = RunSettings.model_validate({**values, "paper": settings.paper or "cove"})
    plain = direct.model_copy(update={"data": DataSettings(train=data.train, chat=data.chat), "train": train})
    draft: Any = open_writer(direct)
    steps = draft.with_settings(plain) if settings.model.is_policy else open_writer(plain)
    return CoVeWriter(draft, steps, data.prompt)


def read_questions(reply: str) -> list[str]:
    """The questions of a plan, in order and each once; none when it says plainly that there are none.

    A question is a line that ends with a question mark.  A line before the list may introduce it; a list item
    that is no question is refused, because what it asks is not known.

    Raises:
        Unscored: `plan_unreadable`.

    >>> read_questions("Questions:\\n- Who wrote Emma?")
    ['Who wrote Emma?']
    """
    _, _, text = reply.rpartition("</think>")
    lines = [_EMPHASIS.sub("", line).strip() for line in text.split("\n") if line.strip()]
    questions: list[str] = []
    for line in lines:
        words = _MARK.sub("", line, count=1).strip()
        if words.endswith("?") and len(words.split()) > 1:
            questions.append(words)
        elif questions or _MARK.match(line):
            if " ".join(re.findall(r"\w+", words.lower())) in NONE and not questions:
                return []
            raise Unscored("plan_unreadable", f"no question: {words[:120]!r}", stage="cove plan")
    if questions or (len(lines) == 1 and " ".join(re.findall(r"\w+", lines[0].lower())) in NONE):
        return [*dict.fromkeys(questions)]
    raise Unscored("plan_unreadable", f"no question in {' '.join(reply.split())[:120]!r}", stage="cove plan")
