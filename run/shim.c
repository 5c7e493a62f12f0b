/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The life of the shim in a process: asleep until cuInit() has succeeded, then awake; in a child of
 * fork() it only passes calls on. Owns the book and the log. */
#include "shim.h"
#include "pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* books of one process number: a process has one for each program that it became by exec() */
enum { BOOKS_MOST = 1000 };
#define LOG_STEP (UINT64_C(1) << 20)

struct book *book;
_Atomic int shim_state;
_Thread_local unsigned shim_depth;

static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct book_record *records;
    struct own_file file;
    _Atomic uint64_t room; /* records for which the file has space */
    pthread_mutex_t growing;
} log_ = {.file = {.number = -1}, .growing = PTHREAD_MUTEX_INITIALIZER};

/* Time ----------------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ns since the book's start. */
static uint64_t shim_now(void)
{
    uint64_t now = clock_ns();
    return now > book->start_ns ? now - book->start_ns : 0;
}

/* The log -------------------------------------------------------------------------------------- */

static void log_open(const char *path)
{
    int file = own_file_open(&log_.file, path, O_RDWR | O_CREAT | O_EXCL);
    if (file < 0)
        return;
    void *memory =
        mmap(NULL, BOOK_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED)
        own_file_close(&log_.file);
    else
        log_.records = memory;
}

/* Makes room in the file for record `index`. */
static bool log_grow(uint64_t index)
{
    if (index < atomic_load_explicit(&log_.room, memory_order_acquire))
        return true;
    bool there = true;
    pthread_mutex_lock(&log_.growing);
    uint64_t bytes = atomic_load(&log_.room) * sizeof(struct book_record);
    while (there && index >= atomic_load(&log_.room)) {
        bytes = bytes / LOG_STEP * LOG_STEP;
        int file = bytes + LOG_STEP <= BOOK_LOG_BYTES ? own_file(&log_.file) : -1;
        there = file >= 0 && file_reserve(file, bytes, LOG_STEP);
        if (there)
            atomic_store(&log_.room, (bytes + LOG_STEP) / sizeof(struct book_record));
        bytes += LOG_STEP;
    }
    pthread_mutex_unlock(&log_.growing);
    return there;
}

uint64_t log_place(void)
{
    if (!log_.records)
        return 0;
    uint64_t index = atomic_fetch_add(&book->log_count, 1);
    if (!log_grow(index)) {
        atomic_fetch_add(&book->log_lost, 1);
        return LOG_FULL;
    }
    log_.records[index].time_ns = shim_now();
    return index + 1;
}

void log_write(const struct block *block, run_stream stream, uint32_t stack, enum book_what what)
{
    uint64_t place = what == BOOK_FREE && block->place ? block->place : log_place();
    if (!place || place == LOG_FULL)
        return;
    struct book_record *record = &log_.records[place - 1];
    *record = (struct book_record){
        .time_ns = record->time_ns,
        .address = block->key,
        .size = block->size,
        .stream = (uint64_t)(uintptr_t)stream,
        .thread = (uint32_t)syscall(SYS_gettid),
        .site = block->site,
        .device = block->device,
        .kind = block->kind,
        .is_free = (uint8_t)what,
        .stack = stack,
    };
}

/* The book ------------------------------------------------------------------------------------- */

/* Writes the command into the book as one line: control characters become spaces. */
static void describe_process(void)
{
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, book->command, sizeof book->command - 1);
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i + 1 < length; i++)
        if ((unsigned char)book->command[i] < ' ' || book->command[i] == 0x7f)
            book->command[i] = ' ';
}

/* Creates a new file in the folder. */
static int book_create(const char *folder, char *path, size_t size)
{
    for (int i = 0; i < BOOKS_MOST; i++) {
        if ((size_t)snprintf(path, size, "%s/%d-%d.book", folder, (int)getpid(), i) >= size)
            return -1;
        int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

/* Without a folder the book is in memory alone; a limit holds nevertheless. */
static struct book *book_open(char *path, size_t size, bool *is_file)
{
    const char *folder = getenv(RUN_FOLDER_VARIABLE);
    int file = folder && *folder ? book_create(folder, path, size) : -1;
    if (file >= 0 && !file_reserve(file, 0, sizeof(struct book))) {
        /* an empty file says that this process is missing from the summary */
        (void)!ftruncate(file, 0);
        close(file);
        file = -1;
    }
    int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *memory = mmap(NULL, sizeof(struct book), PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory != MAP_FAILED && file >= 0) {
        const char *wants = getenv(RUN_LOG_VARIABLE);
        memcpy(strrchr(path, '.'), ".log", sizeof ".log");
        if (wants && (strcmp(wants, "1") == 0 || strcmp(wants, "2") == 0))
            log_open(path);
    }
    *is_file = file >= 0;
    if (file >= 0)
        close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Life ----------------------------------------------------------------------------------------- */

/* Other threads of the parent may have held locks, so the child does nothing more that takes
 * one. */
static void forked(void)
{
    if (atomic_load(&shim_state) == SHIM_AWAKE)
        atomic_store(&shim_state, SHIM_PASSING);
    pthread_mutex_init(&waking, NULL);
    group_forked();
    shim_depth = 0;
}

/* Runs at exit. Destructors of static objects may free memory after it; that is still passed on and
 * written down. */
static void ended(void)
{
    if (atomic_load(&shim_state) == SHIM_AWAKE)
        atomic_store(&book->ended, 1);
}

static void wake(void)
{
    bool is_file;
    char path[4096] = "";
    const char *wants = getenv(RUN_LOG_VARIABLE);
    struct book *opened = book_open(path, sizeof path, &is_file);
    if (!opened) {
        atomic_store(&shim_state, SHIM_PASSING);
        return;
    }
    book = opened;
    book->version = BOOK_VERSION;
    book->watched = is_file;
    book->process = (uint32_t)getpid();
    book->start_ns = clock_ns();
    atomic_store(&book->libraries, 1); /* entry 0: code of no file */
    atomic_store(&book->sites, 1);
    memcpy(book->driver, RUN_DRIVER, sizeof RUN_DRIVER);
    describe_process();
    describe_devices();
    if (is_file && wants && strcmp(wants, "2") == 0) {
        memcpy(strrchr(path, '.'), ".stk", sizeof ".stk");
        stack_open(path);
    }
    limits_read(getenv(RUN_LIMIT_VARIABLE));
    group_join();
    group_limits();
#ifndef TARN_RUN_HIP
    pool_begin();
#endif
    charges_begin();
    (void)atexit(ended);
    atomic_thread_fence(memory_order_release);
    book->magic = BOOK_MAGIC;
    atomic_store(&shim_state, SHIM_AWAKE);
}

void shim_wake(void)
{
    if (atomic_load_explicit(&shim_state, memory_order_acquire) != SHIM_ASLEEP)
        return;
    pthread_mutex_lock(&waking);
    shim_depth++;
    if (atomic_load(&shim_state) == SHIM_ASLEEP)
        wake();
    shim_depth--;
    pthread_mutex_unlock(&waking);
}

__attribute__((constructor)) static void start(void)
{
    (void)pthread_atfork(NULL, NULL, forked);
}
