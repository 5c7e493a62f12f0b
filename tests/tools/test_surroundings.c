/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Why `tarn check` says that there is no GPU, on machines that are folders here; the first row that
 * holds decides. Root may open every file, so root becomes another user meanwhile. */
#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PCI "mkdir -p sys/bus/pci/devices/0; cd sys/bus/pci/devices/0; "
#define NVIDIA PCI "echo 0x10de >vendor; echo 0x030200 >class; cd ../../../../..; "
#define AMD PCI "echo 0x1002 >vendor; echo 0x120000 >class; cd ../../../../..; "
#define LOADED "mkdir -p sys/module/nvidia; echo 580.1 >sys/module/nvidia/version; "
#define CONTROL "mkdir -p dev; : >dev/nvidiactl; "
#define KFD "mkdir -p dev; : >dev/kfd; "

static const struct {
    const char *commands, *why; /* commands make the machine in the current folder */
} machines[] = {
    {"true", "no GPU is on the PCI bus"},
    {PCI "echo 0x8086 >vendor; echo 0x030000 >class", "no GPU is on the PCI bus"},
    {PCI "echo 0x10de >vendor; echo 0x040300 >class", "no GPU is on the PCI bus"}, /* its sound */
    {"mkdir -p dev; : >dev/dxg", "this is WSL2"},
    {CONTROL "chmod 0 dev/nvidiactl", "may not open /dev/nvidiactl"},
    {KFD "chmod 0 dev/kfd", "may not open /dev/kfd"},
    {LOADED ": >.dockerenv", "the container has no device files"},
    {NVIDIA ": >.dockerenv", "the container has no device files"},
    {AMD "mkdir run; : >run/.containerenv", "the container has no device files"},
    {LOADED, "the driver is loaded, and /dev/nvidiactl is missing"},
    {NVIDIA LOADED, "the driver is loaded, and /dev/nvidiactl is missing"},
    {NVIDIA, "an NVIDIA GPU, and its driver is not loaded"},
    {NVIDIA LOADED CONTROL, "libcuda.so.1 does not answer"},
    {CONTROL, "libcuda.so.1 does not answer"},
    {AMD, "an AMD GPU, and /dev/kfd is missing"},
    {AMD KFD, "libamdhip64.so does not answer"},
};

int main(void)
{
    const uid_t super = 0, nobody = 65534, owner = getuid();
    int wrong = 0;
    unsetenv("container");
    umask(022);
    if (owner == super && setresuid(nobody, nobody, super))
        return 1;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        char root[] = "/tmp/tarn-machine-XXXXXX", command[600];
        const char *remedy = NULL;
        if (!mkdtemp(root))
            return 1;
        snprintf(command, sizeof command, "cd %s && { %s\n}", root, machines[i].commands);
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
    if (owner == super && setresuid(super, super, super))
        return 1;
    return wrong ? 1 : 0;
}
