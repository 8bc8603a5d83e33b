"""Scheduler step that checks that a paused scheduler admits no request."""

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

TOKEN = 1


def launch(scheduler: Scheduler) -> None:
    """Schedule a step; while paused, assert that it admits no request."""
    running = {request.request_id for request in scheduler.running}
    plan = scheduler.schedule()
    if scheduler.pause_state != PauseState.UNPAUSED:
        assert plan.num_scheduled_tokens.keys() <= running
    requests = scheduler.requests
    sampled = {
        name: [] if requests[name].is_prefill_chunk else [TOKEN]
        for name in plan.num_scheduled_tokens
    }
    scheduler.in_flight.append((plan, sampled))
