/* Building guard trees from their specification, and the Python type GuardTree.
 *
 * A specification is nested tuples, made by stator/capture/guards.py:
 *   node     (accessor, key, text, register or -1, checks, children)
 *   check    (kind, payload, text), kinds as in guard_kinds.h
 *   relation (kind, registers, text), or ("CONDITION", (operands, program), text): see condition.c,
 *            or ("TOGETHER", ((function, expected), registers), text)
 * A text is any object; `str` of it is what a failing guard is told by.
 * The tree owns everything it names; what evaluation remembers is borrowed (see guards.c).
 */
#include "guards.h"

#include <string.h>

GuardNames guard_names;

#define KIND_NAME(kind, ...) #kind,
#define ACCESSOR_NAME(accessor, name) name,

static const char *const accessor_names[] = {ACCESSORS(ACCESSOR_NAME) NULL};
static const char *const check_names[] = {VALUE_GUARDS(KIND_NAME) NULL};
static const char *const relation_names[] = {RELATION_GUARDS(KIND_NAME) NULL};

int name_index(const char *const *names, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    for (int i = 0; text != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) return i;
    }
    if (text != NULL) PyErr_Format(PyExc_ValueError, "unknown name in a specification: %R", name);
    return -1;
}

static void *zeroed(Py_ssize_t count, size_t size) {
    void *memory = PyMem_Calloc(count > 0 ? (size_t)count : 1, size);
    if (memory == NULL) PyErr_NoMemory();
    return memory;
}

/* -- checks ------------------------------------------------------------------------------------------ */

static void parse_dimensions(PyObject *items, int64_t *out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        out[i] = item == Py_None ? ANY_SIZE : PyLong_AsLongLong(item);
    }
}

static int parse_tensor(Check *check) {
    PyObject *type, *sizes, *strides;
    unsigned long long keys;
    int grad, dtype, device;
    if (tensor_prepare() < 0) return -1;
    if (!PyArg_ParseTuple(check->payload, "O!O!O!iiKp", &PyType_Type, &type, &PyTuple_Type, &sizes, &PyTuple_Type,
                          &strides, &dtype, &device, &keys, &grad)) {
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(sizes);
    if (PyTuple_GET_SIZE(strides) != count) {
        PyErr_SetString(PyExc_ValueError, "sizes and strides differ in length");
        return -1;
    }
    TensorCheck *tensor = check->tensor = zeroed(1, sizeof(TensorCheck) + 2 * (size_t)count * sizeof(int64_t));
    if (tensor == NULL) return -1;
    tensor->type = (PyTypeObject *)type;
    tensor->keys = keys;
    tensor->dtype = dtype;
    tensor->device = device;
    tensor->requires_grad = grad;
    tensor->dimensions = count;
    parse_dimensions(sizes, tensor->sizes);
    parse_dimensions(strides, tensor->sizes + count);
    return PyErr_Occurred() ? -1 : 0;
}

/* The payload as it is. */
static int parse_object(Check *check) {
    (void)check;
    return 0;
}

static int parse_number(Check *check) {
    check->number = PyLong_AsSsize_t(check->payload);
    return PyErr_Occurred() ? -1 : 0;
}

static int require_tuple(const Check *check, Py_ssize_t least, Py_ssize_t most) {
    PyObject *payload = check->payload;
    if (PyTuple_Check(payload) && PyTuple_GET_SIZE(payload) >= least && PyTuple_GET_SIZE(payload) <= most) return 0;
    PyErr_Format(PyExc_TypeError, "payload of %s must be a tuple of %zd to %zd", check_names[check->kind], least, most);
    return -1;
}

static int parse_sequence(Check *check) { return require_tuple(check, 0, PY_SSIZE_T_MAX); }

static int parse_call(Check *check) { return require_tuple(check, 2, 2); }

static int parse_names(Check *check) {
    check->memo = zeroed(1, sizeof(EmptyMemo));
    return check->memo == NULL ? -1 : require_tuple(check, 0, EMPTY_ITEMS);
}

/* (name, number or None, (reader, expected)): without a number the reader is called. */
static int parse_state(Check *check) {
    const char *name;
    PyObject *expected, *call;
    if (!PyArg_ParseTuple(check->payload, "sOO!", &name, &expected, &PyTuple_Type, &call)) return -1;
    if (PyTuple_GET_SIZE(call) != 2) PyErr_SetString(PyExc_TypeError, "payload of STATE ends with (reader, expected)");
    check->number = expected == Py_None ? -1 : state_number(name);
    if (expected != Py_None) check->expected = PyLong_AsUnsignedLongLong(expected);
    return PyErr_Occurred() ? -1 : 0;
}

#define PARSE(kind, cost, payload, ...)                                                                                \
    case CHECK_##kind: return parse_##payload(check);

static int parse_check(Check *check, PyObject *spec) {
    PyObject *kind, *payload, *text;
    if (!PyArg_ParseTuple(spec, "UOO", &kind, &payload, &text)) return -1;
    int index = name_index(check_names, kind);
    if (index < 0) return -1;
    check->kind = (CheckKind)index;
    check->payload = Py_NewRef(payload);
    check->text = Py_NewRef(text);
    switch (check->kind) { VALUE_GUARDS(PARSE) }
    Py_UNREACHABLE();
}

static int parse_checks(PyObject *specs, Check **checks, Py_ssize_t *count) {
    *checks = zeroed(PyTuple_GET_SIZE(specs), sizeof(Check));
    if (*checks == NULL) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(specs); i++) {
        *count = i + 1;
        if (parse_check(&(*checks)[i], PyTuple_GET_ITEM(specs, i)) < 0) return -1;
    }
    return 0;
}

