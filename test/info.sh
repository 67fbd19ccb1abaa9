#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# gpusym_info: what it says of the simulator's GPUs, of a machine without any, of parameters and algorithms; its check, with a
# link that changes data and without; what it refuses; the same as JSON.
#
#     test/info.sh BUILDDIR
#
# The closing line is "N as expected, M not".
set -u
builddir=$(cd "${1:?usage: test/info.sh BUILDDIR}" && pwd) || exit 2
# shellcheck source=/dev/null
. "$builddir/test/build.env" || exit 2
# shellcheck source=test/output.sh
. "$GPUSYM_SRCDIR/test/output.sh" || exit 2
info=$builddir/info/gpusym_info

# ask STATUS COMMAND...: what it says is in $dir/log, on stdout alone in $dir/out; the status is as expected
ask() {
    local status
    label="${*:2}"
    label=${label//"$builddir"\/info\//}
    timeout $((60 * ${GPUSYM_TEST_SLOW:-1})) "${@:2}" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    cat "$dir/out" "$dir/err" >"$dir/log"
    verdict "$label: status $1" "$([ $status = "$1" ] || echo $status)" "$dir/log"
}

# says REGEX: in place of that of test/output.sh: a line matches, one or more; spaces stand for any number of them
says() {
    verdict "$label: $1" "$(grep -Eq -- "${1// / +}" "$dir/log" || echo 'not said')" "$dir/log"
}

# holds EXPRESSION: what Python makes of it is true, of the JSON object j
holds() {
    [ "$GPUSYM_HAVE_JANSSON" = 1 ] && command -v python3 >/dev/null || return 0
    local why=
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$dir/out" "$1" 2>"$dir/err" || why='does not hold'
    verdict "$label: $1" "$why" "$dir/out" "$dir/err"
}

# ask_json COMMAND...: as ask 0, by --json
ask_json() {
    if [ "$GPUSYM_HAVE_JANSSON" = 1 ]; then
        ask 0 "$@" --json
    else
        ask 2 "$@" --json
        says '^gpusym_info: --json: this gpusym was built without jansson$'
    fi
}

# The machine: without a GPU, and with the simulator's.
ask 0 env OMPI_MCA_coll_gpusym_device=none "$info"
says '^ version '"${GPUSYM_VERSION//./\\.}"'$'
says "^ built for Open MPI $GPUSYM_OMPI_VERSION\$"
says '^ component .*/components/mca_coll_gpusym.so$'
says '^ used none$'
says '^ because GPUs are switched off'
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    ask 0 "$info"
    says '^ because (no NVIDIA driver is installed|this build has no CUDA)'
    ask_json "$info"
    holds 'j["gpus"] == [] and j["device"]["used"] == "none"'
fi
ask 0 env OMPI_MCA_coll=^gpusym "$info"
says '^ but the parameter coll excludes it: \^gpusym$'
ask 0 env OMPI_MCA_coll=tuned,gpusym,libnbc,self "$info"
verdict 'coll names gpusym' "$(grep -q excludes "$dir/log" && echo excluded)"
ask 0 env OMPI_MCA_opal_mca_base_component_path="$dir:$GPUSYM_OMPI_PATH_TAIL" "$info"
says '^ component not found by Open MPI'
export OMPI_MCA_coll_gpusym_device=sim
links=0-1:21,1-2:0,2-3:3,0-3:2,0-2:1
sim=(env OMPI_MCA_coll_gpusym_sim_gpus=4 "OMPI_MCA_coll_gpusym_sim_links=$links")
ask 0 "${sim[@]}" "$info"
says '^ used the simulator$'
says '^ multicast yes$'
says '^ 3 simulated GPU GPU-[-0-9a-f]{36} number 3 of 4 [0-9]+ 16 '
says '^ 0 X NV18 SYS PHB$'
says '^ 1 NV18 X - NV1$'
says '^ 2 SYS - X PIX$'
ask 0 "${sim[@]}" OMPI_MCA_coll_gpusym_multicast=0 "$info"
says '^ multicast no: the multicast parameter forbids it$'
ask_json "${sim[@]}" "$info"
holds 'len(j["gpus"]) == 4 and j["gpus"][3]["nic"] == "-" and j["links"][1]["0"] == "NV18" and j["links"][1]["2"] == "-"'
if [ "$GPUSYM_HAVE_UCX" = 1 ]; then
    says '^ between hosts UCX$|"between_hosts": "UCX"|built without jansson'
    ask 0 env OMPI_MCA_coll_gpusym_net_devices=lo "$info"
    says '^ lo tcp yes$'
    for value in auto ucx; do
        ask 0 env "OMPI_MCA_coll_gpusym_net_devices=$value" "$info"
        says '^ lo tcp yes$'
    done
    ask 0 env OMPI_MCA_coll_gpusym_net_devices=nosuch0 "$info"
    says '^ lo tcp no$'
fi

# Parameters: where each was set.
ask 0 "$info" --params
says '^ coll_gpusym_heap_size 58720256 default$'
says '^ coll_gpusym_device sim environment$'
says '^ btl_gpunvl_ring_size 262144 default$'
verdict 'undocumented names are not listed' "$(grep -q allreduce_algorithm "$dir/log" && echo 'they are')"
printf 'coll_gpusym_heap_size = 8M\n' >"$dir/params"
ask 0 env OMPI_MCA_mca_base_param_files="$dir/params" "$info" -p heap
says "^ coll_gpusym_heap_size 8388608 file $dir/params\$"
ask 0 env OMPI_MCA_mca_base_param_files="$dir/params" OMPI_MCA_coll_gpusym_heap_size=4M "$info" -p 'coll*_size'
says '^ coll_gpusym_heap_size 4194304 environment$'
mkdir -p "$dir/home/.openmpi"
printf 'coll_gpusym_warn = 7\n' >"$dir/home/.openmpi/mca-params.conf"
ask 0 env HOME="$dir/home" "$info" -p warn
says "^ coll_gpusym_warn 7[.0]* file $dir/home/.openmpi/mca-params.conf\$"
ask 0 env OMPI_MCA_coll_gpusym_allreduce_algorithm=agxll_r "$info" -p allreduce
says '^ coll_gpusym_allreduce_algorithm agxll_r environment$'
# shellcheck disable=SC2154  # test/mpirun.sh sets it
mpirun=("$GPUSYM_OMPI_MPIRUN" "${oversubscribe[@]}")
ask 0 "${mpirun[@]}" -n 1 --mca coll_gpusym_warn 9 "$info" -p warn
says "^ coll_gpusym_warn 9[.0]* environment, or mpirun's command line\$"
ask_json env OMPI_MCA_mca_base_param_files="$dir/params" "$info" -p heap_size
holds 'j["parameters"][0]["value"] == "8388608" and j["parameters"][0]["set_by"].startswith("file /")'
holds '"symmetric heap" in j["parameters"][0]["meaning"]'

# Algorithms: by the table, forced, impossible; on the simulator and, without a GPU, as on H200.
ask 0 "$info" --why allreduce 64k float 4
says '^ algorithm agxll_r$'
says '^ agxll_r taken the table takes it up to 64k$'
says '^ rsxst_agxst possible the table takes it above 2m$'
says '^ agxllmc_r possible the table never takes it here'
says '^ ring_ll possible the table never takes it here'
ask 0 "$info" --why ALLREDUCE 4M f64 4 max
says '^ operation max$'
says '^ zero copy yes$'
ask 0 env OMPI_MCA_coll_gpusym_algorithm=allreduce:ring_simple,bcast:staged "$info" --why allreduce 8 int 3
says '^ algorithm ring_simple$'
says '^ ring_simple taken coll_gpusym_algorithm names it$'
ask 0 env OMPI_MCA_coll_gpusym_algorithm=allreduce:ring_simple,bcast:staged "$info" --why bcast 8 int 3
says '^ because coll_gpusym_algorithm says staged$'
ask 0 env OMPI_MCA_coll_gpusym_reproducible=1 OMPI_MCA_coll_gpusym_algorithm=allreduce:ring_ll "$info" --why allreduce 8 float 3
says '^ ring_ll impossible its order of summation .*coll_gpusym_algorithm names it'
ask 0 env OMPI_MCA_coll_gpusym_multicast=0 OMPI_MCA_coll_gpusym_algorithm=allreduce:agxllmc_r "$info" --why allreduce 8 float 3
says '^ algorithm agxll_r$'
says '^ agxllmc_r impossible the ranks have no multicast object .coll_gpusym_algorithm names it.$'
ask 0 env OMPI_MCA_coll_gpusym_sim_links=0-2:0 "$info" --why allgather 8 byte 4
says '^ algorithm ring_ll$'
says '^ ll impossible not every rank reaches every other'
ask 0 env OMPI_MCA_coll_gpusym_sim_links=0-2:0 "$info" --why gather 8 byte 4
says '^ because .* this collective has no ring$'
ask 0 env OMPI_MCA_coll_gpusym_sim_links=0-2:0 "$info" --why allgather 8 byte 3
says '^ because .* there is no ring over all$'
ask 0 env OMPI_MCA_coll_gpusym_device=none "$info" --why alltoall 64m byte 2
says '^ there is no GPU here .*: each rank has an NVIDIA H200'
says '^ algorithm ce$'
says '^ ce taken [0-9.]+ the table takes it above '
says '^ predicted_us is not measured here: a model'
ask_json "$info" --why allreduce 64k float 4
holds 'j["choice"]["algorithm"] == "agxll_r" and j["choice"]["protocol"] == "LL" and j["choice"]["blocks"] > 0'
holds '[c["algorithm"] for c in j["candidates"] if c["verdict"] == "taken"] == ["agxll_r"]'

# Predictions, of what is possible, on GPUs that the model knows.
ask_json env OMPI_MCA_coll_gpusym_device=none "$info" --why allreduce 1m float 4
holds 'all((c["predicted_us"] is None) == (c["verdict"] == "impossible") for c in j["candidates"])'
holds 'j["choice"]["predicted_us"] == [c["predicted_us"] for c in j["candidates"] if c["verdict"] == "taken"][0]'
holds '{c["algorithm"]: 10 < (c["predicted_us"] or 20) < 200 for c in j["candidates"]}["rsxst_agxst"]'
ask_json "$info" --why allreduce 1m float 4
holds 'not any("predicted_us" in c for c in j["candidates"])'

# Multicast: where it is requested, and faster as it is published.
requested=(env OMPI_MCA_coll_gpusym_device=none OMPI_MCA_coll_gpusym_multicast=1 OMPI_MCA_coll_gpusym_heap_vmm=1)
ask 0 "${requested[@]}" "$info" --why allreduce 16m float 8
says '^ rsxldmc_agxstmc taken [0-9.]+ the table takes it above '
ask 0 "${requested[@]}" "$info" --why allreduce 16m float 4
says '^ rsxldmc_agxstmc possible [0-9.]+ the table never takes it here'
ask 0 env NVSHMEM_DISABLE_NVLS=1 "${requested[@]}" "$info" --why allreduce 16m float 8
says '^ rsxldmc_agxstmc impossible - the ranks have no multicast object$'
ask 0 "${requested[@]}" OMPI_MCA_coll_gpusym_heap_vmm=0 "$info" --why allreduce 16m float 8
says '^ rsxldmc_agxstmc impossible - the ranks have no multicast object$'

# ... as a job does: the summary has it for these calls.
agrees() {
    local algorithm
    algorithm=$("$info" --why "$1" "$3" float 3 | sed -n '/^choice:/,/^$/ s/^  algorithm  *//p')
    ask 0 "${mpirun[@]}" -n 3 --mca coll gpusym --mca coll_gpusym_summary 1 "$builddir/bench/gpusym_bench" --coll "$1" --bytes "$2" \
        --batches 7 --no-nccl --no-staged --no-in-place
    says "^gpusym: $1: native .*[( ]${algorithm:-none} [1-9]"
}
agrees allreduce 3k 3k
agrees allreduce 960k 960k
agrees alltoall 960k 320k
OMPI_MCA_coll_gpusym_algorithm=bcast:chain_ll agrees bcast 3k 3k

# The check.
ask 0 "${mpirun[@]}" -n 3 --mca coll gpusym "$info" --check
says '^ 2 1 NV1 [0-9.]+ - right$'
says '^ 16 [0-9.]+ [0-9.]+ right$'
says '^ none$'
ask 1 "${mpirun[@]}" -n 3 --mca coll gpusym --mca coll_gpusym_sim_links '0-2:4!' "$info" --check
says '^ wrong data from rank 0 \('
says '^ 0 2 NV1 [0-9.]+ - wrong data$'
says '^ 2 0 NV1 [0-9.]+ - wrong data$'
says '^ 0 1 NV1 [0-9.]+ - right$'
ask 1 "${mpirun[@]}" -n 3 --mca coll gpusym --mca coll_gpusym_sim_links '0-2:4!,1-2:4!' "$info" --check
says 'all pairs of its GPU, are those of rank 2 '
if [ "$GPUSYM_HAVE_JANSSON" = 1 ]; then
    ask_json "${mpirun[@]}" -n 2 --mca coll gpusym "$info" --check
    holds 'j["bad"] == [] and len(j["pairs"]) == 2 and all(a["verdict"] == "right" for a in j["allreduce"])'
fi
ask 2 "${mpirun[@]}" -n 1 --mca coll gpusym "$info" --check
says 'two ranks or more are needed'
ask 2 "${mpirun[@]}" -n 2 --mca coll ^gpusym "$info" --check
says 'this mpirun has not loaded gpusym'
ask 2 "${mpirun[@]}" -n 2 --mca coll gpusym --mca coll_gpusym_device none "$info" --check
says 'there is no GPU here'

# What it refuses.
refuses() {
    ask 2 "$info" "${@:2}"
    says "^gpusym_info: $1"
    says '^usage: gpusym_info '
}
refuses 'no such option: --nothing' --nothing
refuses 'too many words: word' word
refuses 'too many words: b' --params a b
refuses 'one of --params, --why, --check and --job' --params --check
refuses 'no parameter of gpusym has such a name: heap_sizes' --params heap_sizes
refuses '--why takes COLLECTIVE BYTES TYPE RANKS' --why allreduce 8 float
refuses 'too many words: 9' --why allreduce 8 float 2 sum 9
refuses '--why: "barrier" is no collective that has kernels' --why barrier 8 float 2
refuses '--why: "8x" is no number of bytes' --why allreduce 8x float 2
refuses '--why: "-8" is no number of bytes|no such option: -8' --why allreduce -8 float 2
refuses '--why: "floats" is no type' --why allreduce 8 floats 2
refuses '--why: "33" is no number of ranks' --why allreduce 8 float 33
refuses '--why: "mean" is no operation' --why allreduce 8 float 2 mean
refuses '--why: no kernel applies band to f32' --why allreduce 8 float 2 band
refuses '--why: bcast has no operation' --why bcast 8 float 2 sum
ask 0 "$info" --version
says '^gpusym_info \(gpusym\) [0-9]+\.[0-9]+\.[0-9]+'
echo "$passed as expected, $failed not"
[ "$failed" -eq 0 ]
