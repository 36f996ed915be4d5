# shellcheck shell=sh
# A client of RQ for any POSIX sh, with curl (from 7.71) and awk; one file.
#
#   . ./rq_client.sh                      # of RQ_URL and RQ_TOKEN
#   id=$(rq_send mail --key order/4711 param1=ann@example.org priority:=5)
#   rq_wait mail "$id"                    # prints the state; status 8: it ended in err
#
#   rq_send QUEUE [--key KEY] [NAME=TEXT | NAME:=JSON ...]    prints the id
#   rq_send_many QUEUE [--key KEY] < LINES                    a message of JSON a line; prints
#                                                             a line for each: msg_id, or kind
#   rq_message QUEUE ID                                       prints all about it, as JSON
#   rq_wait [--progress] QUEUE ID [SECONDS]                   ... each status on standard error
#   rq_result QUEUE ID [SECONDS]                              waits; prints what its script said
#   rq_log QUEUE ID
#   rq_cancel QUEUE ID
#   rq_send_flow [--key KEY] < PLAN                           a flow as JSON; prints its id
#   rq_flow ID                                                prints how it is, as JSON
#   rq_wait_flow ID [SECONDS]                                 prints its mark; status 0: done;
#                                                             8: not, a sentence says why
#   rq_cancel_flow ID
#   rq_field NAME < JSON                                      prints a member of an object
#   rq_verify_webhook SECRET ID TIMESTAMP SIGNATURE < BODY    status 0: RQ has signed it
#
# What was sent is on disk when rq_send returns. Each message is sent with a key, yours or one
# of chance, so that curl may send it again after a lost answer and it is still one message.
# What may not be done twice is not tried again. Every request has a time-out. A failure is a
# sentence with its kind on standard error, and status 1 (7: not ended in time); the token is
# in no text and on no command line.

RQ_TIMEOUT=${RQ_TIMEOUT:-10} # seconds of one attempt
RQ_ATTEMPTS=${RQ_ATTEMPTS:-5}

rq_send() {
    _rq_options "$@" || return
    shift "$_rq_shift"
    _rq_body=
    for _rq_pair in "$@"; do
        _rq_name=${_rq_pair%%=*}
        case $_rq_name in
            *:) _rq_member="$(_rq_text "${_rq_name%:}"):${_rq_pair#*=}" ;;
            *) _rq_member="$(_rq_text "$_rq_name"):$(_rq_text "${_rq_pair#*=}")" ;;
        esac
        _rq_body="$_rq_body${_rq_body:+,}$_rq_member"
    done
    printf '{%s}' "$_rq_body" |
        _rq_ask POST "queues/$_rq_queue/messages" json "$_rq_key" | rq_field msg_id
}

rq_send_many() {
    _rq_options "$@" || return
    _rq_ask POST "queues/$_rq_queue/messages/bulk" x-ndjson "$_rq_key"
}

rq_message() { _rq_ask GET "queues/$1/messages/$2"; }

rq_log() { _rq_ask GET "queues/$1/messages/$2/log"; }

rq_send_flow() {
    _rq_options flow "$@" || return
    _rq_ask POST flows json "$_rq_key" | rq_field msg_id
}

rq_flow() { _rq_ask GET "flows/$1"; }

rq_cancel_flow() { _rq_ask POST "flows/$1/cancel" >/dev/null; }

# Until nothing of it runs or is ready to; one that was not begun has failed, none of it ran.
rq_wait_flow() {
    _rq_until=$(($(date +%s) + ${2:-600}))
    while :; do
        _rq_left=$((_rq_until - $(date +%s)))
        _rq_wait=$((_rq_left < 30 ? _rq_left : 30))
        [ "$_rq_wait" -gt 0 ] || _rq_wait=0
        _rq_said=$(_rq_ask GET "flows/$1?wait=$_rq_wait&for=end" '' '' $((RQ_TIMEOUT + _rq_wait))) ||
            return 1
        _rq_state=$(printf '%s' "$_rq_said" | rq_field mark)
        _rq_why=$(printf '%s' "$_rq_said" | rq_field text)
        case $_rq_state in
            done) echo "$_rq_state" && return 0 ;;
            runs | ready | waits | unsent) ;;
            *) echo "$_rq_state" && echo "rq: flow $1: $_rq_why ($_rq_state)" >&2 && return 8 ;;
        esac
        if [ "$_rq_left" -le 0 ]; then
            echo "rq: flow $1 has not ended after ${2:-600} s: $_rq_why (timeout)" >&2
            return 7
        fi
    done
}

