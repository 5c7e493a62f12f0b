/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* All processes of a machine: real ones, on four simulated devices of CUDA's, of which two
 * processes have the same one, two have the same name, and one is killed. What each has of each
 * device, what NVML says beside it, and that no two lines of their metrics are the same. */
#include "metrics/machine.h"
#include "report/page_test.h"
#include "top/fleet.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <tarn/live.h>

#include <cmocka.h>

enum { PROCESSES = 3, DEVICES = 4 };

/* What a process is, and has. */
static const struct {
    const char *name, *rank;
    int devices[2]; /* -1: none */
    size_t bytes;
} wanted[PROCESSES] = {
    {"trainer", "0", {0, 1}, 64 * MIB},
    {"trainer", "1", {1, -1}, 128 * MIB},
    {"server", NULL, {3, -1}, 32 * MIB},
};

static struct {
    pid_t process;
    int end; /* closed, the process ends */
} running[PROCESSES];

/* In the child: has its memory, and shows it until the other end of the pipe is closed. */
static void be(int which, int ready, int end)
{
    char letter = 0;
    tarn_live_options options = {
        .size = sizeof options, .name = wanted[which].name, .interval_ms = 10};
    if (wanted[which].rank)
        CHECK(setenv("RANK", wanted[which].rank, 1) == 0);
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0);
    for (int i = 0; i < 2 && wanted[which].devices[i] >= 0; i++) {
        void *block;
        OK(tarn_device_set(wanted[which].devices[i]));
        OK(tarn_alloc_on(TARN_STREAM_LEGACY, wanted[which].bytes, &block));
    }
    OK(tarn_live_start(&options));
    free(page_wait(page_path(getpid()), 1));
    CHECK(write(ready, &letter, 1) == 1);
    while (read(end, &letter, 1) > 0)
        ;
    _exit(0);
}

static void processes_begin(void)
{
    for (int i = 0; i < PROCESSES; i++) {
        int ready[2], end[2];
        char letter;
        CHECK(pipe2(ready, O_CLOEXEC) == 0 && pipe2(end, O_CLOEXEC) == 0);
        running[i].process = fork();
        CHECK(running[i].process >= 0);
        if (running[i].process == 0) {
            close(end[1]);
            for (int j = 0; j < i; j++)
                close(running[j].end);
            be(i, ready[1], end[0]);
        }
        close(ready[1]);
        close(end[0]);
        running[i].end = end[1];
        CHECK(read(ready[0], &letter, 1) == 1);
        close(ready[0]);
    }
}

static void process_wait(int which)
{
    int status;
    CHECK(waitpid(running[which].process, &status, 0) == running[which].process);
}

static const struct fleet_share *share_of(const struct fleet *fleet, int which, int device)
{
    for (size_t i = 0; i < fleet->share_count; i++) {
        const struct fleet_share *share = &fleet->shares[i];
        if (fleet->list->entries[share->entry].head.pid == (uint64_t)running[which].process &&
            share->of && share->of->number == device)
            return share;
    }
    return NULL;
}

static void make(struct top_list *list, struct fleet *fleet, const struct fleet *before,
                 enum fleet_order order)
{
    CHECK(top_list_make(directory, 0, list) && fleet_make(list, before, order, fleet));
}

static void finish(struct top_list *list, struct fleet *fleet)
{
    fleet_finish(fleet);
    top_list_finish(list);
}

static void each_process_has_its_share_of_each_device(void **state)
{
    (void)state;
    struct top_list list;
    struct fleet fleet;
    make(&list, &fleet, NULL, FLEET_BY_RESERVED);
    CHECK(list.count == PROCESSES && fleet.share_count == 4 && fleet.device_count == 3);
    for (int i = 0; i < PROCESSES; i++)
        for (int j = 0; j < 2 && wanted[i].devices[j] >= 0; j++) {
            const struct fleet_share *share = share_of(&fleet, i, wanted[i].devices[j]);
            CHECK(share && share->allocated == wanted[i].bytes &&
                  share->reserved >= share->allocated);
            CHECK(share->samples == 1 && share->history[0] == share->reserved && share->rate < 0);
            CHECK(fleet_part(&fleet, share) > 0 && fleet_part(&fleet, share) <= 1);
        }
    const struct fleet_share *one = share_of(&fleet, 0, 1), *other = share_of(&fleet, 1, 1);
    CHECK(one->device == other->device); /* one device, though of two processes */
    CHECK(fleet.devices[one->device].reserved == one->reserved + other->reserved);
    CHECK(strncmp(fleet.devices[one->device].uuid, "GPU-7461726e-", 13) == 0);
    CHECK(strcmp(fleet_device_name(&fleet.devices[one->device]), "0000:01:00.0") == 0);
    for (size_t i = 1; i < fleet.share_count; i++)
        CHECK(fleet.shares[i - 1].reserved >= fleet.shares[i].reserved);
    finish(&list, &fleet);
}

static void history_and_rates_go_on_from_look_to_look(void **state)
{
    (void)state;
    struct top_list lists[2];
    struct fleet fleets[2];
    make(&lists[0], &fleets[0], NULL, FLEET_BY_NAME);
    CHECK(strcmp(lists[0].entries[fleets[0].shares[0].entry].head.name, "server") == 0);
    uint64_t number = lists[0].entries[fleets[0].shares[0].entry].reading->survey.number;
    free(page_wait(page_path(running[2].process), number + 1));
    for (int i = 1; i < 20; i++) {
        make(&lists[i % 2], &fleets[i % 2], &fleets[!(i % 2)], FLEET_BY_NAME);
        finish(&lists[!(i % 2)], &fleets[!(i % 2)]);
        CHECK(fleets[i % 2].shares[0].samples == (i < 15 ? i + 1 : 16));
        CHECK(fleets[i % 2].shares[0].rate >= 0);
    }
    finish(&lists[1], &fleets[1]);
}

