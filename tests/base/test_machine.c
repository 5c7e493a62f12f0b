/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the machine has available, read from files of the kernel in a folder that stands for /. */
#include "base/machine.h"
#include "support/host.h"
#include "support/machine_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

static void is(size_t available, size_t reserve)
{
    struct machine_memory memory = {0};
    CHECK(machine_memory_get(&memory));
    CHECK(memory.available == available * MIB && memory.reserve == reserve * MIB);
}

static void the_kernel_says_what_is_available(void)
{
    struct machine_memory memory = {1, 2};
    machine_files_begin();
    CHECK(!machine_memory_get(&memory) && memory.available == 1);
    OK(machine_claim(SIZE_MAX / 2, false)); /* unknown: the driver decides */
    machine_claim_end(SIZE_MAX / 2);
    machine_has(1000, 3200);
    is(1000, 100);
    machine_file("proc/meminfo", "MemTotal: 1024 kB\n");
    CHECK(!machine_memory_get(&memory) && memory.available == 1);
    machine_files_end();
}

static void the_group_with_the_least_room_decides(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "0::/above/own\n");
    machine_file("sys/fs/cgroup/above/own/memory.max", "max\n");
    machine_file("sys/fs/cgroup/above/own/memory.current", "1\n");
    is(1000, 100);
    machine_file("sys/fs/cgroup/above/memory.max", "671088640\n");     /* 640 MiB */
    machine_file("sys/fs/cgroup/above/memory.current", "314572800\n"); /* 300 MiB */
    is(340, 20);
    machine_file("sys/fs/cgroup/above/memory.stat", "anon 5\ninactive_file 104857600\nfile 7\n");
    is(440, 20);
    machine_file("sys/fs/cgroup/above/memory.current", "1314572800\n"); /* above its limit */
    is(0, 20);
    machine_file("sys/fs/cgroup/above/memory.max", "67108864000\n");
    is(1000, 100);
    machine_files_end();
}

/* A group of version 1 with a limit in MiB, which uses 300 MiB; 0: none. */
static void old_group(const char *group, size_t limit)
{
    char path[160], text[32];
    snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.limit_in_bytes", group);
    snprintf(text, sizeof text, "%zu\n", limit ? limit * MIB : (size_t)9223372036854771712);
    machine_file(path, text);
    snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.usage_in_bytes", group);
    machine_file(path, "314572800\n");
}

/* The path is the machine's, and the mounted folder the container's. */
static void a_container_sees_its_older_group_as_the_root(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "9:memory:/docker/1\n0::/docker/1\n");
    old_group("", 0);
    is(1000, 100);
    old_group("", 640);
    machine_file("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 104857600\n");
    is(440, 20);
    machine_files_end();
}

static void older_groups_count_up_to_the_root(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "12:cpuset:/else\n11:memory_not,xmemory:/else\n"
                                     "9:hugetlb,memory:/above/own\n1:name=systemd:/else\n");
    old_group("", 0);
    old_group("/else", 400);
    old_group("/above", 0);
    is(1000, 100);
    old_group("/above/own", 640);
    is(340, 20);
    old_group("/above", 480);
    is(180, 15);
    machine_files_end();
}

/* Both versions are mounted: version 1 counts memory, and version 2 comes last. */
static void both_versions_count(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "5:memory:/old\n1:name=systemd:/else\n0::/new\n");
    old_group("/old", 640);
    is(340, 20);
    machine_file("sys/fs/cgroup/new/memory.max", "503316480\n"); /* 480 MiB */
    machine_file("sys/fs/cgroup/new/memory.current", "314572800\n");
    is(180, 15);
    old_group("/old", 320);
    is(20, 10);
    machine_files_end();
}

/* Systemd's hybrid hierarchy: version 2 is mounted beside version 1. It has the controller for
 * memory where version 1 does not. Where version 2 is alone, that folder is any group. */
static void version_2_may_be_mounted_beside_version_1(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "4:cpuset:/else\n1:name=systemd:/else\n0::/above/own\n");
    machine_file("sys/fs/cgroup/unified/cgroup.controllers", "memory\n");
    machine_file("sys/fs/cgroup/unified/above/memory.max", "671088640\n"); /* 640 MiB */
    machine_file("sys/fs/cgroup/unified/above/memory.current", "314572800\n");
    is(340, 20);
    machine_file("sys/fs/cgroup/unified/above/own/memory.max", "503316480\n"); /* 480 MiB */
    machine_file("sys/fs/cgroup/unified/above/own/memory.current", "314572800\n");
    is(180, 15);
    machine_file("sys/fs/cgroup/cgroup.controllers", "memory\n");
    is(1000, 100);
    machine_files_end();
}

/* So a container's own group may be named from outside, and only the root be there. */
static void the_root_counts_where_the_own_group_is_not_there(void)
{
    machine_files_begin();
    machine_has(1000, 3200);
    machine_file("proc/self/cgroup", "0::/../../elsewhere/1\n");
    machine_file("sys/fs/cgroup/memory.max", "671088640\n");
    machine_file("sys/fs/cgroup/memory.current", "314572800\n");
    is(340, 20);
    CHECK(machine_file_remove("proc/self/cgroup"));
    is(340, 20);
    machine_files_end();
}

static void claims_add_up(void)
{
    machine_files_begin();
    machine_has(200, 3200);
    OK(machine_claim(60 * MIB, false));
    GIVES(machine_claim(41 * MIB, false), TARN_ERROR_OUT_OF_MEMORY);
    machine_claim_end(41 * MIB);
    OK(machine_claim(40 * MIB, false));
    OK(machine_claim(500 * MIB, true));
    GIVES(machine_claim(1, false), TARN_ERROR_OUT_OF_MEMORY);
    machine_claim_end(600 * MIB + 1);
    OK(machine_claim(100 * MIB, false));
    machine_claim_end(100 * MIB);
    machine_has(50, 3200); /* below the reserve */
    GIVES(machine_claim(1, false), TARN_ERROR_OUT_OF_MEMORY);
    machine_claim_end(1);
    machine_files_end();
}

static void wsl2_shows_in_two_ways(void)
{
    CHECK(unsetenv("WSL_DISTRO_NAME") == 0);
    machine_files_begin();
    CHECK(!machine_is_wsl());
    machine_file("dev/dxg", "");
    CHECK(machine_is_wsl());
    CHECK(machine_file_remove("dev/dxg") && !machine_is_wsl());
    CHECK(setenv("WSL_DISTRO_NAME", "Debian", 1) == 0 && machine_is_wsl());
    machine_files_end();
}

/* The kernel's share and the limit of the process: the smaller one counts. */
static void addresses_have_so_many_bits(void)
{
    struct rlimit before, limit;
    int bits = machine_address_bits(), local = 0;
    CHECK(bits == 64 - __builtin_clzl((unsigned long)&local) && bits >= 38 && bits <= 56);
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 37;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    int fewer = machine_address_bits();
    CHECK(setrlimit(RLIMIT_AS, &before) == 0 && fewer == 37 && machine_address_bits() == bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(the_kernel_says_what_is_available),
        CHILD_TEST(the_group_with_the_least_room_decides),
        CHILD_TEST(a_container_sees_its_older_group_as_the_root),
        CHILD_TEST(older_groups_count_up_to_the_root),
        CHILD_TEST(both_versions_count),
        CHILD_TEST(version_2_may_be_mounted_beside_version_1),
        CHILD_TEST(the_root_counts_where_the_own_group_is_not_there),
        CHILD_TEST(claims_add_up),
        CHILD_TEST(wsl2_shows_in_two_ways),
        CHILD_TEST(addresses_have_so_many_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
