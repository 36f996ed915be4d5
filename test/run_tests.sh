#!/bin/sh
# The one runner of tests: ./test/run_tests.sh [PART...] [-k EXPR] [-x] [--all]
# [--no-retry] [--without PART]; --help lists parts.
set -eu
here=$(readlink -f -- "$0")
# shellcheck source=bin/bootstrap.sh
. "${here%/*/*}/bin/bootstrap.sh"
bootstrap test dev
exec "$python" -s "$checkout/test/runner" "$@"
