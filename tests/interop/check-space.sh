#!/bin/sh
# Fails before anything is installed if the disk has no room for what REQUIRE_PEERS=1 installs and the tests write.
# Usage: check-space.sh TORCH FRAMEWORKS: the folders of install-torch.sh and install-frameworks.sh. Counts only what is not
# installed yet.
set -eu
peers=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers
needed=3000 # MB: packages of Debian, and the files of the tests
meanwhile=0

# count FOLDER MB MB: what stays, and what an installation needs besides until its end.
count() {
    [ ! -e "$1/.installed" ] || return 0
    needed=$((needed + $2))
    [ "$3" -le "$meanwhile" ] || meanwhile=$3
}
count "$1/2.13.0" 3300 3600
count "$1/2.6.0" 3400 3600
count "$2" 0 1800 # the last: then the others need nothing more meanwhile

# room FOLDER MB
room() {
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free" -ge "$2" ] || {
        echo "REQUIRE_PEERS=1 needs $2 MB of disk space in $1: $free MB are free."
        exit 1
    }
}
room . $((needed + meanwhile))
room "${TMPDIR:-/tmp}" 3000
if [ ! -e "$peers/prometheus-0.316.0/.installed" ]; then
    mkdir -p "$peers" 2>/dev/null && room "$peers" 2000 || true # install-go-peers.sh says what is wrong
fi
