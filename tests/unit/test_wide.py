"""Passes over rows of the vocabulary, compiled for this processor and for one with AVX2 only, against numpy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from places import KERNELS
from wager import compiled, wide
from wager.errors import WagerError
from wager.machine import cpu
from wager.sampling import Noise, choose_softmax, race_plainly, tempered
from wager.wide import LONG, entropy, exponentials, log_partition, top_indices

SIZES = (2048, 2049, 4103, 49152)


@pytest.fixture(params=["native", "haswell", "numpy"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of them runs."""
    path = None
    if request.param != "numpy":
        reason = wide.prepare()
        if reason is not None or not {"avx2", "f16c"} <= set(cpu()["flags"]):
            pytest.skip(str(reason))
        KERNELS.mkdir(parents=True, exist_ok=True)
        path = KERNELS / f"wide-{compiled._key(wide.CODE, 'c++')}-{request.param}.so"
        if not path.is_file():
            made = path.with_name(f"{path.name}.{id(path)}")
            compiled.compile_to(made, wide.CODE, "c++", march=request.param)
            made.replace(path)
    monkeypatch.setattr(wide, "_ready", lambda: None if path is None else wide._library(path))
    return str(request.param)


def rows(n: int) -> list[np.ndarray]:
    """Like logits, far apart, all equal, mostly impossible; in both kinds of floats."""
    rng = np.random.default_rng(n)
    near, far = rng.normal(size=n) * 3, rng.normal(size=n) * 1e4
    rare = np.where(rng.random(n) < 0.01, near, -np.inf)
    rare[n // 2] = 1
    return [x.astype(kind) for x in (near, far, np.zeros(n), rare) for kind in (np.float32, np.float64)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("temperature", [1e-300, 0.05, 0.8, 1.0, 50.0])
def test_exponentials_and_their_sums(how: str, n: int, temperature: float) -> None:
    for x in rows(n):
        y = tempered(x, temperature)
        expected = np.where(y > -708, np.exp(np.maximum(y, -708)), 0)
        weights, total = exponentials(x, temperature=temperature)
        # numpy alone is in float32 below e^-8 of the best
        assert np.allclose(weights, expected, rtol=1e-5 if how == "numpy" else 2e-13, atol=1e-45)
        assert math.isclose(total, expected.sum(), rel_tol=1e-7 if how == "numpy" else 1e-13)
        assert math.isclose(log_partition(x, temperature=temperature), math.log(total), rel_tol=1e-7, abs_tol=1e-7)
        parts = np.add.reduceat(expected, np.arange(0, n, wide.PART))
        assert np.allclose(wide.sums(x, temperature=temperature).parts, parts, rtol=1e-5, atol=1e-36)
        law = expected / expected.sum()
        exact = -float((law * np.log(np.where(law > 0, law, 1))).sum())
        assert math.isclose(entropy(x, temperature=temperature), exact, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("temperature", [1e-300, 0.05, 0.8, 1.0, 50.0])
def test_the_race_is_the_plain_race(how: str, n: int, temperature: float) -> None:
    for x in rows(n):
        for position in range(10):
            found = choose_softmax(x, Noise(5), position, temperature)
            assert found == race_plainly(x, Noise(5), position, temperature), (how, position)


def test_a_race_that_anyone_may_win_is_a_race_too(how: str) -> None:
    """Where the bounds rule out nobody: noise alone decides, and more entries stay open than there is room for."""
    x = np.zeros(49152, np.float32)
    wins = {choose_softmax(x, Noise(seed), 0, 1.0) for seed in range(50)}
    assert len(wins) == 50
    assert wins == {race_plainly(x, Noise(seed), 0) for seed in range(50)}


def test_what_is_no_number_is_found(how: str) -> None:
    for n, bad in ((4096, np.nan), (49152, np.nan)):
        x = np.zeros(n, np.float32)
        x[n - 3] = bad
        with pytest.raises(AssertionError, match="NaN"):
            choose_softmax(x, Noise(0), 0, 1.0)


def test_rows_that_are_not_contiguous_are_read_right(how: str) -> None:
    x = np.random.default_rng(3).normal(size=(4096, 3)).astype(np.float32)
    assert choose_softmax(x[:, 1], Noise(1), 0, 0.7) == race_plainly(x[:, 1].copy(), Noise(1), 0, 0.7)
    assert math.isclose(exponentials(x[:, 1])[1], np.exp(tempered(x[:, 1], 1)).sum(), rel_tol=1e-6)


def test_the_hash_is_the_same_in_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner is always on the compiled short list; at high temperatures noise alone decides who is."""
    if wide.prepare() is not None:
        pytest.skip("nothing can be compiled here")
    x = np.zeros(LONG, np.float32)
    for position in range(200):
        some = wide.shortlist(x, 1.0, Noise(9).token_key(position))
        assert some is not None
        assert 0 < len(some) < 64
        assert race_plainly(x, Noise(9), position) in some


def test_a_library_that_computes_something_else_is_declined(tmp_path: Path) -> None:
    path = tmp_path / "wide.so"
    if wide.prepare() is not None:
        pytest.skip("nothing can be compiled here")
    text = wide.CODE.main.read_text()
    changed = tmp_path / "wide.cpp"
    changed.write_text(text.replace("1.0 / 24)", "1.0 / 25)"))
    assert changed.read_text() != text
    code = compiled.Code((changed,), changed, "", flags=wide.CODE.flags)
    compiled.compile_to(path, code, "c++")
    with pytest.raises(WagerError, match="wrongly"):
        wide._check(path)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", [1, 2, 8, 100, 2048])
def test_the_largest_are_those_of_a_full_sort(how: str, n: int, k: int) -> None:
    for x in [*rows(n), np.arange(n) * 1.0, -np.arange(n) * 1.0, np.random.default_rng(0).integers(0, 5, n) * 1.0]:
        order = np.lexsort((np.arange(n), -x))
        assert np.array_equal(top_indices(x, k), order[:k])
