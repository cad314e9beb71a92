"""`explain(fn)(*args)`: run once, and say what was compiled, what was not, and why.

Everything comes from the records and spans that the packages leave in `base.log` while the function compiles; this file
only gathers them into one small record and prints it. The function is compiled anew, so that what an earlier call has
already compiled is explained as well. Neighbours: `stator.api`, `base/log.py` (the kinds and their facts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stator.api import compile as compile_
from stator.api import decide
from stator.base import log
from stator.base.errors import Location, UnknownStep
from stator.inspect.question import Question

#: How many guards the report lists; large models have hundreds.
SHOWN_GUARDS = 25


@dataclass(frozen=True, slots=True)
class Graph:
    """One captured graph and the operators that it calls."""

    name: str
    ops: int
    operators: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Break:
    """One place where Python had to take over."""

    reason: str
    location: Location | None
    hint: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds that a call of a graph was measured to take, backward included, or why not; see docs/speed.md."""

    graph: str
    compiled: float
    eager: float
    slower: bool
    why: str = ""
    runs_eager: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """One place where a pattern was found, and replaced unless it says why not; see docs/patterns.md."""

    pattern: str
    location: Location | None
    refused: str = ""

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location is not None else ""
        return f"{self.pattern}{place}" + (f" was left as it is: {self.refused}" if self.refused else " was replaced")


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of stator's own, after which the program went on in eager PyTorch."""

    stage: str
    error: str
    location: Location | None
    artifacts: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one compilation did; printing it gives the report. Kernels and externs are listed once a launch, products
    where they were measured; `recordings` say of each graph what a device records of its calls, where that was asked.

    `memory` has for each graph the bytes that running it is predicted to take, besides inputs and parameters.
    """

    graphs: tuple[Graph, ...]
    breaks: tuple[Break, ...]
    guards: tuple[str, ...]
    kernels: tuple[str, ...]
    externs: tuple[str, ...]
    patterns: tuple[Replacement, ...]
    products: tuple[str, ...]
    recordings: tuple[str, ...]
    recompiles: tuple[str, ...]
    speed: tuple[Speed, ...]
    faults: tuple[Fault, ...]
    memory: tuple[Mapping[str, int], ...]
    cache_hits: int
    cache_misses: int
    seconds: Mapping[str, float]
    result: Any = None
    #: What is kept of each graph for `why`: the graph, with the tensors that it was compiled for.
    questions: Mapping[str, Question] = field(default_factory=dict, repr=False)

    @property
    def operators(self) -> Counter[str]:
        """How often each operator is called, over all graphs."""
        total: Counter[str] = Counter()
        for graph in self.graphs:
            total.update(graph.operators)
        return total

    def why(self, one: str, other: str) -> str:
        """Why two steps are not one kernel, or that they are, a line for each graph that has both.

        A step is a node of a graph or a kernel, as the artifacts and this report name them: `mul_3`, `backward.sum_2`,
        `softmax_k0`. Answering takes as long as tracing and scheduling the graphs. Raises `UnknownStep`.
        """
        told: list[str] = []
        unknown: UnknownStep | None = None
        for name, question in self.questions.items():
            try:
                answer = question.ask(one, other)
            except UnknownStep as missing:
                unknown = missing
                continue
            told.append(f"{name}, {answer}" if len(self.questions) > 1 else answer)
        if not told:
            raise unknown or UnknownStep(one, ())
        return "\n".join(told)

    @classmethod
    def of(cls, recorder: log.Recorder, result: Any = None) -> Explanation:
        """The records and spans of one `log.collect()`."""
        hits = [bool(facts["hit"]) for facts in recorder.of(log.CACHE) if "hit" in facts]
        launched = recorder.of(log.KERNELS)
        return cls(
            graphs=tuple(
                Graph(str(facts.get("name", "graph")), int(facts.get("ops", 0)), dict(facts.get("operators") or {}))
                for facts in recorder.of(log.GRAPH)
            ),
            breaks=tuple(_break(facts) for facts in recorder.of(log.BREAK)),
            guards=tuple(str(guard) for facts in recorder.of(log.GUARDS) for guard in facts.get("guards", ())),
            kernels=tuple(f"{facts['graph']}.{name}" for facts in launched for name in facts["names"]),
            externs=tuple(str(name) for facts in launched for name in facts["externs"]),
            patterns=tuple(
                Replacement(str(facts["name"]), _location(facts), str(facts["refused"]))
                for facts in recorder.of(log.PATTERN)
            ),
            products=tuple(str(facts["told"]) for facts in recorder.of(log.PRODUCT)),
            recordings=tuple(f"{facts['graph']} {facts['told']}" for facts in recorder.of(log.RECORDING)),
            recompiles=tuple(str(facts.get("reason", "")) for facts in recorder.of(log.RECOMPILE)),
            speed=tuple(Speed(**facts) for facts in recorder.of(log.SPEED)),
            faults=tuple(_fault(facts) for facts in recorder.of(log.FAULT)),
            memory=tuple(dict(facts) for facts in recorder.of(log.MEMORY)),
            cache_hits=sum(hits),
            cache_misses=len(hits) - sum(hits),
            seconds=recorder.seconds(),
            result=result,
            questions={str(facts["graph"]): facts["question"] for facts in recorder.of(log.FUSION)},
        )

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [Text(self._headline(), style="bold")]
        parts += [_fault_text(item) for item in self.faults]
        parts += [_break_text(item) for item in self.breaks]
        parts += [Text(f"compiled again: {reason}", style="yellow") for reason in self.recompiles]
        counted = Counter(map(str, self.patterns)).items()
        parts += [Text(f"pattern: {item}" + (f" ({count} times)" if count > 1 else "")) for item, count in counted]
        parts += [Text(f"product: {told}") for told in self.products]
        parts += [Text(f"recording: {told}") for told in self.recordings]
        parts += [_speed_text(item) for item in self.speed]
        parts += [Text(_memory_text(facts)) for facts in self.memory]
        if self.graphs:
            parts.append(_table("graphs", ("name", "operators"), [(g.name, str(g.ops)) for g in self.graphs]))
        if self.operators:
            parts.append(_table("operators", ("operator", "calls"), _counted(self.operators)))
        if self.kernels:
            parts.append(_table("kernels", ("kernel", "launches"), _counted(Counter(self.kernels))))
        if self.externs:
            parts.append(_table("externs", ("operator of PyTorch", "calls"), _counted(Counter(self.externs))))
        if self.seconds:
            stages = sorted(self.seconds.items(), key=lambda item: -item[1])
            parts.append(_table("time", ("stage", "ms"), [(name, f"{s * 1e3:.1f}") for name, s in stages]))
        if self.guards:
            rows: list[tuple[str, ...]] = [(guard,) for guard in self.guards[:SHOWN_GUARDS]]
            if left := len(self.guards) - len(rows):
                rows.append((f"… and {left} more, in `guards`",))
            parts.append(_table("guards", ("compiled code is valid while",), rows))
        return Group(*parts)

    def _headline(self) -> str:
        counts = (
            (len(self.graphs), "graph"),
            (len(self.breaks), "break"),
            *([(len(self.faults), "fault")] if self.faults else []),
            (len(set(self.kernels)), "kernel"),
            (len(self.externs), "extern call"),
            (len(self.guards), "guard"),
        )
        text = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
        if self.cache_hits or self.cache_misses:
            text += f", cache: {self.cache_hits} of {self.cache_hits + self.cache_misses} found"
        return text

    def __str__(self) -> str:
        console = Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get()


def explain(fn: Callable[..., Any], **arguments: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args, **kwargs)` compiles `fn`, calls it once and tells what happened.

    `arguments` are those of `stator.compile`. The value of the call is in the explanation's `result`.
    """

    compile_(fn, **arguments)  # a mistake in the arguments is told here
    arguments = _measuring(**arguments)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        compiled = compile_(fn, **arguments)
        with log.collect() as recorder:
            result = compiled(*args, **kwargs)
        return Explanation.of(recorder, result)

    return explained


