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
template <class T, class F> INLINE void raw_store(T* p, F v, Full) {
    if constexpr (sizeof(F) > register_bytes) {  // which g++ would put in memory of its own, and copy
        raw_store(p, low(v), Full{});
        raw_store(p + lanes_of<F> / 2, high(v), Full{});
    } else ((Anywhere_<F>*)p)->value = v;
}
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

template <class T> using Register = decltype(+T{});  // narrow integers are held in int
// What elements are in memory, and what lanes of them are in registers.
template <class T> struct Memory_ { typedef T type; };
template <> struct Memory_<bf16> { typedef unsigned short type; }; template <> struct Memory_<f16> : Memory_<bf16> {};
template <> struct Memory_<b8> { typedef unsigned char type; }; template <class T> using Bits_of = typename Memory_<T>::type;
template <int L, class T> INLINE V<Register<T>, L> held(const T*, V<T, L> r) {
    if constexpr (sizeof(T) <= 2) return widened(r);
    else return __builtin_convertvector(r, V<Register<T>, L>);
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
    raw_store(p, narrowed<T>(v), n);
}
template <int L, class N> INLINE void store(bf16* p, V<float, L> v, N n) { raw_store(p, narrow_bf16<L>(v), n); }
template <int L, class N> INLINE void store(f16* p, V<float, L> v, N n) { raw_store(p, narrow_f16<L>(v), n); }
template <int L, class N> INLINE void store(b8* p, V<int, L> v, N n) {
    raw_store((unsigned char*)p, narrowed<unsigned char>(v & 1), n);
}

template <class T> INLINE auto load1(T x) { return +x; }
INLINE bool load1(b8 x) { return x.bits != 0; }
INLINE float load1(bf16 x) {
    const unsigned bits = (unsigned)x.bits << 16;
    float v;
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
INLINE float load1(f16 x) { return from_f16<8>(V<unsigned short, 8>{x.bits})[0]; }
template <class T> INLINE void store1(T* p, Register<T> v) { *p = (T)v; }
INLINE void store1(b8* p, int v) { p->bits = v != 0; }
INLINE void store1(bf16* p, float v) {
    unsigned bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    p->bits = bits >> 16;
}
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
