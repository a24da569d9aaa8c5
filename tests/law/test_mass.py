"""Laws over a whole vocabulary of which only parts are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from wager import wide
from wager.verify.mass import Mass, place

V = 20_001


def row(name: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    x = rng.normal(size=V) * 3
    if name == "peaked":
        x[77] = 60.0
    if name == "rare":
        x[rng.random(V) < 0.99] = -np.inf
    return x.astype(np.float32)


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(wide, "_ready", lambda: None)


@pytest.mark.parametrize("name", ["plain", "peaked", "rare"])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_parts_are_those_of_the_whole(name: str, temperature: float) -> None:
    x = row(name)
    weights = np.exp((x.astype(np.float64) - x.max()) / temperature) if temperature else np.eye(V)[x.argmax()]
    mass = Mass.softmax(x, temperature)
    assert mass.total == pytest.approx(weights.sum(), rel=1e-6)
    ids = np.sort(np.random.default_rng(2).choice(V, 300, replace=False))
    ids[0] = x.argmax() if x.argmax() < ids[1] else ids[0]
    assert mass.at(ids) == pytest.approx(weights[ids], rel=1e-5)
    rest = np.delete(weights, ids).sum()
    assert mass.split(ids) * weights.sum() == pytest.approx(np.append(weights[ids], rest), rel=2e-6, abs=1e-300)
    assert mass.weights() == pytest.approx(weights, rel=1e-5)


@pytest.mark.parametrize("name", ["plain", "peaked", "rare"])
@pytest.mark.parametrize("without", [0, 300, V - 2])
def test_inversion_goes_by_running_sums(name: str, without: int) -> None:
    """Of all, of what some ids leave, and where next to nothing is left of a part."""
    x = row(name)
    weights = np.exp(x.astype(np.float64) - x.max())
    mass = Mass.softmax(x, 1.0)
    if without:
        ids = np.sort(np.argsort(-weights, kind="stable")[:without])
        mass, weights[ids] = mass.outside(ids), 0
        if not weights.any():
            assert mass.total == 0
            return
    sums = np.cumsum(weights)
    for u in [*np.random.default_rng(3).random(200), 2.0**-53, 1 - 2.0**-53]:
        index = mass.invert(float(u))
        assert weights[index] > 0
        assert sums[index] - weights[index] - 1e-6 * sums[-1] <= u * sums[-1] <= sums[index] + 1e-6 * sums[-1]


def test_draws_have_the_law() -> None:
    """Chi-square over the sixteen likeliest tokens and the rest; false-alarm rate 1e-5."""
    x = row("plain") * 1.5
    weights = np.exp(x.astype(np.float64) - x.max())
    top = np.argsort(-weights)[:16]
    mass, n = Mass.softmax(x, 1.0), 20_000
    drawn = np.array([mass.invert(float(u)) for u in np.random.default_rng(4).random(n)])
    counts = np.array([*((drawn == i).sum() for i in top), 0.0])
    counts[-1] = n - counts.sum()
    expected = n * np.append(weights[top], weights.sum() - weights[top].sum()) / weights.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 53  # chi2.isf(1e-5, 16)


def test_a_place_is_never_one_of_no_weight() -> None:
    assert place(np.array([0.0, 1.0, 0.0]), 0.0) == (1, 0.0)
    assert place(np.array([0.0, 1.0, 0.0]), 2.0)[0] == 1
