/* Calls operators of PyTorch for an executor: products by torch's stable C interface, everything else by the callable
 * that Python has bound, which for PyTorch's own operators is a C function, so no Python frame runs.
 */
#include "executor.h"

#include <string.h>

/* -- arguments as objects ----------------------------------------------------------------------------- */

/* Views with another dtype are Python's to make. */
static PyObject *retyped(Run *run, const Argument *argument, const int64_t *extents, int64_t offset) {
    Py_ssize_t dimensions = argument->form.dimensions;
    PyObject *tensor = register_object(run, argument->index);
    PyObject *sizes = tensor ? tensor_integers(extents, dimensions) : NULL;
    PyObject *strides = sizes ? tensor_integers(extents + dimensions, dimensions) : NULL;
    PyObject *number = strides ? PyLong_FromLongLong(offset) : NULL;
    PyObject *made = NULL;
    if (number != NULL) {
        made = PyObject_CallFunctionObjArgs(run->self->retype, tensor, sizes, strides, number, argument->object, NULL);
    }
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    Py_XDECREF(number);
    return made;
}

/* The transpose of a matrix. */
static TensorHandle turned_handle(Run *run, const Argument *argument) {
    TensorHandle tensor = register_handle(run, argument->index), made;
    const Shim *shim = run->shim;
    int64_t dimensions = 0, *sizes, *strides;
    if (tensor == NULL || shim->dimensions(tensor, &dimensions) != 0 || dimensions != 2) return NULL;
    if (shim->sizes(tensor, &sizes) != 0 || shim->strides(tensor, &strides) != 0) return NULL;
    const int64_t extents[] = {sizes[1], sizes[0], strides[1], strides[0]};
    return shim->view(tensor, 2, extents, extents + 2, 0, &made) == 0 ? made : NULL;
}

/* A view as a handle that is owned; NULL without an exception where torch does not make it. */
static TensorHandle view_handle(Run *run, const Argument *argument) {
    if (argument->kind == ARGUMENT_TURNED) return turned_handle(run, argument);
    int64_t room[2 * MAX_DIMENSIONS], offset;
    TensorHandle tensor = register_handle(run, argument->index), made;
    const int64_t *extents = form_values(&argument->form, run->numbers, room);
    Py_ssize_t dimensions = argument->form.dimensions;
    if (tensor == NULL || extents == NULL || !extent_value(&argument->extent, run->numbers, &offset)) return NULL;
    if (run->shim->view(tensor, dimensions, extents, extents + dimensions, offset, &made) != 0) return NULL;
    return made;
}

static PyObject *view_object(Run *run, const Argument *argument) {
    int64_t room[2 * MAX_DIMENSIONS], offset;
    if (argument->kind == ARGUMENT_RETYPED) {
        const int64_t *extents = form_values(&argument->form, run->numbers, room);
        if (extents == NULL || !extent_value(&argument->extent, run->numbers, &offset)) return overflowed(), NULL;
        return retyped(run, argument, extents, offset);
    }
    TensorHandle made = view_handle(run, argument);
    if (made == NULL) {
        PyErr_SetString(PyExc_SystemError, "a view that a step takes does not fit its tensor");
        return NULL;
    }
    PyObject *object = run->shim->wrap(made);
    run->shim->release(made);
    return object;
}

