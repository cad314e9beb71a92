"""The public names of Triton 3.6, with their parameters and their state here: each works, or is refused with a reason.

The tables are what Triton documents: a name, its parameters. A name that the tables lack is not known here.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

import stator.tile as triton
import stator.tile.language as tl
from stator.tile.errors import InvalidUse, LaunchError
from stator.tile.language.context import Context, entered
from stator.tile.language.extra import cuda, libdevice

FUNCTIONS = """
abs: x
add: x y sanitize_overflow
advance: base offsets
arange: start end
argmax: input axis tie_break_left keep_dims
argmin: input axis tie_break_left keep_dims
associative_scan: input axis combine_fn reverse
assume: cond
atomic_add: pointer val mask sem scope
atomic_and: pointer val mask sem scope
atomic_cas: pointer cmp val sem scope
atomic_max: pointer val mask sem scope
atomic_min: pointer val mask sem scope
atomic_or: pointer val mask sem scope
atomic_xchg: pointer val mask sem scope
atomic_xor: pointer val mask sem scope
bitonic_merge: x dim descending
broadcast: input other
broadcast_to: input *shape
cast: input dtype fp_downcast_rounding bitcast
cat: input other can_reorder
cdiv: x div
ceil: x
clamp: x min max propagate_nan
cos: x
cumprod: input axis reverse
cumsum: input axis reverse dtype
debug_barrier:
device_assert: cond msg mask
device_print: prefix *args hex
div_rn: x y
dot: input other acc input_precision allow_tf32 max_num_imprecise_acc out_dtype
dot_scaled: lhs lhs_scale lhs_format rhs rhs_scale rhs_format acc fast_math lhs_k_pack rhs_k_pack out_dtype
erf: x
exp: x
exp2: x
expand_dims: input axis
fdiv: x y ieee_rounding
flip: x dim
floor: x
fma: x y z
full: shape value dtype
gather: src index axis
histogram: input num_bins mask
inline_asm_elementwise: asm constraints args dtype is_pure pack
interleave: a b
join: a b
load: pointer mask other boundary_check padding_option cache_modifier eviction_policy volatile
load_tensor_descriptor: desc offsets
log: x
log2: x
make_block_ptr: base shape strides offsets block_shape order
make_tensor_descriptor: base shape strides block_shape padding_option
map_elementwise: scalar_fn *args pack
max: input axis return_indices return_indices_tie_break_left keep_dims
max_constancy: input values
max_contiguous: input values
maximum: x y propagate_nan
min: input axis return_indices return_indices_tie_break_left keep_dims
minimum: x y propagate_nan
mul: x y sanitize_overflow
multiple_of: input values
num_programs: axis
pair_uniform_to_normal: u1 u2
permute: input *dims
philox: seed c0 c1 c2 c3 n_rounds
philox_impl: c0 c1 c2 c3 k0 k1 n_rounds
program_id: axis
rand: seed offset n_rounds
rand4x: seed offsets n_rounds
randint: seed offset n_rounds
randint4x: seed offset n_rounds
randn: seed offset n_rounds
randn4x: seed offset n_rounds
ravel: x can_reorder
reduce: input axis combine_fn keep_dims
reduce_or: input axis keep_dims
reshape: input *shape can_reorder
rsqrt: x
sigmoid: x
sin: x
softmax: x dim keep_dims ieee_rounding
sort: x dim descending
split: a
sqrt: x
sqrt_rn: x
static_assert: cond msg
static_print: *values sep end file flush
store: pointer value mask boundary_check cache_modifier eviction_policy
store_tensor_descriptor: desc offsets value
sub: x y sanitize_overflow
sum: input axis keep_dims dtype
swizzle2d: i j size_i size_j size_g
topk: x k dim
trans: input *dims
uint_to_uniform_float: x
umulhi: x y
view: input *shape
where: condition x y
xor_sum: input axis keep_dims
zeros: shape dtype
zeros_like: input
"""
CLASSES = """
block_type: element_ty shape
condition: arg1 disable_licm
constexpr: value
constexpr_type: value
dtype: name
pointer_type: element_ty address_space const
range: arg1 arg2 step num_stages loop_unroll_factor disallow_acc_multi_buffer flatten warp_specialize disable_licm
slice: start stop step
static_range: arg1 arg2 step
tensor: handle type
tuple: args type
"""
VALUES = """PropagateNan TRITON_MAX_TENSOR_NUMEL bfloat16 const extra float16 float32 float64 float8e4b15 float8e4b8
float8e4nv float8e5 float8e5b16 int1 int16 int32 int64 int8 math pi32_t target_info tensor_descriptor uint16 uint32
uint64 uint8 void"""
MATH = "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi"
METHODS = """T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min
atomic_or atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum dtype erf exp exp2 expand_dims flip
floor gather histogram item log log2 logical_and logical_or max min numel permute ravel reduce reduce_or reshape rsqrt
shape sigmoid sin softmax sort split sqrt store sum to trans type view xor_sum"""
#: The names of `triton` that work, with the parameters of its functions.
TRITON = """
Config: kwargs num_warps num_stages num_ctas maxnreg pre_hook ir_override
JITFunction: fn version do_not_specialize do_not_specialize_on_alignment debug noinline repr launch_metadata
MockTensor: dtype shape
OutOfResources: required limit name
TensorWrapper: base dtype
autotune: configs key prune_configs_by reset_to_zero restore_value pre_hook post_hook warmup rep use_cuda_graph do_bench
 cache_results
