"""`PUBLISHED` of five papers, against a table that was written by hand from what the papers print."""

from __future__ import annotations

from fractions import Fraction

import pytest

from factrl.papers import load_paper

# table / row = metric value, metric value, …
PRINTED = {
    "knowrl": """
results / DeepSeek-R1-Distill-Qwen-7B = SimpleQA 78.00, ChineseSimpleQA 68.33, GPQA 40.91, AIME 2025 30.00
results / DeepSeek-R1-Distill-Qwen-7B KnowRL = SimpleQA 57.67, ChineseSimpleQA 58.33
results / DeepSeek-R1-Distill-Qwen-7B KnowRL = GPQA 36.87, AIME 2025 33.33
results / Skywork-7B = SimpleQA 76.33, ChineseSimpleQA 67.00, GPQA 37.37, AIME 2025 26.67
results / Skywork-7B KnowRL = SimpleQA 60.33, ChineseSimpleQA 52.33, GPQA 42.42, AIME 2025 36.67
results / DeepSeek-R1-Distill-Qwen-7B SFT = SimpleQA 83.33
results / DeepSeek-R1-Distill-Qwen-7B DPO = SimpleQA 88.00
results / DeepSeek-R1-Distill-Qwen-7B FactTune-FS = SimpleQA 59.67
results / DeepSeek-R1-Distill-Qwen-7B TruthRL = SimpleQA 61.00
ablation / format = SimpleQA 74.00
ablation / format+fact = SimpleQA 80.67
ablation / format+correct = SimpleQA 60.67
ablation / paper = SimpleQA 57.67
ablation / no-refusal = SimpleQA 78.67
""",
    "truthrl": """
average / Llama-3.1-8B prompting = truthfulness -16.4, hallucination 54.1, accuracy 37.7
average / Llama-3.1-8B SFT = truthfulness -17.8, hallucination 58.9, accuracy 41.1
average / Llama-3.1-8B RFT = truthfulness -15.8, hallucination 53.5, accuracy 37.7
average / Llama-3.1-8B R-Tuning = truthfulness -8.7, hallucination 48.8, accuracy 40.1
average / Llama-3.1-8B binary = truthfulness 4.5, hallucination 47.7, accuracy 52.2
average / Llama-3.1-8B TruthRL = truthfulness 25.6, hallucination 18.8, accuracy 44.4
average / Qwen2.5-7B prompting = truthfulness -7.9, hallucination 46.5, accuracy 38.6
average / Qwen2.5-7B TruthRL = truthfulness 23.1, hallucination 14.6, accuracy 37.6
CRAG / Llama-3.1-8B prompting = truthfulness 5.3, hallucination 43.5
CRAG / Llama-3.1-8B TruthRL = truthfulness 37.2, hallucination 19.4
average / Llama-3.1-8B knowledge-binary = truthfulness 11.7, hallucination 38.3
average / Llama-3.1-8B knowledge-ternary = truthfulness 23.2, hallucination 18.9
average / Llama-3.1-8B DPO = truthfulness -10.1, hallucination 51.1
average / Llama-3.1-8B iterative DPO 1 = truthfulness -4.4
average / Llama-3.1-8B iterative DPO 2 = truthfulness -0.1
average / Llama-3.1-8B iterative DPO 3 = truthfulness 12.6
average / Llama-3.1-8B iterative DPO 4 = truthfulness -2.0
CRAG / Llama-3.1-8B em = truthfulness -3.6, hallucination 3.6
""",
    "klcf": """
main results / base = FActScore 46.8, LongWiki F1@32 .511, LongFact F1@64 .637, Factory F1@64 .262
main results / KLCF-zero = FActScore 61.2, LongWiki F1@32 .568, LongFact F1@64 .733, Factory F1@64 .309
main results / KLCF-zero = LongFact win rate 94.6, Factory win rate 65.5
from SFT / SFT = FActScore 48.7
from SFT / KLCF = FActScore 55.7, LongWiki R@32 .663
from SFT / GRPO with FActScore = FActScore 57.6, LongWiki R@32 .472
baselines / CoVe = FActScore 46.0
baselines / Intuitor = FActScore 52.7
baselines / DPO, the lower = FActScore 53.0
baselines / DPO, the higher = FActScore 54.9
Table 1 / base = Factory precision .302
Table 1 / KLCF-zero = Factory precision .350
Table 2 / 0.4, 0.2, 0.4 = FActScore 57.5, LongFact win rate 95.4
Table 2 / truth only = FActScore 69.6, LongWiki R@32 .369
Table 2/13 / base = Factory precision .314
Table 13 / KLCF-zero = Factory precision .348
accuracy / checklist verifier, English = value 73/81
accuracy / checklist verifier, Chinese = value 129/147
accuracy / truthfulness model 7B = value .819
accuracy / truthfulness model 14B = value .835
accuracy / truthfulness model 32B = value .833
seconds, 100 at once / KLCF = value 2.02
seconds, 100 at once / FActScore = value 10.58
seconds, 100 at once / VeriScore = value 10.90
questions / 7B = value 12680
questions / 14B = value 13230
questions / 32B = value 12967
true claims / 7B = value 34.8
true claims / 14B = value 38.3
true claims / 32B = value 37.2
checklist items / 7B = value 10.1
checklist items / 14B = value 11.0
checklist items / 32B = value 11.1
""",
    "fspo": """
results / Qwen2.5-7B-Base = GSM8K 65.2, MATH-500 35.7, AIME24 3.3
results / Qwen2.5-7B-Base = TruthfulQA 38.2, HaluEval-QA 48.0, HalluQA 39.5
results / Qwen2.5-7B-Base FSPO = GSM8K 89.5, MATH-500 75.5, AIME24 16.7
results / Qwen2.5-7B-Base FSPO = TruthfulQA 58.4, HaluEval-QA 83.0, HalluQA 52.0
results / Qwen2.5-7B-Instruct FSPO = TruthfulQA 54.0, HaluEval-QA 64.7, HalluQA 50.0
results / Llama-3.1-8B-Instruct FSPO = TruthfulQA 41.1, HaluEval-QA 67.1, HalluQA 42.0
""",
    "factreason": """
results / base = precision 45.0, detail 23.5
results / SFT = precision 55.9, detail 17.5, win rate 51.0
results / SFT + DPO = precision 67.8, detail 25.7, win rate 37.8
results / SFT + GRPO = precision 68.1, detail 29.0, win rate 54.4
Factory-Hard / SFT + GRPO = win rate 47.1
ablation / fact-only = precision 69.7, detail 30.0, win rate 43.5
ablation / fact+detail-0.01 = precision 74.5, detail 38.3, win rate 36.9
ablation / detail-0.01 = precision 67.1, detail 32.8, win rate 51.8
ablation / detail-0.1 = precision 67.0, detail 44.2, win rate 45.7
""",
}


@pytest.mark.parametrize("paper", PRINTED)
def test_published_is_what_the_paper_prints_and_no_more(paper: str) -> None:
    printed: dict[tuple[str, str, str], float] = {}
    for line in PRINTED[paper].strip().splitlines():
        place, values = line.split(" = ")
        for told in values.split(", "):
            metric, _, value = told.rpartition(" ")
            where, row = place.split(" / ")
            printed[where, row, metric] = float(Fraction(value))
    assert printed == load_paper(paper).PUBLISHED


def test_knowrls_ablation_differs_from_format_by_what_stands_in_its_parentheses() -> None:
    numbers = load_paper("knowrl").PUBLISHED
    for row, change in (("format+fact", 6.67), ("no-refusal", 4.67), ("paper", -16.3)):
        found = numbers["ablation", row, "SimpleQA"] - numbers["ablation", "format", "SimpleQA"]
        assert found == pytest.approx(change, abs=0.04)