/* -- what may be skipped ------------------------------------------------------------------------------- */

bool immutable_constant(PyObject *value) {
    static const char *const names[] = {"torch.dtype", "torch.device", "torch.layout", "torch.memory_format"};
    if (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
        PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value)) {
        return true;
    }
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (!immutable_constant(PyTuple_GET_ITEM(value, i))) return false;
        }
        return true;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(Py_TYPE(value)->tp_name, names[i]) == 0) return true;
    }
    return false;
}

static bool lasts_never(const Check *check, bool tuple) {
    (void)check, (void)tuple;
    return false;
}

static bool lasts_always(const Check *check, bool tuple) {
    (void)check, (void)tuple;
    return true;
}

static bool lasts_in_tuple(const Check *check, bool tuple) {
    (void)check;
    return tuple;
}

static bool lasts_immutable_constant(const Check *check, bool tuple) {
    (void)tuple;
    return immutable_constant(check->payload);
}

/* `__class__` can be assigned on instances of mutable classes and on modules. */
static bool lasts_immutable_class(const Check *check, bool tuple) {
    (void)tuple;
    return PyType_Check(check->payload) && check->payload != (PyObject *)&PyModule_Type &&
           ((PyTypeObject *)check->payload)->tp_flags & Py_TPFLAGS_IMMUTABLETYPE;
}

#define LASTS(kind, cost, payload, holds, record, lasts, ...)                                                          \
    case CHECK_##kind: return lasts_##lasts(check, tuple);
#define VERSIONED(kind, cost, payload, holds, record, lasts, version, ...)                                             \
    case CHECK_##kind: return version;

/* Whether a check that passed for an object, a tuple or another, passes for the same object for ever. */
static bool stable_check(const Check *check, bool tuple) {
    switch (check->kind) { VALUE_GUARDS(LASTS) }
    Py_UNREACHABLE();
}

/* Whether a check that passed for a dict passes while the dict has the same version. */
static bool versioned_check(const Check *check) {
    switch (check->kind) { VALUE_GUARDS(VERSIONED) }
    Py_UNREACHABLE();
}

static bool has_type_check(const Node *node, PyTypeObject *type) {
    for (Py_ssize_t i = 0; i < node->check_count; i++) {
        if (node->checks[i].kind == CHECK_TYPE && node->checks[i].payload == (PyObject *)type) return true;
    }
    return false;
}

