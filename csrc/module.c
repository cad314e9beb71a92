/* stator._native: what must be in C because it runs on every call. See native.h for the parts. */
#include "device.h"
#include "frame_hook.h"
#include "native.h"
#include "recording.h"

static PyMethodDef methods[] = {
    {"load_kernels", native_load_kernels, METH_VARARGS,
     "load_kernels(path, names): the named kernels of a shared library."},
    {"device_kernel", (PyCFunction)(void (*)(void))native_device_kernel, METH_VARARGS | METH_KEYWORDS,
     "device_kernel(name, aligned, sizes, grid, limits, rounds, overlaps, device, driver, build, refused): a kernel that a "
     "device runs."},
    {"tensor_facts", native_tensor_facts, METH_O,
     "tensor_facts(tensor): (sizes, strides, dtype number, device number, dispatch keys, requires_grad)."},
    {"tensor_access", native_tensor_access, METH_NOARGS,
     "tensor_access(): 'raw' if metadata is read at verified offsets, 'python' if through attributes."},
    {"matches", (PyCFunction)(void (*)(void))native_matches, METH_FASTCALL,
     "matches(tensor, size, stride, dtype): whether the tensor has exactly these."},
    {"ask_for_huge_pages", (PyCFunction)(void (*)(void))native_ask_for_huge_pages, METH_FASTCALL,
     "ask_for_huge_pages(address, bytes): for fresh memory, where they are quickly had; writes to it."},
    {"read_state", native_read_state, METH_O,
     "read_state(name): a piece of torch's global state as a number, None if it cannot be read here."},
    {"record", (PyCFunction)(void (*)(void))native_record, METH_FASTCALL,
     "record(context, plan, *inputs): runs a plan's forward graph inside an autograd function."},
    {"scratch_bytes", native_scratch_bytes, METH_NOARGS, "The bytes that executors keep for their next calls."},
    {"scratch_release", native_scratch_release, METH_NOARGS, "Gives them back; executors make them again."},
    {"scratch_blocks", native_scratch_blocks, METH_VARARGS,
     "scratch_blocks(device, stream): the memory that is kept for calls on a stream, as tensors."},
    {"scratch_move", native_scratch_move, METH_VARARGS,
     "scratch_move(device, from, to): the largest block of one stream becomes another's, the rest goes back."},
    {"scratch_forget", native_scratch_forget, METH_VARARGS, "scratch_forget(device, stream): gives that memory back."},
    {"results_bytes", native_results_bytes, METH_NOARGS,
     "The bytes of large results that nobody has and that are kept for others."},
    {"storage_of", native_storage_of, METH_O,
     "storage_of(tensor): a number that tensors of one storage have in common, and no other."},
    {"results_release", native_results_release, METH_NOARGS, "Gives them back."},
    {"suspend", native_suspend, METH_NOARGS, "Dispatchers of this thread call their originals until resume()."},
    {"resume", native_resume, METH_NOARGS, "Undoes one suspend()."},
    {"suspended", native_suspended, METH_NOARGS, "Whether dispatchers of this thread call their originals."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef backward = {"backward", (PyCFunction)(void (*)(void))native_backward, METH_FASTCALL,
                               "backward(context, *tangents): the gradients of a compiled function."};

/* A function that is a method where a class has it. */
static int add_method(PyObject *module, PyMethodDef *function) {
    PyObject *plain = PyCFunction_New(function, NULL);
    PyObject *method = plain ? PyInstanceMethod_New(plain) : NULL;
    int status = method ? PyModule_AddObjectRef(module, function->ml_name, method) : -1;
    Py_XDECREF(plain);
    Py_XDECREF(method);
    return status;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stator._native",
    .m_doc = "Guards, dispatch and kernel calls in C.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
    if (guards_register(module) < 0 || dispatcher_register(module) < 0 || replay_register(module) < 0 ||
        frame_hook_register(module) < 0 || PyModule_AddType(module, &Kernel_Type) < 0 ||
        PyModule_AddType(module, &Empty_Type) < 0 || PyModule_AddType(module, &Plan_Type) < 0 ||
        PyModule_AddType(module, &Backward_Type) < 0 || add_method(module, &backward) < 0 ||
        PyModule_AddType(module, &Executor_Type) < 0 || PyModule_AddType(module, &Straight_Type) < 0 ||
        PyModule_AddType(module, &EagerGraph_Type) < 0 || PyModule_AddType(module, &Frozen_Type) < 0 ||
        PyModule_AddType(module, &Outputs_Type) < 0 || PyModule_AddType(module, &Place_Type) < 0 ||
        PyModule_AddType(module, &Recording_Type) < 0 || PyModule_AddType(module, &Recorded_Type) < 0 ||
        PyModule_AddType(module, &TileLauncher_Type) < 0 || PyType_Ready(&TileLaunch_Type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
