/* Regions and the frame hook: what dispatcher.c needs to know of frame_hook.c. */
#ifndef STATOR_FRAME_HOOK_H
#define STATOR_FRAME_HOOK_H

#include "native.h"

/* What this thread is doing. */
typedef struct {
    int suspensions;    /* a capture runs, or the user disabled the compiler: nothing is looked at */
    PyObject *settings; /* of the region the thread is in, NULL outside of one; borrowed from who entered it */
    PyObject *passing;  /* the code object whose next frame is left alone; only compared */
    bool watched;       /* a tool of sys.monitoring is registered */
} Activity;

extern _Thread_local Activity activity;

/* What was before a region. */
typedef struct {
    PyObject *settings, *passing;
} OuterRegion;

/* Until region_leave the frames that this thread starts are looked at, but for the first one of `function` (may be
 * NULL). With NULL for the settings they are left alone instead. Settings are alive until region_leave. */
OuterRegion region_enter(PyObject *settings, PyObject *function);
void region_leave(OuterRegion before);

/* While Python calls are many and none is the program's. */
void frame_hook_pause(void);
void frame_hook_go_on(void);

/* The interpreter's own evaluator instead of that of PyTorch's compiler; NULL where that is not in. */
_PyFrameEvalFunction set_torchs_evaluator_aside(void);
void put_evaluator_back(_PyFrameEvalFunction evaluator);

/* Frames of this code are never looked at; 0 or -1 with an exception. */
int frame_leave_alone(PyObject *code);

extern PyTypeObject FrameEntries_Type;
int frame_hook_register(PyObject *module);
extern PyMethodDef frame_hook_methods[];

#endif
