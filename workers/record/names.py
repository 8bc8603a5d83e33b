"""Names that become file names: types of text without a path, a dot file or a hidden character."""

from typing import Annotated, TypeAlias

from pydantic import StringConstraints

_WORD = "[a-z][a-z0-9_]{0,39}"

# A kind of state, such as `tokens` or `kv`.
Plane: TypeAlias = Annotated[str, StringConstraints(pattern=f"^{_WORD}$")]
# The path of an artefact in a campaign.
ArtefactPath: TypeAlias = Annotated[str, StringConstraints(pattern=rf"^artefacts/{_WORD}-[0-9a-f]{{8}}\.yaml$")]
# The key of a job, and the name of a run.
Key: TypeAlias = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z][0-9A-Za-z_-]{0,79}$")]
