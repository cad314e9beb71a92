/* Tensor metadata without torch's headers.
 *
 * The fields of a tensor are read at offsets that are found once, by searching the memory of known
 * tensors for their known values, and then verified on tensors of other shapes, types and gradient
 * states. If anything does not fit, the same facts are read through Python attributes: slower, never
 * different. Data pointers always come from torch's stable C shim (or `data_ptr()`).
 */
#include "guards.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define IMPL_BYTES 192     /* no field of interest lies beyond */
#define INLINE_DIMENSIONS 5
#define RECORD_HEADER 40   /* of the autograd record: its virtual table and a string, the tensor's name */
#define AUTOGRAD_BYTES 152
#define MAX_DTYPES 64

typedef int32_t (*DataPointer)(void *handle, void **result);

static struct {
    bool prepared;
    bool raw;                 /* the offsets below are verified */
    PyTypeObject *tensor_type;
    PyObject *dispatch_keys;  /* torch._C._dispatch_keys */
    PyObject *empty;
    int dtype_count;
    struct {
        PyObject *dtype;
        int number;
    } dtypes[MAX_DTYPES]; /* those met so far */
    Py_ssize_t storage, autograd, shape, offset, dtype, device, keys;
    Py_ssize_t requires_grad, grad_fn; /* inside the autograd record */
    DataPointer data_pointer;
} state;

static inline char *impl_of(PyObject *tensor) { return *(char **)((char *)tensor + OBJECT_HEADER); }

#define READ(type, address) (*(const type *)(address))

static inline bool raw_requires_grad(const char *impl) {
    const char *autograd = READ(char *, impl + state.autograd);
    return autograd != NULL &&
           (READ(uint8_t, autograd + state.requires_grad) != 0 || READ(void *, autograd + state.grad_fn) != NULL);
}

static inline void raw_view(const char *impl, TensorView *view) {
    const int64_t *shape = (const int64_t *)(impl + state.shape);
    view->dimensions = shape[0];
    if (view->dimensions <= INLINE_DIMENSIONS) {
        view->sizes = shape + 1;
        view->strides = shape + 1 + INLINE_DIMENSIONS;
    } else {
        view->sizes = (const int64_t *)shape[1];
        view->strides = view->sizes + view->dimensions;
    }
    view->dtype = READ(uint16_t, impl + state.dtype);
    view->device = READ(int8_t, impl + state.device) * 256 + READ(uint8_t, impl + state.device + 1);
    view->keys = READ(uint64_t, impl + state.keys);
    view->requires_grad = raw_requires_grad(impl);
}

/* -- the same through Python attributes ------------------------------------------------------------ */

static int read_integers(PyObject *sequence, int64_t *out, Py_ssize_t *count) {
    PyObject *items = PySequence_Tuple(sequence);
    if (items == NULL) return -1;
    *count = PyTuple_GET_SIZE(items);
    if (*count > MAX_DIMENSIONS) {
        Py_DECREF(items);
        PyErr_SetString(PyExc_ValueError, "more dimensions than torch allows");
        return -1;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(items, i));
    }
    Py_DECREF(items);
    return PyErr_Occurred() ? -1 : 0;
}

static int python_sizes(PyObject *tensor, const char *method, int64_t *out, Py_ssize_t *count) {
    PyObject *sequence = PyObject_CallMethod(tensor, method, NULL);
    if (sequence == NULL) return -1;
    int status = read_integers(sequence, out, count);
    Py_DECREF(sequence);
    return status;
}

static int python_device(PyObject *tensor, int *code) {
    PyObject *device = PyObject_GetAttrString(tensor, "device");
    PyObject *kind = device ? PyObject_GetAttrString(device, "type") : NULL;
    PyObject *index = kind ? PyObject_GetAttrString(device, "index") : NULL;
    if (index != NULL) {
        /* A number that is stable in this process: the letters of the device type, folded. */
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(kind, &length);
        unsigned folded = 0;
        for (Py_ssize_t i = 0; text != NULL && i < length; i++) folded = folded * 31u + (unsigned char)text[i];
        long number = index == Py_None ? -1 : PyLong_AsLong(index);
        *code = (int)(folded % 32749u) * 256 + (int)(number & 255);
    }
    Py_XDECREF(device);
    Py_XDECREF(kind);
    Py_XDECREF(index);
    return PyErr_Occurred() ? -1 : 0;
}

