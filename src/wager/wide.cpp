// Passes over a row as long as the vocabulary: sums of exponentials, and who can win an exponential race.
//
// Loops without branches that compilers turn into vector code; nothing here knows a processor.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace {

constexpr int64_t FEW = 256;    // entries that are passed over together where none is large
constexpr int64_t PART = 2048;  // entries whose bounds stay in the nearest cache

inline double of_bits(uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, 8);
    return x;
}

inline uint64_t bits_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    return bits;
}

// e^y for y <= 0, within two units in the last place; 0 below e^-708.
inline double exp_of(double y) {
    constexpr double shift = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number, in the low bits
    const double kept = y > -708.0 ? y : -708.0;
    const double shifted = __builtin_fma(kept, 1.4426950408889634, shift), n = shifted - shift;
    double r = __builtin_fma(n, -6.93147180369123816490e-01, kept);
    r = __builtin_fma(n, -1.90821492927058770002e-10, r);
    double sum = 1.0 / 479001600;  // Taylor: the first term left out is below 2^-53 of the sum for |r| <= log(2) / 2
    sum = __builtin_fma(sum, r, 1.0 / 39916800);
    sum = __builtin_fma(sum, r, 1.0 / 3628800);
    sum = __builtin_fma(sum, r, 1.0 / 362880);
    sum = __builtin_fma(sum, r, 1.0 / 40320);
    sum = __builtin_fma(sum, r, 1.0 / 5040);
    sum = __builtin_fma(sum, r, 1.0 / 720);
    sum = __builtin_fma(sum, r, 1.0 / 120);
    sum = __builtin_fma(sum, r, 1.0 / 24);
    sum = __builtin_fma(sum, r, 1.0 / 6);
    sum = __builtin_fma(sum, r, 0.5);
    sum = __builtin_fma(sum, r, 1.0);
    sum = __builtin_fma(sum, r, 1.0);
    const double found = of_bits(bits_of(sum) + (bits_of(shifted) << 52));
    return y > -708.0 ? found : 0.0;
}

// e^y for -87 <= y <= 0, within 1e-6 of itself.
inline float short_exp_of(float y) {
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23
    const float kept = y > -87.0f ? y : -87.0f;
    const float shifted = kept * 1.44269504f + shift, n = shifted - shift;
    const float r = kept - n * 0.693145752f - n * 1.42860677e-6f;
    float sum = r * (1.0f / 720) + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    uint32_t bits, power;
    std::memcpy(&bits, &sum, 4);
    std::memcpy(&power, &shifted, 4);
    bits += power << 23;
    float found;
    std::memcpy(&found, &bits, 4);
    return found;
}

// log v for v in (0, 1], within 1e-4; a number below -80 for 0.
inline float log_of(float v) {
    int32_t bits;
    std::memcpy(&bits, &v, 4);
    const int32_t exponent = (bits - 0x3f2aaaab) >> 23;  // of a mantissa in [2/3, 4/3)
    const int32_t mantissa = bits - (exponent << 23);
    float m;
    std::memcpy(&m, &mantissa, 4);
    const float r = m - 1.0f;
    float sum = -1.0f / 8;
    sum = sum * r + 1.0f / 7;
    sum = sum * r - 1.0f / 6;
    sum = sum * r + 1.0f / 5;
    sum = sum * r - 1.0f / 4;
    sum = sum * r + 1.0f / 3;
    sum = sum * r - 1.0f / 2;
    sum = sum * r + 1.0f;
    return (float)exponent * 0.6931472f + sum * r;
}

