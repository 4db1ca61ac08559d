"""ClientToken: the scope is the zone where one is named, else the region."""

from __future__ import annotations

import pytest

from launcher.sandbox.tokens import ParameterMismatch, Scope, Tokens

FORM = {"InstanceType": "g4dn.xlarge", "ClientToken": "t"}
HERE = Scope("us-east-1", "us-east-1a")


def test_the_same_request_gets_the_first_answer():
    tokens: Tokens[str] = Tokens()
    assert tokens.recall("t", HERE, FORM) is None
    tokens.remember("t", HERE, FORM, "i-1")
    assert tokens.recall("t", HERE, dict(reversed(FORM.items()))) == "i-1"


def test_other_parameters_in_the_same_scope_are_refused():
    tokens: Tokens[str] = Tokens()
    tokens.remember("t", HERE, FORM, "i-1")
    with pytest.raises(ParameterMismatch):
        tokens.recall("t", HERE, {**FORM, "InstanceType": "g5.xlarge"})


@pytest.mark.parametrize(
    "scope", [Scope("us-east-1", "us-east-1b"), Scope("us-east-1", None), Scope("us-west-2", None)]
)
def test_another_scope_knows_nothing_of_the_token(scope):
    tokens: Tokens[str] = Tokens()
    tokens.remember("t", HERE, FORM, "i-1")
    assert tokens.recall("t", scope, FORM) is None
