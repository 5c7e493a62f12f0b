/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The file lies in memory, at a place that all processes of a user know. Behind the bytes of the slots there is one that each run locks to
 * read as long as it lasts, and whoever removes the file to write: so nobody joins a file that has lost its name. Another is held while
 * limits are written. Both are tried for a while and not waited for. */
#include "launch/group_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTE_HELD = GROUP_SLOTS, BYTE_LIMITS, TRIES = 2000 };

static void pause_shortly(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

bool group_is_name(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = strlen(name);
    return length > 0 && length < GROUP_NAME && name[0] != '.' && strspn(name, good) == length;
}

static bool is_named(const char *path, int file)
{
    struct stat named, own;
    return lstat(path, &named) == 0 && fstat(file, &own) == 0 && named.st_ino == own.st_ino &&
           named.st_dev == own.st_dev;
}

/* An open file that has its name, and keeps it while this process has the lock. -1 with errno. */
static int open_held(const char *path)
{
    for (int i = 0; i < TRIES; i++) {
        int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0)
            return -1;
        if (group_lock(file, BYTE_HELD, F_RDLCK) && is_named(path, file))
            return file;
        close(file);
        pause_shortly();
    }
    errno = EBUSY;
    return -1;
}

static int make_room(int file)
{
    struct stat about;
    int code;
    if (fstat(file, &about))
        return errno;
    if (!S_ISREG(about.st_mode) || about.st_uid != geteuid())
        return EPERM;
    do
        code = posix_fallocate(file, 0, sizeof(struct group));
    while (code == EINTR);
    return code;
}

/* Whoever finds no magic fills in the rest, which all fill alike. */
static bool begin(struct group *group, const char *name)
{
    uint64_t nothing = 0;
    if (atomic_load(&group->magic) == 0) {
        strncpy(group->name, name, sizeof group->name - 1);
        (void)atomic_compare_exchange_strong(&group->magic, &nothing, GROUP_MAGIC);
    }
    return atomic_load(&group->magic) == GROUP_MAGIC;
}

static bool set_limits(struct group_file *file, const char *limits)
{
    bool mine = false;
    for (int i = 0; i < TRIES && !mine; i++) {
        mine = group_lock(file->file, BYTE_LIMITS, F_WRLCK);
        if (!mine)
            pause_shortly();
    }
    if (!mine)
        return false;
    uint64_t generation = atomic_load(&file->group->generation) | 1; /* odd already: of one that was killed here */
    atomic_store(&file->group->generation, generation);
    memset(file->group->limits, 0, sizeof file->group->limits);
    memcpy(file->group->limits, limits, strlen(limits));
    atomic_store(&file->group->generation, generation + 1);
    (void)group_lock(file->file, BYTE_LIMITS, F_UNLCK);
    return true;
}

bool group_open(struct group_file *file, const char *name, const char *limits, char *why, size_t size)
{
    *file = (struct group_file){.file = -1};
    snprintf(file->path, sizeof file->path, "%s/tarn-group.%lu.%s", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (unsigned long)geteuid(), name);
    if (limits && strlen(limits) >= GROUP_LIMITS) {
        snprintf(why, size, "its limits are longer than %d bytes", GROUP_LIMITS);
        return false;
    }
    file->file = open_held(file->path);
    int code = file->file < 0 ? errno : make_room(file->file);
    void *memory =
        code ? MAP_FAILED : mmap(NULL, sizeof(struct group), PROT_READ | PROT_WRITE, MAP_SHARED, file->file, 0);
    if (!code && memory == MAP_FAILED)
        code = errno;
    if (code)
        snprintf(why, size, "%s: %s", file->path, strerror(code));
    else if (!begin(memory, name))
        snprintf(why, size, "%s is of another version of tarn", file->path);
    else {
        file->group = memory;
        if (!limits || set_limits(file, limits))
            return true;
        snprintf(why, size, "%s: another run has been writing limits for seconds", file->path);
    }
    if (memory != MAP_FAILED)
        munmap(memory, sizeof(struct group));
    if (file->file >= 0)
        close(file->file);
    file->group = NULL;
    return false;
}

struct group_sum group_file_sum(struct group_file *file, const char uuid[static 16])
{
    unsigned row = group_row(file->group, group_device(uuid), false);
    group_reap(file->group, file->file, GROUP_SLOTS);
    return row < BOOK_DEVICES ? group_sum(file->group, row) : (struct group_sum){0};
}

static bool is_empty(struct group_file *file)
{
    uint32_t slots = atomic_load(&file->group->slots);
    group_reap(file->group, file->file, GROUP_SLOTS);
    for (uint32_t i = 0; i < slots && i < GROUP_SLOTS; i++)
        if (atomic_load(&file->group->slot[i].process))
            return false;
    return true;
}

void group_close(struct group_file *file)
{
    if (!file->group)
        return;
    if (group_lock(file->file, BYTE_HELD, F_WRLCK) && is_empty(file) && is_named(file->path, file->file))
        (void)unlink(file->path);
    munmap(file->group, sizeof *file->group);
    close(file->file);
    file->group = NULL;
}
