/* The records of a guard tree: built by tree.c, evaluated by guards.c. */
#ifndef STATOR_GUARDS_H
#define STATOR_GUARDS_H

#include "guard_kinds.h"
#include "native.h"

#define NO_INDEX PY_SSIZE_T_MAX
#define ANY_SIZE INT64_MIN

#define ENUMERATOR(name, ...) name,
#define CHECK_ENUMERATOR(name, ...) CHECK_##name,
#define RELATION_ENUMERATOR(name, ...) RELATION_##name,

typedef enum { ACCESSORS(ENUMERATOR) } Accessor;
typedef enum { VALUE_GUARDS(CHECK_ENUMERATOR) } CheckKind;
typedef enum { RELATION_GUARDS(RELATION_ENUMERATOR) } RelationKind;

typedef struct {
    PyTypeObject *type; /* owned by the check's payload */
    uint64_t keys;
    int dtype, device;
    bool requires_grad;
    int64_t dimensions;
    int64_t sizes[]; /* then the strides; ANY_SIZE where any value will do */
} TensorCheck;

#define EMPTY_ITEMS 4

/* What EMPTY found in one version of one dict; borrowed, valid while the version is. */
typedef struct {
    PyObject *dict;
    uint64_t version;
    PyObject *items[EMPTY_ITEMS];
} EmptyMemo;

typedef struct {
    CheckKind kind;
    PyObject *payload;
    PyObject *text;
    Py_ssize_t number;
    uint64_t expected; /* of STATE, where `number` says which can be read here */
    unsigned int tag;  /* of LACKS: the version of the class for which it passed */
    TensorCheck *tensor;
    EmptyMemo *memo; /* of EMPTY */
} Check;

/* Where a value was found: a class and its version, a dict (and one inside it) and theirs. All borrowed:
 * they are only compared, and read after they proved alive. */
typedef struct {
    PyTypeObject *type;
    unsigned int tag;
    PyObject *dict, *parts[3]; /* parts: those that were asked, the last has it */
    uint64_t version, part_versions[3];
} Versions;

/* What a subtree passed under, in a form that is compared at once (region.c). */
typedef struct Region Region;

typedef struct Node {
    Accessor accessor;
    PyObject *key;
    Py_ssize_t index;
    PyObject *text;
    Py_ssize_t slot; /* the register that relations read, or -1 */
    Check *checks;
    Py_ssize_t check_count;
    struct Node *children;
    Py_ssize_t child_count;
    bool stable;   /* passes again for the same object, whatever happened in between */
    Py_ssize_t versioned; /* of a dict: so many checks, the first, pass again for the same version of the same dict */
    bool sealable;  /* versioned, and so is all below */
    /* what the last success found */
    Versions seen;
    PyObject *value; /* borrowed, valid while `seen` is */
    PyObject *sealed_dict;
    uint64_t sealed_version;
    /* how the attribute is found on instances of this type, valid while its version tag is */
    PyTypeObject *lookup_type;
    unsigned int lookup_tag;
    bool lookup_plain, lookup_parts;
    /* of a node that is the top of a region */
    bool top;
    Region *region;
    unsigned int hits, delay, wait; /* a region that keeps failing is made anew after longer and longer waits */
} Node;

/* A comparison of integer expressions over sizes (condition.c). */
typedef struct Condition Condition;

typedef struct {
    RelationKind kind;
    Py_ssize_t *slots;
    Py_ssize_t count;
    Condition *condition; /* of CONDITION */
    PyObject *call;       /* of TOGETHER: (function, expected) */
    PyObject *text;
} Relation;

/* An argument that has one check, which asks for an object or the metadata of a tensor. What a call has to look at
 * of such nodes lies side by side: between two calls the program fills the nearest caches with its own. */
typedef struct {
    Py_ssize_t index;
    PyObject *object;           /* borrowed from the check: what passes at once, if it asks for an object */
    const TensorCheck *tensor;  /* likewise; else NULL */
} Leaf;

typedef struct {
    PyObject_HEAD
    StateCheck states; /* global state that can be read in C */
    Check *checks;     /* all of it: checks with no value */
    Py_ssize_t check_count, asked_count; /* those that ask Python come first */
    Node *nodes;
    Py_ssize_t node_count;
    Leaf *leaves; /* of the first nodes */
    Py_ssize_t leaf_count;
    Relation *relations;
    Py_ssize_t relation_count;
    Py_ssize_t register_count;
} GuardTree;

