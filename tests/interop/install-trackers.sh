#!/bin/sh
# Installs Weights & Biases, MLflow and TensorBoard into their own environment outside the checkout, from PyPI:
# tests/commands/why/test_tracking.py has `why` write into their runs. Usage: install-trackers.sh PYTHON. Does nothing if
# these versions are installed. With REQUIRE_PEERS=1, a failure is an error.
set -eu
python=$1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/trackers
packages="mlflow-skinny==3.17.2 tensorboard==2.21.0 wandb==0.31.0"

[ "$(cat "$folder/.installed" 2>/dev/null || true)" != "$packages" ] || exit 0
echo "Installing experiment trackers in $folder, once. It takes a minute and 370 MB."
rm -rf "$folder"
# shellcheck disable=SC2086 # one word for each package
if "$python" -m venv "$folder" && "$folder/bin/pip" install --quiet --no-cache-dir $packages; then
    echo "$packages" >"$folder/.installed"
else
    rm -rf "$folder"
    echo "Skipping the tests with experiment trackers: pip could not install them for $("$python" --version)"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
fi
