"""Opens the files of `templates/` and fills them in. Nothing else reads that folder."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from string import Template

QUIET_MINUTES = 30
"""A machine on which no agent writes its status for so long ends itself.

A launcher that lives starts the agent again, or gives it up, long before."""


def template_text(name: str) -> str:
    """A template as it is."""
    return files("launcher.templates").joinpath(name).read_text(encoding="utf-8")


def user_data(deadline: datetime) -> str:
    """What a machine does first: arm its own power-off at `deadline`, and watch its agent.

    No secret: anyone in the account can read it.
    """
    stamp = deadline.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Template(template_text("user-data.sh")).substitute(deadline=stamp, quiet_minutes=QUIET_MINUTES)
