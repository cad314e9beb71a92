"""The with statement: context managers of users, contextlib, and torch's modes."""

import contextlib
import contextvars

import torch

from tests.capture.programs.table import leaf, program, x

DEPTH = 0
VARIABLE = contextvars.ContextVar("VARIABLE", default=1)


class Scope:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(None if kind is None else kind.__name__)
        return self.swallow


@program()
def of_a_class(x):
    log = []
    with Scope(log) as scope:
        y = x + 1
    return y, log, scope.swallow


@program(lambda: (x(), Scope([])))
def given(x, scope):
    with scope:
        x = x * 2
    return x


@program()
def swallows(x):
    log = []
    with Scope(log, swallow=True):
        raise ValueError
    return x + 1, log


@program()
def several(x):
    log = []
    with Scope(log), Scope(log) as second, contextlib.nullcontext(3) as n:
        y = x * n
    return y, log, second.swallow


@program()
def return_inside(x):
    log = []

    def f():
        with Scope(log):
            return x + 1

    return f(), log


@contextlib.contextmanager
def deeper():
    global DEPTH
    DEPTH += 1
    try:
        yield DEPTH
    finally:
        DEPTH -= 1


@program()
def contextmanager_function(x):
    with deeper() as a, deeper() as b:
        return x * a + b


@program()
def contextmanager_as_decorator(x):
    @deeper()
    def f(y):
        return y * DEPTH

    return f(x)


@program()
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(Scope(log))
        stack.callback(log.append, "callback")
        y = x + len(log)
    return y, log


@program()
def suppress(x):
    with contextlib.suppress(ValueError):
        raise ValueError
    return x + 1


@program()
def closing(x):
    class Resource:
        closed = False

        def close(self):
            self.closed = True

    with contextlib.closing(Resource()) as resource:
        y = x + 1
    return y, resource.closed


@program(lambda: (leaf(),), operators=4)
def no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y, x * 3


@program(lambda: (leaf(),))
def no_grad_decorator(x):
    @torch.no_grad()
    def f(y):
        return y * 2

    return f(x), x + 1


