/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statuses that these calls give and the comments above them do not name. Each is right for the caller: what is missing is a line in the
 * header, and with that the row goes. */
#include "mixed/model/promise.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t statuses;
} lacking[] = {
    {"tarn_alloc", BIT(TARN_ERROR_BUSY)},
    {"tarn_device_trim", BIT(TARN_ERROR_BUSY)},
    {"tarn_host_advance", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_call", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_check_set", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_copy", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_extent_get", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_fill", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_graph_destroy", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_graph_launch", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_ledger_get", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_ledger_reset", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_time_get", BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_host_work", BIT(TARN_ERROR_CAPTURE) | BIT(TARN_ERROR_NOT_SUPPORTED)},
    {"tarn_import_close", BIT(TARN_ERROR_DEVICE_LOST)},
    {"tarn_pool_alloc", BIT(TARN_ERROR_BUSY)},
    {"tarn_pool_restore", BIT(TARN_ERROR_SUSPENDED)},
    {"tarn_pool_resume", BIT(TARN_ERROR_BUSY)},
    {"tarn_pool_trim", BIT(TARN_ERROR_BUSY)},
    {"tarn_compact", BIT(TARN_ERROR_OUT_OF_HOST_MEMORY)},
};

bool header_lacks(const char *name, tarn_status status)
{
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (strcmp(name, lacking[i].name) == 0)
            return lacking[i].statuses & BIT(status);
    return false;
}

bool lacking_said(void)
{
    bool there = true;
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++) {
        uint64_t promised = 0;
        there &= promised_statuses(lacking[i].name, &promised);
        if ((lacking[i].statuses & ~promised) == 0)
            printf("%s: its header says it now: the row can go\n", lacking[i].name);
    }
    return there;
}
