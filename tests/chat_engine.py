"""A real HTTP server on 127.0.0.1 that streams chat completions from a simulated block cache."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = 16
Messages = list[dict[str, str]]


def tokens(messages: Messages) -> list[str]:
    """One for each word, and one that opens each message and the answer."""
    made = [word for m in messages for word in (f"<{m['role']}>", *m["content"].split())]
    return [*made, "<assistant>"]


class ChatEngine:
    """Answers after a time for each token it has to compute; `restart` empties the cache."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seconds_per_token = 0.0
        self.output = ("one", " two")
        self.zeros = True
        """False: the count is left out where it is 0, as vLLM did up to 0.23."""
        self.details = True
        """False: cached tokens are never told, as without the engine's flag."""
        self.usage = True
        self.owned_by = "vllm"
        self.models = ["tiny"]
        self.ready = True
        self.faults: dict[int, str] = {}
        """By the number of the request since the last restart, from 0."""
        self.asked: list[list[Messages]] = [[]]
        """By life of the engine."""
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self.connections = 0
        self._at_once = 0
        self._blocks: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Each small piece of a stream would wait 40 ms for the acknowledgement of the one before.
            disable_nagle_algorithm = True

            def setup(self) -> None:
                engine.connections += 1
                super().setup()

            def do_GET(self) -> None:
                if self.path == "/v1/models":
                    owner = {"owned_by": engine.owned_by, "max_model_len": 4096}
                    self._json(200, {"data": [{"id": name, **owner} for name in engine.models]})
                else:
                    self._json(200 if engine.ready else 503, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/restart":
                    engine.restart()
                    self._json(200, {})
                elif self.path == "/v1/chat/completions":
                    engine.headers.append(dict(self.headers.items()))
                    engine.complete(self, json.loads(body))
                else:
                    self._json(404, {})

            def _json(self, status: int, content: object) -> None:
                self.reply(status, "application/json", json.dumps(content).encode())

            def reply(self, status: int, kind: str, content: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in {
                    "Content-Type": kind,
                    "Content-Length": str(len(content)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def restart(self) -> None:
        with self._lock:
            self._blocks.clear()
            self.asked.append([])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def complete(self, handler: Any, body: dict[str, Any]) -> None:
        assert body["stream"]
        assert body["stream_options"] == {"include_usage": True}
        with self._lock:
            number = len(self.asked[-1])
            self.asked[-1].append(body["messages"])
            fault = self.faults.get(number, "")
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            prompt, cached = self._look_up(tokens(body["messages"]))
        try:
            time.sleep(self.seconds_per_token * (prompt - cached))
            self._answer(handler, fault, prompt, cached)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
        finally:
            with self._lock:
                self._at_once -= 1

    def _look_up(self, prompt: list[str]) -> tuple[int, int]:
        """Whole blocks from the front; the last token is always computed."""
        ends = range(BLOCK, len(prompt) + 1, BLOCK)
        cached = 0
        for end in ends:
            if tuple(prompt[:end]) not in self._blocks or end == len(prompt):
                break
            cached = end
        self._blocks.update(tuple(prompt[:end]) for end in ends)
        return len(prompt), cached

    def _answer(self, handler: Any, fault: str, prompt: int, cached: int) -> None:
        if fault.isdecimal():
            location = {"Location": "http://192.0.2.1/"} if fault.startswith("3") else {}
            handler.reply(int(fault), "text/plain", b"the prompt was: SECRET WORDS", **location)
        elif fault == "plain":
            handler.reply(200, "application/json", b"{}")
        elif fault == "hang up":
            handler.close_connection = True
        else:
            self._stream(handler, fault, prompt, cached)

    def _stream(self, handler: Any, fault: str, prompt: int, cached: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in self._events(fault, prompt, cached):
            if event == "cut":
                handler.close_connection = True
                return
            data = f"data: {event}\n\n".encode()
            # Half an event at a time: clients must not take a chunk for an event.
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    def _events(self, fault: str, prompt: int, cached: int) -> Iterator[str]:
        yield _chunk({"role": "assistant", "content": ""})
        if fault == "pause":
            time.sleep(0.2)
        if fault == "error":
            yield json.dumps({"error": {"message": "SECRET WORDS", "code": 500}})
        if fault == "malformed":
            yield '{"choices": [{"delta"'
        for text in () if fault == "silent" else self.output:
            yield _chunk({"content": text})
        if fault == "cut":
            yield "cut"
        if fault == "slow":
            time.sleep(1.5)
        yield _chunk({}, "length")
        if self.usage and fault != "no usage":
            yield json.dumps({"choices": [], "usage": self._usage(prompt, cached)})
        yield "[DONE]"

    def _usage(self, prompt: int, cached: int) -> dict[str, Any]:
        counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": len(self.output)}
        if self.details and (cached or self.zeros):
            counts["prompt_tokens_details"] = {"cached_tokens": cached}
        return counts


def _chunk(delta: dict[str, str], finish: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None})
