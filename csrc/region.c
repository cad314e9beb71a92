/* Regions: what a subtree of guards depends on, as flat lists that are compared in one pass.
 *
 * While a subtree is evaluated a recorder notes each word of memory that its result follows from: the
 * type and the dict of an instance, the version of a dict (or, from Python 3.12 on, a watch on it), the
 * items of a list, the version tag of a class, the metadata of a tensor. While all of them are as they
 * were, the subtree passes again and is not evaluated. What has no such word (a property, a call, a
 * set) stays in the list `rest` and is evaluated each time.
 *
 * Nothing here keeps the user's objects alive. Words are compared in the order in which they were noted,
 * so that each address is read only after what proves its object alive. An object at the same address
 * may be another one: a value is "anchored" if it must be the very same (it comes from an unchanged dict
 * or class, or somebody holds it), and a fact that follows from identity alone is noted only of those.
 */
#include "guards.h"

#include <string.h>

#define AHEAD 12 /* what is prefetched: memory that the caller's work has pushed out of the caches */

typedef struct {
    const uintptr_t *address;
    uintptr_t expected;
} Word;

typedef struct {
    const unsigned int *address;
    unsigned int expected;
} Tag;

typedef struct {
    PyObject *tensor;
    TensorPlace place;
    const TensorCheck *check;
} SealedTensor;

typedef struct {
    Py_ssize_t slot;
    PyObject *value;
} Filled;

/* A node to evaluate below its owner, or a check of a value. */
typedef struct {
    Node *node;
    Check *check;
    PyObject *owner;
} Rest;

#define LIST(type) struct { type *items; Py_ssize_t count, room; }

struct Region {
    PyObject *value; /* of the node on top; borrowed, only compared */
    WatchFlag *flag;
    LIST(Word) words;
    LIST(Tag) tags;
    LIST(SealedTensor) tensors;
    LIST(Filled) filled;
    LIST(Rest) rest;
    LIST(PyObject *) held; /* immutable values, which are anchored so */
    const void **noted;    /* a hash set of addresses, while recording */
    Py_ssize_t noted_count, noted_room;
    bool failed;
};

/* -- recording --------------------------------------------------------------------------------------- */

static void *grown(Region *region, void *items, Py_ssize_t count, Py_ssize_t *room, size_t size) {
    if (count < *room) return items;
    Py_ssize_t wanted = *room ? 2 * *room : 8;
    void *moved = PyMem_Realloc(items, (size_t)wanted * size);
    if (moved == NULL) {
        region->failed = true;
        return items;
    }
    *room = wanted;
    return moved;
}

#define APPEND(region, list, ...)                                                                                     \
    do {                                                                                                              \
        (region)->list.items = grown(region, (region)->list.items, (region)->list.count, &(region)->list.room,        \
                                     sizeof(*(region)->list.items));                                                  \
        if (!(region)->failed) (region)->list.items[(region)->list.count++] = (__VA_ARGS__);                          \
    } while (0)

static inline size_t spread(const void *address, Py_ssize_t room) {
    return (((uintptr_t)address >> 3) * 0x9E3779B97F4A7C15u >> 20) & (size_t)(room - 1);
}

static void insert(const void **set, Py_ssize_t room, const void *address) {
    size_t at = spread(address, room);
    while (set[at] != NULL) at = (at + 1) & (size_t)(room - 1);
    set[at] = address;
}

/* Whether an address is noted for the first time. */
static bool first(Region *region, const void *address) {
    if (2 * region->noted_count >= region->noted_room) {
        Py_ssize_t room = region->noted_room ? 2 * region->noted_room : 64;
        const void **set = PyMem_Calloc((size_t)room, sizeof(void *));
        if (set == NULL) return region->failed = true;
        for (Py_ssize_t i = 0; i < region->noted_room; i++) {
            if (region->noted[i] != NULL) insert(set, room, region->noted[i]);
        }
        PyMem_Free(region->noted);
        region->noted = set;
        region->noted_room = room;
    }
    size_t at = spread(address, region->noted_room);
    for (; region->noted[at] != NULL; at = (at + 1) & (size_t)(region->noted_room - 1)) {
        if (region->noted[at] == address) return false;
    }
    region->noted[at] = address;
    region->noted_count++;
    return true;
}

static void note_word(Region *region, const void *address) {
    if (first(region, address)) APPEND(region, words, (Word){address, *(const uintptr_t *)address});
}

static void note_type(Region *region, PyObject *object) { note_word(region, &object->ob_type); }

