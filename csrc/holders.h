/* Who holds memory, read where torch counts it: in the storage, a word of counts and what it says of its memory. A tensor
 * has such a word in the same place. */
#ifndef STATOR_HOLDERS_H
#define STATOR_HOLDERS_H

#include "shim.h"

/* Of a storage: the word of counts, and from there on what it says of its memory: where it is, what gives it back, the
 * device, how many bytes it has and whether it may be resized. */
#define HOLDERS_COUNTS 8
#define HOLDERS_FACTS 16
#define HOLDERS_FACT_BYTES 48
#define HOLDERS_STRONG UINT64_C(0x7fffffff)

/* Learns whether torch counts as is known here, once; 0, or -1 with an exception. */
int holders_prepare(void);
/* Whether it does; without that nothing below may be asked. */
bool holders_known(void);
/* The word of counts of memory that so many tensors hold, and nothing else in C++, no weak reference and no object of
 * Python. */
uint64_t holders_word(uint64_t tensors);

/* The word of counts of a tensor that one object of Python has, and nothing in C++. */
uint64_t holders_word_of_tensor(void);

/* The word of counts of a storage, or of a tensor. */
static inline uint64_t holders_of(const char *storage) {
    return __atomic_load_n((const uint64_t *)(storage + HOLDERS_COUNTS), __ATOMIC_ACQUIRE);
}

/* Where the memory of a storage begins. */
static inline void *holders_memory(const char *storage) { return *(void *const *)(storage + HOLDERS_FACTS); }

#endif
