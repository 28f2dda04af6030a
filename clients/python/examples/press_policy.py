#!/usr/bin/env python3
"""A policy of a job: lowers a probe until the tissue pushes back with a given force, holds it there for a while, and ends the job.

    palpate job run clients/python/examples/press_policy.json
"""
import sys

from palpate import policy

TARGET_N = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
SPEED_M_PER_S, COMPLIANCE_M_PER_N, HOLD_S = 0.02, 0.0005, 0.3


class Press:
    """A force controller: as fast as it may, slower near the target."""

    def begin(self, setup):
        self.place = setup.tools["probe"].position_m.copy()
        self.reached_s = None

    def decide(self, now):
        missing_n = TARGET_N - now.vector("tool.probe.force")[2]
        if abs(missing_n) > 0.02 * TARGET_N:
            self.reached_s = None
        elif self.reached_s is None:
            self.reached_s = now.time_s
            print(f"{TARGET_N} N at {now.time_s:.3f} s")  # goes to policy.log
        elif now.time_s - self.reached_s >= HOLD_S:
            return policy.Answer(stop=True, reason=f"held {TARGET_N} N for {HOLD_S} s")
        reach = SPEED_M_PER_S * now.setup.interval_s
        self.place[2] -= max(-reach, min(reach, COMPLIANCE_M_PER_N * missing_n))
        return {"probe": self.place}


press = Press()
policy.run(press.decide, press.begin)
