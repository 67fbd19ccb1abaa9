# SPDX-License-Identifier: BSD-3-Clause
"""gpusym_bench plot [--out DIR] [--name NAME] FILE...: latency and bandwidth over size, of each collective and mode in CSV
or JSON files.

Writes DIR/NAME-COLLECTIVE-MODE.png (DIR: beside the file; NAME: as the file), and prints what it has written.
"""
import csv
import json
import os
import sys

# The columns that are times, in microseconds, and their names in the legend.
WAYS = {
    "us": "gpusym",
    "in_place_us": "gpusym, in place",
    "nccl_us": "NCCL",
    "nccl_symmetric_us": "NCCL, symmetric windows",
    "staged_us": "staged through the host",
}


def die(text):
    sys.exit("gpusym_bench plot: " + text)


def read_rows(path):
    """The rows of a file, and its comment lines."""
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except OSError as e:
        die(str(e))
    if text.lstrip().startswith("{"):
        try:
            whole = json.loads(text)
        except ValueError as e:
            die(f"{path} is no whole JSON file: {e}")
        return whole["rows"], whole["comments"]
    lines = text.splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return list(rows), [line[2:] for line in lines if line.startswith("#")]


def groups_of(path, rows):
    """Rows by (collective, mode)."""
    groups = {}
    for row in rows:
        if "best_nccl_over_gpusym" not in row or not row.get("bytes") or not row.get("mode"):
            die(f"{path} has no table of gpusym_bench (a sweep is not drawn)")
        groups.setdefault((row["collective"], row["mode"]), []).append(row)
    if not groups:
        die(f"{path} has no rows")
    return groups


def points(rows, column):
    """(bytes, us, factor from algorithm to bus bandwidth) where measured."""
    out = []
    for row in rows:
        if row.get(column) not in (None, ""):
            us, bus, alg = (row.get(k) or row.get("in_place_" + k) for k in ("us", "busbw_GBs", "algbw_GBs"))
            factor = float(bus) / float(alg) if us and float(alg) > 0 else 1.0
            out.append((float(row["bytes"]), float(row[column]), factor))
    return out


def bytes_text(value, _=None):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:g} {unit}"
        value /= 1024
    return ""


def draw(plt, group, rows, comments, path):
    collective, mode = group
    figure, (latency, bandwidth) = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    # The factor of the largest message is the least rounded.
    whole = points(rows, "us") or points(rows, "in_place_us")
    factor = whole[-1][2] if whole else 1.0
    for column, name in WAYS.items():
        at = points(rows, column)
        if at:
            sizes = [p[0] for p in at]
            latency.plot(sizes, [p[1] for p in at], marker="o", markersize=3, label=name)
            bandwidth.plot(sizes, [p[0] * factor / p[1] / 1e3 for p in at], marker="o", markersize=3, label=name)
    for axes in (latency, bandwidth):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(bytes_text)
        axes.tick_params(axis="x", labelrotation=45)
        axes.set_xlabel("bytes of the message")
        axes.grid(True, which="major", alpha=0.4)
        axes.legend()
    latency.set_yscale("log")
    latency.set_ylabel("µs of a call")
    bandwidth.set_ylabel("GB/s, bus bandwidth")
    what = [c for c in comments if c.startswith(("gpusym_bench:", "GPU of rank 0", "NO GPU", "date", "commit"))]
    figure.suptitle(f"{collective}, {mode}, {rows[0]['type']}\n" + "\n".join(what), fontsize=8)
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(path)


def main(arguments):
    options = {"--out": None, "--name": None}
    while len(arguments) > 1 and arguments[0] in options:
        options[arguments[0]], arguments = arguments[1], arguments[2:]
    out = options["--out"]
    if out is not None and not os.path.isdir(out):
        die("--out: there is no such folder")
    if not arguments or arguments[0].startswith("-"):
        die("usage: gpusym_bench plot [--out DIR] [--name NAME] FILE...")
    try:
        import matplotlib
    except ImportError:
        die("Python's matplotlib is missing (Debian, Ubuntu, Fedora: the package python3-matplotlib)")
    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    for path in arguments:
        rows, comments = read_rows(path)
        stem = options["--name"] or os.path.splitext(os.path.basename(path))[0]
        for group, part in groups_of(path, rows).items():
            name = "-".join((stem, *group)) + ".png"
            draw(plt, group, part, comments, os.path.join(out or os.path.dirname(path) or ".", name))


main(sys.argv[1:])
