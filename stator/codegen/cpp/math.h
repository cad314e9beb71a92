// Scalar functions on vectors and scalars: float by own polynomials (about 1 ULP), double by those for exponentials and
// logarithms, rare ones by libm. `doubles.h`, `circular.h` and `power.h` follow.
//
// Polynomials of floats are minimax fits made for this file (weighted least squares in double, printed as floats), those
// of doubles Taylor's, or the coefficients of fdlibm (Sun 1993). No function
// depends on the vector width, so a value does not change with the lane or the loop that computes it.

// Lanes one by one.
template <class F, class G, class... R> INLINE F by_lane(G f, F x, R... rest) {
    for (int j = 0; j < lanes_of<F>; ++j) x[j] = f(x[j], rest[j]...);
    return x;
}
// A function of float vectors whose double form is libm's.
#define FLOATS_(NAME, F64) \
    template <class F, class... R> INLINE F NAME(F x, R... y) { \
        if constexpr (Same<F, float>::value) return NAME##f32(splat<V<float, 4>>(x), splat<V<float, 4>>(y)...)[0]; \
        else if constexpr (is_f32<F>) return NAME##f32(x, y...); \
        else if constexpr (lanes_of<F> == 0) return F64(x, y...); \
        else return by_lane([](auto... a) BODY { return F64(a...); }, x, y...); \
    }
// One of vectors of both.
#define BOTH_(NAME) \
    template <class F> INLINE F NAME(F x) { \
        if constexpr (lanes_of<F> == 0) return NAME(splat<V<F, 16 / sizeof(F)>>(x))[0]; \
        else if constexpr (is_f32<F>) return NAME##f32(x); \
        else return NAME##f64(x); \
    }

// a * b + c, rounded once, where the processor can; elsewhere floats are rounded twice, doubles as they come.
template <class F> INLINE F fma_(F a, F b, F c) {
#if defined(__clang__)
    return __builtin_elementwise_fma(a, b, c);
#else
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64 && is_f32<F>) return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
    if constexpr (sizeof(F) == 64 && is_f64<F>) return __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4);
#endif
#ifdef __FMA__
    if constexpr (sizeof(F) == 32 && is_f32<F>) return __builtin_ia32_vfmaddps256(a, b, c);
    if constexpr (sizeof(F) == 32 && is_f64<F>) return __builtin_ia32_vfmaddpd256(a, b, c);
    if constexpr (sizeof(F) == 16 && is_f32<F>) return __builtin_ia32_vfmaddps(a, b, c);
    if constexpr (sizeof(F) == 16 && is_f64<F>) return __builtin_ia32_vfmaddpd(a, b, c);
    if constexpr (is_f64<F>) {
        return by_lane([](double x, double y, double z) BODY { return __builtin_fma(x, y, z); }, a, b, c);
    } else
#endif
    if constexpr (is_f64<F>) return a * b + c;
    else {
        typedef V<double, lanes_of<F>> D;  // exact product; rounded twice, which is close enough to a fused one
        return __builtin_convertvector(
            __builtin_convertvector(a, D) * __builtin_convertvector(b, D) + __builtin_convertvector(c, D), F);
    }
