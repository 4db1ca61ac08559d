"""One call of an AWS client, with the port's errors instead of the SDK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from launcher.providers.aws.errors import code_of, translate

Answer = TypeVar("Answer")


def ask(function: Callable[..., Answer], **parameters: Any) -> Answer:  # noqa: ANN401 - as boto3 has them
    """What AWS answers. Raises CapacityError, RefusedError and UnreachableError."""
    try:
        return function(**parameters)
    except (ClientError, BotoCoreError, ResponseParserError) as error:
        raise translate(error) from error


def ask_unless(
    codes: frozenset[str],
    function: Callable[..., Answer],
    **parameters: Any,  # noqa: ANN401 - as boto3 has them
) -> Answer | None:
    """What AWS answers; None where that is one of these error codes. Raises as `ask` does."""
    try:
        return function(**parameters)
    except ClientError as error:
        if code_of(error) in codes:
            return None
        raise translate(error) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise translate(error) from error
