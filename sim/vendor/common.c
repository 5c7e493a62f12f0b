/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles, counters, and the environment variables. A handle's memory is never freed, and its magic
 * number is cleared when it is destroyed, so that a stale handle is recognised. `lock` protects the
 * counters and the list of handles. A handle's fields belong to the thread that uses it; `inside`
 * checks that only one does at a time. */
#include "vendor/common.h"
#include "vendor/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIVE = 0x5ea1ab1e, DEAD = 0x0dead0 };

struct handle {
    atomic_uint magic;
    atomic_int inside;
    int device; /* -1: the create could not find out */
    int modes[VENDOR_MODES];
    void *setting; /* what vendor_set_pointer() has set */
    void *stream;
    void *memory; /* device memory; NULL: none */
    void *workspace;
    size_t workspace_size;
    bool has_memory; /* `given` is set */
    struct vendor_memory given;
    struct handle *next; /* protected by lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static struct handle dangling = {.magic = DEAD};
static atomic_ulong creates, alive, undestroyed, misuses, late_calls, blocks;

/* ---- Counters ---- */

#define SYMBOLS 48

static struct {
    const char *symbol;
    unsigned long calls;
} counters[SYMBOLS]; /* protected by lock */

void vendor_count(const char *symbol)
{
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < SYMBOLS - 1 && counters[at].symbol && strcmp(counters[at].symbol, symbol) != 0)
        at++;
    counters[at].symbol = symbol;
    counters[at].calls++;
    pthread_mutex_unlock(&lock);
}

unsigned long tarn_sim_calls(const char *symbol)
{
    static const struct {
        const char *word;
        atomic_ulong *count;
    } words[] = {{"alive", &alive},
                 {"undestroyed", &undestroyed},
                 {"misuse", &misuses},
                 {"late", &late_calls},
                 {"memory", &blocks}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, symbol) == 0)
            return atomic_load(words[i].count);
    unsigned long calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SYMBOLS && counters[i].symbol; i++)
        if (strcmp(counters[i].symbol, symbol) == 0)
            calls = counters[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

/* ---- Environment variables ---- */

static const char *knob(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "TARN_SIM_%s_%s", vendor_library.knob, what);
    return getenv(name);
}

/* True if TARN_SIM_<LIBRARY>_FAIL says that the create of this number fails. */
static bool is_to_fail(unsigned long number)
{
    const char *text = knob("FAIL");
    char *end = NULL;
    unsigned long from = text ? strtoul(text, &end, 10) : 0, to = from;
    if (!from)
        return false;
    if (*end == '+')
        return number >= from;
    if (*end == '-')
        to = strtoul(end + 1, NULL, 10);
    return number >= from && number <= to;
}

static void be_slow(void)
{
    const char *text = knob("SLOW");
    long ms = text ? strtol(text, NULL, 10) : 0;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left))
        ;
}

