/* Finds out, on memory of the host, that torch counts who holds memory as is known here. A storage is the same object
 * whatever device its memory is on.
 */
#include "holders.h"

static struct {
    bool prepared, known;
    uint64_t alone;   /* the word of counts of memory that one tensor alone holds */
    uint64_t wrapped; /* and of a tensor that an object of Python alone holds */
} state;

/* Whether, for memory of so many elements of torch's first dtype, the word of counts counts tensors, and shows that Python
 * has an object of the storage, and the facts begin with the address and tell the bytes. */
static bool counts_are_known(const Shim *shim, int64_t elements, uint64_t *alone) {
    int64_t stride = 1, nbytes;
    TensorHandle made, more;
    void *data;
    if (shim->make(1, &elements, &stride, 0, shim->cpu, 0, &made) != 0) return false;
    const char *storage = (const char *)tensor_storage_behind(made);
    *alone = holders_of(storage);
    bool known = shim->address(made, &data) == 0 && holders_memory(storage) == data &&
                 shim->storage_bytes(made, &nbytes) == 0 && *(const int64_t *)(storage + HOLDERS_FACTS + 32) == nbytes;
    if (known && (known = shim->view(made, 1, &elements, &stride, 0, &more) == 0)) {
        known = holders_of(storage) == *alone + 1;
        shim->release(more);
        known = known && holders_of(storage) == *alone;
    }
    PyObject *tensor = shim->wrap(made);
    shim->release(made);
    PyObject *seen = tensor ? PyObject_CallMethod(tensor, "untyped_storage", NULL) : NULL;
    known = known && seen != NULL && ((holders_of(storage) ^ *alone) & ~HOLDERS_STRONG) != 0;
    Py_XDECREF(seen);
    Py_XDECREF(tensor);
    return known;
}

/* Whether a tensor counts who holds it in the same place. */
static bool tensors_are_known(const Shim *shim, uint64_t *wrapped) {
    int64_t elements = 8, stride = 1;
    TensorHandle made, more;
    if (shim->make(1, &elements, &stride, 0, shim->cpu, 0, &made) != 0) return false;
    PyObject *tensor = shim->wrap(made);
    shim->release(made);
    if (tensor == NULL) return false;
    const char *impl = *(const char *const *)shim_handle(tensor);
    *wrapped = holders_of(impl);
    bool known = shim->share(shim_handle(tensor), &more) == 0;
    if (known) {
        known = ((holders_of(impl) ^ (*wrapped + 1)) & HOLDERS_STRONG) == 0 && (*wrapped & HOLDERS_STRONG) == 1;
        shim->release(more);
    }
    known = known && holders_of(impl) == *wrapped;
    Py_DECREF(tensor);
    return known;
}

int holders_prepare(void) {
    if (state.prepared || !tensor_raw() || shim_get() == NULL) return 0;
    state.prepared = true;
    uint64_t first = 0, second = 0, wrapped = 0;
    bool known = counts_are_known(shim_get(), 80, &first) && counts_are_known(shim_get(), 12000, &second);
    known = known && tensors_are_known(shim_get(), &wrapped);
    if (PyErr_Occurred()) return -1;
    state.alone = first;
    state.wrapped = wrapped;
    state.known = known && first == second;
    return 0;
}

bool holders_known(void) { return state.known; }

uint64_t holders_word(uint64_t tensors) { return state.alone + tensors - 1; }

uint64_t holders_word_of_tensor(void) { return state.wrapped; }
