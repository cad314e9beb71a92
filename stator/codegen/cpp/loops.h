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

// ---- loops: SWEEP runs a block at the places X of [FROM, TO), by vectors of L, U of them together. LEFT says what may be
// left over: single vectors (rest), a part of one (tail), both, or none. In the block `n` says which lanes are live, `u`
// is the number of the accumulator. Its text is pasted: of a function g++ would optimize a copy at each level of calls.

constexpr Full n{};  // where the block is not of a part
#define BLOCK_(AT, K, X, ...) { const i64_ X = AT; constexpr int u = K; __VA_ARGS__ }
#define TOGETHER_1(L, X, ...) BLOCK_(at_, 0, X, __VA_ARGS__)
#define TOGETHER_2(L, X, ...) TOGETHER_1(L, X, __VA_ARGS__) BLOCK_(at_ + L, 1, X, __VA_ARGS__)
#define TOGETHER_3(L, X, ...) TOGETHER_2(L, X, __VA_ARGS__) BLOCK_(at_ + 2 * L, 2, X, __VA_ARGS__)
#define TOGETHER_4(L, X, ...) TOGETHER_3(L, X, __VA_ARGS__) BLOCK_(at_ + 3 * L, 3, X, __VA_ARGS__)
#define TOGETHER_8(L, X, ...) TOGETHER_4(L, X, __VA_ARGS__) \
    BLOCK_(at_ + 4 * L, 4, X, __VA_ARGS__) BLOCK_(at_ + 5 * L, 5, X, __VA_ARGS__) \
    BLOCK_(at_ + 6 * L, 6, X, __VA_ARGS__) BLOCK_(at_ + 7 * L, 7, X, __VA_ARGS__)
#define LEFT_none(L, X, ...)
#define LEFT_rest(L, X, ...) for (; at_ + L <= to_; at_ += L) BLOCK_(at_, 0, X, __VA_ARGS__)
#define LEFT_tail(L, X, ...) if (at_ < to_) { const i64_ n = to_ - at_; BLOCK_(at_, 0, X, __VA_ARGS__) }
#define LEFT_both(L, X, ...) LEFT_rest(L, X, __VA_ARGS__) LEFT_tail(L, X, __VA_ARGS__)
#define SWEEP(L, U, LEFT, X, FROM, TO, ...) { \
    i64_ at_ = FROM; \
    const i64_ to_ = TO; \
    for (; at_ + L * U <= to_; at_ += L * U) { TOGETHER_##U(L, X, __VA_ARGS__) } \
    LEFT_##LEFT(L, X, __VA_ARGS__) }
template <class T> INLINE T keep(Full, T now, T) { return now; }
template <class T> INLINE T keep(i64_ n, T now, T before) { return select(live<lanes_of<T>>(n), now, before); }
template <class T, int U, class F> INLINE void fill(F (&a)[U], T c) {
    for (int u = 0; u < U; ++u) a[u] = splat<F>(c);
}
// Long sums: a short sum is added to its total, which remembers what rounding lost (what overflows loses nothing).
template <int U, class F> INLINE void flush(F (&total)[U], F (&lost)[U], F (&a)[U]) {
    for (int u = 0; u < U; ++u) {
        F add = a[u] - lost[u], sum = total[u] + add, rest = (sum - total[u]) - add;
        lost[u] = select(mask(rest - rest == F{}), rest, F{});
        total[u] = sum, a[u] = F{};
    }
}
INLINE i64_ least(i64_ a, i64_ b) { return a < b ? a : b; }
