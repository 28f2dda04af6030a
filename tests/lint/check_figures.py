"""Figures of README and docs: each line of bench/figures.txt is in its file, placeholders are well formed, and a figure that belongs to a
recorded row shows it. Whether rows are newer than what they measure is for `./run bench --check`: that would be red after each commit.
"""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import lint_common

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("figures", lint_common.ROOT / "bench/figures.py")
figures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(figures)


def check(root, files):
    if figures.LIST not in files:
        yield f"{figures.LIST}:1: is missing"
        return
    try:
        rows = figures.Rows(figures.read_rows(root / figures.ROWS))
        problems = figures.check_texts(root, rows)
        entries, _ = figures.read_list((root / figures.LIST).read_text(encoding="utf-8"))
    except SystemExit as error:
        yield str(error)
        return
    if root == lint_common.ROOT:
        # Here rows may wait for the next recording, the list may not be wrong.
        problems = [p for p in problems if p.startswith(figures.LIST)]
        for entry in entries:
            for key in entry.keys:
                suite = key.removeprefix("min ").removeprefix("max ").removeprefix("sum ").removeprefix("mean ").split("/")[0]
                if suite not in figures.SOURCES or suite not in figures.RECORD:
                    yield f"{figures.LIST}:{entry.line}: no suite '{suite}' in bench/figures.py"
        for suite, paths in figures.SOURCES.items():
            for path in paths:
                if not (root / path).exists():
                    yield f"bench/figures.py:1: {suite} measures {path}, which does not exist"
    yield from problems


def row(case, metric, value, unit="s", suite="step"):
    return '{"suite":"%s","case":"%s","metric":"%s","value":%s,"unit":"%s","device":"d","commit":"0123456789ab"}\n' % (suite, case, metric, value, unit)


def sample(document, entries, rows):
    return {"README.md": "# P\n\n## Figures\n`./run bench step`\n\n" + document, figures.LIST: "[README.md]\n" + entries, figures.ROWS: rows}


TABLE = "| what | figure |\n|---|---|\n"
STEP = row("liver", "step_p50", 0.003456) + row("liver", "tets", 2499, "count") + row("knot/1", "step_p50", 0.0099) + row("knot/1", "tets", 12, "count")

SELF_TESTS = [
    # what matches
    (sample(TABLE + "| liver | 3.5 ms |\n", "| liver | {step/liver/step_p50 ms} ms |\n", STEP), None),
    (sample(TABLE + "| liver, 2,499 | 3.46 ms |\n", "| liver, {step/liver/tets} | {step/liver/step_p50 ms 3} ms |\n", STEP), None),
    (sample("Takes 3.5 to 9.9 ms.\n", "Takes {min step/*/step_p50 ms} to {max step/*/step_p50 ms} ms.\n", STEP), None),
    (sample("Takes 2.9 times as long.\n", "Takes {step/knot/1/step_p50 over step/liver/step_p50} times\n", STEP), None),
    (sample(TABLE + "| all | 2,511 |\n", "| all | {sum step/*/tets} |\n", STEP), None),
    (sample(TABLE + "| a | 9.9 ms (12) | - |\n", '| a | {step/knot/1/step_p50 ms} ms{step/knot/1/tets as " (#)" else ""} | {step/x/y ms else "-"} |\n', STEP), None),
    (sample("Waits 50 ms, takes 3.5 ms.\n", "= Waits 50 ms\ntakes {step/liver/step_p50 ms} ms\n", STEP), None),
    # prose is broken into lines anywhere, tables are not
    (sample("- It takes\n  3.5 ms, knots\n  2.9\n  times as long, with 50\n  ms more.\n",
            "= 50 ms\ntakes {step/liver/step_p50 ms} ms, knots {step/knot/1/step_p50 over step/liver/step_p50} times\n", STEP), None),
    (sample("It takes 7\nms.\n", "", STEP), "without a row: 7 ms"),
    ({"README.md": "# P\n\nA limit of 50 ms.\n", figures.LIST: "", figures.ROWS: ""}, None),
    # rounding: three figures do not lose their units place, a carry does not add a digit, small numbers have an exponent
    (sample(TABLE + "| a | 224 ms | 10 ms | 4.8e-4 |\n", "| a | {step/a/t ms} ms | {step/b/t ms} ms | {step/c/t} |\n",
            row("a", "t", 0.22439) + row("b", "t", 0.00996) + row("c", "t", 0.00048123)), None),
    # what does not
    (sample(TABLE + "| liver | 3.6 ms |\n", "| liver | {step/liver/step_p50 ms} ms |\n", STEP), "does not match"),
    (sample("Takes 13.5 ms.\n", "Takes {step/liver/step_p50 ms} ms.\n", STEP), "does not match"),
    (sample(TABLE + "| liver | 3.5 ms |\n", "| liver | {step/kidney/step_p50 ms} ms |\n", STEP), "without a row: no row step/kidney/step_p50"),
    (sample(TABLE + "| liver | 3.5 ms |\n| knot | 9.9 ms |\n", "| liver | {step/liver/step_p50 ms} ms |\n", STEP), "without a row: | knot | 9.9 ms |"),
    (sample("Takes 3.5 ms, sometimes 7 ms.\n", "Takes {step/liver/step_p50 ms} ms\n", STEP), "without a row: 7 ms"),
    (sample(TABLE + "| lung | none |\n", "| liver | {step/liver/step_p50 ms} ms |\n", STEP), "has this text 0 times"),
    (sample(TABLE + "| liver | 3.5 MB |\n", "| liver | {step/liver/step_p50 MB} MB |\n", STEP), "have unit s"),
    (sample("Takes 3.5 ms.\n", "Takes {step/*/step_p50 ms} ms.\n", STEP), "2 rows are called"),
    (sample("Waits.\n", "= Waits 50 ms\n", STEP), "has no such text"),
    (sample("Takes 3.5 ms.\n", "Takes 3.5 ms.\n", STEP), "holds no placeholder"),
    (sample("Takes 3.5 ms.\n", "Takes {step/liver/step_p50 ms} ms.\n", row("liver", "step_p50", "null")), "holds no number"),
    (sample("Takes 3.5 ms.\n", "Takes {step/liver/step_p50 ms} ms.\n", STEP + "nonsense\n"), "no row of a suite"),
    ({"README.md": "# P\n", figures.LIST: "[docs/gone.md]\n{step/liver/step_p50 ms}\n", figures.ROWS: STEP}, "there is no docs/gone.md"),
]



