"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from workers.targets.registry import known_engines
from workers.targets.target import Device, Kernels

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Run this many engines in parallel (default: one per CPU; on cuda one per GPU)."),
]
Ray = Annotated[
    str, typer.Option(help="Connect to Ray: auto (RAY_ADDRESS or local), local, off (this process), or HOST:PORT.")
]
Out = Annotated[Path | None, typer.Option(help="Write or resume this campaign folder (default: a new folder).")]
Deadline = Annotated[float, typer.Option(min=1, help="Stop a job after this many seconds (not with --ray off).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
OnDevice = Annotated[
    Device,
    typer.Option(help="Run on sim (NumPy, simulated lanes), triton-cpu (Triton interpreter, slow) or cuda (GPU)."),
]
Engine = Annotated[str, typer.Option(metavar="NAME", help=f"Test this engine: {', '.join(known_engines())}.")]
ReleasedEngine = Annotated[
    str,
    typer.Option(metavar="NAME", help="Test this engine (default: the engine in FILE, else the first with releases)."),
]
OfRelease = Annotated[
    str, typer.Option(metavar="VERSION", help="Use this release of the engine (default: the newest that is tested).")
]
EngineHome = Annotated[
    str,
    typer.Option(
        metavar="DIR", help="Use the engine that is installed in this environment (default: the one from `make`)."
    ),
]
EnginePath = Annotated[str, typer.Option(metavar="DIR", help="Overlay these engine sources on the installed ones.")]
OfKernels = Annotated[
    Kernels,
    typer.Option(help="Run the engine's kernels as their definitions in Python or in Triton's interpreter (slow)."),
]
Fixes = Annotated[
    str,
    typer.Option(
        metavar="all|races|none|NAME,...",
        help="Fix these known bugs of the engine in memory before it runs: all, races only, none, or named findings.",
    ),
]
Known = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Read known findings and the nights that saw them from DIR (default: scenarios/known, or "
        "scenarios/known/ENGINE for another engine, if it exists).",
    ),
]
NoLimits = Annotated[
    bool, typer.Option("--no-limits", help="Also run traces that exceed the limits on time and memory.")
]
Corpora = Annotated[
    list[Path] | None,
    typer.Option(
        "--corpus",
        metavar="PATH",
        help="Derive a quarter of the traces from these files or folders; repeatable (default: none, or as in "
        "the resumed campaign).",
    ),
]
