"""Known races of vLLM, each read in its source and written about in `findings/`: counted, not reported again.

Each is of the model runner that has it, and recognised by both functions and the memory that they use.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from scenarios.spec import PRODUCER
from scenarios.trace import Trace
from workers.record.evidence import HOST, MissingOrder
from workers.targets.vllm.runner_name import RunnerName

_SPEC_DECODE = ("vllm/v1/spec_decode/llm_base_proposer.py", "vllm/v1/spec_decode/ngram_proposer_gpu.py")
_SAMPLING_STATES = "runner.sampler.sampling_states."


class KnownRace(NamedTuple):
    """Two functions of the engine, an empty name for any, and a test of the memory that they use; the page.

    `is_met` tells of which traces it is.
    """

    first: str
    second: str
    is_of: Callable[[MissingOrder], bool]
    page: str
    is_met: Callable[[Trace], bool] = lambda trace: True


def _is_of_a_dummy_step(race: MissingOrder) -> bool:
    """Tell whether inputs of a dummy step are copied from pinned memory that the host writes next."""
    first = (race.first.site, *race.first.callers)
    return (
        any(site is not None and site.function == "_dummy_run" for site in first)
        and race.first.op == "copy_h2d"
        and race.second.lane == HOST
        and race.memory.startswith("runner.")
        and race.memory.endswith(("cpu", "_cpu_tensor"))
    )


def _is_before_a_load(race: MissingOrder, caches: tuple[str, ...]) -> bool:
    """Tell whether one of some caches is written by a load next.

    What a consumer's load reads of its producer is another race.
    """
    return race.memory.startswith(caches) and (race.second.op, race.second.how) == ("load_blocks", "write")


_OF_FIRST = (
    KnownRace(
        "copy_to_gpu",
        "prepare_next_token_ids_padded",
        lambda race: race.memory == "runner.drafter.backup_next_token_ids.cpu",
        "vllm_backup_tokens_staging",
    ),
    KnownRace(
        "_prepare_inputs",
        "correct_spec_decode_token_counts",
        lambda race: race.memory == "runner.input_batch.num_computed_tokens_cpu_tensor",
        "vllm_computed_counts_in_flight",
    ),
    # Accepted counts of a hybrid model's rows: they are copied to where rows are moved.
    *(
        KnownRace(
            copies,
            moves,
            lambda race: race.memory == "runner.input_batch.num_accepted_tokens_cpu_tensor",
            "vllm_accepted_counts_moved",
        )
        for copies in ("postprocess_mamba_align_gpu", "_update_states_after_model_execute")
        for moves in ("condense", "swap_states", "add_request")
    ),
    # What a step has staged for its states is staged again in it.
    KnownRace(
        "copy_to_gpu",
        "execute_model",
        lambda race: race.memory == "runner.num_accepted_tokens.cpu",
        "vllm_staged_twice",
    ),
    KnownRace(
        "copy_to_gpu",
        "stage_postprocess_inputs_to_gpu",
        lambda race: race.first.step == race.second.step,
        "vllm_staged_twice",
    ),
    # With asynchronous scheduling the host waits for it.
    *(
        KnownRace(copies, "", _is_of_a_dummy_step, "vllm_dummy_step_inputs", lambda trace: trace.spec.depth == 1)
        for copies in ("copy_to_gpu", "_dummy_run")
    ),
    # The next owner of the memory writes it, whichever that is.
    KnownRace(
        "_copy_valid_sampled_token_count",
        "",
        lambda race: race.allocated is not None and race.allocated.file in _SPEC_DECODE and race.reused_as != "",
        "vllm_counts_without_record_stream",
    ),
)
_OF_SECOND = (
    *(
        KnownRace(
            drafts,
            "copy_to_uva",
            lambda race: (
                race.memory in [f"{_SAMPLING_STATES}{name}.pool._uva_bufs.cpu" for name in ("temperature", "seeds")]
            ),
            "vllm_v2_sampling_states_in_flight",
        )
        for drafts in ("_copy_request_inputs", "prepare_dflash_inputs")
    ),
    *(
        KnownRace(
            uses,
            copies,
            partial(_is_before_a_load, caches=caches),
            "vllm_v2_loads_beside_drafters",
        )
        # States are copied to the ends of blocks behind that event as well; a drafter without layers has none in them.
        for uses, caches in (
            ("do_kv_cache_update", ("drafter.caches",)),
            ("forward", ("drafter.caches",)),
            ("run_fused_postprocess_align", ("drafter.caches", "runner.kv_caches")),
        )
        # Of a connector of ours, and of vLLM's simple one.
        for copies in ("_copy", "copy")
    ),
)
KNOWN_RACES: Mapping[RunnerName, tuple[KnownRace, ...]] = {"v1": _OF_FIRST, "v2": _OF_SECOND}


def is_known_race(race: MissingOrder, trace: Trace, runner: RunnerName, fixed: Collection[str] = ()) -> bool:
    """Return whether a race in a trace is a known bug of a runner that is not among the `fixed` ones."""
    race = race.model_copy(update={"memory": race.memory.removeprefix(f"{PRODUCER}.")})
    return any(
        known.page not in fixed
        and known.first in ("", race.first.actor)
        and known.second in ("", race.second.actor)
        and known.is_of(race)
        and known.is_met(trace)
        for known in KNOWN_RACES[runner]
    )
