"""Servers on this machine: HTTP with all its ways to fail, and as much of S3 as pyarrow asks for."""

import base64
import http.server
import io
import threading
import time
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

CONTENT = bytes(range(256)) * 40
"""What the HTTP server holds."""
USER = "Basic " + base64.b64encode(b"me:pass word").decode()


@contextmanager
def run_server(handler, **attributes):
    """Serve with a class of handlers, to which the attributes are added; gives (host:port, the class)."""
    handler = type(handler.__name__, (handler,), {"requests": [], "release": threading.Event(), **attributes})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False  # a handler may hang
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", handler
    finally:
        handler.release.set()  # those that hang
        server.shutdown()
        server.server_close()
        thread.join()


class HttpHandler(http.server.BaseHTTPRequestHandler):
    """Each path is a way to answer; `requests` has (path, Authorization) of each request."""

    content = CONTENT
    elsewhere = ""

    def do_GET(self):
        self.requests.append((self.path, self.headers.get("Authorization")))
        name = urlsplit(self.path).path.strip("/").replace("%20", "_")
        getattr(self, f"answer_{name.split('.')[0]}", self.answer_whole)()

    def answer_whole(self, count=None, hang=False):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[:count])
        self.wfile.flush()
        if hang:
            self.release.wait(60)

    def answer_cut(self):
        self.answer_whole(3000)

    def answer_stall(self):
        self.answer_whole(3000, hang=True)

    def answer_hang(self):
        self.release.wait(60)

    def answer_empty(self):
        self.answer_whole(0)

    def answer_missing(self):
        self.send_error(404)

    def answer_forbidden(self):
        self.send_error(403)

    def answer_private(self):
        if self.headers.get("Authorization") == USER:
            self.answer_whole()
        else:
            self.send_error(401)

    def answer_chunked(self, end=b"0\r\n\r\n"):
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(self.content), 3000):
            piece = self.content[start : start + 3000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(end)
        self.close_connection = True

    def answer_chunkedcut(self):
        self.answer_chunked(end=b"")

    def answer_unknown_length(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.content)

    def answer_slow(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        for start in range(0, len(self.content), 2048):
            self.wfile.write(self.content[start : start + 2048])
            time.sleep(0.1)

    def answer_nonsense(self):
        self.wfile.write(b"this is not HTTP\r\n\r\n")

    def redirect(self, address):
        self.send_response(302)
        self.send_header("Location", address)
        self.end_headers()

    def answer_near(self):
        self.redirect("/private")

    def answer_far(self):
        self.redirect(f"http://{self.elsewhere}/whole")

    def answer_loop(self):
        self.redirect(f"/loop?{time.monotonic_ns()}")

    def log_message(self, *args):
        pass


class S3Handler(http.server.BaseHTTPRequestHandler):
    """Objects by "bucket/key" in `objects`; one whose key ends with "hang" never answers."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    refused = ""  # a key that may not be read

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    @property
    def key(self):
        return unquote(urlsplit(self.path).path).strip("/")

    def answer(self, status, content=b"", length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_HEAD(self):
        self.requests.append((self.command, self.path))
        if self.key in self.objects:
            self.answer(200, length=len(self.objects[self.key]))
        else:
            self.answer(200 if self.key == "bucket" else 404)

    def do_GET(self):
        self.requests.append((self.command, self.path))
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self.list(query.get("prefix", [""])[0])
        elif self.key == self.refused:
            self.answer(403)
        elif self.key.endswith("hang"):
            self.release.wait(60)
            self.answer(403)  # not repeated, unlike a connection that ends
        elif self.key in self.objects:
            content = self.objects[self.key]
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = content[int(first) : int(last) + 1]
            self.answer(206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        else:
            self.answer(404)

    def list(self, prefix):
        start = f"{self.key}/{prefix}"
        found = [
            (key, len(content)) for key, content in sorted(self.objects.items()) if key.startswith(start)
        ]
        bucket = self.key
        rows = "".join(
            f"<Contents><Key>{escape(key.removeprefix(f'{bucket}/'))}</Key><Size>{size}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, size in found
        )
        count = f"<KeyCount>{len(found)}</KeyCount><IsTruncated>false</IsTruncated>"
        self.answer(200, f"<ListBucketResult>{count}{rows}</ListBucketResult>".encode())

    def do_PUT(self):
        self.requests.append((self.command, self.path))
        content = self.read_body()
        if self.key.endswith("forbidden"):
            self.answer(403)
            return
        key = unquote(urlsplit(self.path).path).removeprefix("/")
        self.objects[key] = content
        self.answer(200, ETag='"0"')

    def read_body(self):
        """The body. It may be sent in chunks, which may hold chunks of S3's own, with a checksum at the end."""
        body = self.rfile
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = io.BytesIO(read_chunks(body))
        if self.headers.get("x-amz-content-sha256", "").startswith("STREAMING"):
            return read_chunks(body)
        return body.read() if body is not self.rfile else body.read(int(self.headers["Content-Length"]))

    def do_DELETE(self):
        self.requests.append((self.command, self.path))
        self.objects.pop(self.key, None)
        self.answer(204)

    def log_message(self, *args):
        pass


def read_chunks(file):
    """The content of "size in hexadecimal[;extension], bytes, ..., 0" and of lines up to an empty one, not kept."""
    content = b""
    while size := int(file.readline().split(b";")[0], 16):
        content += file.read(size)
        file.readline()
    while file.readline().strip():
        pass
    return content
