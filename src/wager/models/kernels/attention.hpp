// Attention over keys and values in blocks of 32 positions, with a running softmax.
//
// A query's result depends on its own position and what it sees alone: blocks are taken in order, cut at multiples of
// 32, whatever queries are beside it. A node of a tree sees its path gathered into blocks of the same cut, so it gets the
// bits that the same tokens get as a chain.
#pragma once

#include <algorithm>

#include "lanes.hpp"

namespace wager {

constexpr int BLOCK = 32;
constexpr int MOST_SIZE = 256;   // of a head
constexpr float NOTHING = -1e30f;

// A query (size,) sees positions [first, last); out (size,).
struct Query {
    const float* q;
    float* out;
    int first, last;
};

// A block of one head: keys (size, 32) and values (32, size), f16.
struct Block {
    const uint16_t *keys, *values;
};

// Running softmax of `n` queries: weights of the last block (n, 32), blends (n, size), and what they are relative to.
template <int n>
struct Running {
    alignas(64) float weights[n * BLOCK];
    alignas(64) float blend[n * MOST_SIZE];
    float most[n], sum[n], shrink[n];
    int first[n], last[n];  // of the block's positions, seen by each query
};

template <int n>
inline void scores(const Query* queries, const uint16_t* keys, int size, float* out) {
    Floats low[n], high[n];
    for (int i = 0; i < n; ++i) low[i] = high[i] = spread(0.0f);
    for (int d = 0; d < size; ++d) {
        const Floats k0 = load_half(keys + d * BLOCK), k1 = load_half(keys + d * BLOCK + LANES);
#pragma GCC unroll 8
        for (int i = 0; i < n; ++i) {
            const Floats q = spread(queries[i].q[d]);
            low[i] = fma(q, k0, low[i]);
            high[i] = fma(q, k1, high[i]);
        }
    }
    for (int i = 0; i < n; ++i) {
        store(out + i * BLOCK, low[i]);
        store(out + i * BLOCK + LANES, high[i]);
    }
}

// Scores (32,) to weights relative to the largest score so far.
template <int n>
inline void weigh(Running<n>& state, int i, float scale) {
    float* row = state.weights + i * BLOCK;
    const int first = state.first[i], last = state.last[i];
    const Floats factor = spread(scale), none = spread(NOTHING), zero = spread(0.0f);
    const Floats low = within(load(row) * factor, none, first, last);
    const Floats high = within(load(row + LANES) * factor, none, first - LANES, last - LANES);
    const float most = std::max(state.most[i], largest(larger(low, high)));
    const Floats w0 = within(exp2(low - spread(most)), zero, first, last);
    const Floats w1 = within(exp2(high - spread(most)), zero, first - LANES, last - LANES);
    alignas(64) float shrink[LANES];
    store(shrink, exp2(spread(state.most[i] - most)));
    state.shrink[i] = shrink[0];
    state.most[i] = most;
    state.sum[i] = state.sum[i] * shrink[0] + total(w0 + w1);
    store(row, w0);
    store(row + LANES, w1);
}

// blend = blend * shrink + weights of positions [first, last) times their values, for `n` queries; `width` lanes at once.
template <int n, int width>
inline void add_values(const float* weights, const float* shrink, const uint16_t* values, int first, int last, int size, float* blend) {
    Floats sum[n][width];
    for (int i = 0; i < n; ++i)
        for (int z = 0; z < width; ++z) sum[i][z] = load(blend + i * size + z * LANES) * spread(shrink[i]);
    for (int t = first; t < last; ++t) {
        Floats v[width];
        for (int z = 0; z < width; ++z) v[z] = load_half(values + t * size + z * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < n; ++i) {
            const Floats w = spread(weights[i * BLOCK + t]);
            for (int z = 0; z < width; ++z) sum[i][z] = fma(w, v[z], sum[i][z]);
        }
    }
    for (int i = 0; i < n; ++i)
        for (int z = 0; z < width; ++z) store(blend + i * size + z * LANES, sum[i][z]);
}

template <int n>
inline void add_block(const float* weights, const float* shrink, const uint16_t* values, int first, int last, int size, float* blend) {
    int d = 0;
    for (; d + 4 * LANES <= size; d += 4 * LANES) add_values<n, 4>(weights, shrink, values + d, first, last, size, blend + d);
    for (; d < size; d += LANES) add_values<n, 1>(weights, shrink, values + d, first, last, size, blend + d);
}

// `n` queries over `block_at(number)`; `scale` times log2(e) is already in it.
template <int n, class Blocks>
void attend(const Query* queries, int size, float scale, const Blocks& block_at) {
    Running<n> state;
    std::fill(state.blend, state.blend + n * size, 0.0f);
    int first = queries[0].first, last = queries[0].last;
    for (int i = 0; i < n; ++i) {
        state.most[i] = NOTHING;
        state.sum[i] = 0.0f;
        first = std::min(first, queries[i].first);
        last = std::max(last, queries[i].last);
    }
    for (int b = first / BLOCK; b * BLOCK < last; ++b) {
        const Block block = block_at(b);
        scores<n>(queries, block.keys, size, state.weights);
        bool whole = true;
        for (int i = 0; i < n; ++i) {
            state.first[i] = std::max(0, queries[i].first - b * BLOCK);
            state.last[i] = std::min(BLOCK, queries[i].last - b * BLOCK);
            whole = whole && state.first[i] == 0 && state.last[i] == BLOCK;
            if (state.first[i] < state.last[i]) weigh(state, i, scale);
        }
        if (whole) {
            add_block<n>(state.weights, state.shrink, block.values, 0, BLOCK, size, state.blend);
            continue;
        }
        for (int i = 0; i < n; ++i)  // what a query does not see may be anything, NaN too
            if (state.first[i] < state.last[i])
                add_block<1>(state.weights + i * BLOCK, state.shrink + i, block.values, state.first[i], state.last[i], size, state.blend + i * size);
    }
    for (int i = 0; i < n; ++i) {
        const Floats inverse = spread(1.0f / state.sum[i]);
        for (int d = 0; d < size; d += LANES) store(queries[i].out + d, load(state.blend + i * size + d) * inverse);
    }
}

template <class Blocks, int most = MOST_QUERIES>
void attend(const Query* queries, int n, int size, float scale, const Blocks& block_at) {
    for (; n >= most; n -= most, queries += most) attend<most>(queries, size, scale, block_at);
    if constexpr (most > 1) {
        if (n > 0) attend<Blocks, most - 1>(queries, n, size, scale, block_at);
    }
}

}  // namespace wager
