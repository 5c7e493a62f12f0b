/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What turns the trace on: TARN_TRACE, tarn_trace_start() and the rest of it; and regions. Each
 * test is a process of its own. */
#include "device/tracing.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct trace_copy copy_now(void)
{
    struct trace_copy copy;
    CHECK(trace_read(&copy));
    return copy;
}

/* How many records of a kind there are. */
static size_t count_of(enum trace_kind kind)
{
    struct trace_copy copy = copy_now();
    size_t count = 0;
    for (size_t i = 0; i < copy.count; i++)
        count += trace_kind_of(&copy.records[i]) == kind;
    trace_copy_finish(&copy);
    return count;
}

static struct trace_record last_record(void)
{
    struct trace_copy copy = copy_now();
    CHECK(copy.count > 0);
    struct trace_record last = copy.records[copy.count - 1];
    trace_copy_finish(&copy);
    return last;
}

static uint64_t kept_now(void)
{
    uint64_t kept = 0;
    OK(tarn_trace_count_get(&kept, NULL));
    return kept;
}

static void use_memory(void)
{
    void *pointer = tarn_malloc(1000);
    CHECK(pointer);
    OK(tarn_free(pointer));
}

/* TARN_TRACE ----------------------------------------------------------------------------------- */

struct word {
    const char *text;
    bool on, regions;
    int stacks;
    uint64_t records; /* that a ring then has */
};

static const struct word *tried;

static void one_word(void)
{
    setenv("TARN_TRACE", tried->text, true);
    use_memory();
    CHECK(trace_is_on() == tried->on);
    CHECK((kept_now() > 0) == tried->on);
    CHECK(atomic_load(&trace_stack_mode) == tried->stacks);
    uint64_t lost;
    const struct trace_ring *ring = trace_rings(&lost, &lost);
    CHECK(!ring || ring->mask + 1 == tried->records);
    OK(tarn_region_push("a"));
    OK(tarn_region_pop());
    CHECK((count_of(TRACE_region_begin) == 1 && count_of(TRACE_region_end) == 1) == tried->regions);
}

static void test_words_of_the_environment(void **state)
{
    static const struct word words[] = {
        {"", false, false, 0, 0},
        {"0", false, false, 0, 0},
        {"off", false, false, 0, 0},
        {"1", true, false, 0, TARN_TRACE_RECORDS},
        {"on", true, false, 0, TARN_TRACE_RECORDS},
        {" , on ,", true, false, 0, TARN_TRACE_RECORDS},
        {"records=5000", true, false, 0, 8192},
        {"records=1", true, false, 0, 1024},
        {"stacks=none", true, false, TRACE_STACKS_NONE, TARN_TRACE_RECORDS},
        {"stacks=alloc", true, false, TRACE_STACKS_ALLOC, TARN_TRACE_RECORDS},
        {"stacks=all", true, false, TRACE_STACKS_ALL, TARN_TRACE_RECORDS},
        {"regions", true, true, 0, TARN_TRACE_RECORDS},
        {"records=2048,stacks=all,regions", true, true, TRACE_STACKS_ALL, 2048},
        {"regions off", false, false, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        tried = &words[i];
        in_child(one_word);
    }
}

static const char *refused;

static void one_bad_word(void)
{
    void *pointer = &refused;
    setenv("TARN_TRACE", refused, true);
    for (int i = 0; i < 2; i++) {
        CHECK(tarn_malloc(100) == NULL && tarn_last_status() == TARN_ERROR_CONFIGURATION);
        CHECK(strstr(tarn_last_error(), "TARN_TRACE"));
        GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 100, &pointer), TARN_ERROR_CONFIGURATION);
        GIVES(tarn_trace_start(NULL), TARN_ERROR_CONFIGURATION);
        GIVES(tarn_region_push("a"), TARN_ERROR_CONFIGURATION);
        GIVES(tarn_snapshot_write("/nowhere", NULL), TARN_ERROR_CONFIGURATION);
    }
    setenv("TARN_TRACE", "on", true); /* the remedy helps at once */
    use_memory();
    CHECK(kept_now() > 0);
}

static void test_words_that_are_none(void **state)
{
    static const char *const words[] = {
        "yes",       "2",          "records",     "records=",   "records=0",
        "records=x", "records=-1", "records=1k",  "records=+1", "records=99999999999999999999",
        "stacks",    "stacks=",    "stacks=some", "ON",         "records=268435457",
        "on,onn",    "regions=1",  "1;regions"};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        refused = words[i];
        in_child(one_bad_word);
    }
}

/* Starting and stopping ------------------------------------------------------------------------ */

