"""Search as an action under verl: its own loop of tools around our episode, with answers by a script."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_search_episodes import DECLINES, ENDLESS, FACTS, LOST, RIGHT, Make, Source, call, save_speaker
from test_search_episodes import speaker as speaker
from test_search_episodes import trainer as trainer

from factrl.bridges.verl import compute_score
from factrl.errors import ModelError
from factrl.llm.writers import conversation
from factrl.runs.settings import DataSettings
from factrl.types import Completion, Example
from factrl.verifier.search import BrokenIndex
from verl_parts import composed, imported

pytestmark = pytest.mark.filterwarnings("ignore")
ASKED = [{"role": "user", "content": "Where is Ada from?"}]
TRUTH = {"question": "Where is Ada from?", "answers": ["Rome"]}
LENGTH = 1_500


class Scripted:
    """Says the script, turn by turn, in place of vLLM."""

    def __init__(self, tokenizer: Any, script: Sequence[str]) -> None:
        self.tokenizer, self.script, self.asked = tokenizer, list(script), list[str]()

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        text = self.script[len(self.asked)]
        self.asked.append(self.tokenizer.decode(prompt_ids))
        ids = [*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id]
        output = imported("verl.workers.rollout.replica").TokenOutput
        return output(token_ids=ids, log_probs=[-0.5] * len(ids))


class Episodes:
    """What the agent loop makes of scripts."""

    def __init__(self, model: Path, source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from transformers import AutoTokenizer

        self.agent = imported("factrl.bridges.verl_agent")
        self.loops = imported("verl.experimental.agent_loop.agent_loop")
        words = ("data.max_prompt_length=2000", f"data.max_response_length={LENGTH}")
        self.told = composed(*words, f"actor_rollout_ref.model.path={model}")
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        monkeypatch.setattr(self.agent, "_open_search_once", lambda **_: source)

    def run(self, script: Sequence[str], messages: Any = ASKED) -> tuple[Any, list[str]]:
        """verl's output, and the prompts of its turns."""

        async def run() -> Any:
            loop = self.agent.SearchAgentLoop(
                trainer_config=self.loops.DictConfigWrap(self.told),
                server_manager=server,
                tokenizer=self.tokenizer,
                processor=None,
                hf_model_type="qwen2",
                dataset_cls=object,
                data_config=self.loops.DictConfigWrap(self.told.data),
                tools=self.loops.ToolListWrap([]),
                **{"index": "wiki", "embedder": "", "k": 1, "turns": 2},
            )
            return await loop.run({}, raw_prompt=messages)

        server = Scripted(self.tokenizer, script)
        return asyncio.run(run()), server.asked

    def of(self, output: Any, wrote: int) -> str:
        """The tokens that the policy wrote (1), or that it did not (0)."""
        rows = zip(output.response_ids, output.response_mask, strict=True)
        return self.tokenizer.decode([token for token, own in rows if own == wrote])


@pytest.fixture
def episodes(speaker: Path, monkeypatch: pytest.MonkeyPatch) -> Episodes:
    return Episodes(speaker, Source(BrokenIndex("the index is gone")), monkeypatch)


def graded(output: Any, paper: str = "truthrl") -> dict[str, Any]:
    """As verl's reward workers are asked, in a process of their own."""
    extra = pickle.loads(pickle.dumps({**TRUTH, **output.extra_fields}))  # noqa: S301
    return asyncio.run(compute_score("set", "all that was said", "", extra, paper=paper))


def test_the_last_message_is_graded_and_only_what_the_policy_wrote_is_learnt(episodes: Episodes) -> None:
    output, asked = episodes.run(RIGHT)
    assert "Search the documents for passages about something" in asked[0]
    assert episodes.of(output, 1) == "".join(f"{turn}<|im_end|>" for turn in RIGHT)
    assert '<tool_response>\n[1] {"text": "Ada is from Rome."}\n1 of 2 searches are left.' in asked[1]
    assert (
        asked[1] == asked[0] + episodes.tokenizer.decode(output.response_ids)[: len(asked[1]) - len(asked[0])]
    )
    said: Completion = output.extra_fields["factrl_written"]
    assert said == RIGHT[1]
    assert [passage.text for passage in said.shown or ()] == [FACTS[0]]
    assert (said.truncated, said.tokens) == (False, sum(len(turn.encode()) for turn in RIGHT) + 1)
    assert (graded(output)["score"], graded(output)["state"]) == (1.0, "scored")


