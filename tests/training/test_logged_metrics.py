"""A real run logs what docs/metrics.md defines, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.plan import make_plan, run_settings
from factrl.run import read_metrics
from factrl.train.online import train
from test_metric_glossary import glossary

REWARD = """
import factrl

@factrl.reward
def own(example, completion):
    if example.id in ("ada", "bo"):
        raise factrl.Unscored("no_evidence")
    right = completion in example.answers
    label = "correct" if right else "abstained" if len(completion) % 2 else "incorrect"
    return factrl.Score({"own": float(right)}, floored=None if right else "wrong", facts={"label": label})
"""


SECTIONS = ("Rewards", "States", "Answers", "Detectors", "Evaluation", "The trainer's own")
# Completions of three words have no long part and no reasoning; there is no probe, second judge or source.
NOT_HERE = {
    *("hack/judge_disagreement", "abstain/false_rate", "claims/unextracted_char_frac"),
    *("think/len", "text/compress_ratio", "reward/masked_frac/from/<source>"),
}


@pytest.mark.parametrize("beta", [0.0, 0.01])
def test_every_logged_name_is_defined(tiny_model: Path, questions: Path, tmp_path: Path, beta: float) -> None:
    own = tmp_path / "own.py"
    own.write_text(REWARD, encoding="utf-8")
    overrides = {
        "paper": f"{own}:own",
        "model.name": tiny_model,
        "data.train": questions,
        "data.eval": questions,
        "train.steps": 2,
        "train.eval_steps": 1,
        "train.prompts_per_step": 4,
        "train.num_generations": 2,
        "train.max_completion_length": 3,
        "train.beta": beta,
        "run.dir": tmp_path,
    }
    plan = make_plan(run_settings(None, [f"{key}={value}" for key, value in overrides.items()]))
    logged = {name for line in read_metrics(train(plan)) for name in line} - {"step"}
    defined = {
        name.replace("<term>", "own").replace("<cause>", cause)
        for name in glossary(*SECTIONS)
        for cause in ("no_evidence", "wrong")
    }
    assert logged <= defined
    unlogged = {"aux_loss", "masked/wrong", "floored/no_evidence"} | ({"kl"} if beta == 0 else set())
    unlogged |= NOT_HERE
    assert {name for name in defined - logged if not name.startswith("sampling/")} == unlogged