// The hash of noise (sampling.py): its upper 52 bits are a uniform number.
inline uint64_t hashed(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

// The largest entry; NaN where there is one that is no number.
template <class T>
double most(const T* x, int64_t n) {
    T top = -std::numeric_limits<T>::infinity();
    int32_t odd = 0;
#pragma omp simd reduction(max : top) reduction(| : odd)
    for (int64_t i = 0; i < n; ++i) {
        top = x[i] > top ? x[i] : top;
        odd |= x[i] != x[i];
    }
    return odd ? std::numeric_limits<double>::quiet_NaN() : (double)top;
}

template <class T>
bool exponentials(const T* x, int64_t n, double inverse, double* out, double* sum) {
    const double top = most(x, n);
    if (!(std::fabs(top) < std::numeric_limits<double>::infinity())) return false;
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) {
        out[i] = exp_of(((double)x[i] - top) * inverse);
        total += out[i];
    }
    *sum = total;
    return true;
}

// Sums over at most FEW entries of e^y and of y e^y, y = (x - top) * inverse. What is below e^-8 is in float32: right to
// 1e-6 of itself, so to 1e-7 of all.
template <class T>
std::pair<double, double> sums_of_part(const T* x, int64_t n, double top, double inverse) {
    const float steep = (float)(inverse < 1e38 ? inverse : 1e38);
    const T short_top = (T)top;
    float some = 0, some_logs = 0;
    int32_t n_large = 0;
#pragma omp simd reduction(+ : some, some_logs, n_large)
    for (int64_t i = 0; i < n; ++i) {
        const float y = (float)(x[i] - short_top) * steep, weight = short_exp_of(y);
        const float kept = (y >= -8.0f) | (y < -87.0f) ? 0.0f : weight;
        some += kept;
        some_logs += kept * (y > -87.0f ? y : 0.0f);
        n_large += y >= -8.0f;
    }
    double sum = some, logs = some_logs;
    if (n_large > FEW / 40) {
        sum = logs = 0;
#pragma omp simd reduction(+ : sum, logs)
        for (int64_t i = 0; i < n; ++i) {
            const double y = ((double)x[i] - top) * inverse, weight = exp_of(y);
            sum += weight;
            logs += weight * (y > -708.0 ? y : 0.0);
        }
    } else if (n_large) {
        uint8_t large[FEW] = {};
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) large[i] = (float)(x[i] - short_top) * steep >= -8.0f;
        for (int64_t start = 0; start < FEW; start += 8) {
            uint64_t any;
            std::memcpy(&any, large + start, 8);
            for (int64_t i = start; any && i < start + 8; ++i)
                if (large[i]) {
                    const double y = ((double)x[i] - top) * inverse, weight = exp_of(y);
                    sum += weight;
                    logs += weight * y;
                }
        }
    }
    return {sum, logs};
}

template <class T>
bool sums_of(const T* x, int64_t n, double inverse, double* parts, double* sums) {
    const double top = most(x, n);
    if (!(std::fabs(top) < std::numeric_limits<double>::infinity())) return false;
    sums[0] = sums[1] = 0;
    sums[2] = top;
    for (int64_t start = 0; start < n; start += FEW) {
        const auto [part, logs] = sums_of_part(x + start, std::min(FEW, n - start), top, inverse);
        parts[start / FEW] = part;
        sums[0] += part;
        sums[1] += logs;
    }
    return true;
}

// -log E of entry i, exactly.
inline double late(uint64_t key, int64_t i) {
    const double u = ((double)(hashed(key + (uint64_t)(i + 1) * GOLDEN) >> 12) + 0.5) * 0x1p-52;
    return -std::log(-std::log(u));
}

