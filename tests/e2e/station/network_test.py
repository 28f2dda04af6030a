#!/usr/bin/env python3
"""palpate-station and a server with a bad line between them: real sockets, delay, loss, and a second in which nothing passes.
usage: network_test.py STATION SERVER NETWORK_EMULATOR SCENE_FILE"""
import contextlib
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

STATION, SERVER, EMULATOR, SCENE = "", "", "", ""
SKIPPED = 77
TICK_BYTES = 192


@contextlib.contextmanager
def bad_line(*options):
    """Yields a function that sends a command to the emulator, and its two sides."""
    emulator = subprocess.Popen([EMULATOR, *map(str, options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def command(text):
        emulator.stdin.write(text + "\n")
        emulator.stdin.flush()

    try:
        yield command, json.loads(emulator.stdout.readline())
    finally:
        emulator.stdin.close()
        emulator.wait(timeout=30)


@contextlib.contextmanager
def server_at(side, folder):
    """A server in the namespace of `side`; yields its address."""
    ready = folder / "ready.json"
    with open(folder / "server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(["nsenter", f"--net={side['netns']}", SERVER, "--listen", f"{side['address']}:0", "--insecure", "--http", "off",
                                   "--scene", SCENE, "--ready-file", ready], stdout=log, stderr=log)
        try:
            while not ready.exists():
                if server.poll() is not None:
                    raise AssertionError((folder / "server.log").read_text())
                time.sleep(0.05)
            yield f"{side['address']}:{json.loads(ready.read_text())['grpc_port']}"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


def read_ticks(file):
    """(time_s, z_m, force_n along z) of each whole tick of a recording."""
    data = file.read_bytes() if file.exists() else b""
    ticks = []
    for offset in range(TICK_BYTES, len(data) - TICK_BYTES + 1, TICK_BYTES):
        numbers = struct.unpack_from("<3d", data, offset) + struct.unpack_from("<d", data, offset + 24) + struct.unpack_from("<3d", data, offset + 120)
        ticks.append((numbers[0], numbers[3], numbers[6]))
    return ticks


class NetworkTest(unittest.TestCase):
    def test_a_second_without_a_network_during_a_steady_press(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            recording, report_file = folder / "press.rec", folder / "report.json"
            with bad_line("--delay-ms", 10, "--jitter-ms", 2, "--loss-percent", 1) as (command, sides), server_at(sides["far"], folder) as address:
                # Presses, then holds as good as still (the hand's own small circle) until it is stopped.
                hand = f"record:{recording},inner=sim:script=palpate,spots=1,depth=0.004,max_force=2.5,dwell=60"
                station = subprocess.Popen(["nsenter", f"--net={sides['near']['netns']}", STATION, "--server", address, "--scene", "liver", "--tool", "probe",
                                            "--quiet", "--ramp", "0.2", "--report", report_file, "--device", hand])

                def wait_for_ticks(condition):
                    while not (ticks := read_ticks(recording)) or not condition(ticks):
                        self.assertIsNone(station.poll())
                        time.sleep(0.1)
                    return ticks

                # Two seconds of a force that has settled.
                wait_for_ticks(lambda ticks: len(ticks) > 2000 and min(tick[2] for tick in ticks[-2000:]) > 0.2)
                command("blackout on")
                begin_s = read_ticks(recording)[-1][0]
                wait_for_ticks(lambda ticks: ticks[-1][0] > begin_s + 1)
                command("blackout off")
                end_s = wait_for_ticks(lambda ticks: ticks[-1][0] > begin_s + 6)[-1][0]
                station.send_signal(signal.SIGINT)
                self.assertEqual(station.wait(timeout=60), 0)
            report = json.loads(report_file.read_text())
            ticks = [tick for tick in read_ticks(recording) if tick[0] <= end_s]
        self.assertEqual(report["reconnects"], 0)
        self.assertGreater(report["silence_max_s"], 0.8, "the blackout reached the station")
        mean = lambda begin, end: (lambda f: sum(f) / len(f))([force for time_s, _, force in ticks if begin <= time_s < end])
        before_n = mean(begin_s - 1, begin_s)
        # The spring that is held meanwhile holds the hand; afterwards it is as before.
        self.assertGreater(min(force for time_s, _, force in ticks if begin_s <= time_s < begin_s + 1), 0.5 * before_n)
        self.assertAlmostEqual(mean(end_s - 1, end_s), before_n, delta=0.25 * before_n)
        # No chatter: a relay between nothing and the full force would take steps of newtons. Of the ticks on time; a busy machine has others.
        after = [tick for tick in ticks if tick[0] >= begin_s]
        steps = sorted(abs(b[2] - a[2]) for a, b in zip(after, after[1:]) if b[0] - a[0] < 0.003)
        self.assertLess(steps[len(steps) * 98 // 100], 0.05)
        # Nor is the hand driven: its own circle exchanges a few tenths of a millijoule with the spring.
        given_j, work = 0.0, []
        for a, b in zip(after, after[1:]):
            given_j += a[2] * (b[1] - a[1])
            work.append((b[0], given_j))
        start = 0
        for i, (time_s, given) in enumerate(work):
            while work[start][0] < time_s - 1:
                start += 1
            self.assertLess(given - min(w for _, w in work[start:i + 1:10]), 0.004)


if __name__ == "__main__":
    STATION, SERVER, EMULATOR, SCENE = sys.argv[1:5]
    probe = subprocess.run([EMULATOR], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if probe.returncode == SKIPPED:
        print(f"SKIPPED: {probe.stderr.strip()}")
        sys.exit(SKIPPED)
    assert probe.returncode == 0, probe.stderr
    unittest.main(argv=sys.argv[:1], verbosity=2)
