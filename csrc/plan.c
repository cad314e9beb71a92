/* The runtime wrapper's common case: a call that is a compiled graph and no more.
 *
 * A Plan is what the rewritten code calls. It puts the lifted tensors in front of the caller's, runs the forward
 * graph without grad mode, or enters the autograd graph with it, all by numbers that aot/runtime.py read from the
 * metadata. Whatever else a call may need (mutation, views of inputs, symbols, forward-mode derivatives) goes to
 * `general(plan, *placeholders)`. `record` is the forward of the autograd function: what backward needs is saved here.
 */
#include "native.h"

#include <stddef.h>

typedef struct {
    Py_ssize_t count;
    Py_ssize_t *items;
} Numbers;

typedef struct {
    PyObject_HEAD
    PyObject *bound;      /* what backward reads */
    PyObject *forward;    /* from a list of tensors to a tuple */
    PyObject *attributes; /* a tuple: the first flat inputs */
    PyObject *general;
    PyObject *levels;     /* the dict that says at which level of forward mode the thread is */
    PyObject *apply;      /* enters the autograd graph, which calls `record`; NULL without backward */
    PyObject *outputs;    /* makes the user's results from inputs and values; NULL where the values are these */
    PyObject *own;        /* from a value that may be a view to one that is none */
    PyObject *age;        /* (values): gives them the versions that they have in eager; NULL where these are 0 */
    PyObject *anchor;     /* makes one more value, which is saved; NULL where none is needed */
    PyObject *after;      /* (context, inputs): what else there is to record; NULL if nothing */
    PyObject *record;     /* from a list of what is seen of some tensors to what `context.record` is; NULL if none */
    PyObject *hooks;      /* (true): what packs saved tensors, or None */
    PyObject *counter;    /* from a tensor to one without memory that has its version counter */
    Py_ssize_t values;    /* how many of the graph's results are the user's */
    Numbers saved;        /* into (*inputs, *results) */
    Numbers constant;     /* values that are not differentiable */
    Numbers watched;      /* inputs that are not saved, but kept in view */
    Numbers looks;        /* into (*inputs, *values): what backward looks at, whether it was written to */
    Numbers held;         /* those inputs among them that are kept alive as they are */
    bool bare, enables_grad;
    vectorcallfunc vectorcall;
} Plan;

static struct {
    PyObject *level, *to_save, *non_differentiable, *materialize_grads, *bound, *unsaved, *version, *leaf, *record;
} names;
static int grad_mode;

static PyObject *as_tuple(PyObject *result) {
    if (result == NULL || PyTuple_CheckExact(result)) return result;
    PyObject *tuple = PySequence_Tuple(result);
    Py_DECREF(result);
    return tuple;
}

static PyObject *call_with_list(PyObject *forward, PyObject *attributes, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t first = attributes ? PyTuple_GET_SIZE(attributes) : 0;
    PyObject *inputs = PyList_New(first + count);
    if (inputs == NULL) return NULL;
    for (Py_ssize_t i = 0; i < first; i++) PyList_SET_ITEM(inputs, i, Py_NewRef(PyTuple_GET_ITEM(attributes, i)));
    for (Py_ssize_t i = 0; i < count; i++) PyList_SET_ITEM(inputs, first + i, Py_NewRef(args[i]));
    PyObject *result = PyObject_CallOneArg(forward, inputs);
    Py_DECREF(inputs);
    return as_tuple(result);
}

/* The user's values, none of them a view, and the anchor if there is one (stolen). */
static PyObject *own_values(Plan *self, PyObject *results, PyObject *anchor) {
    Py_ssize_t count = PyTuple_GET_SIZE(results), fit = 0;
    if (count < self->values) {
        PyErr_SetString(PyExc_ValueError, "the forward graph gave too few results");
        Py_XDECREF(anchor);
        return NULL;
    }
    while (fit < self->values && tensor_unrecorded(PyTuple_GET_ITEM(results, fit))) fit++;
    if (fit == count && anchor == NULL) return Py_NewRef(results);
    PyObject *values = PyTuple_New(self->values + (anchor != NULL));
    for (Py_ssize_t i = 0; values != NULL && i < self->values; i++) {
        PyObject *value = PyTuple_GET_ITEM(results, i);
        PyObject *owned = i < fit ? Py_NewRef(value) : PyObject_CallOneArg(self->own, value);
        if (owned == NULL) Py_CLEAR(values);
        else PyTuple_SET_ITEM(values, i, owned);
    }
    if (values != NULL && anchor != NULL) PyTuple_SET_ITEM(values, self->values, anchor);
    else Py_XDECREF(anchor);
    return values;
}

