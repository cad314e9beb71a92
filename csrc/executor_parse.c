/* Reads what an executor is made of: nested tuples, as runtime/executor.py puts them together. Every register and number
 * is checked here, so that running needs no checks of its own.
 */
#include "executor.h"

#include <string.h>

#define NAME(kind, name) name,

static const char *const step_names[] = {STEPS(NAME) NULL};
static const char *const argument_names[] = {ARGUMENTS(NAME) NULL};

/* Products that need no Python: what they are called in plans, and in torch's stable interface for a device. */
static const struct {
    const char *target, *function;
    bool scaled;
} PRODUCTS[] = {
    {"aten.mm.out", "aoti_torch_%s_mm_out", false},
    {"aten.bmm.out", "aoti_torch_%s_bmm_out", false},
    {"aten.addmm.out", "aoti_torch_%s_addmm_out", true},
    {"aten.baddbmm.out", "aoti_torch_%s_baddbmm_out", true},
};

/* -- pieces ------------------------------------------------------------------------------------------- */

/* Zeroed memory that lives as long as the executor. */
static void *take(Executor *self, Py_ssize_t count, size_t size) { return memory_take(&self->memory, count, size); }

/* The object, held by the executor. */
static PyObject *borrow(Executor *self, PyObject *object) {
    return PyList_Append(self->objects, object) == 0 ? object : NULL;
}

static int read_index(const Executor *self, PyObject *object, Py_ssize_t *index) {
    *index = PyLong_AsSsize_t(object);
    return *index >= 0 && *index < self->register_count ? 0 : wrong("a register");
}

static int read_indices(Executor *self, PyObject *tuple, Py_ssize_t *count, Py_ssize_t **indices) {
    if (!PyTuple_Check(tuple)) return wrong("a list of registers");
    *count = PyTuple_GET_SIZE(tuple);
    *indices = take(self, *count, sizeof(Py_ssize_t));
    if (*indices == NULL) return -1;
    for (Py_ssize_t i = 0; i < *count; i++) {
        if (read_index(self, PyTuple_GET_ITEM(tuple, i), &(*indices)[i]) < 0) return -1;
    }
    return 0;
}

static int read_extent(Executor *self, PyObject *spec, Extent *extent) {
    return extent_read(&self->memory, spec, self->number_count, extent);
}

static int read_extents(Executor *self, PyObject *tuple, Extent *extents) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (read_extent(self, PyTuple_GET_ITEM(tuple, i), &extents[i]) < 0) return -1;
    }
    return 0;
}

static int read_form(Executor *self, PyObject *size, PyObject *stride, Form *form) {
    if (!PyTuple_Check(size) || !PyTuple_Check(stride) || PyTuple_GET_SIZE(size) != PyTuple_GET_SIZE(stride) ||
        PyTuple_GET_SIZE(size) > MAX_DIMENSIONS) {
        return wrong("the form of a tensor");
    }
    form->dimensions = PyTuple_GET_SIZE(size);
    form->extents = take(self, 2 * form->dimensions, sizeof(Extent));
    if (form->extents == NULL || read_extents(self, size, form->extents) < 0 ||
        read_extents(self, stride, form->extents + form->dimensions) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < 2 * form->dimensions; i++) {
        if (form->extents[i].count > 0) return 0;
    }
    form->known = take(self, 2 * form->dimensions, sizeof(int64_t));
    for (Py_ssize_t i = 0; form->known != NULL && i < 2 * form->dimensions; i++) {
        form->known[i] = form->extents[i].constant;
    }
    return form->known ? 0 : -1;
}

/* -- arguments ---------------------------------------------------------------------------------------- */

static int read_argument(Executor *self, PyObject *spec, Argument *argument);

static int read_list(Executor *self, PyObject *list, Argument *argument) {
    argument->kind = ARGUMENT_LIST;
    argument->count = PyList_GET_SIZE(list);
    argument->items = take(self, argument->count, sizeof(Argument));
    if (argument->items == NULL) return -1;
    for (Py_ssize_t i = 0; i < argument->count; i++) {
        if (read_argument(self, PyList_GET_ITEM(list, i), &argument->items[i]) < 0) return -1;
    }
    return 0;
}

