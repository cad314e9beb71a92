/* Shared declarations of the extension module stator._native. The GIL protects all state.
 *
 *   calls of users        dispatcher.c   the callable that users hold
 *                         straight.c     runs an entry that is just a graph, without a frame
 *                         replay.c       what follows when compiled code fails
 *                         frame_hook.c, frame_table.c   compile the frames below
 *   guards                tree.c builds guard trees, guards.c evaluates them by checks.c, condition.c and region.c
 *                         watch.c        dicts that CPython watches for us
 *                         tensor.c, facts.c, state.c    read tensors and torch's global state
 *   compiled functions    plan.c         what rewritten code calls
 *                         outputs.c      what the user gets, where that is more than values
 *                         backward.c     what autograd calls
 *                         frozen.c       keeps what is computed from parameters alone
 *                         eager.c        runs a captured graph in eager
 *   compiled graphs       executor.c     runs a graph; executor_parse.c reads its steps, executor_call.c calls operators
 *                         extent.c       computes sizes
 *                         scratch.c, results.c, empty.c, pages.c   memory: intermediates, large results, new tensors
 *   kernels               kernels.c calls a compiled kernel, device.c one that a device runs, tiles.c one of the tile
 *                         language, packed.c MKL's product with a packed weight
 *   recordings            recorded.c calls recordings, recording.c replays one, place.c has their memory
 *                         holders.c      finds out who holds memory
 *   torch, and the rest   shim.c         torch's stable C interface
 *                         module.c       puts everything together
 */
#ifndef STATOR_NATIVE_H
#define STATOR_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030C0000 /* names that became public in 3.12 */
#include <structmember.h>
#define Py_T_OBJECT_EX T_OBJECT_EX
#define Py_T_BOOL T_BOOL
#define Py_READONLY READONLY
#endif

#define MAX_DIMENSIONS 64
#define OBJECT_HEADER 16 /* the C++ tensor handle follows the Python object header */

/* -- exceptions ----------------------------------------------------------------------------------- */

/* Takes the exception that is set, which has its traceback then; NULL if there is none. */
static inline PyObject *take_exception(void) {
#if PY_VERSION_HEX < 0x030C0000
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
#else
    return PyErr_GetRaisedException();
#endif
}

