"""What an S3 request is called, so that a fault plan can name it."""

from __future__ import annotations

import pytest

from launcher.sandbox.faults import CallFacts, FaultPlan, matches
from launcher.sandbox.s3proxy import read_facts


@pytest.mark.parametrize(
    ("method", "url", "action", "key"),
    [
        ("PUT", "/bucket/a/b%20c", "PutObject", "a/b c"),
        ("GET", "/bucket/a?versionId=1", "GetObject", "a"),
        ("HEAD", "/bucket/a", "HeadObject", "a"),
        ("DELETE", "/bucket/a", "DeleteObject", "a"),
        ("GET", "/bucket?list-type=2&prefix=a", "ListObjectsV2", None),
        ("POST", "/bucket?delete", "DeleteObjects", None),
        ("POST", "/bucket/a?uploads", "CreateMultipartUpload", "a"),
        ("PUT", "/bucket/a?partNumber=2&uploadId=x", "UploadPart", "a"),
        ("POST", "/bucket/a?uploadId=x", "CompleteMultipartUpload", "a"),
        ("DELETE", "/bucket/a?uploadId=x", "AbortMultipartUpload", "a"),
        ("GET", "/bucket?uploads", "ListMultipartUploads", None),
    ],
)
def test_a_request_has_the_name_that_the_api_gives_it(method, url, action, key):
    assert read_facts(method, url) == CallFacts(action, key=key)


def test_a_plan_for_a_key_fits_only_calls_for_such_a_key():
    plan = FaultPlan("PutObject|UploadPart", key=r".*\.pt")
    assert matches(plan, read_facts("PUT", "/bucket/run/last.pt"))
    assert not matches(plan, read_facts("PUT", "/bucket/run/last.pt.sha256"))
    assert not matches(plan, read_facts("GET", "/bucket/run/last.pt"))
    assert not matches(plan, CallFacts("PutObject"))