#endif
}
// The same as eager's kernels have it.
#ifdef __FMA__
INLINE float fused_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fused_(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class F> INLINE F fused_(F a, F b, F c) { return fma_(a, b, c); }
#else
template <class F> INLINE F fused_(F a, F b, F c) { return a * b + c; }
#endif
template <class F, class C> INLINE F poly(F, C c) { return splat<F>(c); }
template <class F, class C, class... R> INLINE F poly(F x, C c, R... rest) {
    return fma_(poly(x, rest...), x, splat<F>(c));
}
template <class F> INLINE F madd(F x, float a, F c) { return fma_(x, splat<F>(a), c); }

// ---- sign, size, rounding: any float kind

template <class F> struct Bits;
template <> struct Bits<float> { typedef int type; static constexpr int sign = (int)0x80000000; };
template <> struct Bits<double> { typedef i64_ type; static constexpr i64_ sign = (i64_)(1ull << 63); };
template <class F> INLINE F abs_(F x) {
    if constexpr (!is_float<F>) return x < 0 ? -x : x;
    else if constexpr (lanes_of<F> == 0) return __builtin_fabs(x);
    else return (F)((Int<F>)x & ~Bits<typename Element<F>::type>::sign);
}
template <class F> INLINE F with_sign(F size, F from) {
    constexpr auto sign = Bits<typename Element<F>::type>::sign;
    if constexpr (lanes_of<F> == 0) return __builtin_copysign(size, from);
    else return (F)(((Int<F>)size & ~sign) | ((Int<F>)from & sign));
}
// The instruction for it, where there is one: MODE is 0 to nearest, ties to even, 1 down, 2 up, 3 to zero.
#ifdef __AVX__
template <class F> constexpr bool has_rounding = sizeof(F) == 32 || sizeof(F) == 16 || sizeof(F) == register_bytes;
#else
template <class F> constexpr bool has_rounding = false;
#endif
template <int MODE, class F> INLINE F rounded_(F x) {
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64 && is_f32<F>) return __builtin_ia32_rndscaleps_mask(x, MODE, F{}, (unsigned short)-1, 4);
    else if constexpr (sizeof(F) == 64) return __builtin_ia32_rndscalepd_mask(x, MODE, F{}, (unsigned char)-1, 4);
#endif
#ifdef __AVX__
    if constexpr (sizeof(F) == 32 && is_f32<F>) return __builtin_ia32_roundps256(x, MODE);
    else if constexpr (sizeof(F) == 32) return __builtin_ia32_roundpd256(x, MODE);
    else if constexpr (sizeof(F) == 16 && is_f32<F>) return __builtin_ia32_roundps(x, MODE);
    else if constexpr (sizeof(F) == 16) return __builtin_ia32_roundpd(x, MODE);
#endif
    return x;
}
template <class F> constexpr typename Element<F>::type whole = sizeof(typename Element<F>::type) == 4 ? 0x1p23f : 0x1p52;
#define ROUNDING_(NAME, F32, F64, CODE) \
    INLINE float NAME(float x) { return F32(x); } \
    INLINE double NAME(double x) { return F64(x); } \
    template <class F> INLINE F NAME(F x) { \
        if constexpr (has_rounding<F>) return rounded_<CODE>(x); \
        F t = with_sign((abs_(x) + whole<F>) - whole<F>, x); /* to nearest, ties to even */ \
        if constexpr (CODE == 1) t = with_sign(t > x ? t - 1 : t, x); \
        if constexpr (CODE == 2) t = with_sign(t < x ? t + 1 : t, x); \
        if constexpr (CODE == 3) t = with_sign(abs_(t) > abs_(x) ? abs_(t) - 1 : abs_(t), x); \
        return abs_(x) < whole<F> ? t : x; \
    }
ROUNDING_(round_, __builtin_rintf, __builtin_rint, 0)
ROUNDING_(floor_, __builtin_floorf, __builtin_floor, 1)
ROUNDING_(ceil_, __builtin_ceilf, __builtin_ceil, 2)
ROUNDING_(trunc_, __builtin_truncf, __builtin_trunc, 3)

template <class T> INLINE T sign_(T x) {  // zeros and NaN stay
    if constexpr (lanes_of<T> == 0) return x > 0 ? (T)1 : x < 0 ? (T)-1 : x;
    else return (x > 0) ? splat<T>(1) : ((x < 0) ? splat<T>(-1) : x);
}
template <class F> INLINE auto isnan_(F x) { return mask(x != x); }
template <class F> INLINE auto isinf_(F x) { return mask(abs_(x) == (typename Element<F>::type)__builtin_inf()); }
// a > b ? a : b, or a < b: the instruction, which gives its second operand where one is NaN.
template <bool MAX, class T> INLINE T further_(T a, T b) {
#ifdef __AVX512F__
    if constexpr (sizeof(T) == 64 && is_f32<T>) {
        if constexpr (MAX) return __builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4);
        else return __builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4);
    }
#endif
#ifdef __AVX__
    if constexpr (sizeof(T) == 32 && is_f32<T>) return MAX ? __builtin_ia32_maxps256(a, b) : __builtin_ia32_minps256(a, b);
    if constexpr (sizeof(T) == 32 && is_f64<T>) return MAX ? __builtin_ia32_maxpd256(a, b) : __builtin_ia32_minpd256(a, b);
#endif
    if constexpr (MAX) return a > b ? a : b;
    else return a < b ? a : b;
}
// NaN wins, as in torch. Lanes are chosen by a comparison of their own width: a mask of doubles or int64 would be narrowed
// and widened again.
template <bool MAX, class T> INLINE T extreme_(T a, T b) {
    T further = further_<MAX>(a, b);  // not in the choice: of both, g++ would make one masked instruction, which waits longer
    if constexpr (is_float<T>) return a != a ? a : further;
    else return further;
}
template <class T> INLINE T min_(T a, T b) { return extreme_<false>(a, b); }
template <class T> INLINE T max_(T a, T b) { return extreme_<true>(a, b); }
// What the lanes of accumulators are folded by: one of each a unit, whose steps all kernels share.
#define FOLDING_(NAME, TEXT) \
    struct NAME { template <class T> BODY T operator()(T a, T b) const { return TEXT; } };
