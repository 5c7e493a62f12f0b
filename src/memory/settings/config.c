/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the settings in force: a pointer to an immutable copy, changed under `config_lock` and read
 * without a lock. Copies are never freed, because a reader may keep one. Equal settings share a
 * copy, so there are no more copies than different settings. The environment is read once, at the
 * first successful call that needs it. Callbacks run without the lock. */
#include "memory/settings/config.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "base/variable.h"
#include "device/device.h"
#include "memory/settings/hooks.h"
#include "memory/settings/plan_file.h"

#include <stdlib.h>
#include <string.h>

#define OWN_VARIABLE "TARN_ALLOC_CONF"

struct copy {
    struct memory_config config;
    struct copy *next;
};

_Atomic(const struct memory_config *) memory_config_now = &memory_config_defaults;

static mutex config_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct object_pool copies = OBJECT_POOL(struct copy);
static struct copy *first_copy;        /* under the lock */
static atomic_bool noted[CONFIG_KEYS]; /* the log already says that the key has no effect */
static atomic_bool is_read, is_used;   /* the environment was read; memory was used */

/* An equal copy, or a new one. NULL: no host memory. */
static const struct memory_config *copy_of_locked(const struct memory_config *config)
{
    if (memcmp(config, &memory_config_defaults, sizeof *config) == 0)
        return &memory_config_defaults;
    for (struct copy *copy = first_copy; copy; copy = copy->next)
        if (memcmp(config, &copy->config, sizeof *config) == 0)
            return &copy->config;
    struct copy *copy = object_alloc(&copies);
    if (!copy)
        return NULL;
    copy->config = *config;
    copy->next = first_copy;
    first_copy = copy;
    return &copy->config;
}

/* Puts settings in force, and loads the plan that they name. `source` names their origin in
 * errors. */
static tarn_status publish_locked(const char *source, const struct memory_config *config)
{
    const struct plan *plan = atomic_load(&plan_now);
    if (strcmp(config->plan, memory_config()->plan) != 0) {
        plan = NULL;
        tarn_status status = config->plan[0] ? plan_load(source, config->plan, &plan) : TARN_OK;
        if (status)
            return status;
    }
    const struct memory_config *copy = copy_of_locked(config);
    if (!copy)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the settings");
    atomic_store(&plan_now, plan);
    atomic_store_explicit(&memory_config_now, copy, memory_order_release);
    return TARN_OK;
}

/* The settings in force, of which some cannot change any more; NULL before memory was used. */
static const struct memory_config *fixed_locked(struct memory_config *fixed)
{
    if (!atomic_load(&is_used))
        return NULL;
    *fixed = *memory_config();
    if (fixed->segments == CONFIG_SEGMENTS_BY_DRIVER && device_count() > 0)
        fixed->segments = device_at(0)->properties.virtual_memory && !announcer
                              ? CONFIG_SEGMENTS_VIRTUAL
                              : CONFIG_SEGMENTS_PLAIN;
    return fixed;
}

/* The environment ------------------------------------------------------------------------------ */

/* The environment's text and its variable; NULL: none. PyTorch's variables count only if tarn's own
 * is "pytorch", because a program may use both allocators. */
static tarn_status find_text(const char **source, const char **text)
{
    static const char *const variables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
                                            "PYTORCH_ALLOC_CONF"};
    *source = OWN_VARIABLE;
    *text = variable_get(OWN_VARIABLE);
    if (!*text || strcmp(*text, "pytorch") != 0)
        return TARN_OK;
    tarn_status status = device_layer_ready();
    *text = NULL;
    for (int i = 0; i < 3 && !status && !*text; i++) {
        if (i == 1 && strcmp(driver->name, "hip") != 0)
            continue;
        *source = variables[i];
        *text = variable_get(variables[i]);
    }
    return status;
}

static tarn_status read_environment_locked(const char *source, const char *text)
{
    struct memory_config config = *memory_config();
    tarn_status status = TARN_OK;
    if (text) {
        status = config_parse(source, text, NULL, &config);
        if (!status)
            status = publish_locked(source, &config);
    }
    if (!status)
        atomic_store_explicit(&is_read, true, memory_order_release);
    return status;
}

/* Changes -------------------------------------------------------------------------------------- */

static void tell_log(const struct memory_config *now)
{
    char text[1024];
    (void)config_format(now, text, sizeof text);
    log_write(LOG_INFO, "settings %s", text);
    for (int key = 0; key < CONFIG_KEYS; key++) {
        const char *note = config_note(now, key);
        if (note && !atomic_exchange(&noted[key], true))
            log_write(LOG_INFO, "a setting without effect: %s", note);
    }
}

/* Releases the lock, and reports what was changed under it, or named again. */
static void unlock_and_tell(const struct memory_config *before, struct config_named named)
{
    const struct memory_config *now = memory_config();
    mutex_unlock(&config_lock);
    if (now != before)
        tell_log(now);
    if (now != before || named.limit || named.pinned_limit)
        hooks.configured(named);
}

