"""FSPO: every sentence of the reasoning is held against given evidence, and tokens feel it.

Paper     The Hallucination Dilemma: Factuality-Aware Reinforcement Learning for Large Reasoning Models,
          arXiv:2505.24630
Reward    Eq. 10: answer in {0, 1}, by rules (Eq. 9), plus the mean over the N sentences of the think part of
          +1 (the evidence entails it), -1 (contradicts it) or 0 (neither)
Credit    Eq. 11: a token of a sentence with the sign y gets A where y A >= 0, else -A; the trainer does it
          from `Score.spans`.  Sign 0, and all that is no sentence of the think part, keeps A
N counts every sentence.  What states nothing ("Wait,", questions, code) is neutral without being judged, and
a sentence that is written again has the verdict of the first one; with `repeats="neutral"`, which is ours, a
true one is neutral then, or "It is in Asia. It is in Asia." is learnt.  A malformed completion is floored at
-1, the least that a well-formed one can earn; the paper does not say what it is worth.  `judged` lets the
judge decide on answers that the rules cannot, which the paper does not.
Eq. 8 needs a verifier with three verdicts: one that tells supported from not supported alone never gives -1
and is refused.  The preset `fspo` reads it as the released code does, and all that is not supported is -1.

The variant `code` is the released reward, kept for study.  Its sentences are supported (over 0.5) or count
against the policy, "Wait," too; the answer is token F1, in which "yes and no" earns 1 whether yes or no is
right; the mean of the steps is not in the reward; every character that is no sentence of the think part has
the sign +1, so a wrong answer is reinforced, and with an empty think part all of it.  Its misalignment is NOT
reproduced: it lays the tokens of each sentence, tokenised anew, one after the other from the start of the
completion, where our spans are where the sentences are.

Known weaknesses of the published reward, which `robust` closes: neutral filler dilutes contradictions; one
safe sentence earns the whole mean; steps pay although the answer is wrong.  By Eq. 10 a sentence that is
neither entailed nor contradicted is worth 0, so a wrong answer is paid more (0) behind reasoning in which
nothing can be read (signs, another language, references) than behind steps some of which are false.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

from factrl.errors import INSTALL, DataError, Unscored
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.rewards.mathematics import math_grader
from factrl.text import Slice, think_answer
from factrl.text.answers import matches, normalize_released
from factrl.text.sentences import sentences
from factrl.types import Completion, Example, Grade, Passage, Score, Span, VerdictLabel
from factrl.verifier.blame import OWN
from factrl.verifier.claims import normalised
from factrl.verifier.report import WIDTH, Report

from . import Gold, no_answers

Step = Literal["supported", "refuted", "unknown", "unjudged", "neutral"]
# Of the claims of a sentence the first of these decides; one without a verdict could still refute it.
_ORDER: tuple[Step, ...] = ("refuted", "unjudged", "supported", "unknown", "neutral")
_SIGNS: Mapping[Step, int] = {"refuted": -1, "unjudged": 0, "supported": 1, "unknown": 0, "neutral": 0}
_BARE = (
    "it has no evidence to hold the reasoning against; name the column with data.columns.evidence=…, "
    "or set reward.without_evidence=outcome: its answer alone counts, as in mathematics"
)

_REFUTED = (
    "Eq. 8's -1 is for a step that the evidence contradicts, a third verdict beside supported and neither. "
    "Name what has three: verifier.judge=nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli, local or llm; or "
    "give verifier.preset=fspo, under which all that is not supported is -1, as in the released code"
)
_BY_RULES = Grader()
_CHOICES = {
    "without_evidence": ("refuse", "outcome"),
    "verifier": ("rules", "judge"),
    "repeats": ("first", "neutral"),
}


def _requires(example: Example, knobs: Mapping[str, Any]) -> str | None:
    if no_answers(example):
        return no_answers(example)
    if not example.evidence and importlib.util.find_spec("math_verify") is None:
        return f"it has no evidence, so its answer may be a formula to compare: {INSTALL.format('[eval]')}"
    return _BARE if not example.evidence and knobs.get("without_evidence") == "refuse" else None


def _unused(knobs: Mapping[str, Any]) -> list[str]:
    rules, answer_alone = knobs["verifier"] == "rules", not (knobs["fact"] or knobs["signs"])
    return [*(["grade"] if rules else []), *(["verify"] if answer_alone else [])]


@reward(requires=_requires, unused=_unused, choices=_CHOICES, refuted=_REFUTED)
def fspo(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    verify: Callable[..., Report],
    fact: bool = True,
    signs: bool = True,
    verifier: str = "rules",
    without_evidence: str = "refuse",
    repeats: str = "first",
) -> Score:
    """FSPO's reward (Eq. 10) and the signs of its steps (Eq. 11); the terms are `answer` and `fact`.

    Args:
        fact: add the mean of the steps to the reward; without it there is no such term.
        signs: give the steps as spans; without it all tokens keep the advantage of the completion, and
            without `fact` too no step is judged: the GRPO that FSPO is compared with.
        verifier: `rules` decide whether the answer is right, as in Eq. 9, or the `judge` where they cannot.
        without_evidence: what happens to a question without evidence.  `refuse` stops before anything is
            paid for; `outcome` rewards the answer alone: no step is judged, and the mean is 0.
        repeats: ours.  What a sentence is that was written before: `first`, as it was the first time, or
            `neutral`, unless it is false: then it is false again.

    Raises:
        DataError: a question without evidence, and that is refused.
        Unscored: so many sentences have no verdict that they could move the mean by more than 0.05.
    """
    if not example.evidence and without_evidence == "refuse":
        raise DataError(f"the question {example.question[:80]!r} cannot be used with fspo: {_BARE}")
    think, graded = _graded(example, completion, _BY_RULES if verifier == "rules" else grade)
    facts: dict[str, Any] = {"answer": graded.answer, "label": graded.label, "how": graded.how}
    if graded.floored:
        return _floored(graded.floored, facts, fact, example)
    spans, mean = (), 0.0
    if example.evidence and (fact or signs):
        steps, floored = _steps(example, think, verify, again=repeats == "first")
        if floored:
            return _floored(floored, facts, fact, example)
        counts = Counter(step for _, _, step in steps)
        facts.update(steps=len(steps), supported=counts["supported"], refuted=counts["refuted"])
        mean = (counts["supported"] - counts["refuted"]) / len(steps) if steps else 0.0
        spans = tuple(Span(start, end, _SIGNS[step]) for start, end, step in steps)
    terms = {"answer": float(graded.label == "correct"), **({"fact": mean} if fact else {})}
    return Score(terms, spans if signs else (), facts=facts)


@reward(requires=_requires)
def fspo_released(example: Example, completion: Completion, *, verify: Callable[..., Report]) -> Score:
    """The released reward and its mask of signs, but for the misalignment; the term is `answer`.

    A question without evidence is compared by equality, by our rules instead of its LaTeX clean-up, and has
    no signs, as mathematics there; so does a completion without the four tags, each once and in order.
    """
    blocks = _released_blocks(completion)
    if blocks is None:
        return Score({"answer": 0.0}, floored="tags")
    think, answer = blocks
    if not example.evidence:
        return Score({"answer": float(matches(answer, example.answers) is not None)})
    steps, floored = _steps(example, think, verify)
    if floored:
        return Score({"answer": 0.0}, floored=floored)
    spans: list[Span] = []
    position = 0
    for start, end, step in steps:
        spans += [Span(position, start, 1)] if position < start else []
        spans.append(Span(start, end, {"supported": 1, "unjudged": 0}.get(step, -1)))
        position = end
    spans += [Span(position, len(completion), 1)] if position < len(completion) else []
    value = max((_released_f1(answer, accepted) for accepted in example.answers), default=0.0)
    return Score({"answer": value}, tuple(spans), facts={"answer": answer, "steps": len(steps)})


def _graded(example: Example, completion: Completion, grade: Grader) -> tuple[Slice, Grade]:
    """The think part and what became of the answer; `Grade.floored` says why there is none.

    A question without evidence may be one of mathematics, where another formula says the same as well.
    """
    blocks = think_answer(completion, completion.prefill)
    if blocks.think is None or blocks.answer is None:
        return Slice("", 0, 0), Grade("incorrect", "", how="gate", floored=blocks.malformed)
    said, answers, premise = blocks.answer.text, example.answers, example.false_premise
    found = grade(example.question, said, answers, false_premise=premise)
    if found.label == "incorrect" and not found.floored and not example.evidence:
        compared = (math_grader().compare(said.strip(), accepted) for accepted in answers)
        found = next((math for math in compared if math.label == "correct"), found)
    return blocks.think, found


def _floored(cause: str, facts: Mapping[str, Any], fact: bool, example: Example) -> Score:
    """The least that a completion can earn: no right answer, and every step contradicted."""
    terms = {"answer": 0.0, **({"fact": -1.0 if example.evidence else 0.0} if fact else {})}
    return Score(terms, floored=cause, facts=facts)


# -- Steps --------------------------------------------------------------------------------------------


def _steps(
    example: Example, think: Slice, verify: Callable[..., Report], *, again: bool = True
) -> tuple[list[tuple[int, int, Step]], str | None]:
    """Every sentence of the think part with its offsets in the completion, and why there are none.

    A sentence of several claims is refuted when one of them is, else supported when one is.

    Args:
        again: a claim or a sentence that was there before and was true is so again, and not neutral.

    Raises:
        Unscored: the claims or too many of the verdicts are missing.
    """
    report = verify(think.text, example.question, topic=example.topic, evidence=example.evidence)
    if report.failure is not None:
        raise report.failure
    if report.floored:
        return [], report.floored

    def repeated(before: Step) -> Step:
        return before if again or before != "supported" else "neutral"

    labels: dict[int, set[Step]] = {}
    first: dict[str, Step] = {}
    for check in report.checks:
        spelling = normalised(check.claim.text)
        if check.verdict is not None:
            own = check.verdict.cause in OWN  # or a flood of claims would hide false steps
            label: Step = "refuted" if own else check.verdict.label
            label = repeated(label) if spelling in first else label
            first.setdefault(spelling, label)
        else:
            label = repeated(first.get(spelling, "neutral")) if check.claim.skip == "repeat" else "neutral"
        labels.setdefault(check.claim.sentence, set()).add(label)
    steps: list[tuple[int, int, Step]] = []
    known: dict[str, Step] = {}
    for number, sentence in enumerate(sentences(think.text)):
        spelling = normalised(think.text[sentence.start : sentence.end])
        before = known.get(spelling, "neutral")  # an extractor may name what is said twice only once
        step: Step = min(labels.get(number, (before,)), key=_ORDER.index)
        step = repeated(step) if spelling in known else step
        known.setdefault(spelling, step)
        steps.append((think.start + sentence.start, think.start + sentence.end, step))
    missing = sum(step == "unjudged" for _, _, step in steps)
    if 2 * missing > WIDTH * len(steps):  # each of them lies between -1 and +1
        raise Unscored("claims_unjudged", f"{missing} of {len(steps)} steps have no verdict", stage="verify")
    return steps, None


# -- The released code --------------------------------------------------------------------------------


def _released_blocks(completion: Completion) -> tuple[Slice, str] | None:
    """Think part and answer when each tag occurs once, in order; whatever stands around them."""
    opened = (
        completion.prefill[completion.prefill.find("<think>") :] if "<think>" in completion.prefill else ""
    )
    whole = opened + completion
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    places = [whole.find(tag) for tag in tags]
    if any(whole.count(tag) != 1 for tag in tags) or places != sorted(places):
        return None
    start = max(places[0] + len("<think>") - len(opened), 0)
    end = max(places[1] - len(opened), start)
    answer = whole[places[2] + len("<answer>") : places[3]].strip()
    return Slice(completion[start:end], start, end), answer


def _released_f1(prediction: str, accepted: str) -> float:
    """Token F1 of SQuAD's normalised words; of yes and no, whether the word is there.

    The second rule is reconstructed from a reading of the code: "yes and no" earns 1 against either.
    """
    said, gold = normalize_released(prediction).split(), normalize_released(accepted).split()
    if gold in (["yes"], ["no"]):
        return float(gold[0] in said)
    common = sum((Counter(said) & Counter(gold)).values())
    return 2 * common / (len(said) + len(gold)) if common else 0.0


# What `factrl train fspo` uses unless told otherwise: the paper's implementation details, as
# recipes/fspo.toml lists them one by one.  The prompt is in our own words.
SETTINGS = {
    "data": {
        # Of a base model, whose text goes on where the prompt ends.
        "chat": False,
        "prompt": (
            "A user asks a question, and an assistant answers it. The assistant reasons step by step between "
            "<think> and </think>, and then gives only the final answer between <answer> and </answer>.\n\n"
            "User: {question}\n"
            "Assistant: "
        ),
        "prefill": "I will go through this one step at a time.\n<think>",
    },
    "train": {
        "prompts_per_step": 8,
        "num_generations": 8,
        "max_prompt_length": 2048,
        "max_completion_length": 2048,
        "learning_rate": 4e-7,
        "lr_scheduler_type": "constant",
        "loss_type": "grpo",
        "scale_rewards": "group",
        "advantage_epsilon": 1e-6,
        "beta": 0.001,
        "use_bias_correction_kl": False,
        "epsilon": 0.2,
        "temperature": 1.0,
        "top_p": 1.0,
    },
}

VARIANTS = {
    "fspo": fspo,
    "mixed": fspo.with_(without_evidence="outcome"),
    "outcome": fspo.with_(fact=False, signs=False, without_evidence="outcome"),
    "outcome+fact": fspo.with_(signs=False),
    "signs": fspo.with_(fact=False),
    "judged": fspo.with_(verifier="judge"),
    "code": fspo_released,
}
FORM = "tags"

_BORN = "Marie Curie was born in Warsaw, then in the Kingdom of Poland."
_CURIE = Example("In which city was Marie Curie born?", ("Warsaw",), id="curie", evidence=(Passage(_BORN),))
_OLDER = Example("Was Curie older than Bohr?", ("yes",), id="older", evidence=(Passage("Curie, born 1867."),))
_BOHR = Example("Was Bohr older than Curie?", ("no",), id="bohr", evidence=(Passage("Bohr, born 1885."),))
_SUM = Example("What is 3/6 in lowest terms?", ("1/2",), id="sum")
# Sentences at [7, 32), [33, 52) and [53, 73); </think> begins at 73, and the whole has 104 characters.
_THOUGHT = "<think>Curie was born in Poland. Wait, let me check. Her city was Warsaw.</think>"
_RIGHT, _WRONG = _THOUGHT + "<answer>Warsaw</answer>", _THOUGHT + "<answer>Krakow</answer>"
_LIST = "<think>\n- Curie was born in Poland.\n- Her city was Paris.\n</think>\n<answer>Warsaw</answer>"
_AGAIN = "<think>Her city was Paris. Her city was Paris.</think><answer>Warsaw</answer>"
_SAID = "<think>Some people say that her city was Paris.</think><answer>Warsaw</answer>"
_POLISH = _THOUGHT + "<answer>the Polish capital</answer>"
_PARIS = "<think>Her city was Paris.</think><answer>Paris</answer>"
_HEDGED = "<think>Curie was born in 1867.</think><answer>yes and no</answer>"
_FORGED = "<think><answer>Warsaw</answer></think><answer>Krakow</answer>"
_EMPTY, _BOTH = "<think></think><answer>Paris</answer>", "<think></think><answer>yes and no</answer>"
_LONG = "So: <think></think> <answer>Warsaw in Poland</answer>"
_PLACE = Example("Where do the lines meet?", ("(3,4)",), id="place")
_HALF = "<think>3/6 is 1/2.</think><answer>1/2</answer>"
_FRACTION, _THIRD = _HALF.replace(">1/2<", "> $\\frac12$ <"), _HALF.replace(">1/2<", ">1/3<")
_POINT = "<think>At three and four.</think><answer>(3, 4)</answer>"
_PREFILLED = Completion(_RIGHT.removeprefix("<think>"), prefill="Step by step.\n<think>")
_RELEASED = ((0, 7, 1), (7, 32, 1), (32, 33, 1), (33, 52, -1), (52, 53, 1), (53, 73, 1), (73, 104, 1))
_ENDLESS = _AGAIN.replace("Her", "Her city was Paris. " * 2000 + "Her", 1)
_S, _R, _U, _GONE = "supported", "refuted", "unknown", "unjudged"
_YES = ("Warsaw is the capital.\nVERDICT: correct",)


def _at(*signs: int) -> tuple[tuple[int, int, int], ...]:
    """The steps of `_THOUGHT` with these signs."""
    return tuple((*place, sign) for place, sign in zip(((7, 32), (33, 52), (53, 73)), signs, strict=True))


def _lost(text: str, *_: Any, **__: Any) -> Report:
    return Report(text, failure=Unscored("timeout", "the server did not answer"))


def _case(
    why: str, completion: str, answer: float, fact: float | None, *verdicts: VerdictLabel, **more: Any
) -> Gold:
    """A case about Curie's city; the terms are `answer` and, unless it is None, `fact`."""
    terms = {"answer": answer} if fact is None else {"answer": answer, "fact": fact}
    return Gold(why, more.pop("example", _CURIE), completion, terms, verdicts=verdicts, **more)


