// Weights into the order that product.hpp reads, and eight-bit weights that came from four bits back into four.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "product.hpp"

namespace wager {

constexpr int MOST_STEPS = 15, FEWEST_STEPS = 8;
constexpr int WIDE = 120;         // codes that fill their eight bits: levels are so far apart that rounding hides none
constexpr float FARTHEST = 1.0f;  // from its level, in codes: half of one for the rounding, half for the fit

// Fit of `codes` by start + step * q with q the nearest of `n_steps` + 1 even levels, refined by least squares. Returns
// the largest distance.
inline float fit(const int8_t* codes, int low, float first_step, uint8_t* q, float* step, float* start) {
    float sq = 0, sqq = 0, sc = 0, sqc = 0;
    for (int i = 0; i < GROUP; ++i) {
        const int level = (int)std::lround((codes[i] - low) / first_step);
        q[i] = (uint8_t)level;
        sq += level, sqq += level * level, sc += codes[i], sqc += level * codes[i];
    }
    *step = (GROUP * sqc - sq * sc) / (GROUP * sqq - sq * sq);
    *start = (sc - *step * sq) / GROUP;
    float far = 0;
    for (int i = 0; i < GROUP; ++i) far = std::max(far, std::fabs(codes[i] - (*start + *step * q[i])));
    return far;
}

// Whether a group's eight-bit codes lie on at most 16 even levels, as those of weights that were rounded to four bits
// before do: codes = start + step * q, exactly, or but for their rounding where they fill the eight bits.
inline bool on_levels(const int8_t* codes, uint8_t* q, float* step, float* start) {
    const auto [lowest, highest] = std::minmax_element(codes, codes + GROUP);
    const int low = *lowest, range = *highest - low;
    int apart = 0;
    for (int i = 0; i < GROUP; ++i) apart = std::gcd(apart, codes[i] - low);
    apart = std::max(apart, 1);
    if (range <= MOST_STEPS * apart) {
        for (int i = 0; i < GROUP; ++i) q[i] = (uint8_t)((codes[i] - low) / apart);
        *step = (float)apart, *start = (float)low;
        return true;
    }
    for (int n_steps = MOST_STEPS; n_steps >= FEWEST_STEPS && range >= WIDE; --n_steps)
        if (fit(codes, low, (float)range / n_steps, q, step, start) <= FARTHEST) return true;
    return false;
}

// One tile of `n` groups: codes (16 rows, n, 32), scales and offsets (16 rows, n), offsets null for none.
template <class F>
void pack_tile(const uint8_t* codes, const float* scales, const float* offsets, int n, uint8_t* to) {
    for (int g = 0; g < n; ++g, to += F::group_bytes) {
        for (int lane = 0; lane < TILE; ++lane) {
            const uint8_t* from = codes + ((size_t)lane * n + g) * GROUP;
            for (int i = 0; i < GROUP; ++i) {
                const int four = i / 4, at = lane * 4 + i % 4;
                if (F::bits == 8) to[four * 64 + at] = from[i];
                else if (i < GROUP / 2) to[four * 64 + at] = from[i];
                else to[(four - GROUP / 8) * 64 + at] |= from[i] << 4;
            }
        }
        for (int part = 0; part < 1 + F::offsets; ++part) {
            float values[TILE];
            for (int lane = 0; lane < TILE; ++lane) values[lane] = (part ? offsets : scales)[(size_t)lane * n + g];
            uint8_t* place = to + F::code_bytes + part * F::scale_bytes;
            if (F::half) store_half((uint16_t*)place, load(values));
            else store((float*)place, load(values));
        }
    }
}

}  // namespace wager
