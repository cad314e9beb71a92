// Vectors of L lanes over GCC/Clang vector extensions: types, masks, conversions, memory, lane reductions.
//
// In registers there are five kinds of values: float, double, long (int64), int (int32 and every narrower integer,
// kept wrapped to its own width) and masks (int lanes, 0 or -1). bf16 and f16 live in registers as floats that are
// already rounded. Every function has a vector form and a scalar form of the same name, so emitted text need not know
// which it calls. `n` is how many lanes are live: Full{} (all of them, known at compile time) or a number.

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

// ---- rounding to narrow kinds; values stay in their wide register kind

template <class F> INLINE F round_bf16(F x) {
    if constexpr (lanes_of<F> == 0) return round_bf16(splat<V<float, 4>>(x))[0];
    else {
        typedef Int<F> I;
        I bits = (I)x;
#if defined(__AVX512F__) && !defined(__clang__)
        if constexpr (sizeof(F) == 64) {
            I half = bits + 0x7fff;
            auto odd = __builtin_ia32_ptestmd512(bits, I{} + 0x10000, (unsigned short)-1);  // g++ takes two steps
            half = __builtin_ia32_paddd512_mask(bits, I{} + 0x8000, half, odd);
            half = x != x ? bits | 0x7fc00000 : half;
            return (F)(half & (int)0xffff0000);
        }
#endif
        I up = x != x ? bits | 0x7fc00000 : bits + 0x7fff + ((bits >> 16) & 1);  // a NaN keeps its sign
        return (F)(up & (int)0xffff0000);
    }
}
template <class T> INLINE T wrap_u8(T x) { return x & 0xff; }
template <class T> INLINE T wrap_i8(T x) { return (x << 24) >> 24; }
template <class T> INLINE T wrap_i16(T x) { return (x << 16) >> 16; }

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

// ---- memory: contiguous (load, store), one element (load1, store1), any pattern (lanes, scatter)

template <class T, int L> INLINE V<T, L> raw(const T* p, Full) {
    V<T, L> r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
}
// Some of the lanes: a masked move where there is one (ready says so), else as many bytes as there are. What says which
// lanes is a number of bits, or lanes of 0 and -1: first<T, L>(n) and chosen<T, L>(mask).
template <class T> using Wide_ = typename Choose<sizeof(T) == 8, double, float>::type;
template <class T> using Narrow_ = typename Choose<sizeof(T) == 2, short, char>::type;
template <class T, int L> using Word = V<typename Choose<sizeof(T) <= 2, Narrow_<T>, Wide_<T>>::type, L>;
#if defined(__AVX512VL__)
#if defined(__AVX512BW__) && !defined(__clang__)  // which declares these otherwise
template <class T, int L> constexpr bool ready_narrow = (sizeof(T) == 2 && (L == 16 || L == 8)) || (sizeof(T) == 1 && L == 16);
INLINE V<short, 16> move(const void* p, V<short, 16> v, int m) { return __builtin_ia32_loaddquhi256_mask((const short*)p, v, m); }
INLINE V<short, 8> move(const void* p, V<short, 8> v, int m) { return __builtin_ia32_loaddquhi128_mask((const short*)p, v, m); }
INLINE V<char, 16> move(const void* p, V<char, 16> v, int m) { return __builtin_ia32_loaddquqi128_mask((const char*)p, v, m); }
INLINE void move_to(void* p, V<short, 16> v, int m) { __builtin_ia32_storedquhi256_mask((short*)p, v, m); }
INLINE void move_to(void* p, V<short, 8> v, int m) { __builtin_ia32_storedquhi128_mask((short*)p, v, m); }
INLINE void move_to(void* p, V<char, 16> v, int m) { __builtin_ia32_storedquqi128_mask((char*)p, v, m); }
#else
template <class T, int L> constexpr bool ready_narrow = false;
#endif
template <class T, int L> constexpr bool ready =
    (sizeof(T) == 4 && (L == 16 || L == 8)) || (sizeof(T) == 8 && L == 8) || ready_narrow<T, L>;