/* ("view", register, size, stride, offset) or ("retyped", …, dtype) */
static int read_view(Executor *self, PyObject *spec, Argument *argument) {
    Py_ssize_t length = argument->kind == ARGUMENT_VIEW ? 5 : 6;
    if (PyTuple_GET_SIZE(spec) != length) return wrong("a view");
    if (read_index(self, PyTuple_GET_ITEM(spec, 1), &argument->index) < 0) return -1;
    if (length == 6 && (argument->object = borrow(self, PyTuple_GET_ITEM(spec, 5))) == NULL) return -1;
    if (read_form(self, PyTuple_GET_ITEM(spec, 2), PyTuple_GET_ITEM(spec, 3), &argument->form) < 0) return -1;
    return read_extent(self, PyTuple_GET_ITEM(spec, 4), &argument->extent);
}

/* A list of arguments, a tuple that says what it is, or a constant. */
static int read_argument(Executor *self, PyObject *spec, Argument *argument) {
    if (PyList_CheckExact(spec)) return read_list(self, spec, argument);
    if (!PyTuple_CheckExact(spec)) {
        argument->kind = ARGUMENT_CONSTANT;
        return (argument->object = borrow(self, spec)) ? 0 : -1;
    }
    int kind = PyTuple_GET_SIZE(spec) >= 2 ? name_index(argument_names, PyTuple_GET_ITEM(spec, 0)) : -1;
    argument->kind = (ArgumentKind)kind;
    switch (kind) {
    case ARGUMENT_WHOLE:
    case ARGUMENT_TURNED: return read_index(self, PyTuple_GET_ITEM(spec, 1), &argument->index);
    case ARGUMENT_VIEW:
    case ARGUMENT_RETYPED: return read_view(self, spec, argument);
    case ARGUMENT_NUMBER:
    case ARGUMENT_BITS: return read_extent(self, PyTuple_GET_ITEM(spec, 1), &argument->extent);
    default: return wrong("an argument");
    }
}

/* -- steps -------------------------------------------------------------------------------------------- */

/* ("allocate", register, dtype, size, stride, large, reuse, torch.device, its type, its index, its place if it has one) */
static int read_allocate(Executor *self, PyObject *spec, Step *step) {
    PyObject *kind, *dtype, *size, *stride, *device;
    const char *type;
    int large, reuse, index;
    Py_ssize_t number;
    step->memory.place = -1;
    if (!PyArg_ParseTuple(spec, "OnOOOppOsi|n:allocate", &kind, &number, &dtype, &size, &stride, &large, &reuse, &device,
                          &type, &index, &step->memory.place)) {
        return -1;
    }
    if (number < 0 || number >= self->register_count || step->memory.place >= self->step_count) {
        return wrong("an allocation");
    }
    step->memory.index = number;
    step->memory.dtype = dtype_number(dtype);
    step->memory.large = large;
    step->memory.reuse = reuse;
    step->memory.device_type = shim_device_type(type);
    step->memory.device_index = index;
    self->place_count = Py_MAX(self->place_count, step->memory.place + 1);
    if (step->memory.device_type < 0) PyErr_Format(PyExc_NotImplementedError, "torch's interface has no %s", type);
    if (PyErr_Occurred() || !(step->memory.device = borrow(self, device))) return -1;
    return read_form(self, size, stride, &step->memory.form);
}

/* ("reuse", register, donor) or ("reuse", register, donor, size, stride) */
static int read_reuse(Executor *self, PyObject *spec, Step *step) {
    Py_ssize_t length = PyTuple_GET_SIZE(spec);
    if ((length != 3 && length != 5) || read_index(self, PyTuple_GET_ITEM(spec, 1), &step->memory.index) < 0 ||
        read_index(self, PyTuple_GET_ITEM(spec, 2), &step->memory.donor) < 0) {
        return wrong("a reuse of memory");
    }
    step->memory.same = length == 3;
    return length == 3 ? 0 : read_form(self, PyTuple_GET_ITEM(spec, 3), PyTuple_GET_ITEM(spec, 4), &step->memory.form);
}