static bool note_tag(Region *region, PyTypeObject *type) {
    if (type->tp_version_tag == 0) return false;
    if (first(region, &type->tp_version_tag)) APPEND(region, tags, (Tag){&type->tp_version_tag, type->tp_version_tag});
    return true;
}

#if PY_VERSION_HEX >= 0x030D0000

/* From Python 3.13 on a dict may have its values inside the instance, where they are stored without notice. */
static bool values_inside(PyObject *dict) { return ((PyDictObject *)dict)->ma_values != NULL; }

/* The values themselves, then: a key has the same place in all dicts that share a table of keys, and one that is not
 * there is NULL. The header holds the number of places. */
static bool note_values(Region *region, PyObject *dict) {
    PyDictObject *object = (PyDictObject *)dict;
    PyObject **values = (PyObject **)object->ma_values + 1;
    int count = *(uint8_t *)object->ma_values;
    note_type(region, dict);
    note_word(region, &object->ma_values);
    note_word(region, &object->ma_keys);
    for (int i = 0; i < count; i++) note_word(region, &values[i]);
    return true;
}

#else

static bool values_inside(PyObject *dict) {
    (void)dict;
    return false;
}

static bool note_values(Region *region, PyObject *dict) {
    (void)region;
    (void)dict;
    return false;
}

#endif

/* All of a dict: its keys and its values; also their identity, unless it has its values inside an instance. */
static bool note_dict(Region *region, PyObject *dict) {
    if (!PyDict_CheckExact(dict)) note_type(region, dict);
    if (!first(region, dict)) return true;
    if (values_inside(dict)) return note_values(region, dict);
    if (watch_dict(dict, region->flag)) return true;
    const uint64_t *version = dict_version_word(dict);
    if (version == NULL) {
        region->failed = true;
        return false;
    }
    note_type(region, dict);
    note_word(region, version);
    return true;
}

static void hold(Region *region, PyObject *value) { APPEND(region, held, Py_NewRef(value)); }

static bool note_instance_dict(Region *region, PyObject *object) {
    PyObject **place = _PyObject_GetDictPtr(object);
    if (place == NULL || *place == NULL) return false;
    note_type(region, object);
    note_word(region, place);
    return true;
}

static bool note_attribute(Region *region, PyObject *owner, const Versions *seen, bool *anchored) {
    if (seen->dict == NULL || !note_instance_dict(region, owner) || !note_tag(region, Py_TYPE(owner))) return false;
    bool known = note_dict(region, seen->dict);
    *anchored = !values_inside(seen->dict);
    for (int i = 0; i < 3 && seen->parts[i] != NULL; i++) {
        known = known && note_dict(region, seen->parts[i]);
        *anchored = !values_inside(seen->parts[i]);
    }
    return known;
}

/* All of a dict and the order of its keys. */
static bool note_order(Region *region, PyObject *dict) {
    return PyDict_CheckExact(dict) && !values_inside(dict) && note_dict(region, dict);
}

static bool note_sequence_item(Region *region, Node *node, PyObject *owner, bool anchored) {
    if (node->index == NO_INDEX) return false;
    if (anchored && PyTuple_CheckExact(owner)) return true;
    Py_ssize_t size = PySequence_Fast_GET_SIZE(owner);
    note_type(region, owner);
    note_word(region, &((PyVarObject *)owner)->ob_size);
    if (PyList_CheckExact(owner)) note_word(region, &((PyListObject *)owner)->ob_item);
    note_word(region, &PySequence_Fast_ITEMS(owner)[node->index < 0 ? node->index + size : node->index]);
    return true;
}

static bool note_function_part(Region *region, Node *node, PyObject *owner) {
    PyFunctionObject *function = (PyFunctionObject *)owner;
    note_type(region, owner);
    switch (node->accessor) {
    case FUNCTION_CODE: note_word(region, &function->func_code); return true;
    case FUNCTION_GLOBALS: note_word(region, &function->func_globals); return true;
    case FUNCTION_DEFAULT: {
        PyObject *defaults = function->func_defaults;
        Py_ssize_t size = PyTuple_GET_SIZE(defaults);
        note_word(region, &function->func_defaults);
        note_word(region, &((PyVarObject *)defaults)->ob_size);
        note_word(region, &((PyTupleObject *)defaults)->ob_item[node->index < 0 ? node->index + size : node->index]);
        return true;
    }
    case FUNCTION_KWDEFAULT:
        note_word(region, &function->func_kwdefaults);
        return note_dict(region, function->func_kwdefaults);
    case FUNCTION_CLOSURE: {
        PyObject *cell = PyTuple_GET_ITEM(function->func_closure, node->index);
        note_word(region, &function->func_closure);
        note_word(region, &((PyTupleObject *)function->func_closure)->ob_item[node->index]);
        note_word(region, &((PyCellObject *)cell)->ob_ref);
        return true;
    }
    default: return false;
    }
}

