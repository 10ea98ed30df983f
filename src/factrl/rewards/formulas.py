"""The process that `factrl.rewards.mathematics` asks: `[gold, answer]` in, `true` or `false` out, by line."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Answer lines until there are no more."""
    import logging

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
        sys.stdout.write("true\n" if same else "false\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
