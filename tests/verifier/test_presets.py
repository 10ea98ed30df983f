"""Verifiers by name: what they are made of, and what they say when something is missing."""

from __future__ import annotations

import json

import pytest

import factrl.verifier as presets
from factrl.errors import ConfigError, DataError, MissingExtra, SetupError
from factrl.llm import FakeLLM
from factrl.types import Claim, Passage
from factrl.verifier import open_verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.claims.llm import LLMClaims
from factrl.verifier.judges import LLMJudge, WeakJudge

CURIE = "Marie Curie was born in Warsaw on 7 November 1867. She won two Nobel Prizes."


class Scorer:
    """A cross-encoder that is sure to this degree, and finds everything entailed or nothing."""

    identity, p = "all entailed", 0.9

    def __init__(self, name, trust_remote_code=False):
        self.name = name

    def scores(self, pairs, spans=None):
        import numpy as np

        return np.tile([self.p, 0.05, 0.95 - self.p], (len(pairs), 1))


@pytest.fixture
def curie(tmp_path):
    path = tmp_path / "curie.txt"
    path.write_text(CURIE, encoding="utf-8")
    return path


@pytest.fixture
def nli(monkeypatch):
    """Any cross-encoder's name gives the scorer."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    monkeypatch.setattr("factrl.llm.local.classifiers.CrossEncoder", Scorer)


def test_without_the_local_runtime_the_weak_judge_stands_in(curie, monkeypatch):
    def missing():
        raise MissingExtra("xllamacpp", "local")

    monkeypatch.setattr(presets, "LocalJudge", missing)
    verifier = open_verifier(docs=[curie])
    assert isinstance(verifier.judge, WeakJudge)
    assert isinstance(verifier.extract, SentenceClaims)


def test_the_published_presets(curie, nli):
    llm = FakeLLM(lambda messages: "")
    made = {name: open_verifier(name, docs=[curie], llm=llm) for name in ("factscore", "veriscore", "knowrl")}
    assert [verifier.k for verifier in made.values()] == [5, 10, 5]
    assert all(isinstance(verifier.extract, LLMClaims) for verifier in made.values())
    assert made["factscore"].judge.style == "factscore"
    assert made["veriscore"].judge.per_call == 1
    assert made["knowrl"].topic_in_query
    fspo = open_verifier("fspo", judge=f"nli:{presets.FSPO_NLI}@0123abc", trust_remote_code=True)
    assert isinstance(fspo.extract, SentenceClaims)
    named = open_verifier("knowrl", docs=[curie], llm=llm, judge="nli:my/encoder")
    paper = open_verifier("knowrl", docs=[curie], llm=llm, judge="llm")
    assert isinstance(paper.judge, LLMJudge)
    assert paper.topic_in_query
    encoders = [verifier.judge.cross_encoder for verifier in (made["knowrl"], fspo, named)]
    assert [one.name for one in encoders] == [presets.KNOWRL_NLI, f"{presets.FSPO_NLI}@0123abc", "my/encoder"]
    # KnowRL counts 0.3 as entailed and never says refuted; FSPO's 0.5 is not over 0.5, and refuted.
    for p, label, other in (
        (0.29, "unknown", "refuted"),
        (0.3, "supported", "refuted"),
        (0.5, "supported", "refuted"),
        (0.51, "supported", "supported"),
    ):
        for encoder in encoders:
            encoder.p = p
        judges = (made["knowrl"].judge, named.judge, fspo.judge)
        found = [judge.judge([(Claim("x", 0, 1), [Passage("y")])])[0].label for judge in judges]
        assert found == [label, label, other]


def test_a_server_finds_the_claims_and_judges(curie, tmp_path):
    from factrl.llm.store import Store

    def reply(messages):
        data = json.loads(messages[0]["content"].rpartition("\nDATA ")[2].split("\n")[1])
        if "claims" in data:
            verdicts = [{"id": claim["id"], "verdict": "supported"} for claim in data["claims"]]
            return "\n".join(json.dumps(verdict) for verdict in verdicts)
        return "- Marie Curie won two Nobel Prizes."

    llm = FakeLLM(reply)
    llm.identity = "fake"
    store = Store(tmp_path / "verdicts.sqlite")
    verifier = open_verifier(docs=[curie], llm=llm, store=store)
    assert isinstance(verifier.judge, LLMJudge)
    report = verifier("Marie Curie won two Nobel Prizes.")
    assert [check.verdict.label for check in report.checks] == ["supported"]
    asked = len(llm.calls)
    assert str(verifier("Marie Curie won two Nobel Prizes.")) == str(report)
    assert len(llm.calls) == asked  # claims and verdicts were kept


@pytest.mark.parametrize(
    ("named", "error", "message"),
    [
        ({"preset": "veriscor"}, ConfigError, "unknown preset 'veriscor'; did you mean 'veriscore'?"),
        ({"preset": "veriscore"}, ConfigError, "preset 'veriscore' asks a model server"),
        (
            {"preset": "fspo"},
            ConfigError,
            "vectara/hallucination_evaluation_model@COMMIT and trust_remote_code",
        ),
        ({"judge": "llm"}, ConfigError, "judge=llm"),
        ({"judge": "clever"}, ConfigError, "unknown judge 'clever'"),
        ({"docs": ["nowhere.txt"]}, DataError, "nowhere.txt"),
        ({"index": "nowhere"}, SetupError, "nowhere"),
        ({"docs": ["a.txt"], "index": "b"}, ConfigError, "not from docs and index"),
        ({"judge": "weak", "k": 0}, ConfigError, "k must be at least 1, not 0"),
    ],
)
def test_what_is_missing_is_named(named, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        open_verifier(named.pop("preset", "local"), **named)


def test_controls_are_for_a_server_that_is_asked_in_words(curie):
    assert open_verifier(docs=[curie], llm=FakeLLM([]), controls=True).judge.controls
    assert not open_verifier(docs=[curie], llm=FakeLLM([])).judge.controls
    for named in ({}, {"llm": FakeLLM([]), "judge": "weak"}, {"llm": FakeLLM([]), "preset": "factscore"}):
        with pytest.raises(ConfigError, match="controls are for a server"):
            open_verifier(docs=[curie], controls=True, **named)
