"""The environment in which a policy searches before it answers, without a trainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError, Unscored
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.runs.config import load_settings
from factrl.runs.settings import RunSettings
from factrl.train.search import LONGEST, SPENT, SearchEnvironment, attach_search, transcript
from factrl.types import Completion, Example, Passage
from factrl.verifier.search import Given, WebSearch
from fault_server import FaultServer, answers

FACTS = [Passage("Ada is from Rome.", "Ada"), Passage("Bo is from Oslo.", "Bo"), Passage("Ada knows Bo.")]
ADA = Example("Where is Ada from?", ("Rome",))
TRUTHFUL = load_reward("truthrl").with_(grade=Grader())


def numbers(told: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\[(\d+)\] ", told, re.M)]


def test_a_passage_keeps_its_number_and_an_episode_starts_anew() -> None:
    episode = SearchEnvironment(Given(FACTS), k=2, turns=3)
    first, second = episode.search("Ada Rome"), episode.search("Bo Oslo")
    shown = ('[1] {"title": "Ada", "text": "Ada is from Rome."}', '[2] {"text": "Ada knows Bo."}')
    assert first == "\n".join((*shown, "2 of 3 searches are left."))
    assert numbers(second) == [3, 2]
    assert [passage.text for passage in episode.shown] == [FACTS[n].text for n in (0, 2, 1)]
    episode.search("Ada")
    assert episode.search("Ada") == SPENT
    episode.reset(question="another row")
    assert (episode.shown, episode.searches) == ([], 0)
    assert numbers(episode.search("Bo Oslo")) == [1, 2]


def test_nothing_found_is_no_failure_and_a_long_passage_is_cut() -> None:
    episode = SearchEnvironment(Given([]), turns=1)
    assert episode.search("Ada") == "Nothing was found.\n0 of 1 searches are left."
    assert episode.failed is None
    assert len(SearchEnvironment(Given(["word " * LONGEST])).search("word")) < LONGEST + 100


class Refuses:
    """A server that refuses some queries; what it says of ours tells whose doing that is."""

    def __init__(self, *, ours: bool = False) -> None:
        self.ours = ours

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        if self.ours or "wormhole" in query:
            raise Unscored("search_failed", "HTTP 400", reason="http_400", attempts=4)
        return FACTS


@pytest.mark.parametrize(("ours", "cause"), [(False, None), (True, "search_failed")])
def test_a_policy_cannot_mask_itself_by_what_it_searches_for(ours: bool, cause: str | None) -> None:
    episode = SearchEnvironment(Refuses(ours=ours))
    told = episode.search("a wormhole")
    assert told.startswith("The search does not answer" if ours else "This cannot be searched for")
    result = load_reward("truthrl").with_(grade=Grader())(
        ADA, attach_search(episode, Completion(r"\boxed{Rome}"))
    )
    assert (result.cause, result.value) == (cause, None if ours else 1.0)
    if ours:
        assert result.detail.endswith("HTTP 400")


def test_a_server_that_is_killed_in_an_episode_masks_it(serve: Callable[..., FaultServer]) -> None:
    found = {"organic": [{"snippet": "Ada is from Rome.", "title": "Ada", "link": "http://x"}]}
    server = serve(answers(200, found))
    limits = {"max_attempts": 1, "timeout_attempt": 5.0, "timeout_call": 5.0}
    episode = SearchEnvironment(WebSearch(f"http://127.0.0.1:{server.port}", "key", **limits), k=1)
    assert numbers(episode.search("Ada")) == [1]
    server.close()
    assert "does not answer" in episode.search("Bo")
    assert "does not answer" in episode.search("Cleo"), "and is not asked again"
    result = TRUTHFUL(ADA, attach_search(episode, Completion("Rome")))
    assert (result.state, result.cause, len(server.requests)) == ("masked", "search_failed", 1)


def test_a_transcript_shows_calls_as_they_are_read() -> None:
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "naïve"}}}
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "tool", "name": "search", "content": "[1] …"},
        {"role": "assistant", "content": "Rome [1]"},
    ]
    assert (
        transcript(said)
        == 'assistant: Let me see.\nsearch(query="naïve")\n\ntool: [1] …\n\nassistant: Rome [1]'
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["search.k=5"], "search.k does nothing without search.index"),
        (["search.index=wiki", "data.chat=false"], "calls are a part of the chat template"),
        (["search.index=wiki", "data.prefill=<think>"], "cannot begin an answer"),
        (["search.index=wiki", "data.prompt={evidence} {question}"], "number their passages both"),
        (["search.index=wiki", "search.turns=0"], "turns"),
    ],
)
def test_settings_that_cannot_be_beside_a_search_are_named(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        load_settings(RunSettings, None, ["paper=truthrl", "model.name=m", "data.train=q", *words])


def test_an_index_that_is_not_there_stops_the_run_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from factrl.cli import main

    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "answer": "Ada"}\n', encoding="utf-8")
    words = [
        "train",
        "truthrl",
        "--model",
        "m",
        "--data",
        str(tmp_path / "q.jsonl"),
        "train.prompts_per_step=1",
    ]
    assert main([*words, f"search.index={tmp_path / 'none'}"]) == 2
    assert "there is no index in" in capsys.readouterr().err
    assert main([*words, "paper=intuitor", f"search.index={tmp_path / 'none'}"]) == 2
