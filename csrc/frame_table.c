/* What the frame hook knows about one code object: nothing, that its frames are left alone, or a table of versions.
 *
 * The table hangs on the code object itself (co_extra), so it is found with two loads and goes away with the code. It
 * is an open hash of (settings, instance): methods of modules have versions of their own for each module, closures for
 * each function object. Settings are owned; an instance is an address, and whoever adds one detaches its entries before
 * it dies (capture/hook.py).
 */
#include "frame_table.h"

#include "frame_hook.h"
#include "frame_layout.h"

#include <string.h>

char SKIPPED, SKIPPED_RECURSIVELY;

struct FrameTable {
    FrameEntries **places; /* owned; NULL where free */
    size_t size;           /* a power of two, more than `count` */
    size_t count;
};

/* co_extra as CPython lays it out. */
typedef struct {
    Py_ssize_t size;
    void *values[1];
} CodeExtra;

static Py_ssize_t extra_index = -1;

Py_ssize_t frame_parameters(const PyCodeObject *code) {
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
           ((code->co_flags & CO_VARKEYWORDS) != 0);
}

/* -- the state of a code object ---------------------------------------------------------------------- */

void *frame_state(const PyCodeObject *code) {
    const CodeExtra *extra = code->co_extra;
    return extra != NULL && extra->size > extra_index ? extra->values[extra_index] : NULL;
}

static void free_state(void *state) {
    if (state == NULL || state == &SKIPPED || state == &SKIPPED_RECURSIVELY || IS_FINALIZING()) return;
    FrameTable *table = state;
    for (size_t i = 0; i < table->size; i++) {
        if (table->places[i] == NULL) continue;
        table->places[i]->table = NULL;
        Py_DECREF(table->places[i]);
    }
    PyMem_Free(table->places);
    PyMem_Free(table);
}

int frame_set_state(PyObject *code, void *state) {
    void *before = frame_state((PyCodeObject *)code);
    if (before == NULL) return SET_EXTRA(code, extra_index, state);
    /* Not through CPython, which frees the old state while the code object still has it. */
    ((CodeExtra *)((PyCodeObject *)code)->co_extra)->values[extra_index] = state;
    if (before != state) free_state(before);
    return 0;
}

int frame_leave_alone(PyObject *code) { return frame_set_state(code, &SKIPPED); }

int frame_table_prepare(void) {
    extra_index = REQUEST_EXTRA(free_state);
    if (extra_index < 0) PyErr_SetString(PyExc_RuntimeError, "code objects have no room for the frame hook");
    return extra_index < 0 ? -1 : 0;
}

/* -- the table --------------------------------------------------------------------------------------- */

static FrameEntries **place_of(const FrameTable *table, const void *settings, const void *instance) {
    size_t mask = table->size - 1, at = (((uintptr_t)settings >> 4) ^ ((uintptr_t)instance >> 5)) & mask;
    for (;; at = (at + 1) & mask) {
        FrameEntries *found = table->places[at];
        if (found == NULL || (found->settings == settings && found->instance == instance)) return &table->places[at];
    }
}

FrameEntries *frame_table_find(const FrameTable *table, const PyObject *settings, const PyObject *first,
                               const PyObject *function) {
    FrameEntries *found = first != NULL ? *place_of(table, settings, first) : NULL;
    if (found == NULL && function != NULL) found = *place_of(table, settings, function);
    return found != NULL ? found : *place_of(table, settings, NULL);
}

/* All entries in an array of another size; also what closes the gaps that a removal leaves. */
static int rebuild(FrameTable *table, size_t size) {
    FrameEntries **before = table->places, **places = PyMem_Calloc(size, sizeof(FrameEntries *));
    if (places == NULL) return PyErr_NoMemory(), -1;
    size_t old = table->size;
    table->places = places;
    table->size = size;
    for (size_t i = 0; i < old; i++) {
        if (before[i] != NULL) *place_of(table, before[i]->settings, before[i]->instance) = before[i];
    }
    PyMem_Free(before);
    return 0;
}