static int python_keys(PyObject *tensor, uint64_t *keys) {
    PyObject *set = PyObject_CallOneArg(state.dispatch_keys, tensor);
    PyObject *number = set ? PyObject_CallMethod(set, "raw_repr", NULL) : NULL;
    if (number != NULL) *keys = PyLong_AsUnsignedLongLongMask(number);
    Py_XDECREF(set);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int python_flag(PyObject *object, const char *name, bool *flag) {
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL) return -1;
    int truth = PyObject_IsTrue(value);
    Py_DECREF(value);
    *flag = truth > 0;
    return truth < 0 ? -1 : 0;
}

static int python_view(PyObject *tensor, TensorView *view) {
    Py_ssize_t count, strides;
    if (python_sizes(tensor, "size", view->room, &count) < 0) return -1;
    if (python_sizes(tensor, "stride", view->room + MAX_DIMENSIONS, &strides) < 0) return -1;
    view->dimensions = count;
    view->sizes = view->room;
    view->strides = view->room + MAX_DIMENSIONS;
    PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
    if (dtype == NULL) return -1;
    view->dtype = dtype_number(dtype);
    Py_DECREF(dtype);
    if (view->dtype < 0 || python_device(tensor, &view->device) < 0) return -1;
    if (python_keys(tensor, &view->keys) < 0) return -1;
    return python_flag(tensor, "requires_grad", &view->requires_grad);
}

/* -- calibration ----------------------------------------------------------------------------------- */

typedef struct {
    Py_ssize_t dimensions;
    int64_t sizes[6], strides[6], offset;
    const char *dtype;
    int number; /* torch's ScalarType */
    const char *device;
    bool requires_grad;
} Sample;

#define CPU_DEVICE 0xff     /* type 0, no index */
#define META_DEVICE (14 * 256 + 0xff)

static const Sample SAMPLES[] = {
    {2, {3, 5}, {5, 1}, 0, "float32", 6, "cpu", false},
    {3, {2, 3, 4}, {1, 2, 6}, 7, "int64", 4, "cpu", false},
    {1, {7}, {3}, 2, "bfloat16", 15, "cpu", true},
    {0, {0}, {0}, 11, "bool", 11, "cpu", false},
    {3, {4, 0, 9}, {9, 9, 1}, 0, "float32", 6, "cpu", true},
    {4, {2, 3, 4, 5}, {60, 1, 15, 3}, 0, "float16", 5, "meta", false},
    {5, {2, 2, 2, 2, 3}, {24, 12, 6, 3, 1}, 3, "float64", 7, "cpu", true},
    {6, {2, 1, 3, 1, 2, 2}, {12, 12, 4, 4, 2, 1}, 1, "float64", 7, "cpu", false},
};
#define SAMPLE_COUNT ((int)(sizeof(SAMPLES) / sizeof(SAMPLES[0])))

PyObject *tensor_integers(const int64_t *values, Py_ssize_t count) {
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(values[i]);
        if (item == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, i, item);
    }
    return result;
}

