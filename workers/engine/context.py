"""Context that a model runner's ops share: specification, buffers, streams, captures."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from scenarios.spec import EngineSpec
from workers.engine.captures import Captures
from workers.engine.functions import EngineFunctions
from workers.engine.memory import Memory, ShapeView, View
from workers.kernels.argument import Arguments
from workers.lanes.lane import A, Lane, Span

Ts = TypeVarTuple("Ts")
V = TypeVar("V", bound=ShapeView)
B = TypeVar("B", bound=Arguments)
# Number of argument objects kept for launches: a view needs a few, depending on the lengths of its rows.
BUILT_MAX = 4096


@dataclass(slots=True)
class Context:
    """Specification, buffers, streams and captures that a model runner's ops share."""

    spec: EngineSpec
    functions: EngineFunctions
    memory: Memory
    captures: Captures
    compute: Lane
    h2d: Lane
    d2h_output: Lane
    d2h_counts: Lane
    built: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    fixed: dict[type[Arguments], dict[str, Span | int]] = field(default_factory=dict)

    def cached(self, build: Callable[["Context", *Ts], A], *given: *Ts) -> A:
        """Return `build(context, *given)`; cached by `build` and `given`.

        A lane identifies an arguments object by its identity, and checks an object that it has not seen before.
        """
        found: A | None = self.built.get((build, given))
        # Calling with one tuple makes no list; calling with `self` and a tuple would.
        return self._keep((build, given), partial(build, self)(*given)) if found is None else found  # type: ignore[call-arg]

    def cached_in_view(self, build: Callable[["Context", V], A], view: V) -> A:
        """Return `build(context, view)`; cached in the view, so once per batch shape."""
        found: A | None = view.built.get(build)
        if found is None:
            assert view.num_rows <= self.memory.rows_max, (
                f"the view has {view.num_rows} rows, memory has {self.memory.rows_max}"
            )
            found = view.built[build] = build(self, view)
        return found

    def arguments(self, op: Callable[[*Ts], A], *given: *Ts) -> A:
        """Return the arguments object of an op; cached, so the same object for equal values."""
        found: A | None = self.built.get((op, given))
        return self._keep((op, given), op(*given)) if found is None else found

    def bound(
        self, op: type[B], view: ShapeView, own: Mapping[str, Span | int] | None = None, /, **named: Span | int
    ) -> B:
        """Return the arguments of an op, each looked up by its name: span, buffer or size.

        Given values are in `own` and `named`; buffers and sizes are those of the memory and of the specification.

        Raises:
            TypeError: no value has the name of an argument, or the op allows several span names and none is given here.
        """
        assert named.keys() <= op.declared.keys(), f"{op.__name__} has no argument {named.keys() - op.declared.keys()}"
        given = {**own, **named} if own else named
        fixed = self.fixed.get(op)
        if fixed is None:
            fixed = self.fixed[op] = dict(self._shape_independent_arguments(op, view, given))
        values = {**vars(view), **fixed, **given}
        return op(*map(values.__getitem__, op.declared))

    def _shape_independent_arguments(
        self, op: type[Arguments], view: ShapeView, given: Container[str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the op arguments that do not depend on the batch shape."""
        for name, declared in op.declared.items():
            if name in given or (declared is not None and not declared.of and hasattr(view, name)):
                continue
            holder = self.memory if hasattr(self.memory, name) else self.spec
            found = getattr(holder, name, None)
            if found is None or (declared is not None and declared.of):
                raise TypeError(f"{op.__name__}.{name}: no span, buffer or number has this name; pass it at the launch")
            yield name, found if declared is None else found.all

    def _keep(self, key: tuple[Any, ...], made: A) -> A:
        assert made is not None, f"building {key} returned None, which cannot be cached"
        assert key not in self.built, f"{key} was built twice, but lanes identify arguments by identity"
        if len(self.built) >= BUILT_MAX:
            self.built.clear()
        self.built[key] = made
        return made


def arguments_of(op: type[B], *names: str, **spans: str) -> Callable[..., B]:
    """Return a function that builds the arguments of `op` from context, view and values.

    `spans` maps an argument to the span of the view that it uses, if that has another name; see `Context.bound`.
    """

    def build(context: Context, view: ShapeView, *values: Span | int) -> B:
        others = {name: getattr(view, span) for name, span in spans.items()}
        return context.bound(op, view, others, **dict(zip(names, values, strict=True)))

    return build


class SpecialRows(NamedTuple):
    """Indexes of batch rows with sampling parameters, logprobs, a grammar, or corrupted logits.

    The groups in `memory.NAMED` are copied to the device.

    Sampling parameters change the logits of `processed` rows, an event corrupts those of `spoiled` rows. `logprobs`
    rows return logprobs, `grammar` rows follow a grammar. `random` rows are sampled with a temperature; `limited` rows
    also use top-k or top-p.
    """

    processed: tuple[int, ...]
    spoiled: tuple[int, ...]
    logprobs: tuple[int, ...]
    grammar: tuple[int, ...]
    random: tuple[int, ...]
    limited: tuple[int, ...]


class Forward(NamedTuple):
    """Device work of one step: buffer spans, requests by batch row, and upper bounds of sizes.

    `num_blocks_max` bounds the KV-cache blocks that any row reads, `num_queries_max` its tokens; `k_step` draft tokens
    are proposed. The first `num_common_blocks` blocks are full and the same for every row.
    """

    step: int
    view: View
    requests: tuple[int, ...]
    k_step: int
    named: SpecialRows
    num_blocks_max: int = 1
    num_queries_max: int = 1
    num_common_blocks: int = 0
