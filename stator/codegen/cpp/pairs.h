// Blocks of sums of products of bfloat16: s[WIDTH*i + j] = sum of a[step*i + k] * b(j, k) over k < TERMS, for rows up to
// 32 and columns up to 32. b lies in pairs: by columns in sixteens, in these by pairs of terms, in these by columns, filled
// up with zeros to whole sixteens and to 32 terms. What lies behind the rows of a is not read. Each step of terms prefetches
// AHEAD lines of the next 32 columns; of the blocks of rows that these columns have each prefetches a share, this one `part`.
//
// Tiles have 16 rows of 64 bytes: four add up, two times two have rows of a and columns of b. They keep the shape that
// `take` gave them until the kernel's part for a thread is done, when they are given back.

template <int TERMS> constexpr i64_ pairs_block = (TERMS + 31) / 32 * 512;  // elements of sixteen columns
// Terms that an instruction multiplies: up to 32, an even number that goes into all of them in hardly more instructions.
template <int TERMS> constexpr int pairs_step() {
    constexpr int least = (TERMS + 31) / 32;
    for (int n = least; n <= least + 1 + least / 4; ++n)
        if (TERMS % (2 * n) == 0) return TERMS / n;
    return 32;
}

#if defined(__AMX_BF16__) && defined(__AMX_TILE__) && defined(__x86_64__) && defined(__linux__)
// The system lets a process use tiles once it has asked for them.
static __attribute__((unused)) bool tiles_allowed() {
    static int known = -1;
    if (known < 0) {
        long result;
        asm volatile("syscall" : "=a"(result) : "a"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
        known = result == 0;  // arch_prctl(ARCH_REQ_XCOMP_PERM, tile data)
    }
    return known == 1;
}
struct alignas(64) TileShapes { unsigned char palette, start, unused[14]; unsigned short bytes[16]; unsigned char rows[16]; };
struct Tiles {
    const bool allowed = tiles_allowed();
    int first = -1, second = -1, terms = -1;
    inline BODY void take(int above, int below, int step) {  // rows of the upper and the lower ones, terms of a step
        if (above == first && below == second && step == terms) return;
        first = above, second = below, terms = step;
        TileShapes shapes = {1};
        for (int t = 0; t < 8; ++t) {
            shapes.bytes[t] = t == 4 || t == 5 ? 2 * step : 64;
            shapes.rows[t] = t == 6 || t == 7 ? step / 2 : t == 2 || t == 3 || t == 5 ? below : above;
        }
        asm volatile("ldtilecfg %0" : : "m"(shapes));
    }
    inline BODY ~Tiles() {
        if (first >= 0) asm volatile("tilerelease" : :);
    }
};
#define TILE_LOAD_(T, FROM, STEP) asm volatile("tileloadd (%0,%1,1), %%tmm" #T : : "r"(FROM), "r"((i64_)(STEP)) : "memory")
#define TILE_STORE_(T, TO, STEP) asm volatile("tilestored %%tmm" #T ", (%0,%1,1)" : : "r"(TO), "r"((i64_)(STEP)) : "memory")
#define TILE_ZERO_(T) asm volatile("tilezero %%tmm" #T : :)
#define TILE_MULTIPLY_(T, A, B) asm volatile("tdpbf16ps %%tmm" #B ", %%tmm" #A ", %%tmm" #T : :)
// One step of terms: tiles 4 and 5 are rows, 6 and 7 columns.
template <bool BELOW, bool RIGHT, i64_ BLOCK> INLINE void multiply_tiles(const bf16* a, i64_ bytes, const bf16* b) {
    TILE_LOAD_(6, b, 64);
    TILE_LOAD_(4, a, bytes);
    TILE_MULTIPLY_(0, 4, 6);
    if constexpr (RIGHT) { TILE_LOAD_(7, b + BLOCK, 64); TILE_MULTIPLY_(1, 4, 7); }
    if constexpr (BELOW) { TILE_LOAD_(5, (const char*)a + 16 * bytes, bytes); TILE_MULTIPLY_(2, 5, 6); }
    if constexpr (BELOW && RIGHT) TILE_MULTIPLY_(3, 5, 7);
}
template <int WIDTH, int TERMS, int AHEAD, bool BELOW, bool RIGHT>
INLINE void multiply_by_tiles(float* s, const bf16* a, i64_ step, const bf16* b, i64_ rows, i64_ part) {
    constexpr i64_ BLOCK = pairs_block<TERMS>;
    constexpr int STEP = pairs_step<TERMS>();
    const char* next = (const char*)(b + 2 * BLOCK) + 64 * AHEAD * (TERMS / STEP) * part;
    TILE_ZERO_(0);
    if constexpr (RIGHT) TILE_ZERO_(1);
    if constexpr (BELOW) TILE_ZERO_(2);
    if constexpr (BELOW && RIGHT) TILE_ZERO_(3);
    for (int k = 0; k < TERMS / STEP; ++k, a += STEP, b += 16 * STEP, next += 64 * AHEAD) {
        for (int line = 0; line < AHEAD; ++line) __builtin_prefetch(next + 64 * line, 0, 2);
        multiply_tiles<BELOW, RIGHT, BLOCK>(a, 2 * step, b);
    }
    if constexpr (TERMS % STEP != 0) {
        alignas(64) unsigned short rest[32 * 32];
        for (i64_ i = 0; i < rows; ++i) {
            __builtin_memset(rest + 32 * i, 0, 64);
            __builtin_memcpy(rest + 32 * i, a + step * i, 2 * (TERMS % STEP));
        }
        multiply_tiles<BELOW, RIGHT, BLOCK>((const bf16*)rest, 64, b);
    }
    TILE_STORE_(0, s, 4 * WIDTH);
    if constexpr (RIGHT) TILE_STORE_(1, s + 16, 4 * WIDTH);
    if constexpr (BELOW) TILE_STORE_(2, s + 16 * WIDTH, 4 * WIDTH);
    if constexpr (BELOW && RIGHT) TILE_STORE_(3, s + 16 * WIDTH + 16, 4 * WIDTH);
}
#else
struct Tiles {};
#endif

// By vectors of sixteen columns, the pair of a row in all lanes: what processors have that have no tiles.
typedef V<float, 16> Sums_;
typedef V<int, 16> Pairs_;
INLINE Sums_ add_pairs(Sums_ sum, int pair, Pairs_ b) {
    Pairs_ a = splat<Pairs_>(pair);
#ifdef __AVX512BF16__
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    constexpr int high = (int)0xffff0000;
    return fma_((Sums_)(a & high), (Sums_)(b & high), fma_((Sums_)(a << 16), (Sums_)(b << 16), sum));
#endif
}
template <int TERMS> INLINE int pair_at(const bf16* a, int k) {  // the last of an odd number has no other one
    if (k + 1 == TERMS) return a[k].bits;
    int pair;
    __builtin_memcpy(&pair, a + k, 4);
    return pair;
}
template <int WIDTH, int TERMS, bool FOUR>  // rows, or one
INLINE void multiply_rows(float* s, const bf16* a, i64_ step, const bf16* b, const bf16* right) {
    Sums_ s0 = {}, s1 = {}, s2 = {}, s3 = {}, t0 = {}, t1 = {}, t2 = {}, t3 = {};
    const bf16 *a1 = a + step, *a2 = a1 + step, *a3 = a2 + step;
    for (int k = 0; k < TERMS; k += 2) {
        Pairs_ first = raw<int, 16>((const int*)(b + 16 * k), Full{});
        Pairs_ second = raw<int, 16>((const int*)(right + 16 * k), Full{});
        int p0 = pair_at<TERMS>(a, k);
        s0 = add_pairs(s0, p0, first), t0 = add_pairs(t0, p0, second);
        if constexpr (FOUR) {
            int p1 = pair_at<TERMS>(a1, k), p2 = pair_at<TERMS>(a2, k), p3 = pair_at<TERMS>(a3, k);
            s1 = add_pairs(s1, p1, first), t1 = add_pairs(t1, p1, second);
            s2 = add_pairs(s2, p2, first), t2 = add_pairs(t2, p2, second);
            s3 = add_pairs(s3, p3, first), t3 = add_pairs(t3, p3, second);
        }
    }
    raw_store(s, s0, Full{}), raw_store(s + 16, t0, Full{});
    if constexpr (FOUR) {
        raw_store(s + WIDTH, s1, Full{}), raw_store(s + WIDTH + 16, t1, Full{});
        raw_store(s + 2 * WIDTH, s2, Full{}), raw_store(s + 2 * WIDTH + 16, t2, Full{});
        raw_store(s + 3 * WIDTH, s3, Full{}), raw_store(s + 3 * WIDTH + 16, t3, Full{});
    }
}

template <int WIDTH, int TERMS, int AHEAD>
static __attribute__((unused, noinline)) void multiply(Tiles& tiles, float* s, const bf16* a, i64_ step, const bf16* b,
                                                       i64_ rows, i64_ columns, i64_ part) {
#ifdef TILE_MULTIPLY_
    if (__builtin_expect(tiles.allowed, 1)) {
        const bool below = rows > 16, right = columns > 16;
        tiles.take(below ? 16 : rows, below ? rows - 16 : 16, pairs_step<TERMS>());
        if (below && right) multiply_by_tiles<WIDTH, TERMS, AHEAD, true, true>(s, a, step, b, rows, part);
        else if (below) multiply_by_tiles<WIDTH, TERMS, AHEAD, true, false>(s, a, step, b, rows, part);
        else if (right) multiply_by_tiles<WIDTH, TERMS, AHEAD, false, true>(s, a, step, b, rows, part);
        else multiply_by_tiles<WIDTH, TERMS, AHEAD, false, false>(s, a, step, b, rows, part);
        return;
    }
#endif
    const bf16* right = columns > 16 ? b + pairs_block<TERMS> : b;  // of fewer the same again, which nobody reads
    i64_ i = 0;
    for (; i + 4 <= rows; i += 4) multiply_rows<WIDTH, TERMS, true>(s + WIDTH * i, a + step * i, step, b, right);
    for (; i < rows; ++i) multiply_rows<WIDTH, TERMS, false>(s + WIDTH * i, a + step * i, step, b, right);
}
