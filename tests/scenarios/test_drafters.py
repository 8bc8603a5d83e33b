"""The table of drafters: every drafter has traits, and decoded specifications combine it with no refused key."""

from typing import get_args

from scenarios.drafters import DRAFTERS, TRAITS, Drafter, drafters_where
from scenarios.features import refusals
from scenarios.flat_traces import SpecNumbers, spec_of


def test_every_drafter_has_traits_in_order_of_names() -> None:
    # Flat traces encode a drafter as its index in this order.
    assert tuple(TRAITS) == get_args(Drafter)
    assert (*DRAFTERS, *drafters_where(lambda traits: traits.is_extension)) == get_args(Drafter)


def test_spec_of_combines_no_drafter_with_refused_keys() -> None:
    asked = SpecNumbers(k=8, has_prefix_cache=1, drafter_length=40, takes_last_match=1)
    specs = [spec_of(asked._replace(drafter=number)) for number in range(len(DRAFTERS))]
    assert tuple(spec.drafter for spec in specs) == DRAFTERS
    assert [refusals(spec, ()) for spec in specs] == [[]] * len(DRAFTERS)
