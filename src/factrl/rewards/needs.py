"""Makes a reward's resources from the user's settings.

A reward names the resources that it needs as parameters; `RESOURCES` says what each name stands for.  In
Python you can supply another object with the same interface: `.with_(verify=my_verifier)`.  What stands in
for them is beside what uses it: oracles in `stress`, a table of facts in `studies`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from factrl.errors import ConfigError, Unscored, nearest
from factrl.llm import LLM
from factrl.llm.background import wait_for
from factrl.rewards import Reward
from factrl.rewards.grading import AnswerForm, Grader, reasoning_judge
from factrl.rewards.preference import SelfReference, rating_judge
from factrl.runs.settings import LOCAL, JudgeSettings, VerifierSettings
from factrl.types import Claim, Completion


@dataclass(frozen=True)
class Supplier:
    """Makes resources from settings, with a method for each; without a judge by rules, if those suffice."""

    judge: LLM | None
    models: JudgeSettings
    verifier: VerifierSettings

    def require_judge(self, what: str) -> LLM:
        """The judge, for a resource that needs one."""
        if self.judge is None:
            raise ConfigError(
                f"{what} needs a judge; give http://localhost:8000/v1#model or local as --judge, as "
                "judge.url in a recipe, or as FACTRL_JUDGE_BASE_URL for TRL's command line"
            )
        return self.judge

    def grade(self, form: AnswerForm = "short", *, guess: bool = True) -> Grader:
        judge = self._cached(self.judge)
        small = self.models.url == LOCAL  # it says yes too often, and nearly always with a long prompt
        longest = None if small or form != "short" else self.models.max_answer_chars
        refusals = self.models.refusals
        return Grader(judge, form=form, max_answer_chars=longest, small=small, refusals=refusals, guess=guess)

    def reason(self) -> Any:
        return reasoning_judge(self._cached(self.require_judge("a reward for reasoning")))

    def verify(self) -> Any:
        from factrl.verifier import open_verifier

        settings = self.verifier.model_dump(exclude={"share", "deadline", "cache"})
        verifier = open_verifier(**settings, llm=self._server(), store=self._store())
        if self.models.extractor_model is not None:
            verifier.extract = self._extractor()
        verifier.share, verifier.deadline = self.verifier.share, self.verifier.deadline
        return verifier

    def extract(self) -> Callable[..., list[Claim]]:
        from factrl.verifier import open_verifier
        from factrl.verifier.judges import WeakJudge

        if self.models.extractor_model is not None:
            extract: Any = self._extractor()
        else:
            preset, server = self.verifier.preset, self._server()
            extract = open_verifier(preset, llm=server, judge=WeakJudge(), store=self._store()).extract

        def claims(text: str, question: str = "", topic: str = "") -> list[Claim]:
            extracted = extract(text, question, topic)
            return extracted if isinstance(extracted, list) else wait_for(extracted)

        return claims

    def _extractor(self) -> Any:
        """What finds claims by `judge.extractor_model`, asked as it was trained."""
        from factrl.verifier.claims.llm import LLMClaims, read_facts

        llm = self._cached(self._tuned(str(self.models.extractor_model)), read_facts)
        return LLMClaims(llm, "veriscore_response")

    def compare(self) -> Any:
        if (own := self.models.preference_model) is not None:
            return SelfReference(self._cached(self._tuned(own, "preference")))
        return SelfReference(self._cached(self._writer("a reward for preferred answers", "preference_model")))

    def rate(self) -> Any:
        if self.models.reward_model is None:
            judge = self.require_judge("a reward for general quality, without judge.reward_model,")
            return rating_judge(self._cached(judge))
        from factrl.llm.local.classifiers import RewardModel

        return RewardModel(self.models.reward_model)

    def checklist(self) -> Any:
        from factrl.rewards.checklist import Checklist

        tuned = self.models.checklist_model
        llm = self._writer("a checklist", "checklist_model") if tuned is None else self._tuned(tuned)
        return Checklist(self._cached(llm))

    def truthfulness(self) -> Any:
        from factrl.rewards.truthfulness import TruthfulnessModel

        if (model := self.models.truthfulness_model) is None:
            raise ConfigError(
                "a reward for truthfulness needs a model that was tuned to tell true claims from false ones; "
                "give judge.truthfulness_model=FOLDER, or train one start's own (factrl study klcf)"
            )
        return TruthfulnessModel(model)

    def _writer(self, what: str, own_model: str) -> LLM:
        """The judge, for what the small local one cannot judge by letters."""
        judge = self.require_judge(what)
        if self.models.url == LOCAL:
            raise ConfigError(
                f"{what} needs a judge that writes, which the small model in this process does not; give a "
                f"server's URL as --judge, or judge.{own_model}"
            )
        return judge

    def _cached(self, judge: Any, read: Callable[[str], object] | None = None) -> Any:
        """The judge with a cache: a request that got a readable reply is not sent again."""
        from factrl.llm.store import kept

        return None if judge is None else kept(judge, self._store(), read)

    def _tuned(self, name: str, role: str = "judge") -> LLM:
        """The user's own text model, behind a server or loaded in this process."""
        if name.startswith(("http://", "https://")):
            from factrl.llm import connect

            return connect(name, role=role, **self.models.limits())
        from factrl.llm.local import CausalModel

        return CausalModel(name)

    def _store(self) -> Any:
        """The cache of paid replies and verdicts; None where the settings turn it off."""
        from factrl.llm.models import cache_folder
        from factrl.llm.store import Store

        return Store(cache_folder() / "verdicts.db") if self.verifier.cache else None

    def _server(self) -> LLM | None:
        """The judge, to be asked in words; None for the small local one, which judges better by letters."""
        return None if self.models.url == LOCAL else self.judge


