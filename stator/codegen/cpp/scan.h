// ---- scans along lanes: each becomes f over what was before the block and the lanes up to it

template <int K, class F> INLINE F later(F v) {  // every lane K further on; the first K stay what they were
#ifdef __clang__
    F r = v;
    for (int j = K; j < lanes_of<F>; ++j) r[j] = v[j - K];
    return r;
#else
    Int<F> at = iota<typename Element<Int<F>>::type, lanes_of<F>>();
    return __builtin_shuffle(v, at < K ? at : at - K);
#endif
}
template <int K, class F, class G> INLINE F prefix(F v, G f) {
    if constexpr (K < lanes_of<F>)
        return prefix<2 * K>(iota<typename Element<Int<F>>::type, lanes_of<F>>() < K ? v : f(later<K>(v), v), f);
    else return v;
}
template <int L> INLINE int last(Full) { return L - 1; }
template <int L> INLINE int last(i64_ n) { return (int)n - 1; }
template <class F, class N, class G> INLINE F scan(F& before, F v, N n, G f) {  // `before` is the same in all lanes
    F parts = prefix<1>(v, f), r = f(before, parts);
    before = f(before, splat<F>(parts[last<lanes_of<F>>(n)]));
    return r;
}

// ---- scans of floats along lanes

// Sums and products of floats are eager's, which adds one after the other: a block of lanes that is not is computed in
// turn. Digits::all: each lane must follow from the one before. Digits::most: last digits aside, so that a block is
// computed in turn if a sum leaves the range of the dtype, or a product comes to zero or what has no full precision.
enum class Digits { all, most };
template <bool PRODUCT, class F> INLINE bool leaves_range(F v) {
    typedef typename Element<F>::type E;
#ifdef __AVX512DQ__
    constexpr int odd = PRODUCT ? 0xBF : 0x99;  // NaN and infinities; with zeros and denormals
    if constexpr (Same<E, double>::value && sizeof(v) == 64) return __builtin_ia32_fpclasspd512_mask(v, odd, (unsigned char)-1) != 0;
    if constexpr (Same<E, float>::value && sizeof(v) == 64) return __builtin_ia32_fpclassps512_mask(v, odd, (unsigned short)-1) != 0;
#endif
    constexpr bool single = Same<E, float>::value;
    constexpr E most = single ? (E)__FLT_MAX__ : (E)__DBL_MAX__, least = single ? (E)__FLT_MIN__ : (E)__DBL_MIN__;
    F size = abs_(v);
    if constexpr (PRODUCT) return any(~((size <= most) & (size >= least)));
    else return any(~(size <= most));
}
template <class F, class G> __attribute__((noinline, cold)) F follow(F before, F v, G f) {  // one lane after the other
    auto so_far = before[0];
    for (int j = 0; j < lanes_of<F>; ++j) v[j] = so_far = f(so_far, v[j]);
    return v;
}
template <Digits D, bool PRODUCT, class F, class N, class G> INLINE F scan_floats(F& before, F v, N n, G f) {
    constexpr int L = lanes_of<F>;
    auto lane = iota<typename Element<Int<F>>::type, L>();
    if constexpr (PRODUCT && !Same<N, Full>::value) v = select(lane <= last<L>(n), v, splat<F>(1));
    F parts = prefix<1>(v, f), r = f(before, parts);
    bool odd;
    if constexpr (D == Digits::all) odd = any(f(lane < 1 ? before : later<1>(r), v) != r);
    else if constexpr (PRODUCT) odd = leaves_range<true>(parts) | leaves_range<true>(r);
    else odd = leaves_range<false>(r);
    if (__builtin_expect(odd, 0))  // what has come to zero stays so while the factors are finite
        if (!PRODUCT || before[0] != 0 || leaves_range<false>(parts)) r = follow(before, v, f);
    before = splat<F>(r[last<L>(n)]);
    return r;
}
