"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from workers.targets.registry import known_engines
from workers.targets.target import Device, Kernels

Workers = Annotated[int | None, typer.Option(min=1, help="Engines at a time; default: one a CPU, on cuda one a GPU.")]
Ray = Annotated[
    str, typer.Option(help="auto (RAY_ADDRESS if set, else local), local, off (this process), or HOST:PORT.")
]
Out = Annotated[Path | None, typer.Option(help="Campaign folder; one that exists is resumed. Default: a new one.")]
Deadline = Annotated[float, typer.Option(min=1, help="Seconds a job may take (not with --ray off).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
OnDevice = Annotated[
    Device,
    typer.Option(help="sim (NumPy, simulated lanes), triton-cpu (Triton's interpreter, slow), or cuda (a GPU)."),
]
Engine = Annotated[str, typer.Option(metavar="NAME", help=f"The engine that is tested: {', '.join(known_engines())}.")]
ReleasedEngine = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The engine. Default: the one that FILE names, else the first that has releases."
    ),
]
EngineHome = Annotated[
    str,
    typer.Option(
        metavar="DIR", help="Where an engine that is a package of its own is installed. Default: what `make` made."
    ),
]
EnginePath = Annotated[
    str, typer.Option(metavar="DIR", help="A tree of the engine's sources, laid over what is installed.")
]
OfKernels = Annotated[
    Kernels,
    typer.Option(
        help="How the kernels of an engine run that has definitions of them: as these, or interpreted (slow)."
    ),
]
Fixes = Annotated[
    str,
    typer.Option(
        metavar="all|none|NAME,...",
        help="Known bugs of the engine to fix in memory before it runs, by the names of their findings.",
    ),
]
Known = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of known findings, and of when nights saw each. Default: scenarios/known, of another engine "
        "scenarios/known/ENGINE, where it exists.",
    ),
]
NoLimits = Annotated[
    bool, typer.Option("--no-limits", help="Run also what scenarios/limits.py says costs too much time or memory.")
]
Corpora = Annotated[
    list[Path] | None,
    typer.Option(
        "--corpus",
        metavar="PATH",
        help="Begin a quarter of the traces from these files or folders; may be repeated. Default: none, or those of "
        "the campaign that is resumed.",
    ),
]
