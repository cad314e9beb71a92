/* What the frame hook knows about one code object (frame_table.c), kept in the code object's co_extra. */
#ifndef STATOR_FRAME_TABLE_H
#define STATOR_FRAME_TABLE_H

#include "native.h"

/* The two states that need no table. */
extern char SKIPPED;             /* frames run as they are */
extern char SKIPPED_RECURSIVELY; /* and so does everything that they call */

typedef struct FrameTable FrameTable;

typedef struct {
    PyObject *tree;
    PyObject *code; /* None: the original frame runs */
    bool watch;     /* whether frames below are looked at */
    PyObject *retired; /* if its code has failed: what is told of each frame, which runs as it is; else NULL */
} FrameEntry;

/* The compiled versions of one code object under one choice of settings, of one instance or of all. */
typedef struct {
    PyObject_HEAD
    FrameTable *table; /* NULL once it is out of it */
    PyObject *settings;
    const void *instance; /* its address, while it is alive; or NULL */
    PyObject *owner;      /* what Python keeps with it */
    char closed;          /* no more versions are to be made */
    Py_ssize_t parameters, freevars;
    FrameEntry *entries;
    Py_ssize_t count, room;
} FrameEntries;

extern PyTypeObject FrameEntries_Type;

/* How many slots of a frame hold its arguments. */
Py_ssize_t frame_parameters(const PyCodeObject *code);
/* SKIPPED, SKIPPED_RECURSIVELY, a table, or NULL where nothing is known. */
void *frame_state(const PyCodeObject *code);
int frame_set_state(PyObject *code, void *state);
/* Borrowed; those of the first argument, else of the function, else of no instance, else NULL. */
FrameEntries *frame_table_find(const FrameTable *table, const PyObject *settings, const PyObject *first,
                               const PyObject *function);
/* New reference; made if they are not there. */
FrameEntries *frame_table_entries(PyObject *code, PyObject *settings, PyObject *instance);
/* The entry whose guards pass for these slots, now the first: 1 with a new reference in `code`, 0, or -1. */
int frame_entries_match(FrameEntries *self, PyObject *const *slots, PyObject **code, bool *watch);
int frame_table_prepare(void);

#endif
