"""Scripts of a recipe's folder, run in this process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

# In the place of VeriScore's program: a claim for each word, of which those in capitals are supported.  As
# that does, it divides by 0 at its end where an answer has no claim.
VERISCORE = """
import json, sys
told = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rows = [json.loads(line) for line in open(f"{told['--data_dir']}/{told['--input_file']}")]
import os; os.makedirs(f"{told['--output_dir']}/model_output", exist_ok=True)
name = told["--input_file"].rpartition(".")[0]
with open(f"{told['--output_dir']}/model_output/verification_{name}_2.jsonl", "w") as file:
    for row in rows:
        words = [word for word in row["response"].split() if word != "none"]
        said = ["supported" if word.isupper() else "unsupported" for word in words]
        found = [{"claim": c, "verification_result": v} for c, v in zip(words, said)]
        file.write(json.dumps({**row, "claim_verification_result": found}) + "\\n")
open("calls", "a").write(os.environ["SERPER_KEY_PRIVATE"])
1 / 0
"""


def load(path: Path) -> Any:
    """A script as a module of its own; other folders have scripts of the same name."""
    spec: Any = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(path: Path, *words: str) -> None:
    """Run its `main` with these words."""
    load(path).main(list(words))