static void classify_node(Node *node) {
    bool tuple = has_type_check(node, &PyTuple_Type), items = true;
    node->stable = node->slot < 0;
    node->versioned = 0;
    for (Py_ssize_t i = 0; i < node->child_count; i++) {
        const Node *child = &node->children[i];
        node->stable = node->stable && tuple && child->accessor == ITEM && child->stable;
        items = items && child->accessor == ITEM && child->stable;
    }
    for (Py_ssize_t i = 0; i < node->check_count; i++) {
        node->stable = node->stable && stable_check(&node->checks[i], tuple);
        if (versioned_check(&node->checks[i])) {
            Check moved = node->checks[i]; /* to the front */
            node->checks[i] = node->checks[node->versioned];
            node->checks[node->versioned++] = moved;
        }
    }
    node->sealable = node->versioned == node->check_count && items && node->slot < 0;
}

/* -- regions ----------------------------------------------------------------------------------------- */

#define SMALL 3 /* nodes: not worth a record */

static Py_ssize_t weight(const Node *node) {
    Py_ssize_t total = 1;
    for (Py_ssize_t i = 0; i < node->child_count; i++) total += weight(&node->children[i]);
    return total;
}

/* A frame's globals change all the time when a script runs at module level: what lies in such a dict is a region for
 * each name, everything else one for each root. */
static bool holds_globals(const Node *node) {
    if (node->accessor == CONSTANT && PyDict_CheckExact(node->key)) return true;
    return node->accessor == FUNCTION_GLOBALS;
}

static void place_tops(Node *nodes, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        bool split = holds_globals(&nodes[i]);
        for (Py_ssize_t k = 0; k < nodes[i].child_count; k++) split = split || holds_globals(&nodes[i].children[k]);
        if (split) place_tops(nodes[i].children, nodes[i].child_count);
        else nodes[i].top = weight(&nodes[i]) > SMALL;
    }
}

/* Makes regions of what is below a node in place of its own: it changes often, but for small parts not all of it. */
void divide_region(Node *node) {
    bool divided = false;
    for (Py_ssize_t i = 0; i < node->child_count; i++) {
        node->children[i].top = weight(&node->children[i]) > SMALL;
        divided = divided || node->children[i].top;
    }
    if (!divided) return;
    node->top = false;
    region_free(node->region);
    node->region = NULL;
}

/* -- nodes ------------------------------------------------------------------------------------------- */

static int parse_nodes(GuardTree *tree, PyObject *specs, Node **nodes, Py_ssize_t *count);

static int parse_node(GuardTree *tree, Node *node, PyObject *spec) {
    PyObject *accessor, *key, *text, *checks, *children;
    if (!PyArg_ParseTuple(spec, "UOOnO!O!", &accessor, &key, &text, &node->slot, &PyTuple_Type, &checks,
                          &PyTuple_Type, &children)) {
        return -1;
    }
    int index = name_index(accessor_names, accessor);
    if (index < 0) return -1;
    node->accessor = (Accessor)index;
    node->key = Py_NewRef(key);
    node->text = Py_NewRef(text);
    node->index = NO_INDEX;
    if (PyUnicode_CheckExact(key)) PyUnicode_InternInPlace(&node->key);
    if (PyLong_CheckExact(key)) {
        node->index = PyLong_AsSsize_t(key);
        if (PyErr_Occurred()) PyErr_Clear(), node->index = NO_INDEX; /* a big key of a dict */
    }
    if (node->slot >= 0) tree->register_count = Py_MAX(tree->register_count, node->slot + 1);
    if (parse_checks(checks, &node->checks, &node->check_count) < 0) return -1;
    if (parse_nodes(tree, children, &node->children, &node->child_count) < 0) return -1;
    classify_node(node);
    return 0;
}