static void options_out_of_range_are_refused(void)
{
    tarn_trace_options options = {.size = sizeof options - 1};
    GIVES(tarn_trace_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    options.size = sizeof options;
    options.records = ((size_t)1 << 28) + 1;
    GIVES(tarn_trace_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    options.records = 0;
    int stacks = TARN_TRACE_STACKS_ALL + 1;
    memcpy(&options.stacks, &stacks, sizeof stacks);
    GIVES(tarn_trace_start(&options), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!trace_is_on());
    OK(tarn_trace_count_get(NULL, NULL));
}

static void it_records_from_start_to_stop(void)
{
    use_memory();
    CHECK(kept_now() == 0);
    OK(tarn_trace_start(NULL));
    use_memory();
    use_memory();
    CHECK(count_of(TRACE_alloc) == 2 && count_of(TRACE_free) == 2);
    OK(tarn_trace_stop());
    use_memory();
    CHECK(count_of(TRACE_alloc) == 2);
    OK(tarn_trace_clear());
    CHECK(kept_now() == 0);
    OK(tarn_trace_start(NULL));
    use_memory();
    CHECK(count_of(TRACE_alloc) == 1 && count_of(TRACE_free) == 1);
    OK(tarn_trace_stop());
    OK(tarn_trace_stop());
}

static void stacks_are_taken_where_they_are_wanted(void)
{
    tarn_trace_options options = {.size = sizeof options, .stacks = TARN_TRACE_STACKS_ALLOC};
    OK(tarn_trace_start(&options));
    use_memory();
    struct trace_copy copy = copy_now();
    for (size_t i = 0; i < copy.count; i++)
        CHECK((copy.records[i].stack != 0) == (trace_kind_of(&copy.records[i]) != TRACE_free));
    trace_copy_finish(&copy);
    options.stacks = TARN_TRACE_STACKS_ALL;
    OK(tarn_trace_start(&options));
    use_memory();
    struct trace_record last = last_record();
    CHECK(trace_kind_of(&last) == TRACE_free && last.stack);
    const struct trace_stack *stack = intern_value(&trace_stacks, last.stack);
    CHECK(stack && stack->frames[0]);
    OK(tarn_trace_start(NULL));
    use_memory();
    CHECK(last_record().stack == 0);
}

static void after_a_fork_all_calls_say_so(void)
{
    GIVES(tarn_trace_start(NULL), TARN_ERROR_FORKED);
    GIVES(tarn_trace_stop(), TARN_ERROR_FORKED);
    GIVES(tarn_trace_clear(), TARN_ERROR_FORKED);
    GIVES(tarn_trace_count_get(NULL, NULL), TARN_ERROR_FORKED);
    GIVES(tarn_region_push("a"), TARN_ERROR_FORKED);
    GIVES(tarn_region_pop(), TARN_ERROR_FORKED);
    GIVES(tarn_snapshot_write("/tmp/never", NULL), TARN_ERROR_FORKED);
}

static void a_child_cannot(void)
{
    OK(tarn_trace_start(NULL));
    use_memory();
    in_child(after_a_fork_all_calls_say_so);
}

/* Regions -------------------------------------------------------------------------------------- */

static const struct trace_region *region_of(const struct trace_record *record)
{
    return intern_value(&trace_regions, record->region);
}

static const struct trace_region *region_now(void)
{
    use_memory();
    struct trace_record last = last_record();
    return region_of(&last);
}

static void regions_nest(void)
{
    OK(tarn_region_push("before"));
    OK(tarn_trace_start(NULL));
    const struct trace_region *region = region_now();
    /* One that begins later knows */
    CHECK(region && strcmp(region->name, "before") == 0 && region->parent == 0);
    OK(tarn_region_push("inner"));
    region = region_now();
    CHECK(strcmp(region->name, "inner") == 0);
    const struct trace_region *outer = intern_value(&trace_regions, region->parent);
    CHECK(strcmp(outer->name, "before") == 0);
    OK(tarn_region_pop());
    CHECK(region_now() == outer);
    OK(tarn_region_push("inner"));
    CHECK(region_now() == region); /* the same again */
    OK(tarn_region_pop());
    OK(tarn_region_pop());
    CHECK(region_now() == NULL);
    GIVES(tarn_region_pop(), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(count_of(TRACE_region_begin) == 0);
}

static void names_are_cut_and_checked(void)
{
    char name[100];
    memset(name, 'x', sizeof name);
    name[99] = '\0';
    GIVES(tarn_region_push(NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_region_push(""), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_region_pop(), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_trace_start(NULL));
    OK(tarn_region_push(name));
    CHECK(strlen(region_now()->name) == 59);
    OK(tarn_region_pop());
}

static void regions_can_be_records(void)
{
    tarn_trace_options options = {.size = sizeof options, .regions = true};
    OK(tarn_trace_start(&options));
    OK(tarn_region_push("one"));
    OK(tarn_region_push("two"));
    OK(tarn_region_pop());
    OK(tarn_region_pop());
    struct trace_copy copy = copy_now();
    static const enum trace_kind kinds[] = {TRACE_region_begin, TRACE_region_begin,
                                            TRACE_region_end, TRACE_region_end};
    static const char *const names[] = {"one", "two", "two", "one"};
    CHECK(copy.count == 4);
    for (size_t i = 0; i < 4; i++) {
        const struct trace_region *region =
            intern_value(&trace_regions, (uint32_t)copy.records[i].address);
        CHECK(trace_kind_of(&copy.records[i]) == kinds[i] && strcmp(region->name, names[i]) == 0);
    }
    trace_copy_finish(&copy);
}

/* More names than there are numbers: what is in them belongs to the one around them, and they end
 * as they began. */
static void names_without_a_number_still_nest(void)
{
    OK(tarn_trace_start(NULL));
    OK(tarn_region_push("outer"));
    const struct trace_region *outer = region_now();
    unsigned most = trace_regions.most;
    trace_regions.most = atomic_load(&trace_regions.used);
    OK(tarn_region_push("unknown"));
    OK(tarn_region_push("deeper"));
    CHECK(region_now() == outer);
    trace_regions.most = most;
    OK(tarn_region_push("deepest"));
    CHECK(region_now() == outer);
    for (int i = 0; i < 3; i++)
        OK(tarn_region_pop());
    CHECK(region_now() == outer);
    OK(tarn_region_pop());
    CHECK(region_now() == NULL);
    GIVES(tarn_region_pop(), TARN_ERROR_INVALID_ARGUMENT);
}

/* Threads -------------------------------------------------------------------------------------- */

static uint16_t number_of_thread;

static void *in_a_region(void *unused)
{
    (void)unused;
    (void)pthread_setname_np(pthread_self(), "worker");
    CHECK(region_now() == NULL); /* it is in none, whoever had its ring before */
    OK(tarn_region_push("left open"));
    struct trace_record last;
    use_memory();
    last = last_record();
    number_of_thread = last.thread;
    CHECK(strcmp(region_of(&last)->name, "left open") == 0);
    return NULL;
}

static void threads_end_and_others_begin(void)
{
    uint64_t unused;
    OK(tarn_trace_start(NULL));
    OK(tarn_region_push("of the first"));
    use_memory();
    for (unsigned i = 0; i < 5; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, in_a_region, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        const struct trace_thread *named = intern_value(&trace_threads, number_of_thread);
        CHECK(number_of_thread == i + 2 && named->number == i + 2 &&
              strcmp(named->name, "worker") == 0);
    }
    unsigned rings = 0;
    for (const struct trace_ring *ring = trace_rings(&unused, &unused); ring; ring = ring->next)
        rings++;
    CHECK(rings == 2); /* each took what the one before left */
    CHECK(strcmp(region_now()->name, "of the first") == 0);
}

static void *in_regions(void *stop)
{
    while (!atomic_load_explicit((atomic_bool *)stop, memory_order_relaxed)) {
        OK(tarn_region_push("step")); /* a record that takes no lock, which would order it after the
                                         start */
        OK(tarn_region_pop());
    }
    return NULL;
}

/* A thread that records may meet the unwinder while that is being found. */
static void stacks_begin_while_others_record(void)
{
    tarn_trace_options options = {.size = sizeof options, .regions = true};
    atomic_bool stop = false;
    pthread_t threads[2];
    OK(tarn_trace_start(&options));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, in_regions, &stop) == 0);
    usleep(5000);
    options.stacks = TARN_TRACE_STACKS_ALL;
    OK(tarn_trace_start(&options));
    usleep(5000);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    use_memory();
    CHECK(last_record().stack > 0);
}

#define TEST_LIST(X)                          \
    X(options_out_of_range_are_refused)       \
    X(it_records_from_start_to_stop)          \
    X(stacks_are_taken_where_they_are_wanted) \
    X(a_child_cannot)                         \
    X(regions_nest)                           \
    X(names_are_cut_and_checked)              \
    X(regions_can_be_records)                 \
    X(names_without_a_number_still_nest)      \
    X(threads_end_and_others_begin)           \
    X(stacks_begin_while_others_record)

#define TEST(function)                        \
    static void test_##function(void **state) \
    {                                         \
        (void)state;                          \
        in_child(function);                   \
    }
TEST_LIST(TEST)

int main(void)
{
#define X(function) cmocka_unit_test(test_##function),
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words_of_the_environment),
                                       cmocka_unit_test(test_words_that_are_none), TEST_LIST(X)};
#undef X
    unsetenv("TARN_TRACE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
