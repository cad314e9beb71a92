/* What a graph computes from parameters alone, kept between calls, and whether it is still right.
 *
 * A Frozen stands where the forward graph does: it takes the list of inputs, adds the kept values and calls the graph.
 * Before that it looks at each tensor that they were computed from: the same memory, version counter and version, nobody
 * else with a version counter of their own who holds the memory. That sees all that PyTorch counts. What it does not
 * count: writes through `.data`, whose reads and assignments are noticed where they happen (the getter and the setter of
 * torch.Tensor.data are ours from the first Frozen on, and call PyTorch's); and kernels that write without counting
 * (batch norm's statistics, fused optimizers), so of memory on the host small tensors are compared by value, and some
 * words of large ones. Where torch's objects are not as they are known (tensor.c), values are kept for no call.
 */
#include "guards.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 4 /* words of a large tensor that are compared */
#define HOLDERS 8 /* of a storage, after its virtual table, in the lower half of the word */
#define WRAPPED 63 /* the bit that is set where a Python object is one of them, which may stay for good */
#define READ(type, address) (*(const type *)(address))

typedef struct {
    const char *metadata, *counter, *storage, *memory;
    uint32_t version, holders; /* but for the Python object of the storage */
} Trace;

typedef struct {
    PyObject *tensor; /* of `attributes` */
    Trace trace;
    const char *first; /* the first element */
    size_t bytes;      /* from there on; 0 where values are not compared */
    bool whole;        /* or samples */
    char *copy;
} Watched;

typedef struct Frozen {
    PyObject_HEAD
    PyObject *forward;    /* from a list of inputs to a tuple */
    PyObject *attributes; /* a tuple of (tensor, bytes, whole) */
    PyObject *hold;       /* gives what keeps version counters alive, so that one at the same address is the same one;
                             None if writes cannot be seen */
    PyObject *compute;    /* whether they will be kept, whether no other thread is in a call -> the values, a tuple */
    PyObject *held, *values;
    Py_ssize_t count;
    Watched *watched;
    bool fresh;           /* whether `watched` is what `values` were computed from */
    uint64_t turn;        /* rises with every computation, and where `.data` was read or assigned */
    struct Frozen *next;  /* of all */
    vectorcallfunc vectorcall;
} Frozen;

static struct {
    bool prepared, known;
    bool wrapped; /* whether the bit means that */
    Py_ssize_t counter, version, memory; /* in a tensor, a version counter and a storage */
    getter get;
    setter set;
    Frozen *all;
    int running; /* calls; they hold parameters for a moment */
} state;

/* -- where torch keeps versions ---------------------------------------------------------------------------- */

static const char *metadata_of(PyObject *tensor) { return READ(char *, (char *)tensor + OBJECT_HEADER); }

static uint32_t holders_of(const char *storage) {
    uint64_t word = READ(uint64_t, storage + HOLDERS);
    return (uint32_t)word - (state.wrapped && word >> WRAPPED);
}

static bool read_trace(PyObject *tensor, Trace *trace) {
    uintptr_t storage;
    trace->metadata = metadata_of(tensor);
    trace->counter = READ(char *, trace->metadata + state.counter);
    if (trace->counter == NULL || tensor_storage(tensor, &storage) < 0 || storage == 0) return false;
    trace->storage = (const char *)storage;
    trace->version = READ(uint32_t, trace->counter + state.version);
    trace->holders = holders_of(trace->storage);
    trace->memory = READ(char *, trace->storage + state.memory);
    return true;
}

static PyObject *method(PyObject *tensor, const char *name) {
    return tensor ? PyObject_CallMethod(tensor, name, NULL) : NULL;
}

/* The one word that a tensor and its alias share, but for the storage, and that another has not, is the counter. */
static bool find_counter(PyObject *tensor, PyObject *alias, PyObject *other, uintptr_t storage) {
    int found = 0;
    for (Py_ssize_t at = 16; at < 56; at += 8) {
        uintptr_t word = READ(uintptr_t, metadata_of(tensor) + at);
        if (word == storage || word < 4096 || word % 8 || word != READ(uintptr_t, metadata_of(alias) + at)) continue;
        uintptr_t others = READ(uintptr_t, metadata_of(other) + at);
        if (others == word || others < 4096 || others % 8) continue;
        state.counter = at;
        found++;
    }
    return found == 1;
}

