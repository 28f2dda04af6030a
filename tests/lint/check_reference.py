#!/usr/bin/env python3
"""The reference of the API and of the Python package is complete and up to date: docs/reference/generate.py."""
import importlib.util

import lint_common

GENERATOR = "docs/reference/generate.py"


def generator():
    spec = importlib.util.spec_from_file_location("generate", lint_common.ROOT / GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(root, files):
    generate = generator()
    try:
        made = generate.pages(root)
    except generate.Problem as problem:
        yield from str(problem).splitlines()
        return
    for name, text in made.items():
        if name not in files or (root / name).read_text(encoding="utf-8") != text:
            yield f"{name}:1: not up to date; run {GENERATOR}"


PROTO = "// A thing.\nmessage Thing {\n  double length_m = 1;\n  Thing other = 2;\n}\n"
MODULE = '"""Frames."""\n\n\nclass Frame:\n    """One."""\n\n    def step(self):\n        """Count."""\n'


def up_to_date(proto=PROTO, module=MODULE):
    """A checkout with these sources and the pages that belong to PROTO and MODULE."""
    import pathlib
    import tempfile

    sources = {"proto/palpate/v1/scene.proto": PROTO, "clients/python/palpate/frames.py": MODULE}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, content in sources.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        pages = generator().pages(root)
    return {**sources, **pages, "proto/palpate/v1/scene.proto": proto, "clients/python/palpate/frames.py": module}


SELF_TESTS = [
    (up_to_date(), None),
    (up_to_date(proto=PROTO.replace("A thing", "Another")), "docs/reference/api.md:1: not up to date"),
    (up_to_date(proto=PROTO.replace("// A thing.\n", "")), "scene.proto:1: message Thing says nothing of itself"),
    (up_to_date(proto=PROTO.replace("length_m", "size")), "scene.proto:3: field size of Thing says nothing of itself"),
    (up_to_date(proto=PROTO + "// S.\nservice S {\n  rpc Do(Thing) returns (stream Thing);\n}\n"), "call Do says nothing of itself"),
    (up_to_date(module=MODULE.replace('"""Count."""', "return 1")), "frames.py:7: Frame.step has no docstring"),
    (up_to_date(module=MODULE.replace('    """One."""\n', "")), "class Frame has no docstring"),
    (up_to_date(module=MODULE.replace("Count", "Counts")), "docs/reference/python.md:1: not up to date"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
