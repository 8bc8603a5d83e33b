"""Table of the NumPy definitions of SGLang's kernels, by qualified kernel name."""

from workers.simulated_torch.kernel_definitions import Definition
from workers.targets.sglang.inside.kernels import drafting, sampling, slots, trees

TABLE: dict[str, Definition] = {
    name: definition for each in (drafting, sampling, slots, trees) for name, definition in each.DEFINITIONS.items()
}
