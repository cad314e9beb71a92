/* Memory that calls give out again and again. What a call gives is a new tensor around the storage, by torch's own
 * interface, so to autograd it is new; whether it lives still, or a view of it, or anything that keeps it, is what torch
 * counts in the storage. Somebody may also give the storage other memory (`resize_`): then it is never idle again.
 */
#include "recording.h"

#include <stddef.h>
#include <string.h>

static bool is_intact(const Place *place) {
    return memcmp(place->storage + HOLDERS_FACTS, place->facts, HOLDERS_FACT_BYTES) == 0;
}

bool place_idle(const Place *place) {
    return place->claims == 0 && holders_of(place->storage) == holders_word((uint64_t)place->count) && is_intact(place);
}

TensorHandle place_view(const Place *place, int dtype, int64_t dimensions, const int64_t *extents, int64_t offset) {
    TensorHandle made = NULL;
    for (Py_ssize_t i = 0; i < place->count; i++) {
        if (place->keepers[i].dtype != dtype) continue;
        bool failed = shim_get()->view(place->keepers[i].handle, dimensions, extents, extents + dimensions, offset,
                                       &made) != 0;
        return failed ? NULL : made;
    }
    return NULL;
}

/* One more keeper, unless there is one of its dtype; 0 or -1 with an exception. */
static int add_keeper(Place *self, PyObject *tensor) {
    TensorView view;
    int64_t offset, one = 1;
    if (!tensor_check(tensor)) {
        PyErr_Format(PyExc_TypeError, "a place is of tensors, not %s", Py_TYPE(tensor)->tp_name);
        return -1;
    }
    const char *storage = (const char *)tensor_storage_behind(shim_handle(tensor));
    if (self->storage != NULL && storage != self->storage) {
        PyErr_SetString(PyExc_ValueError, "the tensors of a place have one storage");
        return -1;
    }
    self->storage = storage;
    if (tensor_view(tensor, &view) < 0 || tensor_offset(tensor, &offset) < 0) return -1;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->keepers[i].dtype == view.dtype) return 0;
    }
    if (self->count == PLACE_DTYPES) {
        PyErr_Format(PyExc_ValueError, "a place is given out in %d dtypes at most", PLACE_DTYPES);
        return -1;
    }
    TensorHandle keeper;
    if (shim_get()->view(shim_handle(tensor), 1, &one, &one, -offset, &keeper) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch does not make a view at the beginning of a storage");
        return -1;
    }
    self->keepers[self->count].dtype = view.dtype;
    self->keepers[self->count++].handle = keeper;
    return 0;
}

