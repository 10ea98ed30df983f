"""A judge's reply is read as a person would read it, or as no verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.errors import Unscored
from factrl.llm.replies import read_supported, read_true_false, read_verdict, read_verdicts
from factrl.rewards.grading import read_letter
from factrl.verifier.claims.llm import read_facts

IDS = ("a1b2", "c3d4", "e5f6")


def line(id_: object, verdict: object, quote: str = "") -> str:
    return json.dumps({"id": id_, "quote": quote, "verdict": verdict})


def labels(reply: str, ids: tuple[str, ...] = IDS) -> list[str]:
    """The label of each id, or the cause why there is none."""
    verdicts = read_verdicts(reply, ids)
    assert [*verdicts] == [*ids]
    return [answer.cause if isinstance(answer, Unscored) else answer.label for answer in verdicts.values()]


ALL = [line("a1b2", "supported"), line("c3d4", "refuted"), line("e5f6", "unknown")]
UNREADABLE = "judge_unreadable"


# ---------------------------------------------------------------- several claims


@pytest.mark.parametrize(
    "reply",
    [
        "\n".join(ALL[::-1]),
        f"[{', '.join(ALL)}]",
        f'{{"verdicts": [{", ".join(ALL)}]}}',
        "```json\n" + "\n".join(ALL) + "\n```",
        "Here is what the passages say:\n" + "\n\n".join(ALL) + "\nI hope this helps!",
        'The claim "born 5\' 2" tall" is odd:\n' + "\n".join(ALL),
        "<think>" + line("a1b2", "refuted") + "</think>" + "".join(ALL),
        "\r\n".join([*ALL, ALL[0]]),
        json.dumps([json.loads(one) for one in ALL], indent=2),
        "\n".join(ALL).replace("supported", "**Supported**").replace("refuted", "Refuted."),
    ],
)
def test_verdicts_are_matched_by_id(reply: str) -> None:
    assert labels(reply) == ["supported", "refuted", "unknown"]


@pytest.mark.parametrize(
    ("second", "cause"),
    [
        ("", "no verdict on claim 'c3d4'"),
        (line("c3d4", "NOT supported"), "'not supported', not supported|refuted|unknown"),
        (line("c3d4", "Unsupported"), "'unsupported'"),
        (line("c3d4", "supported|refuted"), r"'supported\|refuted'"),
        (line("c3d4", "supported, I think"), "'supported, i think'"),
        (line("c3d4", "\u0455upported"), "upported'"),
        (line("c3d4", 10), "'10'"),
        (line("c3d4", None), "'null'"),
        ('{"id": "c3d4", "verdict": NaN}', "no verdict on claim"),
        ('{"id": "c3d4", "verdict": {"is": "supported"}}', "no verdict on claim"),
        ('{"id": "c3d4", "verdict": "refuted", "verdict": "supported"}', "no verdict on claim"),
        ('{"id": "c3d4", "verdict": "supported"', "no verdict on claim"),
        ("c3d4: supported", "no verdict on claim"),
        (line("c3d4", "supported") + "\n" + line("c3d4", "refuted"), "several verdicts"),
        (line("c3d4", "supported") + "\n" + line("c3d4", "perhaps"), "several verdicts"),
    ],
)
def test_a_claim_without_a_clear_verdict_has_none_and_the_others_keep_theirs(second: str, cause: str) -> None:
    reply = "\n".join([ALL[0], second, ALL[2]])
    assert labels(reply) == ["supported", UNREADABLE, "unknown"]
    with pytest.raises(Unscored, match=cause):
        raise read_verdicts(reply, IDS)["c3d4"]  # type: ignore[misc]


@pytest.mark.parametrize(
    "extra",
    [
        line("ffff", "supported"),
        line("A1B2", "supported"),
        line("", "supported"),
        line(None, "supported"),
        line("a1b2, c3d4", "supported"),
        '{"verdict": "supported"}',
    ],
)
def test_a_verdict_on_another_claim_rejects_the_reply(extra: str) -> None:
    assert labels("\n".join([*ALL, extra])) == [UNREADABLE] * 3
    assert labels(extra) == [UNREADABLE] * 3


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("I can't help with that", "judge_refusal"),
        ("I’m sorry, but I cannot assess these claims, because …", "judge_refusal"),
        ("I cannot grade this.", "judge_refusal"),
        ("", UNREADABLE),
        ("Error 503", UNREADABLE),
        ("supported", UNREADABLE),
        ("A", UNREADABLE),
        ("All claims are supported.", UNREADABLE),
        ('["supported", "supported", "supported"]', UNREADABLE),
        ("<think>" + "\n".join(ALL), UNREADABLE),
        ("<think>" + "\n".join(ALL) + "</think>", UNREADABLE),
        # the data line, repeated by a judge that answers nothing
        ('{"passages": [], "claims": [{"id": "a1b2", "claim": "x"}]}', UNREADABLE),
    ],
)
def test_no_verdict_at_all(reply: str, cause: str) -> None:
    assert labels(reply) == [cause] * 3


# What a judge copies into its quote, as it stands in the evidence; its line is no JSON then.
QUOTES = [
    *(
        'The "Sphinx" is in Giza.',
        '"Sphinx"',
        "It is 5' 2\" tall.",
        "Two\nlines.",
        "Two\r\nlines\tand a tab.",
    ),
    *("C:\\path\\to", "\\alpha is \\beta.", "It ends in a backslash \\", 'a {brace} "b" [c]', "\\u12"),
]
ORDERS = [
    '{{"id": "{id}", "quote": "{quote}", "verdict": "{verdict}"}}',
    '{{"id":"{id}","quote":"{quote}","verdict":"{verdict}"}}',
    '{{\n  "id": "{id}",\n  "quote": "{quote}",\n  "verdict": "{verdict}"\n}}',
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("quote", QUOTES)
def test_a_quote_that_cannot_be_read_costs_the_quote_and_not_the_verdict(quote: str, order: str) -> None:
    for verdict in ("supported", "refuted", "unknown"):
        broken = order.format(id="c3d4", quote=quote, verdict=verdict)
        for reply in (
            "\n".join([ALL[0], broken, ALL[2]]),
            "\n".join([broken, ALL[0], ALL[2]]) + "<|im_end|>",
            "\n".join([ALL[2], ALL[0], broken]),
            f"```json\n[{ALL[0]},\n{broken},\n{ALL[2]}]\n```",
        ):
            assert labels(reply) == ["supported", verdict, "unknown"]


def test_a_comma_too_many_costs_nothing() -> None:
    assert labels('{"id": "a1b2", "verdict": "supported",}', ("a1b2",)) == ["supported"]


@pytest.mark.parametrize(
    "reply",
    [
        '{"id": "a1b2", "quote": "He said "x", "verdict": "supported"}, "verdict": "refuted"}',
        '{"id": "a1b2", "quote": "a", "verdict": "supported"}", "verdict": "refuted"}',
        '{"id": "a1b2", "verdict": "refuted", "quote": "a", "verdict": "supported"}"}',
        '{"id": "a1b2", "verdict": "refuted", "quote": "see {"id": "a1b2", "verdict": "supported"} there"}',
        '{"id": "a1b2", "verdict": "refuted", "quote": "see\n{"id": "a1b2", "verdict": "supported"}\n"}',
        '{"id": "a1b2", "quote": "see\n{"id": "a1b2", "verdict": "supported"}\n", "verdict": "refuted"}',
        '{"quote": "see\n{"id": "a1b2", "verdict": "supported"}\n", "id": "a1b2", "verdict": "refuted"}',
        '{"id": "a1b2", "quote": "a "b"", "verdict": "supported", "x": ", "verdict": "refuted"}',
        '{"id": "a1b2", "quote": "The "Sphinx" is in Giza.", "verdict": "supp',
        '{"id": "a1b2", "quote": "The "Sphinx" is in Giza.", "verdict": "suppor"ted"}',
        '{"id": "a1b2", "quote": "The "Sphinx" is in Giza. verdict: supported"}',
    ],
)
def test_a_verdict_in_a_quote_is_none(reply: str) -> None:
    assert labels(reply, ("a1b2",)) == [UNREADABLE]


@pytest.mark.parametrize(
    "end", ["<|im_end|>", "</s>", "<|eot_id|>", "<end_of_turn>\n", " <|endoftext|>", "\n```", "\n~~~\n"]
)
@pytest.mark.parametrize("fence", ["", "```\n", "```text\n"])
def test_fences_and_ends_of_a_turn_are_no_part_of_a_reply(fence: str, end: str) -> None:
    assert read_verdict(f"It is.\n{fence}VERDICT: correct{end}", ("correct", "incorrect")) == "correct"
    assert read_true_false(f"{fence}True{end}") == "supported"
    assert read_facts(f"{fence}- Rome is old.{end}") == ["Rome is old."]
    assert read_letter(f"{fence}A{end}") == "correct"
    with pytest.raises(Unscored):
        read_verdict(f"VERDICT: correct<|im_end|>\nVERDICT: incorrect{end}", ("correct", "incorrect"))


BOMBS = [
    '{"id": "a", "quote": "' * 3_000,
    '{"id": "a1b2", "quote": "' + '", ' * 20_000 + '"verdict": "x"}',
    "</s>" * 16_000,
    "[" * 50_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    '{"id": "a1b2", "verdict": -' + "9" * 50_000 + "}",
    '{"id": "a1b2", "verdict": 1e' + "9" * 5_000 + "}",
    '{"id": "a1b2", ' + '"verdict": "supported", ' * 2_000 + '"x": 1}',
    '"' + '\\"' * 30_000,
    '{"id": "a1b2", "verdict": "' + "supported" * 7_000 + '"}',
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:24])
def test_a_json_bomb_is_no_verdict(bomb: str) -> None:
    started = time.thread_time()
    assert labels(bomb, ("a1b2",)) == [UNREADABLE]
    assert time.thread_time() - started < 1.0


@given(st.text(max_size=300), st.sampled_from(ALL), st.text(max_size=300))
def test_noise_never_changes_a_verdict_into_another(before: str, record: str, after: str) -> None:
    id_, verdict = json.loads(record)["id"], json.loads(record)["verdict"]
    assert labels(f"{before}\n{record}\n{after}", (id_,))[0] in (verdict, UNREADABLE, "judge_refusal")


# ---------------------------------------------------------------- one claim, published words


def read(reader: Callable[[str], str], reply: str) -> str:
    try:
        return reader(reply)
    except Unscored as error:
        return error.cause


NO_VERDICT = [
    *("", " \n ", "Error 503", "Rate limit reached for a model", "No", "Yes", "A", "10"),
    *("B: the answer names a different person", "This is a wrong answer. INCORRECT", "supported" * 20_000),
]
REFUSALS = ["I can't help with that", "I cannot grade this.", "I'm sorry, but I can't."]

TRUE_FALSE = [
    ("True", "supported"),
    ("**True**", "supported"),
    ("Output:\nTrue", "supported"),
    ("The claim is true.", "supported"),
    ("True because the second passage says so.", "supported"),
    ("True, not false", "supported"),
    ("The passage gives 1867.\n\nTrue", "supported"),
    ("<think>False? No.</think>True", "supported"),
    ("False.", "refuted"),
    ("The answer is: **False**.", "refuted"),
    ("It is false that she was born in 1868.", "refuted"),
    ("False. It would be true if she had been born in 1868.", "refuted"),
    ("The statement is not true.", "refuted"),
    ("The claim isn't true.", "refuted"),
]
NOT_TRUE_FALSE = [
    *(
        "True or False",
        "True/False",
        "True. Wait, it is false.",
        "False? True.",
        "Partially true",
        "Not false",
    ),
    *("Untrue", "true-ish", "True love is a film.", "If true, it would be in the passage."),
    *("I think it could be true.", "Unsupported.", "Supported"),
    # a base model that goes on with the next question
    "True\n\nInput: He died in Rome. True or False?\nOutput: False",
]

SUPPORTED = [
    ("Supported.", "supported"),
    ("**Supported**", "supported"),
    ("Your decision: ###Supported.###", "supported"),
    ("<think>###Not Supported.###?</think>\n\n###Supported.###", "supported"),
    ("The second result gives the year.\n###Supported.###", "supported"),
    ("The claim is supported by result 2.", "supported"),
    ("###Supported.###\nThe claim is not contradicted by any result.", "supported"),
    ("###Not Supported.###", "unknown"),
    ("Not supported. It would be supported if a result gave the year.", "unknown"),
    ("Unsupported.", "unknown"),
    ("The claim isn't supported.", "unknown"),
    ("###Inconclusive.###", "unknown"),
    ("###Contradicted.###", "refuted"),
]
NOT_SUPPORTED_OR_NOT = [
    *("Supported or not supported?", "###Supported.### ###Not Supported.###", "Supported. Not supported."),
    *("###Supported.###\nNo: ###Contradicted.###", "Partially supported", "Well-supported", "True"),
    *("This would be supported if a result gave the year.", "###.###"),
]


@pytest.mark.parametrize(
    ("reader", "clear", "unclear"),
    [(read_true_false, TRUE_FALSE, NOT_TRUE_FALSE), (read_supported, SUPPORTED, NOT_SUPPORTED_OR_NOT)],
)
def test_one_verdict_in_published_words(
    reader: Callable[[str], str], clear: list[tuple[str, str]], unclear: list[str]
) -> None:
    wanted = {
        **dict(clear),
        **dict.fromkeys([*NO_VERDICT, *unclear], UNREADABLE),
        **dict.fromkeys(REFUSALS, "judge_refusal"),
    }
    assert {reply: read(reader, reply) for reply in wanted} == wanted
