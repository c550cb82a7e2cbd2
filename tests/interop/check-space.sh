#!/bin/sh
# Fails before anything is installed if the disk has no room for what REQUIRE_PEERS=1 installs and the tests write.
# Usage: check-space.sh. Counts only what is not installed yet.
set -eu
peers=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers
needed=3 # GB: packages of Debian, and the files of the tests
count() { [ -e "$1" ] || needed=$((needed + $2)); }
count .torch/2.13.0/.installed 4
count .torch/2.6.0/.installed 4
count .frameworks/.installed 2
count "$peers/prometheus-0.316.0/.installed" 2 # while it is built

# room FOLDER GB
room() {
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
    [ "$free" -ge "$2" ] || {
        echo "REQUIRE_PEERS=1 needs $2 GB of disk space in $1: $free GB are free."
        exit 1
    }
}
room . $((needed + 3)) # 3 GB while pip installs PyTorch
room "${TMPDIR:-/tmp}" 3
