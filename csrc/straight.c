/* An entry that is a graph and no more: it takes parameters, or items of *args, and gives what the graph gives.
 *
 * The dispatcher runs it without the frame of the entry's code, which does the same: what is called with how many of what
 * is all that the code says. The code stays, for whoever traces or profiles, and wherever frames below are captured.
 */
#include "native.h"

#include <stddef.h>

typedef struct {
    Py_ssize_t parameter, item; /* a slot; what it holds, or an item of that tuple from 0 on */
} Place;

typedef struct {
    PyObject_VAR_HEAD
    PyObject *graph;    /* from tensors to a tuple */
    PyObject *recovery; /* (error, *tensors): raises what becomes of the call, see capture/recovery.py; or None */
    Py_ssize_t results; /* that the graph gives */
    Py_ssize_t result;  /* which of them the entry gives, -1: the tuple of all */
    Place places[];
} Straight;

#define WHOLE (-1)

/* With the exception that is set, or another one. */
static void recover(Straight *self, PyObject *const *given) {
    if (self->recovery == Py_None) return;
    PyObject *error = take_exception(), *args[Py_SIZE(self) + 1];
    args[0] = error;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) args[i + 1] = given[i];
    PyObject *result = PyObject_Vectorcall(self->recovery, args, (size_t)Py_SIZE(self) + 1, NULL);
    if (result != NULL) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_SystemError, "what follows an error of a graph did not raise");
    }
    Py_XDECREF(error);
}

PyObject *straight_call(PyObject *straight, PyObject *const *slots, Py_ssize_t count) {
    Straight *self = (Straight *)straight;
    PyObject *given[Py_SIZE(self) + 1];
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const Place *place = &self->places[i];
        PyObject *held = place->parameter < count ? slots[place->parameter] : NULL;
        bool fits = held && (place->item == WHOLE || (PyTuple_Check(held) && place->item < PyTuple_GET_SIZE(held)));
        if (!fits) {
            PyErr_SetString(PyExc_SystemError, "an entry takes what its guards have not seen");
            return NULL;
        }
        given[i] = place->item == WHOLE ? held : PyTuple_GET_ITEM(held, place->item);
    }
    PyObject *results = PyObject_Vectorcall(self->graph, given, (size_t)Py_SIZE(self), NULL);
    if (results == NULL) return recover(self, given), NULL;
    if (!PyTuple_CheckExact(results) || PyTuple_GET_SIZE(results) != self->results) {
        PyErr_SetString(PyExc_SystemError, "a graph did not give the results that it has");
        Py_CLEAR(results);
    }
    if (results == NULL || self->result == WHOLE) return results;
    PyObject *result = Py_NewRef(PyTuple_GET_ITEM(results, self->result));
    Py_DECREF(results);
    return result;
}

static PyObject *straight_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"graph", "recovery", "places", "results", "result", NULL};
    PyObject *graph, *recovery, *places;
    Py_ssize_t results, result;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO!nn:Straight", names, &graph, &recovery, &PyTuple_Type, &places,
                                     &results, &result)) {
        return NULL;
    }
    if (result < WHOLE || result >= results) {
        PyErr_SetString(PyExc_ValueError, "there is no such result");
        return NULL;
    }
    Straight *self = (Straight *)type->tp_alloc(type, PyTuple_GET_SIZE(places));
    if (self == NULL) return NULL;
    self->graph = Py_NewRef(graph);
    self->recovery = Py_NewRef(recovery);
    self->results = results;
    self->result = result;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        Place *place = &self->places[i];
        bool read = PyArg_ParseTuple(PyTuple_GET_ITEM(places, i), "nn:place", &place->parameter, &place->item);
        if (read && place->parameter >= 0 && place->item >= WHOLE) continue;
        if (read) PyErr_SetString(PyExc_ValueError, "a place is a parameter and WHOLE or an item of it");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int straight_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(((Straight *)object)->graph);
    Py_VISIT(((Straight *)object)->recovery);
    return 0;
}

/* Without a tp_clear, like a Plan. */
static void straight_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    Py_XDECREF(((Straight *)object)->graph);
    Py_XDECREF(((Straight *)object)->recovery);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject Straight_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Straight",
    .tp_doc = "Straight(graph, recovery, places, results, result): an entry that is a graph and no more.",
    .tp_basicsize = sizeof(Straight),
    .tp_itemsize = sizeof(Place),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = straight_new,
    .tp_dealloc = straight_dealloc,
    .tp_traverse = straight_traverse,
};
