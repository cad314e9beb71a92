// Memory that lies across the lanes: a tile of it is turned over at once, into a buffer whose rows lie along the lanes.
// No loop over registers: without their addresses they stay in registers, whatever the compiler unrolls.

// As `interleave`, inside of each 16 bytes.
template <class F> INLINE void interleave_parts(F a, F b, F& first, F& second) {
    constexpr int L = lanes_of<F>, N = 16 / sizeof(typename Element<F>::type);
    auto j = iota<typename Element<Int<F>>::type, L>(), in = j % N, at = j - in + in / 2 + (in & 1) * L;
    first = in_turn(a, b, at), second = in_turn(a, b, at + N / 2);
}
// Row i and row i + N/2 in turn, for all i: log2(N) times, and rows are columns.
template <class R> INLINE void mix(R& a, R& b) { interleave_parts(a, b, a, b); }
template <class R> INLINE void mix(R& a, R& b, R& c, R& d) {
    R second = b, fourth = d;
    interleave_parts(a, c, a, b), interleave_parts(second, fourth, c, d);
}
template <class R> INLINE void mix(R& a, R& b, R& c, R& d, R& e, R& f, R& g, R& h) {
    R second = b, third = c, fourth = d, sixth = f, seventh = g, eighth = h;
    interleave_parts(a, e, a, b), interleave_parts(second, sixth, c, d);
    interleave_parts(third, seventh, e, f), interleave_parts(fourth, eighth, g, h);
}
// 16 bytes of each of PARTS rows that are N rows apart, as one vector.
template <class W, int PARTS, class T> INLINE V<W, PARTS * 16 / (int)sizeof(W)> parts(const T* from, i64_ step) {
    constexpr int N = 16 / sizeof(W), HALF = PARTS / 2;
    if constexpr (PARTS == 1) return raw<W, N>((const W*)from, Full{});
    else return joined<W, PARTS * N>(parts<W, HALF>(from, step), parts<W, HALF>(from + HALF * N * step, step));
}
// 16 bytes of each of PARTS * N rows, as N rows.
template <class W, int PARTS, class T> INLINE void turn_block(T* to, i64_ width, const T* from, i64_ step) {
    constexpr int N = 16 / sizeof(W);
    auto row = [&](int i) BODY { return parts<W, PARTS>(from + i * step, step); };
    auto put = [&](int i, auto v) BODY { raw_store(to + i * width, v, Full{}); };
    auto a = row(0), b = row(1);
    if constexpr (N == 2) mix(a, b);
    else {
        auto c = row(2), d = row(3);
        if constexpr (N == 4) mix(a, b, c, d), mix(a, b, c, d);
        else {
            auto e = row(4), f = row(5), g = row(6), h = row(7);
            mix(a, b, c, d, e, f, g, h), mix(a, b, c, d, e, f, g, h), mix(a, b, c, d, e, f, g, h);
            put(4, e), put(5, f), put(6, g), put(7, h);
        }
        put(2, c), put(3, d);
    }
    put(0, a), put(1, b);
}
// Rows from i on, as long as a block of them is left; gives the first that is not turned over.
template <int WIDTH, class W, int PARTS, class T>
INLINE i64_ turn_rows(T* tile, const T* from, i64_ step, i64_ i, i64_ rows, i64_ columns) {
    constexpr int N = 16 / sizeof(W);
    for (; i + N * PARTS <= rows; i += N * PARTS) {
        i64_ j = 0;
        for (; j + N <= columns; j += N) turn_block<W, PARTS>(tile + j * WIDTH + i, WIDTH, from + i * step + j, step);
        for (; j < columns; ++j)
            for (int k = 0; k < N * PARTS; ++k) tile[j * WIDTH + i + k] = from[(i + k) * step + j];
    }
    return i;
}
// tile[j * WIDTH + i] = from[i * step + j], for all i below rows and j below columns.
template <int WIDTH, class T> INLINE void turn(T* tile, const T* from, i64_ step, i64_ rows, i64_ columns) {
    i64_ i = 0;
    if constexpr (sizeof(T) > 1) {
        typedef typename Choose<sizeof(T) == 8, u64_, typename Choose<sizeof(T) == 4, unsigned, unsigned short>::type>::type W;
        constexpr int PARTS = sizeof(T) == 2 && register_bytes > 32 ? 2 : register_bytes / 16;  // of 16 lanes at most
        i = turn_rows<WIDTH, W, PARTS>(tile, from, step, i, rows, columns);
        i = turn_rows<WIDTH, W, 1>(tile, from, step, i, rows, columns);
    }
    for (; i < rows; ++i)
        for (i64_ j = 0; j < columns; ++j) tile[j * WIDTH + i] = from[i * step + j];
}
