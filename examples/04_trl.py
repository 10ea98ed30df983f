"""TruthRL's reward in a plain TRL trainer: two GRPO steps of a 135M model.

    pip install '.[train]' gguf
    python examples/04_trl.py

Rules grade, so there is no judge to serve.  Two steps teach nothing; they show what to look at first.
"""

import tempfile

import factrl as fx

QUESTIONS = {
    "What is the capital of France?": ["Paris"],
    "What is the capital of Japan?": ["Tokyo"],
    "Who wrote Ulysses?": ["James Joyce", "Joyce"],
    "Who was the ninth mayor of Avonlea?": ["Theodora Blunt-Ashcombe"],
}
PROMPT = "Q: Capital of Italy?\nA: \\boxed{{Rome}}\nQ: My cat's name?\nA: \\boxed{{I don't know}}\nQ: {}\nA:"


def main() -> None:
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from factrl.runs.settings import ModelSettings
    from factrl.train.model import load_policy

    rows = [{"prompt": PROMPT.format(q), "question": q, "answers": a} for q, a in QUESTIONS.items()]
    data = Dataset.from_list(rows)
    model, tokenizer = load_policy(ModelSettings(name="SmolLM2-135M-Instruct", dtype="float32"))
    reward = fx.load_reward("truthrl").with_(grade=fx.Grader())
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, max_steps=2, num_generations=4, per_device_train_batch_size=4, max_completion_length=12,
            learning_rate=1e-5, bf16=False, use_cpu=True, gradient_checkpointing=False, logging_steps=1,
            report_to="none", save_strategy="no", disable_tqdm=True, seed=0,
        )  # fmt: skip
        trainer = GRPOTrainer(model, fx.to_trl(reward), args, data, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    print("step  reward  floored  masked  abstains")
    for logged in trainer.state.log_history:
        if "reward" in logged:
            found = (
                logged.get(f"{name}")
                for name in ("reward/floored_frac", "reward/masked_frac", "abstain/rate")
            )
            shares = "".join("       -" if share is None else f"{share:8.2f}" for share in found)
            print(f"{logged['step']:>4}{logged['reward']:8.2f}{shares}")


if __name__ == "__main__":
    main()
