"""Ray itself dies under a campaign: it ends with exit code 3, the cause, and the command that goes on; that one agrees.

`benchmarks.robustness.ray_parts` kills every part, as often as one likes, on a private Ray and on one that was joined.
"""

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


def ended_early(ray: Place, part: str, calm: Rows) -> str:
    """Kill a part, without which a campaign ends in time and can be gone on with; return what it said."""
    kill = killed(ray, part, calm)
    assert kill.wrong == ""
    assert kill.code == 3
    assert kill.seconds < SECONDS_MAX
    return kill.said


# The raylet does not outlive the agent of its dashboard.
@pytest.mark.parametrize("part", ["raylet", "dashboard agent"])
def test_a_campaign_on_a_ray_without_its_raylet_ends_within_a_minute(ray: Place, calm: Rows, part: str) -> None:
    assert "Ray's raylet of this node" in ended_early(ray, part, calm)


def test_a_campaign_on_a_cluster_without_its_gcs_ends_within_a_minute(calm: Rows) -> None:
    with place(joined=True) as ray:
        assert "Ray's GCS at 127.0.0.1:" in ended_early(ray, "GCS", calm)
