"""What every `ObjectStore` does: the fake of the functional tests, and the S3 adapter on the embedded cloud's S3."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from memory_object_store import FakeStore

from launcher.storage.interface import ObjectStore, StorageError, StoredObject


def s3_store(embedded, url, **changes):
    """The real adapter at a URL."""
    from launcher.providers.aws.account import AwsAccount
    from launcher.storage.s3 import S3Store

    info = embedded.info
    keys = {"s3_endpoint_url": info.s3_endpoint, "access_key": info.access_key, "secret_key": info.secret_key}
    return S3Store(AwsAccount(**{**keys, **changes}), url, info.region)


@pytest.fixture(params=["fake", "s3"])
def store(request: pytest.FixtureRequest):
    if request.param == "fake":
        yield FakeStore(f"s3://bucket/{uuid.uuid4().hex}")
        return
    embedded = request.getfixturevalue("embedded_cloud")
    made = s3_store(embedded, f"s3://{embedded.info.bucket}/{uuid.uuid4().hex}/")
    yield made
    made._client.close()


@pytest.fixture
def put(store: ObjectStore, tmp_path: Path):
    """Stores bytes under a key."""

    def put(key, content):
        source = tmp_path / "source"
        source.write_bytes(content)
        store.upload(source, key)

    return put


def test_what_was_uploaded_is_what_is_got_and_downloaded(store, put, tmp_path):
    content = bytes(range(256)) * 4000
    put("a/b.bin", content)
    assert store.get("a/b.bin") == content
    store.download("a/b.bin", tmp_path / "deep" / "er" / "got")
    assert (tmp_path / "deep/er/got").read_bytes() == content


def test_a_part_of_an_object_is_got_alone(store, put):
    content = bytes(range(256)) * 40
    put("a", content)
    for span in (range(1), range(300, 700), range(len(content) - 5, len(content))):
        assert store.get("a", span) == content[span.start : span.stop]
    assert store.get("nothing", range(3)) is None


def test_an_upload_replaces_the_object(store, put):
    put("a", b"old and longer")
    put("a", b"new")
    assert store.get("a") == b"new"
    assert store.list("") == [StoredObject("a", 3)]


def test_an_object_is_created_once_and_then_left_alone(store, put):
    assert store.create("lease/000001.json", b"mine")
    assert not store.create("lease/000001.json", b"yours")
    assert store.get("lease/000001.json") == b"mine"
    put("there", b"uploaded")
    assert not store.create("there", b"created")
    assert store.get("there") == b"uploaded"


def test_of_many_creators_at_one_time_one_wins(store):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: store.create("fence", f"{number}".encode()), range(8)))
    assert sum(made) == 1
    assert store.get("fence") == f"{made.index(True)}".encode()


def test_an_empty_file_is_an_object_too(store, put):
    put("empty", b"")
    assert store.get("empty") == b""
    assert store.list("empty") == [StoredObject("empty", 0)]


def test_what_is_not_there_is_none_and_cannot_be_downloaded(store, tmp_path):
    assert store.get("nothing") is None
    assert store.list("nothing") == []
    with pytest.raises(StorageError):
        store.download("nothing", tmp_path / "got")
    assert list(tmp_path.iterdir()) == []


def test_a_listing_has_the_keys_below_a_prefix_in_order_and_relative(store, put):
    for key in ("b/2", "b/1", "a", "bc", "b/sub/3"):
        put(key, key.encode())
    assert [found.key for found in store.list("")] == ["a", "b/1", "b/2", "b/sub/3", "bc"]
    assert [found.key for found in store.list("b/")] == ["b/1", "b/2", "b/sub/3"]
    assert [found.key for found in store.list("b")] == ["b/1", "b/2", "b/sub/3", "bc"]


def test_a_key_may_hold_what_file_names_hold(store, put):
    for key in ("with space.txt", "plus+and&.txt", "ünï/cödé.txt", "a%20b", "hash#1"):
        put(key, key.encode())
        assert store.get(key) == key.encode()
    assert len(store.list("")) == 5


def test_a_download_over_an_older_file_replaces_it_whole(store, put, tmp_path):
    target = tmp_path / "got"
    target.write_bytes(b"older and much longer")
    put("a", b"new")
    store.download("a", target)
    assert target.read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {"got", "source"}


def test_the_url_has_no_slash_at_its_end(store):
    assert store.url.startswith("s3://")
    assert not store.url.endswith("/")


def test_more_objects_than_one_page_are_all_listed(embedded_cloud, tmp_path):
    store = s3_store(embedded_cloud, f"s3://{embedded_cloud.info.bucket}/{uuid.uuid4().hex}")
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for number in range(1005):
        store._client.put_object(Bucket=embedded_cloud.info.bucket, Key=store._key(f"{number:04d}"), Body=b"x")
    assert [found.key for found in store.list("")] == [f"{number:04d}" for number in range(1005)]
    store._client.close()


def test_a_neighbour_whose_name_begins_alike_is_not_seen(embedded_cloud, tmp_path):
    bucket, name = embedded_cloud.info.bucket, uuid.uuid4().hex
    source = tmp_path / "source"
    source.write_bytes(b"x")
    mine, other = s3_store(embedded_cloud, f"s3://{bucket}/{name}"), s3_store(embedded_cloud, f"s3://{bucket}/{name}2")
    other.upload(source, "a")
    assert mine.list("") == []
    for store in (mine, other):
        store._client.close()


@pytest.mark.parametrize("changes", [{"secret_key": "wrong"}, {"access_key": "AKIANOBODY"}], ids=["secret", "key"])
def test_keys_that_do_not_open_the_bucket_are_said_so_at_every_call(embedded_cloud, tmp_path, changes):
    store = s3_store(embedded_cloud, f"s3://{embedded_cloud.info.bucket}/x", **changes)
    source = tmp_path / "source"
    source.write_bytes(b"x")
    calls = (
        lambda: store.list(""),
        lambda: store.get("a"),
        lambda: store.upload(source, "a"),
        lambda: store.download("a", tmp_path / "got"),
        lambda: store.create("a", b"x"),
    )
    for call in calls:
        with pytest.raises(StorageError, match=f"s3://{embedded_cloud.info.bucket}/x") as error:
            call()
        assert error.value.hint
    with pytest.raises(StorageError, match="is denied"):
        store.list("")
    assert not (tmp_path / "got").exists()
    store._client.close()


def test_a_bucket_that_does_not_exist_is_named(embedded_cloud, tmp_path):
    store = s3_store(embedded_cloud, "s3://no-such-bucket-here/x")
    with pytest.raises(StorageError, match="the bucket 'no-such-bucket-here' does not exist") as error:
        store.list("")
    assert "create it" in error.value.hint
    with pytest.raises(StorageError):
        store.download("a", tmp_path / "got")
    assert list(tmp_path.iterdir()) == []
    store._client.close()


def test_a_server_that_does_not_answer_is_named(embedded_cloud):
    store = s3_store(embedded_cloud, "s3://bucket/x", s3_endpoint_url="http://127.0.0.1:9")
    for call in (lambda: store.list(""), lambda: store.get("a")):
        with pytest.raises(StorageError, match="s3://bucket/x cannot be reached") as error:
            call()
        assert "network" in error.value.hint
    store._client.close()


def test_a_url_without_a_bucket_is_refused():
    from launcher.providers.aws.account import AwsAccount
    from launcher.storage.s3 import S3Store

    with pytest.raises(StorageError, match="names no bucket"):
        S3Store(AwsAccount(), "s3://", "us-east-1")


def test_without_credentials_the_next_action_is_named():
    from launcher.providers.aws.account import AwsAccount
    from launcher.storage.s3 import S3Store

    store = S3Store(AwsAccount(s3_endpoint_url="http://127.0.0.1:9"), "s3://bucket/x", "us-east-1")
    with pytest.raises(StorageError, match="no AWS credentials") as error:
        store.list("")
    assert "aws configure" in error.value.hint
    store._client.close()
