/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads /proc/meminfo and the control groups, asks a simulated driver, keeps the sum of claims, and
 * tells WSL2 and few addresses. cudaMemGetInfo() and cuMemGetInfo() say MemFree on an integrated
 * GPU, without the page cache, which the kernel gives up (ollama/ollama#12283,
 * sgl-project/sglang#10075). MemAvailable is the kernel's own estimate (proc_pid_status(5),
 * Documentation/filesystems/proc.rst). A group's files are those of
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; the hybrid hierarchy is that of
 * systemd's docs/CGROUP_DELEGATION.md. Nothing is allocated. */
#include "base/machine.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/variable.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#define TEXT 8192    /* bytes of a file that are looked at */
#define RESERVED 32u /* one part in so many is kept for others */

const char *machine_root = "";
size_t (*machine_taken)(void);
bool (*machine_simulated)(size_t *available, size_t *total);

static atomic_size_t claimed; /* bytes */

/* "" if the file cannot be read. */
static const char *read_text(const char *folder, const char *name, char *text)
{
    char path[PATH_MAX + 128];
    snprintf(path, sizeof path, "%s%s%s", machine_root, folder, name);
    int file = file_renumber(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t got, length = 0;
    while (file >= 0 && length < TEXT - 1 &&
           (got = read(file, text + length, (size_t)(TEXT - 1 - length))) > 0)
        length += got;
    if (file >= 0)
        (void)close(file);
    text[length] = '\0';
    return text;
}

/* The number behind a key that begins a line. False if there is none. */
static bool number_of(const char *text, const char *key, size_t *number)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0)
            continue;
        char *end = NULL;
        *number = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

static void take_least(struct machine_memory *memory, size_t available, size_t total)
{
    size_t reserve = total / RESERVED;
    size_t room = available > reserve ? available - reserve : 0;
    size_t least = memory->available > memory->reserve ? memory->available - memory->reserve : 0;
    if (room < least)
        *memory = (struct machine_memory){available, reserve};
}

/* A group's limit, less what its processes use and the kernel cannot take back. */
static void look_at_group(struct machine_memory *memory, const char *folder, bool is_old)
{
    char text[TEXT];
    size_t most = 0, used = 0, cached = 0;
    const char *limit = is_old ? "/memory.limit_in_bytes" : "/memory.max";
    if (!number_of(read_text(folder, limit, text), "", &most) || most >= SIZE_MAX / 4 ||
        !number_of(read_text(folder, is_old ? "/memory.usage_in_bytes" : "/memory.current", text),
                   "", &used))
        return; /* "max": no limit */
    (void)number_of(read_text(folder, "/memory.stat", text),
                    is_old ? "total_inactive_file " : "inactive_file ", &cached);
    used = used > cached ? used - cached : 0;
    take_least(memory, most > used ? most - used : 0, most);
}

/* Looks at `group` below `root`, and at each group above it up to `root`, which is that of a
 * container whose own group has a path of the machine. A group that cannot be read is passed over.
 * `group` is cut off. */
static void look_at_branch(struct machine_memory *memory, const char *root, char *group,
                           bool is_old)
{
    char folder[PATH_MAX];
    for (size_t length = strlen(group) + 1; length-- > 0;) {
        if (group[length] && group[length] != '/')
            continue;
        group[length] = '\0';
        if (snprintf(folder, sizeof folder, "%s%s", root, group) < (int)sizeof folder)
            look_at_group(memory, folder, is_old);
    }
}

/* Whether a list of controllers, separated by commas, has the one for memory. */
static bool counts_memory(const char *controllers)
{
    static const char name[] = "memory";
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strcspn(at, ",") == sizeof name - 1 && strncmp(at, name, sizeof name - 1) == 0)
            return true;
    }
    return false;
}

static bool exists(const char *file)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s", machine_root, file);
    return access(path, F_OK) == 0;
}

/* Returns where version 2 of control groups is mounted. Beside version 1 that is a folder of its
 * own (systemd's hybrid hierarchy). Where version 2 is alone, a group may have the same name as
 * that folder. */
static const char *root_of_groups(void)
{
    static const char alone[] = "/sys/fs/cgroup", beside[] = "/sys/fs/cgroup/unified";
    return !exists("/sys/fs/cgroup/cgroup.controllers") &&
                   exists("/sys/fs/cgroup/unified/cgroup.controllers")
               ? beside
               : alone;
}

/* /proc/self/cgroup has a line for each hierarchy: number, controllers, path. Version 2 has the
 * number 0 and no controllers. Either version, or both, may have the controller for memory. */
static void look_at_groups(struct machine_memory *memory)
{
    char lines[TEXT], root[] = "", *own = root, *own_old = root, *rest = NULL;
    (void)read_text("", "/proc/self/cgroup", lines);
    for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        if (strcmp(line, "0:") == 0)
            own = path;
        else if (counts_memory(controllers + 1))
            own_old = path;
    }
    look_at_branch(memory, root_of_groups(), own, false);
    look_at_branch(memory, "/sys/fs/cgroup/memory", own_old, true);
}

bool machine_memory_get(struct machine_memory *memory)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct machine_memory found = {.available = SIZE_MAX};
    char text[TEXT];
    size_t available = 0, total = 0;
    read_text("", "/proc/meminfo", text);
    if (!number_of(text, "MemAvailable:", &available) || !number_of(text, "MemTotal:", &total))
        return false;
    available *= 1024;
    size_t taken = machine_taken ? machine_taken() : 0;
    take_least(&found, available > taken ? available - taken : 0, total * 1024);
    look_at_groups(&found);
    if (machine_simulated && machine_simulated(&available, &total))
        take_least(&found, available, total);
    *memory = found;
    return true;
}

/* WSL2 sets the variable for what it starts, and a program that uses a GPU, in a container too,
 * needs the file. */
bool machine_is_wsl(void)
{
    return variable_get("WSL_DISTRO_NAME") || exists("/dev/dxg");
}

/* The kernel puts the first thread's stack, where these random bytes are, at the top. */
int machine_address_bits(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    unsigned long highest = getauxval(AT_RANDOM);
    (void)getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= highest)
        highest = limit.rlim_cur ? limit.rlim_cur - 1 : 0;
    return highest ? 64 - __builtin_clzl(highest) : 0;
}

tarn_status machine_claim(size_t size, bool must)
{
    struct machine_memory memory;
    size_t before = atomic_fetch_add(&claimed, size);
    if (must || !machine_memory_get(&memory))
        return TARN_OK;
    size_t room = memory.available > memory.reserve ? memory.available - memory.reserve : 0;
    if (before <= room && size <= room - before)
        return TARN_OK;
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "%zu more bytes exceed the machine's memory, which an integrated device shares: "
                  "%zu are available, and %zu of these are left for others",
                  size, memory.available, memory.reserve);
}

void machine_claim_end(size_t size)
{
    atomic_fetch_sub(&claimed, size);
}