cdiv: x y
constexpr_function: fn
heuristics: values
next_power_of_2: n
reinterpret: tensor dtype
set_allocator: allocator
"""
OTHERS = (
    "CompilationError InterpreterError KernelInterface TritonError jit language must_use_result runtime testing tools"
)
TESTING = """
Benchmark: x_names x_vals line_arg line_vals line_names plot_name args xlabel ylabel x_log y_log styles
Mark: fn benchmarks
assert_close: x y atol rtol err_msg
do_bench: fn warmup rep grad_to_none quantiles return_mode
perf_report: benchmarks
"""
#: Functions that are there and refuse every call.
REFUSED: dict[Any, tuple[Any, ...]] = {
    tl.map_elementwise: (None,),
    cuda.globaltimer: (),
    cuda.smid: (),
    cuda.num_threads: (),
    cuda.num_warps: (),
    cuda.gdc_wait: (),
    cuda.gdc_launch_dependents: (),
    triton.testing.do_bench_cudagraph: (None,),
    triton.testing.get_dram_gbps: (),
    triton.testing.get_max_tensorcore_tflops: (None, None),
    triton.testing.get_max_simd_tflops: (None, None),
    triton.testing.set_gpu_clock: (),
    triton.testing.nvsmi: (None,),
    triton.testing.cuda_memcheck: (),
}
LIBDEVICE = """abs acos acosh add_rd add_rn add_ru add_rz asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz
copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 div_rd div_rn div_ru div_rz double2float_rd
double2float_rn double2float_ru double2float_rz double2hiint double2int_rd double2int_rn
double2int_ru double2int_rz double2ll_rd double2ll_rn double2ll_ru double2ll_rz double2loint
double2uint_rd double2uint_rn double2uint_ru double2uint_rz double2ull_rd double2ull_rn
double2ull_ru double2ull_rz double_as_longlong erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1
fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf
fast_tanf fdim ffs finitef float2int_rd float2int_rn float2int_ru float2int_rz float2ll_rd
float2ll_rn float2ll_ru float2ll_rz float2uint_rd float2uint_rn float2uint_ru float2uint_rz
float2ull_rd float2ull_rn float2ull_ru float2ull_rz float_as_int float_as_uint floor fma fma_rd
fma_rn fma_ru fma_rz fmod hadd hiloint2double hypot ilogb int2double_rn int2float_rd int2float_rn
int2float_ru int2float_rz int_as_float isfinited isinf isnan j0 j1 jn ldexp lgamma ll2double_rd
ll2double_rn ll2double_ru ll2double_rz ll2float_rd ll2float_rn ll2float_ru ll2float_rz llrint
llround log log10 log1p log2 logb longlong_as_double mul24 mul_rd mul_rn mul_ru mul_rz mulhi
nearbyint nextafter norm3d norm4d normcdf normcdfinv pow popc rcbrt rcp64h rcp_rd rcp_rn rcp_ru
rcp_rz remainder rhadd rhypot rint rnorm3d rnorm4d round rsqrt rsqrt_rn sad saturatef scalbn signbit
sin sinh sinpi sqrt sqrt_rd sqrt_rn sqrt_ru sqrt_rz sub_rd sub_rn sub_ru sub_rz tan tanh tgamma
trunc uint2double_rn uint2float_rd uint2float_rn uint2float_ru uint2float_rz uint_as_float
ull2double_rd ull2double_rn ull2double_ru ull2double_rz ull2float_rd ull2float_rn ull2float_ru
ull2float_rz y0 y1 yn"""


def table(text: str) -> dict[str, list[str]]:
    lines = text.replace("\n ", " ").strip().splitlines()
    return {line.split(":")[0]: line.split(":")[1].split() for line in lines}


def parameters(found: Any) -> list[str]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + p.name for p in inspect.signature(found).parameters.values()]


@pytest.mark.parametrize(("name", "expected"), {**table(FUNCTIONS), **table(CLASSES)}.items())
def test_names_of_the_language_take_what_tritons_take(name: str, expected: list[str]) -> None:
    assert name in tl.__all__
    assert parameters(getattr(tl, name)) == expected


def test_values_of_the_language_are_there() -> None:
    for name in VALUES.split():
        assert name in tl.__all__ and getattr(tl, name) is not None
    assert isinstance(tl.math, ModuleType) and isinstance(tl.extra, ModuleType)
    dtypes = [getattr(tl, name) for name in VALUES.split() if isinstance(getattr(tl, name), tl.dtype)]
    assert len({str(dtype) for dtype in dtypes}) == len(dtypes) == 20
    with pytest.raises(AttributeError, match="no attribute 'cores'"):
        tl.cores  # noqa: B018


def test_modules_of_the_language_have_their_names() -> None:
    assert set(MATH.split()) == set(tl.math.__all__)
    for name in MATH.split():
        assert getattr(tl, name) is getattr(tl.math, name)
    for name in METHODS.split():
        assert hasattr(tl.tensor, name) or name == "type", name
    for name in LIBDEVICE.split():
        assert callable(getattr(libdevice, name)), name
    assert "fast_tanhf" in dir(libdevice)
    core = tl.core
    assert core.__name__ == "stator.tile.language.core" and core.load is tl.load and core.constexpr is tl.constexpr


def test_names_of_the_language_are_all_known() -> None:
    known = {*table(FUNCTIONS), *table(CLASSES), *VALUES.split()}
    ours = {"_aggregate", "members", "tensor_descriptor_type", "to_tensor", "tuple_type"}
    assert set(tl.__all__) - known == ours


@pytest.mark.parametrize(("name", "expected"), table(TRITON).items())
def test_names_of_triton_take_what_tritons_take(name: str, expected: list[str]) -> None:
    assert name in triton.__all__
    assert parameters(getattr(triton, name)) == expected


#: Names that Triton does not have.
OURS = {"show_layout"}


def test_names_of_triton_are_all_there_or_refused() -> None:
    assert set(triton.__all__) == {*table(TRITON), *OTHERS.split(), *OURS}
    for name, why in triton.REFUSED.items():
        with pytest.raises(AttributeError, match=f"{name} is not supported: {why[:20]}"):
            getattr(triton, name)
    assert set(triton.REFUSED) == {"AsyncCompileMode", "FutureKernel", "compile"}
    with pytest.raises(AttributeError, match="no attribute 'jitt'"):
        triton.jitt  # noqa: B018


@pytest.mark.parametrize(("name", "expected"), table(TESTING).items())
def test_names_of_testing_take_what_tritons_take(name: str, expected: list[str]) -> None:
    assert parameters(getattr(triton.testing, name)) == expected


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_what_is_refused_says_why(function: Any) -> None:
    with pytest.raises((InvalidUse, LaunchError), match="is not supported: ") as caught:
        function(*REFUSED[function])
    assert function.__name__ in str(caught.value)


def test_functions_of_the_language_need_a_kernel() -> None:
    for call in (lambda: tl.arange(0, 8), lambda: tl.program_id(0), lambda: tl.zeros((4,), tl.float32)):
        with pytest.raises(InvalidUse, match="outside of a kernel"):
            call()


def test_inline_assembly_is_refused_where_it_runs() -> None:
    from stator.tile.interpret.compute import Fault
    from stator.tile.interpret.eager import EagerBuilder

    with entered(Context(EagerBuilder(), call=lambda *_: None, direct=True)):
        x = tl.arange(0, 4)
        with pytest.raises(Fault, match="inline assembly has no meaning"):
            tl.inline_asm_elementwise("shl.b32 $0, $1, 1;", "=r,r", [x], tl.int32, True, 1)