static PyObject *make_sample(PyObject *torch, const Sample *sample) {
    PyObject *result = NULL, *base = NULL;
    PyObject *dtype = PyObject_GetAttrString(torch, sample->dtype);
    PyObject *empty = PyObject_GetAttrString(torch, "empty");
    PyObject *arguments = Py_BuildValue("(i)", 256);
    PyObject *keywords = dtype ? Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", sample->device) : NULL;
    if (empty && arguments && keywords) base = PyObject_Call(empty, arguments, keywords);
    if (base != NULL) {
        PyObject *sizes = tensor_integers(sample->sizes, sample->dimensions);
        PyObject *strides = tensor_integers(sample->strides, sample->dimensions);
        if (sizes && strides) {
            PyObject *view = PyObject_CallMethod(base, "as_strided", "OOL", sizes, strides, (long long)sample->offset);
            if (view != NULL) result = PyObject_GetAttrString(view, "data"); /* without an autograd record */
            Py_XDECREF(view);
        }
        Py_XDECREF(sizes);
        Py_XDECREF(strides);
    }
    if (result != NULL && sample->requires_grad) {
        PyObject *done = PyObject_CallMethod(result, "requires_grad_", NULL);
        if (done == NULL) Py_CLEAR(result);
        Py_XDECREF(done);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(empty);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    Py_XDECREF(base);
    return result;
}

static bool shape_fits(const char *impl, const Sample *sample, Py_ssize_t at) {
    const int64_t *shape = (const int64_t *)(impl + at);
    size_t bytes = (size_t)sample->dimensions * sizeof(int64_t);
    if (shape[0] != sample->dimensions) return false;
    if (sample->dimensions <= INLINE_DIMENSIONS) {
        return memcmp(shape + 1, sample->sizes, bytes) == 0 &&
               memcmp(shape + 1 + INLINE_DIMENSIONS, sample->strides, bytes) == 0;
    }
    const int64_t *outside = (const int64_t *)shape[1];
    return memcmp(outside, sample->sizes, bytes) == 0 &&
           memcmp(outside + sample->dimensions, sample->strides, bytes) == 0;
}

/* A field's test on one sample. `fact` is what Python says about it. */
typedef bool (*Fits)(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at);

static bool dtype_fits(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at) {
    (void)fact;
    return READ(uint16_t, impl + at) == sample->number;
}

static bool device_fits(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at) {
    (void)fact;
    int expected = strcmp(sample->device, "meta") == 0 ? META_DEVICE : CPU_DEVICE;
    return READ(int8_t, impl + at) * 256 + READ(uint8_t, impl + at + 1) == expected;
}

static bool word_fits(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at) {
    (void)sample;
    return READ(uint64_t, impl + at) == fact;
}

static bool offset_fits(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at) {
    (void)fact;
    return READ(int64_t, impl + at) == sample->offset;
}

static bool autograd_fits(const char *impl, const Sample *sample, uint64_t fact, Py_ssize_t at) {
    (void)fact;
    return (READ(void *, impl + at) != NULL) == sample->requires_grad;
}

static bool search_shape(PyObject **tensors, Py_ssize_t *found) {
    for (Py_ssize_t at = 16; at + 88 <= IMPL_BYTES; at += 8) {
        int fits = 0;
        while (fits < SAMPLE_COUNT && shape_fits(impl_of(tensors[fits]), &SAMPLES[fits], at)) fits++;
        if (fits == SAMPLE_COUNT) {
            *found = at;
            return true;
        }
    }
    return false;
}

/* The only offset in [from, to) where the field fits all samples; several or none is a failure. */
static bool search(PyObject **tensors, const uint64_t *facts, Fits fits, Py_ssize_t from, Py_ssize_t to,
                   Py_ssize_t step, Py_ssize_t *found) {
    int matches = 0;
    for (Py_ssize_t at = from; at < to; at += step) {
        int i = 0;
        while (i < SAMPLE_COUNT && fits(impl_of(tensors[i]), &SAMPLES[i], facts ? facts[i] : 0, at)) i++;
        if (i == SAMPLE_COUNT) {
            matches++;
            *found = at;
        }
    }
    return matches == 1;
}

static int python_storage(PyObject *tensor, uint64_t *storage) {
    PyObject *object = PyObject_CallMethod(tensor, "untyped_storage", NULL);
    PyObject *address = object ? PyObject_GetAttrString(object, "_cdata") : NULL;
    if (address != NULL) *storage = PyLong_AsUnsignedLongLongMask(address);
    Py_XDECREF(object);
    Py_XDECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

static bool set_requires_grad(PyObject *leaf, PyObject *flag) {
    PyObject *done = PyObject_CallMethod(leaf, "requires_grad_", "O", flag);
    Py_XDECREF(done);
    return done != NULL;
}

/* Finds the flag inside the autograd record of a leaf: the one byte that follows `requires_grad_()`. What lies in
 * padding may look right once, but does not change. */
static bool search_flag(PyObject *leaf) {
    bool follows[AUTOGRAD_BYTES];
    int found = 0;
    memset(follows, true, sizeof(follows));
    for (int step = 0; step < 6; step++) {
        if (!set_requires_grad(leaf, step % 2 ? Py_False : Py_True)) return false;
        const char *record = READ(char *, impl_of(leaf) + state.autograd);
        if (record == NULL) return false;
        for (Py_ssize_t at = RECORD_HEADER; at < AUTOGRAD_BYTES; at++) {
            follows[at] = follows[at] && record[at] == (step % 2 ? 0 : 1);
        }
    }
    for (Py_ssize_t at = RECORD_HEADER; at < AUTOGRAD_BYTES; at++) {
        if (!follows[at]) continue;
        found++;
        state.requires_grad = at;
    }
    return found == 1;
}

/* Finds the pointer to the history: NULL in leaves only. It may be a shared pointer, then it is the first of two. */
static bool search_history(PyObject *const leaves[2], PyObject *const inner[2]) {
    for (Py_ssize_t at = RECORD_HEADER; at < state.requires_grad; at += 8) {
        bool fits = true;
        for (int i = 0; i < 2; i++) {
            const char *leaf = READ(char *, impl_of(leaves[i]) + state.autograd);
            const char *derived = READ(char *, impl_of(inner[i]) + state.autograd);
            fits = fits && leaf && derived && !READ(void *, leaf + at) && READ(void *, derived + at);
        }
        if (!fits) continue;
        state.grad_fn = at;
        return true;
    }
    return false;
}

static bool calibrate_autograd(PyObject *on) {
    bool found = false;
    PyObject *off = PyObject_CallMethod(on, "detach", NULL);
    PyObject *computed = PyObject_CallMethod(on, "neg", NULL);
    PyObject *view = PyObject_CallMethod(on, "unsqueeze", "i", 0);
    if (off && computed && view && search_flag(off)) { /* which leaves the flag of `off` cleared */
        PyObject *const leaves[2] = {on, off}, *const inner[2] = {computed, view};
        found = search_history(leaves, inner) && raw_requires_grad(impl_of(on)) && !raw_requires_grad(impl_of(off)) &&
                raw_requires_grad(impl_of(computed)) && raw_requires_grad(impl_of(view));
    }
    Py_XDECREF(off);
    Py_XDECREF(computed);
    Py_XDECREF(view);
    return found;
}

/* Searches all offsets; *fits says whether they are complete. -1 with an exception if Python failed. */
static int calibrate(PyObject *torch, bool *fits) {
    PyObject *tensors[SAMPLE_COUNT] = {NULL};
    uint64_t keys[SAMPLE_COUNT] = {0}, storages[SAMPLE_COUNT] = {0};
    int status = 0;
    for (int i = 0; i < SAMPLE_COUNT && status == 0; i++) {
        tensors[i] = make_sample(torch, &SAMPLES[i]);
        if (tensors[i] == NULL || python_keys(tensors[i], &keys[i]) < 0 ||
            python_storage(tensors[i], &storages[i]) < 0) {
            status = -1;
        }
    }
    if (status == 0) {
        *fits = search_shape(tensors, &state.shape);
        Py_ssize_t after = state.shape + 88;
        *fits = *fits && search(tensors, NULL, dtype_fits, after, IMPL_BYTES - 2, 2, &state.dtype) &&
                search(tensors, NULL, device_fits, state.dtype + 2, state.dtype + 4, 1, &state.device) &&
                search(tensors, NULL, offset_fits, after, IMPL_BYTES, 8, &state.offset) &&
                search(tensors, keys, word_fits, after, IMPL_BYTES, 8, &state.keys) &&
                search(tensors, storages, word_fits, 8, state.shape, 8, &state.storage) &&
                search(tensors, NULL, autograd_fits, 16, state.shape, 8, &state.autograd) &&
                calibrate_autograd(tensors[6]);
    }
    for (int i = 0; i < SAMPLE_COUNT; i++) Py_XDECREF(tensors[i]);
    return PyErr_Occurred() ? -1 : status;
}

/* torch's libraries are loaded already, but not into the global scope. */
static void find_shim(void) {
    void *library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    if (library == NULL) return;
    *(void **)&state.data_pointer = dlsym(library, "aoti_torch_get_data_ptr");
}

/* Calibrates with gradients on, whatever the caller has set: inference_mode(False) also enables them. */
static int calibrate_normally(PyObject *torch, bool *fits) {
    PyObject *mode = PyObject_CallMethod(torch, "inference_mode", "O", Py_False);
    PyObject *entered = mode ? PyObject_CallMethod(mode, "__enter__", NULL) : NULL;
    int status = -1;
    if (entered != NULL) {
        status = calibrate(torch, fits);
        PyObject *error = take_exception();
        PyObject *left = PyObject_CallMethod(mode, "__exit__", "OOO", Py_None, Py_None, Py_None);
        if (left == NULL) status = -1;
        Py_XDECREF(left);
        if (error != NULL) restore_exception(error);
    }
    Py_XDECREF(entered);
    Py_XDECREF(mode);
    return status;
}

int tensor_prepare(void) {
    if (state.prepared) return 0;
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) return -1;
    PyObject *private = PyObject_GetAttrString(torch, "_C");
    int status = -1;
    bool fits = false;
    if (private != NULL) {
        Py_XSETREF(state.tensor_type, (PyTypeObject *)PyObject_GetAttrString(torch, "Tensor"));
        Py_XSETREF(state.dispatch_keys, PyObject_GetAttrString(private, "_dispatch_keys"));
        if (state.tensor_type && state.dispatch_keys) status = calibrate_normally(torch, &fits);
        state.raw = fits && getenv("STATOR_SLOW_TENSORS") == NULL;
        Py_XSETREF(state.empty, PyObject_GetAttrString(torch, "empty"));
        if (state.empty == NULL) status = -1;
        find_shim();
    }
    Py_XDECREF(private);
    Py_DECREF(torch);
    state.prepared = status == 0;
    return status;
}

/* -- what the other files use ------------------------------------------------------------------------ */

bool tensor_raw(void) { return state.raw; }

bool tensor_unrecorded(PyObject *tensor) {
    return state.raw && tensor_check(tensor) && READ(void *, impl_of(tensor) + state.autograd) == NULL;
}

bool tensor_check_exact(PyObject *object) { return Py_IS_TYPE(object, state.tensor_type); }

bool tensor_check(PyObject *object) { return PyObject_TypeCheck(object, state.tensor_type); }

int tensor_view(PyObject *tensor, TensorView *view) {
    if (!state.raw) return python_view(tensor, view);
    raw_view(impl_of(tensor), view);
    return 0;
}

static inline bool same_dimensions(const int64_t *expected, const int64_t *actual, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (expected[i] != actual[i] && expected[i] != ANY_SIZE) return false;
    }
    return true;
}

