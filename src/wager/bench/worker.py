"""The process of a peer: one JSON line in, one out. Run as a file, by any Python: ``worker.py ENGINE OPTIONS``.

ENGINE names a file beside this one with ``load(options)``, which gives what answers a question and what it runs with.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    engine, options = sys.argv[1], json.loads(sys.argv[2])
    # Whatever the libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(row: dict[str, Any]) -> None:
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    try:
        spec = importlib.util.spec_from_file_location(engine, Path(__file__).with_name(f"{engine}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        generate, settings = module.load(options)
        tell(settings)
        for line in sys.stdin:
            tell(generate(json.loads(line)))
    except Exception as error:
        tell({"error": str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__})
        raise


if __name__ == "__main__":
    main()
