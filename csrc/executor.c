/* Runs the plan of a graph: its steps one after another, with no Python between kernels.
 *
 * An Executor is called with a list of inputs, which it empties, and gives a tuple. The GIL is let go at the first
 * kernel or product and taken back where an object has to be made, given up or called; a brief graph keeps it, since getting
 * it back from a thread that computes in Python may take a thousand times as long as the graph. What raises ends the call:
 * `fail` puts memory of the caller back where that is asked for, and says which step it was.
 */
#include "executor.h"
#include "pages.h"
#include "results.h"

#include <stddef.h>
#include <string.h>

#define MOST_REGISTERS 1024 /* on the stack */

/* -- numbers ------------------------------------------------------------------------------------------ */

const int64_t *form_values(const Form *form, const int64_t *numbers, int64_t room[2 * MAX_DIMENSIONS]) {
    if (form->known != NULL) return form->known;
    for (Py_ssize_t i = 0; i < 2 * form->dimensions; i++) {
        if (!extent_value(&form->extents[i], numbers, &room[i])) return NULL;
    }
    return room;
}

int overflowed(void) {
    PyErr_SetString(PyExc_OverflowError, "a size of a tensor does not fit into 64 bits");
    return -1;
}

/* -- registers ---------------------------------------------------------------------------------------- */

void hold_gil(Run *run) {
    if (run->thread == NULL) return;
    PyEval_RestoreThread(run->thread);
    run->thread = NULL;
}

void let_gil_go(Run *run) {
    if (run->thread == NULL && !run->self->brief) run->thread = PyEval_SaveThread();
}

TensorHandle register_handle(const Run *run, Py_ssize_t index) {
    if (index < run->self->layouts.piece_count) {
        PyObject *piece = run->taken.views ? PyTuple_GET_ITEM(run->taken.views, index) : Py_None;
        return piece != Py_None ? shim_handle(piece) : NULL; /* None: no step asked for it as a tensor */
    }
    const Register *found = &run->registers[index];
    return found->handle ? found->handle : found->object ? shim_handle(found->object) : NULL;
}

PyObject *register_object(Run *run, Py_ssize_t index) {
    if (index < run->self->layouts.piece_count && run->taken.views) return PyTuple_GET_ITEM(run->taken.views, index);
    Register *found = &run->registers[index];
    if (found->handle != NULL) {
        found->object = run->shim->wrap(found->handle);
        run->shim->release(found->handle);
        found->handle = NULL;
    } else if (found->object == NULL) {
        PyErr_SetString(PyExc_SystemError, "a step takes what no step has made");
    }
    return found->object;
}

static void clear_register(Run *run, Py_ssize_t index) {
    Register *found = &run->registers[index];
    if (found->handle != NULL) {
        run->shim->release(found->handle);
        found->handle = NULL;
    }
    if (found->object != NULL) {
        hold_gil(run);
        Py_CLEAR(found->object);
    }
}

void register_set_object(Run *run, Py_ssize_t index, PyObject *stolen) {
    clear_register(run, index);
    run->registers[index].object = stolen;
}

static void set_handle(Run *run, Py_ssize_t index, TensorHandle owned) {
    clear_register(run, index);
    run->registers[index].handle = owned;
}

static bool register_address(const Run *run, Py_ssize_t index, void **address) {
    if (index < run->self->layouts.piece_count) {
        *address = run->taken.block.data + run->taken.starts[index];
        return true;
    }
    TensorHandle handle = register_handle(run, index);
    return handle != NULL && run->shim->address(handle, address) == 0;
}

/* -- steps -------------------------------------------------------------------------------------------- */

static void ask_for_huge_pages(const Run *run, TensorHandle handle) {
    void *data;
    int64_t bytes;
    if (run->shim->address(handle, &data) == 0 && run->shim->storage_bytes(handle, &bytes) == 0) pages_ask(data, bytes);
}

/* Torch's own error, by asking for the same through Python. */
static int allocation_failed(Run *run, const Step *step, const int64_t *extents) {
    hold_gil(run);
    PyObject *sizes = tensor_integers(extents, step->memory.form.dimensions);
    PyObject *torch = sizes ? PyImport_ImportModule("torch") : NULL;
    PyObject *empty = torch ? PyObject_GetAttrString(torch, "empty") : NULL;
    PyObject *given = empty ? Py_BuildValue("(O)", sizes) : NULL;
    PyObject *named = given ? Py_BuildValue("{s:O}", "device", step->memory.device) : NULL;
    PyObject *made = named ? PyObject_Call(empty, given, named) : NULL;
    if (made != NULL) PyErr_SetString(PyExc_SystemError, "torch did not make a tensor");
    Py_XDECREF(sizes);
    Py_XDECREF(torch);
    Py_XDECREF(empty);
    Py_XDECREF(given);
    Py_XDECREF(named);
    Py_XDECREF(made);
    return -1;
}