/* The same, written to as often as in eager. */
static PyObject *take_values(Plan *self, PyObject *results, PyObject *anchor) {
    PyObject *values = own_values(self, results, anchor);
    if (values == NULL || self->age == NULL) return values;
    PyObject *done = PyObject_CallOneArg(self->age, values);
    if (done == NULL) Py_CLEAR(values);
    Py_XDECREF(done);
    return values;
}

/* Without autograd. */
static PyObject *call_forward(Plan *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *results = call_with_list(self->forward, self->attributes, args, count);
    PyObject *values = results ? take_values(self, results, NULL) : NULL;
    Py_XDECREF(results);
    return values;
}

static PyObject *call_general(Plan *self, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    PyObject *given[count + named + 1];
    given[0] = (PyObject *)self;
    for (Py_ssize_t i = 0; i < count + named; i++) given[i + 1] = args[i];
    return PyObject_Vectorcall(self->general, given, (size_t)(count + 1), kwnames);
}

static PyObject *call_apply(Plan *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t first = PyTuple_GET_SIZE(self->attributes);
    PyObject *given = PyTuple_New(1 + first + count);
    if (given == NULL) return NULL;
    PyTuple_SET_ITEM(given, 0, Py_NewRef((PyObject *)self));
    for (Py_ssize_t i = 0; i < first; i++) {
        PyTuple_SET_ITEM(given, 1 + i, Py_NewRef(PyTuple_GET_ITEM(self->attributes, i)));
    }
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(given, 1 + first + i, Py_NewRef(args[i]));
    PyObject *result = as_tuple(PyObject_Call(self->apply, given, NULL));
    Py_DECREF(given);
    if (result == NULL || self->anchor == NULL) return result;
    PyObject *values = PyTuple_GetSlice(result, 0, self->values);
    Py_DECREF(result);
    return values;
}

/* The user's results, from the values (stolen, which may be NULL). */
static PyObject *give(Plan *self, PyObject *const *args, Py_ssize_t count, PyObject *values) {
    if (values == NULL || self->outputs == NULL) return values;
    PyObject *results = outputs_make(self->outputs, self->attributes, args, count, values);
    Py_DECREF(values);
    return results;
}

static PyObject *plan_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    Plan *self = (Plan *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    uint64_t graded;
    if (!self->bare || kwnames != NULL || !state_read(grad_mode, &graded)) {
        return call_general(self, args, count, kwnames);
    }
    PyObject *level = PyDict_GetItemWithError(self->levels, names.level);
    if (level == NULL || !PyLong_Check(level) || PyLong_AsLong(level) >= 0) {
        return PyErr_Occurred() ? NULL : call_general(self, args, count, NULL);
    }
    if (self->apply != NULL && graded) return give(self, args, count, call_apply(self, args, count));
    if (self->apply != NULL && self->enables_grad) return call_general(self, args, count, NULL);
    if (!graded) return give(self, args, count, call_forward(self, args, count));
    if (!state_set_grad_mode(false)) return call_general(self, args, count, NULL);
    PyObject *values = call_forward(self, args, count);
    state_set_grad_mode(true);
    return give(self, args, count, values);
}

/* -- recording ------------------------------------------------------------------------------------------ */

static PyObject *take_saved(Plan *self, PyObject *const *inputs, Py_ssize_t count, PyObject *results,
                            PyObject *values) {
    PyObject *saved = PyTuple_New(self->saved.count + (self->anchor != NULL));
    for (Py_ssize_t i = 0; saved != NULL && i < self->saved.count; i++) {
        Py_ssize_t at = self->saved.items[i], result = at - count;
        if (result >= PyTuple_GET_SIZE(results)) {
            PyErr_SetString(PyExc_ValueError, "the forward graph gave too few results");
            Py_CLEAR(saved);
            break;
        }
        PyObject *kept = result < 0              ? inputs[at]
                         : result < self->values ? PyTuple_GET_ITEM(values, result)
                                                 : PyTuple_GET_ITEM(results, result);
        PyTuple_SET_ITEM(saved, i, Py_NewRef(kept));
    }
    if (saved != NULL && self->anchor != NULL) {
        PyTuple_SET_ITEM(saved, self->saved.count, Py_NewRef(PyTuple_GET_ITEM(values, self->values)));
    }
    return saved;
}

