"""Pool of vLLM engines by spec; an engine is created at first use and kept for later traces.

Several engines live in one process; the first takes seconds to make, each further one a fifth of a second.
"""

import gc
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from scenarios.spec import DATA_RANKS, ENGINE, PRODUCER, EngineName, EngineSpec, Handoff
from workers.simulated_torch.kernel_definitions import Definitions
from workers.targets.child.inside.ranks import Hosts
from workers.targets.child.inside.readback import readback_on
from workers.targets.child.inside.session import Session as AnySession
from workers.targets.child.messages import Message
from workers.targets.vllm.engine_sizes import state_blocks_max, window_blocks_max
from workers.targets.vllm.inside import windows
from workers.targets.vllm.inside.control import NeighbourEngine, SessionServices
from workers.targets.vllm.inside.drafter_weights import sleep_arguments
from workers.targets.vllm.inside.graphs import arguments_of, prepare_graphs
from workers.targets.vllm.inside.handoff_session import HandoffSession
from workers.targets.vllm.inside.logits_processors import no_repeats
from workers.targets.vllm.inside.models import model_folder
from workers.targets.vllm.inside.neighbour import RepeatedRequest
from workers.targets.vllm.inside.plans import PlanRecorder, SchedulerRecorder
from workers.targets.vllm.inside.producer import Producer
from workers.targets.vllm.inside.rank_processes.setup import RankProcesses, are_processes
from workers.targets.vllm.inside.ranks.setup import Ranks
from workers.targets.vllm.inside.reasoning import parser_until
from workers.targets.vllm.inside.recorder import StepRecorder, runner_of
from workers.targets.vllm.inside.session import Session, submit_of
from workers.targets.vllm.inside.transfer.copies import new_stream
from workers.targets.vllm.inside.transfer.engine import (
    begin_producer,
    connect,
    observe_own_connector,
    on_stream,
    transfer_config,
    without_connector,
)
from workers.targets.vllm.inside.transfer.flights import discard_observation
from workers.targets.vllm.names import RunnerName

ENGINES_MAX = 6
# An unreferenced engine takes four megabytes; collecting all of them takes half a second.
MADE_BETWEEN_COLLECTIONS = 16
CACHE_BYTES = 8 << 20
# Range of n-gram lengths.
LOOKUP_MIN, LOOKUP_MAX = 1, 3
# The only attention backend for GPUs with float32. Many engines share the memory of one GPU.
_ON_A_GPU: Mapping[str, Any] = {"attention_config": {"backend": "TRITON_ATTN"}, "gpu_memory_utilization": 0.02}
# Steps between two checks whether any data-parallel rank has a request left. With vLLM's default of 16 steps, a short
# trace would have one wave of requests.
SYNC_INTERVAL = 4
# vLLM's names of the logprobs modes.
_LOGPROBS_MODES: Mapping[str, str] = {
    "raw": "raw_logprobs",
    "processed": "processed_logprobs",
    "raw_logits": "raw_logits",
    "processed_logits": "processed_logits",
}
# Spec of the neighbour: another engine of the process, of another size.
_NEIGHBOUR = EngineSpec(
    layers="attention",
    sampling="standard",
    num_speculative_tokens=0,
    block_size=32,
    num_blocks=5,
    max_model_len=96,
    max_num_seqs=3,
    vocab_size=40,
)
# Files whose functions copy data for any caller.
_HELPERS = (
    "vllm/v1/utils.py",
    "vllm/utils/",
    "vllm/v1/worker/gpu/buffer_utils.py",
    "vllm/triton_utils/",
    "vllm/model_executor/warmup/",
)


