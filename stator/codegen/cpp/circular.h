// Circular and hyperbolic functions, and their inverses: of floats by own polynomials (minimax fits made for this file), of
// doubles sine and cosine by those of fdlibm (Sun 1993), hyperbolic ones by `doubles.h`, the rest by libm.

// ---- circular: reduced by three parts of pi/2; huge arguments go to libm lane by lane

template <class F> INLINE F circle_(F x, int shift) {
    typedef Int<F> I;
    F k = x * 0x1.45f306p-1f + 0x1.8p23f;
    I q = (I)k + shift;
    k = k - 0x1.8p23f;
    F y = madd(k, 0x1.ee59dap-50f, madd(k, 0x1.777a5cp-25f, madd(k, -0x1.921fb6p0f, x)));
    F z = y * y;
    F s = fma_(y * z, poly(z, -0.16666667f, 0.008333329f, -0.00019839233f, 2.717366e-6f), y);
    F c = fma_(z * z, poly(z, 0.041666668f, -0.0013888883f, 2.4799372e-5f,
                           -2.719862e-7f), madd(z, -0.5f, splat<F>(1.0f)));
    F v = (q & 1) != 0 ? c : s;
    F r = (F)((I)v ^ ((q & 2) << 30));
    return shift == 0 ? (x == 0.0f ? x : r) : r;
}
#define CIRCULAR_(NAME, CIRCLE, LIBM, SHIFT) \
    template <class F> INLINE F NAME(F x) { \
        F r = CIRCLE(x, SHIFT); \
        auto huge = not_(mask(abs_(x) < 20000)); /* or infinite, or NaN */ \
        if (__builtin_expect(any(huge), 0)) \
            for (int j = 0; j < lanes_of<F>; ++j) \
                if (huge[j]) r[j] = LIBM(x[j]); \
        return r; \
    }
// The reduced argument is in two parts: what rounding takes from it moves a tangent by up to twice as much.
template <class F> INLINE F tangent_(F x, int) {
    typedef Int<F> I;
    F k = x * 0x1.45f306p-1f + 0x1.8p23f;
    I q = (I)k;
    k = k - 0x1.8p23f;
    F whole = madd(k, -0x1.921fb6p0f, x), part = k * 0x1.777a5cp-25f, y = whole + part, back = y - whole;  // whole is exact
    F low = ((whole - (y - back)) + (part - back)) + madd(k, 0x1.777a5cp-25f, -part);
    low = madd(k, 0x1.ee59dap-50f, low);
    F z = y * y;
    F up = fma_(y * z, poly(z, 0.3333335f, 0.13332675f, 0.054058906f, 0.0212863f, 0.0108270645f, 9.8899545e-5f,
                            0.0043722955f), low);
    up = fma_(low, z, up);
    F t = y + up, rest = (y - t) + up;  // tan y in two parts
    F c = -1.0f / t;
    c = fma_(fma_(c, t, splat<F>(1.0f)) + c * rest, c, c);
    F r = (q & 1) != 0 ? c : t;
    return x == 0.0f ? x : r;
}
CIRCULAR_(sin_f32, circle_, __builtin_sinf, 0)
CIRCULAR_(cos_f32, circle_, __builtin_cosf, 1)
CIRCULAR_(tan_f32, tangent_, __builtin_tanf, 0)

template <class D> INLINE D circle_f64(D x, int shift) {  // products with k are exact by fused multiply-adds only
    typedef Int<D> I;
    D k = fma_(x, splat<D>(0x1.45f306dc9c883p-1), splat<D>(0x1.8p52));
    I q = (I)k + (i64_)shift;
    k = k - 0x1.8p52;
    D y = fma_(k, splat<D>(-0x1.921fb54442d18p0), x);
    y = fma_(k, splat<D>(-0x1.1a62633145c07p-54), y);
    y = fma_(k, splat<D>(0x1.f1976b7ed900bp-110), y);
    D z = y * y;
    D s = fma_(y * z, poly(z, -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
                           2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10), y);
    D half = z * 0.5, w = 1.0 - half;
    D c = w + fma_(z * z, poly(z, 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
                               -2.75573143513906633035e-07, 2.08757232129817482790e-09,
                               -1.13596475577881948265e-11), (1.0 - w) - half);
    D v = (q & 1) != 0 ? c : s;
    D r = (D)((I)v ^ ((q & 2) << 62));
    return shift == 0 ? (x == 0.0 ? x : r) : r;
}
CIRCULAR_(sin_f64, circle_f64, __builtin_sin, 0)
CIRCULAR_(cos_f64, circle_f64, __builtin_cos, 1)

