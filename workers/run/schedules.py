"""Choose the schedules of a sweep: how simulated streams (lanes) interleave."""

from scenarios.events import LANES, Schedule
from workers.lanes.policies import lane_orders
from workers.record.evidence import Difference, Fact, fact
from workers.record.verdict import Agreed, Diverged, Vacuous
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

NUM_RANDOM = 20


def fixed_schedules() -> list[Schedule]:
    """Return the fixed schedules: eager, lazy and 24 orders of the streams."""
    orders = [Schedule(policy="lane_order", order=order) for order in lane_orders(LANES)]
    return [Schedule(policy="eager"), Schedule(policy="lazy"), *orders]


def all_schedules() -> list[Schedule]:
    """Return the fixed schedules and 20 random ones."""
    return fixed_schedules() + [Schedule(policy="random", seed=seed) for seed in range(NUM_RANDOM)]


def has_lanes(config: RunConfig) -> bool:
    """Return whether schedules control the engine's streams (lanes) on this device."""
    return bool(target_kind(config.engine).capabilities.devices.get(config.device))


def schedules_on(config: RunConfig, fixed: bool = False) -> list[Schedule]:
    """Return all schedules of a sweep on this device, or only the fixed ones.

    An engine without lanes has a single schedule. A run without a race covers every schedule of its trace, so slower
    devices run fewer: the interpreter runs eager, lazy and one random schedule. A GPU, where a schedule only delays
    streams, runs eager, lazy, every sixth lane order and four random ones.
    """
    capabilities = target_kind(config.engine).capabilities
    if not has_lanes(config):
        return [Schedule()]
    eager_and_lazy, orders, randoms = fixed_schedules()[:2], fixed_schedules()[2:], all_schedules()[-NUM_RANDOM:]
    match config.device:
        case _ if capabilities.is_costly:
            # Each schedule is compared with reference runs of the same requests, too.
            schedules = [*eager_and_lazy, randoms[0]]
        case "sim":
            schedules = all_schedules()
        case "triton-cpu" | "cpu":
            schedules = [*eager_and_lazy, randoms[0]]
        case "cuda":
            schedules = [*eager_and_lazy, *orders[::6], *randoms[:4]]
    return [
        each for each in schedules if each.policy in capabilities.policies and not (fixed and each.policy == "random")
    ]


def _under(schedule: Schedule, digest: str) -> Fact:
    match schedule.policy:
        case "random":
            return fact("digest_under_seed", digest=digest, seed=schedule.seed)
        case "lane_order":
            return fact("digest_under_order", digest=digest, order=schedule.order)
        case policy:
            return fact("digest_under_policy", digest=digest, policy=policy)


def differs(verdict: Agreed | Vacuous, first: Agreed | Vacuous, schedule: Schedule) -> Diverged:
    """Return the finding that a schedule led to other captured values than the first schedule."""
    difference = Difference(
        plane="determinism",
        variable="captures",
        step=-1,
        expected=fact("digest_as_under_eager", digest=first.stats.digest),
        actual=_under(schedule, verdict.stats.digest),
    )
    return Diverged(stats=verdict.stats, difference=difference)