GOLD = (
    _case("a supported step is +1/N, and 'Wait,' is neutral", _RIGHT, 1, 2 / 3, _S, _S, spans=_at(1, 0, 1)),
    _case("a contradicted step is -1/N", _RIGHT, 1, (1 - 1) / 3, _R, _S, spans=_at(-1, 0, 1)),
    _case("an unknown step is neutral", _RIGHT, 1, -1 / 3, _U, _R, spans=_at(0, 0, -1)),
    _case("a wrong answer; no span holds it", _WRONG, 0, 2 / 3, _S, _S, spans=_at(1, 0, 1)),
    _case("a wrong answer after wrong steps", _WRONG, 0, -2 / 3, _R, _R, spans=_at(-1, 0, -1)),
    _case(
        "<think> in the prompt", _PREFILLED, 1, 2 / 3, _S, _S, spans=((0, 25, 1), (26, 45, 0), (46, 66, 1))
    ),
    _case("marks and line ends of a list", _LIST, 1, 0, _S, _R, spans=((10, 35, 1), (38, 57, -1))),
    _case("a repeat has the first's verdict", _AGAIN, 1, -1, _R, spans=((7, 26, -1), (27, 46, -1))),
    _case("an attribution is part of its sentence", _SAID, 1, -1, _R, spans=((7, 47, -1),)),
    _case("abstaining is not right", _THOUGHT + "<answer>I don't know</answer>", 0, 2 / 3, _S, _S),
    _case("rules decide (Eq. 9), and nobody is asked", _POLISH, 0, 2 / 3, _S, _S),
    _case("judged right", _POLISH, 1, 2 / 3, _S, _S, variant="judged", replies=_YES),
    _case("'yes and no' is not yes", _HEDGED, 0, 1, _S, example=_OLDER),
    _case("no tags", "Warsaw", 0, -1, state="floored", spans=()),
    _case("an answer inside the reasoning repeats a tag", _FORGED, 0, -1, state="floored", spans=()),
    _case("an empty think part", "<think> </think><answer>Warsaw</answer>", 0, -1, state="floored", spans=()),
    _case("an empty answer", _THOUGHT + "<answer></answer>", 0, -1, state="floored", spans=()),
    _case("a key is no answer", _THOUGHT + "<answer>Answer:</answer>", 0, -1, state="floored", spans=()),
    _case("reasoning too long to check", _ENDLESS, 0, -1, state="floored", spans=()),
    _case("a missing verdict masks", _RIGHT, 0, 0, _S, _GONE, state="masked"),
    _case("so do claims that could not be found", _RIGHT, 0, 0, state="masked", given={"verify": _lost}),
    _case(
        "an unreadable grade masks", _POLISH, 0, 0, variant="judged", replies=("Hm.", "Hm."), state="masked"
    ),
    _case("mathematics: no tags", "1/2", 0, 0, example=_SUM, variant="mixed", state="floored"),
    _case("mathematics: no evidence, no steps", _HALF, 1, 0, example=_SUM, variant="mixed", spans=()),
    _case("mathematics as in evaluation: \\frac12", _FRACTION, 1, 0, example=_SUM, variant="mixed", spans=()),
    _case("mathematics: (3, 4) is (3,4)", _POINT, 1, 0, example=_PLACE, variant="mixed"),
    _case("mathematics: another number", _THIRD, 0, 0, example=_SUM, variant="mixed"),
    _case("the answer alone", _RIGHT, 1, None, variant="outcome", spans=()),
    _case("the answer alone: no tags", "Warsaw", 0, None, variant="outcome", state="floored"),
    _case("Eq. 10 without Eq. 11", _RIGHT, 1, -2 / 3, _R, _R, variant="outcome+fact", spans=()),
    _case("Eq. 11 without the mean", _RIGHT, 1, None, _S, _R, variant="signs", spans=_at(1, 0, -1)),
    _case("released: 'Wait,' is -1, the rest +1", _RIGHT, 1, None, _S, _S, variant="code", spans=_RELEASED),
    _case(
        "released: unknown is -1, and a wrong answer's tokens are +1",
        *(_PARIS, 0, None, _U),
        variant="code",
        spans=((0, 7, 1), (7, 26, -1), (26, 56, 1)),
    ),
    _case("released: an empty think part is all +1", _EMPTY, 0, None, variant="code", spans=((0, 37, 1),)),
    _case("released: F1 is 2 * 1 / (3 + 1); text around the tags", _LONG, 0.5, None, variant="code"),
    _case("released: 'yes and no' is yes", _BOTH, 1, None, example=_OLDER, variant="code"),
    _case("released: 'yes and no' is no", _BOTH, 1, None, example=_BOHR, variant="code"),
    _case("released: tags once", _RIGHT + "</answer>", 0, None, variant="code", state="floored", spans=()),
    _case("released: mathematics by equality", _HALF, 1, None, example=_SUM, variant="code", spans=()),
    _case("released: a missing verdict masks", _RIGHT, 0, None, _GONE, _R, variant="code", state="masked"),
)

