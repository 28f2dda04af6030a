#!/usr/bin/env python3
"""A server with --state-dir is killed again and again, at random moments: while it steps, edits, writes checkpoints, and while its disk is full.
No answered edit is lost or done twice, each start has the scene back, and the whole past plays again to the last bit.

usage: kills_test.py SERVER CLI [KILLS [SEED]]"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

import palpate

SIZE_LIMIT_KIB = 4  # of each file, in the rounds with a disk that is full
STATE_FLAGS = ("--checkpoint-interval-s", "0", "--checkpoint-steps", "40", "--max-state-bytes", str(64 << 20), "--sync-interval-s", "0.01")


def scene():
    return (palpate.SceneBuilder("kills").body("slab", "slab", {"size_m": (0.06, 0.06, 0.03)}, edge_length_m=0.008,
                                               material={"young_modulus_pa": 10000, "poisson_ratio": 0.4})
            .fixed_below(-0.0149).tool("probe", (0, 0, 0.04), radius_m=0.004, drive="direct"))


class Surgeon:
    """Steps and edits a scene until its server is gone, and remembers what it was told."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.answered = {}  # key -> (edits, answer)
        self.unknown = None  # (key, edits) of the request whose answer never came
        self.last_step = 0
        self.refusals = 0
        self.is_at_work = threading.Event()  # a step of this life of the server was answered

    def edits(self):
        kind = self.random.randrange(3)
        place = [self.random.uniform(-0.025, 0.025), self.random.uniform(-0.025, 0.025), self.random.uniform(0.005, 0.015)]
        if kind == 0:
            region = {"ball": {"center_m": vector(place), "radius_m": 0.004}}
            return [{"body": "slab", "carve": {"region": region}}]
        if kind == 1:
            return [{"body": "slab", "material": {"material": {"young_modulus_pa": self.random.uniform(5000, 20000)}}}]
        blades = [{"end0_m": vector([place[0] + s, place[1] - 0.006, place[2]]), "end1_m": vector([place[0] + s, place[1] + 0.006, 0.02])}
                  for s in (0, 0.008)]
        return [{"body": "slab", "incise": {"edges": blades}}]

    def work(self, operated):
        try:
            while True:
                pose = (self.random.uniform(-0.02, 0.02), self.random.uniform(-0.02, 0.02), self.random.uniform(0.012, 0.03))
                self.last_step = operated.step(self.random.randrange(1, 5), poses={"probe": pose}).step
                self.is_at_work.set()
                key, edits = f"{self.random.getrandbits(64):016x}", self.edits()
                self.unknown = (key, edits)
                try:
                    self.answered[key] = (edits, operated.edit(edits, key=key))
                except palpate.ResourceExhausted:
                    self.refusals += 1  # the disk is full: told, and nothing was done or the answer is to be asked for again
                self.unknown = None
        except palpate.PalpateError:
            pass  # the server is gone

    def check(self, operated, sample):
        """Every answer, or a sample of them, is still known, and the one that never came is given once."""
        keys = list(self.answered)
        for key in keys if len(keys) <= sample else self.random.sample(keys, sample - 3) + keys[-3:]:
            edits, answer = self.answered[key]
            again = operated.edit(edits, key=key)
            assert again.is_repeat, f"edit {key} was lost"
            again.is_repeat = False
            assert again == answer, f"edit {key} has another answer now"
        if self.unknown:
            key, edits = self.unknown
            self.unknown = None
            self.answered[key] = (edits, operated.edit(edits, key=key))
            self.answered[key][1].is_repeat = False


def vector(values):
    return dict(zip("xyz", values))


def limited(program, folder):
    """The server on a disk that is full: no file may grow beyond a limit."""
    script = pathlib.Path(folder) / "limited"
    script.write_text(f'#!/bin/bash\nulimit -f {SIZE_LIMIT_KIB}\nexec "{program}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script


def compile_kernels(program):
    """Once in the cache they need no files: a driver that cannot write one ends its process, which has nothing to do with the state."""
    os.environ.pop("PALPATE_PROGRAM_BINARIES", None)
    with palpate.launch(program=program) as server, server.create(scene()) as warm:
        surgeon, kinds = Surgeon(0), set()
        while len(kinds) < 3:
            warm.step(3, poses={"probe": (0, 0, 0.014)})
            edits = surgeon.edits()
            kinds.update(set(edits[0]) - {"body"})
            warm.edit(edits)
        warm.step(3, poses={"probe": (0, 0, 0.014)})


def main():
    program, cli = sys.argv[1:3]
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 120
    surgeon = Surgeon(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    compile_kernels(program)
    with tempfile.TemporaryDirectory(prefix="palpate-kills-") as folder:
        state = pathlib.Path(folder) / "state"
        programs = {False: program, True: limited(program, folder)}
        steps = 0
        full_rounds = 0
        for kill in range(kills):
            is_full = kill % 10 == 7
            with palpate.launch(program=programs[is_full], state_dir=state, arguments=STATE_FLAGS, patience_s=0.2) as server:
                if kill == 0:
                    server.create(scene(), scene_id="kills")
                found = server.scene("kills")
                step = found.info().step
                assert "recovery differs" not in server.log(), server.log()
                assert step <= surgeon.last_step + 1000 and found.info().state != 3, found.info().failure
                if not is_full:
                    surgeon.check(found, 8 if kill + 1 < kills else 10 ** 9)
                worker = threading.Thread(target=surgeon.work, args=(server.scene("kills"),))
                surgeon.is_at_work.clear()
                worker.start()
                if kill % 5 != 2:  # the others are killed at their start
                    surgeon.is_at_work.wait(60)
                time.sleep(surgeon.random.uniform(0.0, 0.12) + (0.3 if is_full else 0))
                if is_full:
                    full_rounds += bool(found.info().durability)
                server.kill()
                worker.join()
                steps = max(steps, surgeon.last_step)
        assert len(surgeon.answered) > kills / 4, f"only {len(surgeon.answered)} edits were answered"
        assert kills < 50 or full_rounds > 0, "the disk was never full"
        with palpate.launch(program=program, state_dir=state, arguments=STATE_FLAGS) as server:
            found = server.scene("kills")
            assert "recovery differs" not in server.log(), server.log()
            surgeon.check(found, 10 ** 9)
            recorder = found.record(f"{folder}/all.plrec", from_begin=True, until_step=found.info().step + 1)
            final = found.step(1)
            recorder.wait()
        played = subprocess.run([cli, "replay", "--headless", "--fast", f"{folder}/all.plrec"], capture_output=True, check=False, text=True)
        assert played.returncode == 0, played.stderr
    print(f"{kills} kills, {len(surgeon.answered)} edits kept, {surgeon.refusals} refused on a full disk ({full_rounds} rounds), "
          f"{final.step} steps play again alike")


if __name__ == "__main__":
    main()
