#!/usr/bin/env bash
# Builds the container image of the Dockerfile. `./run image` is the usual way in; docs/clusters.md explains the options.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

usage() {
  cat <<'TXT'
usage: image.sh [--tag NAME] [--base IMAGE | --bootstrap] [--prebuilt FOLDER]

  --tag NAME          name of the image (default: palpate-server)
  --base IMAGE        image of Debian 12 to start from (default: debian:bookworm-slim, from a registry)
  --bootstrap         make the base image here from Debian's packages with debootstrap, without a registry; needs root
  --prebuilt FOLDER   take the programs of FOLDER/bin and the viewer of this checkout, instead of compiling them in the image; with `./run image`
                      without FOLDER: those of `./run build`

Environment: PALPATE_CONTAINER_ENGINE (a command with its arguments; default podman, else docker), BUILDAH_ISOLATION (of podman: chroot where the
machine lets it make no containers while it builds). Exit status: 0 done, 1 failed, 2 wrong usage or something missing.
TXT
}

die() {
  local status=$1
  shift
  printf '%s\n' "image: $*" >&2
  exit "$status"
}

tag=palpate-server base='' bootstrap=0 prebuilt=''
while [ $# -gt 0 ]; do
  case $1 in
    --bootstrap) bootstrap=1 ;;
    --tag | --base | --prebuilt)
      [ $# -ge 2 ] || die 2 "$1 wants a value"
      case $1 in --tag) tag=$2 ;; --base) base=$2 ;; --prebuilt) prebuilt=$2 ;; esac
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die 2 "no option '$1'" ;;
  esac
  shift
done
[ $bootstrap = 0 ] || [ -z "$base" ] || die 2 "--base and --bootstrap exclude each other"

read -r -a engine <<<"${PALPATE_CONTAINER_ENGINE:-}"
if [ ${#engine[@]} -eq 0 ]; then
  for program in podman docker; do command -v $program >/dev/null && { engine=("$program"); break; }; done
  [ ${#engine[@]} -gt 0 ] || die 2 "there is neither podman nor docker. Debian has: apt-get install podman runc"
fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/palpate-image.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# The base image: Debian's essential packages with apt, and where this machine gets updates from.
make_base() {
  [ "$(id -u)" = 0 ] || die 2 "--bootstrap needs root"
  command -v debootstrap >/dev/null || die 2 "--bootstrap needs debootstrap. Debian has: apt-get install debootstrap"
  local sources mirror
  sources=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) main' 'Created-By: Packages' 'Component: main' |
    grep -E ' bookworm(-updates|-security)? main$' | sort -u)
  mirror=$(printf '%s\n' "$sources" | sed -n 's/ bookworm main$//p' | head -n 1)
  mirror=${mirror:-http://deb.debian.org/debian}
  # Where files are flushed one by one, half of the time goes into it; the image is written again as a whole.
  debootstrap --variant=minbase bookworm "$work/base" "$mirror" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; die 1 "debootstrap failed (messages above)"; }
  printf 'force-unsafe-io\n' >"$work/base/etc/dpkg/dpkg.cfg.d/image"
  printf 'path-exclude=/usr/share/%s/*\n' doc man locale >>"$work/base/etc/dpkg/dpkg.cfg.d/image"
  printf '%s\n' "${sources:-$mirror bookworm main}" | sed 's/^/deb /' >"$work/base/etc/apt/sources.list"
  rm -rf "$work"/base/var/lib/apt/lists/* "$work"/base/var/cache/apt/*.bin
  tar -C "$work/base" -c . | "${engine[@]}" import - localhost/palpate-base:bookworm >/dev/null
  rm -rf --one-file-system "$work/base"
  base=localhost/palpate-base:bookworm
}

# Programs that exist, in the form of the Dockerfile's stage `programs`.
collect_programs() {
  local program
  mkdir -p "$work/programs/bin"
  for program in palpate palpate-server palpate-station; do
    [ -x "$prebuilt/bin/$program" ] || die 2 "there is no $prebuilt/bin/$program; ./run build makes it"
    install --strip "$prebuilt/bin/$program" "$work/programs/bin/"
  done
  [ -f "$root/clients/web/dist/index.html" ] || die 2 "there is no clients/web/dist; ./run build makes it"
  cp -r "$root/clients/web/dist" "$work/programs/web"
}

arguments=(--file "$root/Dockerfile" --tag "$tag")
# Health checks are no part of the other format.
case ${engine[0]##*/} in podman | buildah) arguments+=(--format docker) ;; esac
if [ -n "$prebuilt" ]; then
  collect_programs
  arguments+=(--build-context "programs=$work/programs")
fi
[ $bootstrap = 0 ] || make_base
[ -z "$base" ] || arguments+=(--build-arg "PALPATE_BASE=$base")
"${engine[@]}" build "${arguments[@]}" "$root" || die 1 "the build of image $tag failed (messages above)"
printf '%s\n' "image: $tag" >&2
