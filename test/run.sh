#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs the unit tests and the mpirun tests of a build tree, which need not be installed:
#
#     test/run.sh BUILDDIR [PATTERN...]      (make check, check-timed and check-long call it; PATTERN: only tests whose name matches)
#
# A test that fails is run once more, alone, after all others. If it passes then, it counts as passed, and a line says
# "flaky: NAME". More than three that fail at first are a failure whatever comes of them, and are not repeated.
# One that does not end is a failure of that run; its log ends with the stacks of its processes, where there is gdb. After ten
# such the rest is not run.
#
# Before the closing line stand the machine's load and, of each test that failed or was flaky, its name, its command and the end
# of its log. The closing line is "N passed, M failed": cmocka's tests and one for each mpirun; so says the exit status.
# Each test's output is kept in BUILDDIR/test/results/, of one that was repeated the first as NAME.first.log.
#
#   GPUSYM_TEST_FORM     short (default): make check;  timed: make check-timed, what judges by the clock, one test at a time;
#                        long: make check-long, all that the short form leaves out but these;  whole: every test but these once,
#                        in its longest form;  version: of another Open MPI than that of the other forms, the short form, and in
#                        their longest the tests of what Open MPI's versions do differently;  ompi: the short form of the
#                        tests that meet most of Open MPI's own code
#   GPUSYM_TEST_DEVICE   sim (default) or cuda: what the mpirun tests use as GPUs
#   GPUSYM_TEST_RANKS    "1 2 4": in place of the lists of ranks in the table
#   GPUSYM_TEST_SEED     of all random tests (default: one and the same but in the forms long and whole, where each test has
#                        its own; every log begins with it)
#   GPUSYM_TEST_SLOW     a factor on all time limits (default: as much as this machine is busy at the start; times 5 with sanitizers)
#   GPUSYM_TEST_JOBS     how many tests run side by side (default: half as many as cores, 2 at least; on GPUs 1)
set -u

# The mpirun tests: test/tests.table, which also says what its columns mean.
tests() {
    awk -f "$srcdir/test/table.awk" "$srcdir/test/tests.table"
}

builddir=${1:?usage: test/run.sh BUILDDIR [PATTERN...]}
builddir=$(cd "$builddir" && pwd) || exit 2
# What has been built but for the tests has no such program.
if [ -z "${GPUSYM_TEST_SLICED:-}" ] && [ -x "$builddir/test/slice" ]; then
    GPUSYM_TEST_SLICED=1 exec "$builddir/test/slice" "$0" "$@"
fi
shift
patterns=("$@")
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
srcdir=$GPUSYM_SRCDIR
results=$builddir/test/results
mkdir -p "$results" || exit 2

form=${GPUSYM_TEST_FORM:-short}
case $form in short | timed | long | whole | version | ompi) ;; *)
    echo "GPUSYM_TEST_FORM is short, timed, long, whole, version or ompi" >&2
    exit 2
    ;;
esac
device=${GPUSYM_TEST_DEVICE:-sim}
export GPUSYM_TEST_DEVICE=$device
case $form in # of the unit tests
    version | ompi) export GPUSYM_TEST_FORM=short ;;
    *) export GPUSYM_TEST_FORM=$form ;;
esac

case $form in # what may reject a change says the same every time
    long | whole) ;;
    *) export GPUSYM_TEST_SEED=${GPUSYM_TEST_SEED:-20261125} ;;
esac

# Half as many tests as cores side by side, at least two, since most of a short one is the waiting of mpirun's start. One where
# GPUs are shared; and of those that judge by the clock.
cores=$(nproc)
lanes=${GPUSYM_TEST_JOBS:-$((cores > 4 ? cores / 2 : 2))}
if [ "$form" = timed ] || { [ "$device" != sim ] && [ -z "${GPUSYM_TEST_JOBS:-}" ]; }; then lanes=1; fi

