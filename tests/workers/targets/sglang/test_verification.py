"""Verified draft tokens: the output tokens have the target's distribution."""

from collections import Counter
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from workers.targets.sglang.inside import verification  # noqa: E402

CHAIN, SIBLINGS = ((1, 2, -1), (-1, -1, -1)), ((1, -1, -1), (-1, 2, -1))


def verified(tree: tuple[tuple[int, ...], ...], drafts: tuple[int, int], coins: list[float], last: float) -> list[int]:
    """Return the output tokens of a row with two draft tokens.

    The target samples from three tokens with probabilities 0.5, 0.3 and 0.2.
    """
    depth = 3 if tree == CHAIN else 2
    predicts, kept, count = torch.zeros(3).int(), torch.full((1, depth), -1), torch.zeros(1).int()
    verification._verify(
        torch.tensor([[0, *drafts]]),
        torch.arange(3).view(1, 3),
        *(torch.tensor([links]) for links in tree),
        torch.tensor([coins]),
        torch.tensor([last]),
        torch.tensor([[[0.5, 0.3, 0.2]] * 3]),
        predicts,
        kept,
        count,
    )
    found: list[int] = predicts[kept[0, : int(count) + 1]].tolist()
    return found


@pytest.mark.parametrize("tree", [CHAIN, SIBLINGS])
@pytest.mark.parametrize("drafts", [(1, 0), (2, 1)])
def test_first_and_second_token_have_the_target_distribution(
    tree: tuple[tuple[int, ...], ...], drafts: tuple[int, int]
) -> None:
    grid = [(index + 0.5) / 10 for index in range(10)]
    first, second = Counter[int](), Counter[int]()
    for one, two, last in product(grid, grid, [(index + 0.5) / 14 for index in range(14)]):
        tokens = verified(tree, drafts, [one, two, 0.0], last)
        first[tokens[0]] += 1
        second.update(tokens[1:2])
    for counts in (first, second):
        shares = [counts[token] / counts.total() for token in range(3)]
        assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_top_k_and_top_p_filters_keep_the_likeliest_tokens() -> None:
    greedy = verification.top_k_filter(None)(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([1]))
    assert greedy.tolist() == [[1.0, 0.0, 0.0]]
    few = verification.top_p_filter(None)(torch.tensor([[0.5, 0.3, 0.2]] * 3), torch.tensor([0.5, 0.6, 1.0]))
    assert few.tolist() == [
        [1.0, 0.0, 0.0],
        pytest.approx([0.625, 0.375, 0.0]),
        pytest.approx([0.5, 0.3, 0.2]),
    ]
