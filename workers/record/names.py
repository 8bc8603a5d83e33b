"""String types that are safe as file names, and integer types of bounded counts."""

from typing import Annotated, TypeAlias

from pydantic import Field, StringConstraints

_WORD = "[a-z][a-z0-9_]{0,39}"

# A state category, such as `tokens` or `kv`.
Plane: TypeAlias = Annotated[str, StringConstraints(pattern=f"^{_WORD}$")]
# The path of an artefact in a campaign.
ArtefactPath: TypeAlias = Annotated[str, StringConstraints(pattern=rf"^artefacts/{_WORD}-[0-9a-f]{{8}}\.yaml$")]
# The key of a job, and the name of a run.
Key: TypeAlias = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z][0-9A-Za-z_-]{0,79}$")]

# Bounded, so that sums and quotients of counts are finite.
Count: TypeAlias = Annotated[int, Field(ge=0, le=1 << 53)]
