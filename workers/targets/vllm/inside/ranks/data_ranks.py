"""Data-parallel ranks: vLLM's engine cores with their own loop, each on a host thread, and its coordinator.

In one tick of the trace each rank that is not idle runs its loop once. A rank that is idle wakes up when a message
arrives, and then takes part in the tick.
"""

import pickle
from concurrent.futures import Future
from functools import partial
from typing import Any

from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import DPEngineCoreProc, EngineCore, EngineShutdownState
from vllm.v1.executor import Executor

from workers.simulated_torch import process_group
from workers.simulated_torch.native import native
from workers.simulated_torch.process_group import Network, RankGroup
from workers.targets.child.inside.ranks import Rank
from workers.targets.vllm.inside.ranks.coordinator import Outbox, WaveCoordinator
from workers.targets.vllm.inside.ranks.queues import RequestQueue, hosts


class DataRankCore(DPEngineCoreProc):  # type: ignore[misc]
    """Engine core of a data-parallel rank, with queues in place of its sockets."""

    def __init__(self, config: Any, ranks: "DataRanks") -> None:
        self._ranks = ranks
        # The latest tick in which this rank has run, and whether it waits for the next one.
        self._tick, self._is_between_ticks, self.has_executed = 0, False, False
        self.input_queue = RequestQueue(self._joined)
        self.output_queue = Outbox(lambda outputs: ranks.coordinator.report(self, outputs), self._answered)
        # Control calls without an answer, by number.
        self._calls: dict[int, Future[None]] = {}
        self.engine_index = config.parallel_config.data_parallel_rank
        self.engines_running, self.shutdown_state = False, EngineShutdownState.RUNNING
        self.tensor_ipc_receiver, self.process_input_queue_block = None, True
        self.has_coordinator, self.publish_dp_lb_stats, self.last_counts = True, True, (0, 0)
        self.enable_fault_tolerance, self.reject_new_requests = False, False
        self.prefill_schedule_interval = config.scheduler_config.prefill_schedule_interval
        self.dp_sync_interval = config.parallel_config.dp_sync_interval
        self.step_counter = self.current_wave = 0
        self.pending_pause = self.ignore_start_dp_wave = False
        self.eep_scaling_state = None
        self._init_data_parallel(config)
        EngineCore.__init__(self, config, Executor.get_class(config), log_stats=True)

    def _init_data_parallel(self, vllm_config: Any) -> None:
        """Join the group of all ranks' hosts; vLLM's own method opens sockets for it."""
        self.dp_rank, self.dp_size = self.engine_index, len(self._ranks.cores)
        self.dp_group = self._ranks.group_of(self.engine_index)

    def call(self, method: str, *arguments: Any) -> Future[None]:
        """Send a control call to this rank; the result is done once the rank has answered."""
        answer, number = Future[None](), len(self._calls)
        self._calls[number] = answer
        self.input_queue.put_nowait((EngineCoreRequestType.UTILITY, (0, number, method, arguments)))
        return answer

    def _answered(self, answer: Any) -> None:
        if answer.failure_message:
            hosts().fail(RuntimeError(f"rank {self.engine_index}: {answer.failure_message}"))
        self._calls[answer.call_id].set_result(None)

    def _joined(self) -> None:
        """Take part in the current tick, because a message has arrived."""
        self._tick = self._ranks.tick

    @property
    def is_settled(self) -> bool:
        """Whether the rank has run its loop in this tick, or is idle."""
        return (self._is_between_ticks and self._tick == self._ranks.tick) or self.input_queue.is_waiting

    def _process_input_queue(self) -> None:
        self._is_between_ticks = True
        hosts().wait(self._may_run, "the next tick")
        self._is_between_ticks = False
        self._joined()
        self.has_executed = False
        super()._process_input_queue()

    def _may_run(self) -> bool:
        """Return whether a tick has begun, or another rank waits for this one, which ran without a step before."""
        return self._tick < self._ranks.tick or self._ranks.network.lacks(self.engine_index)

    def _process_engine_step(self) -> bool:
        self.has_executed = super()._process_engine_step()
        return self.has_executed


class DataRanks:
    """The data-parallel ranks of one engine specification, which wait for the first tick."""

    def __init__(self, config: Any, network: Network) -> None:
        self.tick, self.network = 0, network
        size, store = config.parallel_config.data_parallel_size, process_group.new_store()
        self.cores: list[DataRankCore] = [None] * size  # type: ignore[list-item]
        self._ranks = [Rank(number) for number in range(size)]
        for rank in self._ranks:
            hosts().start(f"rank {rank.number}", rank, partial(self._serve, pickle.dumps(config), rank.number, store))
        hosts().wait(lambda: all(self.cores), "the ranks to load the model")
        self.coordinator = WaveCoordinator(self.cores)
        # From here on all ranks wait for a message, as after each trace.
        self.step()

    def _serve(self, pickled: bytes, rank: int, store: Any) -> None:
        """Run one rank: load the model, then run vLLM's loop."""
        native().enter_rank(1 + rank)
        process_group.join(rank, len(self.cores), store)
        config = pickle.loads(pickled)
        own = config.parallel_config
        own.data_parallel_rank = own.data_parallel_index = own.data_parallel_rank_local = rank
        core = DataRankCore(config, self)
        self.cores[rank] = core
        core.run_busy_loop()

    def group_of(self, rank: int) -> RankGroup:
        """Return a rank's part of the group in which hosts agree whether a request is left."""
        size = len(self.cores)
        return RankGroup(rank, size, "data-parallel ranks", range(size), self.network)

    def step(self, *, is_message_due: bool = False) -> None:
        """Let each rank that is not idle run its loop once.

        If a message is due in a later tick, a tick ends as well while a rank waits for an idle one, which the message
        may wake.
        """
        self.tick += 1
        hosts().wait(lambda: self._has_ended_step(is_message_due=is_message_due), "the ranks to end their step")

    def _has_ended_step(self, *, is_message_due: bool) -> bool:
        if is_message_due and self.coordinator.has_received_all and any(map(self._is_awaited, self.cores)):
            return True
        have_ended = all(core.is_settled for core in self.cores)
        return have_ended and (not self._are_waiting or self.coordinator.has_received_all)

    def _is_awaited(self, core: DataRankCore) -> bool:
        """Return whether an idle rank has not joined a collective of the others."""
        return core.input_queue.is_waiting and self.network.lacks(core.engine_index)

    @property
    def is_idle(self) -> bool:
        """Whether all ranks wait for a message and none is under way."""
        return self._are_waiting and self.coordinator.is_idle

    @property
    def _are_waiting(self) -> bool:
        return all(core.input_queue.is_waiting for core in self.cores)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix caches of all ranks; return false if a block is in use."""
        are_empty = [core.reset_prefix_cache() for core in self.cores]
        return all(are_empty)

    def shutdown(self) -> None:
        """End the threads of all ranks and of the coordinator."""
        hosts().end([*self._ranks, self.coordinator.rank])
