"""Every paper: its worked cases in `papers/*.toml`, and what its file promises.

A case is a completion (`text`; `prefill`, `truncated`, `tokens`, `certainty`; `beside` and `step` count other
completions of its question and of its step, `stalled` evaluations) to an `example` for a `variant`, of each
the first if it names none.  The judge answers with `replies` and gives claims, which are sentences, these
`verdicts`, in order; `given` is what other resources return, or how they fail.  What must come out: the
`state`, scored if it names none, the `terms` to 1e-9, of a masked sample none, and where they are named the
`spans` of step-wise credit (start, end, sign).  The judges must be asked exactly what there are answers for.
`{name}` in a text is one of `texts`, `{filler}` a text so many times.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

from factrl.errors import ConfigError, LLMError, RewardBug, Unscored
from factrl.llm import FakeLLM, Message
from factrl.papers import load_paper, load_reward, paper_names
from factrl.rewards.grading import Grader
from factrl.rewards.needs import supply
from factrl.types import Claim, Completion, Example, Passage, TrainingState, Verdict
from factrl.verifier import Report, Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.search import Given
from judging import Judge

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAILURES = {
    "never": AssertionError("what has no weight was asked"),
    "timeout": LLMError("timeout", "the judge did not answer"),
    "connection": LLMError("connection", "the server is gone"),
    "search_failed": Unscored("search_failed", "the index is damaged", stage="search"),
}


def worked(paper: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parents[1] / "papers" / f"{paper}.toml").read_text("utf-8"))


CASES = [(name, case) for name in paper_names() for case in worked(name)["cases"]]
NAMES = [f"{name}:{case.get('variant', '')}: {case['why']}" for name, case in CASES]
ROME = Example("Capital of Italy?", ("Rome",), id="rome")
OWN = """
from __future__ import annotations
from dataclasses import dataclass
from factrl import Example, reward

@dataclass
class Length:
    words: int

@reward
def short(example, completion, *, words=2):
    return {"short": float(Length(len(completion.split())).words <= words)}

@reward
def right(example, completion, *, grade):
    return {"right": float(grade(example.question, completion, example.answers).label == "correct")}