static PyObject *take_some(const Numbers *numbers, PyObject *from) {
    PyObject *taken = PyTuple_New(numbers->count);
    for (Py_ssize_t i = 0; taken != NULL && i < numbers->count; i++) {
        PyTuple_SET_ITEM(taken, i, Py_NewRef(PyTuple_GET_ITEM(from, numbers->items[i])));
    }
    return taken;
}

/* One input in view: (version, weak reference or None for an attribute); None without a version; a number itself. */
static PyObject *take_sight(PyObject *input, bool attribute) {
    if (!tensor_check(input)) return Py_NewRef(input);
    PyObject *version = PyObject_GetAttr(input, names.version);
    if (version == NULL) { /* of an inference tensor */
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *reference = attribute ? Py_NewRef(Py_None) : PyWeakref_NewRef(input, NULL);
    PyObject *pair = reference ? PyTuple_Pack(2, version, reference) : NULL;
    Py_DECREF(version);
    Py_XDECREF(reference);
    return pair;
}

static PyObject *take_sights(Plan *self, PyObject *const *inputs) {
    PyObject *sights = PyList_New(self->watched.count);
    for (Py_ssize_t i = 0; sights != NULL && i < self->watched.count; i++) {
        Py_ssize_t at = self->watched.items[i];
        PyObject *sight = take_sight(inputs[at], at < PyTuple_GET_SIZE(self->attributes));
        if (sight == NULL) Py_CLEAR(sights);
        else PyList_SET_ITEM(sights, i, sight);
    }
    return sights;
}

/* -- what backward looks at ------------------------------------------------------------------------------- */

/* Whether the object is a tensor that gradients are accumulated in, and so kept alive by its node. */
static int is_accumulated(PyObject *tensor) {
    TensorView view;
    if (tensor_view(tensor, &view) < 0) return -1;
    if (!view.requires_grad) return 0;
    PyObject *leaf = PyObject_GetAttr(tensor, names.leaf);
    Py_XDECREF(leaf);
    return leaf ? leaf == Py_True : -1;
}

/* (what has the version counter of a tensor, its version); None for an inference tensor, which has none. */
static PyObject *take_look(Plan *self, PyObject *tensor, bool held) {
    PyObject *version = PyObject_GetAttr(tensor, names.version);
    if (version == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return NULL;
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *counter = held ? Py_NewRef(tensor) : PyObject_CallOneArg(self->counter, tensor);
    PyObject *pair = counter ? PyTuple_Pack(2, counter, version) : NULL;
    Py_DECREF(version);
    Py_XDECREF(counter);
    return pair;
}

static bool among(const Numbers *numbers, Py_ssize_t number) {
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        if (numbers->items[i] == number) return true;
    }
    return false;
}

/* What hooks have packed is not looked at. */
static PyObject *take_looks(Plan *self, PyObject *const *inputs, Py_ssize_t count, PyObject *values) {
    PyObject *hooks = PyObject_CallOneArg(self->hooks, Py_True);
    PyObject *looks = hooks ? PyList_New(self->looks.count) : NULL;
    for (Py_ssize_t i = 0; looks != NULL && i < self->looks.count; i++) {
        Py_ssize_t at = self->looks.items[i];
        PyObject *tensor = at < count ? inputs[at] : PyTuple_GET_ITEM(values, at - count);
        int held = hooks != Py_None || at >= count ? 0 : among(&self->held, at) ? 1 : is_accumulated(tensor);
        PyObject *look = held < 0 ? NULL : hooks != Py_None ? Py_NewRef(Py_None) : take_look(self, tensor, held);
        if (look == NULL) Py_CLEAR(looks);
        else PyList_SET_ITEM(looks, i, look);
    }
    Py_XDECREF(hooks);
    return looks;
}

static PyObject *make_record(Plan *self, PyObject *const *inputs, Py_ssize_t count, PyObject *values) {
    PyObject *looks = take_looks(self, inputs, count, values);
    PyObject *record = looks ? PyObject_CallOneArg(self->record, looks) : NULL;
    Py_XDECREF(looks);
    return record;
}

static int set_new(PyObject *context, PyObject *name, PyObject *value) {
    int status = value ? PyObject_SetAttr(context, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

static int call_after(Plan *self, PyObject *context, PyObject *const *inputs, Py_ssize_t count, PyObject *values) {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(inputs[i]));
    PyObject *done = tuple ? PyObject_CallFunctionObjArgs(self->after, context, tuple, values, NULL) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static bool all_below(const Numbers *numbers, Py_ssize_t limit) {
    for (Py_ssize_t i = 0; i < numbers->count; i++) {
        if (numbers->items[i] >= limit) return false;
    }
    return true;
}

/* record(context, plan, *inputs) -> values */
PyObject *native_record(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 2 || !Py_IS_TYPE(args[1], &Plan_Type)) {
        PyErr_SetString(PyExc_TypeError, "record(context, plan: Plan, *inputs)");
        return NULL;
    }
    PyObject *context = args[0];
    Plan *self = (Plan *)args[1];
    PyObject *const *inputs = args + 2;
    count -= 2;
    Numbers *watched = &self->watched;
    if (!all_below(watched, count) || !all_below(&self->looks, count + self->values)) {
        PyErr_SetString(PyExc_ValueError, "too few inputs");
        return NULL;
    }
    PyObject *results = call_with_list(self->forward, NULL, inputs, count);
    PyObject *anchor = results && self->anchor ? PyObject_CallNoArgs(self->anchor) : NULL;
    bool failed = results == NULL || (self->anchor != NULL && anchor == NULL);
    PyObject *values = failed ? NULL : take_values(self, results, anchor);
    int status = values ? 0 : -1;
    if (status == 0 && self->saved.count > 0) {
        status = set_new(context, names.to_save, take_saved(self, inputs, count, results, values));
    }
    if (status == 0 && self->constant.count > 0) {
        status = set_new(context, names.non_differentiable, take_some(&self->constant, values));
    }
    if (status == 0) status = PyObject_SetAttr(context, names.materialize_grads, Py_False);
    if (status == 0) status = PyObject_SetAttr(context, names.bound, self->bound);
    if (status == 0 && watched->count > 0) status = set_new(context, names.unsaved, take_sights(self, inputs));
    if (status == 0 && self->after != NULL) status = call_after(self, context, inputs, count, values);
    if (status == 0 && self->record != NULL) {
        status = set_new(context, names.record, make_record(self, inputs, count, values));
    }
    Py_XDECREF(results);
    if (status < 0) Py_CLEAR(values);
    return values;
}

/* -- the type ------------------------------------------------------------------------------------------- */

/* Ascending or not, each below `limit`. */
static int read_numbers(PyObject *tuple, Py_ssize_t limit, Numbers *numbers) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    numbers->items = PyMem_New(Py_ssize_t, count + 1);
    if (numbers->items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (numbers->count = 0; numbers->count < count; numbers->count++) {
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, numbers->count));
        if (number < 0 || number >= limit) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a number out of range");
            return -1;
        }
        numbers->items[numbers->count] = number;
    }
    return 0;
}

