"""How EC2's answers are read, and how machines end: botocore's own clients, checked call by call, no network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from aws_cases import (
    LAUNCH,
    OF_RUN,
    OPEN_REQUESTS,
    REF,
    REQUEST,
    compute,
    described,
    expect_run,
    expect_surroundings,
    instance,
)
from botocore.exceptions import EndpointConnectionError
from launcher_clock import START, FakeClock
from run_cases import RUN_ID
from stubbed_aws import REGION, StubbedAccount

from launcher.providers.aws.description import host_key_in
from launcher.providers.interface import EndCause, InstanceState, RefusedError, UnreachableError

TAKEN = {
    "Code": "Server.SpotInstanceTermination",
    "Message": "Server.SpotInstanceTermination: Spot instance termination",
}


@pytest.fixture
def account():
    made = StubbedAccount()
    yield made
    made.close()


CONSOLE = """[   12.3] cloud-init: stuff
-----BEGIN SSH HOST KEY FINGERPRINTS-----
ci-info: ssh-ed25519 SHA256:zzz
-----END SSH HOST KEY FINGERPRINTS-----
-----BEGIN SSH HOST KEY KEYS-----
ecdsa-sha2-nistp256 AAAAE2VjZHNh root@ip-10-0-0-1
ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1
ssh-rsa AAAAB3Nza root@ip-10-0-0-1
-----END SSH HOST KEY KEYS-----
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (CONSOLE, "ssh-ed25519 AAAAC3Nza"),
        (CONSOLE.replace("\n", "\r\n"), "ssh-ed25519 AAAAC3Nza"),
        (
            CONSOLE.replace("ssh-ed25519 AAAAC3Nza", "[   14.1] cloud-init[812]: ssh-ed25519 AAAAC3Nza"),
            "ssh-ed25519 AAAAC3Nza",
        ),
        (CONSOLE + CONSOLE.replace("AAAAC3Nza", "AAAANEWER"), "ssh-ed25519 AAAANEWER"),
        ("", None),
        ("booting\n", None),
        (CONSOLE.partition("-----END SSH HOST KEY KEYS")[0], None),
        (CONSOLE.replace("ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1\n", ""), None),
        (CONSOLE.replace("ssh-ed25519 AAAAC3Nza root@ip-10-0-0-1", "ssh-ed25519"), None),
    ],
    ids=["plain", "crlf", "prefixed", "two-boots", "empty", "early", "cut", "no-ed25519", "torn-line"],
)
def test_the_host_key_is_read_from_between_the_markers_and_nowhere_else(text, key):
    assert host_key_in(text) == key


def test_a_running_machine_has_an_address_and_the_key_from_its_console(account):
    described(account, instance("running", PublicIpAddress="198.51.100.1"))
    account.expect(
        "ec2",
        "get_console_output",
        {"Output": CONSOLE},
        {"InstanceId": REF.instance_id, "Latest": True},
    )
    described(account, instance("running", PublicIpAddress="198.51.100.1"))
    provider = compute(account)
    status = provider.describe(REF)
    assert (status.state, status.address, status.lease_id) == (InstanceState.RUNNING, "198.51.100.1", f"{RUN_ID}-1")
    assert status.host_key == "ssh-ed25519 AAAAC3Nza"
    assert status.launched_at == datetime(2026, 12, 1, 9, 1, tzinfo=UTC)
    assert provider.describe(REF).host_key == "ssh-ed25519 AAAAC3Nza", "the console is read once"
    account.done()


def test_a_machine_whose_console_shows_no_key_yet_shows_its_last_lines(account):
    described(account, instance("running"))
    account.expect("ec2", "get_console_output", {"Output": "\n".join(f"line {n}" for n in range(30))}, None)
    status = compute(account).describe(REF)
    assert (status.host_key, status.address) == (None, None)
    assert status.console_tail.splitlines() == [f"line {n}" for n in range(20, 30)]


@pytest.mark.parametrize("code", ["UnsupportedOperation", "InvalidInstanceID.NotFound"])
def test_a_console_that_cannot_be_had_is_no_error(account, code):
    described(account, instance("running"))
    account.refuse("ec2", "get_console_output", code)
    assert compute(account).describe(REF).host_key is None


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("pending", InstanceState.PENDING),
        ("shutting-down", InstanceState.STOPPING),
        ("stopping", InstanceState.STOPPING),
        ("stopped", InstanceState.STOPPED),
        ("terminated", InstanceState.GONE),
    ],
)
def test_every_state_of_ec2_has_its_word(account, name, state):
    described(account, instance(name))
    assert compute(account).describe(REF).state is state