FOLDING_(Sum, a + b) FOLDING_(Product, a * b) FOLDING_(Greatest, max_(a, b)) FOLDING_(Least, min_(a, b))
FOLDING_(Either, a | b) FOLDING_(Both, a & b)

INLINE float divider_sqrt_(float x) { return __builtin_sqrtf(x); }
INLINE double divider_sqrt_(double x) { return __builtin_sqrt(x); }
template <class F> INLINE F divider_sqrt_(F x) {  // the instruction: for where much else is computed meanwhile
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64 && is_f32<F>) return __builtin_ia32_sqrtps512_mask(x, F{}, (unsigned short)-1, 4);
    if constexpr (sizeof(F) == 64 && !is_f32<F>) return __builtin_ia32_sqrtpd512_mask(x, F{}, (unsigned char)-1, 4);
#endif
#ifdef __AVX__
    if constexpr (sizeof(F) == 32 && is_f32<F>) return __builtin_ia32_sqrtps256(x);
    if constexpr (sizeof(F) == 32 && !is_f32<F>) return __builtin_ia32_sqrtpd256(x);
#endif
    return by_lane([](auto x) BODY { return divider_sqrt_(x); }, x);
}
// An estimate of 1 / sqrt(x) to 14 bits, a step of Newton's for it and for the root, and one of the root alone: what is left
// is far less than roots are away from the middle of two floats. It takes half as long as the instruction, which rounds to
// the same, and is for what is negative, 0, small or infinite.
template <class F> INLINE F sqrt_(F x) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (sizeof(F) == 64 && is_f32<F>) {
        V<int, 16> above = (V<int, 16>)x - 0x0d800000, most = V<int, 16>{} + 0x71ffffff;  // of 2^-100
        if (__builtin_expect(!__builtin_ia32_ucmpd512_mask(above, most, 6, (unsigned short)-1), 1)) {
            F near = __builtin_ia32_rsqrt14ps512_mask(x, F{}, (unsigned short)-1), root = x * near, half = near * 0.5f;
            F off = fma_(-half, root, splat<F>(0.5f));
            root = fma_(root, off, root), half = fma_(half, off, half);
            return fma_(fma_(-root, root, x), half, root);
        }
    }
#endif
    return divider_sqrt_(x);
}
template <class F> INLINE F rsqrt_(F x) { return (typename Element<F>::type)1 / sqrt_(x); }

template <class I> INLINE V<float, lanes_of<I>> at_(const float* table, I i) {  // of 16 numbers those at 0 <= i < 16
    typedef V<float, lanes_of<I>> F;
#ifdef __AVX512F__
    if constexpr (sizeof(I) == 64) {
        F all = raw<float, 16>(table, Full{});
        return __builtin_ia32_permvarsf512_mask(all, i, all, (unsigned short)-1);
    }
#endif
#ifdef __AVX2__
    if constexpr (sizeof(I) == 32)
        return __builtin_ia32_blendvps256(__builtin_ia32_permvarsf256(raw<float, 8>(table, Full{}), i),
                                          __builtin_ia32_permvarsf256(raw<float, 8>(table + 8, Full{}), i), (F)(i << 28));
    if constexpr (sizeof(I) == 16) return low(at_(table, V<int, 8>{i[0], i[1], i[2], i[3]}));
#endif
    F r;
    for (int j = 0; j < lanes_of<I>; ++j) r[j] = table[i[j]];
    return r;
}

// ---- exponentials and logarithms

