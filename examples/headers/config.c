/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Settings of the process, as text: those in force are read, changed, and brought back. */
#include <stdio.h>
#include <tarn/tarn.h>

int main(void)
{
    char before[1024], now[1024];
    if (tarn_configuration_get(before, sizeof before, NULL) ||
        tarn_configuration_set("max_split_size_mb:64,garbage_collection_threshold:0.8") ||
        tarn_configuration_get(now, sizeof now, NULL) || tarn_configuration_set(before)) {
        fprintf(stderr, "%s\n", tarn_last_error());
        return 1;
    }
    printf("%s\n", now);
    return tarn_shutdown();
}
