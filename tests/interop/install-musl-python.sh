#!/bin/sh
# Builds Debian's Python 3.11 on musl into a cache outside the checkout: no registry has one that is ready.
# tests/receivers/ebpf/sampler/pythons.py finds it. musl-gcc also compiles the stand-in libraries for it.
# Usage: install-musl-python.sh. Does nothing if it is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
version=3.11
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/python-$version-musl
machine=$(uname -m)

[ ! -e "$folder/.installed" ] || exit 0
give_up() {
    echo "Skipping the tests with Python on musl: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
command -v dpkg-query >/dev/null || give_up "this script supports Debian only"
missing=""
for package in gcc make xz-utils linux-libc-dev libffi-dev musl-tools; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || give_up "only root can install$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # one word for each package
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/dev/null ||
        give_up "apt-get could not install$missing"
fi
echo "Building Python $version on musl in $folder, once. It takes 2 minutes of CPU time and 400 MB, of which 150 MB stay."
mkdir -p "${folder%/*}" 2>/dev/null || give_up "${folder%/*} cannot be made; set XDG_CACHE_HOME"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | sed -n '/security/d; s/^Debian //p' | head -n 1)
[ -n "$mirror" ] || give_up "no source of Debian packages is configured"
mkdir -p "$new/apt/lists/partial" "$new/kernel"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$new/apt/sources.list"
apt() {
    apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Dir::Cache="$new/apt" -o Dir::State::lists="$new/apt/lists" \
        -o Dir::Etc::sourcelist="$new/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null "$@"
}
# musl-gcc has no headers of the kernel, and says that it is the system's compiler.
for headers in linux asm-generic; do ln -s "/usr/include/$headers" "$new/kernel/$headers"; done
ln -s "/usr/include/$machine-linux-gnu/asm" "$new/kernel/asm"
cat >"$new/cc" <<CC
#!/bin/sh
case "\$*" in *print-multiarch*) echo $machine-linux-musl && exit ;; esac
exec musl-gcc -isystem "$new/kernel" "\$@"
CC
chmod +x "$new/cc"
build() {
    cd "$new" && apt update && apt source --download-only "python$version" && tar --extract --file python*.orig.tar.*
    cd "$new/Python-$version".*
    ./configure CC="$new/cc" CFLAGS=-O1 --without-ensurepip --disable-test-modules
    make -s -j2 python
    make -s sharedmods
    # Debian's libffi needs nothing that musl does not have.
    mkdir ffi && cp "/usr/include/$machine-linux-gnu/"ffi*.h ffi
    (
        cd Modules/_ctypes
        "$new/cc" -O1 -shared -fPIC -DPy_BUILD_CORE_MODULE -DHAVE_FFI_PREP_CIF_VAR -DHAVE_FFI_PREP_CLOSURE_LOC \
            -DHAVE_FFI_CLOSURE_ALLOC -I../../Include -I../../Include/internal -I../.. -I../../ffi \
            _ctypes.c callbacks.c callproc.c stgdict.c cfield.c "/usr/lib/$machine-linux-gnu/libffi_pic.a" \
            -o "../../$(cat ../../pybuilddir.txt)/_ctypes.cpython-311-$machine-linux-musl.so"
    )
    ./python -c 'import ctypes, fcntl, select, socket, threading; ctypes.CDLL(None).getpid()'
}
(build) >"$new/log" 2>&1 || { # its last command fails if one before it has failed
    tail -n 5 "$new/log"
    give_up "it could not be built"
}
python=$(echo "$new/Python-$version".*)
rm -rf "$python/build/temp"* "$python"/*.a "$python/Lib/test"
find "$python" -name '*.o' -delete
touch "$python/.installed"
rm -rf "$folder"
mv "$python" "$folder"
