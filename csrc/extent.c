#include "extent.h"

static const char *const operation_names[] = {
#define NAME(kind, name) name,
    ARITHMETIC(NAME) NULL};

void *memory_take(Memory **memory, Py_ssize_t count, size_t size) {
    Memory *taken = PyMem_Calloc(1, sizeof(Memory) + (size_t)(count + 1) * size);
    if (taken == NULL) return PyErr_NoMemory();
    taken->next = *memory;
    *memory = taken;
    return taken + 1;
}

void memory_free(Memory *memory) {
    while (memory != NULL) {
        Memory *next = memory->next;
        PyMem_Free(memory);
        memory = next;
    }
}

int wrong(const char *what) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s of a plan is not as it should be", what);
    return -1;
}

static int read_operation(PyObject *spec, Py_ssize_t number_count, Operation *operation, Py_ssize_t *depth) {
    Py_ssize_t length = PyTuple_Check(spec) ? PyTuple_GET_SIZE(spec) : 0;
    int kind = length > 0 ? name_index(operation_names, PyTuple_GET_ITEM(spec, 0)) : -1;
    if (kind < 0) return wrong("a size");
    operation->kind = (OperationKind)kind;
    if (kind <= PUSH_CONSTANT) {
        operation->number = length == 2 ? PyLong_AsLongLong(PyTuple_GET_ITEM(spec, 1)) : -1;
        if (length != 2 || (operation->number == -1 && PyErr_Occurred())) return wrong("a size");
        if (kind == PUSH_OPERAND && (operation->number < 0 || operation->number >= number_count)) {
            return wrong("a symbol");
        }
    }
    *depth += kind <= PUSH_CONSTANT ? 1 : -1;
    return *depth >= 1 ? 0 : wrong("a size");
}

int extent_read(Memory **memory, PyObject *spec, Py_ssize_t number_count, Extent *extent) {
    if (PyLong_Check(spec)) {
        extent->constant = PyLong_AsLongLong(spec);
        return extent->constant == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) == 0) return wrong("a size");
    Py_ssize_t depth = 0;
    extent->count = PyTuple_GET_SIZE(spec);
    extent->operations = memory_take(memory, extent->count, sizeof(Operation));
    if (extent->operations == NULL) return -1;
    for (Py_ssize_t i = 0; i < extent->count; i++) {
        if (read_operation(PyTuple_GET_ITEM(spec, i), number_count, &extent->operations[i], &depth) < 0) return -1;
        extent->depth = Py_MAX(extent->depth, depth);
    }
    return depth == 1 ? 0 : wrong("a size");
}

bool extent_value(const Extent *extent, const int64_t *numbers, int64_t *value) {
    *value = extent->constant;
    if (extent->count == 0) return true;
    int64_t stack[extent->depth], *top = stack;
    for (Py_ssize_t i = 0; i < extent->count; i++) {
        const Operation *operation = &extent->operations[i];
        if (operation->kind == PUSH_CONSTANT) *top++ = operation->number;
        else if (operation->kind == PUSH_OPERAND) *top++ = numbers[operation->number];
        else if (top--, !operate(operation->kind, top - 1, *top)) return false;
    }
    *value = stack[0];
    return true;
}
