"""Builtin containers and those of collections: read, changed in place, made."""

import collections

import torch

from tests.capture.programs.table import program, x


@program(lambda: (x(), [1, 2, 3]))
def list_methods(x, items):
    items.append(4)
    items.extend([5, 6])
    items.insert(0, 0)
    items.remove(2)
    last = items.pop()
    first = items.pop(0)
    items.reverse()
    return x * last + first, items.index(3), items.count(5)


@program(lambda: (x(), []))
def list_of_tensors_grows(x, items):
    items.append(x * 2)
    items.append(items[-1] + 1)
    return sum(items)


@program()
def list_slices(x):
    items = [x * i for i in range(5)]
    items[1:3] = [x]
    del items[0]
    items[-1] += 1
    return items[::2], items[:1] + items[-1:], items * 1


@program(lambda: (x(), [3, 1, 2]))
def list_sort(x, items):
    items.sort(key=lambda n: -n)
    return x + items[0], sorted(items), items


@program()
def list_comparison(x):
    return x + ([1, 2] == [1, 2]) + ([1] < [2]), [1] != (1,), [1, [2]] == [1, [2]]


@program()
def list_copy_is_new(x):
    a = [x]
    b, c, d = a.copy(), list(a), a[:]
    return a, b, c, d, b is a, b[0] is a[0], x + 1


@program()
def nested_lists(x):
    grid = [[x * (i + j) for j in range(2)] for i in range(2)]
    grid[0][1] = grid[1]
    return grid


@program()
def list_contains_itself(x):
    a = [x + 1]
    a.append(a)
    return a


@program()
def tuples(x):
    t = (x, 1, (2, x))
    return t[1:], t[-1][0], t + (3,), t[0] + 1, (1, 2) * 2, len(t), (1, 2) < (1, 3), (1,).count(1)


@program()
def starred(x):
    a, *b, c = [x, 1, 2, x * 2]
    return [*b, a], (*b, *b), {*b}, c


@program()
def swap(x):
    a, b = x, x + 1
    a, b = b, a
    return a, b


@program(lambda: (x(), {"a": 1, "b": 2}))
def dict_methods(x, d):
    d["c"] = d.pop("a") + d.get("zzz", 10)
    d.setdefault("e", 7)
    d.update({"b": 3}, f=8)
    return x * sum(d.values()), list(d), d.popitem()


@program(lambda: (x(), {"w": x()}))
def dict_of_tensors_written(x, d):
    d["w"] = d["w"] + x
    d["new"] = x * 2
    return d


@program()
def dict_display(x):
    d = {"a": x, **{"b": x + 1}, "a": x * 2}
    return d, {**d, "c": 3}, d | {"z": 1}, dict(d, q=2), list(d.items())[0][0]


@program()
def dict_iteration(x):
    d = {"b": 2, "a": 1}
    return [x * v for v in d.values()], [k for k in d], list(zip(d, d.values())), sorted(d)


@program()
def dict_views(x):
    a, b = {"k": 1, "m": 2}, {"k": 1}
    return x + len(a.keys() & b.keys()), a.keys() - b.keys(), "k" in a.keys(), ("k", 1) in a.items(), 2 in a.values()


@program()
def dict_deletion(x):
    d = {"a": x, "b": 1}
    del d["b"]
    d.pop("zzz", None)
    try:
        d["b"]
    except KeyError as error:
        return d["a"] + 1, error.args, d


@program()
def dict_keys_of_many_kinds(x):
    d = {1: x, (1, 2): x + 1, None: x * 2, torch.float32: 3, int: 4, frozenset([1]): 5}
    return d[1] + d[(1, 2)] + d[None], d[torch.float32], d[int], d[frozenset([1])]


@program()
def dict_comparison(x):
    return x + ({"a": 1} == {"a": 1}) + ({} != {"b": 2}), dict.fromkeys(["a", "b"], 0)


@program(lambda: (x(), {"n": {"m": [1]}}))
def nested_containers_changed(x, d):
    d["n"]["m"].append(2)
    d["n"]["k"] = x + 1
    return x * len(d["n"]["m"])


@program(lambda: (x(), {1, 2}))
def set_methods(x, s):
    s.add(3)
    s.discard(1)
    s |= {9}
    return x * len(s), s & {3}, s - {3}, s ^ {3, 4}, s >= {9}, 2 in s, s.isdisjoint({100})


@program()
def frozen_sets(x):
    f = frozenset([1, 2])
    return x + len(f), f | {3}, f == {1, 2}, {f: 1}[frozenset([2, 1])]


@program()
def set_of_tensors(x):
    s = {x}
    return x in s, len({x, x}), x + 1


