/* Watches on dicts: CPython 3.12 and newer tell when a watched dict is about to change.
 *
 * A flag belongs to one region of guards and is fresh until one of its dicts changes or dies. The first
 * change removes the watch, so a dict that changes often costs its writers one notification a renewal.
 * Invariant: a dict is in the table as long as it lives and is watched; no reference to it is held.
 */
#include "native.h"

#include "guards.h"

struct WatchFlag {
    Py_ssize_t references;
    bool fresh;
    bool wanted; /* the region still exists */
};

WatchFlag *watch_flag_new(void) {
    WatchFlag *flag = PyMem_Malloc(sizeof(WatchFlag));
    if (flag != NULL) *flag = (WatchFlag){.references = 1, .fresh = true, .wanted = true};
    return flag;
}

static void release(WatchFlag *flag) {
    if (--flag->references == 0) PyMem_Free(flag);
}

void watch_flag_drop(WatchFlag *flag) {
    flag->wanted = false;
    release(flag);
}

bool watch_flag_fresh(const WatchFlag *flag) { return flag->fresh; }

#if PY_VERSION_HEX < 0x030C0000

bool watch_dict(PyObject *dict, WatchFlag *flag) {
    (void)dict;
    (void)flag;
    return false;
}

#else

typedef struct {
    PyObject *dict; /* NULL: free; the table's own address: removed */
    WatchFlag **flags;
    Py_ssize_t count, room;
} Watched;

static struct {
    Watched *rows;
    Py_ssize_t room, used; /* used: rows that are not free, removed ones included */
    bool asked;
    int watcher; /* its number once asked for, -1 if there is none to be had */
} table;

#define REMOVED ((PyObject *)&table)

static inline size_t spread(PyObject *dict, Py_ssize_t room) {
    return (((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15u >> 20) & (size_t)(room - 1);
}

static Watched *find(PyObject *dict) {
    if (table.room == 0) return NULL;
    size_t at = spread(dict, table.room);
    for (; table.rows[at].dict != NULL; at = (at + 1) & (size_t)(table.room - 1)) {
        if (table.rows[at].dict == dict) return &table.rows[at];
    }
    return NULL;
}

static bool rebuild(void) {
    Py_ssize_t living = 0, room = 64;
    for (Py_ssize_t i = 0; i < table.room; i++) living += table.rows[i].dict && table.rows[i].dict != REMOVED;
    while (room < 4 * living) room *= 2;
    Watched *rows = PyMem_Calloc((size_t)room, sizeof(Watched));
    if (rows == NULL) return false;
    for (Py_ssize_t i = 0; i < table.room; i++) {
        if (table.rows[i].dict == NULL || table.rows[i].dict == REMOVED) continue;
        size_t at = spread(table.rows[i].dict, room);
        while (rows[at].dict != NULL) at = (at + 1) & (size_t)(room - 1);
        rows[at] = table.rows[i];
    }
    PyMem_Free(table.rows);
    table.rows = rows;
    table.room = room;
    table.used = living;
    return true;
}

static int notice(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    (void)key;
    (void)value;
    Watched *row = find(dict);
    if (row == NULL) return 0;
    for (Py_ssize_t i = 0; i < row->count; i++) {
        row->flags[i]->fresh = false;
        release(row->flags[i]);
    }
    PyMem_Free(row->flags);
    *row = (Watched){.dict = REMOVED};
    if (event != PyDict_EVENT_DEALLOCATED) PyDict_Unwatch(table.watcher, dict);
    return 0;
}

static Watched *enter(PyObject *dict) {
    Watched *row = find(dict);
    if (row != NULL) return row;
    if (2 * (table.used + 1) > table.room && !rebuild()) return NULL;
    if (PyDict_Watch(table.watcher, dict) < 0) {
        PyErr_Clear();
        return NULL;
    }
    size_t at = spread(dict, table.room);
    while (table.rows[at].dict != NULL) at = (at + 1) & (size_t)(table.room - 1);
    table.used++;
    table.rows[at] = (Watched){.dict = dict};
    return &table.rows[at];
}

/* Drops the flags that nobody waits for any more. */
static void purge(Watched *row) {
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < row->count; i++) {
        if (row->flags[i]->wanted && row->flags[i]->fresh) row->flags[kept++] = row->flags[i];
        else release(row->flags[i]);
    }
    row->count = kept;
}

bool watch_dict(PyObject *dict, WatchFlag *flag) {
    if (!table.asked) {
        table.asked = true;
        table.watcher = PyDict_AddWatcher(notice);
        if (table.watcher < 0) PyErr_Clear(); /* all taken: versions will do where they can */
    }
    Watched *row = table.watcher >= 0 ? enter(dict) : NULL;
    if (row == NULL) return false;
    if (row->count == row->room) purge(row);
    if (row->count == row->room) {
        Py_ssize_t room = row->room ? 2 * row->room : 1;
        WatchFlag **flags = PyMem_Realloc(row->flags, (size_t)room * sizeof(WatchFlag *));
        if (flags == NULL) return false;
        row->flags = flags;
        row->room = room;
    }
    row->flags[row->count++] = flag;
    flag->references++;
    return true;
}

#endif
