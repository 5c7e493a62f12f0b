/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of libraries. An entry with a number is never removed, and its row never changes.
 * `registry_lock` protects additions; each entry's lock protects what its loading has found.
 * Libraries are loaded with no lock held, by each thread that finds it not done: the loader runs
 * one dlopen() at a time, with constructors of libraries. The two locks are never held together. */
#include "handle/registry.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "driver/driver.h"
#include "handle/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILT_IN_END_X(NAME, number, name) +1
#define BUILT_IN (TARN_LIBRARY_LIST(BUILT_IN_END_X))

#define ENTRY(NAME, at, name)                                       \
    [at] = {.row = &library_##name,                                 \
            .number = (at),                                         \
            .lock = MUTEX_INITIALIZER(LOCK_LIBRARY),                \
            .mode_values = {[MODE_MATH] = -1, [MODE_ATOMICS] = -1}, \
            .workspace_bytes = -1,                                  \
            .workspace_environment = -2},

static mutex registry_lock = MUTEX_INITIALIZER(LOCK_REGISTRY);
/* Entry 0 is unused. */
static struct entry entries[TARN_MAX_LIBRARIES + 1] = {TARN_LIBRARY_LIST(ENTRY)};
static atomic_int entries_used = BUILT_IN; /* registry_lock to change */

int entry_count(void)
{
    return atomic_load_explicit(&entries_used, memory_order_acquire);
}

struct entry *entry_at(int number)
{
    return &entries[number];
}

tarn_status entry_find(tarn_library library, struct entry **entry)
{
    if (library < 1 || library > TARN_MAX_LIBRARIES || library > entry_count())
        return failed(TARN_ERROR_INVALID_ARGUMENT, "library %d: the numbers are 1 to %d", library,
                      entry_count());
    *entry = &entries[library];
    return TARN_OK;
}

/* A question for a status's text, during which the thread is not cancelled. */
struct asking {
    struct undo undo;
    struct cancel cancel;
};

static void asking_undo(struct undo *undo)
{
    cancel_restore(((struct asking *)((char *)undo - offsetof(struct asking, undo)))->cancel);
}

tarn_status entry_failed(const struct entry *entry, tarn_status status, const char *call, int code)
{
    struct asking asking = {.cancel = cancel_off()};
    undo_push(&asking.undo, asking_undo);
    const char *text = library_status_text(entry, code);
    undo_pop(&asking.undo);
    cancel_restore(asking.cancel);
    return failed(status, "%s: %s gave status %d%s%s%s", entry->row->name, call, code,
                  text ? " (" : "", text ? text : "", text ? ")" : "");
}

/* Loading -------------------------------------------------------------------------------------- */

static void sonames_text(const struct library *row, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < LIBRARY_SONAMES && row->sonames[i]; i++)
        loader_say(text, size, "%s%s", i ? ", " : "", row->sonames[i]);
}

static void version_ask(const struct library *row, void *call, void *handle, char *text,
                        size_t size)
{
    size_t part[3] = {0};
    int number[3] = {0}, status = 1;
    if (!call || (row->version_call == VERSION_BY_HANDLE) != (handle != NULL))
        return;
    if (row->version_call == VERSION_BY_PROPERTY) {
        int (*property)(int, int *);
        memcpy(&property, &call, sizeof property);
        status = property(0, &number[0]) || property(1, &number[1]) || property(2, &number[2]);
    } else if (row->version_call == VERSION_BY_PARTS) {
        int (*parts)(size_t *, size_t *, size_t *);
        memcpy(&parts, &call, sizeof parts);
        status = parts(&part[0], &part[1], &part[2]);
        for (int i = 0; i < 3; i++)
            number[i] = (int)part[i];
    } else if (row->version_call == VERSION_BY_TEXT) {
        int (*print)(char *, size_t);
        memcpy(&print, &call, sizeof print);
        if (print(text, size))
            text[0] = '\0';
        text[size - 1] = '\0';
    } else if (row->version_call == VERSION_BY_HANDLE) {
        int (*of_handle)(void *, int *);
        memcpy(&of_handle, &call, sizeof of_handle);
        if (of_handle(handle, &number[0]) == 0)
            snprintf(text, size, "%d", number[0]);
    }
    if (status == 0)
        snprintf(text, size, "%d.%d.%d", number[0], number[1], number[2]);
}

