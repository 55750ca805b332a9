#!/bin/sh
# deps.sh LIST - install the Debian packages of LIST that are missing; without root, say what must be there.
set -eu
list=$(sed 's/#.*//' "$1")
missing=
for p in $list; do
    dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $p"
done
if [ -z "$missing" ]; then
    echo "  deps  all packages are installed"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "This needs root on Debian 12 to install:$missing" >&2
    echo "On a cluster without root, load or build these (modules, spack): gcc >= 12, GNU make, pkg-config, Open MPI 4.1 with" >&2
    echo "PMIx 4, UCX >= 1.13, HDF5 >= 1.10, libuv, jansson, libcyaml, libyaml, OpenSSL 3, libcurl, and the" >&2
    echo "C sources of llhttp 8: make LLHTTP_SRC=DIR LLHTTP_INCLUDE=DIR." >&2
    exit 1
fi
echo "  deps  installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
# shellcheck disable=SC2086 # a list of names
apt-get install -y -qq --no-install-recommends $missing >/tmp/exaserve-deps.$$ 2>&1 || {
    tail -20 /tmp/exaserve-deps.$$ >&2
    rm -f /tmp/exaserve-deps.$$
    exit 1
}
rm -f /tmp/exaserve-deps.$$
# A package that was installed just now starts a daemon of its own on a real machine; the test clusters bring theirs.
for s in slurmctld slurmd munge; do
    case " $missing " in *" $s "*) ;; *) continue ;; esac
    if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then systemctl disable -q --now $s 2>/dev/null || true; fi
done
