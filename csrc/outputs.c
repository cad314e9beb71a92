/* What a compiled function gives, from its inputs and from what its graph has computed.
 *
 * An Outputs describes results of known geometry that need more than the graph's values: inputs, views of either, and
 * constants. A view hangs on its source as in eager: torch's own `as_strided` makes it, by the stable interface where
 * that says enough (it takes as many sizes as the source has, and begins where the source begins), else as a method.
 * Results that only Python can make (`aot/results.py`) have no Outputs.
 */
#include "shim.h"

#include <stddef.h>

#define KINDS(KIND)                                                                                                    \
    KIND(OUTPUT_VALUE, "value") KIND(OUTPUT_INPUT, "input") KIND(OUTPUT_INPUT_VIEW, "input_view")                      \
    KIND(OUTPUT_VIEW, "output_view") KIND(OUTPUT_CONSTANT, "constant")
#define KIND(kind, name) kind,
#define NAME(kind, name) name,

typedef enum { KINDS(KIND) } OutputKind;
static const char *const kind_names[] = {KINDS(NAME) NULL};

typedef struct {
    OutputKind kind;
    Py_ssize_t index;
    PyObject *constant, *size, *stride; /* NULL where the kind has none */
    int64_t offset;                     /* from where the source begins */
    bool unrecorded;                    /* autograd does not see it made */
    Py_ssize_t dimensions;
    int64_t *extents; /* sizes, then strides */
} Output;

typedef struct {
    PyObject_VAR_HEAD
    Output items[];
} Outputs;

static PyObject *as_strided;
static int grad_mode;

/* -- views ---------------------------------------------------------------------------------------------- */

/* By torch's stable interface; NULL without an exception where that cannot. */
static PyObject *view_behind(const Output *output, PyObject *source) {
    const Shim *shim = shim_get();
    int64_t dimensions;
    TensorHandle made;
    if (shim == NULL || shim->as_strided == NULL || output->offset != 0 || !tensor_check_exact(source)) return NULL;
    if (shim->dimensions(shim_handle(source), &dimensions) != 0 || dimensions != output->dimensions) return NULL;
    const int64_t *strides = output->extents + dimensions;
    if (shim->as_strided(shim_handle(source), output->extents, strides, &made) != 0) return NULL;
    PyObject *view = shim->wrap(made);
    shim->release(made);
    return view;
}

static PyObject *view_as_method(const Output *output, PyObject *source) {
    int64_t begin;
    if (tensor_offset(source, &begin) < 0) return NULL;
    PyObject *offset = PyLong_FromLongLong(begin + output->offset);
    if (offset == NULL) return NULL;
    PyObject *given[] = {source, output->size, output->stride, offset};
    PyObject *view = PyObject_VectorcallMethod(as_strided, given, 4, NULL);
    Py_DECREF(offset);
    return view;
}

static PyObject *recorded_view(const Output *output, PyObject *source) {
    PyObject *view = view_behind(output, source);
    return view != NULL || PyErr_Occurred() ? view : view_as_method(output, source);
}

static PyObject *view_of(const Output *output, PyObject *source) {
    uint64_t graded = false;
    if (!output->unrecorded) return recorded_view(output, source);
    if (!state_read(grad_mode, &graded) || (graded && !state_set_grad_mode(false))) {
        PyErr_SetString(PyExc_SystemError, "grad mode cannot be turned off here");
        return NULL;
    }
    PyObject *view = recorded_view(output, source);
    if (graded) state_set_grad_mode(true);
    return view;
}

/* -- a call --------------------------------------------------------------------------------------------- */

/* Input number `index`: attributes come first; borrowed. */
static PyObject *input_of(PyObject *attributes, PyObject *const *args, Py_ssize_t count, Py_ssize_t index) {
    Py_ssize_t first = PyTuple_GET_SIZE(attributes);
    if (index < first) return PyTuple_GET_ITEM(attributes, index);
    return index - first < count ? args[index - first] : NULL;
}

