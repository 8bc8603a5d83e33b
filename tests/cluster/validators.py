"""Ray's own validators, run in a subprocess, because Ray reads its authentication mode once."""

import json
import subprocess
import sys
from typing import Any

_AUTOSCALER = """
import json, sys
from ray.autoscaler._private.util import prepare_config, validate_config
prepared = prepare_config(json.load(sys.stdin))
validate_config(prepared)
print(json.dumps(prepared))
"""
_RUNTIME_ENV = """
import json, sys
from ray.runtime_env import RuntimeEnv
print(json.dumps(RuntimeEnv(**json.load(sys.stdin)).to_dict()))
"""


def accepted_by_autoscaler(values: Any) -> Any:
    """Return a launcher file with the defaults that Ray's autoscaler adds.

    Raises:
        ValueError: it is refused; the message is what Ray printed.
    """
    return _answer(_AUTOSCALER, values)


def accepted_by_runtime_env(values: Any) -> Any:
    """Return a runtime environment as Ray parses it.

    Raises:
        ValueError: it is refused; the message is what Ray printed.
    """
    return _answer(_RUNTIME_ENV, values)


def _answer(program: str, values: Any) -> Any:
    asked = [sys.executable, "-c", program]
    done = subprocess.run(asked, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])
