"""Opens the files of `templates/` and fills them in. Nothing else reads that folder."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from string import Template


def template_text(name: str) -> str:
    """A template as it is."""
    return files("launcher.templates").joinpath(name).read_text(encoding="utf-8")


def user_data(deadline: datetime) -> str:
    """What a machine does first: arm its own power-off at `deadline`. No secret: anyone in the account can read it."""
    stamp = deadline.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Template(template_text("user-data.sh")).substitute(deadline=stamp)
