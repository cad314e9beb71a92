// ---- narrow kinds: values stay in their wide register kind, rounded or wrapped; half types as memory has them

template <class T> INLINE T wrap_u8(T x) { return x & 0xff; }
template <class T> INLINE T wrap_i8(T x) { return (x << 24) >> 24; }
template <class T> INLINE T wrap_i16(T x) { return (x << 16) >> 16; }

template <class R, class F> INLINE R first_of(F v) {
    R r;
    __builtin_memcpy(&r, &v, sizeof r);
    return r;
}
// Narrow integers in lanes of int; g++ widens each half by itself, and joins them again, and has no way from bytes.
template <class S> INLINE V<int, lanes_of<S>> widened(S x) {
#if defined(__AVX512F__) && !defined(__clang__)
    if constexpr (Same<S, V<unsigned short, 16>>::value)
        return __builtin_ia32_pmovzxwd512_mask((V<short, 16>)x, V<int, 16>{}, (unsigned short)-1);
#endif
#if defined(__AVX2__) && !defined(__clang__)
    if constexpr (Same<S, V<short, 8>>::value) return __builtin_ia32_pmovsxwd256(x);
    if constexpr (Same<S, V<unsigned short, 8>>::value) return __builtin_ia32_pmovzxwd256((V<short, 8>)x);
    if constexpr (sizeof(S) == 8 && lanes_of<S> == 8) {
        V<i64_, 2> bytes = {__builtin_bit_cast(i64_, x)};
        constexpr bool negates = Same<S, V<signed char, 8>>::value;
        return negates ? __builtin_ia32_pmovsxbd256((V<char, 16>)bytes) : __builtin_ia32_pmovzxbd256((V<char, 16>)bytes);
    }
#endif
    if constexpr (sizeof(S) == lanes_of<S>) return widened(__builtin_convertvector(x, V<short, lanes_of<S>>));
    else return __builtin_convertvector(x, V<int, lanes_of<S>>);
}
// Lower bytes of lanes of int; g++ masks, packs and turns, and has no way to bytes.
template <class T, class I> INLINE V<T, lanes_of<I>> narrowed(I x) {
    constexpr int L = lanes_of<I>;
#if defined(__AVX2__) && !defined(__clang__)
    if constexpr (sizeof(T) == 2 && L == 8 && sizeof(I) == 32) {
        constexpr V<long long, 4> lower = {0x0d0c090805040100, -1, 0x0d0c090805040100, -1};  // bytes, of each half
        auto halves = __builtin_ia32_pshufb256((V<char, 32>)x, (V<char, 32>)lower);
        return first_of<V<T, 8>>(__builtin_ia32_permdi256((V<long long, 4>)halves, 0x08));
    } else if constexpr (sizeof(T) == 1 && L == 8 && sizeof(I) == 32) {
        constexpr V<int, 8> lower = {0x0c080400, -1, -1, -1, 0x0c080400, -1, -1, -1}, first = {0, 4, 0, 4, 0, 4, 0, 4};
        auto halves = __builtin_ia32_pshufb256((V<char, 32>)x, (V<char, 32>)lower);
        return first_of<V<T, 8>>(__builtin_ia32_permvarsi256((V<int, 8>)halves, first));
    }
#endif
    if constexpr (sizeof(T) == 1) return __builtin_convertvector(__builtin_convertvector(x, V<short, L>), V<T, L>);
    else return __builtin_convertvector(x, V<T, L>);
}
template <int L> INLINE V<float, L> from_bf16(V<unsigned short, L> h) { return (V<float, L>)(widened(h) << 16); }
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
        return first_of<V<unsigned short, 16>>(__builtin_shuffle((Halves)x, upper));
    }
#endif
#if defined(__AVX2__) && !defined(__clang__)  // two shuffles; g++ shifts, masks, packs and turns
    if constexpr (L == 8) {
        constexpr V<long long, 4> upper = {0x0f0e0b0a07060302, -1, 0x0f0e0b0a07060302, -1};  // bytes, of each half
        auto halves = __builtin_ia32_pshufb256((V<char, 32>)x, (V<char, 32>)upper);
        return first_of<V<unsigned short, 8>>(__builtin_ia32_permdi256((V<long long, 4>)halves, 0x08));
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

// Rounded to the nearest, but for the bits that a store leaves out. A NaN keeps its sign.
template <class F> INLINE F stored_bf16(F x) {
    if constexpr (lanes_of<F> == 0) return stored_bf16(splat<V<float, 4>>(x))[0];
    else {
        typedef Int<F> I;
        I bits = (I)x;
#if defined(__AVX512F__) && !defined(__clang__)
        if constexpr (sizeof(F) == 64) {
            I half = bits + 0x7fff;
            auto odd = __builtin_ia32_ptestmd512(bits, I{} + 0x10000, (unsigned short)-1);  // g++ takes two steps
            half = __builtin_ia32_paddd512_mask(bits, I{} + 0x8000, half, odd);
            return (F)(x != x ? bits | 0x7fc00000 : half);
        }
#endif
        return (F)(x != x ? bits | 0x7fc00000 : bits + 0x7fff + ((bits >> 16) & 1));
    }
}
template <class F> INLINE F round_bf16(F x) {
    if constexpr (lanes_of<F> == 0) return round_bf16(splat<V<float, 4>>(x))[0];
    else return (F)((Int<F>)stored_bf16(x) & (int)0xffff0000);
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
template <class F> INLINE F stored_f16(F x) {  // which an instruction rounds that narrows
    if constexpr (converts_f16<lanes_of<F>>) return x;
    else return round_f16(x);
}
