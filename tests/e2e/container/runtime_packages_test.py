#!/usr/bin/env python3
"""The runtime packages of the container bring every shared library that the programs load. usage: runtime_packages_test.py PACKAGES_FILE PROGRAM..."""
import os
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def runtime_group(path):
    text = open(path, encoding="utf-8").read()
    section = re.search(r"^\[runtime\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL).group(1)
    return {line.split()[0] for line in section.splitlines() if line.strip() and not line.startswith("#")}


def closure(packages):
    """These packages and what they depend on, as installed here."""
    depends = {}
    for line in output("dpkg-query", "-W", "-f", "${Package}\t${Depends}, ${Pre-Depends}\n").splitlines():
        name, text = line.split("\t")
        depends.setdefault(name, set()).update(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", text))
    reached, pending = set(), list(packages)
    while pending:
        name = pending.pop()
        if name not in reached and name in depends:
            reached.add(name)
            pending += depends[name]
    return reached


def package_of(library):
    # Merged /usr: dpkg may know the file by either name.
    real = os.path.realpath(library)
    for path in (real, real.removeprefix("/usr"), "/usr" + real):
        run = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if run.returncode == 0:
            return run.stdout.split(":")[0]
    return None


def main():
    packages = runtime_group(sys.argv[1])
    reached = closure(packages)
    problems = [f"{name}: listed under [runtime], but not installed here" for name in sorted(packages - reached)]
    checked = 0
    for program in sys.argv[2:]:
        for library in re.findall(r"=> (/\S+)", output("ldd", program)):
            checked += 1
            package = package_of(library)
            if package not in reached:
                problems.append(f"{os.path.basename(program)} loads {library} of package {package}, which [runtime] does not bring")
    print("\n".join(problems) or f"{checked} libraries, all from {len(packages)} packages and what they need")
    sys.exit(1 if problems or checked == 0 else 0)


main()