// ---- inverse: of what is no greater than one, or one half, and the rest by it

template <class F> INLINE F atan_part(F t) {  // of |t| <= 1, less t
    F z = t * t;
    return t * z * poly(z, -0.333333f, 0.19998531f, -0.14264052f, 0.10951175f, -0.08400475f, 0.057906546f,
                        -0.031127002f, 0.010887361f, -0.0017875476f);
}
constexpr float half_pi = 0x1.921fb6p0f, half_pi_low = -0x1.777a5cp-25f;
template <class F> INLINE F atan_f32(F x) {
    F a = abs_(x);
    auto big = a > 1.0f;
    F t = big ? 1.0f / a : a, part = atan_part(t);
    return with_sign(big ? half_pi - (t + (part - half_pi_low)) : t + part, x);
}
template <class F> INLINE F atan2_f32(F y, F x) {
    typedef Int<F> I;
    F a = abs_(y), b = abs_(x), most = max_(a, b), least = min_(a, b);
    F t = least == most ? splat<F>(1.0f) : least / most;  // both may be infinite
    t = most == 0.0f ? F{} : (most != most ? most : t);
    F part = atan_part(t);
    auto up = a > b, back = (I)x < 0;
    // t + part, or that from pi/2, and then from pi: from k quarters, with either sign
    F quarters = up ? splat<F>(1.0f) : (back ? splat<F>(2.0f) : F{});
    F sign = (F)((up != back ? I{} + Bits<float>::sign : I{}));
    F s = (F)((I)t ^ (I)sign), p = (F)((I)part ^ (I)sign);
    F r = quarters * half_pi + (s + madd(quarters, half_pi_low, p));
    return with_sign(r, y);
}
// asin(x) = x + x^3 P(x^2) to 0.55, and pi/2 - 2 asin(sqrt((1 - x) / 2)) above, of which no term is more than one
template <class F> INLINE F asin_part(F z) {
    return z * poly(z, 0.1666664f, 0.075016335f, 0.04430923f, 0.03345937f, 0.008517527f, 0.045374528f);
}
template <class F> INLINE F asin_f32(F x) {
    F a = abs_(x), z = a > 0.55f ? 0.5f - a * 0.5f : a * a, s = a > 0.55f ? divider_sqrt_(z) : a, part = s * asin_part(z);
    F big = half_pi - ((s + s) - (half_pi_low - 2.0f * part));
    return with_sign(a > 0.55f ? big : s + part, x);
}
template <class F> INLINE F acos_f32(F x) {
    F a = abs_(x), z = a > 0.55f ? 0.5f - a * 0.5f : a * a, s = a > 0.55f ? divider_sqrt_(z) : x, part = s * asin_part(z);
    F twice = 2.0f * (s + part);
    F big = x < 0.0f ? 2.0f * half_pi - (twice - 2.0f * half_pi_low) : twice;
    return a > 0.55f ? big : half_pi - (s - (half_pi_low - part));
}

// ---- hyperbolic, by exp(|x|) / 2, which overflows where they do

template <class F> INLINE F half_exp(F a) {
    a = clamp_(a, 0.0f, 91.0f);
    F n = nearest_(a, 0x1.715476p0f);
    return scale_(exp_core(madd(n, 0x1.05c610p-29f, madd(n, -0x1.62e430p-1f, a))), n - 1.0f);
}
template <class F> INLINE F sinh_f32(F x) {
    F z = x * x, e = half_exp(abs_(x));
    F small = fma_(x * z, poly(z, 0.16666667f, 0.0083333105f, 0.0001984453f, 2.7370481e-6f, 2.9100406e-8f), x);
    return with_sign(abs_(x) < 1.5f ? small : e - 0.25f / e, x);
}
template <class F> INLINE F cosh_f32(F x) { F e = half_exp(abs_(x)); return e + 0.25f / e; }

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
BOTH_(sin_)
BOTH_(cos_)
#else
FLOATS_(sin_, __builtin_sin)
FLOATS_(cos_, __builtin_cos)
#endif
FLOATS_(tan_, __builtin_tan)
FLOATS_(asin_, __builtin_asin)
FLOATS_(acos_, __builtin_acos)
FLOATS_(atan_, __builtin_atan)
BOTH_(sinh_)
BOTH_(cosh_)
FLOATS_(atan2_, __builtin_atan2)
