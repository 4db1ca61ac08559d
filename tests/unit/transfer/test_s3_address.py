"""Where the storage is and with which keys it is reached, before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote.protocol import StorageSpec
from remote.transfer.s3 import Place, open_store, place
from remote.transfer.store import StoreRefused

KEYS = "[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = hush\n"


def spec(endpoint_url: str | None = None, credentials: str = "file") -> StorageSpec:
    return StorageSpec("s3://bucket/out", "us-east-1", endpoint_url, credentials)


def write(folder: Path, text: str = KEYS, mode: int = 0o600) -> Path:
    path = folder / "credentials"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/a/b", Place("bucket", "a/b")),
        ("s3://bucket/a/", Place("bucket", "a")),
        ("s3://bucket", Place("bucket", "")),
        ("s3://bucket/try #2/why?/a", Place("bucket", "try #2/why?/a")),
    ],
)
def test_a_url_is_a_bucket_and_a_prefix(url: str, expected: Place) -> None:
    assert place(url) == expected


@pytest.mark.parametrize("url", ["gs://bucket/a", "bucket/a", "s3:///a", ""])
def test_another_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"expected s3://BUCKET/PREFIX"):
        place(url)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(StoreRefused, match=f"mode 0600, has {mode:04o}"):
        open_store(spec(), "s3://bucket/out", write(tmp_path, mode=mode))


@pytest.mark.parametrize("text", ["", "hush", "[other]\naws_secret_access_key = hush\n", KEYS.replace("_id", "")])
def test_a_credentials_file_without_keys_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreRefused, match=r"no \[default\] section") as caught:
        open_store(spec(), "s3://bucket/out", write(tmp_path, text))
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_credentials_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="No such file"):
        open_store(spec(), "s3://bucket/out", tmp_path / "credentials")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8333", "http://localhost:8333", "http://10.77.0.1:8333"])
def test_plain_http_is_for_this_machine_and_its_private_network(tmp_path: Path, url: str) -> None:
    assert open_store(spec(url), "s3://bucket/out", write(tmp_path)).url == "s3://bucket/out"


@pytest.mark.parametrize("url", ["http://s3.example.org", "http://93.184.216.34", "ftp://s3.example.org"])
def test_plain_http_to_a_public_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreRefused, match="must be reached by https"):
        open_store(spec(url), "s3://bucket/out", write(tmp_path))


def test_the_role_of_the_machine_needs_no_file(tmp_path: Path) -> None:
    assert open_store(spec(credentials="role"), "s3://bucket", tmp_path / "none").url == "s3://bucket"
