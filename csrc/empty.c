/* Making tensors: memory of a geometry that is fixed beforehand, on the CPU.
 *
 * An Empty is called for every result of a compiled graph. It asks torch's stable C shim for the memory, and
 * torch's own binding for the Python object. Where either is missing, or fails, `torch.empty_strided` does it:
 * slower, never different, and with the error that a user knows.
 */
#include "shim.h"

#include <stddef.h>

typedef struct {
    PyObject_VAR_HEAD
    PyObject *arguments, *keywords; /* of torch.empty_strided */
    vectorcallfunc vectorcall;
    int64_t dimensions;
    int dtype;         /* torch's ScalarType number */
    int64_t extents[]; /* sizes, then strides */
} Empty;

static PyObject *through_python(Empty *self) {
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *function = torch ? PyObject_GetAttrString(torch, "empty_strided") : NULL;
    PyObject *made = function ? PyObject_Call(function, self->arguments, self->keywords) : NULL;
    Py_XDECREF(torch);
    Py_XDECREF(function);
    return made;
}

static PyObject *empty_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    (void)args;
    Empty *self = (Empty *)callable;
    if (PyVectorcall_NARGS(flags) != 0 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0)) {
        PyErr_SetString(PyExc_TypeError, "an Empty takes no arguments");
        return NULL;
    }
    const Shim *shim = shim_get();
    TensorHandle handle;
    if (shim == NULL || shim->make(self->dimensions, self->extents, self->extents + self->dimensions, self->dtype,
                                   shim->cpu, 0, &handle) != 0) {
        return through_python(self);
    }
    PyObject *made = shim->wrap(handle);
    shim->release(handle);
    return made;
}

static bool read_extents(PyObject *tuple, int64_t *out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) out[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return !PyErr_Occurred();
}

static PyObject *empty_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"size", "stride", "dtype", NULL};
    PyObject *size, *stride, *dtype;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O:Empty", names, &PyTuple_Type, &size, &PyTuple_Type, &stride,
                                     &dtype)) {
        return NULL;
    }
    Py_ssize_t dimensions = PyTuple_GET_SIZE(size);
    if (dimensions != PyTuple_GET_SIZE(stride)) {
        PyErr_SetString(PyExc_ValueError, "as many sizes as strides");
        return NULL;
    }
    if (tensor_prepare() < 0) return NULL;
    int number = dtype_number(dtype);
    if (number < 0) return NULL;
    Empty *self = (Empty *)type->tp_alloc(type, 2 * dimensions);
    if (self == NULL) return NULL;
    self->vectorcall = empty_call;
    self->dimensions = dimensions;
    self->dtype = number;
    self->arguments = PyTuple_Pack(2, size, stride);
    self->keywords = Py_BuildValue("{s:O,s:s}", "dtype", dtype, "device", "cpu");
    if (self->arguments == NULL || self->keywords == NULL || !read_extents(size, self->extents) ||
        !read_extents(stride, self->extents + dimensions)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void empty_dealloc(PyObject *object) {
    Py_XDECREF(((Empty *)object)->arguments);
    Py_XDECREF(((Empty *)object)->keywords);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject Empty_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Empty",
    .tp_doc = "Empty(size, stride, dtype): gives a new tensor of this geometry on the CPU whenever it is called.",
    .tp_basicsize = sizeof(Empty),
    .tp_itemsize = sizeof(int64_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = empty_new,
    .tp_dealloc = empty_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Empty, vectorcall),
};