/* Fresh memory; NULL where there is none, even without what lies idle. */
static TensorHandle make_memory(Run *run, const Step *step, const int64_t *extents) {
    TensorHandle made = NULL;
    Py_ssize_t dimensions = step->memory.form.dimensions;
    for (int tried = 0; made == NULL && tried < 2; tried++) {
        if (tried > 0) results_release();
        if (run->shim->make(dimensions, extents, extents + dimensions, step->memory.dtype, step->memory.device_type,
                            step->memory.device_index, &made) != 0) {
            made = NULL;
        }
    }
    if (made == NULL || !step->memory.large) return made;
    ask_for_huge_pages(run, made);
    const Geometry geometry = {dimensions, extents, step->memory.dtype};
    if (step->memory.reuse && run->self->repeated) results_remember(run->shim, made, &geometry);
    return made;
}

/* A view of memory that the caller gives; NULL, with `wanted`, where there is none for the step. */
static TensorHandle given_memory(const Run *run, const Step *step, const int64_t *extents, bool *wanted) {
    PyObject *place = run->places && step->memory.place >= 0 ? PyTuple_GET_ITEM(run->places, step->memory.place) : Py_None;
    TensorHandle made = NULL;
    Py_ssize_t dimensions = step->memory.form.dimensions;
    *wanted = place == Py_None;
    if (*wanted) return NULL;
    if (run->shim->view(shim_handle(place), dimensions, extents, extents + dimensions, 0, &made) != 0) return NULL;
    return made;
}

static int run_allocate(Run *run, const Step *step) {
    int64_t room[2 * MAX_DIMENSIONS];
    Py_ssize_t dimensions = step->memory.form.dimensions;
    const int64_t *extents = form_values(&step->memory.form, run->numbers, room);
    if (extents == NULL) return hold_gil(run), overflowed();
    const Geometry geometry = {dimensions, extents, step->memory.dtype};
    bool fresh;
    TensorHandle made = given_memory(run, step, extents, &fresh);
    if (fresh && step->memory.reuse) made = results_take(run->shim, &geometry);
    if (made == NULL && (made = make_memory(run, step, extents)) == NULL) return allocation_failed(run, step, extents);
    set_handle(run, step->memory.index, made);
    return 0;
}

static int run_reuse(Run *run, const Step *step) {
    int64_t room[2 * MAX_DIMENSIONS];
    Py_ssize_t dimensions = step->memory.form.dimensions;
    TensorHandle donor = register_handle(run, step->memory.donor), made = NULL;
    int32_t failed = 1;
    if (donor != NULL && step->memory.same) {
        failed = run->shim->share(donor, &made);
    } else if (donor != NULL) {
        const int64_t *extents = form_values(&step->memory.form, run->numbers, room);
        if (extents == NULL) return hold_gil(run), overflowed();
        failed = run->shim->view(donor, dimensions, extents, extents + dimensions, 0, &made);
    }
    if (failed) {
        hold_gil(run);
        PyErr_SetString(PyExc_SystemError, "memory that a result was to take over is not there");
        return -1;
    }
    set_handle(run, step->memory.index, made);
    return 0;
}

static int run_launch(Run *run, const Step *step) {
    Py_ssize_t count = step->launch.count, sizes = step->launch.size_count;
    void *pointers[count + sizes + 1];
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!register_address(run, step->launch.indices[i], &pointers[i])) {
            hold_gil(run);
            PyErr_SetString(PyExc_SystemError, "a kernel takes what no step has made");
            return -1;
        }
        pointers[i] = (char *)pointers[i] + step->launch.moves[i];
    }
    for (Py_ssize_t i = 0; i < sizes; i++) {
        int64_t value;
        if (!extent_value(&step->launch.sizes[i], run->numbers, &value)) return hold_gil(run), overflowed();
        pointers[count + i] = (void *)(intptr_t)value;
    }
    let_gil_go(run); /* a launch waits where the device has too much to do, maybe for what another thread has to queue */
    if (step->launch.code != NULL) {
        int status = device_launch(step->launch.code, pointers);
        if (status == 0) return 0;
        hold_gil(run);
        return device_settle(step->launch.code, pointers, status);
    }
    const char *text = step->launch.function(pointers);
    if (text == NULL) return 0;
    hold_gil(run);
    kernel_failed(text);
    return -1;
}

