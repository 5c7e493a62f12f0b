/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/system.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- Which call fails ---- */

enum {
    HARD,
    OTHER,
    SOFT,
    /* the ways: no room; another error; an error that is over when the call is repeated, or a part
     * of the work done */
    WAYS
};

static struct {
    atomic_ulong nth, calls, hits; /* nth is 0 while no failure is set */
    atomic_bool forever;
    atomic_int way;
    _Atomic(const char *) only;
} set;

/* Names of libraries and symbols, each followed by a space. */
static _Thread_local char not_found[16384];

static void *do_not_find(const char *name)
{
    size_t used = strlen(not_found);
    snprintf(not_found + used, sizeof not_found - used, "%s ", name);
    return NULL;
}

bool system_failure_named(const char *text)
{
    char word[256];
    for (const char *at = not_found; *at; at += strlen(word) + 1) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        if (strstr(text, word))
            return true;
    }
    return false;
}

int system_ways(void)
{
    return WAYS;
}

void system_arm(uint64_t nth, bool forever, int way)
{
    if (nth)
        not_found[0] = '\0';
    atomic_store(&set.nth, 0);
    atomic_store(&set.calls, 0);
    atomic_store(&set.hits, 0);
    atomic_store(&set.forever, forever);
    atomic_store(&set.way, way);
    atomic_store(&set.nth, nth);
}

uint64_t system_calls(void)
{
    return atomic_load(&set.calls);
}

uint64_t system_hits(void)
{
    return atomic_load(&set.hits);
}

void system_only(const char *names)
{
    atomic_store(&set.only, names);
}

static bool is_meant(const char *name)
{
    const char *at = atomic_load(&set.only);
    size_t length = strlen(name);
    for (; at && (at = strstr(at, name)); at += length)
        if ((at[length] == ' ' || !at[length]) && (at == atomic_load(&set.only) || at[-1] == ' '))
            return true;
    return !atomic_load(&set.only);
}

/* The way in which this call is to fail; -1: it does not fail. */
static int fails(const char *name)
{
    uint64_t nth = atomic_load_explicit(&set.nth, memory_order_acquire);
    if (!nth || !is_meant(name))
        return -1;
    uint64_t number = atomic_fetch_add(&set.calls, 1) + 1;
    if (number != nth && !(number > nth && atomic_load(&set.forever)))
        return -1;
    atomic_fetch_add(&set.hits, 1);
    return atomic_load(&set.way);
}

/* True if the call is to fail; sets errno for the way. */
static bool fails_with(const char *name, int hard, int other)
{
    int way = fails(name);
    if (way < 0)
        return false;
    errno = way == HARD ? hard : other;
    return true;
}

/* ---- The calls ---- */

/* The linker uses these names, which C reserves. */
#define WRAPPED(type, name, parameters) \
    type __real_##name parameters;      \
    type __wrap_##name parameters;      \
    type __wrap_##name parameters

void (*_Atomic system_at_loader)(void);

static void at_loader(void)
{
    void (*function)(void) = atomic_load(&system_at_loader);
    if (function)
        function();
}

WRAPPED(void *, dlopen, (const char *name, int flags))
{
    at_loader();
    return fails("dlopen") >= 0 ? do_not_find(name) : __real_dlopen(name, flags);
}

void *(*system_instead)(const char *symbol);

WRAPPED(void *, dlsym, (void *library, const char *name))
{
    at_loader();
    int way = fails("dlsym");
    if (way < 0)
        return __real_dlsym(library, name);
    return way == SOFT && system_instead ? system_instead(name) : do_not_find(name);
}

/* This call never fails. */
WRAPPED(int, dladdr, (const void *address, Dl_info *info))
{
    at_loader();
    return __real_dladdr(address, info);
}

WRAPPED(int, open, (const char *path, int flags, ...))
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    return fails_with("open", ENOSPC, EMFILE) ? -1 : __real_open(path, flags, mode);
}

WRAPPED(ssize_t, write, (int file, const void *data, size_t size))
{
    int way = fails("write");
    if (way < 0)
        return __real_write(file, data, size);
    if (way == SOFT && size > 1)
        return __real_write(file, data, size / 2);
    bool again = way == OTHER && !atomic_load(&set.forever);
    errno = again ? EINTR : way == OTHER ? EIO : ENOSPC;
    return -1;
}

WRAPPED(ssize_t, pread, (int file, void *data, size_t size, off_t offset))
{
    int way = fails("pread");
    if (way == SOFT && size > 1)
        size /= 2;
    else if (way >= 0) {
        errno = way == OTHER && !atomic_load(&set.forever) ? EINTR : EIO;
        return -1;
    }
    return __real_pread(file, data, size, offset);
}

WRAPPED(ssize_t, read, (int file, void *data, size_t size))
{
    int way = fails("read");
    if (way == SOFT && size > 1)
        size /= 2;
    else if (way >= 0) {
        errno = EIO;
        return -1;
    }
    return __real_read(file, data, size);
}

