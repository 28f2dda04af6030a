"""What the checks share: the project's files, and one way to report.

Each check is a script `check_<name>.py [--self-test]`. It defines `check(root, files)`, which yields problems as text "path:line: what", and
`SELF_TESTS`, a list of (files, expected) where `files` maps path to content and `expected` is a part of the one problem that must be found
(None: nothing may be found). A check that flags nothing bad is no check, so ctest runs both.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def project_files(root=ROOT):
    """Paths, relative to the root, of the files under version control that exist."""
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True).stdout
        names = [name for name in out.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):  # an archive without history
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in ("build", "node_modules", "dist", ".git", ".cache")]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(name for name in names if (root / name).is_file())


def text_of(root, name):
    """Content of a text file, or None for a binary one."""
    try:
        return (root / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def run_self_tests(check, cases):
    failures = 0
    for number, (files, expected) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content, encoding="utf-8")
            problems = list(check(root, sorted(files)))
        good = not problems if expected is None else len(problems) == 1 and expected in problems[0]
        if not good:
            failures += 1
            print(f"self-test {number}: expected {expected!r}, got {problems}")
    print(f"{len(cases)} self-tests, {failures} failed")
    return failures


def main(check, cases):
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(1 if run_self_tests(check, cases) else 0)
    if sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} [--self-test]")
    problems = list(check(ROOT, project_files()))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    sys.exit(1 if problems else 0)