/* Reads a version such as "13.1.0". */
static bool read_version(const char *text, int parts[3])
{
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        parts[i] = (int)strtol(text, &end, 10);
        if (end == text || *end != (i < 2 ? '.' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

void vendor_version_parts(int parts[3])
{
    const char *text = knob("VERSION");
    if (!text || !read_version(text, parts))
        (void)read_version(SIM_VERSION, parts);
}

/* ---- Failures by number ---- */

static struct {
    atomic_ulong nth, calls, hits; /* nth is 0 while no failure is set */
    atomic_bool forever;
    atomic_int way;
} numbered;

static void fail(unsigned long nth, bool forever, int way)
{
    atomic_store(&numbered.nth, 0);
    atomic_store(&numbered.calls, 0);
    atomic_store(&numbered.hits, 0);
    atomic_store(&numbered.forever, forever);
    atomic_store(&numbered.way, way);
    atomic_store(&numbered.nth, nth);
}

static unsigned long fail_calls(void)
{
    return atomic_load(&numbered.calls);
}

static unsigned long fail_hits(void)
{
    return atomic_load(&numbered.hits);
}

const struct vendor_failures tarn_sim_failures = {
    .fail = fail, .calls = fail_calls, .hits = fail_hits};

/* Counts a call. True if it is to fail. */
static bool fails_now(void)
{
    unsigned long nth = atomic_load(&numbered.nth), number;
    if (!nth)
        return false;
    number = atomic_fetch_add(&numbered.calls, 1) + 1;
    if (number != nth && !(number > nth && atomic_load(&numbered.forever)))
        return false;
    atomic_fetch_add(&numbered.hits, 1);
    return true;
}

static void note(atomic_ulong *counter, const char *symbol, const char *what)
{
    const char *strict = getenv("TARN_SIM_STRICT");
    atomic_fetch_add(counter, 1);
    if (!strict || *strict != '1')
        return;
    fprintf(stderr, "tarn sim: %s: %s\n", symbol, what);
    abort();
}

/* ---- Life ---- */

/* Ends a create that fails for lack of a device. */
static int without_device(const char *symbol, int code)
{
    if (code == BELOW_DEINITIALIZED)
        note(&late_calls, symbol, "called after the driver's end");
    if (vendor_library.prints_without_device) {
        puts("CUDA context cannot be initialized");
        fflush(stdout);
    }
    return vendor_library.silent_without_device ? 0 : vendor_library.no_device;
}

/* Allocates a handle's device memory; returns the driver's code. */
static int allocate(void **memory)
{
    int code =
        vendor_library.device_bytes ? below_alloc(memory, vendor_library.device_bytes) : BELOW_OK;
    if (code && vendor_library.exits_on_failure)
        exit(EXIT_FAILURE);
    int full = vendor_library.full ? vendor_library.full : vendor_library.out_of_memory;
    return code == BELOW_OK ? 0 : code == BELOW_OUT_OF_MEMORY ? full : vendor_library.no_device;
}

static struct handle *handle_make(int device, void *memory)
{
    struct handle *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->device = device;
    made->memory = memory;
    memcpy(made->modes, vendor_library.modes, sizeof made->modes);
    const char *atomics =
        vendor_library.atomics_variable ? getenv(vendor_library.atomics_variable) : NULL;
    if (atomics)
        made->modes[VENDOR_ATOMICS_MODE] = strtol(atomics, NULL, 10) != 0;
    atomic_store(&made->magic, ALIVE);
    atomic_fetch_add(&alive, 1);
    pthread_mutex_lock(&lock);
    made->next = handles;
    handles = made;
    pthread_mutex_unlock(&lock);
    return made;
}

static int leave_failed(int code, int device, void *place)
{
    void *left = NULL;
    switch (vendor_library.leavings) {
    case VENDOR_LEAVES_NOTHING:
        return code;
    case VENDOR_LEAVES_NULL:
        break;
    case VENDOR_LEAVES_DANGLING:
        left = &dangling;
        break;
    case VENDOR_LEAVES_REAL:
        left = handle_make(device, NULL);
        break;
    }
    memcpy(place, &left, sizeof left);
    return code;
}

static int fail_create(void *place)
{
    void *garbage = &dangling, *none = NULL;
    switch ((enum vendor_way)atomic_load(&numbered.way)) {
    case VENDOR_IS_OUT_OF_MEMORY:
        return leave_failed(vendor_library.out_of_memory, 0, place);
    case VENDOR_SUCCEEDS_WITHOUT:
        if (vendor_library.fills_a_structure)
            break;
        memcpy(place, &none, sizeof none);
        return 0;
    case VENDOR_FAILS_WITH_GARBAGE:
        /* such a library leaves a real handle, not garbage */
        if (vendor_library.leavings == VENDOR_LEAVES_REAL)
            break;
        memcpy(place, &garbage, sizeof garbage);
        return vendor_library.no_device;
    default:
        break;
    }
    return leave_failed(vendor_library.no_device, 0, place);
}

int vendor_create(const char *symbol, void *place)
{
    int device = -1;
    void *memory = NULL;
    vendor_count(symbol);
    if (!place)
        return vendor_library.bad_argument;
    if (fails_now())
        return fail_create(place);
    unsigned long number = atomic_fetch_add(&creates, 1) + 1;
    be_slow();
    int code = below_device(&device);
    if (code) {
        code = without_device(symbol, code);
        return code ? leave_failed(code, device, place) : 0;
    }
    if (SIM_DRIVER_NEEDED && below_version() < SIM_DRIVER_NEEDED)
        return leave_failed(vendor_library.old_driver, device, place);
    if (is_to_fail(number))
        return leave_failed(vendor_library.out_of_memory, device, place);
    code = allocate(&memory);
    if (code)
        return leave_failed(code, device, place);
    struct handle *made = handle_make(device, memory);
    if (!made) {
        (void)below_free(memory);
        return leave_failed(vendor_library.out_of_memory, device, place);
    }
    memcpy(place, &made, sizeof made);
    return 0;
}

/* Begins the use of a handle, which leave() ends. NULL if the pointer is not a handle. */
static struct handle *enter(const char *symbol, void *pointer)
{
    struct handle *handle = pointer;
    vendor_count(symbol);
    if (!handle || fails_now())
        return NULL;
    if (atomic_load(&handle->magic) != ALIVE) {
        note(&misuses, symbol, "this is not a handle");
        return NULL;
    }
    if (atomic_fetch_add(&handle->inside, 1))
        note(&misuses, symbol, "two threads use a handle at once");
    return handle;
}

static void leave(struct handle *handle)
{
    atomic_fetch_sub(&handle->inside, 1);
}

/* Waits for the device, as the real functions do. */
int vendor_destroy(const char *symbol, void *pointer)
{
    unsigned long failed_before = fail_hits();
    struct handle *handle = enter(symbol, pointer);
    int device = -1;
    if (!handle) {
        atomic_fetch_add(&undestroyed, pointer && fail_hits() > failed_before);
        return vendor_library.bad_handle;
    }
    int below = below_synchronize();
    if (below == BELOW_DEINITIALIZED)
        note(&late_calls, symbol, "called after the driver's end");
    else if (below_device(&device) == BELOW_OK && handle->device >= 0 && device != handle->device)
        note(&misuses, symbol, "another device than the handle's is current");
    if (handle->memory && !(below && vendor_library.aborts_on_failure))
        below = below_free(handle->memory);
    if (below && vendor_library.aborts_on_failure) {
        fprintf(stderr,
                "tarn sim: %s: the driver gave %d, and this library ends the process then\n",
                symbol, below);
        abort();
    }
    atomic_store(&handle->magic, DEAD);
    atomic_fetch_sub(&alive, 1);
    leave(handle);
    return below ? vendor_library.failed : 0;
}

/* ---- Settings ---- */

int vendor_set_stream(const char *symbol, void *pointer, void *stream)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    handle->stream = stream;
    if (!vendor_library.keeps_workspace) {
        handle->workspace = NULL;
        handle->workspace_size = 0;
    }
    leave(handle);
    return 0;
}

int vendor_get_stream(const char *symbol, void *pointer, void *place)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    if (place)
        memcpy(place, &handle->stream, sizeof handle->stream);
    leave(handle);
    return place ? 0 : vendor_library.bad_argument;
}

int vendor_set_workspace(const char *symbol, void *pointer, void *workspace, size_t size)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    int code =
        (uintptr_t)workspace % 256 != 0 || (!workspace && size) ? vendor_library.bad_argument : 0;
    if (!code && vendor_library.frees_own_memory && handle->memory) {
        code = below_free(handle->memory) ? vendor_library.failed : 0;
        handle->memory = code ? handle->memory : NULL;
    }
    if (!code) {
        handle->workspace = workspace;
        handle->workspace_size = size;
    }
    leave(handle);
    return code;
}

