"""A driver leaves a Ray that it lost."""

import subprocess
import sys

LEAVES = """
import sys
from cluster.cli import main
from cluster.dispatch import pool

# Ray takes 5 s to give up a buffer of its own before it ends its processes: the thread that leaves is still at it.
pool.LEAVE_SECONDS = 2.0

def command(arguments):
    with pool.RayCluster("local", 1) as ray:
        ray.liveness.is_lost = True
    print(pool.is_stuck(), ray.module.is_initialized())
    sys.stdout.flush()
    return 3

main.run = command
main.main()
"""


def test_a_driver_that_is_still_leaving_a_lost_ray_ends_with_its_own_code_though_ray_says_it_has_left() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "True False\n", done.stderr
    assert done.returncode == 3, done.stderr
