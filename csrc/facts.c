/* What is known of a tensor, as functions of the module: for tests, and for code that compares geometries. */
#include "native.h"

static int require_tensor(PyObject *object) {
    if (tensor_prepare() < 0) return -1;
    if (tensor_check(object)) return 0;
    PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %s", Py_TYPE(object)->tp_name);
    return -1;
}

PyObject *native_tensor_facts(PyObject *module, PyObject *tensor) {
    (void)module;
    TensorView view;
    if (require_tensor(tensor) < 0 || tensor_view(tensor, &view) < 0) return NULL;
    PyObject *sizes = tensor_integers(view.sizes, view.dimensions);
    PyObject *strides = tensor_integers(view.strides, view.dimensions);
    PyObject *facts = NULL;
    if (sizes && strides) {
        facts = Py_BuildValue("(OOiiKO)", sizes, strides, view.dtype, view.device, (unsigned long long)view.keys,
                              view.requires_grad ? Py_True : Py_False);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return facts;
}

PyObject *native_tensor_access(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    if (tensor_prepare() < 0) return NULL;
    return PyUnicode_FromString(tensor_raw() ? "raw" : "python");
}

static bool same_integers(PyObject *expected, const int64_t *actual, int64_t count) {
    if (!PyTuple_Check(expected) || PyTuple_GET_SIZE(expected) != count) return false;
    for (int64_t i = 0; i < count; i++) {
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(expected, i)) != actual[i]) return false;
    }
    return true;
}

PyObject *native_matches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "matches(tensor, size, stride, dtype)");
        return NULL;
    }
    TensorView view;
    if (require_tensor(args[0]) < 0 || tensor_view(args[0], &view) < 0) return NULL;
    int number = dtype_number(args[3]);
    if (number < 0) return NULL;
    bool same = view.dtype == number && same_integers(args[1], view.sizes, view.dimensions) &&
                same_integers(args[2], view.strides, view.dimensions);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(same);
}