template <class F> INLINE F scale_(F x, F n) {  // x * 2^n, n whole, rounded once more only where denormal
#ifdef __AVX512F__
    if constexpr (sizeof(F) == 64) return __builtin_ia32_scalefps512_mask(x, n, x, (unsigned short)-1, 4);
#endif
    typedef Int<F> I;
    I k = __builtin_convertvector(n, I), half = k >> 1;
    return x * (F)((half + 127) << 23) * (F)((k - half + 127) << 23);
}
template <class F> INLINE F nearest_(F x, float scale) {  // of x * scale, which is less than 2^22
    return madd(x, scale, splat<F>(0x1.8p23f)) - 0x1.8p23f;
}
template <class F> INLINE F no_less_(F x, float lo) { return further_<true>(splat<F>(lo), x); }  // NaN stays
template <class F> INLINE F no_more_(F x, float hi) { return further_<false>(splat<F>(hi), x); }
template <class F> INLINE F clamp_(F x, float lo, float hi) { return no_more_(no_less_(x, lo), hi); }
template <class F> INLINE F exp_rest(F r) {  // exp(r) - 1 of |r| <= ln2 / 2
    return fma_(r * r, poly(r, 0.49999994f, 0.16666515f, 0.041668456f, 0.008369421f, 0.0013813146f), r);
}
template <class F> INLINE F exp_core(F r) { return exp_rest(r) + 1.0f; }
// Exponents of numbers too small for a float, where some processors take fifty times as long if these are next to it.
#ifdef __AVX512F__
template <class F> constexpr float nothing = sizeof(F) == 64 ? -1400.0f : -245.0f;
#else
template <class F> constexpr float nothing = -245.0f;
#endif
template <class F> INLINE F exp_f32(F x) {
    x = clamp_(x, nothing<F> * 0x1.62e430p-1f, 89.0f);
    F n = nearest_(x, 0x1.715476p0f);
    return scale_(exp_core(madd(n, 0x1.05c610p-29f, madd(n, -0x1.62e430p-1f, x))), n);
}
template <class F> INLINE F exp2_f32(F x) {
    x = clamp_(x, nothing<F>, 129.0f);
    F n = nearest_(x, 1.0f), d = x - n;
    F r = d * 0x1.62e430p-1f;
    F low = madd(d, -0x1.05c610p-29f, madd(d, 0x1.62e430p-1f, -r));
    return scale_(exp_core(r + low), n);
}
template <class F> INLINE F expm1_f32(F x) {
    F y = clamp_(x, -18.0f, 89.0f);
    F n = nearest_(y, 0x1.715476p0f);
    F r = madd(n, 0x1.05c610p-29f, madd(n, -0x1.62e430p-1f, y));
    F p = fma_(r * r, poly(r, 0.5f, 0.16666666f, 0.041666348f, 0.0083333915f, 0.0013941654f, 0.0001984596f), r);
    F s = scale_(splat<F>(0.5f), n);
    F result = fma_(s, p, s - 0.5f) * 2.0f;
    return x == 0.0f ? x : n == 0.0f ? p : result;
}
// log(2^e * (1 + f)): f - f^2/2 + f^3 P(f) + e ln2
template <class F> INLINE F log_tail(F f) {
    return fma_(f * f, fma_(f, poly(f, 0.3333331f, -0.2500001f, 0.20002167f, -0.1666809f, 0.1421855f, -0.12403075f,
                                    0.11893543f, -0.1169441f, 0.06757593f), splat<F>(-0.5f)), F{});
}
template <class F> INLINE void split_(F x, F& e, F& f) {
    typedef Int<F> I;
    auto small = x < 0x1p-126f;
    I bits = (I)(small ? x * 0x1p24f : x) - 0x3f3504f3;
    e = __builtin_convertvector(bits >> 23, F) - (small ? splat<F>(24.0f) : F{});
    f = (F)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
}
template <class F> INLINE F log_edges(F x, F r) {
    F inf = splat<F>(__builtin_inff()), zero = {};
    F odd = x == zero ? -inf : (x < zero ? splat<F>(__builtin_nanf("")) : x);
    return (x > zero) & (x < inf) ? r : odd;
}
template <class F> INLINE F log_finite(F x) {
    F e, f;
    split_(x, e, f);
    return madd(e, 0x1.62e430p-1f, f + madd(e, -0x1.05c610p-29f, log_tail(f)));
}
#if defined(__AVX512VL__) && !defined(__clang__)
// Of each sixteenth of an octave from 3/4 to 3/2 a number near the reciprocal of its middle, and what times the logarithm
// of that is: to the bases e, 2 and 10. Next to 1, they are 1 and 0. Logarithms in the table are nearly floats.
alignas(64) static const float log_table_[3][2][16] __attribute__((unused)) = {
    {
        {1.0f, 0.91417927f, 0.86498255f, 0.82066107f, 0.78044915f, 0.7440316f, 0.7110863f, 0.6810205f, 1.3061446f,
         1.2551628f, 1.2075895f, 1.1636262f, 1.1230763f, 1.0843915f, 1.0495269f, 1.0f},
        {0.0f, 0.089728594f, 0.14504595f, 0.19764508f, 0.24788569f, 0.29567176f, 0.34096152f, 0.38416287f,
         -0.26707974f, -0.22726531f, -0.18862623f, -0.15154116f, -0.116071634f, -0.08101898f, -0.04833952f, 0.0f}},
    {
        {1.0f, 0.9141801f, 0.8646962f, 0.820501f, 0.78045154f, 0.74418026f, 0.71124357f, 0.6807578f, 1.3061032f,
         1.2549719f, 1.207256f, 1.1639476f, 1.1231579f, 1.0847076f, 1.0488855f, 1.0f},
        {0.0f, 0.12944968f, 0.20973474f, 0.28542295f, 0.35761905f, 0.42627597f, 0.4915844f, 0.55478644f,
         -0.38526893f, -0.32765502f, -0.2717316f, -0.21902609f, -0.16756071f, -0.11730622f, -0.06885715f, 0.0f}},
    {
        {1.0f, 0.91424155f, 0.86487406f, 0.8204715f, 0.7805493f, 0.7442075f, 0.71101654f, 0.68080074f, 1.3062997f,
         1.2548538f, 1.207516f, 1.1635754f, 1.1230848f, 1.0846893f, 1.0494015f, 1.0f},
        {0.0f, 0.038939044f, 0.063047126f, 0.08593649f, 0.10759967f, 0.12830596f, 0.1481203f, 0.16697998f,
         -0.11604282f, -0.098593146f, -0.08189288f, -0.065794535f, -0.050412543f, -0.03530534f, -0.02094169f, 0.0f}}};