@program(lambda: (leaf(),))
def enable_grad_inside_no_grad(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        c = b + 1
    return a, b, c


@program(lambda: (leaf(),))
def set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        a = x * 2
    torch.set_grad_enabled(True)
    return a, x * 2, torch.is_grad_enabled()


@program(lambda: (leaf(),))
def set_grad_enabled_is_left(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y


@program(lambda: (leaf(),))
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y, x + 1


@program(lambda: (leaf(),))
def inference_mode_decorator(x):
    @torch.inference_mode()
    def f(a):
        return a * 2

    return f(x)


@program()
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.T
    return a, x @ x.T


@program()
def autocast_nested(x):
    with torch.autocast("cpu", torch.bfloat16):
        a = x @ x.T
        with torch.autocast("cpu", enabled=False):
            b = x @ x.T
    return a, b, torch.is_autocast_enabled("cpu")


@program()
def autocast_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def f(a):
        return a @ a.T

    return f(x)


@program(lambda: (torch.randn(1, 2, 4, 8),))
def sdpa_kernel(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


@program()
def profiler_range(x):
    with torch.profiler.record_function("scope"):
        y = x * 2
    return y


@program()
def exception_through_no_grad(x):
    try:
        with torch.no_grad():
            raise ValueError
    except ValueError:
        return x + torch.is_grad_enabled()


@program()
def generator_context_with_exception(x):
    log = []

    @contextlib.contextmanager
    def scope():
        try:
            yield
        except KeyError:
            log.append("key")

    with scope():
        raise KeyError
    return x + 1, log


@program()
def context_variable(x):
    token = VARIABLE.set(5)
    try:
        return x * VARIABLE.get()
    finally:
        VARIABLE.reset(token)


@program()
def context_variable_read(x):
    return x * VARIABLE.get()


@program(breaks="a lock")
def lock(x):
    import threading

    with LOCK:
        return x + 1


import threading  # noqa: E402

LOCK = threading.Lock()


@program()
def nullcontext_or_not(x):
    for manager in (contextlib.nullcontext(), torch.no_grad()):
        with manager:
            x = x + 1
    return x


@program()
def saved_context_object(x):
    scope = torch.no_grad()
    with scope:
        y = x + 1
    with scope:
        z = x + 2
    return y, z


@program()
def chained_managers_in_loop(x):
    log = []
    for i in range(3):
        with Scope(log):
            if i == 1:
                continue
            x = x + i
    return x, log


@program(breaks="it changes the random state")
def redirected_deterministic(x):
    with torch.random.fork_rng(devices=[]):
        y = x + 1
    return y


@program(lambda: (torch.nn.Linear(3, 3), x()))
def inference_mode_of_a_layer(layer, x):
    with torch.inference_mode():
        y = layer(x)
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), y.is_inference(), y.requires_grad
    return y, inside, torch.is_inference_mode_enabled(), layer(x)


@program(lambda: (leaf(),))
def inference_mode_between(x):
    a = x * 2
    with torch.inference_mode():
        b = a.sum()
        a.add_(b)
    return a + b


@program(lambda: (leaf(),), breaks="eager raises")
def inference_tensor_saved(x):
    with torch.inference_mode():
        b = x * 2
    return x * b


@program(breaks="a view of another tensor is no inference tensor")
def inference_mode_of_a_view(x):
    with torch.inference_mode():
        y = x[0]
    return y, x * 2


@program(lambda: (x(),), breaks="two results share memory")
def inference_tensors_together(x):
    with torch.inference_mode():
        y = x * 2
        z = y[0]
    return y, z


@program(lambda: (x(),), breaks="a number is read inside")
def inference_mode_with_a_break(x):
    with torch.inference_mode():
        y = x * 2
        n = y.sum().item()
        z = y + n
    return z, torch.is_inference_mode_enabled(), x + 1


@program(breaks="gradients are turned on inside")
def inference_mode_with_gradients(x):
    with torch.inference_mode(), torch.enable_grad():
        y = x * 2
    return y


@program(breaks="the mode is left")
def inference_mode_left(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = x * 3
    return y, z


@program(lambda: (leaf(),))
def inference_mode_twice(x):
    with torch.inference_mode():
        with torch.inference_mode():
            y = x.exp()
        z = y * 2
    with torch.inference_mode():
        y = x.sin()
    return y, z


@program(lambda: (torch.rand(2, 2),), breaks="the outer context is left first")
def autocasts_left_in_the_order_they_were_entered(x):
    outer, inner = torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    y = x @ x
    inner.__exit__(None, None, None)
    z = x @ x
    torch.set_autocast_enabled("cpu", False)
    return y, z


@program(breaks="the context that is left was not entered")
def inference_mode_left_without_being_entered(x):
    try:
        torch.inference_mode().__exit__(None, None, None)
    except AttributeError:
        return x * 2
    return x * 3


@program(lambda: (leaf(),))
def inference_mode_and_no_gradients(x):
    with torch.no_grad():
        with torch.inference_mode():
            y = x.exp()
        z = x * 2
    return y, z, torch.is_grad_enabled()


def inferred():
    with torch.inference_mode():
        return (torch.randn(2, 3),)


@program(inferred)
def inference_tensor_asked(x):
    return x.is_inference(), torch.is_inference(x), x + 1


@program(inferred, breaks="a view of an inference tensor")
def inference_tensors_view_asked(x):
    return x[0].is_inference(), x * 2


def made_contexts():
    yield torch.no_grad()
    yield torch.enable_grad()
    yield torch.set_grad_enabled(False)
    yield torch.autocast("cpu", dtype=torch.bfloat16)
    yield torch.inference_mode()
    yield torch.profiler.record_function("range")
    yield contextlib.nullcontext(3)
    yield contextlib.suppress(KeyError)


@program()
def contexts_on_a_stack(x):
    results = []
    for context in made_contexts():
        with contextlib.ExitStack() as stack:
            stack.enter_context(context)
            results.append((x.T @ x) * 2)
    return results


@program()
def contexts_by_the_methods_of_their_classes(x):
    results = []
    for context in made_contexts():
        type(context).__enter__(context)
        try:
            results.append((x.T @ x) * 2)
        finally:
            type(context).__exit__(context, None, None, None)
    return results


@program()
def stack_in_a_handler(x):
    with contextlib.ExitStack() as outer:
        outer.enter_context(contextlib.suppress(ValueError))
        try:
            x = x + {}["none"]
        except KeyError:
            with contextlib.ExitStack() as stack:
                stack.callback(int)
                x = x * 2
            raise ValueError("swallowed") from None
    return x


@program()
def exception_that_is_handled(x):
    import sys

    try:
        raise ValueError("first", 2)
    except ValueError:
        kind, error, trace = sys.exc_info()
        found = kind.__name__, error.args, trace is None
    return x + 1, found, sys.exc_info()[0] is None
