/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A group of `tarn run`, as any process of it sees it. */
#ifndef TESTS_MEMORY_GROUP_TEST_H
#define TESTS_MEMORY_GROUP_TEST_H

#include "run/group.h"
#include "support/host.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char group_name[40], group_path[100];

static inline void group_choose(const char *test)
{
    snprintf(group_name, sizeof group_name, "%s.%d", test, (int)getpid());
    snprintf(group_path, sizeof group_path, "%s/tarn-group.%lu.%s",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (unsigned long)geteuid(),
             group_name);
}

/* Nothing, if there is no group. */
static inline struct group_sum group_look(void)
{
    struct group_sum sum = {0};
    int file = open(group_path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return sum;
    struct group *group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(group != MAP_FAILED);
    group_reap(group, file, GROUP_SLOTS);
    sum = group_sum(group, 0);
    munmap(group, sizeof *group);
    close(file);
    return sum;
}

#endif