def staleness_faults():
    """Whether rows are told apart by their commit, in a repository made for it. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def git(*arguments):
            identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
            return subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True).stdout.strip()

        def problems(commit, foreign_cores=0.01):
            text = STEP.replace("0123456789ab", commit) + row("machine", "foreign_cores", foreign_cores, "count").replace("0123456789ab", commit)
            (root / "rows").write_text(text, encoding="utf-8")
            rows = figures.Rows(figures.read_rows(root / "rows"))
            rows.find("step/liver/step_p50")
            return figures.check_rows(rows, root)

        git("init", "-q")
        (root / "sim").mkdir()
        (root / "sim/a.cc").write_text("1")
        (root / "README.md").write_text("1")
        git("add", ".")
        git("commit", "-q", "-m", "a")
        commit = git("rev-parse", "--short=12", "HEAD")
        (root / "README.md").write_text("2")
        git("commit", "-q", "-a", "-m", "only text")
        cases = [("text alone ages nothing", problems(commit), None),
                 ("a busy machine", problems(commit, 0.5), "others kept 0.5 cores busy"),
                 ("a dirty commit", problems(commit + "-dirty"), "no clean commit"),
                 ("a commit from elsewhere", problems("abcdef012345"), "does not have")]
        (root / "sim/a.cc").write_text("2")
        cases.append(("a change that is not committed", problems(commit), "older than what it measures"))
        git("commit", "-q", "-a", "-m", "code")
        cases.append(("a change", problems(commit), "older than what it measures: 1 commits"))
        cases.append(("measured again", problems(git("rev-parse", "--short=12", "HEAD")), None))
    return [f"{name}: expected {wanted!r}, got {found}" for name, found, wanted in cases
            if (found if wanted is None else len(found) != 1 or wanted not in found[0])]


def update_faults():
    """Whether --update writes what rows say, and nothing else. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = sample(TABLE + "| liver | - |\n| knot | 1,000 ms |\n\nIn prose 7\nms, 8 ms.\n\nIt ends with 8.25.\n",
                       "| liver | {step/liver/step_p50 ms} ms |\n| knot | {step/knot/1/step_p50 ms} ms |\nprose {step/liver/step_p50 ms} ms, {step/knot/1/step_p50 ms} ms.\nIt ends with {step/liver/step_p50 ms}.\n", STEP)
        files["README.md"] = files["README.md"].replace("| - |", "| - ms |")
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")
        rows = figures.Rows(figures.read_rows(root / figures.ROWS))
        faults = figures.check_texts(root, rows, update=True) + figures.check_texts(root, rows)
        text = (root / "README.md").read_text(encoding="utf-8")
    wanted = TABLE + "| liver | 3.5 ms |\n| knot | 9.9 ms |\n\nIn prose 3.5\nms, 9.9 ms.\n\nIt ends with 3.5.\n"
    return faults + ([] if text.endswith(wanted) else [f"--update wrote {text!r}"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        faults = staleness_faults() + update_faults()
        print("\n".join(faults) or "rows by commit, update: right")
        if faults:
            sys.exit(1)
    lint_common.main(check, SELF_TESTS)
