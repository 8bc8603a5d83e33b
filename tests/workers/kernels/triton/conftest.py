"""Choose where the Triton kernels run, before anything imports Triton: it reads its environment when it is loaded."""

import os
import sys

import torch

if not torch.cuda.is_available():
    loaded_compiled = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
    assert not loaded_compiled, (
        "Triton was imported before tests/workers/kernels/triton/conftest.py chose its interpreter"
    )
    os.environ["TRITON_INTERPRET"] = "1"
