/* Dispatcher: the callable that users hold.
 *
 * A call binds its arguments to the parameters of the original function, without copying what it can
 * borrow, and tries the entries in turn: the first whose guards pass is called with the very same
 * arguments and moves to the front. When none passes, `fallback(args, kwargs)` (Python: capture, add an
 * entry, run) decides. While the thread is suspended (a capture is running, or the user disabled the
 * compiler) calls go to the original function. Placed in a class, a dispatcher behaves as a method.
 *
 * An entry may end in the middle of the program: it then returns a Continuation, which is called here in
 * its turn, so that a loop of them grows no stack. A Continuation never leaves this file's callers.
 */
#include "frame_hook.h"
#include "native.h"

#include <stddef.h>
#include <string.h>

typedef struct {
    PyObject *tree;
    PyObject *function;
    bool watch; /* whether frames below the entry are to be captured (frame_hook.c) */
    PyObject *retired; /* if its code has failed: what is told of each call, for which the original runs; else NULL */
    PyObject *straight; /* a Straight that does what the function does, or NULL */
} DispatchEntry;

/* What was found for a call: new references, or NULL. */
typedef struct {
    PyObject *function, *straight;
    bool watch;
} Found;

typedef struct {
    PyObject_HEAD
    PyObject *original; /* a Python function: signature, defaults, and what runs when suspended */
    PyObject *fallback;
    PyObject *settings; /* under which frames below watched entries are captured (frame_hook.c); may be NULL */
    PyObject *dict, *weakrefs;
    DispatchEntry *entries;
    Py_ssize_t count, room;
    vectorcallfunc vectorcall;
} Dispatcher;

/* -- binding ----------------------------------------------------------------------------------------- */

/* The parameters of one call, in the order of co_varnames: plain, keyword-only, *args, **kwargs. */
typedef struct {
    PyObject **slots;  /* borrowed, but for the two below */
    PyObject *rest;    /* new: the tuple for *args */
    PyObject *extra;   /* new: the dict for **kwargs */
    Py_ssize_t count;
} Bound;

static Py_ssize_t find_parameter(PyObject *names, Py_ssize_t from, Py_ssize_t to, PyObject *name) {
    for (Py_ssize_t i = from; i < to; i++) {
        if (PyTuple_GET_ITEM(names, i) == name) return i;
    }
    for (Py_ssize_t i = from; i < to; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return i;
    }
    return -1;
}

static void bind_defaults(PyObject *function, PyCodeObject *code, PyObject *names, Bound *bound) {
    PyObject *defaults = PyFunction_GET_DEFAULTS(function), *keywords = PyFunction_GET_KW_DEFAULTS(function);
    Py_ssize_t plain = code->co_argcount, named = plain + code->co_kwonlyargcount;
    Py_ssize_t first = plain - (defaults ? PyTuple_GET_SIZE(defaults) : 0);
    for (Py_ssize_t i = Py_MAX(first, 0); i < plain; i++) {
        if (bound->slots[i] == NULL) bound->slots[i] = PyTuple_GET_ITEM(defaults, i - first);
    }
    for (Py_ssize_t i = plain; i < named && keywords; i++) {
        if (bound->slots[i] == NULL) {
            bound->slots[i] = PyDict_GetItemWithError(keywords, PyTuple_GET_ITEM(names, i));
        }
    }
}

static PyObject *spare; /* an empty dict for **kwargs that nobody else has */

static PyObject *take_spare(void) {
    PyObject *taken = spare;
    spare = NULL;
    return taken ? taken : PyDict_New();
}

/* Lets go of what a binding has made. */
static void let_go(Bound *bound) {
    Py_XDECREF(bound->rest);
    if (spare == NULL && bound->extra && PyDict_GET_SIZE(bound->extra) == 0 && Py_REFCNT(bound->extra) == 1) {
        spare = bound->extra;
    } else {
        Py_XDECREF(bound->extra);
    }
}

