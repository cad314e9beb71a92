/* The checks of guards: one fact each about a value. guards.c reaches the values. */
#include "guards.h"

#include <string.h>

/* The keys or items in order, as a new list. */
PyObject *stored_items(PyObject *value) {
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value) || Py_TYPE(value) == &PyODict_Type) {
        return PySequence_List(value);
    }
    getiterfunc own = PyODict_Check(value)   ? PyODict_Type.tp_iter
                      : PyDict_Check(value)  ? PyDict_Type.tp_iter
                      : PyList_Check(value)  ? PyList_Type.tp_iter
                      : PyTuple_Check(value) ? PyTuple_Type.tp_iter
                                             : NULL;
    if (own == NULL) return PySequence_List(value);
    PyObject *iterator = own(value);
    PyObject *items = iterator ? PySequence_List(iterator) : NULL;
    Py_XDECREF(iterator);
    return items;
}

Py_ssize_t stored_length(PyObject *value) {
    if (PyDict_Check(value)) return ((PyDictObject *)value)->ma_used;
    if (PyList_Check(value) || PyTuple_Check(value)) return Py_SIZE(value);
    if (PyAnySet_Check(value)) return PySet_GET_SIZE(value);
    return PyObject_Size(value);
}

static bool same_float(double a, double b) {
    return memcmp(&a, &b, sizeof(a)) == 0 || (a != a && b != b);
}

