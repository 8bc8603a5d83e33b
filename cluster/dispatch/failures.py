"""Sentences about a worker that died or raised, and about a Ray that failed."""

from collections.abc import Mapping

from cluster.dispatch.host import PoolError

# Ray reports an actor that has just died as dead or as unavailable, depending on when it is asked. Both read alike,
# since the reason of a loss may become part of a finding.
_DEATHS: Mapping[str, str] = {
    "OutOfMemoryError": "it ran out of memory",
    "NodeDiedError": "its node died",
}


def death(error: Exception, started: bool) -> str:
    """Describe how an actor ended, without process ids or addresses."""
    if not started and "creation task" in str(error):
        return f"it could not start: {str(error).strip().rpartition(chr(10))[2]}"
    return _DEATHS.get(type(error).__name__, "its process died")


def raised(error: BaseException) -> str:
    """Describe an exception of a worker's own code."""
    return f"the worker raised {type(error).__name__}: {first_line(str(error))}"


def ray_failed(error: Exception) -> PoolError:
    """Return the error that ends a campaign after its Ray cluster failed."""
    return PoolError(f"Ray failed: {type(error).__name__}: {first_line(str(error))}")


def first_line(text: str) -> str:
    """Return the first line of a text."""
    return text.strip().partition("\n")[0]
