// Sixteen lanes of floats and of 32-bit sums, on AVX-512 with VNNI or on AVX2: all that the kernels ask of a processor.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace wager {

constexpr int LANES = 16;
constexpr float LOG2_E = 1.4426950408889634f;

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VNNI__)

constexpr int MOST_ROWS = 12, MOST_QUERIES = 6;  // as many as its registers hold sums of

struct Floats {
    __m512 v;
};

inline Floats spread(float x) { return {_mm512_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Floats load_half(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }
inline void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
inline void store_half(uint16_t* p, Floats a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, 0)); }
inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats magnitude(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline Floats nearest(Floats a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Floats times_power_of_two(Floats a, Floats n) { return {_mm512_scalef_ps(a.v, n.v)}; }
// `a` where `x` is below zero, `b` elsewhere.
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_movepi32_mask(_mm512_castps_si512(x.v)), a.v)};
}
inline float largest(Floats a) { return _mm512_reduce_max_ps(a.v); }
inline float total(Floats a) { return _mm512_reduce_add_ps(a.v); }

// Stores the lanes as signed bytes, rounded to nearest; they must fit. Returns their sum.
inline int32_t store_bytes(int8_t* p, Floats a) {
    const __m512i whole = _mm512_cvtps_epi32(a.v);
    _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(whole));
    return _mm512_reduce_add_epi32(whole);
}

// Lanes [first, last) of `a`, others of `b`; the ends may lie outside.
inline Floats within(Floats a, Floats b, int first, int last) {
    const uint32_t below_last = last >= LANES ? 0xffffu : last <= 0 ? 0u : (1u << last) - 1;
    const uint32_t below_first = first >= LANES ? 0xffffu : first <= 0 ? 0u : (1u << first) - 1;
    return {_mm512_mask_mov_ps(b.v, (__mmask16)(below_last & ~below_first), a.v)};
}

struct Sums {
    __m512i v;
};
struct Bytes {  // 64 of them: four for every lane
    __m512i v;
};

inline Sums spread_sum(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Floats as_floats(Sums a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Bytes load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Bytes low_nibbles(Bytes a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline Bytes high_nibbles(Bytes a) { return low_nibbles({_mm512_srli_epi16(a.v, 4)}); }

// Adds to every lane the product of its four unsigned bytes with the same four signed ones.
template <bool nibbles>
inline Sums dot(Sums sum, Bytes codes, const int8_t* four) {
    int32_t x;
    std::memcpy(&x, four, 4);
    return {_mm512_dpbusd_epi32(sum.v, codes.v, _mm512_set1_epi32(x))};
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

constexpr int MOST_ROWS = 4, MOST_QUERIES = 3;

struct Floats {
    __m256 a, b;
};

inline Floats spread(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Floats load_half(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p + 1))};
}
inline void store(float* p, Floats x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
inline void store_half(uint16_t* p, Floats x) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(x.a, 0));
    _mm_storeu_si128((__m128i*)p + 1, _mm256_cvtps_ph(x.b, 0));
}
inline Floats operator+(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats operator-(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Floats operator*(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats operator/(Floats x, Floats y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Floats fma(Floats x, Floats y, Floats z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline Floats larger(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Floats magnitude(Floats x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline Floats nearest(Floats x) {
    constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
inline __m256 power_of_two(__m256 n) {
    const __m256i exponent = _mm256_cvtps_epi32(_mm256_max_ps(n, _mm256_set1_ps(-127.0f)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}
inline Floats times_power_of_two(Floats x, Floats n) {
    return {_mm256_mul_ps(x.a, power_of_two(n.a)), _mm256_mul_ps(x.b, power_of_two(n.b))};
}
inline Floats where_negative(Floats x, Floats a, Floats b) {
    return {_mm256_blendv_ps(b.a, a.a, x.a), _mm256_blendv_ps(b.b, a.b, x.b)};
}
inline float largest(Floats x) {
    alignas(32) float of[8];
    _mm256_store_ps(of, _mm256_max_ps(x.a, x.b));
    float most = of[0];
    for (float value : of) most = value > most ? value : most;
    return most;
}
inline float total(Floats x) {
    alignas(32) float of[8];
    _mm256_store_ps(of, _mm256_add_ps(x.a, x.b));
    return ((of[0] + of[4]) + (of[1] + of[5])) + ((of[2] + of[6]) + (of[3] + of[7]));
}

inline int32_t store_bytes(int8_t* p, Floats x) {
    const __m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b);
    const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    _mm_storeu_si128((__m128i*)p, bytes);
    alignas(32) int32_t of[8];
    _mm256_store_si256((__m256i*)of, _mm256_add_epi32(a, b));
    return of[0] + of[1] + of[2] + of[3] + of[4] + of[5] + of[6] + of[7];
}

inline __m256 within(__m256 a, __m256 b, int first, int last) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i inside = _mm256_andnot_si256(
        _mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane), _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane)
    );
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(inside));
}
inline Floats within(Floats x, Floats y, int first, int last) {
    return {within(x.a, y.a, first, last), within(x.b, y.b, first - 8, last - 8)};
}

struct Sums {
    __m256i a, b;
};
struct Bytes {
    __m256i a, b;
};

inline Sums spread_sum(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Floats as_floats(Sums x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)p + 1)};
}
inline Bytes low_nibbles(Bytes x) {
    const __m256i low = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low)};
}
inline Bytes high_nibbles(Bytes x) { return low_nibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}); }

// Pairs of products are added in 16 bits, where whole bytes would saturate: nibbles (at most 15) cannot.
inline __m256i dot_nibbles(__m256i codes, __m256i x) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
}
template <bool nibbles>
inline Sums dot(Sums sum, Bytes codes, const int8_t* four) {
    int32_t value;
    std::memcpy(&value, four, 4);
    const __m256i x = _mm256_set1_epi32(value);
    const Bytes low = nibbles ? codes : low_nibbles(codes);
    sum = {_mm256_add_epi32(sum.a, dot_nibbles(low.a, x)), _mm256_add_epi32(sum.b, dot_nibbles(low.b, x))};
    if constexpr (!nibbles) {
        const Bytes high = high_nibbles(codes);
        sum.a = _mm256_add_epi32(sum.a, _mm256_slli_epi32(dot_nibbles(high.a, x), 4));
        sum.b = _mm256_add_epi32(sum.b, _mm256_slli_epi32(dot_nibbles(high.b, x), 4));
    }
    return sum;
}

#else
#error "neither AVX-512 with VNNI nor AVX2 with FMA and F16C"
#endif

// 2^x for x <= 0: a polynomial of degree six between half integers, relative error below 1e-6 / 8.
inline Floats exp2(Floats x) {
    const Floats n = nearest(x), f = x - n;
    Floats p = spread(1.540353039338160e-4f);
    p = fma(p, f, spread(1.333355814642844e-3f));
    p = fma(p, f, spread(9.618129107628477e-3f));
    p = fma(p, f, spread(5.550410866482158e-2f));
    p = fma(p, f, spread(2.402265069591007e-1f));
    p = fma(p, f, spread(6.931471805599453e-1f));
    p = fma(p, f, spread(1.0f));
    return times_power_of_two(p, n);
}

}  // namespace wager