static int parse_nodes(GuardTree *tree, PyObject *specs, Node **nodes, Py_ssize_t *count) {
    *nodes = zeroed(PyTuple_GET_SIZE(specs), sizeof(Node));
    if (*nodes == NULL) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(specs); i++) {
        *count = i + 1;
        if (parse_node(tree, &(*nodes)[i], PyTuple_GET_ITEM(specs, i)) < 0) return -1;
    }
    return 0;
}

static void count_registers(const Node *nodes, Py_ssize_t count, int *fills) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (nodes[i].slot >= 0) fills[nodes[i].slot]++;
        count_registers(nodes[i].children, nodes[i].child_count, fills);
    }
}

/* Each register must be filled by exactly one node: relations read it, and evaluation keeps it alive. */
static int verify_registers(const GuardTree *tree) {
    int *fills = zeroed(tree->register_count, sizeof(int));
    if (fills == NULL) return -1;
    count_registers(tree->nodes, tree->node_count, fills);
    for (Py_ssize_t slot = 0; slot < tree->register_count; slot++) {
        if (fills[slot] == 1) continue;
        PyErr_Format(PyExc_ValueError, "register %zd is filled by %d nodes", slot, fills[slot]);
        break;
    }
    PyMem_Free(fills);
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_registers(const GuardTree *tree, Relation *relation, PyObject *slots) {
    if (!PyTuple_Check(slots)) PyErr_SetString(PyExc_TypeError, "a relation compares a tuple of registers");
    else relation->slots = zeroed(PyTuple_GET_SIZE(slots), sizeof(Py_ssize_t));
    if (relation->slots == NULL) return -1;
    relation->count = PyTuple_GET_SIZE(slots);
    for (Py_ssize_t i = 0; i < relation->count; i++) {
        Py_ssize_t slot = PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, i));
        if (PyErr_Occurred()) return -1;
        if (slot < 0 || slot >= tree->register_count) {
            PyErr_Format(PyExc_ValueError, "register %zd is filled by no node", slot);
            return -1;
        }
        relation->slots[i] = slot;
    }
    return 0;
}

static int parse_other(const GuardTree *tree, Relation *relation, PyObject *payload) {
    if (parse_registers(tree, relation, payload) < 0) return -1;
    if (relation->count == 2) return 0;
    PyErr_SetString(PyExc_TypeError, "two objects are compared");
    return -1;
}

static int parse_sources(const GuardTree *tree, Relation *relation, PyObject *payload) {
    return tensor_prepare() < 0 ? -1 : parse_registers(tree, relation, payload);
}

static int parse_condition(const GuardTree *tree, Relation *relation, PyObject *payload) {
    PyObject *operands, *program;
    if (tensor_prepare() < 0) return -1;
    if (!PyArg_ParseTuple(payload, "O!O!", &PyTuple_Type, &operands, &PyTuple_Type, &program)) return -1;
    relation->condition = condition_parse(operands, program, tree->register_count);
    return relation->condition ? 0 : -1;
}

/* ((function, expected), registers): the function takes a tuple of what the registers hold. */
static int parse_together(const GuardTree *tree, Relation *relation, PyObject *payload) {
    PyObject *call, *slots;
    if (!PyArg_ParseTuple(payload, "O!O!", &PyTuple_Type, &call, &PyTuple_Type, &slots)) return -1;
    if (PyTuple_GET_SIZE(call) != 2) {
        PyErr_SetString(PyExc_TypeError, "payload of TOGETHER starts with (function, expected)");
        return -1;
    }
    relation->call = Py_NewRef(call);
    return parse_registers(tree, relation, slots);
}

#define PARSE_RELATION(kind, cost, payload, ...)                                                                       \
    case RELATION_##kind: return parse_##payload(tree, relation, compared);

static int parse_relation(const GuardTree *tree, Relation *relation, PyObject *spec) {
    PyObject *kind, *compared, *text;
    if (!PyArg_ParseTuple(spec, "UO!O", &kind, &PyTuple_Type, &compared, &text)) return -1;
    int index = name_index(relation_names, kind);
    if (index < 0) return -1;
    relation->kind = (RelationKind)index;
    relation->text = Py_NewRef(text);
    switch (relation->kind) { RELATION_GUARDS(PARSE_RELATION) }
    Py_UNREACHABLE();
}