static FrameTable *table_of(PyObject *code) {
    void *state = frame_state((PyCodeObject *)code);
    if (state != NULL && state != &SKIPPED && state != &SKIPPED_RECURSIVELY) return state;
    FrameTable *table = PyMem_Calloc(1, sizeof(FrameTable));
    if (table == NULL) return (FrameTable *)PyErr_NoMemory();
    if (rebuild(table, 4) == 0 && frame_set_state(code, table) == 0) return table;
    PyMem_Free(table->places);
    PyMem_Free(table);
    return NULL;
}

FrameEntries *frame_table_entries(PyObject *code, PyObject *settings, PyObject *instance) {
    FrameTable *table = table_of(code);
    if (table == NULL) return NULL;
    FrameEntries *found = *place_of(table, settings, instance);
    if (found != NULL) return (FrameEntries *)Py_NewRef((PyObject *)found);
    if (2 * (table->count + 1) > table->size && rebuild(table, 2 * table->size) < 0) return NULL;
    FrameEntries *made = PyObject_GC_New(FrameEntries, &FrameEntries_Type);
    if (made == NULL) return NULL;
    PyObject head = made->ob_base;
    memset(made, 0, sizeof(FrameEntries));
    made->ob_base = head;
    made->table = table;
    made->settings = Py_NewRef(settings);
    made->instance = instance;
    made->parameters = frame_parameters((PyCodeObject *)code);
    made->freevars = ((PyCodeObject *)code)->co_nfreevars;
    PyObject_GC_Track(made);
    *place_of(table, settings, instance) = (FrameEntries *)Py_NewRef((PyObject *)made);
    table->count++;
    return made;
}

/* -- entries ----------------------------------------------------------------------------------------- */

static int tell(PyObject *retired) {
    Py_INCREF(retired);
    PyObject *done = PyObject_CallNoArgs(retired);
    Py_DECREF(retired);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int frame_entries_match(FrameEntries *self, PyObject *const *slots, PyObject **code, bool *watch) {
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *tree = Py_NewRef(self->entries[i].tree); /* guards may run code that changes the entries */
        int status = guard_tree_check(tree, slots, self->parameters + 1);
        bool unchanged = i < self->count && self->entries[i].tree == tree;
        Py_DECREF(tree);
        if (status < 0) return -1;
        if (!unchanged) i = -1;
        else if (status == 1) {
            FrameEntry entry = self->entries[i];
            if (i > 0) {
                memmove(self->entries + 1, self->entries, (size_t)i * sizeof(FrameEntry));
                self->entries[0] = entry;
            }
            *code = Py_NewRef(entry.code);
            *watch = entry.watch;
            if (entry.retired == NULL || tell(entry.retired) == 0) return 1;
            Py_CLEAR(*code);
            return -1;
        }
    }
    return 0;
}

static bool fits(const FrameEntries *self, PyObject *object) {
    if (object == Py_None) return true;
    if (!PyCode_Check(object)) return false;
    const PyCodeObject *code = (PyCodeObject *)object;
    return frame_parameters(code) == self->parameters && code->co_nfreevars == self->freevars &&
           !(code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR));
}

static PyObject *entries_add(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    FrameEntries *self = (FrameEntries *)object;
    if (count != 3 || !Py_IS_TYPE(args[0], &GuardTree_Type) || !PyBool_Check(args[2]) || !fits(self, args[1])) {
        PyErr_SetString(PyExc_TypeError, "add(tree: GuardTree, code: CodeType of the same signature | None, watch: bool)");
        return NULL;
    }
    if (args[1] != Py_None && frame_leave_alone(args[1]) < 0) return NULL;
    if (self->count == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 4;
        FrameEntry *entries = PyMem_Realloc(self->entries, (size_t)room * sizeof(FrameEntry));
        if (entries == NULL) return PyErr_NoMemory();
        self->entries = entries;
        self->room = room;
    }
    self->entries[self->count++] = (FrameEntry){Py_NewRef(args[0]), Py_NewRef(args[1]), args[2] == Py_True, NULL};
    Py_RETURN_NONE;
}

