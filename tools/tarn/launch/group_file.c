/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The file of a group, in /dev/shm or otherwise in /tmp, under a name that all processes of a user
 * know.
 *
 * Two of its bytes are locks, beside those of the slots (run/group.h). Each run holds BYTE_HELD for
 * reading as long as it lasts. Code that removes the file holds that byte for writing, so no run
 * joins a file that has lost its name. BYTE_LIMITS is held while limits are written. If another
 * process has one of the two, the code tries again for some time; it never waits for the lock.
 *
 * The programs of the group map the file and may write anything into it. What is read here is a
 * copy, whose figures are not trusted. */
#include "launch/group_file.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Opens the group's file and locks it as held. While this process has the lock, the file keeps its
 * name. -1 with errno. */
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

/* Reading and writing -------------------------------------------------------------------------- */

static bool write_at(int file, const void *from, size_t size, size_t offset)
{
    return pwrite(file, from, size, (off_t)offset) == (ssize_t)size;
}

/* Reads a word. Bytes behind the end of the file are 0. */
static uint64_t word_at(int file, size_t offset)
{
    uint64_t word = 0;
    (void)file_read_at(file, &word, sizeof word, (off_t)offset);
    return word;
}

/* Why what has the name cannot be the group's file; NULL where it can. It was not written to. */
static const char *what_is_wrong(const struct group_file *group)
{
    struct stat about;
    int reason = errno;
    bool there = lstat(group->path, &about) == 0;
    if (there && about.st_uid != geteuid())
        return "it belongs to another user; choose another name, or have it removed";
    if (group->file < 0)
        return strerror(reason);
    if (!there || !S_ISREG(about.st_mode) || about.st_nlink != 1)
        return "it has another name too; remove this one";
    uint64_t magic = word_at(group->file, offsetof(struct group, magic));
    if (magic == GROUP_MAGIC || about.st_size == 0)
        return NULL;
    return magic || about.st_size > (off_t)sizeof(struct group)
               ? "it is of another version of tarn, or not tarn's; remove it"
               : NULL;
}

/* Whoever finds no magic fills in the rest, which all fill alike. 0, or a code of errno. */
static int begin(struct group_file *group)
{
    const uint64_t magic = GROUP_MAGIC;
    int code;
    do
        code = posix_fallocate(group->file, 0, sizeof(struct group));
    while (code == EINTR);
    if (code || word_at(group->file, offsetof(struct group, magic)) == GROUP_MAGIC)
        return code;
    bool done =
        write_at(group->file, group->name, sizeof group->name, offsetof(struct group, name)) &&
        write_at(group->file, &magic, sizeof magic, offsetof(struct group, magic));
    return done ? 0 : errno;
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
    char text[GROUP_LIMITS] = "";
    (void)snprintf(text, sizeof text, "%s", limits);
    uint64_t odd =
        /* Odd already: of one that was killed here */
        word_at(file->file, offsetof(struct group, generation)) | 1;
    uint64_t even = odd + 1;
    bool done = write_at(file->file, &odd, sizeof odd, offsetof(struct group, generation)) &&
                write_at(file->file, text, sizeof text, offsetof(struct group, limits)) &&
                write_at(file->file, &even, sizeof even, offsetof(struct group, generation));
    (void)group_lock(file->file, BYTE_LIMITS, F_UNLCK);
    return done;
}

static void choose_path(struct group_file *file, const char *name)
{
    *file = (struct group_file){.file = -1};
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(file->path, sizeof file->path, "%s/tarn-group.%lu.%s",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (unsigned long)geteuid(), name);
}

bool group_open(struct group_file *file, const char *name, const char *limits, char *why,
                size_t size)
{
    choose_path(file, name);
    if (limits && strlen(limits) >= GROUP_LIMITS) {
        snprintf(why, size, "its limits are longer than %d bytes", GROUP_LIMITS);
        return false;
    }
    file->file = open_held(file->path);
    const char *wrong = what_is_wrong(file);
    int code = wrong ? 0 : begin(file);
    if (wrong)
        snprintf(why, size, "%s: %s", file->path, wrong);
    else if (code)
        snprintf(why, size, "%s: %s", file->path, strerror(code));
    else if (limits && !set_limits(file, limits))
        snprintf(why, size, "%s: another run has been writing limits for seconds", file->path);
    else
        return file->there = true;
    if (file->file >= 0)
        close(file->file);
    file->file = -1;
    return false;
}

bool group_reopen(struct group_file *group, const char *name, int file)
{
    choose_path(group, name);
    group->there = is_named(group->path, file);
    group->file = group->there ? file : -1;
    return group->there;
}

/* Looking -------------------------------------------------------------------------------------- */

/* A copy of the group, less the processes that are gone, which the file loses too. NULL without
 * host memory, and where it was cut short. */
static struct group *look(const struct group_file *file)
{
    const struct group_slot nothing = {0};
    struct group *group = malloc(sizeof *group);
    if (!group || !file_read_at(file->file, group, sizeof *group, 0)) {
        free(group);
        return NULL;
    }
    for (unsigned i = 0; i < GROUP_SLOTS; i++)
        if (atomic_load(&group->slot[i].process) && group_take(file->file, i)) {
            (void)write_at(file->file, &nothing, sizeof nothing, offsetof(struct group, slot[i]));
            group_empty(&group->slot[i]);
            (void)group_lock(file->file, (long)i, F_UNLCK);
        }
    return group;
}

struct group_sum group_file_sum(const struct group_file *file, const char uuid[static 16])
{
    struct group_sum sum = {0};
    struct group *group = look(file);
    unsigned row = group ? group_row(group, group_device(uuid), false) : BOOK_DEVICES;
    if (row < BOOK_DEVICES)
        sum = group_sum(group, row);
    free(group);
    return sum;
}

static bool is_empty(const struct group_file *file)
{
    struct group *group = look(file);
    bool found = !group;
    for (uint32_t i = 0; i < GROUP_SLOTS && !found; i++)
        found = atomic_load(&group->slot[i].process) != 0;
    free(group);
    return !found;
}

void group_close(struct group_file *file)
{
    if (!file->there)
        return;
    if (group_lock(file->file, BYTE_HELD, F_WRLCK) && is_empty(file) &&
        is_named(file->path, file->file))
        (void)unlink(file->path);
    /* a service manager may hold the open file for a moment longer, and its locks with it */
    (void)group_lock(file->file, BYTE_HELD, F_UNLCK);
    close(file->file);
    file->there = false;
}
