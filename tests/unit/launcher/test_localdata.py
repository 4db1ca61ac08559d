"""Data on this machine that cannot be opened is refused in words."""

from __future__ import annotations

import pytest

from launcher.errors import BadInput
from launcher.localdata import opened


@pytest.mark.parametrize("data", ["~nosuchuser/x", "x" * 5000, "./none", "a\0b", "/etc/hostname/x"])
def test_a_path_that_leads_nowhere_is_named_with_what_to_do(data):
    with pytest.raises(BadInput, match="data at") as error, opened(data):
        pass
    assert "correct `data`" in error.value.hint
    assert len(str(error.value)) < 400
