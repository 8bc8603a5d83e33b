"""Custom logits processor that bans a request's latest output token."""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any

import torch

from workers.targets.vllm.request_features import NO_REPEATS


@cache
def no_repeats() -> type:
    """Return a logits-processor class for vLLM, which makes one object of it per engine."""
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor  # noqa: PLC0415

    class NoRepeats(AdapterLogitsProcessor):  # type: ignore[misc]
        """Bans the latest output token of requests that ask for this in `extra_args`."""

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            """Accept any request: its parameters need no validation."""

        def is_argmax_invariant(self) -> bool:
            return False

        def new_req_logits_processor(self, params: Any) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
            return _ban_last if (params.extra_args or {}).get(NO_REPEATS) else None

    return NoRepeats


def _ban_last(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    if output:
        logits[output[-1]] = -inf
    return logits
