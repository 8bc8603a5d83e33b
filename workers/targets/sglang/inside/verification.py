"""Kernels of SGLang that verify drafts where tokens are drawn, in PyTorch: its own are compiled for GPUs alone.

Probabilities are [rows, tokens]. A token is kept or drawn by numbers below 1, dealt out by seed and position.
"""

from collections.abc import Callable
from typing import Any

import torch

from workers.simulated_torch.device import activate


def likeliest(before: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return what leaves each row its likeliest tokens, so many, and all as likely as the last of them."""

    def top_k_renorm_prob(probabilities: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ordered = probabilities.sort(dim=-1, descending=True).values
        last = (counts.long() - 1).clamp(0, ordered.shape[-1] - 1)
        return _left(probabilities, ordered.gather(-1, last.view(-1, 1)))

    return top_k_renorm_prob


def nucleus(before: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return what leaves each row the fewest likeliest tokens that have so much of the probability together."""

    def top_p_renorm_prob(probabilities: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        ordered = probabilities.sort(dim=-1, descending=True).values
        is_needed = (ordered.cumsum(-1) - ordered < shares.view(-1, 1)) | (shares.view(-1, 1) >= 1)
        least = torch.where(is_needed, ordered, 1.0).amin(-1, keepdim=True)
        return _left(probabilities, least)

    return top_p_renorm_prob


def _left(probabilities: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Return the probabilities of tokens where the others have none."""
    kept = torch.where(probabilities >= least, probabilities, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def verifying(before: Any) -> Callable[..., None]:
    """Return what verifies trees of drafts of which each was proposed for certain, as one task of the device."""

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
        assert threshold_single == threshold_acc == 1, "no draft is kept more often than the target would draw it"
        tree = candidates, retrive_index, retrive_next_token, retrive_next_sibling
        chances = uniform_samples, uniform_samples_for_final_sampling, target_probs
        made = predicts, accept_index, accept_token_num
        activate().enqueue("verify_drawn", _verify, (*tree, *chances), made)

    return tree_speculative_sampling_target_only


def _verify(*views: torch.Tensor) -> None:
    """Go down each row's tree: a child is kept by its probability among what its elder siblings have left.

    Behind the last node that is kept a token is drawn of what its children have left.
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
