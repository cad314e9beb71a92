/* Reads what a recording is made of: `capture.py` says it in tuples. */
#include "recording_fields.h"

#define NAME(kind, name) name,

static const char *const input_names[] = {INPUTS(NAME) NULL};
static const char *const result_names[] = {RESULTS(NAME) NULL};

int driver_read(PyObject *addresses, Driver *driver) {
    unsigned long long launch, move, get, set, capturing, stream;
    if (!PyArg_ParseTuple(addresses, "KKKKKK:driver", &launch, &move, &get, &set, &capturing, &stream)) return -1;
    *(void **)&driver->launch = (void *)(uintptr_t)launch;
    *(void **)&driver->set_copy = (void *)(uintptr_t)move;
    *(void **)&driver->get_context = (void *)(uintptr_t)get;
    *(void **)&driver->set_context = (void *)(uintptr_t)set;
    *(void **)&driver->is_capturing = (void *)(uintptr_t)capturing;
    driver->stream = (StreamGetter)(uintptr_t)stream;
    if (launch && move && get && set && capturing && stream) return 0;
    PyErr_SetString(PyExc_ValueError, "a function of the driver is not there");
    return -1;
}

static int read_extents(Recording *self, PyObject *size, PyObject *stride, int64_t *dimensions, int64_t **extents) {
    if (!PyTuple_Check(size) || !PyTuple_Check(stride) || PyTuple_GET_SIZE(size) != PyTuple_GET_SIZE(stride) ||
        PyTuple_GET_SIZE(size) > MAX_DIMENSIONS) {
        return wrong("the geometry of a tensor");
    }
    *dimensions = PyTuple_GET_SIZE(size);
    *extents = memory_take(&self->memory, 2 * *dimensions, sizeof(int64_t));
    if (*extents == NULL) return -1;
    for (Py_ssize_t i = 0; i < *dimensions; i++) {
        (*extents)[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(size, i));
        (*extents)[*dimensions + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride, i));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* (kind, number or the tensor that is read or copied to, bytes, the step that copies it and the one back or 0, size or
 * None, stride) */
static int read_input(Recording *self, PyObject *spec, Input *input) {
    PyObject *kind, *value, *size, *stride;
    long long nbytes;
    unsigned long long node, back;
    int overflow = 0;
    if (!PyTuple_Check(spec)) return wrong("an input of a recording");
    if (!PyArg_ParseTuple(spec, "OOLKKOO:input", &kind, &value, &nbytes, &node, &back, &size, &stride)) return -1;
    int found = name_index(input_names, kind);
    if (found < 0 || (found == INPUT_NUMBER ? !PyLong_Check(value) : !tensor_check(value))) {
        return wrong("an input of a recording");
    }
    input->kind = (InputKind)found;
    input->node = (void *)(uintptr_t)node;
    input->back = (void *)(uintptr_t)back;
    input->dimensions = -1;
    if (input->kind == INPUT_NUMBER) {
        input->number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow) return wrong("a number");
    } else {
        PyObject *item = PyObject_GetAttrString(value, "itemsize");
        input->item = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (input->item < 0) return -1;
        input->address = tensor_begin(value, input->item);
        input->number = nbytes;
        input->type = Py_TYPE(value);
        if (PyList_Append(self->types, (PyObject *)input->type) < 0) return -1;
    }
    if (PyErr_Occurred()) return -1;
    return size == Py_None ? 0 : read_extents(self, size, stride, &input->dimensions, &input->extents);
}

static int read_inputs(Recording *self, PyObject *specs) {
    self->input_count = PyTuple_GET_SIZE(specs);
    self->inputs = memory_take(&self->memory, self->input_count, sizeof(Input));
    for (Py_ssize_t i = 0; self->inputs != NULL && i < self->input_count; i++) {
        if (read_input(self, PyTuple_GET_ITEM(specs, i), &self->inputs[i]) < 0) return -1;
    }
    return self->inputs ? 0 : -1;
}

static Py_ssize_t limit_of(const Recording *self, ResultKind kind, Py_ssize_t at) {
    switch (kind) {
    case RESULT_OWN: return PyTuple_GET_SIZE(self->places);
    case RESULT_FRESH: return self->copy_count;
    case RESULT_SAME: return at;
    case RESULT_CONSTANT: return 1;
    default: return self->input_count;
    }
}

