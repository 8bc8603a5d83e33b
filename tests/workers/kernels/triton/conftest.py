"""Set the device of the Triton kernels before Triton is imported and reads its environment."""

import os
import sys

import torch

if not torch.cuda.is_available():
    loaded_compiled = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
    assert not loaded_compiled, (
        "Triton was imported before tests/workers/kernels/triton/conftest.py chose its interpreter"
    )
    os.environ["TRITON_INTERPRET"] = "1"
