"""Table of the definitions of SGLang's kernels, by the qualified names of these."""

from workers.targets.sglang.inside.kernels import cache_locs, kv_indices, spec_tree
from workers.targets.simulated_torch.kernel_definitions import Definition

_MODULES = (cache_locs, kv_indices, spec_tree)
TABLE: dict[str, Definition] = {
    f"{each.MODULE}.{name}": definition for each in _MODULES for name, definition in each.DEFINITIONS.items()
}
