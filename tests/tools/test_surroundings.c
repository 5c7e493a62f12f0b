/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Why `tarn check` says that there is no GPU, on machines that are folders here; the first row that
 * holds decides. */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *commands, *why; /* commands make the machine in the current folder */
} machines[] = {
    {"true", "no GPU is on the PCI bus"},
    {"mkdir -p dev; : >dev/dxg", "this is WSL2"},
    {"mkdir -p sys/module/nvidia; echo 580.1 >sys/module/nvidia/version; : >.dockerenv",
     "the container has no device files"},
    {"mkdir -p sys/module/nvidia; echo 580.1 >sys/module/nvidia/version",
     "the driver is loaded, and /dev/nvidiactl is missing"},
    {"mkdir -p sys/bus/pci/devices/0; cd sys/bus/pci/devices/0; echo 0x10de >vendor; "
     "echo 0x030200 >class",
     "its driver is not loaded"},
    {"mkdir -p dev; : >dev/nvidiactl", "libcuda.so.1 does not answer"},
    {"mkdir -p dev; : >dev/kfd", "libamdhip64.so does not answer"},
};

int main(void)
{
    int wrong = 0;
    unsetenv("container");
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        char root[] = "/tmp/tarn-machine-XXXXXX", command[600];
        const char *remedy = NULL;
        if (!mkdtemp(root))
            return 1;
        snprintf(command, sizeof command, "cd %s && { %s; }", root, machines[i].commands);
        if (system(command)) /* NOLINT(cert-env33-c,concurrency-mt-unsafe): our own text */
            wrong++;
        json_t *found = surroundings(root);
        const char *why = found ? surroundings_no_gpu(found, &remedy) : NULL;
        if (!why || !remedy || !strstr(why, machines[i].why)) {
            printf("%s: \"%s\", not \"%s\"\n", machines[i].commands, why ? why : "",
                   machines[i].why);
            wrong++;
        }
        json_decref(found);
        snprintf(command, sizeof command, "rm -rf %s", root);
        (void)!system(command); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
    }
    return wrong ? 1 : 0;
}
