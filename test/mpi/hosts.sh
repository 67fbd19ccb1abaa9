#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs an MPI program over several hosts that it makes on this machine, and removes them:
#
#     test/mpi/hosts.sh HOSTS RANKS [OPTION...] -- PROGRAM [ARGUMENT...]
#
#   HOSTS               how many
#   RANKS               ranks on each host: a number, or a list with one for each: 1,2,3
#   --build DIR         the build tree with the component (default: this folder)
#   --round-robin       consecutive ranks are on different hosts
#   --rate RATE         bandwidth of each host's interface, each way, as tc writes it: 100mbit
#   --mtu BYTES         default 1500
#   --delay TIME        of every frame between hosts, one way, as 20ms or 500us. Needs test/mpi/tapswitch of the build tree.
#                       With --rate the limit holds for what a host sends
#   --interfaces N      more interfaces on each host, whose addresses are the same on all hosts and lead nowhere, as Docker's are;
#                       UCX finds them, and is left to choose
#   --cut               eth0 of all hosts is cut from the switch; Open MPI's messages go by ctl
#   --with-ft ulfm, --mca NAME VALUE    for mpirun
#
# The exit status is mpirun's; 77: namespaces cannot be made here, and the last line says why. The closing lines are what each
# host has sent and received: "hosts: host1 sent N bytes, received M"; what mpirun has left there is told of by
# "hosts: host1 still has ...": processes, and gpusym's files in /dev/shm.
#
# A host is its own namespaces: network, name, processes, mounts (its own /proc and /dev/shm). They are inside the namespaces of
# this run, where mpirun is, with names of its own; so runs stand side by side, nothing of the machine is changed, and all
# is gone when the run's first process is, however it ends. Root is needed, or the permission to make user namespaces.
# Ranks meet by eth0, which all options are about. mpirun and its daemons use another interface, ctl, as clusters have one.
# In a program GPUSYM_HOSTS_SWITCH is a file to which it may write "cut HOST" and "uncut HOST", a line each: that host's port of
# the switch goes dead (the host sees no carrier loss), and works again.
set -u

usage="usage: test/mpi/hosts.sh HOSTS RANKS [--build DIR] [--round-robin] [--rate RATE] [--mtu BYTES] [--delay TIME]
       [--interfaces N] [--cut] [--with-ft ulfm] [--mca NAME VALUE] -- PROGRAM [ARGUMENT...]"

die() {
    printf 'hosts.sh: %s\n' "$*" >&2
    exit 2
}

cannot() {
    printf 'no hosts can be made here: %s\n' "$*"
    exit 77
}

# ---- outside: a process whose end is the end of all ----

# The namespaces of a run. As root without a user namespace, which a container may forbid and a chroot does.
find_way() {
    local command why=''
    for command in ip tc unshare nsenter setpriv; do
        command -v "$command" >/dev/null || cannot "$command is missing (Debian: iproute2, util-linux)"
    done
    way=(unshare --mount --net --pid --ipc --uts --fork --kill-child)
    if [ "$(id -u)" = 0 ]; then
        why=$("${way[@]}" mount -t proc proc /proc 2>&1) && return
    fi
    way+=(--user --map-root-user)
    why=$why${why:+$'\n'}$("${way[@]}" mount -t proc proc /proc 2>&1) || cannot "${why//$'\n'/; }"
}

# All ends now.
end() {
    { kill -KILL "$child" && wait "$child"; } 2>/dev/null
    exit "$1"
}

outside() {
    local way dir child rc=0
    PATH=$PATH:/usr/sbin:/sbin
    find_way
    dir=$(mktemp -d) || exit 2
    # Whoever kills this process, kills all.
    setpriv --pdeathsig KILL "${way[@]}" "$0" --inside "$dir" "$@" &
    child=$!
    # shellcheck disable=SC2064  # now
    trap "rmdir '$dir'" EXIT
    trap 'end 129' HUP
    trap 'end 130' INT
    trap 'end 143' TERM
    wait $child || rc=$?
    exit $rc
}

# ---- inside: the switch, the hosts, mpirun ----

read_arguments() {
    hosts=${1:?$usage}
    local ranks=${2:?$usage} i
    shift 2
    [[ $hosts =~ ^[1-9][0-9]?$ && $hosts -le 32 ]] || die "1 to 32 hosts"
    IFS=, read -ra ranks_of <<<"$ranks"
    if [ ${#ranks_of[@]} -eq 1 ]; then
        for ((i = 1; i < hosts; i++)); do ranks_of+=("$ranks"); done
    fi
    [ ${#ranks_of[@]} -eq "$hosts" ] || die "$hosts hosts, but a list of ${#ranks_of[@]} numbers of ranks"
    build=. rate='' mtu=1500 delay='' robin='' more=0 cut='' mca=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
            --build) build=${2:?$usage} && shift 2 ;;
            --round-robin) robin=yes && shift ;;
            --rate) rate=${2:?$usage} && shift 2 ;;
            --mtu) mtu=${2:?$usage} && shift 2 ;;
            --delay) delay=${2:?$usage} && shift 2 ;;
            --interfaces) more=${2:?$usage} && shift 2 ;;
            --cut) cut=yes && shift ;;
            --with-ft) mca+=(--with-ft "${2:?$usage}") && shift 2 ;;
            --mca) mca+=(--mca "${2:?$usage}" "${3?$usage}") && shift 3 ;;
            *) die "$usage" ;;
        esac
    done
    [ $# -gt 1 ] || die "$usage"
    shift
    program=("$@")
    build=$(cd "$build" && pwd) || exit 2
    [ -r "$build/test/build.env" ] || die "$build is no build tree"
    case $delay in
        '') ;;
        *us) delay=${delay%us} ;;
        *ms) delay=$((${delay%ms} * 1000)) ;;
        *) die "--delay: 20ms or 500us, not $delay" ;;
    esac
}

