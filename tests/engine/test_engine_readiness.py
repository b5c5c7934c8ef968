"""Ready is what the log says and HTTP confirms, or what HTTP says twice."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from engine.ports import free_port
from engine.readiness import get, is_ready, server_info


@pytest.mark.parametrize(
    ("log", "healthy", "ours", "ready"),
    [
        (False, 0, None, False),
        (True, 0, True, False),
        (True, 1, True, True),
        (True, 1, None, True),
        (True, 5, False, False),
        (False, 1, True, False),
        (False, 2, True, True),
        (False, 2, False, False),
    ],
)
def test_ready_needs_a_confirmation_and_a_listener_that_is_not_a_strangers(
    log: bool, healthy: int, ours: bool | None, ready: bool
) -> None:
    assert is_ready(log, healthy, ours) is ready


@pytest.fixture
def port_of_an_odd_server() -> Iterator[int]:
    class Odd(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            body = b"no json" if self.path == "/server_info" else b"[1]"
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_an_answer_that_is_no_object_is_no_server_info(port_of_an_odd_server: int) -> None:
    assert server_info(port_of_an_odd_server) == {}


def test_nobody_there_is_no_answer_and_no_error() -> None:
    assert get(free_port(), "/health", 1.0) is None
    assert server_info(free_port(), 1.0) == {}


def test_a_proxy_in_the_environment_is_not_asked(port_of_an_odd_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert get(port_of_an_odd_server, "/", 2.0) == (200, b"[1]")
