/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Live pages as files. Owns nothing: the code that has a page_file has the page.
 *
 * Creating a page, and removing one that was left, both take the same file lock first, and then
 * check that the name still means this file. So a page that was just created is never removed. The
 * lock belongs to the open file, which a child of fork() shares, and so closes. The memory is
 * requested when the file is created: a full disk is an error then, and no SIGBUS later. */
#include "report/page.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread/quiet.h"
#include "base/variable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_NAMES 16 /* of one process number */

static bool lock_file(int file, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool page_is_shown(int file)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

const char *page_directory(const char *wanted)
{
    const char *ways[] = {wanted, variable_get("TARN_LIVE_DIRECTORY"),
                          variable_get("XDG_RUNTIME_DIR")};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i] && *ways[i])
            return ways[i];
    return "/dev/shm";
}

/* Making --------------------------------------------------------------------------------------- */

/* Whether a name still means this file. */
static bool is_named(const char *path, const struct stat *file)
{
    struct stat named;
    return lstat(path, &named) == 0 && named.st_ino == file->st_ino && named.st_dev == file->st_dev;
}

/* Whether a file is a page, or an unfinished one whose creator was killed before it wrote the
 * magic. */
static bool is_page(int file, const struct stat *info)
{
    char magic[sizeof PAGE_MAGIC - 1] = "";
    if (!S_ISREG(info->st_mode) || info->st_uid != geteuid())
        return false;
    if (file_read_at(file, magic, sizeof magic, 0) && memcmp(magic, PAGE_MAGIC, sizeof magic) == 0)
        return true;
    return !magic[0] && (info->st_mode & 07777) == 0400 &&
           info->st_size <= (off_t)sizeof(struct page);
}

/* No process can open a page to write. So the lock is a read lock; it excludes the lock of the
 * creator, too. */
void page_remove_left(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return;
    if (fstat(file, &info) == 0 && is_page(file, &info) && lock_file(file, F_RDLCK) &&
        is_named(path, &info))
        (void)unlink(path);
    close(file);
}

static bool path_make(char *path, size_t size, const char *directory, const char *name)
{
    int length = snprintf(path, size, "%s/%s", directory, name);
    return length > 0 && (size_t)length < size;
}

/* Creates a file with a free name, and locks it. -1 with errno. */
static int file_make(const char *directory, uint64_t process, char *path, size_t size,
                     struct stat *made)
{
    for (int i = 0; i < 2 * MOST_NAMES; i++) {
        char name[64];
        snprintf(name, sizeof name, i / 2 ? PAGE_PREFIX "%" PRIu64 ".%d" : PAGE_PREFIX "%" PRIu64,
                 process, i / 2);
        if (!path_make(path, size, directory, name)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int file =
            file_renumber(open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
        if (file < 0 && errno != EEXIST)
            return -1;
        if (file < 0) {
            page_remove_left(path); /* then the name is tried again */
            continue;
        }
        if (fstat(file, made) || !lock_file(file, F_WRLCK)) {
            int code = errno;
            /* Another process has locked a page that was left, and removes it. */
            bool is_taken = code == EAGAIN || code == EACCES;
            if (!is_taken)
                (void)unlink(path);
            close(file);
            errno = code;
            if (!is_taken)
                return -1;
        } else if (is_named(path, made)) {
            return file;
        } else {
            close(file);
        }
    }
    errno = EEXIST;
    return -1;
}

tarn_status page_create(const char *directory, const struct page_head *head,
                        struct page_file *result)
{
    struct page_file made;
    uint64_t process = head->pid ? head->pid : (uint64_t)getpid();
    made.file = file_make(directory, process, made.path, sizeof made.path, &made.made);
    if (made.file < 0)
        return failed(TARN_ERROR_SYSTEM,
                      "a live page in %s: %s; TARN_LIVE_DIRECTORY names another directory, best "
                      "one of memory as "
                      "/dev/shm",
                      directory, strerror(errno));
    struct quiet quiet;
    int code;
    quiet_begin(&quiet);
    do
        code = posix_fallocate(made.file, 0, sizeof(struct page));
    while (code == EINTR); /* in memory, a signal interrupts the call */
    quiet_end(&quiet);
    void *memory =
        code ? MAP_FAILED
             : mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
    if (memory == MAP_FAILED) {
        code = code ? code : errno;
        (void)unlink(made.path);
        close(made.file);
        return failed(TARN_ERROR_SYSTEM, "a live page of %zu bytes in %s: %s", sizeof(struct page),
                      directory, strerror(code));
    }
    (void)madvise(memory, sizeof(struct page), MADV_DONTFORK);
    made.page = memory;
    made.page->head = *head;
    made.page->head.version = PAGE_VERSION;
    made.page->head.size = sizeof(struct page);
    made.page->head.pid = process;
    atomic_thread_fence(memory_order_release);
    /* Written last: now it is a page. */
    memcpy(made.page->head.magic, PAGE_MAGIC, sizeof made.page->head.magic);
    *result = made;
    return TARN_OK;
}

void page_remove(struct page_file *file)
{
    if (!file->page)
        return;
    if (is_named(file->path, &file->made))
        (void)unlink(file->path);
    munmap(file->page, sizeof(struct page));
    close(file->file);
    file->page = NULL;
}

void page_forget(struct page_file *file)
{
    if (!file->page)
        return;
    close(file->file);
    file->page = NULL; /* not mapped here (MADV_DONTFORK) */
}

/* Writing -------------------------------------------------------------------------------------- */

void page_write(struct page_file *file, const struct survey *survey)
{
    struct page *page = file->page;
    struct survey *to = &page->survey;
    uint64_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(to, survey, offsetof(struct survey, devices));
    memcpy(to->devices, survey->devices, survey->device_count.here * sizeof *to->devices);
    memcpy(to->pools, survey->pools, survey->pool_count.here * sizeof *to->pools);
    memcpy(to->streams, survey->streams, survey->stream_count.here * sizeof *to->streams);
    memcpy(to->handles, survey->handles, survey->handle_count.here * sizeof *to->handles);
    memcpy(to->libraries, survey->libraries, survey->library_count.here * sizeof *to->libraries);
    memcpy(to->graphs, survey->graphs, survey->graph_count.here * sizeof *to->graphs);
    atomic_store_explicit(&page->sequence, sequence + 2, memory_order_release);
}

/* Finding -------------------------------------------------------------------------------------- */

bool page_each(const char *directory, void (*visit)(void *argument, const char *name),
               void *argument)
{
    _Alignas(struct dirent64) char entries[4096];
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t bytes = -1;
    if (folder < 0)
        return false;
    /* glibc has a function for it only since 2.30. */
    while ((bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);
            if (strncmp(entry->d_name, PAGE_PREFIX, strlen(PAGE_PREFIX)) == 0)
                visit(argument, entry->d_name);
            at += entry->d_reclen;
        }
    }
    int code = errno;
    close(folder);
    errno = code;
    return bytes == 0;
}

static void sweep(void *argument, const char *name)
{
    char path[4096];
    if (path_make(path, sizeof path, argument, name))
        page_remove_left(path);
}

void page_sweep(const char *directory)
{
    char copy[4096];
    int length = snprintf(copy, sizeof copy, "%s", directory);
    if (length > 0 && (size_t)length < sizeof copy)
        (void)page_each(copy, sweep, copy);
}