PyObject *outputs_make(PyObject *outputs, PyObject *attributes, PyObject *const *args, Py_ssize_t count,
                       PyObject *values) {
    Outputs *self = (Outputs *)outputs;
    PyObject *results = PyTuple_New(Py_SIZE(self));
    for (Py_ssize_t i = 0; results != NULL && i < Py_SIZE(self); i++) {
        const Output *output = &self->items[i];
        bool of_input = output->kind == OUTPUT_INPUT || output->kind == OUTPUT_INPUT_VIEW;
        PyObject *source = output->kind == OUTPUT_CONSTANT            ? output->constant
                           : of_input                                 ? input_of(attributes, args, count, output->index)
                           : output->index < PyTuple_GET_SIZE(values) ? PyTuple_GET_ITEM(values, output->index)
                                                                      : NULL;
        if (source == NULL) PyErr_SetString(PyExc_ValueError, "a result is made of what is not there");
        PyObject *result = source == NULL ? NULL : output->size != NULL ? view_of(output, source) : Py_NewRef(source);
        if (result == NULL) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    return results;
}

/* -- the type ------------------------------------------------------------------------------------------- */

static int read_extents(PyObject *tuple, int64_t *extents) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_view(PyObject *size, PyObject *stride, Output *output) {
    output->dimensions = PyTuple_GET_SIZE(size);
    if (output->dimensions > MAX_DIMENSIONS || PyTuple_GET_SIZE(stride) != output->dimensions) {
        PyErr_SetString(PyExc_ValueError, "a view has as many strides as sizes, and no more than torch allows");
        return -1;
    }
    output->extents = PyMem_New(int64_t, 2 * output->dimensions + 1);
    if (output->extents == NULL) return PyErr_NoMemory(), -1;
    output->size = Py_NewRef(size);
    output->stride = Py_NewRef(stride);
    if (read_extents(size, output->extents) < 0) return -1;
    return read_extents(stride, output->extents + output->dimensions);
}

/* (kind, index, size, stride, offset, unrecorded, constant) */
static int read_output(PyObject *item, Output *output) {
    PyObject *kind, *size, *stride, *constant;
    long long offset;
    int unrecorded;
    if (!PyArg_ParseTuple(item, "UnO!O!LpO:output", &kind, &output->index, &PyTuple_Type, &size, &PyTuple_Type, &stride,
                          &offset, &unrecorded, &constant)) {
        return -1;
    }
    int found = name_index(kind_names, kind);
    if (found < 0) return -1;
    output->kind = (OutputKind)found;
    output->offset = offset;
    output->unrecorded = unrecorded;
    if (output->index < 0) return PyErr_SetString(PyExc_ValueError, "there is no such source of a result"), -1;
    if (output->kind == OUTPUT_CONSTANT) output->constant = Py_NewRef(constant);
    bool is_view = output->kind == OUTPUT_INPUT_VIEW || output->kind == OUTPUT_VIEW;
    return is_view ? read_view(size, stride, output) : 0;
}

static PyObject *outputs_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *arguments[] = {"items", NULL};
    PyObject *items;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!:Outputs", arguments, &PyTuple_Type, &items)) return NULL;
    if (tensor_prepare() < 0) return NULL;
    if (as_strided == NULL && (as_strided = PyUnicode_InternFromString("as_strided")) == NULL) return NULL;
    grad_mode = state_number("grad_mode");
    Outputs *self = (Outputs *)type->tp_alloc(type, PyTuple_GET_SIZE(items));
    for (Py_ssize_t i = 0; self != NULL && i < Py_SIZE(self); i++) {
        if (read_output(PyTuple_GET_ITEM(items, i), &self->items[i]) < 0) Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int outputs_traverse(PyObject *object, visitproc visit, void *arg) {
    Outputs *self = (Outputs *)object;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(self->items[i].constant);
    return 0;
}

/* Without a tp_clear, like a Plan. */
static void outputs_dealloc(PyObject *object) {
    Outputs *self = (Outputs *)object;
    PyObject_GC_UnTrack(object);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Py_XDECREF(self->items[i].constant);
        Py_XDECREF(self->items[i].size);
        Py_XDECREF(self->items[i].stride);
        PyMem_Free(self->items[i].extents);
    }
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject Outputs_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Outputs",
    .tp_doc = "Outputs(items): results of a compiled function that are inputs, views or constants.",
    .tp_basicsize = sizeof(Outputs),
    .tp_itemsize = sizeof(Output),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = outputs_new,
    .tp_dealloc = outputs_dealloc,
    .tp_traverse = outputs_traverse,
};
