r"""Mathematical answers: where they stand in a text, and whether two of them are the same.

A text's answer is its last `\boxed{…}`, else, where a number is asked for, its last number.  Equal texts and
equal plain numbers are decided by our own rules; the rest by math-verify (github.com/huggingface/Math-Verify)
in a process of its own, which is ended when it takes too long: a formula that a model wrote can keep a
computer algebra system busy for ever.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import logging
import re
import subprocess
import sys
import threading
from functools import cache
from typing import Any

from factrl.errors import MissingExtra, Unscored
from factrl.text import boxed, unwrap_latex
from factrl.text.words import parse_number
from factrl.types import Grade

MAX_FORMULA = 2_000  # characters of an answer that are compared
SECONDS = 10.0  # for one comparison
START_SECONDS = 60.0  # for the first one, which loads sympy

_NUMBER = re.compile(  # thousands apart as `parse_number` reads them
    r"[-−]?(?:\b\d{1,3}(?:[ \u00a0\u202f]\d{3}){1,12}(?![\d,])|\d[\d,]{0,40})(?:\.\d{1,40})?"
)
_AROUND = re.compile(r"^(?:\\text\{([^{}]*)\}|\\\$|\$|\\\(|\\\[|\*|\s)+|(?:\\\)|\\\]|\$|\*|\.|\s)+$")


def final_result(text: str, *, number: bool) -> str | None:
    """The answer that a worked solution ends with: its last box, else, for a `number`, the last one in it."""
    box = boxed(text)
    if box is not None:
        return box.text.strip() or None
    numbers = _NUMBER.findall(text) if number else []
    return numbers[-1].rstrip(",") if numbers else None


def _bare(text: str) -> str:
    return _AROUND.sub("", text.strip()).strip()


def is_number(text: str) -> bool:
    """Whether a reference answer is one plain number."""
    return parse_number(text.replace("\\!", "").strip()) is not None


@cache
def math_grader() -> MathGrader:
    """The one of this process; its own process is started with the first comparison that needs it."""
    grader = MathGrader()
    atexit.register(grader.close)
    return grader


class MathGrader:
    """Says whether two answers are equal, from any thread.

    Args:
        seconds: how long one comparison may take.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def grade(self, text: str, gold: str) -> Grade:
        """What became of a worked solution whose answer should be `gold`; raises as `compare`."""
        answer = final_result(text, number=is_number(gold))
        if answer is None:
            return Grade("incorrect", "", how="gate", floored="no_answer")
        return self.compare(answer, gold)

    def compare(self, answer: str, gold: str) -> Grade:
        """What became of an answer that stands alone and should be `gold`.

        Raises:
            MissingExtra: math-verify is needed and not installed.
            Unscored: `math_failed`, the comparison itself broke.
        """
        if len(answer) > MAX_FORMULA:
            return Grade("incorrect", answer[:200], how="gate", floored="oversize_answer")
        same = _same_by_rule(answer, gold)
        if same is not None:
            return Grade("correct" if same else "incorrect", answer, how="rules")
        try:
            equal = self.equal(answer, gold)
        except TimeoutError:  # the answer did that: a mask would let a model choose not to be graded
            return Grade("incorrect", answer, how="gate", floored="endless_formula")
        except Unscored:
            self.equal(gold, gold)  # raises again when it was not the answer that broke it
            return Grade("incorrect", answer, how="gate", floored="broken_formula")
        return Grade("correct" if equal else "incorrect", answer, how="math")

    def equal(self, answer: str, gold: str) -> bool:
        """Whether math-verify takes two formulas for the same; raises as `compare`, and `TimeoutError`."""
        if importlib.util.find_spec("math_verify") is None:
            raise MissingExtra("math-verify", "eval")
        with self._lock:
            limit = self.seconds if self._process else START_SECONDS
            process = self._process = self._process or _started()
            ended = threading.Event()
            timer = threading.Timer(limit, lambda: (ended.set(), process.kill()))
            timer.start()
            reply = _asked(process, json.dumps([gold, answer]))
            timer.cancel()
            timer.join()  # from here on it kills nothing
            if reply not in ("true", "false") or ended.is_set():
                self._stop()
            if ended.is_set():
                raise TimeoutError
        if reply not in ("true", "false"):
            raise Unscored("math_failed", reply or "the process of math-verify ended")
        return reply == "true"

    def close(self) -> None:
        """End the process of math-verify; the next comparison starts another."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes its pipes and waits for its end
                self._process = None


def _started() -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
    return subprocess.Popen(  # noqa: S603  # nothing of the command is anybody's text
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    )


def _asked(process: Any, line: str) -> str:
    """The line that the process answers; empty when it has ended."""
    try:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()
    except BrokenPipeError:
        return ""


def _answer_lines() -> None:
    """The process that is asked: `[gold, answer]` in, `true` or `false` out, by line."""
    import math_verify

    parse: Any = math_verify.parse  # typed as if a time limit had to be a number
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        # Without math-verify's own time limits: they need a signal, and whoever asks ends this process.
        gold, answer = (
            parse(f"\\boxed{{{text}}}", parsing_timeout=None, raise_on_error=False)
            for text in json.loads(line)
        )
        same = bool(gold) and bool(answer) and math_verify.verify(gold, answer, timeout_seconds=None)
        print("true" if same else "false", flush=True)  # noqa: T201  # to whoever asks


def _same_by_rule(answer: str, gold: str) -> bool | None:
    """What our own rules can tell; None leaves it to math-verify."""
    answer, gold = unwrap_latex(answer), unwrap_latex(gold)
    numbers = [parse_number(_bare(text).replace("\\!", "").rstrip("%")) for text in (answer, gold)]
    if numbers[0] is not None and numbers[1] is not None and "%" not in answer + gold:
        return numbers[0] == numbers[1]
    return True if _spaceless(answer) == _spaceless(gold) else None


def _spaceless(text: str) -> str:
    return re.sub(r"\s|\$|\\[!,;]", "", text)


if __name__ == "__main__":
    _answer_lines()
