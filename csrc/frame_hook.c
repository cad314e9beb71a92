/* The frame hook (PEP 523): frames that compiled code enters in a region are compiled too.
 *
 * While some thread is in a region, `evaluate` stands in for the interpreter's evaluator. What it does with a frame is
 * the state of its code object (frame_table.c): skipped, skipped recursively, or a table of versions, whose guards are
 * checked on the arguments in the frame and on its function. On a hit the code object is exchanged in the frame itself:
 * nothing has run yet, so the arguments are plain values in the first slots. Where nothing is known or no version matches,
 * `handler` (capture/hook.py) is asked once; it may add a version or change the state. An exception that it lets
 * through, or that guards raise, is raised by the frame. Everything else runs as it would without us: in particular
 * frames that are traced, of generators, of class bodies, and those far down the stack.
 *
 * With any evaluator of its own the interpreter uses C stack for Python calls, and is slower. So the hook is out while
 * a capture runs, and past MAX_DEPTH until that frame has returned. It goes in only over the interpreter's evaluator.
 */
#define _GNU_SOURCE /* dladdr */

#include "frame_hook.h"

#include "frame_layout.h"
#include "frame_table.h"

#include <dlfcn.h>
#include <string.h>

#define MONITORING_TOOLS 6

_Thread_local Activity activity;

/* Over all threads: regions that are open, and reasons to do without the hook for a while. */
static Py_ssize_t open_regions, pauses;

static PyObject *handler;     /* handler(settings, function, slots, entries or None), see `ask` */
static PyObject *empty_code;  /* returns None */
static PyObject *get_tool;    /* sys.monitoring.get_tool, from 3.12 */

static PyObject *evaluate(PyThreadState *thread, Frame *frame, int throws);

/* -- regions ----------------------------------------------------------------------------------------- */

static void install_or_remove(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    bool wanted = open_regions > 0 && pauses == 0;
    if (wanted && now == _PyEval_EvalFrameDefault) _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
    if (!wanted && now == evaluate) _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
}

void frame_hook_pause(void) {
    if (pauses++ == 0 && open_regions > 0) install_or_remove();
}

void frame_hook_go_on(void) {
    if (--pauses == 0 && open_regions > 0) install_or_remove();
}

PyObject *native_suspend(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    frame_hook_pause();
    return PyLong_FromLong(++activity.suspensions);
}

PyObject *native_resume(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    if (activity.suspensions == 0) {
        PyErr_SetString(PyExc_RuntimeError, "resume() without suspend()");
        return NULL;
    }
    frame_hook_go_on();
    return PyLong_FromLong(--activity.suspensions);
}

PyObject *native_suspended(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    return PyBool_FromLong(activity.suspensions > 0);
}

/* PyTorch's own compiler, around a function of ours, would capture the code that we have written, and our capturing. */
static bool is_torchs(_PyFrameEvalFunction evaluator) {
    static _PyFrameEvalFunction asked;
    static bool answer;
    Dl_info found;
    if (evaluator != asked) {
        answer = dladdr((void *)evaluator, &found) != 0 && strstr(found.dli_fname, "torch_python") != NULL;
        asked = evaluator;
    }
    return answer;
}

_PyFrameEvalFunction set_torchs_evaluator_aside(void) {
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (now == _PyEval_EvalFrameDefault || now == evaluate || !is_torchs(now)) return NULL;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault);
    return now;
}

void put_evaluator_back(_PyFrameEvalFunction evaluator) {
    if (evaluator != NULL) _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluator);
}

/* A debugger or a coverage tool has to see the code that the user wrote. */
static bool monitored(void) {
    bool found = false;
    for (long id = 0; get_tool != NULL && id < MONITORING_TOOLS && !found; id++) {
        PyObject *number = PyLong_FromLong(id), *tool = number ? PyObject_CallOneArg(get_tool, number) : NULL;
        found = tool != Py_None;
        if (tool == NULL) PyErr_Clear();
        Py_XDECREF(number);
        Py_XDECREF(tool);
    }
    return found;
}

OuterRegion region_enter(PyObject *settings, PyObject *function) {
    Activity *now = &activity;
    OuterRegion before = {now->settings, now->passing};
    if (before.settings == NULL && settings != NULL) now->watched = monitored();
    now->settings = settings;
    now->passing = function != NULL && PyFunction_Check(function) ? PyFunction_GET_CODE(function) : NULL;
    if (settings != NULL && open_regions++ == 0) install_or_remove();
    return before;
}

void region_leave(OuterRegion before) {
    Activity *now = &activity;
    if (now->settings != NULL && --open_regions == 0) install_or_remove();
    now->settings = before.settings;
    now->passing = before.passing;
}

/* -- running a frame --------------------------------------------------------------------------------- */

