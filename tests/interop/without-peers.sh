#!/bin/sh
# Runs a command as on a machine without the programs that `make peers` installs: hides them in a mount namespace. Needs root.
# Usage: sh tests/interop/without-peers.sh COMMAND, with the Python of an environment into which no peer was installed.
set -eu
if [ "${PEERS_ARE_HIDDEN:-}" != 1 ]; then
    PEERS_ARE_HIDDEN=1 exec unshare --mount sh "$0" "$@"
fi
packages=$(sed -n 's/^\(debian\|packages\)="\($debian \)\?\(.*\)"$/\3/p' tests/interop/install-peers.sh tests/kernels/install-emulators.sh)
for package in $packages default-jre-headless maven etcd-server; do
    case $package in util-linux | gcc | libc6-dev | libpython3.11) continue ;; esac # most machines have them
    for file in $(dpkg -L "$package" 2>/dev/null | grep -E '^(/usr)?/s?bin/' || true); do
        [ ! -f "$file" ] || mount --bind /dev/null "$(readlink -f "$file")"
    done
done
for program in java mvn go; do
    file=$(command -v $program) || continue
    mount --bind /dev/null "$(readlink -f "$file")"
done
for folder in /usr/lib/postgresql /usr/lib/python3/dist-packages .torch* .frameworks*; do
    [ ! -d "$folder/" ] || mount -t tmpfs none "$folder/"
done
export XDG_CACHE_HOME=/dev/null PIP_NO_CACHE_DIR=1 # of Kafka, Prometheus 3, VictoriaMetrics, Kubernetes and the Collector
exec "$@"
