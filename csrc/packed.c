/* torch's own operator makes its result, which for the scores of a vocabulary is fresh memory at each call: the system
 * clears it page by page, which takes half as long as the product does. MKL is a part of libtorch_cpu.so and exports the
 * function that the operator calls.
 */
#include "packed.h"

/* The numbers of MKL's enumerations: row by row, not transposed, packed. */
enum { ROW_MAJOR = 101, AS_IT_IS = 111, PACKED = 151 };

/* Whole numbers are MKL's `int`, of which the lower half of a register is all that counts. */
typedef void (*Compute)(int layout, int64_t a_is, int64_t b_is, int64_t m, int64_t n, int64_t k, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

static struct {
    bool prepared;
    Compute compute;
    int32_t (*layout)(TensorHandle tensor, int32_t *layout);
    int32_t opaque; /* the layout of what is packed */
} state;

bool packed_known(void) {
    if (!state.prepared) {
        int32_t (*opaque)(void);
        *(void **)&state.compute = shim_function("cpu", "cblas_sgemm_compute");
        *(void **)&state.layout = shim_function("cpu", "aoti_torch_get_layout");
        *(void **)&opaque = shim_function("cpu", "aoti_torch_layout__mkldnn");
        if (opaque != NULL) state.opaque = opaque();
        else state.compute = NULL;
        state.prepared = true;
    }
    return state.compute != NULL && state.layout != NULL;
}

/* The size of a matrix that lies row by row, without gaps. */
static bool dense(const Shim *shim, TensorHandle tensor, int64_t *rows, int64_t *columns) {
    int64_t dimensions, *sizes, *strides;
    if (shim->dimensions(tensor, &dimensions) != 0 || dimensions != 2) return false;
    if (shim->sizes(tensor, &sizes) != 0 || shim->strides(tensor, &strides) != 0) return false;
    *rows = sizes[0];
    *columns = sizes[1];
    return strides[1] == 1 && strides[0] == *columns;
}

bool packed_multiply(const Shim *shim, TensorHandle out, TensorHandle x, TensorHandle packed, int64_t rows) {
    int64_t m, n, k, made;
    int32_t layout;
    void *from, *weight, *to;
    if (!dense(shim, x, &m, &k) || !dense(shim, out, &made, &n) || m != rows || made != rows) return false;
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || m == 0 || n == 0 || k == 0) return false;
    if (state.layout(packed, &layout) != 0 || layout != state.opaque) return false;
    if (shim->address(x, &from) != 0 || shim->address(packed, &weight) != 0 || shim->address(out, &to) != 0) return false;
    state.compute(ROW_MAJOR, AS_IT_IS, PACKED, m, n, k, from, k, weight, k, 0.0f, to, n);
    return true;
}
