// Memory that lies across the lanes: a tile of it is turned over at once, into a buffer whose rows lie along the lanes.

template <class T, int N> INLINE void turn_square(void* to, i64_ width, const void* from, i64_ step) {
    V<T, N> rows[N];
    for (int i = 0; i < N; ++i) __builtin_memcpy(&rows[i], (const T*)from + i * step, 16);
    for (int half = 1; half < N; half *= 2) {  // row i and row i + N/2 in turn, for all i: in the end rows are columns
        V<T, N> next[N];
        for (int i = 0; i < N / 2; ++i) interleave(rows[i], rows[i + N / 2], next[2 * i], next[2 * i + 1]);
        __builtin_memcpy(rows, next, sizeof rows);
    }
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