/* ("launch", kernel, registers, moves, sizes); moves in bytes */
static int read_launch(Executor *self, PyObject *spec, Step *step) {
    if (PyTuple_GET_SIZE(spec) != 5) return wrong("a launch");
    PyObject *kernel = PyTuple_GET_ITEM(spec, 1), *moves = PyTuple_GET_ITEM(spec, 3), *sizes = PyTuple_GET_ITEM(spec, 4);
    if (!Py_IS_TYPE(kernel, &Kernel_Type) || !PyTuple_Check(moves) || !PyTuple_Check(sizes)) return wrong("a launch");
    if (read_indices(self, PyTuple_GET_ITEM(spec, 2), &step->launch.count, &step->launch.indices) < 0) return -1;
    if (PyTuple_GET_SIZE(moves) != step->launch.count) return wrong("a launch");
    step->launch.function = kernel_function(kernel);
    step->launch.code = kernel_code(kernel);
    step->launch.size_count = PyTuple_GET_SIZE(sizes);
    step->launch.moves = take(self, step->launch.count, sizeof(ptrdiff_t));
    step->launch.sizes = take(self, step->launch.size_count, sizeof(Extent));
    if (step->launch.moves == NULL || step->launch.sizes == NULL || borrow(self, kernel) == NULL) return -1;
    for (Py_ssize_t i = 0; i < step->launch.count; i++) {
        step->launch.moves[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(moves, i));
    }
    if (PyErr_Occurred()) return -1;
    return read_extents(self, sizes, step->launch.sizes);
}

static bool is_tensor(const Argument *argument) {
    return argument->kind == ARGUMENT_WHOLE || argument->kind == ARGUMENT_TURNED || argument->kind == ARGUMENT_VIEW;
}

/* A scale of a product by its name; 1 where it is not given, false where it is no constant. */
static bool read_scale(const Call *call, const char *name, double *scale) {
    *scale = 1;
    for (Py_ssize_t i = 0; i < call->named; i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(call->names, i), name) != 0) continue;
        const Argument *argument = &call->arguments[call->count + i];
        if (argument->kind != ARGUMENT_CONSTANT || PyBool_Check(argument->object)) return false;
        if (PyFloat_CheckExact(argument->object)) *scale = PyFloat_AS_DOUBLE(argument->object);
        else if (PyLong_CheckExact(argument->object)) *scale = PyLong_AsDouble(argument->object);
        else return false;
        return *scale != -1 || !PyErr_Occurred();
    }
    return true;
}

/* Whether a call is one of a product by a packed weight: (x, packed, weight, None, rows, out=…). */
static void find_packed(Call *call, const char *name, const char *device) {
    if (strcmp(name, "mkl._mkl_linear.out") != 0 || strcmp(device, "cpu") != 0 || !packed_known()) return;
    if (call->count != 5 || call->named != 1 || call->promise_count > 0) return;
    const Argument *given = call->arguments;
    if (!is_tensor(&given[0]) || given[1].kind != ARGUMENT_WHOLE || !is_tensor(&given[5])) return;
    if (given[3].object != Py_None || given[4].kind != ARGUMENT_CONSTANT || !PyLong_CheckExact(given[4].object)) return;
    call->packed_rows = PyLong_AsLongLong(given[4].object);
    if (call->packed_rows < 0) call->packed_rows = 0, PyErr_Clear();
}

/* Whether a call is one of a product that needs no Python, which has tensors, scales and `out`, last, and no more. */
static void find_product(Call *call, PyObject *target, const char *device) {
    const char *name = PyUnicode_Check(target) ? PyUnicode_AsUTF8(target) : NULL;
    if (name != NULL) find_packed(call, name, device);
    for (size_t i = 0; name != NULL && i < sizeof(PRODUCTS) / sizeof(PRODUCTS[0]); i++) {
        bool scaled = PRODUCTS[i].scaled;
        if (strcmp(PRODUCTS[i].target, name) != 0) continue;
        if (call->count != (scaled ? 3 : 2) || call->named == 0 || call->promise_count > 0) return;
        Py_ssize_t scales = 0, last = call->count + call->named - 1;
        for (Py_ssize_t k = 0; k < call->count; k++) {
            if (!is_tensor(&call->arguments[k])) return;
        }
        for (Py_ssize_t k = 0; k < call->named - 1; k++) {
            PyObject *key = PyTuple_GET_ITEM(call->names, k);
            scales += PyUnicode_CompareWithASCIIString(key, "beta") == 0 ||
                      PyUnicode_CompareWithASCIIString(key, "alpha") == 0;
        }
        if (scales != call->named - 1 || (!scaled && scales > 0) || !is_tensor(&call->arguments[last])) return;
        if (!read_scale(call, "beta", &call->beta) || !read_scale(call, "alpha", &call->alpha)) return;
        char function[64];
        snprintf(function, sizeof function, PRODUCTS[i].function, device);
        if (scaled) *(void **)&call->scaled = shim_function(device, function);
        else *(void **)&call->product = shim_function(device, function);
        return;
    }
}

