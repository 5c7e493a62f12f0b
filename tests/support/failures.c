/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/failures.h"
#include "base/pages.h"
#include "device/device.h"
#include "driver/host/host.h"
#include "memory/debug/debug_block.h"
#include "support/host.h"
#include "support/system.h"
#include "vendor/common.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Kinds ---- */

/* Errors that a driver's call can return, with the same numbers in both vendors' interfaces: out of
 * memory, invalid argument, not supported, an error without a name, and not ready (which is an
 * error for most calls). */
static const unsigned vendor_codes[] = {2, 1, 801, 304, 600};
static const tarn_status host_statuses[] = {TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_DRIVER,
                                            TARN_ERROR_MAPPING_LIMIT};

static const unsigned vendor_loss = 700; /* an illegal address */

static int driver_ways(void)
{
    return machine->fail ? (int)(sizeof vendor_codes / sizeof *vendor_codes)
                         : (int)(sizeof host_statuses / sizeof *host_statuses);
}

static void driver_arm(uint64_t nth, bool forever, int way)
{
    if (machine->fail)
        machine->fail(nth, forever, way == FAILURE_LOSS ? vendor_loss : vendor_codes[way]);
    else
        OK(tarn_host_fail_set(-1, nth, forever,
                              way == FAILURE_LOSS ? TARN_ERROR_DEVICE_LOST : host_statuses[way]));
}

static uint64_t driver_calls(void)
{
    return machine->fail ? machine->fail_calls() : host_fail_calls();
}

static uint64_t driver_hits(void)
{
    return machine->fail ? machine->fail_hits() : host_fail_hits();
}

static int memory_ways(void)
{
    return 1;
}

static void memory_arm(uint64_t nth, bool forever, int way)
{
    (void)way;
    pages_fail(nth, forever);
}

static const struct vendor_failures *library;

void failure_library(void *opened)
{
    library = dlsym(opened, "tarn_sim_failures");
    CHECK(library);
}

static int handle_ways(void)
{
    return library ? VENDOR_FAILS_WITH_GARBAGE + 1 : 0;
}

static uint64_t handle_calls(void)
{
    return library->calls();
}

static uint64_t handle_hits(void)
{
    return library->hits();
}

static void handle_arm(uint64_t nth, bool forever, int way)
{
    library->fail(nth, forever, way);
}

static const struct kind {
    const char *name;
    int (*ways)(void);
    void (*arm)(uint64_t nth, bool forever, int way); /* nth 0 clears it */
    uint64_t (*calls)(void), (*hits)(void);
} kinds[FAILURE_KINDS] = {
    [FAIL_driver] = {"driver", driver_ways, driver_arm, driver_calls, driver_hits},
    [FAIL_memory] = {"memory", memory_ways, memory_arm, pages_fail_calls, pages_fail_hits},
    [FAIL_system] = {"system", system_ways, system_arm, system_calls, system_hits},
    [FAIL_handle] = {"handle", handle_ways, handle_arm, handle_calls, handle_hits},
};

static const struct kind *armed;
static uint64_t calls_until_cleared, hits_until_cleared;

int failure_ways(enum failure_kind kind)
{
    return kinds[kind].ways();
}

void failure_arm(const struct failure *failure)
{
    failure_clear();
    armed = &kinds[failure->kind];
    armed->arm(failure->nth, failure->forever, failure->way);
}

void failure_clear(void)
{
    if (!armed)
        return;
    calls_until_cleared = armed->calls();
    hits_until_cleared = armed->hits();
    armed->arm(0, false, 0);
    armed = NULL;
}

uint64_t failure_calls(void)
{
    return armed ? armed->calls() : calls_until_cleared;
}

uint64_t failure_hits(void)
{
    return armed ? armed->hits() : hits_until_cleared;
}

/* ---- Counts ---- */

/* The distance from one call that is made to fail to the next, so that there are about `most`
 * failures; 1 with TARN_FAILURES=all. */
