"""Requests and errors in the three protocols of AWS; images by their parameters."""

from __future__ import annotations

import io
import json
from urllib.parse import urlencode

import pytest

from launcher.sandbox import images
from launcher.sandbox.calls import error, read_call

SCOPE = "AWS4-HMAC-SHA256 Credential=AKIA/20261201/eu-west-1/{}/aws4_request, SignedHeaders=host, Signature=0"


def request(body=b"", *, kind="", target="", service="ec2", method="POST", path="/"):
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_TYPE": kind,
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": SCOPE.format(service),
        "HTTP_X_AMZ_TARGET": target,
        "wsgi.input": io.BytesIO(body),
    }


def launch(**form):
    body = urlencode({"Action": "RunInstances", **form}).encode()
    return read_call(request(body, kind="application/x-www-form-urlencoded"))


def test_a_query_call_gives_action_region_and_form_and_stays_readable():
    call = launch(InstanceType="g4dn.xlarge", SubnetId="subnet-1")
    assert (call.action, call.region, call.service, call.subnet()) == ("RunInstances", "eu-west-1", "ec2", "subnet-1")
    assert call.environ["wsgi.input"].read() == call.body


@pytest.mark.parametrize(
    ("form", "market"), [({}, "on-demand"), ({"InstanceMarketOptions.MarketType": "spot"}, "spot")]
)
def test_a_launch_says_its_market_and_other_calls_have_none(form, market):
    assert launch(**form).facts("us-east-1a").market == market
    assert read_call(request(target="AmazonSSM.GetParameter")).facts(None).market is None


def test_json_and_rest_calls_have_actions_too():
    assert read_call(request(b"{}", target="AmazonSSM.GetParameter")).action == "GetParameter"
    assert read_call(request(method="PUT", path="/other/x", service="other")).action == "PUT /other/x"


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("POST", "/schedules/a", "CreateSchedule"),
        ("DELETE", "/schedules/a", "DeleteSchedule"),
        ("GET", "/schedules", "ListSchedules"),
        ("POST", "/schedule-groups/a", "CreateScheduleGroup"),
        ("GET", "/schedule-groups", "ListScheduleGroups"),
    ],
)
def test_a_rest_call_of_the_scheduler_has_the_name_that_the_api_gives_it(method, path, action):
    assert read_call(request(method=method, path=path, service="scheduler")).action == action


def test_errors_come_in_the_protocol_of_the_call():
    plain = error(launch(), "A<b", 500, "why & how")
    assert plain.status == "500 Error"
    assert b"<Errors><Error><Code>A&lt;b</Code><Message>why &amp; how</Message>" in plain.body
    body = urlencode({"Action": "GetRole"}).encode()
    iam = read_call(request(body, kind="application/x-www-form-urlencoded", service="iam"))
    assert error(iam, "NoSuchEntity", 404, "x").body.startswith(b"<ErrorResponse><Error><Code>NoSuchEntity</Code>")
    ssm = error(read_call(request(target="AmazonSSM.GetParameter")), "ParameterNotFound", 400, "x")
    assert json.loads(ssm.body) == {"__type": "ParameterNotFound", "message": "x"}
    assert ("x-amzn-ErrorType", "ParameterNotFound") in ssm.headers
    rest = error(read_call(request(path="/schedules/a")), "ConflictException", 409, "x")
    assert json.loads(rest.body) == {"Message": "x"}
    assert ("x-amzn-ErrorType", "ConflictException") in rest.headers


def test_every_image_is_named_by_one_parameter_under_the_public_path():
    assert len({image.image_id for image in images.IMAGES}) == len(images.IMAGES)
    assert [images.image_id(image.parameter) for image in images.IMAGES] == [image.image_id for image in images.IMAGES]
    assert images.image_id(images.PARAMETERS) is None
    assert len(images.under(images.PARAMETERS + "x86_64")) == len(images.IMAGES)
    assert {row["ami_id"] for row in images.moto_table()} == {image.image_id for image in images.IMAGES}
