"""Observer of vLLM's offloading connector; records its jobs (loads, stores) as transfers.

A job is in flight from the step that plans it until the host knows its end: by waiting for it before the kernels of a
step, or by polling its event. Copied blocks are recorded when the bytes are copied.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from scenarios.spec import Offloading
from workers.simulated_torch.batch_copies import Addresses, BatchCopies
from workers.targets.vllm.inside.transfer.flights import Note, discard_observation, note_in_flight
from workers.targets.vllm.inside.transfer.own_transfers import OwnTransfer, OwnTransfers, copied_blocks, wrap_method

# Statuses of requests that finished without an abort.
_BY_ITSELF = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")


@dataclass(slots=True)
class Job(OwnTransfer):
    """An offloading job in flight: KV-cache blocks, CPU-pool `slots`, earliest end tick `due`."""

    due: int = 0


class Offloads(OwnTransfers):
    """Observes the offloading jobs of one engine."""

    def __init__(self, engine: Any, agent: Any, spec: Offloading) -> None:
        super().__init__(engine, agent, spec)
        self._planner = engine.scheduler.connector.connector_scheduler
        self._copier = agent.connector_worker.worker
        self._handlers = {"store": self._copier._store_handler, "load": self._copier._load_handler}
        self._copies: dict[str, BatchCopies] = {of: each._swap_blocks_batch for of, each in self._handlers.items()}
        self._wrap()
        self.begin(Counter(), discard_observation)

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Reset for a new trace, with an empty CPU pool."""
        assert not self._planner._jobs, "an idle engine has no job"
        self._planner.reset_cache()
        super().begin(probes, note)
        self.jobs: dict[int, Job] = {}
        # Block table indexes and request tokens of each planned store that has not begun, by job number.
        self._stored: dict[int, tuple[list[int], list[int]]] = {}
        self._first: int = self._planner._job_counter
        # Per request: tokens found at its last admission, and keys of the chunks offered to the pool since then.
        self._found: dict[str, int] = {}
        self._offered: dict[str, set[Any]] = {}

    @property
    def memory(self) -> Mapping[str, object]:
        return {"offloading": SimpleNamespace(pool=self._handlers["store"].dst_tensors)}

    @property
    def holds_blocks(self) -> bool:
        """Return whether a load is in flight; its blocks cannot be freed before its end."""
        return any(job.of == "load" for job in self.jobs.values())

    def left(self) -> Mapping[str, int]:
        """Return the number of jobs and other resources still held after the last request."""
        planner, manager, worker = self._planner, self._planner.manager, self.agent.connector_worker
        chunks = manager._num_allocated_chunks - len(manager._free_list) - manager._num_evictable_cache_chunks
        return {
            "transfers in flight": len(self.jobs),
            "jobs of the connector": len(planner._jobs),
            "requests of the connector": len(planner._req_status),
            "blocks fenced for jobs": len(planner._block_id_to_pending_jobs),
            "chunks being loaded": len(planner._chunks_being_loaded or ()),
            "pinned chunks of the pool": chunks,
            "chunks of the pool being written": manager._num_write_pending_chunks,
            "jobs of the worker": len(worker._load_jobs) + len(worker._unsubmitted_store_jobs),
            "copies of the worker": sum(len(handler._transfers) for handler in self._handlers.values()),
        }

    def _wrap(self) -> None:
        """Wrap methods of the connector's scheduler and worker sides, for the engine's lifetime."""
        wrap_method(self._planner, "build_connector_meta", self._planned)
        wrap_method(self._planner, "get_num_new_matched_tokens", self._looked_up)
        wrap_method(self._planner.manager, "prepare_store", self._making_room)
        wrap_method(self.agent, "handle_preemptions", self._before_a_step)
        wrap_method(self._copier, "wait", self._waited)
        wrap_method(self._copier, "get_finished", self._finished)
        for of, handler in self._handlers.items():
            wrap_method(handler, "transfer_async", partial(self._copying, of))
            wrap_method(handler, "get_finished", partial(self._due, handler))

    def _planned(self, build: Callable[..., Any], output: Any, *arguments: Any, **options: Any) -> Any:
        ended = [self._planner._req_status.get(name) for name in output.finished_req_ids or ()]
        metadata = super()._planned(build, output, *arguments, **options)
        for status in ended:
            if status is not None and status.req.status.name in _BY_ITSELF:
                self._record_offered(status)
        for job_id, job in metadata.store_jobs.items():
            status = self._planner._req_status[job.req_id]
            self._stored[job_id] = self._indexes(job_id, status), status.req.all_token_ids[:]
        return metadata

    def _indexes(self, job_id: int, status: Any) -> list[int]:
        """Return the block-table indexes of the blocks that a store job copies."""
        keys, size = self._planner._jobs[job_id].keys, self._planner.config.blocks_per_chunk
        chunks = [place for place, key in enumerate(status.group_states[0].offload_keys) if key in keys]
        return [chunk * size + index for chunk in chunks for index in range(size)]

    def _record_offered(self, status: Any) -> None:
        """Record which token chunks of a finished request were offered to the CPU pool."""
        request, keys = status.req, self._offered.get(status.req.request_id, set())
        offered = [place for place, key in enumerate(status.group_states[0].offload_keys) if key in keys]
        self.note(
            "offered",
            [request.request_id],
            prompt=request.num_prompt_tokens,
            tokens=request.num_tokens,
            found=self._found.get(request.request_id, 0),
            offered=offered,
        )

    def _looked_up(
        self, look: Callable[..., Any], request: Any, num_computed: int, *arguments: Any, **options: Any
    ) -> Any:
        found = look(request, num_computed, *arguments, **options)
        self.probes["lookup_wait"] += found[0] is None
        self._found[request.request_id] = num_computed + (found[0] or 0)
        self._offered.pop(request.request_id, None)
        return found

    def _making_room(
        self, prepare: Callable[..., Any], keys: Sequence[Any], context: Any, *arguments: Any, **options: Any
    ) -> Any:
        self._offered.setdefault(context.req_id, set()).update(keys)
        room = prepare(keys, context, *arguments, **options)
        self.probes["store_eviction"] += len(room.evicted_keys) if room is not None else 0
        return room

    def _before_a_step(self, handle: Callable[..., Any], metadata: Any, *arguments: Any, **options: Any) -> None:
        """Record that a step's jobs begin: stores before old jobs are awaited, loads after."""
        # Jobs that are waited for are removed from the metadata.
        for job_id, planned in metadata.store_jobs.items():
            self._begin("store", job_id, planned)
        for job in self.jobs.values():
            self.probes["store_of_preempted"] += job.of == "store" and job.request in metadata.preempted
        handle(metadata, *arguments, **options)
        # Loads may reuse blocks of stores that were waited for.
        for job_id, planned in metadata.load_jobs.items():
            self._begin("load", job_id, planned)
        self._record_blocks()

    def _begin(self, of: str, job_id: int, job: Any) -> None:
        at_cache, at_pool = (job.dst_spec, job.src_spec) if of == "load" else (job.src_spec, job.dst_spec)
        blocks, slots = at_cache.block_ids.tolist(), at_pool.block_ids.tolist()
        indexes, tokens = self._stored.pop(job_id, ([], []))
        begun = self.jobs[job_id] = Job(job_id - self._first, of, job.req_id, blocks, slots, indexes, tokens)
        self.probes[of] += 1
        self._record(begun, "begins", begun.blocks, begun.slots)

    def _copying(self, of: str, copy: Callable[..., bool], job_id: int, *arguments: Any, **options: Any) -> bool:
        job = self.jobs.get(job_id)
        if job is not None:
            job.due = self.tick + self._ticks[of]
            self._copies[of].on_complete = partial(self._copied, job)
        return copy(job_id, *arguments, **options)

    def _copied(self, job: Job, rows: Addresses) -> None:
        """Record the copied blocks and CPU-pool slots, computed from the first layer's addresses."""
        store = self._handlers["store"]
        pairs = list(copied_blocks(job.of, rows, store.src_tensors[0], store.dst_tensors[0]))
        self._record_copies(job, [block for block, _ in pairs], [slot for _, slot in pairs])

    def _due(self, handler: Any, finished: Callable[..., list[Any]], *arguments: Any, **options: Any) -> list[Any]:
        """Complete the copies of one direction whose time has come at this tick, and no others.

        The device's schedule does not matter.
        """
        every = list(handler._transfers)
        due = [each for each in every if each.job_id not in self.jobs or self.jobs[each.job_id].due <= self.tick]
        for copy in due:
            copy.end_event.synchronize()
        handler._transfers = deque(due)
        results = finished(*arguments, **options)
        handler._transfers.extend(each for each in every if each.job_id not in {copy.job_id for copy in due})
        return results

    def _waited(self, wait: Callable[..., None], job_ids: set[int], *arguments: Any, **options: Any) -> None:
        wait(job_ids, *arguments, **options)
        for job_id in sorted(job_ids):
            self._end(job_id, is_ahead=True)

    def _finished(self, finished: Callable[..., list[Any]], *arguments: Any, **options: Any) -> list[Any]:
        results = finished(*arguments, **options)
        for result in results:
            self._end(result.job_id)
        return results

    def _end(self, job_id: int, is_ahead: bool = False) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self._record_end(job, is_ahead)

    def _record_blocks(self) -> None:
        """Record blocks that are free during their load, or cached before their load ended."""
        loads = [job for job in self.jobs.values() if job.of == "load"]
        note_in_flight(self.note, loads, loads, self._engine.kv_cache_manager.block_pool.blocks)
