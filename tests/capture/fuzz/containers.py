"""Statements and expressions on the containers that a bag holds: every builtin kind, and subclasses of them.

A bag has `queue` (a bounded deque), `names` (an OrderedDict), `group` (a defaultdict of lists), `seen` (a set), `tally`
(a Counter), `pile` (a list of its own class), `shelf` (a dict with `__missing__`), `row` (a deque), `spot`.
"""

from __future__ import annotations

from tests.capture.fuzz.expressions import Expressions
from tests.capture.fuzz.page import KEYS, LISTS

#: The text of the classes, and of what a bag's `__init__` does besides.
CLASSES = """
class Pile(list):
    limit = 5

    def top(self, default=0):
        return self[-1] if self else default

    def append(self, item):
        if len(self) < self.limit:
            super().append(item)


class Shelf(dict):
    def __missing__(self, key):
        return len(key)

    @property
    def size(self):
        return len(self)


class Row(collections.deque):
    pass


@dataclasses.dataclass(order=True)
class Spot:
    x: int = 0
    y: int = 1
    parts: list = dataclasses.field(default_factory=list, compare=False)

    @property
    def area(self):
        return self.x * self.y

    def moved(self, *, x=0, self_=1, **tx):
        return Spot(self.x + x, y=self.y + self_ + len(tx))


def keywords(*args, **kwargs):
    return len(args) + sum(kwargs.values())
"""
HELD = (
    "self.queue = collections.deque([1, total], 3)",
    "self.names = collections.OrderedDict(p=total, q=2)",
    "self.group = collections.defaultdict(list, p=[total])",
    "self.seen = {1, total}",
    "self.tally = collections.Counter(p=2)",
    "self.pile = Pile([total, 1])",
    "self.shelf = Shelf(p=total)",
    "self.row = Row([3, total])",
    "self.spot = Spot(total)",
)

ORDERED = ("bag.queue", "bag.pile", "bag.row")
MAPPINGS = ("bag.names", "bag.shelf", "bag.tally")


