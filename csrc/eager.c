/* A captured graph that runs in eager: its calls one after another, without a frame of Python.
 *
 * What is called is what the text of the graph would call: functions, methods by their names, and lists and tuples of
 * values. A value is let go of after the last call that takes it, as in that text. Inputs stay the caller's.
 */
#include "native.h"

#include <stddef.h>

#define MOST_VALUES 256 /* on the stack */

typedef enum { CALL_FUNCTION, CALL_METHOD, MAKE_LIST, MAKE_TUPLE } CallKind;
static const char *const kinds[] = {"function", "method", "list", "tuple", NULL};

/* A constant, or a value. */
typedef struct {
    PyObject *constant; /* or NULL */
    Py_ssize_t index;
} Operand;

typedef struct {
    CallKind kind;
    PyObject *target; /* the function, or the name of the method */
    PyObject *names;  /* of the last operands; NULL where none has a name */
    Py_ssize_t count, dead_count;
    Operand *operands;
    Py_ssize_t *dead; /* values that nothing takes any more */
} EagerCall;

/* Values are the inputs, and then what the calls give. */
typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t inputs, result_count;
    Operand *results;
    EagerCall calls[];
} EagerGraph;

static PyObject *value_of(const Operand *operand, PyObject *const *values) {
    return operand->constant ? operand->constant : values[operand->index];
}

static PyObject *make_sequence(const EagerCall *call, PyObject *const *given) {
    bool list = call->kind == MAKE_LIST;
    PyObject *made = list ? PyList_New(call->count) : PyTuple_New(call->count);
    for (Py_ssize_t i = 0; made != NULL && i < call->count; i++) {
        if (list) PyList_SET_ITEM(made, i, Py_NewRef(given[i]));
        else PyTuple_SET_ITEM(made, i, Py_NewRef(given[i]));
    }
    return made;
}

static PyObject *run_call(const EagerCall *call, PyObject *const *values) {
    PyObject *room[call->count + 1], **given = room + 1; /* who is called may use the place before the first */
    for (Py_ssize_t i = 0; i < call->count; i++) given[i] = value_of(&call->operands[i], values);
    size_t positional = (size_t)(call->count - (call->names ? PyTuple_GET_SIZE(call->names) : 0));
    size_t flags = positional | PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (call->kind == CALL_FUNCTION) return PyObject_Vectorcall(call->target, given, flags, call->names);
    if (call->kind == CALL_METHOD) return PyObject_VectorcallMethod(call->target, given, flags, call->names);
    return make_sequence(call, given);
}

static PyObject *eager_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    EagerGraph *self = (EagerGraph *)callable;
    Py_ssize_t inputs = self->inputs, done = 0;
    if (PyVectorcall_NARGS(flags) != inputs || kwnames != NULL) {
        PyErr_Format(PyExc_TypeError, "the graph takes %zd arguments by position", inputs);
        return NULL;
    }
    PyObject *values[inputs + Py_SIZE(self) + 1], **made = values + inputs;
    for (Py_ssize_t i = 0; i < inputs; i++) values[i] = args[i];
    for (; done < Py_SIZE(self); done++) {
        const EagerCall *call = &self->calls[done];
        made[done] = run_call(call, values);
        if (made[done] == NULL) break;
        for (Py_ssize_t i = 0; i < call->dead_count; i++) Py_CLEAR(values[call->dead[i]]);
    }
    PyObject *results = done == Py_SIZE(self) ? PyTuple_New(self->result_count) : NULL;
    for (Py_ssize_t i = 0; results != NULL && i < self->result_count; i++) {
        PyTuple_SET_ITEM(results, i, Py_NewRef(value_of(&self->results[i], values)));
    }
    for (Py_ssize_t i = 0; i < done; i++) Py_XDECREF(made[i]);
    return results;
}

/* -- the type ------------------------------------------------------------------------------------------- */

/* What is known of values while the calls are read. */
typedef struct {
    Py_ssize_t inputs, count; /* values that there are so far */
    bool gone[MOST_VALUES];
} Known;

/* Each (constant,) or the number of a value that is there. */
static int read_operands(PyObject *items, const Known *known, Py_ssize_t *count, Operand **operands) {
    if (!PyTuple_Check(items)) return PyErr_SetString(PyExc_TypeError, "operands are a tuple"), -1;
    *operands = PyMem_New(Operand, PyTuple_GET_SIZE(items) + 1);
    if (*operands == NULL) return PyErr_NoMemory(), -1;
    for (*count = 0; *count < PyTuple_GET_SIZE(items); (*count)++) {
        PyObject *item = PyTuple_GET_ITEM(items, *count);
        bool constant = PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 1;
        Py_ssize_t index = constant ? 0 : PyLong_AsSsize_t(item);
        if (index < 0 || (!constant && (index >= known->count || known->gone[index]))) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a call takes what no call has given");
            return -1;
        }
        (*operands)[*count] = (Operand){constant ? Py_NewRef(PyTuple_GET_ITEM(item, 0)) : NULL, index};
    }
    return 0;
}

