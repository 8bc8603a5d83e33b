"""Known races of vLLM, each read in its source and written about in `docs/findings/`: counted, not reported again.

Each is of the model runner that has it, and recognised by both functions and the memory that they use.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from scenarios.spec import PRODUCER
from workers.record.evidence import MissingOrder
from workers.targets.vllm.runner_name import RunnerName

_SPEC_DECODE = ("vllm/v1/spec_decode/llm_base_proposer.py", "vllm/v1/spec_decode/ngram_proposer_gpu.py")
_SAMPLING_STATES = "runner.sampler.sampling_states."


class KnownRace(NamedTuple):
    """Two functions of the engine, an empty name for any, and a test of the memory that they use; the page."""

    first: str
    second: str
    is_of: Callable[[MissingOrder], bool]
    page: str


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
            "_copy",
            # What a consumer's load reads of its producer is another race.
            lambda race: (
                race.memory.startswith("drafter.caches")
                and (race.second.op, race.second.how) == ("load_blocks", "write")
            ),
            "vllm_v2_loads_beside_drafters",
        )
        for uses in ("do_kv_cache_update", "forward")
    ),
)
KNOWN_RACES: Mapping[RunnerName, tuple[KnownRace, ...]] = {"v1": _OF_FIRST, "v2": _OF_SECOND}


def is_known_race(race: MissingOrder, runner: RunnerName) -> bool:
    """Tell whether a race is known of a runner, whichever engine of a trace it is in."""
    race = race.model_copy(update={"memory": race.memory.removeprefix(f"{PRODUCER}.")})
    return any(
        known.first in ("", race.first.actor) and known.second in ("", race.second.actor) and known.is_of(race)
        for known in KNOWN_RACES[runner]
    )