static int bind_to(PyObject *names, PyObject *function, PyCodeObject *code, PyObject *const *args, Py_ssize_t count,
                   PyObject *kwnames, Bound *bound) {
    Py_ssize_t plain = code->co_argcount, named = plain + code->co_kwonlyargcount, next = named;
    bool has_rest = code->co_flags & CO_VARARGS, has_extra = code->co_flags & CO_VARKEYWORDS;
    Py_ssize_t direct = Py_MIN(count, plain);
    memset(bound->slots, 0, (size_t)bound->count * sizeof(PyObject *));
    memcpy(bound->slots, args, (size_t)direct * sizeof(PyObject *));
    if (count > plain && !has_rest) return 0;
    if (has_rest) {
        bound->rest = PyTuple_New(count - direct);
        if (bound->rest == NULL) return -1;
        for (Py_ssize_t i = direct; i < count; i++) PyTuple_SET_ITEM(bound->rest, i - direct, Py_NewRef(args[i]));
        bound->slots[next++] = bound->rest;
    }
    if (has_extra) {
        bound->extra = take_spare();
        if (bound->extra == NULL) return -1;
        bound->slots[next++] = bound->extra;
    }
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        Py_ssize_t at = find_parameter(names, code->co_posonlyargcount, named, name);
        if (at >= 0) {
            if (bound->slots[at] != NULL) return 0;
            bound->slots[at] = args[count + i];
        } else if (!has_extra) {
            return 0;
        } else if (PyDict_SetItem(bound->extra, name, args[count + i]) < 0) {
            return -1;
        }
    }
    bind_defaults(function, code, names, bound);
    for (Py_ssize_t i = 0; i < named; i++) {
        if (bound->slots[i] == NULL) return PyErr_Occurred() ? -1 : 0;
    }
    return 1;
}

/* 1 bound, 0 the call does not fit the signature, -1 an exception. */
static int bind(PyObject *function, PyCodeObject *code, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                Bound *bound) {
    bool by_name = kwnames != NULL || code->co_kwonlyargcount > 0; /* Python 3.11 makes a tuple of the names each time */
    PyObject *names = by_name ? PyCode_GetVarnames(code) : NULL;
    int fits = by_name && names == NULL ? -1 : bind_to(names, function, code, args, count, kwnames, bound);
    Py_XDECREF(names);
    return fits;
}

/* -- calling ----------------------------------------------------------------------------------------- */

static void move_to_front(Dispatcher *self, Py_ssize_t at) {
    DispatchEntry entry = self->entries[at];
    memmove(self->entries + 1, self->entries, (size_t)at * sizeof(DispatchEntry));
    self->entries[0] = entry;
}

/* `result` (stolen), once a retired entry has been told of the call. */
static PyObject *told(PyObject *retired, PyObject *result) {
    Py_INCREF(retired);
    PyObject *done = PyObject_CallNoArgs(retired);
    Py_DECREF(retired);
    if (done == NULL) Py_CLEAR(result);
    Py_XDECREF(done);
    return result;
}

/* The first entry that matches; nothing with or without an exception. */
static Found find_entry(Dispatcher *self, const Bound *bound) {
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PyObject *tree = Py_NewRef(self->entries[i].tree); /* guards may run code that changes the entries */
        int status = guard_tree_check(tree, bound->slots, bound->count);
        bool unchanged = i < self->count && self->entries[i].tree == tree;
        Py_DECREF(tree);
        if (status < 0) break;
        if (!unchanged) i = -1;
        else if (status == 1) {
            const DispatchEntry *entry = &self->entries[i];
            Found found = {Py_NewRef(entry->function), Py_XNewRef(entry->straight), entry->watch};
            PyObject *retired = entry->retired;
            if (i > 0) move_to_front(self, i);
            if (retired) found.function = told(retired, found.function);
            return found;
        }
    }
    return (Found){NULL, NULL, false};
}

