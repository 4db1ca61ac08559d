"""The plan: ranking, constraints, and what is said when nothing fits."""

import math
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.cost import Rates, cost_lines, total
from pricing.layout import Concurrent, Ddp
from pricing.offers import Constraint, Market, Policy
from pricing.phases import DEFAULT_OVERHEADS
from pricing.planner import NoOfferFits
from tests.fakes.pricing_cases import (
    A100,
    FULL_RATES,
    OVERHEADS,
    RATES,
    SPEED,
    T4_FOUR,
    T4_METAL,
    T4_SMALL,
    V100,
    WORKLOAD,
    offer,
    plan,
    spot,
)


def test_the_cheapest_run_wins_and_not_the_cheapest_hour():
    """A GPU at twice the price that trains four times as fast is the cheaper run."""

    class ByGpu:
        def estimate(self, instance, workload, layout, batch):
            speed = 200.0 if instance.gpu == "A100-40" else 50.0
            return replace(SPEED, images_per_second=speed).estimate(instance, workload, layout, batch)

    workload = replace(WORKLOAD, epochs=300)
    offers = [offer("0.5"), offer("1.0", instance=A100)]
    assert plan(offers, workload=workload, throughput=ByGpu()).chosen.offer.instance is A100


def test_equal_cost_is_settled_by_the_offer_key():
    offers = [offer(region="us-west-2"), offer(region="us-east-1")]
    assert [option.offer.region for option in plan(offers).ranked] == ["us-east-1", "us-west-2"]


def test_the_lines_of_an_option_add_up_to_its_cost_exactly():
    for option in plan([offer("0.526"), spot("0.1578", 0.05)]).ranked:
        assert total(option.lines) == option.usd
        assert total(cost_lines(option.offer, option.seconds_high, 100, RATES)) == option.usd_high


def test_phases_add_up_to_the_paid_time():
    """10 epochs of 1,000 pictures at 100 a second, 100 at 200 for validation, and what the cloud takes around them."""
    chosen = plan([offer()]).chosen
    phases = chosen.phases
    assert (phases.training, phases.validation) == (100.0, 5.0)
    assert (phases.boot, phases.environment, phases.staging) == (100, 20, 0.1)
    assert chosen.seconds == math.ceil(100 + 5 + 100 + 20 + 0.1 + 10 + 10)


def test_the_range_holds_the_expectation():
    option = plan([spot("0.1", 0.2)]).chosen
    assert option.seconds_low < option.seconds < option.seconds_high
    assert option.usd_low < option.usd < option.usd_high == option.usd_sure


def test_a_hazard_makes_spot_dearer_than_its_price():
    calm, wild = plan([spot("0.1", 0.0)]).chosen, plan([spot("0.1", 1.0)]).chosen
    assert wild.usd > calm.usd
    assert wild.phases == calm.phases


def test_on_demand_wins_where_preemptions_eat_the_discount():
    workload = replace(WORKLOAD, epochs=10, train_images=1_000_000, data_bytes=200 * 10**9)
    ranked = plan([offer("0.2"), spot("0.18", 0.35)], workload=workload).ranked
    assert [option.offer.capacity_type for option in ranked] == ["on-demand", "spot"]


def test_spot_that_may_never_reach_a_checkpoint_is_rejected():
    workload = replace(WORKLOAD, epochs=2, train_images=5_000_000, data_bytes=10**12)
    made = plan([offer("0.5"), spot("0.1", 0.5)], workload=workload)
    assert [rejection.constraint for rejection in made.rejections] == [Constraint.RISK]
    assert "might never get from one checkpoint to the next" in made.rejections[0].reason


def test_a_rejection_carries_its_reason_and_constraint():
    made = plan([offer(), offer("3.06", instance=V100), offer("0"), offer(instance=T4_METAL)])
    reasons = {rejection.constraint: rejection.reason for rejection in made.rejections}
    assert set(reasons) == {Constraint.SUPPORT, Constraint.PRICE, Constraint.WASTE}
    assert reasons[Constraint.WASTE] == "pays for 8 GPUs and would use 1"


def test_a_price_of_zero_is_never_the_cheapest():
    assert plan([offer("0"), offer("0.5")]).chosen.offer.usd_per_hour == Decimal("0.5")


def test_idle_gpus_that_are_allowed_are_noted():
    option = plan([offer("7.824", instance=T4_METAL)], Policy(idle_gpus_allowed=True)).chosen
    assert option.notes[0] == "pays for 8 GPUs and uses 1"


def test_several_trainings_go_side_by_side():
    workload = replace(WORKLOAD, tasks=10)
    option = plan([offer("3.912", instance=T4_FOUR)], workload=workload).chosen
    assert option.layout == Concurrent(4)
    assert option.phases.training == 3 * 10 * 1000 / 25, "10 trainings, 4 at a time on a host that does 100 images/s"