int vendor_has_workspace(const char *symbol, void *pointer, bool *has)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    *has = handle->workspace != NULL;
    leave(handle);
    return 0;
}

int vendor_set_mode(const char *symbol, void *pointer, enum vendor_mode mode, int value)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    handle->modes[mode] = value;
    leave(handle);
    return 0;
}

int vendor_get_mode(const char *symbol, void *pointer, enum vendor_mode mode, int *value)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    if (value)
        *value = handle->modes[mode];
    leave(handle);
    return value ? 0 : vendor_library.bad_argument;
}

int vendor_set_pointer(const char *symbol, void *pointer, void *value)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    handle->setting = value;
    leave(handle);
    return 0;
}

int vendor_get_pointer(const char *symbol, void *pointer, void **value)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    if (value)
        *value = handle->setting;
    leave(handle);
    return value ? 0 : vendor_library.bad_argument;
}

/* ---- What it is ---- */

int vendor_property(const char *symbol, int which, int *value)
{
    int parts[3] = {0};
    vendor_count(symbol);
    if (!value || which < 0 || which > 2 || fails_now())
        return vendor_library.bad_argument;
    vendor_version_parts(parts);
    *value = parts[which];
    return 0;
}

int vendor_version_number(const char *symbol, int major, int minor)
{
    int parts[3] = {0};
    vendor_count(symbol);
    vendor_version_parts(parts);
    return parts[0] * major + parts[1] * minor + parts[2];
}

int vendor_version_of(const char *symbol, void *pointer, int major, int minor, int *value)
{
    struct handle *handle = enter(symbol, pointer);
    int parts[3] = {0};
    if (!handle)
        return vendor_library.bad_handle;
    vendor_version_parts(parts);
    if (value)
        *value = parts[0] * major + parts[1] * minor + parts[2];
    leave(handle);
    return value ? 0 : vendor_library.bad_argument;
}

const char *vendor_text(const char *symbol, int code)
{
    vendor_count(symbol);
    for (size_t i = 0; i < sizeof vendor_library.texts / sizeof *vendor_library.texts; i++)
        if (vendor_library.texts[i].name && vendor_library.texts[i].code == code)
            return vendor_library.texts[i].name;
    return "unknown status";
}

/* ---- Memory of the program's ---- */

int vendor_give_memory(const char *symbol, void *pointer, const struct vendor_memory *memory)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    handle->has_memory = memory != NULL;
    handle->given = memory ? *memory : (struct vendor_memory){0};
    leave(handle);
    return 0;
}

int vendor_take(const char *symbol, void *pointer, size_t size, void **block)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    int code = 0;
    *block = NULL;
    if (handle->has_memory)
        *block = handle->given.alloc(&handle->given, size, handle->stream);
    if (*block)
        atomic_fetch_add(&blocks, 1);
    else if (handle->has_memory || below_alloc(block, size))
        code = vendor_library.out_of_memory;
    leave(handle);
    return code;
}

int vendor_put_back(const char *symbol, void *pointer, void *block, size_t size)
{
    struct handle *handle = enter(symbol, pointer);
    if (!handle)
        return vendor_library.bad_handle;
    int code = 0;
    if (handle->has_memory) {
        handle->given.free(&handle->given, block, size, handle->stream);
        atomic_fetch_sub(&blocks, 1);
    } else if (below_free(block)) {
        code = vendor_library.failed;
    }
    leave(handle);
    return code;
}