/* Entries keep the defaults that the original has now. */
static int follow_defaults(PyObject *original, PyObject *function) {
    if (function == original || !PyFunction_Check(function)) return 0;
    PyObject *defaults = PyFunction_GET_DEFAULTS(original), *keywords = PyFunction_GET_KW_DEFAULTS(original);
    if (PyFunction_GET_DEFAULTS(function) != defaults &&
        PyFunction_SetDefaults(function, defaults ? defaults : Py_None) < 0) {
        return -1;
    }
    if (PyFunction_GET_KW_DEFAULTS(function) != keywords &&
        PyFunction_SetKwDefaults(function, keywords ? keywords : Py_None) < 0) {
        return -1;
    }
    return 0;
}

static PyObject *call_fallback(Dispatcher *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    PyObject *positional = PyTuple_New(count), *keywords = PyDict_New(), *result = NULL;
    if (positional != NULL && keywords != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
        for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
            if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[count + i]) < 0) goto done;
        }
        PyObject *both[] = {positional, keywords};
        result = PyObject_Vectorcall(self->fallback, both, 2, NULL);
    }
done:
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

/* Calls what an entry or the user gave: frames below it are captured if `watch`, and left alone otherwise. */
static PyObject *call_entry(Dispatcher *self, PyObject *function, bool watch, PyObject *const *args, size_t flags,
                            PyObject *kwnames) {
    if (!watch && activity.settings == NULL) return PyObject_Vectorcall(function, args, flags, kwnames);
    OuterRegion before = region_enter(watch ? self->settings : NULL, function);
    PyObject *result = PyObject_Vectorcall(function, args, flags, kwnames);
    region_leave(before);
    return result;
}

/* Whether somebody sees the frames that run: then the entry's own has to be among them. */
static bool is_seen(void) {
    PyThreadState *thread = PyThreadState_Get();
    return thread->c_profilefunc != NULL || thread->c_tracefunc != NULL;
}

static PyObject *dispatch_bound(Dispatcher *self, PyObject *const *args, size_t flags, PyObject *kwnames) {
    PyObject *original = self->original;
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(original);
    Py_ssize_t parameters = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                            ((code->co_flags & CO_VARKEYWORDS) != 0);
    PyObject *slots[parameters + 1];
    Bound bound = {.slots = slots, .count = parameters};
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject *result = NULL;
    Found found = {NULL, NULL, false};
    int fits = bind(original, code, args, count, kwnames, &bound);
    if (fits == 1) found = find_entry(self, &bound);
    bool straight = found.straight != NULL && activity.settings == NULL && !is_seen();
    if (straight) result = straight_call(found.straight, bound.slots, bound.count);
    let_go(&bound);
    Py_XDECREF(found.straight);
    if (!straight) {
        if (PyErr_Occurred()) return NULL;
        if (fits == 0) return PyObject_Vectorcall(original, args, flags, kwnames); /* raises Python's own TypeError */
        if (found.function == NULL) return call_fallback(self, args, count, kwnames);
        if (follow_defaults(original, found.function) == 0) {
            result = call_entry(self, found.function, found.watch, args, flags, kwnames);
        }
    }
    Py_XDECREF(found.function);
    if (result == NULL && PyErr_ExceptionMatches(run_original)) {
        PyObject *replay = replay_begin();
        if (replay != NULL) result = replay_end(replay, PyObject_Vectorcall(original, args, flags, kwnames));
    }
    return result;
}

/* One call, whose result may be a Continuation. */
static PyObject *dispatch_once(Dispatcher *self, PyObject *const *args, size_t flags, PyObject *kwnames) {
    if (activity.suspensions > 0) return PyObject_Vectorcall(self->original, args, flags, kwnames);
    _PyFrameEvalFunction aside = set_torchs_evaluator_aside();
    PyObject *result = dispatch_bound(self, args, flags, kwnames);
    put_evaluator_back(aside);
    return result;
}

static PyObject *dispatch(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    return run_continuations(dispatch_once((Dispatcher *)callable, args, flags, kwnames));
}