static PyObject *list_object(Run *run, const Argument *argument) {
    PyObject *list = PyList_New(argument->count);
    for (Py_ssize_t i = 0; list != NULL && i < argument->count; i++) {
        PyObject *item = argument_object(run, &argument->items[i]);
        if (item == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *argument_object(Run *run, const Argument *argument) {
    int64_t number;
    double real;
    switch (argument->kind) {
    case ARGUMENT_CONSTANT: return Py_NewRef(argument->object);
    case ARGUMENT_WHOLE: return Py_XNewRef(register_object(run, argument->index));
    case ARGUMENT_LIST: return list_object(run, argument);
    case ARGUMENT_TURNED:
    case ARGUMENT_VIEW:
    case ARGUMENT_RETYPED: return view_object(run, argument);
    default: /* ARGUMENT_NUMBER, ARGUMENT_BITS */
        if (!extent_value(&argument->extent, run->numbers, &number)) return overflowed(), NULL;
        if (argument->kind == ARGUMENT_NUMBER) return PyLong_FromLongLong(number);
        memcpy(&real, &number, sizeof real);
        return PyFloat_FromDouble(real);
    }
}

/* -- products ----------------------------------------------------------------------------------------- */

/* A tensor among the arguments of a product; `owned` has what is to be released after it. */
static TensorHandle operand(Run *run, const Argument *argument, TensorHandle *owned) {
    if (argument->kind == ARGUMENT_WHOLE) return register_handle(run, argument->index);
    return *owned = view_handle(run, argument);
}

/* Whether the product was called and succeeded; else nothing has happened that calling it again would not do. The last
 * of its tensors is what it writes to. */
static bool run_product(Run *run, const Call *call) {
    int tensors = call->product ? 3 : 4;
    TensorHandle operands[4], owned[4] = {NULL};
    bool found = true;
    for (int i = 0; i < tensors; i++) {
        const Argument *argument = &call->arguments[i < tensors - 1 ? i : call->count + call->named - 1];
        operands[i] = operand(run, argument, &owned[i]);
        found = found && operands[i] != NULL;
    }
    if (found) {
        let_gil_go(run);
        int32_t status = call->product ? call->product(operands[2], operands[0], operands[1])
                                       : call->scaled(operands[3], operands[0], operands[1], operands[2], call->beta,
                                                      call->alpha);
        found = status == 0;
    }
    for (int i = 0; i < tensors; i++) {
        if (owned[i] != NULL) run->shim->release(owned[i]);
    }
    return found;
}

/* The same of a product by a packed weight. */
static bool run_packed(Run *run, const Call *call) {
    TensorHandle operands[3], owned[3] = {NULL};
    const Argument *given[3] = {&call->arguments[call->count], &call->arguments[0], &call->arguments[1]};
    bool found = true;
    for (int i = 0; i < 3; i++) found = (operands[i] = operand(run, given[i], &owned[i])) != NULL && found;
    if (found) {
        let_gil_go(run);
        found = packed_multiply(run->shim, operands[0], operands[1], operands[2], call->packed_rows);
    }
    for (int i = 0; i < 3; i++) {
        if (owned[i] != NULL) run->shim->release(owned[i]);
    }
    return found;
}

static bool run_without_python(Run *run, const Call *call) {
    if (call->packed_rows != 0) return run_packed(run, call);
    return (call->product || call->scaled) && run_product(run, call);
}

/* -- calls -------------------------------------------------------------------------------------------- */

static bool as_promised(Run *run, PyObject *result, const Form *form) {
    TensorView view;
    int64_t room[2 * MAX_DIMENSIONS];
    if (!tensor_check(result) || tensor_view(result, &view) < 0 || view.dimensions != form->dimensions) return false;
    const int64_t *extents = form_values(form, run->numbers, room);
    size_t bytes = (size_t)form->dimensions * sizeof(int64_t);
    return extents != NULL && memcmp(view.sizes, extents, bytes) == 0 &&
           memcmp(view.strides, extents + form->dimensions, bytes) == 0;
}

/* Puts the promised results into their registers if they lie as promised; false, without an exception, if not. */
static bool take_results(Run *run, const Call *call, PyObject *result) {
    if (call->single ? !tensor_check(result) : !PyTuple_Check(result) && !PyList_Check(result)) return false;
    for (Py_ssize_t i = 0; i < call->promise_count; i++) {
        const Promise *promise = &call->promises[i];
        if (!call->single && promise->position >= PySequence_Fast_GET_SIZE(result)) return false;
        PyObject *item = call->single ? result : PySequence_Fast_GET_ITEM(result, promise->position);
        if (!as_promised(run, item, &promise->form)) return false;
    }
    for (Py_ssize_t i = 0; i < call->promise_count; i++) {
        const Promise *promise = &call->promises[i];
        PyObject *item = call->single ? result : PySequence_Fast_GET_ITEM(result, promise->position);
        register_set_object(run, promise->index, Py_NewRef(item));
    }
    return true;
}

/* The slow way: Python lays them out as promised, or says what is wrong. */
static int settle_results(Run *run, const Call *call, PyObject *result) {
    PyObject *geometry = PyTuple_New(call->promise_count);
    for (Py_ssize_t i = 0; geometry != NULL && i < call->promise_count; i++) {
        const Form *form = &call->promises[i].form;
        int64_t room[2 * MAX_DIMENSIONS];
        const int64_t *extents = form_values(form, run->numbers, room);
        PyObject *sizes = extents ? tensor_integers(extents, form->dimensions) : NULL;
        PyObject *strides = sizes ? tensor_integers(extents + form->dimensions, form->dimensions) : NULL;
        PyObject *pair = strides ? PyTuple_Pack(2, sizes, strides) : NULL;
        Py_XDECREF(sizes);
        Py_XDECREF(strides);
        if (extents == NULL) overflowed();
        if (pair == NULL) Py_CLEAR(geometry);
        else PyTuple_SET_ITEM(geometry, i, pair);
    }
    PyObject *settled = geometry ? PyObject_CallFunctionObjArgs(call->settle, result, geometry, NULL) : NULL;
    Py_XDECREF(geometry);
    if (settled == NULL) return -1;
    if (!PyTuple_Check(settled) || PyTuple_GET_SIZE(settled) != call->promise_count) {
        PyErr_SetString(PyExc_TypeError, "an operator's results are not those that were asked for");
        Py_DECREF(settled);
        return -1;
    }
    for (Py_ssize_t i = 0; i < call->promise_count; i++) {
        register_set_object(run, call->promises[i].index, Py_NewRef(PyTuple_GET_ITEM(settled, i)));
    }
    Py_DECREF(settled);
    return 0;
}

int run_call(Run *run, const Call *call) {
    if (!run->shim->has_callbacks() && run_without_python(run, call)) return 0;
    hold_gil(run);
    Py_ssize_t count = call->count + call->named, made = 0;
    PyObject *given[count + 1], *result = NULL;
    while (made < count && (given[made] = argument_object(run, &call->arguments[made])) != NULL) made++;
    if (made == count) result = PyObject_Vectorcall(call->callable, given, (size_t)call->count, call->names);
    while (made > 0) Py_DECREF(given[--made]);
    if (result == NULL) return -1;
    int status = call->promise_count == 0 || take_results(run, call, result) ? 0 : settle_results(run, call, result);
    Py_DECREF(result);
    return status;
}
