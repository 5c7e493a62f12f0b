/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The policy and the sizes of workspaces, from callers, the environment and the libraries' rows.
 * Owns these, and the epoch, which each change increases. All of them are atomic; there is no
 * lock. */
#include "base/log.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "base/variable.h"
#include "handle/handle.h"

#include <stdlib.h>
#include <string.h>

#define POLICY_VARIABLE "TARN_WORKSPACE"
#define UNIFIED_VARIABLE "TARN_CUBLASLT_UNIFIED_WORKSPACE"
#define NOT_ASKED (-1)

/* The policy that was set; else that of the environment, which is read once. */
static atomic_int policy = NOT_ASKED;
static atomic_int unified = NOT_ASKED; /* from the environment, which is read once */
static atomic_uint_fast64_t epoch = 1;

uint64_t workspaces_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

void workspaces_changed(void)
{
    atomic_fetch_add(&epoch, 1);
    process_changed();
}

static int policy_of_environment(void)
{
    static const char *const names[] = {[TARN_WORKSPACE_CACHED] = "cached",
                                        [TARN_WORKSPACE_PER_CALL] = "per_call",
                                        [TARN_WORKSPACE_LIBRARY] = "library"};
    const char *text = variable_get(POLICY_VARIABLE);
    for (int i = TARN_WORKSPACE_CACHED; text && i <= TARN_WORKSPACE_LIBRARY; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    if (text)
        log_write(LOG_ERRORS,
                  POLICY_VARIABLE "=%s must be cached, per_call or library; it is ignored", text);
    return TARN_WORKSPACE_CACHED;
}

tarn_workspace_policy workspace_policy(void)
{
    int now = atomic_load_explicit(&policy, memory_order_relaxed);
    if (now == NOT_ASKED) {
        int asked = policy_of_environment();
        /* Otherwise another thread has asked, or it was set, and `now` is that. */
        if (atomic_compare_exchange_strong(&policy, &now, asked))
            now = asked;
    }
    return (tarn_workspace_policy)now;
}

bool workspaces_are_unified(void)
{
    int now = atomic_load_explicit(&unified, memory_order_relaxed);
    if (now != NOT_ASKED)
        return now;
    const char *text = variable_get(UNIFIED_VARIABLE);
    int asked = text && strcmp(text, "1") == 0;
    if (!atomic_compare_exchange_strong(&unified, &now, asked))
        return now; /* another thread has asked */
    if (text && !asked && strcmp(text, "0") != 0)
        log_write(LOG_ERRORS, UNIFIED_VARIABLE "=%s must be 0 or 1; it is ignored", text);
    return asked;
}

/* Sizes ---------------------------------------------------------------------------------------- */

/* The bytes of `:KIB:COUNT` groups anywhere in a text; -1 where there is none, or too much. */
static long long parse_groups(const char *text)
{
    long long sum = -1;
    while ((text = strchr(text, ':')) != NULL) {
        char *middle, *end;
        unsigned long long size = strtoull(text + 1, &middle, 10);
        if (middle == text + 1 || *middle != ':' || text[1] < '0' || text[1] > '9' ||
            middle[1] < '0' || middle[1] > '9') {
            text++;
            continue;
        }
        unsigned long long count = strtoull(middle + 1, &end, 10);
        if (size > 1u << 30 || count > 1u << 20 || size * count > 1u << 30)
            return -1;
        sum = (sum < 0 ? 0 : sum) + (long long)(size * count * 1024);
        text = end;
    }
    return sum;
}

static long long parse_kib(const char *text)
{
    char *end;
    unsigned long long size = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || size > 1u << 30 ? -1 : (long long)size * 1024;
}

static long long read_environment(const struct library *row)
{
    for (int i = 0; i < 2 && row->workspace_variables[i]; i++) {
        const char *text = variable_get(row->workspace_variables[i]);
        long long bytes = !text                    ? -1
                          : row->workspace_by_call ? parse_kib(text)
                                                   : parse_groups(text);
        if (text && bytes < 0)
            log_write(LOG_ERRORS, "%s=%s is malformed; it is ignored", row->workspace_variables[i],
                      text);
        if (bytes >= 0)
            return bytes;
    }
    return -1;
}

size_t workspace_bytes(struct entry *entry, const struct device *device)
{
    long long bytes = atomic_load_explicit(&entry->workspace_bytes, memory_order_relaxed);
    if (bytes >= 0)
        return (size_t)bytes;
    bytes = atomic_load_explicit(&entry->workspace_environment, memory_order_relaxed);
    if (bytes == -2) {
        bytes = read_environment(entry->row);
        atomic_store_explicit(&entry->workspace_environment, bytes, memory_order_relaxed);
    }
    if (bytes >= 0)
        return (size_t)bytes;
    return entry->row->workspace_size(device->properties.capability_major,
                                      device->properties.capability_minor);
}

/* Settings ------------------------------------------------------------------------------------- */

tarn_status tarn_workspace_policy_set(tarn_workspace_policy wanted, tarn_workspace_policy *previous)
{
    tarn_status status = process_check();
    if (status)
        return status;
    if ((unsigned)wanted > TARN_WORKSPACE_LIBRARY)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a workspace policy", (int)wanted);
    (void)workspace_policy(); /* the environment is read before it is overruled */
    int before = atomic_exchange(&policy, (int)wanted);
    workspaces_changed();
    if (previous)
        *previous = (tarn_workspace_policy)before;
    return TARN_OK;
}

static tarn_status refuse_without(const struct entry *entry)
{
    return entry->row->workspace_size ? TARN_OK
                                      : failed(TARN_ERROR_NOT_SUPPORTED,
                                               "handles of %s have no workspace", entry->row->name);
}

tarn_status workspace_refuse_in_handle(const struct entry *entry)
{
    tarn_status status = refuse_without(entry);
    if (!status && !entry->row->workspace_by_call)
        status = failed(TARN_ERROR_NOT_SUPPORTED, "the workspace of %s is part of its handle",
                        entry->row->name);
    return status;
}

/* The entry of a library that has workspaces. */
static tarn_status entry_with_workspace(tarn_library library, struct entry **entry)
{
    tarn_status status = process_check();
    if (!status)
        status = entry_find(library, entry);
    if (status)
        return status;
    return refuse_without(*entry);
}

tarn_status tarn_workspace_size_set(tarn_library library, int64_t bytes)
{
    struct entry *entry = NULL;
    tarn_status status = entry_with_workspace(library, &entry);
    if (status)
        return status;
    if (bytes < -1 || bytes > (int64_t)1 << 40)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%lld is not a valid workspace size",
                      (long long)bytes);
    atomic_store(&entry->workspace_bytes, bytes);
    workspaces_changed();
    return TARN_OK;
}