static PyObject *entries_retire(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    FrameEntries *self = (FrameEntries *)object;
    if (count != 2 || !PyCallable_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "retire(tree: GuardTree, told: Callable)");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        FrameEntry *entry = &self->entries[i];
        if (entry->tree != args[0]) continue;
        PyObject *before[] = {entry->code, entry->retired};
        entry->code = Py_NewRef(Py_None);
        entry->watch = false;
        entry->retired = Py_NewRef(args[1]);
        Py_DECREF(before[0]);
        Py_XDECREF(before[1]);
        break;
    }
    Py_RETURN_NONE;
}

static int entries_drop(PyObject *object) {
    FrameEntries *self = (FrameEntries *)object;
    FrameEntry *entries = self->entries;
    Py_ssize_t count = self->count;
    self->entries = NULL;
    self->count = self->room = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(entries[i].tree);
        Py_DECREF(entries[i].code);
        Py_XDECREF(entries[i].retired);
    }
    PyMem_Free(entries);
    return 0;
}

static PyObject *entries_clear(PyObject *self, PyObject *ignored) {
    (void)ignored;
    entries_drop(self);
    Py_RETURN_NONE;
}

static PyObject *entries_detach(PyObject *object, PyObject *ignored) {
    (void)ignored;
    FrameEntries *self = (FrameEntries *)object;
    FrameTable *table = self->table;
    if (table == NULL) Py_RETURN_NONE;
    self->table = NULL;
    *place_of(table, self->settings, self->instance) = NULL;
    table->count--;
    int status = rebuild(table, table->size);
    Py_DECREF(object); /* the table's reference; the caller has one */
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *entries_get(PyObject *object, void *closure) {
    (void)closure;
    FrameEntries *self = (FrameEntries *)object;
    PyObject *result = PyList_New(self->count);
    for (Py_ssize_t i = 0; result != NULL && i < self->count; i++) {
        FrameEntry *entry = &self->entries[i];
        PyObject *item = PyTuple_Pack(3, entry->tree, entry->code, entry->watch ? Py_True : Py_False);
        if (item == NULL) Py_CLEAR(result);
        else PyList_SET_ITEM(result, i, item);
    }
    return result;
}

static int entries_traverse(PyObject *object, visitproc visit, void *arg) {
    FrameEntries *self = (FrameEntries *)object;
    Py_VISIT(self->settings);
    Py_VISIT(self->owner);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->entries[i].tree);
        Py_VISIT(self->entries[i].code);
        Py_VISIT(self->entries[i].retired);
    }
    return 0;
}

static int entries_clear_slots(PyObject *object) {
    entries_drop(object);
    Py_CLEAR(((FrameEntries *)object)->owner);
    return 0;
}

static void entries_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    entries_clear_slots(object);
    Py_XDECREF(((FrameEntries *)object)->settings);
    PyObject_GC_Del(object);
}

static PyMethodDef entries_methods[] = {
    {"add", (PyCFunction)(void (*)(void))entries_add, METH_FASTCALL, "add(tree, code, watch): a new last entry."},
    {"retire", (PyCFunction)(void (*)(void))entries_retire, METH_FASTCALL,
     "retire(tree, told): frames that the entry matches run as they are from now on, after told()."},
    {"clear", entries_clear, METH_NOARGS, "Forget all entries."},
    {"detach", entries_detach, METH_NOARGS, "The code object forgets these entries."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef entries_members[] = {
    {"owner", Py_T_OBJECT_EX, offsetof(FrameEntries, owner), 0, "what Python keeps with them"},
    {"closed", Py_T_BOOL, offsetof(FrameEntries, closed), 0, "whether a frame that matches none runs as it is, unasked"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef entries_getset[] = {
    {"entries", entries_get, NULL, "(tree, code or None, watch), in the order in which they are tried", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrameEntries_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "stator._native.FrameEntries",
    .tp_doc = "The compiled versions of the frames of one code object; made by frame_entries().",
    .tp_basicsize = sizeof(FrameEntries),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = entries_dealloc,
    .tp_traverse = entries_traverse,
    .tp_clear = entries_clear_slots,
    .tp_methods = entries_methods,
    .tp_members = entries_members,
    .tp_getset = entries_getset,
};
