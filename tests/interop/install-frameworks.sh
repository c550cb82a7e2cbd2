#!/bin/sh
# Installs training frameworks for the tests in tests/frameworks into their own environment FOLDER, from PyPI. They
# cannot share .venv: their requirements would change the versions of its packages. Their PyTorch is in TORCH, that of
# install-torch.sh. Usage: install-frameworks.sh PYTHON FOLDER TORCH. Does nothing if they are installed. With REQUIRE_PEERS=1, a failure is an error.
set -eu
python=$1
folder=$2
torch=2.13.0
packages="torch==$torch lightning==2.6.6 transformers==5.23.0 accelerate==1.15.0 sentence-transformers==6.2.0
datasets==5.2.0 pytorch-ignite==0.5.5 keras==3.15.1 stable-baselines3==2.9.2 deepspeed==0.19.8 jax==0.10.2
scikit-learn==1.9.1 xgboost-cpu==3.2.0"

if [ "$(cat "$folder/.installed" 2>/dev/null || true)" = "$packages" ] &&
    [ "$("$folder/bin/python" --version)" = "$("$python" --version)" ]; then
    exit 0
fi
echo "Installing training frameworks in $folder, once. It takes three minutes and 2 GB."
rm -rf "$folder"
# DS_BUILD_OPS=0 keeps DeepSpeed from building its kernels for GPUs.
# shellcheck disable=SC2086 # one word for each package
if "$python" -m venv "$folder" && sh tests/interop/install-torch.sh "$python" $torch "$3" "$folder" &&
    DS_BUILD_OPS=0 "$folder/bin/pip" install --quiet --no-cache-dir $packages; then
    echo "$packages" >"$folder/.installed"
else
    rm -rf "$folder"
    echo "Skipping the tests with training frameworks: pip could not install them for $("$python" --version)"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
fi
