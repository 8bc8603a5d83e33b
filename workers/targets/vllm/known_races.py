"""Known races of vLLM: accesses that nothing orders, each read in the source and written about in `docs/findings/`.

They are counted, not reported again. Both sides are named by the function that made the access, and so is the memory
that they have in common: of anything else the same functions may still race, and that is reported.
"""

import re
from typing import NamedTuple


class KnownRace(NamedTuple):
    """One pair of functions, an empty name for any; the memory, as a pattern of its whole text; the page."""

    first: str
    second: str
    memory: str
    page: str

    def is_of(self, first: str, second: str, memory: str) -> bool:
        """Tell whether a race of two functions for some memory is this one."""
        functions = self.first in ("", first) and self.second in ("", second)
        return functions and re.fullmatch(self.memory, memory) is not None


KNOWN_RACES: tuple[KnownRace, ...] = (
    KnownRace(
        "copy_to_gpu",
        "prepare_next_token_ids_padded",
        r"runner\.drafter\.backup_next_token_ids\.cpu",
        "vllm_backup_tokens_staging",
    ),
    KnownRace(
        "_prepare_inputs",
        "correct_spec_decode_token_counts",
        r"runner\.input_batch\.num_computed_tokens_cpu_tensor",
        "vllm_computed_counts_in_flight",
    ),
    # The memory is reused, so any function may write it next.
    KnownRace(
        "_copy_valid_sampled_token_count",
        "",
        r".* allocated at vllm/v1/spec_decode/(llm_base_proposer|ngram_proposer_gpu)\.py:\d+, handed out again as .*",
        "vllm_counts_without_record_stream",
    ),
    KnownRace(
        "_copy_request_inputs",
        "copy_to_uva",
        r"runner\.sampler\.sampling_states\.(temperature|seeds)\.pool\._uva_bufs\.cpu",
        "vllm_v2_sampling_states_in_flight",
    ),
)


def is_known(first: str, second: str, memory: str) -> bool:
    """Tell whether a race between two functions for some memory is known."""
    return any(race.is_of(first, second, memory) for race in KNOWN_RACES)
