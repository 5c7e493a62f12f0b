#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Every command of the program has a manual page, and no other page is made. A page has each option, each example and the
# exit statuses of --help, which is the same by each way of asking for it; two renderers find nothing to complain about.
set -euo pipefail
export LC_ALL=C.UTF-8 MANWIDTH=100

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_man: $*" >&2; exit 1; }

pages=$TARN_BUILD/man/man1
[ -d "$pages" ] || { echo "test_man: no pages were made; is help2man missing?"; exit 77; }
for tool in man mandoc; do
    command -v "$tool" >/dev/null || { echo "test_man: $tool is missing; scripts/setup test installs it"; exit 77; }
done

# joined FILE: the words of a text with one space between, hyphens of the layout taken out.
joined() { sed -E 's/^ +//; s/ +$//' "$1" | tr '\n' ' ' | sed 's/‐ //g; s/  */ /g'; }

# check NAME HELP: the page NAME has what the file HELP says.
check()
{
    local page=$pages/$1.1 help=$2 option line
    [ -f "$page" ] || fail "there is no page $1"

    man --warnings "$page" 2>"$work/warnings" >"$work/rendered" || fail "man does not show $1: $(cat "$work/warnings")"
    mandoc -T lint -W warning "$page" >>"$work/warnings" || true
    [ ! -s "$work/warnings" ] || fail "$1: $(cat "$work/warnings")"
    ! grep -n '^\.HP' "$page" >&2 || fail "$1: an option without two spaces before its description"

    awk '/^\.SH / { inside = $2 == "OPTIONS" } inside && tag { print } { tag = /^\.TP/ }' "$page" >"$work/tags"
    grep -q '^  *-' "$help" || fail "$1: --help has no options"
    while read -r option; do
        grep -qF -e "\\fB${option//-/\\-}\\fR" "$work/tags" || fail "$1: $option is not among the options of the page"
    done < <(sed -nE 's/^ {2,6}(-[a-zA-Z],)? ?(--?[a-zA-Z][a-z-]*).*/\1 \2/p' "$help" | tr -d ',' | tr ' ' '\n' | grep .)

    joined "$work/rendered" >"$work/text"
    while IFS= read -r line; do
        line=$(sed 's/^ *//; s/ *$//; s/\\$//' <<<"$line")
        grep -qF -e "$line" "$work/text" || fail "$1: the page does not show the example: $line"
    done < <(awk 'inside && !NF { exit } inside; /^Examples:$/ { inside = 1 }' "$help")
    awk -v RS= '/^Exit status:/ { sub(/^Exit status: ./, ""); print; found = 1 } END { exit !found }' "$help" >"$work/status" ||
        fail "$1: --help does not say the exit statuses"
    awk '/^EXIT STATUS/ { inside = 1; next } /^[A-Z]/ { inside = 0 } inside' "$work/rendered" >"$work/section"
    [[ $(joined "$work/section") == *"$(joined "$work/status")"* ]] || fail "$1: the page says other exit statuses"
}

# same NAME FIRST SECOND: the outputs of two ways of asking.
same() { cmp -s "$2" "$3" || { diff "$2" "$3" >&2 || true; fail "$1 says something else"; }; }

"$TARN_PROGRAM" --help >"$work/main"
"$TARN_PROGRAM" help help >"$work/again"
same 'tarn help help' "$work/main" "$work/again"
printf 'tarn.1\n' >"$work/expected"
check tarn "$work/main"

awk '/^Commands:$/ { inside = 1; next } inside && !NF { exit } inside && $1 != "help" { print $1 }' "$work/main" >"$work/commands"
[ -s "$work/commands" ] || fail "tarn --help lists no commands"
while read -r command; do
    "$TARN_PROGRAM" help "$command" >"$work/help"
    "$TARN_PROGRAM" "$command" --help >"$work/again"
    same "tarn $command --help" "$work/help" "$work/again"
    "$TARN_PROGRAM" "$command" -h >"$work/again"
    same "tarn $command -h" "$work/help" "$work/again"
    grep -q "^Usage: tarn $command " "$work/help" || fail "tarn $command --help begins with another usage"
    check "tarn-$command" "$work/help"
    printf 'tarn-%s.1\n' "$command" >>"$work/expected"
done <"$work/commands"

diff <(sort "$work/expected") <(cd "$pages" && printf '%s\n' * | sort) >&2 || fail "the pages are not those of the commands"
for include in "$TARN_SOURCE"/docs/man/*.h2m; do
    name=$(basename "$include" .h2m)
    [ "$name" = tarn ] || grep -qxF "$name" "$work/commands" || fail "docs/man/$name.h2m: there is no command $name"
done
by_hand=$(find "$TARN_SOURCE/docs/man" -name '*.[1-9]')
[ -z "$by_hand" ] || fail "pages are made of --help and of docs/man/<command>.h2m; not by hand: $by_hand"
echo "$(wc -l <"$work/expected") pages"
