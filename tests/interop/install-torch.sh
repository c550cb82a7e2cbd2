#!/bin/sh
# Installs a version of PyTorch into its own environment .torch/VERSION. PyPI's build for x86-64 includes CUDA (5 GB) and
# also runs without a GPU. Usage: install-torch.sh PYTHON VERSION. Does nothing if the version is installed.
# With REQUIRE_PEERS=1, a version that cannot be installed is an error.
set -eu
python=$1
version=$2
folder=.torch/$version

[ ! -e "$folder/.installed" ] || exit 0
echo "Installing PyTorch $version in $folder, once. It takes two minutes and 5 GB."
rm -rf "$folder"
case $version in
2.[0-2].*) numpy='numpy<2' ;; # these do not support numpy 2
*) numpy=numpy ;;
esac
# A cache would keep the downloaded 3 GB.
if "$python" -m venv "$folder" &&
    "$folder/bin/pip" install --quiet --no-cache-dir "torch==$version" "$numpy" &&
    "$folder/bin/python" -c 'import torch; torch.ones(1).sum()'; then
    touch "$folder/.installed"
else
    rm -rf "$folder"
    echo "Skipping the tests with PyTorch $version: pip could not install it for $("$python" --version)"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
fi
