"""Which schedules a trace is run under, and what they are called."""

from scenarios.events import LANES, Schedule
from workers.lanes.policies import lane_orders
from workers.verdict import Agreed, Difference, Diverged, Vacuous

NUM_RANDOM = 20


def name_of(schedule: Schedule) -> str:
    """Return a short name of a schedule."""
    held = f" with {len(schedule.holds)} held back" if schedule.holds else ""
    match schedule.policy:
        case "lane_order":
            return " > ".join(schedule.order) + held
        case "random":
            return f"random {schedule.seed}{held}"
        case policy:
            return f"{policy}{held}"


def fixed_schedules() -> list[Schedule]:
    """Return eager, lazy and 24 lane orders in which every pair of lanes occurs in both orders."""
    orders = [Schedule(policy="lane_order", order=order) for order in lane_orders(LANES)]
    return [Schedule(policy="eager"), Schedule(policy="lazy"), *orders]


def all_schedules() -> list[Schedule]:
    """Return the fixed schedules and 20 random ones."""
    return fixed_schedules() + [Schedule(policy="random", seed=seed) for seed in range(NUM_RANDOM)]


def differs(verdict: Agreed | Vacuous, first: Agreed | Vacuous, schedule: Schedule) -> Diverged:
    """Return the finding that two schedules of a trace, neither of which shows a difference, captured other bytes."""
    difference = Difference(
        plane="determinism",
        variable="captures",
        request="",
        commit="",
        step=-1,
        position=None,
        expected=f"{first.stats.digest} as under eager",
        actual=f"{verdict.stats.digest} under {name_of(schedule)}",
    )
    return Diverged(stats=verdict.stats, difference=difference)
