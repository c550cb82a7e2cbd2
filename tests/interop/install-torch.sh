#!/bin/sh
# Installs a version of PyTorch into .torch/VERSION, an environment of its own: PyPI's build, which for x86-64 is the one
# for CUDA (5 GB) and also runs without a GPU. Usage: install-torch.sh PYTHON VERSION. Does nothing where it is installed.
# With REQUIRE_PEERS=1 a version that cannot be installed is an error.
set -eu
python=$1
version=$2
folder=.torch/$version

[ ! -e "$folder/.installed" ] || exit 0
echo "Installing PyTorch $version in $folder, once; it takes two minutes and 5 GB."
rm -rf "$folder"
case $version in
2.[0-2].*) numpy='numpy<2' ;; # which these cannot use
*) numpy=numpy ;;
esac
# A cache would keep the 3 GB that are fetched.
if "$python" -m venv "$folder" &&
    "$folder/bin/pip" install --quiet --no-cache-dir "torch==$version" "$numpy" &&
    "$folder/bin/python" -c 'import torch; torch.ones(1).sum()'; then
    touch "$folder/.installed"
else
    rm -rf "$folder"
    echo "Skipping the tests with PyTorch $version: pip could not install it for $("$python" --version)"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
fi