def test_one_training_is_spread_where_the_trainer_can():
    option = plan([offer("3.912", instance=T4_FOUR)], Policy(max_gpus_per_task=4)).chosen
    assert option.layout == Ddp(4)


def test_offers_refused_lately_stay_out():
    first, second = offer("0.5", region="us-east-1"), offer("0.6", region="us-west-2")
    made = plan([first, second], cooled=frozenset({first.key}))
    assert made.chosen.offer is second
    assert made.rejections[0].constraint is Constraint.COOLED


def test_a_deadline_rules_out_what_may_come_too_late():
    with pytest.raises(NoOfferFits, match="no offer fits the deadline of 3 min") as caught:
        plan([offer()], Policy(max_hours=0.05))
    assert caught.value.rejections[0].reason == "takes up to 0.1 h at 90% confidence; the deadline is 0.05 h"
    assert "allow more time" in caught.value.hint


def test_a_deadline_that_is_too_short_for_any_offer_names_the_quickest_one_and_its_time():
    offers = [offer(), offer("3", region="us-west-2", instance=A100), spot("0.2", 0.3)]
    quickest = min(plan(offers).ranked, key=lambda option: option.timing.sure.seconds)
    with pytest.raises(NoOfferFits, match=r"the quickest takes up to \d+ min") as caught:
        plan(offers, Policy(max_hours=0.02))
    assert f"in {quickest.offer.region}" in caught.value.message
    minutes = int(re.search(r"takes up to (\d+) min", caught.value.message)[1])
    assert quickest.offer in [option.offer for option in plan(offers, Policy(max_hours=minutes / 60)).ranked]


def test_an_amount_with_many_digits_is_shown_in_cents():
    left = Decimal("0.5001234567890123456789012345")
    with pytest.raises(NoOfferFits, match=r"the budget of 0\.50 USD") as caught:
        plan([offer()], Policy(budget_usd=left), replace(WORKLOAD, epochs=1000))
    assert "the budget is 0.50 USD" in caught.value.rejections[0].reason


def test_a_budget_holds_at_the_stated_confidence_and_not_on_average():
    chosen = plan([offer()]).chosen
    between = (chosen.usd + chosen.usd_sure) / 2
    with pytest.raises(NoOfferFits):
        plan([offer()], Policy(budget_usd=between))
    assert plan([offer()], Policy(budget_usd=between, confidence=0.5)).chosen.usd == chosen.usd


def test_a_budget_that_is_too_small_names_the_cheapest_run_and_the_epochs_it_buys():
    workload = replace(WORKLOAD, epochs=1000)
    with pytest.raises(NoOfferFits) as caught:
        plan([offer("0.526"), offer("3.06", region="us-west-2")], Policy(budget_usd=Decimal("0.5")), workload)
    error = caught.value
    assert error.cheapest.offer.usd_per_hour == Decimal("0.526")
    assert 0 < error.affordable_epochs < 1000
    assert "no offer fits the budget of 0.50 USD: the cheapest run costs" in error.message
    assert f"the budget buys {error.affordable_epochs} of 1000 epochs" in error.message
    assert error.hint == f"raise the budget, or train {error.affordable_epochs} of the 1000 epochs"
    assert error.counts == {Constraint.BUDGET: 2}


def test_the_epochs_a_budget_buys_fit_that_budget():
    workload = replace(WORKLOAD, epochs=1000)
    budget = Decimal("0.5")
    with pytest.raises(NoOfferFits) as caught:
        plan([offer()], Policy(budget_usd=budget), workload)
    fewer = replace(workload, epochs=caught.value.affordable_epochs)
    assert plan([offer()], Policy(budget_usd=budget), fewer).chosen.usd_sure <= budget


def test_a_tiny_budget_buys_no_epoch_and_says_so():
    with pytest.raises(NoOfferFits) as caught:
        plan([offer()], Policy(budget_usd=Decimal("0.001")))
    assert caught.value.affordable_epochs == 0
    assert "buys 0 of 10 epochs" in caught.value.message
    assert caught.value.hint == "raise the budget, or lower epochs or image_size"


def test_what_is_too_dear_is_counted_beside_what_does_not_fit_at_all():
    with pytest.raises(NoOfferFits) as caught:
        plan(
            [offer(), offer("3.06", instance=V100), spot("0.1")],
            Policy(budget_usd=Decimal("0.001"), market=Market.SPOT),
        )
    assert caught.value.counts == {Constraint.MARKET: 2, Constraint.BUDGET: 1}