/* -- continuations ----------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *target;
    PyObject *args; /* a tuple */
} Continuation;

PyObject *run_continuations(PyObject *result) {
    while (result != NULL && Py_IS_TYPE(result, &Continuation_Type)) {
        Continuation *step = (Continuation *)result;
        PyObject *target = Py_NewRef(step->target), *args = Py_NewRef(step->args);
        Py_DECREF(step);
        PyObject *const *items = ((PyTupleObject *)args)->ob_item;
        size_t count = (size_t)PyTuple_GET_SIZE(args);
        if (Py_IS_TYPE(target, &Dispatcher_Type)) {
            result = dispatch_once((Dispatcher *)target, items, count, NULL);
        } else {
            result = PyObject_Vectorcall(target, items, count, NULL);
        }
        Py_DECREF(args);
        Py_DECREF(target);
    }
    return result;
}

static PyObject *continuation_call(PyObject *type, PyObject *const *args, size_t flags, PyObject *kwnames) {
    (void)type;
    if (PyVectorcall_NARGS(flags) != 2 || kwnames != NULL || !PyTuple_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "Continuation(target: Callable, args: tuple)");
        return NULL;
    }
    Continuation *self = PyObject_GC_New(Continuation, &Continuation_Type);
    if (self == NULL) return NULL;
    self->target = Py_NewRef(args[0]);
    self->args = Py_NewRef(args[1]);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int continuation_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(((Continuation *)object)->target);
    Py_VISIT(((Continuation *)object)->args);
    return 0;
}

static void continuation_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    Py_DECREF(((Continuation *)object)->target);
    Py_DECREF(((Continuation *)object)->args);
    PyObject_GC_Del(object);
}

static PyMemberDef continuation_members[] = {
    {"target", Py_T_OBJECT_EX, offsetof(Continuation, target), Py_READONLY, "what goes on"},
    {"args", Py_T_OBJECT_EX, offsetof(Continuation, args), Py_READONLY, "with what"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Continuation_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Continuation",
    .tp_doc = "Continuation(target, args): the rest of a call that has got so far; whoever made the call goes on.",
    .tp_basicsize = sizeof(Continuation),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall = continuation_call,
    .tp_call = NULL,
    .tp_dealloc = continuation_dealloc,
    .tp_traverse = continuation_traverse,
    .tp_members = continuation_members,
};

/* -- the type ---------------------------------------------------------------------------------------- */

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"original", "fallback", "settings", NULL};
    PyObject *original, *fallback, *settings = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O|O:Dispatcher", names, &PyFunction_Type, &original, &fallback,
                                     &settings)) {
        return NULL;
    }
    Dispatcher *self = (Dispatcher *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->original = Py_NewRef(original);
    self->fallback = Py_NewRef(fallback);
    self->settings = Py_XNewRef(settings);
    self->vectorcall = dispatch;
    return (PyObject *)self;
}

static PyObject *dispatcher_add(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Dispatcher *self = (Dispatcher *)object;
    PyObject *straight = count == 4 && args[3] != Py_None ? args[3] : NULL;
    if (count < 2 || count > 4 || !Py_IS_TYPE(args[0], &GuardTree_Type) || !PyCallable_Check(args[1]) ||
        (straight != NULL && !Py_IS_TYPE(straight, &Straight_Type))) {
        PyErr_SetString(PyExc_TypeError, "add(tree: GuardTree, function: Callable, watch: bool = False, "
                                         "straight: Straight | None = None)");
        return NULL;
    }
    int watch = count >= 3 ? PyObject_IsTrue(args[2]) : 0;
    if (watch < 0) return NULL;
    if (self->count == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 4;
        DispatchEntry *entries = PyMem_Realloc(self->entries, (size_t)room * sizeof(DispatchEntry));
        if (entries == NULL) return PyErr_NoMemory();
        self->entries = entries;
        self->room = room;
    }
    self->entries[self->count++] = (DispatchEntry){Py_NewRef(args[0]), Py_NewRef(args[1]), watch, NULL,
                                                     Py_XNewRef(straight)};
    Py_RETURN_NONE;
}

