"""The hub: small files in exactly the layout of its cache, offline; and a pretended hub that takes what is pushed."""

import shutil
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import ClassVar

import huggingface_hub
import pytest
import torch
from huggingface_hub import errors

import prolip
from prolip.weights import hub
from prolip.weights.hub import make_model_card
from tests.golden import FIXTURES

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """cache("owner/name", folder): as if the files of this folder had been fetched once. No network from here on."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def put(repo_id, folder, names=None):
        root = tmp_path / "hub" / f"models--{repo_id.replace('/', '--')}"
        snapshot = root / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (root / "blobs").mkdir()
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text(COMMIT)
        for i, path in enumerate(sorted(folder.iterdir())):
            if names is None or path.name in names:
                shutil.copy(path, root / "blobs" / f"{i:040x}")
                (snapshot / path.name).symlink_to(root / "blobs" / f"{i:040x}")
        return snapshot

    return put


def test_the_release_by_its_hub_id(cache):
    cache(
        "SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B",
        FIXTURES / "models" / "b16_tiny",
        {"config.json", "model.safetensors"},
    )
    model = prolip.load("SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B", device="cpu")
    wanted = prolip.load(FIXTURES / "models" / "b16_tiny", device="cpu")
    assert model.config == wanted.config
    assert torch.equal(model.image.positions, wanted.image.positions)
    assert (
        prolip.load("SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B", revision="main", device="cpu").config
        == wanted.config
    )
    assert (
        prolip.load("SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B", revision=COMMIT, device="cpu").config
        == wanted.config
    )


def test_open_clip_by_its_hub_id(cache):
    cache("timm/some-clip", FIXTURES / "open_clip" / "clip")
    assert prolip.load("timm/some-clip", device="cpu").config.text.pooling == "end"


@pytest.mark.parametrize("load", [prolip.load, prolip.ProLIP.from_pretrained])
def test_our_own_by_its_hub_id(cache, nano, tmp_path, load):
    cache("me/nano", nano.save_pretrained(tmp_path / "nano"))
    for revision in (None, "main", COMMIT):
        model = load("me/nano", device="cpu", revision=revision)
        assert torch.equal(model.embed_texts("a thing").mean, nano.embed_texts("a thing").mean)


def test_a_tokenizer_named_by_the_config_is_fetched(cache, tmp_path):
    """The release has none in its folder; its config says whose it uses."""
    from tokenizers import processors

    from prolip.preprocessing.tokenizer_builders import train_word_level

    core = train_word_level(["a red circle"], context_length=16).copy_backend()
    core.post_processor = processors.TemplateProcessing(single="$A [MASK]", special_tokens=[("[MASK]", 1)])
    (tmp_path / "tokenizer").mkdir()
    core.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text('{"pad_token": "[MASK]"}')
    cache("timm/ViT-B-16-SigLIP", tmp_path / "tokenizer")
    model = prolip.load(FIXTURES / "models" / "b16_tiny", device="cpu")
    assert model.tokenize("").tolist() == [[1] * 16]
    other = prolip.load(FIXTURES / "models" / "long_tiny", tokenizer="timm/ViT-B-16-SigLIP", device="cpu")
    assert other.tokenize("").shape == (1, 256)


def test_fetch_requests_the_needed_files(monkeypatch, tmp_path):
    """Every file of the same revision, and no more than a model needs."""
    asked = []

    def download(repo_id, name, revision, local_files_only):
        asked.append((name, revision))
        if name.startswith("open_clip"):
            raise errors.EntryNotFoundError.__new__(errors.EntryNotFoundError)
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert hub.fetch("me/it", "v2") == tmp_path
    assert {revision for _, revision in asked} == {"v2"}
    assert [name for name, _ in asked] == [
        "open_clip_config.json", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "vocab.json", "merges.txt", "preprocessor_config.json", "processor_config.json",
        "words.txt",
    ]  # fmt: skip


def test_offline_and_not_in_the_cache(cache):
    with pytest.raises(
        OSError, match=r"me/nowhere is not in the cache.* HF_HUB_OFFLINE is set.*hf download me/nowhere"
    ):
        prolip.load("me/nowhere")
    with pytest.raises(OSError, match="hub repository me/nowhere at v2 is not in the cache"):
        prolip.load("me/nowhere", revision="v2")


@pytest.fixture
def silent_hub(monkeypatch):
    """A hub on this machine that accepts connections and never answers; the cache is empty, and not offline."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}"
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub, "PROBE_SECONDS", 0.2)
        yield


