// What kernels in plain C are written with: one element at a time, no vectors, no threads, no compiler's extensions.
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- whole numbers

static inline int64_t floordiv(int64_t a, int64_t b) {  // towards minus infinity; by 0 it is 0
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a ^ b) < 0);
}
static inline int64_t mod(int64_t a, int64_t b) {  // the sign of b
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r ^ b) < 0 ? r + b : r;
}
static inline int64_t power(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t result = 1, base = (uint64_t)a;
    for (; b; b >>= 1, base *= base)
        if (b & 1) result *= base;
    return (int64_t)result;
}
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t shl(int64_t a, int64_t b, int width) { return b < 0 || b >= width ? 0 : (int64_t)((uint64_t)a << b); }
static inline int64_t shr(int64_t a, int64_t b, int width) { return a >> (b < 0 || b >= width ? width - 1 : b); }

// ---- floats to whole numbers: what does not fit gives the lowest one

static inline int64_t to_i64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }
static inline int32_t to_i32(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN; }

// ---- bits, and floats of 16 of them

#define BITS(TO, FROM, NAME) \
    static inline TO NAME(FROM x) { TO y; memcpy(&y, &x, sizeof y); return y; }
BITS(int32_t, float, bits_of_f32)
BITS(float, int32_t, f32_of_bits)
BITS(int64_t, double, bits_of_f64)
BITS(double, int64_t, f64_of_bits)
static inline float from_bf16(uint16_t x) { return f32_of_bits((int32_t)((uint32_t)x << 16)); }
static inline uint16_t to_bf16(float x) {
    uint32_t bits = (uint32_t)bits_of_f32(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline float from_f16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
    if (rest >= 0x7c00) return f32_of_bits((int32_t)(sign | 0x7f800000 | (rest & 0x3ff) << 13));
    float size = rest < 0x400 ? (float)rest * 0x1p-24f : f32_of_bits((int32_t)((rest << 13) + 0x38000000));
    return sign ? -size : size;
}
static inline uint16_t to_f16(float x) {
    uint32_t bits = (uint32_t)bits_of_f32(x), sign = bits >> 16 & 0x8000;
    float size = fabsf(x);
    if (x != x) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)rintf(size * 0x1p24f));
    bits &= 0x7fffffff;
    return (uint16_t)(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}
static inline float round_bf16(float x) { return from_bf16(to_bf16(x)); }
static inline float round_f16(float x) { return from_f16(to_f16(x)); }

// ---- floats: each function for both widths; NaN goes through minima and maxima, halves are rounded to even

#define FLOATS(T, D, S) \
    static inline T minimum_##D(T a, T b) { return a != a || a < b ? a : b; } \
    static inline T maximum_##D(T a, T b) { return a != a || a > b ? a : b; } \
    static inline T sign_##D(T a) { return a == 0 || a != a ? a : a > 0 ? (T)1 : (T)-1; } \
    static inline T floordiv_##D(T a, T b) {  /* as eager finds it: by the exact remainder */ \
        if (b == 0) return a / b; \
        T r = fmod##S(a, b), q = (a - r) / b; \
        if (r != 0 && (b < 0) != (r < 0)) q -= 1; \
        if (q == 0) return copysign##S(0, a / b); \
        T whole = floor##S(q); \
        return q - whole > (T)0.5 ? whole + 1 : whole; \
    } \
    static inline T mod_##D(T a, T b) { \
        T r = fmod##S(a, b); \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
    } \
    static inline T rsqrt_##D(T a) { return 1 / sqrt##S(a); } \
    static inline T sigmoid_##D(T a) { return 1 / (1 + exp##S(-a)); } \
    static inline T logaddexp_##D(T a, T b) { \
        T low = minimum_##D(a, b), high = maximum_##D(a, b); \
        return low == high && isinf(low) ? high : log1p##S(exp##S(low - high)) + high; \
    }
FLOATS(float, f32, f)
FLOATS(double, f64, )

// ---- random numbers: Philox-4x32-10, whose key is the seed and whose counter the number of the element

static inline void philox(int64_t seed, int64_t at, uint32_t* first, uint32_t* second) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    uint32_t c0 = (uint32_t)at, c1 = (uint32_t)((uint64_t)at >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; ++round) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0, c1 = (uint32_t)b, c2 = (uint32_t)(a >> 32) ^ c3 ^ k1, c3 = (uint32_t)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    *first = c0, *second = c1;
}
static inline float uniform(int64_t seed, int64_t at) {
    uint32_t a, b;
    philox(seed, at, &a, &b);
    return (float)(a >> 8) * 0x1p-24f;
}
static inline float normal(int64_t seed, int64_t at) {
    uint32_t a, b;
    philox(seed, at, &a, &b);
    return sqrtf(logf((float)((a >> 8) + 1) * 0x1p-24f) * -2.0f) * cosf((float)(b >> 8) * 0x1p-24f * 6.2831855f);
}
