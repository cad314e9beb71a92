/* One recording: what its inputs have to be, where its results lie, and its replay without a frame of Python.
 *
 * An input is read where it was when the call was recorded (`fixed`), or is copied to memory of the recording first
 * (`copied`), and what is written to it is copied back. Results are tensors in places, which are idle before each replay;
 * of those in the `copies`, a call gives fresh memory with a copy, so that these are always idle. All copies are steps of
 * the graph: telling it where one begins or ends takes a quarter of the time of queueing a copy.
 */
#include "recording_fields.h"

#include <string.h>

/* -- whether it fits ---------------------------------------------------------------------------------- */

static bool geometry_fits(const Input *input, PyObject *tensor) {
    TensorView view;
    if (tensor_view(tensor, &view) < 0) return PyErr_Clear(), false;
    size_t bytes = (size_t)view.dimensions * sizeof(int64_t);
    return view.dimensions == input->dimensions && memcmp(view.sizes, input->extents, bytes) == 0 &&
           memcmp(view.strides, input->extents + view.dimensions, bytes) == 0;
}

static bool input_fits(const Input *input, PyObject *given) {
    if (input->kind == INPUT_NUMBER) {
        int overflow;
        long long number = PyLong_Check(given) ? PyLong_AsLongLongAndOverflow(given, &overflow) : 0;
        return PyLong_Check(given) && !overflow && number == input->number;
    }
    if (Py_TYPE(given) != input->type && !tensor_check(given)) return false;
    if (input->dimensions >= 0 && !geometry_fits(input, given)) return false;
    return input->kind != INPUT_FIXED || tensor_begin(given, input->item) == input->address;
}

bool recording_fits(PyObject *recording, PyObject *inputs, const void *stream) {
    const Recording *self = (Recording *)recording;
    if (self->stream != stream || PyList_GET_SIZE(inputs) != self->input_count) return false;
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        if (!input_fits(&self->inputs[i], PyList_GET_ITEM(inputs, i))) return false;
    }
    return true;
}

bool recording_idle(PyObject *recording) {
    const Recording *self = (Recording *)recording;
    if (self->running) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->places); i++) {
        if (!place_idle((Place *)PyTuple_GET_ITEM(self->places, i))) return false;
    }
    return true;
}

bool recording_alone(PyObject *recording, PyObject *inputs) {
    const Recording *self = (Recording *)recording;
    for (Py_ssize_t i = 0; i < self->overlay_count; i++) {
        const Overlay *overlay = &self->overlays[i];
        const Place *base = ((Place *)PyTuple_GET_ITEM(self->places, overlay->place))->base;
        if (base == NULL || !place_only_in(base, inputs, overlay->inputs, overlay->count)) return false;
    }
    return true;
}

/* -- a replay ----------------------------------------------------------------------------------------- */

static int refused(int status, const char *where) {
    if (status != 0) PyErr_Format(PyExc_RuntimeError, "CUDA error %d where %s", status, where);
    return status != 0 ? -1 : 0;
}

enum { DEVICE_MEMORY = 2, INVALID_VALUE = 1 };

static int try_copy(const Recording *self, void *node, const void *to, const void *from, int64_t nbytes) {
    DriverCopy copy = {.from_type = DEVICE_MEMORY, .from = (uint64_t)(uintptr_t)from, .to_type = DEVICE_MEMORY,
                       .to = (uint64_t)(uintptr_t)to, .width = (size_t)nbytes, .height = 1, .depth = 1};
    return self->driver.set_copy(self->executable, node, &copy, self->context);
}

static int set_copy(const Recording *self, void *node, const void *to, const void *from, int64_t nbytes) {
    return refused(try_copy(self, node, to, from, nbytes), "a copy was moved");
}

/* Tells the steps that copy inputs where these are; -1 with an exception, or without one where an input's memory is of
 * another kind than what the step was made with (mapped, for example): the recording does not take such calls. */