static PyObject *dispatcher_retire(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Dispatcher *self = (Dispatcher *)object;
    if (count != 2 || !PyCallable_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "retire(tree: GuardTree, told: Callable)");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        DispatchEntry *entry = &self->entries[i];
        if (entry->tree != args[0]) continue;
        PyObject *before[] = {entry->function, entry->retired, entry->straight};
        entry->function = Py_NewRef(self->original);
        entry->watch = false;
        entry->retired = Py_NewRef(args[1]);
        entry->straight = NULL;
        Py_DECREF(before[0]);
        Py_XDECREF(before[1]);
        Py_XDECREF(before[2]);
        break;
    }
    Py_RETURN_NONE;
}

static void drop_entries(Dispatcher *self) {
    DispatchEntry *entries = self->entries;
    Py_ssize_t count = self->count;
    self->entries = NULL;
    self->count = self->room = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(entries[i].tree);
        Py_DECREF(entries[i].function);
        Py_XDECREF(entries[i].retired);
        Py_XDECREF(entries[i].straight);
    }
    PyMem_Free(entries);
}

static PyObject *dispatcher_clear_entries(PyObject *self, PyObject *ignored) {
    (void)ignored;
    drop_entries((Dispatcher *)self);
    Py_RETURN_NONE;
}

static PyObject *dispatcher_bind(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Dispatcher *self = (Dispatcher *)object;
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(self->original);
    PyObject *result = NULL;
    Py_ssize_t parameters = code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
                            ((code->co_flags & CO_VARKEYWORDS) != 0);
    PyObject *slots[parameters + 1];
    Bound bound = {.slots = slots, .count = parameters};
    int fits = bind(self->original, code, args, count, kwnames, &bound);
    if (fits == 1) {
        result = PyTuple_New(parameters);
        for (Py_ssize_t i = 0; result && i < parameters; i++) PyTuple_SET_ITEM(result, i, Py_NewRef(slots[i]));
    } else if (fits == 0) {
        PyErr_SetString(PyExc_TypeError, "the arguments do not fit the signature");
    }
    let_go(&bound);
    return result;
}

static PyObject *dispatcher_entries(PyObject *object, void *closure) {
    (void)closure;
    Dispatcher *self = (Dispatcher *)object;
    PyObject *result = PyList_New(self->count);
    for (Py_ssize_t i = 0; result != NULL && i < self->count; i++) {
        PyObject *pair = PyTuple_Pack(2, self->entries[i].tree, self->entries[i].function);
        if (pair == NULL) Py_CLEAR(result);
        else PyList_SET_ITEM(result, i, pair);
    }
    return result;
}

static PyObject *dispatcher_get(PyObject *self, PyObject *instance, PyObject *owner) {
    (void)owner;
    if (instance == NULL || instance == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

/* Copied as itself, as functions are; how it is pickled is said in capture/entry.py. */
static PyObject *dispatcher_copy(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return Py_NewRef(self);
}

/* What looks at a function sees the original: tracers (torch.fx, torch.export, TorchScript), `inspect`. */
static PyObject *dispatcher_original_attribute(PyObject *self, void *name) {
    return PyObject_GetAttrString(((Dispatcher *)self)->original, name);
}

static int dispatcher_set_original_attribute(PyObject *self, PyObject *value, void *name) {
    return PyObject_SetAttrString(((Dispatcher *)self)->original, name, value); /* a NULL value deletes */
}

/* isinstance() asks for this: a compiled function is one, for whoever takes functions only. */
static PyObject *dispatcher_class(PyObject *self, void *ignored) {
    (void)self;
    (void)ignored;
    return Py_NewRef((PyObject *)&PyFunction_Type);
}

static PyObject *dispatcher_repr(PyObject *self) {
    return PyUnicode_FromFormat("<compiled %S>", ((PyFunctionObject *)((Dispatcher *)self)->original)->func_qualname);
}

static int dispatcher_traverse(PyObject *object, visitproc visit, void *arg) {
    Dispatcher *self = (Dispatcher *)object;
    Py_VISIT(self->original);
    Py_VISIT(self->fallback);
    Py_VISIT(self->settings);
    Py_VISIT(self->dict);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->entries[i].tree);
        Py_VISIT(self->entries[i].function);
        Py_VISIT(self->entries[i].retired);
        Py_VISIT(self->entries[i].straight);
    }
    return 0;
}