/* -- the type ---------------------------------------------------------------------------------------- */

/* An attribute of a module that is imported, or NULL, with an exception or without one. */
static PyObject *imported(const char *module, const char *attribute) {
    PyObject *name = PyUnicode_FromString(module);
    PyObject *found = name ? PyImport_GetModule(name) : NULL;
    PyObject *value = found ? PyObject_GetAttrString(found, attribute) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(found);
    return value;
}

static int find_torch(void) {
    if (guard_names.module_getattr != NULL) return 0;
    PyObject *module = imported("torch.nn", "Module");
    if (module != NULL && PyType_Check(module)) {
        guard_names.module_getattr = Py_XNewRef(_PyType_Lookup((PyTypeObject *)module, guard_names.getattr));
    }
    Py_XDECREF(module);
    if (!PyErr_Occurred()) guard_names.device_class = imported("torch", "device");
    return PyErr_Occurred() ? -1 : 0;
}

/* Has what can be read in C compared at once; the other checks come first. */
static void gather_states(GuardTree *tree) {
    for (Py_ssize_t i = 0; i < tree->check_count; i++) {
        Check check = tree->checks[i];
        bool read = check.kind == CHECK_STATE && check.number >= 0;
        if (read && states_expect(&tree->states, (int)check.number, check.expected)) continue;
        tree->checks[i] = tree->checks[tree->asked_count];
        tree->checks[tree->asked_count++] = check;
    }
}

static PyObject *tree_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"state", "nodes", "relations", NULL};
    PyObject *checks, *nodes, *relations;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!:GuardTree", names, &PyTuple_Type, &checks, &PyTuple_Type,
                                     &nodes, &PyTuple_Type, &relations)) {
        return NULL;
    }
    GuardTree *tree = (GuardTree *)type->tp_alloc(type, 0);
    if (tree == NULL) return NULL;
    if (find_torch() < 0 || parse_checks(checks, &tree->checks, &tree->check_count) < 0) goto failed;
    gather_states(tree);
    if (parse_nodes(tree, nodes, &tree->nodes, &tree->node_count) < 0 || verify_registers(tree) < 0) goto failed;
    place_tops(tree->nodes, tree->node_count);
    if (guard_tree_gather_leaves(tree) < 0) goto failed;
    tree->relations = zeroed(PyTuple_GET_SIZE(relations), sizeof(Relation));
    if (tree->relations == NULL) goto failed;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(relations); i++) {
        tree->relation_count = i + 1;
        if (parse_relation(tree, &tree->relations[i], PyTuple_GET_ITEM(relations, i)) < 0) goto failed;
    }
    return (PyObject *)tree;
failed:
    Py_DECREF(tree);
    return NULL;
}

static int visit_checks(const Check *checks, Py_ssize_t count, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_VISIT(checks[i].payload);
        Py_VISIT(checks[i].text);
    }
    return 0;
}

static int visit_nodes(const Node *nodes, Py_ssize_t count, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_VISIT(nodes[i].key);
        Py_VISIT(nodes[i].text);
        int status = visit_checks(nodes[i].checks, nodes[i].check_count, visit, arg);
        if (status == 0) status = visit_nodes(nodes[i].children, nodes[i].child_count, visit, arg);
        if (status != 0) return status;
    }
    return 0;
}

static int tree_traverse(PyObject *self, visitproc visit, void *arg) {
    GuardTree *tree = (GuardTree *)self;
    for (Py_ssize_t i = 0; i < tree->relation_count; i++) {
        Py_VISIT(tree->relations[i].text);
        Py_VISIT(tree->relations[i].call);
    }
    int status = visit_checks(tree->checks, tree->check_count, visit, arg);
    return status ? status : visit_nodes(tree->nodes, tree->node_count, visit, arg);
}

static void free_checks(Check *checks, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(checks[i].payload);
        Py_XDECREF(checks[i].text);
        PyMem_Free(checks[i].tensor);
        PyMem_Free(checks[i].memo);
    }
    PyMem_Free(checks);
}

