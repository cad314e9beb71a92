/* The first write to a fresh page costs a fault, in which the system clears it. Large results ask for huge pages, which
 * are mostly cleared in a third of the time that the faults of small ones take. Not always: where free memory lies in
 * pieces the system moves pages first, and a guest that has told its host which memory it does not use is given that back
 * page by page (2.7 ms a huge page were seen, 0.8 for its 512 small ones, which such a guest takes from what it has).
 * So memory is asked for stretch by stretch, and the first huge page of each is written to here, which would have to be
 * done anyway, and timed: after a slow one nothing is asked for in a while. A refusal changes nothing.
 */
#define _GNU_SOURCE /* madvise */
#include "pages.h"

#include "native.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE ((uintptr_t)2 << 20)
#define STRETCH (8 * HUGE_PAGE)
/* Bytes from which on memory is asked for in huge pages; less is mostly memory that allocators keep. */
#define LEAST_HUGE ((int64_t)4 << 20)
/* More than so many nanoseconds of this thread for a huge page is slow: small ones take less. */
#define SLOW 1000000
/* Nanoseconds in which nothing is asked for after that. */
#define WHILE 1000000000

static int64_t resting_until; /* by the monotonic clock */

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool is_slow(char *page) {
    int64_t start = nanoseconds(CLOCK_THREAD_CPUTIME_ID); /* what other threads do meanwhile is not counted */
    *(volatile char *)page = 0;
    return nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start > SLOW;
}

static bool ask(uintptr_t start, uintptr_t end) {
    return start == end || madvise((void *)start, end - start, MADV_HUGEPAGE) == 0;
}

void pages_ask(void *fresh, int64_t bytes) {
    uintptr_t start = ((uintptr_t)fresh + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)fresh + (uintptr_t)bytes) / HUGE_PAGE * HUGE_PAGE;
    if (bytes < LEAST_HUGE || start >= end) return;
    if (nanoseconds(CLOCK_MONOTONIC) < __atomic_load_n(&resting_until, __ATOMIC_RELAXED)) return;
    for (uintptr_t part = start; part < end; part += STRETCH) {
        if (!ask(part, part + HUGE_PAGE)) return;
        if (is_slow((char *)part)) {
            __atomic_store_n(&resting_until, nanoseconds(CLOCK_MONOTONIC) + WHILE, __ATOMIC_RELAXED);
            return;
        }
        if (!ask(part + HUGE_PAGE, end - part < STRETCH ? end : part + STRETCH)) return;
    }
}

PyObject *native_ask_for_huge_pages(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "ask_for_huge_pages(address, bytes)");
        return NULL;
    }
    void *fresh = PyLong_AsVoidPtr(args[0]);
    int64_t bytes = PyErr_Occurred() ? -1 : PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    pages_ask(fresh, bytes);
    Py_RETURN_NONE;
}