rq_wait() {
    _rq_seen=-
    _rq_most=30
    if [ "$1" = --progress ]; then
        _rq_seen='' _rq_most=1
        shift
    fi
    _rq_until=$(($(date +%s) + ${3:-600}))
    while :; do
        _rq_left=$((_rq_until - $(date +%s)))
        _rq_wait=$((_rq_left < _rq_most ? _rq_left : _rq_most))
        [ "$_rq_wait" -gt 0 ] || _rq_wait=0
        _rq_said=$(_rq_ask GET "queues/$1/messages/$2?wait=$_rq_wait&for=end" '' '' $((RQ_TIMEOUT + _rq_wait))) ||
            return 1
        _rq_state=$(printf '%s' "$_rq_said" | rq_field state)
        case $_rq_state in
            done | relayed) echo "$_rq_state" && return 0 ;;
            err | dismissed) echo "$_rq_state" && return 8 ;;
        esac
        _rq_status=$(printf '%s' "$_rq_said" | rq_field status)
        if [ "$_rq_seen" != - ] && [ "$_rq_status" != "$_rq_seen" ]; then
            _rq_seen=$_rq_status
            echo "$_rq_status" >&2
        fi
        if [ "$_rq_left" -le 0 ]; then
            echo "rq: $1/$2 has not ended after ${3:-600} s, it goes on (timeout)" >&2
            return 7
        fi
    done
}

rq_result() {
    rq_wait "$@" >/dev/null || {
        _rq_code=$?
        [ "$_rq_code" -ne 8 ] ||
            echo "rq: $1/$2: $(rq_message "$1" "$2" | rq_field story | rq_field why) (failed)" >&2
        return "$_rq_code"
    }
    rq_message "$1" "$2" | rq_field result | rq_field result
}

# End one that runs; remove one that waits.
rq_cancel() { _rq_ask POST "queues/$1/messages/$2/cancel" >/dev/null; }

# ---- requests

# QUEUE [--key KEY]: sets the queue and the key, and how many words these were.
_rq_options() {
    _rq_queue=$1 _rq_shift=1
    _rq_key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    if [ "${2:-}" = --key ]; then
        _rq_key=$3 _rq_shift=3
    fi
    case $_rq_queue in
        '' | *[!a-zA-Z0-9_.-]*) echo "rq: ${_rq_queue} names no queue (bad_input)" >&2 && return 1 ;;
    esac
}

