"""The settings of `factrl train`: one frozen model per section of a recipe.

The string beneath a field is its help.  A name equals TRL's wherever TRL has the thing; a default
that differs from TRL's says so.  Reading, merging and reporting problems is `factrl.runs.config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from factrl.runs.data import ColumnName, template_names

LOCAL = "local"  # `judge.url` of the model in this process
OWN = "own"
"""Marks what a recipe says of its own models, data and machine, which does not come with a paper's name."""
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Section(BaseModel):
    """Frozen, typed strictly and closed: an unknown key is an error, `"5"` is not a number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def _problems(self) -> Iterator[str]:
        """What does not fit together, a line each."""
        return iter(())

    @model_validator(mode="after")
    def _fits_together(self) -> Section:
        if problems := "\n".join(self._problems()):
            raise ValueError(problems)
        return self


class ModelSettings(Section):
    """`[model]`: the policy."""

    name: Annotated[str, OWN] = Field(min_length=1)
    """Model to train: a local folder, a hub id, or a policy of `factrl doctor`."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], OWN] = "auto"
    """Precision of the loaded weights; `auto` takes what the checkpoint says."""
    lora: bool = False
    """Train a LoRA adapter instead of all weights."""
    lora_rank: Positive = 16
    """Rank of the adapter."""
    lora_alpha: Positive = 32
    """Scale of the adapter; its output is multiplied by alpha / rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout inside the adapter."""
    lora_target_modules: Annotated[str | Annotated[tuple[str, ...], Field(strict=False)], OWN] = "all-linear"
    """Modules that get an adapter: `all-linear` or a list of names."""
    load_in_4bit: bool = False
    """QLoRA: keep the weights beneath the adapter in 4 bits (NF4), with bitsandbytes on a GPU."""
    freeze_embeddings: bool = False
    """Leave the token embeddings, and an output head tied to them, as they are."""
    freeze_layers: int = Field(default=0, ge=0)
    """Leave so many of the lowest layers as they are: less memory, and steps that are faster."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model; needs `revision`, so that the code cannot change."""

    @property
    def is_policy(self) -> bool:
        """Whether the weights are loaded here and can be trained: neither a server's model nor `local`."""
        return self.name != LOCAL and not self.name.startswith(("http://", "https://"))

    def _problems(self) -> Iterator[str]:
        if self.trust_remote_code and not self.revision:
            yield "model.trust_remote_code = true needs model.revision, the commit that you read"
        if self.load_in_4bit and not self.lora:
            yield "model.load_in_4bit = true needs model.lora = true: weights in 4 bits cannot be trained"
        if self.lora and self.freeze_layers:
            yield "model.freeze_layers is for model.lora = false: an adapter leaves all weights as they are"


class DataSettings(Section):
    """`[data]`: the questions and how they become prompts."""

    train: Annotated[str, OWN] = Field(min_length=1)
    """Questions to train on: a .jsonl, .json, .csv, .tsv or .parquet file, a folder of them, or a hub id."""
    split: Annotated[str, OWN] = Field(default="train", min_length=1)
    """Split of `train`, for a folder or a hub id."""
    subset: str | None = None
    """Configuration of a hub dataset that has several."""
    eval: Annotated[str | None, OWN] = None
    """Questions to evaluate on while training, as in `train`; none by default."""
    eval_split: Annotated[str, OWN] = Field(default="test", min_length=1)
    """Split of `eval`, for a folder or a hub id."""
    columns: dict[ColumnName, str] = Field(default_factory=dict)
    """What the dataset calls its columns, e.g. `{question = "query"}`; dots reach into nested columns."""
    prompt: str = Field(default="{question}", min_length=1)
    """What the user says: `{question}` or any other column in braces; `{{` and `}}` are literal braces."""
    system: str | None = None
    """System message; none by default."""
    chat: bool = True
    """Apply the model's chat template."""
    prefill: str = ""
    """Text that the assistant's turn starts with, e.g. `<think>`."""
    limit: Positive | None = None
    """Use only the first so many questions."""

    @field_validator("prompt")
    @classmethod
    def _prompt_is_a_template(cls, value: str) -> str:
        if not template_names(value):
            raise ValueError(f"data.prompt {value!r} names no column; write {{question}} where it goes")
        return value