def test_without_an_answer_of_the_hub_nothing_is_retried(cache, silent_hub, monkeypatch):
    calls = []
    download = huggingface_hub.hf_hub_download
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda *a, **k: calls.append(k) or download(*a, **k)
    )
    with pytest.raises(OSError, match=r"me/nowhere is not in the cache.*(did not answer|can't be reached)"):
        hub.fetch("me/nowhere")
    assert [call["local_files_only"] for call in calls] == [True]


def test_without_an_answer_of_the_hub_the_cache_is_used(cache, silent_hub):
    cache("timm/some-clip", FIXTURES / "open_clip" / "clip")
    assert prolip.load("timm/some-clip", device="cpu").config.text.pooling == "end"


def test_find_network_problem_of_a_host_without_a_server(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    assert f"{endpoint} can't be reached (" in hub.find_network_problem()


def test_find_network_problem_is_none_if_the_hub_answers(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # it answers 501 to every request
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    assert hub.find_network_problem() is None
    server.shutdown()
    server.server_close()


def test_a_repository_without_a_model(cache, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "tokenizer.json").write_text("{}")
    cache("me/words", tmp_path / "some")
    with pytest.raises(ValueError, match="hub repository me/words has no model in a known format"):
        prolip.load("me/words")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            errors.RepositoryNotFoundError,
            "no hub repository me/it .*no such local folder or file",
        ),
        (errors.RevisionNotFoundError, "no hub repository me/it"),
        (errors.GatedRepoError, "me/it is gated"),
        (errors.HfHubHTTPError, "hub repository me/it could not be downloaded: it failed"),
    ],
)
def test_hub_errors_become_one_message(raised, message, monkeypatch):
    def fail(*args, **kwargs):
        error = raised.__new__(raised)
        Exception.__init__(error, "it failed\nwith a long story")
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(OSError, match=message) as caught:
        prolip.load("me/it")
    assert "\n" not in str(caught.value)


class PretendedHub:
    """Takes what HfApi would send."""

    def __init__(self, token=None):
        self.token = token

    existing: ClassVar[set[str]] = set()
    seen: ClassVar[dict[str, object]] = {}
    sent: ClassVar[dict[str, bytes]] = {}

    def create_repo(self, repo_id, private=None, exist_ok=False):
        assert exist_ok
        self.seen.update(private=private, token=self.token)
        return f"https://hub/{repo_id}"

    def file_exists(self, repo_id, name, revision=None):
        self.seen.update(card_of=revision)
        return name in self.existing

    def upload_folder(self, repo_id, folder_path, commit_message, revision):
        self.sent.clear()
        self.sent.update({path.name: path.read_bytes() for path in folder_path.iterdir()})
        self.sent["message"] = commit_message.encode()
        self.seen.update(revision=revision)


