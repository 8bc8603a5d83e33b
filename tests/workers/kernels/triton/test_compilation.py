"""Launches can be passed to another launcher, and kernels are compiled ahead once."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.workers.kernels.triton.launches import DEVICE
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.triton import kv_write
from workers.kernels.launch.triton import launched_by
from workers.run import rehearsal
from workers.targets.registry import target_kind
from workers.targets.target import DeviceError, RunConfig
from workers.targets.warm_up import is_compiled, marker, warm_up


def test_launched_by_writes_nothing_and_disables_fp_fusion() -> None:
    words = torch.arange(2, device=DEVICE)
    kv, taken = torch.zeros(2, dtype=torch.uint64, device=DEVICE), []

    def take(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        taken.append((grid, len(arguments), options))

    given = KvWrite(words, words, words, kv.clone(), kv, 0)
    with launched_by(take):
        kv_write(given)
    assert not kv.tolist()[0]
    assert not kv.tolist()[1]
    ((_, _, options),) = taken
    assert options["enable_fp_fusion"] is False


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU to compile for")
def test_compilation_without_gpu_does_nothing(cache_folder: Path) -> None:
    assert rehearsal.main() == 2
    assert [file.stat().st_size for file in cache_folder.iterdir()] == [0]
    assert not is_compiled(marker())
    with pytest.raises(DeviceError):
        warm_up(RunConfig(device="cuda"))


def test_compiled_variant_is_not_compiled_again(cache_folder: Path) -> None:
    assert not is_compiled(marker())
    marker().write_text("compiled\n")
    assert rehearsal.main() == 0
    assert marker().read_text() == "compiled\n"


@pytest.mark.parametrize(
    "config", [RunConfig(), RunConfig(device="triton-cpu"), RunConfig(engine="vllm", device="cuda")]
)
def test_compilation_is_empty_for_other_devices_and_engines(cache_folder: Path, config: RunConfig) -> None:
    target_kind(config.engine).prepare(config)
    assert not cache_folder.exists()
