"""The notebook that is kept: its outputs are of its cells. And the check itself, on a notebook made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wager.bench.notebook import cells_of, digest, main, problems, retold

SHIPPED = Path(__file__).parents[2] / "docs" / "notebooks" / "speculative_sampling.py"
SCRIPT = """# %% [markdown]
# # Title
#
# Some $x$ text.

# %%
a = 1


# %%
print(a)
"""


def made(script: str = SCRIPT, output: str = "1\n") -> dict[str, Any]:
    """What running ``script`` would leave."""
    cells: list[dict[str, Any]] = []
    for kind, source in cells_of(script):
        cell: dict[str, Any] = {"cell_type": kind, "source": source, "metadata": {}}
        if kind == "code":
            number = 1 + sum(c["cell_type"] == "code" for c in cells)
            cell |= {
                "execution_count": number,
                "outputs": [{"output_type": "stream", "name": "stdout", "text": output}],
            }
        cells.append(cell)
    return {"cells": cells, "metadata": {"wager": {"code_sha256": digest(cells_of(script))}}}


def test_a_script_is_cut_into_cells() -> None:
    assert cells_of(SCRIPT) == [
        ("markdown", "# Title\n\nSome $x$ text."),
        ("code", "a = 1"),
        ("code", "print(a)"),
    ]


def test_outputs_of_these_cells_are_current() -> None:
    assert problems(SCRIPT, made()) == []


@pytest.mark.parametrize("change", [("a = 1", "a = 2"), ("# %%\nprint", "print")])
def test_changed_code_makes_outputs_stale(change: tuple[str, str]) -> None:
    changed = SCRIPT.replace(*change)
    assert "its outputs were made by other code" in problems(changed, made())
    assert problems(changed, retold(changed, made())), "new text around it does not help"


def test_text_can_be_changed_without_a_run() -> None:
    changed = SCRIPT.replace("Some", "Other")
    assert problems(changed, made()) == ["its cells are not the script's"]
    again = retold(changed, made())
    assert problems(changed, again) == []
    assert again["cells"][2]["outputs"] == made()["cells"][2]["outputs"]


def test_changed_cells_make_outputs_stale() -> None:
    notebook = made()
    notebook["cells"][1]["source"] = "a = 7"
    assert problems(SCRIPT, notebook) == ["its cells are not the script's"]


def test_cells_run_out_of_order_are_no_record() -> None:
    notebook = made()
    notebook["cells"][1]["execution_count"] = 5
    assert problems(SCRIPT, notebook) == ["its cells were not run in order, each once"]


def test_errors_and_places_of_the_machine_are_seen() -> None:
    assert problems(SCRIPT, made(output="in /home/somebody/x")) == ["an output says '/home/somebody'"] * 2
    notebook = made()
    notebook["cells"][1]["outputs"] = [{"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}]
    assert problems(SCRIPT, notebook) == ["an output says 'ValueError'"]


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "n.py"
    script.write_text(SCRIPT)
    assert main([str(script), "--check"]) == 1
    assert "is not there" in capsys.readouterr().err
    (tmp_path / "n.ipynb").write_text(json.dumps(made()))
    assert main([str(script), "--check"]) == 0
    script.write_text(SCRIPT.replace("a = 1", "a = 3"))
    assert main([str(script), "--check"]) == 1
    assert "make notebook" in capsys.readouterr().err


def test_the_notebook_that_is_kept_is_current() -> None:
    notebook = json.loads(SHIPPED.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert problems(SHIPPED.read_text(encoding="utf-8"), notebook) == []
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    n_figures = sum("image/png" in output.get("data", {}) for output in outputs)
    assert n_figures >= 4, "figures are kept in the notebook"
