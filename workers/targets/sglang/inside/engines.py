"""The engine of a process: a scheduler of SGLang by specification, whose configuration is that of the whole process.

One lives at a time; the first takes a second, each further one a tenth of one.
"""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scenarios.spec import EngineSpec
from workers.simulated_torch.backend import DEVICE_NAME
from workers.targets.sglang.inside.grammars import grammar_backend
from workers.targets.sglang.inside.models import folder_of
from workers.targets.sglang.inside.requests import NO_TOKENIZER
from workers.targets.sglang.inside.session import Session
from workers.targets.sglang.limits import CONTEXT_BEYOND

# How much of what requests may still need it keeps free: as little as a server that was never short of slots.
_CONSERVATIVENESS = 0.1
# Nodes of a corpus of n-grams: as many as the longest traces fill.
_CORPUS_SIZE = 4096
_ALGORITHMS = {"eagle": "EAGLE", "eagle3": "EAGLE3", "draft_model": "STANDALONE"}


class Engines:
    """The scheduler of this process, and what it was made for."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._made_for: EngineSpec | None = None
        self._scheduler: Any = None
        self._num_opened = 0

    def open(self, spec: EngineSpec, observed: bool) -> Session:
        scheduler = self._scheduler if spec == self._made_for else None
        # Nobody has it until it is given back.
        self.forget()
        if scheduler is None:
            scheduler = self._new(spec)
        assert scheduler.flush_cache(), "an idle engine has nothing pending"
        scheduler.new_token_ratio_tracker.reset()
        # What no request has a seed for is drawn from here, whatever was drawn before.
        torch.manual_seed(0)
        np.random.seed(0)
        self._num_opened += 1
        self._made_for = spec
        return Session(scheduler, spec, self._num_opened, observed, self._put_back)

    def _put_back(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def forget(self) -> None:
        self._scheduler = self._made_for = None

    def _new(self, spec: EngineSpec) -> Any:
        from sglang.srt.environ import envs  # noqa: PLC0415
        from sglang.srt.server_args import ServerArgs  # noqa: PLC0415

        self._renew_group()
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
            # How much memory there is decides nothing: the pool has its size.
            mem_fraction_static=0.5,
            max_total_tokens=spec.num_blocks * spec.block_size,
            page_size=spec.block_size,
            max_running_requests=spec.max_num_seqs,
            schedule_conservativeness=_CONSERVATIVENESS,
            chunked_prefill_size=spec.max_num_batched_tokens,
            enable_mixed_chunk=spec.mixed_chunks,
            context_length=spec.max_model_len + CONTEXT_BEYOND,
            disable_radix_cache=not spec.prefix_cache,
            disable_overlap_schedule=spec.depth == 1,
            # Lower numbers go first, and any lower one preempts.
            enable_priority_scheduling=spec.policy == "priority",
            schedule_low_priority_values_first=True,
            priority_scheduling_preemption_threshold=0,
            default_priority_value=0,
            log_level="error",
            skip_server_warmup=True,
            **self._speculative(spec),
        )
        envs.SGLANG_ENABLE_OVERLAP_PLAN_STREAM.set(spec.plan_stream)
        scheduler = _scheduler_of(args)
        # Releases before 0.5.22 have it from the first iteration of their loop on, and are asked before that.
        scheduler.result_queue = deque()
        assert scheduler.enable_overlap == (spec.depth > 1), "asynchronous exactly where it was asked for"
        scheduler.tokenizer = NO_TOKENIZER
        scheduler.grammar_manager.grammar_backend = grammar_backend(args, spec.vocab_size)
        # As for those of its backends for attention that need them.
        scheduler.future_map.needs_cpu_seq_lens |= spec.relay_lengths
        return scheduler

    def _renew_group(self) -> None:
        """Make the group of the one rank anew, also behind an engine that could not be made.

        Its store is this process's own: a port that SGLang takes for free may be another's by the time it listens.
        """
        from sglang.srt.distributed import parallel_state  # noqa: PLC0415

        if torch.distributed.is_initialized():
            parallel_state.destroy_model_parallel()
            parallel_state.destroy_distributed_environment()
        backend = parallel_state.get_default_distributed_backend(DEVICE_NAME)
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)

    def _speculative(self, spec: EngineSpec) -> dict[str, Any]:
        """Return what SGLang is asked for to draft: as many steps as drafts."""
        if not spec.num_speculative_tokens:
            return {}
        if spec.drafter == "ngram_corpus":
            return {
                "speculative_algorithm": "NGRAM",
                "speculative_num_draft_tokens": spec.num_speculative_tokens + 1,
                # As wide as it may be: beside pages a token has one draft, but for each beginning that it is found by.
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


def _scheduler_of(args: Any) -> Any:
    """Return the scheduler of a configuration, which is that of this process from here on."""
    from sglang.srt import runtime_context  # noqa: PLC0415
    from sglang.srt.managers.scheduler import Scheduler  # noqa: PLC0415
    from sglang.srt.server_args import PortArgs  # noqa: PLC0415

    if hasattr(runtime_context, "SpawnRanks"):
        ranks = runtime_context.SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
        runtime_context.publish(args, role="scheduler", ranks=ranks)
        return Scheduler(args, PortArgs.init_new(args))
    # Releases before 0.5.21 tell a scheduler what it is of each group.
    runtime_context.publish(args, role="scheduler")
    zeros = dict.fromkeys(("gpu_id", "tp_rank", "moe_ep_rank", "pp_rank", "attn_cp_rank", "moe_dp_rank"), 0)
    return Scheduler(args, PortArgs.init_new(args), **zeros, dp_rank=None)
