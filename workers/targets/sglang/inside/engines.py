"""Create SGLang's scheduler for the engine options of a trace, and keep it for later traces.

SGLang's configuration is global, so a process has one scheduler at a time. The first takes a second to create, each
further one a tenth of a second.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scenarios.spec import EngineSpec
from workers.simulated_torch.backend import DEVICE_NAME
from workers.targets.sglang.inside.event_loop import EventLoop
from workers.targets.sglang.inside.grammars import grammar_backend
from workers.targets.sglang.inside.models import folder_of
from workers.targets.sglang.inside.ranks.setup import Ranks
from workers.targets.sglang.inside.requests import NO_TOKENIZER
from workers.targets.sglang.inside.session import Session
from workers.targets.sglang.limits import CONTEXT_MARGIN

# Share of the possible future output tokens that slots are reserved for: little, as on a server that was never short of
# slots.
_CONSERVATIVENESS = 0.1
# Nodes of the n-gram corpus: enough for the longest traces.
_CORPUS_SIZE = 4096
_ALGORITHMS = {"eagle": "EAGLE", "eagle3": "EAGLE3", "draft_model": "STANDALONE"}


@dataclass(slots=True, eq=False)
class OneScheduler:
    """An engine with one rank."""

    schedulers: Sequence[Any]

    def loop(self) -> EventLoop:
        """Begin a trace: run the event loop up to its first wait for requests."""
        (scheduler,) = self.schedulers
        _reset(scheduler)
        return EventLoop(scheduler)

    def end(self) -> None:
        """Do nothing: the event loop of a trace has its own thread."""


class Engines:
    """The engine that this process keeps, with the engine options of its creation."""

    def __init__(self, cache: Path, ranks: Ranks) -> None:
        self._cache, self._ranks = cache, ranks
        self._made_for: EngineSpec | None = None
        self._engine: Any = None
        # Whether the engine has no request left, so that it serves another trace.
        self._is_idle = True
        self._num_opened = 0

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        if not self._is_idle or spec != self._made_for:
            self.forget()
        if self._engine is None:
            self._engine, self._made_for = self._new(spec), spec
        self._is_idle = False
        self._num_opened += 1
        return Session(self._engine, spec, self._num_opened, observed, self._put_back)

    def _put_back(self) -> None:
        self._is_idle = True

    def forget(self) -> None:
        if self._engine is not None:
            self._ranks.end(self._engine)
        self._engine = self._made_for = None

    def _new(self, spec: EngineSpec) -> Any:
        self._ranks.prepare()
        if spec.num_ranks == 1:
            self._renew_group()
            return OneScheduler([self._scheduler(spec, 0)])
        if not self._ranks.are_installed:
            self._end_group()
            self._ranks.install()
        return self._ranks.made(spec.num_ranks, partial(self._scheduler, spec), _reset)

    def _scheduler(self, spec: EngineSpec, rank: int) -> Any:
        from sglang.srt.environ import envs  # noqa: PLC0415
        from sglang.srt.server_args import ServerArgs  # noqa: PLC0415

        args = ServerArgs(
            model_path=str(folder_of(self._cache, "target", "good", spec.vocab_size)),
            skip_tokenizer_init=True,
            dtype="float32",
            device=DEVICE_NAME,
            attention_backend="triton",
            sampling_backend="pytorch",
            grammar_backend="xgrammar",
            random_seed=0,
            disable_cuda_graph=True,
            # The amount of memory has no effect: the KV cache has a fixed size.
            mem_fraction_static=0.5,
            max_total_tokens=spec.num_blocks * spec.block_size,
            page_size=spec.block_size,
            max_running_requests=spec.max_num_seqs,
            schedule_conservativeness=_CONSERVATIVENESS,
            chunked_prefill_size=spec.max_num_batched_tokens,
            enable_mixed_chunk=spec.mixed_chunks,
            context_length=spec.max_model_len + CONTEXT_MARGIN,
            disable_radix_cache=not spec.prefix_cache,
            disable_overlap_schedule=spec.depth == 1,
            tp_size=spec.tensor_ranks,
            # Its kernel is compiled for GPUs only: ranks use PyTorch's all-reduce, as SGLang does for large tensors.
            disable_custom_all_reduce=True,
            # Lower numbers have priority, and a request with any lower number preempts.
            enable_priority_scheduling=spec.policy == "priority",
            schedule_low_priority_values_first=True,
            priority_scheduling_preemption_threshold=0,
            default_priority_value=0,
            log_level="error",
            skip_server_warmup=True,
            **self._speculative(spec),
        )
        envs.SGLANG_ENABLE_OVERLAP_PLAN_STREAM.set(spec.plan_stream)
        scheduler = _scheduler_of(args, rank)
        # Releases before 0.5.22 create this queue in the first loop iteration, but it is read before.
        scheduler.result_queue = deque()
        assert scheduler.enable_overlap == (spec.depth > 1), "async scheduling is on exactly if depth is 2"
        scheduler.tokenizer = NO_TOKENIZER
        scheduler.grammar_manager.grammar_backend = grammar_backend(args, spec.vocab_size)
        # As with attention backends that need the sequence lengths on the host.
        scheduler.future_map.needs_cpu_seq_lens |= spec.relay_lengths
        return scheduler

    def _renew_group(self) -> None:
        """Replace the process group (one rank) by a new one.

        This works even if the creation of an engine has failed before. The group uses a store in memory: a port that
        SGLang finds free may be taken by another process before it listens.
        """
        from sglang.srt.distributed import parallel_state  # noqa: PLC0415

        self._end_group()
        backend = parallel_state.get_default_distributed_backend(DEVICE_NAME)
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)

    def _end_group(self) -> None:
        """Destroy the process group of the engine with one rank that was created last."""
        from sglang.srt.distributed import parallel_state  # noqa: PLC0415

        if torch.distributed.is_initialized():
            parallel_state.destroy_model_parallel()
            parallel_state.destroy_distributed_environment()

    def _speculative(self, spec: EngineSpec) -> dict[str, Any]:
        """Return SGLang's arguments for speculative decoding: one draft step per draft token."""
        if not spec.num_speculative_tokens:
            return {}
        if spec.drafter == "ngram_corpus":
            return {
                "speculative_algorithm": "NGRAM",
                "speculative_num_draft_tokens": spec.num_speculative_tokens + 1,
                # The maximal breadth: with pages of several tokens, a match in the corpus proposes only one next token.
                "speculative_ngram_max_bfs_breadth": 2 if spec.block_size == 1 else 1,
                "speculative_ngram_capacity": _CORPUS_SIZE,
            }
        folder = folder_of(self._cache, spec.drafter, spec.drafter_quality, spec.vocab_size)
        return {
            "speculative_algorithm": _ALGORITHMS[spec.drafter],
            "speculative_num_draft_tokens": spec.num_speculative_tokens + 1,
            "speculative_draft_model_path": str(folder),
            "speculative_num_steps": spec.num_speculative_tokens,
            "speculative_eagle_topk": spec.tree_width,
        }