/* Sets it again (steals it). */
static inline void restore_exception(PyObject *exception) {
#if PY_VERSION_HEX < 0x030C0000
    if (exception != NULL) PyErr_Restore(Py_NewRef(Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
#else
    PyErr_SetRaisedException(exception);
#endif
}

/* -- tensor.c ------------------------------------------------------------------------------------- */

/* What a guard compares. sizes and strides point into the tensor or into `room`. */
typedef struct {
    int64_t dimensions;
    const int64_t *sizes;
    const int64_t *strides;
    int dtype;          /* torch's ScalarType number */
    int device;         /* device type * 256 + (index & 255) */
    uint64_t keys;      /* the dispatch key set */
    bool requires_grad;
    int64_t room[2 * MAX_DIMENSIONS];
} TensorView;

/* Learns where torch keeps tensor metadata, once; 0 or -1 with an exception (torch not importable). */
int tensor_prepare(void);
/* Whether the object is a torch.Tensor; call tensor_prepare before. */
bool tensor_check(PyObject *object);
/* Whether it is one of no other class. */
bool tensor_check_exact(PyObject *object);
/* Fills the view of a tensor; 0 or -1 with an exception. */
int tensor_view(PyObject *tensor, TensorView *view);
/* Sizes or strides as a tuple. */
PyObject *tensor_integers(const int64_t *values, Py_ssize_t count);
/* Where the tensor begins in its storage, in elements; 0 or -1 with an exception. */
int tensor_offset(PyObject *tensor, int64_t *offset);
/* The identity of the tensor's storage, 0 if it has none; -1 with an exception. */
int tensor_storage(PyObject *tensor, uintptr_t *storage);
/* The same of the tensor behind a handle; only where `tensor_raw`. */
uintptr_t tensor_storage_behind(const void *handle);
/* Where a tensor of elements of so many bytes begins, whether it has any or not; only where `tensor_raw`. */
void *tensor_begin(PyObject *tensor, int64_t item);
/* The address of the first element; -1 with an exception. */
int tensor_data(PyObject *tensor, void **data);
/* Whether autograd keeps nothing about the tensor, so that it is no view; false where that is not known. */
bool tensor_unrecorded(PyObject *tensor);
/* The ScalarType number of a torch.dtype (any number where `tensor_raw` is false), -1 with an exception. */
int dtype_number(PyObject *dtype);
/* Whether metadata is read at verified offsets; call tensor_prepare before. */
bool tensor_raw(void);

PyObject *native_tensor_facts(PyObject *module, PyObject *tensor);
PyObject *native_tensor_access(PyObject *module, PyObject *ignored);
PyObject *native_matches(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* -- state.c -------------------------------------------------------------------------------------- */

/* The number of a piece of torch's global state by its name, -1 if there is none. */
int state_number(const char *name);
/* Reads it; false if it cannot be read here. */
bool state_read(int number, uint64_t *value);
/* What several pieces of state have to be. */
#define MOST_STATES 16
typedef struct {
    uint32_t asked; /* bits, by number */
    uint64_t expected[MOST_STATES];
} StateCheck;

/* False where it has to be another one already. */
bool states_expect(StateCheck *states, int number, uint64_t value);
/* Whether they are; false also where one cannot be read here. */
bool states_match(const StateCheck *states);
/* Sets grad mode; false if it cannot be set here. */
bool state_set_grad_mode(bool enabled);

PyObject *native_read_state(PyObject *module, PyObject *name);

/* -- pages.c -------------------------------------------------------------------------------------- */

PyObject *native_ask_for_huge_pages(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* -- tree.c --------------------------------------------------------------------------------------- */

/* The place of a name in a list that ends with NULL; -1 with an exception. */
int name_index(const char *const *names, PyObject *name);

/* -- guards.c ------------------------------------------------------------------------------------- */

extern PyTypeObject GuardTree_Type;
/* 1 all guards pass, 0 one fails, -1 an exception that must surface (KeyboardInterrupt and the like). */
int guard_tree_check(PyObject *tree, PyObject *const *slots, Py_ssize_t count);
int guards_register(PyObject *module);

/* -- frame_hook.c --------------------------------------------------------------------------------- */

PyObject *native_suspend(PyObject *module, PyObject *ignored);
PyObject *native_resume(PyObject *module, PyObject *ignored);
PyObject *native_suspended(PyObject *module, PyObject *ignored);

/* -- dispatcher.c --------------------------------------------------------------------------------- */

extern PyTypeObject Dispatcher_Type;
/* What an entry returns that has more to do: its exact type is looked for in every result. */
extern PyTypeObject Continuation_Type;
/* The value that a call gives in the end (steals `result`, which may be NULL). */
PyObject *run_continuations(PyObject *result);
int dispatcher_register(PyObject *module);

/* -- straight.c ----------------------------------------------------------------------------------- */

extern PyTypeObject Straight_Type;
/* What an entry gives whose parameters are bound to these slots. */
PyObject *straight_call(PyObject *straight, PyObject *const *slots, Py_ssize_t count);

/* -- replay.c ------------------------------------------------------------------------------------- */

/* Raised by an entry that has done nothing yet: whoever called it calls the original. */
extern PyObject *run_original;
/* Takes that exception, which is set, before the original runs; NULL with another exception if it may not. */
PyObject *replay_begin(void);
/* The same for one that is given (and stolen) instead. */
PyObject *replay_start(PyObject *replay);
/* What the call gives in the end: `result` or its exception, or another one (steals both). */
PyObject *replay_end(PyObject *replay, PyObject *result);
int replay_register(PyObject *module);

/* -- kernels.c ------------------------------------------------------------------------------------ */

/* A compiled kernel: takes addresses and sizes, gives NULL or a text that says which index is out of range. */
typedef const char *(*KernelFunction)(void *const *pointers);

extern PyTypeObject Kernel_Type;
/* The function of a kernel whose arguments are not moved. */
KernelFunction kernel_function(PyObject *kernel);
/* The code of one that a device runs, or NULL. */
struct DeviceCode *kernel_code(PyObject *kernel);
/* A kernel that a device runs; `owner` lets the code go. */
PyObject *kernel_of_code(PyObject *owner, struct DeviceCode *code, PyObject *name);
/* Raises IndexOutOfRange with the text; NULL. */
PyObject *kernel_failed(const char *text);
PyObject *native_load_kernels(PyObject *module, PyObject *args);

/* -- empty.c -------------------------------------------------------------------------------------- */

extern PyTypeObject Empty_Type;

/* -- executor.c, scratch.c, results.c --------------------------------------------------------------------- */

extern PyTypeObject Executor_Type;
PyObject *native_scratch_bytes(PyObject *module, PyObject *ignored);
PyObject *native_scratch_blocks(PyObject *module, PyObject *args);
PyObject *native_scratch_move(PyObject *module, PyObject *args);
PyObject *native_scratch_forget(PyObject *module, PyObject *args);
PyObject *native_scratch_release(PyObject *module, PyObject *ignored);
PyObject *native_results_bytes(PyObject *module, PyObject *ignored);
PyObject *native_results_release(PyObject *module, PyObject *ignored);

/* -- plan.c --------------------------------------------------------------------------------------- */

extern PyTypeObject Plan_Type;
PyObject *native_record(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* -- outputs.c ------------------------------------------------------------------------------------ */

extern PyTypeObject Outputs_Type;
/* The tuple of results, from inputs (attributes, then arguments) and values. */
PyObject *outputs_make(PyObject *outputs, PyObject *attributes, PyObject *const *args, Py_ssize_t count,
                       PyObject *values);

/* -- backward.c ----------------------------------------------------------------------------------- */

extern PyTypeObject Backward_Type;
PyObject *native_backward(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* -- frozen.c ------------------------------------------------------------------------------------- */

extern PyTypeObject Frozen_Type;

/* -- eager.c -------------------------------------------------------------------------------------- */

extern PyTypeObject EagerGraph_Type;

#endif
