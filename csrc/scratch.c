/* Blocks belong to a device and a stream of it, and to no thread: a call takes the block that its graph had last, or the
 * largest, and gives it back when it is done, or queued on the stream. So calls that overlap, in two threads, on two
 * streams or one inside the other, never share a block, and a block stays where it is while a call has it. There are as
 * many blocks as calls once overlapped, each as large as the largest graph that had it needs. The GIL protects the list
 * of those that are free.
 */
#include "scratch.h"

#include <string.h>

#define MOST_FREE 64
#define HOST (-1)
#define COMBINATIONS 32 /* of sizes of a graph, whose layouts are kept */

static struct {
    Block free[MOST_FREE];
    Py_ssize_t count;
    uint64_t serial;
    Layouts *viewed; /* those that may have views into blocks */
} pool;

/* -- blocks ------------------------------------------------------------------------------------------- */

/* The block with this serial, if it is large enough, or the largest of its device and stream. */
static bool take_free(int64_t nbytes, uint64_t last, Block *block) {
    Py_ssize_t best = -1;
    for (Py_ssize_t i = 0; i < pool.count; i++) {
        if (pool.free[i].device != block->device || pool.free[i].stream != block->stream) continue;
        if (pool.free[i].serial == last && pool.free[i].nbytes >= nbytes) {
            best = i;
            break;
        }
        if (best < 0 || pool.free[i].nbytes > pool.free[best].nbytes) best = i;
    }
    if (best < 0) return false;
    *block = pool.free[best];
    pool.free[best] = pool.free[--pool.count];
    return true;
}

/* Lets go of all views into a block, which keep its memory. */
static void forget_views(uint64_t serial) {
    PyObject *found = PyList_New(0); /* letting go runs code, which may change the list */
    for (Layouts *layouts = pool.viewed; found != NULL && layouts != NULL; layouts = layouts->next) {
        for (Py_ssize_t i = 0; i < layouts->count; i++) {
            Layout *layout = &layouts->items[i];
            if (layout->serial != serial || layout->views == NULL || PyList_Append(found, layout->views) < 0) continue;
            Py_CLEAR(layout->views);
        }
    }
    PyErr_Clear();
    Py_XDECREF(found);
}

static void drop_block(Block *block) {
    forget_views(block->serial);
    Py_CLEAR(block->tensor);
}

static int allocate(Layouts *layouts, int64_t nbytes, Block *block) {
    PyObject *number = PyLong_FromLongLong(nbytes);
    block->tensor = number ? PyObject_CallOneArg(layouts->allocate, number) : NULL;
    Py_XDECREF(number);
    void *data = NULL;
    if (block->tensor == NULL || tensor_data(block->tensor, &data) < 0) {
        Py_CLEAR(block->tensor);
        return -1;
    }
    block->data = data;
    block->nbytes = nbytes;
    block->serial = ++pool.serial;
    return 0;
}

/* One that is too small makes way; where sizes change, half as much again is asked for, for they grow step by step. */
static int take_block(Layouts *layouts, int64_t nbytes, Block *block) {
    block->device = layouts->stream != NULL ? layouts->device : HOST; /* both may have a first device and stream */
    block->stream = NULL;
    if (layouts->stream != NULL && layouts->stream(layouts->device, &block->stream) != 0) {
        PyErr_SetString(PyExc_RuntimeError, "torch does not tell the current stream");
        return -1;
    }
    bool found = take_free(nbytes, layouts->last, block);
    if (found && block->nbytes < nbytes) {
        if (layouts->size_count > 0) nbytes = Py_MAX(nbytes, block->nbytes + block->nbytes / 2);
        drop_block(block);
        found = false;
    }
    if (!found && allocate(layouts, nbytes, block) < 0) return -1;
    layouts->last = block->serial;
    return 0;
}

static void give_block(Block *block) {
    if (block->tensor == NULL) return;
    if (pool.count < MOST_FREE) pool.free[pool.count++] = *block;
    else drop_block(block);
    block->tensor = NULL;
}

/* -- layouts ------------------------------------------------------------------------------------------ */

static void drop_layout(Layout *layout) {
    PyMem_Free(layout->sizes);
    PyMem_Free(layout->starts);
    Py_CLEAR(layout->pieces);
    Py_CLEAR(layout->views);
}