tarn_status memory_config_ready(void)
{
    const char *source = NULL, *text = NULL;
    if (atomic_load_explicit(&is_read, memory_order_acquire))
        return TARN_OK;
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_status status = find_text(&source, &text);
    if (status)
        return status;
    mutex_lock(&config_lock);
    const struct memory_config *before = memory_config();
    if (!atomic_load_explicit(&is_read, memory_order_relaxed))
        status = read_environment_locked(source, text);
    unlock_and_tell(before, (struct config_named){false, false});
    return status;
}

tarn_status memory_config_use(void)
{
    if (atomic_load_explicit(&is_used, memory_order_acquire))
        return TARN_OK;
    tarn_status status = memory_config_ready();
    if (status)
        return status;
    /* Waits for a thread that changes settings which are constant from here on. */
    mutex_lock(&config_lock);
    atomic_store_explicit(&is_used, true, memory_order_release);
    mutex_unlock(&config_lock);
    return TARN_OK;
}

/* What each public call on settings checks first. */
static tarn_status config_check(void)
{
    tarn_status status = process_check();
    return status ? status : memory_config_ready();
}

/* Which limits a text names that has changed `before` to `after`: those that it would have set
 * whatever they were. */
static struct config_named limits_named(const char *text, const struct memory_config *fixed,
                                        const struct memory_config *before,
                                        const struct memory_config *after)
{
    struct memory_config other = *before;
    other.limit = !other.limit;
    other.per_process_memory_fraction = !other.per_process_memory_fraction;
    other.pinned_limit = !other.pinned_limit;
    (void)config_parse("", text, fixed, &other);
    return (struct config_named){
        .limit = other.limit == after->limit ||
                 other.per_process_memory_fraction == after->per_process_memory_fraction,
        .pinned_limit = other.pinned_limit == after->pinned_limit,
    };
}

tarn_status tarn_configuration_set(const char *text)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct memory_config config, fixed;
    struct config_named named = {false, false};
    if (!text)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "text is NULL");
    tarn_status status = config_check();
    if (status)
        return status;
    mutex_lock(&config_lock);
    const struct memory_config *before = memory_config();
    config = *before;
    const struct memory_config *constant = fixed_locked(&fixed);
    status = config_parse("tarn_configuration_set()", text, constant, &config);
    if (!status)
        status = publish_locked("tarn_configuration_set()", &config);
    if (!status)
        named = limits_named(text, constant, before, &config);
    unlock_and_tell(before, named);
    return status;
}

tarn_status tarn_configuration_get(char *buffer, size_t size, size_t *needed)
{
    tarn_status status = config_check();
    if (status)
        return status;
    const struct memory_config *config = memory_config();
    size_t bytes = config_format(config, NULL, 0);
    if (needed)
        *needed = bytes;
    if (!buffer && size == 0)
        return TARN_OK;
    if (!buffer || size < bytes)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "buffer is NULL, or its %zu bytes are fewer than the %zu needed", size,
                      bytes);
    (void)config_format(config, buffer, size);
    return TARN_OK;
}

tarn_status tarn_configuration_note_get(int index, const char **text)
{
    if (!text || index < 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s",
                      text ? "index is below 0" : "text is NULL");
    tarn_status status = config_check();
    if (status)
        return status;
    const struct memory_config *config = memory_config();
    const char *found = NULL;
    for (int key = 0; key < CONFIG_KEYS && !found; key++) {
        const char *note = config_note(config, key);
        if (note && index-- == 0)
            found = note;
    }
    *text = found;
    return TARN_OK;
}

/* What settings mean --------------------------------------------------------------------------- */

/* Between two powers of two there are `divisions` steps. If a step would be below 512 bytes,
 * nothing is divided. As in c10/core/AllocatorConfig.cpp and c10/cuda/CUDACachingAllocator.cpp. */
size_t config_round(const struct memory_config *config, size_t size)
{
    size_t plain = (size + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    if (size < TARN_BLOCK_UNIT)
        return TARN_BLOCK_UNIT;
    unsigned bits = (unsigned)(8 * sizeof size) - 1 - (unsigned)__builtin_clzl(size);
    unsigned entry = bits < 20 ? 0 : bits - 20;
    size_t divisions =
        config->roundup_power2_divisions[entry < CONFIG_DIVISIONS ? entry : CONFIG_DIVISIONS - 1];
    if (divisions <= 1 || size <= TARN_BLOCK_UNIT * divisions)
        return plain;
    size_t step = ((size_t)1 << bits) / divisions;
    return (size + step - 1) & ~(step - 1);
}

size_t config_limit(const struct memory_config *config, size_t memory)
{
    size_t share = config->per_process_memory_fraction, most = CONFIG_NONE;
    if (share < CONFIG_ONE)
        most = (size_t)((double)memory * ((double)share / (double)CONFIG_ONE));
    return most < config->limit ? most : config->limit;
}
