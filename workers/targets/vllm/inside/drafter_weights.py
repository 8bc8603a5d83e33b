"""Drafter weights in sleep mode: keep them, and compute their digests.

A drafter with a model has own parameters, and shares some with its target.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

# Name pattern of a drafter's parameters, which vLLM can keep on the host at sleep level 2.
_DRAFTER_NAMES = "draft.*"
_KEPT_NAMES_ARGUMENT = "sleep_preserve_parameter_names"


def sleep_arguments(arguments: type) -> Mapping[str, Any]:
    """Return engine arguments that keep drafter weights during sleep; {} for older releases."""
    return (
        {_KEPT_NAMES_ARGUMENT: [_DRAFTER_NAMES]}
        if _KEPT_NAMES_ARGUMENT in {field.name for field in fields(arguments)}
        else {}
    )


def own_digests(engine: Any) -> Mapping[str, str]:
    """Return digests of the drafter's own weights (not the target's); {} if sleep loses them."""
    worker = engine.model_executor.driver_worker.worker
    drafter = worker.get_draft_model()
    if drafter is None or not getattr(engine.vllm_config.model_config, _KEPT_NAMES_ARGUMENT, None):
        return {}
    from vllm.model_executor.model_loader.weight_checksum import compute_tensor_digests  # noqa: PLC0415

    shared = {id(parameter) for parameter in worker.model_runner.get_model().parameters()}
    own = {name for name, parameter in drafter.named_parameters() if id(parameter) not in shared}
    return {name: digest for name, digest in compute_tensor_digests(drafter).items() if name in own}
