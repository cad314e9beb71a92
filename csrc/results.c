/* The first write to a fresh page costs a fault, in which the system clears it; for a tensor of 40 MiB that takes longer
 * than writing it does. So the memory of large results is remembered: a keeper, a tensor that nobody else sees, holds it
 * as well, and when the program has let go of it, it is the memory of the next result of as many elements and its dtype.
 * Of the first call of a graph nothing is remembered: it may be the only one, and memory is kept for calls to come.
 *
 * Who holds memory is read where torch counts it. A record is idle only while its word of counts is what it is for memory
 * of one tensor alone: nothing else in C++ holds it, no weak reference leads to it and Python has no object of it. And
 * what its storage says of the memory has to be as it was, so what was resized, given to other processes or is copied
 * when it is written to is forgotten. A result is a new tensor around the storage, by torch's own interface: to autograd
 * it is new, it is an inference tensor where one would be made, and its storage is torch's, like any other.
 *
 * A lock that is never waited for protects the records: who does not get it takes fresh memory. Keepers are let go of
 * outside of it, for that may run code.
 */
#include "results.h"

#include "holders.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MOST_RECORDS 64
/* `LARGE` of plan/build.py: smaller memory allocators keep. */
#define LEAST_BYTES ((int64_t)512 << 10)
/* What is remembered, in use or not: at most this part of the most memory that the process ever had, and so much. */
#define PART 4
#define MOST_BYTES ((int64_t)1 << 30)
/* Of results for which there is no room, which one in turn takes the place of others: where calls ask for more than there
 * is room for, over and over, the others leave what is kept in peace. */
#define PATIENCE 4
#define IDLE_SECONDS 10

typedef struct {
    TensorHandle keeper;
    const char *storage;
    char facts[HOLDERS_FACT_BYTES];
    int64_t elements, nbytes;
    int dtype;
    uint64_t turn; /* when it was handed out last */
    time_t seen;   /* when it was last known to be in use */
} Record;

static struct {
    pthread_mutex_t lock;
    bool prepared, usable;
    Record records[MOST_RECORDS];
    Py_ssize_t count;
    int64_t nbytes;
    uint64_t turn;
    unsigned refused;
    time_t tidied;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Keepers that are to be released once the lock is let go of. */
typedef struct {
    TensorHandle keepers[MOST_RECORDS];
    Py_ssize_t count;
} Dropped;

static bool enter(void) { return pool.usable && pthread_mutex_trylock(&pool.lock) == 0; }

static void leave(const Dropped *dropped) {
    pthread_mutex_unlock(&pool.lock);
    for (Py_ssize_t i = 0; i < dropped->count; i++) shim_get()->release(dropped->keepers[i]);
}

static time_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec;
}

/* -- records ------------------------------------------------------------------------------------------ */

static bool is_as_made(const Record *record) {
    return memcmp(record->storage + HOLDERS_FACTS, record->facts, HOLDERS_FACT_BYTES) == 0;
}

static bool is_idle(const Record *record) {
    return holders_of(record->storage) == holders_word(1) && is_as_made(record);
}

/* Whether it never will be idle again as it was: its memory is another one, or more than tensors hold it. */
static bool is_spoiled(const Record *record) {
    return ((holders_of(record->storage) ^ holders_word(1)) & ~HOLDERS_STRONG) != 0 || !is_as_made(record);
}

static void drop(Py_ssize_t at, Dropped *dropped) {
    dropped->keepers[dropped->count++] = pool.records[at].keeper;
    pool.nbytes -= pool.records[at].nbytes;
    pool.records[at] = pool.records[--pool.count];
}

/* How many bytes may be remembered. */
static int64_t most_bytes(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    int64_t most = (int64_t)usage.ru_maxrss * 1024 / PART;
    return most < MOST_BYTES ? most : MOST_BYTES;
}

/* Forgets those that were not needed for the longest, until there is room for so many bytes. */
static void make_room(int64_t nbytes, int64_t most, Dropped *dropped) {
    while (pool.count > 0 && (pool.nbytes + nbytes > most || pool.count == MOST_RECORDS)) {
        Py_ssize_t oldest = 0;
        for (Py_ssize_t i = 1; i < pool.count; i++) {
            if (pool.records[i].turn < pool.records[oldest].turn) oldest = i;
        }
        drop(oldest, dropped);
    }
}

