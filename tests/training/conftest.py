"""A tiny Llama and a few questions, so that real trainer steps take a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import write

torch = pytest.importorskip("torch", reason="needs the extra `train`")

PEOPLE = ("ada", "bo", "cleo", "dan", "eve", "fay", "gus", "hal")
PLACES = ("rome", "oslo", "lima", "cairo")
WORDS = [*PEOPLE, *PLACES, "where", "is", "from", "?", "i", "don", "'", "t", "know", ".", "user", "system"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tests that two runs end alike to the last bit: several threads add up in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer Llama and its word tokenizer with a chat template."""
    from tiny import save_llama, word_tokenizer

    tokens = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    fast = word_tokenizer([*tokens.values(), *WORDS], **tokens)
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'is ' }}{% endif %}"
    )
    return save_llama(tmp_path_factory.mktemp("tiny-model"), fast, 64)


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight questions with one-word answers, as jsonl."""
    rows = [
        {"id": name, "question": f"where is {name} from ?", "answers": [PLACES[index % len(PLACES)]]}
        for index, name in enumerate(PEOPLE)
    ]
    return write(tmp_path_factory.mktemp("questions") / "questions.jsonl", *rows)
