"""Runs a study: makes the start, trains each row from it, and evaluates all on the same held-out questions.

    world -> warm start -> what the start says and knows -> a GRPO run for each row -> texts -> table

Each step's result is one JSON file in the seed's folder, written whole, so the same command goes on where it
was stopped.  Everything runs in this process on one model, whose weights are set back before each row.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model

from factrl.errors import ConfigError
from factrl.papers import split_spec
from factrl.rewards import Reward, reward
from factrl.rewards.grading import Grader
from factrl.rewards.trl import TrainerOnly
from factrl.rewards.truthfulness import TUNED_PROMPT, TruthfulnessModel, shown_claim
from factrl.runs.config import dump_toml
from factrl.runs.disk import write_whole
from factrl.runs.folder import Run, read_metrics
from factrl.runs.settings import DataSettings, ModelSettings, RunSettings, TrainSettings
from factrl.studies import (
    BEGUN_FILE,
    CALIBRATED,
    MODEL,
    START_FILE,
    WORLD_FILE,
    CalibrateSettings,
    RowSettings,
    SizeSettings,
    StartSettings,
    StudySettings,
    TruthfulnessSettings,
    check_begun,
    digest,
    read_json,
    read_stored,
    row_file,
    row_identity,
    row_reward,
    row_settings,
    start_file,
    tasks_of,
)
from factrl.studies.measure import Measured, auc, blocks_of, measure
from factrl.studies.minutes import (
    calibrate_seconds,
    needs_known,
    start_seconds,
    start_texts,
    train_seconds,
    written_seconds,
)
from factrl.studies.table import TableFacts
from factrl.studies.world import (
    ABSTENTION,
    PREFILLS,
    PROMPTS,
    TASKS,
    Part,
    Task,
    World,
    open_world,
    target,
    with_checklist,
)
from factrl.train.callbacks import Interrupted
from factrl.train.model import load_policy, render_prompts, uses_bf16
from factrl.train.online import optimise
from factrl.train.supervised import supervise
from factrl.train.writing import AT_ONCE, answer
from factrl.types import Completion, Example, TrainingState
from factrl.verifier import Report, Verifier
from factrl.verifier.judges.table import TableJudge

_TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
_HELD_OUT = 60  # entities on whose claims a truthfulness model is measured
_DECIDED = ("supported", "refuted")
SHOWN = 20  # texts of a row that are kept
Tell = Callable[[str], None]
Advance = Callable[[float, str], None]


@reward
def random_reward(example: Example, completion: str) -> dict[str, float]:
    """0 or 1 by a hash of the question and the text: the noise of training, and nothing else."""
    return {"random": float(hashlib.sha256(f"{example.id} {completion}".encode()).digest()[0] & 1)}


def data_settings(task: Task) -> DataSettings:
    """The prompt of a task, in SmolLM2's chat markup without its system message, which costs 25 tokens."""
    prompt = _TURN.format(PROMPTS[task])
    return DataSettings(train="study", chat=False, prompt=prompt, prefill=PREFILLS[task])


