/* Backward in the common case: what autograd calls of a compiled function is a graph and no more.
 *
 * `backward` is the `apply` of the autograd nodes. Where the function has a Backward, every tangent is there as the
 * graph takes it and nothing looks at the gradients (autocast, anomaly mode, a graph of them, a map), it runs the graph
 * without a frame of Python. Anything else goes to the function's own `backward`, which is always right.
 */
#include "native.h"

#include <stddef.h>
#include <string.h>

/* What the graph takes of one tangent: a plain tensor of this dtype and these strides. */
typedef struct {
    Py_ssize_t position;
    int dtype;
    uint64_t keys; /* dispatch keys of plain tensors of its device */
    Py_ssize_t dimensions;
    int64_t *strides;
} Tangent;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *graph;  /* from a list of tensors to a sequence of gradients */
    PyObject *failed; /* (bound, context, tangents, error): raises what the program is told, if that is another error */
    PyObject *freed;  /* what a record has to say after a backward that keeps no graph; NULL if nothing */
    PyObject *unseen; /* and what it looks at from then on */
    Py_ssize_t saved; /* tensors that the graph takes of those that were saved */
    uint64_t named_key; /* what autograd itself excludes while a node runs: in torch 2.11 the key of named tensors */
    bool keeps;       /* there is a record */
    Tangent tangents[];
} Backward;

static struct {
    PyObject *bound, *straight, *function, *backward, *record, *freed, *left, *seen, *saved, *clear, *version;
} names;
static int grad_mode, anomaly, included, excluded, keep_graph;

static int intern_names(void) {
    if (names.version != NULL) return 0;
    names.bound = PyUnicode_InternFromString("bound");
    names.straight = PyUnicode_InternFromString("straight");
    names.function = PyUnicode_InternFromString("_forward_cls");
    names.backward = PyUnicode_InternFromString("backward");
    names.record = PyUnicode_InternFromString("record");
    names.freed = PyUnicode_InternFromString("freed");
    names.left = PyUnicode_InternFromString("left");
    names.seen = PyUnicode_InternFromString("seen");
    names.saved = PyUnicode_InternFromString("saved_tensors");
    names.clear = PyUnicode_InternFromString("maybe_clear_saved_tensors");
    names.version = PyUnicode_InternFromString("_version");
    grad_mode = state_number("grad_mode");
    anomaly = state_number("anomaly_mode");
    included = state_number("keys_included");
    excluded = state_number("keys_excluded");
    keep_graph = state_number("keep_graph");
    return names.version ? 0 : -1;
}

/* Whether this thread is as autograd leaves it: no autocast, no map, no mode that sees operators or gradients. */
static bool is_undisturbed(const Backward *self) {
    uint64_t value;
    return state_read(included, &value) && value == 0 &&
           state_read(excluded, &value) && (value & ~self->named_key) == 0 &&
           state_read(grad_mode, &value) && value == 0 && state_read(anomaly, &value) && value == 0;
}

static bool fits(const Tangent *tangent, PyObject *given) {
    TensorView view;
    if (!tensor_check(given) || !tensor_raw() || tensor_view(given, &view) < 0) return false;
    return view.keys == tangent->keys && view.dtype == tangent->dtype && view.dimensions == tangent->dimensions &&
           memcmp(view.strides, tangent->strides, (size_t)view.dimensions * sizeof(int64_t)) == 0;
}

/* -- the record ----------------------------------------------------------------------------------------- */

/* Whether nothing of it was let go of yet: 1, 0, or -1 with an exception. */
static int is_whole(PyObject *record) {
    PyObject *freed = PyObject_GetAttr(record, names.freed);
    PyObject *left = freed ? PyObject_GetAttr(record, names.left) : NULL;
    int status = left ? left == Py_None && PyAnySet_Check(freed) && PySet_GET_SIZE(freed) == 0 : -1;
    Py_XDECREF(freed);
    Py_XDECREF(left);
    return status;
}

/* Whether a tensor that backward looks at is as it was; None: it does not look. */
static int is_as_it_was(PyObject *sight) {
    if (sight == Py_None) return 1;
    if (!PyTuple_CheckExact(sight) || PyTuple_GET_SIZE(sight) != 2) return 0;
    PyObject *version = PyObject_GetAttr(PyTuple_GET_ITEM(sight, 0), names.version);
    int same = version ? PyObject_RichCompareBool(version, PyTuple_GET_ITEM(sight, 1), Py_EQ) : -1;
    Py_XDECREF(version);
    return same;
}