# How much more time tests need than on a machine of their own, from how much longer a process computes here, now: 1 to 5.
measure_slowness() {
    local LC_ALL=C TIMEFORMAT='%R %U %S' i
    {
        time for ((i = 0; i < 400000; i++)); do :; done
    } 2>&1 | awk '{ factor = $1 / ($2 + $3 + 0.001); factor = factor < 1.5 ? 1 : int(2 * factor + 0.5); print (factor > 5 ? 5 : factor) }'
}
slow_given=${GPUSYM_TEST_SLOW:-}
set_slow() {
    slow=${slow_given:-$(measure_slowness)}
    [ -n "$slow_given" ] || [ "$GPUSYM_SANITIZERS" = no ] || slow=$((5 * slow))
    export GPUSYM_TEST_SLOW=$slow
}
set_slow
# Where this machine is busy, who waits sleeps for moments.
if [ "$slow" -gt 1 ] && [ "$device" = sim ] && [ "$GPUSYM_SANITIZERS" = no ] && [ -e "$builddir/test/.libs/libnap.so" ]; then
    export LD_PRELOAD=$builddir/test/.libs/libnap.so
fi

# shellcheck source=test/mpirun.sh
. "$srcdir/test/mpirun.sh"
# shellcheck source=test/limited.sh
. "$srcdir/test/limited.sh"
# The component and its library from the build tree.
export OMPI_MCA_opal_mca_base_component_path=$builddir/components:$GPUSYM_OMPI_PATH_TAIL

# The sanitizers' library must come first in a process whose program was built without them: ompi_info, but no shell.
export GPUSYM_TEST_PRELOAD=
case $GPUSYM_SANITIZERS in
    address)
        # An error aborts. A leak leaves the exit status as it is: Open MPI has its own; leaks() finds ours.
        # Stacks are unwound in full: Open MPI has no frame pointers everywhere, and what it leaks would be taken for ours.
        export ASAN_OPTIONS=abort_on_error=1:exitcode=0:protect_shadow_gap=0:detect_leaks=1:fast_unwind_on_malloc=0
        export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
        GPUSYM_TEST_PRELOAD=$(${CC:-gcc} -print-file-name=libasan.so)
        ;;
    thread)
        # A report fails the test by its exit status. Scripts and mpirun fork and go on.
        export TSAN_OPTIONS=suppressions=$srcdir/test/tsan.supp:exitcode=66:die_after_fork=0:history_size=7
        # UCX hooks madvise(), and takes a lock there; a thread that ends calls it after the sanitizer has forgotten it.
        export UCX_MEM_EVENTS=n
        GPUSYM_TEST_PRELOAD=$(${CC:-gcc} -print-file-name=libtsan.so)
        ;;
esac

# What the sanitizers report goes to a file for each process, since the ranks' lines would mix in one; and from there, at the
# test's end, behind its log.
asan_options=${ASAN_OPTIONS:-}
tsan_options=${TSAN_OPTIONS:-}
reports_beside() {
    [ "$GPUSYM_SANITIZERS" = no ] && return
    rm -f "$1".report.*
    export ASAN_OPTIONS=$asan_options:log_path=$1.report TSAN_OPTIONS=$tsan_options:log_path=$1.report
}
reports_behind() {
    local file
    for file in "$1".report.*; do
        [ -e "$file" ] && cat "$file" >>"$1" && rm -f "$file"
    done
}

# ---- a test, and what is said of it ----

# The end of a log, of a test that failed.
show() {
    [ -s "$1" ] || return 0
    tail -n 25 "$1" | sed 's/^/     | /'
    echo "     all of it: $1"
}

# report ok|FAIL|skip LABEL SECONDS LOG [WORDS]: a line; of a test that failed the end of LOG and, for the end of all,
# what belongs to it in the file $failures. The command is $command_line.
report() {
    printf '%-4s %-60s %4ss%s\n' "$1" "$2" "$3" "${5:+  ($5)}"
    [ "$1" = FAIL ] || return 0
    show "$4"
    printf '%s\t%s\t%s\t%s\n' "$2" "${5:-failed}" "$4" "$command_line" >>"$failures"
}

