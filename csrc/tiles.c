/* Launches of kernels of the tile language on a device, where one like it has been before. The key of a launch says of
 * each argument what its kernel is specialised for: of a tensor its dtype, its device and whether 16 divides its address,
 * of an integer whether it is 1, how large, and whether 16 divides it; of what is known while compiling, and of options,
 * the value. Whatever is not as simple as that is left to Python (`run` of the owner), which tells by `learn` what a
 * launch came to. Parameters are words of 8 bytes each.
 */
#include "device.h"

#include <stddef.h>
#include <string.h>

extern char **environ;

enum { CONSTEXPR = 1, NOT_SPECIALISED = 2, ANNOTATED = 4 };
enum { CUDA = 1, ALIGNMENT = 16, MOST_PARAMETERS = 64, MOST_ARGUMENTS = MOST_PARAMETERS + 16 };
enum { TENSOR = 1, INTEGER = 2, REAL = 3, TRUTH = 4 };

/* What a key says of the arguments of a launch in order: a number, or a value that is known while compiling. */
typedef struct {
    PyObject *names;
    Py_ssize_t count;
    uint64_t codes[MOST_ARGUMENTS];
    PyObject *values[MOST_ARGUMENTS]; /* NULL where there is a number */
} Given;

/* A launch that has been. */
typedef struct {
    PyObject *entry; /* NULL if there has been none */
    Given given;     /* owned */
} Last;

typedef struct {
    PyObject_HEAD
    PyObject *names, *defaults, *positions; /* of parameters: a tuple, a dict of some, a dict to their number */
    PyObject *hooks, *entries, *types;      /* a list that has to be empty; the launches so far; types of tensors */
    PyObject *switches;                     /* variables of the environment that send every launch to Python */
    PyObject *absent;                       /* stands for a name that is not there */
    Last last;                              /* the launch before this one */
    int flags[MOST_PARAMETERS];
    Py_ssize_t count;
} Launcher;

typedef struct {
    PyObject_HEAD
    Launcher *launcher;
    PyObject *owner, *grid;
    vectorcallfunc call;
} Launch;

/* What is found of the arguments of a launch; all of `given` is the caller's. */
typedef struct {
    Given given;
    int64_t words[MOST_PARAMETERS];
    bool passed[MOST_PARAMETERS];
    int device;
} Found;

/* -- keys -------------------------------------------------------------------------------------------- */

static bool is_constant(PyObject *value) {
    return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) || PyUnicode_CheckExact(value) ||
           value == Py_None;
}

static uint64_t integer_code(PyObject *value, Py_ssize_t place, int flags, Found *found) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return 0;
    uint64_t one = number == 1 && !(flags & NOT_SPECIALISED);
    uint64_t wide = number < INT32_MIN || number > INT32_MAX;
    found->words[place] = number;
    found->passed[place] = !one;
    return INTEGER | one << 4 | wide << 5 | (uint64_t)(number % ALIGNMENT == 0) << 6;
}

/* 0 for a tensor that Python has to look at, or with an exception. */
static uint64_t tensor_code(PyObject *value, Py_ssize_t place, Found *found) {
    TensorView view;
    void *address;
    if (tensor_view(value, &view) < 0 || view.device / 256 != CUDA) return 0;
    int device = view.device & 255;
    if ((found->device >= 0 && found->device != device) || tensor_data(value, &address) < 0) return 0;
    found->device = device;
    found->words[place] = (int64_t)(uintptr_t)address;
    found->passed[place] = true;
    uint64_t aligned = (uintptr_t)address % ALIGNMENT == 0;
    return TENSOR | aligned << 4 | (uint64_t)view.dtype << 8 | (uint64_t)device << 24;
}

/* Whether an argument can be told by a key: its number, or 0 if its value is to be told. */
static bool argument_code(const Launcher *launcher, PyObject *value, Py_ssize_t place, Found *found, uint64_t *code) {
    int flags = launcher->flags[place];
    *code = 0;
    if (flags & CONSTEXPR) return is_constant(value);
    if (flags & ANNOTATED) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(launcher->types); i++) {
        if ((PyObject *)Py_TYPE(value) == PyTuple_GET_ITEM(launcher->types, i)) {
            return (*code = tensor_code(value, place, found)) != 0;
        }
    }
    if (PyLong_CheckExact(value)) return (*code = integer_code(value, place, flags, found)) != 0;
    if (PyFloat_CheckExact(value)) {
        float number = (float)PyFloat_AS_DOUBLE(value);
        memcpy(&found->words[place], &number, sizeof number);
        found->passed[place] = true;
        *code = REAL;
    } else if (PyBool_Check(value)) {
        found->words[place] = value == Py_True;
        found->passed[place] = true;
        *code = TRUTH;
    }
    return *code != 0 || is_constant(value);
}

