"""What a run pays beside its machines: bytes, requests, and what happens where a rate is not known."""

from dataclasses import replace
from decimal import Decimal

import pytest

from pricing.cost import CROSS_REGION, EGRESS, OBJECT_GET, OBJECT_PUT, OBJECT_STORAGE, Rates, total
from pricing.extras import (
    CHECKPOINTS_KEPT,
    PART_BYTES,
    Moved,
    Objects,
    Sizes,
    Traffic,
    object_lines,
    objects_of,
    planned_sizes,
    planned_traffic,
    transfer_lines,
    uncounted,
)
from pricing.models import MODELS
from pricing.risk import BUCKETS, SAVE_SECONDS, STALL_SECONDS, bucket_hazard, save_seconds
from remote.transfer.checkpoints import KEPT
from remote.yolov9 import interval
from tests.fakes.pricing_cases import FULL_RATES, RATES, WORKLOAD


def test_a_month_of_objects_their_requests_and_one_download_are_charged():
    objects = Objects(kept_bytes=10 * 2**30, downloaded_bytes=2 * 10**9, writes=Decimal(4000), reads=Decimal(10_000))
    lines = object_lines("aws", objects, FULL_RATES)
    assert [(line.what, line.unit) for line in lines] == [
        ("objects kept 30 days", "GiB-month"),
        ("write requests", "thousand"),
        ("read requests", "thousand"),
        ("download of the results", "GB"),
    ]
    assert [line.usd for line in lines[1:]] == [Decimal("0.020"), Decimal("0.0040"), Decimal("0.18")]
    assert lines[0].usd == pytest.approx(Decimal("0.23") * 720 / 730, rel=Decimal("1e-20"))


def test_traffic_between_regions_is_charged_in_both_directions():
    lines = transfer_lines("aws", "eu-west-1", Moved(Decimal(19 * 10**9), Decimal(10**9)), FULL_RATES)
    assert [(line.what, line.usd) for line in lines] == [
        ("data set from eu-west-1", Decimal("0.38")),
        ("checkpoints to eu-west-1", Decimal("0.02")),
    ]


def test_what_is_nothing_is_no_line():
    assert object_lines("aws", Objects(0, 0, Decimal(0), Decimal(0)), FULL_RATES) == ()
    assert transfer_lines("aws", "eu-west-1", Moved(Decimal(0), Decimal(0)), FULL_RATES) == ()


def test_an_unknown_rate_makes_no_line_and_is_named():
    objects = Objects(10**9, 10**9, Decimal(1), Decimal(1))
    assert object_lines("aws", objects, RATES) == ()
    assert uncounted("aws", RATES, crosses=False) == (OBJECT_STORAGE, OBJECT_PUT, OBJECT_GET, EGRESS)
    assert uncounted("aws", FULL_RATES, crosses=True) == ()
    without = Rates({key: rate for key, rate in FULL_RATES.rates.items() if key[1] != CROSS_REGION}, FULL_RATES.rules)
    assert uncounted("aws", without, crosses=True) == (CROSS_REGION,)
    assert uncounted("aws", without, crosses=False) == ()


def test_a_machine_moves_more_the_longer_it_lives_and_each_one_fetches_anew():
    traffic = Traffic(fetched_bytes=1000, stored_bytes_per_hour=3600, final_bytes=50)
    assert traffic.moved(0) == Moved(Decimal(1000), Decimal(50))
    assert traffic.moved(7200) == Moved(Decimal(1000), Decimal(7250))
    assert traffic.moved(7200, machines=Decimal("1.5")) == Moved(Decimal(1500), Decimal(7275))


def test_what_is_kept_is_the_uploaded_data_two_checkpoints_and_the_results():
    assert Sizes(data_bytes=100, checkpoint_bytes=10, result_bytes=7).kept_bytes == 127
    uploaded, there = (planned_sizes(WORKLOAD, keeps_data=keeps) for keeps in (True, False))
    assert (uploaded.data_bytes, there.data_bytes) == (WORKLOAD.data_bytes, 0)


def test_sizes_grow_with_parameters_and_trainings():
    one = planned_sizes(WORKLOAD, keeps_data=False)
    assert planned_sizes(replace(WORKLOAD, tasks=3), keeps_data=False).kept_bytes == pytest.approx(3 * one.kept_bytes)
    large = planned_sizes(replace(WORKLOAD, variant="yolov9-e"), keeps_data=False)
    ratio = MODELS["yolov9-e"].parameters / MODELS["yolov9-t"].parameters
    assert large.checkpoint_bytes == pytest.approx(ratio * one.checkpoint_bytes)


def test_a_machine_that_goes_on_fetches_the_checkpoints_too():
    fresh, resumed = (planned_traffic(WORKLOAD, 1, 0.0, resumes=resumes) for resumes in (False, True))
    checkpoints = planned_sizes(WORKLOAD, keeps_data=False).checkpoint_bytes
    assert resumed.fetched_bytes - fresh.fetched_bytes == checkpoints
    assert replace(resumed, fetched_bytes=fresh.fetched_bytes) == fresh


def test_trainings_side_by_side_and_a_higher_hazard_store_more():
    calm, wild, both = (planned_traffic(WORKLOAD, n, rate, resumes=False) for n, rate in ((1, 0), (1, 0.05), (2, 0.05)))
    assert calm.stored_bytes_per_hour < wild.stored_bytes_per_hour < both.stored_bytes_per_hour
    assert calm.writes_per_hour < wild.writes_per_hour < both.writes_per_hour
    assert both.stored_bytes_per_hour == pytest.approx(2 * wild.stored_bytes_per_hour, abs=1)


def test_requests_count_the_parts_of_large_objects_the_beats_and_the_records():
    sizes, traffic = Sizes(10 * PART_BYTES, 0, 0), Traffic(writes_per_hour=300)
    still = objects_of(sizes, traffic, 0)
    hour = objects_of(sizes, traffic, 3600)
    assert hour.writes - still.writes == 300
    assert hour.reads - still.reads == 120
    assert objects_of(sizes, traffic, 0, machines=Decimal(0)).writes == 10
    assert objects_of(sizes, traffic, 3600, machines=Decimal(2)).writes == 10 + 2 * (still.writes - 10) + 300


HAZARDS = [0.0, 1e-6, 10.0, *(bucket_hazard(*shares, "").per_hour for shares in BUCKETS.values())]


@pytest.mark.parametrize("per_hour", HAZARDS)
def test_checkpoints_are_expected_as_often_as_the_trainer_takes_them(per_hour):
    """The trainer's own rule is Daly's; both begin with the same guess of what a save costs."""
    assert interval.PRIOR_STALL_SECONDS == STALL_SECONDS
    assert (interval.FLOOR_SECONDS, interval.CEILING_SECONDS) == SAVE_SECONDS
    assert save_seconds(per_hour) == pytest.approx(interval.choose(STALL_SECONDS, per_hour), rel=0.02)


def test_as_many_checkpoints_are_expected_in_the_bucket_as_the_transfer_program_leaves_there():
    assert CHECKPOINTS_KEPT == KEPT


def test_a_data_set_in_another_region_is_the_surprise_that_it_was():
    """100 GB read from another region for each of ten machines: 20 USD that no hour of a machine shows."""
    moved = Traffic(fetched_bytes=100 * 10**9).moved(3600, machines=Decimal(10))
    assert total(transfer_lines("aws", "us-east-1", moved, FULL_RATES)) == 20
