// Memory that lies across the lanes: a tile of it is turned over at once, into a buffer whose rows lie along the lanes.

template <class T, int N> INLINE void turn_square(void* to, i64_ width, const void* from, i64_ step) {
    V<T, N> rows[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) __builtin_memcpy(&rows[i], (const T*)from + i * step, sizeof rows[0]);
#pragma GCC unroll 4
    for (int half = 1; half < N; half *= 2) {  // row i and row i + N/2 in turn, for all i: in the end rows are columns
        V<T, N> next[N];
#pragma GCC unroll 8
        for (int i = 0; i < N / 2; ++i) interleave(rows[i], rows[i + N / 2], next[2 * i], next[2 * i + 1]);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) rows[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) __builtin_memcpy((T*)to + i * width, &rows[i], sizeof rows[0]);
}
// Squares of N elements a side, then smaller ones of what is left over.
template <int WIDTH, int N, class T>
static __attribute__((noinline, unused)) void turn_by(T* tile, const T* from, i64_ step, i64_ rows, i64_ columns) {
    typedef typename Choose<sizeof(T) == 8, u64_, typename Choose<sizeof(T) == 4, unsigned, unsigned short>::type>::type W;
    if constexpr (sizeof(T) == 1 || N * sizeof(T) < 16) {
        for (i64_ i = 0; i < rows; ++i)
            for (i64_ j = 0; j < columns; ++j) tile[j * WIDTH + i] = from[i * step + j];
    } else {
        i64_ i = 0;
        for (; i + N <= rows; i += N) {
            i64_ j = 0;
            for (; j + N <= columns; j += N) turn_square<W, N>(tile + j * WIDTH + i, WIDTH, from + i * step + j, step);
            if (j < columns) turn_by<WIDTH, N / 2>(tile + j * WIDTH + i, from + i * step + j, step, N, columns - j);
        }
        if (i < rows) turn_by<WIDTH, N / 2>(tile + i, from + i * step, step, rows - i, columns);
    }
}
// tile[j * WIDTH + i] = from[i * step + j], for all i below rows and j below columns.
template <int WIDTH, class T> INLINE void turn(T* tile, const T* from, i64_ step, i64_ rows, i64_ columns) {
    constexpr int most = register_bytes / sizeof(T);
    turn_by<WIDTH, most < 16 ? most : 16>(tile, from, step, rows, columns);
}
