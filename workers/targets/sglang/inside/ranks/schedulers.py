"""Schedulers of the ranks of one engine, each in a host thread of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sglang.srt import runtime_context

from workers.simulated_torch import process_group
from workers.simulated_torch.native import native
from workers.targets.child.inside.ranks import Hosts, Rank
from workers.targets.sglang.inside.ranks.receiver import EndOfTrace, Mailbox, RankReceiver


class RankLoops:
    """Event loops of the ranks during one trace, with the interface of `EventLoop`."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox, self._ranks = mailbox, range(len(mailbox.num_begun))
        self._wait_for(self._ranks, 1)

    def step(self, requests: Sequence[Any]) -> None:
        """Run one iteration of rank 0 that receives these requests; the other ranks may run it later."""
        self._mailbox.coming.append(requests)
        self._wait_for([0], self._mailbox.num_begun[0] + 1)

    def settle(self) -> None:
        """Wait until all ranks have run the iterations of rank 0."""
        self._wait_for(self._ranks, self._mailbox.num_begun[0])

    def end(self) -> None:
        """Let the event loops of all ranks end, after an iteration without requests."""
        self._mailbox.coming.append([EndOfTrace()])
        self._mailbox.hosts.wait(lambda: all(self._mailbox.has_ended), "the event loops to end")

    def _wait_for(self, ranks: Sequence[int], count: int) -> None:
        begun = self._mailbox.num_begun
        self._mailbox.hosts.wait(lambda: all(begun[rank] >= count for rank in ranks), f"iteration {count} of {ranks}")


class RankSchedulers:
    """One engine with several ranks; its threads run until `end`.

    `make` returns the scheduler of a rank, `reset` restores a scheduler's initial state before each trace.
    """

    def __init__(self, num_ranks: int, hosts: Hosts, make: Callable[[int], Any], reset: Callable[[Any], None]) -> None:
        self._hosts, self._make, self._reset = hosts, make, reset
        self._made: dict[int, Any] = {}
        # SGLang's runtime context of each rank.
        self.contexts: dict[int, Any] = {}
        self._mailbox: Mailbox | None = None
        self._ranks = [Rank(number) for number in range(num_ranks)]
        store = process_group.new_store()
        for rank in self._ranks:
            hosts.start(f"rank {rank.number}", rank, partial(self._serve, rank.number, store))

    def load(self) -> None:
        """Wait until all ranks have loaded the model."""
        self._hosts.wait(lambda: len(self._made) == len(self._ranks), "the ranks to load the model")

    @property
    def schedulers(self) -> Sequence[Any]:
        """Return the schedulers by rank."""
        return [self._made[rank.number] for rank in self._ranks]

    def loop(self) -> RankLoops:
        """Begin a trace: run the event loops of all ranks up to their first wait for requests."""
        self._mailbox = Mailbox(self._hosts, [0] * len(self._ranks), [False] * len(self._ranks))
        return RankLoops(self._mailbox)

    def end(self) -> None:
        """End the threads of all ranks."""
        self._hosts.end(self._ranks)

    def _serve(self, rank: int, store: Any) -> None:
        """Run one rank: load the model, then run the event loop of each trace."""
        native().enter_rank(1 + rank)
        process_group.join(rank, len(self._ranks), store)
        use_context(runtime_context.RuntimeContext(parallel=runtime_context.ParallelContext()))
        self.contexts[rank] = runtime_context.get_context()
        scheduler = self._made[rank] = self._make(rank)
        own_receiver, last = scheduler.request_receiver, None
        while True:
            self._hosts.wait(partial(self._is_new, last), "a trace")
            assert self._mailbox is not None, "a trace has begun"
            last = self._mailbox
            self._reset(scheduler)
            scheduler.gracefully_exit = False
            scheduler.request_receiver = RankReceiver.of(own_receiver, scheduler, rank, last)
            scheduler.run_event_loop()
            last.has_ended[rank] = True

    def _is_new(self, last: Mailbox | None) -> bool:
        return self._mailbox is not last


def use_context(context: Any) -> None:
    """Make a runtime context the one of the calling thread's rank, or of the driver."""
    runtime_context._CONTEXT, runtime_context._PARALLEL = context, context.parallel