template <class T, int L> INLINE int first(i64_ n) { return (1 << n) - 1; }
template <class T, int L> INLINE int chosen(V<int, L> m) {
    if constexpr (L == 16) return (unsigned short)__builtin_ia32_cmpd512_mask(m, V<int, L>{}, 4, (unsigned short)-1);
    else return (unsigned char)__builtin_ia32_cmpd256_mask(m, V<int, L>{}, 4, (unsigned char)-1);
}
INLINE V<float, 16> move(const void* p, V<float, 16> v, int m) { return __builtin_ia32_loadups512_mask((const float*)p, v, m); }
INLINE V<float, 8> move(const void* p, V<float, 8> v, int m) { return __builtin_ia32_loadups256_mask((const float*)p, v, m); }
INLINE V<double, 8> move(const void* p, V<double, 8> v, int m) { return __builtin_ia32_loadupd512_mask((const double*)p, v, m); }
INLINE void move_to(void* p, V<float, 16> v, int m) { __builtin_ia32_storeups512_mask((float*)p, v, m); }
INLINE void move_to(void* p, V<float, 8> v, int m) { __builtin_ia32_storeups256_mask((float*)p, v, m); }
INLINE void move_to(void* p, V<double, 8> v, int m) { __builtin_ia32_storeupd512_mask((double*)p, v, m); }
#else
template <class T, int L> using Flags = V<typename Choose<sizeof(T) == 8, i64_, int>::type, L>;
template <class T, int L> INLINE Flags<T, L> chosen(V<int, L> m) { return __builtin_convertvector(m, Flags<T, L>); }
template <class T, int L> INLINE Flags<T, L> first(i64_ n) {
    typedef typename Element<Flags<T, L>>::type E;
    return iota<E, L>() < (E)n;
}
#ifdef __AVX2__
template <class T, int L> constexpr bool ready = sizeof(T) >= 4 && (sizeof(T) * L == 32 || sizeof(T) * L == 16);
typedef V<long long, 4> Four_;
typedef V<long long, 2> Two_;
INLINE V<float, 8> move(const void* p, V<float, 8>, V<int, 8> m) { return __builtin_ia32_maskloadps256((const V<float, 8>*)p, m); }
INLINE V<float, 4> move(const void* p, V<float, 4>, V<int, 4> m) { return __builtin_ia32_maskloadps((const V<float, 4>*)p, m); }
INLINE V<double, 4> move(const void* p, V<double, 4>, V<i64_, 4> m) { return __builtin_ia32_maskloadpd256((const V<double, 4>*)p, (Four_)m); }
INLINE V<double, 2> move(const void* p, V<double, 2>, V<i64_, 2> m) { return __builtin_ia32_maskloadpd((const V<double, 2>*)p, (Two_)m); }
INLINE void move_to(void* p, V<float, 8> v, V<int, 8> m) { __builtin_ia32_maskstoreps256((V<float, 8>*)p, m, v); }
INLINE void move_to(void* p, V<float, 4> v, V<int, 4> m) { __builtin_ia32_maskstoreps((V<float, 4>*)p, m, v); }
INLINE void move_to(void* p, V<double, 4> v, V<i64_, 4> m) { __builtin_ia32_maskstorepd256((V<double, 4>*)p, (Four_)m, v); }
INLINE void move_to(void* p, V<double, 2> v, V<i64_, 2> m) { __builtin_ia32_maskstorepd((V<double, 2>*)p, (Two_)m, v); }
#else
template <class T, int L> constexpr bool ready = false;
template <class F, class M> INLINE F move(const void*, F v, M) { return v; }
template <class F, class M> INLINE void move_to(void*, F, M) {}
#endif
#endif
template <class T, int L> INLINE V<T, L> raw(const T* p, i64_ n) {
    V<T, L> r = {};
    if (__builtin_constant_p(n) && n <= 4) {  // known to be few: one by one is faster than any mask
        for (int j = 0; j < (L < 4 ? L : 4); ++j)
            if (j < n) r[j] = p[j];
        return r;
    }
    if constexpr (ready<T, L>) return (V<T, L>)move(p, Word<T, L>{}, first<T, L>(n));
    __builtin_memcpy(&r, p, sizeof(T) * n);
    return r;
}
// A vector is stored as one. Of 32 and 64 bytes that are copied g++ 12 makes a number, where it knows them; with AVX-512
// it takes those of which the last lanes are zero (1, 1, 1, 1, 0, 0, 0, 0) for one lane, repeated.
template <class F> struct __attribute__((packed, may_alias)) Anywhere_ { F value; };
template <class T, class F> INLINE void raw_store(T* p, F v, Full) { ((Anywhere_<F>*)p)->value = v; }
template <class T, class F> INLINE void raw_store(T* p, F v, i64_ n) {
    constexpr int L = lanes_of<F>, H = L / 2;
    // what is known to be some bytes is a move or two; a masked one takes tens of steps on some processors
    if constexpr (ready<T, L>)
        if (!__builtin_constant_p(n)) return move_to(p, (Word<T, L>)v, first<T, L>(n));
    if constexpr (sizeof(F) > 16)
        if (__builtin_constant_p(n)) {
            V<typename Element<F>::type, H> halves[2];
            __builtin_memcpy(halves, &v, sizeof v);
            raw_store(p, halves[0], n < H ? n : H);
            if (n > H) raw_store(p + H, halves[1], n - H);
            return;
        }
    __builtin_memcpy(p, &v, sizeof(T) * n);
}