static void free_nodes(Node *nodes, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(nodes[i].key);
        Py_XDECREF(nodes[i].text);
        free_checks(nodes[i].checks, nodes[i].check_count);
        free_nodes(nodes[i].children, nodes[i].child_count);
        region_free(nodes[i].region);
    }
    PyMem_Free(nodes);
}

/* A tree is immutable for Python, so cycles through it are cut by their other members (no tp_clear). */
static void tree_dealloc(PyObject *self) {
    GuardTree *tree = (GuardTree *)self;
    PyObject_GC_UnTrack(self);
    free_checks(tree->checks, tree->check_count);
    free_nodes(tree->nodes, tree->node_count);
    for (Py_ssize_t i = 0; i < tree->relation_count; i++) {
        Py_XDECREF(tree->relations[i].text);
        Py_XDECREF(tree->relations[i].call);
        PyMem_Free(tree->relations[i].slots);
        condition_free(tree->relations[i].condition);
    }
    PyMem_Free(tree->relations);
    PyMem_Free(tree->leaves);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *tree_check(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    int status = guard_tree_check(self, args, count);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

static PyObject *tree_explain(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    return guard_tree_explain(self, args, count);
}

static PyMethodDef tree_methods[] = {
    {"check", (PyCFunction)(void (*)(void))tree_check, METH_FASTCALL, "check(*slots): whether all guards pass."},
    {"explain", (PyCFunction)(void (*)(void))tree_explain, METH_FASTCALL,
     "explain(*slots): the text of the first guard that fails, or None; uses nothing remembered."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject GuardTree_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.GuardTree",
    .tp_doc = "GuardTree(state, nodes, relations): guards, evaluated along the way to the values.",
    .tp_basicsize = sizeof(GuardTree),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tree_new,
    .tp_dealloc = tree_dealloc,
    .tp_traverse = tree_traverse,
    .tp_methods = tree_methods,
};

#define VALUE_ROW(kind, cost, payload, holds, record, lasts, version, meaning, text)                                   \
    {#kind, cost, #payload, false, meaning, text},
#define RELATION_ROW(kind, cost, payload, holds, meaning, text) {#kind, cost, #payload, true, meaning, text},

static const struct {
    const char *name;
    int cost;
    const char *payload;
    bool relation;
    const char *meaning, *text;
} rows[] = {VALUE_GUARDS(VALUE_ROW) RELATION_GUARDS(RELATION_ROW)};

/* The rows of guard_kinds.h as Python reads them: (name, cost, payload, whether a relation, meaning, text). */
static int add_kinds(PyObject *module) {
    Py_ssize_t count = sizeof(rows) / sizeof(rows[0]);
    PyObject *kinds = PyTuple_New(count);
    for (Py_ssize_t i = 0; kinds != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(sisOss)", rows[i].name, rows[i].cost, rows[i].payload,
                                      rows[i].relation ? Py_True : Py_False, rows[i].meaning, rows[i].text);
        if (row == NULL) Py_CLEAR(kinds);
        else PyTuple_SET_ITEM(kinds, i, row);
    }
    int status = kinds == NULL ? -1 : PyModule_AddObjectRef(module, "GUARD_KINDS", kinds);
    Py_XDECREF(kinds);
    return status;
}

int guards_register(PyObject *module) {
    static const char *const parts[] = {"_parameters", "_buffers", "_modules"};
    guard_names.getattribute = PyUnicode_InternFromString("__getattribute__");
    guard_names.getattr = PyUnicode_InternFromString("__getattr__");
    guard_names.dict = PyUnicode_InternFromString("__dict__");
    guard_names.no_attributes = PyDict_New();
    for (int i = 0; i < 3; i++) guard_names.parts[i] = PyUnicode_InternFromString(parts[i]);
    if (PyErr_Occurred() || add_kinds(module) < 0) return -1;
    return PyModule_AddType(module, &GuardTree_Type);
}
