/* Products of float32 by weights in the order of MKL (`mkl._mkl_linear`), into memory that is there. */
#ifndef STATOR_PACKED_H
#define STATOR_PACKED_H

#include "shim.h"

/* Whether MKL is found where torch has it. */
bool packed_known(void);
/* out = x w^T for a packed w and as many rows as it was packed for; false, and nothing done, where any of them lies
 * otherwise than MKL is told here. */
bool packed_multiply(const Shim *shim, TensorHandle out, TensorHandle x, TensorHandle packed, int64_t rows);

#endif
