"""Logits processor of a user, as vLLM takes it by its class: a request bans the token that it has chosen last."""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any

import torch

from workers.targets.vllm.request_features import NO_REPEATS


@cache
def no_repeats() -> type:
    """Return the class, which reads the tokens of each request's output wherever its row is."""
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor  # noqa: PLC0415

    class NoRepeats(AdapterLogitsProcessor):  # type: ignore[misc]
        """Processor of each request by itself."""

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            """Take any request."""

        def is_argmax_invariant(self) -> bool:
            return False

        def new_req_logits_processor(self, params: Any) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
            return _ban_last if (params.extra_args or {}).get(NO_REPEATS) else None

    return NoRepeats


def _ban_last(output: list[int], logits: torch.Tensor) -> torch.Tensor:
    if output:
        logits[output[-1]] = -inf
    return logits
