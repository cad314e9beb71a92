/* A kernel has up to eight binaries, each built by Python when it is first needed: for addresses that are all multiples of
 * 16 or not, for positions that 32 bits hold or not, and for sizes that are all multiples of 16 or not, where that
 * matters. Which one a launch takes follows from its addresses and sizes,
 * as does the grid. Binaries belong to the context in which they were loaded; where another one is current it is put
 * back. The driver's functions come as addresses, so that this file needs no headers of it.
 */
#include "device.h"

#include "extent.h"

#include <string.h>

#define UNBUILT (-1)
#define OVERFLOWED (-2)
/* What stands before the address, and before the number of bytes, of parameters that are packed. */
#define PACKED_ADDRESS ((void *)1)
#define PACKED_BYTES ((void *)2)
enum { ANYWHERE = 1, WIDE = 2, ROUND = 4, VARIANTS = 8 };
enum { HIDDEN = 2 }; /* parameters that the compiler adds: memory for scratch and for profiles, of which there is none */

/* Blocks along each of the three dimensions of a grid. */
static const int64_t MOST_BLOCKS[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};

/* What the driver is told of a launch, as it lays it out. Given so, a launch takes the driver less
 * time than with a parameter for each part of it. */
typedef struct {
    unsigned blocks[3], threads[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Configuration;

/* One of the attributes, as the driver lays it out. */
typedef struct {
    int32_t kind, unused, value[16];
} Attribute;
enum { OVERLAPS = 6 }; /* the stream's order is kept by the kernel: it waits for the one before it */

typedef int (*LaunchFunction)(const Configuration *configuration, void *function, void **parameters, void **extra);
typedef int (*GetContext)(void **context);
typedef int (*SetContext)(void *context);

typedef struct {
    void *function; /* NULL: not built */
    unsigned shared, threads;
} Binary;

struct DeviceCode {
    Memory *memory;
    PyObject *name, *build; /* build(anywhere, wide, round): (function, bytes of shared memory, threads, context) */
    PyObject *refused;      /* refused(name, status): raises what a launch has come to that the driver refused */
    Py_ssize_t count, size_count;
    bool *aligned;        /* which addresses are taken to be multiples of 16 */
    Py_ssize_t round_count;
    Py_ssize_t *rounds;   /* which sizes have binaries of their own for multiples of 16 */
    Extent grid[3];
    Py_ssize_t limit_count;
    Extent *counted;      /* what is counted to, … */
    int64_t *limits;      /* … and from where on 32 bits do not hold it */
    int32_t device, overlaps;
    LaunchFunction launch;
    GetContext get_context;
    SetContext set_context;
    StreamGetter stream;
    void *context;
    Binary binaries[VARIANTS];
};

/* Which binary. */
static int variant_of(const DeviceCode *code, void *const *pointers) {
    uintptr_t places = 0;
    int64_t value;
    for (Py_ssize_t i = 0; i < code->count; i++) places |= code->aligned[i] ? (uintptr_t)pointers[i] : 0;
    int variant = places % 16 ? ANYWHERE : 0;
    const int64_t *sizes = (const int64_t *)(pointers + code->count);
    int64_t rest = code->round_count == 0;
    for (Py_ssize_t i = 0; i < code->round_count; i++) rest |= sizes[code->rounds[i]] % 16;
    if (rest == 0) variant |= ROUND;
    for (Py_ssize_t i = 0; i < code->limit_count; i++) {
        if (!extent_value(&code->counted[i], sizes, &value) || value >= code->limits[i]) variant |= WIDE;
    }
    return variant;
}

/* The parameters as they lie in the kernel's memory, for which the driver needs to look up none of them; how many bytes. */
static size_t pack(const DeviceCode *code, int variant, void *const *pointers, char *parameters) {
    size_t end = (size_t)code->count * sizeof(void *), hidden = HIDDEN * sizeof(void *);
    memcpy(parameters, pointers, end);
    const int64_t *sizes = (const int64_t *)(pointers + code->count);
    for (Py_ssize_t i = 0; i < code->size_count; i++) {
        int32_t narrow = (int32_t)sizes[i];
        size_t width = variant & WIDE ? sizeof sizes[i] : sizeof narrow;
        memcpy(parameters + end, variant & WIDE ? (const void *)&sizes[i] : &narrow, width);
        end += width;
    }
    end = (end + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
    memset(parameters + end, 0, hidden);
    return end + hidden;
}

int device_call(const DeviceCall *call, const unsigned *grid, void *parameters, size_t nbytes) {
    void *packed[] = {PACKED_ADDRESS, parameters, PACKED_BYTES, &nbytes, NULL};
    void *stream = NULL, *before = NULL, *context = (void *)(uintptr_t)call->context;
    SetContext set_context = (SetContext)(uintptr_t)call->set_context;
    int status = ((StreamGetter)(uintptr_t)call->stream)(call->device, &stream);
    if (status == 0) status = ((GetContext)(uintptr_t)call->get_context)(&before);
    if (status == 0 && before != context) status = set_context(context);
    if (status != 0) return status;
    Attribute overlaps = {.kind = OVERLAPS, .value = {1}};
    const Configuration configuration = {.blocks = {grid[0], grid[1], grid[2]},
                                         .threads = {call->threads, 1, 1},
                                         .shared = call->shared,
                                         .stream = stream,
                                         .attributes = call->overlaps ? &overlaps : NULL,
                                         .attribute_count = call->overlaps != 0};
    status = ((LaunchFunction)(uintptr_t)call->launch)(&configuration, (void *)(uintptr_t)call->function, NULL, packed);
    if (!stays_in(before, context, call->device)) set_context(before);
    return status;
}

int device_launch(DeviceCode *code, void *const *pointers) {
    int variant = variant_of(code, pointers);
    const Binary *binary = &code->binaries[variant];
    void *function = __atomic_load_n(&binary->function, __ATOMIC_ACQUIRE); /* another thread may be building it */
    if (function == NULL) return UNBUILT;
    int64_t grid[3];
    const int64_t *sizes = (const int64_t *)(pointers + code->count);
    for (int i = 0; i < 3; i++) {
        if (!extent_value(&code->grid[i], sizes, &grid[i]) || grid[i] > MOST_BLOCKS[i]) return OVERFLOWED;
    }
    if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return 0;
    int64_t parameters[code->count + code->size_count + HIDDEN];
    size_t nbytes = pack(code, variant, pointers, (char *)parameters);
    const unsigned blocks[] = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
    const DeviceCall call = {.launch = (uintptr_t)code->launch, .get_context = (uintptr_t)code->get_context,
                             .set_context = (uintptr_t)code->set_context, .stream = (uintptr_t)code->stream,
                             .function = (uintptr_t)function, .context = (uintptr_t)code->context,
                             .device = code->device, .threads = binary->threads, .shared = binary->shared,
                             .overlaps = code->overlaps};
    return device_call(&call, blocks, parameters, nbytes);
}

static int build(DeviceCode *code, int variant) {
    unsigned long long function, context;
    unsigned shared, threads;
    PyObject *made = PyObject_CallFunction(code->build, "OOO", variant & ANYWHERE ? Py_True : Py_False,
                                           variant & WIDE ? Py_True : Py_False, variant & ROUND ? Py_True : Py_False);
    if (made == NULL) return -1;
    int read = PyArg_ParseTuple(made, "KIIK:build", &function, &shared, &threads, &context);
    Py_DECREF(made);
    if (!read) return -1;
    if (function == 0) {
        PyErr_SetString(PyExc_SystemError, "a kernel was built without a function");
        return -1;
    }
    code->context = (void *)(uintptr_t)context;
    code->binaries[variant].shared = shared;
    code->binaries[variant].threads = threads;
    __atomic_store_n(&code->binaries[variant].function, (void *)(uintptr_t)function, __ATOMIC_RELEASE);
    return 0;
}

int device_settle(DeviceCode *code, void *const *pointers, int status) {
    if (status == UNBUILT) {
        if (build(code, variant_of(code, pointers)) < 0) return -1;
        status = device_launch(code, pointers);
        if (status == 0) return 0;
    }
    if (status == OVERFLOWED) {
        PyErr_Format(PyExc_OverflowError, "%U would run on more points than a device has numbers for", code->name);
    } else {
        PyObject *told = PyObject_CallFunction(code->refused, "Oi", code->name, status);
        if (told != NULL) PyErr_Format(PyExc_SystemError, "a launch of %U gave %d, which raised nothing", code->name, status);
        Py_XDECREF(told);
    }
    return -1;
}

/* -- for Python --------------------------------------------------------------------------------------- */

static void code_free(PyObject *capsule) {
    DeviceCode *code = PyCapsule_GetPointer(capsule, "stator.device_code");
    Py_XDECREF(code->name);
    Py_XDECREF(code->build);
    Py_XDECREF(code->refused);
    memory_free(code->memory);
    PyMem_Free(code);
}

static int read_limits(DeviceCode *code, PyObject *limits) {
    code->limit_count = PyTuple_GET_SIZE(limits);
    code->counted = memory_take(&code->memory, code->limit_count, sizeof(Extent));
    code->limits = memory_take(&code->memory, code->limit_count, sizeof(int64_t));
    if (code->counted == NULL || code->limits == NULL) return -1;
    for (Py_ssize_t i = 0; i < code->limit_count; i++) {
        PyObject *counted;
        long long limit;
        PyObject *pair = PyTuple_GET_ITEM(limits, i);
        if (!PyTuple_Check(pair)) return PyErr_SetString(PyExc_TypeError, "a limit is (what is counted, limit)"), -1;
        if (!PyArg_ParseTuple(pair, "OL:limit", &counted, &limit)) return -1;
        if (extent_read(&code->memory, counted, code->size_count, &code->counted[i]) < 0) return -1;
        code->limits[i] = limit;
    }
    return 0;
}

static int read_rounds(DeviceCode *code, PyObject *rounds) {
    code->round_count = PyTuple_GET_SIZE(rounds);
    code->rounds = memory_take(&code->memory, code->round_count, sizeof(Py_ssize_t));
    if (code->rounds == NULL) return -1;
    for (Py_ssize_t i = 0; i < code->round_count; i++) {
        Py_ssize_t number = PyNumber_AsSsize_t(PyTuple_GET_ITEM(rounds, i), PyExc_OverflowError);
        if (number == -1 && PyErr_Occurred()) return -1;
        if (number < 0 || number >= code->size_count) {
            PyErr_Format(PyExc_ValueError, "there is no size %zd", number);
            return -1;
        }
        code->rounds[i] = number;
    }
    return 0;
}

/* Blocks along one dimension, or a list of them along up to three. */
static int read_grid(DeviceCode *code, PyObject *grid) {
    Py_ssize_t count = PyList_CheckExact(grid) ? PyList_GET_SIZE(grid) : 1;
    if (count < 1 || count > 3) return wrong("a grid");
    for (Py_ssize_t i = 0; i < 3; i++) code->grid[i].constant = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *blocks = PyList_CheckExact(grid) ? PyList_GET_ITEM(grid, i) : grid;
        if (extent_read(&code->memory, blocks, code->size_count, &code->grid[i]) < 0) return -1;
    }
    return 0;
}

static int read_code(DeviceCode *code, PyObject *args, PyObject *keywords) {
    static char *names[] = {"name", "aligned", "sizes", "grid", "limits", "rounds", "overlaps", "device", "driver",
                            "build", "refused", NULL};
    PyObject *name, *aligned, *grid, *limits, *rounds, *make, *refused;
    unsigned long long launch, get, set, stream;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO!nOO!O!pi(KKKK)OO:device_kernel", names, &name, &PyTuple_Type,
                                     &aligned, &code->size_count, &grid, &PyTuple_Type, &limits, &PyTuple_Type, &rounds,
                                     &code->overlaps, &code->device, &launch, &get, &set, &stream, &make, &refused)) {
        return -1;
    }
    code->name = Py_NewRef(name);
    code->build = Py_NewRef(make);
    code->refused = Py_NewRef(refused);
    code->launch = (LaunchFunction)(uintptr_t)launch;
    code->get_context = (GetContext)(uintptr_t)get;
    code->set_context = (SetContext)(uintptr_t)set;
    code->stream = (StreamGetter)(uintptr_t)stream;
    code->count = PyTuple_GET_SIZE(aligned);
    code->aligned = memory_take(&code->memory, code->count, sizeof(bool));
    if (code->aligned == NULL) return -1;
    for (Py_ssize_t i = 0; i < code->count; i++) code->aligned[i] = PyTuple_GET_ITEM(aligned, i) == Py_True;
    if (read_grid(code, grid) < 0 || read_rounds(code, rounds) < 0) return -1;
    return read_limits(code, limits);
}

PyObject *native_device_kernel(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    DeviceCode *code = PyMem_Calloc(1, sizeof(DeviceCode));
    if (code == NULL) return PyErr_NoMemory();
    PyObject *owner = PyCapsule_New(code, "stator.device_code", code_free);
    if (owner == NULL) {
        PyMem_Free(code);
        return NULL;
    }
    PyObject *kernel = read_code(code, args, keywords) == 0 ? kernel_of_code(owner, code, code->name) : NULL;
    Py_DECREF(owner);
    return kernel;
}
