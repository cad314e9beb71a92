// ---- reductions over lanes, by halves

template <class F, class G> INLINE typename Element<F>::type fold(F v, G f) {
    if constexpr (lanes_of<F> == 2) return f(v[0], v[1]);
    else return fold(f(low(v), high(v)), f);
}

template <int U, class F, class G> INLINE typename Element<F>::type fold_all(F (&a)[U], G f) {
    if constexpr (U == 4) return fold(f(f(a[0], a[1]), f(a[2], a[3])), f);
    else if constexpr (U == 2) return fold(f(a[0], a[1]), f);
    else return fold(in_register(a[0]), f);
}
// What long sums add up to. Totals of floats are joined in double, with what they lost: in float each halving would round
// a number about as large as the result, and these few roundings would be more than all of those before them.
template <class F> INLINE auto doubles(F v) {  // by halves where they are wider than a register
    if constexpr (sizeof(V<double, lanes_of<F>>) <= register_bytes) return to_f64(v);
    else return to_f64(low(v)) + to_f64(high(v));
}
template <int U, class F> INLINE typename Element<F>::type join(F (&total)[U], F (&lost)[U]) {
    F all_lost = lost[0];
    auto sum = doubles(total[0]);
    for (int u = 1; u < U; ++u) sum += doubles(total[u]), all_lost += lost[u];
    return (typename Element<F>::type)fold(sum - doubles(all_lost), [](auto a, auto b) BODY { return a + b; });
}

// ---- lanes in another order

template <class F> INLINE F backwards(F v) {
#ifdef __clang__
    F r;
    for (int j = 0; j < lanes_of<F>; ++j) r[j] = v[lanes_of<F> - 1 - j];
    return r;
#else
    return __builtin_shuffle(v, lanes_of<F> - 1 - iota<typename Element<Int<F>>::type, lanes_of<F>>());
#endif
}
template <class F> INLINE F in_turn(F a, F b, Int<F> at) {  // lane j is lane at[j] of both
#ifdef __clang__
    F r;
    for (int j = 0; j < lanes_of<F>; ++j) r[j] = at[j] < lanes_of<F> ? a[at[j]] : b[at[j] - lanes_of<F>];
    return r;
#else
    return __builtin_shuffle(a, b, at);
#endif
}
// Contiguous memory, from its end on: lane j is at p[-j].
template <int L, class T> INLINE auto load_back(const T* p, Full) { return backwards(load<L>(p - (L - 1), Full{})); }
template <int L, class T> INLINE auto load_back(const T* p, i64_ n) {
    auto a = load<L>(p - (n - 1), n);
    return in_turn(a, a, ((int)n - 1 - iota<typename Element<Int<decltype(a)>>::type, L>()) & (L - 1));
}
template <int L, class T, class F> INLINE void store_back(T* p, F v, Full) { store<L>(p - (L - 1), backwards(v), Full{}); }
template <int L, class T, class F> INLINE void store_back(T* p, F v, i64_ n) {
    for (int j = 0; j < n; ++j) store1(p - j, v[j]);
}

// Numbers that lie in turn, as the parts of complex numbers: lane j of a load is p[2*j]. Where the other numbers are known
// to be in memory too, as p[2*j + 1] (part 0) or p[2*j - 1] (part 1), both parts come of the same two loads.
template <int L, int PART = -1, class T> INLINE auto load_even(const T* p, Full) {
    constexpr int first = PART == 1, second = PART == -1 ? L - 1 : L;
    auto low = load<L>(p - first, Full{}), high = load<L>(p - first + second, Full{});
    auto j = iota<typename Element<Int<decltype(low)>>::type, L>();
    if constexpr (PART == -1) return in_turn(low, high, j < L / 2 ? 2 * j : 2 * j + 1);
    else return in_turn(low, high, 2 * j + PART);
}
template <int L, int PART = -1, class T> INLINE Held<T, L> load_even(const T* p, i64_ n) {
    i64_ first = n < L / 2 ? n : L / 2;  // lanes that the first vector holds
    auto low = load<L>(p, 2 * first - 1), high = low;
    if (n > first) high = load<L>(p + (L - 1), 2 * (n - first));
    auto j = iota<typename Element<Int<decltype(low)>>::type, L>();
    return in_turn(low, high, j < L / 2 ? 2 * j : 2 * j + 1);
}
template <class F> INLINE void interleave(F a, F b, F& first, F& second) {  // lane by lane in turn
    constexpr int L = lanes_of<F>;
    auto j = iota<typename Element<Int<F>>::type, L>(), at = j / 2 + (j & 1) * L;
    first = in_turn(a, b, at), second = in_turn(a, b, at + L / 2);
}
template <int L, class T, class F> INLINE void store_pairs(T* p, F even, F odd, Full) {
    interleave(even, odd, even, odd);
    store<L>(p, even, Full{});
    store<L>(p + L, odd, Full{});
}
template <int L, class T, class F> INLINE void store_pairs(T* p, F even, F odd, i64_ n) {
    for (int j = 0; j < n; ++j) store1(p + 2 * j, even[j]), store1(p + 2 * j + 1, odd[j]);
}