static PyObject *run_deep(PyThreadState *thread, Frame *frame, int throws) {
    frame_hook_pause();
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throws);
    frame_hook_go_on();
    return result;
}

static inline PyObject *run_frame(PyThreadState *thread, Frame *frame, int throws) {
    if (C_DEPTH(thread) > MAX_DEPTH) return run_deep(thread, frame, throws);
    return _PyEval_EvalFrameDefault(thread, frame, throws);
}

static PyObject *run_in(PyObject *settings, PyThreadState *thread, Frame *frame) {
    OuterRegion before = region_enter(settings, NULL);
    PyObject *result = run_frame(thread, frame, 0);
    region_leave(before);
    return result;
}

static void set_code(Frame *frame, PyObject *code) {
    PyObject *old = frame->code;
    frame->code = Py_NewRef(code);
    frame->instruction = FIRST_INSTRUCTION((PyCodeObject *)code);
    Py_DECREF(old);
}

/* Makes the frame one of another code object with the same parameters and free variables, if it has or gets the room. */
static bool exchange_code(PyThreadState *thread, Frame *frame, PyObject *replacement) {
    const PyCodeObject *old = (PyCodeObject *)frame->code, *code = (PyCodeObject *)replacement;
    PyObject **base = (PyObject **)frame, **end = base + FRAME_WORDS(code);
    if (base + FRAME_WORDS(old) != thread->datastack_top || end >= thread->datastack_limit) return false;
    thread->datastack_top = end;
    for (int i = (int)frame_parameters(code); i < code->co_nlocalsplus; i++) frame->slots[i] = NULL;
    frame->stacktop = code->co_nlocalsplus;
    set_code(frame, replacement);
    return true;
}

/* Ends a frame that has not started, as if it had given `result` (stolen), or raised if that is NULL. */
static PyObject *retire(PyThreadState *thread, Frame *frame, PyObject *result) {
    if (result == NULL) return EVALUATOR_CLEARS ? _PyEval_EvalFrameDefault(thread, frame, 1) : NULL;
    if (EVALUATOR_CLEARS) {
        set_code(frame, empty_code);
        PyObject *none = _PyEval_EvalFrameDefault(thread, frame, 0);
        if (none == NULL) Py_CLEAR(result); /* interrupted */
        Py_XDECREF(none);
    }
    return result;
}

/* -- calling with bound arguments ----------------------------------------------------------------------- */

static PyObject *keywords_of(const PyCodeObject *code, PyObject *const *slots) {
    Py_ssize_t plain = code->co_argcount, named = plain + code->co_kwonlyargcount;
    bool has_extra = code->co_flags & CO_VARKEYWORDS;
    PyObject *keywords = has_extra ? PyDict_Copy(slots[frame_parameters(code) - 1]) : PyDict_New();
    PyObject *names = keywords ? PyCode_GetVarnames((PyCodeObject *)code) : NULL;
    for (Py_ssize_t i = plain; names != NULL && i < named; i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), slots[i]) < 0) Py_CLEAR(names);
    }
    if (names == NULL) Py_CLEAR(keywords);
    Py_XDECREF(names);
    return keywords;
}

