/* Global state of torch that guards compare, read without Python.
 *
 * Each reader is a function (or a thread-local variable) of torch's libraries, found by its symbol. A
 * symbol that is not there makes the state unknown here, and guards.py has it read through Python; the
 * tests hold each reader against what Python says.
 */
#include "native.h"

#include <dlfcn.h>
#include <string.h>

typedef struct {
    uint64_t included, excluded;
} LocalKeys;

static struct {
    bool prepared;
    void *keys_library;
    bool (*grad_mode)(void);
    void (*set_grad_mode)(bool enabled);
    int64_t (*function_modes)(void);
    int8_t (*default_dtype)(void);
    bool (*deterministic)(const void *context);
    bool (*attention[5])(const void *context);
    const void *global; /* the one context */
    const bool *anomaly_mode;
    bool (*keep_graph)(void);
} torch_state;

/* Whether attention may use a kernel; a symbol in the order of `ATTENTION_KERNELS` of graphs/modes.py. */
static const char *const attention_switches[] = {
    "_ZNK2at7Context19userEnabledFlashSDPEv",     "_ZNK2at7Context26userEnabledMemEfficientSDPEv",
    "_ZNK2at7Context18userEnabledMathSDPEv",      "_ZNK2at7Context19userEnabledCuDNNSDPEv",
    "_ZNK2at7Context26userEnabledOverrideableSDPEv",
};
enum { ATTENTION_SWITCHES = sizeof attention_switches / sizeof *attention_switches };

/* The dispatch keys that this thread includes and excludes, as differences from torch's defaults. */
static _Thread_local const LocalKeys *local_keys;

static bool find_local_keys(void) {
    if (local_keys == NULL && torch_state.keys_library != NULL) {
        /* For a thread-local variable dlsym gives the instance of the calling thread. */
        local_keys = dlsym(torch_state.keys_library, "_ZN3c104impl26raw_local_dispatch_key_setE");
    }
    return local_keys != NULL;
}

static bool find_attention(void) {
    if (torch_state.global == NULL) return false;
    for (int i = 0; i < ATTENTION_SWITCHES; i++) {
        if (torch_state.attention[i] == NULL) return false;
    }
    return true;
}

/* One bit for each kernel that attention may use. */
static uint64_t attention_kernels(void) {
    uint64_t found = 0;
#pragma GCC unroll 5
    for (int i = 0; i < ATTENTION_SWITCHES; i++) {
        found |= (uint64_t)torch_state.attention[i](torch_state.global) << i;
    }
    return found;
}

static void prepare(void) {
    void *base = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
    void *cpu = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    torch_state.prepared = base != NULL && cpu != NULL; /* else torch is not loaded yet */
    if (!torch_state.prepared) return;
    torch_state.keys_library = base;
    *(void **)&torch_state.default_dtype = dlsym(base, "_ZN3c1031get_default_dtype_as_scalartypeEv");
    *(void **)&torch_state.grad_mode = dlsym(cpu, "aoti_torch_grad_mode_is_enabled");
    *(void **)&torch_state.set_grad_mode = dlsym(cpu, "aoti_torch_grad_mode_set_enabled");
    *(void **)&torch_state.function_modes = dlsym(cpu, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    const void *(*context)(void);
    *(void **)&context = dlsym(cpu, "_ZN2at13globalContextEv");
    torch_state.global = context ? context() : NULL;
    *(void **)&torch_state.deterministic = dlsym(cpu, "_ZNK2at7Context23deterministicAlgorithmsEv");
    for (int i = 0; i < ATTENTION_SWITCHES; i++) {
        *(void **)&torch_state.attention[i] = dlsym(cpu, attention_switches[i]);
    }
    torch_state.anomaly_mode = dlsym(cpu, "_ZN5torch8autograd11AnomalyMode8_enabledE");
    *(void **)&torch_state.keep_graph = dlsym(cpu, "_ZN5torch8autograd33get_current_graph_task_keep_graphEv");
}

/* By name, as guard_kinds.py has the first of them: whether it can be read here, and its value. */
#define STATES(STATE)                                                                                                  \
    STATE(grad_mode, torch_state.grad_mode, torch_state.grad_mode())                                                   \
    STATE(function_modes, torch_state.function_modes, (uint64_t)torch_state.function_modes())                          \
    STATE(default_dtype, torch_state.default_dtype, (uint64_t)torch_state.default_dtype())                             \
    STATE(deterministic, torch_state.global && torch_state.deterministic,                                              \
          (uint64_t)torch_state.deterministic(torch_state.global))                                                     \
    STATE(attention, find_attention(), attention_kernels())                                                            \
    STATE(keys_included, find_local_keys(), local_keys->included)                                                      \
    STATE(keys_excluded, find_local_keys(), local_keys->excluded)                                                      \
    STATE(anomaly_mode, torch_state.anomaly_mode, *torch_state.anomaly_mode)                                           \
    STATE(keep_graph, torch_state.keep_graph, torch_state.keep_graph())

#define NUMBER(name, ...) STATE_##name,
#define NAME(name, ...) #name,
#define READ(name, readable, now)                                                                                      \
    case STATE_##name: return (readable) && (*value = (now), true);
#define DIFFERS(name, readable, now)                                                                                   \
    if ((states->asked >> STATE_##name & 1) != 0 && !((readable) && states->expected[STATE_##name] == (now))) return false;

enum { STATES(NUMBER) STATE_COUNT };
_Static_assert(STATE_COUNT <= MOST_STATES, "there are more states than one comparison has room for");
static const char *const names[] = {STATES(NAME) NULL};

int state_number(const char *name) {
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) return i;
    }
    return -1;
}

bool state_read(int number, uint64_t *value) {
    if (!torch_state.prepared) prepare();
    switch (number) { STATES(READ) }
    return false;
}

bool states_expect(StateCheck *states, int number, uint64_t value) {
    if (states->asked >> number & 1) return states->expected[number] == value;
    states->asked |= 1u << number;
    states->expected[number] = value;
    return true;
}

/* In one go: a call of its own for each, of a function that it looks up, takes longer than what it reads. */
bool states_match(const StateCheck *states) {
    if (!torch_state.prepared) prepare();
    STATES(DIFFERS)
    return true;
}

bool state_set_grad_mode(bool enabled) {
    if (!torch_state.prepared) prepare();
    if (torch_state.set_grad_mode == NULL) return false;
    torch_state.set_grad_mode(enabled);
    return true;
}

PyObject *native_read_state(PyObject *module, PyObject *name) {
    (void)module;
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    uint64_t value;
    if (!state_read(state_number(text), &value)) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(value);
}
