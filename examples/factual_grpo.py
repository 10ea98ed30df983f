"""FSPO's and TruthRL's rewards in a GRPO trainer of one's own, in place of `trl.GRPOTrainer` and beside it.

    python examples/factual_grpo.py MODEL [factual|plain]

A judge is a server's address: `fx.connect("http://localhost:8000/v1#Qwen/Qwen3-8B")`; here rules compare.
"""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import factrl as fx
from factrl.train.grpo import FactualGRPOTrainer

model, kind = sys.argv[1], (*sys.argv[2:], "factual")[0]
reward = fx.load_reward("truthrl").with_(grade=fx.Grader(), answer="text")
questions = {"where is ada from ?": ["rome"], "where is bo from ?": ["oslo"]}
dataset = Dataset.from_dict({"prompt": list(questions), "answers": list(questions.values())})
config = GRPOConfig(
    "runs/mine", max_steps=2, num_generations=4, bf16=False, max_completion_length=8, report_to=[]
)
if kind == "factual":  # masks leave loss, KL penalty and counts; FSPO's spans are credited
    trainer = FactualGRPOTrainer(model, reward, config, dataset)
else:
    trainer = GRPOTrainer(model, fx.to_trl(reward), config, dataset)
trainer.train()
print({key: value for key, value in trainer.state.log_history[0].items() if key.startswith("reward")})
