/* GuardTree: guards as a tree that follows how values are reached.
 *
 * A node is a step from its parent's value (an accessor), checks on the value it gives, and children.
 * Evaluation is depth-first and stops at the first failure. A node remembers the dict (or type)
 * versions under which its value was found and its subtree passed: while they are unchanged the value
 * is the same object, so the look-up is skipped, and if everything below depends on object identity
 * alone ("stable"), the subtree is skipped too. Mutable state (tensor metadata, list lengths, …) is
 * checked on every call. tree.c builds the nodes from a specification.
 */
#include "guards.h"

#include <string.h>

/* -- versions ---------------------------------------------------------------------------------------- */

/* The version tag of a dict is globally unique for one content of one dict. */
const uint64_t *dict_version_word(PyObject *dict) {
#if PY_VERSION_HEX >= 0x030E0000
    (void)dict;
    return NULL;
#else
#if PY_VERSION_HEX >= 0x030D0000
    /* Values inside the instance are stored without a new version. */
    if (((PyDictObject *)dict)->ma_values != NULL) return NULL;
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return &((PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
#endif
}

static inline PyObject *instance_dict(PyObject *object) {
    if (PyModule_Check(object)) return PyModule_GetDict(object);
    PyObject **slot = _PyObject_GetDictPtr(object);
    return slot ? *slot : NULL;
}

/* -- accessors --------------------------------------------------------------------------------------- */

static void classify(Node *node, PyTypeObject *type) {
    bool plain = type->tp_getattro == PyObject_GenericGetAttr || type == &PyModule_Type;
    PyObject *hook = NULL;
    if (!plain) {
        plain = _PyType_Lookup(type, guard_names.getattribute) ==
                _PyType_Lookup(&PyBaseObject_Type, guard_names.getattribute);
        hook = _PyType_Lookup(type, guard_names.getattr);
    }
    PyObject *descriptor = _PyType_Lookup(type, node->key);
    plain = plain && !(descriptor && Py_TYPE(descriptor)->tp_descr_set);
    node->lookup_type = type;
    node->lookup_tag = type->tp_version_tag;
    node->lookup_plain = plain;
    node->lookup_parts = plain && descriptor == NULL && hook != NULL && hook == guard_names.module_getattr;
}

static inline bool lookup_known(const Node *node, PyTypeObject *type) {
    return node->lookup_type == type && node->lookup_tag != 0 && node->lookup_tag == type->tp_version_tag;
}

/* What a module finds in its parameters, buffers and submodules, without calling its __getattr__. */
static PyObject *read_part(Node *node, PyObject *dict, Versions *seen) {
    for (int i = 0; i < 3; i++) {
        PyObject *part = PyDict_GetItemWithError(dict, guard_names.parts[i]);
        if (part == NULL || !PyDict_CheckExact(part)) break;
        PyObject *value = PyDict_GetItemWithError(part, node->key);
        seen->parts[i] = part;
        seen->part_versions[i] = dict_version(part);
        if (value != NULL) {
            seen->dict = dict;
            seen->version = dict_version(dict);
            return Py_NewRef(value);
        }
    }
    memset(seen->parts, 0, sizeof(seen->parts));
    return NULL;
}

static PyObject *read_attribute(Node *node, PyObject *owner, Versions *seen) {
    PyTypeObject *type = Py_TYPE(owner);
    if (!lookup_known(node, type)) classify(node, type);
    seen->type = type;
    seen->tag = node->lookup_tag;
    if (node->lookup_plain) {
        PyObject *dict = instance_dict(owner);
        if (dict != NULL && PyDict_CheckExact(dict)) {
            PyObject *value = PyDict_GetItemWithError(dict, node->key);
            if (value != NULL) {
                seen->dict = dict;
                seen->version = dict_version(dict);
                return Py_NewRef(value);
            }
            if (node->lookup_parts && (value = read_part(node, dict, seen)) != NULL) return value;
        }
        if (PyErr_Occurred()) return NULL;
    }
    return PyObject_GetAttr(owner, node->key);
}

static PyObject *missing(void) {
    if (!PyErr_Occurred()) PyErr_SetNone(PyExc_LookupError);
    return NULL;
}

/* Containers are read as the builtins that they are, whatever a subclass overrides. */
static PyObject *read_item(Node *node, PyObject *owner, Versions *seen) {
    if (PyDict_Check(owner)) {
        PyObject *value = PyDict_GetItemWithError(owner, node->key);
        if (value == NULL) return missing();
        if (PyDict_CheckExact(owner)) {
            seen->dict = owner;
            seen->version = dict_version(owner);
        }
        return Py_NewRef(value);
    }
    if (node->index != NO_INDEX && (PyTuple_Check(owner) || PyList_Check(owner))) {
        Py_ssize_t size = PySequence_Fast_GET_SIZE(owner);
        Py_ssize_t index = node->index < 0 ? node->index + size : node->index;
        if (index < 0 || index >= size) return missing();
        return Py_NewRef(PySequence_Fast_GET_ITEM(owner, index));
    }
    return PyObject_GetItem(owner, node->key);
}

static PyObject *read_dict_key(Node *node, PyObject *owner) {
    if (PyDict_CheckExact(owner)) {
        PyObject *key;
        Py_ssize_t position = 0, index = 0;
        while (PyDict_Next(owner, &position, &key, NULL)) {
            if (index++ == node->index) return Py_NewRef(key);
        }
        return missing();
    }
    PyObject *keys = stored_items(owner), *key = NULL;
    if (keys != NULL && node->index < PyList_GET_SIZE(keys)) key = Py_NewRef(PyList_GET_ITEM(keys, node->index));
    Py_XDECREF(keys);
    return key ? key : missing();
}

/* Borrowed; a negative index counts from the end. */
static PyObject *tuple_item(PyObject *tuple, Py_ssize_t index) {
    Py_ssize_t size = PyTuple_GET_SIZE(tuple), at = index < 0 ? index + size : index;
    return at >= 0 && at < size ? PyTuple_GET_ITEM(tuple, at) : NULL;
}

static PyObject *read_function(Node *node, PyObject *owner) {
    if (!PyFunction_Check(owner)) return missing();
    PyObject *part, *value = NULL;
    switch (node->accessor) {
    case FUNCTION_CODE: value = PyFunction_GET_CODE(owner); break;
    case FUNCTION_GLOBALS: value = PyFunction_GET_GLOBALS(owner); break;
    case FUNCTION_DEFAULT:
        part = PyFunction_GET_DEFAULTS(owner);
        if (part) value = tuple_item(part, node->index);
        break;
    case FUNCTION_KWDEFAULT:
        part = PyFunction_GET_KW_DEFAULTS(owner);
        if (part) value = PyDict_GetItemWithError(part, node->key);
        break;
    case FUNCTION_CLOSURE:
        part = PyFunction_GET_CLOSURE(owner);
        if (part && node->index < PyTuple_GET_SIZE(part)) {
            value = PyCell_GET(PyTuple_GET_ITEM(part, node->index));
        }
        break;
    default: break;
    }
    return value ? Py_NewRef(value) : missing();
}

static PyObject *read_class_attribute(Node *node, PyObject *owner, Versions *seen) {
    if (!PyType_Check(owner)) return missing();
    PyTypeObject *type = (PyTypeObject *)owner;
    PyObject *value = _PyType_Lookup(type, node->key);
    if (value == NULL) return missing();
    seen->type = type;
    seen->tag = type->tp_version_tag;
    return Py_NewRef(value);
}

static PyObject *read_instance_dict(PyObject *owner) {
    PyObject *value = instance_dict(owner);
    if (value != NULL) return Py_NewRef(value);
    value = PyObject_GetAttr(owner, guard_names.dict); /* a class has a mapping proxy */
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = Py_NewRef(guard_names.no_attributes);
    }
    return value;
}

static PyObject *read_value(Node *node, PyObject *owner, const Run *run, Versions *seen) {
    PyObject *value;
    switch (node->accessor) {
    case SLOT:
        value = node->index < run->slot_count ? run->slots[node->index] : NULL;
        return value ? Py_NewRef(value) : missing();
    case CONSTANT: return Py_NewRef(node->key);
    case CELL:
        value = PyCell_Check(owner) ? PyCell_GET(owner) : NULL;
        return value ? Py_NewRef(value) : missing();
    case ATTRIBUTE: return read_attribute(node, owner, seen);
    case ITEM: return read_item(node, owner, seen);
    case DICT_KEY: return read_dict_key(node, owner);
    case TYPE_OF: return Py_NewRef((PyObject *)Py_TYPE(owner));
    case CLASS_ATTRIBUTE: return read_class_attribute(node, owner, seen);
    case INSTANCE_DICT:
        return read_instance_dict(owner);
    default: return read_function(node, owner);
    }
}

static inline bool same_class(const Versions *seen, PyTypeObject *type) {
    return seen->type == type && seen->tag != 0 && seen->tag == type->tp_version_tag;
}

/* The value found at the last success, if the versions say that a look-up would find it again; borrowed. */
static PyObject *remembered(const Node *node, PyObject *owner) {
    if (node->value == NULL) return NULL;
    const Versions *seen = &node->seen;
    switch (node->accessor) {
    case CLASS_ATTRIBUTE: return PyType_Check(owner) && same_class(seen, (PyTypeObject *)owner) ? node->value : NULL;
    case ATTRIBUTE:
        if (!same_class(seen, Py_TYPE(owner)) || instance_dict(owner) != seen->dict) return NULL;
        break;
    case ITEM:
        if (owner != seen->dict) return NULL;
        break;
    default: return NULL;
    }
    if (dict_version(seen->dict) != seen->version) return NULL;
    for (int i = 0; i < 3 && seen->parts[i] != NULL; i++) {
        if (dict_version(seen->parts[i]) != seen->part_versions[i]) return NULL;
    }
    return node->value;
}

static void remember(Node *node, PyObject *value, const Versions *seen) {
    bool versioned = seen->version != 0;
    for (int i = 0; i < 3 && seen->parts[i] != NULL; i++) versioned = versioned && seen->part_versions[i] != 0;
    node->seen = *seen;
    node->value = versioned || node->accessor == CLASS_ATTRIBUTE ? value : NULL;
}

/* -- evaluation -------------------------------------------------------------------------------------- */

static int run_nodes(Node *nodes, Py_ssize_t count, PyObject *owner, Run *run);

int run_single_check(Check *check, PyObject *value, Run *run) {
    int status = run_check(check, value);
    if (status != 1) run->failed = check->text;
    return status;
}

static int run_node(Node *node, PyObject *value, Run *run) {
    uint64_t version = PyDict_CheckExact(value) ? dict_version(value) : 0;
    bool again = run->remember && run->recorder == NULL;
    bool sealed = version != 0 && again && node->sealed_dict == value && node->sealed_version == version;
    if (sealed && node->sealable) return 1;
    for (Py_ssize_t i = sealed ? node->versioned : 0; i < node->check_count; i++) {
        int status = run_single_check(&node->checks[i], value, run);
        if (status != 1) return status;
        if (run->recorder != NULL) region_note_check(run->recorder, &node->checks[i], value, &run->anchored);
    }
    int status = run_nodes(node->children, node->child_count, value, run);
    if (status == 1 && version != 0) {
        node->sealed_dict = value;
        node->sealed_version = version;
    }
    return status;
}

/* A region that was hit often is worth its record; one that was not waits for its next one, longer each time. */
static void put_off(Node *node) {
    node->delay = node->hits > 64 ? 0 : Py_MIN(2 * node->delay + 1, 255);
    node->wait = node->delay;
    node->hits = 0;
}

#define OFTEN 7 /* the delay after three records that were not worth it */

static int record(Node *node, PyObject *value, Run *run) {
    bool changed = region_is_of(node->region, value);
    Region *region = run->recorder = region_new(value);
    run->anchored = node->accessor == CONSTANT;
    int status = run_node(node, value, run);
    run->recorder = NULL;
    put_off(node);
    if (status == 1 && changed && node->delay >= OFTEN) divide_region(node);
    if (status == 1 && node->top && region != NULL && region_finish(region)) {
        Region *before = node->region;
        node->region = region;
        region = before;
    }
    region_free(region);
    return status;
}

/* The top of a region: nothing below is touched while the record says that it passes. */
static int run_top(Node *node, PyObject *value, Run *run) {
    if (node->region != NULL) {
        int status = region_matches(node->region, value, run);
        if (status > 0) {
            node->hits++;
            return 1;
        }
        if (status < 0) return PyErr_Occurred() ? -1 : 0;
    }
    if (node->wait == 0) return record(node, value, run);
    node->wait--;
    return run_node(node, value, run);
}

static int run_value(Node *node, PyObject *value, Run *run) {
    if (node->slot >= 0) {
        run->registers[node->slot] = value; /* kept alive until the end */
        if (run->recorder != NULL) region_note_register(run->recorder, node->slot, value);
    }
    bool top = node->top && run->remember && run->recorder == NULL;
    return top ? run_top(node, value, run) : run_node(node, value, run);
}

/* Evaluates what lies below a value that has just been read, and records how it was read. */
static int run_recorded(Node *node, PyObject *owner, PyObject *value, const Versions *seen, Run *run) {
    Region *recorder = run->recorder;
    bool anchored = run->anchored;
    if (!region_note_read(recorder, node, owner, value, seen, &run->anchored)) {
        region_note_rest(recorder, node, owner);
        run->recorder = NULL;
    }
    int status = run_value(node, value, run);
    run->recorder = recorder;
    run->anchored = anchored;
    return status;
}

/* An argument of the call, of which nothing is remembered. */
static int run_slot(Node *node, Run *run) {
    PyObject *value = node->index < run->slot_count ? Py_XNewRef(run->slots[node->index]) : missing();
    if (value == NULL) {
        run->failed = node->text;
        return -1;
    }
    int status = run_value(node, value, run);
    if (node->slot >= 0) run->kept[run->kept_count++] = value;
    else Py_DECREF(value);
    return status;
}

int run_single_node(Node *node, PyObject *owner, Run *run) {
    if (node->accessor == SLOT && run->recorder == NULL) return run_slot(node, run);
    PyObject *known = run->remember && run->recorder == NULL ? remembered(node, owner) : NULL;
    if (known != NULL && node->stable) return 1;
    Versions seen = {0};
    PyObject *value = known ? Py_NewRef(known) : read_value(node, owner, run, &seen);
    if (value == NULL) {
        run->failed = node->text;
        return -1;
    }
    int status = run->recorder ? run_recorded(node, owner, value, &seen, run) : run_value(node, value, run);
    if (status == 1 && known == NULL) remember(node, value, &seen);
    if (node->slot >= 0) run->kept[run->kept_count++] = value;
    else Py_DECREF(value);
    return status;
}

static int run_nodes(Node *nodes, Py_ssize_t count, PyObject *owner, Run *run) {
    for (Py_ssize_t i = 0; i < count; i++) {
        int status = run_single_node(&nodes[i], owner, run);
        if (status != 1) return status;
    }
    return 1;
}

static bool read_leaf(const Node *node, Leaf *leaf) {
    if (node->accessor != SLOT || node->slot >= 0 || node->top || node->check_count != 1 || node->child_count != 0) {
        return false;
    }
    const Check *check = &node->checks[0];
    bool of_object = check->kind == CHECK_EQUALS || check->kind == CHECK_ID;
    *leaf = (Leaf){node->index, of_object ? check->payload : NULL, check->tensor};
    return of_object || check->kind == CHECK_TENSOR;
}

int guard_tree_gather_leaves(GuardTree *tree) {
    tree->leaves = PyMem_Calloc((size_t)tree->node_count + 1, sizeof(Leaf));
    if (tree->leaves == NULL) return PyErr_NoMemory(), -1;
    while (tree->leaf_count < tree->node_count &&
           read_leaf(&tree->nodes[tree->leaf_count], &tree->leaves[tree->leaf_count])) {
        tree->leaf_count++;
    }
    return 0;
}

static bool passes_at_once(const Leaf *leaf, const Run *run) {
    PyObject *value = leaf->index < run->slot_count ? run->slots[leaf->index] : NULL;
    if (value == NULL || leaf->object != NULL) return value != NULL && value == leaf->object;
    Py_INCREF(value);
    int status = tensor_matches(value, leaf->tensor);
    Py_DECREF(value);
    if (status < 0) PyErr_Clear(); /* its node says so again */
    return status == 1;
}

/* What does not pass at once is asked of its node. */
static int run_leaves(GuardTree *tree, Run *run) {
    for (Py_ssize_t i = 0; i < tree->leaf_count; i++) {
        if (passes_at_once(&tree->leaves[i], run)) continue;
        int status = run_single_node(&tree->nodes[i], NULL, run);
        if (status != 1) return status;
    }
    return 1;
}

/* The storages of what must be tensors, in order: 1, or 0 or -1 as a check. */
static int read_storages(const Relation *relation, const Run *run, uintptr_t *found) {
    for (Py_ssize_t i = 0; i < relation->count; i++) {
        PyObject *value = run->registers[relation->slots[i]];
        if (!tensor_check(value)) return 0;
        if (tensor_storage(value, &found[i]) < 0) return -1;
    }
    return 1;
}

static int relation_one_storage(const Relation *relation, const Run *run) {
    uintptr_t found[relation->count];
    int status = read_storages(relation, run, found);
    for (Py_ssize_t i = 0; i < relation->count && status == 1; i++) status = found[i] != 0 && found[i] == found[0];
    return status;
}

static int relation_distinct_storages(const Relation *relation, const Run *run) {
    uintptr_t found[relation->count];
    int status = read_storages(relation, run, found);
    if (status != 1) return status;
    /* A table of twice the size, open addressing: linear in the number of tensors. */
    Py_ssize_t room = 4;
    while (room < 2 * relation->count) room *= 2;
    uintptr_t table[room];
    memset(table, 0, (size_t)room * sizeof(uintptr_t));
    for (Py_ssize_t i = 0; i < relation->count; i++) {
        if (found[i] == 0) continue;
        size_t at = (found[i] >> 4) * 0x9E3779B97F4A7C15u & (size_t)(room - 1);
        for (; table[at] != 0; at = (at + 1) & (size_t)(room - 1)) {
            if (table[at] == found[i]) return 0;
        }
        table[at] = found[i];
    }
    return 1;
}

static int relation_condition(const Relation *relation, const Run *run) {
    return condition_check(relation->condition, run->registers);
}

static int relation_together(const Relation *relation, const Run *run) {
    PyObject *values = PyTuple_New(relation->count);
    if (values == NULL) return -1;
    for (Py_ssize_t i = 0; i < relation->count; i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(run->registers[relation->slots[i]]));
    }
    int status = same_result(relation->call, values);
    Py_DECREF(values);
    return status;
}

