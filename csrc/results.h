/* Memory of large results that the program has let go of, for the results that come next. */
#ifndef STATOR_RESULTS_H
#define STATOR_RESULTS_H

#include "shim.h"

/* The geometry of a tensor: sizes, then strides, and torch's number of its dtype. */
typedef struct {
    Py_ssize_t dimensions;
    const int64_t *extents;
    int dtype;
} Geometry;

/* Learns where torch counts who holds memory, once; where that is not as it is known, nothing is kept. 0, or -1 with an
 * exception. The rest below needs no GIL. */
int results_prepare(void);
/* A tensor in the memory of an earlier result, which is owned; NULL where there is none. */
TensorHandle results_take(const Shim *shim, const Geometry *geometry);
/* Remembers the memory of a new one, if there is room. */
void results_remember(const Shim *shim, TensorHandle made, const Geometry *geometry);
/* Lets go of what lies idle for long; called now and then. */
void results_tidy(void);
/* Lets go of everything that lies idle. */
void results_release(void);

#endif
