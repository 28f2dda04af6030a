#!/usr/bin/env python3
"""palpate verify tissue: its report has all cases, and each number passes. usage: verify_tissue_test.py PALPATE"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

PALPATE = ""
# Numbers of each case.
CASES = {"E1": 48, "E2": 10, "E3": 2, "E4": 4, "E8": 21, "E9": 4, "E10": 52, "E13": 23, "E14": 7, "P1": 2, "T1": 3, "T2": 1, "T6": 4}
FIELDS = {"id": str, "what": str, "expected": (int, float), "got": (int, float), "error": (int, float), "tolerance": (int, float), "pass": bool}
USAGE = 2


class VerifyTissueTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_cli(self, *arguments, timeout):
        return subprocess.run([PALPATE, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def test_the_report_has_every_case(self):
        path = self.folder / "report.json"
        result = self.run_cli("verify", "tissue", "--report", path, timeout=900)
        failed = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
        self.assertEqual((result.returncode, failed), (0, []), result.stderr)
        self.assertEqual([entry.name for entry in self.folder.iterdir()], [path.name], "nothing else is left behind")
        report = json.loads(path.read_text())
        self.assertTrue(report["version"] and report["commit"] and report["device"])
        checks = report["checks"]
        counts = {}
        for check in checks:
            counts[check["id"]] = counts.get(check["id"], 0) + 1
            self.assertEqual(set(check), set(FIELDS))
            for field, kind in FIELDS.items():
                self.assertIsInstance(check[field], kind, f"{field} of {check}")
            self.assertTrue(check["what"], check)
            self.assertGreater(check["tolerance"], 0, check)
            self.assertTrue(math.isclose(check["error"], abs(check["got"] - check["expected"]), rel_tol=1e-9), check)
            self.assertEqual(check["pass"], check["error"] <= check["tolerance"], check)
            # What is expected to be something may not pass as nothing.
            self.assertTrue(check["expected"] == 0 or check["tolerance"] < 0.05 * abs(check["expected"]), check)
        self.assertEqual(counts, CASES)
        self.assertEqual(len({check["what"] for check in checks}), len(checks), "each number has a name of its own")
        self.assertEqual((report["passed"], report["failed"]), (sum(check["pass"] for check in checks), 0))
        # Measured: floats of a simulation hit next to no expected value exactly.
        self.assertLess(sum(check["got"] == check["expected"] for check in checks), len(checks) / 4)

    def test_a_report_that_cannot_be_written_is_refused_at_once(self):
        for path in (self.folder / "missing" / "report.json", self.folder):
            result = self.run_cli("verify", "tissue", "--report", path, timeout=20)
            self.assertEqual(result.returncode, USAGE, result.stdout + result.stderr)
            self.assertIn("cannot be written", result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertNotIn("server: starting", result.stderr)


if __name__ == "__main__":
    PALPATE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
