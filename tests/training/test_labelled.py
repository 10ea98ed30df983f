"""The three models of KLCF, tuned: they learn, resume, and are read where they will be used."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factrl.errors import ConfigError, DataError, ModelError
from factrl.rewards.truthfulness import TUNED_PROMPT, TruthfulnessModel
from factrl.rewards.tuned_truthfulness import CARD, TunedTruthfulness, open_truthfulness
from factrl.train import labelled
from factrl.train.labelled import LabelledTrainer, tune_labelled
from factrl.train.tuning.labelled import Lesson, load_lessons
from factrl.train.tuning.labelled_numbers import claim_counts, table, told_of
from factrl.train.tuning.labelled_settings import LabelledSettings

pytestmark = pytest.mark.usefixtures("one_thread")

TRUE, FALSE = ("sings", "dances", "paints"), ("burns", "drowns", "rusts")
NAMES = [f"{a}{b}" for a in "abcdefgh" for b in "mnopq"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama on a byte-level tokenizer with a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(t, special=True) for t in ("<pad>", "<end>", "<user>", "<bot>")],
    )
    texts = ["Answer: True", "Answer: False", TUNED_PROMPT, *(f"mo {word}." for word in (*TRUE, *FALSE))]
    made.train_from_iterator(texts * 3, trainer)
    path = tmp_path_factory.mktemp("base")
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<pad>")
    fast.chat_template = (
        "{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<bot>' }}{{ m['content'] }}"
        "{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}{{ '<bot>' }}{% endif %}"
    )
    fast.save_pretrained(path)
    torch.manual_seed(3)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=made.get_vocab_size(),
            max_position_embeddings=8192,
            num_attention_heads=2,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
            tie_word_embeddings=True,
            **shape,
        )
    ).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Claims whose verb says whether they are true; two of each document."""
    path = tmp_path_factory.mktemp("rows") / "claims.jsonl"
    told = []
    for n, name in enumerate(NAMES):
        for words, label in ((TRUE, "supported"), (FALSE, "refuted")):
            told.append({"claim": f"{name} {words[n % 3]}.", "label": label, "group_id": name})
    path.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")
    return path


def settings_of(base: Path, rows: Path, folder: Path, **more: Any) -> LabelledSettings:
    train = {"steps": 30, "batch_size": 16, "learning_rate": 1e-2, "max_length": 64, "bf16": False}
    sections: dict[str, Any] = {
        "model": {"name": str(base)},
        "data": {"files": [str(rows)]},
        "train": train,
        "run": {"dir": str(folder)},
    }
    for name, values in more.items():
        sections[name] = {**sections.get(name, {}), **values} if isinstance(values, dict) else values
    return LabelledSettings.model_validate(sections)


def test_a_tuned_model_is_loaded_by_the_rewards_truthfulness(base: Path, rows: Path, tmp_path: Path) -> None:
    settings = settings_of(base, rows, tmp_path / "run")
    found = tune_labelled("truthfulness", settings)
    numbers = found["sets"]["tuned, scaled"]
    assert numbers["accuracy"]["value"] > 0.95
    assert numbers["auc"]["value"] > 0.95
    assert found["sets"]["majority"]["accuracy"]["value"] == pytest.approx(0.5, abs=0.2)
    loaded = open_truthfulness(tmp_path / "run" / "model")
    assert isinstance(loaded, TunedTruthfulness)
    odds = loaded(["zz sings.", "zz rusts."])
    assert odds[0] > 0.8 > 0.2 > odds[1]
    # The numbers are those of the loaded model: the temperature is applied once.
    kept = [json.loads(line) for line in (tmp_path / "run" / "replies.jsonl").read_text().splitlines()[1:]]
    texts = [json.loads(line)["claim"] for line in rows.read_text().splitlines()]
    told = {row["key"]: row["logit"] for row in kept if row["key"].startswith("tuned ")}
    for key, logit in [*told.items()][:5]:
        text = texts[int(key.rpartition(":")[2]) - 1]
        wanted = 1 / (1 + math.exp(-logit / found["temperature"]))
        assert loaded([text])[0] == pytest.approx(wanted, abs=1e-4)
    assert len(table(found)) == 1 + len(found["sets"])
    assert "judge.truthfulness_model=" in told_of(found, tmp_path / "run")


