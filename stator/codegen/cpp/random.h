// Philox-4x32-10 on vectors: random numbers as a pure function of (seed, element number).
//
// Key: the seed's two halves. Counter: (low, high half of the element number, 0, 0). The first word gives a uniform
// float in [0, 1) by its top 24 bits; the first two give a normal one (Box-Muller).

// Products of the low halves of 64 bits: one instruction, which gcc does not find by itself.
template <class D> INLINE D times_low(D a, unsigned b) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (sizeof(D) == 64)
        return (D)__builtin_ia32_pmuludq512_mask((V<int, 16>)a, V<int, 16>{} + (int)b, V<long long, 8>{}, (unsigned char)-1);
#endif
#if defined(__AVX2__) && !defined(__clang__)
    if constexpr (sizeof(D) == 32) return (D)__builtin_ia32_pmuludq256((V<int, 8>)a, V<int, 8>{} + (int)b);
#endif
#if defined(__SSE2__) && !defined(__clang__)
    if constexpr (sizeof(D) == 16) return (D)__builtin_ia32_pmuludq128((V<int, 4>)a, V<int, 4>{} + (int)b);
#endif
    return (a & 0xffffffffull) * (u64_)b;
}
template <class U> INLINE void multiply(U a, unsigned b, U& high, U& low) {
    if constexpr (lanes_of<U> == 0) {
        u64_ r = (u64_)a * b;
        high = (unsigned)(r >> 32), low = (unsigned)r;
    } else {
        typedef V<u64_, lanes_of<U> / 2> D;
        D even = times_low((D)a, b), odd = times_low((D)a >> 32, b);
        high = (U)((even >> 32) | (odd & ~0xffffffffull));
        low = (U)((even & 0xffffffffull) | (odd << 32));
    }
}
template <class K, class U> INLINE void philox(K k0, K k1, U c0, U c1, U& w0, U& w1) {
    U c2 = {}, c3 = {};
    for (int round = 0; round < 10; ++round) {
        U h0, l0, h1, l1;
        multiply(c0, 0xD2511F53u, h0, l0);
        multiply(c2, 0xCD9E8D57u, h1, l1);
        c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    w0 = c0, w1 = c1;
}
template <int L> INLINE void halves(V<i64_, L> n, V<unsigned, L>& low, V<unsigned, L>& high) {
    low = __builtin_convertvector((V<u64_, L>)n, V<unsigned, L>);
    high = __builtin_convertvector((V<u64_, L>)n >> 32, V<unsigned, L>);
}
template <int L, class K> INLINE void counted(K k0, K k1, V<i64_, L> at, V<unsigned, L>& w0, V<unsigned, L>& w1) {
    V<unsigned, L> low, high;
    halves<L>(at, low, high);
    philox(k0, k1, low, high, w0, w1);
}
template <int L, class K> INLINE void counted(K k0, K k1, V<int, L> at, V<unsigned, L>& w0, V<unsigned, L>& w1) {
    philox(k0, k1, (V<unsigned, L>)at, V<unsigned, L>{}, w0, w1);
}
// The seed is the same for all lanes, but where it is loaded under a mask.
template <int L, class A> INLINE void words(i64_ seed, A at, V<unsigned, L>& w0, V<unsigned, L>& w1) {
    counted<L>((unsigned)(u64_)seed, (unsigned)((u64_)seed >> 32), at, w0, w1);
}
template <int L, class A> INLINE void words(V<i64_, L> seed, A at, V<unsigned, L>& w0, V<unsigned, L>& w1) {
    V<unsigned, L> k0, k1;
    halves<L>(seed, k0, k1);
    counted<L>(k0, k1, at, w0, w1);
}
template <int L> INLINE V<float, L> unit(V<unsigned, L> w) {
    return __builtin_convertvector((V<int, L>)(w >> 8), V<float, L>) * 0x1p-24f;
}
template <int L, class S, class A> INLINE V<float, L> uniform_(S seed, A at) {
    V<unsigned, L> w0, w1;
    words<L>(seed, at, w0, w1);
    return unit<L>(w0);
}
template <int L, class S, class A> INLINE V<float, L> normal_(S seed, A at) {
    V<unsigned, L> w0, w1;
    words<L>(seed, at, w0, w1);
    V<float, L> above = __builtin_convertvector((V<int, L>)(w0 >> 8) + 1, V<float, L>) * 0x1p-24f;  // (0, 1]
    return sqrt_(log_(above) * -2.0f) * cos_(unit<L>(w1) * 6.2831855f);
}
INLINE float uniform_(i64_ seed, i64_ at) { return uniform_<4>(seed, wide<i64_, 4>(at))[0]; }
INLINE float normal_(i64_ seed, i64_ at) { return normal_<4>(seed, wide<i64_, 4>(at))[0]; }