static uint64_t stride_of(uint64_t calls, int variants, uint64_t most)
{
    const char *form = getenv("TARN_FAILURES");
    if (form && strcmp(form, "all") == 0)
        return 1;
#ifdef __SANITIZE_THREAD__
    /* losses take ten times as long, and one thread runs them */
    return 5 + 8 * calls * (uint64_t)variants / most;
#else
    return 1 + calls * (uint64_t)variants / most;
#endif
}

/* The numbers of a test's scenario in the table, behind its name, in the caller's buffer; NULL if
 * it has none. */
static const char *find_line(const char *test, const char *name, char *line, int size)
{
    char path[4096], key[256];
    const char *source = getenv("TARN_SOURCE");
    snprintf(path, sizeof path, "%s/tests/support/injections.txt", source ? source : ".");
    int length = snprintf(key, sizeof key, "%s: %s:", test, name);
    FILE *file = fopen(path, "re");
    const char *found = NULL;
    while (file && !found && fgets(line, size, file))
        if (strncmp(line, key, (size_t)length) == 0)
            found = line + length;
    if (file)
        fclose(file);
    return found;
}

/* Holds a scenario to its numbers, such as "driver 33 memory 225". Some numbers depend on the
 * timing of threads and on what the build checks. */
static void hold(const char *test, const char *name, const uint64_t calls[FAILURE_KINDS],
                 bool varies)
{
    char line[512];
    const char *at = find_line(test, name, line, sizeof line);
    if (!at) {
        fprintf(stderr, "injections.txt has no \"%s: %s\": scripts/injections --write\n", test,
                name);
        check_at(false, name, __FILE__, __LINE__);
    }
    for (int kind = 0; at && kind < FAILURE_KINDS; kind++) {
        const char *number = strstr(at, kinds[kind].name);
        uint64_t wanted = number ? strtoull(number + strlen(kinds[kind].name), NULL, 10) : 0;
        if (calls[kind] + calls[kind] / (varies ? 1 : 8) + 4 >= wanted)
            continue;
        fprintf(stderr, "\"%s\": %" PRIu64 " calls of kind %s, where there were %" PRIu64 "\n",
                name, calls[kind], kinds[kind].name, wanted);
        check_at(false, name, __FILE__, __LINE__);
    }
}

/* Prints a scenario's calls by kind and how many failures were injected, and holds it to its
 * numbers. */
static void show_counts(const char *name, const uint64_t calls[FAILURE_KINDS], uint64_t injections,
                        bool varies)
{
    const char *test = getenv("TARN_TEST"), *total = getenv("TARN_INJECTIONS");
    char line[512] = "";
    size_t used = 0;
    for (int kind = 0; kind < FAILURE_KINDS; kind++)
        if (calls[kind])
            used += (size_t)snprintf(line + used, sizeof line - used, " %s %" PRIu64,
                                     kinds[kind].name, calls[kind]);
    printf("%-36s:%s: %" PRIu64 " injections\n", name, line, injections);
    if (!test)
        return;
    if (!total) {
        hold(test, name, calls, varies);
        return;
    }
    char text[768];
    int length =
        snprintf(text, sizeof text, "%s: %s:%s = %" PRIu64 "\n", test, name, line, injections);
    int file = open(total, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0 && write(file, text, (size_t)length) == length);
    close(file);
}

/* ---- Scenarios ---- */

void clear_injection(void)
{
    failure_clear();
    injecting = false;
}

bool injecting, found_less;

/* How far a scenario's failures have come; shared with the children. */
static struct progress {
    uint64_t nth; /* the next call that is to fail */
    int pass;     /* a kind of calls; after the last one LOSSES */
    int variant;  /* 2 x the way, and 1 more if all later calls fail too */
    bool counted, is_over;
    uint64_t calls[FAILURE_KINDS], injections, missed;
    struct failure current;
} * progress;

static const struct scenarios *frame;
static const struct scenario *scenario;

