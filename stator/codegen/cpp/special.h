// Special functions that take loops, lane by lane, in double: the same steps as in stator/loop/special_functions.py, with the
// constants of that file, which `emit.constants` writes before this text.
//
// The recurrences of orthogonal polynomials run in the type of their operands, so that they leave its range where
// eager's do. `lgamma` of floats runs on vectors. Included where a kernel uses one of them.

namespace special {
typedef double f64;
INLINE f64 inf() { return __builtin_inf(); }
INLINE f64 nan() { return __builtin_nan(""); }
constexpr f64 root_two_pi = 2.5066282746310002;

static f64 zeta(f64 x, f64 q) {
    if (x == 1) return inf();
    if (x < 1) return nan();
    if (q <= 0) {
        if (q == __builtin_floor(q)) return inf();
        if (x != __builtin_floor(x)) return nan();
    }
    if (x != x || q != q || q == inf()) return nan();
    f64 total = __builtin_pow(q, -x), at = q, term = 0;
    for (int count = 0; count < 9 || at <= 9; ++count) {
        at += 1;
        term = __builtin_pow(at, -x);
        total += term;
        if (__builtin_fabs(term) < epsilon * __builtin_fabs(total)) return total;
    }
    total += term * at / (x - 1) - 0.5 * term;
    f64 factor = 1, k = 0;
    for (f64 divisor : euler) {
        factor *= x + k;
        term /= at;
        f64 step = factor * term / divisor;
        total += step;
        if (__builtin_fabs(step) < epsilon * __builtin_fabs(total)) break;
        k += 1;
        factor *= x + k;
        term /= at;
        k += 1;
    }
    return total;
}

// ---- incomplete gamma functions: four ways, each where it converges fast

static f64 behind(f64 t) {  // t - log(1 + t), by its series, for t near 0
    f64 total = 0, power = t;
    for (int k = 2; k < 100; ++k) {
        power *= -t;
        total -= power / k;
        if (__builtin_fabs(power) < epsilon * __builtin_fabs(total)) break;
    }
    return total;
}
static f64 front(f64 a, f64 x) {  // x^a exp(-x) / gamma(a + 1)
    if (a < 10) return __builtin_exp(a * __builtin_log(x) - x - __builtin_lgamma(a + 1));
    f64 z = 1 / (a * a);
    f64 stirling = (1 / 12. - z * (1 / 360. - z * (1 / 1260. - z * (1 / 1680. - z / 1188)))) / a;
    bool near = __builtin_fabs(x - a) <= 0.4 * a;
    f64 exponent = near ? -a * behind((x - a) / a) : a * __builtin_log(x / a) - (x - a);
    return __builtin_exp(exponent - stirling) / (root_two_pi * __builtin_sqrt(a));
}
static f64 uniform(f64 a, f64 x, bool upper) {  // Temme's expansion around x = a, for large a
    f64 half = behind((x - a) / a), eta = __builtin_copysign(__builtin_sqrt(2 * half), x - a);
    constexpr int terms = sizeof(temme) / sizeof(f64);
    f64 parts[terms];
    for (int k = 1; k < terms; ++k) parts[k - 1] = temme[k];
    for (int k = terms - 3; k > 0; --k) parts[k - 1] += (k + 1) * parts[k + 1] / a;
    f64 total = 0, power = 1;
    for (int k = 0; k < terms - 1; ++k, power *= eta) total += parts[k] * power;
    f64 rest = __builtin_exp(-a * half) / (root_two_pi * __builtin_sqrt(a)) * total / (1 + parts[1] / a);
    f64 sign = upper ? 1 : -1;
    return 0.5 * __builtin_erfc(sign * eta * __builtin_sqrt(a / 2)) + sign * rest;
}
static f64 series(f64 a, f64 x) {  // the lower function, by powers of x
    f64 total = 1, term = 1;
    for (int k = 1; k < steps; ++k) {
        term *= x / (a + k);
        total += term;
        if (term <= epsilon * total) break;
    }
    return total * front(a, x);
}
static f64 fraction(f64 a, f64 x) {  // the upper function, by its continued fraction from the front (Lentz)
    constexpr f64 tiny = 1e-300;
    auto full = [](f64 v) { return v == 0 ? tiny : v; };
    f64 b = x + 1 - a, c = 1 / tiny, d = 1 / full(b), value = d;
    for (int k = 1; k < steps; ++k) {
        f64 step = -k * (k - a);
        b += 2;
        d = 1 / full(step * d + b);
        c = full(b + step / c);
        value *= c * d;
        if (__builtin_fabs(c * d - 1) <= epsilon) break;
    }
    return value * a * front(a, x);
}
static f64 log_gamma_next(f64 a) {  // log gamma(1 + a), near a = 0 by its series
    if (a > 1e-3) return __builtin_lgamma(1 + a);
    return a * (-0.5772156649015329 + a * (0.8224670334241132 - a * (0.40068563438653143 - a * 0.27058080842778454)));
}
static f64 remainder(f64 a, f64 x) {  // the upper function for small x and a: one minus the lower
    f64 total = 0, factor = 1;
    for (int k = 1; k < steps; ++k) {
        factor *= -x / k;
        f64 term = factor / (a + k);
        total += term;
        if (__builtin_fabs(term) <= epsilon * __builtin_fabs(total)) break;
    }
    f64 exponent = a * __builtin_log(x) - log_gamma_next(a);
    return -__builtin_expm1(exponent) - __builtin_exp(exponent) * a * total;
}
static f64 incomplete(f64 a, f64 x, bool upper) {
    if (a < 0 || x < 0) return nan();
    f64 least = upper ? 1 : 0, most = 1 - least, found;
    if (a == 0) return x > 0 ? most : nan();
    if (x == 0) return least;
    if (a == inf()) return x == inf() ? nan() : least;
    if (x == inf()) return most;
    if (a != a || x != x) return nan();
    if (a > 20 && __builtin_fabs(x - a) < 0.4 * a) return uniform(a, x, upper);
    bool is_upper = true;
    if (x > 1.1 && x > a) found = fraction(a, x);
    else if (x <= 1.1 && (x <= 0.5 ? -0.4 / __builtin_log(x) >= a : 1.1 * x >= a)) found = remainder(a, x);
    else found = series(a, x), is_upper = false;
    return upper == is_upper ? found : 1 - found;
}

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
template <class T> INLINE T ends(T x, i64_ n, f64 at_one, f64 at_minus_one) {
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
    D series = w * poly_f64(w * w, 1 / 12., -1 / 360., 1 / 1260., -1 / 1680., 1 / 1188., -691 / 360360., 1 / 156.,
                            -3617 / 122400.);
    D stirling = fma_f64(z - 0.5, log_f64(z), (0.91893853320467274178 - z) + series);
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
LIBM2_(zeta_, special::zeta, special::zeta)
INLINE double igamma_(double a, double x) { return special::incomplete(a, x, false); }
INLINE double igammac_(double a, double x) { return special::incomplete(a, x, true); }
INLINE float igamma_(float a, float x) { return special::incomplete(a, x, false); }
INLINE float igammac_(float a, float x) { return special::incomplete(a, x, true); }
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
