"""All situations of each engine, in the order in which they change a random trace."""

from collections.abc import Iterable, Mapping
from typing import Any

from scenarios.capabilities import Capabilities
from scenarios.generation import windows
from scenarios.generation.base import BASE
from scenarios.generation.batches import BATCHES, no_drafts, pause_while_chunking, rows_swap_while_chunking
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.connector_layouts import PARTS
from scenarios.generation.connectors import CONNECTORS, may_have_connector
from scenarios.generation.features import FEATURES
from scenarios.generation.sessions import session_with_tight_pool
from scenarios.generation.situation import Generated, Situation, Stage
from scenarios.generation.sizes import SIZES
from scenarios.generation.weights import AREAS, DEFAULT, Weights
from scenarios.trace import Trace

# Situations for engines with real drafters instead of scripted draft tokens.
_OF_OWN_DRAFTS: tuple[Situation[TraceBuilder], ...] = (
    no_drafts,
    *SIZES,
    *BATCHES,
    pause_while_chunking,
    rows_swap_while_chunking,
    session_with_tight_pool,
    windows.sliding_windows,
    *windows.PARTS,
)


def situations_of(engine: Capabilities) -> Mapping[str, Situation[Any]]:
    """Return the situations that traces of an engine can have, by name."""
    of_own_drafts = () if engine.scripts_drafts else _OF_OWN_DRAFTS
    own = {each.replaces: each for each in engine.situations if each.replaces}
    every = (*BASE, *engine.situations, *FEATURES, *of_own_drafts, *CONNECTORS, *PARTS)
    placed = [own.get(each.name, each) for each in every if each.replaces not in own]
    return {each.name: each for each in placed if each.is_possible(engine)}


def weights_of(focus: Iterable[str], without: Iterable[str], engine: Capabilities) -> Weights:
    """Return the situations' weights, raised in `focus` and zero in `without`.

    A situation in `focus` also raises the situation that it is part of.
    """
    known, raised = situations_of(engine), set[str]()
    for name, each in known.items():
        if {name, each.area} & {*focus}:
            raised |= {name, each.part_of} & known.keys()
    return Weights(frozenset(raised), frozenset(without))


def unknown_focus(focus: Iterable[str], engine: Capabilities) -> str:
    """Return a message about the first situation in `focus` that the engine lacks, or ""."""
    known = situations_of(engine)
    areas = [area for area in AREAS if any(each.area == area for each in known.values())]
    wrong = [name for name in focus if name not in known and name not in areas]
    return f"{wrong[0]!r}; allowed are areas {', '.join(areas)} and situations {', '.join(known)}" if wrong else ""


def generated_for(generated: Generated, engine: Capabilities, weights: Weights = DEFAULT) -> Generated:
    """Change a random trace by sampled situations of an engine; return it with their names.

    For an engine with a real drafter, the trace is also fitted to the engine's limits.
    """
    known, trace = situations_of(engine), TraceBuilder(generated, engine, weights)

    def of(stage: Stage) -> list[Situation[TraceBuilder]]:
        return [each for each in known.values() if each.stage == stage and each.change is not None]

    trace.add(of("feature"))
    if not engine.scripts_drafts:
        if not engine.allows("layers", trace.spec.layers):
            trace.set(layers="attention")
        if engine.allowed("block_size") is not None:
            trace.fit()
        trace.add(of("drafts"))
        chosen = known.get(trace.choice([each.name for each in (*of("size"), *of("last"))], "size"))
        trace.put_if_possible(chosen, "size")
        if not trace.is_complete:
            trace.add(of("batch"))
            trace.put_if_possible(chosen, "last")
        trace.fit()
        trace.add(of("window"))
    if trace.spec.layers != "windows" and not trace.is_complete and may_have_connector(trace):
        trace.add(of("connector"))
    if not engine.scripts_drafts:
        trace.fit()
    # Drop the names of base situations with unsupported events, and of connectors that the limits removed.
    lost = () if trace.spec.has_connector else [each.name for each in known.values() if each.area == "connectors"]
    found = trace.generated
    return found._replace(situations=tuple(name for name in found.situations if name in known and name not in lost))


def for_engine(trace: Trace, engine: Capabilities) -> Trace:
    """Return a random trace after sampled situations of an engine have changed it."""
    return generated_for(Generated(trace), engine).trace
