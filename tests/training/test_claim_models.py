"""Truthfulness models that are tuned here: they learn, resume, and are loaded where the reward loads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factrl.errors import ConfigError, DataError, ModelError
from factrl.llm.local.nli import CrossEncoder
from factrl.rewards.truthfulness import TUNED_PROMPT, TruthfulnessModel
from factrl.rewards.tuned_truthfulness import CARD, TunedTruthfulness, open_truthfulness
from factrl.train import claim_models, truthfulness_run
from factrl.train.claim_models import ClaimModel
from factrl.train.truthfulness_run import table, told_of, tune_truthfulness
from factrl.train.tuning.claim_rows import LabelledClaim, load_claims
from factrl.train.tuning.claim_settings import ClaimSettings

pytestmark = pytest.mark.usefixtures("one_thread")

TRUE, FALSE = ("sings", "dances", "paints"), ("burns", "drowns", "rusts")
NAMES = [f"{a}{b}" for a in "abcdefgh" for b in "mnopq"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama on a byte-level tokenizer that knows the words of the claims."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken("<|end|>", special=True)],
    )
    texts = ["Answer: True", "Answer: False", TUNED_PROMPT, *(f"mo {word}." for word in (*TRUE, *FALSE))]
    made.train_from_iterator(texts * 3, trainer)
    path = tmp_path_factory.mktemp("base")
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>").save_pretrained(path)
    torch.manual_seed(3)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=made.get_vocab_size(),
            max_position_embeddings=256,
            num_attention_heads=2,
            eos_token_id=0,
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
            claim, evidence = f"{name} {words[n % 3]}.", [{"text": f"of {name}: it {words[n % 3]} " * 4}]
            told.append({"claim": claim, "label": label, "group_id": name, "evidence": evidence})
    path.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")
    return path


def settings_of(base: Path, rows: Path, folder: Path, **more: Any) -> ClaimSettings:
    train = {"steps": 30, "batch_size": 16, "learning_rate": 1e-2, "max_length": 64, "bf16": False}
    sections: dict[str, Any] = {
        "model": {"name": str(base)},
        "data": {"files": [str(rows)]},
        "train": train,
        "run": {"dir": str(folder)},
    }
    for name, values in more.items():
        sections[name] = {**sections.get(name, {}), **values} if isinstance(values, dict) else values
    return ClaimSettings.model_validate(sections)


def quiet(_: str) -> None: ...


@pytest.mark.parametrize("head", ["token-pair", "classifier"])
def test_a_tuned_model_is_loaded_by_the_rewards_truthfulness(
    base: Path, rows: Path, tmp_path: Path, head: str
) -> None:
    settings = settings_of(base, rows, tmp_path / "run", head=head)
    found = tune_truthfulness(settings, quiet)
    numbers = found["sets"]["tuned, scaled"]["metrics"]
    assert numbers["accuracy"]["value"] > 0.95
    assert numbers["auc"]["value"] > 0.95
    assert found["sets"]["majority"]["metrics"]["accuracy"]["value"] == pytest.approx(0.5, abs=0.2)
    assert ("untuned" in found["sets"]) == (head == "token-pair")
    loaded = open_truthfulness(tmp_path / "run" / "model")
    assert isinstance(loaded, TunedTruthfulness)
    odds = loaded(["zz sings.", "zz rusts."])
    assert odds[0] > 0.8 > 0.2 > odds[1]
    # The numbers are those of the loaded model: the temperature is applied once.
    kept = [json.loads(line) for line in (tmp_path / "run" / "scores.jsonl").read_text().splitlines()[1:]]
    texts = [json.loads(line)["claim"] for line in rows.read_text().splitlines()]
    told = {row["key"]: row["logit"] for row in kept if row["key"].startswith("tuned ")}
    for key, logit in [*told.items()][:5]:
        text = texts[int(key.rpartition(":")[2]) - 1]
        wanted = 1 / (1 + math.exp(-logit / found["temperature"]))
        assert loaded([text])[0] == pytest.approx(wanted, abs=1e-4)
    assert len(table(found)) == 1 + len(found["sets"])
    assert "judge.truthfulness_model=" in told_of(found, tmp_path / "run")
    assert (tmp_path / "run" / "reliability.png").is_file()


def test_the_pairs_folder_also_works_without_its_card(base: Path, rows: Path, tmp_path: Path) -> None:
    tune_truthfulness(settings_of(base, rows, tmp_path / "run", train={"steps": 5}), quiet)
    folder = tmp_path / "run" / "model"
    tuned, plain = TunedTruthfulness(folder), TruthfulnessModel(folder)
    logits = [np.log(p) - np.log1p(-p) for p in (tuned(["am sings."])[0], plain(["am sings."])[0])]
    assert logits[1] / logits[0] == pytest.approx(tuned.temperature, rel=1e-3)
    assert f"temperature={tuned.temperature:.6g}" in tuned.identity
    (folder / CARD).write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="make the model again"):
        open_truthfulness(folder)


def test_a_classifier_with_evidence_is_a_cross_encoder(base: Path, rows: Path, tmp_path: Path) -> None:
    settings = settings_of(
        base,
        rows,
        tmp_path / "run",
        head="classifier",
        data={"with_evidence": True},
        train={"max_length": 40},
    )
    tune_truthfulness(settings, quiet)
    scores = CrossEncoder(tmp_path / "run" / "model").scores(
        [("of it: sings", "zz sings."), ("", "zz rusts.")]
    )
    assert scores[0, 0] > 0.7 > 0.3 > scores[1, 0]
    with pytest.raises(ConfigError, match="tuned on claims with evidence"):
        open_truthfulness(tmp_path / "run" / "model")


@pytest.mark.fault("F20")
@pytest.mark.parametrize("stop", ["train", "score"])
def test_a_run_that_was_killed_goes_on_and_ends_the_same(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    def told(folder: str) -> ClaimSettings:
        return settings_of(base, rows, tmp_path / folder, train={"steps": 12, "save_steps": 4})

    whole = tune_truthfulness(told("whole"), quiet)
    scored: list[str] = []
    steps: list[int] = []

    class Killed(BaseException): ...

    step, add = claim_models._PairTrainer.training_step, truthfulness_run.Journal.add

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

    monkeypatch.setattr(claim_models._PairTrainer, "training_step", counted)
    monkeypatch.setattr(truthfulness_run.Journal, "add", kept)
    with pytest.raises(Killed):
        tune_truthfulness(told("cut"), quiet)
    again = tune_truthfulness(told("cut"), quiet)
    assert again == whole
    assert len(steps) == (12 + 7 - 4 if stop == "train" else 12)  # steps behind the last checkpoint
    assert len(scored) == len({*scored}) + (1 if stop == "score" else 0)
    done = len(scored)
    assert tune_truthfulness(told("cut"), quiet) == whole  # a finished run does nothing
    assert len(scored) == done


def test_another_jobs_folder_is_refused(base: Path, rows: Path, tmp_path: Path) -> None:
    tune_truthfulness(settings_of(base, rows, tmp_path / "run", train={"steps": 2}), quiet)
    with pytest.raises(ConfigError, match="holds another job"):
        tune_truthfulness(settings_of(base, rows, tmp_path / "run", train={"steps": 3}), quiet)


def test_accumulated_gradients_are_those_of_the_batch(base: Path, rows: Path, tmp_path: Path) -> None:
    norms = []
    for micro in (16, 4):
        told = {"steps": 1, "micro_batch_size": micro, "warmup_steps": 0}
        model = ClaimModel(settings_of(base, rows, tmp_path, train=told))
        found = [(model.tokens(row), row.true) for row in load_claims([str(rows)])[0][:16]]
        data = [{**tokens, "labels": float(true)} for tokens, true in found if tokens]
        arguments = claim_models.training_arguments(
            model.settings, tmp_path / str(micro), logging_steps=1, save_strategy="no"
        )
        trainer = claim_models._PairTrainer(model, arguments, data)
        trainer.train()
        norms.append(trainer.state.log_history[0]["grad_norm"])
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def claim(text: str, evidence: str = "") -> LabelledClaim:
    return LabelledClaim("a:1", text, evidence, True, "g", "a")


def test_evidence_is_cut_and_claims_are_not(base: Path, rows: Path, tmp_path: Path) -> None:
    for head in ("token-pair", "classifier"):
        told = {"head": head, "data": {"with_evidence": True}, "train": {"max_length": 48}}
        model = ClaimModel(settings_of(base, rows, tmp_path, **told))
        read = model.tokens(claim("am sings.", "it sings " * 100))
        assert read is not None
        assert 40 <= len(read["input_ids"]) <= 48
        assert "am sings." in model.tokenizer.decode(read["input_ids"])
        assert model.tokens(claim("am sings. " * 50, "it sings")) is None


def test_padding_changes_no_logit(base: Path, rows: Path, tmp_path: Path) -> None:
    for head in ("token-pair", "classifier"):
        model = ClaimModel(settings_of(base, rows, tmp_path, head=head))
        read = [model.tokens(claim(text)) for text in ("am sings.", "am sings and dances and paints.")]
        kept = [one for one in read if one is not None]
        model.network.eval()
        with torch.inference_mode():
            together = model.logits(model.network, model.pad(kept))
            alone = [model.logits(model.network, model.pad([one]))[0] for one in kept]
        torch.testing.assert_close(together, torch.stack(alone), atol=1e-5, rtol=0)


def test_only_the_last_layers_are_trained(base: Path, rows: Path, tmp_path: Path) -> None:
    model = ClaimModel(settings_of(base, rows, tmp_path, model={"trainable_layers": 1}))
    trained = {name for name, weight in model.network.named_parameters() if weight.requires_grad}
    assert trained
    assert all(name.startswith(("model.layers.1.", "model.norm.")) for name in trained)
    with pytest.raises(ModelError, match="the model has 2 layers"):
        ClaimModel(settings_of(base, rows, tmp_path, model={"trainable_layers": 3}))


def test_what_does_not_fit_is_told(base: Path, rows: Path, tmp_path: Path) -> None:
    settings = settings_of(base, rows, tmp_path / "run", train={"max_length": 5})
    with pytest.raises(DataError, match=r"fits train\.max_length"):
        tune_truthfulness(settings, quiet)