static int is_untouched(PyObject *record) {
    int status = is_whole(record);
    if (status <= 0) return status;
    PyObject *seen = PyObject_GetAttr(record, names.seen);
    if (seen == NULL || !PyList_CheckExact(seen)) status = seen ? 0 : -1;
    for (Py_ssize_t i = 0; status > 0 && i < PyList_GET_SIZE(seen); i++) {
        status = is_as_it_was(PyList_GET_ITEM(seen, i));
    }
    Py_XDECREF(seen);
    return status;
}

/* After the saved tensors are taken. */
static int let_go(const Backward *self, PyObject *record) {
    uint64_t keeps;
    if (!state_read(keep_graph, &keeps) || keeps || self->freed == NULL) return 0;
    if (PyObject_SetAttr(record, names.freed, self->freed) < 0) return -1;
    return PyObject_SetAttr(record, names.seen, self->unseen);
}

/* -- a call --------------------------------------------------------------------------------------------- */

/* The saved tensors, then the tangents; what was saved is let go of unless the graph is kept. */
static PyObject *take_arguments(const Backward *self, PyObject *context, PyObject *const *tangents) {
    Py_ssize_t count = Py_SIZE(self);
    PyObject *saved = self->saved ? PyObject_GetAttr(context, names.saved) : NULL;
    if (self->saved && saved == NULL) return NULL;
    if (saved != NULL && (!PyTuple_CheckExact(saved) || PyTuple_GET_SIZE(saved) < self->saved)) {
        PyErr_SetString(PyExc_SystemError, "a backward finds fewer tensors than were saved for it");
        Py_DECREF(saved);
        return NULL;
    }
    PyObject *arguments = PyList_New(self->saved + count);
    for (Py_ssize_t i = 0; arguments != NULL && i < self->saved; i++) {
        PyList_SET_ITEM(arguments, i, Py_NewRef(PyTuple_GET_ITEM(saved, i)));
    }
    for (Py_ssize_t i = 0; arguments != NULL && i < count; i++) {
        PyList_SET_ITEM(arguments, self->saved + i, Py_NewRef(tangents[self->tangents[i].position]));
    }
    Py_XDECREF(saved);
    PyObject *cleared = arguments ? PyObject_CallMethodNoArgs(context, names.clear) : NULL;
    if (cleared == NULL) Py_CLEAR(arguments);
    Py_XDECREF(cleared);
    return arguments;
}

/* With the exception that is set, or another one. */
static void tell_failure(const Backward *self, PyObject *bound, PyObject *context, PyObject *const *tangents,
                         Py_ssize_t count) {
    PyObject *error = take_exception();
    PyObject *given = PyTuple_New(count);
    for (Py_ssize_t i = 0; given != NULL && i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(tangents[i]));
    PyObject *told = given ? PyObject_CallFunctionObjArgs(self->failed, bound, context, given, error, NULL) : NULL;
    Py_XDECREF(given);
    if (told != NULL) {
        Py_DECREF(told);
        restore_exception(error);
        return;
    }
    Py_XDECREF(error);
}

/* None for the plan, which is the first argument of forward, then the gradients. */
static PyObject *with_none(PyObject *gradients) {
    PyObject *all = NULL, *items = gradients ? PySequence_Fast(gradients, "a backward graph gives gradients") : NULL;
    Py_ssize_t count = items ? PySequence_Fast_GET_SIZE(items) : 0;
    if (items != NULL && (all = PyTuple_New(1 + count)) != NULL) {
        PyTuple_SET_ITEM(all, 0, Py_NewRef(Py_None));
        for (Py_ssize_t i = 0; i < count; i++) {
            PyTuple_SET_ITEM(all, 1 + i, Py_NewRef(PySequence_Fast_GET_ITEM(items, i)));
        }
    }
    Py_XDECREF(items);
    Py_XDECREF(gradients);
    return all;
}

/* Whether the graph is all that there is to this call: 1, 0, or -1 with an exception. */
static int is_straight(const Backward *self, PyObject *record, PyObject *const *tangents, Py_ssize_t count) {
    if (!is_undisturbed(self)) return 0;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const Tangent *tangent = &self->tangents[i];
        if (tangent->position >= count || !fits(tangent, tangents[tangent->position])) return 0;
    }
    return record ? is_untouched(record) : 1;
}

