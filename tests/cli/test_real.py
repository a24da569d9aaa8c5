"""The command line on a real (tiny) model: one process each where signals and pipes matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Wager = Callable[..., Any]
COMMAND = [sys.executable, "-c", "from wager.cli import main; main()"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _one_home(_own_home: None, request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One WAGER_HOME for all tests here: the machine is measured once. Tests on the real model keep the user's."""
    if request.node.get_closest_marker("model") is None:
        monkeypatch.setenv("WAGER_HOME", str(home))


def test_streamed_text_is_the_text_of_the_json(wager: Wager, tiny_llama: Path) -> None:
    args = ["run", "the sea", "-m", str(tiny_llama), "--seed", "7", "-t", "0.9", "-n", "60"]
    shown, found = wager(*args), json.loads(wager(*args, "--json").out)
    assert shown.code == 0
    assert shown.out.rstrip("\n") == found["text"].rstrip("\n")
    assert found["stats"]["n_tokens"] == len(found["tokens"])
    assert found["seed"] == 7
    assert "\ufffd" not in found["text"]
    assert found["settings"]["profile"] == "fast"
    for part in (f"{len(found['tokens'])} tokens", "seed 7", found["settings"]["exactness"]):
        assert part in shown.err


@pytest.mark.parametrize("drafter", ["none", "lookup", "model"])
def test_compare_is_identical_with_every_drafter(wager: Wager, tiny_llama: Path, drafter: str) -> None:
    small = f"model:{tiny_llama.with_name('tiny-llama-b')}"
    result = wager(
        *("run", "the sea and the sun", "--compare", "--json", "-m", str(tiny_llama), "-t", "0.8", "--seed", "3"),
        *("-n", "80", "--drafter", small if drafter == "model" else drafter),
        *(() if drafter == "none" else ("--num-draft-tokens", "4")),
    )
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["identical"]
    assert found["plain"]["stats"]["n_drafted"] == 0
    if drafter == "model":
        assert found["speculative"]["stats"]["n_accepted"] > 0


def test_stdin_and_a_stop_string(wager: Wager, tiny_llama: Path) -> None:
    args = ["run", "--raw", "-m", str(tiny_llama), "-t", "0", "-n", "50", "--json"]
    whole = json.loads(wager(*args, stdin=b"the sea").out)["text"]
    stop = whole[10:13]
    cut = json.loads(wager(*args, "--stop", stop, stdin=b"the sea").out)
    assert (cut["text"], cut["finish"]) == (whole[: whole.index(stop)], "stop")


def test_log_probabilities_cover_every_token(wager: Wager, tiny_llama: Path) -> None:
    found = json.loads(wager("run", "the sea", "-m", str(tiny_llama), "-n", "12", "--logprobs", "2", "--json").out)
    assert [entry["token"] for entry in found["logprobs"]] == found["tokens"]
    assert all(len(entry["top"]) == 2 for entry in found["logprobs"])


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["sea " * 2000], "512"),
        (["sea", "-m", "no-such-model"], "no-such-model"),
        (["sea", "--profile", "warp"], "warp"),
        (["sea", "--drafter", "oracle"], "oracle"),
        (["sea", "--draft-model", "OTHER"], "tiny-qwen3"),
        (["sea", "--logit-bias", "99999=1"], "99999"),
    ],
)
def test_mistakes_name_the_value(wager: Wager, tiny_llama: Path, args: list[str], match: str) -> None:
    args = [str(tiny_llama.with_name("tiny-qwen3")) if arg == "OTHER" else arg for arg in args]
    result = wager("run", *([] if "-m" in args else ["-m", str(tiny_llama)]), *args)
    assert result.code == 2, result
    assert match in result.err.splitlines()[-1]
    assert result.err.splitlines()[-1].startswith("error: ")


def test_a_folder_without_tokenizer_is_a_mistake(wager: Wager, tiny_llama: Path, tmp_path: Path) -> None:
    for file in tiny_llama.iterdir():
        if "tokenizer" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    result = wager("run", "sea", "-m", str(tmp_path))
    assert result.code == 2
    assert "tokenizer" in result.err


def test_chat_reads_the_history_from_the_cache(wager: Wager, tiny_llama: Path) -> None:
    result = wager("chat", "-m", str(tiny_llama), "-n", "8", stdin=b"the sea\nand the sun\n/stats\n")
    assert result.code == 0
    assert result.err.count("tokens/s") == 2


def start(tiny_llama: Path, *args: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "run", "the sea", "-m", str(tiny_llama), "--ignore-eos", "-n", "480", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))


def test_a_reader_that_leaves_ends_the_answer_quietly(tiny_llama: Path) -> None:
    process = start(tiny_llama)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 141, err
    assert "Traceback" not in err
    assert "Exception" not in err


def test_ctrl_c_in_a_real_answer(tiny_llama: Path) -> None:
    process = start(tiny_llama)
    assert process.stdout is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert (first + out).endswith(b"\n")


def test_models_pull_and_inspect(wager: Wager, tiny_llama: Path) -> None:
    assert json.loads(wager("models", "--json").out)["local"] == []
    assert any(
        e["name"] == "smollm2-135m" and not e["here"] for e in json.loads(wager("models", "--json").out)["catalog"]
    )
    assert wager("pull", "no-such.gguf").code == 2
    assert wager("models", "--remove", "nothing").code == 2
    found = json.loads(wager("inspect", str(tiny_llama), "--json").out)
    assert (found["context_length"], found["vocab_size"], found["kl"]) == (512, 384, None)
    assert found["special_tokens"]["eos"]["2"] == "<|im_end|>"
    assert found["passes"]["paged_attention"] == 2
    assert "unknown: the source weights are not here" in wager("inspect", str(tiny_llama)).out


@pytest.mark.model
def test_the_default_model_is_faithful(wager: Wager) -> None:
    found = json.loads(wager("inspect", "smollm2-135m", "--json").out)
    assert found["kl"] <= 5e-3
    assert found["argmax_agreement"] >= 0.95
    assert found["default_kl"] is not None
    assert found["default_argmax_agreement"] >= 0.9


@pytest.mark.model
def test_the_demo_is_identical(wager: Wager) -> None:
    result = wager("demo", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["identical"]
