#!/usr/bin/env python3
"""C++ and OpenCL sources look as clang-format 14 with the repository's .clang-format writes them."""
import re
import shutil
import subprocess

import lint_common

TOOL = shutil.which("clang-format-14") or shutil.which("clang-format")


def check(root, files):
    if TOOL is None:
        yield "clang-format is not installed (Debian package clang-format)"
        return
    names = [name for name in files if name.endswith((".h", ".cc"))]
    if not names:
        return
    run = subprocess.run([TOOL, "--dry-run", "-Werror", *names], cwd=root, capture_output=True, text=True)
    seen = set()
    for line in run.stderr.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: error: (.*)", line)
        if match and match.group(1) not in seen:  # the first place in each file is enough
            seen.add(match.group(1))
            yield f"{match.group(1)}:{match.group(2)}: not formatted; run clang-format -i {match.group(1)}"
    if run.returncode != 0 and not seen:
        yield f"clang-format failed: {run.stderr.strip()}"


STYLE = "BasedOnStyle: Google\nColumnLimit: 140\n"
SELF_TESTS = [
    ({".clang-format": STYLE, "a.cc": "int main() { return 0; }\n"}, None),
    ({".clang-format": STYLE, "a.cc": "int main( ){return 0;}\nint  x ;\n"}, "a.cc:1: not formatted"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