template <class T>
int64_t shortlist(const T* x, int64_t n, uint64_t key, double inverse, double slack, float* bounds, int64_t* ids, int64_t room) {
    const double top = most(x, n);
    if (!(std::fabs(top) < std::numeric_limits<double>::infinity())) return -1;
    double goal = -std::numeric_limits<double>::infinity();
    for (int64_t start = 0; start < n; start += PART) {
        const int64_t end = start + PART < n ? start + PART : n;
        float best = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : best)
        for (int64_t i = start; i < end; ++i) {
            // E = -log u >= 1 - u, and 31 bits of 1 - u from below
            const int32_t bits = 0x7fffffff - (int32_t)(hashed(key + (uint64_t)(i + 1) * GOLDEN) >> 33);
            const float least = (float)bits * 0x1p-31f;
            bounds[i] = (float)(((double)x[i] - top) * inverse) - log_of(least);
            best = bounds[i] > best ? bounds[i] : best;
        }
        if (best < goal - slack) continue;
        for (int64_t i = start; i < end; ++i)
            if (bounds[i] == best) {
                const double value = ((double)x[i] - top) * inverse + late(key, i);
                goal = value > goal ? value : goal;
                break;
            }
    }
    const float least = (float)(goal - slack);
    int64_t found = 0;
    for (int64_t start = 0; start < n; start += PART) {
        const int64_t end = start + PART < n ? start + PART : n;
        int32_t some = 0;
#pragma omp simd reduction(| : some)
        for (int64_t i = start; i < end; ++i) some |= bounds[i] >= least;
        if (!some) continue;
        for (int64_t i = start; i < end; ++i)
            if (bounds[i] >= least) {
                if (found == room) return -1;
                ids[found++] = i;
            }
    }
    return found;
}

// Whether entry (value, id) comes after another one: by falling value, then by rising id.
struct Later {
    template <class E>
    bool operator()(const E& a, const E& b) const {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    }
};

template <class T>
int64_t largest(const T* x, int64_t n, int64_t k, int64_t* ids) {
    std::vector<std::pair<T, int64_t>> kept;  // a heap with the last of them on top
    kept.reserve(k);
    for (int64_t start = 0; start < n; start += FEW) {
        const int64_t end = start + FEW < n ? start + FEW : n;
        if ((int64_t)kept.size() == k) {
            T top = x[start];
#pragma omp simd reduction(max : top)
            for (int64_t i = start; i < end; ++i) top = x[i] > top ? x[i] : top;
            if (!(top > kept.front().first)) continue;
        }
        for (int64_t i = start; i < end; ++i) {
            if ((int64_t)kept.size() == k) {
                if (!(x[i] > kept.front().first)) continue;
                std::pop_heap(kept.begin(), kept.end(), Later());
                kept.pop_back();
            }
            kept.emplace_back(x[i], i);
            std::push_heap(kept.begin(), kept.end(), Later());
        }
    }
    std::sort_heap(kept.begin(), kept.end(), Later());
    for (size_t i = 0; i < kept.size(); ++i) ids[i] = kept[i].second;
    return kept.size();
}

}  // namespace

#define PUBLIC extern "C" __attribute__((visibility("default")))

// out (n,): e^y for y = (x - largest x) * inverse; and their sum. False: x is not made of numbers.
PUBLIC bool wager_exponentials(const void* x, bool wide, int64_t n, double inverse, double* out, double* sum) {
    return wide ? exponentials((const double*)x, n, inverse, out, sum) : exponentials((const float*)x, n, inverse, out, sum);
}

// sums: of e^y, of y e^y, and the largest x; parts: of e^y over every FEW entries. False as above.
PUBLIC bool wager_sums(const void* x, bool wide, int64_t n, double inverse, double* parts, double* sums) {
    return wide ? sums_of((const double*)x, n, inverse, parts, sums) : sums_of((const float*)x, n, inverse, parts, sums);
}

// Rising ids of all entries that may have the largest x * inverse - log E; bounds (n,) is room to work in. -1: x is not
// made of numbers, or more than `room` may.
PUBLIC int64_t wager_shortlist(
    const void* x, bool wide, int64_t n, uint64_t key, double inverse, double slack, float* bounds, int64_t* ids, int64_t room) {
    return wide ? shortlist((const double*)x, n, key, inverse, slack, bounds, ids, room)
                : shortlist((const float*)x, n, key, inverse, slack, bounds, ids, room);
}

// Ids of the k largest entries, best first, equal ones by rising id; returns how many there are. x must be numbers.
PUBLIC int64_t wager_largest(const void* x, bool wide, int64_t n, int64_t k, int64_t* ids) {
    return wide ? largest((const double*)x, n, k, ids) : largest((const float*)x, n, k, ids);
}
