"""Command `situations list`, which runs nothing."""

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.inputs import check_engine
from cluster.cli.options import Engine, Json
from cluster.reports.documents import situations_document
from cluster.reports.terminal import show, show_json
from workers.targets.target import SPECSTORM, RunConfig

situations_app = typer.Typer(no_args_is_help=True, help="Situations of generated traces, which hunts can focus on.")


@situations_app.command("list", epilog="Example: specstorm situations list --json")
def list_situations(engine: Engine = SPECSTORM, json: Json = False) -> int:
    """List situations: name, weight, area, requirements, and the bugs that each one is for."""
    document = situations_document(RunConfig(engine=check_engine(engine)))
    if json:
        show_json(document)
        return EXIT_AGREED
    width = max(len(each.name) for each in document.situations)
    for each in document.situations:
        within = f" of {each.part_of}" if each.part_of else ""
        show(f"{each.name:<{width}}  {each.weight + within}, {each.area}; requires {each.requires}; finds {each.finds}")
    return EXIT_AGREED
