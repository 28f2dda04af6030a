#!/bin/sh
# Runs every device test and every benchmark suite beside this script; see README.md. Needs a POSIX shell, awk and the usual small tools.
set -u
here=$(cd "$(dirname "$0")" && pwd)
device=""
quick=""
out=""
limit_s=900

die() { echo "run_all.sh: $2" >&2; exit "$1"; }

while [ $# -gt 0 ]; do
  case "$1" in
    --device | --out | --limit) [ $# -gt 1 ] || die 2 "$1 needs a value" ;;
  esac
  case "$1" in
    --device) device=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --limit) limit_s=$2; shift 2 ;;
    --quick) quick=--quick; shift ;;
    --help) sed -n '5,10p' "$here/README.md"; exit 0 ;;
    *) die 2 "unknown argument: $1" ;;
  esac
done
case "$limit_s" in '' | *[!0-9]* | 0*) die 2 "--limit takes a number of seconds, not '$limit_s'" ;; esac
# Without it a test that hangs is waited for.
timed=""
if command -v timeout >/dev/null 2>&1; then timed="timeout -k 10 $limit_s"; fi

[ -n "$out" ] || out="results-$(date +%Y%m%d-%H%M%S)-$(uname -n)"
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
cd "$out" || exit 2
work="$out/unfinished"
rm -rf "$work"
mkdir "$work" || exit 2
trap 'rm -rf "$work"' EXIT
trap 'echo "interrupted; the same command with --out $out goes on" >&2; exit 130' INT TERM HUP
PALPATE_CACHE_DIR="$work/kernel-cache"
export PALPATE_CACHE_DIR
if [ -z "${PALPATE_DATA_DIR:-}" ] && [ -d "$here/data" ]; then
  PALPATE_DATA_DIR=$here/data
  export PALPATE_DATA_DIR
fi

# --- the loader and the drivers -----------------------------------------------------------------------------------------------------------

# The loader of the system where it has one: it knows where the drivers are.
if ! "$here/palpate-device" --list >"$work/devices" 2>&1; then
  LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export LD_LIBRARY_PATH
  "$here/palpate-device" --list >"$work/devices" 2>&1 || die 3 "the programs cannot start here: $(cat "$work/devices")"
fi

# unknown_drivers: vendors' libraries that no file of the loader names. Containers often have the one without the other.
unknown_drivers() {
  folders="$(printf %s "${LD_LIBRARY_PATH:-}" | tr : ' ') /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib /usr/local/nvidia/lib64 /usr/local/lib /opt/rocm/lib"
  for library in libnvidia-opencl.so.1 libamdocl64.so libigdrcl.so; do
    cat "$vendors"/*.icd 2>/dev/null | grep -q "$library" && continue
    for folder in $folders; do
      if [ -e "$folder/$library" ]; then
        echo "$folder/$library"
        break
      fi
    done
  done
}

vendors=${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}
found=$(unknown_drivers)
if [ -n "$found" ] && [ -z "${OCL_ICD_FILENAMES:-}" ]; then
  mkdir "$work/vendors"
  cp "$vendors"/*.icd "$work/vendors" 2>/dev/null
  number=0
  for library in $found; do
    number=$((number + 1))
    echo "$library" >"$work/vendors/found-$number.icd"
  done
  OCL_ICD_VENDORS="$work/vendors"
  export OCL_ICD_VENDORS
fi

used=$("$here/palpate-device" "$device" 2>"$work/errors") || die 3 "no device to run on: $(cat "$work/errors")"
# Set: then tests on a machine without the device fail instead of being skipped.
PALPATE_TEST_DEVICE=${device:-auto}
export PALPATE_TEST_DEVICE

# --- what an earlier run has done ---------------------------------------------------------------------------------------------------------

title="$used; $(cksum <"$here/palpate-gpu-tests" | cut -d ' ' -f 1)${quick:+; quick}"
if [ -f device.txt ]; then
  [ "$(cat device.txt)" = "$title" ] || die 2 "$out holds results of another device, of other programs, or of --quick; give another folder with --out"
else
  echo "$title" >device.txt
  : >done.txt
  : >log.txt
  : >results.jsonl
fi
touch done.txt log.txt results.jsonl
# Rows of a suite count once it has ended: what an interruption left behind them goes.
rows_bytes=$(awk 'END { print NF ? $3 : 0 }' done.txt)
head -c "$rows_bytes" results.jsonl >"$work/rows" && cp "$work/rows" results.jsonl
awk '$2 == "passed"' done.txt >"$work/done" && cp "$work/done" done.txt

say() { echo "$*"; }
is_done() { awk -v name="$1" '$1 == name { found = 1 } END { exit !found }' done.txt; }

# run_one NAME COMMAND...: in a process of its own, so that one that crashes or hangs takes no other with it.
run_one() {
  name=$1
  shift
  if is_done "$name"; then
    say "  before  $name"
    return
  fi
  : >"$work/rows"
  $timed "$@" >"$work/log" 2>&1
  status=$?
  case $status in
    0) state=passed; told="$(sed -n 's/^\[  PASSED  \] \(.*\)\./\1/p' "$work/log") $(sed -n 's/^\[  SKIPPED \] \([0-9]* tests*\).*/skipped: \1/p' "$work/log")" ;;
    124 | 137) state=failed; told="ran past $limit_s s" ;;
    *) state=failed; told="status $status" ;;
  esac
  say "  $state  $name $told" | sed 's/ *$//'
  { echo "=== $name: $state ($status)"; cat "$work/log"; } >>log.txt
  cat "$work/rows" >>results.jsonl
  echo "$name $state $(wc -c <results.jsonl | tr -d ' ')" >>done.txt
}

# --- all of it ----------------------------------------------------------------------------------------------------------------------------

say "on $used"
[ -n "$timed" ] || say "there is no program timeout: what hangs is waited for"
"$here/palpate-gpu-tests" --gtest_list_tests >"$work/tests" 2>&1 || die 3 "the tests cannot be listed: $(cat "$work/tests")"
say "tests"
for suite in $(sed -n 's/^\([A-Za-z0-9_/]*\)\..*/\1/p' "$work/tests"); do
  run_one "test:$suite" "$here/palpate-gpu-tests" --gtest_filter="$suite.*-*.Slow*"
done
say "benchmark suites"
for suite in $("$here/palpate-bench" --list); do
  # An empty value of --device is the default device.
  run_one "suite:$suite" "$here/palpate-bench" "$suite" --json="$work/rows" --device="$device" $quick
done
awk 'BEGIN { print "[" } NF { if (n++) print ","; printf "%s", $0 } END { print "\n]" }' results.jsonl >results.json
failed=$(awk '$2 == "failed" { printf " %s", $1 }' done.txt)
say ""
if [ -n "$failed" ]; then
  say "FAILED:$failed"
  say "their output is in $out/log.txt; the same command with --out $out runs them again"
  exit 1
fi
say "all passed; results in $out"
