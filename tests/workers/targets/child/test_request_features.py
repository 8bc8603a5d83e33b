"""Tables of request features: declared names, parameters, limits and exported tests."""

import pytest

from scenarios.capabilities import FEATURES
from scenarios.events import SUBMIT_FEATURES, Submit
from scenarios.sampling import PARAMS, Feature, SamplingParams
from scenarios.spec import EngineSpec
from workers.judge.contracts.judge import CONTRACTS
from workers.targets.child.request_features import ExcludedParam, FeatureSupport, RequestFeatures, of
from workers.targets.sglang import request_features as sglang
from workers.targets.vllm import request_features as vllm

SPEC = EngineSpec()
TABLE = RequestFeatures(
    (
        FeatureSupport("top_k", {"top_k": lambda submit: submit.params.top_k or -1}),
        FeatureSupport("min_p", of("min_p", "minimum"), without=lambda spec: spec.num_speculative_tokens > 0),
        FeatureSupport(
            "seed", limits=(ExcludedParam("seed", "stop", lambda submit, spec: bool(submit.stop), "it is greedy"),)
        ),
        FeatureSupport("priority", request={"priority": lambda submit: submit.priority}, unwritten="has no call"),
    )
)


def submit_of(priority: int = 0, stop: tuple[int, ...] = (), **params: object) -> Submit:
    asked = SamplingParams.model_validate(params)
    return Submit(tick=0, request="a", prompt=(1,), max_tokens=2, priority=priority, stop=stop, params=asked)


def test_declared_contracts_exist() -> None:
    declared = {contract for each in (*PARAMS.values(), *SUBMIT_FEATURES.values()) for contract in each.contracts}
    assert declared <= CONTRACTS.keys()


def test_every_sampling_parameter_is_declared_and_generated() -> None:
    assert PARAMS.keys() == SamplingParams.model_fields.keys()
    nothing = Feature().added
    assert [name for name, each in PARAMS.items() if each.drawn is None and each.added is nothing] == []


@pytest.mark.parametrize("table", [vllm.FIRST, vllm.SECOND, sglang.FEATURES], ids=["first", "second", "sglang"])
def test_engine_table_has_each_declared_feature_at_most_once(table: RequestFeatures) -> None:
    assert set(table.names) <= set(FEATURES)
    assert len(set(table.names)) == len(table.names)
    keys = [key for each in table.rows for key in (*each.sampling, *each.request)]
    assert len(set(keys)) == len(keys)


def test_parameters_follow_from_the_request() -> None:
    submit = submit_of(priority=3, min_p=0.5)
    assert TABLE.sampling(submit) == {"top_k": -1, "minimum": 0.5}
    assert TABLE.request(submit) == {"priority": 3}


def test_exported_test_has_only_changed_parameters() -> None:
    assert TABLE.written(submit_of(top_k=4)) == {"top_k": 4}
    assert TABLE.unwritten(submit_of(top_k=4)) is None
    assert TABLE.unwritten(submit_of(priority=3)) == "priority has no call"


def test_lacks_depend_on_the_spec_and_limits_on_the_request() -> None:
    (without,) = TABLE.lacks
    assert (without.features, without.when(SPEC)) == (("min_p",), True)
    (limit,) = TABLE.limits
    assert limit(submit_of(seed=7), SPEC) is None
    assert limit(submit_of(stop=(1,)), SPEC) is None
    excess = limit(submit_of(seed=7, stop=(1,)), SPEC)
    assert excess is not None
    assert excess.message("events.0") == "events.0.params.seed: 7; with stop 0 is allowed: it is greedy"
    assert excess.fixed == submit_of(stop=(1,))
