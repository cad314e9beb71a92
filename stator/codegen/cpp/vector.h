// Vectors of L lanes over GCC/Clang vector extensions: types, masks, conversions.
//
// In registers there are five kinds of values: float, double, long (int64), int (int32 and every narrower integer,
// kept wrapped to its own width) and masks (int lanes, 0 or -1). bf16 and f16 live in registers as floats that are
// already rounded, but for what nothing but stores take (`stored_bf16`, `stored_f16`). Every function has a vector form
// and a scalar form of the same name, so emitted text need not know which it calls. `n` is how many lanes are live:
// Full{} (all of them, known at compile time) or a number.

#define INLINE static inline __attribute__((always_inline, unused))
#define BODY __attribute__((always_inline))
typedef long i64_;  // what comparisons of doubles give lanes of
typedef unsigned long u64_;

template <class T, int L> struct Vector { typedef T type __attribute__((vector_size(sizeof(T) * L))); };
template <class T, int L> using V = typename Vector<T, L>::type;
template <class F> using Int = decltype(F{} < F{});  // the signed integers of the same shape: what comparisons give
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <bool first, class A, class B> struct Choose { typedef A type; };
template <class A, class B> struct Choose<false, A, B> { typedef B type; };
template <class F> struct Value_ { typedef F type; };
template <class F> struct Value_<F&> { typedef F type; };
template <class F, class = void> struct Element { typedef F type; static constexpr int lanes = 0; };
template <class F> struct Element<F, decltype(void(F{}[0]))> {
    typedef typename Value_<decltype(F{}[0])>::type type;
    static constexpr int lanes = sizeof(F) / sizeof(type);
};
template <class F> constexpr int lanes_of = Element<F>::lanes;
template <class F> constexpr bool is_f32 = Same<typename Element<F>::type, float>::value;
template <class F> constexpr bool is_f64 = Same<typename Element<F>::type, double>::value;
template <class F> constexpr bool is_float = is_f32<F> || is_f64<F>;
template <class F, class T, int L = lanes_of<F>> struct Like_ { typedef V<T, L> type; };
template <class F, class T> struct Like_<F, T, 0> { typedef T type; };
template <class F, class T> using Like = typename Like_<F, T>::type;  // as many T as there are numbers in F

struct Full {};
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct b8 { unsigned char bits; };

// ---- making, choosing, masks

template <class F> INLINE F splat(typename Element<F>::type c) {
    if constexpr (lanes_of<F> == 0) return c;
    else if constexpr (is_float<F>) return c - F{};
    else return F{} + c;
}
template <class T, int L> INLINE V<T, L> wide(T c) { return splat<V<T, L>>(c); }
template <class T, int L> INLINE V<T, L> wide(V<T, L> c) { return c; }
template <int L> INLINE V<int, L> wide_mask(bool c) { return V<int, L>{} - (int)c; }
template <class T, int L> INLINE V<T, L> iota() {  // written out, as a loop would run whenever it is asked for
    if constexpr (L == 2) return V<T, L>{0, 1};
    else if constexpr (L == 4) return V<T, L>{0, 1, 2, 3};
    else if constexpr (L == 8) return V<T, L>{0, 1, 2, 3, 4, 5, 6, 7};
    else return V<T, L>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}