# Sets the token, without the end of the line of its file. One that no header can hold is
# refused: a line in it would be a setting of curl.
_rq_parse_token() {
    _rq_token=$(printf '%s' "${RQ_TOKEN:-}" | LC_ALL=C awk '
        { s = s (NR > 1 ? "\n" : "") $0 }
        END { gsub(/^[ \t\r\n]+|[ \t\r\n]+$/, "", s); printf "%s", s }')
    [ "$(printf '%s' "$_rq_token" | LC_ALL=C tr -dc '!#-[]-~')" = "$_rq_token" ] && return
    echo "rq: the token holds a blank or control character, or is not ASCII: see RQ_TOKEN (bad_input)" >&2
    return 1
}

# METHOD PATH [MEDIA KEY [SECONDS]]: prints the body of the answer; with a MEDIA the body of
# the request is standard input. A GET, and what has a key, is sent again.
_rq_ask() {
    _rq_parse_token || return 1
    case ${RQ_URL:-} in
        *[\"\\]* | *'
'*) echo "rq: RQ_URL holds what no address has (bad_input)" >&2 && return 1 ;;
    esac
    _rq_answer=$(mktemp) || return 1
    _rq_at=${RQ_URL:?no address of RQ, http://HOST:PORT}
    set -- "$1" "$2" "${3:-}" "${4:-}" "${5:-$RQ_TIMEOUT}" "${_rq_at%/}/api/v1/$2"
    _rq_http=$(
        method=$1 media=$3 key=$4 seconds=$5 url=$6 login=''
        [ -z "$_rq_token" ] || login="header = \"Authorization: Bearer $_rq_token\""
        set -- --silent --show-error --request "$method" --max-time "$seconds" --output "$_rq_answer"
        [ "$method" = POST ] && [ -z "$key" ] ||
            set -- "$@" --retry $((RQ_ATTEMPTS - 1)) --retry-all-errors --retry-max-time 60
        [ -z "$media" ] ||
            set -- "$@" --header "Content-Type: application/$media" --data-binary @- \
                --header "Idempotency-Key: $key"
        curl --config /dev/fd/3 "$@" --write-out '%{http_code}' "$url" 2>"$_rq_answer.why" 3<<CONFIG
$login
CONFIG
    ) || : # `set -e` of the program: what failed is told below
    _rq_code=0
    case $_rq_http in
        2*) cat "$_rq_answer" ;;
        *) _rq_refused "$_rq_http" <"$_rq_answer" || _rq_code=1 ;;
    esac
    rm -f "$_rq_answer" "$_rq_answer.why"
    return "$_rq_code"
}

# Say what an answer refuses, or that there was none.
_rq_refused() {
    _rq_said=$(cat)
    _rq_kind=$(printf '%s' "$_rq_said" | rq_field kind 2>/dev/null) || :
    if [ "$1" = 000 ]; then
        _rq_kind=no_answer _rq_detail="${RQ_URL%/} does not answer: $(tail -n 1 "$_rq_answer.why")"
    elif [ -n "$_rq_kind" ]; then
        _rq_detail=$(printf '%s' "$_rq_said" | rq_field detail)
    else
        _rq_kind=refused _rq_detail="the answer is HTTP $1, and not of RQ"
    fi
    echo "rq: $_rq_detail ($_rq_kind)" >&2
    return 1
}

# ---- JSON

# NAME: print the member NAME of the object on standard input: of a text its characters, of
# anything else its JSON. Status 1: there is none.
rq_field() {
    LC_ALL=C awk -v name="$1" '
function skip() { while (substr(s, i, 1) ~ /[ \t\r\n,:]/) i++ }
function pass(    c) {
    for (i++; i <= n && (c = substr(s, i, 1)) != "\""; i++) if (c == "\\") i++
    i++
}
function value(    from, c, depth) {
    from = i
    do {
        c = substr(s, i, 1)
        if (c == "\"") { pass(); continue }
        if (c ~ /[][{}]/) depth += (c == "{" || c == "[") ? 1 : -1
        else if (!depth) { while (i <= n && substr(s, i, 1) !~ /[],} \t\r\n]/) i++; break }
        i++
    } while (depth > 0 && i <= n)
    return substr(s, from, i - from)
}
function utf8(u) {
    if (u < 128) return sprintf("%c", u)
    if (u < 2048) return sprintf("%c%c", 192 + int(u / 64), 128 + u % 64)
    if (u < 65536) return sprintf("%c%c%c", 224 + int(u / 4096), 128 + int(u / 64) % 64, 128 + u % 64)
    return sprintf("%c%c%c%c", 240 + int(u / 262144), 128 + int(u / 4096) % 64, 128 + int(u / 64) % 64, 128 + u % 64)
}
function hex(t,    k, u) {
    for (k = 1; k <= 4; k++) u = u * 16 + index("0123456789abcdef", tolower(substr(t, k, 1))) - 1
    return u
}
function text(t,    out, k, c, u, low) {
    for (k = 1; (c = substr(t, k, 1)) != ""; k++) {
        if (c != "\\") { out = out c; continue }
        c = substr(t, ++k, 1)
        if (c == "u") {
            u = hex(substr(t, k + 1, 4)); k += 4
            if (u >= 55296 && u < 56320 && substr(t, k + 1, 2) == "\\u") {
                low = hex(substr(t, k + 3, 4)); k += 6
                u = 65536 + (u - 55296) * 1024 + low - 56320
            }
            out = out utf8(u)
        } else out = out (c in plain ? plain[c] : c)
    }
    return out
}
{ s = s (NR > 1 ? "\n" : "") $0 }
END {
    plain["n"] = "\n"; plain["t"] = "\t"; plain["r"] = "\r"; plain["b"] = "\b"; plain["f"] = "\f"
    n = length(s); i = index(s, "{") + 1
    if (i == 1) exit 1
    while (i <= n) {
        skip()
        if (substr(s, i, 1) != "\"") exit 1
        from = i; pass(); key = substr(s, from + 1, i - from - 2)
        skip(); v = value()
        if (key != name) continue
        print (substr(v, 1, 1) == "\"") ? text(substr(v, 2, length(v) - 2)) : v
        exit 0
    }
    exit 1
}'
}

