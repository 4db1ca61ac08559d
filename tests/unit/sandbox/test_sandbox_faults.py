"""Fault plans: which calls they fit, and how often."""

from __future__ import annotations

import pytest

from launcher.sandbox.faults import CallFacts, FaultPlan, Faults, matches

LAUNCH = CallFacts("RunInstances", instance_type="g4dn.xlarge", zone="us-east-1a", market="spot")


@pytest.mark.parametrize(
    ("plan", "fits"),
    [
        pytest.param(FaultPlan("RunInstances"), True, id="action"),
        pytest.param(FaultPlan(".*Instances"), True, id="pattern"),
        pytest.param(FaultPlan("Run"), False, id="only-whole-actions"),
        pytest.param(FaultPlan("RunInstances", instance_type=r"g4dn\..*"), True, id="type"),
        pytest.param(FaultPlan("RunInstances", instance_type="g5.*"), False, id="other-type"),
        pytest.param(FaultPlan("RunInstances", zone="us-east-1b"), False, id="other-zone"),
        pytest.param(FaultPlan("RunInstances", market="on-demand"), False, id="other-market"),
    ],
)
def test_a_plan_fits_a_call_if_all_it_names_does(plan, fits):
    assert matches(plan, LAUNCH) is fits


def test_a_plan_for_a_zone_does_not_fit_a_call_without_one():
    assert not matches(FaultPlan("RunInstances", zone=".*"), CallFacts("RunInstances"))


def test_plans_are_used_up_in_order_and_only_as_often_as_they_say():
    faults = Faults()
    faults.add(FaultPlan("RunInstances", code="first", times=2))
    faults.add(FaultPlan("RunInstances", code="second"))
    assert faults.pending() == 2
    taken = [faults.take(LAUNCH) for _ in range(4)]
    assert [plan and plan.code for plan in taken] == ["first", "first", "second", None]
    assert faults.pending() == 0


def test_a_call_that_fits_nothing_uses_nothing_up():
    faults = Faults()
    faults.add(FaultPlan("StopInstances", code="x"))
    assert faults.take(LAUNCH) is None
    assert faults.pending() == 1
    faults.clear()
    assert faults.pending() == 0


@pytest.mark.parametrize("field", ["action", "instance_type", "zone"])
def test_a_pattern_that_is_none_is_refused(field):
    plan = FaultPlan(**{"action": "x", field: "("})
    with pytest.raises(ValueError, match="not a regular expression"):
        Faults().add(plan)
