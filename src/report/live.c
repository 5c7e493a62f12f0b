/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The reporter: a background thread that takes a survey when the live page or the file of metrics
 * is due. Owns the thread, the page and the survey. The thread exists while there is something to
 * report.
 *
 * `control` is held by code that starts or stops something, also while it waits for the thread;
 * `lock`, inside it, is for a few instructions. No lock is held over a survey or over writing. Code
 * that removes the page first waits for the work in progress. Lock order: the setup of devices,
 * control, lock. */
#include "base/log.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "base/thread/thread.h"
#include "base/variable.h"
#include "device/device.h"
#include "report/metrics.h"
#include "report/page.h"
#include "report/start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/live.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define EXIT_WAIT_MS 200 /* ms to wait for a survey in progress when the process exits */

enum { LIVE_INTERVAL = 250, LIVE_LEAST = 10, LIVE_MOST = 3600000 };      /* ms */
enum { METRICS_INTERVAL = 15, METRICS_LEAST = 1, METRICS_MOST = 86400 }; /* s */

/* A task that is due at regular intervals. */
struct job {
    bool on;
    uint64_t every, next; /* ns, of CLOCK_MONOTONIC */
};

static struct {
    mutex control;
    mutex lock;
    /* Wake: something changed for the thread; rest: it has finished a task. */
    pthread_cond_t wake, rest;
    pthread_t thread;          /* control */
    bool runs;                 /* control: the thread exists */
    bool ends, works;          /* lock: the thread is to end; it is in a survey, or writes */
    struct job live, metrics;  /* lock */
    char metrics_path[4096];   /* control; constant while metrics are on */
    struct surveyor *surveyor; /* the thread's */
    struct page_file page;     /* the thread's while it works; else control */
    /* The thread's: the last write failed; only the first failure is logged. */
    bool metrics_fail;
} reporter = {.control = MUTEX_INITIALIZER(LOCK_REPORT_CONTROL),
              .lock = MUTEX_INITIALIZER(LOCK_REPORT)};