def test_push_to_hub_sends_the_folder_and_a_card(nano, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    assert nano.push_to_hub("me/nano", commit_message="first", license="mit") == "https://hub/me/nano"
    sent = PretendedHub.sent
    assert set(sent) == {"config.json", "model.safetensors", "tokenizer.json", "README.md", "message"}
    assert sent["message"] == b"first"
    for name in set(sent) - {"message"}:
        (tmp_path / name).write_bytes(sent[name])
    model = prolip.ProLIP.from_pretrained(tmp_path, device="cpu")
    assert torch.equal(model.embed_texts("a thing").mean, nano.embed_texts("a thing").mean)


def test_push_to_hub_of_a_likelihood_model_keeps_its_probabilities(likelihood_nano, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    likelihood_nano.push_to_hub("me/ours")
    for name in set(PretendedHub.sent) - {"message"}:
        (tmp_path / name).write_bytes(PretendedHub.sent[name])
    card = (tmp_path / "README.md").read_text()
    assert "| log-variances | image: token, text: token; one per sample |" in card
    assert "| contrastive loss | likelihood |" in card
    model = prolip.load(tmp_path, device="cpu")
    assert model.config == likelihood_nano.config
    z = likelihood_nano.embed_texts(["a thing", "a red circle"])
    assert z.uncertainty[0] != z.uncertainty[1]
    assert torch.equal(model.match_probability(z, z), likelihood_nano.match_probability(z, z))


def test_push_to_hub_refuses_a_broken_model_before_the_hub_is_asked(nano, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", None)
    with torch.no_grad():
        nano.logit_scale.fill_(torch.nan)
    with pytest.raises(ValueError, match="logit_scale holds NaN"):
        nano.push_to_hub("me/nano")


def test_push_to_hub_passes_revision_and_token(nano, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    nano.push_to_hub("me/nano", private=True, revision="v2", token="secret", license="mit")
    assert PretendedHub.seen == {"private": True, "token": "secret", "revision": "v2", "card_of": "v2"}
    assert b"license: mit" in PretendedHub.sent["README.md"]


def test_push_to_hub_without_a_network_raises(nano, monkeypatch):
    class NoNetworkError(Exception):
        """As the hub's HTTP library has it: no OSError."""

    def fail(self, *args, **kwargs):
        raise NoNetworkError("name or service not known")

    monkeypatch.setattr(PretendedHub, "create_repo", fail)
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    with pytest.raises(OSError, match="Upload to me/nano failed: name or service not known"):
        nano.push_to_hub("me/nano")


def test_push_to_hub_does_not_overwrite_a_model_card(nano, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    monkeypatch.setattr(PretendedHub, "existing", {"README.md"})
    nano.push_to_hub("me/nano")
    assert "README.md" not in PretendedHub.sent


def test_push_to_hub_without_a_token_raises(nano, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise errors.LocalTokenNotFoundError("no token")

    monkeypatch.setattr(PretendedHub, "create_repo", refuse)
    monkeypatch.setattr(huggingface_hub, "HfApi", PretendedHub)
    with pytest.raises(
        OSError, match=r"Upload to me/nano failed: no token\. Check that the hub is reachable and the token"
    ):
        nano.push_to_hub("me/nano")


def test_model_card_describes_the_model(nano):
    from huggingface_hub import ModelCard

    text = make_model_card(nano, "me/nano", "mit")
    data = ModelCard(text).data
    assert data.library_name == "prolip"
    assert data.license == "mit"
    assert data.pipeline_tag == "zero-shot-image-classification"
    assert 'prolip.load("me/nano")' in text
    assert f"{sum(p.numel() for p in nano.parameters()):,}" in text
    assert "license:" not in make_model_card(nano, "me/nano")
    assert text.count("# nano\n") == 1
    assert "32 x 32 pixels, patches of 8" in text
    assert f"up to 16 tokens of a vocabulary of {nano.config.text.tokenizer.vocab_size}" in text
    released = prolip.load(FIXTURES / "models" / "b16_tiny", device="cpu")
    assert "| log-variances | image: token, text: mean |" in make_model_card(released, "me/b16")
    nano.origin = {"format": "open_clip"}
    assert "| weights started from | open_clip |" in make_model_card(nano, "me/nano")


def test_model_card_of_a_deterministic_model():
    assert "points (no variances)" in make_model_card(
        prolip.load(FIXTURES / "open_clip" / "clip", device="cpu"), "me/clip"
    )