class JudgeSettings(Section):
    """`[judge]`: the language model that grades and compares; its key comes from the environment only."""

    url: str | None = None
    """Server and model, e.g. `http://localhost:8000/v1#Qwen/Qwen3-8B` or `openai/gpt-4o-mini`; `local` is a
    small model in this process."""
    max_concurrency: int = Field(default=64, ge=1, le=4096)
    """Calls in flight at once."""
    tpm: float | None = Field(default=None, gt=0)
    """Tokens per minute of its prompts and replies, over all processes of a run; calls wait for them."""
    timeout_attempt: Seconds = 30.0
    """Seconds for one attempt."""
    timeout_call: Seconds = 100.0
    """Seconds for one call with all its attempts."""
    max_attempts: int = Field(default=4, ge=1, le=20)
    """Attempts per call, over all layers."""
    max_answer_chars: int | None = Field(default=None, ge=0)
    """Characters of the longest short answer that a judge may accept, 200 by default, so that none talks it
    round; 0 is no limit. The model in this process keeps it."""
    refusals: list[str] = []
    """Further texts that abstain as a whole, beside the listed ones ("I don't know"), such as the one that
    data.prompt asks for."""
    price_in: float | None = Field(default=None, ge=0)
    """US dollars for a million tokens of its prompts; without a price only tokens are counted."""
    price_out: float | None = Field(default=None, ge=0)
    """US dollars for a million tokens of its replies."""
    reward_model: Annotated[str | None, OWN] = None
    """Scalar reward model, a folder or hub id, that rates answers; by default the judge rates them."""
    truthfulness_model: str | None = None
    """Model that was tuned to say whether a claim is true (KLCF); by default the local one."""
    extractor_model: str | None = None
    """Model that `factrl tune extractor` made, a folder, hub id or server, which finds the claims that a
    truthfulness model reads (KLCF); by default the preset's way."""
    checklist_model: str | None = None
    """Model that was tuned to check lists (KLCF), likewise; by default the judge."""
    preference_model: str | None = None
    """Model whose own answer another must beat and that compares them, a folder, hub id or server: the base
    model (factreason, Figure 9); by default the judge. A server's key is in FACTRL_PREFERENCE_API_KEY."""

    @field_validator("url", "preference_model")
    @classmethod
    def _url_holds_no_key(cls, value: str | None, field: ValidationInfo) -> str | None:
        address, name = (value or "").partition("#")[0], field.field_name
        if name != "url" and "://" not in address:
            return value  # a hub id may name a commit behind @
        if "@" in address or "?" in address:  # the resolved settings are saved and logged
            role = "JUDGE" if name == "url" else "PREFERENCE"
            raise ValueError(f"judge.{name} must not hold a key; put it in FACTRL_{role}_API_KEY")
        return value

    def limits(self) -> dict[str, Any]:
        """How `factrl.llm.connect` asks this judge, and each model of the user's beside it."""
        return self.model_dump(include={"max_concurrency", "timeout_attempt", "timeout_call", "max_attempts"})

    @property
    def callers(self) -> int:
        """Threads that ask at once; the model in this process answers one after the other."""
        return 1 if self.url == LOCAL else self.max_concurrency

    def _problems(self) -> Iterator[str]:
        if self.timeout_call < self.timeout_attempt:
            yield (
                f"judge.timeout_call = {self.timeout_call:g} is shorter than "
                f"judge.timeout_attempt = {self.timeout_attempt:g}"
            )
        if (self.price_in is None) != (self.price_out is None):
            given, missing = ("in", "out") if self.price_out is None else ("out", "in")
            yield (
                f"judge.price_{given} needs judge.price_{missing} beside it; for a server of your own both "
                "can be 0"
            )

    @property
    def price(self) -> tuple[float, float] | None:
        """US dollars for a million tokens of prompts and of replies; None when not given."""
        return None if self.price_in is None or self.price_out is None else (self.price_in, self.price_out)


