/* torch's stable C interface, found by symbol: what makes, views, multiplies and wraps tensors without Python.
 *
 * A TensorHandle is the address of a C++ tensor; the one behind a Python object is not owned by who reads it. Each
 * function but `wrap` and `has_callbacks` gives 0, or another number where it raised: whoever called it asks Python
 * for the same, which raises what the user knows.
 */
#ifndef STATOR_SHIM_H
#define STATOR_SHIM_H

#include "native.h"

typedef void *TensorHandle;

typedef struct {
    int32_t (*make)(int64_t dimensions, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device,
                    int32_t index, TensorHandle *made);
    int32_t (*view)(TensorHandle tensor, int64_t dimensions, const int64_t *sizes, const int64_t *strides,
                    int64_t offset, TensorHandle *made);
    /* What autograd sees as a view, of as many sizes as the tensor has, from where that begins; or NULL. */
    int32_t (*as_strided)(TensorHandle tensor, const int64_t *sizes, const int64_t *strides, TensorHandle *made);
    int32_t (*dimensions)(TensorHandle tensor, int64_t *dimensions);
    int32_t (*sizes)(TensorHandle tensor, int64_t **sizes); /* the tensor's own; of strides likewise */
    int32_t (*strides)(TensorHandle tensor, int64_t **strides);
    int32_t (*address)(TensorHandle tensor, void **address);
    int32_t (*storage_bytes)(TensorHandle tensor, int64_t *bytes);
    int32_t (*share)(TensorHandle tensor, TensorHandle *again);
    int32_t (*release)(TensorHandle tensor);
    PyObject *(*wrap)(const TensorHandle tensor); /* a new reference */
    bool (*has_callbacks)(void);                  /* somebody records which operators run: a profiler */
    int32_t cpu;
} Shim;

/* The interface; NULL if torch lacks any part of it, or keeps tensors elsewhere than is known. */
const Shim *shim_get(void);
/* A function of torch's interface to a type of device by its name, or NULL. */
void *shim_function(const char *device, const char *name);
/* The number of a type of device, or -1. */
int32_t shim_device_type(const char *device);
/* The tensor behind an object of torch.Tensor, which lives as long as that. */
static inline TensorHandle shim_handle(PyObject *tensor) { return (char *)tensor + OBJECT_HEADER; }

#endif
