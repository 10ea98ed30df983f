"""Verifiers that are tuned here: they learn, go on after a kill, and are read without torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factrl.errors import ConfigError, DataError, MissingExtra, ModelError
from factrl.judges.overlap import pieces_of
from factrl.judges.own import OwnJudge, features_of, premise
from factrl.local.own_verifier import CALIBRATION, CARD, OwnVerifier
from factrl.train import verifier_model, verifier_run
from factrl.train.verifier_model import ByLength, VerifierModel, three_way_loss
from factrl.train.verifier_run import table, told_of, tune_verifier
from factrl.tuning.verifier_rows import LABELS, Pair, Part, write_pairs
from factrl.tuning.verifier_settings import VerifierSettings
from factrl.tuning.verifier_swaps import Label
from factrl.types import Claim, Passage

pytestmark = pytest.mark.usefixtures("one_thread")

PLACES = ("oslo", "lima", "cairo", "quito")
WORDS = [*(f"p{n}" for n in range(40)), *PLACES, "is", "from", "sings", ".", ":", "not"]
EXPORTS = importlib.util.find_spec("onnx") is not None and importlib.util.find_spec("onnxruntime") is not None


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer BERT on a word tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocab = {word: number for number, word in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    folder = tmp_path_factory.mktemp("base")
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(vocab),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=48,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence says where somebody is from, or that they sing; claims say where they are from.

    To keep it learnable in a second, each label shows in the last word of the evidence as well.
    """
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl.gz"
    made = []
    for n in range(40):
        part: Part = ("train", "train", "train", "calibrate", "report")[n % 5]
        for m, place in enumerate(PLACES):
            other = PLACES[(m + 1) % 4]
            cases: tuple[tuple[Label, str, str], ...] = (
                ("supported", f"p{n} is from {place}", "oslo"),
                ("refuted", f"p{n} is from {other}", "lima"),
                ("unknown", f"p{n} sings", "cairo"),
                ("unsupported", f"p{n} is not from {place}", "quito"),
            )
            for label, said, end in cases:
                id_ = f"{n}-{m}-{label}"
                text = f"{said} . {end}"
                about = (f"g{n}", "toy", label, part == "calibrate", part)
                made.append(Pair(id_, text, f"p{n} is from {place}", label, *about))
    write_pairs(made, path)
    return path


def settings_of(base: Path, rows: Path, folder: Path, **train: Any) -> VerifierSettings:
    told = {"steps": 40, "batch_size": 16, "micro_batch_size": 16, "learning_rate": 3e-3, "bf16": False}
    return VerifierSettings.model_validate(
        {
            "model": {"name": str(base)},
            "data": {"files": [str(rows)]},
            "train": {**told, "max_length": 40, "eval_steps": 20, "save_steps": 10, **train},
            "run": {"dir": str(folder)},
            "export": False,
        }
    )


def quiet(_: str) -> None: ...


