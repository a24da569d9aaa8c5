"""The shape of the package: who may import whom, how long files and functions are, and what import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "wager"
FILES = sorted(SRC.rglob("*.py"))
CHECKED = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]

# Layers from the bottom up; a module may import its own layer and those below it.
LAYERS = [
    {"types", "errors", "constraint", "request"},
    {
        "sampling",
        "verify",
        "tree",
        "admit",
        "cache",
        "view",
        "pack",
        "schedule",
        "waiting",
        "record",
        "cost",
        "stopwatch",
        "home",
        "text",
        "commit",
        "machine",
        "compiled",
        "wide",
        "interrupt",
        "intervals",
        "journal",
        "doctor",
        "corpus",
        "stores",
        "nearest",
        "hidden",
        "guided",
        "grammar",
        "matcher",
        "schema",
        "rounds",
    },
    {"engine", "drafters", "policies", "models", "calibrate", "proof", "replay", "testing", "testing_rules"},
    {"llm", "completion", "score", "asks", "decide", "drafting", "measured", "explained", "tune_skip"},
    {"serve", "cli", "bench", "lm_eval", "tuning"},
]
# Plug-ins know the nouns and the mathematics only (and where files live, and text).
PLUGINS = {"drafters", "policies", "models"}
PLUGIN_MAY = {
    "types",
    "errors",
    "sampling",
    "cost",
    "stopwatch",
    "home",
    "text",
    "record",
    "cache",
    "pack",
    "tree",
    "stores",
    "nearest",
    "wide",
}
# A model drafter opens a model, and must know what ends the target's answer; what was tuned is kept per machine.
EXTRA = {"drafters": {"models", "commit", "machine"}, "models": {"machine", "compiled"}}


def module(path: Path) -> str:
    """First part of a module's name below wager; the package itself is "wager"."""
    name = path.relative_to(SRC).parts[0].removesuffix(".py")
    return "wager" if name == "__init__" else name


def imports(path: Path) -> set[str]:
    """First parts of the wager modules a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update([node.module] if node.module != "wager" else (f"wager.{alias.name}" for alias in node.names))
    return {name.split(".")[1] for name in found if name and name.startswith("wager.")}


def layer(name: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize("path", [p for p in FILES if module(p) != "wager"], ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_downwards(path: Path) -> None:
    own = module(path)
    above = {name for name in imports(path) - {own} if layer(name) > layer(own)}
    assert not above, f"{own} imports {above}"
    if own in PLUGINS:
        strange = imports(path) - {own} - PLUGIN_MAY - EXTRA.get(own, set())
        assert not strange, f"{own} imports {strange}"


@pytest.mark.parametrize("path", CHECKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    limit = 150 if path.parent == SRC / "cli" else 400
    assert source.count("\n") <= limit, f"{path.name}: {source.count(chr(10))} lines, at most {limit}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # A command's parameters are a table of options; only its body is code.
            first = node.body[0].lineno if path.parent == SRC / "cli" else node.lineno
            lines = (node.end_lineno or 0) - first + 1
            assert lines < 50, f"{path.name}: {node.name} has {lines} lines"


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import wager",
        "from wager import Sampling, WagerError, Text, Event, RunStats",
        "import wager.engine, wager.text, wager.drafters, wager.policies, wager.verify",
        "from wager.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from wager.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_import_is_cheap(code: str) -> None:
    heavy = {"openvino", "openvino_genai", "openvino_tokenizers", "huggingface_hub", "gguf", "rich", "torch"}
    assert not heavy & loaded_after(code)


def test_help_needs_no_numpy_and_a_command_loads_no_other() -> None:
    modules = loaded_after("from wager.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass")
    assert "numpy" not in modules
    assert not {"wager.cli.chat", "wager.cli.demo", "wager.cli.doctor"} & modules


def test_public_names_are_there() -> None:
    import wager

    assert set(wager.__all__) <= set(dir(wager))
    for name in wager.__all__:
        assert getattr(wager, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        wager.nonsense  # noqa: B018