/* `original` and `fallback` stay: a dispatcher in a dying cycle may still be called. */
static int dispatcher_clear(PyObject *object) {
    Dispatcher *self = (Dispatcher *)object;
    drop_entries(self);
    Py_CLEAR(self->dict);
    return 0;
}

static void dispatcher_dealloc(PyObject *object) {
    Dispatcher *self = (Dispatcher *)object;
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) PyObject_ClearWeakRefs(object);
    dispatcher_clear(object);
    Py_XDECREF(self->original);
    Py_XDECREF(self->fallback);
    Py_XDECREF(self->settings);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef dispatcher_methods[] = {
    {"add", (PyCFunction)(void (*)(void))dispatcher_add, METH_FASTCALL,
     "add(tree, function, watch=False): a new last entry; frames below a watched one are captured."},
    {"__copy__", dispatcher_copy, METH_NOARGS, NULL},
    {"__deepcopy__", dispatcher_copy, METH_O, NULL},
    {"retire", (PyCFunction)(void (*)(void))dispatcher_retire, METH_FASTCALL,
     "retire(tree, told): calls that the entry matches run the original from now on, after told()."},
    {"clear", dispatcher_clear_entries, METH_NOARGS, "Forget all entries."},
    {"bind", (PyCFunction)(void (*)(void))dispatcher_bind, METH_FASTCALL | METH_KEYWORDS,
     "bind(*args, **kwargs): the parameters as guards see them, in the order of co_varnames."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef dispatcher_members[] = {
    {"settings", Py_T_OBJECT_EX, offsetof(Dispatcher, settings), Py_READONLY, "under which frames below are captured"},
    {"original", Py_T_OBJECT_EX, offsetof(Dispatcher, original), Py_READONLY, "the Python function"},
    {"_stator_original", Py_T_OBJECT_EX, offsetof(Dispatcher, original), Py_READONLY, "the same, for base/markers.py"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef dispatcher_getset[] = {
    {"entries", dispatcher_entries, NULL, "(tree, function) pairs, in the order in which they are tried", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__class__", dispatcher_class, NULL, NULL, NULL},
    {"__code__", dispatcher_original_attribute, NULL, NULL, "__code__"},
    {"__globals__", dispatcher_original_attribute, NULL, NULL, "__globals__"},
    {"__closure__", dispatcher_original_attribute, NULL, NULL, "__closure__"},
    {"__defaults__", dispatcher_original_attribute, dispatcher_set_original_attribute, NULL, "__defaults__"},
    {"__kwdefaults__", dispatcher_original_attribute, dispatcher_set_original_attribute, NULL, "__kwdefaults__"},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Dispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Dispatcher",
    .tp_doc = "Dispatcher(original, fallback): calls the entry whose guards pass.",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = dispatcher_new,
    .tp_dealloc = dispatcher_dealloc,
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Dispatcher, vectorcall),
    .tp_descr_get = dispatcher_get,
    .tp_repr = dispatcher_repr,
    .tp_dictoffset = offsetof(Dispatcher, dict),
    .tp_weaklistoffset = offsetof(Dispatcher, weakrefs),
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
    .tp_getset = dispatcher_getset,
};

int dispatcher_register(PyObject *module) {
    if (PyModule_AddType(module, &Continuation_Type) < 0) return -1;
    return PyModule_AddType(module, &Dispatcher_Type);
}
