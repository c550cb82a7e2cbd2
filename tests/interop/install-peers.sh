#!/bin/sh
# Installs the foreign programs that tests/interop meets: Debian's Prometheus (with promtool), and rotel from PyPI.
# Usage: install-peers.sh PIP. With REQUIRE_PEERS=1 whatever can't be installed is an error.
set -eu
pip=$1
packages=""

give_up() {
    echo "Skipping the tests with $1: $2"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}

command -v dpkg-query >/dev/null || give_up "Prometheus and rotel" "they are installed on Debian only"
for package in prometheus libpython3.11; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || packages="$packages $package"
done
if [ -n "$packages" ]; then
    [ "$(id -u)" = 0 ] || give_up "Prometheus and rotel" "only root can install$packages"
    # A policy of 101 keeps Debian from starting the service; the tests start a Prometheus of their own.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # one word for each package
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } >/dev/null ||
        give_up "Prometheus and rotel" "apt-get could not install$packages"
    if [ -d /run/systemd/system ]; then systemctl disable --quiet prometheus || true; fi
fi
"$pip" show --quiet rotel 2>/dev/null || "$pip" install --quiet rotel || give_up rotel "pip could not install it"
