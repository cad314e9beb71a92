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
