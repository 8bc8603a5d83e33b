"""Stand-ins for modules that SGLang imports but never uses, and that are not installed.

Except IPython and gguf, PyPI has no builds of them for a PyTorch without CUDA. This module is also a pytest plugin (`-p
workers.targets.sglang.inside.absent`), with which tests of SGLang run in the installation of `make sglang`.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

# For a shell, images, other file formats of weights, and compiled GPU kernels.
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
    """A function of a module that is not installed was called; the message names it."""


class _Anything:
    """Stand-in for an attribute of a module that is not installed.

    It can be subclassed, and its attributes can be read; a call raises `Absent`.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise Absent(f"{self.__name__} was called but is not installed")

    def __getattr__(self, name: str) -> "_Anything":
        return _named(self.__name__, name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)


class _AbsentModule(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> _Anything:
        return _named(self.__name__, name)


def _named(holder: str, name: str) -> _Anything:
    # Python looks up these names to find out what an object is.
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(f"{holder}.{name}")


def install() -> None:
    """Register the stand-ins, before SGLang is imported."""
    from transformers.utils import import_utils  # noqa: PLC0415  it caches what it finds first

    import_utils.is_torchvision_available()
    for name in _ABSENT:
        module = _AbsentModule(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def pytest_configure() -> None:
    """Register the stand-ins before pytest imports an exported test."""
    install()
