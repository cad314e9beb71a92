/* Conditions on sizes: a comparison of integer expressions, as a postfix program over operands.
 *
 * Operands are read from the registers of one evaluation of a guard tree: a size, stride or offset of a
 * tensor, an int, or the bits of a float as one (so that ranges of floats are ranges of ints). Division and
 * remainder floor, as Python's do; what overflows 64 bits, divides by zero or is not there does not hold. A
 * program is verified when it is parsed, so that evaluation needs no checks of its own. guards.c runs conditions
 * as relations.
 */
#include "arithmetic.h"
#include "guards.h"

#include <string.h>

/* What is read, by its name in a specification. */
#define OPERANDS(OPERAND)                                                                                              \
    OPERAND(OPERAND_SIZE, "size") OPERAND(OPERAND_STRIDE, "stride") OPERAND(OPERAND_OFFSET, "offset")                  \
    OPERAND(OPERAND_LENGTH, "length") OPERAND(OPERAND_INT, "int") OPERAND(OPERAND_BITS, "bits")
#define NAME(kind, name) name,

typedef enum { OPERANDS(ENUMERATOR) } OperandKind;

static const char *const operand_names[] = {OPERANDS(NAME) NULL};
static const char *const step_names[] = {ARITHMETIC(NAME) COMPARISONS(NAME) NULL};

typedef struct {
    OperandKind kind;
    Py_ssize_t slot;
    Py_ssize_t dimension;
} Operand;

typedef struct {
    OperationKind kind;
    int64_t number; /* the operand, or the constant */
} Step;

struct Condition {
    Py_ssize_t operand_count, step_count, depth;
    Operand *operands;
    Step *steps;
};

/* -- parsing ----------------------------------------------------------------------------------------- */

static int parse_operand(Operand *operand, PyObject *spec, Py_ssize_t register_count) {
    PyObject *kind;
    if (!PyArg_ParseTuple(spec, "nUn", &operand->slot, &kind, &operand->dimension)) return -1;
    int index = name_index(operand_names, kind);
    if (index < 0) return -1;
    operand->kind = (OperandKind)index;
    if (operand->slot >= 0 && operand->slot < register_count) return 0;
    PyErr_Format(PyExc_ValueError, "register %zd is filled by no node", operand->slot);
    return -1;
}

static int parse_step(Step *step, PyObject *spec, Py_ssize_t operand_count, Py_ssize_t *depth) {
    PyObject *kind;
    long long number = 0;
    if (!PyArg_ParseTuple(spec, "U|L", &kind, &number)) return -1;
    int index = name_index(step_names, kind);
    if (index < 0) return -1;
    step->kind = (OperationKind)index;
    step->number = number;
    *depth += step->kind <= PUSH_CONSTANT ? 1 : -1;
    if (*depth >= 1 && (step->kind != PUSH_OPERAND || (number >= 0 && number < operand_count))) return 0;
    PyErr_SetString(PyExc_ValueError, "a condition takes what is not there");
    return -1;
}

static int parse_program(Condition *condition, PyObject *operands, PyObject *program, Py_ssize_t register_count) {
    Py_ssize_t depth = 0;
    for (Py_ssize_t i = 0; i < condition->operand_count; i++) {
        if (parse_operand(&condition->operands[i], PyTuple_GET_ITEM(operands, i), register_count) < 0) return -1;
    }
    for (Py_ssize_t i = 0; i < condition->step_count; i++) {
        PyObject *step = PyTuple_GET_ITEM(program, i);
        if (parse_step(&condition->steps[i], step, condition->operand_count, &depth) < 0) return -1;
        condition->depth = Py_MAX(condition->depth, depth);
    }
    if (depth == 1) return 0;
    PyErr_SetString(PyExc_ValueError, "a condition is one value");
    return -1;
}

Condition *condition_parse(PyObject *operands, PyObject *program, Py_ssize_t register_count) {
    Condition *condition = PyMem_Calloc(1, sizeof(Condition));
    if (condition == NULL) return (Condition *)PyErr_NoMemory();
    condition->operand_count = PyTuple_GET_SIZE(operands);
    condition->step_count = PyTuple_GET_SIZE(program);
    condition->operands = PyMem_Calloc((size_t)condition->operand_count + 1, sizeof(Operand));
    condition->steps = PyMem_Calloc((size_t)condition->step_count + 1, sizeof(Step));
    if (condition->operands == NULL || condition->steps == NULL) PyErr_NoMemory();
    else if (parse_program(condition, operands, program, register_count) == 0) return condition;
    condition_free(condition);
    return NULL;
}

void condition_free(Condition *condition) {
    if (condition == NULL) return;
    PyMem_Free(condition->operands);
    PyMem_Free(condition->steps);
    PyMem_Free(condition);
}

/* -- evaluation -------------------------------------------------------------------------------------- */

/* 1 read, 0 it has no such number, -1 an exception. */
static int read_operand(const Operand *operand, PyObject *value, int64_t *number) {
    if (operand->kind == OPERAND_INT) {
        int overflow;
        if (!PyLong_Check(value)) return 0;
        *number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0;
    }
    if (operand->kind == OPERAND_BITS) {
        if (!PyFloat_CheckExact(value)) return 0;
        memcpy(number, &((PyFloatObject *)value)->ob_fval, sizeof *number);
        return 1;
    }
    if (operand->kind == OPERAND_LENGTH) {
        *number = stored_length(value);
        return *number < 0 ? -1 : 1;
    }
    if (!tensor_check(value)) return 0;
    TensorView view;
    if (tensor_view(value, &view) < 0) return -1;
    if (operand->kind == OPERAND_OFFSET) return tensor_offset(value, number) < 0 ? -1 : 1;
    if (operand->dimension < 0 || operand->dimension >= view.dimensions) return 0;
    *number = (operand->kind == OPERAND_SIZE ? view.sizes : view.strides)[operand->dimension];
    return 1;
}

int condition_check(const Condition *condition, PyObject *const *registers) {
    int64_t stack[condition->depth], *top = stack;
    for (Py_ssize_t i = 0; i < condition->step_count; i++) {
        const Step *step = &condition->steps[i];
        if (step->kind == PUSH_CONSTANT) {
            *top++ = step->number;
        } else if (step->kind == PUSH_OPERAND) {
            const Operand *operand = &condition->operands[step->number];
            int status = read_operand(operand, registers[operand->slot], top++);
            if (status != 1) return status;
        } else {
            top--;
            if (!operate(step->kind, top - 1, *top)) return 0;
        }
    }
    return stack[0] != 0;
}
