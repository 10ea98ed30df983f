"""Cross-encoders: the meaning of every output comes from the model's files, whatever their order."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")

from factrl.errors import ConfigError, ModelError  # noqa: E402
from factrl.llm.local import classifiers  # noqa: E402
from factrl.llm.local.classifiers import VERIFIERS, CrossEncoder  # noqa: E402

SENTENCE = "curie was born in warsaw paris 1867 1868 she won two nobel prizes the city is old . not"
WORDS = SENTENCE.split()
PAIRS = [
    ("curie was born in warsaw 1867 .", "curie was born in 1868 ."),
    ("paris is old", "the city is old"),
    ("she won two nobel prizes in warsaw . paris is not old", "she won"),
]
Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Folders with one and the same random BERT, but for its labels and the order of its outputs."""
    from tiny import word_tokenizer
    from transformers import BertConfig, BertForSequenceClassification

    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = word_tokenizer([*tokens.values(), *WORDS], pairs=True, **tokens)

    def build(labels: list[str], order: list[int] | None = None, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("cross-encoder")
        tokenizer.save_pretrained(folder)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=24,
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
            **changes,
        )
        torch.manual_seed(1)
        network = BertForSequenceClassification(config).eval()
        torch.manual_seed(2)  # larger logits than the usual start's
        weight, bias = torch.randn(3, 32), torch.randn(3)
        rows = order or list(range(len(labels)))
        network.classifier.weight.data, network.classifier.bias.data = weight[rows], bias[rows]
        network.save_pretrained(folder)
        return folder

    return build


def test_the_order_of_the_labels_is_read_from_the_model(make: Maker) -> None:
    names = ["entailment", "contradiction", "neutral"]
    plain = CrossEncoder(make(names)).scores(PAIRS)
    np.testing.assert_allclose(plain.sum(axis=1), 1)
    assert np.ptp(plain, axis=1).min() > 0.01  # the columns differ, so a mix-up would show
    for order in ([2, 0, 1], [1, 2, 0], [2, 1, 0]):
        other = make([names[number] for number in order], order)
        np.testing.assert_allclose(CrossEncoder(other).scores(PAIRS), plain, atol=1e-6)
    for words in (["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"], ["Entailed", "Contradicted", "Neutral"]):
        np.testing.assert_allclose(CrossEncoder(make(words)).scores(PAIRS), plain, atol=1e-6)


def test_what_two_labels_do_not_support_is_unknown(make: Maker) -> None:
    by_label = CrossEncoder(make(["not_entailment", "entailment"])).scores(PAIRS)
    logits = _logits(make(["not_entailment", "entailment"]))
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(by_label[:, 0], odds[:, 1], atol=1e-6)
    np.testing.assert_allclose(by_label[:, 2], odds[:, 0], atol=1e-6)
    assert (by_label[:, 1] == 0).all()


def test_one_logit_is_a_probability_of_what_it_is_called(make: Maker) -> None:
    high = 1 / (1 + np.exp(-_logits(make(["supported"]))[:, 0]))
    scores = CrossEncoder(make(["supported"])).scores(PAIRS)
    np.testing.assert_allclose(scores, np.stack([high, 0 * high, 1 - high], axis=1), atol=1e-6)
    turned = CrossEncoder(make(["unsupported"])).scores(PAIRS)
    np.testing.assert_allclose(turned, scores[:, [2, 1, 0]], atol=1e-6)


@pytest.mark.parametrize("names", [["LABEL_0"], ["negative", "positive"], ["neutral", "nei"]])
def test_labels_that_say_nothing_are_an_error_that_shows_them(make: Maker, names: list[str]) -> None:
    with pytest.raises(ModelError, match=f"called {', '.join(names)}"):
        CrossEncoder(make(names))