@pytest.mark.parametrize(
    ("code", "transition", "by", "at"),
    [
        (
            "Client.UserInitiatedShutdown",
            "User initiated (2026-12-01 09:31:07 GMT)",
            EndCause.USER,
            datetime(2026, 12, 1, 9, 31, 7, tzinfo=UTC),
        ),
        ("Client.InstanceInitiatedShutdown", "", EndCause.INSIDE, None),
        ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination", EndCause.PROVIDER, None),
        ("Server.InternalError", "Server.InternalError", EndCause.PROVIDER, None),
        ("Client.VolumeLimitExceeded", "", EndCause.UNKNOWN, None),
    ],
)
def test_who_ended_a_machine_and_when_is_read_from_its_reason(account, code, transition, by, at):
    reason = {"Code": code, "Message": f"{code}: words"}
    described(account, instance("terminated", StateReason=reason, StateTransitionReason=transition))
    status = compute(account).describe(REF)
    assert (status.ended_by, status.ended_at, status.reason) == (by, at, f"{code}: words")


def test_a_machine_that_ec2_does_not_know_is_gone(account):
    account.refuse("ec2", "describe_instances", "InvalidInstanceID.NotFound")
    account.expect("ec2", "describe_instances", {"Reservations": []}, None)
    provider = compute(account)
    for _ in range(2):
        status = provider.describe(REF)
        assert (status.state, status.launched_at, status.lease_id) == (InstanceState.GONE, None, None)


def test_machines_are_found_by_the_tag_of_their_run(account):
    account.expect(
        "ec2",
        "describe_instances",
        {"Reservations": [{"Instances": [instance("pending")]}, {"Instances": [instance("terminated")]}]},
        {"Filters": [OF_RUN]},
    )
    found = compute(account).find(RUN_ID, REGION)
    assert [status.state for status in found] == [InstanceState.PENDING, InstanceState.GONE]


def test_ending_what_is_gone_is_a_success(account):
    account.refuse("ec2", "terminate_instances", "InvalidInstanceID.NotFound")
    compute(account).terminate(REF)
    account.done()


def taken_back(account, *updates):
    """A spot machine that EC2 took back, without a time; its spot request changed at these times."""
    spot = instance("terminated", InstanceLifecycle="spot", StateReason=TAKEN, StateTransitionReason=TAKEN["Code"])
    described(account, spot)
    account.expect(
        "ec2",
        "describe_spot_instance_requests",
        {"SpotInstanceRequests": [{"Status": {"Code": "x", "UpdateTime": at}} for at in updates]},
        {"Filters": [{"Name": "instance-id", "Values": [REF.instance_id]}]},
    )
    return spot


def at(minutes):
    """A clock so many minutes after the start."""
    clock = FakeClock()
    clock.sleep(60 * minutes)
    return clock


def test_the_end_of_a_spot_machine_that_was_taken_back_is_read_from_its_request(account):
    """The request has its last status from the notice on: the machine may have run for two minutes more."""
    taken_back(account, START + timedelta(minutes=10))
    status = compute(account, at(minutes=40)).describe(REF)
    assert (status.ended_by, status.ended_at) == (EndCause.PROVIDER, START + timedelta(minutes=12))
    account.done()


def test_a_machine_cannot_have_ended_later_than_now(account):
    taken_back(account, START + timedelta(minutes=10))
    assert compute(account, at(minutes=11)).describe(REF).ended_at == START + timedelta(minutes=11)


def test_the_request_of_a_spot_machine_is_asked_for_once(account):
    spot = taken_back(account, START)
    described(account, spot)
    account.expect("ec2", "describe_instances", {"Reservations": [{"Instances": [spot]}]}, {"Filters": [OF_RUN]})
    provider = compute(account, at(minutes=9))
    seen = [provider.describe(REF), provider.describe(REF), *provider.find(RUN_ID, REGION)]
    assert {status.ended_at for status in seen} == {START + timedelta(minutes=2)}
    account.done()


def test_a_request_that_may_not_be_read_or_is_not_there_leaves_the_end_unknown(account):
    taken_back(account)
    assert compute(account).describe(REF).ended_at is None
    spot = instance("terminated", InstanceLifecycle="spot", StateReason=TAKEN)
    described(account, spot)
    account.refuse("ec2", "describe_spot_instance_requests", "UnauthorizedOperation")
    described(account, spot)
    provider = compute(account)
    assert [provider.describe(REF).ended_at for _ in range(2)] == [None, None]
    account.done()


def test_a_request_that_cannot_be_read_now_is_asked_for_again(account):
    described(account, instance("terminated", InstanceLifecycle="spot", StateReason=TAKEN))
    account.refuse("ec2", "describe_spot_instance_requests", "RequestLimitExceeded", status=503)
    provider = compute(account, at(minutes=9))
    assert provider.describe(REF).ended_at is None
    taken_back(account, START)
    assert provider.describe(REF).ended_at == START + timedelta(minutes=2)


@pytest.mark.parametrize(
    "machine",
    [
        instance("terminated", StateReason=TAKEN),
        instance("shutting-down", InstanceLifecycle="spot", StateReason=TAKEN),
        instance(
            "terminated",
            InstanceLifecycle="spot",
            StateReason=TAKEN,
            StateTransitionReason="Server.SpotInstanceTermination (2026-12-01 09:31:07 GMT)",
        ),
        instance("terminated", InstanceLifecycle="spot", StateReason={"Code": "Client.InstanceInitiatedShutdown"}),
    ],
    ids=["on-demand", "still-ending", "time-known", "own-power-off"],
)
def test_no_request_is_asked_for_where_it_has_nothing_to_say(account, machine):
    asked = []
    account.client("ec2", REGION).meta.events.register(
        "provide-client-params.ec2.DescribeSpotInstanceRequests", lambda **_: asked.append(REF)
    )
    described(account, machine)
    compute(account).describe(REF)
    account.done()
    assert asked == []