/* As on Linux, the file is closed even if the call fails. */
WRAPPED(int, close, (int file))
{
    int way = fails("close"), result = __real_close(file);
    if (way < 0)
        return result;
    errno = way == HARD ? EIO : EDQUOT;
    return -1;
}

WRAPPED(int, rename, (const char *from, const char *to))
{
    return fails_with("rename", ENOSPC, EACCES) ? -1 : __real_rename(from, to);
}

WRAPPED(int, fstat, (int file, struct stat *info))
{
    return fails_with("fstat", EIO, EOVERFLOW) ? -1 : __real_fstat(file, info);
}

WRAPPED(int, ftruncate, (int file, off_t size))
{
    return fails_with("ftruncate", ENOSPC, EIO) ? -1 : __real_ftruncate(file, size);
}

WRAPPED(int, posix_fallocate, (int file, off_t offset, off_t size))
{
    int way = fails("posix_fallocate");
    if (way < 0)
        return __real_posix_fallocate(file, offset, size);
    bool again = way == SOFT && !atomic_load(&set.forever); /* a caller tries again */
    return again ? EINTR : way == OTHER ? EIO : ENOSPC;
}

WRAPPED(int, memfd_create, (const char *name, unsigned flags))
{
    return fails_with("memfd_create", ENOMEM, EMFILE) ? -1 : __real_memfd_create(name, flags);
}

WRAPPED(int, fcntl, (int file, int command, ...))
{
    va_list arguments;
    va_start(arguments, command);
    /* there may be no argument, or a number, which has the same width in a register */
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fails_with("fcntl", EMFILE, ENOLCK) ? -1 : __real_fcntl(file, command, argument);
}

/* Calls of base/pages.c are not counted here: pages_fail() makes them fail. */
WRAPPED(void *, mmap,
        (void *address, size_t size, int protection, int flags, int file, off_t offset))
{
    bool pages = flags == (MAP_PRIVATE | MAP_ANONYMOUS) && !atomic_load(&set.only);
    if (!pages && fails_with("mmap", ENOMEM, EAGAIN))
        return MAP_FAILED;
    return __real_mmap(address, size, protection, flags, file, offset);
}

WRAPPED(int, mprotect, (void *address, size_t size, int protection))
{
    return fails_with("mprotect", ENOMEM, EACCES) ? -1 : __real_mprotect(address, size, protection);
}

WRAPPED(ssize_t, sendmsg, (int socket, const struct msghdr *message, int flags))
{
    bool again = !atomic_load(&set.forever);
    return fails_with("sendmsg", ENOBUFS, again ? EINTR : EPIPE)
               ? -1
               : __real_sendmsg(socket, message, flags);
}

WRAPPED(ssize_t, recvmsg, (int socket, struct msghdr *message, int flags))
{
    bool again = !atomic_load(&set.forever);
    return fails_with("recvmsg", ENOBUFS, again ? EINTR : ECONNRESET)
               ? -1
               : __real_recvmsg(socket, message, flags);
}

WRAPPED(ssize_t, getrandom, (void *data, size_t size, unsigned flags))
{
    return fails_with("getrandom", ENOSYS, EINTR) ? -1 : __real_getrandom(data, size, flags);
}

WRAPPED(long, syscall, (long number, ...))
{
    long list[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        list[i] = va_arg(arguments, long);
    va_end(arguments);
    if (fails_with("syscall", ENOSYS, EPERM))
        return -1;
    return __real_syscall(number, list[0], list[1], list[2], list[3], list[4], list[5]);
}

WRAPPED(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *argument))
{
    return fails("pthread_create") >= 0 ? EAGAIN
                                        : __real_pthread_create(thread, how, run, argument);
}

static void *run_it(void *argument)
{
    void (*run)(void);
    memcpy(&run, argument, sizeof run);
    run();
    return NULL;
}

void system_in_thread(void (*run)(void))
{
    pthread_t thread;
    if (__real_pthread_create(&thread, NULL, run_it, &run) || pthread_join(thread, NULL))
        abort();
}

WRAPPED(int, pthread_key_create, (pthread_key_t * key, void (*end)(void *)))
{
    int way = fails("pthread_key_create");
    return way < 0 ? __real_pthread_key_create(key, end) : way == HARD ? EAGAIN : ENOMEM;
}

WRAPPED(int, pthread_setspecific, (pthread_key_t key, const void *value))
{
    return fails("pthread_setspecific") >= 0 ? ENOMEM : __real_pthread_setspecific(key, value);
}

WRAPPED(int, pthread_atfork, (void (*before)(void), void (*parent)(void), void (*child)(void)))
{
    return fails("pthread_atfork") >= 0 ? ENOMEM : __real_pthread_atfork(before, parent, child);
}