static struct timespec time_in(uint64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    ns += (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

static uint64_t now(void)
{
    struct timespec time = time_in(0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The thread ----------------------------------------------------------------------------------- */

/* Whether a job is due. If so, sets when it is due next. */
static bool is_due_locked(struct job *job, uint64_t time)
{
    if (!job->on || job->next > time)
        return false;
    job->next = time + job->every;
    return true;
}

static void sleep_relocking(void)
{
    uint64_t next = UINT64_MAX, time = now();
    if (reporter.live.on)
        next = reporter.live.next;
    if (reporter.metrics.on && reporter.metrics.next < next)
        next = reporter.metrics.next;
    if (next == UINT64_MAX) {
        (void)condition_wait(&reporter.wake, &reporter.lock, NULL);
    } else if (next > time) {
        struct timespec until = time_in(next - time);
        (void)condition_wait(&reporter.wake, &reporter.lock, &until);
    }
}

static void work(bool live, bool metrics)
{
    if (device_layer_ready())
        return; /* tarn is being shut down */
    survey_take(reporter.surveyor);
    if (live)
        page_write(&reporter.page, &reporter.surveyor->survey);
    if (!metrics)
        return;
    struct error_before before;
    error_attempt_begin(&before);
    bool fails = metrics_write(reporter.metrics_path, &reporter.surveyor->survey) != TARN_OK;
    if (fails && !reporter.metrics_fail)
        log_write(LOG_ERRORS, "TARN_METRICS: %s; it is tried again", tarn_last_error());
    reporter.metrics_fail = fails;
    error_attempt_end(&before, TARN_OK);
}

static void *report(void *argument)
{
    mutex_lock(&reporter.lock);
    while (!reporter.ends) {
        uint64_t time = now();
        bool live = is_due_locked(&reporter.live, time),
             metrics = is_due_locked(&reporter.metrics, time);
        if (!live && !metrics) {
            sleep_relocking();
            continue;
        }
        reporter.works = true;
        mutex_unlock(&reporter.lock);
        work(live, metrics);
        mutex_lock(&reporter.lock);
        reporter.works = false;
        pthread_cond_broadcast(&reporter.rest);
    }
    mutex_unlock(&reporter.lock);
    return argument;
}

/* The process exits without a shutdown: removes the page and stops the thread. If the thread hangs,
 * does not wait for it. */
static void at_exit(void)
{
    /* Another thread starts or stops the reporter; the page that it leaves counts as left. */
    if (atomic_load(&process_state) == PROCESS_IS_FORKED || !mutex_try(&reporter.control))
        return;
    struct timespec until = time_in(EXIT_WAIT_MS * NS_PER_MS);
    mutex_lock(&reporter.lock);
    reporter.ends = true;
    pthread_cond_signal(&reporter.wake);
    int code = 0;
    while (reporter.works && code == 0)
        code = condition_wait(&reporter.rest, &reporter.lock, &until);
    if (reporter.page.page && !reporter.works)
        page_remove(&reporter.page);
    /* Stays mapped, because the thread may be writing to it. */
    else if (reporter.page.page)
        (void)unlink(reporter.page.path);
    mutex_unlock(&reporter.lock);
    if (reporter.runs)
        pthread_detach(reporter.thread); /* it ends or hangs */
    reporter.runs = false;
    mutex_unlock(&reporter.control);
}

/* A fork waits until no page is being created or removed, so that the child knows each open
 * page. */
static void before_fork(void)
{
    mutex_lock(&reporter.control);
}

static void in_parent(void)
{
    mutex_unlock(&reporter.control);
}

static void in_child(void)
{
    page_forget(&reporter.page);
    mutex_unlock(&reporter.control);
}

static void prepare(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&reporter.wake, &attributes);
    pthread_cond_init(&reporter.rest, &attributes);
    pthread_condattr_destroy(&attributes);
    (void)pthread_atfork(before_fork, in_parent, in_child);
    /* Runs before the driver's own handlers, which were registered earlier. */
    (void)atexit(at_exit);
}

/* Starting and stopping ------------------------------------------------------------------------ */

static tarn_status thread_begin_controlled(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    if (reporter.runs)
        return TARN_OK;
    if (!reporter.surveyor)
        reporter.surveyor = pages_map(sizeof *reporter.surveyor);
    if (!reporter.surveyor || !thread_start(&reporter.thread, report, NULL))
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "the reporting thread cannot be created");
    reporter.runs = true;
    return TARN_OK;
}

static void job_begin(struct job *job, uint64_t every)
{
    mutex_lock(&reporter.lock);
    *job = (struct job){.on = true, .every = every, .next = now()};
    pthread_cond_signal(&reporter.wake);
    mutex_unlock(&reporter.lock);
}

static void job_end(struct job *job)
{
    mutex_lock(&reporter.lock);
    job->on = false;
    while (reporter.works)
        (void)condition_wait(&reporter.rest, &reporter.lock, NULL);
    mutex_unlock(&reporter.lock);
}

/* Ends the thread if there is nothing left to report. */
static void thread_end_controlled(void)
{
    if (!reporter.runs || reporter.live.on || reporter.metrics.on)
        return;
    mutex_lock(&reporter.lock);
    reporter.ends = true;
    pthread_cond_signal(&reporter.wake);
    mutex_unlock(&reporter.lock);
    pthread_join(reporter.thread, NULL);
    mutex_lock(&reporter.lock);
    reporter.ends = false;
    mutex_unlock(&reporter.lock);
    reporter.runs = false;
    pages_unmap(reporter.surveyor, sizeof *reporter.surveyor);
    reporter.surveyor = NULL;
}

static tarn_status live_begin_controlled(const char *directory, const char *name,
                                         unsigned interval_ms)
{
    struct page_head head = {.interval_ns = interval_ms * NS_PER_MS,
                             .started = (uint64_t)time(NULL)};
    struct metrics_process own;
    metrics_process_get(&own);
    head.rank = own.rank;
    if (reporter.page.page)
        return failed(TARN_ERROR_BUSY, "the live page is published already, as %s",
                      reporter.page.path);
    snprintf(head.name, sizeof head.name, "%s", name);
    snprintf(head.library, sizeof head.library, "%s", tarn_version());
    snprintf(head.driver, sizeof head.driver, "%s", driver->name);
    page_sweep(directory);
    tarn_status status = page_create(directory, &head, &reporter.page);
    if (status)
        return status;
    status = thread_begin_controlled();
    if (status) {
        page_remove(&reporter.page);
        return status;
    }
    job_begin(&reporter.live, interval_ms * NS_PER_MS);
    log_write(LOG_INFO, "live page %s; `tarn top %ld` shows it", reporter.page.path,
              (long)getpid());
    return TARN_OK;
}

static void live_end_controlled(void)
{
    if (!reporter.page.page)
        return;
    job_end(&reporter.live);
    page_remove(&reporter.page);
    thread_end_controlled();
}

static tarn_status metrics_begin_controlled(const char *path, unsigned interval_s)
{
    snprintf(reporter.metrics_path, sizeof reporter.metrics_path, "%s", path);
    tarn_status status = thread_begin_controlled();
    if (!status)
        job_begin(&reporter.metrics, interval_s * 1000 * NS_PER_MS);
    return status;
}

/* Settings ------------------------------------------------------------------------------------- */

struct settings {
    bool live;
    const char *name;                           /* NULL: not set */
    unsigned live_interval;                     /* ms */
    char metrics[sizeof reporter.metrics_path]; /* "": none */
    unsigned metrics_interval;                  /* s */
};

static struct settings settings;                      /* control */
static struct metrics_process process = {.rank = -1}; /* lock */

/* Whether a name is one line, and not a number, so that `tarn top` can tell the two. */
static bool is_name(const char *name)
{
    size_t length = strlen(name), digits = strspn(name, "0123456789");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return length > 0 && length < sizeof((struct page_head *)0)->name && digits < length;
}

static tarn_status read_number(const char *variable, unsigned standard, unsigned least,
                               unsigned most, unsigned *number)
{
    const char *text = variable_get(variable);
    char *end = NULL;
    *number = standard;
    if (!text)
        return TARN_OK;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || value < least || value > most)
        return failed(TARN_ERROR_CONFIGURATION, "%s=%.64s is not a number from %u to %u", variable,
                      text, least, most);
    *number = (unsigned)value;
    return TARN_OK;
}

/* A path from a variable, with the process's number for "%p". */
static tarn_status read_path(const char *variable, char *path, size_t size)
{
    const char *text = variable_get(variable);
    size_t length = 0;
    for (; text && *text && length + 24 < size; text++) {
        if (*text != '%')
            path[length++] = *text;
        else if (*++text == 'p')
            length += (size_t)snprintf(path + length, size - length, "%ld", (long)getpid());
        else if (*text == '%')
            path[length++] = '%';
        else
            return failed(TARN_ERROR_CONFIGURATION,
                          "%s: %% must be followed by p (the process id) or by another %%",
                          variable);
    }
    path[length] = '\0';
    return text && *text
               ? failed(TARN_ERROR_CONFIGURATION, "%s is longer than %zu bytes", variable, size)
               : TARN_OK;
}

/* A process's number in its job, from the first variable that is set: of torchrun, Open MPI, PMIx,
 * MPICH and relatives, Slurm. */
static int read_rank(void)
{
    static const char *const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = variable_get(variables[i]);
        size_t digits = text ? strspn(text, "0123456789") : 0;
        if (digits && digits < 10 && !text[digits])
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

static void process_read_controlled(void)
{
    struct metrics_process now = {.rank = read_rank()};
    snprintf(now.name, sizeof now.name, "%s",
             settings.name ? settings.name : program_invocation_short_name);
    snprintf(now.number, sizeof now.number, "%ld", (long)getpid());
    mutex_lock(&reporter.lock);
    process = now;
    mutex_unlock(&reporter.lock);
}

void metrics_process_get(struct metrics_process *copy)
{
    mutex_lock(&reporter.lock);
    *copy = process;
    mutex_unlock(&reporter.lock);
}

static tarn_status read_settings_controlled(void)
{
    const char *live = variable_get("TARN_LIVE");
    settings = (struct settings){.live = live && strcmp(live, "1") == 0,
                                 .name = variable_get("TARN_LIVE_NAME")};
    if (live && !settings.live && strcmp(live, "0") != 0)
        return failed(TARN_ERROR_CONFIGURATION,
                      "TARN_LIVE=%.64s must be 0 or 1; TARN_LIVE_NAME sets a name", live);
    if (settings.name && !is_name(settings.name))
        return failed(TARN_ERROR_CONFIGURATION, "TARN_LIVE_NAME must have 1 to 63 bytes without "
                                                "control characters, and not be a number");
    tarn_status status = read_number("TARN_LIVE_INTERVAL", LIVE_INTERVAL, LIVE_LEAST, LIVE_MOST,
                                     &settings.live_interval);
    if (!status)
        status = read_number("TARN_METRICS_INTERVAL", METRICS_INTERVAL, METRICS_LEAST, METRICS_MOST,
                             &settings.metrics_interval);
    return status ? status : read_path("TARN_METRICS", settings.metrics, sizeof settings.metrics);
}

/* Begins what the environment asks for. Fails if a variable is malformed. If something is not
 * available, only logs that. */
tarn_status live_begin(void)
{
    struct error_before before;
    mutex_lock(&reporter.control);
    tarn_status status = read_settings_controlled();
    if (status) {
        mutex_unlock(&reporter.control);
        return status;
    }
    process_read_controlled();
    error_attempt_begin(&before);
    if (settings.live && !reporter.page.page &&
        live_begin_controlled(page_directory(NULL),
                              settings.name ? settings.name : program_invocation_short_name,
                              settings.live_interval))
        log_write(LOG_ERRORS, "TARN_LIVE: %s", tarn_last_error());
    if (settings.metrics[0] && !reporter.metrics.on &&
        metrics_begin_controlled(settings.metrics, settings.metrics_interval))
        log_write(LOG_ERRORS, "TARN_METRICS: %s", tarn_last_error());
    error_attempt_end(&before, TARN_OK);
    mutex_unlock(&reporter.control);
    return TARN_OK;
}

void live_end(void)
{
    mutex_lock(&reporter.control);
    live_end_controlled();
    if (reporter.metrics.on) {
        job_end(&reporter.metrics);
        thread_end_controlled();
    }
    mutex_unlock(&reporter.control);
}

/* Public --------------------------------------------------------------------------------------- */

static tarn_status read_options(const tarn_live_options *given, tarn_live_options *options)
{
    static const tarn_live_options nothing_special = {.size = sizeof nothing_special};
    tarn_status status =
        sized_read("tarn_live_options", given ? given : &nothing_special, options, sizeof *options);
    if (status)
        return status;
    if (options->name && !is_name(options->name))
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "the name must have 1 to 63 bytes without control characters, and not be a number");
    if (options->interval_ms &&
        (options->interval_ms < LIVE_LEAST || options->interval_ms > LIVE_MOST))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "interval_ms is %u; it must be 0 or from %d to %d", options->interval_ms,
                      LIVE_LEAST, LIVE_MOST);
    return TARN_OK;
}

tarn_status tarn_live_start(const tarn_live_options *given)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_live_options read, *options = &read;
    tarn_status status = read_options(given, options);
    if (!status)
        status = device_layer_ready();
    if (status)
        return status;
    mutex_lock(&reporter.control);
    status = process_check(); /* a shutdown has ended the reporter under this lock, or will */
    if (!status)
        status = read_settings_controlled();
    if (!status) {
        const char *name = options->name ? options->name : settings.name;
        status = live_begin_controlled(
            page_directory(options->directory), name ? name : program_invocation_short_name,
            options->interval_ms ? options->interval_ms : settings.live_interval);
    }
    mutex_unlock(&reporter.control);
    return status;
}

tarn_status tarn_live_stop(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    tarn_status status = process_check();
    if (status)
        return status;
    mutex_lock(&reporter.control);
    live_end_controlled();
    mutex_unlock(&reporter.control);
    return TARN_OK;
}