@program(lambda: (x(), collections.deque([1, 2], maxlen=3)))
def deque(x, d):
    d.append(3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    return x * d[0] + d.pop() + d.popleft(), len(d), list(d), d.maxlen


@program()
def deque_made_inside(x):
    d = collections.deque([x])
    d.append(x + 1)
    d.extendleft([x * 2])
    return d, sum(d)


@program(lambda: (x(), collections.OrderedDict(a=1, b=2)))
def ordered_dict(x, d):
    d.move_to_end("a")
    d["c"] = 3
    first = next(iter(d))
    return x * d[first], list(d), d.popitem(last=False)


@program()
def ordered_dict_made_inside(x):
    d = collections.OrderedDict([("a", x)])
    d["b"] = x * 2
    return d, d == {"a": d["a"], "b": d["b"]}.keys()


@program(lambda: (x(), collections.defaultdict(list)))
def default_dict(x, d):
    d["a"].append(1)
    d["b"].append(x + 1)
    return x * len(d["a"]), "zzz" in d, len(d)


@program()
def default_dict_made_inside(x):
    d = collections.defaultdict(lambda: x)
    d["a"] = d["a"] + 1
    return d["a"], d["b"], list(d)


@program()
def counter(x):
    c = collections.Counter("abracadabra")
    c.update("a")
    c["z"] += 2
    return x * c["a"] + c["nothing"], c.most_common(1), sum(c.values())


@program(lambda: (x(), collections.Counter(a=1)))
def counter_argument(x, c):
    c["a"] += 1
    return x * c["a"] + c["missing"]


@program()
def counter_arithmetic(x):
    a, b = collections.Counter(k=3, m=1), collections.Counter(k=1)
    return x + (a + b)["k"] + (a - b)["k"], sorted((a & b).elements())


@program()
def chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x * m["a"] + m["b"], len(m)


@program()
def list_unpacked_into_call(x):
    return torch.stack([*[x, x], x]), torch.cat(tuple([x, x]), dim=1)


@program(lambda: ([torch.ones(2), torch.zeros(2)],))
def list_argument(tensors):
    a, b = tensors
    return a + b, tensors[0] is a


@program(lambda: ({"x": torch.ones(2), "deep": [{"y": torch.ones(2) * 2}]},))
def nested_argument(tree):
    return tree["x"] + tree["deep"][0]["y"]


@program(lambda: (x(), (1, [2, {"k": 3}])))
def constants_in_containers(x, tree):
    return x * tree[0] + tree[1][0] * tree[1][1]["k"]


@program(lambda: (x(), [0.5] * 3, [None, "a"]))
def lists_of_constants(x, floats, odd):
    return x * floats[1], odd[0] is None, odd[1]


@program()
def tuple_in_dict_in_list(x):
    return [{"k": (x, [x + 1])}, {"k": ()}]


@program()
def same_object_twice_in_result(x):
    y = x + 1
    items = [y]
    return items, items, y, {"again": items}


@program(lambda: (x(), [1]))
def argument_in_result(x, items):
    items.append(2)
    return x + 1, items, x


@program(lambda: (x(), [[0], [1]]))
def aliases_between_arguments(x, rows):
    rows[1] = rows[0]
    rows[0].append(5)
    return x + rows[1][-1]


@program()
def heap_and_bisect(x):
    import bisect
    import heapq

    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return x * heapq.heappop(h) + bisect.bisect([1, 2, 3], 2), heapq.nlargest(1, h)


@program(lambda: (x(), [5, 3, 8], [1, 4]))
def heap_and_order_of_arguments(x, heap, order):
    import bisect
    import heapq

    heapq.heapify(heap)
    heapq.heappushpop(heap, 4)
    heapq.heapreplace(heap, 7)
    bisect.insort(order, 3)
    bisect.insort_left(order, 4, key=lambda item: -item)
    return x * heapq.heappop(heap), list(heapq.merge(order, [0, 9])), heapq.nsmallest(2, heap)


@program()
def heap_of_tuples(x):
    import heapq

    heap = []
    for number, item in enumerate("cab"):
        heapq.heappush(heap, (item, number))
    return x * heap[0][1], heap


@program()
def copies(x):
    import copy

    a = {"k": [1, [2]], "x": x}
    b, c = copy.copy(a), copy.deepcopy({"n": [1]})
    b["k"].append(3)
    return a["k"], c, x + 1


@program()
def array_of_ints(x):
    from types import SimpleNamespace

    n = SimpleNamespace(a=1, b=x)
    n.c = n.b * n.a
    return n.c, n


@program()
def mapping_proxy(x):
    from types import MappingProxyType

    return x * MappingProxyType({"a": 2})["a"]


@program()
def in_operators(x):
    return x + (1 in [1]) + (2 not in (1,)) + ("a" in {"a": 1}), 3 in range(4), None in [None]


class Named:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return len(self.name)

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name


@program()
def keys_with_an_equality_of_their_own(x):
    d = {Named("a"): 2, Named("b"): 3}
    d[Named("c")] = 4
    d[Named("a")] += 1
    return x * d[Named("a")] + d[Named("b")], Named("b") in d, Named("zz") in d, len({Named("q"), Named("q")})


@program(lambda: (m := torch.nn.ReLU(), x(), {m: 2}))
def keys_that_are_modules(m, x, d):
    return m(x) * d[m], m in d, d.get(x)


@program()
def list_index_errors(x):
    try:
        [1].index(5)
    except ValueError:
        pass
    try:
        return [x][3]
    except IndexError as error:
        return x + 1, str(error)
