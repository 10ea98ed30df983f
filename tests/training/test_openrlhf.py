"""OpenRLHF's own dataset, executor and experiences, out of its wheel, with `factrl serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from contract import ANSWERS, QUESTION, completions, contract, differences, worth
from tiny import byte_tokenizer

from commands import write
from factrl.cli import main
from factrl.errors import FactrlError
from factrl.runs.rows import read_lines
from factrl.server import Service
from serving import Running

agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF has wheels for Linux and Python to 3.12")
torch = pytest.importorskip("torch")
from openrlhf.datasets import PromptDataset  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402

from factrl.bridges import openrlhf  # noqa: E402

TEXTS = completions()
LONG = 4_000  # tokens, here bytes


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    running = Running(Service({"contract": contract}, None, None))
    yield f"{running.url}/v1/openrlhf/contract"
    running.stop()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """One token a byte, so that any text comes back as it was; with a chat template."""
    made = byte_tokenizer()
    turn = "[{{ m['role'] }}] {{ m['content'] }}"
    made.chat_template = "{% for m in messages %}" + turn + "\n{% endfor %}[assistant] "
    return made


@pytest.fixture(scope="module")
def row(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Prompt and label as OpenRLHF's dataset reads them out of what `factrl prepare convert` writes."""
    here = tmp_path_factory.mktemp("rows")
    made = here / "train.jsonl"
    asked = write(here / "questions.jsonl", {"question": QUESTION, "answers": list(ANSWERS)})
    convert = ["prepare", "convert", str(asked), "--to", "openrlhf", "--output", str(made)]
    assert main([*convert, "data.prompt={question}"]) == 0
    data = SimpleNamespace(input_key="input", label_key="label", apply_chat_template=True)
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), is_rank_0=lambda: False)
    rows = [*read_lines(made)]
    _, prompt, label, _ = PromptDataset(rows, tokenizer, strategy)[0]
    assert prompt.startswith("[user] ")
    assert prompt.endswith("\n[assistant] ")
    return prompt, label


class Engine:
    """Samples given texts, one after another, as vLLM returns them."""

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self.tokenizer, self.left = tokenizer, list(texts)

    async def generate(self, prompt: Sequence[int], params: Any, multi_modal_data: Any = None) -> Any:
        said = self.tokenizer(text=self.left.pop(0), add_special_tokens=False)["input_ids"]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=said, finish_reason="stop", logprobs=None)])


Draw = Callable[..., Any]


@pytest.fixture
def draw(tokenizer: Any, row: tuple[str, str]) -> Draw:
    """Has an executor make one sample out of given texts."""

    def one(executor: Any, *texts: str) -> Any:
        params = SimpleNamespace(max_tokens=LONG // 2, logprobs=None)
        return executor.execute(*row, params, LONG, tokenizer, Engine(tokenizer, *texts))

    return one


def test_its_executor_gets_each_number_and_none_for_what_was_not_graded(url: str, draw: Draw) -> None:
    executor = agent.SingleTurnAgentExecutor(url)

    async def all_of_them() -> list[dict[str, Any]]:
        inside = asyncio.Semaphore(100)

        async def one(text: str) -> dict[str, Any]:
            async with inside:
                return await draw(executor, text)

        return await asyncio.gather(*map(one, TEXTS))

    drawn = asyncio.run(all_of_them())
    assert not differences([one["reward"] and one["reward"][0] for one in drawn], TEXTS)


def test_what_could_not_be_graded_is_drawn_again(
    url: str, draw: Draw, monkeypatch: pytest.MonkeyPatch, row: tuple[str, str]
) -> None:
    monkeypatch.setenv("FACTRL_REWARD_URL", url)
    monkeypatch.setattr(openrlhf, "DRAWS", 2)
    by_worth = dict(zip(TEXTS, worth(TEXTS), strict=True))
    masked = [text for text, value in by_worth.items() if value is None][:2]
    graded = next(text for text, value in by_worth.items() if value is not None)
    executor = openrlhf.AgentExecutor()

    async def both() -> Any:
        never = draw(executor, *masked)
        return await asyncio.gather(draw(executor, masked[0], graded), never, return_exceptions=True)

    again, never = asyncio.run(both())
    start, end = again["action_ranges"][0]
    assert end - start == len(graded.encode())
    assert again["reward"] == pytest.approx([by_worth[graded]])
    assert isinstance(never, FactrlError)
    assert "2 completions of one prompt could not be graded" in str(never)
    # One experience without a reward would end the run here.
    episode = Experience(rewards=torch.tensor([again["reward"]]), prompts=[row[0]])
    assert Experience.concat_experiences([episode, episode], 0).rewards.shape[0] == 2
    with pytest.raises(AttributeError):
        Experience.concat_experiences([episode, Experience(prompts=[row[0]])], 0)


def test_without_an_address_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FACTRL_REWARD_URL", raising=False)
    with pytest.raises(ValueError, match="FACTRL_REWARD_URL is not set"):
        openrlhf.AgentExecutor()
