"""Keys and their transform against slow and obvious ones: what is grouped, what is near, what is no number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_tools import tokens_of
from wager.corpus import SEPARATOR
from wager.nearest import Keys, fit, grouped, index, neighbours, similarities, transformed

V = 4
DOCUMENTS = st.lists(st.lists(st.integers(0, V - 1), max_size=14), max_size=8)


def states_of(tokens: np.ndarray, n_hidden: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((len(tokens), n_hidden)).astype(np.float32)


def keys_of(tokens: np.ndarray, **options) -> tuple[Keys, np.ndarray]:
    """Keys, and the states (N, H) that they were made of; read in pieces of 3, the last one first."""
    states, places = states_of(tokens), np.arange(len(tokens))
    pieces = [(places[i : i + 3], states[i : i + 3]) for i in range(0, len(tokens), 3)]
    return index(tokens, V, reversed(pieces), **options), states


@given(DOCUMENTS)
def test_groups_are_the_predicted_tokens_that_something_follows(documents: list[list[int]]) -> None:
    tokens = tokens_of(documents)
    places, buckets = grouped(tokens, V)
    text = tokens.tolist()
    inside = [p for p in range(1, len(text) - 1) if SEPARATOR not in text[p - 1 : p + 2]]
    assert places.tolist() == sorted(inside, key=lambda p: (text[p], p))
    assert buckets.tolist() == [sum(text[p] < token for p in inside) for token in range(V + 1)]


@settings(deadline=None)
@given(DOCUMENTS, st.integers(0, V), st.integers(1, 9), st.sampled_from([-1.0, 0.0123, 0.5123]), st.integers(0, 99))
def test_neighbours_are_those_of_brute_force(documents, token, n_most, floor, seed) -> None:
    """Every key of the token compared one by one in float64: fails if one is left out, misplaced or misordered."""
    tokens = tokens_of(documents)
    keys, states = keys_of(tokens)
    query = keys.query(states_of(tokens[:1] if len(tokens) else np.zeros(1), seed=seed)[0])
    exact = []
    for place in np.flatnonzero(tokens == token).tolist():
        if place in keys.places.tolist():
            key = transformed(states[place - 1 : place], keys.mean, keys.projection)[0].astype(np.float16)
            exact.append((place, float(key.astype(np.float64) @ query)))
    near = neighbours(keys, token, query, n_most=n_most, floor=floor)
    clear = [cosine for _, cosine in exact if cosine >= floor]
    assert [cosine for _, cosine in near] == pytest.approx(sorted(clear, reverse=True)[:n_most], abs=1e-5)
    assert all(dict(exact)[place] == pytest.approx(cosine, abs=1e-5) for place, cosine in near)
    assert len({place for place, _ in near}) == len(near)


def test_of_equals_the_first_place_comes_first() -> None:
    tokens = tokens_of([[0, 1, 2, 3]] * 9)
    keys = index(tokens, V, [(np.arange(len(tokens)), np.tile(np.eye(5, dtype=np.float32), (9, 1)))])
    near = neighbours(keys, 1, keys.query(np.eye(5, dtype=np.float32)[0]), n_most=3, floor=0.9)
    assert [place for place, _ in near] == [1, 6, 11]


def test_half_floats_are_widened_exactly() -> None:
    """All finite ones, both zeros and what is below the smallest normal number included."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    assert np.array_equal(similarities(finite[:, None], np.ones(1, np.float32)), finite.astype(np.float32))


def test_of_many_keys_some_are_looked_at() -> None:
    """7000 keys of one token (more than a piece): all at once, and every 7th where 1000 are the most."""
    tokens = tokens_of([[0, 1, 2]] * 7000)
    keys, states = keys_of(tokens)
    query = keys.query(states[4 * 3000])
    assert neighbours(keys, 1, query, n_most=1, floor=0.99)[0][0] == 4 * 3000 + 1
    some = neighbours(keys, 1, query, n_most=7000, floor=-1, n_searched=1000)
    assert sorted(place for place, _ in some) == [4 * i + 1 for i in range(0, 7000, 7)]


def test_the_transform_is_z_score_pca_and_unit_length() -> None:
    """Against the definition: principal components by SVD of standardised columns (seed 1), up to signs."""
    rows = np.random.default_rng(1).standard_normal((200, 7)) @ np.random.default_rng(2).standard_normal((7, 7))
    rows = (rows * [1, 10, 100, 1, 1, 1, 0.01] + [0, 5, -50, 0, 0, 0, 1]).astype(np.float32)
    z = (rows - rows.mean(0)) / rows.std(0)
    axes = np.linalg.svd(z, full_matrices=False)[2][:3]
    want = z @ axes.T
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    got = transformed(rows, *fit(rows, n_dims=3))
    assert np.abs(got) == pytest.approx(np.abs(want), abs=1e-3)
    assert got @ got.T == pytest.approx(want @ want.T, abs=1e-3)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
def test_constant_and_dependent_dimensions_are_left_out(n: int) -> None:
    rng = np.random.default_rng(3)
    free = rng.standard_normal((n, 2))
    rows = np.column_stack((free, free.sum(1), np.full(n, 7.0), np.full(n, 1e6), free[:, 0])).astype(np.float32)
    mean, projection = fit(rows, n_dims=4)
    assert projection.shape == (6, min(2, max(0, n - 1)))
    assert not projection[3:5].any()
    assert np.isfinite(transformed(rows, mean, projection)).all()


def test_what_is_no_number_is_near_nothing() -> None:
    tokens = tokens_of([[0, 1, 2, 1, 3, 1, 0]])
    states = states_of(tokens)
    states[0] = np.nan
    states[2, 1] = np.inf
    keys = index(tokens, V, [(np.arange(len(tokens)), states)])
    assert np.isfinite(keys.vectors).all()
    near = neighbours(keys, 1, keys.query(states[4]), n_most=9, floor=0.1)
    assert [place for place, _ in near] == [5], "the keys of places 1 and 3 are unknown"
    for nothing in (states[0], states[2], np.full(6, -np.inf, np.float32), keys.mean):
        assert neighbours(keys, 1, keys.query(nothing), n_most=9, floor=0.1) == []
    assert neighbours(keys, 1, np.full(keys.vectors.shape[1], np.nan, np.float32), n_most=9, floor=-1) == []


@pytest.mark.parametrize("token", [-1, V, 99])
def test_no_key_is_of_a_token_beyond_the_vocabulary(token: int) -> None:
    keys, states = keys_of(tokens_of([[0, 1, 2, 3]]))
    assert neighbours(keys, token, keys.query(states[0]), n_most=9, floor=-1) == []


def test_it_is_fitted_to_the_first_states_that_come() -> None:
    tokens = tokens_of([[0, 1, 2, 3, 0, 1, 2, 3]] * 5)
    few, states = keys_of(tokens, n_fit=9)
    every, _ = keys_of(tokens)
    assert not np.array_equal(few.mean, every.mean)
    for keys in (few, every):
        for row, place in enumerate(keys.places.tolist()):
            assert keys.vectors[row] == pytest.approx(keys.query(states[place - 1]), abs=1e-3)
