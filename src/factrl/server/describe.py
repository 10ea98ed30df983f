"""The server's OpenAPI description: `python -m factrl.server.describe > docs/openapi.json`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from factrl.llm.store import Store

from .app import make_api
from .service import Service

ROUTES = "1"  # their version, as in /v1/score; a server at work says which factrl it is instead


def description(folder: Path) -> dict[str, Any]:
    """What the routes take and give; nothing is served, but a store needs a folder."""
    found = make_api(Service({}, None, None, Store(folder / "answers.db"))).openapi()
    return {**found, "info": {**found["info"], "version": ROUTES}}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(json.dumps(description(Path(scratch)), indent=2) + "\n")
