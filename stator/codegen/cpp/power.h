// Division to whole numbers, remainders and powers: Python's sign rules; an integer divided by zero gives zero instead of
// a trap.

// ---- remainders of floats: exact

// A rounded quotient below 2^24 (2^53 of doubles) is off by one at most when cut to a whole number, and only upwards:
// whole numbers are floats, and rounding keeps order. What is left is then a number of this type, which one fused
// multiply-add computes without rounding. Of greater quotients, infinities and NaN libm has the remainder.
template <class F> INLINE F fmod_vector(F x, F y) {
    typedef typename Element<F>::type T;
    constexpr T most = is_f32<F> ? 0x1p23 : 0x1p52;
    F a = abs_(x), b = abs_(y), quotient = a / b, q = trunc_(quotient), r;
    if constexpr (is_f32<F>) r = fma_(-q, b, a);
    else r = fused_(-q, b, a);
    r = with_sign(q == 0 ? a : (r < 0 ? r + b : r), x);
    auto far = not_(mask(quotient < most));
    if (__builtin_expect(any(far), 0))
        for (int j = 0; j < lanes_of<F>; ++j)
            if (far[j]) r[j] = is_f32<F> ? (T)__builtin_fmodf(x[j], y[j]) : (T)__builtin_fmod(x[j], y[j]);
    return r;
}
INLINE float fmod_(float x, float y) { return fmod_vector(splat<V<float, 4>>(x), splat<V<float, 4>>(y))[0]; }
INLINE double fmod_(double x, double y) { return __builtin_fmod(x, y); }
template <class F> INLINE F fmod_(F x, F y) {
#ifndef __FMA__
    if constexpr (!is_f32<F>) {
        return by_lane([](double x, double y) BODY { return __builtin_fmod(x, y); }, x, y);
    } else
#endif
    return fmod_vector(x, y);
}

// ---- division

// Division of whole numbers in lanes, as floats where all have at most 23 bits, as doubles where they have at most 51. There
// a rounded quotient is a whole number only if the quotient is: that lies at least 1/b from the nearest other one, and is
// rounded by less. So it is cut exactly, and what remains of a is exact too.
template <int BITS, class T> INLINE bool has_bits_(T a) {  // with the sign
    typedef typename Unsigned<typename Element<T>::type>::type U;
    return !any(mask((V<U, lanes_of<T>>)a + ((U)1 << BITS) >= (U)2 << BITS));
}
template <class T> INLINE Like<T, double> exact_f64(T a) {
    if constexpr (sizeof(typename Element<T>::type) == 4) return __builtin_convertvector(a, Like<T, double>);
    else return (Like<T, double>)(a + 0x4338000000000000L) - 0x1.8p52;  // as bits, what is added is 0x1.8p52
}
template <class T> INLINE T exact_whole(Like<T, double> x) {
    return __builtin_convertvector((V<i64_, lanes_of<T>>)(x + 0x1.8p52) - 0x4338000000000000L, T);
}
template <class T, class G> INLINE T divided_as_f64(T a, T b, G of_floats) {
    if constexpr (sizeof(Like<T, double>) <= register_bytes) return exact_whole<T>(of_floats(exact_f64(a), exact_f64(b)));
    else {
        auto first = divided_as_f64(low(a), low(b), of_floats), second = divided_as_f64(high(a), high(b), of_floats);
        return joined<typename Element<T>::type, lanes_of<T>>(first, second);
    }
}
template <class T, class G, class S> INLINE T divided(T a, T b, G of_floats, S of_one) {
    constexpr bool narrow = sizeof(typename Element<T>::type) == 4;
    auto zero = b == 0;
    T divisor = zero ? T{} + 1 : b, r;
    if constexpr (narrow) {
        typedef V<float, lanes_of<T>> F;
        if (__builtin_expect(has_bits_<23>(a) && has_bits_<23>(b), 1))
            r = __builtin_convertvector(of_floats(__builtin_convertvector(a, F), __builtin_convertvector(divisor, F)), T);
        else r = divided_as_f64(a, divisor, of_floats);
    } else if (__builtin_expect(has_bits_<51>(a) && has_bits_<51>(b), 1)) r = divided_as_f64(a, divisor, of_floats);
    else return by_lane(of_one, a, b);
    return zero ? T{} : r;
}
// Has the remainder m another sign than the divisor?
template <class T> INLINE auto is_across_(T m, T b) { return mask(mask(m != 0) & mask(mask(b < 0) ^ mask(m < 0))); }
template <class T> INLINE T floordiv_(T a, T b) {
    if constexpr (is_float<T>) {  // as torch: from the remainder, corrected to a whole number
        T m = fmod_(a, b), d = (a - m) / b, plain = a / b;
        d = select(is_across_(m, b), d - 1, d);
        T f = floor_(d), near = select(mask(d - f > 0.5f), f + 1, f);
        return select(mask(b == 0), plain, select(mask(d == 0), with_sign(T{}, plain), near));
    } else if constexpr (lanes_of<T> == 0) {
        T q = b == 0 ? 0 : b == -1 ? -a : a / b;
        return q - (T)(a != q * b && (a < 0) != (b < 0) && b != 0);
    } else return divided(a, b, [](auto x, auto y) BODY { return floor_(x / y); }, [](auto x, auto y) { return floordiv_(x, y); });
}
template <class T> INLINE T mod_(T a, T b) {
    if constexpr (is_float<T>) {
        T m = fmod_(a, b);
        return select(is_across_(m, b), m + b, m);
    } else if constexpr (lanes_of<T> == 0) {
        T m = b == 0 ? 0 : b == -1 ? 0 : a % b;
        return m != 0 && (m < 0) != (b < 0) ? m + b : m;
    } else return divided(a, b, [](auto x, auto y) BODY { return x - floor_(x / y) * y; }, [](auto x, auto y) { return mod_(x, y); });
}

