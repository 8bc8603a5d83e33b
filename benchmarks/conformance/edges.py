"""Shares of drawn traces that reach the edges of an engine: by their values, and by the probes of running them.

Run with `python -m benchmarks.conformance.edges --engine vllm --traces 2000 --run 100`. Traces are those of `specstorm
hunt --engine`, labelled ones of one seed; a run is under eager, and judged by nobody.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from scenarios.events import Continuation, Preempt, ResetPrefixCache, Stall, Submit
from scenarios.shards import TRACES_PER_SHARD, Shard
from scenarios.trace import Trace
from workers.oracle.tape import Tapes
from workers.run.engine_run import UNJUDGED, Run
from workers.run.shard import shard_traces
from workers.targets.registry import kind_of
from workers.targets.target import EngineFailed, RunConfig

# A run that its engine did not come to the end of.
FAILED = "(the engine failed)"
# Counted in runs.
PROBES = (
    "preemption",
    "preemption_by_blocks",
    "condense",
    "reorder",
    "stall",
    "cache_reset",
    "abort_in_flight",
    "discard_while_drafting",
    "name_reused",
)


def _blocks(submit: Submit, trace: Trace) -> int:
    return trace.spec.blocks_needed(submit.prompt_length, submit.max_tokens)


def _is_at_block(submit: Submit, trace: Trace) -> bool:
    return abs(submit.prompt_length - trace.spec.block_size) <= 1


def _is_tight(trace: Trace) -> bool:
    """Tell whether the two largest requests that may run together do not fit into the pool together."""
    blocks = sorted(_blocks(submit, trace) for submit in trace.submits())
    return trace.spec.max_num_seqs > 1 and sum(blocks[-2:]) > trace.spec.num_blocks


def _reaches_the_end(trace: Trace) -> bool:
    """Tell whether the model's length is a block's and a run's, and a prompt ends at most a run before it."""
    spec = trace.spec
    run = 1 + spec.num_speculative_tokens
    is_edge = (spec.max_model_len - run) % spec.block_size == 0
    return is_edge and any(submit.prompt_length >= spec.max_model_len - 1 - run for submit in trace.submits())


EDGES: Mapping[str, Callable[[Trace], bool]] = {
    "a threshold of chunks from 1 to 1 + K": lambda trace: (
        1 <= trace.spec.long_prefill_token_threshold <= 1 + trace.spec.num_speculative_tokens
    ),
    "a model of 32 m + 1 + K tokens, a prompt up to its end": _reaches_the_end,
    "a prompt of a block, or one token more or less": lambda trace: any(
        _is_at_block(submit, trace) for submit in trace.submits()
    ),
    "a pool too small for two requests": _is_tight,
    "priorities in such a pool": lambda trace: trace.spec.policy == "priority" and _is_tight(trace),
    "an event that preempts": lambda trace: any(isinstance(event, Preempt) for event in trace.events),
    "a reset of running requests": lambda trace: any(
        isinstance(event, ResetPrefixCache) and event.running for event in trace.events
    ),
    "a stall": lambda trace: any(isinstance(event, Stall) for event in trace.events),
    "a request that goes on from another": lambda trace: any(
        isinstance(submit.prompt, Continuation) for submit in trace.submits()
    ),
    "logprobs of named tokens": lambda trace: any(submit.params.logprob_tokens for submit in trace.submits()),
    "rows that decode moved before the others": lambda trace: trace.spec.decodes_first,
    "seeded requests without drafts": lambda trace: (
        not trace.spec.num_speculative_tokens and any(submit.params.temperature for submit in trace.submits())
    ),
}


def drawn(engine: str, count: int, seed: int) -> Iterator[Trace]:
    """Yield the first labelled traces of a hunt of an engine."""
    config = RunConfig(engine=engine)
    for number in range(-(-count // TRACES_PER_SHARD)):
        first = number * TRACES_PER_SHARD
        shard = Shard(profile="labelled", seed=seed, number=number, traces=min(TRACES_PER_SHARD, count - first))
        yield from shard_traces(shard, config)


def shares(traces: list[Trace]) -> dict[str, float]:
    """Return the share of traces that reach each edge."""
    return {name: sum(map(is_there, traces)) / len(traces) for name, is_there in EDGES.items()}


def probed(traces: list[Trace], config: RunConfig) -> tuple[dict[str, float], float]:
    """Return the share of runs that hit each probe, and how many steps a run took."""
    kind, hit, steps = kind_of(config.engine), Counter[str](), 0
    for trace in traces:
        run = Run(trace, Tapes(), UNJUDGED, kind, config)
        try:
            run.to_end()
            hit.update(probe for probe, count in run.probes.items() if count)
            steps += run.feed.tick
        except EngineFailed:
            hit[FAILED] += 1
        finally:
            run.target.close()
    return {probe: hit[probe] / len(traces) for probe in sorted({*PROBES, *hit})}, steps / len(traces)


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="vllm", help="(default: vllm)")
    parser.add_argument("--traces", type=int, default=2000, metavar="N", help="traces drawn (default: 2000)")
    parser.add_argument("--run", type=int, default=0, metavar="N", help="of these so many are run (default: none)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    asked = parser.parse_args()
    traces = list(drawn(asked.engine, asked.traces, asked.seed))
    for name, share in shares(traces).items():
        print(f"{100 * share:5.1f} %  {name}")
    if asked.run:
        found, steps = probed(traces[: asked.run], RunConfig(engine=asked.engine, device="cpu"))
        for probe, share in found.items():
            print(f"{100 * share:5.1f} %  {probe}")
        print(f"{steps:5.1f}    steps a trace")


if __name__ == "__main__":
    main()