/* Calls the function with what its parameters are bound to; its own frame is left alone. */
static PyObject *call_bound(PyObject *function, PyObject *const *slots) {
    const PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
    Py_ssize_t plain = code->co_argcount, named = plain + code->co_kwonlyargcount;
    PyObject *rest = code->co_flags & CO_VARARGS ? slots[named] : NULL, *result = NULL;
    Py_ssize_t more = rest ? PyTuple_GET_SIZE(rest) : 0;
    PyObject *args = PyTuple_New(plain + more), *keywords = args ? keywords_of(code, slots) : NULL;
    if (keywords != NULL) {
        for (Py_ssize_t i = 0; i < plain; i++) PyTuple_SET_ITEM(args, i, Py_NewRef(slots[i]));
        for (Py_ssize_t i = 0; i < more; i++) {
            PyTuple_SET_ITEM(args, plain + i, Py_NewRef(PyTuple_GET_ITEM(rest, i)));
        }
        activity.passing = (PyObject *)code;
        result = PyObject_Call(function, args, keywords);
        activity.passing = NULL;
    }
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *with_code(PyObject *function, PyObject *code) {
    PyObject *made = PyFunction_New(code, PyFunction_GET_GLOBALS(function)), *closure = PyFunction_GET_CLOSURE(function);
    if (made != NULL && closure != NULL && PyFunction_SetClosure(made, closure) < 0) Py_CLEAR(made);
    return made;
}

/* The replacement in a frame of its own, where it does not fit into this one. */
static PyObject *run_beside(PyThreadState *thread, Frame *frame, PyObject *replacement, PyObject *const *slots) {
    PyObject *function = with_code(frame->function, replacement);
    PyObject *result = function ? call_bound(function, slots) : NULL;
    Py_XDECREF(function);
    return retire(thread, frame, result);
}

/* -- hits ---------------------------------------------------------------------------------------------- */

/* Runs the frame with the replacement (stolen). */
static PyObject *run_replaced(PyThreadState *thread, Frame *frame, PyObject *replacement, bool watch) {
    Py_ssize_t count = frame_parameters((PyCodeObject *)frame->code);
    PyObject *function = Py_NewRef(frame->function), *result;
    PyObject *slots[count + 1]; /* the frame's own are gone afterwards */
    for (Py_ssize_t i = 0; i < count; i++) slots[i] = Py_NewRef(frame->slots[i]);
    OuterRegion before = region_enter(watch ? activity.settings : NULL, NULL);
    if (exchange_code(thread, frame, replacement)) result = run_frame(thread, frame, 0);
    else result = run_beside(thread, frame, replacement, slots);
    region_leave(before);
    Py_DECREF(replacement);
    if (result == NULL && PyErr_ExceptionMatches(run_original)) {
        PyObject *replay = replay_begin();
        if (replay != NULL) result = replay_end(replay, call_bound(function, slots));
    }
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(slots[i]);
    Py_DECREF(function);
    return run_continuations(result);
}

/* Tells Python of a frame that no version matches; 0 with what the frame is to be told before and after, or NULL; or -1
 * with an exception. */
static int ask(PyObject *settings, PyObject *function, PyObject *const *slots, Py_ssize_t count, PyObject *entries,
               PyObject **replay) {
    PyObject *values = PyTuple_New(count);
    if (values == NULL) return -1;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(values, i, Py_NewRef(slots[i]));
    PyObject *args[] = {settings, function, values, entries ? entries : Py_None};
    frame_hook_pause();
    PyObject *answer = PyObject_Vectorcall(handler, args, 4, NULL);
    frame_hook_go_on();
    Py_DECREF(values);
    if (answer == NULL) return -1;
    if (answer == Py_None) Py_DECREF(answer);
    else *replay = answer;
    return 0;
}

/* 1 with the version that matches, 0 none does, -1 an exception. */
static int find_version(const PyCodeObject *code, PyObject *const *slots, FrameEntries **entries, PyObject **found,
                        bool *watch) {
    void *state = frame_state(code);
    Py_CLEAR(*entries);
    if (state == NULL || state == &SKIPPED || state == &SKIPPED_RECURSIVELY) return 0;
    Py_ssize_t count = frame_parameters(code);
    *entries = frame_table_find(state, activity.settings, count > 0 ? slots[0] : NULL,
                                code->co_nfreevars > 0 ? slots[count] : NULL);
    if (*entries == NULL) return 0;
    Py_INCREF((PyObject *)*entries);
    return frame_entries_match(*entries, slots, found, watch);
}

static PyObject *look_at(PyThreadState *thread, Frame *frame) {
    PyObject *code = frame->code, *found = NULL, *replay = NULL, *settings = activity.settings;
    Py_ssize_t count = frame_parameters((PyCodeObject *)code);
    PyObject *slots[count + 1];
    FrameEntries *entries = NULL;
    bool watch = false;
    memcpy(slots, frame->slots, (size_t)count * sizeof(PyObject *));
    slots[count] = frame->function;
    activity.suspensions++; /* what guards and the handler run is no part of the program */
    int status = find_version((PyCodeObject *)code, slots, &entries, &found, &watch);
    if (status == 0 && handler != NULL && !(entries != NULL && entries->closed)) {
        status = ask(settings, slots[count], slots, count, (PyObject *)entries, &replay);
        if (status == 0) status = find_version((PyCodeObject *)code, slots, &entries, &found, &watch);
    }
    activity.suspensions--;
    Py_XDECREF((PyObject *)entries);
    if (status == 0 && replay != NULL) {
        replay = replay_start(replay);
        return replay ? replay_end(replay, run_frame(thread, frame, 0)) : retire(thread, frame, NULL);
    }
    Py_XDECREF(replay);
    if (status < 0) return retire(thread, frame, NULL);
    if (status == 0) return frame_state((PyCodeObject *)code) == &SKIPPED_RECURSIVELY ? run_in(NULL, thread, frame)
                                                                        : run_frame(thread, frame, 0);
    if (found != Py_None) return run_replaced(thread, frame, found, watch);
    Py_DECREF(found);
    return watch ? run_frame(thread, frame, 0) : run_in(NULL, thread, frame);
}

/* -- the evaluator ------------------------------------------------------------------------------------- */

/* Whether this is the frame of a plain function, at its beginning. */
static bool ordinary(const Frame *frame, const PyCodeObject *code) {
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    return (code->co_flags & (wanted | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) == wanted &&
           frame->owner == OWNED_BY_THREAD && frame->locals == NULL && frame->function != NULL &&
           PyFunction_Check(frame->function) && PyFunction_GET_CODE(frame->function) == (PyObject *)code;
}

static PyObject *evaluate(PyThreadState *thread, Frame *frame, int throws) {
    PyCodeObject *code = (PyCodeObject *)frame->code;
    void *state = frame_state(code);
    if (throws || state == &SKIPPED) return run_frame(thread, frame, throws);
    Activity *now = &activity;
    if (now->settings == NULL || now->suspensions > 0 || now->watched || thread->c_tracefunc != NULL ||
        thread->c_profilefunc != NULL || !ordinary(frame, code)) {
        return run_frame(thread, frame, 0);
    }
    if (_PyInterpreterState_GetEvalFrameFunc(thread->interp) != evaluate) {
        return run_frame(thread, frame, 0); /* another evaluator has called: the frame is PyTorch's compiler's */
    }
    if (now->passing == (PyObject *)code) {
        now->passing = NULL;
        return run_frame(thread, frame, 0);
    }
    return state == &SKIPPED_RECURSIVELY ? run_in(NULL, thread, frame) : look_at(thread, frame);
}

/* -- for Python ---------------------------------------------------------------------------------------- */

static PyObject *native_watched(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *kwnames) {
    (void)module;
    if (count < 2) {
        PyErr_SetString(PyExc_TypeError, "watched(settings, function, *args, **kwargs)");
        return NULL;
    }
    OuterRegion before = region_enter(args[0] == Py_None ? NULL : args[0], args[1]);
    PyObject *result = PyObject_Vectorcall(args[1], args + 2, (size_t)(count - 2), kwnames);
    region_leave(before);
    return result;
}

static PyObject *native_set_frame_handler(PyObject *module, PyObject *function) {
    (void)module;
    PyObject *before = handler;
    handler = function == Py_None ? NULL : Py_NewRef(function);
    return before ? before : Py_NewRef(Py_None);
}

static PyObject *set_state(PyObject *code, void *state) {
    if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "%R is no code object", code);
    if (frame_set_state(code, state) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *native_skip_code(PyObject *module, PyObject *code) {
    (void)module;
    return set_state(code, &SKIPPED);
}

static PyObject *native_skip_recursively(PyObject *module, PyObject *code) {
    (void)module;
    return set_state(code, &SKIPPED_RECURSIVELY);
}

static PyObject *native_forget(PyObject *module, PyObject *code) {
    (void)module;
    return set_state(code, NULL);
}

static PyObject *native_frame_entries(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3 || !PyCode_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "frame_entries(code: CodeType, settings: object, instance: object | None)");
        return NULL;
    }
    return (PyObject *)frame_table_entries(args[0], args[1], args[2] == Py_None ? NULL : args[2]);
}

static PyObject *native_frame_hook_active(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate);
}