wanted() {
    [ ${#patterns[@]} -eq 0 ] && return 0
    local pattern
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053  # a pattern is meant
        [[ $1 == $pattern ]] && return 0
    done
    return 1
}

# Every test in a cmocka program counts; one that ends without having said so failed.
unit_test() {
    local name=$1 program=$builddir/test/unit/$1 log=$results/unit-$1.log
    local start=$SECONDS rc line state leaked all=0 bad=0
    command_line=$program
    if [ ! -x "$program" ]; then
        echo "$program was not built" >"$log"
        report FAIL "unit/$name" 0 "$log"
        return
    fi
    limited $((300 * slow)) "$log" env CMOCKA_MESSAGE_OUTPUT=tap "$program"
    rc=$?
    while IFS= read -r line; do
        state=ok
        [[ $line == "not ok "* ]] && state=FAIL
        [[ $line == *"# SKIP"* ]] && state=skip
        line=${line#not }
        line=${line#ok }
        line=${line#*[0-9] }
        line=${line#- }
        all=$((all + 1))
        [ $state = FAIL ] && bad=$((bad + 1))
        report $state "unit/$name: $line" $((SECONDS - start)) "$log"
    done < <(grep -E '^(not )?ok [0-9]+' "$log")
    leaked=$(leaks "$log")
    if [ $rc -eq 124 ]; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "not ended after $((300 * slow)) s"
    elif [ $all -eq 0 ] || { [ $rc -ne 0 ] && [ $bad -eq 0 ]; }; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "exit status $rc"
    elif [ -n "$leaked" ]; then
        report FAIL "unit/$name" $((SECONDS - start)) "$log" "${leaked//$'\n'/; }"
    fi
}

# leaks LOG: of what AddressSanitizer's leak checker says, what was allocated by code of ours, a line each. The first
# frame is the sanitizer's own, the next the allocation's, unless that is a constructor of Open MPI's headers.
leaks() {
    [ "$GPUSYM_SANITIZERS" = address ] || return 0
    awk '
        / leak of / { at = 1; next }
        at && /^ *#[0-9]+ / && !/libsanitizer|opal_object\.h/ {
            at = 0
            if (/(gpusym|kernels|tuning|pmpi|test|examples|bench|info)\/[a-z0-9_\/]+\.(c|h|def):/) print "leaked by " $4 " " $5
        }' "$1" | sort -u
}

# judge EXPECT STATUS LOG: prints why not, or nothing.
judge() {
    local want=${1%%:*} regex=
    [[ $1 == *:* ]] && regex=${1#*:}
    case $want in
        ok) [ "$2" -eq 0 ] || echo "exit status $2" ;;
        fail) [ "$2" -ne 0 ] || echo "exit status 0, a failure was expected" ;;
        *) echo "the table says '$1'" ;;
    esac
    if [[ $regex == !* ]]; then
        ! grep -aE -m 1 -- "${regex#!}" "$3" || echo "that line matches '${regex#!}'"
    elif [ -n "$regex" ]; then
        grep -aEq -- "$regex" "$3" || echo "no line matches '$regex'"
    fi
    leaks "$3"
}

# run_test NAME RANKS SECONDS EXPECT MCA COMMAND...
run_test() {
    local name=$1 ranks=$2 limit=$(($3 * slow)) expect=$4 parameters=$5 label log start rc why parameter
    local mca=() environment=() tolerant=() whole
    shift 5
    if [[ " $parameters " == *" ft=ulfm "* ]]; then
        parameters=${parameters/ft=ulfm/async_mpi_finalize=1} # else MPI_Finalize of 5.0.7 may wait for the dead
        tolerant=(--with-ft ulfm)
    fi
    label=$name
    [ "$ranks" = - ] || label="$name, $ranks ranks"
    log=$results/$name-$ranks.log
    [[ " $parameters" == *" coll="* ]] || parameters="coll=gpusym $parameters"
    [[ " $parameters" == *" coll_gpusym_device="* ]] || parameters="$parameters coll_gpusym_device=$device"
    for parameter in $parameters; do
        mca+=(--mca "${parameter%%=*}" "${parameter#*=}")
        environment+=("OMPI_MCA_$parameter")
    done
    start=$SECONDS
    reports_beside "$log"
    if [ "$ranks" = - ]; then
        whole=(env "${environment[@]}" "$@")
    else
        whole=("$GPUSYM_OMPI_MPIRUN" -n "$ranks" "${oversubscribe[@]}" "${tolerant[@]}" "${mca[@]}" "$@")
    fi
    command_line=${whole[*]}
    limited "$limit" "$log" "${whole[@]}"
    rc=$?
    reports_behind "$log"
    case $rc in
        77) report skip "$label" $((SECONDS - start)) "$log" "$(tail -n 1 "$log")" ;;
        124) report FAIL "$label" $((SECONDS - start)) "$log" "not ended after $limit s" ;;
        *)
            why=$(judge "$expect" $rc "$log")
            report "$([ -z "$why" ] && echo ok || echo FAIL)" "$label" $((SECONDS - start)) "$log" "${why//$'\n'/; }"
            ;;
    esac
}

