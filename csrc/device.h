/* Kernels that a device runs: launched on the current stream of torch by the device's driver, without Python. */
#ifndef STATOR_DEVICE_H
#define STATOR_DEVICE_H

#include "native.h"

/* A kernel's code for one device. */
typedef struct DeviceCode DeviceCode;

/* Launches it on addresses and, after them, sizes. 0, or why not: for `device_settle`. Needs no GIL. */
int device_launch(DeviceCode *code, void *const *pointers);
/* With the GIL: builds what was not built yet and launches that, or raises; 0 or -1 with an exception. */
int device_settle(DeviceCode *code, void *const *pointers, int status);

/* torch's current stream of a device: gives 0. */
typedef int32_t (*StreamGetter)(int32_t device, void **stream);

/* Whether a thread that was in the context `before` stays in that of a device. One that was in none does on the first
 * device, which is what the runtime takes for its own: as after a launch of eager's, libraries find a context there. */
static inline bool stays_in(const void *before, const void *context, int32_t device) {
    return before == context || (before == NULL && device == 0);
}

/* A launch of a function: the driver's and torch's functions by address, and where it is loaded. */
typedef struct {
    uint64_t launch, get_context, set_context, stream, function, context;
    int32_t device;
    unsigned threads, shared;
    int32_t overlaps; /* whether it may be begun while the kernel before it ends, for which it waits itself */
} DeviceCall;

/* Launches it on torch's current stream, with parameters as they lie in memory; 0, or the driver's status. */
int device_call(const DeviceCall *call, const unsigned *grid, void *parameters, size_t nbytes);

extern PyTypeObject TileLauncher_Type;
extern PyTypeObject TileLaunch_Type;

PyObject *native_device_kernel(PyObject *module, PyObject *args, PyObject *keywords);

#endif
