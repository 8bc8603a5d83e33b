"""Faults in isolation: a request changes another's result by its end or a reused name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workers.engine.functions import EngineFunctions
from workers.engine.input_batch import Key, Row
from workers.engine.request import Request
from workers.faults.fault import Reached, fault
from workers.kernels.sentinels import NO_PREVIOUS_ROW


@fault(
    id="lmdeploy-4671-stop-tokens-of-all",
    source="lmdeploy PR #4671",
    symptom="a request ends at the stop token of another request",
    trigger="a request samples a stop token of another running request",
    plane="books",
)
def _stop_tokens_of_all(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    batch: dict[int, Request] = {}

    def accepted_length(request: Request, sampled: Sequence[int]) -> tuple[int, str | None]:
        batch[request.index] = request
        flat = {token for other in batch.values() if other.running for token in other.stop}
        found = functions.accepted_length(request, sampled)
        first = next((index for index, token in enumerate(sampled[: found[0]]) if token in flat), None)
        if first is None or found == (first + 1, "stop"):
            return found
        reached()
        return first + 1, "stop"

    return replace(functions, accepted_length=accepted_length)


@fault(
    id="ikllama-1673-sticky-flag",
    source="ik_llama.cpp PR #1673",
    symptom="a request's sampled tokens are discarded because another request was aborted",
    trigger="a request is aborted with a sample in flight, and another row is processed after it",
    plane="tokens",
)
def _abort_cancels_the_next(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    flags: list[int] = []

    def has_ended(request: Request) -> bool:
        if functions.has_ended(request):
            if request.finish_reason == "abort":
                flags[:] = [request.index]
            return True
        if not flags:
            return False
        reached()
        flags.clear()
        return True

    return replace(functions, has_ended=has_ended)


@fault(
    id="vllm-id-reuse",
    source="vllm, request ids that are not made unique (derived from its source; no report)",
    symptom="a new request's input is the sampled token of an earlier request with its name",
    trigger="a request ends, and another with its name joins the very next step",
    plane="counts",
)
def _rows_known_by_name(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    newest: dict[str, Key] = {}

    def previous_row(row: Row, previous: Mapping[Key, int]) -> int:
        name = row.plan.request.name
        found, before = functions.previous_row(row, previous), newest.get(name, row.key)
        newest[name] = row.key
        if found == NO_PREVIOUS_ROW and before[0] != row.key[0] and before in previous:
            reached()
            return previous[before]
        return found

    return replace(functions, previous_row=previous_row)