def test_the_pairs_folder_also_works_without_its_card(base: Path, rows: Path, tmp_path: Path) -> None:
    tune_labelled("truthfulness", settings_of(base, rows, tmp_path / "run", train={"steps": 5}))
    folder = tmp_path / "run" / "model"
    tuned, plain = TunedTruthfulness(folder), TruthfulnessModel(folder)
    logits = [np.log(p) - np.log1p(-p) for p in (tuned(["am sings."])[0], plain(["am sings."])[0])]
    assert logits[1] / logits[0] == pytest.approx(tuned.temperature, rel=1e-3)
    assert f"temperature={tuned.temperature:.6g}" in tuned.identity
    (folder / CARD).write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="make the model again"):
        open_truthfulness(folder)


@pytest.mark.fault("F20")
@pytest.mark.parametrize("stop", ["train", "score"])
def test_a_run_that_was_killed_goes_on_and_ends_the_same(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    def told(folder: str) -> LabelledSettings:
        return settings_of(base, rows, tmp_path / folder, train={"steps": 12, "save_steps": 4})

    whole = tune_labelled("truthfulness", told("whole"))
    scored: list[str] = []
    steps: list[int] = []

    class Killed(BaseException): ...

    step, add = LabelledTrainer.training_step, labelled.Journal.add

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps.append(self.state.global_step)
        if stop == "train" and len(steps) == 7:
            raise Killed
        return step(self, *args, **kwargs)

    def kept(self: Any, key: str, row: Any) -> None:
        scored.append(key)
        if stop == "score" and len(scored) == 30:
            raise Killed
        add(self, key, row)

    monkeypatch.setattr(LabelledTrainer, "training_step", counted)
    monkeypatch.setattr(labelled.Journal, "add", kept)
    with pytest.raises(Killed):
        tune_labelled("truthfulness", told("cut"))
    again = tune_labelled("truthfulness", told("cut"))
    assert again == whole
    assert len(steps) == (12 + 7 - 4 if stop == "train" else 12)  # steps behind the last checkpoint
    assert len(scored) == len({*scored}) + (1 if stop == "score" else 0)
    done = len(scored)
    assert tune_labelled("truthfulness", told("cut")) == whole  # a finished run does nothing
    assert len(scored) == done


def test_another_jobs_folder_is_refused(base: Path, rows: Path, tmp_path: Path) -> None:
    tune_labelled("truthfulness", settings_of(base, rows, tmp_path / "run", train={"steps": 2}))
    with pytest.raises(ConfigError, match="holds another job"):
        tune_labelled("truthfulness", settings_of(base, rows, tmp_path / "run", train={"steps": 3}))


def test_accumulated_gradients_are_those_of_the_batch(base: Path, rows: Path, tmp_path: Path) -> None:
    """And the loss is that of the two answers alone, whatever stands before them in the batch."""
    norms, losses = [], []
    for micro in (16, 4):
        told = {"steps": 1, "micro_batch_size": micro, "warmup_steps": 0}
        settings = settings_of(base, rows, tmp_path, train=told)
        network, tokenizer = labelled._load(base)
        words = labelled._words(tokenizer)
        lessons = load_lessons("truthfulness", settings.data)[0][:16]
        data = [labelled._tokens(tokenizer, lesson, words) for lesson in lessons]
        arguments = labelled._arguments(settings, tmp_path / str(micro))
        arguments.logging_steps = 1
        wanted = [binary_loss(network, row, words) for row in data]
        trainer = LabelledTrainer(network, tokenizer.pad_token_id, arguments, data, words)
        trainer.train()
        norms.append(trainer.state.log_history[0]["grad_norm"])
        losses.append(trainer.state.log_history[0]["loss"])
        assert losses[-1] == pytest.approx(np.mean(wanted), abs=2e-4)
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def binary_loss(network: Any, row: dict[str, list[int]], words: list[int]) -> float:
    """Of one claim without padding: minus the log-odds of its answer among the two."""
    with torch.inference_mode():
        last = network(torch.tensor([row["input_ids"][:-1]])).logits[0, -1, words].log_softmax(-1)
    return -float(last[words.index(row["labels"][-1])])


def test_only_the_last_layers_are_trained(base: Path) -> None:
    network, _ = labelled._load(base)
    labelled._freeze(network, 1)
    trained = {name for name, weight in network.named_parameters() if weight.requires_grad}
    assert trained
    assert all(name.startswith(("model.layers.1.", "model.norm.")) for name in trained)
    with pytest.raises(ModelError, match="the model has 2 layers"):
        labelled._freeze(network, 3)


def test_what_does_not_fit_is_told(base: Path, rows: Path, tmp_path: Path) -> None:
    settings = settings_of(base, rows, tmp_path / "run", train={"max_length": 5})
    with pytest.raises(DataError, match=r"fits train\.max_length"):
        tune_labelled("truthfulness", settings)


QUESTION = "Tell me about the museum."


def chat_settings(base: Path, rows: list[dict[str, Any]], folder: Path, **train: Any) -> LabelledSettings:
    folder.mkdir(exist_ok=True)
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = {"steps": 2, "batch_size": 2, "micro_batch_size": 2, "max_length": 8000, "max_new_tokens": 4}
    return LabelledSettings.model_validate(
        {
            "model": {"name": str(base)},
            "data": {"files": [str(file)]},
            "train": {**told, "bf16": False, **train},
            "run": {"dir": str(folder / "run")},
        }
    )


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "question": QUESTION,
            "response": f"Museum {n} is in Berlin.",
            "items": [f"Museum {n} is in Berlin.", "It is old."],
            "labels": ["consistent", "missing"],
            "claims": [f"Museum {n} is in Berlin."],
            "group_id": str(n),
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("method", ["checklist-verifier", "extractor"])
def test_a_model_that_learnt_nothing_is_unreadable_and_not_wrong(
    base: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = chat_settings(base, rows_of(8), tmp_path)
    found = tune_labelled(method, settings)
    assert sum(found["unreadable"].values()) == found["rows_used"]["report"] == 2
    assert set(found["metrics"].values()) == {None}
    assert "could not be read: 2 truncated" in told_of(found, tmp_path / "run")
    assert table(found)[1][1] == "undefined"
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a finished run does nothing")

    monkeypatch.setattr(labelled, "train_on", refused)
    monkeypatch.setattr(labelled, "_ask", refused)
    assert tune_labelled(method, settings) == found


def test_only_the_reply_is_learnt_and_replies_are_measured_by_the_reader(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed while it asks goes on there, with the model that was saved."""
    seen: list[Any] = []
    original = LabelledTrainer

    class Watched(original):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen.extend(row[row != -100].tolist() for row in inputs["labels"])
            return super().training_step(model, inputs, *args, **kwargs)

    asked: list[str] = []

    def complete(self: Any, messages: Any, **_: Any) -> Any:
        data = json.loads(messages[-1]["content"].rsplit("\n", 2)[1])
        asked.append(data["response"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        words = ("consistent", "contradictory")
        lines = (json.dumps({"id": i["id"], "verdict": w}) for i, w in zip(data["items"], words, strict=True))
        return labelled.Reply("\n".join(lines), "stop", "m")

    monkeypatch.setattr(labelled, "LabelledTrainer", Watched)
    monkeypatch.setattr(labelled.TunedLLM, "complete", complete)
    settings = chat_settings(base, rows_of(10), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        tune_labelled("checklist-verifier", settings)
    learnt = len(seen)
    found = tune_labelled("checklist-verifier", settings)
    assert (learnt, len(seen)) == (4, 4)
    assert len(asked) == 4  # of three rows, the one that was interrupted twice
    from transformers import AutoTokenizer

    texts = {AutoTokenizer.from_pretrained(base).decode(row) for row in seen}
    assert all(text.startswith('{"id": "') and text.endswith("<end>") for text in texts)
    assert found["metrics"]["recall_contradictory"] is None  # there was none
    numbers = {name: one["value"] for name, one in found["metrics"].items() if one}
    assert numbers["item_accuracy"] == 0.5
    assert (numbers["recall_consistent"], numbers["recall_missing"]) == (1.0, 0.0)
    assert numbers["always_consistent"] == 0.5
    assert numbers["macro_f1"] == pytest.approx(1 / 3)


def lesson(*claims: str) -> Lesson:
    return Lesson("a:1", "", "", QUESTION, "r", claims, (), "g", "a")


def test_claims_are_matched_one_to_one() -> None:
    told = lesson("The museum is in Berlin.", "The museum shows coins.")
    said = ["The museum is in Berlin", "the museum is in Berlin!", "Nothing alike at all."]
    assert claim_counts(told, said).tolist() == [1, 3, 2]
    assert claim_counts(told, told.told).tolist() == [2, 2, 2]
    assert claim_counts(lesson(), []).tolist() == [0, 0, 0]


def test_what_cannot_be_learnt_from_is_told(base: Path, tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(DataError, match=r"none of 6 rows fits train.max_length = 10; the shortest has \d+"):
        tune_labelled("extractor", chat_settings(base, rows_of(8), tmp_path / "a", max_length=10))
    from transformers import AutoTokenizer

    bare = tmp_path / "bare"
    import shutil

    shutil.copytree(base, bare)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = None
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(bare)
    with pytest.raises(ConfigError, match="has no chat template"):
        tune_labelled("extractor", chat_settings(bare, rows_of(8), tmp_path / "b"))
