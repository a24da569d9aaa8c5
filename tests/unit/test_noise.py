"""The noise: fixed for ever, uniform, and independent across every part of its address.

Statistical tests use fixed seeds; each states its false-alarm rate for a fresh seed.
"""

from __future__ import annotations

import numpy as np
import pytest

from wager.sampling import Noise

V = 4096


def _bits(u: np.ndarray) -> list[int]:
    """The uniforms as the integers they are made of: exact on every platform."""
    return [int(v * 2**53) for v in u]


def test_golden_values_never_change() -> None:
    noise = Noise(42, 1)
    assert _bits(np.exp(-noise.exponential(7, vocab_size=1))) == pytest.approx([0x1FB581723CA769], rel=1e-14)
    assert _bits(noise.uniform("accept", 10, branch=1, depth=2, n=2)) == [0x1A4DC0CE782CAB, 0x1AAC06B674C0C3]
    got = Noise(2**64 - 1, 3).exponential(0, [0, 1, 151_935])
    np.testing.assert_allclose(got, [1.4342844328580198, 0.6242472158687449, 0.06516107058889309], rtol=1e-13)


def test_random_access_equals_the_whole_row() -> None:
    noise = Noise(5)
    row = noise.exponential(3, vocab_size=50_000)  # several chunks
    ids = np.random.default_rng(0).permutation(50_000)[:999]
    assert np.array_equal(noise.exponential(3, ids), row[ids])
    assert np.array_equal(noise.exponential(3, vocab_size=20_000), row[:20_000])
    assert all(noise.exponential(3, [int(i)])[0] == row[i] for i in ids[:20])


def test_exponential_is_finite_and_positive() -> None:
    row = Noise(0).exponential(0, vocab_size=1_000_000)
    assert np.all((row > 0) & np.isfinite(row))


def test_uniform_by_kolmogorov_smirnov() -> None:
    """Twenty rows of 4096, threshold for a false-alarm rate of 1e-4 in all."""
    worst = 0.0
    for seed in range(20):
        u = np.sort(np.exp(-Noise(seed).exponential(seed, vocab_size=V)))
        grid = np.arange(V)
        worst = max(worst, float(np.max(np.maximum(u - grid / V, (grid + 1) / V - u))) * np.sqrt(V))
    assert worst < np.sqrt(-0.5 * np.log(1e-4 / 20 / 2))


def _rows() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs of rows whose addresses differ in one part, by as little as possible."""
    a = Noise(1).exponential(5, vocab_size=V)
    n = Noise(1)
    return {
        "position": (a, Noise(1).exponential(6, vocab_size=V)),
        "seed": (a, Noise(2).exponential(5, vocab_size=V)),
        "seed high bit": (a, Noise(1 + 2**63).exponential(5, vocab_size=V)),
        "sample": (a, Noise(1, 1).exponential(5, vocab_size=V)),
        "seed and sample": (Noise(1, 0).exponential(5, vocab_size=V), Noise(0, 1).exponential(5, vocab_size=V)),
        "sample and position": (Noise(1, 5).exponential(6, vocab_size=V), Noise(1, 6).exponential(5, vocab_size=V)),
        "token": (a[:-1], a[1:]),
        "token and position": (a[:-1], Noise(1).exponential(6, vocab_size=V)[1:]),
        "stream": (a, n.race("residual", 5, vocab_size=V)),
        "streams": (n.race("draft", 5, vocab_size=V), n.race("residual", 5, vocab_size=V)),
        "start": (n.race("residual", 4, vocab_size=V), n.race("residual", 5, vocab_size=V)),
        "branch": (n.race("residual", 5, vocab_size=V), n.race("residual", 5, branch=1, vocab_size=V)),
        "depth": (n.race("residual", 5, vocab_size=V), n.race("residual", 5, depth=1, vocab_size=V)),
        "branch and depth": (
            n.race("residual", 5, branch=1, vocab_size=V),
            n.race("residual", 5, depth=1, vocab_size=V),
        ),
    }


@pytest.mark.parametrize("part", list(_rows()))
def test_every_part_of_the_address_matters_and_rows_are_independent(part: str) -> None:
    """Correlation of the uniforms and a 8 x 8 contingency table; false-alarm rate 1e-4 a case (|z| < 3.9, chi2)."""
    a, b = (np.exp(-row) for row in _rows()[part])
    assert not np.any(a == b)
    z = np.corrcoef(a, b)[0, 1] * np.sqrt(len(a))
    assert abs(z) < 3.9
    table = np.histogram2d(a, b, bins=8, range=[[0, 1], [0, 1]])[0]
    expected = len(a) / 64
    assert ((table - expected) ** 2 / expected).sum() < 113.5  # 63 degrees of freedom, 1e-4


def test_low_bits_are_uniform() -> None:
    """Chi-square over the lowest 8 bits of 52; false-alarm rate 1e-4."""
    u = Noise(9).uniform("draft", 0, n=65_536)
    low = (u * 2**52).astype(np.int64) & 255
    counts = np.bincount(low, minlength=256)
    assert ((counts - 256) ** 2 / 256).sum() < 348.0  # 255 degrees of freedom


def test_other_rules_cannot_reach_the_token_stream() -> None:
    with pytest.raises(AssertionError):
        Noise(0).uniform("token", 0)


def test_few_ids_have_the_noise_that_arrays_give_them() -> None:
    noise, ids = Noise(7, 3), [0, 1, 5, 49151, 2**31 - 1]
    for position in range(50):
        assert noise.few_exponentials(position, ids) == pytest.approx(noise.exponential(position, ids), rel=1e-14)