def test_a_batch_changes_no_score(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    model = CrossEncoder(make(["entailment", "contradiction", "neutral"]))
    pairs = [(" ".join(WORDS[:size]), hypothesis) for size in (1, 5, 9, 2, 14) for _, hypothesis in PAIRS]
    together = model.scores(pairs)
    monkeypatch.setattr(classifiers, "TOKENS_AT_ONCE", 1)
    np.testing.assert_allclose(model.scores(pairs), together, atol=1e-6)
    assert model.scores([]).shape == (0, 3)


def test_only_the_premise_is_cut(make: Maker) -> None:
    model = CrossEncoder(make(["entailment", "contradiction", "neutral"]))  # reads 24 tokens
    hypothesis = "curie was born in warsaw 1868"
    long, cut = " ".join(["paris"] * 200), " ".join(["paris"] * (24 - 3 - 6))
    rows = model.scores([(long, hypothesis), (cut, hypothesis), ("paris", " ".join(["old"] * 40))])
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
    assert np.isnan(rows[2]).all()


def test_a_model_without_a_classifier_is_refused(make: Maker, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make(["entailment", "contradiction", "neutral"])
    shutil.copytree(folder, tmp_path / "encoder")
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    save_file(kept, tmp_path / "encoder" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"classifier\.bias, classifier\.weight"):
        CrossEncoder(tmp_path / "encoder")


def test_pickled_weights_are_not_loaded(make: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(make(["entailment", "contradiction", "neutral"]), folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        CrossEncoder(folder)
    with pytest.raises(ModelError, match="could not be loaded as a cross-encoder"):
        CrossEncoder(tmp_path)


def test_code_of_a_model_is_not_run_unasked(make: Maker, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    shutil.copytree(make(["entailment", "contradiction", "neutral"]), folder)
    config: Mapping[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}
    (folder / "config.json").write_text(json.dumps({**config, **own}), "utf-8")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()", "utf-8")
    with pytest.raises(ModelError, match=r"trust_remote_code=True, and a commit"):
        CrossEncoder(folder)
    assert not (tmp_path / "ran").exists()
    for name in ("org/model", "org/model@main"):
        with pytest.raises(ConfigError, match=name):
            CrossEncoder(name, trust_remote_code=True)
    with pytest.raises(ModelError, match="org/model@0123abc"):
        CrossEncoder("org/model@0123abc", trust_remote_code=True)
    CrossEncoder(
        make(["entailment", "contradiction", "neutral"]), trust_remote_code=True
    )  # a folder is fixed


def _logits(folder: Path) -> np.ndarray:
    """By transformers alone, one pair at a time."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [network(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in PAIRS]
    return torch.stack(rows).double().numpy()


# ---------------------------------------------------------------- models with code of their own

HHEM_CODE = """
from transformers import PretrainedConfig, PreTrainedModel, T5Config, T5ForTokenClassification


class HHEMv2Config(PretrainedConfig):
    model_type = "HHEMv2"

    def __init__(self, foundation="", prompt="", sizes=None, **more):
        self.foundation, self.prompt, self.sizes = foundation, prompt, sizes or {}
        super().__init__(**more)


class HHEMv2ForSequenceClassification(PreTrainedModel):
    config_class = HHEMv2Config

    def __init__(self, config):
        super().__init__(config)
        self.t5 = T5ForTokenClassification(T5Config(**config.sizes, num_labels=2))
        self.post_init()

    def forward(self, **inputs):
        found = self.t5(**inputs)
        found.logits = found.logits[:, 0, :]
        return found
"""
PROMPT = "<pad> is it true ? Premise: {text1} Hypothesis: {text2}"


@pytest.fixture(scope="module")
def hhem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like HHEM-2.1's: its own code, its prompt in the configuration, no tokenizer, no labels."""
    import importlib.util
    import sys

    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder, foundation = tmp_path_factory.mktemp("hhem"), tmp_path_factory.mktemp("foundation")
    special = ["<pad>", "</s>", "<unk>"]
    words = [*special, *dict.fromkeys([*WORDS, "is", "it", "true", "?", "Premise:", "Hypothesis:"])]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=24,
    ).save_pretrained(foundation)
    (foundation / "config.json").write_text('{"model_type": "t5"}', encoding="utf-8")
    (folder / "modeling_hhem.py").write_text(HHEM_CODE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("modeling_hhem", folder / "modeling_hhem.py")
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    sys.modules["modeling_hhem"] = code
    spec.loader.exec_module(code)
    sizes = {"vocab_size": len(words), "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(3)
    network = code.HHEMv2ForSequenceClassification(
        code.HHEMv2Config(foundation=str(foundation), prompt=PROMPT, sizes=sizes, num_labels=2)
    )
    torch.nn.init.normal_(network.t5.classifier.weight, std=2.0)  # larger logits than the usual start's
    network.save_pretrained(folder)
    told = json.loads((folder / "config.json").read_text("utf-8"))
    told["auto_map"] = {
        "AutoConfig": "modeling_hhem.HHEMv2Config",
        "AutoModelForSequenceClassification": "modeling_hhem.HHEMv2ForSequenceClassification",
    }
    (folder / "config.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def test_hhem_loads_with_its_code_its_prompt_and_its_labels(hhem: Path) -> None:
    """FSPO's verifier: it could not be loaded at all."""
    model = CrossEncoder(hhem, trust_remote_code=True)
    scores = model.scores(PAIRS)
    tokenizer, network = model.tokenizer, model.network
    for (premise, hypothesis), row in zip(PAIRS, scores, strict=True):
        text = PROMPT.replace("{text1}", premise).replace("{text2}", hypothesis)
        logits = network(**tokenizer(text, return_tensors="pt")).logits[0].detach()
        np.testing.assert_allclose(row[0], torch.softmax(logits, -1)[1].item(), atol=1e-5)
        assert row[1] == 0.0
    long = ("curie was born in warsaw . " * 9, "she won")
    assert not np.isnan(model.scores([long])).any(), "a premise that is too long is cut"
    assert np.isnan(model.scores([("", " ".join(["old"] * 30))])).all(), "a hypothesis is not"
    row = VERIFIERS["hhem-2.1"]  # by its name the prompt is the released one, whatever the folder says
    assert row is not None
    named = CrossEncoder(hhem, trust_remote_code=True, named=row)
    assert named._text("a", "b") == (
        "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: a\n\nHypothesis: b"
    )
    np.testing.assert_allclose(named.scores(PAIRS).sum(axis=1), 1)
