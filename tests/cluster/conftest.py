"""One private Ray cluster for the whole test session; each test starts its own actors."""

import os
from collections.abc import Iterator

import pytest

from cluster.dispatch.pool import RayCluster

# Ray lowers the priority of its workers; on a busy machine they would starve, and tests would wait.
os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A local Ray with two CPUs."""
    with RayCluster("local", num_cpus=2) as cluster:
        yield cluster
