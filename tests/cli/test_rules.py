"""`--rule` on `wager run` and `wager chat`, and `wager rules` as a whole on tiny models."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wager.bench.journal import rows_of, runs
from wager.bench.rules_run import RulesMeasurement
from wager.verify import LOSSY, RULES

Wager = Callable[..., Any]
Rules = Callable[..., Any]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _one_home(_own_home: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One WAGER_HOME for all tests here: the machine is measured once."""
    monkeypatch.setenv("WAGER_HOME", str(home))


@pytest.fixture
def rules(wager: Wager, tiny_llama: Path, tmp_path: Path) -> Rules:
    """Runs `wager rules` on two prompts into tmp_path/out, drafts by tiny-llama-b unless said otherwise."""
    prompts = tmp_path / "p.jsonl"
    texts = {"a": "the sea and the sun", "b": "one two three one two three"}
    prompts.write_text("\n".join(json.dumps({"id": i, "prompt": text}) for i, text in texts.items()))

    def run(*args: str) -> Any:
        given = {"--target": str(tiny_llama), "--draft": str(tiny_llama.with_name("tiny-llama-b"))}
        given |= {"--prompts": str(prompts), "--out": str(tmp_path / "out"), "-n": "12"}
        defaults = [part for name, value in given.items() if name not in args for part in (name, value)]
        return wager("rules", *defaults, *args)

    return run


# -- run and chat ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["run", "x"], ["chat"]])
def test_lossy_rules_say_so_in_one_line(wager: Wager, llm: Any, command: list[str]) -> None:
    lossy = wager(*command, "--rule", "lossy-cactus:0.5", stdin=b"").err
    assert [line for line in lossy.splitlines() if line.startswith("lossy: --rule `lossy-cactus:0.5`")]
    assert "lossy" not in wager(*command, "--rule", "standard", stdin=b"").err


@pytest.mark.parametrize("rule", ["nonsense", "standard:3", "lossy-cactus:-1", "lossy-ensemble:x"])
def test_rules_that_do_not_exist_get_one_sentence(wager: Wager, llm: Any, rule: str) -> None:
    result = wager("run", "x", "--rule", rule)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: `rule` is '{rule}': ")
    assert result.err.count("\n") == 1
    assert not llm.made, "a model was loaded for it"


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--rule", "spectr"], "needs iid drafts: drafter 'blend'"),
        (["--rule", "block", "--draft-model", "B", "--tree-width", "2"], "verifies a single path"),
        (["--rule", "khisti", "--draft-model", "B", "--tree-width", "9"], "at most 8 children"),
        (["--tree-width", "2"], "'auto', which drafts single paths"),
        (["--tree-width", "0"], "at least 1"),
        (["--rule", "standard", "--require-identical"], "use walk"),
    ],
)
def test_what_does_not_fit_together_is_refused(wager: Wager, tiny_llama: Path, args: list[str], match: str) -> None:
    args = [str(tiny_llama.with_name("tiny-llama-b")) if arg == "B" else arg for arg in args]
    result = wager("run", "sea", "-m", str(tiny_llama), *args)
    assert result.code == 2
    assert match in result.err.splitlines()[-1]


@pytest.mark.parametrize(("temperature", "must_match"), [("0", True), ("0.9", False)])
def test_comparing_under_a_rule_whose_text_depends_on_drafts(
    wager: Wager, tiny_llama: Path, temperature: str, must_match: bool
) -> None:
    draft = str(tiny_llama.with_name("tiny-llama-b"))
    args = ["run", "the sea", "-m", str(tiny_llama), "--draft-model", draft, "--num-draft-tokens", "3", "--compare"]
    args += ["--rule", "traversal", "--tree-width", "2", "-t", temperature, "--seed", "5", "-n", "40", "--ignore-eos"]
    found = json.loads(wager(*args, "--json").out)
    assert found["must_match"] == must_match
    assert found["identical"] == must_match, "with 40 tokens and this seed sampled texts do differ"
    result = wager(*args)
    assert result.code == 0
    assert "NOT IDENTICAL" not in result.err
    assert ("no, and need not be" in result.out) == (not must_match)
    assert found["settings"]["rule"] == "traversal"
    assert found["settings"]["exactness"].startswith("lossless: same law")


