"""A notebook from a script in cells, run and kept with its outputs; and the check that these are of these very cells.

``python -m wager.bench.notebook docs/notebooks/speculative_sampling.py`` runs it and writes the .ipynb beside it;
``--quick`` runs it at its smaller setting and writes nothing; ``--text`` brings only the text between the code up to
date; ``--check`` does nothing else than all of them do at the end: fail where the .ipynb was made of other cells.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wager.types import JSON

_CELL = re.compile(r"^# %%(?P<markdown> \[markdown\])?\n", re.MULTILINE)
_QUICK = "WAGER_NOTEBOOK"  # "quick" asks a notebook for its smaller setting
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_TIMEOUT_S = 900


def cells_of(script: str) -> list[tuple[str, str]]:
    """(kind, source) of a script's cells: ``# %%`` begins code, ``# %% [markdown]`` begins comments that are text."""
    starts = list(_CELL.finditer(script))
    ends = [*(match.start() for match in starts[1:]), len(script)]
    cells = []
    for match, end in zip(starts, ends, strict=True):
        source = script[match.end() : end].strip("\n")
        if match["markdown"]:
            cells.append(("markdown", "\n".join(re.sub("^# ?", "", line) for line in source.split("\n"))))
        else:
            cells.append(("code", source))
    return cells


def digest(cells: list[tuple[str, str]]) -> str:
    """Of the code, in order: what outputs depend on."""
    return hashlib.sha256(json.dumps([source for kind, source in cells if kind == "code"]).encode()).hexdigest()


def problems(script: str, notebook: JSON) -> list[str]:
    """Why the outputs of ``notebook`` cannot be those of ``script``; empty where they are."""
    wanted = cells_of(script)
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    said = []
    if found != wanted:
        said.append("its cells are not the script's")
    if notebook["metadata"].get("wager", {}).get("code_sha256") != digest(wanted):
        said.append("its outputs were made by other code")
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        said.append("its cells were not run in order, each once")
    return [*said, *(f"an output says {text!r}" for text in _bad_words(notebook))]


def _bad_words(notebook: JSON) -> Iterator[str]:
    """Errors and places on the machine that ran it, in outputs of text."""
    places = [str(Path.home()), str(Path.cwd()), os.environ.get("WAGER_HOME", "")]
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            text = json.dumps({key: value for key, value in output.items() if key != "data"})
            text += json.dumps({k: v for k, v in output.get("data", {}).items() if not k.startswith("image/")})
            if output["output_type"] == "error":
                yield str(output["ename"])
            yield from (place for place in places if len(place) > 5 and place in text)
            yield from re.findall(r"/(?:home|tmp|root|Users)/\w+", text)


def run(script: str, *, quick: bool) -> JSON:
    """The notebook with its outputs, which a fresh kernel made. Raises nbclient's error where a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    cells = cells_of(script)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.from_dict(cell) for cell in _empty(cells)])
    notebook.metadata = {"kernelspec": _KERNEL, "wager": {"code_sha256": digest(cells)}}
    before = os.environ.get(_QUICK)
    os.environ[_QUICK] = "quick" if quick else "full"
    try:
        NotebookClient(notebook, timeout=_TIMEOUT_S, record_timing=False).execute()
    finally:
        os.environ.pop(_QUICK) if before is None else os.environ.__setitem__(_QUICK, before)
    notebook.metadata.pop("language_info", None)
    made: JSON = json.loads(nbformat.writes(notebook))
    return made


def _empty(cells: list[tuple[str, str]]) -> list[JSON]:
    """Cells without outputs; ids count, since random ones would change with every run."""
    code: JSON = {"execution_count": None, "outputs": []}
    return [
        {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": source, **(code if kind == "code" else {})}
        for i, (kind, source) in enumerate(cells)
    ]


def retold(script: str, notebook: JSON) -> JSON:
    """``notebook`` with the text of ``script`` between its code cells, whose outputs stay."""
    run_cells = iter([cell for cell in notebook["cells"] if cell["cell_type"] == "code"])
    cells = _empty(cells_of(script))
    for cell in cells:
        old = next(run_cells, None) if cell["cell_type"] == "code" else None
        if old is not None and "".join(old["source"]) == cell["source"]:
            cell |= {name: old[name] for name in ("execution_count", "outputs")}
    return {**notebook, "cells": cells}


def main(argv: list[str] | None = None) -> int:
    """0 where the .ipynb is what it should be, 1 where it is not, each reason a line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked: Any = parser.parse_args(argv)
    script, path = asked.script.read_text(encoding="utf-8"), asked.script.with_suffix(".ipynb")
    if asked.text and path.is_file():
        _write(path, retold(script, json.loads(path.read_text(encoding="utf-8"))))
    elif not (asked.check or asked.text):
        made = run(script, quick=asked.quick)
        if not asked.quick:
            _write(path, made)
    if not path.is_file():
        print(f"{path} is not there: python -m wager.bench.notebook {asked.script}", file=sys.stderr)
        return 1
    said = problems(script, json.loads(path.read_text(encoding="utf-8")))
    for reason in said:
        print(f"{path}: {reason}: make notebook", file=sys.stderr)
    return 1 if said else 0


def _write(path: Path, notebook: JSON) -> None:
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