void entry_note_version(struct entry *entry, void *handle)
{
    char text[sizeof entry->version] = "";
    if (entry->row->version_call != VERSION_BY_HANDLE)
        return;
    version_ask(entry->row, entry->calls.version, handle, text, sizeof text);
    mutex_lock(&entry->lock);
    memcpy(entry->version, text, sizeof text);
    mutex_unlock(&entry->lock);
}

/* What one thread has found of a library, before it is the entry's. */
struct found {
    struct loaded loaded;
    struct library_calls calls;
    char path[sizeof((struct entry *)0)->path], version[sizeof((struct entry *)0)->version];
    char reason[sizeof((struct entry *)0)->reason];
};

static tarn_status look_for(const struct entry *entry, struct found *found)
{
    const struct library *row = entry->row;
    char sonames[256], why[sizeof found->reason] = "";
    *found = (struct found){.calls = entry->given};
    tarn_status status = row->sonames[0]
                             ? library_search(row, &found->loaded, &found->calls, why, sizeof why)
                             : TARN_OK;
    if (!status)
        version_ask(row, found->calls.version, NULL, found->version, sizeof found->version);
    if (found->loaded.library)
        snprintf(found->path, sizeof found->path, "%s", loader_path(&found->loaded));
    sonames_text(row, sonames, sizeof sonames);
    if (status)
        snprintf(found->reason, sizeof found->reason, "tried %.200s: %.800s", sonames, why);
    return status;
}

/* Holds no lock and waits for no thread, which may be waiting for the loader. Several threads may
 * search at the same time; the first one that finds the library decides for all. */
static enum load_state load(struct entry *entry)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct found found;
    tarn_status status = look_for(entry, &found);
    mutex_lock(&entry->lock);
    enum load_state state = atomic_load_explicit(&entry->state, memory_order_relaxed);
    if (state != LOAD_DONE) {
        memcpy(entry->path, found.path, sizeof entry->path);
        memcpy(entry->version, found.version, sizeof entry->version);
        memcpy(entry->reason, found.reason, sizeof entry->reason);
        entry->opened = found.loaded.library;
        entry->calls = found.calls;
        state = status ? LOAD_FAILED : LOAD_DONE;
        atomic_store_explicit(&entry->state, state, memory_order_release);
    }
    mutex_unlock(&entry->lock);
    return state;
}

static bool is_loaded(const struct library *row)
{
    bool loaded = false;
    for (int i = 0; i < LIBRARY_SONAMES && row->sonames[i] && !loaded; i++)
        loaded = loader_is_loaded(row->sonames[i]);
    return loaded;
}

/* A program may load a library from a place of its own, as Python's packages do, after tarn has
 * searched for it in vain. */
tarn_status entry_load(struct entry *entry)
{
    char reason[sizeof entry->reason];
    enum load_state state = atomic_load_explicit(&entry->state, memory_order_acquire);
    if (state == LOAD_NEVER_TRIED || (state == LOAD_FAILED && is_loaded(entry->row)))
        state = load(entry);
    if (state == LOAD_DONE)
        return TARN_OK;
    mutex_lock(&entry->lock);
    memcpy(reason, entry->reason, sizeof reason);
    mutex_unlock(&entry->lock);
    return failed(TARN_ERROR_LIBRARY_NOT_FOUND, "%s: %s", entry->row->name, reason);
}

/* The name of a platform's driver; NULL: any. */
static const char *platform_driver(tarn_platform platform)
{
    return platform == TARN_PLATFORM_CUDA ? "cuda" : platform == TARN_PLATFORM_HIP ? "hip" : NULL;
}

tarn_status entry_usable(struct entry *entry)
{
    const char *wanted = platform_driver(entry->row->platform);
    if (wanted && strcmp(wanted, driver->name) != 0)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "%s needs the driver \"%s\", and the one in use is \"%s\"", entry->row->name,
                      wanted, driver->name);
    char why[400] = "";
    tarn_status status = entry_load(entry);
    if (!status && entry->row->platform == TARN_PLATFORM_HIP &&
        !driver_hip_serves(entry->opened, why, sizeof why))
        status = failed(TARN_ERROR_NOT_SUPPORTED, "%s: %s", entry->row->name, why);
    return status;
}

/* The public calls ----------------------------------------------------------------------------- */

static int number_of(const char *name)
{
    int count = entry_count();
    for (int i = 1; i <= count; i++)
        if (strcmp(entries[i].row->name, name) == 0)
            return i;
    return 0;
}

