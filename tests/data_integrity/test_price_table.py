"""The shipped tables: ranges, duplicates, names, dates, anchors against published figures."""

import csv
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.cost import (
    CROSS_REGION,
    DISK,
    EGRESS,
    OBJECT_GET,
    OBJECT_PUT,
    OBJECT_STORAGE,
    PUBLIC_IPV4,
    PUBLIC_IPV4_SPOT,
)
from pricing.explain import SPOT_TOLERANCE, observed_date
from pricing.extras import uncounted
from pricing.models import MODELS
from pricing.offers import CapacityType, Policy
from pricing.phases import DEFAULT_OVERHEADS
from pricing.planner import plan_run
from pricing.risk import BUCKETS, PRIOR_HAZARD
from pricing.sources import tables
from pricing.workload import Workload
from tests.fakes.pricing_cases import NOW

OFFERS = tables.load_offers()
SHARED = Path(__file__).parents[2] / "../shared"
RANKED_GPUS = ("T4", "L4", "A10", "A10G", "V100-16", "L40S", "A100-40", "A100-80", "H100")


def test_the_table_has_the_offers_of_four_clouds():
    counts = Counter(offer.provider for offer in OFFERS)
    assert set(counts) == {"aws", "gcp", "azure", "alibaba"}
    assert len(OFFERS) > 3900


@pytest.mark.parametrize("gpu", RANKED_GPUS)
def test_every_gpu_type_that_plans_rank_has_offers(gpu):
    assert sum(offer.instance.gpu == gpu for offer in OFFERS) >= 10


def test_no_offer_appears_twice():
    doubles = [key for key, count in Counter(offer.key for offer in OFFERS).items() if count > 1]
    assert doubles == []


def test_every_price_is_a_plausible_amount():
    for offer in OFFERS:
        per_gpu = offer.usd_per_hour / Decimal(offer.instance.gpu_count * offer.instance.gpu_share)
        assert Decimal("0.03") < per_gpu < Decimal(25), offer.key


def test_spot_is_never_above_on_demand():
    """Some tools listed the on-demand price as spot, or a spot price above it."""
    for offer in OFFERS:
        if offer.on_demand_usd_per_hour is not None:
            assert offer.capacity_type is CapacityType.SPOT
            assert offer.usd_per_hour <= offer.on_demand_usd_per_hour * SPOT_TOLERANCE, offer.key


def test_machines_agree_with_the_gpu_table():
    gpus = tables.load_gpus()
    for instance in tables.load_instance_types().values():
        gpu = gpus[instance.gpu]
        nominal = gpu.memory_gib * instance.gpu_share
        assert instance.gpu_memory_gib == pytest.approx(nominal, rel=0.01), instance.name
        assert instance.gpu_count in (1, 2, 4, 8), instance.name
        assert instance.vcpus >= 4, instance.name
        assert instance.memory_gib >= 12, instance.name


def test_gpus_with_two_memory_sizes_carry_the_size_in_their_name():
    names = set(tables.load_gpus())
    assert {"A100-40", "A100-80", "V100-16", "V100-32"} <= names
    assert not {"A100", "V100"} & names


def test_aws_zones_are_zone_ids_and_not_names_private_to_an_account():
    zones = {offer.zone for offer in OFFERS if offer.provider == "aws" and offer.zone}
    assert zones
    assert all(re.fullmatch(r"[a-z]{2,4}[a-z0-9]+-(az|[a-z]+\d-az)\d+", zone) for zone in zones), zones


def test_gcp_zones_belong_to_their_region():
    for offer in OFFERS:
        if offer.provider == "gcp" and offer.zone:
            assert offer.zone.startswith(f"{offer.region}-"), offer.key


def test_every_offer_has_a_source_and_a_readable_date():
    for source in tables.load_price_sources().values():
        assert source.source
        observed = observed_date(source.observed_at)
        assert observed is not None
        assert observed.year >= 2026


def test_no_row_of_a_share_alike_source_is_shipped():
    assert not [source for source in tables.load_price_sources().values() if "sparecores" in source.source.lower()]


@pytest.mark.parametrize(
    ("provider", "name", "region", "usd"),
    [
        pytest.param("aws", "g4dn.xlarge", "us-east-1", "0.526", id="AWS price list, g4dn.xlarge"),
        pytest.param("aws", "g5.xlarge", "us-east-1", "1.006", id="AWS price list, g5.xlarge"),
        pytest.param("aws", "g6.xlarge", "us-east-1", "0.8048", id="AWS price list, g6.xlarge"),
        pytest.param("gcp", "a2-highgpu-1g", "us-central1", "3.673385", id="Google's page, a2-highgpu-1g"),
        pytest.param("gcp", "a2-ultragpu-1g", "us-central1", "5.0688", id="Google's page, a2-ultragpu-1g"),
        pytest.param("gcp", "a3-highgpu-8g", "us-central1", "88.49", id="Google's page, a3-highgpu-8g"),
    ],
)
def test_on_demand_prices_equal_what_the_vendors_publish(provider, name, region, usd):
    found = {
        offer.usd_per_hour
        for offer in OFFERS
        if (offer.provider, offer.instance.name, offer.region) == (provider, name, region)
        and offer.capacity_type is CapacityType.ON_DEMAND
    }
    assert found
    assert all(abs(price - Decimal(usd)) < Decimal("0.005") for price in found)


