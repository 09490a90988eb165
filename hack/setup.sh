#!/bin/sh
# Makes sure of the few programs that a fresh Debian machine with Go may lack: gcc with libc's headers (simulated
# libraries, race detector) and git. As root it installs them; else it says what to install.
#   hack/setup.sh             those
#   hack/setup.sh promtool    promtool and prometheus alone, which test rules and dashboards; without them those tests say that
#                             they were skipped
set -eu
if [ "${1:-}" = promtool ]; then
    if command -v promtool >/dev/null && command -v prometheus >/dev/null; then exit 0; fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing prometheus (its service is neither started nor enabled)" >&2
        "$(dirname "$0")/apt.sh" prometheus >&2 || echo "prometheus could not be installed: tests that need it will be skipped" >&2
    else
        echo "promtool is missing: tests of rules and dashboards will be skipped (apt-get install prometheus)" >&2
    fi
    exit 0
fi
missing=
command -v gcc >/dev/null || missing="$missing gcc"
command -v git >/dev/null || missing="$missing git"
[ -e /usr/include/stdlib.h ] || missing="$missing libc6-dev"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing$missing" >&2
        # shellcheck disable=SC2086 # one word a package
        "$(dirname "$0")/apt.sh" $missing >&2
    else
        echo "missing:$missing. Install them (apt-get install$missing), then try again." >&2
        exit 1
    fi
fi
command -v go >/dev/null || { echo "go was not found in PATH: install Go 1.26 or later" >&2; exit 1; }