static int run_step(Run *run, const Step *step) {
    switch (step->kind) {
    case STEP_ALLOCATE: return run_allocate(run, step);
    case STEP_REUSE: return run_reuse(run, step);
    case STEP_LAUNCH: return run_launch(run, step);
    case STEP_CALL: return run_call(run, &step->call);
    default: /* STEP_RELEASE */
        for (Py_ssize_t i = 0; i < step->release.count; i++) clear_register(run, step->release.indices[i]);
        return 0;
    }
}

/* -- a call ------------------------------------------------------------------------------------------- */

/* Takes the inputs out of the list; 0 or -1 with an exception. */
static int take_inputs(Run *run, PyObject *inputs) {
    Executor *self = run->self;
    if (!PyList_CheckExact(inputs) || PyList_GET_SIZE(inputs) != self->input_count) {
        PyErr_Format(PyExc_TypeError, "a compiled graph takes a list of its %zd inputs", self->input_count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->input_count; i++) {
        PyObject *input = PyList_GET_ITEM(inputs, i);
        Py_ssize_t index = self->inputs[i];
        if (index < 0) {
            run->numbers[~index] = PyLong_AsLongLong(input);
            if (run->numbers[~index] == -1 && PyErr_Occurred()) return -1;
        } else if (tensor_check(input)) {
            register_set_object(run, index, Py_NewRef(input));
        } else {
            PyErr_Format(PyExc_TypeError, "input %zd of a compiled graph is a tensor, not %s", i,
                         Py_TYPE(input)->tp_name);
            return -1;
        }
    }
    return PyList_SetSlice(inputs, 0, self->input_count, NULL);
}

static int read_numbers(Run *run) {
    for (Py_ssize_t i = 0; i < run->self->read_count; i++) {
        const Read *read = &run->self->reads[i];
        TensorView view;
        if (tensor_view(run->registers[read->index].object, &view) < 0) return -1;
        if (read->dimension >= view.dimensions) {
            PyErr_SetString(PyExc_ValueError, "an input of a compiled graph has too few dimensions");
            return -1;
        }
        run->numbers[read->number] = (read->stride ? view.strides : view.sizes)[read->dimension];
    }
    return 0;
}

static PyObject *keep_inputs(Run *run) {
    Executor *self = run->self;
    PyObject *tensors[self->kept_count + 1];
    hold_gil(run);
    for (Py_ssize_t i = 0; i < self->kept_count; i++) {
        tensors[i] = register_object(run, self->kept[i]);
        if (tensors[i] == NULL) return NULL;
    }
    return PyObject_Vectorcall(self->keep, tensors, (size_t)self->kept_count, NULL);
}

static PyObject *make_results(Run *run) {
    Executor *self = run->self;
    hold_gil(run);
    PyObject *results = PyTuple_New(self->result_count);
    for (Py_ssize_t i = 0; results != NULL && i < self->result_count; i++) {
        PyObject *result = argument_object(run, &self->results[i]);
        if (result == NULL) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    return results;
}

/* Replaces the exception that is set by what `fail` raises, if it does. */
static void tell_failure(Run *run, Py_ssize_t number, PyObject *kept) {
    PyObject *error = take_exception();
    PyObject *step = PyLong_FromSsize_t(number);
    PyObject *told = step ? PyObject_CallFunctionObjArgs(run->self->fail, step, error, kept ? kept : Py_None, NULL)
                          : NULL;
    Py_XDECREF(step);
    if (told != NULL) {
        Py_DECREF(told);
        restore_exception(error);
        return;
    }
    Py_XDECREF(error);
}

static PyObject *run_steps(Run *run) {
    Executor *self = run->self;
    PyObject *kept = NULL, *results = NULL;
    Py_ssize_t number = 0;
    int status = 0;
    for (; number < self->step_count; number++) {
        if (self->keep != NULL && number == self->begin && (kept = keep_inputs(run)) == NULL) break;
        if ((status = run_step(run, &self->steps[number])) < 0) break;
    }
    hold_gil(run);
    if (number == self->step_count) results = make_results(run);
    if (results == NULL) tell_failure(run, number, kept);
    Py_XDECREF(kept);
    return results;
}

static PyObject *run_all(Run *run, PyObject *inputs) {
    Executor *self = run->self;
    if (take_inputs(run, inputs) < 0 || read_numbers(run) < 0) return NULL;
    if (self->layouts.place != NULL && scratch_take(&self->layouts, run->numbers, &run->taken) < 0) return NULL;
    for (Py_ssize_t i = 0; i < self->unused_count; i++) clear_register(run, self->unused[i]);
    PyObject *results = run_steps(run);
    if (self->layouts.place != NULL) scratch_give(&run->taken);
    self->repeated = true;
    results_tidy();
    return results;
}

static PyObject *call_executor(Executor *self, PyObject *inputs, PyObject *places) {
    Py_ssize_t count = self->register_count;
    bool many = count > MOST_REGISTERS;
    Register few[many ? 1 : count + 1];
    int64_t numbers[self->number_count + 1];
    ptrdiff_t starts[self->layouts.piece_count + 1];
    Register *registers = many ? PyMem_Malloc((size_t)count * sizeof(Register)) : few;
    if (registers == NULL) return PyErr_NoMemory();
    memset(registers, 0, (size_t)count * sizeof(Register));
    Run run = {self, shim_get(), registers, numbers, {.starts = starts}, NULL, places};
    Py_INCREF(self); /* what runs inside may drop it */
    PyObject *results = run_all(&run, inputs);
    for (Py_ssize_t i = 0; i < count; i++) clear_register(&run, i);
    if (many) PyMem_Free(registers);
    Py_DECREF(self);
    return results;
}

static PyObject *executor_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    if (PyVectorcall_NARGS(flags) != 1 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a compiled graph takes a list of its inputs");
        return NULL;
    }
    return call_executor((Executor *)callable, args[0], NULL);
}

/* into(inputs, places): the same, with memory for allocations that have a place: a tensor with their geometry, or None. */
static PyObject *call_into(PyObject *object, PyObject *args) {
    Executor *self = (Executor *)object;
    PyObject *inputs, *places;
    if (!PyArg_ParseTuple(args, "O!O!:into", &PyList_Type, &inputs, &PyTuple_Type, &places)) return NULL;
    bool fits = PyTuple_GET_SIZE(places) == self->place_count;
    for (Py_ssize_t i = 0; fits && i < self->place_count; i++) {
        PyObject *place = PyTuple_GET_ITEM(places, i);
        fits = place == Py_None || tensor_check(place);
    }
    if (fits) return call_executor(self, inputs, places);
    PyErr_Format(PyExc_ValueError, "the graph has %zd places, for tensors or None", self->place_count);
    return NULL;
}

/* -- the type ----------------------------------------------------------------------------------------- */

static PyMethodDef executor_methods[] = {
    {"into", call_into, METH_VARARGS, "into(inputs, places): a call with memory for allocations that have a place."},
    {NULL, NULL, 0, NULL},
};

static PyObject *executor_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (tensor_prepare() < 0 || results_prepare() < 0) return NULL;
    if (shim_get() == NULL) {
        PyErr_SetString(PyExc_NotImplementedError, "torch's stable C interface is not there, or not as it is known");
        return NULL;
    }
    Executor *self = (Executor *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = executor_call;
    if (executor_parse(self, args, keywords) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int executor_traverse(PyObject *object, visitproc visit, void *arg) {
    Executor *self = (Executor *)object;
    Py_VISIT(self->objects);
    return scratch_traverse(&self->layouts, visit, arg);
}

/* Only what hangs on the graph: while it may still be called, it keeps what it borrows from `objects`. */
static int executor_clear(PyObject *object) {
    (void)object;
    return 0;
}

static void executor_dealloc(PyObject *object) {
    Executor *self = (Executor *)object;
    PyObject_GC_UnTrack(object);
    scratch_clear(&self->layouts);
    Py_XDECREF(self->objects);
    memory_free(self->memory);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject Executor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Executor",
    .tp_doc = "The steps of a plan; called with a list of inputs, which it empties, it gives a tuple.",
    .tp_basicsize = sizeof(Executor),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = executor_new,
    .tp_dealloc = executor_dealloc,
    .tp_traverse = executor_traverse,
    .tp_clear = executor_clear,
    .tp_methods = executor_methods,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Executor, vectorcall),
};