@dataclass
class Seed:
    """One seed's world, model and folder."""

    folder: Path
    number: int
    world: World
    start: StartSettings
    model_name: str
    tasks: Sequence[Task] = TASKS  # that the start is taught
    advance: Advance = field(default=lambda seconds, doing: None, repr=False)

    def __post_init__(self) -> None:
        self.judge = TableJudge(self.world.table)
        self.verifier = Verifier(self.judge.extract, self.judge, self.judge, own_subject=False)
        self.grader = Grader()
        self.model_settings = ModelSettings(
            name=self.model_name, freeze_embeddings=True, freeze_layers=self.start.freeze_layers
        )
        self.model, self.tokenizer = load_policy(self.model_settings)
        if torch.cuda.is_available():
            torch.set_float32_matmul_precision("high")
            self.model.to("cuda")
        self.weights = self.folder / START_FILE

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Write the world, and what the start is made of, unless there is a start."""
        (self.folder / "rows").mkdir(parents=True, exist_ok=True)
        if not self.weights.exists():
            write_whole(self.folder / BEGUN_FILE, json.dumps(identity).encode())
            self.world.save(self.folder / WORLD_FILE)

    def settings(self, task: Task, train: TrainSettings, row: RowSettings | None = None) -> RunSettings:
        """The settings that a task is asked and trained with."""
        run: Any = {"seed": self.number, "dir": str(self.folder / "runs")}
        return RunSettings(
            paper="study" if row is None else row.reward,
            model=self.model_settings,
            data=data_settings(task),
            reward={} if row is None else row.knobs,
            train=train,
            run=run,
        )

    def examples(self, task: Task, part: Part) -> list[Example]:
        return self.world.examples(task, part, self.number)

    # -- The start

    def make_start(self, tell: Tell) -> None:
        """Teach the forms of the tasks with true facts of the warm start's entities."""
        if self.weights.exists():
            self.reset()
            return
        started, train = time.monotonic(), TrainSettings()
        draw = random.Random(f"start {self.number}")
        rows: list[tuple[str, str]] = []
        for task, count in start_texts(self.start, self.tasks).items():
            pool = self.examples(task, "warm")
            examples = [pool[n % len(pool)] for n in range(count)]
            rendered = render_prompts(examples, self.tokenizer, data_settings(task))
            taught = (target(task, one, self.world.table, draw, self.start.decline) for one in examples)
            rows += zip(rendered, taught, strict=True)
        draw.shuffle(rows)
        prompts, texts = zip(*rows, strict=True)
        config = self.start.model_copy(update={"steps": math.ceil(len(rows) / self.start.batch_size)})
        whole = start_seconds(self.start, self.tasks)
        self._teach(prompts, texts, config, train, whole, "the start learns the form of the answers")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._save_weights(self.weights)
        tell(f"seed {self.number}: warm start in {time.monotonic() - started:.0f} s")

    def texts(
        self,
        examples: Sequence[Example],
        settings: RunSettings,
        doing: str = "",
        *,
        task: Task = "profile",
        samples: int = 1,
        temperature: float = 0.0,
    ) -> list[list[str]]:
        """What the model writes now.

        Args:
            doing: what for; shown beside the progress, which counts texts of this task.
        """
        torch.manual_seed(self.number)
        return answer(
            self.model,
            self.tokenizer,
            examples,
            settings,
            num_samples=samples,
            temperature=temperature,
            batch_size=256 if torch.cuda.is_available() else AT_ONCE,
            written=lambda count: self.advance(count * written_seconds(task, samples), doing),
        )

    def evaluate(self, task: Task, train: TrainSettings, size: SizeSettings, of: str) -> dict[str, Any]:
        """Greedy texts and one sample at the training temperature of each held-out question, measured."""
        settings = self.settings(task, train)
        examples = self.examples(task, "test")[: size.test]
        results: dict[str, Any] = {
            "shown": [[one.question, *one.answers[:1]] for one in examples[:SHOWN]]  # with their greedy texts
        }
        for name, temperature in (("greedy", 0.0), ("sampled", train.temperature))[: 1 + size.sampled]:
            doing = f"{of} answers {len(examples)} held-out questions, {name}"
            groups = self.texts(examples, settings, doing, task=task, temperature=temperature)
            texts = [one for [one] in groups]
            rows = self.measured(task, examples, texts)
            results[name] = [asdict(row) for row in rows]
            results[f"{name}_texts"] = texts[:SHOWN]
        return results

    def measured(self, task: Task, examples: Sequence[Example], texts: Sequence[str]) -> list[Measured]:
        return measure(task, examples, texts, self.verifier, self.grader, self.world.table)

    def _teach(
        self,
        prompts: Sequence[str],
        answers: Sequence[str],
        config: StartSettings | CalibrateSettings | TruthfulnessSettings,
        train: TrainSettings,
        seconds: float,
        doing: str,
    ) -> None:
        """Supervised steps on these answers, which count as so many seconds of progress."""
        supervise(
            self.model,
            self.tokenizer,
            prompts,
            answers,
            **config.model_dump(include={"steps", "batch_size", "learning_rate"}),
            bf16=uses_bf16(train),
            seed=self.number,
            stepped=lambda: self.advance(seconds / config.steps, doing),
        )

    def _save_weights(self, weights: Path) -> None:
        """Write the weights as a file, whole or not at all."""
        unfinished = weights.with_suffix(".unfinished")
        save_model(self.model, str(unfinished))
        unfinished.replace(weights)

    def _save_model(self, folder: Path, settings: RunSettings | None = None) -> None:
        """Write the model as a folder; with settings, as `config.toml`, one that `factrl ask` opens."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if settings is not None:
            write_whole(folder / "config.toml", dump_toml(settings).encode())

    def reset(self, weights: Path | None = None) -> None:
        """Set the weights back to the start's, or to those of a file."""
        load_model(self.model, str(weights or self.weights))

    def known(self, study: StudySettings) -> dict[str, Any]:
        """What the start gets right in samples of training questions: right sentences by entity, or the share
        of right samples by question."""
        task, path = study.task, self.folder / f"known-{study.task}.json"
        identity: dict[str, Any] = {"known": study.known.model_dump()}
        if (stored := read_stored(path, identity)) is not None:
            return dict(stored["found"])
        self.reset()
        settings = self.settings(task, study.train)
        examples = self.examples(task, "train")[: study.known.questions]
        groups = self.texts(
            examples,
            settings,
            "what the start knows",
            task=task,
            samples=study.known.samples,
            temperature=1.0,
        )
        pairs = zip(examples, groups, strict=True)
        known: dict[str, Any] = {}
        if task == "profile":
            texts = [(one, text) for one, group in pairs for text in group]
            claims = dict[str, bool]()
            for (one, _), report in zip(texts, self._reports(texts), strict=True):
                right = known.setdefault(one.topic, [])
                for check in report.checks:
                    if check.verdict and check.verdict.label in _DECIDED:
                        claims[check.claim.text] = check.verdict.label == "supported"
                        if claims[check.claim.text] and check.quote not in right:
                            right.append(check.quote)
            identity["claims"] = claims
        else:
            for one, group in pairs:
                rows = self.measured(task, [one] * len(group), group)
                known[one.id] = sum(row.right for row in rows) / len(rows)
        write_whole(path, json.dumps({**identity, "found": known}).encode())
        return known

    def _reports(self, completions: Sequence[tuple[Example, str]]) -> list[Report]:
        """What the table says about the claims of profiles."""
        answers = [blocks_of("profile", text)[1] or "" for _, text in completions]
        return self.verifier.batch(answers, topics=[one.topic for one, _ in completions])

    def truthfulness_model(self, study: StudySettings, tell: Tell) -> tuple[Path, float | None]:
        """A model that was taught from the start which of its own claims are true (KLCF, arXiv:2509.23765,
        Sec. 3.2), and its AUC on the start's claims about 60 held-out entities."""
        model, path = self.folder / "truthfulness", self.folder / "truthfulness.json"
        settings = {"truthfulness": study.truthfulness.model_dump(), "known": study.known.model_dump()}
        if (stored := read_stored(path, settings)) is not None:
            return model, stored["auc"]
        self.known(study)
        known = json.loads((self.folder / "known-profile.json").read_text("utf-8"))
        claims: dict[str, bool] = known["claims"]
        if len({*claims.values()}) < 2:
            raise ConfigError(
                "truthfulness is learnt from true and from false claims, and the start's samples have "
                f"{len(claims)} of one kind; raise start.steps or known.questions"
            )
        self.reset()
        started, examples = time.monotonic(), self.examples("profile", "test")[:_HELD_OUT]
        completions = self.texts(examples, self.settings("profile", study.train), temperature=1.0)
        reports = self._reports([(one, text) for one, [text] in zip(examples, completions, strict=True)])
        checks = [check for report in reports for check in report.checks]
        prompts = [TUNED_PROMPT.replace("{claim}", shown_claim(claim)) for claim in claims]
        answers = [" True" if is_true else " False" for is_true in claims.values()]
        self._teach(prompts, answers, study.truthfulness, study.train, 0, "which claims are true")
        self._save_model(model)
        labels = {c.claim.text: c.verdict.label for c in checks if c.verdict and c.verdict.label in _DECIDED}
        rated = [*zip(TruthfulnessModel(model)([*labels]), labels.values(), strict=True)]
        true, false = ([p for p, label in rated if label == side] for side in _DECIDED)
        area = auc(true, false)
        write_whole(path, json.dumps({**settings, "claims": len(claims), "auc": area}).encode())
        seconds = time.monotonic() - started
        tell(
            f"seed {self.number}: truthfulness of {len(claims)} claims in {seconds:.0f} s, "
            f"AUC {'none' if area is None else f'{area:.2f}'} on {len(labels)} about held-out entities"
        )
        return model, area

    def calibrate(self, name: str, study: StudySettings, tell: Tell) -> Path:
        """The weights that a study's rows begin with: the start's, or those after `[calibrate]`.

        Where enough of the start's samples are right the answer is taught, elsewhere "I don't know.".
        """
        config, weights = study.calibrate, self.folder / f"{CALIBRATED}-{name}.safetensors"
        if not config.steps:
            return self.weights
        path = row_file(self.folder, f"{name}/{CALIBRATED}")
        settings = {"calibrate": config.model_dump(), "known": study.known.model_dump()}
        settings |= {"size": study.size.model_dump()}
        if read_stored(path, settings) is not None and weights.exists():
            return weights
        shares, started = self.known(study), time.monotonic()
        examples = [one for one in self.examples(study.task, "train") if one.id in shares]
        enough = config.right / study.known.samples
        answers = [one.answers[0] if shares[one.id] >= enough else ABSTENTION for one in examples]
        self.reset()
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        starts = [weight.detach().clone() for weight in trained]
        prompts = render_prompts(examples, self.tokenizer, data_settings(study.task))
        doing = f"{CALIBRATED} on the start's own samples"
        self._teach(prompts, answers, config, study.train, calibrate_seconds(study), doing)
        for weight, start in zip(trained, starts, strict=True):
            weight.detach().lerp_(start, 1 - config.interpolation)
        del starts
        self._save_weights(weights)
        self._write_row(path, f"{name}/{CALIBRATED}", study, study.train, settings)
        tell(f"seed {self.number}: {name} calibrated in {time.monotonic() - started:.0f} s")
        return weights

    def is_prepared(self, name: str, study: StudySettings) -> bool:
        """Whether all that a study's rows begin with is on disk."""
        known = not needs_known(study) or (self.folder / f"known-{study.task}.json").exists()
        rows = row_file(self.folder, f"{name}/{CALIBRATED}")
        return known and (not study.calibrate.steps or rows.exists())

    def prepare(self, name: str, study: StudySettings, tell: Tell) -> None:
        """What the start knows, and the calibrated weights, where the study needs them."""
        if needs_known(study):
            self.known(study)
        self.calibrate(name, study, tell)

    # -- Rows

    def train_examples(self, study: StudySettings, row: RowSettings) -> list[Example]:
        """Training questions of a row."""
        examples = self.examples(study.task, "train")
        if row.checklist == "all":
            table = self.world.table
            return with_checklist(examples, {e: table.statements(e) for e in self.world.parts["train"]})
        if row.checklist == "own":
            parsed = {
                entity: [replace(one, entity=entity) for one in map(self.world.table.parse, quotes) if one]
                for entity, quotes in self.known(study).items()
            }
            return with_checklist(examples, parsed)
        if study.practice:
            share = self.known(study)
            sure = [one for one in examples if share.get(one.id, 0) >= 0.5]
            others = [one for one in examples if one.id in share and share[one.id] < 0.5]
            draw, count = random.Random(self.number), round(study.practice * len(sure))
            mixed = sure + draw.sample(others, min(len(others), max(count, 8)))
            draw.shuffle(mixed)
            return mixed
        return examples

    def reward(self, row: RowSettings, trained: Path | None = None) -> Reward:
        """The row's reward, with resources by rules and by the table.

        Args:
            trained: the folder of a model that rates how likely claims are to be true, in the table's place.

        Raises:
            ConfigError: it needs a resource that the study does not have.
        """
        bare = row_reward(row)
        if bare is None:
            return random_reward
        if trained is not None and "truthfulness" in bare.missing:
            bare = bare.with_(truthfulness=TruthfulnessModel(trained))
        return TableFacts(self.judge, self.verifier, self.grader).supply(bare)

    def train(self, name: str, study: StudySettings, tell: Tell, *, keep: bool = False) -> Mapping[str, Any]:
        """Train and evaluate one row; what is on disk is not done again.

        Args:
            keep: write the start and the trained model as folders in `models`, with the settings they are
                asked with.
        """
        path = row_file(self.folder, name)
        study_name, _, row_name = name.partition("/")
        row, train = study.rows[row_name], row_settings(study, row_name)
        identity = row_identity(study, row_name)
        file = Path(split_spec(row.reward)[0])
        if file.suffix == ".py":
            identity["source"] = digest(file.read_bytes())
        trained = None
        if row.truthfulness == "trained":
            trained, identity["truthfulness_auc"] = self.truthfulness_model(study, tell)
        examples = self.train_examples(study, row)
        identity["asked"] = digest(repr(examples).encode())
        if (stored := read_stored(path, identity)) is not None:
            return stored
        if (same := self._equal_run(identity)) is not None:
            write_whole(path, json.dumps({**same, "row": name}).encode())
            tell(f"seed {self.number}: {name} is {same['row']}")
            return same
        reward_func = self.reward(row, trained)
        _check_questions(name, examples, train, reward_func)
        settings = self.settings(study.task, train, row)
        first_weights = self.calibrate(study_name, study, tell)
        models = self.folder / "models"
        if keep:
            self.reset()
            self._save_model(models / "start", settings)
        self.reset(first_weights)
        prompts = render_prompts(examples, self.tokenizer, settings.data)
        started, cpu = time.monotonic(), time.process_time()
        torch.manual_seed(self.number)
        with Run.create(self.folder / "runs", name.replace("/", "-"), dump_toml(settings)) as run:
            try:
                optimise(
                    settings,
                    self.model,
                    self.tokenizer,
                    reward_func,
                    examples,
                    prompts,
                    run,
                    None,
                    stepped=lambda note: self.advance(train_seconds(study, train, 1), f"{name}, {note}"),
                )
            except Interrupted as stop:
                raise KeyboardInterrupt(f"stopped in {name}; the same command begins it again") from stop
            finally:
                shutil.rmtree(run.checkpoints, ignore_errors=True)  # they take 1.6 GB
            steps = [line for line in read_metrics(run.path) if "reward" in line]
        if keep:
            self._save_model(models / path.stem, settings)
        costs = {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu}
        length = sum(line["completions/mean_length"] or 0.0 for line in steps)
        costs["tokens"] = round(length * train.prompts_per_step * train.num_generations)
        gc.collect()
        facts = {
            **identity,
            "questions": len(examples),
            **costs,
            "rewards": [None if line["reward"] is None else round(line["reward"], 4) for line in steps],
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "gpu_peak_mb": torch.cuda.max_memory_allocated() // 2**20 if torch.cuda.is_available() else 0,
        }
        results = self._write_row(path, name, study, train, facts)
        tell(f"seed {self.number}: {name} in {costs['seconds']:.0f} s, {costs['cpu_seconds']:.0f} s of CPU")
        return results

    def check(self, name: str, study: StudySettings) -> None:
        """Refuse a row whose reward fails, before the start is trained.

        The reward is tried on one training question with a text as the start is taught it; a row whose
        checklists or truthfulness come from the start's samples is checked when it is trained.

        Raises:
            ConfigError: too few questions, or the reward needs what the study has not.
            DataError: the reward cannot use the questions.
            RewardBug: what the reward raises or returns is wrong.
        """
        row = study.rows[name]
        if row.checklist == "own" or row.truthfulness == "trained":
            return
        examples = self.examples(study.task, "train") if study.practice else self.train_examples(study, row)
        reward_func = self.reward(row)
        _check_questions(name, examples, row_settings(study, name), reward_func)
        if not reward_func.missing:
            draw = random.Random(self.number)
            text = PREFILLS[study.task] + target(study.task, examples[0], self.world.table, draw, 0.0)
            completion = Completion(text, certainty=1.0)  # with what training knows of one
            completion.group, completion.course = (text, text), TrainingState((), stalled=0)
            try:
                result = reward_func(examples[0], completion)
            except TrainerOnly:
                return
            if result.state == "floored":
                raise ConfigError(
                    f"{name}: {row.reward} floors the start's form, {text!r} ({result.cause}); "
                    'give a knob that reads it, such as knobs = { answer = "text" }'
                )

    def _equal_run(self, identity: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A row of another study that was trained in the same way on the same questions."""
        plain = json.loads(json.dumps(identity))
        for path in sorted((self.folder / "rows").glob("*.json")):
            stored = json.loads(path.read_text("utf-8"))
            if all(stored.get(key) == value for key, value in plain.items()):
                return stored
        return None

    def evaluate_start(self, study: StudySettings) -> Mapping[str, Any]:
        """The start's texts in a task, measured once for all studies of it."""
        path = start_file(self.folder, study)
        identity = {"size": study.size.model_dump()}
        if (stored := read_stored(path, identity)) is not None:
            return stored
        self.reset()
        return self._write_row(path, "start", study, study.train, identity)

    def _write_row(
        self, path: Path, row: str, study: StudySettings, train: TrainSettings, facts: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The results of a row: its held-out texts as the model writes them now, and what is known of it."""
        held_out = self.evaluate(study.task, train, study.size, row)
        results = {"row": row, "task": study.task, **facts, **held_out}
        write_whole(path, json.dumps(results).encode())
        return results


def _check_questions(
    name: str, examples: Sequence[Example], train: TrainSettings, reward_func: Reward
) -> None:
    """Refuse a row with too few training questions, or with some that its reward cannot use."""
    if len(examples) < train.prompts_per_step:
        raise ConfigError(
            f"{name} has {len(examples)} training questions, fewer than the {train.prompts_per_step} of "
            "one step; lower train.prompts_per_step, give a table of more entities, or, where samples choose "
            "the questions, raise known.questions"
        )
    reward_func.check_examples(examples)


def open_seed(folder: Path, number: int, studies: Mapping[str, StudySettings], model: str = MODEL) -> Seed:
    """One seed with its world and model, for studies that share a start; nothing is written.

    Raises:
        ConfigError: the folder was begun with something else.
    """
    check_begun(folder, studies, model)
    file, study = folder / WORLD_FILE, next(iter(studies.values()))
    held = file.exists() and (folder / START_FILE).exists()
    world = World.read(file) if held else open_world(study.table, number, more=study.size.more)
    return Seed(folder, number, world, study.start, model, tasks_of(studies))


def read_results(out: Path, seeds: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The stored results of these seeds: seed -> row -> its results."""
    results: dict[int, dict[str, Any]] = {}
    for number in seeds:
        for path in sorted((out / f"seed-{number}" / "rows").glob("*.json")):
            row = read_json(path)
            name = f"start-{row['task']}" if row.get("row") == "start" else row.get("row")
            if name is not None:  # else it is no file of ours
                results.setdefault(number, {})[name] = row
    return results


def run_studies(
    studies: Mapping[str, StudySettings],
    rows: Sequence[str],
    out: Path,
    seeds: Iterable[int],
    *,
    model: str = MODEL,
    keep: str = "",
    tell: Tell = lambda text: None,
    advance: Advance = lambda seconds, doing: None,
) -> None:
    """Run the studies from one start for every seed.

    Args:
        studies: by name; all share one start, made with the settings of the first.
        rows: those that are trained, as `study/row`.
        keep: the row whose model is kept as a folder when it is trained, and the start's with it.
        advance: called with seconds of `factrl.studies.minutes` that are done, and what was done.

    Raises:
        ConfigError: a row cannot be trained, or the folder was begun with something else.
    """
    pairs = [(studies[name.partition("/")[0]], name.partition("/")[2]) for name in rows]
    for number in seeds:
        seed = open_seed(out / f"seed-{number}", number, studies, model)
        seed.advance = advance
        for study, row in pairs:
            seed.check(row, study)
        seed.begin(check_begun(seed.folder, studies, model))
        seed.make_start(tell)
        for name, study in studies.items():
            seed.evaluate_start(study)
            seed.prepare(name, study, tell)
        for name, (study, _) in zip(rows, pairs, strict=True):
            seed.train(name, study, tell, keep=name == keep)
