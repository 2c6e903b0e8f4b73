"""Addresses: one spelling, clear errors, no secrets."""

import pickle
from pathlib import Path

import pytest

from prolip.storage import (
    SCHEMES,
    Address,
    is_remote,
    open_storage,
    parse_address,
    redact_passwords,
    redact_secrets,
    require_local_folder,
    resolve_local_path,
)
from prolip.storage.addresses import SYNONYMS


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("/data/a b.tar", "/data/a b.tar"),
        ("data/{0..1}.tar", "data/{0..1}.tar"),
        ("file:///data/a%20b.tar", "/data/a b.tar"),
        ("FILE://localhost/data/x", "/data/x"),
        ("s3://bucket/a b?c#d%20.tar", "s3://bucket/a b?c#d%20.tar"),
        ("S3://Bucket/x/", "s3://Bucket/x"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("az://box/x", "az://box/x"),
        ("abfs://box/x", "az://box/x"),
        ("abfss://box@me.dfs.core.windows.net/x/y/", "az://box@me.dfs.core.windows.net/x/y"),
        ("az://box@me.blob.core.windows.net/x/y", "az://box@me.dfs.core.windows.net/x/y"),
        ("abfs://box@me.dfs.core.windows.net", "az://box@me.dfs.core.windows.net"),
        ("memory://a/b/", "memory://a/b"),
        ("HTTPS://Host/A?b=C#d", "https://Host/A?b=C#d"),
        ("hf://datasets/me/data@main/1.tar", "hf://datasets/me/data@main/1.tar"),
        ("PIPE:cat x | sort", "pipe:cat x | sort"),
    ],
)
def test_addresses_have_one_spelling(written, url):
    address = parse_address(written, "stream")
    assert address.url == url
    assert parse_address(url, "stream") == address
    assert pickle.loads(pickle.dumps(address)) == address


def test_address_of_azure_names_its_account():
    assert parse_address("abfs://box@me.dfs.core.windows.net/x", "database") == Address("az", "box/x", "me")
    assert parse_address("abfs://box/x", "database") == Address("az", "box/x")


def test_paths_are_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_address("~/x", "folder").path == str(tmp_path / "x")
    assert parse_address(Path("~/x"), "folder").path == str(tmp_path / "x")