static int set_inputs(Recording *self, PyObject *inputs) {
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        Input *input = &self->inputs[i];
        if (input->node == NULL) continue;
        void *data = tensor_begin(PyList_GET_ITEM(inputs, i), input->item);
        if (data == input->from) continue;
        input->from = NULL; /* unless all of it succeeds */
        int status = try_copy(self, input->node, input->address, data, input->number);
        if (status == 0 && input->back) status = try_copy(self, input->back, data, input->address, input->number);
        self->refused = self->refused || status == INVALID_VALUE;
        if (status == INVALID_VALUE || refused(status, "a copy was moved") < 0) return -1;
        input->from = data;
    }
    return 0;
}

/* Without the GIL: where the device has too much to do a launch waits, maybe for what another thread has to queue. */
static int launch_executable(const Recording *self) {
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = self->driver.launch(self->executable, self->stream);
    Py_END_ALLOW_THREADS
    return refused(status, "a recorded graph was launched");
}

static int launch(const Recording *self) {
    if (self->replay == NULL) return launch_executable(self);
    PyObject *done = PyObject_CallNoArgs(self->replay);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Fresh memory that a step copies a place to. */
static TensorHandle make_copy(const Recording *self, const Copy *copy) {
    static const int64_t one = 1;
    const Place *place = (Place *)PyTuple_GET_ITEM(self->places, copy->place);
    TensorHandle made = NULL;
    void *data;
    const Shim *shim = shim_get();
    int dtype = place->keepers[0].dtype;
    if (shim->make(1, &copy->elements, &one, dtype, self->device_type, self->device, &made) != 0 ||
        shim->address(made, &data) != 0) {
        PyErr_SetString(PyExc_MemoryError, "there is no memory for a result of a recorded graph");
        return NULL;
    }
    if (copy->node == NULL || set_copy(self, copy->node, data, holders_memory(place->storage), place->nbytes) == 0) {
        return made;
    }
    shim->release(made);
    return NULL;
}

static int make_copies(const Recording *self, TensorHandle *fresh) {
    for (Py_ssize_t i = 0; i < self->copy_count; i++) {
        if ((fresh[i] = make_copy(self, &self->copies[i])) == NULL) return -1;
    }
    return 0;
}

static PyObject *wrap(TensorHandle made) {
    if (made == NULL) {
        PyErr_SetString(PyExc_SystemError, "torch does not make a result of a recorded graph");
        return NULL;
    }
    PyObject *tensor = shim_get()->wrap(made);
    shim_get()->release(made);
    return tensor;
}

static PyObject *make_result(const Recording *self, const Result *result, PyObject *inputs, PyObject *results,
                             TensorHandle *fresh) {
    const int64_t *extents = result->extents, *strides = extents + result->dimensions;
    TensorHandle made = NULL, from;
    switch (result->kind) {
    case RESULT_CONSTANT: return Py_NewRef(result->constant);
    case RESULT_INPUT: return Py_NewRef(PyList_GET_ITEM(inputs, result->index));
    case RESULT_SAME: return Py_NewRef(PyTuple_GET_ITEM(results, result->index));
    case RESULT_OWN:
        return wrap(place_view((Place *)PyTuple_GET_ITEM(self->places, result->index), result->dtype, result->dimensions,
                               extents, result->offset));
    default: /* RESULT_FRESH, RESULT_VIEW */
        from = result->kind == RESULT_FRESH ? fresh[result->index]
                                            : shim_handle(PyList_GET_ITEM(inputs, result->index));
        if (shim_get()->view(from, result->dimensions, extents, strides, result->offset, &made) != 0) made = NULL;
        return wrap(made);
    }
}

static PyObject *make_results(const Recording *self, PyObject *inputs, TensorHandle *fresh) {
    PyObject *results = PyTuple_New(self->result_count);
    for (Py_ssize_t i = 0; results != NULL && i < self->result_count; i++) {
        PyObject *result = make_result(self, &self->results[i], inputs, results, fresh);
        if (result == NULL) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    return results;
}

static int await_users_of(const Recording *self, Place *place) {
    while (place->users != NULL && PyList_GET_SIZE(place->users) > 0) {
        Py_ssize_t last = PyList_GET_SIZE(place->users) - 1;
        PyObject *done = PyObject_CallOneArg(self->wait, PyList_GET_ITEM(place->users, last));
        if (done == NULL) return -1;
        Py_DECREF(done);
        if (PyList_SetSlice(place->users, last, last + 1, NULL) < 0) return -1;
    }
    return 0;
}

/* Waits for other streams that results were used on (`Tensor.record_stream`) before their memory is written again, under
 * whichever name: what a place lies over, and what lies there. */
static int await_users(const Recording *self) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->places); i++) {
        Place *place = (Place *)PyTuple_GET_ITEM(self->places, i), *base = place->base ? place->base : place;
        if (await_users_of(self, place) < 0 || await_users_of(self, base) < 0) return -1;
        for (Place *over = base->over; over != NULL; over = over->next) {
            if (await_users_of(self, over) < 0) return -1;
        }
    }
    return 0;
}

