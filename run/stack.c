/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whole stacks, if they were asked for. They are in a file beside the log. Each stack is written
 * once: its number of frames, then their sites. A stack's number is the index of its first word,
 * and is never 0. Readers ignore what lies behind the count of words in the book. */
#include "shim.h"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { OWN_FRAMES = 8, STACKS = 1 << 15 };
#define FILE_STEP (UINT64_C(1) << 20)

static struct {
    pthread_mutex_t lock; /* a leaf */
    uint32_t *words;      /* NULL: no stacks are wanted */
    struct own_file file;
    uint64_t room; /* words for which the file has space */
    unsigned count;
} stacks = {.lock = PTHREAD_MUTEX_INITIALIZER, .file = {.number = -1}};

void stack_open(const char *path)
{
    int file = own_file_open(&stacks.file, path, O_RDWR | O_CREAT | O_EXCL);
    void *memory = file < 0 ? MAP_FAILED
                            : mmap(NULL, BOOK_STACKS_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) {
        own_file_close(&stacks.file);
        return;
    }
    stacks.words = memory;
    atomic_store(&book->stack_words, 1);
}

/* A hash table from stacks to their numbers, under the same lock. It is zero at first, so that it
 * takes no space in the shim's file. */
static struct {
    uint64_t hash;
    uint32_t number; /* of the stack; 0: the slot is empty */
} known[STACKS];

static bool grow_locked(uint64_t words)
{
    while (stacks.room < words) {
        uint64_t bytes = stacks.room * sizeof(uint32_t);
        int file = bytes + FILE_STEP <= BOOK_STACKS_BYTES ? own_file(&stacks.file) : -1;
        if (file < 0 || !file_reserve(file, bytes, FILE_STEP))
            return false;
        stacks.room += FILE_STEP / sizeof(uint32_t);
    }
    return true;
}

static uint32_t write_locked(void *const *frames, uint32_t count)
{
    uint64_t at = atomic_load(&book->stack_words);
    if (!grow_locked(at + 1 + count))
        return 0;
    stacks.words[at] = count;
    for (uint32_t i = 0; i < count; i++)
        stacks.words[at + 1 + i] = site_of_frame(frames[i]);
    atomic_store(&book->stack_words, at + 1 + count);
    return (uint32_t)at;
}

uint32_t stack_of(void *caller)
{
    void *frames[BOOK_FRAMES];
    if (!stacks.words)
        return 0;
    int count = backtrace(frames, BOOK_FRAMES), first = 0;
    while (first < count && first < OWN_FRAMES && frames[first] != caller)
        first++;
    if (first == count || frames[first] != caller)
        return 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = first; i < count; i++)
        hash = (hash ^ (uintptr_t)frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
    pthread_mutex_lock(&stacks.lock);
    size_t at = hash >> 40 & (STACKS - 1);
    while (known[at].number && known[at].hash != hash)
        at = (at + 1) & (STACKS - 1);
    uint32_t number = known[at].number;
    if (!number && stacks.count < STACKS / 2) {
        number = write_locked(frames + first, (uint32_t)(count - first));
        known[at].hash = hash;
        known[at].number = number;
        stacks.count += number != 0;
    }
    pthread_mutex_unlock(&stacks.lock);
    return number;
}