static int read_promises(Executor *self, PyObject *specs, Call *call) {
    call->promise_count = PyTuple_GET_SIZE(specs);
    call->promises = take(self, call->promise_count, sizeof(Promise));
    for (Py_ssize_t i = 0; call->promises != NULL && i < call->promise_count; i++) {
        PyObject *size, *stride;
        Promise *promise = &call->promises[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(specs, i), "nnOO:promise", &promise->position, &promise->index, &size,
                              &stride)) {
            return -1;
        }
        if (promise->position < 0 || promise->index < 0 || promise->index >= self->register_count) {
            return wrong("a result");
        }
        if (read_form(self, size, stride, &promise->form) < 0) return -1;
    }
    return call->promises ? 0 : -1;
}

/* ("call", target, callable, arguments, names, promises, single, settle) */
static int read_call(Executor *self, PyObject *spec, Step *step) {
    PyObject *kind, *target, *arguments, *promises;
    int single;
    Call *call = &step->call;
    if (!PyArg_ParseTuple(spec, "OOOO!O!O!pO:call", &kind, &target, &call->callable, &PyTuple_Type, &arguments,
                          &PyTuple_Type, &call->names, &PyTuple_Type, &promises, &single, &call->settle)) {
        return -1;
    }
    Py_ssize_t given = PyTuple_GET_SIZE(arguments);
    call->named = PyTuple_GET_SIZE(call->names);
    call->count = given - call->named;
    call->single = single;
    if (call->count < 0) return wrong("a call");
    call->arguments = take(self, given, sizeof(Argument));
    if (call->arguments == NULL || !borrow(self, call->callable) || !borrow(self, call->names) ||
        !borrow(self, call->settle)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < given; i++) {
        if (read_argument(self, PyTuple_GET_ITEM(arguments, i), &call->arguments[i]) < 0) return -1;
    }
    if (read_promises(self, promises, call) < 0) return -1;
    if (self->device[0]) find_product(call, target, self->device);
    if (call->named == 0) call->names = NULL;
    return PyErr_Occurred() ? -1 : 0;
}

static int read_step(Executor *self, PyObject *spec, Step *step) {
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) < 2) return wrong("a step");
    int kind = name_index(step_names, PyTuple_GET_ITEM(spec, 0));
    step->kind = (StepKind)kind;
    switch (kind) {
    case STEP_ALLOCATE: return read_allocate(self, spec, step);
    case STEP_REUSE: return read_reuse(self, spec, step);
    case STEP_LAUNCH: return read_launch(self, spec, step);
    case STEP_CALL: return read_call(self, spec, step);
    case STEP_RELEASE: return read_indices(self, PyTuple_GET_ITEM(spec, 1), &step->release.count, &step->release.indices);
    default: return wrong("a step");
    }
}

/* -- the whole ---------------------------------------------------------------------------------------- */

static int read_numbers(Executor *self, PyObject *tuple, Py_ssize_t least, Py_ssize_t limit, Py_ssize_t *count,
                        Py_ssize_t **numbers) {
    *count = PyTuple_GET_SIZE(tuple);
    *numbers = take(self, *count, sizeof(Py_ssize_t));
    if (*numbers == NULL) return -1;
    for (Py_ssize_t i = 0; i < *count; i++) {
        (*numbers)[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (PyErr_Occurred() || (*numbers)[i] < least || (*numbers)[i] >= limit) return wrong("a number");
    }
    return 0;
}

/* (number, register of an input, whether it is a stride, dimension) for each */
static int read_reads(Executor *self, PyObject *specs) {
    self->read_count = PyTuple_GET_SIZE(specs);
    self->reads = take(self, self->read_count, sizeof(Read));
    for (Py_ssize_t i = 0; self->reads != NULL && i < self->read_count; i++) {
        Read *read = &self->reads[i];
        int stride;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(specs, i), "nnpn:read", &read->number, &read->index, &stride,
                              &read->dimension)) {
            return -1;
        }
        read->stride = stride;
        bool given = false;
        for (Py_ssize_t k = 0; k < self->input_count; k++) given = given || self->inputs[k] == read->index;
        if (!given || read->index < 0 || read->number < 0 || read->number >= self->number_count || read->dimension < 0) {
            return wrong("a read");
        }
    }
    return self->reads ? 0 : -1;
}

