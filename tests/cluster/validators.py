"""Ray's own validators of what it reads."""

import copy
from typing import Any


def accepted_by_autoscaler(values: Any) -> Any:
    """Return a launcher file as the autoscaler completes it; whatever it refuses raises."""
    from ray.autoscaler._private.util import prepare_config, validate_config  # noqa: PLC0415

    prepared = prepare_config(copy.deepcopy(values))
    validate_config(prepared)
    return prepared


def accepted_by_runtime_env(values: Any) -> Any:
    """Return a runtime environment as Ray reads it; whatever it refuses raises."""
    from ray.runtime_env import RuntimeEnv  # noqa: PLC0415

    return RuntimeEnv(**copy.deepcopy(values)).to_dict()
