/* What an Executor is made of: the steps of a plan as executor_parse.c reads them and executor.c runs them.
 *
 * A register holds a tensor while it is in use, as a Python object or as a handle that is owned; the first registers
 * are pieces of scratch memory and have an address instead. Numbers are the values of symbols. Everything hangs on
 * `memory` and `objects`, so an executor that was read halfway is let go like any other.
 */
#ifndef STATOR_EXECUTOR_H
#define STATOR_EXECUTOR_H

#include "device.h"
#include "extent.h"
#include "packed.h"
#include "scratch.h"
#include "shim.h"

#define STEPS(STEP)                                                                                                    \
    STEP(STEP_ALLOCATE, "allocate") STEP(STEP_REUSE, "reuse") STEP(STEP_LAUNCH, "launch") STEP(STEP_CALL, "call")      \
    STEP(STEP_RELEASE, "release")
#define ARGUMENTS(ARGUMENT)                                                                                            \
    ARGUMENT(ARGUMENT_CONSTANT, "constant") ARGUMENT(ARGUMENT_WHOLE, "whole") ARGUMENT(ARGUMENT_TURNED, "turned")      \
    ARGUMENT(ARGUMENT_VIEW, "view") ARGUMENT(ARGUMENT_RETYPED, "retyped") ARGUMENT(ARGUMENT_NUMBER, "number")          \
    ARGUMENT(ARGUMENT_BITS, "bits") ARGUMENT(ARGUMENT_LIST, "list")
#define KIND(kind, name) kind,

typedef enum { STEPS(KIND) } StepKind;
typedef enum { ARGUMENTS(KIND) } ArgumentKind;

/* Sizes and then strides; `known` has their values where no symbol is in them. */
typedef struct {
    Py_ssize_t dimensions;
    Extent *extents;
    int64_t *known;
} Form;

typedef struct Argument {
    ArgumentKind kind;
    PyObject *object; /* the constant, or for ARGUMENT_RETYPED the dtype; borrowed */
    Py_ssize_t index; /* a register */
    Form form;
    Extent extent;    /* a number, or where a view begins */
    Py_ssize_t count; /* of a list */
    struct Argument *items;
} Argument;

/* Which result of an operator, where it goes, and how it has to lie in memory. */
typedef struct {
    Py_ssize_t position, index;
    Form form;
} Promise;

/* How a product is called without Python: (out, a, b), or (out, c, a, b, beta, alpha). */
typedef int32_t (*Product)(TensorHandle out, TensorHandle a, TensorHandle b);
typedef int32_t (*ScaledProduct)(TensorHandle out, TensorHandle c, TensorHandle a, TensorHandle b, double beta,
                                 double alpha);

typedef struct {
    PyObject *callable, *names, *settle; /* borrowed; settle(results): those that are asked for, as promised */
    Py_ssize_t count, named;             /* arguments, by position and then by name */
    Argument *arguments;
    Py_ssize_t promise_count;
    Promise *promises;
    bool single; /* the operator gives a tensor and no tuple */
    Product product;
    ScaledProduct scaled;
    double beta, alpha;
    int64_t packed_rows; /* of a product by a packed weight (packed.h); 0 for any other call */
} Call;

typedef struct {
    StepKind kind;
    union {
        struct {
            Py_ssize_t index, donor;
            Form form; /* for STEP_REUSE without dimensions and `same`: the donor's */
            int dtype;
            PyObject *device; /* borrowed; where memory is made, as torch has it and as its interface numbers it */
            int32_t device_type, device_index;
            bool large, reuse, same; /* in huge pages; in memory of earlier results; as the donor lies */
            Py_ssize_t place; /* which of the memory that a caller may give; -1: none */
        } memory;
        struct {
            KernelFunction function; /* or NULL, and code for a device */
            DeviceCode *code;
            Py_ssize_t count, size_count;
            Py_ssize_t *indices;
            ptrdiff_t *moves;
            Extent *sizes;
        } launch;
        struct {
            Py_ssize_t count;
            Py_ssize_t *indices;
        } release;
        Call call;
    };
} Step;

/* A symbol that is read from the geometry of an input. */
typedef struct {
    Py_ssize_t number, index, dimension;
    bool stride;
} Read;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Memory *memory;    /* what all pointers below point into */
    PyObject *objects; /* the list of what is borrowed below */
    Py_ssize_t register_count, number_count;
    Py_ssize_t input_count, *inputs; /* a register, or ~number */
    Py_ssize_t read_count;
    Read *reads;
    Py_ssize_t unused_count, *unused;
    Layouts layouts;
    Py_ssize_t step_count, place_count;
    Step *steps;
    Py_ssize_t result_count;
    Argument *results;
    PyObject *retype;      /* view(tensor, size, stride, offset, dtype) */
    PyObject *keep, *fail; /* keep(*tensors), NULL if there are none; fail(step, error, kept) */
    Py_ssize_t kept_count, *kept, begin;
    bool brief;      /* all steps take less than others may be kept waiting for: the GIL stays */
    bool repeated;   /* it was called before: what it makes is likely to be asked for again */
    char device[16]; /* the type of the one device of all tensors; empty where there are several */
} Executor;

typedef struct {
    PyObject *object;
    TensorHandle handle;
} Register;

/* One call that is under way. */
typedef struct {
    Executor *self;
    const Shim *shim;
    Register *registers;
    int64_t *numbers;
    Taken taken;           /* scratch memory */
    PyThreadState *thread; /* NULL while this thread holds the GIL */
    PyObject *places;      /* a tuple of tensors, or None, for allocations that have a place; NULL: all memory is fresh */
} Run;

/* executor_parse.c: reads the arguments of Executor(…) into a new object; 0 or -1 with an exception. */
int executor_parse(Executor *self, PyObject *args, PyObject *keywords);

/* executor.c: the sizes and strides of a form: known, or computed into `room`; NULL like false above. */
const int64_t *form_values(const Form *form, const int64_t *numbers, int64_t room[2 * MAX_DIMENSIONS]);
int overflowed(void);
void hold_gil(Run *run);
void let_gil_go(Run *run);
/* A register as an object (borrowed), which it is from then on; NULL with an exception. */
PyObject *register_object(Run *run, Py_ssize_t index);
/* A register as a tensor (borrowed); NULL where it is empty. */
TensorHandle register_handle(const Run *run, Py_ssize_t index);
void register_set_object(Run *run, Py_ssize_t index, PyObject *stolen);

/* executor_call.c */
int run_call(Run *run, const Call *call);
/* An argument as a new reference. */
PyObject *argument_object(Run *run, const Argument *argument);

#endif
