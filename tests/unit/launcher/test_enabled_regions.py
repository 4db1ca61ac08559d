"""Regions that an account has not enabled are not planned with: a launch there is answered with wrong credentials."""

from __future__ import annotations

from dataclasses import replace

import pytest
from launcher_clock import FakeClock
from launcher_world import JOB
from stubbed_aws import REGION, StubbedAccount

from launcher import opening, wiring
from launcher.context import Context
from launcher.errors import BadInput
from launcher.estimating import full_catalog
from launcher.home import Home
from launcher.jobspec import parse

ENABLED = ("eu-west-1", "us-east-1", "us-west-2")
ANSWER = {"Regions": [{"RegionName": name} for name in ENABLED]}
EVERYWHERE = {offer.region for offer in full_catalog().offers if offer.provider == "aws"}


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.done()
    made.close()


def test_only_offers_of_regions_that_the_account_has_enabled_are_planned_with(account):
    account.expect("ec2", "describe_regions", ANSWER, {})
    catalog = wiring.AwsCatalog(account, REGION)(parse(JOB, {}, "test"))
    assert {offer.region for offer in catalog.offers if offer.provider == "aws"} == set(ENABLED)
    assert set(catalog.not_enabled) == EVERYWHERE - set(ENABLED)
    assert "eu-south-1" in catalog.not_enabled, "the cheapest one, which is off in a new account"
    assert {offer.provider for offer in catalog.offers} == {offer.provider for offer in full_catalog().offers}


def test_the_account_is_asked_once(account):
    account.expect("ec2", "describe_regions", ANSWER, {})
    catalog = wiring.AwsCatalog(account, REGION)
    assert catalog(parse(JOB, {}, "test")) == catalog(parse(JOB, {}, "test"))


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded"])
def test_where_it_cannot_be_found_out_every_region_is_planned_with_and_asked_for_again(account, code):
    catalog = wiring.AwsCatalog(account, REGION)
    account.refuse("ec2", "describe_regions", code)
    everything = catalog(parse(JOB, {}, "test"))
    assert {offer.region for offer in everything.offers if offer.provider == "aws"} == EVERYWHERE
    assert everything.not_enabled == ()
    account.expect("ec2", "describe_regions", ANSWER, {})
    assert catalog(parse(JOB, {}, "test")).not_enabled


def test_a_region_that_the_job_names_and_the_account_has_not_enabled_is_refused_by_name(tmp_path):
    told = []
    context = Context(Home(tmp_path), FakeClock(), told.append, tmp_path)
    catalog = replace(full_catalog(), not_enabled=("af-south-1", "eu-south-1"))
    with pytest.raises(BadInput, match="region 'eu-south-1' is not enabled in this account"):
        opening._require_enabled(parse(JOB, {"regions": ["us-east-1", "eu-south-1"]}, "test"), catalog, context)
    opening._require_enabled(parse(JOB, {"regions": ["us-east-1"]}, "test"), catalog, context)
    assert told == []
    opening._require_enabled(parse(JOB, {}, "test"), catalog, context)
    assert [update.text for update in told] == [
        "left out, since this account has not enabled them: af-south-1, eu-south-1"
    ]