template <int L> INLINE V<float, L> from_bf16(V<unsigned short, L> h) {
#if defined(__AVX512F__) && !defined(__clang__)  // g++ widens each half by itself, and joins them again
    if constexpr (L == 16)
        return (V<float, 16>)(__builtin_ia32_pmovzxwd512_mask((V<short, 16>)h, V<int, 16>{}, (unsigned short)-1) << 16);
#endif
    return (V<float, L>)(__builtin_convertvector(h, V<unsigned, L>) << 16);
}
#if defined(__AVX512F__)
template <int L> constexpr bool converts_f16 = L == 16 || L == 8;
#elif defined(__F16C__)
template <int L> constexpr bool converts_f16 = L == 8;
#else
template <int L> constexpr bool converts_f16 = false;
#endif
template <int L> INLINE V<float, L> from_f16(V<unsigned short, L> h) {
#ifdef __AVX512F__
    if constexpr (L == 16)
        return __builtin_ia32_vcvtph2ps512_mask((V<short, 16>)h, V<float, 16>{}, (unsigned short)-1, 4);
#endif
#ifdef __F16C__
    if constexpr (L == 8) return __builtin_ia32_vcvtph2ps256((V<short, 8>)h);
#endif
    V<int, L> bits = __builtin_convertvector(h, V<int, L>), size = bits & 0x7fff;
    V<float, L> r = (V<float, L>)(size << 13) * 0x1p112f;
    V<int, L> out = (V<int, L>)r;
    out = size >= 0x7c00 ? (size << 13) | 0x7f800000 : out;
    return (V<float, L>)(out | ((bits & 0x8000) << 16));
}
template <int L> INLINE V<unsigned short, L> narrow_bf16(V<float, L> x) {
#if defined(__AVX512BW__) && !defined(__clang__)  // a shuffle of one register; g++ shifts, and then takes three steps
    if constexpr (L == 16) {
        typedef V<unsigned short, 32> Halves;
        constexpr Halves upper = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
        Halves found = __builtin_shuffle((Halves)x, upper);
        V<unsigned short, 16> low;
        __builtin_memcpy(&low, &found, sizeof low);
        return low;
    }
#endif
    return __builtin_convertvector((V<unsigned, L>)x >> 16, V<unsigned short, L>);
}
template <int L> INLINE V<unsigned short, L> narrow_f16(V<float, L> x) {
#ifdef __AVX512F__
    if constexpr (L == 16)
        return (V<unsigned short, 16>)__builtin_ia32_vcvtps2ph512_mask(x, 0, V<short, 16>{}, (unsigned short)-1);
#endif
#ifdef __F16C__
    if constexpr (L == 8) return (V<unsigned short, 8>)__builtin_ia32_vcvtps2ph256(x, 0);
#endif
    V<int, L> bits = (V<int, L>)x, sign = bits & (int)0x80000000, size = bits ^ sign;
    V<int, L> r = (V<int, L>)((V<float, L>)size * 0x1p-112f) >> 13;
    r = size >= 0x7f800000 ? (size >> 13 & 0x3ff) | (size > 0x7f800000 ? V<int, L>{} + 0x7e00 : V<int, L>{} + 0x7c00) : r;
    return __builtin_convertvector((V<unsigned, L>)(r | ((sign >> 16) & 0x8000)), V<unsigned short, L>);
}

template <class F> INLINE F round_f16(F x) {
    constexpr int L = lanes_of<F>;
    if constexpr (L == 0) return round_f16(splat<V<float, converts_f16<8> ? 8 : 4>>(x))[0];
    else if constexpr (converts_f16<L>) return from_f16<L>(narrow_f16<L>(x));
    else {
        typedef Int<F> I;
        I bits = (I)x, sign = bits & (int)0x80000000, size = bits ^ sign;
        F tiny = ((F)size + 0.5f) - 0.5f;  // below 2^-14 the spacing is 2^-24
        I up = (size + 0xfff + ((size >> 13) & 1)) & ~0x1fff;
        I r = size < 0x38800000 ? (I)tiny : up;
        r = r >= 0x47800000 ? I{} + 0x7f800000 : r;
        return x != x ? x : (F)(r | sign);
    }
}

