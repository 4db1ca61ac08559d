"""What a command said, taken apart."""

from __future__ import annotations


def one_message(err):
    """The only error, and its hint."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    hint = next((line.removeprefix("  try: ") for line in err.splitlines() if line.startswith("  try: ")), "")
    return lines[0].removeprefix("error: "), hint
