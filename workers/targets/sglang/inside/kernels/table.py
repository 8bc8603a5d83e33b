"""Table of the definitions of SGLang's kernels, by the kernels' qualified names."""

from workers.simulated_torch.kernel_definitions import Definition
from workers.targets.sglang.inside.kernels import drafting, sampling, slots, trees

TABLE: dict[str, Definition] = {
    name: definition for each in (drafting, sampling, slots, trees) for name, definition in each.DEFINITIONS.items()
}
