#!/bin/sh
# Makes hosts out of network namespaces, on a switch of their own, and removes them.
#
#   net.sh up TAG N     namespaces TAG-1 … TAG-N with 10.77.0.1 … N, and TAG-s, the switch
#   net.sh down TAG     removes all of them
#   net.sh link TAG K up|down      plugs host K in, or out
#   net.sh astray TAG K J on|off   what host K sends to host J comes to nobody
#   net.sh slow TAG K KBIT         lets so much come to host K in a second; 0: all
#
# Nothing outside of these namespaces is touched.
set -eu

up() {
    ip netns add "$1-s"
    ip -n "$1-s" link add name br0 type bridge
    ip -n "$1-s" link set dev br0 up
    for k in $(seq "$2"); do
        ip netns add "$1-$k"
        ip -n "$1-$k" link add name eth0 type veth peer name "port$k" netns "$1-s"
        ip -n "$1-s" link set dev "port$k" master br0
        ip -n "$1-s" link set dev "port$k" up
        ip -n "$1-$k" addr add "10.77.0.$k/24" dev eth0
        ip -n "$1-$k" link set dev eth0 up
        ip -n "$1-$k" link set dev lo up
    done
}

down() {
    for name in $(ip netns list | cut -d' ' -f1); do
        case $name in "$1"-*) ip netns del "$name" ;; esac
    done
}

slow() {
    if [ "$3" = 0 ]; then
        ip netns exec "$1" tc qdisc del dev "$2" root 2>/dev/null || true
    else
        ip netns exec "$1" tc qdisc replace dev "$2" root \
            tbf rate "$3kbit" burst 4kb latency 2s
    fi
}

astray() {
    if [ "$3" = on ]; then
        ip -n "$1" neigh replace "$2" lladdr 02:00:00:00:00:99 nud permanent dev eth0
    else
        ip -n "$1" neigh del "$2" dev eth0
    fi
}

case $1 in
up) up "$2" "$3" ;;
down) down "$2" ;;
link) ip -n "$2-s" link set dev "port$3" "$4" ;;
astray) astray "$2-$3" "10.77.0.$4" "$5" ;;
slow) slow "$2-s" "port$3" "$4" ;;
*) exit 2 ;;
esac
