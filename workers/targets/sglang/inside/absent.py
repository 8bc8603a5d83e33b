"""Modules that SGLang imports and that are not installed: nothing that runs here calls what is in them.

None of them is on PyPI in a build for a PyTorch without CUDA but IPython and gguf. This module is a plugin of pytest as
well (`-p workers.targets.sglang.inside.absent`), with which tests of SGLang run in the installation of `make sglang`.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

# Its shell, images, weights in other files, and compiled kernels for a GPU.
_ABSENT = (
    "IPython",
    "IPython.display",
    "torchvision",
    "torchvision.io",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "gguf",
    "sgl_kernel",
    "sgl_kernel.speculative",
)


class Absent(Exception):
    """Something was called that is not installed; the message names it."""


class _Anything:
    """Whatever a module that is absent is asked for: it may be a base class or be looked into, and cannot be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise Absent(f"{self.__name__} is not installed here, and was called")

    def __getattr__(self, name: str) -> "_Anything":
        return _named(self.__name__, name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


class _AbsentModule(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> _Anything:
        return _named(self.__name__, name)


def _named(holder: str, name: str) -> _Anything:
    # By these Python asks objects what they are.
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(f"{holder}.{name}")


def install() -> None:
    """Let the modules be found, before anything of SGLang is loaded."""
    from transformers.utils import import_utils  # noqa: PLC0415  it keeps what it found first

    import_utils.is_torchvision_available()
    for name in _ABSENT:
        module = _AbsentModule(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def pytest_configure() -> None:
    """Have the modules found in a process of pytest, before it loads a test."""
    install()