template <int K, class F> INLINE auto half(F v) {
    V<typename Element<F>::type, lanes_of<F> / 2> r;
    __builtin_memcpy(&r, (char*)&v + K * sizeof r, sizeof r);
    return r;
}
template <class F> INLINE auto low(F v) { return half<0>(v); }
template <class F> INLINE auto high(F v) { return half<1>(v); }
INLINE bool mask(bool m) { return m; }
INLINE bool mask(int m) { return m; }
template <class R, class I> INLINE R resized(I x) {  // whole numbers in narrower or wider lanes
#if defined(__AVX2__) && !defined(__clang__)  // g++ takes nine steps to narrow four lanes, and six to widen them
    if constexpr (lanes_of<I> == 4 && sizeof(I) == 32 && sizeof(R) == 16) {
        V<float, 4> halves[2];
        __builtin_memcpy(halves, &x, sizeof x);
        return (R)__builtin_ia32_shufps(halves[0], halves[1], 0x88);
    } else if constexpr (Same<I, V<int, 4>>::value && sizeof(R) == 32) return (R)__builtin_ia32_pmovsxdq256(x);
#endif
    return __builtin_convertvector(x, R);
}
template <class M> INLINE V<int, lanes_of<M>> mask(M m) { return resized<V<int, lanes_of<M>>>(m); }
INLINE bool not_(bool m) { return !m; }
template <class M> INLINE M not_(M m) { return ~m; }
template <class T> INLINE T select(bool m, T a, T b) { return m ? a : b; }
template <class M, class T> INLINE T select(M m, T a, T b) {
#ifdef __AVX2__
    if constexpr (sizeof(M) == 16 && sizeof(T) == 32) {  // lanes are 0 or -1, which the compiler would compute again
        typedef V<double, 4> D;
        return (T)__builtin_ia32_blendvpd256((D)b, (D)a, (D)resized<V<i64_, 4>>(m));
    }
#endif
    if constexpr (sizeof(M) == sizeof(T)) return m ? a : b;
    else return __builtin_convertvector(m, Int<T>) ? a : b;
}
template <class M> INLINE bool any(M m) {  // of a mask, or of a comparison, as wide as what is compared
#ifdef __AVX512F__
    if constexpr (sizeof(m) == 64)
        return __builtin_ia32_cmpd512_mask((V<int, 16>)m, V<int, 16>{}, 4, (unsigned short)-1) != 0;
#endif
#ifdef __AVX__
    if constexpr (sizeof(m) == 32) return __builtin_ia32_movmskps256((V<float, 8>)m) != 0;
    else if constexpr (sizeof(m) == 16) return __builtin_ia32_movmskps((V<float, 4>)m) != 0;
#endif
    if constexpr (sizeof(m) == 8) return (i64_)m != 0;
    else {
        i64_ r = 0;
        V<i64_, sizeof(m) / 8> w = (V<i64_, sizeof(m) / 8>)m;
        for (int j = 0; j < lanes_of<decltype(w)>; ++j) r |= w[j];
        return r != 0;
    }
}
template <int L> INLINE V<int, L> live(Full) { return V<int, L>{} - 1; }
template <int L> INLINE V<int, L> live(i64_ n) { return iota<int, L>() < (int)n; }

template <class F> INLINE auto bits_i32(F x) { return __builtin_bit_cast(Like<F, int>, x); }
template <class F> INLINE auto bits_f32(F x) { return __builtin_bit_cast(Like<F, float>, x); }
template <class F> INLINE auto bits_i64(F x) { return __builtin_bit_cast(Like<F, i64_>, x); }
template <class F> INLINE auto bits_f64(F x) { return __builtin_bit_cast(Like<F, double>, x); }

// ---- conversions between register kinds: to_<kind>(value); masks have their own

// What the compiler may assume nothing of: it knows what conversions of floats out of range give, and differs from the
// processor, which eager's kernels show.
#if defined(__x86_64__)
#define REGISTER_ "v"
#else
#define REGISTER_ "w"
#endif
#ifdef __AVX512F__
constexpr int register_bytes = 64;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif
INLINE int opaque_(int x) { asm("" : "+r"(x)); return x; }
INLINE i64_ opaque_(i64_ x) { asm("" : "+r"(x)); return x; }
template <class F> INLINE F opaque_(F x) { asm("" : "+" REGISTER_(x)); return x; }
// A value that g++ would leave in memory and read again, or in parts; one that fills several registers stays as it is.
template <class F> INLINE F in_register(F x) {
    if constexpr (sizeof(F) <= register_bytes) return opaque_(x);
    else return x;
}

template <class T, class F> INLINE Like<F, T> converted(F x) {
    typedef Like<F, T> R;
    constexpr bool cuts = is_float<F> && !is_float<T>;
    if constexpr (lanes_of<F> == 0 && cuts) return opaque_((T)opaque_(x));
    else if constexpr (lanes_of<F> == 0) return (T)x;
    else if constexpr (is_float<T>) return __builtin_convertvector(x, R);
    else if constexpr (!cuts) return resized<R>(x);
    else if constexpr (sizeof(F) <= register_bytes && sizeof(R) <= register_bytes)
        return opaque_(__builtin_convertvector(opaque_(x), R));
    else {
        R r;
        for (int j = 0; j < lanes_of<F>; ++j) r[j] = converted<T>((typename Element<F>::type)x[j]);
        return r;
    }
}
template <class T, class M> INLINE Like<M, T> flags(M m) {
    if constexpr (lanes_of<M> == 0) return (T)m;
    else return __builtin_convertvector(-m, V<T, lanes_of<M>>);
}
#define CONVERT_(NAME, T) \
    template <class F> INLINE auto NAME(F x) { return converted<T>(x); } \
    template <class M> INLINE auto mask_##NAME(M m) { return flags<T>(m); }
CONVERT_(to_f32, float) CONVERT_(to_f64, double) CONVERT_(to_i32, int) CONVERT_(to_i64, i64_)
