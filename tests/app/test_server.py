"""The HTTP API and the limits of the server, in this process."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import prolip
from prolip.app import collection
from prolip.app.config import AppConfig
from prolip.app.security import Guard
from tests.app.conftest import BASE_URL


def test_api_lists_models(client):
    assert list(client.get("/api/models").json()["models"]) == ["scenes-tiny"]


def test_api_compare_gives_the_measures_of_the_library(client, picture):
    with open(picture, "rb") as file:
        answer = client.post(
            "/api/compare", files=[("image", file)], data={"caption": ["a thing", "a blue circle"]}
        ).json()
    model = prolip.load("scenes-tiny", device="cpu").eval()
    z, t = model.embed_images(str(picture)), model.embed_texts(["a thing", "a blue circle"])
    assert answer["match"] == [pytest.approx(model.match_probability_matrix(z, t)[0].tolist(), rel=1e-4)]
    assert answer["csd"] == [pytest.approx(prolip.csd_matrix(z, t)[0].tolist(), rel=1e-4)]
    assert answer["images"] == ["a-scene.png"]


def test_api_search_answers_by_text_image_and_row(client, picture):
    found = client.post("/api/search", data={"text": "a red circle", "k": 3}).json()
    assert len(found["hits"]) == 3
    assert found["confidence"]["messages"]
    row = found["hits"][0]["row"]
    assert client.post("/api/search", data={"row": row, "k": 1}).json()["hits"][0]["row"] == row
    answer = client.post(
        "/api/search", files={"image": picture.read_bytes()}, data={"modality": "text", "k": 2}
    )
    assert answer.json()["target_modality"] == "text"


def test_api_traverse_and_classify_and_collection_answer(client, picture):
    content = picture.read_bytes()
    paths = client.post("/api/traverse", files={"image": content}).json()
    assert paths["root"]["steps"]
    assert paths["null"]["root_kind"] == "null"
    data = {"class": ["red circle", "blue circle"], "template": ["a {c}"]}
    classes = client.post("/api/classify", files={"image": content}, data=data).json()
    assert set(classes["predictions"][0]["classes"]) == {"red circle", "blue circle"}
    answer = client.post("/api/collection", data={"keep_fraction": "0.5"}).json()
    assert sum(answer["outcomes"].values()) == answer["samples"]


def test_api_export_answers_with_a_file(client, workspace):
    answer = client.post("/api/export", data={"format": "ids", "keep_fraction": "0.5"})
    request = collection.CollectionRequest(keep_fraction=0.5)
    assert answer.content == collection.export_selection(workspace, request, "kept", "ids")[1]
    assert 'filename="kept.txt"' in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("compare", {}, "Drop in an image"),
        ("compare", {"caption": "x" * 10_000}, "10,000 characters"),
        ("compare", {"caption": "a", "model": "/etc/passwd"}, "no model of this name"),
        ("search", {"text": "a", "k": "many"}, "k must be a whole number"),
        ("search", {"text": "a", "k": "nan"}, "k must be a whole number"),
        ("search", {"text": "a", "k": "-1"}, "from 1 to 60"),
        ("search", {"text": "a", "modality": "audio"}, "modality must be one of"),
        ("search", {"text": "a", "matching": "7"}, "matching must be above 0"),
        ("search", {"row": "1e300"}, "row must be a whole number"),
        ("search", {"text": "a", "max_uncertainty": "inf"}, "max_uncertainty must be a number"),
        ("collection", {"keep_fraction": "0"}, "keep_fraction must be"),
        ("collection", {"rank_by": "row; DROP TABLE items"}, "rank_by must be one of"),
        ("traverse", {"caption": "a"}, "no file in the field image"),
        ("export", {"format": "datacomp"}, "not a uid"),
        ("classify", {"class": ["a", "b"], "template": "no place"}, "has no {c}"),
    ],
)
def test_api_refuses_with_one_sentence(client, path, data, message):
    answer = client.post(f"/api/{path}", data=data)
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert "Traceback" not in answer.text


def test_api_hides_unexpected_errors(client, monkeypatch):
    def fail(*_):
        raise RuntimeError("/home/me/secret.txt")

    monkeypatch.setattr("prolip.app.compare.compare", fail)
    answer = client.post("/api/compare", data={"caption": "a"})
    assert answer.status_code == 500
    assert answer.json() == {"error": "This could not be computed. The log of the server has the reason."}


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"<svg onload=alert(1)>"])
def test_api_refuses_damaged_images(client, content):
    answer = client.post("/api/compare", files={"image": ("../../../etc/x.png", content)})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("x.png can't be read")


def test_api_refuses_an_image_of_too_many_pixels(client, tmp_path):
    Image.fromarray(np.zeros((6500, 6500), np.uint8)).save(tmp_path / "large.png")
    answer = client.post("/api/compare", files={"image": (tmp_path / "large.png").read_bytes()})
    assert answer.status_code == 400
    assert "more than 40,000,000 pixels" in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/proxy=http://127.0.0.1/", "/monitoring", "/gradio_api/info", "/gradio_api/run/predict",
        "/gradio_api/call/compare", "/docs", "/openapi.json", "/gradio_api/deep_link", "/etc/passwd",
        "/gradio_api/component_server", "/login_check",
    ],
)  # fmt: skip
def test_guard_serves_only_what_the_page_needs(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/proc/self/environ",
        "../../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "pyproject.toml",
    ],
)
def test_no_file_of_the_machine_is_served(client, path):
    answer = client.get(f"/gradio_api/file={path}")
    assert answer.status_code in (403, 404)
    assert "root:" not in answer.text
    assert "Traceback" not in answer.text


def test_no_file_of_a_workspace_is_served(client):
    hit = client.post("/api/search", data={"text": "a", "k": 1}).json()["hits"][0]
    assert Path(hit["path"]).is_file()
    assert client.get(f"/gradio_api/file={hit['path']}").status_code == 403


def find_function(client, elem_id):
    """Number of the function that a button calls, and what the page sends with it."""
    config = client.get("/config").json()
    (component,) = [one["id"] for one in config["components"] if one["props"].get("elem_id") == elem_id]
    return next(one["id"] for one in config["dependencies"] if [component, "click"] in one["targets"])


def call(client, function, data):
    """Call a function as the page does; the last message of the stream."""
    body = {"fn_index": function, "data": data, "session_hash": "t", "event_data": None}
    answer = client.post("/gradio_api/queue/join", json=body)
    if answer.status_code != 200:
        return answer.json()
    messages = []
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": "t"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                messages.append(json.loads(line[5:]))
                if messages[-1]["msg"] in ("process_completed", "unexpected_error"):
                    break
    return messages[-1]


@pytest.mark.parametrize(
    "file",
    [
        {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
        {"path": "http://127.0.0.1:1/a.png", "meta": {"_type": "gradio.FileData"}},
        {"path": "../../etc/passwd", "url": "http://127.0.0.1:1/a.png", "meta": {"_type": "gradio.FileData"}},
        {"path": "", "url": "file:///etc/passwd", "meta": {"_type": "gradio.FileData"}},
        {"path": None, "url": "data:text/plain;base64,AAAA", "meta": {"_type": "gradio.FileData"}},
        {"path": "/etc/passwd"},
    ],
)
def test_paths_in_requests_of_the_page_are_refused(client, file):
    function = find_function(client, "compare-go")
    message = call(client, function, ["scenes-tiny", [{"image": file, "caption": None}], "a thing"])
    assert message.get("success") is not True, message
    assert "root:" not in json.dumps(message)
    assert "Traceback" not in json.dumps(message)


def test_an_upload_is_compared_whatever_its_name(client, picture):
    """The control of the test above: what it sends is refused for its path alone."""
    name = "../../<b>é\u202eevil\u202c.png"
    (path,) = client.post("/gradio_api/upload", files={"files": (name, picture.read_bytes())}).json()
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    message = call(
        client, find_function(client, "compare-go"), ["scenes-tiny", [{"image": file, "caption": None}], "a"]
    )
    (html,) = message["output"]["data"]
    assert "Match probability" in html
    assert "<b>é" not in html


def test_the_page_escapes_what_users_type(client):
    attack = "<img src=x onerror=alert(1)>\"'</textarea><script>alert(2)</script>"
    message = call(client, find_function(client, "compare-go"), ["scenes-tiny", [], attack])
    (html,) = message["output"]["data"]
    assert "<img src=x" not in html
    assert "<script" not in html
    assert "&lt;img src=x" in html


def test_the_page_shows_errors_as_messages(client):
    message = call(client, find_function(client, "compare-go"), ["scenes-tiny", [], "x" * 10_000])
    assert message["success"]
    assert 'role="alert"' in message["output"]["data"][0]
    assert "10,000 characters" in message["output"]["data"][0]


async def answer_ok(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


def make_client(**options):
    return TestClient(Guard(answer_ok, AppConfig(**options)), base_url=BASE_URL)


def test_guard_asks_for_the_password():
    client = make_client(host="0.0.0.0", auth="me:käse:1")
    assert client.get("/").status_code == 401
    assert "Basic" in client.get("/api/models").headers["www-authenticate"]
    right = base64.b64encode("me:käse:1".encode()).decode()
    assert client.get("/", headers={"authorization": f"Basic {right}"}).status_code == 200
    for wrong in ("Basic " + base64.b64encode(b"me:x").decode(), f"Bearer {right}", "Basic ???", "Basic"):
        assert client.get("/", headers={"authorization": wrong}).status_code == 401


def test_guard_refuses_other_hosts_and_origins():
    client = make_client()
    assert client.get("/", headers={"host": "127.0.0.1:7860"}).status_code == 200
    assert client.get("/", headers={"host": "localhost"}).status_code == 200
    assert client.get("/", headers={"host": "attacker.example"}).status_code == 403  # DNS rebinding
    assert client.get("/", headers={"host": "[::1"}).status_code == 403
    assert client.post("/", headers={"origin": "http://attacker.example"}).status_code == 403
    assert client.post("/", headers={"host": "localhost", "origin": "http://localhost"}).status_code == 200
    assert client.post("/", headers={"origin": "null"}).status_code == 403
    assert client.post("/", headers={"origin": "http://["}).status_code == 403


def test_guard_limits_bodies_with_and_without_a_length():
    client = make_client(max_upload_mb=1)
    assert client.post("/api/compare", content=b"x" * 8_000_000).status_code == 200
    assert client.post("/api/compare", content=b"x" * 8_000_001).status_code == 413
    assert client.post("/gradio_api/queue/join", content=b"x" * 2_000_001).status_code == 413
    parts = (b"x" * 1_000_000 for _ in range(12))
    assert int(client.post("/api/compare", content=parts).text) <= 8_000_000


def test_guard_adds_headers_that_keep_the_browser_at_home(client):
    headers = client.get("/").headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_page_names_no_other_host(client):
    from html.parser import HTMLParser

    class Links(HTMLParser):
        def __init__(self):
            super().__init__()
            self.found = []

        def handle_starttag(self, tag, attrs):
            wanted = {"script": "src", "img": "src", "iframe": "src", "link": "href"}.get(tag)
            self.found.extend(value or "" for name, value in attrs if name == wanted)

    page = Links()
    page.feed(client.get("/").text)
    assert page.found
    assert [link for link in page.found if link.startswith(("http:", "https:", "//"))] == []
