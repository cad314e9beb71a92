// The zeta function and incomplete gamma functions, in double: the same steps as in stator/loop/special_functions.py, with
// the constants of that file, which `gamma.py` writes before this text. C, as C++ takes it too.

#define special_inf __builtin_inf()
#define special_nan __builtin_nan("")
#define special_root_two_pi 2.5066282746310002

static double special_zeta(double x, double q) {
    if (x == 1) return special_inf;
    if (x < 1) return special_nan;
    if (q <= 0) {
        if (q == __builtin_floor(q)) return special_inf;
        if (x != __builtin_floor(x)) return special_nan;
    }
    if (x != x || q != q || q == special_inf) return special_nan;
    double total = __builtin_pow(q, -x), at = q, term = 0;
    for (int count = 0; count < 9 || at <= 9; ++count) {
        at += 1;
        term = __builtin_pow(at, -x);
        total += term;
        if (__builtin_fabs(term) < special_epsilon * __builtin_fabs(total)) return total;
    }
    total += term * at / (x - 1) - 0.5 * term;
    double factor = 1, k = 0;
    for (unsigned i = 0; i < sizeof(special_euler) / sizeof(double); ++i) {
        factor *= x + k;
        term /= at;
        double step = factor * term / special_euler[i];
        total += step;
        if (__builtin_fabs(step) < special_epsilon * __builtin_fabs(total)) break;
        k += 1;
        factor *= x + k;
        term /= at;
        k += 1;
    }
    return total;
}

// ---- incomplete gamma functions: four ways, each where it converges fast

static double special_behind(double t) {  // t - log(1 + t), by its series, for t near 0
    double total = 0, power = t;
    for (int k = 2; k < 100; ++k) {
        power *= -t;
        total -= power / k;
        if (__builtin_fabs(power) < special_epsilon * __builtin_fabs(total)) break;
    }
    return total;
}
static double special_front(double a, double x) {  // x^a exp(-x) / gamma(a + 1)
    if (a < 10) return __builtin_exp(a * __builtin_log(x) - x - __builtin_lgamma(a + 1));
    double z = 1 / (a * a);
    double stirling = (1 / 12. - z * (1 / 360. - z * (1 / 1260. - z * (1 / 1680. - z / 1188)))) / a;
    int near = __builtin_fabs(x - a) <= 0.4 * a;
    double exponent = near ? -a * special_behind((x - a) / a) : a * __builtin_log(x / a) - (x - a);
    return __builtin_exp(exponent - stirling) / (special_root_two_pi * __builtin_sqrt(a));
}
static double special_uniform(double a, double x, int upper) {  // Temme's expansion around x = a, for large a
    double half = special_behind((x - a) / a), eta = __builtin_copysign(__builtin_sqrt(2 * half), x - a);
    enum { terms = sizeof(special_temme) / sizeof(double) };
    double parts[terms];
    for (int k = 1; k < terms; ++k) parts[k - 1] = special_temme[k];
    for (int k = terms - 3; k > 0; --k) parts[k - 1] += (k + 1) * parts[k + 1] / a;
    double total = 0, power = 1;
    for (int k = 0; k < terms - 1; ++k, power *= eta) total += parts[k] * power;
    double rest = __builtin_exp(-a * half) / (special_root_two_pi * __builtin_sqrt(a)) * total / (1 + parts[1] / a);
    double sign = upper ? 1 : -1;
    return 0.5 * __builtin_erfc(sign * eta * __builtin_sqrt(a / 2)) + sign * rest;
}
static double special_series(double a, double x) {  // the lower function, by powers of x
    double total = 1, term = 1;
    for (int k = 1; k < special_steps; ++k) {
        term *= x / (a + k);
        total += term;
        if (term <= special_epsilon * total) break;
    }
    return total * special_front(a, x);
}
static double special_full(double v) { return v == 0 ? 1e-300 : v; }
static double special_fraction(double a, double x) {  // the upper function, by its continued fraction from the front (Lentz)
    double b = x + 1 - a, c = 1e300, d = 1 / special_full(b), value = d;
    for (int k = 1; k < special_steps; ++k) {
        double step = -k * (k - a);
        b += 2;
        d = 1 / special_full(step * d + b);
        c = special_full(b + step / c);
        value *= c * d;
        if (__builtin_fabs(c * d - 1) <= special_epsilon) break;
    }
    return value * a * special_front(a, x);
}
static double special_log_gamma_next(double a) {  // log gamma(1 + a), near a = 0 by its series
    if (a > 1e-3) return __builtin_lgamma(1 + a);
    return a * (-0.5772156649015329 + a * (0.8224670334241132 - a * (0.40068563438653143 - a * 0.27058080842778454)));
}
static double special_remainder(double a, double x) {  // the upper function for small x and a: one minus the lower
    double total = 0, factor = 1;
    for (int k = 1; k < special_steps; ++k) {
        factor *= -x / k;
        double term = factor / (a + k);
        total += term;
        if (__builtin_fabs(term) <= special_epsilon * __builtin_fabs(total)) break;
    }
    double exponent = a * __builtin_log(x) - special_log_gamma_next(a);
    return -__builtin_expm1(exponent) - __builtin_exp(exponent) * a * total;
}
static double special_incomplete(double a, double x, int upper) {
    if (a < 0 || x < 0) return special_nan;
    double least = upper ? 1 : 0, most = 1 - least, found;
    if (a == 0) return x > 0 ? most : special_nan;
    if (x == 0) return least;
    if (a == special_inf) return x == special_inf ? special_nan : least;
    if (x == special_inf) return most;
    if (a != a || x != x) return special_nan;
    if (a > 20 && __builtin_fabs(x - a) < 0.4 * a) return special_uniform(a, x, upper);
    int is_upper = 1;
    if (x > 1.1 && x > a) found = special_fraction(a, x);
    else if (x <= 1.1 && (x <= 0.5 ? -0.4 / __builtin_log(x) >= a : 1.1 * x >= a)) found = special_remainder(a, x);
    else found = special_series(a, x), is_upper = 0;
    return upper == is_upper ? found : 1 - found;
}
