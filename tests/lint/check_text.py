#!/usr/bin/env python3
"""No path of somebody's machine, no unfinished business and no merge marker in a tracked file; names and code are ASCII."""
import re

import lint_common

# Written in pieces, so that this file passes its own check.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
HOME = re.compile(r"(?<![\w.$}/-])/(?:ho" + r"me|ro" + r"ot|Us" + r"ers|wo" + r"rk|m" + r"nt|mo" + r"unt)/\w|\b[A-Z]:\\\\?Us" + r"ers")
MERGE = re.compile(r"^(<{7} |>{7} |={7}$)")
NOT_ASCII = re.compile(r"[^\x00-\x7f]")
CODE = (".h", ".cc", ".cl", ".clh", ".c", ".py", ".proto", ".cmake")
# Not ours to change, or generated.
EXEMPT = re.compile(r"(^|/)(LICENSE|package-lock\.json)$|(^|/)corpus/")


def check(root, files):
    for name in files:
        if EXEMPT.search(name):
            continue
        text = lint_common.text_of(root, name)
        if text is None or "\0" in text:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            where = f"{name}:{number}"
            if match := UNFINISHED.search(line):
                yield f"{where}: unfinished: {match.group(0)}"
            if match := HOME.search(line):
                yield f"{where}: a path of one machine: {line.strip()[:100]}"
            if MERGE.match(line):
                yield f"{where}: a merge marker"
            if name.endswith(CODE) and (match := NOT_ASCII.search(line)):
                yield f"{where}: character {match.group(0)!r} outside ASCII in code"


SELF_TESTS = [
    ({"a.cc": '#include "b.h"\nauto x = "/usr/share/x";  // see https://example.org/wo' + 'rk/x and $HOME/ho' + 'me/x\n', "run": "cd /src\n"}, None),
    ({"a.cc": "// TO" + "DO: later\n"}, "a.cc:1: unfinished"),
    ({"docs/a.md": "cd /ho" + "me/somebody/palpate\n"}, "docs/a.md:1: a path of one machine"),
    ({"a.cc": 'f("/wo' + 'rk/main");\n'}, "a path of one machine"),
    ({"a.py": "<<<<<<" + "< HEAD\n"}, "merge marker"),
    ({"a.h": "double \u03bc;\n"}, "outside ASCII"),
    ({"docs/a.md": "\u03bc is fine in prose\n"}, None),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