static int read_placed(const Layouts *layouts, PyObject *placed, Layout *layout) {
    PyObject *starts;
    long long nbytes;
    if (!PyTuple_Check(placed)) {
        PyErr_SetString(PyExc_TypeError, "a layout is (nbytes, starts, pieces)");
        return -1;
    }
    if (!PyArg_ParseTuple(placed, "LO!O:layout", &nbytes, &PyTuple_Type, &starts, &layout->pieces)) return -1;
    Py_INCREF(layout->pieces);
    layout->nbytes = nbytes;
    if (PyTuple_GET_SIZE(starts) != layouts->piece_count) {
        PyErr_SetString(PyExc_ValueError, "a layout has as many starts as there are pieces");
        return -1;
    }
    layout->starts = PyMem_New(ptrdiff_t, layouts->piece_count + 1);
    if (layout->starts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < layouts->piece_count; i++) {
        layout->starts[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(starts, i));
        if (layout->starts[i] < 0 || layout->starts[i] > nbytes) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a piece begins outside of its memory");
            return -1;
        }
    }
    return 0;
}

static int make_layout(Layouts *layouts, const int64_t *sizes, Layout *layout) {
    memset(layout, 0, sizeof(*layout));
    layout->sizes = PyMem_New(int64_t, layouts->size_count + 1);
    if (layout->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(layout->sizes, sizes, (size_t)layouts->size_count * sizeof(int64_t));
    PyObject *given = tensor_integers(sizes, layouts->size_count);
    PyObject *placed = given ? PyObject_Call(layouts->place, given, NULL) : NULL;
    int status = placed ? read_placed(layouts, placed, layout) : -1;
    Py_XDECREF(given);
    Py_XDECREF(placed);
    if (status < 0) drop_layout(layout);
    return status;
}

/* The layout of these sizes, the first of the list from then on. What is evicted is let go last: that runs code. */
static Layout *find_layout(Layouts *layouts, const int64_t *sizes) {
    size_t bytes = (size_t)layouts->size_count * sizeof(int64_t);
    for (Py_ssize_t i = 0; i < layouts->count; i++) {
        if (memcmp(layouts->items[i].sizes, sizes, bytes) != 0) continue;
        Layout found = layouts->items[i];
        memmove(&layouts->items[1], &layouts->items[0], (size_t)i * sizeof(Layout));
        layouts->items[0] = found;
        return layouts->items;
    }
    Layout made, evicted = {0};
    if (make_layout(layouts, sizes, &made) < 0) return NULL; /* may have run code that changed the list */
    Layout *items = layouts->items;
    if (items == NULL) items = PyMem_Calloc(COMBINATIONS, sizeof(Layout));
    if (items == NULL) {
        drop_layout(&made);
        PyErr_NoMemory();
        return NULL;
    }
    layouts->items = items;
    if (layouts->count == COMBINATIONS) evicted = items[--layouts->count];
    memmove(&items[1], &items[0], (size_t)layouts->count * sizeof(Layout));
    items[0] = made;
    layouts->count++;
    drop_layout(&evicted);
    return layouts->items;
}

static void link_viewed(Layouts *layouts) {
    if (layouts->link != NULL) return;
    layouts->next = pool.viewed;
    layouts->link = &pool.viewed;
    if (layouts->next != NULL) layouts->next->link = &layouts->next;
    pool.viewed = layouts;
}

static void unlink_viewed(Layouts *layouts) {
    if (layouts->link == NULL) return;
    *layouts->link = layouts->next;
    if (layouts->next != NULL) layouts->next->link = layouts->link;
    layouts->link = NULL;
}

static PyObject *make_views(Layouts *layouts, const int64_t *sizes, const Block *block, PyObject *pieces) {
    PyObject *views = PyObject_CallFunctionObjArgs(layouts->views, block->tensor, pieces, NULL);
    bool fits = views != NULL && PyTuple_Check(views) && PyTuple_GET_SIZE(views) == layouts->piece_count;
    for (Py_ssize_t i = 0; fits && i < layouts->piece_count; i++) {
        PyObject *item = PyTuple_GET_ITEM(views, i);
        fits = item == Py_None || tensor_check(item);
    }
    if (views != NULL && !fits) {
        PyErr_SetString(PyExc_TypeError, "views gives a tuple with a tensor, or None, for each piece");
        Py_CLEAR(views);
    }
    Layout *layout = views ? find_layout(layouts, sizes) : NULL; /* it may have moved meanwhile */
    if (layout == NULL) {
        Py_XDECREF(views);
        return NULL;
    }
    link_viewed(layouts);
    PyObject *before = layout->views;
    layout->views = Py_NewRef(views);
    layout->serial = block->serial;
    Py_XDECREF(before);
    return views;
}

/* The pieces in a block as tensors, a new reference. */
static PyObject *see_pieces(Layouts *layouts, const int64_t *sizes, const Block *block) {
    Layout *layout = find_layout(layouts, sizes);
    if (layout == NULL) return NULL;
    if (layout->views != NULL && layout->serial == block->serial) return Py_NewRef(layout->views);
    PyObject *pieces = Py_NewRef(layout->pieces);
    PyObject *views = make_views(layouts, sizes, block, pieces);
    Py_DECREF(pieces);
    return views;
}

int scratch_take(Layouts *layouts, const int64_t *numbers, Taken *taken) {
    int64_t sizes[layouts->size_count + 1];
    for (Py_ssize_t i = 0; i < layouts->size_count; i++) sizes[i] = numbers[layouts->numbers[i]];
    Layout *layout = find_layout(layouts, sizes);
    if (layout == NULL) return -1;
    memcpy(taken->starts, layout->starts, (size_t)layouts->piece_count * sizeof(ptrdiff_t));
    if (take_block(layouts, layout->nbytes, &taken->block) < 0) return -1;
    if (layouts->views == NULL) return 0;
    taken->views = see_pieces(layouts, sizes, &taken->block);
    if (taken->views != NULL) return 0;
    scratch_give(taken);
    return -1;
}

void scratch_give(Taken *taken) {
    Py_CLEAR(taken->views);
    give_block(&taken->block);
}

int scratch_traverse(Layouts *layouts, visitproc visit, void *arg) {
    Py_VISIT(layouts->place);
    Py_VISIT(layouts->views);
    Py_VISIT(layouts->allocate);
    for (Py_ssize_t i = 0; i < layouts->count; i++) {
        Py_VISIT(layouts->items[i].pieces);
        Py_VISIT(layouts->items[i].views);
    }
    return 0;
}

void scratch_clear(Layouts *layouts) {
    Layout *items = layouts->items;
    Py_ssize_t count = layouts->count;
    unlink_viewed(layouts);
    layouts->items = NULL;
    layouts->count = 0;
    for (Py_ssize_t i = 0; i < count; i++) drop_layout(&items[i]);
    PyMem_Free(items);
    Py_CLEAR(layouts->place);
    Py_CLEAR(layouts->views);
    Py_CLEAR(layouts->allocate);
}

/* -- for Python --------------------------------------------------------------------------------------- */

PyObject *native_scratch_bytes(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    int64_t sum = 0;
    for (Py_ssize_t i = 0; i < pool.count; i++) sum += pool.free[i].nbytes;
    return PyLong_FromLongLong(sum);
}

static bool belongs(const Block *block, int device, unsigned long long stream) {
    return block->device == device && block->stream == (void *)(uintptr_t)stream;
}

/* scratch_blocks(device, stream): the memory that is kept for calls on a stream, as tensors. */
PyObject *native_scratch_blocks(PyObject *module, PyObject *args) {
    (void)module;
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "iK:scratch_blocks", &device, &stream)) return NULL;
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < pool.count; i++) {
        const Block *block = &pool.free[i];
        if (!belongs(block, device, stream)) continue;
        if (PyList_Append(found, block->tensor) < 0) Py_CLEAR(found);
    }
    return found;
}

