/* A graph whose calls are recorded: it takes a list of inputs, which it empties, and gives a tuple, like the graph.
 *
 * The first of its recordings that fits and may write its memory is replayed; where there is none, `decide` says what happens. While
 * the stream is being captured by somebody else, the graph itself runs: what it queues is theirs to replay.
 */
#include "recording.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *call;       /* the graph */
    PyObject *decide;     /* (inputs, stream) -> results */
    PyObject *recordings; /* a list, which `decide` fills */
    Driver driver;
    int32_t device;
} Recorded;

/* Gives its own reference. */
static PyObject *find(const Recorded *self, PyObject *inputs, const void *stream) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->recordings); i++) {
        PyObject *recording = PyList_GET_ITEM(self->recordings, i);
        if (!Py_IS_TYPE(recording, &Recording_Type)) continue;
        if (recording_fits(recording, inputs, stream) && recording_idle(recording) && recording_alone(recording, inputs)) {
            return Py_NewRef(recording);
        }
    }
    return NULL;
}

static PyObject *call_inputs(const Recorded *self, PyObject *inputs) {
    void *stream = NULL;
    int capturing = 0;
    if (self->driver.stream(self->device, &stream) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch does not tell the current stream");
        return NULL;
    }
    if (self->driver.is_capturing(stream, &capturing) != 0 || capturing != 0) {
        return PyObject_CallOneArg(self->call, inputs);
    }
    PyObject *recording = find(self, inputs, stream), *result;
    if (recording != NULL) {
        result = recording_replay(recording, inputs);
        Py_DECREF(recording);
        if (result != Py_None) return result;
        Py_DECREF(result);
    }
    PyObject *number = PyLong_FromVoidPtr(stream);
    result = number ? PyObject_CallFunctionObjArgs(self->decide, inputs, number, NULL) : NULL;
    Py_XDECREF(number);
    return result;
}

static PyObject *recorded_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    if (PyVectorcall_NARGS(flags) != 1 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) ||
        !PyList_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a compiled graph takes a list of its inputs");
        return NULL;
    }
    Recorded *self = (Recorded *)callable;
    Py_INCREF(self); /* what runs inside may drop it */
    PyObject *result = call_inputs(self, args[0]);
    Py_DECREF(self);
    return result;
}

static PyObject *recorded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"call", "decide", "recordings", "driver", "device", NULL};
    PyObject *call, *decide, *recordings, *driver;
    Driver read;
    int device;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO!O!i:Recorded", names, &call, &decide, &PyList_Type, &recordings,
                                     &PyTuple_Type, &driver, &device)) {
        return NULL;
    }
    if (tensor_prepare() < 0 || driver_read(driver, &read) < 0) return NULL;
    Recorded *self = (Recorded *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->call = Py_NewRef(call);
    self->decide = Py_NewRef(decide);
    self->recordings = Py_NewRef(recordings);
    self->driver = read;
    self->device = device;
    self->vectorcall = recorded_call;
    return (PyObject *)self;
}

static int recorded_traverse(PyObject *object, visitproc visit, void *arg) {
    Recorded *self = (Recorded *)object;
    Py_VISIT(self->call);
    Py_VISIT(self->decide);
    Py_VISIT(self->recordings);
    return 0;
}

/* Without a tp_clear, like a Plan. */
static void recorded_dealloc(PyObject *object) {
    Recorded *self = (Recorded *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->recordings);
    Py_XDECREF(self->decide);
    Py_XDECREF(self->call);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef recorded_members[] = {
    {"call", Py_T_OBJECT_EX, offsetof(Recorded, call), Py_READONLY, "the graph"},
    {"decide", Py_T_OBJECT_EX, offsetof(Recorded, decide), Py_READONLY, "what becomes of other calls"},
    {"recordings", Py_T_OBJECT_EX, offsetof(Recorded, recordings), Py_READONLY, "its recordings"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Recorded_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Recorded",
    .tp_doc = "Recorded(call, decide, recordings, driver, device): a graph whose calls are recorded.",
    .tp_basicsize = sizeof(Recorded),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = recorded_new,
    .tp_dealloc = recorded_dealloc,
    .tp_traverse = recorded_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Recorded, vectorcall),
    .tp_members = recorded_members,
};