/* The pass in which the device is lost at calls of the driver. Each loss takes a process, so losses
 * come last: leaks in failures of the driver show up in the one process that has most of these. */
#define LOSSES FAILURE_KINDS

static enum failure_kind kind_of_pass(void)
{
    return progress->pass == LOSSES ? FAIL_driver : (enum failure_kind)progress->pass;
}

static int variants(void)
{
    return progress->pass == LOSSES ? 2 * (frame->lost != NULL) : 2 * failure_ways(kind_of_pass());
}

static struct failure failure_at(void)
{
    int way = progress->pass == LOSSES ? FAILURE_LOSS : progress->variant / 2;
    return (struct failure){kind_of_pass(), progress->nth, progress->variant % 2, way};
}

static uint64_t stride(void)
{
    uint64_t most = frame->most ? frame->most : machine->fail ? 600 : 3000;
    return stride_of(progress->calls[kind_of_pass()], 2 * failure_ways(kind_of_pass()), most);
}

const struct failure *failure_tried(void)
{
    return &progress->current;
}

bool failure_is_tried(void)
{
    return progress->current.nth != UINT64_MAX;
}

/* After such a failure the device is certainly lost. After one that lasts for ever, in the middle
 * of something that must not stay half done, it may be. */
static bool may_be_lost(const struct failure *failure)
{
    return failure->way == FAILURE_LOSS || (failure->kind == FAIL_driver && failure->forever);
}

bool device_is_lost(void)
{
    return may_be_lost(&progress->current) && atomic_load(&device_at(0)->lost);
}

bool went_well(tarn_status status, bool may_be_full, const char *what)
{
    if (!status)
        return true;
    bool excused = injecting || (may_be_full && status == TARN_ERROR_OUT_OF_MEMORY) ||
                   (status == TARN_ERROR_NOT_SUPPORTED && found_less) ||
                   (status == TARN_ERROR_DEVICE_LOST && device_is_lost());
    if (!excused)
        status_at(status, TARN_OK, what, __FILE__, __LINE__);
    return false;
}

static bool ends(const char *text, const char *with)
{
    size_t length = strlen(text), last = strlen(with);
    return length >= last && strcmp(text + length - last, with) == 0;
}

bool is_whole_shortage(const char *text)
{
    return strstr(text, " on device 0 ") &&
           ends(text, strstr(text, " tarn reserves ") ? "." : "...");
}

static void run_clean(void)
{
    scenario->run();
    frame->settle();
}

static void count_calls(enum failure_kind kind)
{
    progress->current = (struct failure){.kind = kind, .nth = UINT64_MAX};
    failure_arm(&progress->current);
    scenario->run();
    failure_clear();
    frame->settle();
    progress->calls[kind] = failure_calls();
}

/* Settles after a run. Ends the process if the device was lost. */
static void settle_after(void)
{
    if (progress->current.way == FAILURE_LOSS)
        (void)tarn_device_synchronize(0); /* a thread that has not noticed the loss does so now */
    if (!device_is_lost()) {
        frame->settle();
        run_clean();
        return;
    }
    void *pointer = &pointer;
    CHECK(frame->lost);
    frame->lost();
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 3 * MIB, &pointer), TARN_ERROR_DEVICE_LOST);
    CHECK(pointer == &pointer);
    OK(tarn_shutdown());
    _exit(0);
}

static void fail_one(void)
{
    progress->current = failure_at();
    uint64_t ahead = stride();
    injecting = true;
    failure_arm(&progress->current);
    scenario->run();
    clear_injection();
    if (failure_hits() > 0) {
        progress->injections++;
    } else {
        /* An earlier run may have left less to do, such as a mark that is already known to have
         * ended. */
        CHECK(failure_calls() < progress->current.nth);
        progress->missed++;
    }
    if (++progress->variant == variants()) {
        progress->variant = 0;
        progress->nth += ahead;
    }
    settle_after();
}

