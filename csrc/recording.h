/* Calls that a device has recorded: the memory that they give out, and one recording of a call. */
#ifndef STATOR_RECORDING_H
#define STATOR_RECORDING_H

#include "device.h"
#include "extent.h"
#include "holders.h"

/* -- place.c ------------------------------------------------------------------------------------------ */

enum { PLACE_DTYPES = 4 };

/* Memory that recordings write and calls give out as tensors; nobody else has it while no such tensor is left.
 *
 * A place may lie in the memory of another one, its base. Then it has a storage of its own, which holds one tensor of the
 * base's; the base knows what lies over it, and is idle while all of that is. */
typedef struct Place {
    PyObject_HEAD
    const char *storage;
    char facts[HOLDERS_FACT_BYTES]; /* what the storage said of its memory at first */
    int64_t nbytes;
    Py_ssize_t claims; /* replays that are under way, whose results are not there yet */
    bool lies_over;    /* in the memory of another place, */
    struct Place *base; /* which this is, borrowed; NULL once that is gone */
    struct Place *over, *next; /* the first of those that lie over it; the next one over the same base */
    Py_ssize_t over_count;
    PyObject *users;   /* a list: other streams that tensors of it were used on since the last replay; or NULL */
    PyObject *weakrefs;
    Py_ssize_t count;
    struct {
        int dtype;
        TensorHandle handle; /* a tensor at the beginning of the storage, which it keeps */
    } keepers[PLACE_DTYPES]; /* one of each dtype that it is given out as */
} Place;

extern PyTypeObject Place_Type;
/* Whether no tensor of it is left but our own, nor of what lies over it, and it is where it was. */
bool place_idle(const Place *place);
/* Whether it would be idle without the tensors that a list has at these numbers, each given once, and nobody else has them:
 * then whoever takes the list may write it. */
bool place_only_in(const Place *place, PyObject *list, const int64_t *numbers, Py_ssize_t count);
/* A tensor of it, which is owned; NULL where torch makes none. */
TensorHandle place_view(const Place *place, int dtype, int64_t dimensions, const int64_t *extents, int64_t offset);

PyObject *native_storage_of(PyObject *module, PyObject *tensor);

/* -- recording.c -------------------------------------------------------------------------------------- */

/* A copy as the driver takes it, of memory of a device in one row of bytes; the other fields are zero. */
typedef struct {
    size_t from_x, from_y, from_z, from_level;
    unsigned from_type;
    const void *from_host;
    uint64_t from;
    void *from_array, *reserved;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_level;
    unsigned to_type;
    void *to_host;
    uint64_t to;
    void *to_array, *reserved_too;
    size_t to_pitch, to_height;
    size_t width, height, depth;
} DriverCopy;

/* Functions of the device's driver, by address, so that this needs no headers of it; each gives 0, or an error. */
typedef struct {
    int (*launch)(void *executable, void *stream);
    int (*set_copy)(void *executable, void *node, const DriverCopy *copy, void *context);
    int (*get_context)(void **context);
    int (*set_context)(void *context);
    int (*is_capturing)(void *stream, int *status);
    StreamGetter stream;
} Driver;

/* (launch, set_copy, get_context, set_context, is_capturing, stream); 0 or -1 with an exception. */
int driver_read(PyObject *addresses, Driver *driver);

extern PyTypeObject Recording_Type;
/* Whether a call with these inputs, on this stream, is one of the recording's. */
bool recording_fits(PyObject *recording, PyObject *inputs, const void *stream);
/* Whether nobody has what the last call gave. */
bool recording_idle(PyObject *recording);
/* Whether nobody but the list has those inputs in whose memory results lie. */
bool recording_alone(PyObject *recording, PyObject *inputs);
/* Replays a recording that fits and is idle, on its stream: what the call gives, and empties the list. None, with the list
 * as it was, where the driver refuses to copy an input from where it is. */
PyObject *recording_replay(PyObject *recording, PyObject *inputs);

/* -- recorded.c --------------------------------------------------------------------------------------- */

extern PyTypeObject Recorded_Type;

#endif