template <class T> using Register = decltype(+T{});  // narrow integers are held in int
template <class T> using Step_ = typename Choose<sizeof(T) == 1, short, T>::type;  // g++ has none from char to int
// What elements are in memory, and what lanes of them are in registers.
template <class T> struct Memory_ { typedef T type; };
template <> struct Memory_<bf16> { typedef unsigned short type; }; template <> struct Memory_<f16> : Memory_<bf16> {};
template <> struct Memory_<b8> { typedef unsigned char type; }; template <class T> using Bits_of = typename Memory_<T>::type;
template <int L, class T> INLINE V<Register<T>, L> held(const T*, V<T, L> r) {
    return __builtin_convertvector(__builtin_convertvector(r, V<Step_<T>, L>), V<Register<T>, L>);
}
template <int L> INLINE V<float, L> held(const bf16*, V<unsigned short, L> r) { return from_bf16<L>(r); }
template <int L> INLINE V<float, L> held(const f16*, V<unsigned short, L> r) { return from_f16<L>(r); }
template <int L> INLINE V<int, L> held(const b8*, V<unsigned char, L> r) { return __builtin_convertvector(r != 0, V<int, L>); }
// The same of elements that are in lanes of int by their bits: narrow ones are put together so.
template <int L, class T> INLINE auto held_wide(const T*, V<int, L> r) {
    if constexpr (Same<T, bf16>::value) return (V<float, L>)(r << 16);
    else if constexpr (Same<T, f16>::value) return from_f16<L>(__builtin_convertvector(r, V<unsigned short, L>));
    else if constexpr (Same<T, b8>::value) return (V<int, L>)(r != 0);
    else return r;
}
template <int L, class T, class N> INLINE auto load(const T* p, N n) {
    return held<L>(p, raw<Bits_of<T>, L>((const Bits_of<T>*)p, n));
}

template <int L, class T, class N> INLINE void store(T* p, V<Register<T>, L> v, N n) {
    raw_store(p, __builtin_convertvector(__builtin_convertvector(v, V<Step_<T>, L>), V<T, L>), n);
}
template <int L, class N> INLINE void store(bf16* p, V<float, L> v, N n) { raw_store(p, narrow_bf16<L>(v), n); }
template <int L, class N> INLINE void store(f16* p, V<float, L> v, N n) { raw_store(p, narrow_f16<L>(v), n); }
template <int L, class N> INLINE void store(b8* p, V<int, L> v, N n) {
    raw_store((unsigned char*)p, __builtin_convertvector(v & 1, V<unsigned char, L>), n);
}

template <class T> INLINE auto load1(T x) { return +x; }
INLINE bool load1(b8 x) { return x.bits != 0; }
INLINE float load1(bf16 x) { return from_bf16<4>(V<unsigned short, 4>{x.bits})[0]; }
INLINE float load1(f16 x) { return from_f16<8>(V<unsigned short, 8>{x.bits})[0]; }
template <class T> INLINE void store1(T* p, Register<T> v) { *p = (T)v; }
INLINE void store1(b8* p, int v) { p->bits = v != 0; }
INLINE void store1(bf16* p, float v) { p->bits = narrow_bf16<4>(V<float, 4>{v})[0]; }
INLINE void store1(f16* p, float v) { p->bits = narrow_f16<8>(V<float, 8>{v})[0]; }

// What a loaded element is in a register: its vector type, and its lane (masks are -1, not 1).
template <class T, int L> using Held = decltype(load<L>((const T*)0, Full{}));
template <int L> INLINE int lane_of(bool x) { return -(int)x; }
template <int L, class T> INLINE T lane_of(T x) { return x; }

