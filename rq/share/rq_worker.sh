# shellcheck shell=sh disable=SC2059  # the formats are made of hex digits alone
# Long-lived workers in sh (POSIX; dash, bash, busybox).
#
#   . "$RQ_SHARE/rq_worker.sh"
#   while rq_next; do
#       echo "run halfway" >&3
#       echo "done hello $RQ_PARAM1" >&3
#   done
#
# rq_next says that the worker is ready, waits for a message, and exports the variables
# that other scripts find in their environment. It changes to the message's directory.

rq_next() {
    unset RQ_FORCE_REMOTE RQ_DEST_QUEUE RQ_MSG_DIR RQ_PARENT_RESULT RQ_AFTER
    echo ready >&3
    IFS= read -r rq_rest <&4 || return 1
    rq_rest=${rq_rest#'{'}
    while [ "$rq_rest" != '}' ]; do # "NAME":"VALUE", or } behind the last
        rq_rest=${rq_rest#*'"'}
        rq_name=${rq_rest%%'"'*}
        rq_rest=${rq_rest#*':"'}
        rq_value=${rq_rest%%'"'*} # no quotation mark stands for itself
        rq_rest=${rq_rest#*'"'}
        case $rq_value in *\\u*) rq_unescape ;; esac
        case $rq_name in RQ_*[!A-Z0-9_]*) ;; RQ_*) export "$rq_name=$rq_value" ;; esac
    done
    cd "${RQ_MSG_DIR:-/}" || return 1
}

# Replaces each \uXXXX in rq_value; only quotation mark, backslash and control
# characters are written so.
rq_unescape() {
    rq_from=$rq_value rq_value=
    while :; do
        rq_value=$rq_value${rq_from%%\\u*}
        case $rq_from in *\\u*) rq_from=${rq_from#*\\u} ;; *) break ;; esac
        rq_code=${rq_from%"${rq_from#????}"}
        rq_from=${rq_from#????}
        case $rq_code in
            0022) rq_value=$rq_value'"' ;;
            005c) rq_value=$rq_value\\ ;;
            000a) rq_value="$rq_value
" ;;
            *) rq_value=$rq_value$(printf "\\$(printf %03o "0x$rq_code")") ;;
        esac
    done
}
