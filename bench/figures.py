#!/usr/bin/env python3
"""Ties the figures of the README and docs to recorded rows: what `./run bench --check`, `--update` and `--record` run.

bench/figures.txt lists the figures. Under `[FILE]` each line is the text of a line of that file, or a part of one, with placeholders where
figures stand; it must occur there once. Where it has a blank, prose may have the end of a line. A line that begins with `= ` holds text that looks like a figure and is none of ours: a parameter, or
a value whose source is stated beside it. `#` begins a comment.

A placeholder is {SUITE/CASE/METRIC OPTIONS}. Options, in this order, each optional:
  a unit        ms us s, MB MiB KB, %, mm um, cm2, k (thousands); otherwise the unit of the row
  a number      significant digits, 2 if not given; never rounded beyond the units place, counts in full
  as "TEXT"     what is printed, # stands for the figure
  else "TEXT"   what is printed if there is no such row; without it that is an error
In front: min, max, sum or mean, with * in CASE for any text. `A over B` in place of one row is the ratio of two.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS = "bench/results/cpu-pocl.jsonl"
LIST = "bench/figures.txt"

DEVICE = ["gpu/base", "gpu/runtime", "gpu/shared", "bench/bench_support.cc", "bench/bench_support.h"]
SCENE = DEVICE + ["gpu", "sim"]
# What each suite measures: a row is older than that if one of these has changed since its commit.
SOURCES = {
    "primitives": DEVICE + ["gpu/primitives", "bench/bench_primitives.cc"],
    "broadphase": DEVICE + ["gpu/primitives", "gpu/collision", "bench/bench_broadphase.cc", "bench/bench_broadphase_peers.cc"],
    "proximity": DEVICE + ["gpu/primitives", "gpu/collision", "bench/bench_proximity.cc", "bench/bench_proximity_fcl.cc"],
    "ccd": DEVICE + ["gpu/primitives", "gpu/collision", "sim/ccd", "bench/bench_ccd.cc"],
    "view": DEVICE + ["gpu/primitives", "gpu/collision", "bench/bench_view.cc", "bench/bench_view_peers.cc", "bench/bench_view_peers.h"],
    "rigid": DEVICE + ["gpu/primitives", "gpu/collision", "gpu/dynamics/rigid_bodies.cc", "gpu/dynamics/rigid_bodies.cl",
                       "gpu/dynamics/rigid_bodies.h", "bench/bench_rigid.cc"],
    "nurbs": DEVICE + ["gpu/primitives", "gpu/collision", "sim/nurbs", "bench/bench_nurbs.cc", "bench/bench_nurbs_fcl.cc", "bench/bench_nurbs_occt.cc"],
    "nurbs_scenes": SCENE + ["bench/bench_nurbs_scenes.cc"],
    "step": SCENE + ["bench/bench_step.cc"],
    "tissue": SCENE + ["bench/bench_tissue.cc"],
    "surgery": SCENE + ["bench/bench_surgery.cc"],
    "cutting": SCENE + ["bench/bench_cutting.cc"],
    "batch": SCENE + ["server/core/batch.cc", "server/core/batch.h", "server/core/worker_pool.cc", "bench/bench_batch.cc"],
    "checkpoint": SCENE + ["bench/bench_checkpoint.cc"],
    "haptic": SCENE + ["server", "clients/cpp", "clients/station", "scenes/liver.json", "bench/bench_haptic.cc"],
    "jobs": SCENE + ["clients/job", "clients/cli/job_command.cc", "bench/bench_jobs.cc"],
}
# What --record runs: the cases that are quoted. One call of the program for each list of arguments.
RECORD = {
    "primitives": [["--filter", "copy|sort_u32/10000|sort_u32/1000000"]],
    "step": [[]],
    # The rates, and what others take. Planted pairs, precision, falls and libfcl are run by hand.
    "nurbs": [["--filter", "levels|volumes|splits|within_1_mm|distances|occt"]],
    "nurbs_scenes": [[]],
    "proximity": [[]],
    "ccd": [[]],
    "view": [[]],
    "broadphase": [["--peer_seconds", "4"]],
    "cutting": [[]],
    "checkpoint": [[]],
    "surgery": [[]],
    "tissue": [["--filter", "_step_|2500_orders|_shape|_precomputed"]],
    "haptic": [["--seconds", "30", "--filter", "_server"], ["--seconds", "20", "--filter", "carved|incised"]],
    # The volumes that the source has too; the others, and 14-dop above all, by hand.
    "rigid": [["--filter", "iterations|support"], ["--volumes", "sphere,6-dop,18-dop", "--frames", "7000", "--filter", "corrected/unscaled|corrected/y3"]],
}
QUIET_CORES = 0.1

UNITS = {
    "s": {"": 1, "s": 1, "ms": 1e3, "us": 1e6},
    "bytes": {"": 1, "KB": 1e-3, "MB": 1e-6, "MiB": 2.0**-20},
    "ratio": {"": 1, "%": 100},
    "m": {"": 1, "mm": 1e3, "um": 1e6},
    "m^2": {"": 1, "cm2": 1e4},
    "count": {"": 1, "k": 1e-3},
    "per_s": {"": 1, "k": 1e-3},
    "ms": {"": 1, "ms": 1, "s": 1e-3, "us": 1e3},
}


class Problem(Exception):
    """What is wrong with one figure, in words."""


# --- rows -------------------------------------------------------------------------------------------------------------------------------


def read_rows(path):
    rows = []
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                row["suite"], row["case"], row["metric"], row["value"], row["unit"], row["commit"]
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"{path}:{number}: no row of a suite: {error}")
            rows.append(row)
    return rows


class Rows:
    def __init__(self, rows):
        self.by_key = {}
        self.repeated = set()  # suites
        self.used = set()      # keys
        for row in rows:
            key = (row["suite"], row["case"], row["metric"])
            if key in self.by_key:
                self.repeated.add(row["suite"])
            self.by_key[key] = row

    def find(self, key):
        """Rows of SUITE/CASE/METRIC; the case may hold *."""
        match = re.fullmatch(r"([a-z_]+)/(.+)/([^/ ]+)", key)
        if not match:
            raise Problem(f"'{key}' is not SUITE/CASE/METRIC")
        suite, case, metric = match.groups()
        if "*" in case:
            pattern = re.compile(".*".join(re.escape(part) for part in case.split("*")))
            keys = [k for k in self.by_key if k[0] == suite and k[2] == metric and pattern.fullmatch(k[1])]
        else:
            keys = [k for k in [(suite, case, metric)] if k in self.by_key]
        self.used.update(keys)
        return [self.by_key[k] for k in keys]


# --- figures ----------------------------------------------------------------------------------------------------------------------------

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
BLANK = r"(?: |\n *)"  # of prose, which is broken into lines anywhere
OPTIONS = re.compile(r'(?P<key>.+/[^/ ]+?)(?: (?P<unit>[A-Za-z%][A-Za-z0-9%]*?))??(?: (?P<digits>\d))?(?: as "(?P<text>[^"]*)")?(?: else "(?P<other>[^"]*)")?')


def prose_pattern(text):
    """Regular expression of a text in prose, however that is broken into lines."""
    return BLANK.join(re.escape(word) for word in text.split(" "))


def number_text(value, digits):
    if value is None or not math.isfinite(value):
        raise Problem("the row holds no finite number")
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    # Rounding may carry into the next power of ten (9.96 is 10 to two digits).
    if places > 0 and abs(round(value, places)) >= 10.0 ** (digits - places):
        places -= 1
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.{places}f}"


def render_placeholder(text, rows):
    aggregate = None
    match = re.match(r"(min|max|sum|mean) ", text)
    if match:
        aggregate = match.group(1)
        text = text[match.end():]
    options = OPTIONS.fullmatch(text)
    if not options:
        raise Problem(f"'{text}' is no placeholder")
    keys = options["key"].split(" over ")
    values, units = [], []
    for key in keys:
        found = rows.find(key)
        if not found:
            if options["other"] is not None:
                return options["other"]
            raise Problem(f"no row {key}")
        if len(found) > 1 and not aggregate:
            raise Problem(f"{len(found)} rows are called {key}")
        column = [row["value"] for row in found]
        if any(v is None for v in column):
            raise Problem(f"row {key} holds no number")
        fold = {"min": min, "max": max, "sum": sum, "mean": lambda v: sum(v) / len(v), None: lambda v: v[0]}[aggregate]
        values.append(fold(column))
        units.append(found[0]["unit"])
    if len(keys) > 2:
        raise Problem("more than one 'over'")
    value, unit = values[0], units[0]
    if len(keys) == 2:
        if values[1] == 0:
            raise Problem(f"row {keys[1]} is 0")
        value, unit = values[0] / values[1], "ratio"
    scales = UNITS.get(unit, {"": 1})
    if (options["unit"] or "") not in scales:
        raise Problem(f"rows of {keys[0]} have unit {unit}, which is not given in {options['unit']}")
    value *= scales[options["unit"] or ""]
    if unit == "count" and not options["unit"] and not options["digits"] and float(value).is_integer():
        figure = f"{int(value):,}"
    else:
        figure = number_text(value, int(options["digits"] or 2))
    return (options["text"] or "#").replace("#", figure)


class Figure:
    def __init__(self, file, line, template):
        self.file, self.line, self.template = file, line, template
        pieces = PLACEHOLDER.split(template)
        self.keys = pieces[1::2]
        pattern = ""
        for i, piece in enumerate(pieces):
            escape = re.escape if template.startswith("|") else prose_pattern
            pattern += escape(piece) if i % 2 == 0 else r"([^|\n]{0,24}?)"
        if template.startswith("|"):
            pattern = "^" + pattern + "$"
        else:  # no number goes on behind the end: "5" and "." are not all of "5.2."
            pattern += r"(?![\d.,]*\d)" if pieces[-1] == "" else r"(?!\d)"
        self.pattern = re.compile(pattern, re.MULTILINE)

    def render(self, rows, match):
        """The text of a match with the figures of the rows, broken into lines as it was."""
        text, base = match.group(0), match.start()
        for group in range(len(self.keys), 0, -1):
            begin, end = (at - base for at in match.span(group))
            text = text[:begin] + render_placeholder(self.keys[group - 1], rows) + text[end:]
        return text


def read_list(text):
    """Figures, and by file the texts that are no figures."""
    figures, stated, file = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        header = re.fullmatch(r"\[([^\[\]]+\.md)\]", line)
        if header:
            file = header.group(1)
            stated.setdefault(file, [])
        elif file is None:
            raise SystemExit(f"{LIST}:{number}: no [FILE] above this line")
        elif line.startswith("= "):
            stated[file].append((number, line[2:]))
        elif not PLACEHOLDER.search(line):
            raise SystemExit(f"{LIST}:{number}: holds no placeholder; text that is no figure begins with '= '")
        else:
            figures.append(Figure(file, number, line))
    return figures, stated


# --- which text must be tied ------------------------------------------------------------------------------------------------------------

PROSE_FIGURE = re.compile(r"(?<![\w.^-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?: ?%|" + BLANK + r"(?:ms|us|s|steps/s|Hz|KB|MB|MiB|GB|GiB|times))(?!\w)")
COMMAND = re.compile(r"\./run bench|`--filter")


def sections(text):
    """(first offset, text) of each section, up to the next heading."""
    starts = [0] + [m.start() for m in re.finditer(r"^#{1,6} ", text, re.MULTILINE) if m.start() > 0]
    for begin, end in zip(starts, starts[1:] + [len(text)]):
        yield begin, text[begin:end]


def loose_figures(text, covered):
    """Offsets of figures, in sections that name a bench command, that no covered span holds."""
    for begin, section in sections(text):
        if not COMMAND.search(section):
            continue
        offset = begin
        body = False  # of a table
        prose = ""    # the section with its tables blanked out, so that offsets stay
        for line in section.splitlines(keepends=True):
            is_row = line.lstrip().startswith("|")
            if is_row and re.fullmatch(r"[|\s:-]+", line):
                body = True
            elif is_row and body:
                first = offset + len(line) - len(line.lstrip())
                if re.search(r"\d", re.sub(r"`[^`]*`", "", line)) and not any(a <= first < b for a, b in covered):
                    yield first, line.strip()
            elif not is_row:
                body = False
            prose += "|" * len(line) if is_row else line
            offset += len(line)
        for match in PROSE_FIGURE.finditer(prose):
            at = begin + match.start()
            if not any(a <= at < b for a, b in covered):
                yield at, " ".join(match.group(0).split())


def documents(root):
    return [path for path in ["README.md"] + sorted(p.relative_to(root).as_posix() for p in (root / "docs").rglob("*.md")) if (root / path).is_file()]


# --- check and update -------------------------------------------------------------------------------------------------------------------


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_texts(root, rows, update=False):
    """Problems of figures against rows. With `update` the figures that can be renewed are."""
    problems = []
    figures, stated = read_list((root / LIST).read_text(encoding="utf-8"))
    files = documents(root)
    for file in sorted({f.file for f in figures} | set(stated)):
        if file not in files:
            problems.append(f"{LIST}: there is no {file}")
    for file in files:
        text = (root / file).read_text(encoding="utf-8")
        covered = []
        for figure in [f for f in figures if f.file == file]:
            matches = list(figure.pattern.finditer(text))
            if len(matches) != 1:
                problems.append(f"{LIST}:{figure.line}: {file} has this text {len(matches)} times: {figure.template}")
                covered += [m.span() for m in matches]
                continue
            match = matches[0]
            try:
                wanted = figure.render(rows, match)
            except Problem as problem:
                problems.append(f"{file}:{line_of(text, match.start())}: without a row: {problem}")
                covered.append(match.span())
                continue
            if match.group(0) != wanted:
                if update:
                    delta = len(wanted) - (match.end() - match.start())
                    text = text[:match.start()] + wanted + text[match.end():]
                    covered = [(a + delta, b + delta) if a >= match.end() else (a, b) for a, b in covered]
                else:
                    problems.append(f"{file}:{line_of(text, match.start())}: does not match:\n    has  {match.group(0)}\n    rows {wanted}")
            covered.append((match.start(), match.start() + len(wanted if update else match.group(0))))
        for number, words in stated.get(file, []):
            spans = [m.span() for m in re.finditer(prose_pattern(words), text)]
            if not spans:
                problems.append(f"{LIST}:{number}: {file} has no such text: {words}")
            covered += spans
        for at, words in loose_figures(text, covered):
            problems.append(f"{file}:{line_of(text, at)}: without a row: {words}")
        if update:
            (root / file).write_text(text, encoding="utf-8")
    return problems


def git(*arguments, root=ROOT):
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)


def check_rows(rows, root=ROOT):
    """Problems of the rows that figures use: where they are from."""
    problems, commits = [], {}
    for suite in sorted({key[0] for key in rows.used}):
        used = {rows.by_key[key]["commit"] for key in rows.used if key[0] == suite}
        if suite in rows.repeated:
            problems.append(f"{suite}: rows occur more than once in {ROWS}; record the suite anew")
        for commit in sorted(used):
            commits.setdefault(commit, []).append(suite)
            if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
                problems.append(f"{suite}: rows of {commit}, which is no clean commit")
            elif git("cat-file", "-e", commit + "^{commit}", root=root).returncode != 0:
                problems.append(f"{suite}: rows of {commit}, which this repository does not have")
            else:
                paths = SOURCES[suite]
                if git("diff", "--quiet", commit, "--", *paths, root=root).returncode != 0:
                    count = git("rev-list", "--count", f"{commit}..HEAD", "--", *paths, root=root).stdout.strip()
                    problems.append(f"{suite}: older than what it measures: {count} commits, or changes not committed, since {commit}")
        row = rows.by_key.get((suite, "machine", "foreign_cores"))
        if row is None:
            problems.append(f"{suite}: the rows do not tell how quiet the machine was")
        elif row["value"] > QUIET_CORES:
            problems.append(f"{suite}: recorded while others kept {row['value']:.2g} cores busy (at most {QUIET_CORES})")
    if len(commits) > 1:
        problems.append("rows of several commits: " + "; ".join(f"{commit} ({', '.join(suites)})" for commit, suites in sorted(commits.items())))
    return problems


def report(problems):
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "every figure has a row of today")
    return 1 if problems else 0


# --- record -----------------------------------------------------------------------------------------------------------------------------


def busy_seconds():
    """Of all cores since the machine started, other guests' included."""
    fields = [float(x) for x in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _wait, interrupt, soft, steal = fields
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def record(suites, programs, scene, anyway):
    unknown = [s for s in suites if s not in RECORD]
    if unknown:
        print(f"no suite {' '.join(unknown)}; there are: {' '.join(RECORD)}", file=sys.stderr)
        return 2
    complaints = []
    dirty = git("status", "--porcelain", "--untracked-files=no").stdout.strip()
    if dirty:
        complaints.append("files are changed that are not committed:\n" + dirty)
    begin, busy = time.monotonic(), busy_seconds()
    time.sleep(5)
    foreign = (busy_seconds() - busy) / (time.monotonic() - begin)
    if foreign > QUIET_CORES:
        complaints.append(f"the machine is not quiet: others keep {foreign:.2g} cores busy (at most {QUIET_CORES})")
    for complaint in complaints:
        print(f"record: {complaint}", file=sys.stderr)
    if complaints and not anyway:
        print("record: nothing was run (--anyway does it all the same; --check will list the rows)", file=sys.stderr)
        return 2
    failed = []
    for suite in suites or RECORD:
        part = ROOT / ROWS
        part = part.with_name(f".{suite}.jsonl")
        part.unlink(missing_ok=True)
        began = time.monotonic()
        for arguments in RECORD[suite]:
            command = [str(programs / f"bench_{suite}"), *arguments, "--json", str(part)]
            if suite == "haptic":
                command += ["--scene", scene]
            print("record: " + shlex.join(command), file=sys.stderr, flush=True)
            if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
                failed.append(suite)
                break
        else:
            fresh = one_of_each(read_rows(part))
            kept = [row for row in read_rows(ROOT / ROWS) if row["suite"] != suite]
            temporary = (ROOT / ROWS).with_suffix(".new")
            temporary.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in kept + fresh), encoding="utf-8")
            temporary.replace(ROOT / ROWS)
            print(f"record: {suite}: {len(fresh)} rows, {time.monotonic() - began:.0f} s", file=sys.stderr)
        part.unlink(missing_ok=True)
    if failed:
        print(f"record: failed, rows left as they were: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def one_of_each(rows):
    """Of a suite that took several calls: the loudest of its machine rows, the last of all others."""
    fresh = {}
    for row in rows:
        key = (row["case"], row["metric"])
        if key == ("machine", "foreign_cores") and key in fresh:
            row = max(row, fresh[key], key=lambda r: r["value"])
        fresh[key] = row
    return list(fresh.values())


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description="Figures of README and docs, tied to recorded rows (bench/figures.txt).")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="list figures without a row, unlike it, or older than what they measure; status 1 if there are any")
    action.add_argument("--update", action="store_true", help="write the rows' figures into README and docs, then check")
    action.add_argument("--record", nargs="*", metavar="SUITE", help="run the suites (all: some 25 minutes) on this machine, which must be quiet, and keep their rows")
    parser.add_argument("--anyway", action="store_true", help="with --record: on a busy machine or with changed files, too")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/bench/bin", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.record is not None:
        return record(arguments.record, arguments.programs, str(ROOT / "scenes/liver.json"), arguments.anyway)
    rows = Rows(read_rows(ROOT / ROWS))
    problems = check_texts(ROOT, rows, update=arguments.update)
    return report(problems + check_rows(rows))


if __name__ == "__main__":
    sys.exit(main())
