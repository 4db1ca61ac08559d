"""What starting a machine costs, once and again after each preemption: with figures that users measured."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.cost import HOUR_SECONDS
from pricing.phases import DEFAULT_OVERHEADS
from pricing.risk import expected_seconds, expected_seconds_from_zero, save_seconds
from tests.fakes.pricing_cases import OVERHEADS, offer, plan, spot

HOUR = 3600
SLOW_STARTS = [233, 587]
"""3 min 53 s and 9 min 47 s from the request to SSH."""
INTERRUPTIONS = 0.15
"""An hour: the rate at which a spot training without a checkpoint was worked out to take 3,198 hours."""
WORK_HOURS = 41.17
"""What such a training takes undisturbed."""


def test_a_training_of_two_days_takes_months_on_spot_without_a_checkpoint_and_two_days_with_one():
    """P07: spot without a checkpoint 3,198 h, on demand 48.5 h, spot with one 17.9 h (on another machine)."""
    from_zero = expected_seconds_from_zero(WORK_HOURS * HOUR, INTERRUPTIONS) / HOUR
    assert from_zero == pytest.approx(3198, rel=0.01)
    interval = save_seconds(INTERRUPTIONS)
    saved = expected_seconds(WORK_HOURS * HOUR, INTERRUPTIONS, interval_seconds=interval, restart_seconds=587) / HOUR
    assert WORK_HOURS < saved < 48.5, "less than the training on demand took"
    assert from_zero / saved > 70


def test_at_that_rate_spot_is_the_cheaper_one_with_checkpoints_where_it_costs_a_third():
    ranked = plan([offer("0.60"), spot("0.20", INTERRUPTIONS)]).ranked
    assert [option.offer.capacity_type.value for option in ranked] == ["spot", "on-demand"]


@pytest.mark.parametrize("boot", SLOW_STARTS)
def test_the_minutes_until_a_machine_lets_in_are_paid_for_in_the_plan(boot):
    """S08: provisioning takes minutes, and the machine is billed from its launch."""
    at_once, late = (
        plan([offer("0.60")], overheads={"aws": replace(OVERHEADS["aws"], boot_seconds=seconds)}).chosen
        for seconds in (0, boot)
    )
    assert late.seconds - at_once.seconds == pytest.approx(boot)
    compute = Decimal("0.60") * boot / HOUR_SECONDS
    assert late.usd - at_once.usd >= compute.quantize(Decimal("0.0001"))


def test_the_start_that_a_plan_expects_is_of_the_size_that_users_saw():
    start = DEFAULT_OVERHEADS["aws"]
    expected = start.boot_seconds + start.environment_seconds
    assert SLOW_STARTS[0] / start.spread < expected < SLOW_STARTS[1]
    assert DEFAULT_OVERHEADS["gcp"].boot_seconds >= 420, "7 to 7.5 minutes until a GPU machine is ready"
