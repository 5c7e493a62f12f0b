/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The life of a simulated library, and the environment variables that make calls fail or slow. Owns
 * the driver, which is always the host device here, and the rules, which are read once. With a
 * malformed variable no library starts: a test would pass without what it asked for. */
#include "common/sim.h"
#include "base/status.h"
#include "base/thread/lock.h"
#include "base/thread/process.h"
#include "common/card.h"
#include "driver/host/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The host device's calls without a wrapper. Those of driver_host set relaxed capture mode; here
 * the program chooses the mode. */
static const struct driver plain = {
    .name = "host",
#define X(call, parameters) .call = host_##call,
    DRIVER_CALL_LIST(X)
#undef X
        .set_read = host_set_read,
};

const struct driver *driver;

static tarn_status variables_check(void);

static mutex start_lock = MUTEX_INITIALIZER(LOCK_SIM_START);
static atomic_bool started, exits;

/* ---- Life ---- */

static void process_exits(void)
{
    atomic_store(&exits, true);
}

static tarn_status start_locked(void)
{
    static bool watching;
    tarn_status status = variables_check();
    if (!status)
        status = host_start();
    if (status)
        return status;
    for (int i = 0; i < atomic_load(&host.devices) && sim_card()->paged; i++)
        host.device[i].memory *= 2; /* what the device has, and what the system pages out */
    if (!watching) {
        if (atexit(process_exits))
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no room for an exit handler");
        watching = true;
    }
    driver = &plain;
    atomic_store(&started, true);
    return TARN_OK;
}

tarn_status sim_start(void)
{
    if (atomic_load_explicit(&started, memory_order_acquire))
        return TARN_OK;
    process_use_begin();
    mutex_lock(&start_lock);
    tarn_status status = atomic_load(&started) ? TARN_OK : start_locked();
    mutex_unlock(&start_lock);
    if (status)
        process_use_failed();
    return status;
}

enum sim_state sim_state(void)
{
    if (atomic_load_explicit(&exits, memory_order_relaxed))
        return SIM_EXITS;
    if (!atomic_load_explicit(&started, memory_order_acquire))
        return SIM_NOT_STARTED;
    return atomic_load_explicit(&process_state, memory_order_relaxed) == PROCESS_RUNS ? SIM_RUNS
                                                                                      : SIM_FORKED;
}

/* The host device calls this, and in tarn it would choose a driver. */
tarn_status driver_init(void)
{
    return sim_start();
}

const char *driver_reason(void)
{
    return ""; /* no driver was chosen, so there is no reason to give */
}

const char *driver_call_name(int call)
{
    static const char *const names[DRIVER_CALLS] = {
#define X(call, parameters) [DRIVER_CALL_##call] = #call,
        DRIVER_CALL_LIST(X)
#undef X
    };
    return call >= 0 && call < DRIVER_CALLS ? names[call] : NULL;
}

/* ---- Knobs ---- */

#define RULES 16

struct rule {
    char call[48];
    unsigned long nth, code; /* of a rule for failures */
    unsigned long ms;        /* of a rule for delays */
    bool forever;
    atomic_ulong calls;
};

static struct rule failures[RULES], delays[RULES];
static int failure_count, delay_count;
static const char *bad_rules; /* the variable with a malformed rule; NULL: all are good */
static pthread_once_t rules_read = PTHREAD_ONCE_INIT;

/* Copies "NAME:" into a rule. Returns what follows it; NULL if there is no name. */
static const char *read_name(const char *text, struct rule *rule)
{
    size_t length = strcspn(text, ":");
    if (!length || length >= sizeof rule->call || text[length] != ':')
        return NULL;
    memcpy(rule->call, text, length);
    rule->call[length] = '\0';
    return text + length + 1;
}

/* Reads a number. Returns what follows it; NULL if there is none. */
static const char *read_number(const char *at, unsigned long *number)
{
    char *end = NULL;
    if (*at < '0' || *at > '9')
        return NULL;
    *number = strtoul(at, &end, 10);
    return end;
}

static bool read_failure(const char *text, struct rule *rule)
{
    const char *at = read_name(text, rule);
    at = at ? read_number(at, &rule->nth) : NULL;
    at = at && *at == ':' ? read_number(at + 1, &rule->code) : NULL;
    if (!at || !rule->nth || !rule->code)
        return false;
    rule->forever = *at == '+';
    return !at[rule->forever];
}

static bool read_delay(const char *text, struct rule *rule)
{
    const char *at = read_name(text, rule);
    at = at ? read_number(at, &rule->ms) : NULL;
    return at && !*at;
}

/* Reads the rules of one variable, which are separated by commas. */
static int read_rules(const char *variable, struct rule *rules,
                      bool (*read)(const char *, struct rule *))
{
    const char *at = getenv(variable);
    int count = 0;
    while (at && *at) {
        char text[96];
        size_t length = strcspn(at, ",");
        snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1),
                 at);
        if (count < RULES && length < sizeof text && read(text, &rules[count]))
            count++;
        else
            bad_rules = variable;
        at += length;
        at += *at == ',';
    }
    return count;
}

