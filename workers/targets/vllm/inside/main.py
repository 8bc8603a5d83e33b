"""Process of an engine: reads messages on its standard input and answers each on its standard output.

torch and vLLM are imported here and nowhere in the process that judges.
"""

import os
import re
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import IO

import numpy as np
import torch
from pydantic import TypeAdapter

from scenarios.events import AnyEvent, Policy, Schedule
from scenarios.spec import EngineSpec
from workers.targets.child.inside.interpreter import interpret
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.child.messages import Message, RunnerName, read_message, write_message
from workers.targets.child.process import FILES
from workers.targets.simulated_torch.digests import TaskDigests
from workers.targets.simulated_torch.harm import harm_of
from workers.targets.vllm.inside.engines import Engines
from workers.targets.vllm.inside.replacements import apply_all
from workers.targets.vllm.inside.session import Session

_INSTALLED = re.compile(r"/\S*/site-packages/")
# Under these a race is looked for harm; a trace may then take so many steps more.
_ORDERS: tuple[Policy, ...] = ("eager", "lazy")
_STEPS_MORE = 100
_EVENTS: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent])


class Host:
    """Answers messages: one session at a time on engines that are kept."""

    def __init__(self, models: Path, runner: RunnerName, device: SimulatedDevice | None) -> None:
        self._runner: RunnerName = runner
        self._device = device
        self._engines = Engines(models)
        self._session: Session | None = None
        self._spec = EngineSpec()
        self._happened: list[list[AnyEvent]] = []
        self._digests = False
        self._opened = 0

    def answer(self, message: Message) -> Message:
        """Return the answer to a message."""
        match message["do"]:
            case "open":
                schedule = Schedule.model_validate_json(message["schedule"])
                spec = EngineSpec.model_validate_json(message["spec"])
                return self._open(spec, schedule, message["races"], message["steps"])
            case "step":
                return self._step(_EVENTS.validate_python(message["events"]))
            case "report":
                report = self._device.report() if self._device is not None else {"races": [], "counts": {}}
                if self._session is None:
                    return {**report, "seen": []}
                self._session.ended()
                return {**report, "seen": self._session.seen()}
            case "close":
                self._close()
                return {}
            case "harm":
                return {"harm": self._harm(message["race"])}
            case "forget":
                self._engines.forget()
                return {}
            case what:
                raise ValueError(f"message {what!r}; known are open, step, report, harm, close and forget")

    def abandon(self) -> None:
        """Give up the session, and its engine with it: whatever went wrong may go on."""
        self._session = None
        if self._device is not None:
            self._device.abandon()

    def _open(self, spec: EngineSpec, schedule: Schedule, races: bool, steps: bool) -> Message:
        assert self._session is None, "a session is open"
        if self._device is not None:
            self._device.idle()
        engine = self._engines.take(spec)
        assert engine.reset_prefix_cache(), "an idle engine holds no blocks"
        # What no request has a seed for is drawn from here, whatever was drawn before.
        torch.manual_seed(0)
        np.random.seed(0)
        self._opened += 1
        self._spec = spec
        self._happened = []
        self._session = Session(engine, self._runner, self._opened, self._device, steps)
        if self._device is not None:
            self._device.begin(engine, schedule, races, self._digests)
        return {}

    def _step(self, events: list[AnyEvent]) -> Message:
        assert self._session is not None, "no session is open"
        self._happened.append(events)
        for event in events:
            self._session.happen(event)
        return self._session.step() | {"probes": dict(self._session.probes)}

    def _harm(self, number: int) -> str:
        """Say whether a race of the last report did harm: run the last session again, under eager and under lazy."""
        assert self._device is not None, "races are the device's"
        race, happened, spec = self._device.race(number), self._happened, self._spec
        self._close()
        runs: list[Sequence[TaskDigests]] = []
        for policy in _ORDERS:
            try:
                runs.append(self._again(spec, Schedule(policy=policy), happened))
            except Exception as error:
                self.abandon()
                return f"harmful: under {policy} the engine ends: {failure(error)['error']}"
            self._close()
        return harm_of(race, *runs)

    def _again(self, spec: EngineSpec, schedule: Schedule, happened: list[list[AnyEvent]]) -> Sequence[TaskDigests]:
        """Run a session again under a schedule; return what each task read and wrote."""
        assert self._device is not None, "tasks are the device's"
        self._digests = True
        try:
            self._open(spec, schedule, races=False, steps=False)
        finally:
            self._digests = False
        for events in happened:
            self._step(events)
        for _ in range(_STEPS_MORE):
            if self._session is not None and not self._session.drained():
                self._step([])
        return self._device.digests()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None and session.drained():
            self._engines.put_back(self._spec, session.release())


def failure(error: BaseException) -> Message:
    """Return how an exception is told: what it says, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    # Of what raises within torch, who called it there says more.
    where = next((frame for frame in reversed(frames) if "/torch/" not in frame.filename), frames[-1])
    place = f"{where.name} in {where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
    # A path of this machine belongs to no finding.
    text = _INSTALLED.sub("", str(error))
    return {"error": f"{type(error).__name__}: {text}", "where": place}


class Overlay:
    """Finder of a package's modules: in a folder of sources first, then where the package is installed."""

    def __init__(self, package: str, folder: Path) -> None:
        found = PathFinder.find_spec(package)
        assert found is not None, f"{package} is installed"
        self._package = package
        self._roots = [str(folder / package), *(found.submodule_search_locations or ())]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return where a module of the package is; a package is in all folders that have it."""
        top, *inner = name.split(".")
        if top != self._package:
            return None
        parents = [os.path.join(root, *inner[:-1]) if inner else os.path.dirname(root) for root in self._roots]
        spec = PathFinder.find_spec(name, parents)
        if spec is not None and spec.submodule_search_locations is not None:
            folders = [os.path.join(root, *inner) for root in self._roots]
            spec.submodule_search_locations = [folder for folder in folders if os.path.isdir(folder)]
        return spec


def _end_with(parent: int) -> None:
    """End this process when the one that judges has died: its engine may never come back to read."""
    while os.getppid() == parent:
        time.sleep(1)
    _remove_files()
    os._exit(1)


def _remove_files() -> None:
    """Remove what this process's libraries have left: nobody else lives to do it."""
    if FILES in os.environ:
        shutil.rmtree(os.environ[FILES], ignore_errors=True)


def main(kind: type[Host] = Host) -> None:
    """Answer messages until there are no more; a `kind` of host may know further ones."""
    # What the engine's libraries print would be read as an answer.
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    where, named, models, *overlay = sys.argv[1:]
    runner: RunnerName = "v2" if named == "v2" else "v1"
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        for folder in overlay:
            sys.meta_path.insert(0, Overlay("vllm", Path(folder)))
        if runner == "v2":
            interpret()
        import vllm  # noqa: PLC0415  what is laid over comes first

        torch.set_num_threads(1)
        # Lines of laid-over sources are named as those of installed ones: by that, races are known.
        device = SimulatedDevice(*map(Path, overlay)) if where == "sim" else None
        apply_all(vllm.__version__, where, runner)
        host = kind(Path(models), runner, device)
        write_message(answers, {"vllm": vllm.__version__})
    except Exception as error:
        write_message(answers, failure(error))
        raise
    while (message := read_message(sys.stdin.buffer)) is not None:
        try:
            answer = host.answer(message)
        except Exception as error:
            host.abandon()
            answer = failure(error)
        write_message(answers, answer)
    _remove_files()


if __name__ == "__main__":
    main()