static bool note_item(Region *region, Node *node, PyObject *owner, const Versions *seen, bool *anchored) {
    if (PyTuple_CheckExact(owner) || PyList_CheckExact(owner)) {
        bool stays = *anchored && PyTuple_CheckExact(owner);
        if (!note_sequence_item(region, node, owner, *anchored)) return false;
        *anchored = stays;
        return true;
    }
    *anchored = PyDict_Check(owner) && !values_inside(owner);
    return seen->dict != NULL && note_dict(region, owner);
}

bool region_note_read(Region *region, Node *node, PyObject *owner, PyObject *value, const Versions *seen,
                      bool *anchored) {
    bool noted = false, certain = false;
    switch (node->accessor) {
    case SLOT: noted = true; break; /* compared as the region's value */
    case CONSTANT: noted = certain = true; break;
    case ATTRIBUTE: noted = note_attribute(region, owner, seen, &certain); break;
    case ITEM:
        certain = *anchored;
        noted = note_item(region, node, owner, seen, &certain);
        break;
    case DICT_KEY: noted = certain = note_order(region, owner); break;
    case CLASS_ATTRIBUTE: noted = certain = note_tag(region, (PyTypeObject *)owner); break;
    case INSTANCE_DICT: noted = note_instance_dict(region, owner); break;
    case TYPE_OF:
        note_type(region, owner);
        noted = true;
        break;
    case CELL:
        note_type(region, owner);
        note_word(region, &((PyCellObject *)owner)->ob_ref);
        noted = true;
        break;
    default: noted = note_function_part(region, node, owner);
    }
    if (noted && !certain && immutable_constant(value)) {
        hold(region, value);
        certain = true;
    }
    *anchored = certain;
    return noted && !region->failed;
}

static bool note_length(Region *region, PyObject *value) {
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        note_type(region, value);
        note_word(region, &((PyVarObject *)value)->ob_size);
        return true;
    }
    PyMappingMethods *mapping = Py_TYPE(value)->tp_as_mapping;
    PySequenceMethods *sequence = Py_TYPE(value)->tp_as_sequence;
    bool plain = PyDict_Check(value) && (sequence == NULL || sequence->sq_length == NULL) && mapping != NULL &&
                 mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length;
    return plain && (PyDict_CheckExact(value) || note_tag(region, Py_TYPE(value))) && note_dict(region, value);
}

static bool note_empty(Region *region, const Check *check, PyObject *value) {
    bool noted = note_dict(region, value);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(check->payload); i++) {
        PyObject *item = PyDict_GetItemWithError(value, PyTuple_GET_ITEM(check->payload, i));
        noted = noted && item != NULL && PyDict_Check(item) && note_dict(region, item);
    }
    return noted;
}

/* Equal checks share one record: repeated layers have tensors of the same few shapes. */
static const TensorCheck *shared(const Region *region, const TensorCheck *check) {
    Py_ssize_t count = region->tensors.count;
    for (Py_ssize_t i = count - 1; i >= 0 && i >= count - 64; i--) {
        const TensorCheck *other = region->tensors.items[i].check;
        if (same_tensor_check(check, other)) return other;
    }
    return check;
}

static void note_tensor(Region *region, const Check *check, PyObject *value) {
    SealedTensor sealed = {.tensor = value, .check = shared(region, check->tensor)};
    tensor_place(value, &sealed.place);
    APPEND(region, tensors, sealed);
}

/* -- what the answer of a check follows from, by the column `record` of guard_kinds.h; false if no word tells -------- */

static bool record_nothing(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)region, (void)check, (void)value, (void)anchored;
    return false;
}

static bool record_type(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    note_type(region, value);
    return true;
}

static bool record_identity(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)region, (void)check, (void)value;
    return *anchored = true; /* the check holds it */
}

static bool record_constant(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)region, (void)value;
    return *anchored && immutable_constant(check->payload);
}

static bool record_code(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    note_type(region, value);
    note_word(region, &((PyFunctionObject *)value)->func_code);
    return true;
}

static bool record_length(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    return note_length(region, value);
}

static bool record_class_version(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    return note_tag(region, (PyTypeObject *)value);
}

static bool record_dict(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    return PyDict_CheckExact(value) && note_dict(region, value);
}

static bool record_order(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)check, (void)anchored;
    return note_order(region, value);
}

static bool record_empty(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)anchored;
    return note_empty(region, check, value);
}