static void read_all_rules(void)
{
    failure_count = read_rules("TARN_SIM_FAIL", failures, read_failure);
    delay_count = read_rules("TARN_SIM_SLOW", delays, read_delay);
}

static bool is_meant(const struct rule *rule, const char *call)
{
    return strcmp(rule->call, call) == 0 || strcmp(rule->call, "any") == 0;
}

static void sleep_ms(unsigned long ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left))
        ;
    errno = EAGAIN; /* a real driver that asked the system may leave this value too */
}

/* The failures that a test sets by number while the process runs. */
static struct {
    atomic_ulong nth, code, calls, hits; /* nth is 0 while no failure is set */
    atomic_bool forever;
} numbered;

void sim_fail(uint64_t nth, bool forever, unsigned code)
{
    atomic_store(&numbered.nth, 0);
    atomic_store(&numbered.calls, 0);
    atomic_store(&numbered.hits, 0);
    atomic_store(&numbered.forever, forever);
    atomic_store(&numbered.code, code);
    atomic_store(&numbered.nth, nth);
}

uint64_t sim_fail_calls(void)
{
    return atomic_load(&numbered.calls);
}

uint64_t sim_fail_hits(void)
{
    return atomic_load(&numbered.hits);
}

static unsigned fail_by_number(void)
{
    unsigned long nth = atomic_load_explicit(&numbered.nth, memory_order_acquire);
    if (!nth)
        return 0;
    unsigned long number = atomic_fetch_add(&numbered.calls, 1) + 1;
    if (number != nth && !(number > nth && atomic_load(&numbered.forever)))
        return 0;
    atomic_fetch_add(&numbered.hits, 1);
    return (unsigned)atomic_load(&numbered.code);
}

unsigned sim_knob(const char *call)
{
    unsigned code = fail_by_number();
    pthread_once(&rules_read, read_all_rules);
    for (int i = 0; i < delay_count && !code; i++)
        if (is_meant(&delays[i], call))
            sleep_ms(delays[i].ms);
    for (int i = 0; i < failure_count; i++) {
        struct rule *rule = &failures[i];
        if (!is_meant(rule, call))
            continue;
        unsigned long number = atomic_fetch_add(&rule->calls, 1) + 1;
        if (!code && (number == rule->nth || (rule->forever && number > rule->nth)))
            code = (unsigned)rule->code;
    }
    return code;
}

unsigned sim_number(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);
    char *end = NULL;
    if (!text || !*text)
        return otherwise;
    unsigned long value = strtoul(text, &end, 10);
    return *end || value > 1000000000 ? otherwise : (unsigned)value;
}

/* ---- Malformed variables ---- */

static bool is_number(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits && digits < 10 && !text[digits];
}

static bool is_switch(const char *text)
{
    return strcmp(text, "0") == 0 || strcmp(text, "1") == 0;
}

/* What follows "TOTAL:USED"; NULL if the text begins otherwise. */
static const char *after_pair(const char *text)
{
    unsigned long number;
    const char *at = read_number(text, &number);
    return at && *at == ':' ? read_number(at + 1, &number) : NULL;
}

static bool is_pair(const char *text)
{
    const char *end = after_pair(text);
    return end && !*end;
}

/* True for "PID:BYTES" joined by commas. The bytes may be "?", which are not known. */
static bool is_processes(const char *text)
{
    while (text) {
        unsigned long number;
        const char *at = read_number(text, &number), *end = after_pair(text);
        if (at && at[0] == ':' && at[1] == '?')
            end = at + 2;
        if (!end || !*end)
            return end;
        text = *end == ',' ? end + 1 : NULL;
    }
    return false;
}

/* The libraries share their environment, so each looks at the variables of all. */
static tarn_status variables_check(void)
{
    static const struct {
        const char *name, *wants;
        bool (*is)(const char *text);
    } variables[] = {
        {"TARN_SIM_CARD", "one of" SIM_CARD_NAMES, sim_card_is},
        {"TARN_SIM_CUDA_VERSION", "a number, as 11040", is_number},
        {"TARN_SIM_HIP_VERSION", "a number, as 60100000", is_number},
        {"TARN_SIM_STRICT", "0 or 1", is_switch},
        {"TARN_SIM_PROCESSES", "PID:BYTES joined by commas", is_processes},
        {"TARN_SIM_NVML_MEMORY", "TOTAL:USED", is_pair},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i].name);
        if (text && *text && !variables[i].is(text))
            return failed(TARN_ERROR_CONFIGURATION, "%s=%s: it wants %s", variables[i].name, text,
                          variables[i].wants);
    }
    pthread_once(&rules_read, read_all_rules);
    if (bad_rules)
        return failed(TARN_ERROR_CONFIGURATION, "%s=%s: it wants up to %d rules as %s", bad_rules,
                      getenv(bad_rules), RULES,
                      strcmp(bad_rules, "TARN_SIM_FAIL") == 0 ? "CALL:N:CODE" : "CALL:MS");
    return TARN_OK;
}
