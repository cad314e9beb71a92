// ---- stream: stores past the caches (non-temporal), for results that these cannot hold: no line is read only to be
// written over. Where a result does not lie apart from all operands its lines are in the caches, and are stored to as
// ever, as are vectors that do not lie at a multiple of their size. `end_streams` comes before other threads read.
#if defined(__SSE2__) && !defined(__clang__)
INLINE void move_past(void* p, V<float, 4> v) { __builtin_ia32_movntps((float*)p, v); }
#ifdef __AVX__
INLINE void move_past(void* p, V<float, 8> v) { __builtin_ia32_movntps256((float*)p, v); }
#endif
#ifdef __AVX512F__
INLINE void move_past(void* p, V<float, 16> v) { __builtin_ia32_movntps512((float*)p, v); }
#endif
template <class T, class F> INLINE void raw_stream(T* p, F v, bool apart) {
    constexpr int size = sizeof v;
    if constexpr (size >= 16 && size <= register_bytes)
        if (apart && __builtin_expect(((u64_)p & (size - 1)) == 0, 1)) return move_past(p, (V<float, size / 4>)v);
    raw_store(p, v, Full{});
}
INLINE void end_streams() { __builtin_ia32_sfence(); }
#else
template <class T, class F> INLINE void raw_stream(T* p, F v, bool) { raw_store(p, v, Full{}); }
INLINE void end_streams() {}
#endif
template <int L, class T> INLINE void stream(T* p, V<Register<T>, L> v, Full, bool apart) {
    raw_stream(p, narrowed<T>(v), apart);
}
template <int L> INLINE void stream(bf16* p, V<float, L> v, Full, bool apart) { raw_stream(p, narrow_bf16<L>(v), apart); }
template <int L> INLINE void stream(f16* p, V<float, L> v, Full, bool apart) { raw_stream(p, narrow_f16<L>(v), apart); }
template <int L> INLINE void stream(b8* p, V<int, L> v, Full, bool apart) {
    raw_stream((unsigned char*)p, narrowed<unsigned char>(v & 1), apart);
}
template <int L, class T, class F> INLINE void stream(T* p, F v, i64_ n, bool) { store<L>(p, v, n); }
