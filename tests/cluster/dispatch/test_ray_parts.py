"""Ray dies or hangs during a campaign: exit code 3, the cause, and a command that resumes.

`benchmarks.robustness.ray_parts` kills every part, as often as one likes, on a private Ray and on one that was joined.
"""

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pytest

from benchmarks.robustness.ray_parts import SECONDS_MAX, Kill, killed, place, undisturbed

# Campaigns wait more than they compute.
AT_A_TIME = 3


class Way(NamedTuple):
    """One way to kill or stop a part of Ray, with the part's name in the campaign's message."""

    is_joined: bool
    part: str
    by: signal.Signals
    named: str


RAYLET, GCS = "Ray's raylet of this node", "Ray's GCS at "
# The raylet does not outlive the agent of its dashboard. A process that hangs still has its sockets.
WAYS = (
    Way(False, "raylet", signal.SIGKILL, RAYLET),
    Way(False, "raylet", signal.SIGSTOP, RAYLET),
    Way(False, "dashboard agent", signal.SIGKILL, RAYLET),
    *(Way(is_joined, "GCS", by, GCS) for is_joined in (False, True) for by in (signal.SIGKILL, signal.SIGSTOP)),
)
DRIVER = Way(False, "driver", signal.SIGKILL, "")
# Default ports of Ray's GCS and of its dashboard agent.
DEFAULT_PORTS = 6379, 52365


@pytest.fixture(scope="module")
def kills() -> dict[Way, Kill]:
    """Return the outcome of a campaign for each way to end a part of Ray."""
    calm = undisturbed()

    def kill(way: Way) -> Kill:
        with place(way.is_joined) as ray:
            # The resumed command needs no Ray, which starts slowly.
            return killed(ray, way.part, calm, way.by, resume_on="off")

    ways = (DRIVER, *WAYS)
    with ExitStack() as stack:
        for port in DEFAULT_PORTS:
            listener = stack.enter_context(socket.socket())
            # Another process may have taken the port.
            with suppress(OSError):
                listener.bind(("127.0.0.1", port))
                listener.listen()
        threads = stack.enter_context(ThreadPoolExecutor(AT_A_TIME))
        return dict(zip(ways, threads.map(kill, ways), strict=True))


def test_killed_driver_leaves_no_process_and_its_command_completes(kills: dict[Way, Kill]) -> None:
    assert kills[DRIVER].wrong == ""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{'joined' if way[0] else 'private'}-{way[1]}-{way[2].name}")
def test_campaign_on_broken_ray_reports_the_cause_and_resumes(kills: dict[Way, Kill], way: Way) -> None:
    kill = kills[way]
    assert kill.wrong == ""
    assert kill.code == 3
    assert kill.seconds < SECONDS_MAX
    assert way.named in kill.said
