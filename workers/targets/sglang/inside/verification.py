"""Verification of sampled draft tokens in PyTorch; SGLang's own kernels need a GPU.

Probabilities have shape [rows, tokens]. Decisions use uniform random numbers below 1 that SGLang derives from seed and
position.
"""

from collections.abc import Callable
from typing import Any

import torch

from workers.simulated_torch.device import activate


def top_k_filter(before: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Replace a filter: keep the k likeliest tokens of each row, and renormalise.

    Tokens with the same probability as the k-th one are kept too.
    """

    def top_k_renorm_prob(probabilities: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ordered = probabilities.sort(dim=-1, descending=True).values
        last = (counts.long() - 1).clamp(0, ordered.shape[-1] - 1)
        return _filtered(probabilities, ordered.gather(-1, last.view(-1, 1)))

    return top_k_renorm_prob


def top_p_filter(before: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Replace a filter: keep the likeliest tokens up to probability p, and renormalise."""

    def top_p_renorm_prob(probabilities: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        ordered = probabilities.sort(dim=-1, descending=True).values
        is_needed = (ordered.cumsum(-1) - ordered < shares.view(-1, 1)) | (shares.view(-1, 1) >= 1)
        least = torch.where(is_needed, ordered, 1.0).amin(-1, keepdim=True)
        return _filtered(probabilities, least)

    return top_p_renorm_prob


def _filtered(probabilities: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Return the probabilities, with those below `least` removed, renormalised."""
    kept = torch.where(probabilities >= least, probabilities, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def tree_verification(before: Any) -> Callable[..., None]:
    """Replace the verification of draft trees by one device task.

    Each draft token was proposed with probability 1 (greedy drafting).
    """

    def tree_speculative_sampling_target_only(
        *,
        predicts: torch.Tensor,
        accept_index: torch.Tensor,
        accept_token_num: torch.Tensor,
        candidates: torch.Tensor,
        retrive_index: torch.Tensor,
        retrive_next_token: torch.Tensor,
        retrive_next_sibling: torch.Tensor,
        uniform_samples: torch.Tensor,
        uniform_samples_for_final_sampling: torch.Tensor,
        target_probs: torch.Tensor,
        draft_probs: torch.Tensor,
        threshold_single: float,
        threshold_acc: float,
        deterministic: bool,
    ) -> None:
        assert threshold_single == threshold_acc == 1, (
            "no draft token is accepted more often than the target would sample it"
        )
        tree = candidates, retrive_index, retrive_next_token, retrive_next_sibling
        chances = uniform_samples, uniform_samples_for_final_sampling, target_probs
        made = predicts, accept_index, accept_token_num
        activate().enqueue("verify_drawn", _verify, (*tree, *chances), made)

    return tree_speculative_sampling_target_only


def _verify(*views: torch.Tensor) -> None:
    """Accept draft tokens along each row's tree by rejection sampling; add a bonus token.

    A child is accepted with its target probability, given that the siblings before it were rejected. After the last
    accepted node, the next token is sampled from the target's distribution without the rejected children.
    """
    candidates, places, children, siblings, coins, last_coins, probabilities, predicts, kept, counts = views
    for row in range(len(candidates)):
        node, count, rest = 0, 0, probabilities[row, 0].double()
        kept[row, 0] = places[row, 0]
        while count + 1 < kept.shape[1]:
            coin, mass, child = float(coins[row, node]), 0.0, int(children[row, node])
            while child >= 0:
                token = int(candidates[row, child])
                mass += float(probabilities[row, node, token])
                if coin <= mass:
                    break
                rest[token] = 0
                child = int(siblings[row, child])
            if child < 0:
                break
            predicts[places[row, node]] = token
            count += 1
            kept[row, count] = places[row, child]
            node, rest = child, probabilities[row, child].double()
        counts[row] = count
        share = rest.cumsum(0)
        below = int((share <= float(last_coins[row]) * share[-1]).sum())
        predicts[places[row, node]] = min(below, int(rest.nonzero()[-1]))
