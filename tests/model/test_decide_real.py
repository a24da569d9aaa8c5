"""`wager decide` with the default model: the mean of its law tells good reviews from bad ones."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REVIEWS = (
    ("i love it , it works perfectly and looks beautiful .", 3.5),
    ("it broke after one day and the company refused to help .", -3.5),
    ("a wonderful camera , the best i have ever had .", 3.5),
    ("awful sound , terrible build , i want my money back .", -4.0),
    ("excellent value and very easy to use .", 3.0),
    ("it does not work at all , a complete waste of money .", -3.5),
)
LABELS = "terrible=-4,bad=-2,okay=0,good=2,great=3,excellent=4"


@pytest.mark.model
def test_the_mean_of_the_law_tells_good_from_bad(tmp_path: Path) -> None:
    lines = [f'"{text}",{score}' for text, score in REVIEWS]
    (tmp_path / "data.csv").write_text("text,score\n" + "\n".join(lines) + "\n")
    command = [sys.executable, "-c", "from wager.cli import main; main()", "decide", str(tmp_path / "data.csv")]
    command += ["--prompt", str(ROOT / "examples" / "decide" / "review.txt"), "--raw", "--labels", LABELS]
    command += ["--metric", "rmse,mae", "--target", "score", "-n", "4", "--out", str(tmp_path / "out.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    means = [float(row["law_mean"]) for row in rows]
    assert min(means[::2]) > max(means[1::2]), means
    assert all(float(row["covered"]) > 0.1 for row in rows)
    assert "| mean (for rmse)" in done.stdout