/* What the monitor says of this process's devices: the same of each. */
static void what_is_beside_tarn_is_told_from_what_others_have(void **state)
{
    (void)state;
    struct top_list list;
    struct fleet fleet;
    char text[128];
    snprintf(text, sizeof text, "%ld:%zu,1:1000000", (long)running[2].process, 500 * MIB);
    CHECK(setenv("TARN_SIM_PROCESSES", text, 1) == 0);
    snprintf(text, sizeof text, "%zu:%zu", 2048 * MIB, 700 * MIB);
    CHECK(setenv("TARN_SIM_NVML_MEMORY", text, 1) == 0);
    make(&list, &fleet, NULL, FLEET_BY_RESERVED);
    const struct fleet_share *share = share_of(&fleet, 2, 3);
    CHECK(share);
    const struct fleet_device *device = &fleet.devices[share->device];
    CHECK(device->monitored && device->total == 2048 * MIB && device->used == 700 * MIB);
    CHECK(device->rest == 500 * MIB - share->reserved);
    share = share_of(&fleet, 1, 1);
    /* NVML does not name those processes */
    CHECK(share && fleet.devices[share->device].rest == SURVEY_UNKNOWN);
    struct top_frame frame = {0};
    struct top_look look = {.device = -1};
    fleet_frame(&frame, &fleet, &look);
    CHECK(!frame.failed && strstr(frame.text, "trainer") && strstr(frame.text, "NVML") &&
          strstr(frame.text, "0000:03:00.0"));
    top_frame_finish(&frame);
    finish(&list, &fleet);
}

/* The part of each line up to its value. */
static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void every_line_is_a_series_of_its_own(void **state)
{
    (void)state;
    struct metrics_text text;
    CHECK(metrics_text_make(directory, &text));
    char *copy = strndup(text.text, text.length), *rest = copy;
    char **lines = calloc(text.length, sizeof *lines);
    size_t count = 0, families = 0;
    CHECK(copy && lines);
    for (char *line; (line = strsep(&rest, "\n"));) {
        families += strncmp(line, "# TYPE", 6) == 0;
        if (*line && *line != '#') {
            *strrchr(line, ' ') = '\0';
            lines[count++] = line;
        }
    }
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 1; i < count; i++)
        CHECK(strcmp(lines[i - 1], lines[i]) != 0);
    CHECK(families > 40 && count > 100);
    char label[256];
    snprintf(label, sizeof label,
             "tarn_reserved_peak_bytes{process=\"trainer\",pid=\"%ld\",rank=\"1\",device=\"1\","
             "UUID=\"GPU-7461726e-",
             (long)running[1].process);
    CHECK(strstr(text.text, label));
    CHECK(strstr(text.text, "pci_bus_id=\"0000:03:00.0\"") &&
          strstr(text.text, "tarn_exporter_processes 3\n"));
    CHECK(strstr(text.text, "hw_gpu_memory_usage_bytes{hw_id=\"GPU-7461726e-"));
    free(lines);
    free(copy);
    free(text.text);
}

/* A process that is killed is in no list from then on, and its page is removed. */
static void who_is_killed_is_gone(void **state)
{
    (void)state;
    struct top_list list;
    struct fleet fleet;
    struct metrics_text text;
    CHECK(page_files() == PROCESSES && kill(running[1].process, SIGKILL) == 0);
    process_wait(1);
    make(&list, &fleet, NULL, FLEET_BY_RESERVED);
    CHECK(list.count == PROCESSES - 1 && fleet.share_count == 3 && !share_of(&fleet, 1, 1));
    finish(&list, &fleet);
    CHECK(page_files() == PROCESSES - 1);
    CHECK(metrics_text_make(directory, &text));
    CHECK(!strstr(text.text, "rank=\"1\"") && strstr(text.text, "tarn_exporter_processes 2\n"));
    free(text.text);
}

static void where_nobody_publishes_there_is_a_text_too(void **state)
{
    (void)state;
    struct metrics_text text;
    for (int i = 0; i < PROCESSES; i++)
        close(running[i].end);
    process_wait(0);
    process_wait(2);
    CHECK(metrics_text_make(directory, &text));
    CHECK(strstr(text.text, "tarn_exporter_processes 0\n") &&
          !strstr(text.text, "tarn_build_info"));
    free(text.text);
    CHECK(metrics_text_make("/nonexistent", &text));
    free(text.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_process_has_its_share_of_each_device),
        cmocka_unit_test(history_and_rates_go_on_from_look_to_look),
        cmocka_unit_test(what_is_beside_tarn_is_told_from_what_others_have),
        cmocka_unit_test(every_line_is_a_series_of_its_own),
        cmocka_unit_test(who_is_killed_is_gone),
        cmocka_unit_test(where_nobody_publishes_there_is_a_text_too),
    };
    directory_make();
    CHECK(setenv("TARN_HOST_DEVICES", "4", 1) == 0 && setenv("TARN_HOST_MEMORY", "1G", 1) == 0);
    CHECK(setenv("TARN_SIM_PROCESSES", "", 1) == 0); /* NVML is there */
    processes_begin();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(directory);
    return failed;
}