@dataclass(frozen=True)
class Resource:
    """What a reward may ask for by a name: a row of `RESOURCES`.

    Attributes:
        source: where it comes from, for a person.
        make: makes it from settings; None where it comes with each completion.
        reads: the settings that it is made with.
        own_model: the setting of `[judge]` that names a model to use instead of the judge.
        needs_judge: whether it needs a judge or such a model.
        absent: the error message where it does not come with a completion.
        trains: it comes with completions in `factrl train` alone.
    """

    source: str
    make: Callable[[Supplier], Any] | None = None
    reads: Sequence[str] = ()
    own_model: str = ""
    needs_judge: bool = False
    absent: str = ""
    trains: bool = False

    def asks(self, settings: JudgeSettings) -> bool:
        """Whether it asks the judge of these settings."""
        own = getattr(settings, self.own_model) if self.own_model else None
        return "judge.url" in self.reads and not own


_JUDGE = ("judge.url",)
_VERIFIER = tuple(f"verifier.{name}" for name in VerifierSettings.model_fields if name != "cache")

RESOURCES: dict[str, Resource] = {
    "grade": Resource("rules, and judge.url for what they cannot decide", Supplier.grade, _JUDGE),
    "reason": Resource("judge.url", Supplier.reason, _JUDGE, needs_judge=True),
    "verify": Resource(
        "verifier.preset and the rest of [verifier]; the question's own evidence comes first",
        Supplier.verify,
        (*_JUDGE, "judge.extractor_model", *_VERIFIER),
    ),
    "extract": Resource(
        "judge.extractor_model, else verifier.preset",
        Supplier.extract,
        (*_JUDGE, "verifier.preset"),
        own_model="extractor_model",
    ),
    "compare": Resource(
        "judge.preference_model, else judge.url",
        Supplier.compare,
        _JUDGE,
        own_model="preference_model",
        needs_judge=True,
    ),
    "rate": Resource(
        "judge.reward_model, else judge.url",
        Supplier.rate,
        _JUDGE,
        own_model="reward_model",
        needs_judge=True,
    ),
    "checklist": Resource(
        "judge.checklist_model, else judge.url",
        Supplier.checklist,
        _JUDGE,
        own_model="checklist_model",
        needs_judge=True,
    ),
    "truthfulness": Resource(
        "judge.truthfulness_model", Supplier.truthfulness, own_model="truthfulness_model"
    ),
    "certainty": Resource(
        "the policy, in training alone",
        trains=True,
        absent="how certain a policy was is known in training alone; a reward that needs it cannot score "
        "stored completions: use it with factrl train",
    ),
    "group": Resource(
        "the other completions of the question: at least two in one step, file or request",
        absent="this reward compares the completions of a question, and here is one alone; give at least two "
        "of each question in one file, request or step (train.num_generations)",
    ),
    "course": Resource(
        "the trainer: factrl train with TRL",
        trains=True,
        absent="how a run goes is known to factrl train with TRL alone; elsewhere give it knobs that do "
        "not ask for it",
    ),
}
"""Name -> the resource.  To add a resource, add a row."""