// ---- powers

// 2^(y (e + log2(1 + f))) in double, where f is from sqrt(1/2) - 1 to sqrt(2) - 1: to 1e-10, so that floats are rounded once.
template <class D> INLINE D raise_(D e, D f, D y) {
    D s = f / (f + 2.0), z = s * s;
    D l = fma_(s, poly(z, 2.885390081777849, 0.9617966941145776, 0.5770779420427942, 0.41220928421524405,
                       0.31990437275961786, 0.2829196368200931), e);
    return exp2_near(y * l);
}
template <class F> INLINE F powf_f32(F x, F y) {
    constexpr float inf = __builtin_inff(), most = 0x1.fffffep127f;
    F a = abs_(x), half = y * 0.5f, e, f;
    split_(a, e, f);
    e = a == 0.0f ? splat<F>(-inf) : (a == inf ? a : e);
    F r = by_doubles([](auto e, auto f, auto y) BODY { return raise_(e, f, y); }, e, f, clamp_(y, -most, most));
    auto whole = trunc_(y) == y, odd = whole & (trunc_(half) != half);
    r = (F)((Int<F>)r ^ ((Int<F>)x & odd & Bits<float>::sign));
    r = (x < 0.0f) & (a < inf) & ~whole ? splat<F>(__builtin_nanf("")) : r;
    r = (x != x) | (y != y) ? x + y : r;
    return (x == 1.0f) | (y == 0.0f) ? splat<F>(1.0f) : r;
}
FLOATS_(powf_, __builtin_pow)
template <class T> INLINE T pow_(T a, T b) {
    if constexpr (is_float<T>) return powf_(a, b);
    else if constexpr (lanes_of<T> == 0) {
        if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
        T r = 1;
        for (; b; b >>= 1, a *= a)
            if (b & 1) r *= a;
        return r;
    } else return by_lane([](auto x, auto y) { return pow_(x, y); }, a, b);
}