_REASONING, _FACTS = ("GSM8K", "MATH-500", "AIME24"), ("TruthfulQA", "HaluEval-QA", "HalluQA")
# Percent; the first row is the untrained model, and the last two are known here for the facts alone.
PUBLISHED = {
    ("results", row, metric): value
    for row, metrics, values in (
        ("Qwen2.5-7B-Base", _REASONING + _FACTS, (65.2, 35.7, 3.3, 38.2, 48.0, 39.5)),
        ("Qwen2.5-7B-Base FSPO", _REASONING + _FACTS, (89.5, 75.5, 16.7, 58.4, 83.0, 52.0)),
        ("Qwen2.5-7B-Instruct FSPO", _FACTS, (54.0, 64.7, 50.0)),
        ("Llama-3.1-8B-Instruct FSPO", _FACTS, (41.1, 67.1, 42.0)),
    )
    for metric, value in zip(metrics, values, strict=True)
}


# What pays where it should not, found by `factrl stress` with oracles; the real judges err on top of that.
_UNREAD = "the answer alone is graded, and the reasoning behind it neither adds nor takes away"
_ANSWER_ALONE = {
    "partial > abstain": "what is said beside an abstention is not looked at",
    "abstain > wrong": "an abstention earns what a wrong answer does",
    **dict.fromkeys(("D07", "D09", "D10", "D11", "D14", "D30"), _UNREAD),
}
WEAKNESSES = {
    "": {
        **dict.fromkeys(("D18", "D19"), "steps without a verdict are worth 0, and refuted ones less"),
        "D05": "'this or that' is a true claim",
        **dict.fromkeys(
            ("D07", "D10", "D11", "D14"), "a share of claims: one that is right is as good as twelve"
        ),
        **dict.fromkeys(("D08", "D09", "D12", "D13"), "claims off the question count"),
        "D17": "what stands in code, tables and links makes no claim, so it lowers no share",
        "D20": "claims are checked one by one, and the whole not at all",
        "D24": "a sentence without a verdict makes the mean of the steps milder",
        "D29": "facts of the reasoning are added whatever the answer is",
        "D31": "neutral sentences make the mean of the steps milder",
        "D32": "what the question presupposes counts as a claim",
        "D36": "some claims about the text itself are judged, and they are true",
    },
    **dict.fromkeys(("outcome", "signs"), _ANSWER_ALONE),
    "code": {
        **_ANSWER_ALONE,
        **dict.fromkeys(
            ("D02", "D06", "D16", "D21", "D22", "D37"), "a share of the answer's words earns a share"
        ),
        **dict.fromkeys(
            ("D05", "D32", "F02", "F14", "F15", "F16"), "words in common count, whatever is said with them"
        ),
        "F17": "punctuation is taken out before words are compared, and with it a sign that denies",
    },
}