class Engines:
    """Idle engines of this process by spec, in order of last use."""

    def __init__(
        self, cache: Path, runner: RunnerName, device: str, definitions: Definitions, ranks: Ranks | RankProcesses
    ) -> None:
        self._cache, self.runner, self._device, self.definitions = cache, runner, device, definitions
        # Threads on the simulated device, else processes.
        self._ranks = ranks
        self._engines: OrderedDict[tuple[str, bool], Any] = OrderedDict()
        self._checksums: dict[tuple[str, str, int, int], Mapping[str, str]] = {}
        # Engines of the current trace.
        self._in_use: list[Any] = []
        self._num_made = 0
        self._num_opened = 0

    def open(self, spec: EngineSpec, observed: bool) -> AnySession:
        for failed in self._in_use:
            self._end(failed)
        self._in_use.clear()
        engine = self._idle(spec)
        if spec.data_ranks == 1:
            connect(engine)
        if isinstance(self._ranks, RankProcesses):
            self._ranks.use(engine)
        # Requests without a seed sample from the global generators, which must not depend on earlier traces.
        torch.manual_seed(0)
        np.random.seed(0)
        self._num_opened += 1
        services = SessionServices(partial(self._weights, spec), partial(self._checksums_of, spec), self._neighbour)
        seen: list[Message] = []
        observe = partial(self._recorder, seen) if observed else None
        if spec.data_ranks > 1:
            from workers.targets.vllm.inside.data_session import DataRanksSession  # noqa: PLC0415

            of_rank = partial(self._recorder_of_rank, seen) if observed else None
            return DataRanksSession(engine, self._num_opened, of_rank, partial(self._put_back, spec), services)
        given = (engine, self._num_opened, observe, partial(self._put_back, spec), services)
        if spec.handoff is None:
            return Session(*given)
        return HandoffSession(
            *given, handoff=spec.handoff, produce=partial(self._producer, spec, spec.handoff, observe)
        )

    def _producer(
        self,
        spec: EngineSpec,
        handoff: Handoff,
        observe: Callable[..., PlanRecorder] | None,
        consumer: Any,
        probes: Counter[str],
    ) -> Producer:
        """Return a producer engine, which prefills the prompts of the consumer's requests."""
        spec = spec.model_copy(update={"num_blocks": handoff.producer_blocks})
        engine = self._idle(spec, is_producer=True)
        recorder = observe(engine, of=PRODUCER) if observe is not None else None
        sent = begin_producer(
            engine, consumer, handoff, probes, recorder.note if recorder is not None else discard_observation
        )
        return Producer(engine, sent, recorder, partial(self._put_back, spec, is_producer=True))

    def _weights(self, spec: EngineSpec, version: int) -> Path:
        """Return the folder with the given version of the target's weights; 0 is the initial one."""
        kind, quality = _target_of(spec)
        return model_folder(self._cache, kind, f"v{version}" if version else quality, spec.vocab_size)

    def _checksums_of(self, spec: EngineSpec, version: int) -> Mapping[str, str]:
        """Return weight checksums by tensor name, from a new engine with this weight version."""
        key = *_target_of(spec), spec.vocab_size, version
        if key not in self._checksums:
            heads = ("drafter", "drafter_quality", "num_speculative_tokens") if spec.drafter == "mtp" else ()
            same = {
                name: getattr(spec, name)
                for name in ("layers", "recurrent_layers", "window_heads", "vocab_size", *heads)
            }
            made = self._made(_NEIGHBOUR.model_copy(update=same), version)
            self._checksums[key] = made.compute_weight_checksums()[0]
        return self._checksums[key]

    def _neighbour(self) -> NeighbourEngine:
        return RepeatedRequest(self._take(_NEIGHBOUR), partial(self._put_back, _NEIGHBOUR))

    def _recorder(self, seen: list[Message], engine: Any, of: EngineName = ENGINE) -> PlanRecorder:
        if are_processes(engine):
            return SchedulerRecorder.of_scheduler(engine.scheduler, submit_of, seen, of)
        hosts: Hosts | None = self._ranks.hosts
        return StepRecorder(engine, self.runner, readback_on(self._device, _HELPERS), submit_of, seen, of, hosts)

    def _recorder_of_rank(self, seen: list[Message], rank: int, core: Any) -> PlanRecorder:
        return self._recorder(seen, core, DATA_RANKS[rank])

    def _idle(self, spec: EngineSpec, *, is_producer: bool = False) -> Any:
        """Return an engine of this spec, from the pool or new, after resetting its prefix cache."""
        engine = self._take(spec, is_producer=is_producer)
        assert engine.reset_prefix_cache(), "an idle engine has no block in use"
        return engine

    def _take(self, spec: EngineSpec, *, is_producer: bool = False) -> Any:
        """Take an engine of this spec from the pool, or create one."""
        engine = self._engines.pop((spec.model_dump_json(), is_producer), None)
        if engine is None:
            while len(self._engines) >= ENGINES_MAX:
                self._end(self._engines.popitem(last=False)[1])
            # Worker processes take memory and processor time even if their engine is idle.
            for key in [key for key, idle in self._engines.items() if are_processes(idle) and spec.num_ranks > 1]:
                self._end(self._engines.pop(key))
            if self._num_made % MADE_BETWEEN_COLLECTIONS == 0:
                _collect()
            self._num_made += 1
            engine = self._made(spec, is_producer=is_producer)
        self._in_use.append(engine)
        return engine

    def _put_back(self, spec: EngineSpec, engine: Any, *, is_producer: bool = False) -> None:
        """Return an idle engine to the pool."""
        key = spec.model_dump_json(), is_producer
        assert key not in self._engines, "two engines of one specification"
        self._in_use.remove(engine)
        self._engines[key] = engine

    def forget(self) -> None:
        for engine in self._engines.values():
            self._end(engine)
        self._engines.clear()

    def _end(self, engine: Any) -> None:
        """End the threads or processes of an engine's ranks."""
        self._ranks.end(engine)

    def _made(self, spec: EngineSpec, version: int = 0, *, is_producer: bool = False) -> Any:
        from vllm.v1.engine.core import EngineCore, EngineCoreProc  # noqa: PLC0415  import after our replacements
        from vllm.v1.executor import Executor  # noqa: PLC0415

        config = self._config(spec, version, is_producer=is_producer)
        if spec.data_ranks > 1:
            return self._data_ranks(spec, config)
        # An EngineCoreProc without its sockets, because only that class has the methods for pauses.
        engine = EngineCoreProc.__new__(EngineCoreProc)
        engine.output_queue, engine.engines_running = SimpleQueue(), False
        prepare_graphs(spec)
        # Producer and consumer work at the same time, hence have streams of their own, like two machines.
        stream = new_stream() if is_producer and self._device != "cpu" else None
        with without_connector(), on_stream(stream):
            EngineCore.__init__(engine, config, Executor.get_class(config), log_stats=True)
            observe_own_connector(engine, spec)
        self._ranks.check(spec)
        if stream is not None:
            engine.scheduler.connector.flights.stream = stream
        if spec.decodes_first:
            # Attention backends with separate decode and prefill kernels set this threshold.
            runner_of(engine).reorder_batch_threshold = 1 + spec.num_speculative_tokens
        if (engine.batch_queue is not None) != (spec.depth > 1 or spec.pipeline_ranks > 1):
            raise RuntimeError(f"async scheduling is {'off' if spec.depth > 1 else 'on'}, unlike spec.depth")
        return engine

    def _data_ranks(self, spec: EngineSpec, config: Any) -> Any:
        from workers.targets.vllm.inside.ranks.data_ranks import DataRanks  # noqa: PLC0415

        assert isinstance(self._ranks, Ranks), "a limit of other devices"
        made = DataRanks(config, self._ranks.prepared_network())
        self._ranks.check(spec)
        return made

    def _config(self, spec: EngineSpec, version: int, *, is_producer: bool) -> Any:
        """Return vLLM's configuration of an engine."""
        from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415  import after our replacements in vLLM

        if spec.layers == "experts":
            from workers.targets.vllm.inside import experts  # noqa: F401, PLC0415  it registers the experts' kernel
        # A draft model computes one more token per request than is scheduled.
        num_extra = spec.max_num_seqs if spec.drafter == "draft_model" else 0
        transfer = transfer_config(spec, is_producer=is_producer)
        config = EngineArgs(
            model=str(self._weights(spec, version)),
            dtype="float32",
            **arguments_of(spec),
            **windows.arguments_of(spec),
            seed=0,
            kv_cache_memory_bytes=CACHE_BYTES,
            # One more block for the null block.
            num_gpu_blocks_override=spec.num_blocks + 1 + state_blocks_max(spec) + window_blocks_max(spec),
            block_size=spec.block_size,
            max_model_len=spec.max_model_len,
            max_num_seqs=spec.max_num_seqs,
            max_num_scheduled_tokens=spec.max_num_batched_tokens,
            max_num_batched_tokens=max(spec.max_num_batched_tokens, spec.max_num_seqs) + num_extra,
            long_prefill_token_threshold=spec.long_prefill_token_threshold,
            enable_prefix_caching=spec.prefix_cache,
            **({"prefix_match_unit": spec.match_tokens} if spec.match_tokens else {}),
            enable_chunked_prefill=True,
            scheduling_policy=spec.policy,
            # vLLM's default is asynchronous scheduling wherever it is supported.
            async_scheduling=None if spec.depth > 1 else False,
            logprobs_mode=_LOGPROBS_MODES[spec.logprobs_mode],
            speculative_config=self._speculative(spec),
            kv_transfer_config=transfer,
            logits_processors=[no_repeats()] if spec.logits_processor else None,
            reasoning_parser="" if spec.reasoning_end is None else parser_until(spec.reasoning_end),
            disable_log_stats=True,
            **self._rank_arguments(spec),
            **sleep_arguments(EngineArgs),
            **(_ON_A_GPU if self._device == "cuda" else {}),
        ).create_engine_config()
        taken: RunnerName = "v2" if config.use_v2_model_runner else "v1"
        assert taken == self.runner, f"vLLM selects model runner {taken}; this process observes {self.runner}"
        return config

    def _rank_arguments(self, spec: EngineSpec) -> dict[str, Any]:
        """Return the arguments of an engine with several ranks."""
        self._ranks.prepare()
        if spec.num_ranks == 1:
            return {}
        if spec.data_ranks > 1:
            # Ranks share the experts, and other layers have copies.
            return {
                "data_parallel_size": spec.data_ranks,
                "data_parallel_size_local": 1,
                "dp_sync_interval": SYNC_INTERVAL,
                "distributed_executor_backend": "uni",
            }
        numbers = {"tensor_parallel_size": spec.tensor_ranks, "pipeline_parallel_size": spec.pipeline_ranks}
        return {**numbers, **self._ranks.arguments()}

    def _speculative(self, spec: EngineSpec) -> dict[str, Any] | None:
        if not spec.num_speculative_tokens:
            return None
        found: dict[str, Any] = {"method": spec.drafter, "num_speculative_tokens": spec.num_speculative_tokens}
        if spec.draft_sampling != "greedy":
            found |= {"draft_sample_method": spec.draft_sampling}
        if spec.drafter in ("eagle", "eagle3", "draft_model", "dflash"):
            folder = model_folder(self._cache, spec.drafter, spec.drafter_quality, spec.vocab_size)
            return found | {"model": str(folder)}
        if spec.drafter == "mtp":
            return found
        return found | {"prompt_lookup_min": LOOKUP_MIN, "prompt_lookup_max": LOOKUP_MAX}


def _target_of(spec: EngineSpec) -> tuple[str, str]:
    """Return kind and quality of the target's test model; with drafter mtp it has MTP layers."""
    if spec.num_speculative_tokens and spec.drafter == "mtp":
        return "mtp", spec.drafter_quality
    if spec.layers == "windows":
        return windows.window_model_kind(spec), "good"
    if spec.layers == "hybrid":
        return ("gated" if spec.recurrent_layers == "gated_delta" else "hybrid"), "good"
    return ("experts" if spec.layers == "experts" else "target"), "good"


def _collect() -> None:
    """Run a garbage collection; exclude all surviving objects from later ones."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