/* In the context of the recording, which the thread may not be in. */
static PyObject *replay(Recording *self, PyObject *inputs) {
    void *before = NULL;
    TensorHandle fresh[self->copy_count + 1];
    memset(fresh, 0, sizeof fresh);
    if (refused(self->driver.get_context(&before), "its context was asked for") < 0) return NULL;
    if (before != self->context && refused(self->driver.set_context(self->context), "a context was entered") < 0) {
        return NULL;
    }
    PyObject *results = NULL;
    if (make_copies(self, fresh) == 0 && set_inputs(self, inputs) == 0 && await_users(self) == 0 && launch(self) == 0) {
        results = make_results(self, inputs, fresh);
    }
    for (Py_ssize_t i = 0; i < self->copy_count; i++) {
        if (fresh[i] != NULL) shim_get()->release(fresh[i]);
    }
    if (!stays_in(before, self->context, self->device)) self->driver.set_context(before);
    return results;
}

/* Nobody else replays it, nor another recording that gives out the same memory, before the results are there. */
static void claim(Recording *self, bool claimed) {
    self->running = claimed;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->places); i++) {
        ((Place *)PyTuple_GET_ITEM(self->places, i))->claims += claimed ? 1 : -1;
    }
}

PyObject *recording_replay(PyObject *recording, PyObject *inputs) {
    Recording *self = (Recording *)recording;
    Py_INCREF(self); /* what runs inside may drop it */
    claim(self, true);
    PyObject *results = replay(self, inputs);
    claim(self, false);
    if (results == NULL && self->refused && !PyErr_Occurred()) results = Py_NewRef(Py_None);
    else if (results != NULL && PyList_SetSlice(inputs, 0, PyList_GET_SIZE(inputs), NULL) < 0) Py_CLEAR(results);
    Py_DECREF(self);
    return results;
}

/* -- the type ----------------------------------------------------------------------------------------- */

