/* Integer arithmetic of postfix programs: sizes of plans and conditions of guards.
 *
 * Division and remainder floor, as Python's do; what overflows 64 bits or divides by zero has no value.
 */
#ifndef STATOR_ARITHMETIC_H
#define STATOR_ARITHMETIC_H

#include "native.h"

/* Operations by their names in a specification. */
#define ARITHMETIC(OPERATION)                                                                                          \
    OPERATION(PUSH_OPERAND, "operand") OPERATION(PUSH_CONSTANT, "const") OPERATION(ADD, "+") OPERATION(SUBTRACT, "-")  \
    OPERATION(MULTIPLY, "*") OPERATION(FLOOR_DIVIDE, "//") OPERATION(REMAINDER, "%") OPERATION(MAXIMUM, "max")         \
    OPERATION(MINIMUM, "min")
#define COMPARISONS(OPERATION)                                                                                         \
    OPERATION(EQUAL, "==") OPERATION(NOT_EQUAL, "!=") OPERATION(LESS, "<") OPERATION(LESS_EQUAL, "<=")
#define OPERATION_KIND(kind, name) kind,

typedef enum { ARITHMETIC(OPERATION_KIND) COMPARISONS(OPERATION_KIND) } OperationKind;

static inline bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (b == 0 || (a == INT64_MIN && b == -1)) return false;
    bool lower = a % b != 0 && (a < 0) != (b < 0);
    *quotient = a / b - lower;
    *remainder = a % b + (lower ? b : 0);
    return true;
}

/* a = a <operation> b; false where 64 bits do not hold it. */
static inline bool operate(OperationKind kind, int64_t *a, int64_t b) {
    int64_t unused;
    switch (kind) {
    case ADD: return !__builtin_add_overflow(*a, b, a);
    case SUBTRACT: return !__builtin_sub_overflow(*a, b, a);
    case MULTIPLY: return !__builtin_mul_overflow(*a, b, a);
    case FLOOR_DIVIDE: return floor_divide(*a, b, a, &unused);
    case REMAINDER: return floor_divide(*a, b, &unused, a);
    case MAXIMUM: *a = *a > b ? *a : b; return true;
    case MINIMUM: *a = *a < b ? *a : b; return true;
    case EQUAL: *a = *a == b; return true;
    case NOT_EQUAL: *a = *a != b; return true;
    case LESS: *a = *a < b; return true;
    default: *a = *a <= b; return true; /* LESS_EQUAL */
    }
}

#endif
