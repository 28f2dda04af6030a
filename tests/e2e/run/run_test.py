#!/usr/bin/env python3
"""What `./run` does before it builds anything, with stand-ins for the programs that it asks. usage: run_test.py ROOT"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # A checkout whose ./run may do what it likes: links to the files that it reads, no build folder.
        self.checkout = self.folder / "checkout"
        (self.checkout / "clients/web/scripts").mkdir(parents=True)
        (self.checkout / "deploy").mkdir()
        for name in ("run", "deploy/packages.txt", "clients/web/package.json", "clients/web/scripts/check_node.cjs"):
            shutil.copy(ROOT / name, self.checkout / name)
        self.programs = self.folder / "bin"
        self.programs.mkdir()

    def stand_in(self, name, script):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_it(self, *arguments, path=None, **environment):
        path = path or f"{self.programs}:{os.environ['PATH']}"
        return subprocess.run([self.checkout / "run", *arguments], env={**os.environ, "PATH": path, "PALPATE_SKIP_PACKAGES": "1", **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def test_a_node_that_is_too_old_is_refused_with_a_sentence(self):
        need = json.loads((ROOT / "clients/web/package.json").read_text(encoding="utf-8"))["engines"]["node"].removeprefix(">=")
        # The program takes the version that it judges as an argument.
        self.stand_in("node", f'exec "{shutil.which("node")}" "$@" 16.20.2')
        self.stand_in("npm", "exit 9")
        for command in ("build", "test", "demo"):
            result = self.run_it(command)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"run: the viewer needs Node.js {need} or later, found 16.20.2. Debian 12 has it", result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_a_missing_node_or_npm_is_named(self):
        for name in ("bash", "readlink", "dirname"):
            self.stand_in(name, f'exec "{shutil.which(name)}" "$@"')
        result = self.run_it("build", path=str(self.programs))
        self.assertEqual((result.returncode, "there is no node" in result.stderr), (2, True), result.stderr)
        self.stand_in("node", "exit 9")
        result = self.run_it("build", path=str(self.programs))
        self.assertEqual((result.returncode, "there is no npm" in result.stderr), (2, True), result.stderr)

    def test_each_command_asks_for_the_packages_of_what_it_does(self):
        asked = self.folder / "asked"
        self.stand_in("id", "echo 0")
        self.stand_in("dpkg", "exit 0")
        self.stand_in("dpkg-query", "exit 0")  # nothing is installed
        self.stand_in("apt-get", f'case "$*" in *--simulate*) echo "$@" >>"{asked}"; echo "E: no" >&2; exit 100 ;; esac')
        for command, wanted, unwanted in (("test", {"cmake", "chromium", "pocl-opencl-icd", "libfcl-dev", "libbullet-dev", "slurmd", "podman"}, set()),
                                          ("demo", {"cmake", "pocl-opencl-icd"}, {"libfcl-dev", "prometheus", "slurmd", "podman"})):
            asked.write_text("", encoding="utf-8")
            # Programs that stand in for packages are on the path or not, as the machine has them.
            result = self.run_it(command, PALPATE_SKIP_PACKAGES="0")
            self.assertEqual(result.returncode, 2, result.stderr)
            packages = set(asked.read_text(encoding="utf-8").split()) | {p for p in ("chromium", "prometheus") if command == "test" and shutil.which(p)}
            self.assertLessEqual(wanted, packages)
            self.assertFalse(unwanted & packages)


class PresetsTest(unittest.TestCase):
    def test_warnings_are_errors_for_developers_only(self):
        presets = {p["name"]: p for p in json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]}

        def is_strict(name):
            preset = presets[name]
            above = preset.get("inherits", [])
            own = preset.get("cacheVariables", {}).get("CMAKE_COMPILE_WARNING_AS_ERROR", False)
            return bool(own) or any(is_strict(n) for n in ([above] if isinstance(above, str) else above))

        strict = {name for name, preset in presets.items() if not preset.get("hidden") and is_strict(name)}
        self.assertEqual(strict, {"dev", "clang", "asan", "tsan"})
        for path in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake"), *ROOT.glob("*/**/CMakeLists.txt")]:
            if not {"build", "node_modules"} & set(path.relative_to(ROOT).parts):
                self.assertIsNone(re.search(r"-Werror\b", path.read_text(encoding="utf-8")), path)
        self.assertIn("PALPATE_WARNINGS_AS_ERRORS=1", (ROOT / ".ci/run").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
