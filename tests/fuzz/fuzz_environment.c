/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into what environment variables say: clang -fsanitize=fuzzer,address,undefined.
 * Seeds: corpus/environment. The first byte chooses the variable, the others are its value; of
 * TARN_HOST_COSTS they are the file that it names. TARN_ALLOC_CONF has a target of its own
 * (fuzz_config.c), and so has the plan that it can name. What is refused names its variable, and
 * what is read is in range.
 *
 * Reader: src/base/debug_words.c
 * Reader: src/device/tracing.c is_word read_word bad_word tracing_words_parse
 * Reader: src/driver/host/host.c parse_number read_variable choose_devices choose_memory
 * choose_maps start_locked host_start Reader: src/driver/host/host_clock.c costs_wrong cost_read
 * costs_read_line costs_read host_costs_start kind_named Reader: src/driver/host/host_peer.c
 * host_peers_start
 * Reader: src/report/live.c is_name read_path read_number read_settings_controlled
 */
#include "base/debug_words.h"
#include "base/status.h"
#include "device/tracing.h"
#include "driver/host/host.h"
#include "report/start.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static void must_name(tarn_status status, const char *variable)
{
    demand(!status || (status == TARN_ERROR_CONFIGURATION &&
                       strncmp(tarn_last_error(), variable, strlen(variable)) == 0));
}

static void try_debug(const char *text)
{
    struct debug_settings settings;
    must_name(debug_words_parse(text, &settings), "TARN_DEBUG: ");
    (void)setenv("TARN_DEBUG", text, 1);
    tarn_status status = debug_words_read();
    must_name(status, "TARN_DEBUG: ");
    unsigned known = 0;
#define X(word, name, bit, all) known |= (bit);
    DEBUG_WORD_LIST(X)
#undef X
    demand(status || (debug_settings.words & ~known) == 0);
}

static void try_trace(const char *text)
{
    bool on;
    tarn_trace_options options;
    tarn_status status = tracing_words_parse(text, &options, &on);
    must_name(status, "TARN_TRACE: ");
    demand(status ||
           (options.records <= (size_t)1 << 28 && options.stacks <= TARN_TRACE_STACKS_ALL));
}

/* The host device starts and ends with each, and nothing of it is used meanwhile. */
static void try_host(const char *variable)
{
    tarn_status status = host_start();
    must_name(status, variable);
    if (status)
        return;
    int devices = atomic_load(&host.devices);
    demand(devices >= 1 && devices <= TARN_MAX_DEVICES && host.device[devices - 1].memory > 0 &&
           host.maps > 0);
    host_finish();
}

static void try_costs(const char *text, size_t size)
{
    int file = memfd_create("costs", MFD_CLOEXEC);
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file >= 0 && write(file, text, size) == (ssize_t)size) {
        (void)setenv("TARN_HOST_COSTS", path, 1);
        try_host("TARN_HOST_COSTS=");
    }
    (void)unsetenv("TARN_HOST_COSTS");
    close(file);
}

/* Nothing is published, and no file is named that metrics could be written to. */
static void try_live(const char *variable, const char *text)
{
    if (strcmp(variable, "TARN_LIVE") == 0 && strcmp(text, "1") == 0)
        return;
    (void)setenv(variable, text, 1);
    must_name(live_begin(), variable);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const variables[] = {
        "TARN_DEBUG",     "TARN_TRACE",         "TARN_HOST_DEVICES",    "TARN_HOST_MEMORY",
        "TARN_HOST_MAPS", "TARN_HOST_PEERS",    "TARN_HOST_COSTS",      "TARN_LIVE",
        "TARN_LIVE_NAME", "TARN_LIVE_INTERVAL", "TARN_METRICS_INTERVAL"};
    enum { VARIABLES = sizeof variables / sizeof *variables };
    char *text = size ? malloc(size) : NULL;
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    const char *variable = variables[data[0] % VARIABLES];
    switch (data[0] % VARIABLES) {
    case 0:
        try_debug(text);
        break;
    case 1:
        try_trace(text);
        break;
    case 6:
        try_costs(text, size - 1);
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        try_live(variable, text);
        break;
    default:
        (void)setenv(variable, text, 1);
        try_host(variable);
    }
    (void)unsetenv(variable);
    free(text);
    return 0;
}