/* 1 with what is found; 0 if Python has to look at it, -1 with an exception. */
static int find(const Launcher *launcher, PyObject *const *args, Py_ssize_t count, PyObject *names, Found *found) {
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count > launcher->count || count + named > MOST_ARGUMENTS) return 0;
    memset(found->words, 0, sizeof found->words);
    memset(found->passed, 0, sizeof found->passed);
    found->device = -1;
    found->given.names = names;
    found->given.count = count + named;
    for (Py_ssize_t i = 0; i < count + named; i++) {
        uint64_t code = 0;
        bool told = true;
        PyObject *place = NULL;
        if (i >= count) {
            place = PyDict_GetItemWithError(launcher->positions, PyTuple_GET_ITEM(names, i - count));
            if (place == NULL) told = !PyErr_Occurred() && is_constant(args[i]); /* an option */
        }
        if (i < count || place != NULL) {
            told = argument_code(launcher, args[i], place == NULL ? i : PyLong_AsSsize_t(place), found, &code);
        }
        if (!told) return PyErr_Occurred() ? -1 : 0;
        found->given.codes[i] = code;
        found->given.values[i] = code ? NULL : args[i];
    }
    return found->device >= 0;
}

/* A key: names, and of each argument a number and None, or its type and its value. */
static PyObject *make_key(const Given *given) {
    PyObject *key = PyTuple_New(1 + 2 * given->count);
    if (key == NULL) return NULL;
    PyTuple_SET_ITEM(key, 0, Py_NewRef(given->names == NULL ? Py_None : given->names));
    for (Py_ssize_t i = 0; i < given->count; i++) {
        PyObject *value = given->values[i], *first, *second;
        if (value == NULL) {
            first = PyLong_FromUnsignedLongLong(given->codes[i]);
            second = Py_NewRef(Py_None);
        } else if (PyFloat_CheckExact(value)) { /* 0.0 and -0.0 are equal, a NaN is not equal to itself */
            double number = PyFloat_AS_DOUBLE(value);
            int64_t bits;
            memcpy(&bits, &number, sizeof bits);
            first = Py_NewRef((PyObject *)Py_TYPE(value));
            second = PyLong_FromLongLong(bits);
        } else {
            first = Py_NewRef((PyObject *)Py_TYPE(value));
            second = Py_NewRef(value);
        }
        PyTuple_SET_ITEM(key, 1 + 2 * i, first);
        PyTuple_SET_ITEM(key, 2 + 2 * i, second);
        if (first == NULL || second == NULL) {
            Py_DECREF(key);
            return NULL;
        }
    }
    return key;
}

/* -- the launch before ------------------------------------------------------------------------------- */

static void release(const Last *last) {
    Py_XDECREF(last->entry);
    Py_XDECREF(last->given.names);
    for (Py_ssize_t i = 0; i < last->given.count; i++) Py_XDECREF(last->given.values[i]);
}

/* What goes is let go of when all is in its place, for that may run anything. */
static void forget(Last *last) {
    const Last before = *last;
    memset(last, 0, sizeof *last);
    release(&before);
}

static void remember(Last *last, const Given *given, PyObject *entry) {
    const Last before = *last;
    last->entry = Py_NewRef(entry);
    last->given = *given;
    Py_XINCREF(given->names);
    for (Py_ssize_t i = 0; i < given->count; i++) Py_XINCREF(given->values[i]);
    release(&before);
}

/* Whether a launch has the same key as the one before, as far as that is seen without making keys. */
static bool is_like_before(const Last *last, const Given *given) {
    if (last->entry == NULL || last->given.names != given->names || last->given.count != given->count) return false;
    for (Py_ssize_t i = 0; i < given->count; i++) {
        if (last->given.codes[i] != given->codes[i] || last->given.values[i] != given->values[i]) return false;
    }
    return true;
}

/* The entry of a launch, new; NULL if there is none, or with an exception. */
static PyObject *find_entry(Launcher *launcher, const Given *given) {
    if (is_like_before(&launcher->last, given)) return Py_NewRef(launcher->last.entry);
    PyObject *key = make_key(given);
    PyObject *entry = key == NULL ? NULL : PyDict_GetItemWithError(launcher->entries, key);
    Py_XINCREF(entry);
    Py_XDECREF(key);
    if (entry != NULL) remember(&launcher->last, given, entry);
    return entry;
}

