"""Data in a bucket of its own: its region is found out, and said where it is another one than that of the output."""

from __future__ import annotations

import pytest
from stubbed_aws import StubbedAccount

from launcher.clouds import AWS
from launcher.localdata import DataFacts
from launcher.opening import _apart
from launcher.storage.interface import StorageError
from launcher.wiring import Cloud
from remote.protocol import StorageSpec

DATA = DataFacts(train_images=5000, val_images=1000, bytes=3 * 2**30)


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.done()
    made.close()


def cloud(account, **storage):
    spec = StorageSpec("s3://team/gpucost", "us-east-1", **storage)
    ports = dict.fromkeys(("provider", "timer", "prices", "store", "journal_store", "catalog", "credentials"))
    return Cloud(facts=AWS, account=account, storage=spec, **ports)


@pytest.mark.parametrize(("answer", "region"), [({"LocationConstraint": "eu-west-1"}, "eu-west-1"), ({}, "us-east-1")])
def test_the_bucket_of_the_data_is_asked_where_it_is(account, answer, region):
    account.expect("s3", "get_bucket_location", answer, {"Bucket": "sets"})
    assert cloud(account).region_of("s3://sets/parts.tar") == region


def test_data_beside_the_output_is_where_the_output_is(account):
    assert cloud(account).region_of("s3://team/sets/parts.tar") == "us-east-1"


def test_the_embedded_cloud_has_one_region_for_all_objects(account):
    assert cloud(account, endpoint_url="http://127.0.0.1:1").region_of("s3://sets/parts.tar") == "us-east-1"


def test_a_bucket_that_may_not_be_asked_is_somewhere(account):
    account.refuse("s3", "get_bucket_location", "AccessDenied", status=403)
    assert cloud(account).region_of("s3://theirs/parts.tar") is None


def test_a_bucket_that_does_not_exist_is_named(account):
    account.refuse("s3", "get_bucket_location", "NoSuchBucket", status=404)
    with pytest.raises(StorageError, match="'sets' does not exist"):
        cloud(account).region_of("s3://sets/parts.tar")


def test_data_in_another_region_than_the_output_is_warned_of():
    """C32: reads across regions went from nothing to about 1,000 USD a month."""
    (warning,) = _apart("eu-west-1", "us-east-1", DATA)
    assert "in a bucket in eu-west-1, and `output` is in us-east-1" in warning
    assert "3.0 GiB" in warning
    assert _apart("us-east-1", "us-east-1", DATA) == ()
    assert _apart(None, "us-east-1", DATA) == ()
