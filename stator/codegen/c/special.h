// Special functions that take loops; `gamma.h` comes before. The recurrences of orthogonal polynomials run in the type of
// their operands, so that they leave its range where eager's do, and end early where there is no number any more.

#define RECURRENCE(T, FIRST, NEXT) \
    T before = 1, value = FIRST; \
    if (n <= 0) return n < 0 ? 0 : before; \
    for (int64_t i = 1; i < n && value == value; ++i) { \
        const T k = (T)i, next = NEXT; \
        before = value; \
        value = next; \
    } \
    return value;
#define POLYNOMIAL(NAME, T, D, FIRST, NEXT, ...) \
    static inline T NAME##_##D(T x, T y) { \
        const int64_t n = fabs(y) < 0x1p62 ? (int64_t)y : -1; \
        __VA_ARGS__ \
        RECURRENCE(T, FIRST, NEXT) \
    }
#define ENDS(AT_ONE, AT_MINUS_ONE) \
    if (fabs(x) == 1) return n < 0 ? 0 : x > 0 ? (AT_ONE) : n % 2 ? -(AT_MINUS_ONE) : (AT_MINUS_ONE);
#define BY_ANGLE(LEAST, VALUE) \
    if (n > LEAST && fabs(x) < 1) { \
        const double angle = acos(x); \
        return VALUE; \
    }
#define CHEBYSHEV (x + x) * value - before

#define SPECIAL(T, D) \
    static inline T zeta_##D(T x, T q) { return (T)special_zeta(x, q); } \
    static inline T igamma_##D(T a, T x) { return (T)special_incomplete(a, x, 0); } \
    static inline T igammac_##D(T a, T x) { return (T)special_incomplete(a, x, 1); } \
    POLYNOMIAL(chebyshev_t, T, D, x, CHEBYSHEV, ENDS(1, 1) BY_ANGLE(6, cos(n * angle))) \
    POLYNOMIAL(chebyshev_u, T, D, x + x, CHEBYSHEV, ENDS(n + 1., n + 1.) BY_ANGLE(8, sin((n + 1) * angle) / sin(angle))) \
    POLYNOMIAL(chebyshev_v, T, D, x + x - 1, CHEBYSHEV, \
               ENDS(1, 2. * n + 1) BY_ANGLE(8, cos((n + 0.5) * angle) / cos(angle / 2))) \
    POLYNOMIAL(chebyshev_w, T, D, x + x + 1, CHEBYSHEV, \
               ENDS(2. * n + 1, 1) BY_ANGLE(8, sin((n + 0.5) * angle) / sin(angle / 2))) \
    POLYNOMIAL(hermite_h, T, D, x + x, (x + x) * value - (k + k) * before, ) \
    POLYNOMIAL(hermite_he, T, D, x, x * value - k * before, ) \
    POLYNOMIAL(laguerre_l, T, D, 1 - x, ((k + k + 1 - x) * value - k * before) / (k + 1), if (x == 0 && n >= 0) return 1;) \
    POLYNOMIAL(legendre_p, T, D, x, ((k + k + 1) * x * value - k * before) / (k + 1), ENDS(1, 1))
SPECIAL(float, f32)
SPECIAL(double, f64)
