/* What a recording consists of, for the two files that read it in and replay it. */
#ifndef STATOR_RECORDING_FIELDS_H
#define STATOR_RECORDING_FIELDS_H

#include "recording.h"

#define INPUTS(INPUT) INPUT(INPUT_FIXED, "fixed") INPUT(INPUT_COPIED, "copied") INPUT(INPUT_NUMBER, "number") INPUT(INPUT_UNREAD, "unread")
#define RESULTS(RESULT)                                                                                                \
    RESULT(RESULT_OWN, "own") RESULT(RESULT_FRESH, "fresh") RESULT(RESULT_INPUT, "input") RESULT(RESULT_VIEW, "view")  \
    RESULT(RESULT_SAME, "same") RESULT(RESULT_CONSTANT, "constant")
#define KIND(kind, name) kind,

typedef enum { INPUTS(KIND) } InputKind;
typedef enum { RESULTS(KIND) } ResultKind;

typedef struct {
    InputKind kind;
    void *address;       /* fixed: where the tensor begins; copied: the memory that it is copied to */
    int64_t number;      /* the number; copied: how many bytes */
    void *node, *back;   /* copied: the steps that copy it, and back if it is written; NULL: none */
    void *from;          /* where the steps copy from, and back to */
    PyTypeObject *type;  /* of the tensor that it was recorded with; others are looked at more closely */
    int64_t item;        /* bytes of an element */
    int64_t dimensions;  /* of the tensors; -1: guards know them */
    int64_t *extents;    /* sizes and then strides */
} Input;

typedef struct {
    ResultKind kind;
    Py_ssize_t index; /* a place; a copy; an input; an earlier result */
    int dtype;
    int64_t dimensions, offset, *extents;
    PyObject *constant; /* borrowed from `results` */
} Result;

/* A base of places, found by one of these, and the inputs that lie in it. */
typedef struct {
    Py_ssize_t place, count;
    int64_t *inputs;
} Overlay;

/* A place whose memory is copied for each call, how many elements of its first dtype that is, and the step. */
typedef struct {
    Py_ssize_t place;
    int64_t elements;
    void *node;
} Copy;

typedef struct {
    PyObject_HEAD
    Memory *memory;
    Driver driver;
    int32_t device, device_type;
    void *stream, *context, *executable;
    PyObject *replay;          /* replay(): advances random numbers and launches; NULL: the executable is launched */
    PyObject *wait;            /* wait(stream): what is queued from now on comes after what is queued there */
    PyObject *graph, *held;    /* what lives as long as the recording */
    PyObject *places, *results_spec; /* tuples */
    PyObject *types;                 /* a list: of the inputs */
    PyObject *overlays_spec; /* a tuple */
    Py_ssize_t input_count, result_count, copy_count, overlay_count;
    Input *inputs;
    Result *results;
    Copy *copies;
    Overlay *overlays;
    bool running; /* a replay is under way, which may let other threads go on */
    bool refused; /* the driver did not have a copy begin where an input was: its memory is of another kind */
} Recording;

/* Reads what it is made of, once; 0 or -1 with an exception. */
int recording_parse(Recording *self, PyObject *args, PyObject *keywords);

#endif
