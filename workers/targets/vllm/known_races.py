"""Known races of vLLM: accesses that nothing orders, each read in the source and written about in `docs/findings/`.

They are counted, not reported again. Both sides are named by the function that made the access.
"""

from typing import NamedTuple

KNOWN_RACE = "known_race"


class KnownRace(NamedTuple):
    """One pair of functions, an empty name for any; the page that tells of it."""

    first: str
    second: str
    page: str

    def is_of(self, first: str, second: str) -> bool:
        """Tell whether a race between two functions is this one."""
        return self.first in ("", first) and self.second in ("", second)


KNOWN_RACES: tuple[KnownRace, ...] = (
    KnownRace("copy_to_gpu", "prepare_next_token_ids_padded", "vllm_backup_tokens_staging"),
    KnownRace("_prepare_inputs", "correct_spec_decode_token_counts", "vllm_computed_counts_in_flight"),
    KnownRace("_copy_valid_sampled_token_count", "", "vllm_counts_without_record_stream"),
)


def is_known(first: str, second: str) -> bool:
    """Tell whether a race between two functions is known."""
    return any(race.is_of(first, second) for race in KNOWN_RACES)
