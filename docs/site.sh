#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The documents as a site, by mkdocs (Debian, Ubuntu: mkdocs):
#
#     docs/site.sh DIR      DIR/index.html is the start page; DIR is replaced
#
# The pages lie there as in the source tree, so that links between them hold; what else they link to comes with them. A
# warning of mkdocs, such as a link to nowhere, is an error.
set -eu
site=${1:?usage: docs/site.sh DIR}
mkdir -p "$site"
site=$(cd "$site" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pages=$work/pages
mkdir -p "$pages/docs" "$pages/bench" "$pages/man"
cp README.md LICENSE "$pages/"
cp -r --no-preserve=mode docs/*.md docs/site.css docs/plots "$pages/docs/"
cp bench/README.md "$pages/bench/"
# A page's title is that of a heading in its first line.
sed -i '1 { /^<!--.*-->$/d; }' "$pages"/docs/*.md "$pages"/bench/*.md
# NEWS is Markdown but for its headings and margin.
sed 's/^[0-9]/## &/; s/^gpusym: /# News\n\ngpusym: /; s/^  //' NEWS >"$pages/NEWS.md"
sed -i 's,](\(\(\.\./\)*\)NEWS),](\1NEWS.md),g' "$pages/README.md" "$pages"/*/*.md
for page in gpusym_bench.1 gpusym_info.1 gpusym_trace.1 gpusym_netperf.1 MPIX_Query_cuda_support.3gpusym gpusym_allreduce_on_stream.3gpusym \
    gpusym_start_on_stream.3gpusym gpusym_group_start.3gpusym gpusym_stream_prepare.3gpusym gpusym_stream_error.3gpusym gpusym_mem_register.3gpusym \
    mpix_stream.3gpusym; do
    docs/man.sh --markdown $page >"$pages/man/$page.md"
done

# In code within a table | needs no backslash here.
# shellcheck disable=SC2016  # Markdown's backquotes
sed -i ':a; /^|/ s/\(`[^`]*\)\\|\([^`]*`\)/\1|\2/; ta' "$pages"/*.md "$pages"/*/*.md

# Files and folders that pages link to; of a folder, which has no page, a list of its files.
for page in README.md docs/*.md bench/README.md; do
    { grep -o '](\([^)#:]*\))' "$page" || true; } | sed "s,^](,$(dirname "$page")/,; s/)\$//"
done | sort -u | while read -r path; do
    path=$(realpath -s --relative-to=. "$path")
    if [ -d "$path" ]; then
        mkdir -p "$pages/$path" && cp "$path"/* "$pages/$path/"
        {
            printf '# %s\n\n' "$path"
            for file in "$path"/*; do echo "- [${file##*/}](${file##*/})"; done
        } >"$pages/$path/index.md"
    elif [ -e "$path" ] && [ ! -e "$pages/$path" ] && [ "$path" != NEWS ]; then
        mkdir -p "$pages/$(dirname "$path")" && cp "$path" "$pages/$path"
    fi
done

{
    cat mkdocs.yml
    printf '%s\n' "docs_dir: $pages" "site_dir: $site" nav:
    # A menu for each folder; in README.md's order, then what it does not list.
    {
        echo README.md
        sed -n 's/^| \[\(docs\/[a-z]*\.md\)\].*/\1/p' README.md
        (cd "$pages" && find . -mindepth 2 -name '*.md' | sed 's,^\./,,' | sort)
        echo NEWS.md
    } | awk -F/ '
        BEGIN { menu["docs"] = "Documentation"; menu["bench"] = "Measuring"; menu["man"] = "Manual pages" }
        seen[$0]++ { next }
        NF > 1 && !named[$1]++ { print "  - " menu[$1] ":" }
        { print (NF > 1 ? "    " : "") "  - " $0 }'
} >"$work/mkdocs.yml"
mkdocs build --strict --clean -f "$work/mkdocs.yml"
