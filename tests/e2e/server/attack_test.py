#!/usr/bin/env python3
"""The palpate-server program under clients that mean it harm, or hang: floods of connections, uploads that stall, compressed zeros, foreign pages, a log
that nobody reads. usage: attack_test.py PALPATE PALPATE_SERVER"""
import base64
import fcntl
import gzip
import http.client
import json
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PALPATE, SERVER = "", ""
MIB = 1 << 20
PATIENCE_S = 120  # only a failure takes so long
# Frame types and flags of HTTP/2, RFC 9113.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_HEADERS, ACK = 4, 1


def eventually(condition):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Server:
    def __init__(self, folder, *arguments, descriptors=None, stderr=None):
        self.folder = pathlib.Path(folder)
        self.log = open(self.folder / "server.log", "w+", encoding="utf-8")
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)

        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.process = subprocess.Popen([SERVER, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready, *arguments],
                                        preexec_fn=limit if descriptors else None, stdout=self.log, stderr=stderr or self.log)
        if not eventually(lambda: ready.exists() or self.process.poll() is not None) or not ready.exists():
            self.process.kill()
            words = self.words()
            self.log.close()
            raise AssertionError("the server did not start: " + words)
        ports = json.loads(ready.read_text())
        self.grpc_port, self.http_port = ports["grpc_port"], ports["http_port"]

    def words(self):
        self.log.flush()
        return (self.folder / "server.log").read_text()

    def cli(self, *arguments, timeout_s=20):
        return subprocess.run([PALPATE, "--server", f"127.0.0.1:{self.grpc_port}", "--timeout", str(timeout_s), *map(str, arguments)],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def answers(self):
        return self.cli("server-info").returncode == 0

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.grpc_port), timeout=PATIENCE_S)

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        connection.request("GET", path, headers=headers)
        try:
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def peak_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=PATIENCE_S)
        finally:
            self.process.kill()
            self.log.close()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header field in HPACK's plainest form: neither indexed nor compressed."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class Upload:
    """One call whose request is sent as far as the server takes it, within HTTP/2's flow control, and never finished."""

    def __init__(self, server, path, message_bytes, headers=()):
        self.socket = server.connect()
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"), ("content-type", "application/grpc"),
                  ("te", "trailers"), *headers]
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, b"".join(literal(*f) for f in fields)))
        self.left = message_bytes - 1  # the last byte never comes
        self.windows = {0: 65535, 1: 65535}
        self.initial_window = 65535
        self.ended = False
        self.buffer = b""
        self.prefix = struct.pack(">BI", 0, message_bytes)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.ended = True

    def step(self):
        """Sends what the windows allow. False: there is nothing to do until the server says something."""
        count = min(self.left, self.windows[0], self.windows[1], 16384 - len(self.prefix))
        if self.ended or count <= 0:
            return False
        self.send(frame(DATA, 0, 1, self.prefix + bytes(count)))
        for window in self.windows:
            self.windows[window] -= count + len(self.prefix)
        self.prefix = b""
        self.left -= count
        return True

    def listen(self):
        try:
            data = self.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self.buffer += data
        while len(self.buffer) >= 9 and len(self.buffer) >= 9 + int.from_bytes(self.buffer[:3], "big"):
            size = int.from_bytes(self.buffer[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            if kind == WINDOW_UPDATE and stream in self.windows:
                self.windows[stream] += struct.unpack(">I", payload)[0]
            elif kind == SETTINGS and not flags & ACK:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == 4:
                        self.windows[1] += value - self.initial_window
                        self.initial_window = value
                self.send(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, payload))
            elif kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & 1):
                self.ended = True


def push(uploads, quiet_s):
    """Sends all uploads as far as they go: to their last byte but one, their end, or until the server has granted nothing for a while."""
    last = time.monotonic()
    while time.monotonic() - last < quiet_s and any(upload.left > 0 and not upload.ended for upload in uploads):
        alive = [upload for upload in uploads if not upload.ended]
        moved = any([upload.step() for upload in alive])
        readable = select.select([upload.socket for upload in alive if not upload.ended], [], [], 0 if moved else 0.1)[0] if alive else []
        for upload in alive:
            if upload.socket in readable:
                upload.listen()
        if moved:
            last = time.monotonic()


class AttackTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def start(self, *arguments, **settings):
        server = Server(self.folder, *arguments, **settings)
        self.addCleanup(server.process.kill)
        return server

    def upload(self, *arguments):
        upload = Upload(*arguments)
        self.addCleanup(upload.socket.close)
        return upload

    def token_file(self):
        path = self.folder / "token"
        path.write_text("open-sesame\n")
        return path

    # --- connections

    def test_idle_connections_do_not_take_the_port(self):
        server = self.start(descriptors=256)
        flood = [server.connect() for _ in range(600)]
        self.assertTrue(server.answers(), "a new client beside 600 idle connections")
        self.assertEqual(server.get("/healthz")[0], 200)
        for one in flood:
            one.close()
        self.assertTrue(server.answers(), "a new client after 600 idle connections")
        self.assertEqual(server.get("/healthz")[0], 200)
        # The other port takes fewer at once, the rest waits in the system.
        flood = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(100)]
        self.assertTrue(server.answers())
        for one in flood:
            one.close()
        self.assertEqual(server.get("/healthz")[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_health_tells_when_nobody_new_is_let_in(self):
        server = self.start("--max-connections", "8")
        # Connections that have just shown life are not closed to make room.
        held = [self.upload(server, "/palpate.v1.SceneService/GetServerInfo", 100) for _ in range(8)]
        self.assertTrue(eventually(lambda: server.get("/healthz")[0] == 503))
        self.assertIn("8 connections", server.get("/healthz")[1])
        for one in held:
            one.socket.close()
        self.assertTrue(eventually(lambda: server.get("/healthz")[0] == 200))
        self.assertEqual(server.stop(), 0)

    def test_too_few_descriptors_are_an_error(self):
        with self.assertRaisesRegex(AssertionError, "--max-connections: 1000 connections need a limit of"):
            self.start("--max-connections", "1000", descriptors=256)

    # --- memory

    def test_stalled_uploads_without_the_token_hold_no_memory(self):
        server = self.start("--token-file", self.token_file())
        before = server.peak_bytes()
        uploads = [self.upload(server, "/palpate.v1.SceneService/CreateScene", 16 * MIB) for _ in range(40)]
        uploads += [self.upload(server, "/palpate.v1.StreamService/Watch", 16 * MIB) for _ in range(2)]
        push(uploads, quiet_s=2)
        self.assertLess(server.peak_bytes() - before, 100 * MIB)
        self.assertTrue(all(upload.ended for upload in uploads))
        self.assertEqual(server.stop(), 0)

    def test_stalled_uploads_are_bounded_and_end(self):
        server = self.start("--max-buffer-bytes", str(64 * MIB), "--upload-timeout-s", "3")
        before = server.peak_bytes()
        paths = ["/palpate.v1.SceneService/CreateScene", "/palpate.v1.EditService/EditScene", "/palpate.v1.StreamService/Watch",
                 "/grpc.health.v1.Health/Check"]
        uploads = [self.upload(server, paths[i % len(paths)], 16 * MIB) for i in range(40)]
        push(uploads, quiet_s=2)
        self.assertLess(server.peak_bytes() - before, 256 * MIB)

        def all_ended():
            open_ones = [upload for upload in uploads if not upload.ended]
            for upload in select.select([upload.socket for upload in open_ones], [], [], 0.1)[0] if open_ones else []:
                next(one for one in open_ones if one.socket is upload).listen()
            return not open_ones

        self.assertTrue(eventually(all_ended), "a call whose request does not come ends")
        self.assertTrue(server.answers())
        self.assertEqual(server.stop(), 0)

    def test_compressed_requests_are_not_unpacked(self):
        server = self.start("--max-message-bytes", str(1 << 30))
        before = server.peak_bytes()
        packed = gzip.compress(bytes(400 * MIB), 1)
        upload = self.upload(server, "/palpate.v1.SceneService/CreateScene", len(packed) + 1, [("grpc-encoding", "gzip")])
        message = struct.pack(">BI", 1, len(packed)) + packed
        upload.left = 0
        while message and not upload.ended:
            count = min(len(message), upload.windows[0], upload.windows[1], 16384)
            if count > 0:
                upload.send(frame(DATA, 0 if count < len(message) else 1, 1, message[:count]))
                message = message[count:]
                for window in upload.windows:
                    upload.windows[window] -= count
            if count <= 0 or select.select([upload.socket], [], [], 0)[0]:
                upload.listen()
        self.assertTrue(eventually(lambda: upload.ended or upload.listen() or upload.ended))
        self.assertLess(server.peak_bytes() - before, 100 * MIB)
        self.assertTrue(server.answers())
        self.assertEqual(server.stop(), 0)

    # --- foreign pages

    def test_pages_under_a_foreign_name_reach_nothing(self):
        # As in the container: on every address, without TLS.
        server = self.start("--http", "0.0.0.0:0", "--insecure", "--allowed-host", "sim.example.org")
        for path in ("/", "/healthz", "/metrics", "/ws"):
            status, text = server.get(path, Host=f"rebound.example.net:{server.http_port}")
            self.assertEqual(status, 403, path)
            self.assertIn("--allowed-host rebound.example.net", text)
        for host in ("localhost", "127.0.0.1", "192.168.7.7", "[::1]", "sim.example.org", socket.gethostname()):
            self.assertEqual(server.get("/healthz", Host=f"{host}:{server.http_port}")[0], 200, host)
        self.assertEqual(self.handshake(server, "rebound.example.net:80", Origin="http://rebound.example.net:80"), 403)
        self.assertEqual(self.handshake(server, "sim.example.org:80", Origin="http://sim.example.org:80"), 101)
        self.assertEqual(server.stop(), 0)

    def handshake(self, server, host, **headers):
        connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S)
        self.addCleanup(connection.close)
        lines = [f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                 *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        connection.sendall(("GET /ws HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = connection.recv(4096)
            if not data:
                break
            answer += data
        return int(answer.split(b" ")[1]) if answer else 0

    def test_the_viewer_wants_the_token(self):
        (self.folder / "web").mkdir()
        (self.folder / "web" / "index.html").write_text("the viewer")
        server = self.start("--token-file", self.token_file(), "--web-root", self.folder / "web")
        host = f"127.0.0.1:{server.http_port}"

        def protocols(token):
            return "palpate.v1, token." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")

        self.assertEqual(server.get("/"), (200, "the viewer"))
        self.assertEqual(server.get("/auth")[0], 401)
        self.assertEqual(server.get("/auth", Authorization="Bearer open-sesame")[0], 204)
        self.assertEqual(self.handshake(server, host), 401)
        self.assertEqual(self.handshake(server, host, Sec_WebSocket_Protocol=protocols("open-sesam")), 401)
        self.assertEqual(self.handshake(server, host, Sec_WebSocket_Protocol=protocols("open-sesame")), 101)
        self.assertEqual(self.handshake(server, host, Authorization="Bearer open-sesame"), 101)
        for _ in range(10):
            server.get("/auth", Authorization="Bearer guess")
        self.assertEqual(server.get("/auth", Authorization="Bearer open-sesame")[0], 429)
        self.assertEqual(server.stop(), 0)

    # --- long work

    def test_a_signal_stops_a_server_in_the_middle_of_long_edits(self):
        scene = self.folder / "block.json"
        scene.write_text(json.dumps({"bodies": [{"name": "block", "generator": {"slab": {"size_m": {"x": 0.2, "y": 0.1, "z": 0.05}}, "edge_length_m": 0.005}}]}))
        server = self.start("--scene", scene)
        version = lambda: int(json.loads(server.cli("--json", "watch", "block", "--frames", 1).stdout.splitlines()[-1])["topology_version"])
        before = version()
        file = self.folder / "edits.json"
        file.write_text(json.dumps({"edits": [{"body": "block", "incise": {"edges": [
            {"end0_m": {"x": x, "y": y, "z": -0.01}, "end1_m": {"x": x + 0.0001, "y": y, "z": 0.06}} for y in (-0.06, -0.02, 0.02, 0.06)]}}
            for x in (-0.099 + 0.198 * i / 255 for i in range(256))]}))
        asking = subprocess.Popen([PALPATE, "--server", f"127.0.0.1:{server.grpc_port}", "edit", "block", "--file", file], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.addCleanup(asking.kill)
        self.assertTrue(eventually(lambda: version() > before), asking.poll())
        self.assertIsNone(asking.poll(), "the edits were over before the signal came")
        server.process.send_signal(signal.SIGTERM)
        # Four times the limit that the server sets itself. Finishing the edits would take longer.
        self.assertEqual(server.process.wait(timeout=32), 0, server.words())
        self.assertNotEqual(asking.communicate(timeout=PATIENCE_S)[1], "")
        self.assertNotEqual(asking.returncode, 0)

    # --- logs

    def test_a_log_that_nobody_reads_stops_nothing(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            while True:
                os.write(writer, bytes(4096))
        except BlockingIOError:
            pass
        fcntl.fcntl(writer, fcntl.F_SETFL, 0)
        server = self.start("--log-level", "debug", stderr=writer)
        os.close(writer)
        self.assertTrue(server.answers())
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    PALPATE, SERVER = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