def _measuring(**arguments: Any) -> dict[str, Any]:
    """The arguments, checked, with the speed of compiled code measured unless the user has decided about that."""
    names = ("backend", "fullgraph", "mode", "options", "dynamic")
    settings = decide(**{name: value for name, value in arguments.items() if name in names})
    if settings.options.check_speed != "auto" or settings.backend_name != "inductor":
        return arguments
    return {**arguments, "options": {**(arguments.get("options") or {}), "check_speed": "measure"}}


def _break(facts: Mapping[str, Any]) -> Break:
    return Break(str(facts.get("reason", "")), _location(facts), str(facts.get("hint") or ""))


def _fault(facts: Mapping[str, Any]) -> Fault:
    return Fault(str(facts["stage"]), str(facts["error"]), _location(facts), str(facts["artifacts"]))


def _location(facts: Mapping[str, Any]) -> Location | None:
    file = facts.get("file")
    return Location(str(file), int(facts.get("line") or 0)) if file else None


def _break_text(item: Break) -> Text:
    text = Text("break: " + item.reason, style="red")
    if item.location is not None:
        text.append(f"\n  at {item.location}", style="default")
    if item.hint:
        text.append(f"\n  hint: {item.hint}", style="default")
    return text


def _speed_text(item: Speed) -> Text:
    """One line; in colour, and with a hint, where it is the wrong way round."""
    if item.why:
        return Text(f"speed: {item.graph} was not timed against eager: {item.why}")
    figures = f"{item.compiled * 1e3:.3g} ms a call, in eager PyTorch {item.eager * 1e3:.3g} ms"
    if item.runs_eager:
        return Text(f"speed: {item.graph} runs in eager PyTorch, which is faster: compiled, it takes {figures}")
    if not item.slower:
        return Text(f"speed: {item.graph} takes {figures}")
    hint = "options={'check_speed': 'eager'} lets it run in eager"
    return Text(f"slower than eager: {item.graph} takes {figures}\n  hint: {hint}", style="red")


def _fault_text(item: Fault) -> Text:
    """What failed, where, and what shows it."""
    text = Text(f"fault of stator: {item.stage} raised {item.error}, and ran in eager PyTorch", style="bold red")
    if item.location is not None:
        text.append(f"\n  at {item.location}", style="default")
    if item.artifacts:
        text.append(f"\n  hint: please report it with {item.artifacts}", style="default")
    return text


def _memory_text(facts: Mapping[str, int]) -> str:
    """One line: the most at once, and of it what backward needs and what is kept between calls."""
    mib = {name: f"{nbytes / (1 << 20):.1f}" for name, nbytes in facts.items()}
    text = f"memory: at most {mib['peak']} MiB at once"
    if facts["backward"]:
        text += f" (forward {mib['forward']}, backward {mib['backward']}), saved {mib['saved']}"
    kept = f", kept of parameters {mib['kept']}" if facts["kept"] else ""
    return f"{text}, arena {mib['arena']}{kept}"


def _counted(counter: Counter[str]) -> list[tuple[str, ...]]:
    return [(name, str(count)) for name, count in counter.most_common()]


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(*columns, title=title, title_justify="left", header_style="dim", box=None, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
