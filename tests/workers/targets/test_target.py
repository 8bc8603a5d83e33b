"""Run configuration: what names it, and how a command line says it."""

from workers.targets.registry import kind_of, known_engines
from workers.targets.target import DEFAULT_CONFIG, SPECSTORM, RunConfig


def test_two_configurations_that_differ_in_anything_have_other_texts() -> None:
    fields = RunConfig.model_fields
    assert all(f'"{name}":' in DEFAULT_CONFIG.text for name in fields)
    changed = [
        RunConfig(engine="other"),
        RunConfig(device="cuda"),
        RunConfig(engine_home="here"),
        RunConfig(engine_path="here"),
        RunConfig(engine_version="here"),
        RunConfig(engine_digest="here"),
        RunConfig(kernels="interpreted"),
        RunConfig(fixes="all"),
    ]
    assert len({config.text for config in (DEFAULT_CONFIG, *changed)}) == 1 + len(fields)


def test_flags_say_what_is_not_the_default_and_nothing_else() -> None:
    assert DEFAULT_CONFIG.flags() == []
    assert RunConfig(engine="other").flags() == ["--engine", "other"]
    assert RunConfig(engine="other", device="cuda").flags() == ["--engine", "other", "--device", "cuda"]
    laid_over = RunConfig(engine="other", engine_path="here", engine_digest="0")
    assert laid_over.flags() == ["--engine", "other", "--engine-path", "here"]


def test_registry_names_each_engine_as_its_kind_does() -> None:
    assert [kind_of(engine).name for engine in known_engines()] == [*known_engines()]


def test_our_engine_is_known_and_the_default() -> None:
    assert SPECSTORM in known_engines()
    assert DEFAULT_CONFIG.engine == SPECSTORM
