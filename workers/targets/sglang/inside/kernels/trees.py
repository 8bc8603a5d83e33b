"""NumPy definitions of SGLang's kernels that build and verify draft trees."""

from collections.abc import Sequence

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given, Memory

_MODULE = "sglang.kernels.ops.speculative.spec_tree"
_FULL_MASK = 0
_ROOT, _NOT_SELECTED = -1, -2


def build_tree(programs: tuple[int, ...], args: Given) -> None:
    """Write each request's draft tree: children, siblings, attention mask and positions.

    Node 0 is the last verified token, node n is draft token n - 1.
    """
    size = args.draft_token_num
    for row in range(programs[0]):
        first, length = row * size, args.verified_seq_len_ptr[row]
        start = row * args.selected_index_stride
        selected = [args.selected_index_ptr[start + draft] for draft in range(size - 1)]
        parents = _parents(selected, args.parent_list_ptr, row * args.parent_list_stride, args.topk)
        for node in range(size - 1, 0, -1):
            args.retrieve_index_ptr[first + node] = first + node
            parent = parents[node - 1]
            if parent == _NOT_SELECTED:
                continue
            after = args.retrieve_next_token_ptr[first + parent + 1]
            args.retrieve_next_token_ptr[first + parent + 1] = node
            if after != -1:
                args.retrieve_next_sibling_ptr[first + node] = after
        args.retrieve_index_ptr[first] = first
        for node in range(size):
            path = _path(parents, node, args.depth)
            args.positions_ptr[first + node] = length + len(path)
            at = first * size + node * size
            if args.tree_mask_mode == _FULL_MASK:
                at += args.seq_len_prefix_sum_ptr[row] * size + length * node + length
            mask = args.tree_mask_ptr.span(at, size)
            mask[:] = 0
            mask[[0, *(draft + 1 for draft in path)]] = 1


def _parents(selected: Sequence[int], parent_list: Memory, start: int, topk: int) -> list[int]:
    """Return the parent of each draft token in the tree: another draft token, the root, or none."""
    found = []
    for chosen in selected:
        block = chosen // topk
        token = parent_list[start + block] if block else None
        found.append(_ROOT if token is None else selected.index(token) if token in selected else _NOT_SELECTED)
    return found


def _path(parents: Sequence[int], node: int, depth: int) -> list[int]:
    """Return the draft tokens from a node up to the root, at most `depth` of them."""
    path: list[int] = []
    draft = node - 1
    while draft >= 0 and len(path) < depth:
        path.append(draft)
        draft = parents[draft]
    return path


def verify_greedily(programs: tuple[int, ...], args: Given) -> None:
    """Accept draft tokens along each request's tree as long as they equal the target's tokens.

    Write the accepted nodes, and the target's predictions along the way.
    """
    size, most = args.num_draft_tokens, args.num_speculative_tokens
    for row in range(programs[0]):
        first, accepted = row * size, 0
        last, node = args.retrieve_index_ptr[first], 0
        args.accept_index_ptr[row * most] = last
        while accepted + 1 < most:
            target = args.target_predict_ptr[last]
            node = args.retrieve_next_token_ptr[first + node]
            while node != -1 and args.candidates_ptr[first + node] != target:
                node = args.retrieve_next_sibling_ptr[first + node]
            if node == -1:
                break
            args.predicts_ptr[last] = target
            accepted += 1
            last = args.retrieve_index_ptr[first + node]
            args.accept_index_ptr[row * most + accepted] = last
        args.accept_token_num_ptr[row] = accepted
        args.predicts_ptr[last] = args.target_predict_ptr[last]


def rebuild_tree(programs: tuple[int, ...], args: Given) -> None:
    """Write position, first child and next sibling of each tree node, from its ancestors.

    The mask has shape [n, n] for each request. A node's parent is the last of its ancestors, which precede it.
    """
    size = args.n
    for row in range(programs[0]):
        first = row * size
        mask = args.tree_mask_ptr.span(first * size, size * size).reshape(size, size)
        parents = [max(np.flatnonzero(mask[node, :node]), default=-1) for node in range(size)]
        for node in range(size):
            later = range(node + 1, size)
            child = next((other for other in later if mask[other, node]), -1)
            siblings = (other for other in later if parents[other] == parents[node])
            depth = np.count_nonzero(mask[node, :node])
            args.positions_ptr[first + node] = args.verified_seq_len_ptr[row] + depth
            args.retrieve_index_ptr[first + node] = first + node
            args.retrieve_next_token_ptr[first + node] = child
            args.retrieve_next_sibling_ptr[first + node] = next(siblings, -1) if parents[node] >= 0 else -1


DEFINITIONS = {
    "sglang.kernels.ops.speculative.reconstruct_tree._reconstruct_tree_mask_kernel": Definition(
        rebuild_tree, "bea15aaef934d142"
    ),
    f"{_MODULE}.sgl_build_tree_kernel_efficient_triton": Definition(build_tree, "e75000a317491c75"),
    f"{_MODULE}.verify_tree_greedy_kernel_triton": Definition(verify_greedily, "9babab392dc63f59"),
}
