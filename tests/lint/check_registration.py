#!/usr/bin/env python3
"""Everything that looks like a test is run: each CMake folder under tests/ and bench/ is entered, each test source is named by its CMakeLists.txt.

A test in C++ has a namespace of its own, palpate::...::NAME_test, since files are compiled in batches.
"""
import pathlib
import re

import lint_common

SUBDIRECTORY = re.compile(r"add_subdirectory\(\s*([\w/.-]+)")
NAMESPACE = re.compile(r"^namespace (palpate[\w:]*) \{", re.MULTILINE)
TEST_FILE = re.compile(r"(_test\.(cc|py|sh|mjs|ts)|_fuzz(er)?\.cc|^fuzz_\w+\.cc|^check_\w+\.py|_bench\.cc)$")


def check(root, files):
    lists = {str(pathlib.PurePosixPath(name).parent) for name in files if name.endswith("CMakeLists.txt")}
    for top in ("tests", "bench"):
        reached = set()
        pending = [top] if top in lists else []
        while pending:
            folder = pending.pop()
            reached.add(folder)
            text = without_comments((root / folder / "CMakeLists.txt").read_text(encoding="utf-8"))
            for target in SUBDIRECTORY.findall(text):
                pending += [f"{folder}/{target}"] if f"{folder}/{target}" in lists else []
        for folder in sorted(f for f in lists if f == top or f.startswith(top + "/")):
            if folder not in reached:
                yield f"{folder}/CMakeLists.txt:1: no add_subdirectory leads here"
    for name in files:
        path = pathlib.PurePosixPath(name)
        if path.parts[0] not in ("tests", "bench") or not TEST_FILE.search(path.name):
            continue
        if not named_by_cmake(root, path, lists):
            yield f"{name}:1: no CMakeLists.txt names this test"
        if path.name.endswith("_test.cc"):
            namespaces = NAMESPACE.findall((root / name).read_text(encoding="utf-8"))
            if namespaces and not namespaces[-1].endswith(f"::{path.stem}"):
                yield f"{name}:1: what is in this file belongs into a namespace {namespaces[-1]}::{path.stem}"


def named_by_cmake(root, path, lists):
    """Whether the CMakeLists.txt of the file's folder, or of a folder above, names it, by its name, by its stem or by a pattern."""
    for folder in path.parents:
        if str(folder) not in lists:
            continue
        text = without_comments((root / folder / "CMakeLists.txt").read_text(encoding="utf-8"))
        relative = path.relative_to(folder).as_posix()
        stem = re.sub(r"\.\w+$", "", relative)
        if re.search(r"(?<![\w/])" + re.escape(stem) + r"(?![\w])", text):
            return True
        # foreach(name IN ITEMS reduce scan) with ${name}_test.cc
        for pattern in re.findall(r"([\w/]*)\$\{\w+\}([\w/]*\.(?:cc|py|sh|mjs|ts))", text):
            prefix, suffix = pattern
            if relative.startswith(prefix) and relative.endswith(suffix):
                middle = relative[len(prefix):len(relative) - len(suffix)]
                if middle and re.search(r"(?<![\w/])" + re.escape(middle) + r"(?!\w)", text):
                    return True
    return False


def without_comments(text):
    return re.sub(r"#.*", "", text).replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")


TOP = {"tests/CMakeLists.txt": "add_subdirectory(a)\n"}
SELF_TESTS = [
    ({**TOP, "tests/a/CMakeLists.txt": "palpate_test(x SRCS x_test.cc)\n", "tests/a/x_test.cc": ""}, None),
    ({**TOP, "tests/a/CMakeLists.txt": "foreach(n IN ITEMS x y)\n  palpate_test(${n} SRCS ${n}_test.cc)\nendforeach()\n", "tests/a/y_test.cc": ""}, None),
    ({**TOP, "tests/a/CMakeLists.txt": "foreach(n IN ITEMS x)\n  palpate_test(${n} SRCS ${n}_test.cc)\nendforeach()\n", "tests/a/y_test.cc": ""},
     "tests/a/y_test.cc:1: no CMakeLists.txt names this test"),
    ({**TOP, "tests/a/CMakeLists.txt": "foreach(n IN ITEMS x)\n  add_test(NAME ${n} COMMAND \"${CMAKE_CURRENT_SOURCE_DIR}/check_${n}.py\")\nendforeach()\n", "tests/a/check_x.py": ""}, None),
    ({**TOP, "tests/a/CMakeLists.txt": "# x_test.cc\n", "tests/a/x_test.cc": ""}, "no CMakeLists.txt names this test"),
    ({**TOP, "tests/a/CMakeLists.txt": "", "tests/b/CMakeLists.txt": ""}, "tests/b/CMakeLists.txt:1: no add_subdirectory leads here"),
    ({**TOP, "tests/a/CMakeLists.txt": "palpate_test(x SRCS xx_test.cc)\n", "tests/a/x_test.cc": "", "tests/a/xx_test.cc": ""}, "tests/a/x_test.cc"),
    ({**TOP, "tests/a/CMakeLists.txt": "palpate_test(x SRCS x_test.cc)\n", "tests/a/x_test.cc": "namespace palpate::a::x_test {\n"}, None),
    ({**TOP, "tests/a/CMakeLists.txt": "palpate_test(x SRCS x_test.cc)\n", "tests/a/x_test.cc": "namespace palpate::a {\n"}, "a namespace palpate::a::x_test"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
