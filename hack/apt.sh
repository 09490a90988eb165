#!/bin/sh
# Installs the Debian packages that are named, as root; the one place of this repository that does.
#   hack/apt.sh PACKAGE...
# Name what is missing and nothing else. Nothing that is installed is removed: where a package conflicts with one (Debian's
# containerd with Docker's) this fails and changes nothing. No service is started, now or at the next boot.
set -eu
[ $# -gt 0 ] || { echo "usage: hack/apt.sh PACKAGE..." >&2; exit 2; }
command -v apt-get >/dev/null || { echo "there is no apt-get to install $* with" >&2; exit 1; }
# policy-rc.d forbids to start the services that packages bring. The mark tells one that a killed hack/apt.sh left.
policy=/usr/sbin/policy-rc.d
mark='# made by hack/apt.sh'
units=/etc/systemd/system
made=
before=
listed=
enabled() { # the units that start at boot, one a line
    for link in "$units"/*.wants/*; do
        if [ -L "$link" ]; then echo "$link"; fi
    done
}
finish() {
    if [ -n "$made" ]; then rm -f "$policy"; fi
    if [ -z "$listed" ]; then return 0; fi
    enabled | while read -r link; do
        case "
$before
" in
        *"
$link
"*) ;;
        *)
            echo "${link##*/} does not start at boot: systemctl enable ${link##*/} if you want it to"
            rm -f "$link"
            ;;
        esac
    done
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
old=$mark
if [ -e "$policy" ]; then old=$(cat "$policy"); fi
case $old in
*"$mark"*)
    made=1
    printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
    chmod 0755 "$policy"
    ;;
esac
before=$(enabled)
listed=1
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@"
