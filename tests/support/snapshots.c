/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/snapshots.h"
#include "support/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[4000];
static struct {
    pthread_t thread;
    atomic_bool ends;
    bool runs, may_fail;
    int most, written;
} writer;

static void remove_folder(void)
{
    char command[4100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    (void)!system(command);
}

const char *snapshots_folder(void)
{
    const char *build = getenv("TARN_BUILD");
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/snapshots.XXXXXX", build ? build : "/tmp");
        CHECK(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

bool snapshots_check(const char *arguments)
{
    char command[8000];
    const char *source = getenv("TARN_SOURCE");
    snprintf(command, sizeof command, "exec python3 '%s/tests/report/check_snapshot.py' %s",
             source ? source : ".", arguments);
    fflush(NULL);
    return system(command) == 0;
}

/* Now and then clears the trace or turns it off for a while. Events from before that do not
 * count. */
static void disturb(unsigned turn)
{
    if (turn % 16 == 5)
        OK(tarn_trace_clear());
    if (turn % 16 == 10)
        OK(tarn_trace_stop());
    if (turn % 16 == 11)
        OK(tarn_trace_start(NULL));
}

static void *write_snapshots(void *unused)
{
    (void)unused;
    for (unsigned turn = 0; !atomic_load(&writer.ends); turn++) {
        char path[4100];
        snprintf(path, sizeof path, "%s/%d.pickle", folder, writer.written % writer.most);
        tarn_status status = tarn_snapshot_write(path, NULL);
        if (status)
            CHECK(writer.may_fail && status == TARN_ERROR_OUT_OF_HOST_MEMORY);
        writer.written += status == TARN_OK;
        disturb(turn);
        usleep(10000);
    }
    return NULL;
}

void snapshots_begin(bool may_fail)
{
    const char *most = getenv("TARN_TEST_SNAPSHOTS");
    if (!most)
        return;
    (void)snapshots_folder();
    atomic_store(&writer.ends, false);
    writer.may_fail = may_fail;
    writer.most = atoi(most);
    writer.written = 0;
    writer.runs = pthread_create(&writer.thread, NULL, write_snapshots, NULL) == 0;
    CHECK(writer.runs);
}

void snapshots_end(void)
{
    char arguments[4100];
    if (!writer.runs)
        return;
    atomic_store(&writer.ends, true);
    CHECK(pthread_join(writer.thread, NULL) == 0);
    writer.runs = false;
    snprintf(arguments, sizeof arguments, "--moving '%s'/*.pickle", folder);
    if (writer.written == 0)
        CHECK(writer.may_fail);
    else if (!snapshots_check(arguments)) {
        printf("the snapshots are kept in %s\n", folder);
        fflush(NULL);
        _exit(1);
    }
    remove_folder();
    *folder = '\0';
}