static inline bool same_view(const TensorView *view, const TensorCheck *expected) {
    int64_t count = expected->dimensions;
    return view->keys == expected->keys && view->dimensions == count && view->dtype == expected->dtype &&
           view->device == expected->device && view->requires_grad == expected->requires_grad &&
           same_dimensions(expected->sizes, view->sizes, count) &&
           same_dimensions(expected->sizes + count, view->strides, count);
}

int tensor_matches(PyObject *tensor, const TensorCheck *expected) {
    if (Py_TYPE(tensor) != expected->type) return 0;
    TensorView view;
    if (state.raw) raw_view(impl_of(tensor), &view);
    else if (python_view(tensor, &view) < 0) return -1;
    return same_view(&view, expected);
}

bool same_tensor_check(const TensorCheck *a, const TensorCheck *b) {
    size_t bytes = sizeof(TensorCheck) + 2 * (size_t)a->dimensions * sizeof(int64_t);
    return a->dimensions == b->dimensions && memcmp(a, b, bytes) == 0;
}

void tensor_place(PyObject *tensor, TensorPlace *place) {
    place->metadata = place->autograd = NULL;
    if (!state.raw) return;
    place->metadata = impl_of(tensor);
    place->autograd = READ(char *, impl_of(tensor) + state.autograd);
}

