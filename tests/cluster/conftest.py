"""One private Ray for the whole session; each test brings its own actors."""

from collections.abc import Iterator

import pytest

from cluster.dispatch.pool import RayCluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A local Ray with two CPUs."""
    with RayCluster("local", num_cpus=2) as cluster:
        yield cluster