"""


class ScriptedJudge:
    """Gives verdicts to claims in the order in which it is asked about them."""

    identity, weak, per_call = "scripted", False, 1_000

    def __init__(self, labels: Sequence[Any]) -> None:
        self.labels, self.asked = labels, 0

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        labels = [*self.labels, *["unjudged"] * len(pairs)][self.asked : self.asked + len(pairs)]
        self.asked += len(pairs)
        causes = ["timeout" if label == "unjudged" else None for label in labels]
        return [Verdict(label, "scripted", cause=cause) for label, cause in zip(labels, causes, strict=True)]


def resource(name: str, value: Any) -> Any:
    """What is given in a case: it returns `value`, or fails as that says."""

    def returns(*asked: Any, **_: Any) -> Any:
        if value == "lost":  # the claims could not be found
            return Report(asked[0], failure=Unscored("timeout", "the server did not answer"))
        if isinstance(value, str):
            raise FAILURES[value]
        if name == "truthfulness":
            return [odds for odds, _ in zip(value, *asked, strict=True)]
        if name == "extract":
            return [Claim(text, 0, len(text)) for text in value]
        return value

    return returns


def check(paper: str, case: Mapping[str, Any]) -> None:
    """Hold what a reward makes of a completion against the case."""
    every = worked(paper)
    texts = {**every.get("texts", {}), "filler": str.__mul__(*case.get("filler", ("", 0)))}

    def filled(text: str) -> str:
        for key in reversed(texts):  # each may hold those before it
            text = text.replace(f"{{{key}}}", texts[key])
        return text

    def several(counts: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(filled(text) for text, count in counts.items() for _ in range(count))

    name = case.get("example", next(iter(every["examples"])))
    row: dict[str, Any] = {**every["examples"][name], "id": name}
    row["evidence"] = [Passage(**passage) for passage in row.get("evidence", ())]
    row = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    example = Example(**row)
    known = {key: case[key] for key in ("prefill", "truncated", "tokens", "certainty") if key in case}
    completion = Completion(filled(case["text"]), **known)
    completion.group = (str(completion), *several(case.get("beside", {})))
    step = (*completion.group, *several(case.get("step", {})))
    completion.course = TrainingState(step, case.get("stalled", every.get("stalled")))

    rewards = load_paper(paper).variants
    reward = rewards[case.get("variant", next(iter(rewards)))]
    judge, claims = FakeLLM(map(filled, case.get("replies", ()))), ScriptedJudge(case.get("verdicts", ()))
    given = {**every.get("given", {}), **case.get("given", {})}
    resources = {
        "verify": Verifier(SentenceClaims(), Given([Passage("…")]), claims, own_subject=False),
        "extract": SentenceClaims(),
        **{name: resource(name, value) for name, value in given.items()},
    }
    reward = reward.with_(**{name: value for name, value in resources.items() if name in reward.missing})
    result = supply(reward, judge)(example, completion)

    assert result.state == case.get("state", "scored"), result.detail
    if result.state != "masked":
        terms = {name: float(Fraction(value)) for name, value in case["terms"].items()}
        assert dict(result.terms) == pytest.approx(terms, rel=0, abs=1e-9)
    assert len(judge.calls) == len(case.get("replies", ()))
    assert claims.asked == len(case.get("verdicts", ()))
    if "spans" in case:
        assert [[span.start, span.end, span.sign] for span in result.spans] == case["spans"]


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("paper", "case"), CASES, ids=NAMES)
def test_a_worked_case(paper: str, case: Mapping[str, Any]) -> None:
    check(paper, case)


@pytest.mark.parametrize("name", paper_names())
def test_a_paper_is_complete(name: str) -> None:
    module, cases = load_paper(name), worked(name)["cases"]
    assert len(module.about.splitlines()[0]) <= 100
    assert "arXiv:" in module.about
    assert {case.get("variant", next(iter(module.variants))) for case in cases} == {*module.variants}
    assert {term for case in cases for term in case.get("terms", ())} == {*module.terms}
    assert len(cases) >= 12


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"terms": {"outcome": 1 + 1e-10}}, None),
        ({"terms": {"outcome": 1 + 1e-6}}, AssertionError),
        ({"terms": {}}, AssertionError),
        ({"state": "floored"}, AssertionError),
        ({"replies": ["VERDICT: correct"]}, AssertionError),
        ({"verdicts": ["supported"]}, AssertionError),
        ({"spans": [[0, 1, 1]]}, AssertionError),
        ({"text": "\\boxed{the eternal city}"}, RewardBug),  # nobody is there to judge it
        ({"text": "\\boxed{the eternal city}", "replies": ["hm", "hm"]}, AssertionError),  # masked
    ],
)
def test_a_case_that_does_not_hold_fails(change: dict[str, Any], problem: type[Exception] | None) -> None:
    case = {"text": "\\boxed{Warsaw}", "terms": {"outcome": 1}, **change}
    with pytest.raises(problem) if problem else contextlib.nullcontext():
        check("truthrl", case)


@pytest.mark.parametrize(
    ("paper", "knobs", "problem"),
    [
        ("factreason", {"weight_detail": -0.1}, "weight_detail must not be negative"),
        ("rlcr", {"answer": "tags"}, "answer='tags' states no confidence"),
        (
            "knowrl",
            dict.fromkeys(("weight_format", "weight_correct", "weight_fact"), 0.0),
            "all 0, so nothing is paid",
        ),
    ],
)
def test_knobs_that_cannot_work_are_refused_before_anything_is_asked(
    paper: str, knobs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_reward(paper).with_(**knobs)


def test_a_reward_alone_loads_few_modules() -> None:
    """Not the graders, the verifier or the judges, which its resources bring."""
    count = "import sys, factrl.papers.truthrl; print(sum(name.startswith('factrl') for name in sys.modules))"
    assert int(subprocess.check_output([sys.executable, "-c", count])) <= 20


# What a judge says of an answer -> state, value and cause of the sample.
SAID: dict[str, tuple[str | Exception, tuple[str, float | None, str | None]]] = {
    "the eternal city": ("Its name.\nVERDICT: correct", ("scored", 1.0, None)),
    "a town in Spain": ("No.\nVERDICT: incorrect", ("scored", -1.0, None)),
    "a riddle": ("It is NOT CORRECT, I think", ("masked", None, "judge_unreadable")),
    "an outage": (LLMError("timeout", "no reply"), ("masked", None, "timeout")),
}
WRITTEN = {
    "\\boxed{Rome}": ("scored", 1.0, None),
    "\\boxed{I don't know}": ("scored", 0.0, None),
    "Rome": ("floored", -1.0, "no_box"),
    **{f"\\boxed{{{answer}}}": end for answer, (_, end) in SAID.items()},
}


def test_of_thousands_side_by_side_none_is_lost_and_no_masked_one_has_a_number() -> None:
    def judge(messages: Sequence[Message]) -> str | Exception:
        asked = messages[-1]["content"].rpartition("DATA ")[2]
        return next((said for answer, (said, _) in SAID.items() if answer in asked), "I cannot tell.")

    texts = Random(0).choices([*WRITTEN], k=5_000)
    results = load_reward("truthrl").with_(grade=Grader(Judge(judge))).batch([ROME] * len(texts), texts)
    assert [(one.state, one.value, one.cause) for one in results] == [WRITTEN[text] for text in texts]


# A file of one's own


def test_rewards_of_a_file(own: str) -> None:
    assert [*load_paper(own).variants] == ["short", "right"]
    assert load_reward(f"{own}:short").knobs == {"words": 2}


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("trutrl", "'truthrl'"),
        ("truthrl:binry", "'binary'"),
        ("{folder}/owm.py:short", "'own.py'"),
        ("{folder}/none/own.py:short", "own.py"),
        ("{folder}/own.py:shrt", "'short'"),
        ("{folder}/own.py", "own.py:right"),
        ("{folder}/empty.py:a", "@factrl.reward"),
    ],
)
def test_what_cannot_be_loaded(own: str, spec: str, name: str) -> None:
    folder = Path(own).parent
    (folder / "empty.py").write_text("a = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_reward(spec.format(folder=folder))
    assert name in str(caught.value)
