"""What no single graph can hold: each ends a graph, and the result is eager's."""

import torch

import stator
from tests.capture.programs.table import leaf, program, x

LOG = []


@program(breaks="data decides", graphs=2, operators=4)
def branch_on_data(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@program(breaks="data decides")
def loop_on_data(x):
    y = x.abs() + 1
    while y.sum() < 100:
        y = y * 2
    return y


@program(breaks="data leaves", graphs=2, operators=3)
def item(x):
    n = (x * 2).sum().item()
    return x + n, n


@program(breaks="data leaves", graphs=2, operators=2)
def to_list(x):
    values = (x * 2).tolist()
    return x + len(values), values


@program(breaks="data leaves")
def to_number(x):
    return x * int(x.sum() * 10) + float(x.max())


@program(breaks="data leaves", graphs=2, operators=2)
def numpy_round_trip(x):
    a = (x * 2).numpy()
    return torch.from_numpy(a + 1) * 2


@program(breaks="data decides", make=lambda: (x(), []), graphs=2, operators=4)
def branch_with_effects(x, log):
    log.append("before")
    y = x * 2
    if y.sum() > 0:
        log.append("positive")
    else:
        log.append("negative")
    log.append(y + 1)
    return y


@program(breaks="asked for", graphs=2, operators=2)
def graph_break(x):
    y = x * 2
    stator.graph_break()
    return y + 1


@program(breaks="asked for")
def graph_break_in_callee(x):
    def inner(y):
        z = y + 1
        stator.graph_break()
        return z * 2

    return inner(x * 3) + 1


@stator.disable
def outside(x):
    return x * float(x.sum())


@program(breaks="a disabled function", graphs=2, operators=2)
def disabled(x):
    return outside(x + 1) * 2


@program(breaks="data decides")
def break_in_loop(x):
    total = x
    for i in range(3):
        total = total + i
        if total.sum() > 1e6:
            break
    return total


@program(breaks="data decides", graphs=2, operators=4)
def break_in_try(x):
    try:
        y = x * 2
        if y.sum() > 1e6:
            raise ValueError
        return y + 1
    except ValueError:
        return x
    finally:
        LOG.append("finally")


@program(breaks="data decides", make=lambda: (leaf(),), graphs=2, operators=6)
def break_under_no_grad(x):
    with torch.no_grad():
        y = x * 2
        n = y.sum().item()
        z = y + n
    return z, x * 2


@program(breaks="data decides")
def break_with_locals(x):
    a, b, items = x + 1, [x * 2], {"k": 3}
    if a.sum() > 0:
        b.append(a)
    items["m"] = b
    return a, b, items


@program(breaks="data decides", graphs=2, operators=4)
def break_with_closure(x):
    count = 0

    def step(y):
        nonlocal count
        count += 1
        return y * count

    y = step(x)
    if y.sum() > 0:
        y = step(y)
    return step(y), count


@program(breaks="data decides")
def break_in_comprehension(x):
    return [row * 2 for row in x if row.sum() > 0]


@program(breaks="data decides")
def break_in_generator(x):
    def rows():
        for row in x:
            if row.sum() > 0:
                yield row * 2
            else:
                yield row

    return list(rows())


@program(breaks="data decides", graphs=2, operators=5)
def break_in_argument(x):
    return torch.add(x * 2, (x + 1).sum().item()) + 1


@program(breaks="data decides", graphs=2, operators=4)
def break_in_method(x):
    class_ = Holder()
    class_.run(x)
    return class_.value + 1


class Holder:
    def run(self, x):
        self.value = x * 2
        if self.value.sum() > 0:
            self.value = self.value + 1


@program(
    breaks="data decides",
    make=lambda: (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), x()),
    graphs=2,
    operators=7,
)
def break_between_modules(model, x):
    y = model(x)
    if y.sum() > 0:
        y = y * 2
    return model(y)


@program(breaks="data decides")
def break_in_while_condition(x):
    n = 0
    while (x * n).sum() < 1 and n < 3:
        n += 1
        x = x.abs() + 1
    return x, n


@program(breaks="data decides", graphs=2, operators=3)
def comparison_of_data(x):
    return x + 1 if bool((x == x).all()) else x


@program()
def assert_on_data(x):
    assert (x == x).all(), "no nan"
    return x + 1


@program(breaks="data decides")
def data_as_index(x):
    i = (x[0] > 0).sum().item() % 2
    return x[i] * 2


@program(breaks="data decides", graphs=2, operators=3)
def tensor_in_list(x):
    y = x[0, 0]
    return (y in [x[0, 0], 1]), x + 1


@program(breaks="data decides")
def max_of_tensors(x):
    return max(x[0, 0], x[0, 1]) * 2


@program(breaks="an unknown function of C")
def unknown_c_function(x):
    import zlib

    return x + zlib.crc32(b"abc") % 7


@program(breaks="a file is read")
def reads_a_file(x):
    with open(__file__) as file:
        line = file.readline()
    return x + len(line)


@program(breaks="the address of a tensor")
def data_pointer(x):
    return x + 1, x.data_ptr() == x.data_ptr()


@program(breaks="a thread")
def thread(x):
    import threading

    results = []
    t = threading.Thread(target=lambda: results.append(3))
    t.start()
    t.join()
    return x * results[0]


@program(breaks="frames are looked at")
def frame_introspection(x):
    import sys

    name = sys._getframe().f_code.co_name
    return x + len(name) * 0, name


@program(breaks="locals are looked at")
def locals_of_the_frame(x):
    n = 3
    return x * locals()["n"]


@program(breaks="a string is run")
def eval_of_text(x):
    return x + eval("1 + 2")


@program(breaks="garbage is collected")
def garbage_collection(x):
    import gc

    gc.collect()
    return x + 1


@program(breaks="data decides")
def break_with_exception_state(x):
    try:
        raise KeyError("k")
    except KeyError as error:
        if x.sum() > 1e6:
            return x
        return x + 1, str(error)


@program(breaks="data decides", graphs=2, operators=4)
def break_inside_user_context(x):
    log = []

    class Scope:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *args):
            log.append("out")

    with Scope():
        y = x * 2
        if y.sum() > 0:
            log.append("yes")
    return y + 1, log