static int relation_one_object(const Relation *relation, const Run *run) {
    return run->registers[relation->slots[0]] == run->registers[relation->slots[1]];
}

static int relation_two_objects(const Relation *relation, const Run *run) {
    return !relation_one_object(relation, run);
}

#define RUN(kind, cost, payload, holds, ...)                                                                           \
    case RELATION_##kind: return relation_##holds(relation, run);

static int run_relation(const Relation *relation, const Run *run) {
    switch (relation->kind) { RELATION_GUARDS(RUN) }
    Py_UNREACHABLE();
}

static int run_relations(GuardTree *tree, Run *run) {
    for (Py_ssize_t i = 0; i < tree->relation_count; i++) {
        int status = run_relation(&tree->relations[i], run);
        if (status != 1) {
            run->failed = tree->relations[i].text;
            return status;
        }
    }
    return 1;
}

/* torch's global state; that which C can read is compared at once, and one by one where it is not as expected. */
static int run_states(GuardTree *tree, Run *run) {
    Py_ssize_t count = states_match(&tree->states) ? tree->asked_count : tree->check_count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int status = run_single_check(&tree->checks[i], NULL, run);
        if (status != 1) return status;
    }
    return 1;
}

static int run_tree(GuardTree *tree, Run *run) {
    PyObject *registers[tree->register_count + 1], *kept[tree->register_count + 1];
    run->registers = registers;
    run->kept = kept;
    run->kept_count = 0;
    int status = run_states(tree, run);
    if (status == 1) status = run_leaves(tree, run);
    if (status == 1) status = run_nodes(tree->nodes + tree->leaf_count, tree->node_count - tree->leaf_count, NULL, run);
    if (status == 1) status = run_relations(tree, run);
    for (Py_ssize_t i = 0; i < run->kept_count; i++) Py_DECREF(kept[i]);
    if (status < 0) {
        /* What cannot be read does not match; only the likes of KeyboardInterrupt surface. */
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        status = 0;
    }
    return status;
}

int guard_tree_check(PyObject *tree, PyObject *const *slots, Py_ssize_t count) {
    Run run = {.slots = slots, .slot_count = count, .remember = true};
    return run_tree((GuardTree *)tree, &run);
}

PyObject *guard_tree_explain(PyObject *tree, PyObject *const *slots, Py_ssize_t count) {
    Run run = {.slots = slots, .slot_count = count, .remember = false};
    int status = run_tree((GuardTree *)tree, &run);
    if (status < 0) return NULL;
    if (status == 1) Py_RETURN_NONE;
    return PyObject_Str(run.failed);
}
