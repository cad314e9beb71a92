/* The kinds of guards: one row says all about a kind, to C and to Python (`_native.GUARD_KINDS`, guard_kinds.py).
 *
 *   kind     the name that capture asks for it by
 *   cost     how expensive the check is: cheap ones come first
 *   payload  what the value is compared with: parse_<payload> reads it (tree.c), guard_kinds.py makes it
 *   check    check_<check> says whether it holds of a value (checks.c)
 *   record   record_<record> notes, in words that are compared at once, what a pass followed from (region.c)
 *   lasts    lasts_<lasts>: whether what passed for an object passes for the same object for ever (tree.c)
 *   version  whether what passed for a dict passes while the dict has the same version
 *   meaning  what it says, for people
 *   text     how it prints: {source} is the way to the value, {payload:form} the payload (guard_kinds.py, `FORMS`)
 *
 * A new kind is a row here, its functions where the columns name them, and a mutation that only it notices in
 * tests/capture/test_soundness_kinds.py.
 */
#ifndef STATOR_GUARD_KINDS_H
#define STATOR_GUARD_KINDS_H

/* Facts about one value, or about none: torch's global state. */
#define VALUE_GUARDS(KIND)                                                                                             \
    KIND(TYPE, 0, object, type, type, immutable_class, true,                                                           \
         "the exact type", "type({source}) is {payload:name}")                                                         \
    KIND(ID, 0, object, identity, identity, always, true,                                                              \
         "the very object", "{source} is {payload:name}")                                                              \
    KIND(EQUALS, 1, object, constant, constant, immutable_constant, false,                                             \
         "type and value of a constant; nan is nan, 0.0 is not -0.0", "{source} == {payload:value}")                   \
    KIND(CODE, 1, object, code, code, never, false,                                                                    \
         "the code of a Python function", "{source}.__code__ is {payload:code}")                                       \
    KIND(LENGTH, 1, number, length, length, in_tuple, true,                                                            \
         "the number of items", "len({source}) == {payload:value}")                                                    \
    KIND(MRO, 1, sequence, bases, class_version, never, false,                                                         \
         "the bases of a class, in order", "{source}.__mro__ == ({payload:items})")                                    \
    KIND(PRESENT, 2, object, present, dict, never, true,                                                               \
         "a key of a dict or set is there", "{payload:item} in {source}")                                              \
    KIND(ABSENT, 2, object, absent, dict, never, true,                                                                 \
         "a key of a dict or set is not there", "{payload:item} not in {source}")                                      \
    KIND(LACKS, 2, object, lacks, class_version, never, false,                                                         \
         "a class and its bases have no such attribute", "not hasattr({source}, {payload:value})")                     \
    KIND(EMPTY, 2, names, empty, empty, never, false,                                                                  \
         "these items of a dict are empty dicts", "not any({source}[name] for name in {payload:value})")               \
    KIND(STATE, 2, state, state, nothing, never, false,                                                                \
         "a piece of torch's global state", "{payload[0]:state} == {payload[1]:value}")                                \
    KIND(TENSOR, 3, tensor, tensor, tensor, never, false,                                                              \
         "metadata of a tensor", "{source} is {payload}")                                                              \
    KIND(KEYS, 4, sequence, keys, order, never, true,                                                                  \
         "all keys of a dict, in order", "list({source}) == [{payload:items}]")                                        \
    KIND(MEMBERS, 5, sequence, members, nothing, never, false,                                                         \
         "the items of a set, in its order", "list({source}) == [{payload:items}]")                                    \
    KIND(CALL, 9, call, call, nothing, never, false,                                                                   \
         "a function of the object gives a constant", "{payload[0]:name}({source}) == {payload[1]:value}")

/* Facts about several values, checked after all others: kind, cost, payload, holds (relation_<holds>, guards.c),
 * meaning, text. The payload of `other` is a second way, of `sources` are all ways, of `together` a function, its answer and all ways. */
#define RELATION_GUARDS(KIND)                                                                                          \
    KIND(SAME, 1, other, one_object, "two ways lead to one object", "{source} is {payload}")                           \
    KIND(NOT_SAME, 1, other, two_objects, "two ways lead to two objects", "{source} is not {payload}")                 \
    KIND(ALIASED, 2, sources, one_storage, "these tensors share one storage", "one storage for ({payload:ways})")      \
    KIND(CONDITION, 2, condition, condition, "a comparison of sizes", "{payload}")                                     \
    KIND(TOGETHER, 9, together, together, "a function of several objects gives a constant",                            \
         "({payload[0]}) is {payload[1]:value}")                                                                       \
    KIND(NOT_ALIASED, 6, sources, distinct_storages, "no two of these tensors share storage",                          \
         "no shared storage in ({payload:ways})")

/* How a value is reached from the one before: the steps of a tree. */
#define ACCESSORS(STEP)                                                                                                \
    STEP(SLOT, "slot") STEP(CONSTANT, "constant") STEP(CELL, "cell") STEP(ATTRIBUTE, "attribute") STEP(ITEM, "item")   \
    STEP(DICT_KEY, "dict_key") STEP(TYPE_OF, "type") STEP(CLASS_ATTRIBUTE, "class_attribute")                          \
    STEP(INSTANCE_DICT, "instance_dict") STEP(FUNCTION_CODE, "code") STEP(FUNCTION_GLOBALS, "globals")                 \
    STEP(FUNCTION_DEFAULT, "default") STEP(FUNCTION_KWDEFAULT, "kwdefault") STEP(FUNCTION_CLOSURE, "closure")

#endif