@pytest.mark.parametrize(
    ("written", "use", "message"),
    [
        ("s4://a:hidden@b/x", "stream", r"scheme s4 is unknown. Did you mean s3\?"),
        ("htps://hidden@b/x", "stream", r"Did you mean https\?"),
        ("ftp://me:hidden@host/1.tar", "stream", r"ftp is unknown. Use a path on disk, or one of file, s3"),
        ("https://me:hidden@host/x", "folder", "https can't be used for folders of files"),
        ("memory://x", "database", "or one of file, s3, gs, az"),
        ("pipe:TOKEN=hidden cat", "database", "pipe can't be used for databases"),
        ("pipe:", "stream", "must be followed by a command"),
        ("PIPE: ", "stream", "must be followed by a command"),
        ("s3://key:hidden@bucket/x", "folder", "AWS_SECRET_ACCESS_KEY"),
        ("gs://hidden@bucket/x", "stream", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://box:hidden@me.dfs.core.windows.net.evil.org/x", "folder", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("s3:///x", "folder", "the bucket is missing"),
        ("https://", "stream", "nothing follows https://"),
        ("file://host/x", "stream", "three slashes"),
        ("file://x", "folder", "three slashes"),
    ],
)
def test_invalid_addresses_are_refused_without_their_secrets(written, use, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_address(written, use)
    assert "hidden" not in str(caught.value)


def test_every_scheme_is_remote_but_file():
    for scheme in [*SCHEMES, *SYNONYMS, "unknown"]:
        assert is_remote(f"{scheme}://x") is (scheme != "file")
        assert is_remote(f"{scheme.upper()}://x") is (scheme != "file")
    assert is_remote("pipe:cat x")
    for path in ("x", "/a/b:c", "scenes:hard", "a/b://c", "C:/x"):
        assert not is_remote(path)
        assert resolve_local_path(path) == path
    assert resolve_local_path("s3://a/%20") == "s3://a/%20"
    assert resolve_local_path("file:///a/%20b") == "/a/ b"


def test_address_shows_no_secrets():
    address = parse_address("https://me:hidden@host/1.tar?token=hidden", "stream")
    assert "hidden" not in f"{address} {address!r} {[address]}"
    assert address.url == "https://me:hidden@host/1.tar?token=hidden"
    shown = str(parse_address("abfs://box@me.dfs.core.windows.net/x", "folder"))
    assert (
        shown == "az://box@me.dfs.core.windows.net/x"
    )  # a container is no secret, and the address stays usable


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:hidden@host/1.tar", "https://***@host/1.tar"),
        ("https://hidden@host/1.tar", "https://***@host/1.tar"),
        ("https://h/1.tar?X-Amz-Signature=hidden&n=2", "https://h/1.tar?X-Amz-Signature=***&n=2"),
        ("https://h/1.tar?n=2&sig=hidden%3D", "https://h/1.tar?n=2&sig=***"),
        ("https://h/1.tar?access_token=hidden#x", "https://h/1.tar?access_token=***"),
        (f"https://h/1.tar?q={'hidden' * 8}", "https://h/1.tar?q=***"),
        ("az://box:hidden@me.dfs.core.windows.net/x", "az://***@me.dfs.core.windows.net/x"),
        ("az://box@me.dfs.core.windows.net/x", "az://box@me.dfs.core.windows.net/x"),
        ("pipe:curl -s -u me:hidden https://h/1.tar", "pipe:curl -s -u *** https://h/1.tar"),
        ("pipe:curl --user=me:hidden https://h", "pipe:curl --user=*** https://h"),
        ("pipe:curl -H 'Authorization: Bearer hidden' h", "pipe:curl -H 'Authorization: Bearer ***' h"),
        (
            "pipe:AWS_SECRET_ACCESS_KEY=hidden aws s3 cp s3://b/1.tar -",
            "pipe:AWS_SECRET_ACCESS_KEY=*** aws s3 cp s3://b/1.tar -",
        ),
        (
            "pipe:curl 'https://a:hidden@h/1.tar?token=hidden' | cat",
            "pipe:curl 'https://***@h/1.tar?token=***' | cat",
        ),
        ("hf://datasets/me/data@main/1.tar", "hf://datasets/me/data@main/1.tar"),
        ("https://h/get?shard=17", "https://h/get?shard=17"),
        ("/data/a b.tar", "/data/a b.tar"),
    ],
)
def test_redact_secrets(url, shown):
    assert redact_secrets(url) == shown
    assert redact_secrets(shown) == shown


@pytest.mark.parametrize("text", ["", "s3://user:PW@bucket/x", str(Path("s3://user:PW@bucket/x"))])
def test_require_local_folder_refuses_addresses_and_nothing(text):
    with pytest.raises(ValueError, match=r"^--out (is empty|must be a folder on this machine)") as info:
        require_local_folder(text, "--out")
    assert "PW" not in str(info.value)


@pytest.mark.parametrize("text", [".", "runs/a", "/data/x", "C:/x", "a:b"])
def test_require_local_folder_accepts_paths(text):
    require_local_folder(text, "--out")


def test_redact_passwords_leaves_other_words():
    message = "--tokenizer=words.json: there is no file https://me:PW@host/x?token=abc"
    assert (
        redact_passwords(message) == "--tokenizer=words.json: there is no file https://***@host/x?token=abc"
    )


def test_open_storage_refuses_an_empty_path():
    with pytest.raises(ValueError, match="empty"):
        open_storage("")