static void forget(int device, unsigned long long stream) {
    for (Py_ssize_t i = pool.count - 1; i >= 0; i = Py_MIN(i, pool.count) - 1) { /* letting go may run code */
        if (!belongs(&pool.free[i], device, stream)) continue;
        Block block = pool.free[i];
        pool.free[i] = pool.free[--pool.count];
        drop_block(&block);
    }
}

/* scratch_forget(device, stream): gives that memory back. */
PyObject *native_scratch_forget(PyObject *module, PyObject *args) {
    (void)module;
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "iK:scratch_forget", &device, &stream)) return NULL;
    forget(device, stream);
    Py_RETURN_NONE;
}

/* scratch_move(device, from, to): calls on a stream get the largest block of another one, if it is larger than all of
 * theirs; the others of that one go back. */
PyObject *native_scratch_move(PyObject *module, PyObject *args) {
    (void)module;
    int device;
    unsigned long long from, to;
    Block *best = NULL;
    if (!PyArg_ParseTuple(args, "iKK:scratch_move", &device, &from, &to)) return NULL;
    for (Py_ssize_t i = 0; i < pool.count; i++) {
        Block *block = &pool.free[i];
        if (!belongs(block, device, from) && !belongs(block, device, to)) continue;
        if (best == NULL || block->nbytes > best->nbytes) best = block;
    }
    if (best != NULL) best->stream = (void *)(uintptr_t)to;
    forget(device, from);
    Py_RETURN_NONE;
}

PyObject *native_scratch_release(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    while (pool.count > 0) {
        Block block = pool.free[--pool.count];
        drop_block(&block);
    }
    Py_RETURN_NONE;
}
