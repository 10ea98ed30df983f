"""The model card of a tuned verifier: what it learnt from, under which licences, and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_card(found: Mapping[str, Any]) -> str:
    """The card in Markdown, from what `metrics.json` holds."""
    sources = found["sources"]
    licences = sources.get("licences", {})
    lines = [
        "# A verifier",
        "",
        f"A three-way cross-encoder (supported, refuted, unknown), tuned from {found['model']} by "
        "`factrl tune verifier`; 8-bit ONNX, read without torch by `factrl.local.own_verifier`.  English.",
        "",
        "| source | rows learnt | documents | left out as seen | licence of what was learnt from |",
        "|---|---|---|---|---|",
    ]
    for name, count in found["learnt"].items():
        gone = sum(sources.get("left_out", {}).get(name, {}).values())
        documents = sources.get("documents", {}).get(name, "-")
        lines.append(f"| {name} | {count} | {documents} | {gone} | {licences.get(name, 'not stated')} |")
    lines += [
        "",
        "Documents left out share a run of ten words with an evaluation set.",
        "",
        "| held-out documents | rows | balanced accuracy | AUC | ECE | three-way |",
        "|---|---|---|---|---|---|",
    ]
    for name, numbers in {"all": found["all"], **found["sets"], **found["kinds"]}.items():
        cells = (numbers[key] for key in ("balanced", "auc", "ece", "three_way"))
        shown = " | ".join("-" if cell is None else f"{cell:.3f}" for cell in cells)
        lines.append(f"| {name} | {numbers['n']} | {shown} |")
    lines += [
        "",
        "It reads the sentences of the evidence that share most words with a claim; it knows nothing of the "
        "world, and a claim that is true but not in the evidence is unknown to it.",
    ]
    return "\n".join(lines) + "\n"