static int intern_names(void) {
    if (names.version != NULL) return 0;
    names.level = PyUnicode_InternFromString("_current_level");
    names.to_save = PyUnicode_InternFromString("to_save");
    names.non_differentiable = PyUnicode_InternFromString("non_differentiable");
    names.materialize_grads = PyUnicode_InternFromString("materialize_grads");
    names.bound = PyUnicode_InternFromString("bound");
    names.unsaved = PyUnicode_InternFromString("unsaved");
    names.leaf = PyUnicode_InternFromString("is_leaf");
    names.record = PyUnicode_InternFromString("record");
    names.version = PyUnicode_InternFromString("_version");
    grad_mode = state_number("grad_mode");
    return names.version ? 0 : -1;
}

static PyObject *unless_none(PyObject *object) { return object == Py_None ? NULL : Py_NewRef(object); }

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *arguments[] = {"bound", "forward", "attributes", "general", "levels", "own", "values", "bare",
                                "outputs", "apply", "age", "anchor", "after", "record", "hooks", "counter", "saved",
                                "constant", "watched", "looks", "held", "enables_grad", NULL};
    PyObject *bound, *forward, *attributes, *general, *levels, *own, *apply = Py_None, *anchor = Py_None;
    PyObject *after = Py_None, *outputs = Py_None, *saved = NULL, *constant = NULL, *watched = NULL, *looks = NULL, *held = NULL;
    PyObject *age = Py_None, *record = Py_None, *hooks = Py_None, *counter = Py_None;
    Py_ssize_t values;
    int bare, enables_grad = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO!OO!Onp|$OOOOOOOOO!O!O!O!O!p:Plan", arguments, &bound, &forward,
                                     &PyTuple_Type, &attributes, &general, &PyDict_Type, &levels, &own, &values, &bare,
                                     &outputs, &apply, &age, &anchor, &after, &record, &hooks, &counter, &PyTuple_Type,
                                     &saved, &PyTuple_Type, &constant, &PyTuple_Type, &watched, &PyTuple_Type, &looks,
                                     &PyTuple_Type, &held, &enables_grad)) {
        return NULL;
    }
    if (outputs != Py_None && !Py_IS_TYPE(outputs, &Outputs_Type)) {
        PyErr_SetString(PyExc_TypeError, "what a plan gives is described by an Outputs");
        return NULL;
    }
    if (tensor_prepare() < 0 || intern_names() < 0) return NULL;
    Plan *self = (Plan *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->bound = Py_NewRef(bound);
    self->forward = Py_NewRef(forward);
    self->attributes = Py_NewRef(attributes);
    self->general = Py_NewRef(general);
    self->levels = Py_NewRef(levels);
    self->own = Py_NewRef(own);
    self->outputs = unless_none(outputs);
    self->apply = unless_none(apply);
    self->age = unless_none(age);
    self->anchor = unless_none(anchor);
    self->after = unless_none(after);
    self->record = unless_none(record);
    self->hooks = unless_none(hooks);
    self->counter = unless_none(counter);
    self->values = values;
    self->bare = bare;
    self->enables_grad = enables_grad;
    self->vectorcall = plan_call;
    if ((saved && read_numbers(saved, PY_SSIZE_T_MAX, &self->saved) < 0) ||
        (constant && read_numbers(constant, values, &self->constant) < 0) ||
        (watched && read_numbers(watched, PY_SSIZE_T_MAX, &self->watched) < 0) ||
        (looks && read_numbers(looks, PY_SSIZE_T_MAX, &self->looks) < 0) ||
        (held && read_numbers(held, PY_SSIZE_T_MAX, &self->held) < 0)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int plan_traverse(PyObject *object, visitproc visit, void *arg) {
    Plan *self = (Plan *)object;
    Py_VISIT(self->bound);
    Py_VISIT(self->forward);
    Py_VISIT(self->attributes);
    Py_VISIT(self->general);
    Py_VISIT(self->levels);
    Py_VISIT(self->outputs);
    Py_VISIT(self->apply);
    Py_VISIT(self->own);
    Py_VISIT(self->age);
    Py_VISIT(self->anchor);
    Py_VISIT(self->after);
    Py_VISIT(self->record);
    Py_VISIT(self->hooks);
    Py_VISIT(self->counter);
    return 0;
}

/* Without a tp_clear: nothing is bound to a plan after it is made, so a cycle always leads through something else. */
static void plan_dealloc(PyObject *object) {
    Plan *self = (Plan *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->bound);
    Py_XDECREF(self->forward);
    Py_XDECREF(self->attributes);
    Py_XDECREF(self->general);
    Py_XDECREF(self->levels);
    Py_XDECREF(self->outputs);
    Py_XDECREF(self->apply);
    Py_XDECREF(self->own);
    Py_XDECREF(self->age);
    Py_XDECREF(self->anchor);
    Py_XDECREF(self->after);
    Py_XDECREF(self->record);
    Py_XDECREF(self->hooks);
    Py_XDECREF(self->counter);
    PyMem_Free(self->saved.items);
    PyMem_Free(self->constant.items);
    PyMem_Free(self->watched.items);
    PyMem_Free(self->looks.items);
    PyMem_Free(self->held.items);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef plan_members[] = {
    {"bound", Py_T_OBJECT_EX, offsetof(Plan, bound), Py_READONLY, "what backward reads"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Plan_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Plan",
    .tp_doc = "Plan(bound, forward, attributes, general, levels, own, values, bare, ...): one compiled function.",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = plan_new,
    .tp_dealloc = plan_dealloc,
    .tp_traverse = plan_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Plan, vectorcall),
    .tp_members = plan_members,
};