/* How many elements of memory a geometry needs. */
static int64_t span(const Geometry *geometry) {
    int64_t last = 0;
    for (Py_ssize_t i = 0; i < geometry->dimensions; i++) {
        if (geometry->extents[i] == 0) return 0;
        last += (geometry->extents[i] - 1) * geometry->extents[geometry->dimensions + i];
    }
    return last + 1;
}

/* -- what calls of graphs do -------------------------------------------------------------------------- */

TensorHandle results_take(const Shim *shim, const Geometry *geometry) {
    if (pool.count == 0 || !enter()) return NULL;
    Dropped dropped = {.count = 0};
    TensorHandle made = NULL;
    int64_t elements = span(geometry);
    for (Py_ssize_t i = 0; made == NULL && i < pool.count; i++) {
        Record *record = &pool.records[i];
        if (record->elements != elements || record->dtype != geometry->dtype || !is_idle(record)) continue;
        const int64_t *extents = geometry->extents;
        if (shim->view(record->keeper, geometry->dimensions, extents, extents + geometry->dimensions, 0, &made) != 0) {
            made = NULL;
            break;
        }
        record->turn = ++pool.turn;
        record->seen = now();
    }
    leave(&dropped);
    return made;
}

void results_remember(const Shim *shim, TensorHandle made, const Geometry *geometry) {
    int64_t nbytes, elements = span(geometry), stride = 1;
    if (!pool.usable || shim->storage_bytes(made, &nbytes) != 0 || nbytes < LEAST_BYTES) return;
    int64_t most = most_bytes();
    TensorHandle keeper;
    if (nbytes > most || shim->view(made, 1, &elements, &stride, 0, &keeper) != 0) return;
    Dropped dropped = {.count = 0};
    if (!enter()) {
        shim->release(keeper);
        return;
    }
    for (Py_ssize_t i = pool.count - 1; i >= 0; i--) {
        if (is_spoiled(&pool.records[i])) drop(i, &dropped);
    }
    bool full = pool.nbytes + nbytes > most || pool.count == MOST_RECORDS;
    if (full && ++pool.refused % PATIENCE == 0) {
        make_room(nbytes, most, &dropped);
        full = false;
    }
    if (!full) {
        Record *record = &pool.records[pool.count++];
        const char *storage = (const char *)tensor_storage_behind(made);
        *record = (Record){.keeper = keeper, .storage = storage, .elements = elements, .nbytes = nbytes,
                           .dtype = geometry->dtype, .turn = ++pool.turn, .seen = now()};
        memcpy(record->facts, storage + HOLDERS_FACTS, HOLDERS_FACT_BYTES);
        pool.nbytes += nbytes;
    }
    leave(&dropped);
    if (full) shim->release(keeper);
}

/* Lets go of what was idle for more than so many seconds. */
static void forget_idle(time_t seconds, time_t time) {
    Dropped dropped = {.count = 0};
    for (Py_ssize_t i = pool.count - 1; i >= 0; i--) {
        Record *record = &pool.records[i];
        if (!is_idle(record)) record->seen = time;
        if (time - record->seen > seconds || is_spoiled(record)) drop(i, &dropped);
    }
    leave(&dropped);
}

void results_tidy(void) {
    if (pool.count == 0) return;
    time_t time = now();
    if (time == pool.tidied || !enter()) return;
    pool.tidied = time;
    forget_idle(IDLE_SECONDS, time);
}

void results_release(void) {
    if (enter()) forget_idle(-1, now());
}

/* -- readiness ------------------------------------------------------------------------------------------ */

static void forked_before(void) { pthread_mutex_lock(&pool.lock); }
static void forked_after(void) { pthread_mutex_unlock(&pool.lock); }

int results_prepare(void) {
    if (pool.prepared || !tensor_raw() || shim_get() == NULL) return 0;
    pool.prepared = true;
    if (holders_prepare() < 0) return -1;
    if (holders_known()) pool.usable = pthread_atfork(forked_before, forked_after, forked_after) == 0;
    return 0;
}

/* -- for Python --------------------------------------------------------------------------------------- */

PyObject *native_results_bytes(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    int64_t sum = 0;
    if (enter()) {
        for (Py_ssize_t i = 0; i < pool.count; i++) sum += is_idle(&pool.records[i]) ? pool.records[i].nbytes : 0;
        pthread_mutex_unlock(&pool.lock);
    }
    return PyLong_FromLongLong(sum);
}

PyObject *native_results_release(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    results_release();
    Py_RETURN_NONE;
}