/* -- launches ---------------------------------------------------------------------------------------- */

static bool switched(const Launcher *launcher) {
    for (char **each = environ; each != NULL && *each != NULL; each++) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(launcher->switches); i++) {
            PyObject *name = PyTuple_GET_ITEM(launcher->switches, i);
            const char *text = PyBytes_AS_STRING(name);
            size_t length = (size_t)PyBytes_GET_SIZE(name);
            if (**each == *text && strncmp(*each, text, length) == 0 && (*each)[length] == '=') return true;
        }
    }
    return PyList_GET_SIZE(launcher->hooks) > 0;
}

/* Whether the names that a kernel's text has seen stand for the same: (dict or cell, name, value) each. */
static int is_current(const Launcher *launcher, PyObject *captured) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(captured); i++) {
        PyObject *each = PyTuple_GET_ITEM(captured, i), *where = PyTuple_GET_ITEM(each, 0), *now;
        PyObject *value = PyTuple_GET_ITEM(each, 2);
        if (PyCell_Check(where)) now = PyCell_GET(where);
        else now = PyDict_GetItemWithError(where, PyTuple_GET_ITEM(each, 1));
        if (now == NULL && PyErr_Occurred()) return -1;
        if ((now == NULL ? launcher->absent : now) != value) return 0;
    }
    return 1;
}

/* The arguments by name, as functions that give grids want them. */
static PyObject *by_name(const Launcher *launcher, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *found = PyDict_Copy(launcher->defaults);
    if (found == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyDict_SetItem(found, PyTuple_GET_ITEM(launcher->names, i), args[i]) < 0) goto failed;
    }
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int known = PyDict_Contains(launcher->positions, name);
        if (known < 0 || (known && PyDict_SetItem(found, name, args[count + i]) < 0)) goto failed;
    }
    return found;
failed:
    Py_DECREF(found);
    return NULL;
}

/* 1 with the sizes of a grid, 0 if they are none that are plain, -1 with an exception. */
static int read_sizes(PyObject *grid, unsigned *sizes) {
    static const long long most[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
    PyObject *single[] = {grid};
    bool several = PyTuple_CheckExact(grid) || PyList_CheckExact(grid);
    Py_ssize_t count = several ? PySequence_Fast_GET_SIZE(grid) : 1;
    PyObject **items = several ? PySequence_Fast_ITEMS(grid) : single;
    if (count < 1 || count > 3) return 0;
    for (int i = 0; i < 3; i++) sizes[i] = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyLong_CheckExact(items[i])) return 0;
        int overflow;
        long long size = PyLong_AsLongLongAndOverflow(items[i], &overflow);
        if (overflow || size < 0 || size > most[i]) return 0;
        sizes[i] = (unsigned)size;
    }
    return 1;
}

static int grid_sizes(const Launch *self, PyObject *const *args, Py_ssize_t count, PyObject *names, unsigned *sizes) {
    if (!PyCallable_Check(self->grid)) return read_sizes(self->grid, sizes);
    PyObject *meta = by_name(self->launcher, args, count, names);
    PyObject *grid = meta == NULL ? NULL : PyObject_CallOneArg(self->grid, meta);
    Py_XDECREF(meta);
    if (grid == NULL) return -1;
    int status = read_sizes(grid, sizes);
    Py_DECREF(grid);
    return status;
}

/* What Python tells of a launch: (weak reference to the kernel, captured names, name, what raises for a status that the
 * driver refuses with, the driver's functions, function, context, threads, shared). An entry has the first four and, as
 * bytes, the call that the rest makes. NULL with an exception. */
static PyObject *make_entry(PyObject *told) {
    unsigned long long driver[4], function, context;
    unsigned threads, shared;
    PyObject *kernel, *captured, *name, *refused;
    if (!PyArg_ParseTuple(told, "OOUO(KKKK)KKII", &kernel, &captured, &name, &refused, &driver[0], &driver[1], &driver[2], &driver[3],
                          &function, &context, &threads, &shared)) {
        return NULL;
    }
    DeviceCall call = {driver[0], driver[1], driver[2], driver[3], function, context, 0, threads, shared, 0};
    return Py_BuildValue("(OOOOy#)", kernel, captured, name, refused, &call, (Py_ssize_t)sizeof call);
}

