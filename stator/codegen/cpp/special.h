// Special functions that take loops, lane by lane: the same steps as in stator/loop/special_functions.py.
//
// The recurrences of orthogonal polynomials run in the type of their operands, so that they leave its range where
// eager's do. `lgamma` of floats runs on vectors. Included where a kernel uses one of them, after `gamma.h`.

namespace special {
// ---- orthogonal polynomials: a recurrence of n steps, which ends early where it is no number any more

template <class T> INLINE i64_ degree(T n) { return __builtin_fabs(n) < 0x1p62 ? (i64_)n : -1; }
template <class T, class G> INLINE T recurrence(T first, i64_ n, G step) {
    if (n < 0) return 0;
    T before = 1, value = first;
    if (n == 0) return before;
    for (i64_ k = 1; k < n && value == value; ++k) {
        T next = step((T)k, value, before);
        before = value;
        value = next;
    }
    return value;
}
template <class T> INLINE T ends(T x, i64_ n, double at_one, double at_minus_one) {
    return n < 0 ? 0 : x > 0 ? at_one : n % 2 ? -at_minus_one : at_minus_one;
}
template <class T> INLINE T chebyshev(T first, T x, i64_ n) {
    return recurrence(first, n, [x](T, T value, T before) { return (x + x) * value - before; });
}
}  // namespace special

#define BY_LANE_(NAME) \
    template <class F> INLINE F NAME(F x, F y) { \
        for (int j = 0; j < lanes_of<F>; ++j) x[j] = NAME(x[j], y[j]); \
        return x; \
    }
#define POLYNOMIAL_(NAME, ...) \
    template <class T> static T NAME##one(T x, T y) { \
        using namespace special; \
        i64_ n = degree(y); \
        __VA_ARGS__ \
    } \
    INLINE float NAME(float x, float y) { return NAME##one(x, y); } \
    INLINE double NAME(double x, double y) { return NAME##one(x, y); } \
    BY_LANE_(NAME)

// log |gamma(x)| for floats: Stirling's series of |x| + 8, less the log of the product that lies between, and by reflection
// below zero. The logs cancel beside roots, where no double is nearer to one than a float's last place.
template <class D> INLINE D lgamma_near(D x) {
    D a = abs_(x), p = a * (a + 1.0) * (a + 2.0) * (a + 3.0), q = (a + 4.0) * (a + 5.0) * (a + 6.0) * (a + 7.0);
    auto small = a < 8.0, mirrored = x < 0.0;
    D z = small ? a + 8.0 : a, between = small ? p * q : splat<D>(1.0), w = 1.0 / z;
    D series = w * poly(w * w, 1 / 12., -1 / 360., 1 / 1260., -1 / 1680., 1 / 1188., -691 / 360360., 1 / 156.,
                            -3617 / 122400.);
    D stirling = fma_(z - 0.5, log_f64(z), (0.91893853320467274178 - z) + series);
    D turn = 3.14159265358979323846 * (a - round_(a));
    D other = mirrored ? 3.14159265358979323846 * between / (a * abs_(circle_f64(turn, 0))) : between;
    D log_other = log_f64(other), r = mirrored ? log_other - stirling : stirling - log_other;
    r = (x == 1.0) | (x == 2.0) ? D{} : r;
    return a == __builtin_inf() ? a : r;
}
template <class F> INLINE F lgamma_f32(F x) {
    return by_doubles([](auto x) BODY { return lgamma_near(x); }, x);
}
FLOATS_(lgamma_, __builtin_lgamma)
LIBM2_(zeta_, special_zeta, special_zeta)
INLINE double igamma_(double a, double x) { return special_incomplete(a, x, false); }
INLINE double igammac_(double a, double x) { return special_incomplete(a, x, true); }
INLINE float igamma_(float a, float x) { return special_incomplete(a, x, false); }
INLINE float igammac_(float a, float x) { return special_incomplete(a, x, true); }
BY_LANE_(igamma_)
BY_LANE_(igammac_)
POLYNOMIAL_(chebyshev_t_, {
    if (abs_(x) == 1) return ends(x, n, 1, 1);
    if (n > 6 && abs_(x) < 1) return __builtin_cos(n * __builtin_acos(x));
    return chebyshev(x, x, n);
})
POLYNOMIAL_(chebyshev_u_, {
    if (abs_(x) == 1) return ends(x, n, n + 1., n + 1.);
    if (n > 8 && abs_(x) < 1) return __builtin_sin((n + 1) * __builtin_acos(x)) / __builtin_sin(__builtin_acos(x));
    return chebyshev(x + x, x, n);
})
POLYNOMIAL_(chebyshev_v_, {
    if (abs_(x) == 1) return ends(x, n, 1, 2. * n + 1);
    if (n > 8 && abs_(x) < 1) return __builtin_cos((n + 0.5) * __builtin_acos(x)) / __builtin_cos(__builtin_acos(x) / 2);
    return chebyshev(x + x - 1, x, n);
})
POLYNOMIAL_(chebyshev_w_, {
    if (abs_(x) == 1) return ends(x, n, 2. * n + 1, 1);
    if (n > 8 && abs_(x) < 1) return __builtin_sin((n + 0.5) * __builtin_acos(x)) / __builtin_sin(__builtin_acos(x) / 2);
    return chebyshev(x + x + 1, x, n);
})
POLYNOMIAL_(hermite_h_, {
    return recurrence(x + x, n, [x](T k, T value, T before) { return (x + x) * value - (k + k) * before; });
})
POLYNOMIAL_(hermite_he_, {
    return recurrence(x, n, [x](T k, T value, T before) { return x * value - k * before; });
})
POLYNOMIAL_(laguerre_l_, {
    if (x == 0 && n >= 0) return 1;
    return recurrence(1 - x, n, [x](T k, T value, T before) { return ((k + k + 1 - x) * value - k * before) / (k + 1); });
})
POLYNOMIAL_(legendre_p_, {
    if (abs_(x) == 1) return ends(x, n, 1, 1);
    return recurrence(x, n, [x](T k, T value, T before) { return ((k + k + 1) * x * value - k * before) / (k + 1); });
})