static PyObject *place_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (tensor_prepare() < 0 || holders_prepare() < 0) return NULL;
    if (!tensor_raw() || shim_get() == NULL || !holders_known()) {
        PyErr_SetString(PyExc_NotImplementedError, "torch does not count who holds memory as is known here");
        return NULL;
    }
    if ((keywords != NULL && PyDict_GET_SIZE(keywords) > 0) || PyTuple_GET_SIZE(args) == 0) {
        PyErr_SetString(PyExc_TypeError, "Place(tensor, ...)");
        return NULL;
    }
    Place *self = (Place *)type->tp_alloc(type, 0);
    for (Py_ssize_t i = 0; self != NULL && i < PyTuple_GET_SIZE(args); i++) {
        if (add_keeper(self, PyTuple_GET_ITEM(args, i)) < 0) Py_CLEAR(self);
    }
    if (self == NULL) return NULL;
    memcpy(self->facts, self->storage + HOLDERS_FACTS, HOLDERS_FACT_BYTES);
    if (shim_get()->storage_bytes(self->keepers[0].handle, &self->nbytes) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch does not tell the size of a storage");
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void place_dealloc(PyObject *object) {
    Place *self = (Place *)object;
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs(object);
    Py_XDECREF(self->users);
    for (Py_ssize_t i = 0; i < self->count; i++) shim_get()->release(self->keepers[i].handle);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_idle(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(place_idle((Place *)self));
}

static PyObject *get_intact(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(is_intact((Place *)self));
}

static PyObject *get_address(PyObject *self, void *ignored) {
    (void)ignored;
    return PyLong_FromVoidPtr(holders_memory(((Place *)self)->storage));
}

static PyObject *get_storage(PyObject *self, void *ignored) {
    (void)ignored;
    return PyLong_FromVoidPtr((void *)((Place *)self)->storage);
}

static PyObject *get_nbytes(PyObject *self, void *ignored) {
    (void)ignored;
    return PyLong_FromLongLong(((Place *)self)->nbytes);
}

/* tensor(dtype, size, stride, offset): one of it; offset in elements from its beginning. */
static PyObject *place_tensor(PyObject *object, PyObject *args) {
    PyObject *dtype, *size, *stride;
    long long offset;
    if (!PyArg_ParseTuple(args, "OO!O!L:tensor", &dtype, &PyTuple_Type, &size, &PyTuple_Type, &stride, &offset)) {
        return NULL;
    }
    Py_ssize_t dimensions = PyTuple_GET_SIZE(size);
    int64_t extents[2 * MAX_DIMENSIONS];
    if (dimensions > MAX_DIMENSIONS || PyTuple_GET_SIZE(stride) != dimensions) {
        PyErr_SetString(PyExc_ValueError, "a tensor has a stride for each size");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < dimensions; i++) {
        extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(size, i));
        extents[dimensions + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride, i));
    }
    int number = PyErr_Occurred() ? -1 : dtype_number(dtype);
    if (number < 0) return NULL;
    TensorHandle made = place_view((Place *)object, number, dimensions, extents, offset);
    if (made == NULL) {
        PyErr_SetString(PyExc_ValueError, "the place is not given out as such a tensor");
        return NULL;
    }
    PyObject *tensor = shim_get()->wrap(made);
    shim_get()->release(made);
    return tensor;
}

/* use(stream): a tensor of it is used on another stream; who writes it next waits for what is queued there by then. */
static PyObject *place_use(PyObject *object, PyObject *stream) {
    Place *self = (Place *)object;
    if (self->users == NULL && (self->users = PyList_New(0)) == NULL) return NULL;
    if (PyList_Append(self->users, stream) < 0) return NULL;
    Py_RETURN_NONE;
}

/* storage_of(tensor): a number that tensors of one storage have in common, and no other. */
PyObject *native_storage_of(PyObject *module, PyObject *tensor) {
    (void)module;
    uintptr_t storage;
    if (tensor_prepare() < 0) return NULL;
    if (!tensor_check(tensor)) {
        PyErr_SetString(PyExc_TypeError, "storage_of(tensor)");
        return NULL;
    }
    return tensor_storage(tensor, &storage) < 0 ? NULL : PyLong_FromUnsignedLongLong(storage);
}

static PyGetSetDef place_properties[] = {
    {"idle", get_idle, NULL, "whether nobody has a tensor of it", NULL},
    {"intact", get_intact, NULL, "whether its memory is where it was", NULL},
    {"storage", get_storage, NULL, "what `storage_of` gives for its tensors", NULL},
    {"nbytes", get_nbytes, NULL, "the bytes of its storage", NULL},
    {"address", get_address, NULL, "where its memory begins", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef place_methods[] = {
    {"tensor", place_tensor, METH_VARARGS, "tensor(dtype, size, stride, offset): a tensor in it."},
    {"use", place_use, METH_O, "use(stream): who writes it next waits for that stream."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Place_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Place",
    .tp_doc = "Place(tensor, ...): memory that recordings write; the tensors have one storage and differ in dtype.",
    .tp_basicsize = sizeof(Place),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = place_new,
    .tp_dealloc = place_dealloc,
    .tp_weaklistoffset = offsetof(Place, weakrefs),
    .tp_getset = place_properties,
    .tp_methods = place_methods,
};