# ranks_of RANKS COMMAND: those of a line's ranks, or "-", for which this form runs the command.
ranks_of() {
    local short=${1%%+*} long=
    [[ $1 != *+* ]] || long=${1#*+}
    case $form in
        short) long= ;;
        long) [[ $2 == *'{'*'|'*'}'* ]] || short= ;;
    esac
    if [ -n "$short$long" ] && [ -n "${GPUSYM_TEST_RANKS:-}" ] && [[ $1 == *[0-9]* && $1 != *=* ]]; then
        echo "$GPUSYM_TEST_RANKS"
    else
        short=$short,$long
        short=${short//=/}
        echo "${short//,/ }"
    fi
}

# command_of COMMAND: {A|B} is A or B;  {A|B|C} is A, B, or with the thread sanitizer C.
command_of() {
    local choice='\2'
    [ "$form" != short ] || choice='\1'
    # shellcheck disable=SC2001  # a group is meant
    {
        if [ "$GPUSYM_SANITIZERS" = thread ]; then
            sed 's/{[^{}|]*|[^{}|]*|\([^{}|]*\)}/\1/g'
        else
            cat
        fi
    } <<<"$1" | sed "s/{\\([^{}|]*\\)|\\([^{}|]*\\)\\(|[^{}|]*\\)\\{0,1\\}}/$choice/g"
}

# What meets most of Open MPI's own code: its functions on host memory and messages, which its versions do differently; the
# form that the forms for other versions of Open MPI run of a test, empty: none.
form_of() {
    case $form:$1 in
        version:* | ompi:*) ;;
        *) echo "$form" && return ;;
    esac
    case $form:$1 in
        ompi:islands-threads) return ;; # host memory among threads: Open MPI 5.0.7 crashes (docs/guide.md, Limits)
        *:allmpi* | *:threads* | *:comms | *:manycomms | *:random_coll-makes*) ;;
        *:accel* | *:kinds* | *:spawn* | *:p2p | *:p2p_order | *:btl* | *:ulfm*) ;;
        *:islands-* | *:hosts-every | *:hosts-led | *:hosts-comms | *:hosts-allmpi) ;;
        ompi:params-docs | ompi:said | ompi:pvars | ompi:example | ompi:every | ompi:random_coll | ompi:inflight | ompi:allocmem) ;;
        ompi:finalize-* | ompi:hosts-2x2 | ompi:mixed | ompi:islands | ompi:neighbors | ompi:sizes) ;;
        ompi:*) return ;;
        *) echo short && return ;;
    esac
    [ "$form" = ompi ] && echo short || echo whole
}