def readers() -> dict[str, list[str]]:
    """Setting -> the resources that are made with it.  Settings that are not listed are for every job."""
    names: dict[str, list[str]] = {}
    for name, row in RESOURCES.items():
        for key in (*row.reads, *([f"judge.{row.own_model}"] if row.own_model else [])):
            names.setdefault(key, []).append(name)
    return names


def _beside(name: str, completion: Completion) -> Any:
    """What the trainer or the batch stored on a completion, such as its group.

    Raises:
        ConfigError: nothing was stored.
        Unscored: `no_tokens`: a completion without tokens has no mean certainty over them.
    """
    value = getattr(completion, name)
    if value is None:
        raise ConfigError(RESOURCES[name].absent)
    if isinstance(value, float) and math.isnan(value):
        raise Unscored("no_tokens", "the policy wrote no token to be certain of", stage="certainty")
    return value


def outside_training(reward: Reward) -> str:
    """Why a reward works in `factrl train` alone, by the resources that it lacks; empty if it does not."""
    rows = (row for name, row in RESOURCES.items() if name in reward.missing)
    return next((row.absent for row in rows if row.trains), "")


def check_resources(reward: Reward) -> None:
    """Refuse a reward with a resource that no settings make.

    Raises:
        ConfigError: it names the resource.
    """
    unknown = [name for name in reward.missing if name not in RESOURCES]
    if unknown:
        raise ConfigError(
            f"reward {reward.name!r} needs the resource {unknown[0]!r}, which only Python can supply: "
            f".with_({unknown[0]}=…){nearest(unknown[0], RESOURCES)}"
        )


def check_unjudged(reward: Reward, source: Supplier) -> None:
    """Refuse, before anything is opened, a reward that needs a judge where there is none.

    Raises:
        ConfigError: a resource needs a judge.
    """
    for name in reward.missing:
        row = RESOURCES[name]
        if row.make is not None and row.needs_judge and row.asks(source.models):
            row.make(source)
        elif name == "verify" and source.verifier.preset in ("factscore", "veriscore", "knowrl"):
            source.require_judge(f"verifier.preset={source.verifier.preset!r}")


def supply(reward: Reward, judge: LLM | None = None, supplier: Supplier | None = None) -> Reward:
    """`reward` with every missing resource made from settings, by rules where there is no judge.

    >>> by_rules = supply(fx.load_reward("knowrl:format+correct"))
    >>> by_rules(fx.Example("Capital of Peru?", ("Lima",)), "<think>Easy.</think><answer>Lima</answer>").value
    3.0

    Args:
        judge: the language model that judges, with default settings; ignored where a `supplier` is given.

    Raises:
        ConfigError: a resource that settings do not make, or one that needs a judge.
        SetupError: a model, a file or a server that is not there.
    """
    check_resources(reward)
    source = supplier or Supplier(judge, JudgeSettings(), VerifierSettings())
    made = ((name, RESOURCES[name].make) for name in reward.missing)
    return reward.with_(**{name: make(source) if make else partial(_beside, name) for name, make in made})
