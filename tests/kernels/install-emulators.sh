#!/bin/sh
# Installs the packages that `make kernels` needs: emulators, an archiver for the initial file system, and tools that make
# an arm64 tree. Needs Debian and root.
set -eu
packages="qemu-system-x86 qemu-system-arm busybox-static cpio mmdebstrap gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "only root can install$missing"; exit 1; }
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # one word for each package
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null