/* In the counter, the number that follows writes; in the storage, the address, and how many hold it. */
static bool find_fields(PyObject *tensor, const char *storage, uint32_t holders) {
    const char *counter = READ(char *, metadata_of(tensor) + state.counter);
    bool fits[5] = {false, false, true, true, true}; /* its virtual table, how many hold it, the number */
    void *data;
    for (int step = 0; step < 5; step++) {
        PyObject *number = PyObject_GetAttrString(tensor, "_version");
        uint32_t version = number ? (uint32_t)PyLong_AsUnsignedLong(number) : 0;
        Py_XDECREF(number);
        for (int i = 2; i < 5; i++) fits[i] = fits[i] && READ(uint32_t, counter + 4 * i) == version;
        PyObject *done = method(tensor, "zero_");
        Py_XDECREF(done);
        if (done == NULL) return false;
    }
    if (fits[2] + fits[3] + fits[4] != 1 || tensor_data(tensor, &data) < 0) return false;
    state.version = fits[2] ? 8 : fits[3] ? 12 : 16;
    state.memory = READ(void *, storage + 16) == data ? 16 : 24;
    return READ(void *, storage + state.memory) == data && holders_of(storage) == holders;
}

/* Whether a storage whose Python object was made, and dropped, is known to be held by its tensor alone. */
static bool find_wrapped(PyObject *tensor, const char *storage) {
    PyObject *object = method(tensor, "untyped_storage");
    Py_XDECREF(object);
    state.wrapped = object != NULL && READ(uint32_t, storage + HOLDERS) == 2;
    return object != NULL && holders_of(storage) == 1;
}

static bool calibrate(PyObject *tensor, PyObject *other) {
    PyObject *alias = method(tensor, "detach");
    uintptr_t storage;
    bool known = alias && tensor_storage(tensor, &storage) == 0 && find_counter(tensor, alias, other, storage) &&
                 find_fields(tensor, (const char *)storage, 2);
    Py_XDECREF(alias);
    return known && holders_of((const char *)storage) == 1 && find_wrapped(tensor, (const char *)storage);
}

/* -- `.data` ----------------------------------------------------------------------------------------------- */

/* Somebody may write to the memory of this tensor from now on; or, if it is `assigned`, it gets other memory, which
 * is nothing to others in the old one. */
static void touch(PyObject *tensor, bool assigned) {
    uintptr_t storage = 0;
    tensor_storage(tensor, &storage); /* which cannot fail where offsets are known */
    for (Frozen *frozen = state.all; frozen != NULL; frozen = frozen->next) {
        Py_ssize_t i = 0;
        for (; i < frozen->count; i++) {
            const Watched *watched = &frozen->watched[i];
            if (assigned ? watched->tensor == tensor : (uintptr_t)watched->trace.storage == storage) break;
        }
        if (i == frozen->count) continue;
        frozen->fresh = false;
        frozen->turn++;
    }
}

static PyObject *get_data(PyObject *tensor, void *closure) {
    touch(tensor, false);
    return state.get(tensor, closure);
}

static int set_data(PyObject *tensor, PyObject *value, void *closure) {
    touch(tensor, true);
    return state.set(tensor, value, closure);
}

static bool notice_data(PyObject *torch) {
    PyObject *private = PyObject_GetAttrString(torch, "_C");
    PyObject *base = private ? PyObject_GetAttrString(private, "TensorBase") : NULL;
    PyObject *data = base ? PyObject_GetAttrString(base, "data") : NULL;
    bool found = data != NULL && Py_IS_TYPE(data, &PyGetSetDescr_Type);
    if (found) {
        PyGetSetDef *definition = ((PyGetSetDescrObject *)data)->d_getset;
        state.get = definition->get;
        state.set = definition->set;
        definition->get = get_data;
        definition->set = set_data;
    }
    Py_XDECREF(data);
    Py_XDECREF(base);
    Py_XDECREF(private);
    return found;
}

