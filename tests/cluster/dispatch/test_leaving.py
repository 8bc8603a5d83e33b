"""A driver that loses its Ray cluster ends with its own exit code."""

import subprocess
import sys

LEAVES = """
import sys
from cluster.cli import main
from cluster.dispatch import pool

def command(arguments, is_program):
    with pool.RayCluster("local", 1) as ray:
        ray.liveness.is_lost = True
    print(pool.is_stuck())
    sys.stdout.flush()
    return 3

main.run = command
main.main()
"""


def test_driver_without_its_ray_ends_with_its_own_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=300, check=False)
    # Ray itself reports the killed processes.
    assert done.stdout.endswith("True\n"), done.stderr
    assert done.returncode == 3, done.stderr
