/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The default of table C. The host device reads a file, so the text is written to a file without a
 * name, which ends with the process. */
#include "replay/costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void replay_costs_default(void)
{
    char path[64];
    size_t length = strlen(replay_costs);
    if (getenv("TARN_HOST_COSTS"))
        return;
    int file = memfd_create("costs", MFD_CLOEXEC);
    if (file < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, replay_costs, length) == (ssize_t)length && access(path, R_OK) == 0)
        setenv("TARN_HOST_COSTS", path, 1);
    else
        close(file);
}