static int prepare(PyObject *samples) {
    if (state.prepared) return 0;
    if (tensor_prepare() < 0) return -1;
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) return -1;
    state.known = tensor_raw() && calibrate(PyTuple_GET_ITEM(samples, 0), PyTuple_GET_ITEM(samples, 1)) &&
                  notice_data(torch);
    Py_DECREF(torch);
    state.prepared = !PyErr_Occurred();
    return state.prepared ? 0 : -1;
}

/* -- looking ----------------------------------------------------------------------------------------------- */

static inline const char *sample_at(const Watched *watched, size_t i) {
    return watched->first + (watched->bytes - 8) / (SAMPLES - 1) * i;
}

static bool same_values(const Watched *watched) {
    if (watched->bytes == 0) return true;
    if (watched->whole || watched->bytes <= SAMPLES * 8) return memcmp(watched->copy, watched->first, watched->bytes) == 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        if (memcmp(watched->copy + 8 * i, sample_at(watched, i), 8) != 0) return false;
    }
    return true;
}

static bool is_unchanged(const Frozen *self) {
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Watched *watched = &self->watched[i];
        Trace now;
        if (metadata_of(watched->tensor) != watched->trace.metadata || !read_trace(watched->tensor, &now) ||
            memcmp(&now, &watched->trace, sizeof now) != 0 || !same_values(watched)) {
            return false;
        }
    }
    return true;
}

static int take_values(Watched *watched) {
    void *first;
    if (watched->bytes == 0) return 0;
    if (tensor_data(watched->tensor, &first) < 0) return -1;
    watched->first = first;
    bool all = watched->whole || watched->bytes <= SAMPLES * 8;
    if (watched->copy == NULL) watched->copy = PyMem_Malloc(all ? watched->bytes : SAMPLES * 8);
    if (watched->copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (all) memcpy(watched->copy, first, watched->bytes);
    for (size_t i = 0; !all && i < SAMPLES; i++) memcpy(watched->copy + 8 * i, sample_at(watched, i), 8);
    return 0;
}

/* 1 if all that is written to them will be seen, 0 if not, -1 with an exception. */
static int look(Frozen *self) {
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Watched *watched = &self->watched[i];
        if (!read_trace(watched->tensor, &watched->trace)) return 0;
        if (take_values(watched) < 0) return -1;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        uint32_t ours = 0;
        for (Py_ssize_t k = 0; k < self->count; k++) {
            ours += self->watched[k].trace.storage == self->watched[i].trace.storage;
        }
        if (self->watched[i].trace.holders != ours) return 0;
    }
    return 1;
}

/* -- calls ------------------------------------------------------------------------------------------------- */

/* The values of now. They are kept for the next call if all was seen, and no other thread has begun since. */
static PyObject *renew(Frozen *self) {
    self->fresh = false;
    PyObject *held = PyObject_CallNoArgs(self->hold);
    uint64_t turn = ++self->turn;
    int seen = held == NULL ? -1 : state.known && held != Py_None ? look(self) : 0;
    PyObject *facts[] = {seen ? Py_True : Py_False, state.running == 1 ? Py_True : Py_False};
    PyObject *values = seen < 0 ? NULL : PyObject_Vectorcall(self->compute, facts, 2, NULL);
    if (values != NULL && !PyTuple_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "the values are a tuple");
        Py_CLEAR(values);
    }
    if (values != NULL && seen && self->turn == turn && is_unchanged(self)) {
        Py_XSETREF(self->held, Py_NewRef(held));
        Py_XSETREF(self->values, Py_NewRef(values));
        self->fresh = true;
    }
    Py_XDECREF(held);
    return values;
}