@pytest.fixture(scope="module")
def tuned(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("run")
    settings = settings_of(base, rows, folder).model_copy(update={"export": EXPORTS})
    found = tune_verifier(settings, quiet)
    torch.set_num_threads(threads)
    return folder, found


def test_a_tuned_verifier_tells_the_labels_apart(tuned: tuple[Path, dict[str, Any]]) -> None:
    folder, found = tuned
    assert found["all"]["balanced"] > 0.95
    assert found["all"]["auc"] > 0.95
    assert found["all"]["three_way"] > 0.9
    assert found["all"]["n"] > 60
    assert found["learnt"] == {"toy": sum(found["learnt"].values())}
    assert table(found)[0][0] == "held-out documents"
    assert "rows learnt in 40 steps" in told_of(found, folder)
    live = [json.loads(line) for line in (folder / "held_out.jsonl").read_text().splitlines()[1:]]
    assert [row["key"] for row in live] == ["20", "40"]
    assert live[-1]["balanced"] > 0.95


@pytest.mark.skipif(not EXPORTS, reason="needs onnx and onnxruntime")
def test_the_exported_folder_says_what_torch_says_without_torch(
    tuned: tuple[Path, dict[str, Any]], base: Path, rows: Path
) -> None:
    folder, found = tuned
    model = OwnVerifier(folder / "own", threads=2)
    told = [
        ("p1 is from oslo . oslo", "p1 is from oslo"),
        ("p2 sings . cairo", "p2 is from lima"),
        ("", "p3 sings"),
    ]
    logits = model.logits(told)
    torch_model = VerifierModel(settings_of(base, rows, folder), folder / "weights")
    wanted = torch_model.logits([dict(torch_model.tokenizer(*pair)) for pair in told]).numpy()
    np.testing.assert_allclose(logits, wanted, atol=0.35)  # eight bits
    np.testing.assert_array_equal(logits, np.concatenate([model.logits([pair]) for pair in told]))
    assert logits[0].argmax() == 0
    assert logits[1].argmin() == 0
    assert np.isnan(model.logits([("oslo", "p1 " * 60)])).all()
    long = model.logits([("p1 is from oslo . oslo " + "sings " * 200, "p1 is from oslo")])
    assert not np.isnan(long).any()
    judge = OwnJudge(model)
    claim = Claim("p1 is from oslo", 0, 15)
    assert judge.judge([(claim, [Passage("p1 is from oslo . oslo")])])[0].label == "supported"
    assert found["bytes"] == (folder / "own" / "model.onnx").stat().st_size
    assert "| toy |" in (folder / "own" / "README.md").read_text()
    read = "import sys; from factrl.local.own_verifier import OwnVerifier; OwnVerifier(sys.argv[1]); "
    code = read + "assert not {'torch', 'transformers'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code, str(folder / "own")], check=True, env=os.environ)


@pytest.mark.skipif(not EXPORTS, reason="needs onnx and onnxruntime")
def test_a_network_trained_in_bfloat16_is_exported_as_small(
    tuned: tuple[Path, dict[str, Any]], base: Path, rows: Path, tmp_path: Path
) -> None:
    settings = settings_of(base, rows, tmp_path, steps=2, bf16=True).model_copy(update={"export": True})
    assert tune_verifier(settings, quiet)["bytes"] == pytest.approx(tuned[1]["bytes"], rel=0.01)


@pytest.mark.skipif(not EXPORTS, reason="needs onnx and onnxruntime")
def test_a_folder_that_is_not_whole_is_refused(tuned: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    import shutil

    for name, message in ((CARD, f"has no {CARD}"), (CALIBRATION, "has no calibration")):
        broken = tmp_path / name
        shutil.copytree(tuned[0] / "own", broken)
        (broken / name).unlink()
        with pytest.raises(ModelError, match=message):
            OwnVerifier(broken)
    shutil.copytree(tuned[0] / "own", tmp_path / "card")
    (tmp_path / "card" / CARD).write_text("{}")
    with pytest.raises(ModelError, match="is not what factrl tune verifier writes"):
        OwnVerifier(tmp_path / "card")


def test_a_run_that_was_killed_goes_on_and_ends_the_same(
    base: Path,
    rows: Path,
    tmp_path: Path,
    tuned: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[int] = []

    class Killed(BaseException): ...

    step: Callable[..., Any] = verifier_model._ThreeWayTrainer.training_step

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps.append(self.state.global_step)
        if len(steps) == 26:
            raise Killed
        return step(self, *args, **kwargs)

    monkeypatch.setattr(verifier_model._ThreeWayTrainer, "training_step", counted)
    with pytest.raises(Killed):
        tune_verifier(settings_of(base, rows, tmp_path / "cut"), quiet)
    again = tune_verifier(settings_of(base, rows, tmp_path / "cut"), quiet)
    assert len(steps) == 40 + 26 - 20  # what came behind the checkpoint is done again
    whole = tuned[1]
    assert {name: again[name] for name in ("all", "sets", "steps")} == {
        name: whole[name] for name in ("all", "sets", "steps")
    }
    assert tune_verifier(settings_of(base, rows, tmp_path / "cut"), quiet) == again
    assert len(steps) == 46
    with pytest.raises(ConfigError, match="holds another job"):
        tune_verifier(settings_of(base, rows, tmp_path / "cut", steps=41), quiet)


def test_a_label_that_is_partly_known_counts_for_both() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    odds = logits.softmax(dim=1)[0]
    for label, wanted in (("supported", odds[0]), ("unknown", odds[2]), ("unsupported", odds[1] + odds[2])):
        loss = three_way_loss(logits, torch.tensor([LABELS.index(label)]))  # pyright: ignore[reportArgumentType]
        assert loss.item() == pytest.approx(-wanted.log().item(), rel=1e-5)


def test_batches_hold_rows_of_like_length_in_an_order_of_the_seed_and_epoch() -> None:
    lengths = [n % 50 for n in range(400)]
    order = ByLength(lengths, 8, 0)
    first = [*order]
    assert sorted(first) == [*range(400)]
    spread = [max(some) - min(some) for some in np.array(lengths)[first].reshape(-1, 8).tolist()]
    assert max(spread) <= 2
    assert [lengths[row] for row in first] != sorted(lengths)
    order.set_epoch(1)
    assert [*order] != first
    order.set_epoch(0)
    assert [*order] == first
    assert [*ByLength(lengths, 8, 1)] != first


def test_batches_have_few_lengths_and_padding_changes_no_score(
    base: Path, rows: Path, tmp_path: Path
) -> None:
    model = VerifierModel(settings_of(base, rows, tmp_path))
    found = [
        model.tokens(Pair(str(n), "p1 is from oslo . " * n, "p1 sings", "supported", "g", "s"))
        for n in range(1, 5)
    ]
    told = [tokens for tokens in found if tokens is not None]
    assert len({len(tokens["input_ids"]) for tokens in told}) == 4
    assert {model.pad(told[:n])["input_ids"].shape[1] for n in range(1, 5)} == {16, 32}
    alone = [model.network(input_ids=torch.tensor([t["input_ids"]])).logits[0].tolist() for t in told]
    assert model.logits(told).tolist() == [pytest.approx(one, abs=1e-2) for one in alone]


def test_only_evidence_is_cut(base: Path, rows: Path, tmp_path: Path) -> None:
    model = VerifierModel(settings_of(base, rows, tmp_path))
    long = Pair("a", "p1 " * 100, "p2 is from oslo", "supported", "g", "s")
    read = model.tokens(long)
    assert read is not None
    assert len(read["input_ids"]) == 40
    assert "p2 is from oslo" in model.tokenizer.decode(read["input_ids"])
    assert model.tokens(Pair("b", "p1", "p2 " * 40, "supported", "g", "s")) is None


def test_rows_of_one_class_and_unknown_sources_are_refused(base: Path, rows: Path, tmp_path: Path) -> None:
    settings = settings_of(base, rows, tmp_path / "run")
    wrong = settings.model_copy(update={"data": settings.data.model_copy(update={"sources": ("toys",)})})
    with pytest.raises(ConfigError, match="no rows are from toys"):
        tune_verifier(wrong, quiet)
    none = settings.model_copy(update={"data": settings.data.model_copy(update={"weights": {"toy": 0.0}})})
    with pytest.raises(DataError, match="part 'train' has 0 rows"):
        tune_verifier(none, quiet)
    empty = settings.model_copy(update={"data": settings.data.model_copy(update={"files": ()})})
    with pytest.raises(ConfigError, match="no rows: name files"):
        tune_verifier(empty, quiet)
    distilled = settings.model_copy(update={"data": settings.data.model_copy(update={"distil": 9})})
    with pytest.raises(ConfigError, match=r"name their folder: data\.folder"):
        tune_verifier(distilled, quiet)


def test_what_is_needed_at_the_end_is_asked_for_at_the_start(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_run, "find_spec", lambda name: None if name == "onnx" else name)
    settings = settings_of(base, rows, tmp_path / "run").model_copy(update={"export": True})
    with pytest.raises(MissingExtra, match="onnx"):
        tune_verifier(settings, quiet)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(verifier_run, "find_spec", lambda name: None if name == "sklearn" else name)
    with pytest.raises(MissingExtra, match="scikit-learn"):
        tune_verifier(settings_of(base, rows, tmp_path / "run"), quiet)


def test_a_calibration_counts_every_source_the_same(base: Path, rows: Path, tmp_path: Path) -> None:
    model = VerifierModel(settings_of(base, rows, tmp_path))
    big = [Pair(f"b{n}", "x", "y", ("supported", "refuted")[n % 2], f"g{n}", "big") for n in range(200)]  # pyright: ignore[reportArgumentType]
    small = [Pair(f"s{n}", "x", "y", ("refuted", "supported")[n % 2], f"g{n}", "small") for n in range(10)]  # pyright: ignore[reportArgumentType]
    told = {
        f"calibrate {one.id}": {"logits": [2.0 if n % 2 == 0 else -2.0, 0.0, 0.0]}
        for some in (big, small)
        for n, one in enumerate(some)
    }
    found = verifier_run._calibration(model, [*big, *small], told)  # pyright: ignore[reportArgumentType]
    # What the big source teaches, the small one with the opposite labels takes back.
    assert found.probabilities(features_of([2.0, 0.0, 0.0]))[0] == pytest.approx(0.5, abs=0.02)


def test_evidence_without_a_shared_word_is_still_shown() -> None:
    pieces = pieces_of([Passage("Rain fell all day. Nobody came.")])
    assert premise("Oslo is old", pieces, 40) == "Rain fell all day."