static int start(PyObject *entry, const Found *found, Py_ssize_t count, const unsigned *sizes) {
    DeviceCall call;
    memcpy(&call, PyBytes_AS_STRING(PyTuple_GET_ITEM(entry, 4)), sizeof call);
    call.device = found->device;
    int64_t words[MOST_PARAMETERS];
    size_t nwords = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (found->passed[i]) words[nwords++] = found->words[i];
    }
    return device_call(&call, sizes, words, nwords * sizeof *words);
}

static PyObject *by_python(const Launch *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *run = PyObject_GetAttrString(self->owner, "run"), *given = NULL, *keywords = NULL, *found = NULL;
    if (run == NULL) return NULL;
    given = PyTuple_New(count);
    keywords = PyDict_New();
    if (given == NULL || keywords == NULL) goto done;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[count + i]) < 0) goto done;
    }
    if (PyDict_SetItemString(keywords, "grid", self->grid) < 0) goto done;
    if (PyDict_SetItemString(keywords, "warmup", Py_False) < 0) goto done;
    found = PyObject_Call(run, given, keywords);
done:
    Py_DECREF(run);
    Py_XDECREF(given);
    Py_XDECREF(keywords);
    return found;
}

/* The kernel that has been launched, new; NULL without an exception if Python has to do it. */
static PyObject *quickly(const Launch *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Launcher *launcher = self->launcher;
    Found found;
    unsigned sizes[3];
    if (!tensor_raw() || switched(launcher) || find(launcher, args, count, names, &found) <= 0) return NULL;
    PyObject *entry = find_entry(launcher, &found.given); /* ours: a function that gives the grid may do anything */
    if (entry == NULL) return NULL;
    PyObject *kernel = PyWeakref_GetObject(PyTuple_GET_ITEM(entry, 0)), *result = NULL;
    if (kernel == NULL || kernel == Py_None) {
        Py_DECREF(entry);
        return NULL;
    }
    Py_INCREF(kernel);
    if (is_current(launcher, PyTuple_GET_ITEM(entry, 1)) > 0 && grid_sizes(self, args, count, names, sizes) > 0) {
        int status = sizes[0] && sizes[1] && sizes[2] ? start(entry, &found, launcher->count, sizes) : 0;
        if (status == 0) result = Py_NewRef(kernel);
        else if (!PyErr_Occurred()) {
            PyObject *told = PyObject_CallFunction(PyTuple_GET_ITEM(entry, 3), "Oi", PyTuple_GET_ITEM(entry, 2), status);
            if (told != NULL) PyErr_Format(PyExc_SystemError, "a launch gave %d, which raised nothing", status);
            Py_XDECREF(told);
        }
    }
    Py_DECREF(kernel);
    Py_DECREF(entry);
    return result;
}

static PyObject *launch_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    PyObject *found = quickly((Launch *)self, args, count, names);
    if (found != NULL || PyErr_Occurred()) return found;
    return by_python((Launch *)self, args, count, names);
}

static int launch_traverse(Launch *self, visitproc visit, void *arg) {
    Py_VISIT(self->launcher);
    Py_VISIT(self->owner);
    Py_VISIT(self->grid);
    return 0;
}

static int launch_clear(Launch *self) {
    Py_CLEAR(self->launcher);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->grid);
    return 0;
}

static void launch_free(Launch *self) {
    PyObject_GC_UnTrack(self);
    launch_clear(self);
    PyObject_GC_Del(self);
}

PyTypeObject TileLaunch_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.TileLaunch",
    .tp_doc = "A kernel of the tile language with its grid.",
    .tp_basicsize = sizeof(Launch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Launch, call),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)launch_traverse,
    .tp_clear = (inquiry)launch_clear,
    .tp_dealloc = (destructor)launch_free,
};

/* -- launchers --------------------------------------------------------------------------------------- */

static PyObject *launcher_bind(PyObject *self, PyObject *args) {
    PyObject *owner, *grid;
    if (!PyArg_ParseTuple(args, "OO:bind", &owner, &grid)) return NULL;
    Launch *launch = PyObject_GC_New(Launch, &TileLaunch_Type);
    if (launch == NULL) return NULL;
    launch->launcher = (Launcher *)Py_NewRef(self);
    launch->owner = Py_NewRef(owner);
    launch->grid = Py_NewRef(grid);
    launch->call = launch_call;
    PyObject_GC_Track(launch);
    return (PyObject *)launch;
}

