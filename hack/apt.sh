#!/bin/sh
# Installs the Debian packages that are named, as root; the one place of this repository that does.
#   hack/apt.sh PACKAGE...
# Name what is missing and nothing else. Nothing that is installed is removed: where a package conflicts with one (Debian's
# containerd with Docker's) this fails and changes nothing. No service is started.
set -eu
[ $# -gt 0 ] || { echo "usage: hack/apt.sh PACKAGE..." >&2; exit 2; }
command -v apt-get >/dev/null || { echo "there is no apt-get to install $* with" >&2; exit 1; }
# policy-rc.d forbids to start the services that packages bring.
policy=/usr/sbin/policy-rc.d
made=
trap '[ -z "$made" ] || rm -f "$policy"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ ! -e "$policy" ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 0755 "$policy"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@"
