/* What differs between Python 3.11, 3.12 and 3.13 for the frame hook: the layout of an interpreter frame, which
 * CPython declares in internal headers only, and how deep the C stack is. See frame_hook.c.
 */
#ifndef STATOR_FRAME_LAYOUT_H
#define STATOR_FRAME_LAYOUT_H

#include "native.h"

#include <stddef.h>

#define OWNED_BY_THREAD 0

#if PY_VERSION_HEX < 0x030C0000

typedef struct _PyInterpreterFrame {
    PyObject *function;
    PyObject *globals, *builtins; /* borrowed */
    PyObject *locals;             /* NULL in a function's frame */
    PyObject *code;
    PyFrameObject *object;
    struct _PyInterpreterFrame *previous;
    uint16_t *instruction; /* the one before the next */
    int stacktop;
    bool is_entry;
    char owner;
    PyObject *slots[1];
} Frame;

#define EVALUATOR_CLEARS 0
#define FIRST_INSTRUCTION(code) ((uint16_t *)(code)->co_code_adaptive - 1)
#define FRAME_WORDS(code) \
    ((code)->co_nlocalsplus + (code)->co_stacksize + (Py_ssize_t)(offsetof(Frame, slots) / sizeof(PyObject *)))
#define C_DEPTH(thread) ((thread)->recursion_limit - (thread)->recursion_remaining)
#define MAX_DEPTH 600
#define IS_FINALIZING _Py_IsFinalizing
#define REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#define SET_EXTRA _PyCode_SetExtra

#else

typedef struct _PyInterpreterFrame {
    PyObject *code;
    struct _PyInterpreterFrame *previous;
    PyObject *function;
    PyObject *globals, *builtins; /* borrowed */
    PyObject *locals;             /* NULL in a function's frame */
    PyFrameObject *object;
    uint16_t *instruction; /* 3.12: the one before the next; 3.13: the next */
    int stacktop;
    uint16_t return_offset;
    char owner;
    PyObject *slots[1];
} Frame;

#define EVALUATOR_CLEARS 1
#define FRAME_WORDS(code) ((Py_ssize_t)(code)->co_framesize)
#define REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
#define SET_EXTRA PyUnstable_Code_SetExtra

#if PY_VERSION_HEX < 0x030D0000
#define FIRST_INSTRUCTION(code) ((uint16_t *)(code)->co_code_adaptive - 1)
#define C_DEPTH(thread) (C_RECURSION_LIMIT - (thread)->c_recursion_remaining)
#define MAX_DEPTH (C_RECURSION_LIMIT / 2) /* a frame counts twice */
#define IS_FINALIZING _Py_IsFinalizing
#else
#define FIRST_INSTRUCTION(code) ((uint16_t *)(code)->co_code_adaptive)
#define C_DEPTH(thread) (Py_C_RECURSION_LIMIT - (thread)->c_recursion_remaining)
#define MAX_DEPTH 1200 /* a frame counts twice */
#define IS_FINALIZING Py_IsFinalizing
#endif

#endif

#endif