static PyObject *frozen_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords) {
    Frozen *self = (Frozen *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || keywords != NULL || !PyList_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "Frozen takes a list of inputs");
        return NULL;
    }
    state.running++;
    PyObject *values = self->fresh && is_unchanged(self) ? Py_NewRef(self->values) : renew(self), *result = NULL;
    Py_ssize_t end = PyList_GET_SIZE(args[0]);
    int status = values ? PyList_SetSlice(args[0], end, end, values) : -1;
    Py_XDECREF(values); /* the list has them */
    if (status == 0) result = PyObject_CallOneArg(self->forward, args[0]);
    state.running--;
    return result;
}

static PyObject *get_fresh(PyObject *object, void *closure) {
    (void)closure;
    Frozen *self = (Frozen *)object;
    return PyBool_FromLong(self->fresh && is_unchanged(self));
}

/* -- the type ---------------------------------------------------------------------------------------------- */

static int read_attributes(Frozen *self) {
    Py_ssize_t count = PyTuple_GET_SIZE(self->attributes);
    self->watched = PyMem_Calloc((size_t)count + 1, sizeof(Watched));
    if (self->watched == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->count < count; self->count++) {
        Watched *watched = &self->watched[self->count];
        Py_ssize_t bytes;
        int whole;
        PyObject *item = PyTuple_GET_ITEM(self->attributes, self->count);
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "Onp", &watched->tensor, &bytes, &whole)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an attribute is (tensor, bytes, whole)");
            return -1;
        }
        if (!tensor_check(watched->tensor) || bytes < 0) {
            PyErr_SetString(PyExc_TypeError, "an attribute is a tensor, and has no fewer than 0 bytes");
            return -1;
        }
        watched->bytes = (size_t)bytes;
        watched->whole = whole;
    }
    return 0;
}

static PyObject *frozen_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"forward", "attributes", "hold", "compute", "samples", NULL};
    PyObject *forward, *attributes, *hold, *compute, *samples;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!OOO!:Frozen", names, &forward, &PyTuple_Type, &attributes, &hold,
                                     &compute, &PyTuple_Type, &samples)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(samples) != 2) {
        PyErr_SetString(PyExc_ValueError, "two tensors to learn from");
        return NULL;
    }
    if (prepare(samples) < 0) return NULL;
    Frozen *self = (Frozen *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->forward = Py_NewRef(forward);
    self->attributes = Py_NewRef(attributes);
    self->hold = Py_NewRef(hold);
    self->compute = Py_NewRef(compute);
    self->vectorcall = frozen_call;
    self->next = state.all;
    state.all = self;
    if (read_attributes(self) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int frozen_traverse(PyObject *object, visitproc visit, void *arg) {
    Frozen *self = (Frozen *)object;
    Py_VISIT(self->forward);
    Py_VISIT(self->attributes);
    Py_VISIT(self->hold);
    Py_VISIT(self->compute);
    Py_VISIT(self->held);
    Py_VISIT(self->values);
    return 0;
}

/* Without a tp_clear, as a Plan: a cycle always leads through something else. */
static void frozen_dealloc(PyObject *object) {
    Frozen *self = (Frozen *)object, **place = &state.all;
    PyObject_GC_UnTrack(object);
    while (*place != self) place = &(*place)->next;
    *place = self->next;
    for (Py_ssize_t i = 0; i < self->count; i++) PyMem_Free(self->watched[i].copy);
    PyMem_Free(self->watched);
    Py_XDECREF(self->forward);
    Py_XDECREF(self->attributes);
    Py_XDECREF(self->hold);
    Py_XDECREF(self->compute);
    Py_XDECREF(self->held);
    Py_XDECREF(self->values);
    Py_TYPE(object)->tp_free(object);
}

static PyGetSetDef frozen_getters[] = {
    {"fresh", get_fresh, NULL, "whether the next call will use the values that are kept", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Frozen_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Frozen",
    .tp_doc = "Frozen(forward, attributes, hold, compute, samples): a graph that is given values of parameters too.",
    .tp_basicsize = sizeof(Frozen),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = frozen_new,
    .tp_dealloc = frozen_dealloc,
    .tp_traverse = frozen_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Frozen, vectorcall),
    .tp_getset = frozen_getters,
};
