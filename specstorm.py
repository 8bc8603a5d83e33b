"""Python interface of Specstorm: `check` a trace, `run` scenarios, `hunt`; each returns values."""

from cluster.cli.interface import check, hunt, run

__all__ = ["check", "hunt", "run"]
