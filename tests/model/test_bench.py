"""`wager bench` on the default model: shipped prompts, identical text, a peer beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wager.bench.journal import rows_of, runs
from wager.cli import main

pytestmark = pytest.mark.model


def test_bench_on_the_default_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--tasks", "agent,qa", "--per-task", "1", "--max-tokens", "24", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as exit_:
        main(["bench", "--methods", "plain,lookup,auto,oracle,genai,transformers", *args])
    out, err = capsys.readouterr()
    assert not exit_.value.code, err
    by_method: dict[str, list[list[int]]] = {}
    for row in runs(rows_of(tmp_path)):
        by_method.setdefault(row["method"], []).append(row["tokens"])
        if row["method"] == "oracle":
            assert row["n_accepted"] == row["n_drafted"]
    there = set(by_method) - {"transformers"}
    assert there == {"plain", "lookup", "auto", "oracle", "genai"}
    assert by_method["plain"] == by_method["lookup"] == by_method["auto"] == by_method["oracle"]
    assert by_method["genai"][0][:4] == by_method["plain"][0][:4], "the same prompt in the same ids"
    if "transformers" in by_method:  # after make peers
        assert by_method["transformers"][0][:4] == by_method["plain"][0][:4]
    else:
        assert "`transformers` is missing: transformers has no environment: make peers" in out
    assert "| oracle " in out
    assert "Time per token of peers / ours" in out
    assert "| plain  " in out[out.index("## Roofline") :]
    assert "<h2>Where the time goes</h2>" in (tmp_path / "report.html").read_text(encoding="utf-8")