def none_open(account):
    account.expect("ec2", "describe_spot_instance_requests", {"SpotInstanceRequests": []}, OPEN_REQUESTS)


def beside(account, *keys):
    """Key pairs of the run, and its group."""
    pairs = [{"KeyName": key} for key in keys]
    account.expect("ec2", "describe_key_pairs", {"KeyPairs": pairs}, {"Filters": [OF_RUN]})
    for key in keys:
        account.expect("ec2", "delete_key_pair", {}, {"KeyName": key})
    groups = {"SecurityGroups": [{"GroupId": "sg-1"}]}
    account.expect("ec2", "describe_security_groups", groups, {"Filters": [OF_RUN]})


def test_what_was_made_beside_the_machine_is_deleted_whichever_launcher_made_it(account):
    none_open(account)
    beside(account, "gpucost-run-aaaaaaaa", "gpucost-run-bbbbbbbb")
    account.expect("ec2", "delete_security_group", {}, {"GroupId": "sg-1"})
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


def test_nothing_is_deleted_that_is_not_there(account):
    """AWS may answer that as a missing permission, since what is not there carries no tag."""
    none_open(account)
    account.expect("ec2", "describe_key_pairs", {"KeyPairs": []}, {"Filters": [OF_RUN]})
    account.expect("ec2", "describe_security_groups", {"SecurityGroups": []}, {"Filters": [OF_RUN]})
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


def test_a_group_that_a_dying_machine_still_holds_is_left_for_later(account):
    none_open(account)
    beside(account)
    account.refuse("ec2", "delete_security_group", "DependencyViolation")
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


def test_a_spot_request_that_still_waits_is_cancelled_before_anything_else(account):
    waiting = [{"SpotInstanceRequestId": "sir-1"}, {"SpotInstanceRequestId": "sir-2"}]
    account.expect("ec2", "describe_spot_instance_requests", {"SpotInstanceRequests": waiting}, OPEN_REQUESTS)
    account.expect("ec2", "cancel_spot_instance_requests", {}, {"SpotInstanceRequestIds": ["sir-1", "sir-2"]})
    beside(account)
    account.expect("ec2", "delete_security_group", {}, {"GroupId": "sg-1"})
    compute(account).clean_up(RUN_ID, REGION)
    account.done()


def test_spot_requests_that_may_not_be_listed_are_said_and_do_not_keep_the_rest(account):
    account.refuse("ec2", "describe_spot_instance_requests", "UnauthorizedOperation")
    beside(account, "gpucost-run-aaaaaaaa")
    account.expect("ec2", "delete_security_group", {}, {"GroupId": "sg-1"})
    with pytest.raises(RefusedError, match="UnauthorizedOperation"):
        compute(account).clean_up(RUN_ID, REGION)
    account.done()


CALLS = {
    "launch": lambda provider: provider.launch(REQUEST),
    "describe": lambda provider: provider.describe(REF),
    "find": lambda provider: provider.find(RUN_ID, REGION),
    "terminate": lambda provider: provider.terminate(REF),
    "clean_up": lambda provider: provider.clean_up(RUN_ID, REGION),
}


class CutAccount(StubbedAccount):
    """The network is cut after so many calls of EC2."""

    def __init__(self, calls):
        super().__init__()
        self.left = calls

    def client(self, service, region, patience=None):
        client = super().client(service, region, patience)
        client.meta.events.register("provide-client-params.ec2", self._cut, unique_id="cut")
        return client

    def _cut(self, **_):
        self.left -= 1
        if self.left < 0:
            raise EndpointConnectionError(endpoint_url="https://ec2")


@pytest.mark.parametrize("calls", range(7))
@pytest.mark.parametrize("name", CALLS)
def test_a_network_that_is_cut_at_any_call_is_the_ports_error_and_nothing_of_botocore(name, calls):
    account = CutAccount(calls)
    if name == "launch":
        expect_surroundings(account)
        expect_run(account, LAUNCH)
    elif name in {"describe", "find"}:
        answer = {"Reservations": [{"Instances": [instance("running")]}]}
        account.expect("ec2", "describe_instances", answer, None)
        account.expect("ec2", "get_console_output", {"Output": ""}, None)
    elif name == "terminate":
        account.expect("ec2", "terminate_instances", {}, None)
    else:
        none_open(account)
        beside(account, "gpucost-run-aaaaaaaa")
        account.expect("ec2", "delete_security_group", {}, None)
    try:
        CALLS[name](compute(account))
    except UnreachableError as error:
        assert "https://ec2" in str(error)  # noqa: PT017 - with enough calls nothing is raised
    finally:
        account.close()
