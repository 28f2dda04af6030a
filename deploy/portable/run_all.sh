#!/bin/sh
# Runs every device test and every benchmark suite beside this script; see README.md. Needs a POSIX shell and awk.
set -u
here=$(cd "$(dirname "$0")" && pwd)
device=""
quick=""
out=""
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=${2:?--device needs a value}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --quick) quick=--quick; shift ;;
    --help) sed -n '5,12p' "$here/README.md"; exit 0 ;;
    *) echo "unknown argument: $1" >&2; exit 2 ;;
  esac
done
[ -n "$out" ] || out="results-$(date +%Y%m%d-%H%M%S)-$(uname -n)"
mkdir -p "$out/tests" || exit 1
out=$(cd "$out" && pwd)
rows="$out/results.jsonl"
: >"$rows"
: >"$out/results.txt"
PALPATE_CACHE_DIR="$out/kernel-cache"
export PALPATE_CACHE_DIR
if [ -n "$device" ]; then
  PALPATE_TEST_DEVICE=$device
  export PALPATE_TEST_DEVICE
fi
failed=""

say() { echo "$*" | tee -a "$out/results.txt"; }

cd "$out" || exit 1
say "tests"
# Each suite in a process of its own, so that one that crashes takes no other with it.
for suite in $("$here/palpate-gpu-tests" --gtest_list_tests | sed -n 's/^\([A-Za-z0-9_/]*\)\..*/\1/p'); do
  log="$out/tests/$(echo "$suite" | tr / -).log"
  if "$here/palpate-gpu-tests" --gtest_filter="$suite.*-*.Slow*" >"$log" 2>&1; then
    say "  passed  $suite: $(sed -n 's/^\[  PASSED  \] \(.*\)\./\1/p' "$log") $(sed -n 's/^\[  SKIPPED \] \([0-9]* tests*\).*/skipped: \1/p' "$log")"
  else
    say "  FAILED  $suite (status $?), see tests/$(basename "$log")"
    failed="$failed $suite"
  fi
done
for suite in $("$here/palpate-bench" --list); do
  say ""
  # An empty value of --device is the default device.
  if "$here/palpate-bench" "$suite" --json="$rows" --device="$device" $quick >"$out/$suite.log" 2>&1; then
    cat "$out/$suite.log" | tee -a "$out/results.txt"
  else
    say "FAILED  suite $suite"
    cat "$out/$suite.log" | tee -a "$out/results.txt"
    failed="$failed $suite"
  fi
done
awk 'BEGIN { print "[" } NF { if (n++) print ","; printf "%s", $0 } END { print "\n]" }' "$rows" >"$out/results.json"
rm -rf "$PALPATE_CACHE_DIR"
say ""
if [ -n "$failed" ]; then
  say "FAILED:$failed"
  exit 1
fi
say "all passed; results in $out"
