"""Observations of the host's counts at fixed points of a step, for the judges only.

They copy state, as the device captures do; a production engine would not need them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workers.engine.input_batch import Key, Row
from workers.engine.logprobs import TokenLogprobs
from workers.engine.prefixes import Prefixes
from workers.engine.request import Request
from workers.engine.scheduler import Scheduler
from workers.engine.step import Step
from workers.record.observation import Observation


def observe_schedule(tick: int, scheduler: Scheduler) -> Observation:
    """Observe the scheduler's counts (and prefix cache) after it has decided a step."""
    running = scheduler.running
    values: dict[str, Any] = {
        "scheduled_computed": [request.num_computed for request in running],
        "scheduled_placeholders": [request.num_placeholders for request in running],
        "scheduled_known": [len(request.tokens) for request in running],
    }
    if scheduler.cache is not None:
        values |= _prefix_cache_state(scheduler.cache)
    return Observation("scheduled", tick, tuple([request.index for request in running]), values)


def observe_launch(step: int, rows: Sequence[Row], backups: Sequence[int]) -> Observation:
    """Observe the host's token counts of each batch row at the launch of a step."""
    values = {
        "mirror_computed": [row.num_computed for row in rows],
        "mirror_no_spec": [row.num_tokens_no_spec for row in rows],
        "discard": [row.plan.discard for row in rows],
        "backup": [*backups],
    }
    return Observation("launched", step, tuple([row.key[0] for row in rows]), values)


def observe_correction(step: Step, here: Mapping[Key, Row]) -> Observation:
    """Observe the host's computed counts after a step's rejected drafts were subtracted."""
    found = [here[key] for key in step.keys if key in here]
    values = {"corrected_computed": [row.num_computed for row in found]}
    return Observation("corrected", step.number, tuple([row.key[0] for row in found]), values)


def observe_results(
    step: Step,
    delivered: Sequence[Sequence[int]],
    logprobs: Sequence[TokenLogprobs] | None,
    drafts: Sequence[Sequence[int]] | None,
    scheduler: Scheduler,
) -> Observation:
    """Observe a processed step's results, host draft tokens and scheduler counts."""
    requests = [row.request for row in step.rows]
    values: dict[str, Any] = {
        "tokens": [*delivered],
        "finish_reason": [request.finish_reason for request in requests],
        "computed": [request.num_computed for request in requests],
        "placeholders": [request.num_placeholders for request in requests],
        "free_blocks": scheduler.blocks.num_free,
        "free_state_slots": scheduler.state_slots.num_free,
    }
    if scheduler.cache is not None:
        values |= _prefix_cache_state(scheduler.cache)
    if logprobs is not None:
        values["logprobs"] = [*logprobs]
    if drafts is not None:
        values["host_drafts"] = [*drafts]
    return Observation("processed", step.number, tuple([request.index for request in requests]), values)


def observe_drained(
    tick: int, scheduler: Scheduler, requests: Iterable[Request], drafts_of: Iterable[int]
) -> Observation:
    """Observe the requests, blocks and slots still held after the last request has ended.

    `drafts_of` are requests with kept draft tokens.
    """
    held = [("drafts", request) for request in drafts_of]
    for request in requests:
        in_flight = request.num_in_flight or request.num_stale or request.num_dropped
        owned = {"blocks": request.blocks, "drafts": request.drafts, "tokens in flight": in_flight}
        held += [(what, request.index) for what, some in owned.items() if some]
    values = {
        "free_blocks": scheduler.blocks.num_free,
        "free_state_slots": scheduler.state_slots.num_free,
        "held": tuple(held),
    }
    return Observation("drained", tick, (), values)


def _prefix_cache_state(cache: Prefixes) -> dict[str, tuple[int, ...]]:
    """Return the prefix cache's reference counts and hashes by block, and its order of eviction."""
    pool = cache.pool
    return {
        "block_references": tuple(pool.references),
        "cached_hashes": tuple([content or 0 for content in pool.hash_of]),
        "idle_blocks": tuple(pool.idle),
    }