def test_differing_texts_fail_the_comparison_where_they_must_not(wager: Wager, llm: Any) -> None:
    llm.tokens = staticmethod(lambda speculate: [1, 9, 3] if speculate else [1, 2, 3])
    args = ["run", "x", "--compare", "--rule", "standard"]
    assert wager(*args, "-t", "0.5").code == 0
    assert wager(*args, "-t", "0").code == 1
    assert wager("run", "x", "--compare", "-t", "0.5").code == 1


# -- wager rules -------------------------------------------------------------------------------------------------------


def test_every_rule_from_the_command_to_table_json_and_picture(rules: Rules, tmp_path: Path) -> None:
    result = rules("-t", "0", "-t", "0.9", "--k", "1,2", "--depth", "2")
    assert result.code == 0, result.err
    out = tmp_path / "out"
    assert (out / "rules.md").read_text() == result.out
    assert (out / "rules.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((out / "rules.json").read_text())
    lines = {(line["rule"], line["k"], line["temperature"]): line for line in found["lines"]}
    assert {rule.partition(":")[0] for rule, _, _ in lines} == {"plain", *RULES, *LOSSY}
    assert {k for rule, k, _ in lines if rule in ("standard", "block")} == {1}
    assert {k for rule, k, _ in lines if rule in ("walk", "spectr", "transport")} == {1, 2}
    for (rule, k, temperature), line in lines.items():
        tokens = line["tokens_per_forward"]
        assert tokens["low"] <= tokens["value"] <= tokens["high"]
        if rule == "plain":
            assert (tokens["value"], line["drawn"]) == (1.0, 0.0)
            continue
        assert line["n_same"] == 2 or (temperature > 0 and rule != "walk"), (rule, line)
        assert 1 <= tokens["value"] <= 3
        assert line["children"] == pytest.approx(1 if temperature == 0 and rule in ("rrsw", "nss") else k)
        assert line["fed"] <= line["drawn"]
        assert (line["kl"] is not None) == (rule.startswith("lossy") and temperature > 0 and k == 1)
        assert (line["optimum"] is None) == (rule == "top-k")
        assert line["is_bound"] == (
            rule in RULES and rule != "top-k" and (k == 1 or rule not in ("walk", "nss", "rrsw"))
        )
        assert 0 <= line["rule_ms"] < line["ms_per_token"]
        parts = sum(line[f"{part}_ms"] for part in ("draft", "target", "rule", "host"))
        assert parts <= line["ms_per_token"] * 1.001
    assert lines["spectr", 2, 0.9]["fed"] < lines["spectr", 2, 0.9]["drawn"], "equal draws are fed once"


def test_a_measurement_that_was_stopped_continues(
    rules: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("--rules", "walk,standard", "--k", "1", "--depth", "2")
    original, n_added = RulesMeasurement._row, 0

    def row(self: RulesMeasurement, *given: Any) -> Any:
        nonlocal n_added
        n_added += 1
        if n_added == 5:
            raise KeyboardInterrupt
        return original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(RulesMeasurement, "_row", row)
        stopped = rules(*args)
    assert stopped.code == 130
    assert "the same command continues" in stopped.err
    kept = runs(rows_of(tmp_path / "out"))
    assert len(kept) == 4
    assert rules(*args).code == 0
    whole = runs(rows_of(tmp_path / "out"))
    assert whole[:4] == kept
    assert len(whole) == 6
    assert rules(*args, "--out", str(tmp_path / "again")).code == 0
    again = runs(rows_of(tmp_path / "again"))
    names = ("setting", "prompt_id", "tokens", "n_forwards", "n_drafted")
    assert [[row[n] for n in names] for row in again] == [[row[n] for n in names] for row in whole]
    assert rules(*args, "--rules", "walk,standard,nss").code == 0, "more rules may be added"
    assert len(runs(rows_of(tmp_path / "out"))) == 8
    other = rules(*args, "-n", "13")
    assert other.code == 2
    assert "give another --out" in other.err


def test_a_text_that_differs_and_must_not_fails_the_command(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    original = RulesMeasurement._row

    def row(self: RulesMeasurement, setting: Any, *given: Any) -> Any:
        found = original(self, setting, *given)
        return found | {"tokens": [*found["tokens"][:3], 0]} if setting.rule == "block" else found

    monkeypatch.setattr(RulesMeasurement, "_row", row)
    args = ("--rules", "block", "--k", "1", "--depth", "2")
    result = rules(*args, "-t", "0", "-t", "0.9")
    assert result.code == 1
    assert "NOT IDENTICAL: prompt `a`, temperature 0: token 3 under `block k=1 depth=2`" in result.err
    assert result.out.count("NOT IDENTICAL") == 2, "greedy ones only"
    assert rules(*args, "-t", "0").code == 1, "it stays a failure"


def test_look_ups_are_compared_under_the_rules_that_take_them(rules: Rules, tmp_path: Path) -> None:
    result = rules("--draft", "lookup", "--k", "1", "--depth", "3")
    assert result.code == 0
    seen = {row["rule"].partition(":")[0] for row in runs(rows_of(tmp_path / "out"))}
    assert {"plain", "walk", "nss", "standard", "block", "top-k"} <= seen
    assert not {"spectr", "gls", "rrsw"} & seen
    assert "left out: `rule` is 'spectr', which needs iid drafts" in result.err


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--rules", "nonsense"], "nonsense"),
        (["--k", "1,x"], "`--k` is `1,x`"),
        (["--k", "0"], "`--k` is `0`"),
        (["--depth", ""], "`--depth` is ``"),
        (["--trunk", "4"], "`--trunk` is 4"),
        (["--rules", "block", "--k", "2"], "verifies a single path"),
        (["--draft", "lookup", "--k", "2"], "`--k` is 2 but `drafter` is 'lookup', which drafts single paths"),
        (["--draft", "lookup", "--k", "1", "--rules", "gls"], "which needs iid drafts"),
        (["--draft", "no-such-model"], "no-such-model"),
        (["--prompts", "no-such-file"], "no-such-file"),
        (["-t", "-1"], "temperature"),
        (["-n", "600"], "context"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(rules: Rules, args: list[str], match: str) -> None:
    result = rules(*args)
    assert (result.code, result.out) == (2, "")
    assert match in result.err.splitlines()[-1]
    assert result.err.splitlines()[-1].startswith("error: ")


def test_what_looking_takes_is_in_no_time(rules: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be 17 ms a token or more, at 50 ms a round of at most three."""
    monkeypatch.setattr("wager.bench.rules_measure._look", lambda *given: time.sleep(0.05))
    assert rules("--rules", "standard", "--k", "1", "--depth", "2", "--json").code == 0
    [row] = [row for row in runs(rows_of(tmp_path / "out")) if row["rule"] == "standard" and row["prompt_id"] == "a"]
    n_decoded = row["n_tokens"] - row["n_tokens_first"]
    assert row["tally"]["own_s"] > 0.05 * row["n_forwards"] * 0.8
    assert -1e-6 < row["host_s"] < 0.008 * n_decoded
    assert row["decode_s"] < 0.7 * row["tally"]["own_s"], "it is out of the whole, too"


def test_without_matplotlib_a_line_tells_what_to_install(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = rules("--rules", "walk", "--k", "1", "--depth", "2", "--per-task", "1")
    assert result.code == 0
    assert "pip install 'wager[bench]'" in result.err