def _reset(scheduler: Any) -> None:
    """Restore a scheduler's initial state before a trace."""
    assert scheduler.flush_cache(), "an idle engine has nothing pending"
    scheduler.new_token_ratio_tracker.reset()
    # Reset the global generators, which sample for requests without a seed.
    torch.manual_seed(0)
    np.random.seed(0)


def _scheduler_of(args: Any, rank: int) -> Any:
    """Return a new scheduler; its configuration becomes that of the process, or of the calling thread's rank."""
    from sglang.srt import runtime_context  # noqa: PLC0415
    from sglang.srt.managers.scheduler import Scheduler  # noqa: PLC0415
    from sglang.srt.server_args import PortArgs  # noqa: PLC0415

    if hasattr(runtime_context, "SpawnRanks"):
        ranks = runtime_context.SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=0)
        runtime_context.publish(args, role="scheduler", ranks=ranks)
        return Scheduler(args, PortArgs.init_new(args))
    # Releases before 0.5.21 pass the rank in each group to the scheduler.
    runtime_context.publish(args, role="scheduler")
    assert rank == 0, "several ranks need release 0.5.21 or later"
    zeros = dict.fromkeys(("gpu_id", "tp_rank", "moe_ep_rank", "pp_rank", "attn_cp_rank", "moe_dp_rank"), 0)
    return Scheduler(args, PortArgs.init_new(args), **zeros, dp_rank=None)
