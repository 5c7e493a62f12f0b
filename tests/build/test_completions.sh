#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The completions of the shells have each command and each option that --help names, and bash completes with them. zsh and
# fish read theirs, where they are installed.
set -euo pipefail
fail() { echo "test_completions: $*" >&2; exit 1; }

folder=$TARN_BUILD/completions
[ -f "$folder/tarn.bash" ] || fail "no completions were made"

# The commands, by another way than the script takes.
mapfile -t commands < <("$TARN_PROGRAM" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "${#commands[@]}" -gt 5 ] || fail "--help names ${#commands[@]} commands"

# shellcheck source=/dev/null
source "$folder/tarn.bash"
# completed WORD...: what bash offers for the last word.
completed()
{
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _tarn
    [ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
}

options=0
for command in "${commands[@]}"; do
    completed tarn "${command:0:2}" | grep -qx "$command" || fail "bash does not complete tarn ${command:0:2} to $command"
    completed tarn help "${command:0:2}" | grep -qx "$command" || fail "bash does not complete tarn help ${command:0:2}"
    grep -q "'$command:" "$folder/_tarn" || fail "zsh's completions lack $command"
    grep -q -- "-a $command -d" "$folder/tarn.fish" || fail "fish's completions lack $command"
    [ "$command" != help ] || continue
    while read -r option; do
        options=$((options + 1))
        completed tarn "$command" "$option" | grep -qxe "$option" || fail "bash does not complete tarn $command $option"
        grep -qe "'$option:" "$folder/_tarn" || fail "zsh's completions lack tarn $command $option"
        grep -qe "_from $command' -l ${option#--} " "$folder/tarn.fish" || fail "fish's completions lack tarn $command $option"
    done < <("$TARN_PROGRAM" help "$command" | grep -oE '^ {2,6}(-[a-zA-Z], )?--[a-z][a-z-]*' | grep -oE -e '--[a-z-]+$')
done
[ "$options" -gt 20 ] || fail "--help names $options options"
[ -z "$(completed tarn replay trace)" ] || fail "bash offers words where files are wanted"
bash -n "$folder/tarn.bash"
if command -v zsh >/dev/null; then zsh -n "$folder/_tarn"; fi
if command -v fish >/dev/null; then fish --no-execute "$folder/tarn.fish"; fi
echo "${#commands[@]} commands, $options options"
