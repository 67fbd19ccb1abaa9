# SPDX-License-Identifier: BSD-3-Clause
#
# Lines "NAME NANOSECONDS with|without", of runs in turns with gpusym and without it, sorted by name, way and time:
# the medians, and with over without.
{ key = $1 " " $3; n[key]++; ns[key, n[key]] = $2; names[$1] }
END {
    for (name in names) {
        with = ns[name " with", int((n[name " with"] + 1) / 2)]
        without = ns[name " without", int((n[name " without"] + 1) / 2)]
        if (without > 0) printf "%s,%.1f,%.1f,%.3f\n", name, without, with, with / without
    }
}
