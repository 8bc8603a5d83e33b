"""Run configuration: canonical text and command-line flags."""

from workers.targets.registry import known_engines, target_kind
from workers.targets.target import DEFAULT_CONFIG, SPECSTORM, RunConfig


def test_different_configurations_have_different_texts() -> None:
    fields = RunConfig.model_fields
    assert all(f'"{name}":' in DEFAULT_CONFIG.text for name in fields)
    changed = [
        RunConfig(engine="other"),
        RunConfig(device="cuda"),
        RunConfig(release="here"),
        RunConfig(engine_home="here"),
        RunConfig(engine_path="here"),
        RunConfig(engine_version="here"),
        RunConfig(engine_digest="here"),
        RunConfig(kernels="interpreted"),
        RunConfig(fixes="all"),
    ]
    assert len({config.text for config in (DEFAULT_CONFIG, *changed)}) == 1 + len(fields)


def test_flags_contain_only_changed_options() -> None:
    assert DEFAULT_CONFIG.flags() == []
    assert RunConfig(engine="other").flags() == ["--engine", "other"]
    assert RunConfig(engine="other", device="cuda").flags() == ["--engine", "other", "--device", "cuda"]
    laid_over = RunConfig(engine="other", engine_path="here", engine_digest="0")
    assert laid_over.flags() == ["--engine", "other", "--engine-path", "here"]


def test_registry_and_kind_agree_on_the_engine_name() -> None:
    assert [target_kind(engine).name for engine in known_engines()] == [*known_engines()]


def test_own_engine_is_registered_and_the_default() -> None:
    assert SPECSTORM in known_engines()
    assert DEFAULT_CONFIG.engine == SPECSTORM