static void go_on(void)
{
    frame->set_up();
    for (int i = 0; i < 3; i++) /* until every run starts from the same state */
        run_clean();
    int files = open_files();
    uint64_t bytes = metadata_bytes();
    for (enum failure_kind kind = 0; !progress->counted && kind < FAILURE_KINDS; kind++)
        if (failure_ways(kind) && !(frame->without >> kind & 1))
            count_calls(kind);
    progress->counted = true;
    for (; progress->pass <= LOSSES; progress->pass++) {
        while (variants() && progress->nth <= progress->calls[kind_of_pass()]) {
            fail_one();
            CHECK(open_files() == files);
        }
        progress->nth = 1;
        /* A few pages for texts and reserves are allowed. A leak would have hundreds of runs to
         * show. */
        CHECK(metadata_bytes() <= bytes + 384 * 1024);
    }
    progress->is_over = true;
}

static void go_on_in_child(void)
{
    const struct failure *failure = &progress->current;
    int status = child_status(go_on);
    if (!status)
        return;
    fprintf(stderr,
            "\"%s\" ended with status %#x; the last failure was of %s call %" PRIu64 "%s, way %d\n",
            scenario->name, status, kinds[failure->kind].name, failure->nth,
            failure->forever ? " and all later ones" : "", failure->way);
    check_at(false, scenario->name, __FILE__, __LINE__);
}

static void share_progress(void)
{
    if (!progress)
        progress =
            mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(progress != MAP_FAILED);
    debug_history = 64; /* so that what may grow reaches its full size soon */
}

static void show_progress(const char *name, bool varies)
{
    show_counts(name, progress->calls, progress->injections, varies);
    CHECK(progress->missed <= 24 + progress->injections / 16);
}

void each_failure_of(const struct scenarios *scenarios, const struct scenario *list, size_t count)
{
    share_progress();
    frame = scenarios;
    for (scenario = list; scenario < list + count; scenario++) {
        *progress = (struct progress){.nth = 1};
        while (!progress->is_over)
            go_on_in_child();
        show_progress(scenario->name, scenarios->varies);
    }
}

/* ---- What a process does once ---- */

static const struct once *once;

static void attempt(void)
{
    if (once->before)
        once->before();
    injecting = failure_is_tried();
    found_less =
        injecting && !once->before && machine->fail && progress->current.kind != FAIL_memory;
    failure_arm(&progress->current);
    once->run();
    clear_injection();
    if (!failure_is_tried())
        progress->calls[progress->current.kind] = failure_calls();
    else if (failure_hits() > 0)
        progress->injections++;
    else
        progress->missed++;
    if (once->after)
        once->after();
}

static void attempt_in_child(void)
{
    const struct failure *failure = &progress->current;
    int status = child_status(attempt);
    if (!status)
        return;
    fprintf(stderr, "\"%s\" ended with status %#x at a failure of %s call %" PRIu64 "%s, way %d\n",
            once->name, status, kinds[failure->kind].name, failure->nth,
            failure->forever ? " and all later ones" : "", failure->way);
    check_at(false, once->name, __FILE__, __LINE__);
}

static void attempt_each(enum failure_kind kind)
{
    int count = 2 * failure_ways(kind);
    progress->current = (struct failure){.kind = kind, .nth = UINT64_MAX};
    attempt_in_child();
    uint64_t ahead = stride_of(progress->calls[kind], count, once->most);
    for (uint64_t nth = 1; nth <= progress->calls[kind]; nth += ahead)
        for (int variant = 0; variant < count; variant++) {
            progress->current = (struct failure){kind, nth, variant % 2, variant / 2};
            attempt_in_child();
        }
}

void each_failure_of_once(const struct once *what)
{
    share_progress();
    *progress = (struct progress){.nth = 1};
    once = what;
    for (enum failure_kind kind = 0; kind < FAILURE_KINDS; kind++)
        if (failure_ways(kind) && !(what->without >> kind & 1))
            attempt_each(kind);
    show_progress(what->name, what->varies);
}
