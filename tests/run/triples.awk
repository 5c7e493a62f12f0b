# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Of cudaTypedefs.h every prototype as X(name, version, mode): what a driver's cuGetProcAddress() tells apart. A prototype without a twin for
# the per-thread stream goes by its name in either mode.
match($0, /PFN_cu[A-Za-z0-9]+_v[0-9]+(_ptsz|_ptds)?\)/) {
    text = substr($0, RSTART + 4, RLENGTH - 5)
    mode = "RUN_ANY"
    if (sub(/_pt[sd][sz]$/, "", text))
        mode = "RUN_PER_THREAD"
    at = match(text, /_v[0-9]+$/)
    name = substr(text, 1, at - 1)
    version = substr(text, at + 2)
    count++
    names[count] = name; versions[count] = version; modes[count] = mode
    if (mode == "RUN_PER_THREAD")
        twin[name, version] = 1
}
END {
    for (i = 1; i <= count; i++) {
        if (modes[i] == "RUN_ANY" && (names[i], versions[i]) in twin)
            modes[i] = "RUN_LEGACY"
        if (!seen[names[i], versions[i], modes[i]]++)
            printf "X(%s, %s, %s)\n", names[i], versions[i], modes[i]
    }
}
