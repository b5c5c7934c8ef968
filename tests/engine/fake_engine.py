"""A tiny engine for the tests of `engine/`: a parent, ranks, log lines like SGLang's, an HTTP port, and bad manners.

Run as ``python fake_engine.py --port P [--ranks 2] [--load-s 0.1] [--warm-s 0.05] [...]``. Standard library only.
"""

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


def log(text: str, rank: str = "") -> None:
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S") + (f" {rank}] " if rank else "] ")
    os.write(2, (stamp + text + "\n").encode())


def rank_process(number: int, arguments: argparse.Namespace) -> None:
    name = f"TP{number}"
    if arguments.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.own_session:
        os.setsid()
    log("Init torch distributed begin.", name)
    if arguments.grandchild:
        os.fork()
    if arguments.fatal_rank == number:
        time.sleep(arguments.load_s)
        log("Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA out of memory", name)
    while True:
        if arguments.spin:
            sum(range(1000))
        else:
            time.sleep(0.5 if not arguments.chatty else 0.05)
        if arguments.chatty:
            log("Load weight begin. avail mem=90.00 GB", name)


class Handler(BaseHTTPRequestHandler):
    state: ClassVar[dict[str, Any]] = {"status": 503, "info": "/server_info"}

    def do_GET(self) -> None:
        body, status = b"{}", 200
        if self.path in ("/health", "/health_generate"):
            status = self.state["status"]
        elif self.path == self.state["info"]:
            body = b'{"version": "0.0.0", "tp_size": 2}'
        elif self.path != "/model_info":
            status = 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--load-s", type=float, default=0.05)
    parser.add_argument("--warm-s", type=float, default=0.05)
    parser.add_argument("--exit-after", type=float, help="the parent ends so many seconds after it is ready")
    parser.add_argument("--exit-status", type=int, default=1)
    parser.add_argument("--die-loading", action="store_true", help="exit instead of opening the port")
    parser.add_argument("--hang", action="store_true", help="never open the port")
    parser.add_argument("--fatal-rank", type=int)
    parser.add_argument("--no-ready-line", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--own-session", action="store_true")
    parser.add_argument("--grandchild", action="store_true")
    parser.add_argument("--spin", action="store_true")
    parser.add_argument("--chatty", action="store_true")
    parser.add_argument("--old-info", action="store_true", help="knows /get_server_info only")
    arguments = parser.parse_args()
    if arguments.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in range(arguments.ranks):
        if os.fork() == 0:
            rank_process(number, arguments)
    time.sleep(arguments.load_s)
    if arguments.die_loading:
        log("no such model")
        sys.exit(arguments.exit_status)
    while arguments.hang or arguments.fatal_rank is not None:
        time.sleep(60)
    Handler.state = {"status": 503, "info": "/get_server_info" if arguments.old_info else "/server_info"}
    server = ThreadingHTTPServer((arguments.host, arguments.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log(f"INFO:     Uvicorn running on http://{arguments.host}:{arguments.port} (Press CTRL+C to quit)")
    time.sleep(arguments.warm_s)
    Handler.state["status"] = 200
    if not arguments.no_ready_line:
        log("The server is fired up and ready to roll!")
    if arguments.exit_after is not None:
        time.sleep(arguments.exit_after)
        os._exit(arguments.exit_status)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