class VerifierSettings(Section):
    """`[verifier]`: how the claims of a completion are checked."""

    preset: Literal["local", "factscore", "veriscore", "knowrl", "fspo"] = "local"
    """Claims, judge and number of passages as in a published system; `local` needs no server."""
    docs: tuple[str, ...] = Field(default=(), strict=False)
    """Files of evidence, for questions that come without."""
    index: str | None = None
    """Folder of an index made by `factrl index`, for questions that come without evidence."""
    web: str | None = None
    """Search engine, for questions that come without evidence: `searxng:URL`, `wikipedia`, `serper`,
    `tavily`, `brave`, `exa`, or the address of a server that speaks like Serper."""
    embedder: str = ""
    """Model of sentence-transformers, a folder or hub id, that puts the passages of `docs` or `index` in
    order; by default their words do."""
    judge: str | None = None
    """Instead of the preset's own: `local`, `weak`, `llm` (the model of `judge.url`), `nli:NAME` of any
    cross-encoder, or a verifier of `factrl doctor`."""
    trust_remote_code: bool = False
    """Run Python code that comes with that cross-encoder, as HHEM's does; needs its commit
    (`nli:NAME@COMMIT`) or a folder, so that the code is the one that you read."""
    controls: bool = False
    """Put a true and a false claim of ours into every call; what gets one wrong is masked. Needs a server."""
    k: Positive | None = None
    """Passages for a claim instead of the preset's number."""
    max_claims: Positive | None = None
    """Claims of one completion that are judged; those after count as unsupported. 64 by default."""
    share: bool = False
    """Completions of one question share what is searched for it."""
    deadline: Seconds = 240.0
    """Seconds for the claims of one batch of completions; what has no verdict then is masked."""
    cache: bool = True
    """Keep verdicts and readable replies on disk, so that nothing is judged twice."""

    @field_validator("docs", mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class SearchSettings(Section):
    """`[search]`: search as an action of the policy, which then answers in several turns."""

    index: str | None = None
    """Folder of an index (`factrl index`) that the policy may search; without one it answers at once."""
    embedder: str = ""
    """Model of sentence-transformers, a folder or hub id, that puts what is found in order."""
    k: Positive = 3
    """Passages that a search shows."""
    turns: Positive = 4
    """Searches of one answer; a further one finds nothing and says so."""

    def _problems(self) -> Iterator[str]:
        if self.index is None:
            for name in self.model_dump(exclude_defaults=True):
                yield f"search.{name} does nothing without search.index, the index that is searched"


class TrainSettings(Section):
    """`[train]`: the optimisation."""

    steps: Positive | None = None
    """Optimizer steps; when set, `epochs` is not used."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the questions."""
    prompts_per_step: Positive = 64
    """Questions per optimizer step, over all processes."""
    num_generations: int = Field(default=8, ge=2)
    """Completions per question: the group that advantages compare."""
    micro_batch_size: Annotated[Positive, OWN] = 8
    """Completions per forward pass and process; fewer need less memory."""
    max_completion_length: Positive = 2048
    """Tokens a completion may have."""
    max_prompt_length: Positive | None = None
    """Tokens a prompt may have; documents in it are cut, and what is longer still is left out and counted."""
    max_long_share: float = Field(default=0.1, ge=0, le=1)
    """Refuse to go on when more than this share of the prompts is longer than that."""
    learning_rate: float = Field(default=1e-6, gt=0, lt=1)
    """Peak learning rate of AdamW."""
    lr_scheduler_type: Literal["constant", "constant_with_warmup", "linear", "cosine"] = "constant"
    """Learning-rate schedule."""
    warmup_steps: float = Field(default=0, ge=0)
    """Steps of linear warm-up; below 1 it is a share of all steps."""
    weight_decay: float = Field(default=0.01, ge=0, lt=1)
    """AdamW weight decay."""
    optim: Annotated[Literal["adamw_torch_fused", "adamw_8bit"], OWN] = "adamw_torch_fused"
    """AdamW by TRL's name; `adamw_8bit` keeps its state in 8 bits, with bitsandbytes."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradient clipping norm."""
    loss_type: Literal["grpo", "dr_grpo", "bnpo", "dapo", "reinforce++"] = "dapo"
    """How token losses are averaged: `dapo` over all tokens of the step, `bnpo` over those of a micro-batch,
    `grpo` per completion first."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """Divide advantages by the standard deviation of the group, of the batch, or not at all."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the starting model; 0 loads no reference model."""
    use_bias_correction_kl: bool = False
    """TRL's corrected KL gradient. TRL has it on; off is the KL of the papers and of verl."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the bonus for the mean entropy of a token, which keeps completions apart."""
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """Lower clipping range of the probability ratio."""
    epsilon_high: float | None = Field(default=None, gt=0)
    """Upper clipping range; the same as `epsilon` by default."""
    advantage_epsilon: float = Field(default=1e-6, ge=0, lt=1)
    """Added to the standard deviation that divides advantages. TRL has 1e-4, verl 1e-6."""
    num_iterations: Positive = 1
    """Optimizer passes over each batch of completions."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the completions."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; below 1 it biases the importance ratio."""
    mask_truncated_completions: bool = False
    """Leave completions that hit the length limit out of the loss."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, more time."""
    bf16: Annotated[Literal["auto"] | bool, OWN] = "auto"
    """bfloat16 autocast; `auto` uses it where the device has it, or as FACTRL_BF16 (0 or 1) in the
    environment says. TRL has it on, also on CPU."""
    save_steps: Annotated[Positive, OWN] = 50
    """Steps between checkpoints."""
    eval_steps: Annotated[Positive | None, OWN] = None
    """Steps between evaluations on `data.eval`; only at the end by default."""
    use_vllm: Annotated[bool, OWN] = False
    """Generate with vLLM. What is written outside of training's steps (`tune`, `eval`, `prepare`) is its too
    where it is installed and a GPU is here, and else this process's."""
    vllm_mode: Literal["colocate", "server"] = "colocate"
    """vLLM inside the training processes or on a server of its own."""
    vllm_server_base_url: str | None = None
    """Where that server is, e.g. `http://gpu2:8000`; by default port 8000 of this machine."""
    report_to: tuple[str, ...] = Field(default=(), strict=False)
    """Trackers that get the metrics, e.g. `["wandb"]`; one alone may be a word."""
    max_masked_share: float = Field(default=0.5, gt=0, le=1)
    """Stop when more than this share of completions could not be graded for 3 steps in a row."""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_tracker(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    def _problems(self) -> Iterator[str]:
        completions = self.prompts_per_step * self.num_generations
        if completions % self.micro_batch_size:
            yield (
                f"train.micro_batch_size = {self.micro_batch_size} does not divide the {completions} "
                f"completions of a step: prompts_per_step = {self.prompts_per_step} times "
                f"num_generations = {self.num_generations}"
            )
        if self.warmup_steps and self.lr_scheduler_type == "constant":
            yield (
                f"train.warmup_steps = {self.warmup_steps:g} does nothing with "
                "train.lr_scheduler_type = 'constant'; use 'constant_with_warmup'"
            )
        if self.save_steps % self.num_iterations:
            yield (
                f"train.save_steps = {self.save_steps} is not a multiple of train.num_iterations = "
                f"{self.num_iterations}; resuming there would lose a batch of completions"
            )
        if self.vllm_server_base_url and not (self.use_vllm and self.vllm_mode == "server"):
            yield (
                "train.vllm_server_base_url is used only with train.use_vllm = true and "
                "train.vllm_mode = 'server'"
            )


class SamplingSettings(Section):
    """`[sampling]`: what a model writes outside of training."""

    num_samples: Positive = 1
    """Answers per question."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 writes the most likely answer."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling; 1 keeps the whole distribution."""

    def _problems(self) -> Iterator[str]:
        if self.num_samples > 1 and self.temperature == 0:
            yield (
                f"sampling.num_samples = {self.num_samples} with sampling.temperature = 0 is the same answer "
                "again and again; raise the temperature"
            )


class OutputSettings(Section):
    """`[run]`: where the run goes."""

    output: str | None = Field(default=None, min_length=1)
    """The run folder itself, in which the same command goes on; by default a new one in `dir`."""
    dir: str = Field(default="runs", min_length=1)
    """Folder that holds all runs without a place of their own."""
    name: str | None = None
    """Start of the name of a folder in `dir`; the paper's name by default."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of everything that is random."""
    max_cost: float | None = Field(default=None, gt=0)
    """US dollars that the judge may cost in the whole run, resumed or not; the run stops before."""


class RunSettings(Section):
    """All settings of `factrl train`; the root of a recipe."""

    paper: str = Field(min_length=1)
    """The reward: a paper (`truthrl`), a variant of it (`truthrl:binary`) or your own (`my.py:reward`)."""
    model: ModelSettings
    data: DataSettings
    reward: dict[str, Any] = Field(default_factory=dict)
    """The reward's knobs; `factrl show PAPER` lists them."""
    judge: JudgeSettings = JudgeSettings()
    verifier: VerifierSettings = VerifierSettings()
    search: SearchSettings = SearchSettings()
    train: TrainSettings = TrainSettings()
    run: OutputSettings = OutputSettings()

    def _problems(self) -> Iterator[str]:
        if self.train.eval_steps and not self.data.eval:
            yield f"train.eval_steps = {self.train.eval_steps} needs data.eval, the questions to evaluate on"
        if self.search.index is not None:
            yield from self._of_search()
        cap = self.run.max_cost
        if cap is None:
            return
        if not self.judge.url or self.judge.url == LOCAL:
            yield f"run.max_cost = {cap:g} needs a judge that is paid for: judge.url of a server"
        elif self.judge.price is None:
            yield (
                f"run.max_cost = {cap:g} needs the judge's prices: judge.price_in and judge.price_out, "
                "US dollars for a million tokens of prompts and of replies"
            )

    def _of_search(self) -> Iterator[str]:
        """What cannot be beside a search of the policy's own."""
        if not self.data.chat:
            yield "search.index needs data.chat = true: calls are a part of the chat template"
        if self.data.prefill:
            yield f"data.prefill = {self.data.prefill!r} cannot begin an answer that a search may come before"
        if "evidence" in template_names(self.data.prompt):
            yield "{evidence} in data.prompt and search.index number their passages both; take one of them"


class AskSettings(RunSettings):
    """How a model is asked outside of training: as its recipe does, but a reward is not needed."""

    paper: str = ""
    """The reward of the recipe; not used."""
    sampling: SamplingSettings = SamplingSettings()

    @property
    def draw(self) -> dict[str, Any]:
        """How a writer draws its texts: temperature, top_p and seed."""
        return {**self.sampling.model_dump(include={"temperature", "top_p"}), "seed": self.run.seed}
