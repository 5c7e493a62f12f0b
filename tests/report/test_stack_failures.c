/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Call stacks where libunwind or libdw is missing, lacks a function, or has one that fails: stacks
 * are walked by other means, or are not there, functions have the names that the loader knows, or
 * none; and a snapshot is as whole as ever. Every attempt is a process of its own, since each
 * library is looked for once. */
#include "support/failures.h"
#include "support/host.h"
#include "support/system.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tarn/snapshot.h>
#include <tarn/trace.h>

#include <cmocka.h>

static struct {
    unsigned named, unnamed; /* snapshots that have the name of this program's function, and that do
                                not */
} * seen;                    /* shared with the children */

static struct {
    char text[1 << 20];
    size_t length;
} written;

static bool keep(const void *data, size_t size, void *user)
{
    (void)user;
    CHECK(written.length + size < sizeof written.text);
    memcpy(written.text + written.length, data, size);
    written.length += size;
    return true;
}

/* Not known to the loader, but to code that reads the program's file. */
static __attribute__((noinline)) bool allocate_in_a_named_function(void **pointer)
{
    tarn_status status = tarn_alloc_on(TARN_STREAM_LEGACY, 5000, pointer);
    return went_well(status, false, "alloc");
}

static bool has(const char *text)
{
    return memmem(written.text, written.length, text, strlen(text)) != NULL;
}

static void take_a_snapshot(void)
{
    tarn_trace_options options = {
        .size = sizeof options, .records = 64, .stacks = TARN_TRACE_STACKS_ALLOC};
    void *pointer = NULL;
    written.length = 0;
    bool traced = TRY(tarn_trace_start(&options)), taken = allocate_in_a_named_function(&pointer);
    if (TRY(tarn_snapshot_print(keep, NULL, NULL))) {
        CHECK(written.length > 2 && written.text[0] == '\x80' &&
              written.text[written.length - 1] == '.');
        if (traced && taken && has("allocate_in_a_named_function"))
            seen->named++;
        else
            seen->unnamed++;
    }
    if (taken)
        OK(tarn_free(pointer));
    CHECK(failure_is_tried() || seen->named > 0);
}

/* The same again, with what was found and what was not. */
static void take_another(void)
{
    take_a_snapshot();
    nothing_is_left(0);
    OK(tarn_shutdown());
}

/* What fails in place of a function of the libraries'. */
static void *gives_nothing(void)
{
    return NULL;
}

static int gives_an_error(void)
{
    return -1;
}

static void *failing(const char *symbol)
{
    void *(*nothing)(void) = gives_nothing, *function = NULL;
    int (*error)(void) = gives_an_error;
    bool is_status = strstr(symbol, "report") || strstr(symbol, "find");
    memcpy(&function, is_status ? (void *)&error : (void *)&nothing, sizeof function);
    return strncmp(symbol, "dwfl_", 5) == 0 || strcmp(symbol, "unw_backtrace") == 0 ? function
                                                                                    : NULL;
}

static void start(void)
{
    OK(tarn_free(alloc_on(lease(0), 100)));
}

static void a_snapshot_is_whole_whatever_is_known(void **state)
{
    (void)state;
    system_only("dlopen dlsym");
    system_instead = failing;
    each_failure_of_once(&(struct once){.name = "stacks are walked and named",
                                        .before = start,
                                        .run = take_a_snapshot,
                                        .after = take_another,
                                        .without = ~(1u << FAIL_system),
                                        .most = UINT64_MAX});
    CHECK(seen->unnamed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_snapshot_is_whole_whatever_is_known)};
    unsetenv("TARN_TRACE");
    host_start_with(1, 64 * MIB);
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
