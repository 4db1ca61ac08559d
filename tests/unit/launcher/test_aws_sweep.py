"""How AWS is asked for what carries our tags, and how its answers are read: botocore's own clients, no network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.sweep import AwsSweep
from launcher.providers.interface import RefusedError, UnreachableError
from launcher.providers.sweep import ENDING, Found, InUseError, Kind
from pricing.offers import CapacityType
from pricing.sources.tables import load_offers, load_rates
from pricing.standing import StandingPrices

RUN = "20261201T040000-ab12-job"
MADE = datetime(2026, 12, 1, 4, 1, tzinfo=UTC)
OUTPUT = "s3://team/gpucost"
PRICES = StandingPrices("aws", load_offers(), load_rates())
TAGS = [
    {"Key": "Name", "Value": f"gpucost {RUN}"},
    {"Key": "gpucost-run", "Value": RUN},
    {"Key": "gpucost-lease", "Value": f"{RUN}-1"},
    {"Key": "gpucost-deadline", "Value": "2026-12-01T06:30:00+00:00"},
    {"Key": "gpucost-output", "Value": f"{OUTPUT}/"},
]
OURS = {"Name": "tag-key", "Values": ["gpucost-run"]}
ANSWERS = {
    "describe_instances": "Reservations",
    "describe_spot_instance_requests": "SpotInstanceRequests",
    "describe_volumes": "Volumes",
    "describe_network_interfaces": "NetworkInterfaces",
    "describe_key_pairs": "KeyPairs",
    "describe_security_groups": "SecurityGroups",
    "describe_launch_templates": "LaunchTemplates",
}
"""In the order in which they are asked."""


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.close()


@pytest.fixture
def sweep(account):
    return AwsSweep(account, PRICES)


def expect_region(account, schedules=(), **items):
    """One whole region, empty but for `items` by call."""
    for call, key in ANSWERS.items():
        found = items.get(call, [])
        account.expect("ec2", call, {key: [{"Instances": found}] if call == "describe_instances" else found})
    account.expect("scheduler", "list_schedules", {"Schedules": [{"Name": one["Name"]} for one in schedules]})
    for one in schedules:
        account.expect("scheduler", "get_schedule", one, {"Name": one["Name"], "GroupName": "gpucost"})


def only(account, sweep, call, item):
    """The one thing that is found where a call answers with `item`."""
    expect_region(account, **{call: [item]})
    (found,) = sweep.find(REGION).found
    return found


def instance(state="running", **more):
    return {
        "InstanceId": "i-1",
        "InstanceType": "g4dn.xlarge",
        "State": {"Name": state},
        "LaunchTime": MADE,
        "InstanceLifecycle": "spot",
        "Placement": {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az2"},
        "Tags": TAGS,
        **more,
    }


def spot_price(zone):
    return PRICES.machine("g4dn.xlarge", REGION, zone, CapacityType.SPOT)


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_the_regions_are_those_that_are_enabled(account, sweep):
    account.expect(
        "ec2", "describe_regions", {"Regions": [{"RegionName": "us-east-1"}, {"RegionName": "eu-west-1"}]}, {}
    )
    assert sweep.regions() == ["eu-west-1", "us-east-1"]


MORE = {
    "describe_instances": [
        {
            "Name": "instance-state-name",
            "Values": ["pending", "running", "shutting-down", "stopping", "stopped"],
        }
    ],
    "describe_spot_instance_requests": [{"Name": "state", "Values": ["open"]}],
}
"""Filters beside the tag."""


@pytest.mark.parametrize(
    ("run", "ours", "names"),
    [
        (None, OURS, {}),
        (RUN, {"Name": "tag:gpucost-run", "Values": [RUN]}, {"NamePrefix": "gpucost-20261201T040000-ab12"}),
    ],
    ids=["every-run", "one-run"],
)
def test_a_region_is_asked_by_tag_and_for_schedules_by_name(account, sweep, run, ours, names):
    for call, key in ANSWERS.items():
        account.expect("ec2", call, {key: []}, {"Filters": [ours, *MORE.get(call, [])]})
    account.expect("scheduler", "list_schedules", {"Schedules": []}, {"GroupName": "gpucost", **names})
    listing = sweep.find(REGION, run)
    assert (listing.found, listing.gaps) == ((), ())
    account.done()


def test_all_pages_are_read(account, sweep):
    volume = {"VolumeType": "gp3", "Size": 1, "State": "available", "Tags": TAGS}
    account.expect("ec2", "describe_instances", {"Reservations": []})
    account.expect("ec2", "describe_spot_instance_requests", {"SpotInstanceRequests": []})
    account.expect("ec2", "describe_volumes", {"Volumes": [{"VolumeId": "vol-1", **volume}], "NextToken": "more"})
    account.expect("ec2", "describe_volumes", {"Volumes": [{"VolumeId": "vol-2", **volume}]})
    for call in list(ANSWERS)[3:]:
        account.expect("ec2", call, {ANSWERS[call]: []})
    account.expect("scheduler", "list_schedules", {"Schedules": []})
    assert [one.id for one in sweep.find(REGION).found] == ["vol-1", "vol-2"]


# -- what is read ------------------------------------------------------------------------------------------------------


def test_a_machine_is_read_with_its_tags_and_its_price(account, sweep):
    found = only(account, sweep, "describe_instances", instance(PublicIpAddress="198.51.100.1"))
    assert found == Found(
        Kind.INSTANCE,
        "i-1",
        REGION,
        run_id=RUN,
        lease_id=f"{RUN}-1",
        deadline=datetime(2026, 12, 1, 6, 30, tzinfo=UTC),
        output=OUTPUT,
        state="running",
        usd_per_day=spot_price("use1-az2") + Decimal("0.12"),
        made_at=MADE,
        note="g4dn.xlarge spot",
    )


@pytest.mark.parametrize(
    ("changes", "usd"),
    [
        ({"Placement": {"AvailabilityZone": "us-east-1a"}}, spot_price("")),
        ({"InstanceLifecycle": None}, PRICES.machine("g4dn.xlarge", REGION, "", CapacityType.ON_DEMAND)),
        ({"InstanceType": "t3.micro"}, None),
        ({"InstanceType": "t3.micro", "PublicIpAddress": "198.51.100.1"}, None),
        ({"State": {"Name": "stopped"}}, Decimal(0)),
        ({"State": {"Name": "stopped"}, "PublicIpAddress": "198.51.100.1"}, Decimal("0.12")),
        ({"State": {"Name": "shutting-down"}}, Decimal(0)),
    ],
    ids=["zone-unknown", "on-demand", "unknown", "unknown-and-address", "stopped", "stopped-with-address", "ending"],
)
def test_a_machine_costs_what_its_kind_market_and_state_cost(account, sweep, changes, usd):
    item = {key: value for key, value in instance(**changes).items() if value is not None}
    assert only(account, sweep, "describe_instances", item).usd_per_day == usd


def test_a_stopped_machine_says_what_it_still_costs(account, sweep):
    """C26, C40."""
    found = only(account, sweep, "describe_instances", instance("stopped"))
    assert (found.state, found.note) == ("stopped", "g4dn.xlarge spot; stopped: its disks are billed all the same")


def test_a_machine_on_its_way_out_is_ending(account, sweep):
    assert only(account, sweep, "describe_instances", instance("shutting-down")).state == ENDING


@pytest.mark.parametrize(
    ("tag", "deadline"),
    [
        ("2026-12-01T06:30:00Z", datetime(2026, 12, 1, 6, 30, tzinfo=UTC)),
        ("2026-12-01T07:30:00+01:00", datetime(2026, 12, 1, 6, 30, tzinfo=UTC)),
        ("2026-12-01T06:30:00", None),
        ("tomorrow", None),
        ("", None),
    ],
    ids=["z", "other-zone", "no-zone", "words", "empty"],
)
def test_a_deadline_that_cannot_be_read_for_sure_is_none(account, sweep, tag, deadline):
    tags = [*TAGS[:3], {"Key": "gpucost-deadline", "Value": tag}]
    found = only(account, sweep, "describe_instances", instance(Tags=tags))
    assert (found.deadline, found.output) == (deadline, None)


def test_a_tag_cannot_move_the_cursor_of_a_terminal(account, sweep):
    tags = [{"Key": "gpucost-run", "Value": "\x1b[2Jrun\nall is well"}]
    assert only(account, sweep, "describe_instances", instance(Tags=tags)).run_id == "?[2Jrun?all is well"


@pytest.mark.parametrize(
    ("changes", "usd", "note"),
    [
        ({"Attachments": [{"InstanceId": "i-1"}]}, PRICES.disk(100), "100 GiB gp3 of i-1"),
        ({}, PRICES.disk(100), "100 GiB gp3 of no machine"),
        ({"VolumeType": "io2"}, None, "100 GiB io2 of no machine"),
    ],
    ids=["attached", "alone", "other-rate"],
)
def test_a_disk_costs_its_size(account, sweep, changes, usd, note):
    volume = {
        "VolumeId": "vol-1",
        "VolumeType": "gp3",
        "Size": 100,
        "State": "in-use",
        "CreateTime": MADE,
        "Tags": TAGS,
    }
    found = only(account, sweep, "describe_volumes", {**volume, **changes})
    assert (found.usd_per_day, found.note, found.made_at, found.run_id) == (usd, note, MADE, RUN)


@pytest.mark.parametrize(
    ("changes", "usd", "note"),
    [
        ({"Attachment": {"InstanceId": "i-1"}, "Association": {"PublicIp": "198.51.100.1"}}, Decimal(0), "of i-1"),
        ({}, Decimal(0), "of no machine"),
        ({"Association": {"PublicIp": "198.51.100.1"}}, Decimal("0.12"), "of no machine, with a public address"),
    ],
    ids=["counted-with-its-machine", "alone", "address-alone"],
)
def test_an_interface_costs_its_address_where_no_machine_does(account, sweep, changes, usd, note):
    item = {"NetworkInterfaceId": "eni-1", "Status": "in-use", "TagSet": TAGS, **changes}
    found = only(account, sweep, "describe_network_interfaces", item)
    assert (found.usd_per_day, found.note, found.run_id, found.state) == (usd, note, RUN, "in-use")


@pytest.mark.parametrize(
    ("call", "item", "kind", "id_"),
    [
        (
            "describe_spot_instance_requests",
            {"SpotInstanceRequestId": "sir-1", "State": "open"},
            Kind.SPOT_REQUEST,
            "sir-1",
        ),
        ("describe_key_pairs", {"KeyName": "gpucost-x"}, Kind.KEY_PAIR, "gpucost-x"),
        ("describe_security_groups", {"GroupId": "sg-1", "GroupName": "g"}, Kind.SECURITY_GROUP, "sg-1"),
        (
            "describe_launch_templates",
            {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "our-template"},
            Kind.LAUNCH_TEMPLATE,
            "lt-1",
        ),
    ],
)
def test_what_is_not_billed_is_found_too(account, sweep, call, item, kind, id_):
    found = only(account, sweep, call, {**item, "Tags": TAGS})
    assert (found.kind, found.id, found.usd_per_day) == (kind, id_, 0)
    assert (found.run_id, found.output) == (RUN, OUTPUT)


def schedule(**changes):
    return {
        "Name": f"gpucost-{RUN}-1",
        "GroupName": "gpucost",
        "Description": f"gpucost: the stop of lease {RUN}-1",
        "ScheduleExpression": "at(2026-12-01T06:30:00)",
        "ScheduleExpressionTimezone": "UTC",
        "State": "ENABLED",
        "CreationDate": MADE,
        **changes,
    }


def test_a_schedule_says_in_its_words_whose_it_is_and_when_it_fires(account, sweep):
    """Schedules cannot be tagged."""
    expect_region(account, schedules=[schedule()])
    (found,) = sweep.find(REGION).found
    assert (found.kind, found.run_id, found.lease_id) == (Kind.SCHEDULE, RUN, f"{RUN}-1")
    assert (found.deadline, found.made_at, found.state) == (datetime(2026, 12, 1, 6, 30, tzinfo=UTC), MADE, "enabled")


def test_the_schedule_that_the_launcher_makes_is_read_back(account, sweep):
    """As `AwsTimer` writes it, not as this test thinks it does."""
    from launcher.providers.aws.timer import AwsTimer
    from launcher.providers.interface import InstanceRef

    account.expect("sts", "get_caller_identity", {"Arn": "arn:aws:iam::123456789012:user/u", "Account": "123456789012"})
    account.expect("scheduler", "get_schedule_group", {"Name": "gpucost"})
    account.expect("scheduler", "create_schedule", {"ScheduleArn": "arn:aws:scheduler:us-east-1:1:schedule/gpucost/x"})
    made = []
    events = account.client("scheduler", REGION).meta.events
    events.register("provide-client-params.scheduler.CreateSchedule", lambda params, **_: made.append(dict(params)))
    AwsTimer(account).arm(InstanceRef(REGION, "i-1"), f"{RUN}-3", MADE + timedelta(hours=2))
    kept = {key: value for key, value in made[0].items() if key != "ClientToken"}
    expect_region(account, schedules=[kept])
    (found,) = sweep.find(REGION).found
    assert (found.run_id, found.lease_id, found.deadline) == (RUN, f"{RUN}-3", MADE + timedelta(hours=2))


@pytest.mark.parametrize(
    ("changes", "run", "deadline"),
    [
        ({"Description": "somebody's"}, None, datetime(2026, 12, 1, 6, 30, tzinfo=UTC)),
        ({"ScheduleExpression": "rate(1 hour)"}, RUN, None),
        ({"ScheduleExpressionTimezone": "Europe/Berlin"}, RUN, None),
    ],
    ids=["foreign", "repeated", "other-zone"],
)
def test_a_schedule_that_is_not_like_ours_has_no_run_or_no_deadline(account, sweep, changes, run, deadline):
    expect_region(account, schedules=[schedule(**changes)])
    (found,) = sweep.find(REGION).found
    assert (found.run_id, found.deadline) == (run, deadline)


def test_schedules_of_another_run_with_the_same_beginning_are_left_out(account, sweep):
    for call, key in ANSWERS.items():
        account.expect("ec2", call, {key: []})
    other = schedule(Description=f"gpucost: the stop of lease {RUN}er-1")
    account.expect("scheduler", "list_schedules", {"Schedules": [{"Name": other["Name"]}]})
    account.expect("scheduler", "get_schedule", other)
    assert sweep.find(REGION, RUN).found == ()


def test_an_account_without_our_group_has_no_schedules(account, sweep):
    for call, key in ANSWERS.items():
        account.expect("ec2", call, {key: []})
    account.refuse("scheduler", "list_schedules", "ResourceNotFoundException", status=404)
    assert sweep.find(REGION).gaps == ()


def test_what_is_refused_is_a_gap_and_the_rest_is_read(account, sweep):
    account.refuse("ec2", "describe_instances", "UnauthorizedOperation", status=403)
    for call in list(ANSWERS)[1:]:
        found = (
            [{"VolumeId": "vol-1", "VolumeType": "gp3", "Size": 1, "State": "available"}] if "volumes" in call else []
        )
        account.expect("ec2", call, {ANSWERS[call]: found})
    account.refuse("scheduler", "list_schedules", "AccessDeniedException", status=403)
    listing = sweep.find(REGION)
    assert [one.id for one in listing.found] == ["vol-1"]
    assert [(gap.where, gap.what) for gap in listing.gaps] == [(REGION, "instances"), (REGION, "schedules")]
    assert all("does not allow" in gap.reason for gap in listing.gaps)


def test_unfinished_uploads_are_found_with_their_run_and_the_size_of_their_parts(account, sweep):
    keys = [f"gpucost/{RUN}/tasks/t/checkpoints/1.pt", "gpucost/data/ab.tar", "gpucost/stray"]
    uploads = [{"Key": key, "UploadId": f"u{at}", "Initiated": MADE} for at, key in enumerate(keys)]
    account.expect("s3", "list_multipart_uploads", {"Uploads": uploads}, {"Bucket": "team", "Prefix": "gpucost/"})
    account.expect("s3", "list_parts", {"Parts": [{"PartNumber": 1, "Size": 2**30}, {"PartNumber": 2, "Size": 2**29}]})
    account.expect("s3", "list_parts", {"Parts": []})
    account.refuse("s3", "list_parts", "AccessDenied", status=403)
    listing = sweep.uploads(OUTPUT)
    assert listing.gaps == ()
    assert [(one.id, one.run_id, one.handle) for one in listing.found] == [
        (f"s3://team/{keys[0]}", RUN, "u0"),
        (f"s3://team/{keys[1]}", None, "u1"),
        (f"s3://team/{keys[2]}", None, "u2"),
    ]
    assert [one.usd_per_day for one in listing.found] == [PRICES.objects(3 * 2**29), Decimal(0), None]
    assert [one.note for one in listing.found] == ["1.5 GiB, parts: 2", "0 B, parts: 0", "size unknown"]
    assert (listing.found[0].output, listing.found[0].made_at, listing.found[0].region) == (OUTPUT, MADE, "")


@pytest.mark.parametrize(
    ("output", "run", "prefix"),
    [(OUTPUT, RUN, f"gpucost/{RUN}/"), ("s3://team", None, ""), ("s3://team", RUN, f"{RUN}/")],
    ids=["of-a-run", "whole-bucket", "of-a-run-in-a-whole-bucket"],
)
def test_uploads_are_looked_for_below_the_prefix_only(account, sweep, output, run, prefix):
    account.expect("s3", "list_multipart_uploads", {}, {"Bucket": "team", "Prefix": prefix})
    assert sweep.uploads(output, run).found == ()
    account.done()


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied"])
def test_a_bucket_that_cannot_be_asked_is_a_gap(account, sweep, code):
    account.refuse("s3", "list_multipart_uploads", code, status=404)
    (gap,) = sweep.uploads(OUTPUT).gaps
    assert (gap.where, gap.what) == (OUTPUT, "unfinished uploads")
    assert code in gap.reason


def test_a_place_that_is_not_on_s3_is_a_gap(sweep):
    (gap,) = sweep.uploads("gs://team/runs").gaps
    assert "no s3:// URL" in gap.reason


# -- what is removed ---------------------------------------------------------------------------------------------------


def thing(kind, id_, handle="", region=REGION):
    return Found(kind, id_, region, handle=handle)


def states(*names):
    return {"Reservations": [{"Instances": [{"InstanceId": "i-1", "State": {"Name": name}} for name in names]}]}


MACHINE = thing(Kind.INSTANCE, "i-1")


def test_a_machine_is_asked_to_end_until_it_is_said_to_be_terminated(account, sweep):
    account.expect("ec2", "describe_instances", states("running"), {"InstanceIds": ["i-1"]})
    account.expect("ec2", "terminate_instances", {}, {"InstanceIds": ["i-1"]})
    account.expect("ec2", "describe_instances", states("shutting-down"))
    account.expect("ec2", "terminate_instances", {})
    account.expect("ec2", "describe_instances", states("terminated"))
    assert [sweep.remove(MACHINE) for _ in range(3)] == [False, False, True]
    account.done()


def test_a_machine_that_is_not_known_any_more_is_gone(account, sweep):
    account.refuse("ec2", "describe_instances", "InvalidInstanceID.NotFound")
    assert sweep.remove(MACHINE)


def test_a_protected_machine_is_refused_with_the_reason(account, sweep):
    account.expect("ec2", "describe_instances", states("running"))
    account.refuse("ec2", "terminate_instances", "OperationNotPermitted", "disableApiTermination is set")
    with pytest.raises(RefusedError, match="disableApiTermination"):
        sweep.remove(MACHINE)


def test_a_disk_is_gone_once_it_is_not_known_any_more(account, sweep):
    volume = thing(Kind.VOLUME, "vol-1")
    account.expect("ec2", "delete_volume", {}, {"VolumeId": "vol-1"})
    account.refuse("ec2", "delete_volume", "InvalidVolume.NotFound")
    assert sweep.remove(volume) is False
    assert sweep.remove(volume) is True


@pytest.mark.parametrize(
    ("found", "call", "parameters", "absent"),
    [
        (
            thing(Kind.INTERFACE, "eni-1"),
            "delete_network_interface",
            {"NetworkInterfaceId": "eni-1"},
            "InvalidNetworkInterfaceID.NotFound",
        ),
        (thing(Kind.KEY_PAIR, "k"), "delete_key_pair", {"KeyName": "k"}, "InvalidKeyPair.NotFound"),
        (thing(Kind.SECURITY_GROUP, "sg-1"), "delete_security_group", {"GroupId": "sg-1"}, "InvalidGroup.NotFound"),
        (
            thing(Kind.LAUNCH_TEMPLATE, "lt-1"),
            "delete_launch_template",
            {"LaunchTemplateId": "lt-1"},
            "InvalidLaunchTemplateName.NotFoundException",
        ),
    ],
    ids=["interface", "key-pair", "group", "template"],
)
def test_what_is_deleted_at_once_is_gone_and_so_is_what_was_not_there(account, sweep, found, call, parameters, absent):
    account.expect("ec2", call, {}, parameters)
    account.refuse("ec2", call, absent)
    assert sweep.remove(found)
    assert sweep.remove(found)
    account.done()


@pytest.mark.parametrize(
    ("found", "call", "code", "text"),
    [
        (thing(Kind.SECURITY_GROUP, "sg-1"), "delete_security_group", "DependencyViolation", "has a dependent object"),
        (thing(Kind.VOLUME, "vol-1"), "delete_volume", "VolumeInUse", "is attached to i-1"),
        (thing(Kind.VOLUME, "vol-1"), "delete_volume", "IncorrectState", "is busy"),
        (
            thing(Kind.INTERFACE, "eni-1"),
            "delete_network_interface",
            "InvalidParameterValue",
            "Network interface 'eni-1' is currently in use.",
        ),
    ],
    ids=["group", "disk", "busy-disk", "interface"],
)
def test_what_is_still_held_is_asked_for_again_later(account, sweep, found, call, code, text):
    account.refuse("ec2", call, code, text)
    with pytest.raises(InUseError, match=code):
        sweep.remove(found)


@pytest.mark.parametrize(
    ("code", "error"), [("UnauthorizedOperation", RefusedError), ("RequestLimitExceeded", UnreachableError)]
)
def test_a_refusal_is_told_apart_from_a_failure_that_passes(account, sweep, code, error):
    account.refuse("ec2", "delete_security_group", code)
    with pytest.raises(error, match=code):
        sweep.remove(thing(Kind.SECURITY_GROUP, "sg-1"))


def test_an_open_spot_request_is_cancelled(account, sweep):
    request = thing(Kind.SPOT_REQUEST, "sir-1")
    said = {"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1", "State": "cancelled"}]}
    account.expect("ec2", "cancel_spot_instance_requests", said, {"SpotInstanceRequestIds": ["sir-1"]})
    account.refuse("ec2", "cancel_spot_instance_requests", "InvalidSpotInstanceRequestID.NotFound")
    assert sweep.remove(request)
    assert sweep.remove(request)


def test_a_spot_request_that_stays_open_is_not_gone(account, sweep):
    said = {"CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": "sir-1", "State": "open"}]}
    account.expect("ec2", "cancel_spot_instance_requests", said)
    assert not sweep.remove(thing(Kind.SPOT_REQUEST, "sir-1"))


def test_a_schedule_is_deleted_in_our_group(account, sweep):
    account.expect("scheduler", "delete_schedule", {}, {"Name": "gpucost-x", "GroupName": "gpucost"})
    account.refuse("scheduler", "delete_schedule", "ResourceNotFoundException")
    assert sweep.remove(thing(Kind.SCHEDULE, "gpucost-x"))
    assert sweep.remove(thing(Kind.SCHEDULE, "gpucost-x"))


def test_an_upload_is_aborted_and_its_object_is_not_touched(account, sweep):
    upload = thing(Kind.UPLOAD, "s3://team/gpucost/x/1.pt", "u1", region="")
    account.expect("s3", "abort_multipart_upload", {}, {"Bucket": "team", "Key": "gpucost/x/1.pt", "UploadId": "u1"})
    account.refuse("s3", "abort_multipart_upload", "NoSuchUpload", status=404)
    assert sweep.remove(upload)
    assert sweep.remove(upload)
    account.done()


def test_a_bucket_cannot_even_be_asked_to_go(account, sweep):
    """C39."""
    with pytest.raises(RefusedError, match="never removed"):
        sweep.remove(thing(Kind.BUCKET, OUTPUT, region=""))
    assert account.asked == []