# No frames but those of the run, in this network namespace.
disable_ipv6() {
    local switch=/proc/sys/net/ipv6/conf/default/disable_ipv6
    [ ! -e $switch ] || echo 1 >$switch
}

# What other programs of this run need: a place that is gone with the mounts, names, a network for mpirun.
prepare_machine() {
    local i
    { mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs "$dir"; } || cannot "mount failed"
    export TMPDIR=$dir
    hostname control
    for ((i = 1; i <= hosts; i++)); do
        echo "10.77.0.$i host$i"
    done >"$dir/hosts"
    echo "10.78.0.254 control
127.0.0.1 localhost" >>"$dir/hosts"
    [ ! -e /etc/hosts ] || mount --bind "$dir/hosts" /etc/hosts || cannot "mount failed"
    disable_ipv6
    { ip link set lo up && ip link add ctl type bridge && ip addr add 10.78.0.254/24 dev ctl && ip link set ctl up; } ||
        cannot "no bridge"
}

# The first process of a host, which outlives all its others and takes over their orphans.
live() {
    local pid _
    read -r pid _ </proc/self/stat # outside of its namespace: /proc is still that of the run
    hostname "host$1" && mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && ip link set lo up || exit 1
    disable_ipv6
    mount -t sysfs sysfs /sys 2>/dev/null # with its own interfaces, where that is allowed
    echo "$pid" >"$dir/part$1" && mv "$dir/part$1" "$dir/host$1"
    while :; do
        sleep 1000 &
        wait
    done
}

# on HOST COMMAND...: runs it there
on() {
    local pid
    pid=$(<"$dir/host$1") || exit 2
    shift
    nsenter --target "$pid" --mount --net --pid --ipc --uts --root --wd "$@"
}

# link NAME BRIDGE HOST ADDRESS: an interface of a host, with its other end in the bridge
link() {
    ip link add "$1$3" type veth peer name "$1" netns "$(<"$dir/host$3")" && ip link set "$1$3" master "$2" up
}

make_hosts() {
    local i first=()
    for ((i = 1; i <= hosts; i++)); do
        unshare --mount --net --pid --ipc --uts --fork --kill-child "$0" --live "$dir" "$i" &
        first[i]=$!
    done
    for ((i = 1; i <= hosts; i++)); do
        until [ -e "$dir/host$i" ]; do
            kill -0 "${first[i]}" 2>/dev/null || cannot "host $i has no namespaces"
            sleep 0.02
        done
        { link ctl ctl "$i" && on "$i" ip addr add "10.78.0.$i/24" dev ctl && on "$i" ip link set ctl up; } ||
            cannot "no veth interfaces"
    done
}

# The rate of an interface; each of its packets is a frame, so that headers count.
limit() {
    "${@:2}" ip link set "$1" gso_max_segs 1
    [ -z "$rate" ] || "${@:2}" tc qdisc add dev "$1" root tbf rate "$rate" burst 64kb limit "$queue" || die "tc failed"
}

# Interfaces of a host that no other host has the other ends of. UCX finds them in the host's own /sys.
make_more() {
    local j
    for ((j = 0; j < more; j++)); do
        echo "link add more$j type veth peer name end$j"
        echo "addr add 172.$((17 + j / 250)).$((j % 250)).1/24 dev more$j"
        echo "link set more$j up"
        echo "link set end$j up"
    done | on "$1" ip -batch - || die "no more interfaces for host $1"
}

# A bridge is the switch; "cut HOST" and "uncut HOST" from stdin.
bridge() {
    local word host
    while read -r word host; do
        case $word in
            cut) ip link set "eth0$host" nomaster ;;
            uncut) ip link set "eth0$host" master switch ;;
        esac
    done
}