class Containers(Expressions):
    """Writes about containers."""

    def contain(self, depth: int) -> None:
        """A container changes, or is read; what it raises is handled, or not."""
        line = self.change_held()
        if self.chance(0.35):
            error = self.any(
                "IndexError", "KeyError", "TypeError", "ValueError", "(LookupError, AttributeError)", "Exception"
            )
            self.put("try:")
            self.put(f"    {line}")
            self.put(f"except {error} as error:")
            self.put(f"    {self.any('xs', 'ys')}.append({self.any('len(str(error))', 'len(error.args)', '7')})")
        else:
            self.put(line)

    def change_held(self) -> str:
        """One line that changes a container."""
        name, other, key = self.any(*ORDERED), self.any(*ORDERED, *LISTS), self.any(*KEYS)
        mapping, value = self.any(*MAPPINGS), self.integer(2)
        return self.any(
            f"{name}.append({value})",
            f"{name}.{self.any('pop()', 'reverse()', 'clear()', 'insert(1, 5)', 'insert(0, a)', f'remove({value})')}",
            f"{name}.extend({self.any(*LISTS, '(c + 1 for c in ys)', 'bag.seen and [9]', 'bag.names.values()')})",
            f"{name} += {self.any(*LISTS, 'range(2)', '(a, b)')}",
            f"bag.queue.{self.any('appendleft(b)', 'popleft()', 'rotate(a)', 'extendleft(xs)', 'rotate()')}",
            f"bag.row = bag.row {self.any('+ bag.row', '* 2')}" if self.chance(0.5) else "bag.row = bag.row.copy()",
            f"bag.pile[{self.any(':1', '1:', '-1:', '::2')}] = {self.sequence(2)}",
            f"del bag.pile[{self.any('0', '-1', '1:', 'a')}]",
            f"bag.pile.sort({self.any('', 'reverse=True', 'key=lambda c: -c', 'key=abs, reverse=b')})",
            f"{mapping}[{key!r}] = {value}",
            f"{mapping}.update("
            f"{self.any('d', f'{key}={value}', f'd, {key}={value}', '[(chr(112), 3)]', 'other=4, self=1')})",
            f"{mapping}."
            f"{self.any(f'pop({key!r}, 0)', f'pop({key!r})', 'popitem()', f'setdefault({key!r}, b)', 'clear()')}",
            f"bag.names."
            f"{self.any(f'move_to_end({key!r})', f'move_to_end({key!r}, last=False)', 'popitem(last=False)')}",
            f"bag.names = "
            f"{self.any('bag.names | d', 'bag.names.copy()', 'collections.OrderedDict.fromkeys(d, value=a)')}",
            f"bag.shelf = {self.any('Shelf(bag.shelf)', 'Shelf.fromkeys(d, b)', 'Shelf(**d)', 'Shelf(d, other=a)')}",
            f"bag.shelf {self.any('|=', '|=')} {self.any('d', 'bag.names', '[(chr(113), b)]')}",
            f"bag.group[{key!r}].append({value})",
            f"bag.group[{key!r}] += {self.any(*LISTS)}[:2]",
            f"del bag.group[{key!r}]",
            f"bag.seen."
            f"{self.any(f'add({value})', f'discard({value})', f'remove({value})', 'update(xs, ys)', 'clear()')}",
            f"bag.seen {self.any('|=', '&=', '-=', '^=')} {self.any('{1, 2, a}', 'set(xs)', 'd.keys() and {3}')}",
            f"bag.seen."
            f"{self.any('intersection_update(xs)', 'difference_update(ys)', 'symmetric_difference_update(xs)')}",
            f"bag.tally.update({self.any('d', 'p=1', '[chr(112), chr(113)]')})",
            f"bag.tally[{key!r}] {self.any('+=', '-=')} {value}",
            f"bag.spot.{self.any('x', 'y')} {self.any('=', '+=')} {value}",
            f"bag.spot = bag.spot.moved({self.any('', 'x=2', 'x=a, self_=b', 'tx=1, cls=2')})",
            f"bag.spot = dataclasses.replace(bag.spot, {self.any('x', 'y')}={value})",
            f"bag.spot.parts.{self.any('append(a)', 'append(bag.pile)', 'extend(xs)')}",
            f"bag.pile = {self.any('Pile(xs)', 'Pile(bag.queue)', 'Pile(c for c in ys)', 'copy.copy(bag.pile)')}",
            f"bag.{self.any('queue', 'row')} = copy.{self.any('copy', 'deepcopy')}(bag.queue)",
            f"xs = {self.any('list', 'sorted')}({other})",
        )

    def held(self) -> str:
        """An int that is read from a container."""
        name, key, mapping = self.any(*ORDERED), self.any(*KEYS), self.any(*MAPPINGS)
        value = self.integer(2)
        return self.any(
            f"len({self.any(name, mapping, 'bag.seen', 'bag.group')})",
            f"{name}[{self.any('0', '-1', 'a', '1')}]",
            f"{name}.{self.any('index', 'count')}({value})",
            f"sum({self.any(name, 'bag.seen', f'{mapping}.values()')})",
            f"max({self.any(name, 'bag.seen')}, default=0)",
            f"{mapping}[{key!r}]",
            f"{mapping}.get({key!r}, {value})",
            f"len(bag.group[{key!r}])",
            f"({value} in {self.any(name, 'bag.seen', 'bag.names.values()')}) + 1",
            f"({key!r} in {self.any(mapping, 'bag.group', 'd.keys() & bag.names.keys()')}) * 2",
            f"len({{*{name}, *bag.seen}} {self.any('|', '&', '-')} {self.any('{1, 2}', 'set(xs)')})",
            f"({self.any('bag.queue == xs', 'bag.pile == xs', 'bag.pile < ys')}) + 3",
            f"({self.any('bag.names == d', 'bag.shelf == d', 'bag.names == bag.shelf')}) + 3",
            f"keywords(*{name}, {self.any('self=1', 'tx=2, args=3', '**bag.names', '**bag.shelf, other=2')})",
            f"bag.spot.{self.any('area', 'x', 'moved(x=1).area', 'moved(tx=1).y')}",
            "(bag.spot < Spot(1, 2)) + len(repr(bag.spot))",
            f"len(str({self.any(name, mapping, 'bag.group')}))",
            "bag.pile.top()",
            "bag.shelf.size + bag.shelf['zz']",
            f"[*{name}, *{mapping}.values()][{self.any('0', '-1')}]",
            f"dict(zip({mapping}, {name})).get({key!r}, 0)",
            "len(bag.tally.most_common(1))",
        )