static PyObject *recording_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (tensor_prepare() < 0) return NULL;
    if (!tensor_raw() || shim_get() == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "torch's stable C interface is not there, or not as it is known");
        return NULL;
    }
    Recording *self = (Recording *)type->tp_alloc(type, 0);
    if (self != NULL && recording_parse(self, args, keywords) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int recording_traverse(PyObject *object, visitproc visit, void *arg) {
    Recording *self = (Recording *)object;
    Py_VISIT(self->replay);
    Py_VISIT(self->wait);
    Py_VISIT(self->graph);
    Py_VISIT(self->held);
    Py_VISIT(self->places);
    Py_VISIT(self->results_spec);
    Py_VISIT(self->overlays_spec);
    Py_VISIT(self->types);
    return 0;
}

/* Without a tp_clear, like a Plan. Memory of a pool goes back before the graph, which may have the pool: whoever takes it
 * comes after what is queued. */
static void recording_dealloc(PyObject *object) {
    Recording *self = (Recording *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->places);
    Py_XDECREF(self->results_spec);
    Py_XDECREF(self->overlays_spec);
    Py_XDECREF(self->types);
    Py_XDECREF(self->replay);
    Py_XDECREF(self->wait);
    Py_XDECREF(self->graph);
    Py_XDECREF(self->held);
    memory_free(self->memory);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *get_idle(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(recording_idle(self));
}

static PyObject *get_refused(PyObject *self, void *ignored) {
    (void)ignored;
    return PyBool_FromLong(((Recording *)self)->refused);
}

static PyObject *get_places(PyObject *self, void *ignored) {
    (void)ignored;
    return Py_NewRef(((Recording *)self)->places);
}

static PyObject *get_overlays(PyObject *self, void *ignored) {
    (void)ignored;
    return Py_NewRef(((Recording *)self)->overlays_spec);
}

static PyObject *call_alone(PyObject *self, PyObject *inputs) {
    if (!PyList_Check(inputs) || PyList_GET_SIZE(inputs) != ((Recording *)self)->input_count) {
        PyErr_SetString(PyExc_TypeError, "alone(list of as many inputs)");
        return NULL;
    }
    return PyBool_FromLong(recording_alone(self, inputs));
}

/* fits(inputs, stream): whether a call is one of the recording's. */
static PyObject *call_fits(PyObject *self, PyObject *args) {
    PyObject *inputs;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "O!K:fits", &PyList_Type, &inputs, &stream)) return NULL;
    return PyBool_FromLong(recording_fits(self, inputs, (void *)(uintptr_t)stream));
}

/* mismatches(inputs): the numbers of those that are not as recorded. */
static PyObject *call_mismatches(PyObject *object, PyObject *inputs) {
    Recording *self = (Recording *)object;
    if (!PyList_Check(inputs) || PyList_GET_SIZE(inputs) != self->input_count) {
        PyErr_SetString(PyExc_TypeError, "mismatches(list of as many inputs)");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < self->input_count; i++) {
        if (input_fits(&self->inputs[i], PyList_GET_ITEM(inputs, i))) continue;
        PyObject *number = PyLong_FromSsize_t(i);
        if (number == NULL || PyList_Append(found, number) < 0) Py_CLEAR(found);
        Py_XDECREF(number);
    }
    return found;
}

/* replay(inputs): what the call gives, and the list is emptied; None where it does not fit, somebody has results, or the
 * driver has refused. */
static PyObject *call_replay(PyObject *object, PyObject *inputs) {
    Recording *self = (Recording *)object;
    if (!PyList_Check(inputs)) {
        PyErr_SetString(PyExc_TypeError, "replay(list of inputs)");
        return NULL;
    }
    bool free = recording_fits(object, inputs, self->stream) && recording_idle(object) && recording_alone(object, inputs);
    if (!free) Py_RETURN_NONE;
    return recording_replay(object, inputs);
}

static PyGetSetDef recording_properties[] = {
    {"idle", get_idle, NULL, "whether nobody has what the last call gave", NULL},
    {"places", get_places, NULL, "the memory that it gives out", NULL},
    {"overlays", get_overlays, NULL, "(a place, inputs in the memory that it lies in), for each such memory", NULL},
    {"refused", get_refused, NULL, "whether the driver did not copy an input from where it was", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef recording_methods[] = {
    {"fits", call_fits, METH_VARARGS, "fits(inputs, stream): whether a call is one of the recording's."},
    {"alone", call_alone, METH_O, "alone(inputs): whether nobody else has those in whose memory results lie."},
    {"mismatches", call_mismatches, METH_O, "mismatches(inputs): the numbers of those that are not as recorded."},
    {"replay", call_replay, METH_O, "replay(inputs): what the call gives; None where it does not fit or is not idle."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Recording_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Recording",
    .tp_doc = "Recording(graph, executable, replay, wait, driver, kind, device, context, stream, inputs, places, copies, "
              "results, overlays, held): a call that a device has recorded.",
    .tp_basicsize = sizeof(Recording),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = recording_new,
    .tp_dealloc = recording_dealloc,
    .tp_traverse = recording_traverse,
    .tp_getset = recording_properties,
    .tp_methods = recording_methods,
};