static PyObject *run_straight(const Backward *self, PyObject *bound, PyObject *context, PyObject *record,
                              PyObject *const *tangents, Py_ssize_t count) {
    PyObject *arguments = take_arguments(self, context, tangents);
    if (arguments == NULL || (record != NULL && let_go(self, record) < 0)) {
        Py_XDECREF(arguments);
        return NULL;
    }
    PyObject *gradients = PyObject_CallOneArg(self->graph, arguments);
    Py_DECREF(arguments);
    if (gradients == NULL) tell_failure(self, bound, context, tangents, count);
    return with_none(gradients);
}

/* What PyTorch's `apply` of such a node does. */
static PyObject *run_general(PyObject *const *args, Py_ssize_t count) {
    PyObject *function = PyObject_GetAttr(args[0], names.function);
    PyObject *backward = function ? PyObject_GetAttr(function, names.backward) : NULL;
    PyObject *result = backward ? PyObject_Vectorcall(backward, args, (size_t)count, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(backward);
    return result;
}

/* backward(context, *tangents) -> gradients */
PyObject *native_backward(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "backward(context, *tangents)");
        return NULL;
    }
    if (intern_names() < 0) return NULL;
    PyObject *bound = PyObject_GetAttr(args[0], names.bound), *result = NULL, *record = NULL;
    PyObject *found = bound ? PyObject_GetAttr(bound, names.straight) : NULL;
    Backward *self = found && Py_IS_TYPE(found, &Backward_Type) ? (Backward *)found : NULL;
    if (self != NULL && self->keeps) record = PyObject_GetAttr(args[0], names.record);
    int straight = found == NULL ? -1 : self == NULL ? 0 : self->keeps && record == NULL ? -1
                 : is_straight(self, record, args + 1, count - 1);
    if (straight > 0) result = run_straight(self, bound, args[0], record, args + 1, count - 1);
    else if (straight == 0) result = run_general(args, count);
    Py_XDECREF(record);
    Py_XDECREF(found);
    Py_XDECREF(bound);
    return result;
}

/* -- the type ------------------------------------------------------------------------------------------- */

/* (position, strides, dtype number, dispatch keys) */
static int read_tangent(PyObject *item, Tangent *tangent) {
    PyObject *strides;
    unsigned long long keys;
    if (!PyArg_ParseTuple(item, "nO!iK:Backward", &tangent->position, &PyTuple_Type, &strides, &tangent->dtype, &keys)) {
        return -1;
    }
    tangent->keys = keys;
    tangent->dimensions = PyTuple_GET_SIZE(strides);
    tangent->strides = PyMem_New(int64_t, tangent->dimensions + 1);
    if (tangent->strides == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < tangent->dimensions; i++) {
        tangent->strides[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *backward_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *arguments[] = {"graph", "failed", "tangents", "saved", "keeps", "named_key", "freed", "unseen", NULL};
    PyObject *graph, *failed, *tangents, *freed = Py_None, *unseen = Py_None;
    Py_ssize_t saved;
    int keeps;
    unsigned long long named_key;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO!npK|OO:Backward", arguments, &graph, &failed, &PyTuple_Type,
                                     &tangents, &saved, &keeps, &named_key, &freed, &unseen)) {
        return NULL;
    }
    if (tensor_prepare() < 0 || intern_names() < 0) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(tangents);
    Backward *self = (Backward *)type->tp_alloc(type, count);
    if (self == NULL) return NULL;
    self->graph = Py_NewRef(graph);
    self->failed = Py_NewRef(failed);
    self->freed = freed == Py_None ? NULL : Py_NewRef(freed);
    self->unseen = Py_NewRef(unseen);
    self->saved = saved;
    self->keeps = keeps;
    self->named_key = named_key;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_tangent(PyTuple_GET_ITEM(tangents, i), &self->tangents[i]) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int backward_traverse(PyObject *object, visitproc visit, void *arg) {
    Backward *self = (Backward *)object;
    Py_VISIT(self->graph);
    Py_VISIT(self->failed);
    Py_VISIT(self->freed);
    Py_VISIT(self->unseen);
    return 0;
}

/* Without a tp_clear, like a Plan. */
static void backward_dealloc(PyObject *object) {
    Backward *self = (Backward *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->graph);
    Py_XDECREF(self->failed);
    Py_XDECREF(self->freed);
    Py_XDECREF(self->unseen);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) PyMem_Free(self->tangents[i].strides);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject Backward_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Backward",
    .tp_doc = "Backward(graph, failed, tangents, saved, keeps, freed, unseen): a backward that is a graph and no more.",
    .tp_basicsize = sizeof(Backward),
    .tp_itemsize = sizeof(Tangent),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = backward_new,
    .tp_dealloc = backward_dealloc,
    .tp_traverse = backward_traverse,
};
