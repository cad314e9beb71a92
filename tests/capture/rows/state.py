"""The state of torch, of the interpreter and of the process between two calls, as rows of a table."""

from __future__ import annotations

from tests.capture.changing import IMPORTS, Rows

rows = Rows(IMPORTS)
row = rows.row


def state(name, q, change, undo, n="int"):
    row("state_" + name, f"lambda y: y*(3+{n}({q}))", change, undo=undo)


state(
    "cuda_init",
    "torch.cuda.is_initialized()",
    "old=torch.cuda.is_initialized; torch.cuda._initialized=True",
    "torch.cuda._initialized=False",
)
state(
    "det_warn",
    "torch.is_deterministic_algorithms_warn_only_enabled()",
    "torch.use_deterministic_algorithms(True,warn_only=True)",
    "torch.use_deterministic_algorithms(False)",
)
row(
    "det_empty",
    "lambda y: torch.empty(3).isnan()*y if torch.are_deterministic_algorithms_enabled() else y*2",
    "torch.use_deterministic_algorithms(True)",
    undo="torch.use_deterministic_algorithms(False)",
)
row(
    "det_empty_like",
    "lambda y: torch.empty_like(y).isnan()*y if torch.are_deterministic_algorithms_enabled() else y*2",
    "torch.use_deterministic_algorithms(True)",
    undo="torch.use_deterministic_algorithms(False)",
)
row(
    "det_new_empty",
    "lambda y: y.new_empty(2,3).isnan()*y if torch.are_deterministic_algorithms_enabled() else y*2",
    "torch.use_deterministic_algorithms(True)",
    undo="torch.use_deterministic_algorithms(False)",
)
row(
    "det_empty_strided",
    "lambda y: torch.empty_strided((2,3),(3,1)).isnan()*y if torch.are_deterministic_algorithms_enabled() else y*2",
    "torch.use_deterministic_algorithms(True)",
    undo="torch.use_deterministic_algorithms(False)",
)
state("threads", "torch.get_num_threads()", "torch.set_num_threads(1)", "torch.set_num_threads(2)")
state(
    "matmul",
    "torch.get_float32_matmul_precision()=='high'",
    "torch.set_float32_matmul_precision('high')",
    "torch.set_float32_matmul_precision('highest')",
)
state(
    "tf32",
    "torch.backends.cuda.matmul.allow_tf32",
    "torch.backends.cuda.matmul.allow_tf32=True",
    "torch.backends.cuda.matmul.allow_tf32=False",
)
state(
    "cudnn", "torch.backends.cudnn.enabled", "torch.backends.cudnn.enabled=False", "torch.backends.cudnn.enabled=True"
)
state(
    "cudnn_bench",
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.benchmark=True",
    "torch.backends.cudnn.benchmark=False",
)
state(
    "mkldnn",
    "torch.backends.mkldnn.enabled",
    "torch.backends.mkldnn.set_flags(False)",
    "torch.backends.mkldnn.set_flags(True)",
)
state(
    "flash",
    "torch.backends.cuda.flash_sdp_enabled()",
    "torch.backends.cuda.enable_flash_sdp(False)",
    "torch.backends.cuda.enable_flash_sdp(True)",
)
state("rng", "torch.initial_seed()%1000", "torch.manual_seed(77)", "torch.manual_seed(0)")
state("rngstate", "torch.get_rng_state()[0]", "torch.manual_seed(77)", "torch.manual_seed(0)")
state(
    "anomaly",
    "torch.is_anomaly_enabled()",
    "torch.autograd.set_detect_anomaly(True)",
    "torch.autograd.set_detect_anomaly(False)",
)
state(
    "anomaly_nan",
    "torch.is_anomaly_check_nan_enabled()",
    "torch.autograd.set_detect_anomaly(True,False)",
    "torch.autograd.set_detect_anomaly(False)",
)
state("warn", "torch.is_warn_always_enabled()", "torch.set_warn_always(True)", "torch.set_warn_always(False)")
state(
    "dtype",
    "torch.get_default_dtype()==torch.float64",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)",
)
state(
    "deter_debug",
    "torch.get_deterministic_debug_mode()",
    "torch.set_deterministic_debug_mode(1)",
    "torch.set_deterministic_debug_mode(0)",
)
state(
    "mt",
    "torch.autograd.is_multithreading_enabled()",
    "torch.autograd.set_multithreading_enabled(False)",
    "torch.autograd.set_multithreading_enabled(True)",
)
state(
    "flush",
    "torch._C._get_cublas_allow_tf32()",
    "torch._C._set_cublas_allow_tf32(True)",
    "torch._C._set_cublas_allow_tf32(False)",
)
state(
    "det_fill",
    "torch.utils.deterministic.fill_uninitialized_memory",
    "torch.utils.deterministic.fill_uninitialized_memory=False",
    "torch.utils.deterministic.fill_uninitialized_memory=True",
)
state(
    "printopts",
    "torch._tensor_str.PRINT_OPTS.precision",
    "torch.set_printoptions(precision=9)",
    "torch.set_printoptions(precision=4)",
)
state("recursion", "sys.getrecursionlimit()", "sys.setrecursionlimit(3000)", "sys.setrecursionlimit(1000)")
state("argv", "len(sys.argv)", "sys.argv.append('x')", "sys.argv.pop()")
state("path", "len(sys.path)", "sys.path.append('x')", "sys.path.pop()")
state("modules", "len(sys.modules)", "sys.modules['zzz']=sys", "sys.modules.pop('zzz')")
state("inmodules", "'zzz' in sys.modules", "sys.modules['zzz']=sys", "sys.modules.pop('zzz')")
state("environ", "len(os.environ)", "os.environ['ZZZ']='1'", "os.environ.pop('ZZZ')")
state("environ_in", "'ZZZ' in os.environ", "os.environ['ZZZ']='1'", "os.environ.pop('ZZZ')")
state("getenv", "len(os.getenv('ZZZ','abc'))", "os.environ['ZZZ']='1'", "os.environ.pop('ZZZ')")
state("environ_dict", "len(dict(os.environ))", "os.environ['ZZZ']='1'", "os.environ.pop('ZZZ')")
state("cwd", "len(os.getcwd())", "old=os.getcwd(); os.chdir('/')", "os.chdir(old)")
state("exists", "os.path.exists(PATH)", "open(PATH,'w').close()", "os.unlink(PATH)")
state("isfile", "os.path.isfile(PATH)", "open(PATH,'w').close()", "os.unlink(PATH)")
state("islink", "os.path.islink(PATH)", "os.symlink('/tmp',PATH)", "os.unlink(PATH)")
state("abspath", "len(os.path.abspath('a'))", "old=os.getcwd(); os.chdir('/')", "os.chdir(old)")
state("findspec", "importlib.util.find_spec('zzq_mod') is None", "import importlib.util", "pass")
state("gc", "gc.isenabled()", "gc.disable()", "gc.enable()")
state("switch", "sys.getswitchinterval()>1", "sys.setswitchinterval(2)", "sys.setswitchinterval(0.005)")
state("warnfilters", "len(warnings.filters)", "warnings.simplefilter('ignore')", "pass")
