"""RunInstances idempotency as EC2 has it. Pure bookkeeping: no I/O, nothing of HTTP.

Scope of a token: the zone where the request names one (itself or through a subnet), else the region. The same token
with the same parameters in the same scope gives the first answer again; with other parameters it is refused.
Source: EC2 user guide, "Ensuring idempotency in Amazon EC2 API requests".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Signature = tuple[tuple[str, str], ...]


class ParameterMismatch(Exception):
    """The token was used before, in this scope, with other parameters."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a token is known."""

    region: str
    zone: str | None


class Tokens(Generic[Answer]):
    """The answers given so far, by token and scope."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Scope], tuple[Signature, Answer]] = {}

    def recall(self, token: str, scope: Scope, form: Mapping[str, str]) -> Answer | None:
        """The answer that this request got before, or None. Raises ParameterMismatch."""
        known = self._known.get((token, scope))
        if known is None:
            return None
        signature, answer = known
        if signature != _signature(form):
            raise ParameterMismatch(token)
        return answer

    def remember(self, token: str, scope: Scope, form: Mapping[str, str], answer: Answer) -> None:
        """Keep the answer of a request that succeeded."""
        self._known[(token, scope)] = (_signature(form), answer)


def _signature(form: Mapping[str, str]) -> Signature:
    return tuple(sorted(form.items()))