tarn_status tarn_library_find(const char *name, tarn_library *library)
{
    if (!name || !library)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL", name ? "library" : "name");
    tarn_status status = process_check();
    if (status)
        return status;
    int number = number_of(name);
    if (!number)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "there is no library \"%s\"", name);
    *library = number;
    return TARN_OK;
}

tarn_status tarn_library_info_get(tarn_library library, tarn_library_info *info)
{
    struct entry *entry = NULL;
    tarn_status status = sized_check("tarn_library_info", info, sizeof *info);
    if (!status)
        status = process_check();
    if (!status)
        status = entry_find(library, &entry);
    if (status)
        return status;

    tarn_library_info result = {.size = sizeof result, .platform = entry->row->platform};
    result.checked = !entry->row->unchecked;
    result.found = entry_load(entry) == TARN_OK;
    snprintf(result.name, sizeof result.name, "%s", entry->row->name);
    sonames_text(entry->row, result.sonames, sizeof result.sonames);
    mutex_lock(&entry->lock);
    snprintf(result.path, sizeof result.path, "%s", entry->path);
    snprintf(result.version, sizeof result.version, "%s", entry->version);
    snprintf(result.reason, sizeof result.reason, "%.*s", (int)sizeof result.reason - 1,
             entry->reason);
    mutex_unlock(&entry->lock);
    if (result.found) {
        status = driver_init();
        if (!status)
            status = entry_usable(entry);
        result.usable = status == TARN_OK;
        if (status)
            snprintf(result.reason, sizeof result.reason, "%s", tarn_last_error());
    }
    sized_write(info, &result, sizeof result);
    return TARN_OK;
}

/* Copies a text that is never freed. NULL for NULL. Sets `full` if there is no memory. */
static const char *keep(const char *text, bool *full)
{
    if (!text || *full)
        return NULL;
    size_t size = strlen(text) + 1;
    char *copy = pages_alloc(size);
    if (!copy) {
        *full = true;
        return NULL;
    }
    return memcpy(copy, text, size);
}

static void let_go(const char *text)
{
    if (text)
        pages_free((void *)(uintptr_t)text, strlen(text) + 1);
}

static void row_destroy(struct library *row)
{
    let_go(row->name);
    for (int i = 0; i < LIBRARY_SONAMES; i++)
        let_go(row->sonames[i]);
    let_go(row->create);
    let_go(row->destroy);
    let_go(row->set_stream);
    let_go(row->get_stream);
    let_go(row->set_workspace);
    let_go(row->status_text);
    let_go(row->modes[MODE_POINTER].set);
    pages_free(row, sizeof *row);
}

/* Copies a caller's row. Functions given as pointers without a name get a name for messages. */
static tarn_status row_create(const tarn_library_row *given, struct library **result)
{
    bool full = false;
    struct library *row = pages_alloc(sizeof *row);
    if (!row)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a library's row");
    row->name = keep(given->name, &full);
    row->platform = given->platform;
    for (int i = 0; given->sonames && given->sonames[i] && i < LIBRARY_SONAMES - 1; i++)
        row->sonames[i] = keep(given->sonames[i], &full);
    row->create = keep(given->create_name ? given->create_name : "create", &full);
    row->destroy = keep(given->destroy_name ? given->destroy_name : "destroy", &full);
    row->set_stream = keep(given->set_stream_name ? given->set_stream_name
                           : given->set_stream    ? "set_stream"
                                                  : NULL,
                           &full);
    row->get_stream = keep(given->get_stream_name, &full);
    row->set_workspace = keep(given->set_workspace_name ? given->set_workspace_name
                              : given->set_workspace    ? "set_workspace"
                                                        : NULL,
                              &full);
    row->status_text = keep(given->status_text_name, &full);
    row->modes[MODE_POINTER].set = keep(given->set_pointer_mode_name ? given->set_pointer_mode_name
                                        : given->set_pointer_mode    ? "set_pointer_mode"
                                                                     : NULL,
                                        &full);
    row->by_stream = given->flags & TARN_LIBRARY_BY_STREAM;
    row->create_in_capture = given->flags & TARN_LIBRARY_CREATE_IN_CAPTURE;
    row->create_takes_number = given->flags & TARN_LIBRARY_CREATE_TAKES_NUMBER;
    row->failed_handle_is_real = given->flags & TARN_LIBRARY_FAILED_HANDLE_IS_REAL;
    row->unchecked = true;
    row->create_number = given->create_number;
    row->out_of_memory[0] = given->out_of_memory;
    /* The library may not end the use of a workspace by set_stream, so it is always told. */
    row->unset_workspace = true;
    row->workspace_size = row->set_workspace ? library_cublas.workspace_size : NULL;
    if (full) {
        row_destroy(row);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a library's row");
    }
    *result = row;
    return TARN_OK;
}

