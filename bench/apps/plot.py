#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bench/apps/plot.py PAGE...: the tables and pictures of a page, from the files that the scripts of this folder wrote.

Where a page has the line <!-- FILE -->, FILE (beside the page, .csv) becomes the table below it, and the picture
plots/NAME.png beside the page, NAME being that of the file. What stood there before is replaced. Without matplotlib
there are tables only.
"""
import csv
import os
import re
import sys


def read(path):
    """The comments of a file, its rows, and its cases and ways in their order."""
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    if not rows:
        sys.exit(f"plot.py: {path} has no rows")
    comments = [line[2:] for line in lines if line.startswith("#")]
    return comments, rows, list(dict.fromkeys(r["case"] for r in rows)), list(dict.fromkeys(r["way"] for r in rows))


def bytes_text(case):
    """A case whose last word is a number of bytes, as people say it."""
    words = case.split()
    if len(words) == 2 and words[1].isdigit():
        value = int(words[1])
        for unit in ("B", "KiB", "MiB"):
            if value < 1024 or unit == "MiB":
                return f"{words[0]} {value} {unit}"
            value //= 1024
    return case


def number(text):
    value = float(text)
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def table(path):
    comments, rows, cases, ways = read(path)
    found = {(r["case"], r["way"]): r["value"] for r in rows}
    lines = [f"| {rows[0]['unit'].replace('us', 'µs')} | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for case in cases:
        cells = [number(found[case, way]) if (case, way) in found else "–" for way in ways]
        lines.append(f"| {bytes_text(case)} | " + " | ".join(cells) + " |")
    return lines


def draw(path, picture):
    try:
        import matplotlib
    except ImportError:
        print(f"plot.py: {picture} is not drawn, Python's matplotlib is missing")
        return
    matplotlib.use("Agg")  # no display
    import matplotlib.pyplot as plt

    comments, rows, cases, ways = read(path)
    found = {(r["case"], r["way"]): float(r["value"]) for r in rows}
    figure, axes = plt.subplots(figsize=(8, 1.1 + 0.19 * len(cases) * (len(ways) + 1)), constrained_layout=True)
    for at, way in enumerate(ways):
        places = [(len(ways) + 1) * i + at for i, case in enumerate(cases) if (case, way) in found]
        values = [found[case, way] for case in cases if (case, way) in found]
        for place, value in zip(places, values):
            axes.text(value, place, " " + number(str(value)), va="center", fontsize=7)
        axes.barh(places, values, label=way)
    middles = [(len(ways) + 1) * i + (len(ways) - 1) / 2 for i in range(len(cases))]
    axes.set_yticks(middles, [bytes_text(case) for case in cases])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(found.values()) / 2, max(found.values()) * 3)
    axes.set_xlabel(rows[0]["unit"].replace("us", "µs") + ", less is better")
    axes.grid(True, axis="x", which="major", alpha=0.4)
    axes.legend(fontsize=8)
    figure.suptitle("\n".join(comments[:3]), fontsize=7)
    figure.savefig(picture, dpi=90, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(picture)


def fill(page):
    folder = os.path.dirname(page) or "."
    with open(page, encoding="utf-8") as f:
        lines = f.read().splitlines()
    out, skipping = [], False
    for line in lines:
        if skipping and (not line or line.startswith("|")):
            continue  # the table that stood there, and what is blank around it
        if skipping:
            out.append("")
        skipping = False
        out.append(line)
        marker = re.fullmatch(r"<!-- (\S+\.csv) -->", line)
        if marker:
            path = os.path.join(folder, marker[1])
            out += [""] + table(path)
            draw(path, os.path.join(folder, "plots", os.path.basename(path)[: -len(".csv")] + ".png"))
            skipping = True
    with open(page, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


if len(sys.argv) < 2:
    sys.exit("usage: bench/apps/plot.py PAGE...")
for name in sys.argv[1:]:
    fill(name)
