#!/bin/sh
# Installs a version of PyTorch into its own environment FOLDER/VERSION. PyPI's build for x86-64 includes CUDA and also runs
# without a GPU. What `import torch` does not load there is deleted: libraries of CUDA, and the compiler Triton.
# Usage: install-torch.sh PYTHON VERSION FOLDER [ENVIRONMENT]. The virtual environment in the folder ENVIRONMENT, of the same Python,
# gets this PyTorch too, without a copy. Does nothing if the version is installed.
# With REQUIRE_PEERS=1, a version that cannot be installed is an error.
set -eu
python=$1
version=$2
folder=$3/$version
release=$("$python" --version)

give_up() {
    echo "Skipping the tests with PyTorch $version: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}

if [ ! -e "$folder/.installed" ] || [ "$("$folder/bin/python" --version)" != "$release" ]; then
    echo "Installing PyTorch $version in $folder, once. It takes four minutes and 7 GB, of which 3.5 GB stay."
    rm -rf "$folder"
    case $version in
    2.[0-2].*) numpy='numpy<2' ;; # these do not support numpy 2
    *) numpy=numpy ;;
    esac
    # A cache would keep the downloaded 3 GB.
    if ! "$python" -m venv "$folder" ||
        ! "$folder/bin/pip" install --quiet --no-cache-dir --no-compile "torch==$version" "$numpy" ||
        ! "$folder/bin/python" tests/interop/trim_torch.py; then
        rm -rf "$folder"
        give_up "pip could not install it for $release"
    fi
    touch "$folder/.installed"
fi
[ -n "${4:-}" ] || exit 0
where='import sysconfig; print(sysconfig.get_path("purelib"))'
"$folder/bin/python" -c "$where" >"$("$4/bin/python" -c "$where")/torch.pth"
