"""Folders that tests share."""

from pathlib import Path

DATA = Path(__file__).parent / "data"
KERNELS = Path(__file__).parents[1] / ".pytest_cache" / "kernels"  # compiled once, not once a home
