/* Numbers that are known, or computed from the sizes of a call: postfix programs, read from Python's tuples. */
#ifndef STATOR_EXTENT_H
#define STATOR_EXTENT_H

#include "arithmetic.h"

typedef struct {
    OperationKind kind;
    int64_t number;
} Operation;

/* A number, or a postfix program over the numbers of a call. */
typedef struct {
    int64_t constant;
    Py_ssize_t count, depth; /* no operations: constant */
    Operation *operations;
} Extent;

/* Pieces of memory that are let go together. */
typedef struct Memory {
    struct Memory *next;
} Memory;

/* Zeroed memory of its own; NULL with an exception. */
void *memory_take(Memory **memory, Py_ssize_t count, size_t size);
void memory_free(Memory *memory);

/* Raises, unless something has been raised already, that a part of a plan is not as it should be; -1. */
int wrong(const char *what);
/* Reads a number, or a program over so many numbers; 0 or -1 with an exception. */
int extent_read(Memory **memory, PyObject *spec, Py_ssize_t number_count, Extent *extent);
/* Its value; false where 64 bits do not hold one, without an exception. */
bool extent_value(const Extent *extent, const int64_t *numbers, int64_t *value);

#endif
