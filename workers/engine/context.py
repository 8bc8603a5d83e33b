"""Context of a model runner: what its parts share, from the specification to memory, lanes and captures."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from scenarios.spec import EngineSpec
from workers.engine.captures import Captures
from workers.engine.memory import Memory, ShapeView, View
from workers.engine.parts import Parts
from workers.kernels.argument import Arguments
from workers.lanes.lane import A, Lane, Span

Ts = TypeVarTuple("Ts")
V = TypeVar("V", bound=ShapeView)
B = TypeVar("B", bound=Arguments)
# As many arguments of launches are kept: a view each has a few, and varies with the lengths of its rows.
BUILT_MAX = 4096


@dataclass(slots=True)
class Context:
    """One model runner's wiring; everything in it lives as long as the engine."""

    spec: EngineSpec
    parts: Parts
    memory: Memory
    captures: Captures
    compute: Lane
    h2d: Lane
    d2h_output: Lane
    d2h_counts: Lane
    built: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    fixed: dict[type[Arguments], dict[str, Span | int]] = field(default_factory=dict)

    def once(self, build: Callable[["Context", *Ts], A], *given: *Ts) -> A:
        """Return the result of `build` for this context and these values: the same object for the same values.

        A lane knows arguments by their identity, and checks those it has not seen.
        """
        found: A | None = self.built.get((build, given))
        # A call of one tuple makes no list; one of `self` and a tuple would.
        return self._keep((build, given), partial(build, self)(*given)) if found is None else found  # type: ignore[call-arg]

    def of_view(self, build: Callable[["Context", V], A], view: V) -> A:
        """Return the result of `build` for this context and a view: the same object for the same view."""
        found: A | None = view.built.get(build)
        if found is None:
            assert view.num_rows <= self.memory.rows_max, f"a view of {view.num_rows} rows of another memory"
            found = view.built[build] = build(self, view)
        return found

    def arguments(self, op: Callable[[*Ts], A], *given: *Ts) -> A:
        """Return the arguments of an op, given in their order: the same object for the same values."""
        found: A | None = self.built.get((op, given))
        return self._keep((op, given), op(*given)) if found is None else found

    def bound(
        self, op: type[B], view: ShapeView, own: Mapping[str, Span | int] | None = None, /, **named: Span | int
    ) -> B:
        """Return the arguments of an op: those `named` here, and for each other one the value of the same name.

        That is one of the caller's `own`, a span of the view, a buffer, or a number of memory or specification.

        Raises:
            TypeError: no value has the name of an argument; or the op declares that another span may be meant,
                and none is named here.
        """
        assert named.keys() <= op.declared.keys(), f"{op.__name__} has no argument {named.keys() - op.declared.keys()}"
        given = {**own, **named} if own else named
        fixed = self.fixed.get(op)
        if fixed is None:
            fixed = self.fixed[op] = dict(self._fixed(op, view, given))
        values = {**vars(view), **fixed, **given}
        return op(*map(values.__getitem__, op.declared))

    def _fixed(self, op: type[Arguments], view: ShapeView, given: Container[str]) -> Iterator[tuple[str, Any]]:
        """Yield the arguments of an op that are the same for every view."""
        for name, declared in op.declared.items():
            if name in given or (declared is not None and not declared.of and hasattr(view, name)):
                continue
            holder = self.memory if hasattr(self.memory, name) else self.spec
            found = getattr(holder, name, None)
            if found is None or (declared is not None and declared.of):
                raise TypeError(f"{op.__name__}.{name}: nothing else bears this name, say at the launch what is meant")
            yield name, found if declared is None else found.all

    def _keep(self, key: tuple[Any, ...], made: A) -> A:
        assert made is not None, f"nothing was made of {key}: it would be made again at every launch"
        assert key not in self.built, f"{key} was made twice: a lane knows arguments by their identity"
        if len(self.built) >= BUILT_MAX:
            self.built.clear()
        self.built[key] = made
        return made


def arguments_of(op: type[B], *names: str, **spans: str) -> Callable[..., B]:
    """Return what builds the arguments of an op for a context, a view, and a value for each of `names`, in this order.

    `spans` says of an argument which span of the view it is, where that has another name; see `Context.bound`.
    """

    def build(context: Context, view: ShapeView, *values: Span | int) -> B:
        others = {name: getattr(view, span) for name, span in spans.items()}
        return context.bound(op, view, others, **dict(zip(names, values, strict=True)))

    return build


class NamedRows(NamedTuple):
    """Rows of a step with a way of sampling of their own; those in `memory.NAMED` are copied to the device.

    The logits of `processed` rows are changed by sampling parameters, those of `spoiled` rows by an event; `logprobs`
    rows want logprobs, `grammar` rows follow a grammar. `random` rows are sampled by chance, those of them that
    are `limited` from likely tokens alone.
    """

    processed: tuple[int, ...]
    spoiled: tuple[int, ...]
    logprobs: tuple[int, ...]
    grammar: tuple[int, ...]
    random: tuple[int, ...]
    limited: tuple[int, ...]


class Forward(NamedTuple):
    """One step as the device sees it: its padded spans, its rows' requests, and bounds that hold for every row.

    `num_blocks_max` bounds the blocks any row reads, `num_queries_max` its tokens; `k_step` drafts are proposed.
    The first `num_common_blocks` blocks are the same for every row, and full.
    """

    step: int
    view: View
    requests: tuple[int, ...]
    k_step: int
    named: NamedRows
    num_blocks_max: int = 1
    num_queries_max: int = 1
    num_common_blocks: int = 0
