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

/* Whether so many tensors of it are left beside our own, and none of what lies over it. */
static bool is_left_to(const Place *place, Py_ssize_t tensors) {
    uint64_t expected = holders_word((uint64_t)(place->count + place->over_count + tensors));
    if (place->claims != 0 || holders_of(place->storage) != expected || !is_intact(place)) return false;
    for (const Place *over = place->over; over != NULL; over = over->next) {
        if (!place_idle(over)) return false;
    }
    return true;
}

bool place_idle(const Place *place) { return is_left_to(place, 0); }

/* Whether an object of Python is held once, and the tensor behind it by nothing else. */
static bool is_held_once(PyObject *tensor) {
    Py_ssize_t weak = Py_TYPE(tensor)->tp_weaklistoffset;
    if (weak > 0 && *(PyObject **)((char *)tensor + weak) != NULL) return false;
    const char *impl = *(const char *const *)shim_handle(tensor);
    return Py_REFCNT(tensor) == 1 && holders_of(impl) == holders_word_of_tensor();
}

bool place_only_in(const Place *place, PyObject *list, const int64_t *numbers, Py_ssize_t count) {
    if (!is_left_to(place, count)) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PyList_GET_ITEM(list, numbers[i]);
        if (!tensor_check(tensor)) return false;
        const char *storage = (const char *)tensor_storage_behind(shim_handle(tensor));
        if (storage != place->storage || !is_held_once(tensor)) return false;
    }
    return true;
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

/* From now on the memory is of a base, which its storage has one tensor of. */
static void join_base(Place *self, Place *base) {
    self->lies_over = true;
    self->base = base;
    self->next = base->over;
    base->over = self;
    base->over_count++;
}

static void leave_base(Place *self) {
    if (self->base == NULL) return;
    Place **link = &self->base->over;
    while (*link != self) link = &(*link)->next;
    *link = self->next;
    self->base->over_count--;
    self->base = NULL;
}

static void place_dealloc(PyObject *object) {
    Place *self = (Place *)object;
    leave_base(self);
    while (self->over != NULL) leave_base(self->over);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs(object);
    Py_XDECREF(self->users);
    for (Py_ssize_t i = 0; i < self->count; i++) shim_get()->release(self->keepers[i].handle);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_idle(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(place_idle((Place *)self));
}

static PyObject *get_base(PyObject *self, void *ignored) {
    (void)ignored;
    Place *base = ((Place *)self)->base;
    return Py_NewRef(base ? (PyObject *)base : Py_None);
}

static PyObject *get_lies_over(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(((Place *)self)->lies_over);
}

static PyObject *get_covered(PyObject *self, void *ignored) {
    (void)ignored;
    for (const Place *over = ((Place *)self)->over; over != NULL; over = over->next) {
        if (!place_idle(over)) Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
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

/* lie_over(base): it lies in the memory of this place, and its storage has one tensor of it. */
static PyObject *place_lie_over(PyObject *object, PyObject *other) {
    Place *self = (Place *)object, *base = (Place *)other;
    if (!Py_IS_TYPE(other, &Place_Type) || self->lies_over || base->lies_over || self->over != NULL) {
        PyErr_SetString(PyExc_TypeError, "a place lies over one other, over which there is nothing below");
        return NULL;
    }
    const char *begin = holders_memory(self->storage), *first = holders_memory(base->storage);
    if (begin < first || begin + self->nbytes > first + base->nbytes || self->storage == base->storage) {
        PyErr_SetString(PyExc_ValueError, "a place lies in the memory of its base, with a storage of its own");
        return NULL;
    }
    join_base(self, base);
    Py_RETURN_NONE;
}

/* only_in(list, numbers): whether it would be idle without the tensors there, which nobody else has. */
static PyObject *place_is_only_in(PyObject *object, PyObject *args) {
    PyObject *list, *numbers;
    if (!PyArg_ParseTuple(args, "O!O!:only_in", &PyList_Type, &list, &PyTuple_Type, &numbers)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    int64_t read[count + 1];
    for (Py_ssize_t i = 0; i < count; i++) {
        read[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
        if (read[i] == -1 && PyErr_Occurred()) return NULL;
        bool found = read[i] >= (i > 0 ? read[i - 1] + 1 : 0) && read[i] < PyList_GET_SIZE(list);
        if (!found || !tensor_check(PyList_GET_ITEM(list, read[i]))) {
            PyErr_SetString(PyExc_ValueError, "only_in(list, numbers of tensors in it, in order)");
            return NULL;
        }
    }
    return PyBool_FromLong(place_only_in((Place *)object, list, read, count));
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
    {"base", get_base, NULL, "the place that it lies over; None where there is none, or it is gone", NULL},
    {"lies_over", get_lies_over, NULL, "whether its memory is that of another place, or was", NULL},
    {"covered", get_covered, NULL, "whether somebody has a tensor of what lies over it", NULL},
    {"intact", get_intact, NULL, "whether its memory is where it was", NULL},
    {"storage", get_storage, NULL, "what `storage_of` gives for its tensors", NULL},
    {"nbytes", get_nbytes, NULL, "the bytes of its storage", NULL},
    {"address", get_address, NULL, "where its memory begins", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef place_methods[] = {
    {"tensor", place_tensor, METH_VARARGS, "tensor(dtype, size, stride, offset): a tensor in it."},
    {"lie_over", place_lie_over, METH_O, "lie_over(base): its storage has one tensor of this place, whose memory it is."},
    {"only_in", place_is_only_in, METH_VARARGS,
     "only_in(list, numbers): whether it would be idle without the tensors there, which nobody else has."},
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
