#!/usr/bin/env python3
"""`tawpipe serve`: its answers are the pages of plan and compare; questions that are wrong, many, slow, abandoned or no HTTP at all.
Not: what is seen in a browser (tests/browser/serve_test.py). Usage: serve.py TAWPIPE
"""
import concurrent.futures
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

TAWPIPE = os.path.abspath(sys.argv.pop(1))
SMALL = {"cluster": "1x2", "model": "llama-4x512", "sequence": "1024", "global-batch": "8", "schedules": "1f1b,fsdp"}
LONG = {"cluster": "64xH100", "model": "llama-3-70b", "sequence": "8192", "global-batch": "1024"}
FORM = re.compile(rb'<form id="ask".*?</form>\n', re.DOTALL)
HANGS = 300  # seconds, for what never ends


class Served:
    """A server on a port of its own, in a folder with a file that no answer may read."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory()
        trap = pathlib.Path(self.folder.name, "Qwen", "Qwen3-8B")
        trap.mkdir(parents=True)
        (trap / "config.json").write_text("not JSON")
        self.process = subprocess.Popen([TAWPIPE, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, cwd=self.folder.name, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", self.process.stdout.readline())[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANGS)

    def get(self, target, values=None, method="GET", headers=None):
        """Status, headers and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)
        try:
            connection.request(method, target + ("?" + urllib.parse.urlencode(values) if values else ""), headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def send(self, data):
        """The answer to these bytes, until the server ends the connection."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has answered before it was told all
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def children(self):
        return pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def await_children(self, some):
        while bool(self.children()) != some:
            time.sleep(0.01)

    def ask_and_stay(self, target, values):
        connection = self.connect()
        connection.sendall(f"GET {target}?{urllib.parse.urlencode(values)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.await_children(True)
        return connection


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Served())

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), "the server has ended")

    def test_a_page_is_the_report_and_the_form(self):
        for command, more in (("plan", {"price": "2.5USD", "train-tokens": "15B"}), ("compare", {})):
            values = {**SMALL, **more}
            status, headers, page = self.server.get("/" + command, values)
            self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
            words = [word for name, value in values.items() for word in ("--" + name, value)]
            # In the form's order, which is that of its controls.
            report = subprocess.run([TAWPIPE, command, *words, "--report", "-"], capture_output=True, check=True,
                                    env={**os.environ, "SOURCE_DATE_EPOCH": "0"}).stdout
            self.assertTrue(FORM.sub(b"", page) == report)
            form = FORM.search(page)[0].decode()
            for name, value in values.items():
                self.assertRegex(form, f'name="{name}" value="{re.escape(value)}"')

    def test_a_form_that_is_sent_as_it_is_has_empty_values(self):
        status, _, page = self.server.get("/compare", {**SMALL, "device": "", "price": "", "train-tokens": ""})
        self.assertEqual(status, 200)
        words = " ".join(f"--{name} {value}" for name, value in SMALL.items())
        self.assertEqual(re.search(rb'id="command">(.*?)</pre>', page)[1].decode(), f"tawpipe compare {words} --report -")

    def test_values_are_those_of_the_flags(self):
        self.assertEqual(self.server.get("/compare", {**SMALL, "sequence": "1k"})[0], 200)
        page = self.server.get("/compare", {**SMALL, "cluster": "dgx-h100*2+dgx-a100"})[2]
        self.assertFalse(b"unknown cluster" in page)

    def test_nothing_fits(self):
        status, _, page = self.server.get("/compare", {**SMALL, "model": "llama-3-70b"})
        self.assertEqual(status, 200)
        self.assertTrue(b"Nothing fits" in page)

    def test_the_first_page_has_the_form_and_sends_nothing_away(self):
        status, headers, page = self.server.get("/")
        self.assertEqual(status, 200)
        for name in ("cluster", "device", "model", "sequence", "global-batch", "schedules", "price", "train-tokens"):
            self.assertTrue(f'name="{name}"'.encode() in page, name)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertEqual(self.server.get("/", method="HEAD")[2], b"")

    def test_wrong_questions_say_what_would_be_right(self):
        for values, told in (({**SMALL, "cluster": "dgx-h10"}, "did you mean 'dgx-h100'"),
                             ({**SMALL, "model": "lama-3-8b"}, "did you mean 'llama-3-8b'"),
                             ({**SMALL, "device": "H1"}, "unknown device"),
                             ({**SMALL, "sequence": "many"}, "sequence"),
                             ({**SMALL, "global-batch": "-1"}, "global-batch"),
                             ({**SMALL, "global-batch": ""}, "--global-batch is missing"),
                             ({**SMALL, "schedules": "2f2b"}, "unknown schedule"),
                             ({**SMALL, "report": "/tmp/x"}, "unknown value 'report'"),
                             ({**SMALL, "cost": "kernels:file=/etc/passwd"}, "unknown value 'cost'"),
                             ({**SMALL, "cluster": "x" * 2000}, "longer than 1000"),
                             ({**SMALL, "price": "--json"}, "must not begin with -"),
                             ({**SMALL, "model": '"><script>'}, "&quot;&gt;&lt;script&gt;")):
            status, _, page = self.server.get("/plan", values)
            self.assertEqual(status, 400, values)
            self.assertIn(told, re.search(r'id="why" role="alert">(.*?)</p>', page.decode())[1], values)
            self.assertFalse(b"<script>" in page)
        twice = urllib.parse.urlencode(SMALL) + "&cluster=3x8"
        self.assertEqual(self.server.get("/plan?" + twice)[0], 400)

    def test_no_value_is_a_path(self):
        for name in ("cluster", "model", "device", "schedules", "price", "train-tokens"):
            for path in ("/etc/passwd", "../config.json", "./Qwen/Qwen3-8B", "Qwen/Qwen3-8B/config.json", "~/x", "/etc/llama-3-8b", "."):
                status, _, page = self.server.get("/plan", {**SMALL, name: path})
                self.assertEqual(status, 400, (name, path))
                self.assertFalse(b"cannot be read" in page)
        # A name is a name, whatever lies in the folder in which the server was started.
        self.assertEqual(self.server.get("/compare", {**SMALL, "model": "Qwen/Qwen3-8B"})[0], 200)

    def test_requests_that_are_none(self):
        host = f"Host: 127.0.0.1:{self.server.port}\r\n".encode()
        for data, status in ((b"GET /none HTTP/1.1\r\n" + host + b"\r\n", 404),
                             (b"GET /../etc/passwd HTTP/1.1\r\n" + host + b"\r\n", 404),
                             (b"POST /plan HTTP/1.1\r\n" + host + b"Content-Length: 3\r\n\r\na=b", 405),
                             (b"DELETE / HTTP/1.1\r\n" + host + b"\r\n", 405),
                             (b"BREW / HTTP/1.1\r\n" + host + b"\r\n", 405),
                             (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 3\r\n\r\na=b", 413),
                             (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 3000000000\r\n\r\n" + b"x" * 3_000_000, 413),
                             (b"GET / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
                             (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: no\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\n" + host + b"X: " + b"x" * 3_000_000 + b"\r\n\r\n", 431),
                             (b"GET / HTTP/1.1\r\n" + host + b"X: x\r\n" * 10_000 + b"\r\n", 431),
                             (b"GET /" + b"x" * 3_000_000, 431),
                             (b"GET /plan?cluster=%zz HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET /plan?cluster=% HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET /plan?cluster=%00 HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET /plan?cluster=a%0d%0ab HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET /plan?cluster=\0 HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET http://127.0.0.1/ HTTP/1.1\r\n" + host + b"\r\n", 400),
                             (b"GET / HTTP/9.9\r\n" + host + b"\r\n", 400),
                             (b"GET /\r\n\r\n", 400),
                             (b"\x16\x03\x01\x02\x00\x01\x00", 400),
                             (b"\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
                             (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", 403),
                             (b"GET / HTTP/1.1\r\nHost: 127.0.0.1.example.org:80\r\n\r\n", 403),
                             (b"GET / HTTP/1.1\r\nHost: localhost:9000\r\n\r\n", 200),  # by a tunnel
                             (b"GET / HTTP/1.1\r\n" + host + b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n\r\n", 403),
                             (b"GET / HTTP/1.1\r\n" + host + b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
                              b"Sec-Fetch-Dest: document\r\n\r\n", 200)):
            answer = self.server.send(data)
            self.assertRegex(answer[:20], f"^HTTP/1.1 {status} ".encode(), data[:80])
            self.assertEqual(b"\r\nAllow: GET, HEAD\r\n" in answer, status == 405)

    def test_fifty_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda i: self.server.get(("/plan", "/compare")[i % 2], {**SMALL, "schedules": "1f1b"}), range(50)))
        statuses = [status for status, _, _ in answers]
        self.assertLessEqual(set(statuses), {200, 503})
        self.assertGreater(statuses.count(200), 0)
        for status, headers, page in answers:
            self.assertEqual("Retry-After" in headers, status == 503)
            self.assertTrue(FORM.search(page))

    def test_connections_that_ask_nothing_end_and_keep_nobody_out(self):
        silent = [self.server.connect() for _ in range(256)]  # as many as it serves at once
        for i, connection in enumerate(silent):
            connection.sendall((b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n")[i % 4])
        self.assertEqual(self.server.get("/")[0], 200)
        for connection in silent:
            self.assertRegex(connection.recv(1 << 16), b"^HTTP/1.1 408 ")
            connection.close()

    def test_only_this_machine_is_listened_to(self):
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", self.server.port), timeout=HANGS)


class Ends(unittest.TestCase):
    def test_a_closed_tab_ends_its_work(self):
        with Served() as server:
            server.ask_and_stay("/plan", LONG).close()
            server.await_children(False)
            self.assertEqual(server.get("/")[0], 200)

    def test_an_answer_that_is_not_read_keeps_nobody_out(self):
        with Served() as server, server.ask_and_stay("/compare", SMALL):
            server.await_children(False)
            self.assertEqual(server.get("/compare", SMALL)[0], 200)

    def test_what_takes_too_long_is_ended(self):
        with Served("--time-limit", "1") as server:
            status, _, page = server.get("/plan", LONG)
            self.assertIn(status, (200, 503))
            self.assertTrue((b'"stopped":true' if status == 200 else b"took too long") in page)
            status, _, page = server.get("/compare", {**LONG, "cluster": "512xH100", "schedules": "all"})
            self.assertEqual(status, 503)
            self.assertTrue(b"took too long" in page)
            self.assertEqual(server.children(), [])

    def test_signals_end_it_and_its_work(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Served() as server, server.ask_and_stay("/plan", LONG):
                children = server.children()
                server.process.send_signal(number)
                _, told = server.process.communicate(timeout=HANGS)
                self.assertEqual((server.process.returncode, told), (0, ""))
                self.assertFalse([child for child in children if os.path.exists(f"/proc/{child}")])

    def test_a_killed_server_leaves_no_work(self):
        with Served() as server, server.ask_and_stay("/plan", LONG):
            children = server.children()
            server.process.kill()
            server.process.wait()
            while any(os.path.exists(f"/proc/{child}") for child in children):
                time.sleep(0.01)

    def test_a_port_that_is_taken(self):
        with Served() as server:
            done = subprocess.run([TAWPIPE, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=HANGS)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"^tawpipe: --port \d+ is taken by another program; give another, or 0 for any that is free[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
