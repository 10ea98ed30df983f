"""The field's verifiers by name: each reads its own prompt, and its outputs mean what its release says.

The folders hold small random networks of the same kind; an expected score comes from the network itself,
asked with the whole text as it stands in the released code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `train`")
import transformers  # noqa: E402

from factrl.errors import ConfigError, ModelError  # noqa: E402
from factrl.llm.local.classifiers import VERIFIERS, CrossEncoder  # noqa: E402
from factrl.types import Claim, Passage  # noqa: E402
from factrl.verifier import open_judge  # noqa: E402

FACTCG = (
    "Curie was born in 1867.\n\nChoose your answer: based on the paragraph above can we conclude that "
    '"She was born in 1868."?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is '
)
PREMISE, CLAIM = "Curie was born in 1867.", "She was born in 1868."
GUARDIAN_CHAT = (
    "{{ guardian_config.criteria_id }}{% if think %} think{% endif %} {{ documents[0].text }} "
    "{{ messages[0].role }} {{ messages[0].content }} answer:"
)
# What is read, the class of the stand-in, and the outputs in the order (not supported, supported).
READS: dict[str, tuple[str, str, list[Any]]] = {
    "factcg": (FACTCG, "DebertaV2", [0, 1]),
    "granite-guardian-3.3": (
        f"groundedness {PREMISE} assistant {CLAIM} answer:<score>",
        "Granite",
        ["yes", "no"],
    ),
}
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 600,
}
HEADS = {"Granite": "ForCausalLM"}
Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    from tiny import word_tokenizer
    from tokenizers import pre_tokenizers

    tokens = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokens["eos_token"] = "</s>"
    own = " ".join(text for text, _, _ in READS.values()) + " yes no born Paris"
    words = [word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(own)]

    def build(name: str, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp(name)
        kind = READS[name][1]
        pairs = kind != "Granite"
        chat = None if pairs else GUARDIAN_CHAT
        tokenizer = word_tokenizer(
            [*tokens.values(), "<pad>", *words], pairs=pairs, **tokens, chat_template=chat
        )
        tokenizer.save_pretrained(folder)
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=256, pad_token_id=0, **{**SIZES, "num_labels": 2, **changes}
        )
        head = HEADS.get(kind, "ForSequenceClassification")
        torch.manual_seed(5)
        network = getattr(transformers, f"{kind}{head}")(config)
        for parameter in network.parameters():  # larger logits than the usual start's
            torch.nn.init.normal_(parameter, std=0.5)
        network.save_pretrained(folder)
        return folder

    return build


@pytest.mark.parametrize("name", READS)
def test_each_reads_its_prompt_and_names_its_outputs(make: Maker, name: str) -> None:
    text, kind, outputs = READS[name]
    model = CrossEncoder(make(name), named=VERIFIERS[name])
    pairs = [(PREMISE, CLAIM), ("Curie was born", "Paris."), (f"{PREMISE} " * 9, CLAIM)]
    scores = model.scores(pairs)
    chat = kind == "Granite"
    read = model.tokenizer(text, return_tensors="pt", add_special_tokens=not chat)
    read.pop("token_type_ids", None)
    with torch.no_grad():
        logits = model.network(**read).logits[0]
    if chat:
        outputs = [model.tokenizer.convert_tokens_to_ids(word) for word in outputs]
    expected = (logits[-1] if logits.dim() == 2 else logits)[outputs].softmax(-1).numpy()
    np.testing.assert_allclose(scores[0], [expected[1], 0.0, expected[0]], atol=1e-5)
    assert abs(expected[1] - expected[0]) > 0.01  # so that a swap of the two would show
    assert len({*scores[:, 0].round(5)}) >= 2  # it is no constant
    assert name in model.identity


@pytest.mark.parametrize("name", READS)
def test_only_the_premise_is_cut_and_no_text_ends_itself(make: Maker, name: str) -> None:
    model = CrossEncoder(make(name), named=VERIFIERS[name])
    model.longest = 48
    scores = model.scores([(PREMISE * 40, CLAIM), ("", CLAIM * 40)])
    assert not np.isnan(scores[0]).any()
    assert np.isnan(scores[1]).all(), "a claim is never cut"
    rows = [model._read(PREMISE, claim) for claim in ("Paris. </s> [SEP] She", "Paris. < /s> [ SEP] She")]
    assert rows[0] is not None
    assert rows[1] is not None
    assert rows[0]["input_ids"] == rows[1]["input_ids"], "special tokens of a claim's own are taken apart"


def test_a_judge_by_name_and_folder_gives_verdicts(make: Maker) -> None:
    judge = open_judge(f"factcg:{make('factcg')}")
    claims = [Claim(text, 0, len(text)) for text in (CLAIM, "born in Paris.", PREMISE)]
    for verdict in judge.judge([(claim, [Passage(PREMISE)]) for claim in claims]):
        assert verdict.label == ("supported" if (verdict.p or 0.0) >= 0.5 else "unknown")


def test_a_name_is_told_and_what_is_no_such_model_refused(make: Maker) -> None:
    with pytest.raises(ConfigError, match=r"unknown judge 'factgc'; did you mean 'factcg'\?"):
        open_judge("factgc")
    with pytest.raises(ModelError, match=r"3 outputs .* factcg"):
        CrossEncoder(make("factcg", num_labels=3), named=VERIFIERS["factcg"])
    assert {*READS} == {*VERIFIERS} - {"hhem-2.1"}  # which test_nli.py has
