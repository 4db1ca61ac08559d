"""Faults of the object store: a proxy that passes everything on but what a plan names."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from sandbox_client import NEEDED, SETTINGS, Cloud, boto3, sandbox_home  # noqa: F401 - fixtures

from launcher import sandbox
from launcher.sandbox import FaultPlan

pytestmark = NEEDED


@pytest.fixture(scope="module", name="cloud")
def cloud_with_s3_faults(home):
    one = Cloud(sandbox.up(home, replace(SETTINGS, s3_faults=True)))
    yield one
    one.close()


@pytest.fixture(name="store")
def bucket_client(cloud):
    return cloud.client("s3", cloud.info.s3_endpoint)


def put(cloud, store, key, body):
    store.put_object(Bucket=cloud.info.bucket, Key=key, Body=body)


def get(cloud, store, key):
    return store.get_object(Bucket=cloud.info.bucket, Key=key)["Body"].read()


def keys(cloud, store):
    return [one["Key"] for one in store.list_objects_v2(Bucket=cloud.info.bucket).get("Contents", [])]


def test_without_a_plan_everything_passes_whole_and_signatures_are_checked(cloud, store):
    data = os.urandom(20_000_000)
    transfer = boto3.s3.transfer.TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    store.upload_fileobj(io.BytesIO(data), cloud.info.bucket, "a/large", Config=transfer)
    put(cloud, store, "a/small one", b"x" * 10)
    assert hashlib.sha256(get(cloud, store, "a/large")).digest() == hashlib.sha256(data).digest()
    assert store.get_object(Bucket=cloud.info.bucket, Key="a/large", Range="bytes=5-9")["Body"].read() == data[5:10]
    assert store.head_object(Bucket=cloud.info.bucket, Key="a/small one")["ContentLength"] == 10
    assert keys(cloud, store) == ["a/large", "a/small one"]
    with pytest.raises(ClientError, match="NoSuchKey"):
        get(cloud, store, "a/nothing")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        store.put_object(Bucket=cloud.info.bucket, Key="a/small one", Body=b"y", IfNoneMatch="*")
    wrong = boto3.client(
        "s3",
        endpoint_url=cloud.info.s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id=cloud.info.access_key,
        aws_secret_access_key="wrong",
    )
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        wrong.list_objects_v2(Bucket=cloud.info.bucket)
    wrong.close()
    store.delete_objects(Bucket=cloud.info.bucket, Delete={"Objects": [{"Key": key} for key in keys(cloud, store)]})
    assert keys(cloud, store) == []


def test_a_plan_slows_down_the_writes_it_names(cloud, home, store):
    sandbox.inject(home, FaultPlan(action="PutObject", key=r"b/.*\.pt", code="SlowDown", status=503))
    put(cloud, store, "b/log", b"x")
    with pytest.raises(ClientError, match="SlowDown") as refused:
        put(cloud, store, "b/last.pt", b"x" * 3_000_000)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert keys(cloud, store) == ["b/log"]
    put(cloud, store, "b/last.pt", b"y")
    assert get(cloud, store, "b/last.pt") == b"y"


def test_a_lost_answer_leaves_the_object_and_a_reset_before_does_not(cloud, home, store):
    for after in (False, True):
        sandbox.inject(home, FaultPlan(action="PutObject", code="RESET", after=after))
        with pytest.raises(Exception, match=r"(?i)connection") as lost:
            put(cloud, store, f"c/{after}", b"x")
        assert not isinstance(lost.value, ClientError)
    assert [key for key in keys(cloud, store) if key.startswith("c/")] == ["c/True"]


def test_a_read_can_be_delayed(cloud, home, store):
    put(cloud, store, "d", b"x")
    sandbox.inject(home, FaultPlan(action="GetObject", delay_seconds=0.7))
    began = time.monotonic()
    assert get(cloud, store, "d") == b"x"
    assert time.monotonic() - began >= 0.7


def test_an_instance_reaches_the_store_through_the_proxy_with_its_role(cloud):
    machine = cloud.launch()
    copy = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1').put_object("
    copy += f"Bucket='{cloud.info.bucket}', Key='from/instance', Body=b'x')"
    code, _, err = machine.run(f'$GPUCOST_ROOT/opt/pytorch/bin/python -c "{copy}" {cloud.info.s3_endpoint}')
    assert (code, err) == (0, "")
    machine.close()
    cloud.ec2.terminate_instances(InstanceIds=[machine.id])
    machine.wait("terminated")
