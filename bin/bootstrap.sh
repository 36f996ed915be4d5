# shellcheck shell=sh disable=SC2119,SC2120
# Finds the checkout and its .venv for the launchers beside it. Sourced, never run.
#
# A launcher sets `here` to its own resolved path, sources this file, and calls `launch`.
# The warm path starts no Python: it compares the stamp that bootstrap.py wrote last of
# all. Whatever does not compare is left to bootstrap.py, which takes a lock.

: "${here:?is set by the launcher}"
checkout=${here%/*/*}
venv=$checkout/.venv
python=$venv/bin/python

# Nothing from the caller's shell may put code into RQ or into what RQ starts.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE PYTHONPLATLIBDIR PYTHONEXECUTABLE \
    PYTHONSAFEPATH PYTHONNOUSERSITE PYTHONINSPECT PYTHONOPTIMIZE PYTHONDEBUG PYTHONVERBOSE \
    PYTHONWARNINGS PYTHONBREAKPOINT PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX \
    PYTHONCASEOK PYTHONIOENCODING PYTHONHASHSEED __PYVENV_LAUNCHER__

# launch MODULE ARGUMENT...: become that module, with the packages it needs in place.
launch() {
    module=$1
    shift
    if is_root; then become_owner "$@"; fi
    bootstrap
    unset RQ_PYTHON_OF_ROOT
    exec "$python" -I -m "$module" "$@"
}

# bootstrap EXTRA...: make sure of .venv, with these extras of pyproject.toml.
bootstrap() {
    if stamped "$@"; then return; fi
    demand_linux
    base=$(find_python) || exit 1
    "$base" -I "$checkout/bin/bootstrap.py" "$@" || exit 1
}

# Say where RQ runs before a Python is looked for, which would not help there. What is said
# is also in rq/cli/launch.py, for packages.
demand_linux() {
    system=$(uname -s) release=$(uname -r)
    case $system$release in
        Linux*-Microsoft) system='WSL 1' ;;
        Linux*) return 0 ;;
        Darwin*) system=macOS ;;
    esac
    echo "rq: RQ runs on Linux, and this is $system: run it in a container" \
        "(docs/guide/install.md says how), in a virtual machine, or in WSL 2" >&2
    exit 1
}

is_root() {
    [ "$(id -u)" = 0 ] || return 1
    # shellcheck source=bin/owner.sh
    . "$checkout/bin/owner.sh"
}

# Is .venv whole, made for this checkout, from these pins, with these extras?
stamped() {
    [ -x "$python" ] && [ -r "$venv/rq.stamp" ] || return 1
    made_for='' extras=''
    { IFS= read -r made_for && read -r extras; } <"$venv/rq.stamp" || return 1
    [ "$made_for" = "$checkout" ] || return 1
    for extra in "$@"; do
        case " $extras " in *" $extra "*) ;; *) return 1 ;; esac
    done
    cmp -s "$checkout/pyproject.toml" "$venv/rq.pyproject.toml" &&
        cmp -s "$checkout/requirements.lock" "$venv/rq.requirements.lock"
}

# Print the first Python >= 3.11 (tomllib came with it) that has its standard library.
find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -I -c 'import tomllib, venv' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    install='(Debian 12 and later: apt-get install python3 python3-venv)'
    found=$(python3 --version 2>/dev/null) || found='no python3'
    if closed=$(closed_python); then
        user=$(id -un 2>/dev/null) || user=$(id -u)
        echo "rq: $user may not run $closed, and found $found:" \
            "install a Python 3.11 or newer for all $install, or let that user read it" >&2
    else
        echo "rq: needs Python 3.11 or newer and found $found: install it $install" >&2
    fi
    return 1
}

# Print the Python that root has and we may not run, if there is one: that of .venv, or the
# one that root would have taken (owner.sh names it). What lies in a directory that is
# closed to us cannot be seen, so what can be said of it is where the link leads.
closed_python() {
    closed=$(readlink -- "$python") && [ "${closed#/}" != "$closed" ] ||
        closed=${RQ_PYTHON_OF_ROOT:-}
    [ -n "$closed" ] && [ ! -x "$closed" ] && echo "$closed"
}