/* Prefetching what is no longer there does no harm. */
void tensor_prefetch(PyObject *tensor, const TensorPlace *place) {
    const char *metadata = place->metadata, *autograd = place->autograd;
    __builtin_prefetch(tensor);
    if (metadata == NULL) return;
    __builtin_prefetch(metadata + state.autograd);
    __builtin_prefetch(metadata + state.shape + 8 * (1 + INLINE_DIMENSIONS));
    __builtin_prefetch(metadata + state.keys);
    if (autograd != NULL) __builtin_prefetch(autograd + state.requires_grad);
    if (autograd != NULL) __builtin_prefetch(autograd + state.grad_fn);
}

int tensor_offset(PyObject *tensor, int64_t *offset) {
    if (state.raw) {
        *offset = READ(int64_t, impl_of(tensor) + state.offset);
        return 0;
    }
    PyObject *number = PyObject_CallMethod(tensor, "storage_offset", NULL);
    if (number == NULL) return -1;
    *offset = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

int tensor_storage(PyObject *tensor, uintptr_t *storage) {
    if (state.raw) {
        *storage = READ(uintptr_t, impl_of(tensor) + state.storage);
        return 0;
    }
    uint64_t address = 0;
    int status = python_storage(tensor, &address);
    *storage = (uintptr_t)address;
    return status;
}

uintptr_t tensor_storage_behind(const void *handle) { return READ(uintptr_t, *(char *const *)handle + state.storage); }

#define STORAGE_DATA 16 /* in a storage: where its memory begins (holders.c makes sure of it) */

void *tensor_begin(PyObject *tensor, int64_t item) {
    const char *impl = impl_of(tensor), *storage = READ(const char *, impl + state.storage);
    return (void *)(READ(uintptr_t, storage + STORAGE_DATA) + (uintptr_t)(READ(int64_t, impl + state.offset) * item));
}

int tensor_data(PyObject *tensor, void **data) {
    if (state.data_pointer != NULL && state.raw) {
        if (state.data_pointer((char *)tensor + OBJECT_HEADER, data) == 0) return 0;
    }
    PyObject *address = PyObject_CallMethod(tensor, "data_ptr", NULL);
    if (address == NULL) return -1;
    *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

/* The number of a dtype met for the first time: as a tensor of it has it, or any free one if the offsets
 * are not known. */
static int number_dtype(PyObject *dtype, int *number) {
    *number = state.dtype_count;
    if (!state.raw) return 0;
    PyObject *arguments = Py_BuildValue("(i)", 0);
    PyObject *keywords = Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", "meta");
    PyObject *tensor = arguments && keywords ? PyObject_Call(state.empty, arguments, keywords) : NULL;
    if (tensor != NULL) *number = READ(uint16_t, impl_of(tensor) + state.dtype);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    Py_XDECREF(tensor);
    return tensor ? 0 : -1;
}

int dtype_number(PyObject *dtype) {
    for (int i = 0; i < state.dtype_count; i++) {
        if (state.dtypes[i].dtype == dtype) return state.dtypes[i].number;
    }
    int number;
    if (strcmp(Py_TYPE(dtype)->tp_name, "torch.dtype") != 0 || state.dtype_count == MAX_DTYPES) {
        PyErr_Format(PyExc_TypeError, "%R is not a dtype of torch", dtype);
        return -1;
    }
    if (number_dtype(dtype, &number) < 0) return -1;
    state.dtypes[state.dtype_count].dtype = Py_NewRef(dtype);
    state.dtypes[state.dtype_count++].number = number;
    return number;
}