// lanes<T, L>(n, f): lane j is f(j), for the lanes that are live; no lane beyond them is read.
// All of them go by 16 bytes, which are then joined: an insertion into a wider vector takes a shuffle of all of it.
template <class T, int L> INLINE V<T, L> joined(V<T, L / 2> a, V<T, L / 2> b) {
    if constexpr (L == 4) return __builtin_shufflevector(a, b, 0, 1, 2, 3);
    else if constexpr (L == 8) return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
    else return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
template <class T, int L, int O = 0, class G> INLINE V<T, L> lanes(Full n, G f) {
    if constexpr (L == 2) return V<T, L>{lane_of<L>(f(O)), lane_of<L>(f(O + 1))};
    else if constexpr (L == 4 && sizeof(T) <= 4)
        return V<T, L>{lane_of<L>(f(O)), lane_of<L>(f(O + 1)), lane_of<L>(f(O + 2)), lane_of<L>(f(O + 3))};
    else return joined<T, L>(lanes<T, L / 2, O>(n, f), lanes<T, L / 2, O + L / 2>(n, f));
}
template <class T, int L, class G> INLINE V<T, L> lanes(i64_ n, G f) {
    V<T, L> r = {};
    for (int j = 0; j < L; ++j)
        if (j < n) r[j] = lane_of<L>(f(j));
    return r;
}
template <class T, int L, class G, class N> INLINE V<T, L> lanes_if(V<int, L> m, N n, G f) {
    V<T, L> r = {};
    m &= live<L>(n);
    for (int j = 0; j < L; ++j)
        if (m[j]) r[j] = lane_of<L>(f(j));
    return r;
}
template <int L, class G> INLINE void each(Full, G f) { for (int j = 0; j < L; ++j) f(j); }
template <int L, class G> INLINE void each(i64_ n, G f) { for (int j = 0; j < n; ++j) f(j); }
// load_if: contiguous, only the lanes under the mask are read; the others are zero.
template <int L, class T, class N> INLINE auto load_if(const T* p, V<int, L> m, N n) -> decltype(load<L>(p, Full{})) {
    typedef Bits_of<T> B;
    m &= live<L>(n);
    if constexpr (ready<B, L>) return held<L>(p, (V<B, L>)move(p, Word<B, L>{}, chosen<B, L>(m)));
    decltype(load<L>(p, Full{})) r = {};
    for (int j = 0; j < L; ++j)
        if (m[j]) r[j] = lane_of<L>(load1(p[j]));
    return r;
}

// gather: lane j is p[at[j]], where T is what a lane holds.
#if defined(__AVX512VL__)
INLINE V<float, 16> fetch(const float* p, V<int, 16> at, int m) { return __builtin_ia32_gathersiv16sf(V<float, 16>{}, p, at, m, 4); }
INLINE V<float, 8> fetch(const float* p, V<int, 8> at, int m) { return __builtin_ia32_gather3siv8sf(V<float, 8>{}, p, at, m, 4); }
INLINE V<float, 8> fetch(const float* p, V<i64_, 8> at, int m) { return __builtin_ia32_gatherdiv16sf(V<float, 8>{}, p, (V<long long, 8>)at, m, 4); }
INLINE V<double, 8> fetch(const double* p, V<int, 8> at, int m) { return __builtin_ia32_gathersiv8df(V<double, 8>{}, p, at, m, 8); }
INLINE V<double, 8> fetch(const double* p, V<i64_, 8> at, int m) { return __builtin_ia32_gatherdiv8df(V<double, 8>{}, p, (V<long long, 8>)at, m, 8); }
template <class T, int L, class A> constexpr bool fetched = sizeof(T) == 4 ? L == 8 || sizeof(A) == 64 : L == 8;
#elif defined(__AVX2__)
INLINE V<float, 8> fetch(const float* p, V<int, 8> at, V<int, 8> m) { return __builtin_ia32_gathersiv8sf(V<float, 8>{}, p, at, (V<float, 8>)m, 4); }
INLINE V<float, 4> fetch(const float* p, V<int, 4> at, V<int, 4> m) { return __builtin_ia32_gathersiv4sf(V<float, 4>{}, p, at, (V<float, 4>)m, 4); }
INLINE V<float, 4> fetch(const float* p, V<i64_, 4> at, V<int, 4> m) { return __builtin_ia32_gatherdiv4sf256(V<float, 4>{}, p, (Four_)at, (V<float, 4>)m, 4); }
INLINE V<double, 4> fetch(const double* p, V<int, 4> at, V<i64_, 4> m) { return __builtin_ia32_gathersiv4df(V<double, 4>{}, p, at, (V<double, 4>)m, 8); }
INLINE V<double, 4> fetch(const double* p, V<i64_, 4> at, V<i64_, 4> m) { return __builtin_ia32_gatherdiv4df(V<double, 4>{}, p, (Four_)at, (V<double, 4>)m, 8); }
template <class T, int L, class A> constexpr bool fetched = L == 4 || (L == 8 && sizeof(T) == 4 && sizeof(A) == 32);
#else
template <class T, int L, class A> constexpr bool fetched = false;
#endif
template <class T, int L, class P, class A, class N> INLINE V<T, L> gather_if(const P* p, A at, V<int, L> m, N n) {
#if defined(__AVX512VL__) || defined(__AVX2__)
    if constexpr (Same<P, T>::value && fetched<T, L, A>) {
        typedef typename Choose<sizeof(T) == 4, float, double>::type W;
        return (V<T, L>)fetch((const W*)p, at, chosen<T, L>(m & live<L>(n)));
    }
#endif
    if constexpr (sizeof(P) <= 2 && L >= 4)
        return held_wide<L>(p, lanes_if<int, L>(m, n, [&](int j) BODY { return (int)((const Bits_of<P>*)p)[at[j]]; }));
    else return lanes_if<T, L>(m, n, [&](int j) BODY { return load1(p[at[j]]); });
}
template <class T, int L, class P, class A> INLINE V<T, L> gather(const P* p, A at, Full n) {
    if constexpr (sizeof(P) <= 2 && L >= 4) return held_wide<L>(p, lanes<int, L>(n, [&](int j) BODY { return (int)((const Bits_of<P>*)p)[at[j]]; }));
    else return lanes<T, L>(n, [&](int j) BODY { return load1(p[at[j]]); });  // faster than what the processor has for it
}
template <class T, int L, class P, class A> INLINE V<T, L> gather(const P* p, A at, i64_ n) {
    return gather_if<T, L>(p, at, live<L>(n), n);
}

// ---- indices that were loaded: outside of 0 … bound-1 they become 0, and `wrong` the number of the check if needed

template <class T> INLINE T within(T at, i64_ bound, bool needed, int number, int& wrong) {
    if (__builtin_expect((u64_)(i64_)at < (u64_)bound, 1)) return at;
    if (needed) wrong = number;
    return 0;
}
template <int L, class F> INLINE F within(F at, i64_ bound, V<int, L> needed, int number, int& wrong) {
    V<int, L> out;
    if constexpr (Same<typename Element<F>::type, int>::value)
        out = (V<int, L>)((V<unsigned, L>)at >= (unsigned)(bound < 0x80000000l ? bound : 0x80000000l));
    else out = mask((V<u64_, L>)at >= (u64_)bound);
    if (__builtin_expect(any(out & needed), 0)) wrong = number;
    return select(out, F{}, at);
}

// ---- reductions over lanes, by halves

template <int K, class F> INLINE auto half(F v) {
    V<typename Element<F>::type, lanes_of<F> / 2> r;
    __builtin_memcpy(&r, (char*)&v + K * sizeof r, sizeof r);
    return r;
}
template <class F> INLINE auto low(F v) { return half<0>(v); }
template <class F> INLINE auto high(F v) { return half<1>(v); }
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

// ---- the grid: one axis of it counts along; whether the next one outwards is to as well

INLINE bool next(i64_& at, i64_ size) { return ++at == size && (at = 0, true); }

// ---- threads: GOMP_parallel of the libgomp that torch has loaded; without one, everything is serial

extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned) __attribute__((weak));
extern "C" int omp_get_thread_num() __attribute__((weak));
extern "C" int omp_get_num_threads() __attribute__((weak));
extern "C" int omp_get_max_threads() __attribute__((weak));

typedef void (*Range)(void* const*, i64_, i64_);
struct Team { Range range; void* const* p; i64_ n; };
static __attribute__((unused)) void team_member(void* data) {
    Team* team = (Team*)data;
    i64_ t = omp_get_thread_num(), k = omp_get_num_threads();
    team->range(team->p, team->n * t / k, team->n * (t + 1) / k);
}
// Run range over [0, n) on at most `most` threads (what the work is worth), no more than torch's own number.
static __attribute__((unused)) void parallel(Range range, void* const* p, i64_ n, int most) {
    int threads = GOMP_parallel && omp_get_max_threads ? omp_get_max_threads() : 1;
    threads = threads < most ? threads : most;
    threads = threads < n ? threads : (int)n;
    if (threads <= 1) return n > 0 ? range(p, 0, n) : (void)0;
    Team team = {range, p, n};
    GOMP_parallel(team_member, &team, (unsigned)threads, 0);
}