# A host's queue is short, as the kernel keeps a sender from overflowing it; the switch's holds what several hosts send to one.
make_network() {
    local i pids=()
    mkfifo "$dir/switch" || exit 2
    exec 8<>"$dir/switch"
    if [ -n "$delay" ]; then
        for ((i = 1; i <= hosts; i++)); do pids+=("$(<"$dir/host$i")"); done
        "$build/test/mpi/tapswitch" "$delay" "${pids[@]}" <&8 >"$dir/ready" &
        until [ -s "$dir/ready" ]; do
            kill -0 $! 2>/dev/null || cannot "no TAP interfaces"
            sleep 0.02
        done
    else
        { ip link add switch type bridge && ip link set switch mtu "$mtu" up; } || cannot "no bridge"
        for ((i = 1; i <= hosts; i++)); do
            { link eth0 switch "$i" && ip link set "eth0$i" mtu "$mtu"; } || die "no interface for host $i"
            queue=16mb limit "eth0$i"
        done
        bridge <&8 &
    fi
    for ((i = 1; i <= hosts; i++)); do
        { on "$i" ip addr add "10.77.0.$i/24" dev eth0 && on "$i" ip link set eth0 mtu "$mtu" up; } ||
            die "no interface for host $i"
        queue=256kb limit eth0 on "$i"
        [ "$more" = 0 ] || make_more "$i"
        [ -z "$cut" ] || echo "cut $i" >&8
    done
}

# mpirun starts its daemon on HOST by: agent HOST COMMAND...
make_agent() {
    cat >"$dir/agent" <<AGENT
#!/bin/sh
host=\$1
shift
exec nsenter --target "\$(cat "$dir/\$host")" --mount --net --pid --ipc --uts --root --wd /bin/sh -c "\$*"
AGENT
    chmod +x "$dir/agent"
}

# The parameters of an mpirun over these hosts, as environment variables.
set_parameters() {
    # shellcheck source=/dev/null
    . "$build/test/build.env" || exit 2
    # shellcheck source=test/mpirun.sh
    . "$GPUSYM_SRCDIR/test/mpirun.sh" || exit 2
    export OMPI_MCA_btl=$OMPI_MCA_btl,tcp OMPI_MCA_btl_tcp_if_include=eth0
    [ "$more" != 0 ] || export UCX_NET_DEVICES=eth0
    [ -z "$cut" ] || export OMPI_MCA_btl_tcp_if_include=ctl
    export OMPI_MCA_opal_mca_base_component_path=$build/components:$GPUSYM_OMPI_PATH_TAIL
    # coll/han of 6.0.0rc2 gathers elements with a lower bound wrongly, and writes past its buffers, with gpusym or without.
    [ "$GPUSYM_OMPI_MAJOR" -lt 6 ] || export OMPI_MCA_coll_han_priority=-1
    # All daemons are started from here, where the hosts' processes are known.
    if [ "$GPUSYM_OMPI_MAJOR" = 4 ]; then
        export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$dir/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_oob_tcp_if_include=ctl
    else
        export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=$dir/agent PRTE_MCA_plm_ssh_no_tree_spawn=1 PRTE_MCA_prte_if_include=ctl
    fi
    export GPUSYM_HOSTS_SWITCH=$dir/switch
}

# Where each rank is: a line with its host. (Open MPI 5.0.7 cannot map by node where hosts have unequal numbers.)
place_ranks() {
    local i round most=0
    for n in "${ranks_of[@]}"; do
        [ "$n" -le "$most" ] || most=$n
    done
    if [ -n "$robin" ]; then
        for ((round = 1; round <= most; round++)); do
            for ((i = 1; i <= hosts; i++)); do
                [ "${ranks_of[i - 1]}" -lt "$round" ] || echo "host$i"
            done
        done
    else
        for ((i = 1; i <= hosts; i++)); do
            for ((round = 1; round <= ranks_of[i - 1]; round++)); do echo "host$i"; done
        done
    fi >"$dir/places"
    n=$(wc -l <"$dir/places")
}

# eth0 of a host: bytes received, bytes sent
count_bytes() {
    on "$1" sed -n 's/^ *eth0: *//p' /proc/net/dev | awk '{ print $1, $9 }'
}

# What is left on a host but its first processes, in words; nothing after a good end.
left_on() {
    # shellcheck disable=SC2016  # there
    on "$1" sh -c 'for f in /proc/[0-9]*/comm; do
            read -r name <$f || continue
            case $f:$name in /proc/1/*:* | *:sleep | *:sh) ;; *) printf " %s" "$name" ;; esac
        done 2>/dev/null
        find /dev/shm -name "*gpusym*" -printf " %p"'
}

# Daemons may end a little later than mpirun.
tell_left() {
    local try left
    for ((try = 0; try < 300; try++)); do
        left=$(left_on "$1")
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    echo "hosts: host$1 still has$left"
}

inside() {
    local hosts ranks_of build rate mtu delay robin more cut mca program queue i n rc received sent
    read_arguments "$@"
    prepare_machine
    make_hosts
    make_network
    make_agent
    set_parameters
    place_ranks
    "$GPUSYM_OMPI_MPIRUN" -n "$n" --hostfile "$dir/places" --map-by seq --bind-to none "${mca[@]}" "${program[@]}" 8>&-
    rc=$?
    for ((i = 1; i <= hosts; i++)); do
        tell_left "$i"
        read -r received sent < <(count_bytes "$i")
        echo "hosts: host$i sent $sent bytes, received $received"
    done
    exit $rc
}

case ${1:-} in
    --inside)
        dir=$2
        inside "${@:3}"
        ;;
    --live)
        dir=$2
        live "$3"
        ;;
    *) outside "$@" ;;
esac
