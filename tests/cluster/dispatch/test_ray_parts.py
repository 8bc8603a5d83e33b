"""Ray itself dies or hangs under a campaign: exit code 3, the cause, and the command that goes on; that one agrees.

`benchmarks.robustness.ray_parts` kills every part, as often as one likes, on a private Ray and on one that was joined.
"""

import signal
from collections.abc import Iterator

import pytest

from benchmarks.robustness.ray_parts import SECONDS_MAX, Place, Rows, killed, place, undisturbed


@pytest.fixture(scope="module")
def ray() -> Iterator[Place]:
    """A private Ray for each campaign."""
    with place(joined=False) as ray:
        yield ray


@pytest.fixture(scope="module")
def calm(ray: Place) -> Rows:
    """The results of a campaign in which nothing is killed."""
    return undisturbed(ray)


def ended_early(ray: Place, part: str, calm: Rows, by: signal.Signals) -> str:
    """Kill or stop a part, without which a campaign ends in time and can be gone on with; return what it said."""
    kill = killed(ray, part, calm, by)
    assert kill.wrong == ""
    assert kill.code == 3
    assert kill.seconds < SECONDS_MAX
    return kill.said


# The raylet does not outlive the agent of its dashboard. A process that hangs still has its sockets.
@pytest.mark.parametrize(
    ("part", "by"),
    [("raylet", signal.SIGKILL), ("dashboard agent", signal.SIGKILL), ("raylet", signal.SIGSTOP)],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_a_campaign_on_a_ray_without_its_raylet_ends_within_a_minute(
    ray: Place, calm: Rows, part: str, by: signal.Signals
) -> None:
    assert "Ray's raylet of this node" in ended_early(ray, part, calm, by)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP], ids=lambda value: str(value.name))
@pytest.mark.parametrize("joined", [True, False], ids=["joined", "private"])
def test_a_campaign_on_a_cluster_without_its_gcs_ends_within_a_minute(
    calm: Rows, joined: bool, by: signal.Signals
) -> None:
    with place(joined) as ray:
        assert "Ray's GCS at " in ended_early(ray, "GCS", calm, by)