/* None, or (pieces, numbers, place, views or None, allocate, device, what gives its stream or 0) */
static int read_layouts(Executor *self, PyObject *spec) {
    if (spec == Py_None) return 0;
    Layouts *layouts = &self->layouts;
    PyObject *numbers, *place, *views, *allocate;
    unsigned long long stream;
    if (!PyArg_ParseTuple(spec, "nO!OOOiK:scratch", &layouts->piece_count, &PyTuple_Type, &numbers, &place, &views,
                          &allocate, &layouts->device, &stream)) {
        return -1;
    }
    layouts->stream = (StreamGetter)(uintptr_t)stream;
    if (layouts->piece_count < 0 || layouts->piece_count > self->register_count) return wrong("scratch memory");
    if (read_numbers(self, numbers, 0, self->number_count, &layouts->size_count, &layouts->numbers) < 0) return -1;
    layouts->place = Py_NewRef(place);
    layouts->views = views == Py_None ? NULL : Py_NewRef(views);
    layouts->allocate = Py_NewRef(allocate);
    return 0;
}

static int read_steps(Executor *self, PyObject *specs) {
    self->step_count = PyTuple_GET_SIZE(specs);
    self->steps = take(self, self->step_count, sizeof(Step));
    for (Py_ssize_t i = 0; self->steps != NULL && i < self->step_count; i++) {
        if (read_step(self, PyTuple_GET_ITEM(specs, i), &self->steps[i]) < 0) return -1;
    }
    return self->steps ? 0 : -1;
}

static int read_results(Executor *self, PyObject *specs) {
    self->result_count = PyTuple_GET_SIZE(specs);
    self->results = take(self, self->result_count, sizeof(Argument));
    for (Py_ssize_t i = 0; self->results != NULL && i < self->result_count; i++) {
        if (read_argument(self, PyTuple_GET_ITEM(specs, i), &self->results[i]) < 0) return -1;
    }
    return self->results ? 0 : -1;
}

int executor_parse(Executor *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"registers", "numbers", "inputs", "reads", "unused", "scratch", "steps", "results",
                            "retype", "fail", "keep", "kept", "begin", "device", "brief", NULL};
    PyObject *inputs, *reads, *unused, *scratch, *steps, *results, *retype, *fail, *keep, *kept;
    const char *device;
    int brief = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "nnO!O!O!OO!O!OOOO!ns|p:Executor", names, &self->register_count,
                                     &self->number_count, &PyTuple_Type, &inputs, &PyTuple_Type, &reads, &PyTuple_Type,
                                     &unused, &scratch, &PyTuple_Type, &steps, &PyTuple_Type, &results, &retype, &fail,
                                     &keep, &PyTuple_Type, &kept, &self->begin, &device, &brief)) {
        return -1;
    }
    if (self->register_count < 0 || self->number_count < 0) return wrong("the size");
    if (strlen(device) >= sizeof self->device) return wrong("the device");
    strcpy(self->device, device);
    self->brief = brief;
    self->objects = PyList_New(0);
    if (self->objects == NULL || !(self->retype = borrow(self, retype)) || !(self->fail = borrow(self, fail))) return -1;
    if (keep != Py_None && !(self->keep = borrow(self, keep))) return -1;
    if (read_numbers(self, inputs, -self->number_count, self->register_count, &self->input_count, &self->inputs) < 0 ||
        read_reads(self, reads) < 0 || read_indices(self, unused, &self->unused_count, &self->unused) < 0 ||
        read_layouts(self, scratch) < 0 || read_steps(self, steps) < 0 || read_results(self, results) < 0) {
        return -1;
    }
    return read_indices(self, kept, &self->kept_count, &self->kept);
}
