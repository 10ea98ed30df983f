"""The models of KLCF, tuned on labelled rows: they learn, and are read where they will be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import byte_tokenizer, llama

from commands import write
from factrl.errors import ConfigError, LLMError, Unscored
from factrl.rewards.needs import Supplier
from factrl.rewards.truthfulness import TUNED_PROMPT, TruthfulnessModel
from factrl.runs.rows import read_lines
from factrl.runs.settings import JudgeSettings, VerifierSettings
from factrl.train.offline import tune
from factrl.train.tuning.plan import plan_tuning
from factrl.train.tuning.samples import TuningResult
from factrl.train.tuning.settings import read_tuning_job

pytestmark = pytest.mark.usefixtures("one_thread")

TRUE, FALSE = ("sings", "dances", "paints"), ("burns", "drowns", "rusts")
NAMES = [f"{a}{b}" for a in "abcdefgh" for b in "mnopq"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama on a byte-level tokenizer with a chat template."""
    texts = ["Answer: True", "Answer: False", TUNED_PROMPT, *(f"mo {word}." for word in (*TRUE, *FALSE))]
    special = ("<pad>", "<end>", "<user>", "<bot>")
    fast = byte_tokenizer(special, texts * 3, 400, eos_token="<end>", pad_token="<pad>")
    path = tmp_path_factory.mktemp("base")
    fast.chat_template = (
        "{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<bot>' }}{{ m['content'] }}"
        "{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}{{ '<bot>' }}{% endif %}"
    )
    fast.save_pretrained(path)
    told: dict[str, Any] = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    llama(len(fast), 3, (2, 2), max_position_embeddings=8192, **told).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Claims whose verb says whether they are true; two of each document."""
    told = []
    for n, name in enumerate(NAMES):
        for words, label in ((TRUE, "supported"), (FALSE, "refuted")):
            told.append({"claim": f"{name} {words[n % 3]}.", "label": label, "group_id": name})
    return write(tmp_path_factory.mktemp("rows") / "claims.jsonl", *told)


def tuned(method: str, base: Path, file: Path, folder: Path, *more: str) -> tuple[Path, TuningResult | None]:
    words = (f"tune.method={method}", f"data.train={file}", f"model.name={base}", f"run.dir={folder}")
    told = ("train.steps=100", "train.learning_rate=1e-2", "train.gradient_checkpointing=false")
    return tune(plan_tuning(read_tuning_job(None, [*words, *told, "train.bf16=false", *more])))


def test_a_tuned_model_is_read_by_the_rewards_truthfulness(base: Path, rows: Path, tmp_path: Path) -> None:
    run, outcome = tuned("truthfulness", base, rows, tmp_path, f"data.eval={rows}")
    assert outcome is not None
    changed = outcome.to_json()
    assert changed["before"]["accuracy"]["value"] < 0.6
    assert changed["after"]["accuracy"]["value"] > 0.95
    odds = TruthfulnessModel(run / "model")(["zz sings.", "zz rusts."])
    assert odds[0] > 0.5 > odds[1]


def test_a_tuned_extractor_finds_the_claims_of_a_reward(base: Path, tmp_path: Path) -> None:
    said = "The museum is in Berlin. It is old!"
    row = {"question": "Tell me about it.", "response": said, "claims": ["The museum is in Berlin."]}
    file = write(tmp_path / "rows.jsonl", row)
    few = ("train.steps=60", "train.prompts_per_step=1", "train.micro_batch_size=1")
    run, _ = tuned("extractor", base, file, tmp_path / "runs", *few)
    models = JudgeSettings(extractor_model=str(run / "model"), checklist_model=str(run / "model"))
    source = Supplier(None, models, VerifierSettings(cache=False))
    assert [claim.text for claim in source.extract()(said, row["question"])] == row["claims"]
    with pytest.raises(Unscored, match=r"judge_unreadable|truncated"):  # it has learnt other replies
        source.checklist()(row["question"], said, ["The museum is old."])
    with pytest.raises(LLMError, match="truncated"):
        source.checklist().llm.complete([{"role": "user", "content": "?" * 9000}])


def test_a_checklist_verifier_learns_the_reply_alone(base: Path, tmp_path: Path) -> None:
    row = {"question": "Tell me about the museum.", "labels": ["consistent", "missing"]}
    said = [f"Museum {n} is in Berlin." for n in range(4)]
    rows = ({**row, "response": text, "items": [text, "It is old."]} for text in said)
    file = write(tmp_path / "rows.jsonl", *rows)
    run, _ = tuned("checklist-verifier", base, file, tmp_path / "runs", "train.steps=1")
    kept = [*read_lines(run / "data" / "train.jsonl")]
    assert all(one["prompt"].startswith("<user>") and one["prompt"].endswith("<bot>") for one in kept)
    assert all(one["completion"].startswith('{"id": "') for one in kept)
    with pytest.raises(ConfigError, match="not right or wrong as a whole"):
        tuned("checklist-verifier", base, file, tmp_path / "runs", f"data.eval={file}")