/* The first function of a row without sonames that has only a name; NULL: none. With a pointer, the
 * name is for messages. */
static const char *name_without_a_library(const tarn_library_row *row)
{
    const struct {
        const char *name;
        bool pointer;
    } functions[] = {
        {row->set_stream_name, row->set_stream},
        {row->get_stream_name, row->get_stream},
        {row->set_workspace_name, row->set_workspace},
        {row->set_pointer_mode_name, row->set_pointer_mode},
        {row->status_text_name, row->status_text},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].name && !functions[i].pointer)
            return functions[i].name;
    return NULL;
}

/* Checks a caller's row. */
static tarn_status row_check(const tarn_library_row *row)
{
    const unsigned known = TARN_LIBRARY_BY_STREAM | TARN_LIBRARY_CREATE_IN_CAPTURE |
                           TARN_LIBRARY_CREATE_TAKES_NUMBER | TARN_LIBRARY_FAILED_HANDLE_IS_REAL;
    if (!row->name || !*row->name || strlen(row->name) > 31)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "a library needs a name of 1 to 31 letters");
    if (row->flags & ~known)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s: flags %#x are unknown", row->name,
                      row->flags & ~known);
    if ((unsigned)row->platform > TARN_PLATFORM_HIP)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s: platform %d is unknown", row->name,
                      (int)row->platform);
    bool named = row->sonames && row->sonames[0];
    for (int i = 0; named && row->sonames[i]; i++)
        if (i >= LIBRARY_SONAMES - 1 || !*row->sonames[i])
            return failed(TARN_ERROR_INVALID_ARGUMENT, "%s: more than %d sonames, or an empty one",
                          row->name, LIBRARY_SONAMES - 1);
    const char *lost = named ? NULL : name_without_a_library(row);
    if (lost)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%s: function name %s is given, but no soname to look "
                      "it up in",
                      row->name, lost);
    bool number = row->flags & TARN_LIBRARY_CREATE_TAKES_NUMBER;
    bool creates = (number ? row->create_with_number != NULL : row->create != NULL) ||
                   (named && row->create_name);
    if (!creates || !(row->destroy || (named && row->destroy_name)))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%s: create and destroy are required, as pointers or as names with a soname",
                      row->name);
    return TARN_OK;
}

tarn_status tarn_library_register(const tarn_library_row *given, tarn_library *library)
{
    struct library *made = NULL;
    tarn_library_row read, *row = &read;
    tarn_status status = process_check();
    if (!status)
        status = sized_read("tarn_library_row", given, row, sizeof *row);
    if (!status)
        status = row_check(row);
    if (status)
        return status;
    if (!library)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "library is NULL");
    status = row_create(row, &made);
    if (status)
        return status;

    mutex_lock(&registry_lock);
    int number = entry_count() + 1;
    if (number_of(made->name)) {
        status = failed(TARN_ERROR_INVALID_ARGUMENT, "a library named \"%s\" exists already",
                        made->name);
    } else if (number > TARN_MAX_LIBRARIES) {
        status = failed(TARN_ERROR_NOT_SUPPORTED, "all %d library numbers are taken",
                        TARN_MAX_LIBRARIES);
    } else {
        struct entry *entry = &entries[number];
        *entry = (struct entry){
            .row = made, .number = number, .workspace_bytes = -1, .workspace_environment = -1};
        entry->given = (struct library_calls){
            .create = row->flags & TARN_LIBRARY_CREATE_TAKES_NUMBER ? NULL : row->create,
            .create_with_number = row->create_with_number,
            .destroy = row->destroy,
            .set_stream = row->set_stream,
            .get_stream = row->get_stream,
            .set_workspace = row->set_workspace,
            .status_text = row->status_text,
            .modes = {[MODE_POINTER] = {.set = row->set_pointer_mode}},
        };
        for (int i = 0; i < COMMON_MODES; i++)
            atomic_init(&entry->mode_values[i], -1);
        mutex_init(&entry->lock, LOCK_LIBRARY);
        atomic_store_explicit(&entries_used, number, memory_order_release);
        *library = number;
    }
    mutex_unlock(&registry_lock);
    if (status)
        row_destroy(made);
    return status;
}
