/* Memory of intermediates: blocks that a call takes for itself and gives back, and where in them its pieces lie. */
#ifndef STATOR_SCRATCH_H
#define STATOR_SCRATCH_H

#include "device.h"

#include <stddef.h>

/* A block that nobody else has: bytes of a tensor. */
typedef struct {
    PyObject *tensor; /* NULL: none */
    char *data;
    int64_t nbytes;
    uint64_t serial; /* tells it from every other, also from those that are no more */
    int32_t device;  /* whose memory it is, and the stream on which its calls are queued */
    void *stream;
} Block;

/* Where pieces lie for some values of the symbols, and the tensors that they were last seen as. */
typedef struct {
    int64_t *sizes;
    int64_t nbytes;
    ptrdiff_t *starts;
    PyObject *pieces; /* what `views` is told */
    PyObject *views;  /* a tuple, into the block of this serial; or NULL */
    uint64_t serial;
} Layout;

/* The layouts of one graph for the last combinations of sizes. */
typedef struct Layouts {
    struct Layouts *next, **link; /* the list of all that have views; `link` is what points here, NULL outside */
    uint64_t last;                /* the block that was taken last */
    Py_ssize_t piece_count, size_count, *numbers; /* which numbers are the sizes */
    Py_ssize_t count;
    Layout *items;
    PyObject *place;    /* place(*sizes): (nbytes, starts, pieces); owned like all objects here */
    PyObject *views;    /* views(block, pieces): a tuple of tensors; or NULL where only addresses are asked for */
    PyObject *allocate; /* allocate(nbytes): a tensor */
    int32_t device;
    StreamGetter stream; /* NULL: what is called is done when the call returns */
} Layouts;

/* What a call has of it. */
typedef struct {
    Block block;
    ptrdiff_t *starts; /* room for piece_count is the caller's */
    PyObject *views;   /* owned, or NULL */
} Taken;

/* Takes a block with the pieces of a call with these numbers; 0 or -1 with an exception. */
int scratch_take(Layouts *layouts, const int64_t *numbers, Taken *taken);
void scratch_give(Taken *taken);
int scratch_traverse(Layouts *layouts, visitproc visit, void *arg);
void scratch_clear(Layouts *layouts);

#endif
