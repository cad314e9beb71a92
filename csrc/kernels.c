/* Calling compiled kernels: `const char *k(void *const *p)` from a shared library.
 *
 * A Kernel takes tensors (their data pointers are read here) and integers (passed on as raw addresses),
 * puts the addresses in an array in order, and calls the function with the GIL released. What `at` made
 * moves each address by a constant first. A kernel that met an index out of range gives a text that says
 * so (it wrote nothing out of bounds), which becomes an exception. The library stays loaded as long as
 * one of its kernels lives.
 */
#include "device.h"

#include <dlfcn.h>
#include <stddef.h>

typedef struct {
    PyObject_HEAD
    KernelFunction function; /* or NULL, and code for a device */
    DeviceCode *code;
    PyObject *library; /* a capsule that closes the library, or lets the code go */
    PyObject *name;
    Py_ssize_t bound;   /* how many offsets, 0 for a kernel as it was loaded */
    ptrdiff_t *offsets; /* in bytes */
    vectorcallfunc vectorcall;
} Kernel;

static void close_library(PyObject *capsule) { dlclose(PyCapsule_GetPointer(capsule, "stator.library")); }

static int read_pointer(PyObject *argument, void **pointer) {
    if (PyLong_CheckExact(argument)) {
        *pointer = PyLong_AsVoidPtr(argument);
        return *pointer == NULL && PyErr_Occurred() ? -1 : 0;
    }
    if (tensor_prepare() < 0) return -1;
    if (tensor_check(argument)) return tensor_data(argument, pointer);
    PyErr_Format(PyExc_TypeError, "a kernel takes tensors and addresses, not %s", Py_TYPE(argument)->tp_name);
    return -1;
}

PyObject *kernel_failed(const char *text) {
    PyObject *errors = PyImport_ImportModule("stator.base.errors");
    PyObject *type = errors ? PyObject_GetAttrString(errors, "IndexOutOfRange") : NULL;
    if (type != NULL) PyErr_SetString(type, text);
    Py_XDECREF(type);
    Py_XDECREF(errors);
    return NULL;
}

KernelFunction kernel_function(PyObject *kernel) { return ((Kernel *)kernel)->function; }
DeviceCode *kernel_code(PyObject *kernel) { return ((Kernel *)kernel)->code; }

static PyObject *kernel_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *kwnames) {
    Kernel *self = (Kernel *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        PyErr_SetString(PyExc_TypeError, "a kernel takes no keyword arguments");
        return NULL;
    }
    void *pointers[count + 1];
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_pointer(args[i], &pointers[i]) < 0) return NULL;
    }
    if (self->offsets != NULL) {
        if (count != self->bound) {
            return PyErr_Format(PyExc_TypeError, "%U is bound to %zd offsets, not %zd", self->name, self->bound, count);
        }
        for (Py_ssize_t i = 0; i < count; i++) pointers[i] = (char *)pointers[i] + self->offsets[i];
    }
    if (self->code != NULL) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = device_launch(self->code, pointers);
        Py_END_ALLOW_THREADS
        if (status != 0 && device_settle(self->code, pointers, status) < 0) return NULL;
        Py_RETURN_NONE;
    }
    const char *text;
    Py_BEGIN_ALLOW_THREADS
    text = self->function(pointers);
    Py_END_ALLOW_THREADS
    if (text != NULL) return kernel_failed(text);
    Py_RETURN_NONE;
}

static PyObject *make_kernel(PyObject *library, KernelFunction function, DeviceCode *code, PyObject *name) {
    Kernel *kernel = (Kernel *)Kernel_Type.tp_alloc(&Kernel_Type, 0);
    if (kernel == NULL) return NULL;
    kernel->function = function;
    kernel->code = code;
    kernel->library = Py_NewRef(library);
    kernel->name = Py_NewRef(name);
    kernel->vectorcall = kernel_call;
    return (PyObject *)kernel;
}

PyObject *kernel_of_code(PyObject *owner, DeviceCode *code, PyObject *name) {
    return make_kernel(owner, NULL, code, name);
}

static PyObject *kernel_at(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Kernel *self = (Kernel *)object;
    ptrdiff_t *offsets = PyMem_New(ptrdiff_t, count + 1);
    if (offsets == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        offsets[i] = PyLong_AsSsize_t(args[i]);
        if (offsets[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(offsets);
            return NULL;
        }
    }
    PyObject *made = make_kernel(self->library, self->function, self->code, self->name);
    if (made == NULL) {
        PyMem_Free(offsets);
        return NULL;
    }
    ((Kernel *)made)->offsets = offsets;
    ((Kernel *)made)->bound = count;
    return made;
}

PyObject *native_load_kernels(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *path, *names;
    if (!PyArg_ParseTuple(args, "O&O:load_kernels", PyUnicode_FSConverter, &path, &names)) return NULL;
    void *handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL);
    Py_DECREF(path);
    if (handle == NULL) {
        PyErr_SetString(PyExc_OSError, dlerror());
        return NULL;
    }
    PyObject *library = PyCapsule_New(handle, "stator.library", close_library);
    PyObject *wanted = library ? PySequence_Tuple(names) : NULL;
    PyObject *kernels = wanted ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; kernels != NULL && i < PyTuple_GET_SIZE(wanted); i++) {
        PyObject *name = PyTuple_GET_ITEM(wanted, i);
        const char *text = PyUnicode_AsUTF8(name);
        void *symbol = text ? dlsym(handle, text) : NULL;
        if (text != NULL && symbol == NULL) PyErr_Format(PyExc_AttributeError, "the library has no kernel %R", name);
        KernelFunction function;
        *(void **)&function = symbol;
        PyObject *kernel = symbol ? make_kernel(library, function, NULL, name) : NULL;
        if (kernel == NULL || PyList_Append(kernels, kernel) < 0) Py_CLEAR(kernels);
        Py_XDECREF(kernel);
    }
    Py_XDECREF(wanted);
    Py_XDECREF(library);
    return kernels;
}

static void kernel_dealloc(PyObject *object) {
    Kernel *self = (Kernel *)object;
    Py_XDECREF(self->library);
    Py_XDECREF(self->name);
    PyMem_Free(self->offsets);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *kernel_repr(PyObject *self) { return PyUnicode_FromFormat("<kernel %U>", ((Kernel *)self)->name); }

static PyObject *kernel_address(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr(*(void **)&((Kernel *)self)->function);
}

static PyMethodDef kernel_methods[] = {
    {"at", (PyCFunction)(void (*)(void))kernel_at, METH_FASTCALL, "the kernel with its arguments moved by these bytes"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef kernel_getset[] = {
    {"address", kernel_address, NULL, "the address of the function", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Kernel_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "stator._native.Kernel",
    .tp_doc = "A compiled kernel: call it with tensors and, as integers, raw addresses.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = kernel_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
    .tp_repr = kernel_repr,
    .tp_getset = kernel_getset,
    .tp_methods = kernel_methods,
};