static PyObject *launcher_learn(PyObject *self, PyObject *args) {
    PyObject *given, *named, *entry, *names = NULL, *all = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!:learn", &PyTuple_Type, &given, &PyDict_Type, &named, &PyTuple_Type, &entry)) {
        return NULL;
    }
    PyObject *keys = PyDict_Keys(named), *values = PyDict_Values(named);
    names = keys && PyList_GET_SIZE(keys) ? PyList_AsTuple(keys) : NULL;
    PyObject *rest = values ? PyList_AsTuple(values) : NULL;
    all = rest ? PySequence_Concat(given, rest) : NULL;
    Found found;
    int status = all == NULL || tensor_prepare() < 0 ? -1 : !tensor_raw() ? 0 :
        find((Launcher *)self, PySequence_Fast_ITEMS(all), PyTuple_GET_SIZE(given), names, &found);
    if (status > 0) {
        PyObject *key = make_key(&found.given), *made = key == NULL ? NULL : make_entry(entry);
        status = made == NULL || PyDict_SetItem(((Launcher *)self)->entries, key, made) < 0 ? -1 : 1;
        Py_XDECREF(made);
        Py_XDECREF(key);
        forget(&((Launcher *)self)->last);
    }
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(names);
    Py_XDECREF(rest);
    Py_XDECREF(all);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

static PyMethodDef launcher_methods[] = {
    {"bind", launcher_bind, METH_VARARGS, "bind(owner, grid): what launches; `owner.run` does what is new."},
    {"learn", launcher_learn, METH_VARARGS, "learn(args, named, entry): what a launch came to; whether it has a key."},
    {NULL, NULL, 0, NULL},
};

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"names", "flags", "defaults", "positions", "hooks", "types", "switches", "absent", NULL};
    PyObject *flags;
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!O!O!O!O!O:TileLauncher", names, &PyTuple_Type, &self->names,
                                     &PyTuple_Type, &flags, &PyDict_Type, &self->defaults, &PyDict_Type,
                                     &self->positions, &PyList_Type, &self->hooks, &PyTuple_Type, &self->types,
                                     &PyTuple_Type, &self->switches, &self->absent)) {
        self->names = self->defaults = self->positions = self->hooks = self->types = self->switches = self->absent = NULL;
        Py_DECREF(self);
        return NULL;
    }
    PyObject *owned[] = {self->names, self->defaults, self->positions, self->hooks,
                         self->types, self->switches, self->absent};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_INCREF(owned[i]);
    self->count = PyTuple_GET_SIZE(self->names);
    self->entries = PyDict_New();
    bool fits = self->count <= MOST_PARAMETERS && PyTuple_GET_SIZE(flags) == self->count;
    if (!fits) PyErr_SetString(PyExc_ValueError, "a launcher has up to 64 parameters, each with its flags");
    for (Py_ssize_t i = 0; fits && i < self->count; i++) self->flags[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(flags, i));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->switches); i++) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(self->switches, i))) PyErr_SetString(PyExc_TypeError, "switches are bytes");
    }
    if (self->entries != NULL && !PyErr_Occurred()) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int launcher_traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(self->names);
    Py_VISIT(self->defaults);
    Py_VISIT(self->positions);
    Py_VISIT(self->hooks);
    Py_VISIT(self->entries);
    Py_VISIT(self->types);
    Py_VISIT(self->switches);
    Py_VISIT(self->absent);
    Py_VISIT(self->last.entry);
    Py_VISIT(self->last.given.names);
    for (Py_ssize_t i = 0; i < self->last.given.count; i++) Py_VISIT(self->last.given.values[i]);
    return 0;
}

static int launcher_clear(Launcher *self) {
    Py_CLEAR(self->names);
    Py_CLEAR(self->defaults);
    Py_CLEAR(self->positions);
    Py_CLEAR(self->hooks);
    Py_CLEAR(self->entries);
    Py_CLEAR(self->types);
    Py_CLEAR(self->switches);
    Py_CLEAR(self->absent);
    forget(&self->last);
    return 0;
}

static void launcher_free(Launcher *self) {
    PyObject_GC_UnTrack(self);
    launcher_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject TileLauncher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.TileLauncher",
    .tp_doc = "The launches of one kernel of the tile language on devices; see csrc/tiles.c.",
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = launcher_new,
    .tp_methods = launcher_methods,
    .tp_traverse = (traverseproc)launcher_traverse,
    .tp_clear = (inquiry)launcher_clear,
    .tp_dealloc = (destructor)launcher_free,
};