/* (kind, index, dtype or the constant, size or None, stride, offset) */
static int read_result(Recording *self, PyObject *spec, Py_ssize_t at) {
    PyObject *kind, *object, *size, *stride;
    long long offset;
    Result *result = &self->results[at];
    if (!PyTuple_Check(spec)) return wrong("a result of a recording");
    if (!PyArg_ParseTuple(spec, "OnOOOL:result", &kind, &result->index, &object, &size, &stride, &offset)) return -1;
    int found = name_index(result_names, kind);
    if (found < 0) return wrong("a result of a recording");
    result->kind = (ResultKind)found;
    result->offset = offset;
    result->constant = object;
    if (result->index < 0 || result->index >= limit_of(self, result->kind, at)) return wrong("a result of a recording");
    bool made = found == RESULT_OWN || found == RESULT_FRESH || found == RESULT_VIEW;
    if (made && (result->dtype = dtype_number(object)) < 0) return -1;
    return made ? read_extents(self, size, stride, &result->dimensions, &result->extents) : 0;
}

static int read_results(Recording *self, PyObject *specs) {
    self->result_count = PyTuple_GET_SIZE(specs);
    self->results = memory_take(&self->memory, self->result_count, sizeof(Result));
    for (Py_ssize_t i = 0; self->results != NULL && i < self->result_count; i++) {
        if (read_result(self, PyTuple_GET_ITEM(specs, i), i) < 0) return -1;
    }
    return self->results ? 0 : -1;
}

static int read_places(Recording *self, PyObject *copies) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->places); i++) {
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(self->places, i), &Place_Type)) return wrong("a place");
    }
    self->copy_count = PyTuple_GET_SIZE(copies);
    self->copies = memory_take(&self->memory, self->copy_count, sizeof(Copy));
    for (Py_ssize_t i = 0; self->copies != NULL && i < self->copy_count; i++) {
        long long elements;
        unsigned long long node;
        Copy *copy = &self->copies[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(copies, i), "nLK:copy", &copy->place, &elements, &node)) return -1;
        copy->node = (void *)(uintptr_t)node;
        if (copy->place < 0 || copy->place >= PyTuple_GET_SIZE(self->places) || elements < 0) return wrong("a copy");
        copy->elements = elements;
    }
    return self->copies ? 0 : -1;
}

/* (a place, the inputs that lie in its base) */
static int read_overlays(Recording *self, PyObject *overlays) {
    Py_ssize_t count = PyTuple_GET_SIZE(overlays);
    self->overlays = memory_take(&self->memory, count, sizeof(Overlay));
    for (Py_ssize_t i = 0; self->overlays != NULL && i < count; i++) {
        Overlay *overlay = &self->overlays[i];
        PyObject *inputs;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(overlays, i), "nO!:overlay", &overlay->place, &PyTuple_Type, &inputs)) return -1;
        if (overlay->place < 0 || overlay->place >= PyTuple_GET_SIZE(self->places)) return wrong("an overlay");
        overlay->count = PyTuple_GET_SIZE(inputs);
        overlay->inputs = memory_take(&self->memory, overlay->count, sizeof(int64_t));
        for (Py_ssize_t k = 0; overlay->inputs != NULL && k < overlay->count; k++) {
            int64_t number = overlay->inputs[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(inputs, k));
            bool found = number >= (k > 0 ? overlay->inputs[k - 1] + 1 : 0) && number < self->input_count &&
                         self->inputs[number].kind == INPUT_FIXED;
            if (!found) return PyErr_Occurred() ? -1 : wrong("an overlay");
        }
        if (overlay->inputs == NULL) return -1;
    }
    self->overlay_count = count;
    return self->overlays ? 0 : -1;
}

int recording_parse(Recording *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"graph", "executable", "replay", "wait", "driver", "kind", "device", "context", "stream",
                            "inputs", "places", "copies", "results", "overlays", "held", NULL};
    PyObject *graph, *replay, *wait, *driver, *inputs, *places, *copies, *results, *overlays, *held;
    unsigned long long executable, context, stream;
    const char *kind;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OKOOO!siKKO!O!O!O!O!O:Recording", names, &graph, &executable, &replay,
                                     &wait, &PyTuple_Type, &driver, &kind, &self->device, &context, &stream, &PyTuple_Type,
                                     &inputs, &PyTuple_Type, &places, &PyTuple_Type, &copies, &PyTuple_Type, &results,
                                     &PyTuple_Type, &overlays, &held)) {
        return -1;
    }
    if ((self->types = PyList_New(0)) == NULL) return -1;
    self->graph = Py_NewRef(graph);
    self->held = Py_NewRef(held);
    self->places = Py_NewRef(places);
    self->results_spec = Py_NewRef(results);
    self->overlays_spec = Py_NewRef(overlays);
    if (replay != Py_None) self->replay = Py_NewRef(replay);
    self->wait = Py_NewRef(wait);
    self->executable = (void *)(uintptr_t)executable;
    self->context = (void *)(uintptr_t)context;
    self->stream = (void *)(uintptr_t)stream;
    self->device_type = shim_device_type(kind);
    if (driver_read(driver, &self->driver) < 0 || read_places(self, copies) < 0 || read_inputs(self, inputs) < 0) return -1;
    return read_overlays(self, overlays) < 0 ? -1 : read_results(self, results);
}