@pytest.mark.parametrize(
    ("policy", "message", "hint"),
    [
        (Policy(gpus=("A100",)), "unknown GPU 'A100' in the price table", "nearest GPU names: A100-40"),
        (Policy(gpus=("T4", "t4")), "unknown GPU 't4' in the price table", "nearest GPU names: T4"),
        (
            Policy(regions=("us-east",)),
            "unknown region 'us-east' in the price table",
            "nearest region names: us-east-1",
        ),
        (Policy(clouds=("amazon",)), "unknown cloud 'amazon' in the price table", "nearest cloud names: aws, gcp"),
    ],
)
def test_names_are_exact_and_unknown_ones_list_the_nearest(policy, message, hint):
    """Someone who asked for an A100 was given the 80 GB one without a word."""
    with pytest.raises(NoOfferFits) as caught:
        plan([offer(), offer("3.67", instance=A100)], policy)
    assert caught.value.message == message
    assert caught.value.hint == hint


def test_no_offers_at_all_is_said_plainly():
    with pytest.raises(NoOfferFits, match="there are no offers to plan with"):
        plan([])


def test_a_spot_price_above_on_demand_is_flagged():
    wrong = plan([spot("0.84", on_demand_usd_per_hour=Decimal("0.44"))]).chosen
    assert "spot price above on-demand (0.44 USD/h): check it" in wrong.notes
    equal = plan([spot("0.44", on_demand_usd_per_hour=Decimal("0.44"))]).chosen
    assert "no spot discount there at the time of the table" in equal.notes


def test_an_unverified_price_is_marked():
    chosen = plan([spot("0.1", verified=False)], rates=FULL_RATES).chosen
    assert chosen.notes == ("price from one source only, not verified",)


@pytest.mark.parametrize(
    ("observed", "note"),
    [
        ("2026-11-15", ()),
        ("2026-05-20", ("the on-demand price of the chosen offer is up to 195 days old (2026-05-20)",)),
        ("2026-06/2026-10", ("the on-demand price of the chosen offer is up to 183 days old (2026-06/2026-10)",)),
        ("lately", ("the age of the price of aws/us-east-1/*/g4dn.xlarge/on-demand is unknown",)),
    ],
)
def test_an_old_price_is_marked_by_its_oldest_possible_day(observed, note):
    assert plan([replace(offer(), observed_at=observed)], Policy(storage_region="us-east-1")).notes == note


def test_everything_that_a_run_pays_for_is_a_line_of_the_estimate():
    """Tools that show the hour of the machine alone were wrong by the disk, the download and the other region."""
    policy = Policy(storage_region="eu-west-1", keeps_data=True)
    option = plan([spot("0.2", 0.05)], policy, rates=FULL_RATES).chosen
    assert [line.what for line in option.lines] == [
        "g4dn.xlarge spot, us-east-1",
        "disk, 100 GiB",
        "public IPv4 address",
        "objects kept 30 days",
        "write requests",
        "read requests",
        "download of the results",
        "data set from eu-west-1",
        "checkpoints to eu-west-1",
    ]
    assert option.usd == total(option.lines)
    assert all(line.source and line.observed_at for line in option.lines)


def test_a_machine_beside_the_bucket_can_be_the_cheaper_run_at_a_dearer_hour():
    data = replace(WORKLOAD, data_bytes=100 * 10**9)
    near, far = offer("0.6", region="eu-west-1"), offer("0.5", region="us-east-1")
    policy = Policy(storage_region="eu-west-1")
    assert plan([near, far], Policy(), data, rates=FULL_RATES).chosen.offer is far
    made = plan([near, far], policy, data, rates=FULL_RATES)
    assert made.chosen.offer is near
    note = made.runners_up[0].notes[0]
    assert note.startswith("the bucket is in eu-west-1: about 100 GB between it and us-east-1 cost 2.01 USD")
    assert plan([far], policy, data).chosen.notes[0] == (
        "not counted, since the rate is not known: object storage, object storage write requests,"
        " object storage read requests, egress to internet, cross-region transfer"
    )


def test_a_plan_without_the_buckets_region_says_what_it_does_not_count():
    assert [note for note in plan([offer()]).notes if "not counted: traffic" in note]


def test_a_cloud_without_rates_or_overheads_is_rejected_and_not_free():
    with pytest.raises(NoOfferFits) as caught:
        plan([offer()], rates=Rates({}, {}))
    assert caught.value.rejections[0].reason == "no billing rule for aws"
    with pytest.raises(NoOfferFits) as caught:
        plan([offer()], overheads={})
    assert caught.value.rejections[0].reason == "no overheads are known for aws"


def test_speed_is_worked_out_once_per_kind_of_machine():
    asked = []

    class Counting:
        def estimate(self, instance, workload, layout, batch):
            asked.append(instance.name)
            return SPEED.estimate(instance, workload, layout, batch)

    offers = [offer(region=f"us-{number}") for number in range(50)]
    plan(offers, throughput=Counting())
    assert asked == [T4_SMALL.name]


def test_every_default_overhead_is_counted_somewhere():
    for cloud, overheads in DEFAULT_OVERHEADS.items():
        assert overheads.spread >= 1, cloud
        assert overheads.source, cloud
    assert set(OVERHEADS) <= set(DEFAULT_OVERHEADS)