def test_only_figures_with_a_second_source_count_as_verified():
    assert not any(offer.verified for offer in OFFERS if offer.capacity_type is CapacityType.SPOT)
    unverified = {offer.provider for offer in OFFERS if not offer.verified and offer.usd_per_hour}
    assert "alibaba" in unverified


def test_spot_hazards_come_from_the_advisor_or_the_prior():
    hazards = tables.load_spot_hazards()
    assert len(hazards) == 540
    for offer in OFFERS:
        if offer.capacity_type is CapacityType.SPOT:
            expected = hazards.get((offer.region, offer.instance.name), PRIOR_HAZARD)
            assert offer.risk is (expected if offer.provider == "aws" else PRIOR_HAZARD)
            assert offer.risk.source
        else:
            assert offer.risk.high_per_hour == 0


def test_every_advisor_bucket_is_known():
    with (tables.DATA / "spot_advisor.csv").open(newline="") as file:
        assert {row["bucket"] for row in csv.DictReader(file)} == set(BUCKETS)


def test_every_cloud_has_disk_address_billing_and_overheads():
    rates = tables.load_rates()
    for provider in ("aws", "gcp", "azure", "alibaba"):
        assert rates.of(provider, "disk").usd > 0
        assert rates.address(provider, CapacityType.SPOT).usd >= 0
        assert rates.rule(provider).minimum_seconds == 60
        assert provider in DEFAULT_OVERHEADS


def test_every_cloud_has_what_objects_and_traffic_cost_but_for_what_nobody_publishes():
    rates = tables.load_rates()
    assert {cloud: uncounted(cloud, rates, crosses=True) for cloud in ("aws", "gcp", "azure", "alibaba")} == {
        "aws": (),
        "gcp": (),
        "azure": (OBJECT_PUT, OBJECT_GET),
        "alibaba": (CROSS_REGION,),
    }


def test_every_rate_has_a_unit_that_its_lines_are_made_in_and_a_source():
    units = {
        DISK: "GiB-month",
        PUBLIC_IPV4: "hour",
        PUBLIC_IPV4_SPOT: "hour",
        OBJECT_STORAGE: "GiB-month",
        OBJECT_PUT: "1000 requests",
        OBJECT_GET: "1000 requests",
        EGRESS: "GB",
        CROSS_REGION: "GB",
    }
    for (cloud, item), rate in tables.load_rates().rates.items():
        assert rate.unit == units[item], (cloud, item)
        assert "; rate of region " in rate.source
        assert rate.observed_at or not rate.verified, "what was looked up has a date"


def test_unverified_rates_are_marked():
    assert not tables.load_rates().of("aws", "public IPv4").verified
    assert tables.load_rates().of("aws", "disk").verified


def test_throughput_rows_are_of_known_gpus_and_say_what_they_are_for():
    for row in tables.load_throughput_rows():
        assert row.gpu in tables.load_gpus()
        assert row.use in ("steps", "gpus", "none")
        assert bool(row.note) == (row.use == "none")
        assert row.use != "steps" or row.model in MODELS
        assert row.source
        assert row.observed_at
        assert row.images_per_second > 0


def test_a_plan_over_the_whole_table_ranks_or_rejects_every_offer():
    workload = Workload("yolov9-c", 640, None, 300, 118_287, 5_000, 19 * 10**9)
    made = plan_run(
        workload,
        OFFERS,
        Policy(),
        throughput=tables.load_throughput_model(),
        rates=tables.load_rates(),
        overheads=DEFAULT_OVERHEADS,
        now=NOW,
    )
    assert len(made.ranked) + len(made.rejections) == len(OFFERS)
    assert {option.offer.instance.gpu for option in made.ranked} >= {"T4", "L4", "A10", "L40S", "A100-80", "H100"}


def test_the_tables_can_be_written_again_from_the_raw_facts(tmp_path):
    if not (SHARED / "pricing/offers.csv").is_file():
        pytest.skip("the raw fact files are not on this machine")
    from pricing.sources.snapshot import main

    main(SHARED, tmp_path)
    for made in sorted(tmp_path.glob("*.csv")):
        assert made.read_text() == (tables.DATA / made.name).read_text(), made.name


def test_model_facts_equal_the_counted_ones():
    path = SHARED / "throughput/model-facts.csv"
    if not path.is_file():
        pytest.skip("the raw fact files are not on this machine")
    with path.open(newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    for name, facts in MODELS.items():
        row = rows[name]
        assert facts.parameters == int(row["params"])
        assert facts.train_gflop == float(row["fwd_bwd_gflop"])
        assert facts.gib_per_image == float(row["mem_gib_per_image"])
        assert facts.fixed_gib == float(row["mem_fixed_gib"])
        written = sum(float(row[column]) for column in ("conv_out_melem", "bn_out_melem", "act_out_melem"))
        assert facts.written_melem == pytest.approx(written, abs=0.001)
        assert facts.layers == sum(int(row[column]) for column in ("convs", "bns", "acts"))
