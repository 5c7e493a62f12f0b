/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Asks NVML about the devices of the fleet. */
#include "nvml.h"
#include "top/fleet.h"

bool fleet_monitor_read(const char *uuid, const char *pci, struct fleet_monitor *monitor)
{
    nvml_device device = nvml_find(uuid, pci);
    struct nvml_memory memory = {0};
    struct nvml_process list[sizeof monitor->processes / sizeof *monitor->processes] = {{0}};
    unsigned count = sizeof list / sizeof *list;
    if (!device || !nvml_memory_get(device, &memory))
        return false;
    *monitor = (struct fleet_monitor){.total = memory.total, .used = memory.used};
    if (!nvml_processes_get(device, list, &count))
        return true; /* who has it is not known, only how much there is */
    for (unsigned i = 0; i < count; i++)
        if (list[i].number)
            monitor->processes[monitor->count++] = (struct fleet_process){
                .number = list[i].number,
                .bytes = list[i].bytes == ~0ull ? SURVEY_UNKNOWN : list[i].bytes,
            };
    return true;
}
