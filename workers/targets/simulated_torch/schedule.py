"""Schedules of a trace as the simulated device takes them."""

from scenarios.draw import label_key
from scenarios.events import Schedule

POLICIES = ("eager", "lazy", "random")


def check(schedule: Schedule) -> None:
    """Refuse a schedule that does not apply to a PyTorch program.

    Raises:
        ValueError: its policy orders lanes by names, which streams of a program do not have.
    """
    if schedule.policy not in POLICIES:
        raise ValueError(
            f"schedule {schedule.policy} orders the lanes of our own engine; a simulated PyTorch device takes "
            f"{', '.join(POLICIES)}"
        )


def native_holds(schedule: Schedule) -> list[tuple[str, int, str, int]]:
    """Return the holds of a schedule as the native library takes them."""
    return [(hold.op.name, hold.op.step, hold.until.name, hold.until.step) for hold in schedule.holds]


def draw_key(is_host: bool, name: str) -> tuple[int, int]:
    """Return the key of the labelled draws of a task's op or of a call of the host: see `workers.lanes.policies`."""
    return label_key("host" if is_host else "lane", name)
