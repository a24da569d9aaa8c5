// Products with quantised weights: activations are rounded to int8 in groups of 32, sums are exact integers a group.
//
// A row's result depends on that row alone: sums run over the groups in order, whatever rows are beside it, whatever the
// number of threads. That is what makes text independent of how many tokens are verified at once.
#pragma once

#include "lanes.hpp"

namespace wager {

constexpr int TILE = LANES;  // outputs that are computed side by side
constexpr int GROUP = 32;    // inputs that share a scale
constexpr float LEAST = 1e-36f;  // of activations: 127 over less overflows
constexpr int AHEAD = 4096;  // bytes: weights come from memory, and the processor's own prefetching stops at pages

// How the weights are kept. A tile has for every group: codes (4 or 8 bits, unsigned), 16 scales, and 16 offsets if any.
// w = scale * (code - middle), or scale * code + offset.
template <int bits_, bool offsets_, bool half_>
struct Form {
    static constexpr int bits = bits_, middle = 1 << (bits_ - 1);
    static constexpr bool offsets = offsets_, half = half_;
    static constexpr size_t code_bytes = GROUP * TILE * bits / 8;
    static constexpr size_t scale_bytes = TILE * (half ? 2 : 4);
    static constexpr size_t group_bytes = code_bytes + scale_bytes * (offsets ? 2 : 1);

    static Floats scales(const uint8_t* p) { return half ? load_half((const uint16_t*)p) : load((const float*)p); }
};

// Rounded activations of some rows: codes (rows, n * 32), scales and sums of the codes (rows, n).
struct Rounded {
    const int8_t* codes;
    const float* scales;
    const int32_t* sums;
    int n_groups;

    Rounded from(int row) const {
        return {codes + (size_t)row * n_groups * GROUP, scales + (size_t)row * n_groups, sums + (size_t)row * n_groups, n_groups};
    }
};

// x / (1 + e^-x), of the exponential that cannot overflow.
inline Floats silu(Floats x) {
    const Floats small = exp2(magnitude(x) * spread(-LOG2_E)), one = spread(1.0f);
    return x * where_negative(x, small, one) / (one + small);
}

// 16 activations: as they are, or silu(x) * up for those that a gated product reads.
template <bool gated>
inline Floats activation(const float* x, const float* up) {
    return gated ? silu(load(x)) * load(up) : load(x);
}

template <bool gated>
inline void round_group(const float* x, const float* up, int8_t* codes, float* scale, int32_t* sum) {
    const Floats first = activation<gated>(x, up), second = activation<gated>(x + LANES, up + LANES);
    const float most = largest(larger(magnitude(first), magnitude(second)));
    const Floats inverse = spread(most > LEAST ? 127.0f / most : 0.0f);
    *sum = store_bytes(codes, first * inverse) + store_bytes(codes + LANES, second * inverse);
    *scale = most / 127.0f;
}

// A row of `n_groups` groups; `up` are the other factors of a gated one.
template <bool gated>
void round_row(const float* x, const float* up, int n_groups, int8_t* codes, float* scales, int32_t* sums) {
    for (int g = 0; g < n_groups; ++g)
        round_group<gated>(x + g * GROUP, up + g * GROUP, codes + g * GROUP, scales + g, sums + g);
}

// Sums of one group for `rows` rows; the codes of the group are read once.
template <class F, int rows>
inline void group_sums(const uint8_t* w, const int8_t* x, size_t row_bytes, Sums* sum) {
    constexpr int n_loads = F::code_bytes / 64;
#pragma GCC unroll 12
    for (int j = 0; j < n_loads; ++j) {
        const Bytes codes = load_bytes(w + 64 * j);
        if constexpr (F::bits == 8) {
#pragma GCC unroll 12
            for (int r = 0; r < rows; ++r) sum[r] = dot<false>(sum[r], codes, x + r * row_bytes + 4 * j);
        } else {
            const Bytes low = low_nibbles(codes), high = high_nibbles(codes);
#pragma GCC unroll 12
            for (int r = 0; r < rows; ++r) sum[r] = dot<true>(sum[r], low, x + r * row_bytes + 4 * j);
#pragma GCC unroll 12
            for (int r = 0; r < rows; ++r) sum[r] = dot<true>(sum[r], high, x + r * row_bytes + GROUP / 2 + 4 * j);
        }
    }
}

// One tile for `rows` rows: 16 outputs each, rows of `out` are `stride` apart.
template <class F, int rows>
inline void tile(const uint8_t* w, const Rounded& x, float* out, size_t stride) {
    const size_t n = x.n_groups;
    Floats result[rows];
    for (int r = 0; r < rows; ++r) result[r] = spread(0.0f);
    for (size_t g = 0; g < n; ++g, w += F::group_bytes) {
        for (size_t line = 0; line < F::group_bytes; line += 64) _mm_prefetch((const char*)(w + AHEAD + line), _MM_HINT_T0);
        Sums sum[rows];
#pragma GCC unroll 12
        for (int r = 0; r < rows; ++r) sum[r] = spread_sum(F::offsets ? 0 : -F::middle * x.sums[r * n + g]);
        group_sums<F, rows>(w, x.codes + g * GROUP, n * GROUP, sum);
        const Floats scale = F::scales(w + F::code_bytes);
        const Floats offset = F::offsets ? F::scales(w + F::code_bytes + F::scale_bytes) : spread(0.0f);
#pragma GCC unroll 12
        for (int r = 0; r < rows; ++r) {
            Floats value = as_floats(sum[r]) * scale;
            if constexpr (F::offsets) value = fma(spread((float)x.sums[r * n + g]), offset, value);
            result[r] = fma(value, spread(x.scales[r * n + g]), result[r]);
        }
    }
    for (int r = 0; r < rows; ++r) store(out + r * stride, result[r]);
}

template <class F, int rows = MOST_ROWS - 1>
inline void last_rows(int n_rows, const uint8_t* w, const Rounded& x, float* out, size_t stride) {
    if constexpr (rows > 0) {
        if (n_rows == rows) tile<F, rows>(w, x, out, stride);
        else last_rows<F, rows - 1>(n_rows, w, x, out, stride);
    }
}

// Tiles [first, last) for all rows: out (n_rows, stride) f32.
template <class F>
void tiles(const uint8_t* weights, int first, int last, const Rounded& x, int n_rows, float* out, size_t stride) {
    for (int t = first; t < last; ++t) {
        const uint8_t* w = weights + (size_t)t * x.n_groups * F::group_bytes;
        int row = 0;
        for (; row + MOST_ROWS <= n_rows; row += MOST_ROWS)
            tile<F, MOST_ROWS>(w, x.from(row), out + row * stride + t * TILE, stride);
        last_rows<F>(n_rows - row, w, x.from(row), out + row * stride + t * TILE, stride);
    }
}

}  // namespace wager