# TEXT: print it as JSON.
_rq_text() {
    _RQ_TEXT=$1 LC_ALL=C awk 'BEGIN {
        t = ENVIRON["_RQ_TEXT"]
        for (k = 1; k < 32; k++) code[sprintf("%c", k)] = sprintf("\\u%04x", k)
        for (k = 1; (c = substr(t, k, 1)) != ""; k++)
            out = out (c == "\"" || c == "\\" ? "\\" c : c in code ? code[c] : c)
        printf "\"%s\"", out
    }'
}

# ---- webhooks

# SECRET ID TIMESTAMP SIGNATURE [TOLERANCE]: whether RQ has signed the body on standard input,
# at most 300 seconds ago. SECRET is one, or config/webhook.secret, which has one a line; the
# other values are those of the headers webhook-id, -timestamp and -signature.
rq_verify_webhook() {
    case $3 in '' | *[!0-9]*) echo "rq: this webhook has no timestamp (bad_signature)" >&2 && return 1 ;; esac
    _rq_keys=$(_rq_webhook_keys "$1") || return 1
    _rq_signed=$(mktemp) || return 1
    { printf '%s.%s.' "$2" "$3" && cat; } >"$_rq_signed"
    _rq_valid=no
    for _rq_hex in $_rq_keys; do
        case " $4 " in *" v1,$(_rq_hmac "$_rq_hex" <"$_rq_signed") "*) _rq_valid=yes ;; esac
    done
    rm -f "$_rq_signed"
    if [ "$_rq_valid" = no ]; then
        echo "rq: this webhook is not signed with our secret (bad_signature)" >&2
        return 1
    fi
    _rq_age=$(($(date +%s) - $3))
    if [ "$_rq_age" -gt "${5:-300}" ] || [ "$_rq_age" -lt "-${5:-300}" ]; then
        echo "rq: this webhook is $_rq_age s old (bad_signature)" >&2
        return 1
    fi
}

# SECRETS: print the key of each, in hex. None is left out: with an empty key anyone could sign.
_rq_webhook_keys() {
    printf '%s\n' "$1" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//; /^#/d; /^$/d' | {
        _rq_number=0
        while read -r _rq_secret; do
            _rq_number=$((_rq_number + 1)) _rq_hex=
            case $_rq_secret in
                whsec_*) _rq_hex=$(_rq_of_base64 "${_rq_secret#whsec_}") ;;
            esac
            [ -n "$_rq_hex" ] || break
            echo "$_rq_hex"
        done
        [ "$_rq_number" -gt 0 ] && [ -n "$_rq_hex" ]
    } && return
    echo "rq: the secret of webhooks is wrong: it is whsec_ and base64, and the lines of" \
        "config/webhook.secret have it (bad_input)" >&2
    return 1
}

# TEXT of base64: print its bytes in hex; nothing when it is none.
_rq_of_base64() {
    ! printf '%s' "$1" | base64 -d >/dev/null 2>&1 ||
        printf '%s' "$1" | base64 -d | od -An -v -tx1 | tr -d ' \n'
}

# KEY, in hex: print the base64 of the HMAC-SHA256 of standard input. By hand, since openssl
# takes the key on its command line, where other users see it.
_rq_hmac() {
    _rq_inner='' _rq_outer='' _rq_rest=$1
    while [ ${#_rq_inner} -lt 256 ]; do # 64 bytes, each as \ooo
        _rq_byte=$(printf '%.2s' "${_rq_rest}00")
        [ -z "$_rq_rest" ] || _rq_rest=${_rq_rest#??}
        _rq_inner="$_rq_inner$(printf '\\%03o' $((0x$_rq_byte ^ 0x36)))"
        _rq_outer="$_rq_outer$(printf '\\%03o' $((0x$_rq_byte ^ 0x5c)))"
    done
    # shellcheck disable=SC2059 # these are formats: bytes as octal numbers
    _rq_digest=$({ printf "$_rq_inner" && cat; } | sha256sum | cut -c1-64)
    # shellcheck disable=SC2059
    _rq_digest=$({ printf "$_rq_outer" && printf "$(_rq_octal "$_rq_digest")"; } | sha256sum | cut -c1-64)
    # shellcheck disable=SC2059
    printf "$(_rq_octal "$_rq_digest")" | base64 | tr -d '\n'
}

# HEX: print it as a format of printf.
_rq_octal() {
    _rq_rest=$1
    while [ -n "$_rq_rest" ]; do
        printf '\\%03o' "0x$(printf '%.2s' "$_rq_rest")"
        _rq_rest=${_rq_rest#??}
    done
}