# A row of the table, for each of its numbers of ranks.
table_line() {
    local name=$1 ranks limit=$3 expect=$4 parameters=$5 program
    local -a command
    local form=$form
    if [[ " $parameters " == *" form=timed "* ]]; then
        [ "$form" = timed ] || return 0
        parameters=${parameters/form=timed/}
    else
        [ "$form" != timed ] || return 0
    fi
    form=$(form_of "$1")
    [ -n "$form" ] || return 0
    ranks=$(ranks_of "$2" "$6")
    [ -n "${ranks// /}" ] || return 0
    read -ra command <<<"$(command_of "$6")"
    command=("${command[@]//@SRC@/$srcdir}")
    command=("${command[@]//@BUILD@/$builddir}")
    command=("${command[@]//@INFO@/$GPUSYM_OMPI_INFO}")
    command=("${command[@]//@PRELOAD@/$GPUSYM_TEST_PRELOAD}")
    command=("${command[@]//@KINDS@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/.libs/libgpusym_kinds.so}")
    command=("${command[@]//@MPI@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/.libs/libgpusym_mpi.so}")
    command=("${command[@]//@BLIND@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/faults/.libs/libblind.so}")
    command=("${command[@]//@THREADLESS@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/faults/.libs/libthreadless.so}")
    command=("${command[@]//@STORM@/${GPUSYM_TEST_PRELOAD:+$GPUSYM_TEST_PRELOAD:}$builddir/test/mpi/.libs/libstorm.so}")
    program=${command[0]}
    if [[ $program == */* ]]; then
        [[ $program == /* ]] || command[0]=$builddir/$program
        if [ "$program" = bench/gpusym_netperf ] && [ "${GPUSYM_HAVE_UCX:-1}" = 0 ]; then
            add_skipped "$name" "built without UCX"
            return
        fi
        if [ ! -x "${command[0]}" ]; then
            add_job cannot_run "$name" "${command[0]} was not built"
            return
        fi
    fi
    if [[ $parameters == *sim_* ]] && [ "$device" != sim ]; then
        add_skipped "$name" "only for the simulator"
        return
    fi
    if [[ " $parameters " == *" ft=ulfm "* ]] && [ "$GPUSYM_OMPI_FT" != 1 ]; then
        add_skipped "$name" "this Open MPI does not survive its ranks (ULFM)"
        return
    fi
    if [[ " $parameters" =~ " from="([0-9]+) ]]; then
        parameters=${parameters/from=[0-9]/}
        if [ "$GPUSYM_OMPI_MAJOR" -lt "${BASH_REMATCH[1]}" ]; then
            add_skipped "$name" "only for Open MPI ${BASH_REMATCH[1]} and later"
            return
        fi
    fi
    if [[ " $parameters" =~ " to="([0-9]+) ]]; then
        parameters=${parameters/to=[0-9]/}
        if [ "$GPUSYM_OMPI_MAJOR" -gt "${BASH_REMATCH[1]}" ]; then
            add_skipped "$name" "only for Open MPI up to ${BASH_REMATCH[1]}"
            return
        fi
    fi
    while [[ " $parameters" =~ " since="([0-9]+):([^ ]+) ]]; do
        local word="${BASH_REMATCH[0]# }"
        if [ "$GPUSYM_OMPI_MAJOR" -ge "${BASH_REMATCH[1]}" ]; then
            parameters=${parameters/"$word"/"${BASH_REMATCH[2]}"}
        else
            parameters=${parameters/"$word"/}
        fi
    done
    for n in $ranks; do
        add_job run_test "$name" "$n" "$limit" "$expect" "$parameters" "${command[@]}"
    done
}

# cannot_run NAME WHY
cannot_run() {
    command_line=$1
    echo "$2" >"$results/$1.log"
    report FAIL "$1" 0 "$results/$1.log"
}

# ---- all of them ----

# A job is what runs one or more tests, as a command of this shell. It is run in a shell of its own; jobs run side by side.
jobs=() # "barrier": wait for all before
passed=0
failed=0
skipped=0
said=$results/said
rm -rf "$said" && mkdir "$said" || exit 2

add_job() {
    jobs+=("$(printf '%q ' "$@")")
}

add_skipped() {
    add_job report skip "$1" 0 "" "$2"
}

# On a terminal: how many jobs have ended, and how long the rest will take if it is like these. What comes next covers it.
ended=0
progress() {
    [ -t 1 ] || return 0
    ended=$((ended + 1))
    printf '     %d of %d, about %d min left\033[K\r' $ended ${#jobs[@]} $(((SECONDS * (${#jobs[@]} - ended) / ended + 59) / 60))
}

# count NUMBER: adds up what job NUMBER said, and prints it.
count() {
    local file=$said/$1
    [ ! -t 1 ] || printf '\033[K'
    cat "$file"
    passed=$((passed + $(grep -c '^ok  ' "$file")))
    failed=$((failed + $(grep -c '^FAIL' "$file")))
    skipped=$((skipped + $(grep -c '^skip' "$file")))
}

# run_job NUMBER: in a shell of its own
run_job() {
    failures=$said/$1.failed
    command_line=
    eval "${jobs[$1]}" >"$said/$1" 2>&1
}

# A job has ended; it is one that failed, or what it said counts. One that fails counts as what its repetition says.
failing=()
hung=0 # so many have not ended
running=() # the number of the job of each process
await_one() {
    local pid=
    wait -n -p pid "${!running[@]}"
    local number=${running[$pid]}
    unset "running[$pid]"
    if [ -s "$said/$number.failed" ] && [ "$repeating" = 0 ]; then
        cat "$said/$number"
        failing+=("$number")
        hung=$((hung + $(grep -c '^FAIL.*(not ended after' "$said/$number")))
    else
        count "$number"
    fi
    [ "$repeating" = 1 ] || progress
}

# The jobs with these numbers, that many at a time.
run_jobs() {
    local width=$1 number done=0
    shift
    for number; do
        if [ $hung -ge 10 ]; then
            echo "$hung tests have not ended: the rest is not run"
            break
        fi
        while [ ${#running[@]} -ge "$width" ] || { [ "${jobs[number]}" = "barrier " ] && [ ${#running[@]} -gt 0 ]; }; do
            await_one
        done
        [ $((done += 1)) -ne $((($# + 1) / 2)) ] || [ "$repeating" = 1 ] || load_middle=$(load)
        [ "${jobs[number]}" != "barrier " ] || continue
        run_job "$number" &
        running[$!]=$number
    done
    while [ ${#running[@]} -gt 0 ]; do await_one; done
}

load() {
    cut -d' ' -f1 /proc/loadavg
}

# tell FAIL|flaky: FILE: the tests of a file that report() wrote, with their commands and the ends of their logs
tell() {
    local label why log line
    while IFS=$'\t' read -r label why log line; do
        printf '%s %s\n     %s\n     $ %s\n' "$1" "$label" "$why" "$line"
        [ ! -r "$log" ] || tail -n 20 "$log" | sed 's/^/     | /'
    done <"$2"
}

# Once more, alone. Both logs are kept.
repeat() {
    local number label why log line
    [ ${#failing[@]} -gt 0 ] || return 0
    if [ ${#failing[@]} -gt 3 ]; then
        echo "more than 3 tests failed: none is repeated"
        for number in "${failing[@]}"; do count "$number" >/dev/null; done
        return
    fi
    echo "---- once more, alone: ${#failing[@]} that failed"
    [ -n "$slow_given" ] || set_slow
    for number in "${failing[@]}"; do
        while IFS=$'\t' read -r label why log line; do
            [ ! -e "$log" ] || mv "$log" "${log%.log}.first.log"
            printf '%s\t%s\t%s\t%s\n' "$label" "$why" "${log%.log}.first.log" "$line"
        done <"$said/$number.failed" >"$said/$number.first"
        rm "$said/$number.failed"
        run_jobs 1 "$number"
    done
}

stop_all() {
    trap - INT TERM
    kill "${!running[@]}" 2>/dev/null
    wait
    exit 143
}
trap stop_all INT TERM

# The unit tests that have a long form (long_form() of test/unit/random.h).
long_units="test_channels test_kernels"

if [ "$GPUSYM_HAVE_CMOCKA" = 1 ]; then
    while read -r name; do
        case $form in
            timed | ompi) continue ;;
            long) [[ " $long_units " == *" $name "* ]] || continue ;;
        esac
        wanted "$name" && add_job unit_test "$name"
    done <"$builddir/test/unit.list"
fi
rows=$(tests) || exit 2
while IFS='|' read -r name ranks limit expect parameters command; do
    read -r name <<<"$name"
    case $name in
        '' | '#'*) continue ;;
        barrier) add_job barrier && continue ;;
    esac
    wanted "$name" || continue
    read -r ranks <<<"$ranks"
    read -r limit <<<"$limit"
    read -r expect <<<"$expect"
    read -r parameters <<<"$parameters"
    table_line "$name" "$ranks" "$limit" "$expect" "$parameters" "$command"
done <<<"$rows"

load_start=$(load)
load_middle=$load_start
echo "Open MPI $GPUSYM_OMPI_VERSION, device $device, $cores cores, $form form, $lanes at a time, time limits times $slow"
[ "$GPUSYM_HAVE_CMOCKA" = 1 ] || echo "unit tests: off, cmocka was not found"
repeating=0
run_jobs "$lanes" "${!jobs[@]}"
repeating=1
[ ! -t 1 ] || printf '\033[K'
repeat

[ $skipped -eq 0 ] || echo "$skipped not run here"
echo "load: $load_start at the start, $load_middle in the middle, $(load) at the end"
for number in "${failing[@]}"; do
    if [ -s "$said/$number.failed" ]; then
        tell FAIL "$said/$number.failed"
    else
        tell flaky: "$said/$number.first"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