int same_constant(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    if (Py_TYPE(a) != Py_TYPE(b)) return 0;
    if (PyFloat_CheckExact(a)) return same_float(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return same_float(x.real, y.real) && same_float(x.imag, y.imag);
    }
    if (PyTuple_Check(a)) {
        Py_ssize_t size = PyTuple_GET_SIZE(a);
        int same = PyTuple_GET_SIZE(b) == size;
        for (Py_ssize_t i = 0; i < size && same == 1; i++) {
            same = same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return same;
    }
    if (PySlice_Check(a)) {
        PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
        return same_constant(x->start, y->start) == 1 && same_constant(x->stop, y->stop) == 1 &&
               same_constant(x->step, y->step) == 1;
    }
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

/* As dicts tell keys apart: what is not equal to itself, and whatever is no number, text or device, by identity. */
static int same_key(PyObject *expected, PyObject *key) {
    if (expected == key) return 1;
    if (PyFloat_CheckExact(key) && Py_IS_NAN(PyFloat_AS_DOUBLE(key))) return 0;
    if (PyTuple_CheckExact(key) && PyTuple_CheckExact(expected)) {
        Py_ssize_t size = PyTuple_GET_SIZE(key);
        int same = PyTuple_GET_SIZE(expected) == size;
        for (Py_ssize_t i = 0; i < size && same == 1; i++) {
            same = same_key(PyTuple_GET_ITEM(expected, i), PyTuple_GET_ITEM(key, i));
        }
        return same;
    }
    bool literal = PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyFloat_CheckExact(key) ||
                   PyBytes_CheckExact(key) || (PyObject *)Py_TYPE(key) == guard_names.device_class;
    return literal ? same_constant(expected, key) : 0;
}

static int same_keys(PyObject *expected, PyObject *value) {
    Py_ssize_t count = PyTuple_GET_SIZE(expected), index = 0, position = 0;
    if (PyDict_CheckExact(value)) {
        PyObject *key;
        int same = PyDict_GET_SIZE(value) == count;
        while (same == 1 && index < count && PyDict_Next(value, &position, &key, NULL)) {
            same = same_key(PyTuple_GET_ITEM(expected, index++), key);
        }
        return same;
    }
    PyObject *keys = stored_items(value);
    if (keys == NULL) return -1;
    int same = PyList_GET_SIZE(keys) == count;
    for (; same == 1 && index < count; index++) {
        same = same_key(PyTuple_GET_ITEM(expected, index), PyList_GET_ITEM(keys, index));
    }
    Py_DECREF(keys);
    return same;
}

static int has_key(PyObject *key, PyObject *value) {
    return PyDict_Check(value) ? PyDict_Contains(value, key) : PySequence_Contains(value, key);
}

/* -- one function a check ------------------------------------------------------------------------------ */

static int check_type(Check *check, PyObject *value) { return (PyObject *)Py_TYPE(value) == check->payload; }

static int check_identity(Check *check, PyObject *value) { return value == check->payload; }

static int check_constant(Check *check, PyObject *value) { return same_constant(check->payload, value); }

static int check_code(Check *check, PyObject *value) {
    return PyFunction_Check(value) && PyFunction_GET_CODE(value) == check->payload;
}

static int check_length(Check *check, PyObject *value) {
    Py_ssize_t length = stored_length(value);
    return length < 0 ? -1 : length == check->number;
}

static int check_tensor(Check *check, PyObject *value) { return tensor_matches(value, check->tensor); }

static int check_keys(Check *check, PyObject *value) { return same_keys(check->payload, value); }

/* Equal sets may hold 1 or True, and give their items in different orders. */
static int check_members(Check *check, PyObject *value) {
    return PyAnySet_CheckExact(value) ? same_keys(check->payload, value) : 0;
}

static int check_present(Check *check, PyObject *value) { return has_key(check->payload, value); }

static int check_absent(Check *check, PyObject *value) {
    int found = has_key(check->payload, value);
    return found < 0 ? found : !found;
}

/* Whether a class and its bases have no attribute of that name; the version of a class says when to ask again. */
static int check_lacks(Check *check, PyObject *value) {
    if (!PyType_Check(value)) return 0;
    PyTypeObject *type = (PyTypeObject *)value;
    if (check->tag != 0 && check->tag == type->tp_version_tag) return 1;
    if (_PyType_Lookup(type, check->payload) != NULL) return 0;
    check->tag = type->tp_version_tag;
    return 1;
}

/* Whether a class has just these bases, in this order. */
static int check_bases(Check *check, PyObject *value) {
    PyObject *expected = check->payload;
    PyObject *mro = PyType_Check(value) ? ((PyTypeObject *)value)->tp_mro : NULL;
    if (mro == NULL || PyTuple_GET_SIZE(mro) != PyTuple_GET_SIZE(expected)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); i++) {
        if (PyTuple_GET_ITEM(mro, i) != PyTuple_GET_ITEM(expected, i)) return 0;
    }
    return 1;
}

/* Whether these items of a dict are empty dicts: the hooks of a module. */
static int check_empty(Check *check, PyObject *value) {
    if (!PyDict_CheckExact(value)) return 0;
    EmptyMemo *memo = check->memo;
    uint64_t version = dict_version(value);
    if (version == 0 || memo->dict != value || memo->version != version) {
        memo->dict = NULL;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check->payload); i++) {
            memo->items[i] = PyDict_GetItemWithError(value, PyTuple_GET_ITEM(check->payload, i));
            if (memo->items[i] == NULL || !PyDict_Check(memo->items[i])) return PyErr_Occurred() ? -1 : 0;
        }
        memo->dict = value;
        memo->version = version;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check->payload); i++) {
        if (((PyDictObject *)memo->items[i])->ma_used != 0) return 0;
    }
    return 1;
}

int same_result(PyObject *payload, PyObject *value) {
    PyObject *function = PyTuple_GET_ITEM(payload, 0);
    PyObject *result = value ? PyObject_CallOneArg(function, value) : PyObject_CallNoArgs(function);
    if (result == NULL) return -1;
    int same = same_constant(PyTuple_GET_ITEM(payload, 1), result);
    Py_DECREF(result);
    return same;
}

static int check_call(Check *check, PyObject *value) { return same_result(check->payload, value); }

/* What cannot be read here as a number is asked of Python: (reader, expected) comes last. */
static int check_state(Check *check, PyObject *value) {
    (void)value;
    uint64_t found;
    if (check->number < 0) return same_result(PyTuple_GET_ITEM(check->payload, 2), NULL);
    return state_read((int)check->number, &found) && found == check->expected;
}

#define RUN(kind, cost, payload, holds, ...)                                                                           \
    case CHECK_##kind: return check_##holds(check, value);

int run_check(Check *check, PyObject *value) {
    switch (check->kind) { VALUE_GUARDS(RUN) }
    Py_UNREACHABLE();
}
