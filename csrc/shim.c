#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
    bool prepared, complete;
    Shim shim;
} state;

static void *find(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    return handle ? dlsym(handle, name) : NULL;
}

void *shim_function(const char *device, const char *name) {
    char library[64];
    snprintf(library, sizeof library, "libtorch_%s.so", device);
    return find(library, name);
}

int32_t shim_device_type(const char *device) {
    char name[64];
    snprintf(name, sizeof name, "aoti_torch_device_type_%s", device);
    int32_t (*type)(void);
    *(void **)&type = shim_function("cpu", name);
    return type ? type() : -1;
}

#define FIND(field, library, name) *(void **)&state.shim.field = find(library, name)

static void prepare(void) {
    FIND(make, "libtorch_cpu.so", "aoti_torch_empty_strided");
    FIND(view, "libtorch_cpu.so", "aoti_torch__reinterpret_tensor");
    FIND(as_strided, "libtorch_cpu.so", "aoti_torch_as_strided");
    FIND(dimensions, "libtorch_cpu.so", "aoti_torch_get_dim");
    FIND(sizes, "libtorch_cpu.so", "aoti_torch_get_sizes");
    FIND(strides, "libtorch_cpu.so", "aoti_torch_get_strides");
    FIND(address, "libtorch_cpu.so", "aoti_torch_get_data_ptr");
    FIND(storage_bytes, "libtorch_cpu.so", "aoti_torch_get_storage_size");
    FIND(share, "libtorch_cpu.so", "aoti_torch_new_tensor_handle");
    FIND(release, "libtorch_cpu.so", "aoti_torch_delete_tensor_object");
    FIND(wrap, "libtorch_python.so", "_Z16THPVariable_WrapRKN2at10TensorBaseE");
    FIND(has_callbacks, "libtorch_cpu.so", "_ZN2at12hasCallbacksEv");
    state.shim.cpu = shim_device_type("cpu");
    const Shim *shim = &state.shim;
    state.complete = shim->cpu >= 0 && shim->make && shim->view && shim->dimensions && shim->sizes && shim->strides &&
                     shim->address && shim->storage_bytes && shim->share && shim->release && shim->wrap &&
                     shim->has_callbacks && tensor_raw();
    state.prepared = true;
}

const Shim *shim_get(void) {
    if (!state.prepared) prepare();
    return state.complete ? &state.shim : NULL;
}