def test_the_policy_reads_what_it_reads_under_trl(episodes: Episodes, trainer: Make) -> None:
    """To the token, before and after a search; so `factrl eval` asks a policy of verl's as it was trained."""
    spoken = trainer((RIGHT, DECLINES))
    spoken.train()
    asked = conversation(Example("Where is Ada from?"), DataSettings(train="none"))
    assert episodes.run(RIGHT, asked)[1] == [spoken.prompts[0], spoken.prompts[2]]


def test_a_sign_falls_on_the_tokens_of_the_last_message(episodes: Episodes) -> None:
    output, _ = episodes.run(RIGHT)
    end = RIGHT[1].index(".")
    output.extra_fields["reward_extra_info"] = {"spans": json.dumps([[0, end, -1]])}
    output.reward_score = 1.0
    columns = output.as_dict()
    flipped = columns["responses"][columns["factrl_signs"] < 0]
    assert episodes.tokenizer.decode(flipped) == "Ada is from Rome [1]"
    assert "factrl_written" not in columns["extra_fields"]


def test_a_search_that_fails_masks_the_episode(episodes: Episodes) -> None:
    told = graded(episodes.run(LOST)[0])
    assert (told["state"], told["cause"], told["bug"]) == ("masked", "search_failed", "")


def test_a_bug_in_a_search_is_handed_to_our_trainer(speaker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl would show it to the policy as the tool's reply, and train on that."""
    broken = Episodes(speaker, Source(AttributeError("no such thing")), monkeypatch)
    told = graded(broken.run(LOST)[0])
    assert told["state"] == "masked"
    assert "AttributeError: no such thing" in told["bug"]


@pytest.mark.parametrize(
    ("script", "told", "state"),
    [
        ((call("x", topic="y"), DECLINES[0]), "unexpected keyword argument", "scored"),
        ((call("x", name="look"), DECLINES[0]), "Unknown function 'look'", "scored"),
        ((call("x", name="\ud800"), DECLINES[0]), "Unknown function '?'", "scored"),
        ((call("x", **{"\ud800": "y"}), DECLINES[0]), "unexpected keyword argument '?'", "scored"),
        (('<tool_call>{"name": "search", "arguments": [1]}</tool_call>', DECLINES[0]), "not list", "scored"),
        ((call(7), DECLINES[0]), "This cannot be searched for", "scored"),
        (("<tool_call>\n{search for Ada\n</tool_call>",), "{search for Ada", "floored"),
        (ENDLESS, "You have no searches left", "floored"),
        ((call("Ada") + call("Bo") + call("Ada"), DECLINES[0]), "You have no searches left", "scored"),
    ],
    ids=["argument", "name", "half a name", "half a key", "list", "number", "no JSON", "endless", "at once"],
)
def test_what_the_policy_does_wrong_masks_nothing(
    episodes: Episodes, script: Sequence[str], told: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    verls = imported("verl.experimental.agent_loop.tool_agent_loop").__file__
    caplog.set_level(
        "CRITICAL", logger=verls
    )  # half a character in its warning ends a worker of pytest-xdist
    output, _ = episodes.run(script)
    assert told in episodes.tokenizer.decode(output.response_ids)
    assert graded(output)["state"] == state


def test_passages_have_their_numbers_by_the_order_of_the_calls(episodes: Episodes) -> None:
    output, _ = episodes.run((call("Bo") + call("Ada"), DECLINES[0]))
    read = episodes.of(output, 0)
    assert read.index('[1] {"text": "Bo is from Oslo."}') < read.index('[2] {"text": "Ada is from Rome."}')


def test_a_reply_that_does_not_fit_ends_the_episode(episodes: Episodes) -> None:
    episodes.told.actor_rollout_ref.rollout.response_length = 120
    output, asked = episodes.run(RIGHT)
    assert (len(asked), episodes.of(output, 0)) == (1, "")
    assert graded(output)["state"] == "floored"


def test_a_template_without_a_place_for_tools_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="no place for tools"):
        Episodes(save_speaker(tmp_path, "llama3"), Source(OSError()), monkeypatch).run(RIGHT)
