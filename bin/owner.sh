# shellcheck shell=sh
# Lets root's launcher in another's checkout go on as its owner. Sourced by bootstrap.sh.
#
# A guard against accidents, as `sudo ./bin/rq status` in a checkout of one's own: whoever
# owns the code decides what it does, this file too. Root's own RQ lies in /opt/rq.

: "${checkout:?is set by bootstrap.sh}" "${here:?is set by the launcher}"

# become_owner ARGUMENT...: if root, who calls this, is in another's checkout, be its owner.
become_owner() {
    find_owner
    [ -n "$owner_uid" ] || return 0
    owner_passwd
    echo "rq: $checkout belongs to $owner_name: going on as $owner_name" >&2
    name_own_python
    own_environment
    exec_as "$@"
}

# Set owner_uid and owner_gid to the user other than root that owns code here.
find_owner() {
    owner_uid=''
    owners=$(ls -ldn "$checkout" "$checkout/pyproject.toml" "$checkout"/bin \
        "$checkout"/bin/* "$checkout"/rq "$checkout"/rq/* "$checkout"/.venv \
        "$checkout"/.venv/* "$checkout"/.venv/lib/*/site-packages 2>/dev/null) || :
    while read -r mode _ uid gid _; do
        case $mode in
            l* | ?????????[tT]*) ;;
            ????????w*) warn_writable "anybody" ;;
            ?????w*) [ "$gid" = 0 ] || warn_writable "the group $gid" ;;
        esac
        [ "$uid" != 0 ] || continue
        if [ -n "$owner_uid" ] && [ "$owner_uid" != "$uid" ]; then
            echo "rq: the code in $checkout belongs to the users $owner_uid and $uid:" \
                "chown -R it to one of them" >&2
            exit 1
        fi
        owner_uid=$uid owner_gid=$gid
    done <<OWNERS
$owners
OWNERS
}

warn_writable() {
    [ -z "${owner_warned:-}" ] || return 0
    owner_warned=1
    echo "rq: warning: $1 may change the code in $checkout: chmod -R go-w it" >&2
}

# Look the owner up; without an entry in passwd its name is its number.
owner_passwd() {
    owner_name=$owner_uid owner_home=/ owner_groups=--clear-groups
    entry=$(getent passwd "$owner_uid" 2>/dev/null) ||
        entry=$(awk -F: -v uid="$owner_uid" '$3 == uid { print; exit }' /etc/passwd) || :
    [ -n "$entry" ] || return 0
    owner_groups=--init-groups
    IFS=: read -r owner_name _ _ owner_gid _ owner_home _ <<ENTRY
$entry
ENTRY
}

# Where .venv is still to be made, tell the owner which Python root has: below root's home
# (pyenv, uv) only root can see it, and it would read "no python3". In /, for pyenv does
# what a file in the directory says.
name_own_python() {
    if stamped; then return; fi
    where='import os, sys; print(os.path.realpath(sys._base_executable))'
    RQ_PYTHON_OF_ROOT=$(cd / && python3 -I -c "$where" 2>/dev/null) || RQ_PYTHON_OF_ROOT=''
    export RQ_PYTHON_OF_ROOT
}

# Nothing of root's goes along but what shows text, finds programs and names an RQ; and
# where packages come from, unless it holds a password.
own_environment() {
    for variable in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
        case $variable in
            PATH | TERM | COLUMNS | LINES | NO_COLOR | LANG | LANGUAGE | TZ) continue ;;
            LC_* | RQ_* | SUDO_USER | NOTIFY_SOCKET | WATCHDOG_USEC) continue ;;
            SSL_CERT_* | *_CA_BUNDLE | PIP_CERT | PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | \
                PIP_FIND_LINKS | *_proxy | *_PROXY)
                eval "case \$$variable in *@*) unset $variable ;; esac"
                continue
                ;;
            here | checkout | venv | python | variable | module | owner_*) continue ;;
        esac
        unset "$variable" 2>/dev/null || :
    done
    export HOME="$owner_home" USER="$owner_name" LOGNAME="$owner_name"
    export SUDO_USER="${SUDO_USER:-root}"
}

# Run the launcher again as the owner, with the same words and descriptors.
# shellcheck disable=SC2016 # what is quoted is for the inner shell
exec_as() {
    set -- "$here" "$@"
    by_setpriv="setpriv --reuid $owner_uid --regid $owner_gid $owner_groups --"
    # shellcheck disable=SC2086 # words without spaces
    if $by_setpriv test -x "$here" 2>/dev/null; then
        exec $by_setpriv "$@"
    elif runuser -u "$owner_name" -- test -x "$here" 2>/dev/null; then
        exec runuser -u "$owner_name" -- "$@"
    elif su -s /bin/sh -c 'test -x "$0"' "$owner_name" -- "$here" 2>/dev/null; then
        exec su -s /bin/sh -c 'exec "$0" "$@"' "$owner_name" -- "$@"
    fi
    echo "rq: $owner_name cannot run $here, or nothing here can act as $owner_name:" \
        "let that user reach it, or install setpriv (package util-linux)" >&2
    exit 1
}

