"""vLLM's executor of processes, with a thread of this process in place of each."""

import pickle
from collections import deque
from functools import partial
from multiprocessing import Lock
from typing import Any

from vllm.v1.executor.multiproc_executor import FutureWrapper, MultiprocExecutor, WorkerProc

from workers.simulated_torch import process_group
from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Rank
from workers.targets.vllm.inside.ranks.queues import MessageQueue, forget_groups, hosts


class RankProcess(WorkerProc):  # type: ignore[misc]
    """One rank: vLLM's worker process, its loop and its thread of outputs, without a process."""

    @staticmethod
    def setup_proc_title_and_log_prefix(enable_ep: bool) -> None:
        """Do nothing: a thread has no title, and its output goes to the process of all ranks."""


class RankExecutor(MultiprocExecutor):  # type: ignore[misc]
    """vLLM's multiprocess executor; each rank is a host thread of this process."""

    def _init_executor(self) -> None:
        self.is_failed, self.failure_callback = False, None
        self._get_parallel_sizes()
        self.rpc_broadcast_mq = MessageQueue(self.world_size)
        self.processes: dict[int, RankProcess] = {}
        self.ranks = [Rank(number) for number in range(self.world_size)]
        self.futures_queue: deque[FutureWrapper] = deque()
        self.output_rank = self._get_output_rank()
        store = process_group.new_store()
        forget_groups()
        for rank in self.ranks:
            hosts().start(f"rank {rank.number}", rank, partial(self._serve, rank.number, store))
        hosts().wait(lambda: len(self.processes) == self.world_size, "the ranks to load the model")
        self.response_mqs = [self.processes[rank].worker_response_mq for rank in range(self.world_size)]
        self._post_init_executor()

    def _serve(self, rank: int, store: Any) -> None:
        """Run one rank: load the model, then serve the engine's calls."""
        native().enter_rank(1 + rank)
        process_group.join(rank, self.world_size, store)
        process = RankProcess(
            vllm_config=pickle.loads(pickle.dumps(self.vllm_config)),
            local_rank=rank,
            rank=rank,
            distributed_init_method="ranks",
            input_shm_handle=self.rpc_broadcast_mq.export_handle(),
            shared_worker_lock=Lock(),
            is_driver_worker=self._is_driver_worker(rank),
        )
        self.processes[rank] = process
        process.worker_busy_loop()

    @property
    def driver_worker(self) -> Any:
        """The worker of the rank that returns the outputs."""
        return self.processes[self.output_rank].worker

    def shutdown(self) -> None:
        """End the threads of all ranks."""
        hosts().end(self.ranks)