/* Inputs are not ours to let go of. */
static int read_dead(PyObject *items, Known *known, EagerCall *call) {
    call->dead = PyMem_New(Py_ssize_t, PyTuple_GET_SIZE(items) + 1);
    if (call->dead == NULL) return PyErr_NoMemory(), -1;
    for (; call->dead_count < PyTuple_GET_SIZE(items); call->dead_count++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(items, call->dead_count));
        if (index < known->inputs || index >= known->count || known->gone[index]) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "there is no such value to let go of");
            return -1;
        }
        known->gone[index] = true;
        call->dead[call->dead_count] = index;
    }
    return 0;
}

/* (kind, target, operands, names, dead) */
static int read_call(PyObject *item, Known *known, EagerCall *call) {
    PyObject *kind, *target, *operands, *names, *dead;
    if (!PyArg_ParseTuple(item, "UOOO!O!:call", &kind, &target, &operands, &PyTuple_Type, &names, &PyTuple_Type, &dead)) {
        return -1;
    }
    int found = name_index(kinds, kind);
    if (found < 0) return -1;
    call->kind = (CallKind)found;
    call->target = Py_NewRef(target);
    call->names = PyTuple_GET_SIZE(names) > 0 ? Py_NewRef(names) : NULL;
    if (read_operands(operands, known, &call->count, &call->operands) < 0) return -1;
    if (PyTuple_GET_SIZE(names) + (call->kind == CALL_METHOD) > call->count) {
        return PyErr_SetString(PyExc_ValueError, "a call has more names than operands"), -1;
    }
    known->count++;
    return read_dead(dead, known, call);
}

static PyObject *eager_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"inputs", "calls", "results", NULL};
    Py_ssize_t inputs;
    PyObject *calls, *results;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "nO!O:EagerGraph", names, &inputs, &PyTuple_Type, &calls, &results)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(calls);
    if (inputs < 0 || inputs > MOST_VALUES || count > MOST_VALUES - inputs) {
        PyErr_SetString(PyExc_OverflowError, "a graph of so many values is none for this");
        return NULL;
    }
    EagerGraph *self = (EagerGraph *)type->tp_alloc(type, count);
    if (self == NULL) return NULL;
    self->inputs = inputs;
    self->vectorcall = eager_call;
    Known known = {.inputs = inputs, .count = inputs};
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        status = read_call(PyTuple_GET_ITEM(calls, i), &known, &self->calls[i]);
    }
    if (status == 0) status = read_operands(results, &known, &self->result_count, &self->results);
    if (status < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int visit_operands(const Operand *operands, Py_ssize_t count, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < count; i++) Py_VISIT(operands[i].constant);
    return 0;
}

static int eager_traverse(PyObject *object, visitproc visit, void *arg) {
    EagerGraph *self = (EagerGraph *)object;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        const EagerCall *call = &self->calls[i];
        Py_VISIT(call->target);
        Py_VISIT(call->names);
        int stopped = visit_operands(call->operands, call->count, visit, arg);
        if (stopped) return stopped;
    }
    return visit_operands(self->results, self->result_count, visit, arg);
}

static void free_operands(Operand *operands, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) Py_XDECREF(operands[i].constant);
    PyMem_Free(operands);
}

/* Without a tp_clear, like a Plan. */
static void eager_dealloc(PyObject *object) {
    EagerGraph *self = (EagerGraph *)object;
    PyObject_GC_UnTrack(object);
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        EagerCall *call = &self->calls[i];
        Py_XDECREF(call->target);
        Py_XDECREF(call->names);
        free_operands(call->operands, call->count);
        PyMem_Free(call->dead);
    }
    free_operands(self->results, self->result_count);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject EagerGraph_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.EagerGraph",
    .tp_doc = "EagerGraph(inputs, calls, results): a captured graph that runs in eager, call by call.",
    .tp_basicsize = sizeof(EagerGraph),
    .tp_itemsize = sizeof(EagerCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = eager_new,
    .tp_dealloc = eager_dealloc,
    .tp_traverse = eager_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(EagerGraph, vectorcall),
};
