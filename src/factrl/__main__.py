"""The command `factrl`, and `python -m factrl`; the command line may be interrupted while it is imported."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command of this process; returns the exit code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its hints would stand amid our progress
    try:
        from .cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("factrl: interrupted\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