template <class F> INLINE F exponent_(F x) {
    if constexpr (sizeof(F) == 64) return __builtin_ia32_getexpps512_mask(x, F{}, (unsigned short)-1, 4);
    else if constexpr (sizeof(F) == 32) return __builtin_ia32_getexpps256_mask(x, F{}, (unsigned char)-1);
    else return __builtin_ia32_getexpps128_mask(x, F{}, (unsigned char)-1);
}
template <class F> INLINE F mantissa_(F x) {  // from 3/4 to 3/2; NaN of what is negative
    constexpr int form = 2 << 2 | 3;
    if constexpr (sizeof(F) == 64) return __builtin_ia32_getmantps512_mask(x, form, F{}, (unsigned short)-1, 4);
    else if constexpr (sizeof(F) == 32) return __builtin_ia32_getmantps256_mask(x, form, F{}, (unsigned char)-1);
    else return __builtin_ia32_getmantps128_mask(x, form, F{}, (unsigned char)-1);
}
// x = 2^e (1 + t) / c, where c has the logarithm -known: log(1 + t) is t + rest. Of 0 and infinity, e is infinite.
template <class F> INLINE void split_near(const float (*table)[16], F x, F& e, F& known, F& t, F& rest) {
    F m = mantissa_(x), power = exponent_(x);
    e = m < 1.0f ? power + 1.0f : power;
    auto i = (Int<F>)m >> 19 & 15;
    t = fma_(m, at_(table[0], i), splat<F>(-1.0f));
    known = at_(table[1], i);
    rest = t * t * poly(t, -0.5f, 0.33334455f, -0.250075f, 0.18862116f);
}
template <class F> INLINE F log_f32(F x) {  // ln2 in two parts, both positive: of infinity no difference is taken
    F e, known, t, rest;
    split_near(log_table_[0], x, e, known, t, rest);
    return madd(e, 0x1.62e42ep-1f, known) + madd(e, 0x1.efa39ep-25f, t + rest);
}
template <class F> INLINE F log2_f32(F x) {
    F e, known, t, rest;
    split_near(log_table_[1], x, e, known, t, rest);
    F r = e + known, low = madd(t, 0x1.715476p0f, madd(rest, 0x1.715476p0f, t * 0x1.4ae0c0p-26f));
    r += ((e - r) + known) + low;
    return abs_(e) < __builtin_inff() ? r : e + t;
}
// Powers of ten have whole logarithms, so the sum is kept in two parts; few bits of log10(2) make the first product exact.
template <class F> INLINE F log10_f32(F x) {
    F e, known, t, rest;
    split_near(log_table_[2], x, e, known, t, rest);
    F upper = e * 0x1.344p-2f, r = upper + known;
    F low = madd(t, 0x1.bcb7b2p-2f, madd(rest, 0x1.bcb7b2p-2f, t * -0x1.5b235ep-27f));
    r += ((upper - r) + known) + madd(e, 0x1.3509f8p-18f, low);
    return abs_(e) < __builtin_inff() ? r : e + t;
}
#else
template <class F> INLINE F log_f32(F x) { return log_edges(x, log_finite(x)); }
template <class F> INLINE F log2_f32(F x) {
    F e, f;
    split_(x, e, f);
    F t = log_tail(f), s = f + t, low = (f - s) + t;  // log2(e) in two parts; e = 0 and f = 0 stay exact
    F hi = s * 0x1.715476p0f;
    F rest = madd(s, 0x1.715476p0f, -hi) + madd(s, 0x1.4ae0c0p-26f, low * 0x1.715476p0f);
    return log_edges(x, e + (hi + rest));
}
// Powers of ten have whole logarithms, so the sum is kept in two parts; few bits of log10(2) make the first product exact.
template <class F> INLINE F log10_f32(F x) {
    F e, f;
    split_(x, e, f);
    F t = log_tail(f), s = f + t, low = (f - s) + t;
    F scaled = s * 0x1.bcb7b2p-2f, upper = e * 0x1.344p-2f, r = upper + scaled;
    F rest = madd(s, 0x1.bcb7b2p-2f, -scaled) + madd(s, -0x1.5b235ep-27f, low * 0x1.bcb7b2p-2f);
    return log_edges(x, r + (((upper - r) + scaled) + madd(e, 0x1.3509f8p-18f, rest)));
}
#endif
template <class F> INLINE F log1p_f32(F x) {
    F u = x + 1.0f, c = ((u - 1.0f) - x) / u;
    F e, f;
    split_(u, e, f);
    f = e == 0.0f ? x : f;
    F r = madd(e, 0x1.62e430p-1f, f + madd(e, -0x1.05c610p-29f, log_tail(f) - (e == 0.0f ? F{} : c)));
    r = log_edges(u, r);
    return x == 0.0f ? x : r;
}

