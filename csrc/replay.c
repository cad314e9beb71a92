/* What happens when compiled code has raised RunOriginal: nothing has happened yet, so the original runs instead.
 *
 * The exception carries an object of capture/recovery.py, or nothing. It is told before the original runs (`begin`), and
 * afterwards (`end`) what that raised, if it did: compiled code that fails where the original does not is a fault, which
 * `end` tells the user, or raises. Called from here, so that no frame of ours stands in the tracebacks of the original.
 */
#include "native.h"

PyObject *run_original;

PyObject *replay_begin(void) {
    PyObject *error = take_exception(), *replay = NULL;
    if (error != NULL && PyErr_GivenExceptionMatches(error, run_original)) {
        PyObject *args = ((PyBaseExceptionObject *)error)->args;
        replay = Py_NewRef(PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : Py_None);
        Py_DECREF(error);
    } else {
        restore_exception(error);
    }
    return replay != NULL && replay != Py_None ? replay_start(replay) : replay;
}

PyObject *replay_start(PyObject *replay) {
    PyObject *begun = PyObject_CallMethod(replay, "begin", NULL);
    if (begun == NULL) Py_CLEAR(replay);
    Py_XDECREF(begun);
    return replay;
}

PyObject *replay_end(PyObject *replay, PyObject *result) {
    if (replay != Py_None) {
        PyObject *error = take_exception();
        PyObject *ended = PyObject_CallMethod(replay, "end", "O", result == NULL ? error : Py_None);
        if (ended == NULL) {
            Py_CLEAR(result);
            Py_XDECREF(error);
        } else {
            restore_exception(error);
        }
        Py_XDECREF(ended);
    }
    Py_DECREF(replay);
    return result;
}

int replay_register(PyObject *module) {
    if (run_original == NULL) {
        run_original = PyErr_NewException("stator._native.RunOriginal", PyExc_BaseException, NULL);
        if (run_original == NULL) return -1;
    }
    return PyModule_AddObjectRef(module, "RunOriginal", run_original);
}
