"""Weights of a drafter: what is asked of vLLM so that they outlive a sleep, and digests of them.

A drafter that is a model has parameters of its own, and shares some of its target's.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

# Parameters of drafters among those that an engine keeps on the host at level 2, as vLLM names them.
_OF_DRAFTERS = "draft.*"
_KEPT = "sleep_preserve_parameter_names"


def kept_asleep(arguments: type) -> Mapping[str, Any]:
    """Return the arguments of an engine that keeps its drafter's weights at any level; releases before have none."""
    return {_KEPT: [_OF_DRAFTERS]} if _KEPT in {field.name for field in fields(arguments)} else {}


def own_digests(engine: Any) -> Mapping[str, str]:
    """Return digests of the weights that a drafter does not share with its target, if they outlive a sleep."""
    worker = engine.model_executor.driver_worker.worker
    drafter = worker.get_draft_model()
    if drafter is None or not getattr(engine.vllm_config.model_config, _KEPT, None):
        return {}
    from vllm.model_executor.model_loader.weight_checksum import compute_tensor_digests  # noqa: PLC0415

    shared = {id(parameter) for parameter in worker.model_runner.get_model().parameters()}
    own = {name for name, parameter in drafter.named_parameters() if id(parameter) not in shared}
    return {name: digest for name, digest in compute_tensor_digests(drafter).items() if name in own}
