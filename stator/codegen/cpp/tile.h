// Memory that lies across the lanes: a tile of it is turned over at once, into a buffer whose rows lie along the lanes.

// Row i of a square and row i + N/2 in turn, for all i: after log2(N) times rows are columns.
template <class T, int N> INLINE void interleave(V<T, N> (&rows)[N]) {
    V<T, N> next[N];
    for (int i = 0; i < N / 2; ++i) {
        V<T, N> a = rows[i], b = rows[i + N / 2];
        if constexpr (N == 2)
            next[2 * i] = __builtin_shufflevector(a, b, 0, 2), next[2 * i + 1] = __builtin_shufflevector(a, b, 1, 3);
        else if constexpr (N == 4)
            next[2 * i] = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                     next[2 * i + 1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        else
            next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
                     next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < N; ++i) rows[i] = next[i];
}
template <class T, int N> INLINE void turn_square(void* to, i64_ width, const void* from, i64_ step) {
    V<T, N> rows[N];
    for (int i = 0; i < N; ++i) __builtin_memcpy(&rows[i], (const T*)from + i * step, 16);
    for (int half = 1; half < N; half *= 2) interleave<T, N>(rows);
    for (int i = 0; i < N; ++i) __builtin_memcpy((T*)to + i * width, &rows[i], 16);
}
// tile[j * WIDTH + i] = from[i * step + j], for all i below rows and j below columns.
template <int WIDTH, class T> INLINE void turn(T* tile, const T* from, i64_ step, i64_ rows, i64_ columns) {
    constexpr int N = sizeof(T) == 1 ? 1 : 16 / sizeof(T);
    typedef typename Choose<sizeof(T) == 8, u64_, typename Choose<sizeof(T) == 4, unsigned, unsigned short>::type>::type W;
    i64_ i = 0;
    if constexpr (N > 1)
        for (; i + N <= rows; i += N) {
            i64_ j = 0;
            for (; j + N <= columns; j += N) turn_square<W, N>(tile + j * WIDTH + i, WIDTH, from + i * step + j, step);
            for (; j < columns; ++j)
                for (int k = 0; k < N; ++k) tile[j * WIDTH + i + k] = from[(i + k) * step + j];
        }
    for (; i < rows; ++i)
        for (i64_ j = 0; j < columns; ++j) tile[j * WIDTH + i] = from[i * step + j];
}