/* One evaluation. */
typedef struct {
    PyObject *const *slots;
    Py_ssize_t slot_count;
    bool remember;
    PyObject **registers;
    PyObject **kept;
    Py_ssize_t kept_count;
    Region *recorder; /* what is being recorded, or NULL */
    bool anchored;    /* whether the value at hand must be the very same while the record holds */
    PyObject *failed; /* borrowed from the tree */
} Run;

/* Interned names, and what is of torch once it is imported: nn.Module.__getattr__, and the class of devices. */
typedef struct {
    PyObject *getattribute, *getattr, *dict, *parts[3];
    PyObject *module_getattr;
    PyObject *device_class;
    PyObject *no_attributes; /* an empty dict: the attributes of an instance that has no dict */
} GuardNames;

extern GuardNames guard_names;

/* Whether an object can never become unequal to itself or change. */
bool immutable_constant(PyObject *value);
/* Where the version of a dict is, NULL if it has none to be trusted. */
const uint64_t *dict_version_word(PyObject *dict);

/* 0: not to be trusted. */
static inline uint64_t dict_version(PyObject *dict) {
    const uint64_t *word = dict_version_word(dict);
    return word ? *word : 0;
}
/* 1 passed, 0 failed, -1 an exception. */
int run_single_node(Node *node, PyObject *owner, Run *run);
int run_single_check(Check *check, PyObject *value, Run *run);
/* Finds the leaves of a tree whose nodes are complete; 0 or -1 with an exception. */
int guard_tree_gather_leaves(GuardTree *tree);

/* -- tree.c -- */

void divide_region(Node *node);

/* -- region.c -- */

Region *region_new(PyObject *value);
/* False if the record is not complete. */
bool region_finish(Region *region);
bool region_is_of(const Region *region, PyObject *value);
void region_free(Region *region);
/* Notes how a value was read; false if no word tells. *anchored: of the owner before, of the value after. */
bool region_note_read(Region *region, Node *node, PyObject *owner, PyObject *value, const Versions *seen,
                      bool *anchored);
void region_note_check(Region *region, Check *check, PyObject *value, bool *anchored);
void region_note_register(Region *region, Py_ssize_t slot, PyObject *value);
void region_note_rest(Region *region, Node *node, PyObject *owner);
/* 1 all passes, 0 something has changed, -1 something fails. */
int region_matches(const Region *region, PyObject *value, Run *run);

/* -- checks.c -- */

int same_constant(PyObject *a, PyObject *b);
/* What a container holds in order (of a dict, its keys), whatever its class says; a new list. */
PyObject *stored_items(PyObject *value);
/* 1 it passes, 0 it does not, -1 an exception. */
int run_check(Check *check, PyObject *value);
/* How many items a builtin container holds, whatever a subclass says. */
Py_ssize_t stored_length(PyObject *value);
/* Whether (function, expected) agree about a value, or about nothing. */
int same_result(PyObject *payload, PyObject *value);

/* -- watch.c -- */

typedef struct WatchFlag WatchFlag;

WatchFlag *watch_flag_new(void);
void watch_flag_drop(WatchFlag *flag);
bool watch_flag_fresh(const WatchFlag *flag);
/* From now on the flag is fresh only while the dict lives and does not change; false if that cannot be had. */
bool watch_dict(PyObject *dict, WatchFlag *flag);

/* -- tensor.c -- */

/* Where the metadata of a tensor was, only to fetch it early. */
typedef struct {
    const void *metadata, *autograd;
} TensorPlace;

void tensor_place(PyObject *tensor, TensorPlace *place);
void tensor_prefetch(PyObject *tensor, const TensorPlace *place);
/* 1 the metadata is as expected, 0 it is not, -1 an exception. */
int tensor_matches(PyObject *tensor, const TensorCheck *expected);
bool same_tensor_check(const TensorCheck *a, const TensorCheck *b);

/* NULL with an exception if the specification is not a program that gives one value. */
Condition *condition_parse(PyObject *operands, PyObject *program, Py_ssize_t register_count);
/* 1 it holds, 0 it does not, -1 an exception. */
int condition_check(const Condition *condition, PyObject *const *registers);
void condition_free(Condition *condition);

PyObject *guard_tree_explain(PyObject *tree, PyObject *const *slots, Py_ssize_t count);

#endif