// ---- the same in double: to 1 ULP

template <class D> INLINE D exp_f64(D x) {
    typedef Int<D> I;
    D y = clamp_(x, -1100.0f, 710.0f);  // as far below the smallest double as `nothing` is below floats
    D shifted = fma_(y, splat<D>(0x1.71547652b82fep0), splat<D>(0x1.8p52)), n = shifted - 0x1.8p52;
    D r = fma_(n, splat<D>(-0x1.62e42fefa0000p-1), y);  // its product with n is exact
    r = fma_(n, splat<D>(-0x1.cf79abc9e3b3ap-40), r);
    D p = poly(r, 1 / 2., 1 / 6., 1 / 24., 1 / 120., 1 / 720., 1 / 5040., 1 / 40320., 1 / 362880., 1 / 3628800.,
               1 / 39916800., 1 / 479001600., 1 / 6227020800.);
    p = fma_(r * r, p, r) + 1.0;
    I k = (I)shifted - (I)splat<D>(0x1.8p52), half = k >> 1;
    return p * (D)((half + 1023) << 52) * (D)((k - half + 1023) << 52);
}
template <class D> INLINE void split_f64(D x, D& e, D& f) {  // x = 2^e (1 + f)
    typedef Int<D> I;
    auto small = x < 0x1p-1022;
    I bits = (I)(small ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdLL;
    e = (D)((bits >> 52) + (I)splat<D>(0x1.8p52)) - (small ? splat<D>(0x1.8p52 + 54.0) : splat<D>(0x1.8p52));
    f = (D)((bits & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL) - 1.0;
}
// log(1 + f) = f - f^2/2 + s (f^2/2 + 2 z/3 + 2 z^2/5 + …): what follows f - half, and a small number more.
template <class D> INLINE D log_tail_f64(D f, D half, D more) {
    D s = f / (f + 2.0), z = s * s;
    D tail = z * poly(z, 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                      2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                      1.479819860511658591e-01);
    return fma_(s, half + tail, more);
}
template <class D> INLINE D log_f64(D x) {
    D e, f;
    split_f64(x, e, f);
    D half = f * f * 0.5, tail = log_tail_f64(f, half, e * 0x1.a39ef35793c76p-33);
    return log_edges(x, e * 0x1.62e42feep-1 - ((half - tail) - f));
}
// In two parts again, the first of exact products of cut factors.
template <class D> INLINE D log10_f64(D x) {
    D e, f;
    split_f64(x, e, f);
    D half = f * f * 0.5, first = (D)((Int<D>)(f - half) & ~0xffffffffLL);
    D rest = (f - first) - half + log_tail_f64(f, half, D{});
    D upper = e * 0x1.34413509f6000p-2, scaled = first * 0x1.bcb7b15200000p-2, r = upper + scaled;
    D lower = e * 0x1.9fef311f12b36p-42 + ((rest + first) * 0x1.b9438ca9aadd5p-36 + rest * 0x1.bcb7b15200000p-2);
    return log_edges(x, r + (lower + ((upper - r) + scaled)));
}
template <class D> INLINE D log1p_f64(D x) {  // what 1 + x lost to rounding is added again
    D u = x + 1.0, r = log_f64(u), corrected = r + (x - (u - 1.0)) / u;
    return x == 0.0 ? x : (u > 0.0) & (u < __builtin_inf()) ? corrected : r;
}

// 2^t to 1e-10, and no further than floats reach: of floats that are rounded once.
template <class D> INLINE D exp2_near(D t) {
    typedef Int<D> I;
    t = clamp_(t, -160.0f, 130.0f);
    D shifted = t + 0x1.8p52, r = t - (shifted - 0x1.8p52);
    D p = poly(r, 0.9999999999616215, 0.6931471807287202, 0.24022651198754255, 0.055504103528196826,
               0.009618027172798664, 0.0013333922866434365, 0.0001546931729982275, 1.5201898457079265e-05);
    return (D)((I)p + ((I)shifted << 52));
}
// What g computes of floats in double, by halves where those are wider than a register.
template <class G, class F, class... R> INLINE F by_doubles(G g, F x, R... rest) {
    if constexpr (sizeof(V<double, lanes_of<F>>) <= register_bytes) return to_f32(g(to_f64(x), to_f64(rest)...));
    else {
        auto first = by_doubles(g, low(x), low(rest)...), second = by_doubles(g, high(x), high(rest)...);
        return joined<float, lanes_of<F>>(first, second);
    }
}

// ---- error function, sigmoid

// erf around each multiple of 259/1024 as a polynomial of degree 5; the coefficients are looked up by lane.
alignas(64) static const float erf_table_[6][16] __attribute__((unused)) = {
    {0.0f, 0.2794296f, 0.5256339f, 0.71676916f, 0.84750855f, 0.9263019f, 0.9681414f, 0.9877159f, 0.9957846f, 0.9987148f,
     0.9996524f, 0.9999167f, 0.9999823f, 0.99999666f, 0.99999946f, 0.99999994f},
    {1.1283792f, 1.0584536f, 0.8736186f, 0.6344616f, 0.40543586f, 0.22796722f, 0.11278621f, 0.04909904f, 0.018807169f,
     0.0063388026f, 0.0018798558f, 0.0004905411f, 0.00011263154f, 2.2755086e-5f, 4.0451164e-6f, 6.327294e-7f},
    {2.3793244e-7f, -0.26770854f, -0.441921f, -0.4814188f, -0.41018787f, -0.2883015f, -0.1711646f, -0.086931415f,
     -0.03805513f, -0.014429011f, -0.004754326f, -0.001364576f, -0.00034175962f, -7.4788055e-5f, -1.4314546e-5f,
     -2.398329e-6f},
    {-0.3761402f, -0.3076973f, -0.14218578f, 0.032035552f, 0.14151335f, 0.16707495f, 0.13557418f, 0.08624264f,
     0.04506644f, 0.019785017f, 0.007390587f, 0.002367744f, 0.00065406744f, 0.0001563805f, 3.2450527e-5f, 5.856737e-6f},
    {0.00026756927f, 0.12717782f, 0.18207692f, 0.1476993f, 0.06527888f, -0.009028266f, -0.045367613f, -0.047173087f,
     -0.032909747f, -0.017780922f, -0.007826189f, -0.0028755828f, -0.0008944113f, -0.00023758513f, -5.4222422e-5f,
     -1.0677805e-5f},
    {0.11104422f, 0.0801377f, 0.0064270743f, -0.053851895f, -0.068370625f, -0.045240562f, -0.013038002f, 0.0074814474f,
     0.01302854f, 0.010174283f, 0.005654526f, 0.0024691212f, 0.0008820192f, 0.0002632215f, 6.645606e-5f, 1.4312062e-5f},
};
template <class F> INLINE F erf_f32(F x) {
    typedef Int<F> I;
    F a = abs_(x), b = no_more_(a, 3.92f), k = madd(b, 1024 / 259.0f, splat<F>(0x1.8p23f));
    F t = madd(k - 0x1.8p23f, -259 / 1024.0f, b);
    I i = (I)k & 15;
    F r = fma_(at_(erf_table_[5], i), t, at_(erf_table_[4], i));
    r = fma_(r, t, at_(erf_table_[3], i));
    r = fma_(r, t, at_(erf_table_[2], i));
    r = fma_(r, t, at_(erf_table_[1], i));
    r = fma_(r, t, at_(erf_table_[0], i));
    r = a >= 3.92f ? splat<F>(1.0f) : r;
    return (F)((I)r | ((I)x & Bits<float>::sign));
}
template <class F> INLINE F sigmoid_f32(F x) { return 1.0f / (1.0f + exp_f32(-x)); }

BOTH_(exp_)
BOTH_(log_)
BOTH_(log10_)
BOTH_(log1p_)
template <class T> INLINE T logaddexp_(T a, T b) {
    T low = min_(a, b), high = max_(a, b);
    return select(mask(mask(low == high) & isinf_(low)), high, log1p_(exp_(low - high)) + high);
}

// ---- reductions: combining steps, and the position of the best

// The best value so far and its position, which is an int where all positions provably are.
template <class F, class P> struct Best { F value; Like<F, P> at; };
template <bool MAX, class F> INLINE auto better(F a, F b) {  // is a strictly better than b; NaN is best
    if constexpr (MAX) return mask(not_(a <= b)) & mask(b == b);
    else return mask(not_(a >= b)) & mask(b == b);
}
// Of equal values the one at the first position stays; IN_TURN says that positions come in their order.
template <bool MAX, bool IN_TURN, class F, class P, class A, class M> INLINE void take(Best<F, P>& best, F v, A at, M on) {
    auto m = mask(better<MAX>(v, best.value) & on);
    if constexpr (!IN_TURN) {
        auto ties = mask(v == best.value) | (mask(v != v) & mask(best.value != best.value));
        m = mask(m | (ties & mask(at < best.at) & on));
    }
    best.value = select(m, v, best.value);
    best.at = select(m, at, best.at);
}
template <int U, class F, class P, class T> INLINE void fill(Best<F, P> (&best)[U], T worst) {
    for (int u = 0; u < U; ++u) best[u] = {splat<F>(worst), iota<P, lanes_of<F>>()};
}
template <bool MAX, int U, class F, class P> INLINE Best<typename Element<F>::type, P> winner(Best<F, P> (&all)[U]) {
    Best<F, P> best = all[0];
    for (int u = 1; u < U; ++u) take<MAX, false>(best, all[u].value, all[u].at, live<lanes_of<F>>(Full{}));
    auto v = best.value[0];
    P at = best.at[0];
    for (int j = 1; j < lanes_of<F>; ++j) {
        bool beats = better<MAX>(best.value[j], v), ties = !beats && !better<MAX>(v, best.value[j]);
        if (beats || (ties && best.at[j] < at)) v = best.value[j], at = best.at[j];
    }
    return {v, at};
}

// ---- bits

template <class T> struct Unsigned { typedef V<typename Unsigned<typename Element<T>::type>::type, lanes_of<T>> type; };
template <> struct Unsigned<int> { typedef unsigned type; };
template <> struct Unsigned<i64_> { typedef u64_ type; };
template <class T> INLINE auto within_width_(T places) {  // a negative number of places is a great one
    return (typename Unsigned<T>::type)places < (typename Unsigned<typename Element<T>::type>::type)(8 * sizeof(typename Element<T>::type));
}
template <class T> INLINE T shl_(T a, T b) {
    auto held = within_width_(b);
    return held ? a << (held ? b : T{}) : T{};
}
template <class T> INLINE T shr_(T a, T b) {
    return a >> (within_width_(b) ? b : splat<T>(8 * sizeof(typename Element<T>::type) - 1));
}
template <class F> INLINE auto f16_bits(F x) {
    if constexpr (lanes_of<F> == 0) return (int)(short)narrow_f16<8>(V<float, 8>{x})[0];
    else return wrap_i16(__builtin_convertvector(narrow_f16<lanes_of<F>>(x), Int<F>));
}
INLINE float f16_from_bits(int x) { return load1(f16{(unsigned short)x}); }
template <class I> INLINE auto f16_from_bits(I x) {
    return from_f16<lanes_of<I>>(__builtin_convertvector(x, V<unsigned short, lanes_of<I>>));
}