PyMethodDef frame_hook_methods[] = {
    {"watched", (PyCFunction)(void (*)(void))native_watched, METH_FASTCALL | METH_KEYWORDS,
     "watched(settings, function, *args, **kwargs): calls it; frames below are looked at, or left alone if None."},
    {"set_frame_handler", native_set_frame_handler, METH_O,
     "set_frame_handler(function): what is asked about frames; gives the one before."},
    {"skip_code", native_skip_code, METH_O, "skip_code(code): its frames run as they are."},
    {"skip_recursively", native_skip_recursively, METH_O,
     "skip_recursively(code): its frames and all that they call run as they are."},
    {"forget", native_forget, METH_O, "forget(code): nothing is known about its frames any more."},
    {"frame_entries", (PyCFunction)(void (*)(void))native_frame_entries, METH_FASTCALL,
     "frame_entries(code, settings, instance): the FrameEntries, made if there are none."},
    {"frame_hook_active", native_frame_hook_active, METH_NOARGS, "Whether the frame hook is in the interpreter."},
    {NULL, NULL, 0, NULL},
};

static int find_get_tool(void) {
    PyObject *monitoring = PySys_GetObject("monitoring"); /* borrowed; from 3.12 */
    if (monitoring == NULL) return 0;
    get_tool = PyObject_GetAttrString(monitoring, "get_tool");
    return get_tool ? 0 : -1;
}

int frame_hook_register(PyObject *module) {
    if (handler == NULL && empty_code == NULL) {
        empty_code = Py_CompileString("None", "<stator>", Py_eval_input);
        if (empty_code == NULL || find_get_tool() < 0 || frame_table_prepare() < 0) return -1;
    }
    if (PyModule_AddFunctions(module, frame_hook_methods) < 0) return -1;
    return PyModule_AddType(module, &FrameEntries_Type);
}