static bool record_tensor(Region *region, Check *check, PyObject *value, bool *anchored) {
    (void)anchored;
    note_tensor(region, check, value);
    return true;
}

#define RECORD(kind, cost, payload, holds, record, ...)                                                                \
    case CHECK_##kind: noted = record_##record(region, check, value, anchored); break;

void region_note_check(Region *region, Check *check, PyObject *value, bool *anchored) {
    bool noted = false;
    switch (check->kind) { VALUE_GUARDS(RECORD) }
    if (!noted) APPEND(region, rest, (Rest){NULL, check, value});
}

void region_note_register(Region *region, Py_ssize_t slot, PyObject *value) {
    APPEND(region, filled, (Filled){slot, value});
}

void region_note_rest(Region *region, Node *node, PyObject *owner) {
    APPEND(region, rest, (Rest){node, NULL, owner});
}

/* -- the life of a region ---------------------------------------------------------------------------- */

Region *region_new(PyObject *value) {
    Region *region = PyMem_Calloc(1, sizeof(Region));
    if (region == NULL) return NULL;
    region->value = value;
    region->flag = watch_flag_new();
    region->failed = region->flag == NULL;
    return region;
}

bool region_finish(Region *region) {
    PyMem_Free(region->noted);
    region->noted = NULL;
    return !region->failed;
}

bool region_is_of(const Region *region, PyObject *value) { return region != NULL && region->value == value; }

void region_free(Region *region) {
    if (region == NULL) return;
    if (region->flag != NULL) watch_flag_drop(region->flag);
    for (Py_ssize_t i = 0; i < region->held.count; i++) Py_DECREF(region->held.items[i]);
    PyMem_Free(region->words.items);
    PyMem_Free(region->tags.items);
    PyMem_Free(region->tensors.items);
    PyMem_Free(region->filled.items);
    PyMem_Free(region->rest.items);
    PyMem_Free(region->held.items);
    PyMem_Free(region->noted);
    PyMem_Free(region);
}

/* -- comparing --------------------------------------------------------------------------------------- */

static bool same_words(const Region *region) {
    const Word *word = region->words.items, *end = word + region->words.count;
    for (const Word *ahead = word; ahead < end && ahead < word + AHEAD; ahead++) __builtin_prefetch(ahead->address);
    for (; word < end; word++) {
        if (word + AHEAD < end) __builtin_prefetch(word[AHEAD].address);
        if (*word->address != word->expected) return false;
    }
    return true;
}

static bool same_tags(const Region *region) {
    for (Py_ssize_t i = 0; i < region->tags.count; i++) {
        if (*region->tags.items[i].address != region->tags.items[i].expected) return false;
    }
    return true;
}

static int same_tensors(const Region *region) {
    Py_ssize_t count = region->tensors.count;
    const SealedTensor *tensors = region->tensors.items;
    for (Py_ssize_t i = 0; i < count && i < AHEAD; i++) tensor_prefetch(tensors[i].tensor, &tensors[i].place);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count) tensor_prefetch(tensors[i + AHEAD].tensor, &tensors[i + AHEAD].place);
        int status = tensor_matches(tensors[i].tensor, tensors[i].check);
        if (status != 1) return status;
    }
    return 1;
}

/* Runs what has no words. It may run any code, which may replace this very region, so it works on a copy. */
static int run_rest(const Region *region, Run *run) {
    Py_ssize_t count = region->rest.count;
    Rest rest[count + 1];
    int status = 1;
    memcpy(rest, region->rest.items, (size_t)count * sizeof(Rest));
    for (Py_ssize_t i = 0; i < count; i++) Py_INCREF(rest[i].owner);
    for (Py_ssize_t i = 0; i < count && status == 1; i++) {
        if (rest[i].node != NULL) status = run_single_node(rest[i].node, rest[i].owner, run);
        else status = run_single_check(rest[i].check, rest[i].owner, run);
    }
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(rest[i].owner);
    return status;
}

int region_matches(const Region *region, PyObject *value, Run *run) {
    if (value != region->value || !watch_flag_fresh(region->flag)) return 0;
    if (!same_words(region) || !same_tags(region) || same_tensors(region) != 1) {
        PyErr_Clear();
        return 0;
    }
    for (Py_ssize_t i = 0; i < region->filled.count; i++) {
        const Filled *filled = &region->filled.items[i];
        run->registers[filled->slot] = run->kept[run->kept_count++] = Py_NewRef(filled->value);
    }
    return region->rest.count == 0 ? 1 : run_rest(region, run) == 1 ? 1 : -1;
}
